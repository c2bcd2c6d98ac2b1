"""Model directories of sentence-transformers: `modules.json` with a transformer, pooling, a dense layer, normalization.

The layout is that of sentence-transformers 2 to 5 (https://www.sbert.net, Reimers & Gurevych 2019). Everything that
changes an embedding and that our models lack is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.checkpoints.own_config import OWN_KEY
from pocketbert.configs import TaskConfig
from pocketbert.embedding_config import EmbeddingConfig
from pocketbert.errors import UserError
from pocketbert.files import write_json, write_tensors
from pocketbert.json_reading import read_json, read_json_object

MODULES_NAME = "modules.json"
_SENTENCE_NAME = "sentence_bert_config.json"
_PROMPTS_NAME = "config_sentence_transformers.json"
_PACKAGE = "sentence_transformers"
# Classes of modules in their only order; the last two may be missing.
_MODULES = ("Transformer", "Pooling", "Dense", "Normalize")
_FLAGS = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}
_ACTIVATIONS = {
    "tanh": "torch.nn.modules.activation.Tanh",
    "relu": "torch.nn.modules.activation.ReLU",
    "identity": "torch.nn.modules.linear.Identity",
}
_HEAD = "heads.embedding.dense"


@dataclass(frozen=True)
class Modules:
    """Content of a `modules.json` and of the folders that it names.

    Attributes:
      task: the embedding.
      lowercase: whether texts are lower-cased before the tokenizer.
      width: width of the feature map that is pooled; None if it is not recorded.
      dense: folder of the dense layer, or None.
    """

    task: TaskConfig
    lowercase: bool
    width: int | None
    dense: Path | None

    def width_problems(self, hidden_size: int) -> list[str]:
        """Reports a pooling of another width than the encoder's."""
        if self.width in (None, hidden_size):
            return []
        return [f"word_embedding_dimension must be the encoder's hidden size, {hidden_size}; received {self.width}"]

    def read_dense(self, hidden_size: int, problems: list[str]) -> dict[str, np.ndarray]:
        """Weights of the dense layer by path in our model; empty without a dense layer or with problems."""
        if self.dense is None:
            return {}
        from contextlib import ExitStack

        from pocketbert.checkpoints.stored_tensors import open_weights

        config = self.task.embedding
        assert config is not None and config.dimensions is not None
        wanted: dict[str, tuple[int, ...]] = {"linear.weight": (config.dimensions, hidden_size)}
        wanted |= {"linear.bias": (config.dimensions,)} if config.dense_bias else {}
        with ExitStack() as stack:
            stored = open_weights(self.dense, stack, problems)
            found = {name: tensor.shape for name, tensor in stored.items()}
            if found != wanted:
                problems.append(f"{self.dense.name} must have the tensors {wanted}; received {found}")
                return {}
            arrays = {name: tensor.read().astype(np.float32) for name, tensor in stored.items()}
        bias = {f"{_HEAD}.bias": arrays["linear.bias"]} if config.dense_bias else {}
        return {f"{_HEAD}.kernel": arrays["linear.weight"].T, **bias}


def read_modules(path: Path) -> Modules | None:
    """Reads `modules.json` and the configurations of its modules; None for a folder without one.

    Args:
      path: the model directory.

    Raises:
      UserError: lists every unknown module, pooling and option.
    """
    if not (path / MODULES_NAME).is_file():
        return None
    folders, problems = _module_folders(path)
    if problems:
        raise UserError(f"{path}: {'; '.join(problems)}")
    own = read_json_object(path / _PROMPTS_NAME, problems, required=False) or {}
    fields: dict[str, Any] = {"normalize": "Normalize" in folders, **_prompts(own, problems)}
    sentence = read_json_object(path / _SENTENCE_NAME, problems, required=False) or {}
    fields["max_length"] = sentence.get("max_seq_length")
    pooling = read_json_object(folders["Pooling"] / "config.json", problems, required=True) or {}
    fields["pooling"] = _pooling(pooling, problems)
    if pooling.get("include_prompt", True) is not True and fields["prompts"]:
        problems.append("include_prompt must be true, since our pooling includes the prompt; received false")
    if "Dense" in folders:
        fields |= _dense(folders["Dense"], pooling.get("word_embedding_dimension"), problems)
    if problems:
        raise UserError(f"{path}: {'; '.join(problems)}")
    try:
        embedding = EmbeddingConfig(**fields)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    task = TaskConfig(kind="embedding", name=str(own.get(OWN_KEY) or ""), embedding=embedding)
    lowercase = sentence.get("do_lower_case") is True
    return Modules(task, lowercase, pooling.get("word_embedding_dimension"), folders.get("Dense"))


def is_sentence_transformer(tasks: Sequence[TaskConfig]) -> bool:
    """Whether a model with these tasks is stored in the layout of sentence-transformers: its only head embeds."""
    return len(tasks) == 1 and tasks[0].kind == "embedding"


