"""sentence-transformers directories: `modules.json` with a transformer, pooling, a dense layer, normalization.

The layouts are from sentence-transformers 0.2 to 6 (https://www.sbert.net, Reimers & Gurevych 2019). Everything that
changes an embedding is an error if our models lack it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.checkpoints import sentence_keys as keys
from pocketbert.checkpoints.families.registry import FAMILIES
from pocketbert.checkpoints.module_layout import MODULES, MODULES_NAME, PACKAGE, load_headless, read_layout
from pocketbert.checkpoints.own_config import OWN_KEY
from pocketbert.checkpoints.stored_tensors import open_weights
from pocketbert.checkpoints.tokenizer_files import CONFIG_NAME as TOKENIZER_CONFIG_NAME
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.errors import UserError
from pocketbert.files import write_json, write_tensors
from pocketbert.json_reading import has_type, read_json_object
from pocketbert.progress import log_info
from pocketbert_runtime.embedding_config import EmbeddingConfig
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

_SENTENCE_NAME = "sentence_bert_config.json"
_MODEL_NAME = "config_sentence_transformers.json"
_ACTIVATIONS = {
    "tanh": "torch.nn.modules.activation.Tanh",
    "relu": "torch.nn.modules.activation.ReLU",
    "gelu": "torch.nn.modules.activation.GELU",
    "identity": "torch.nn.modules.linear.Identity",
}
_HEAD = "heads.embedding.dense"
_MOST_LENGTH = 1 << 20
_RESIDUAL = "heads.embedding.residual.kernel"


@dataclass(frozen=True)
class Modules:
    """Content of a `modules.json` and the folders in it.

    Attributes:
      task: the embedding; None for a cross-encoder, with its head in the transformer.
      lowercase: whether texts are lower-cased before the tokenizer.
      activation: class of a cross-encoder's activation; empty for the default.
      width: width of the pooled feature map; 0 if it is not recorded.
      dense: the dense layer's folder, or None.
    """

    task: TaskConfig | None
    lowercase: bool
    activation: str = ""
    width: int = 0
    dense: Path | None = None

    def task_for(self, config: EncoderConfig) -> TaskConfig:
        """Returns the embedding on an encoder; the encoder's positions also limit the length."""
        assert self.task is not None and self.task.embedding is not None
        length = self.task.embedding.max_length
        if length is None or length < config.max_position_embeddings:
            return self.task
        return dataclasses.replace(self.task, embedding=dataclasses.replace(self.task.embedding, max_length=None))

    def problems(self, hidden_size: int, vocabulary: Vocabulary | None) -> list[str]:
        """Reports pooling with another width than the encoder's, and lower-casing that the tokenizer lacks."""
        problems = []
        if self.width not in (0, hidden_size):
            problems.append(
                f"word_embedding_dimension must be the encoder's hidden size, {hidden_size}; received {self.width}"
            )
        if self.lowercase and vocabulary and not vocabulary.rules.has_options:
            problems.append(f"do_lower_case must be false for {vocabulary.path.name}; received true")
        elif self.lowercase and vocabulary and not vocabulary.options.lowercase:
            problems.append(
                f"do_lower_case must be false for a cased tokenizer; received true; to lower-case, set it to true in "
                f"{TOKENIZER_CONFIG_NAME} with strip_accents false"
            )
        return problems

    def read_dense(self, hidden_size: int, problems: list[str]) -> dict[str, np.ndarray]:
        """Reads the dense layer's weights by path in our model; empty without a dense layer or with problems."""
        if self.dense is None:
            return {}
        assert self.task is not None and self.task.embedding is not None
        config = self.task.embedding
        assert config.dimensions is not None
        required: dict[str, tuple[int, ...]] = {"linear.weight": (config.dimensions, hidden_size)}
        required |= {"linear.bias": (config.dimensions,)} if config.dense_bias else {}
        has_map = config.dense_residual and config.dimensions != hidden_size
        required |= {"residual.weight": (config.dimensions, hidden_size)} if has_map else {}
        with ExitStack() as stack:
            stored = open_weights(self.dense, stack, problems, library="sentence-transformers")
            shapes = {name: tensor.shape for name, tensor in stored.items()}
            if shapes != required:
                problems.append(f"{self.dense.name} must have the tensors {required}; received {shapes}")
                return {}
            arrays = {name: tensor.read().astype(np.float32) for name, tensor in stored.items()}
        weights = {f"{_HEAD}.kernel": arrays["linear.weight"].T}
        weights |= {f"{_HEAD}.bias": arrays["linear.bias"]} if config.dense_bias else {}
        return weights | ({_RESIDUAL: arrays["residual.weight"].T} if has_map else {})


def read_modules(path: Path) -> Modules | None:
    """Reads `modules.json` and its modules, or None; raises `UserError` with all unknown modules and options."""
    if not (path / MODULES_NAME).is_file():
        return None
    problems: list[str] = []
    layout = {module.kind: module.folder for module in read_layout(path, problems)}
    if not problems and list(layout) != [MODULES[0]] and [*layout][:2] != [*MODULES[:2]]:
        received = ", ".join(layout) or "none"
        problems.append(
            "the modules must be Transformer, Pooling, then optionally Dense and Normalize; or a cross-encoder's "
            f"Transformer alone; received {received}; for the encoder alone, {load_headless()}"
        )
    if [*layout] != sorted(layout, key=MODULES.index):
        problems.append(f"the modules must have the order {', '.join(MODULES)}; received {', '.join(layout)}")
    if problems:
        raise UserError(f"{path}: {'; '.join(problems)}")
    model = keys.read_file(path / _MODEL_NAME, keys.MODEL, problems)
    modules = (_cross_encoder if len(layout) == 1 else _embedding)(layout, model, problems)
    if modules is None or problems:
        raise UserError(f"{path}: {'; '.join(problems)}")
    return modules


def _cross_encoder(layout: Mapping[str, Path], model: Mapping[str, Any], problems: list[str]) -> Modules:
    sentence = _sentence(layout[MODULES[0]], keys.CROSS_ENCODER, "logits", problems)
    if model["model_type"] not in ("", "CrossEncoder"):
        problems.append(
            f"a Transformer without Pooling must be a CrossEncoder; received {model['model_type']}; {load_headless()}"
        )
    prompts = _prompts(model, problems)
    if prompts["default_prompt"] is not None:
        problems.append(f"default_prompt_name of a cross-encoder must be null; received {prompts['default_prompt']!r}")
    elif prompts["prompts"]:
        log_info(f"{_MODEL_NAME}: prompts are not used, since a cross-encoder here has none")
    return Modules(None, sentence["do_lower_case"], activation=model["activation_fn"])


def _embedding(layout: Mapping[str, Path], model: Mapping[str, Any], problems: list[str]) -> Modules | None:
    sentence = _sentence(layout[MODULES[0]], keys.EMBEDDING, "last_hidden_state", problems)
    if model["model_type"] not in ("", "SentenceTransformer"):
        problems.append(f"{_MODEL_NAME}: model_type must be SentenceTransformer; received {model['model_type']!r}")
    fields: dict[str, Any] = {"normalize": "Normalize" in layout, **_prompts(model, problems)}
    if model["similarity_fn_name"] != "cosine" and not (model["similarity_fn_name"] == "dot" and fields["normalize"]):
        log_info(f"{_MODEL_NAME}: similarity_fn_name is {model['similarity_fn_name']}; similarities here are cosines")
    fields["max_length"] = _max_length(layout[MODULES[0]], sentence["max_seq_length"], problems)
    pooling = keys.read_file(layout["Pooling"] / "config.json", keys.POOLING, problems, required=True)
    fields["pooling"] = _pooling(pooling, problems)
    if not pooling["include_prompt"] and fields["prompts"]:
        problems.append("include_prompt must be true, since our pooling includes the prompt; received false")
    width = pooling["embedding_dimension"] or pooling["word_embedding_dimension"]
    if pooling["word_embedding_dimension"] not in (0, width):
        problems.append(
            f"embedding_dimension and word_embedding_dimension must be equal; received {width} and "
            f"{pooling['word_embedding_dimension']}"
        )
    if "Dense" in layout:
        fields |= _dense(layout["Dense"], width, problems)
    if "Normalize" in layout:
        keys.read_file(layout["Normalize"] / "config.json", keys.NORMALIZE, problems)
    if problems:
        return None
    try:
        embedding = EmbeddingConfig(**fields)
    except UserError as error:
        problems.append(str(error))
        return None
    task = TaskConfig(kind="embedding", name=model[OWN_KEY], embedding=embedding)
    return Modules(task, sentence["do_lower_case"], width=width, dense=layout.get("Dense"))


def _sentence(folder: Path, accepted: keys.Keys, output: str, problems: list[str]) -> dict[str, Any]:
    """The transformer's options."""
    names = (_SENTENCE_NAME, *(family.sentence_config for family in FAMILIES.values() if family.sentence_config))
    name = next((name for name in names if (folder / name).is_file()), _SENTENCE_NAME)
    sentence = keys.read_file(folder / name, accepted, problems)
    required = {"method": "forward", "method_output_name": output}
    text = sentence["modality_config"].get("text", required)
    if text != required:
        problems.append(f"{name}: modality_config.text must be {required}; received {text!r:.200}")
    return sentence


def _max_length(folder: Path, module_length: int | None, problems: list[str]) -> int | None:
    """The smaller maximum sequence length from module and tokenizer; None for none."""
    content = read_json_object(folder / TOKENIZER_CONFIG_NAME, problems, required=False) or {}
    # transformers 2 called it max_len. An unlimited tokenizer has a huge number.
    tokenizer = content.get("model_max_length", content.get("max_len"))
    if tokenizer is not None and not has_type(tokenizer, float):
        problems.append(f"{TOKENIZER_CONFIG_NAME}: model_max_length must be a number; received {tokenizer!r:.60}")
        tokenizer = None
    limits = [module_length, int(tokenizer) if tokenizer is not None and tokenizer <= _MOST_LENGTH else None]
    return min((limit for limit in limits if limit is not None), default=None)