def write_modules(folder: Path, task: TaskConfig, hidden_size: int | None, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes `modules.json` and the files of the modules, except those of the transformer.

    Args:
      folder: a model directory.
      task: the embedding.
      hidden_size: width of the encoder; None reads it in the folder's config.json.
      tensors: weights of the model by path; only those of the dense layer are written.
    """
    config = task.embedding
    assert config is not None
    hidden_size = hidden_size or read_json(folder / "config.json")["hidden_size"]
    names = ["Transformer", "Pooling"]
    names += (["Dense"] if config.dimensions else []) + (["Normalize"] if config.normalize else [])
    paths = {name: f"{index}_{name}" if index else "" for index, name in enumerate(names)}
    for path in filter(None, paths.values()):
        (folder / path).mkdir()
    flags = {flag: config.pooling == mode for mode, flag in _FLAGS.items()}
    pooling = {"word_embedding_dimension": hidden_size, **flags, "pooling_mode_mean_sqrt_len_tokens": False}
    write_json(folder / paths["Pooling"] / "config.json", {**pooling, "include_prompt": True})
    if config.dimensions:
        linear = {"in_features": hidden_size, "out_features": config.dimensions, "bias": config.dense_bias}
        activation = {"activation_function": _ACTIVATIONS[config.dense_activation]}
        write_json(folder / paths["Dense"] / "config.json", {**linear, **activation})
        arrays = {"linear.weight": np.ascontiguousarray(np.asarray(tensors[f"{_HEAD}.kernel"], np.float32).T)}
        if config.dense_bias:
            arrays["linear.bias"] = np.asarray(tensors[f"{_HEAD}.bias"], np.float32)
        write_tensors(folder / paths["Dense"] / "model.safetensors", arrays, {"format": "pt"})
    prompts = {"prompts": dict(config.prompts), "default_prompt_name": config.default_prompt}
    name = {OWN_KEY: task.name} if task.name else {}
    write_json(folder / _PROMPTS_NAME, {"__version__": {}, **prompts, "similarity_fn_name": "cosine", **name})
    length = {} if config.max_length is None else {"max_seq_length": config.max_length}
    write_json(folder / _SENTENCE_NAME, {**length, "do_lower_case": False})
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"{_PACKAGE}.models.{name}"}
        for index, (name, path) in enumerate(paths.items())
    ]
    write_json(folder / MODULES_NAME, modules)


def _module_folders(path: Path) -> tuple[dict[str, Path], list[str]]:
    """Class of each module → its folder, and problems."""
    content = read_json(path / MODULES_NAME)
    if not isinstance(content, list) or not all(isinstance(each, dict) for each in content):
        return {}, [f"{MODULES_NAME} must be a list of objects; received {content!r:.80}"]
    folders: dict[str, Path] = {}
    for each in content:
        kind, place = str(each.get("type")), each.get("path")
        package, _, name = kind.partition(".")
        name = name.rpartition(".")[2]
        if package != _PACKAGE or name not in _MODULES:
            return {}, [f"a module must be one of {', '.join(_MODULES)} of {_PACKAGE}; received {kind!r}"]
        if not isinstance(place, str) or not re.fullmatch(r"([A-Za-z0-9_][\w.-]*/?)?", place):
            return {}, [f"the path of a module must be a folder beside {MODULES_NAME}; received {place!r}"]
        if name in folders:
            return {}, [f"each module may occur once; received {name} twice"]
        folders[name] = path / place
    names = list(folders)
    if folders.get("Transformer", path) != path:
        place = folders["Transformer"].name
        return {}, [f"the transformer must be in the model directory itself; received {place}; move its files up"]
    if names[:2] != [*_MODULES[:2]] or names != sorted(names, key=_MODULES.index):
        wanted = "Transformer, Pooling, then optionally Dense and Normalize"
        return {}, [f"the modules must be {wanted}; received {', '.join(names) or 'none'}"]
    return folders, []


def _pooling(content: Mapping[str, Any], problems: list[str]) -> str:
    """The pooling mode; the old layout has a flag for each mode, the new one a name."""
    names = {flag: mode for mode, flag in _FLAGS.items()}
    modes = [names.get(key, key) for key, value in content.items() if key.startswith("pooling_mode_") and value is True]
    if "pooling_mode" in content:
        modes = [str(content["pooling_mode"])]
    if len(modes) != 1 or modes[0] not in _FLAGS:
        problems.append(f"the pooling must be one of {', '.join(_FLAGS)}; received {' and '.join(modes) or 'none'}")
        return "mean"
    return modes[0]


def _dense(folder: Path, width: Any, problems: list[str]) -> dict[str, Any]:
    content = read_json_object(folder / "config.json", problems, required=True) or {}
    if width is not None and content.get("in_features") != width:
        problems.append(
            f"in_features of {folder.name} must be the pooling's width, {width}; received {content.get('in_features')}"
        )
    activations = {name: ours for ours, name in _ACTIVATIONS.items()}
    given = content.get("activation_function", _ACTIVATIONS["tanh"])
    if given not in activations:
        problems.append(f"activation_function must be one of {', '.join(activations)}; received {given!r}")
    return {
        "dimensions": content.get("out_features"),
        "dense_bias": content.get("bias", True),
        "dense_activation": activations.get(given, "tanh"),
    }


def _prompts(content: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    prompts = content.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        problems.append(f"prompts in {_PROMPTS_NAME} must map names to texts; received {prompts!r:.80}")
        prompts = {}
    default = content.get("default_prompt_name")
    if default is not None and default not in prompts:
        problems.append(
            f"default_prompt_name must be one of {', '.join(prompts) or 'no prompts'}; received {default!r}"
        )
        default = None
    # Empty prompts, as in files of sentence-transformers 5, change nothing.
    kept = tuple((name, text) for name, text in prompts.items() if text)
    return {"prompts": kept, "default_prompt": default if default in dict(kept) else None}