def is_sentence_transformer(tasks: Sequence[TaskConfig]) -> bool:
    """Whether a model with these tasks has sentence-transformers' layout: its only head embeds."""
    return len(tasks) == 1 and tasks[0].rules.has_embedding


def write_modules(folder: Path, task: TaskConfig, hidden_size: int, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes `modules.json` and the modules' files, except the transformer's.

    Args:
      folder: a model directory.
      task: the embedding.
      hidden_size: the encoder's width.
      tensors: model weights by path; only the dense layer's are written.
    """
    config = task.embedding
    assert config is not None
    names = ["Transformer", "Pooling"]
    names += (["Dense"] if config.dimensions else []) + (["Normalize"] if config.normalize else [])
    paths = {name: f"{index}_{name}" if index else "" for index, name in enumerate(names)}
    for path in filter(None, paths.values()):
        (folder / path).mkdir()
    flags = {flag: config.pooling == mode for mode, flag in keys.POOLINGS.items()}
    pooling = {"word_embedding_dimension": hidden_size, **flags, "pooling_mode_mean_sqrt_len_tokens": False}
    write_json(folder / paths["Pooling"] / "config.json", {**pooling, "include_prompt": True})
    if config.dimensions:
        linear = {"in_features": hidden_size, "out_features": config.dimensions, "bias": config.dense_bias}
        activation = {"activation_function": _ACTIVATIONS[config.dense_activation]}
        residual = {"use_residual": True} if config.dense_residual else {}
        write_json(folder / paths["Dense"] / "config.json", {**linear, **activation, **residual})
        arrays = {"linear.weight": np.ascontiguousarray(np.asarray(tensors[f"{_HEAD}.kernel"], np.float32).T)}
        if config.dense_bias:
            arrays["linear.bias"] = np.asarray(tensors[f"{_HEAD}.bias"], np.float32)
        if _RESIDUAL in tensors:
            arrays["residual.weight"] = np.ascontiguousarray(np.asarray(tensors[_RESIDUAL], np.float32).T)
        write_tensors(folder / paths["Dense"] / "model.safetensors", arrays, {"format": "pt"})
    prompts = {"prompts": dict(config.prompts), "default_prompt_name": config.default_prompt}
    name = {OWN_KEY: task.name} if task.name else {}
    write_json(folder / _MODEL_NAME, {"__version__": {}, **prompts, "similarity_fn_name": "cosine", **name})
    length = {} if config.max_length is None else {"max_seq_length": config.max_length}
    write_json(folder / _SENTENCE_NAME, {**length, "do_lower_case": False})
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"{PACKAGE}.models.{name}"}
        for index, (name, path) in enumerate(paths.items())
    ]
    write_json(folder / MODULES_NAME, modules)


def _pooling(content: Mapping[str, Any], problems: list[str]) -> str:
    """The pooling mode; the old layout has a flag for each mode, the new one a name."""
    names = {flag: mode for mode, flag in keys.POOLINGS.items()}
    modes = [names.get(key, key) for key, value in content.items() if key.startswith("pooling_mode_") and value is True]
    if (named := content["pooling_mode"]) is not None:
        modes = [str(mode) for mode in named] if isinstance(named, list) else [str(named)]
    if len(modes) != 1 or modes[0] not in keys.POOLINGS:
        received = " and ".join(modes) or "none"
        accepted = ", ".join(keys.POOLINGS)
        problems.append(
            f"the pooling must be one of {accepted}; received {received}; for the encoder alone, {load_headless()}"
        )
        return "mean"
    return modes[0]


def _dense(folder: Path, width: int, problems: list[str]) -> dict[str, Any]:
    content = keys.read_file(folder / "config.json", keys.DENSE, problems, required=True)
    if width not in (0, content["in_features"]):
        problems.append(
            f"in_features of {folder.name} must be the pooling's width, {width}; received {content['in_features']!r}"
        )
    activations = {keys.activation_name(name): activation for activation, name in _ACTIVATIONS.items()}
    activation = keys.activation_name(content["activation_function"])
    if activation not in activations:
        problems.append(
            f"activation_function must be one of {', '.join(_ACTIVATIONS.values())}; received "
            f"{content['activation_function']!r}"
        )
    return {
        "dimensions": content["out_features"],
        "dense_bias": content["bias"],
        "dense_activation": activations.get(activation, "tanh"),
        "dense_residual": content["use_residual"],
    }


def _prompts(content: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    prompts, default = content["prompts"], content["default_prompt_name"] or None
    if not all(isinstance(text, str) for text in prompts.values()):
        problems.append(f"prompts in {_MODEL_NAME} must map names to texts; received {prompts!r:.80}")
        prompts = {}
    if default is not None and default not in prompts:
        problems.append(
            f"default_prompt_name must be one of {', '.join(prompts) or 'no prompts'}; received {default!r}"
        )
        default = None
    # Empty prompts, as in files from sentence-transformers 5, change nothing.
    nonempty = tuple((name, text) for name, text in prompts.items() if text)
    return {"prompts": nonempty, "default_prompt": default if default in dict(nonempty) else None}
