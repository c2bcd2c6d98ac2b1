"""Reads TensorFlow 1 checkpoints from google-research's BERT and MobileBERT.

Source: `modeling.py` in google-research/bert and google-research/google-research/mobilebert. Their `gelu` is the tanh
approximation and becomes `gelu_tanh`. One departure: MobileBERT's code gives padded keys a score of -6 instead of
masking them, so a weight of e⁻⁶ leaks into its outputs for padded inputs. Ours does not leak.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.checkpoints.directory import VOCAB_NAME, ModelDirectory, name_problems
from pocketbert.checkpoints.families.registry import family_of
from pocketbert.checkpoints.family_keys import HARMLESS
from pocketbert.checkpoints.name_maps import TensorSpec, tensor_specs
from pocketbert.checkpoints.vocabulary_files import vocabulary_problems
from pocketbert.configs import BottleneckConfig, EncoderConfig, TaskConfig
from pocketbert.errors import UserError, first_line, raise_if_any
from pocketbert.json_reading import REQUIRED, has_type, read_json_object, read_values
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

CONFIG_NAME = "bert_config.json"
_ALBERT_CONFIG_NAME = "albert_config.json"

_KEYS: dict[str, tuple[type, object]] = {
    "vocab_size": (int, REQUIRED),
    "hidden_size": (int, REQUIRED),
    "num_hidden_layers": (int, REQUIRED),
    "num_attention_heads": (int, REQUIRED),
    "intermediate_size": (int, REQUIRED),
    "max_position_embeddings": (int, REQUIRED),
    "type_vocab_size": (int, REQUIRED),
    "hidden_act": (str, "gelu"),
    "hidden_dropout_prob": (float, 0.1),
    "attention_probs_dropout_prob": (float, 0.1),
    "initializer_range": (float, 0.02),
    "trigram_input": (bool, False),
    "use_bottleneck": (bool, False),
    "use_bottleneck_attention": (bool, False),
    "key_query_shared_bottleneck": (bool, False),
    "num_feedforward_networks": (int, 1),
    "normalization_type": (str, "layer_norm"),
    "classifier_activation": (bool, True),
}
# Absent or null, they equal hidden_size.
_WIDTH_KEYS = ("embedding_size", "intra_bottleneck_size")
_ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu"}
_OPTIMIZER = re.compile(
    r"(^|/)(global_step|adam_[mv]|lamb_[mv]|Adam(_\d+)?|beta[12]_power|loss_scale\w*)(:0)?$|^teacher/"
)
_HEAD_NAMES = {
    "heads.classification.output.kernel": "output_weights",
    "heads.classification.output.bias": "output_bias",
    "heads.regression.output.kernel": "output_weights",
    "heads.regression.output.bias": "output_bias",
    "heads.span.output.kernel": "cls/squad/output_weights",
    "heads.span.output.bias": "cls/squad/output_bias",
    "heads.masked_lm.transform.kernel": "cls/predictions/transform/dense/kernel",
    "heads.masked_lm.transform.bias": "cls/predictions/transform/dense/bias",
    "heads.masked_lm.norm.gamma": "cls/predictions/transform/LayerNorm/gamma",
    "heads.masked_lm.norm.beta": "cls/predictions/transform/LayerNorm/beta",
    "heads.masked_lm.bias": "cls/predictions/output_bias",
    "heads.masked_lm.extra_table": "cls/predictions/extra_output_weights",
    "heads.next_sentence.output.kernel": "cls/seq_relationship/output_weights",
    "heads.next_sentence.output.bias": "cls/seq_relationship/output_bias",
}


def read_tf1(path: str | os.PathLike[str], config_path: str | os.PathLike[str] | None = None) -> ModelDirectory:
    """Reads a checkpoint from google-research's BERT or MobileBERT.

    Ignores optimizer slots and a distillation teacher's variables. Recognizes heads by variable names. Checkpoints have
    no labels, so these are LABEL_0, LABEL_1…

    Args:
      path: the folder with `bert_config.json`, `vocab.txt` and one checkpoint, or its prefix (`…/bert_model.ckpt`).
      config_path: the configuration, if it is in another folder.
    Raises:
      UserError: lists all missing, unknown and misshapen parts.
    """
    prefix = _checkpoint_prefix(Path(path))
    problems: list[str] = []
    stored_config = Path(config_path or prefix.parent / CONFIG_NAME)
    if not stored_config.exists() and (prefix.parent / _ALBERT_CONFIG_NAME).exists():
        stored_config = prefix.parent / _ALBERT_CONFIG_NAME
    content = read_json_object(stored_config, problems, required=True)
    if content is not None and "num_hidden_groups" in content:
        raise _other_family(f"an ALBERT ({stored_config})")
    config = _encoder_config(content, problems) if content is not None else None
    if content is None:
        # ELECTRA's folders have no configuration.
        _read_shapes(prefix)
    raise_if_any(problems, str(path))
    assert config is not None
    reader, shapes = _read_shapes(prefix)
    tasks = _tasks(shapes)
    specs = tensor_specs(config, tasks)
    names = {weight: variable_name(config, weight, spec) for weight, spec in specs.items()}
    problems += name_problems("variables", set(names.values()), set(shapes))
    for weight, name in names.items():
        shape = specs[weight].canonical_shape
        shape = shape[::-1] if _is_transposed(name) else shape
        if name in shapes and shapes[name] != shape:
            problems.append(f"{name} must have shape {list(shape)}; received {list(shapes[name])}")
    vocab_path = prefix.parent / VOCAB_NAME
    vocabulary = Vocabulary(path=vocab_path) if vocab_path.exists() else None
    if vocabulary:
        problems += vocabulary_problems(vocabulary, config)
    raise_if_any(problems, str(path))
    tensors = {}
    for weight, name in names.items():
        with _refused_if_damaged(prefix, f" for {name}"):
            array = np.asarray(reader.get_tensor(name), dtype=np.float32)
        tensors[weight] = array.T if _is_transposed(name) else array
    return ModelDirectory(config=config, tasks=tasks, vocabulary=vocabulary, tensors=tensors)


def _read_shapes(prefix: Path) -> tuple[Any, dict[str, tuple[int, ...]]]:
    """Returns the checkpoint's reader, and name → shape without optimizer slots; refuses ELECTRA's names."""
    import tensorflow as tf

    with _refused_if_damaged(prefix):
        reader = tf.train.load_checkpoint(str(prefix))
        stored = reader.get_variable_to_shape_map()
    shapes = {name: tuple(shape) for name, shape in stored.items() if not _OPTIMIZER.search(name)}
    if any(name.startswith("electra/") for name in shapes):
        raise _other_family(f"an ELECTRA ({prefix})")
    return reader, shapes


@contextlib.contextmanager
def _refused_if_damaged(prefix: Path, what: str = "") -> Iterator[None]:
    import tensorflow as tf

    try:
        yield
    except (tf.errors.OpError, IndexError, RuntimeError, ValueError) as error:
        raise UserError(
            f"{prefix} must be a complete TensorFlow checkpoint; received {first_line(error)}{what}; copy it again"
        ) from None


def _other_family(received: str) -> UserError:
    return UserError(
        f"a TensorFlow 1 checkpoint must be a BERT's or a MobileBERT's; received {received}; convert it with "
        "transformers, and read the result"
    )


def variable_name(config: EncoderConfig, path: str, spec: TensorSpec) -> str:
    """Returns the variable name for a weight in their checkpoints."""
    if path in _HEAD_NAMES:
        return _HEAD_NAMES[path]
    name = re.sub(rf"^{family_of(config.model_type).tensor_prefix}\.", "bert.", spec.name)
    name = re.sub(r"\blayer\.(\d+)", r"layer_\1", name)
    name = re.sub(r"\bffn\.(\d+)", r"ffn_layer_\1", name).replace(".", "/")
    name = name.removesuffix("/weight") if name.endswith("_embeddings/weight") else name
    norm = "FakeLayerNorm" if config.norm == "no_norm" else "LayerNorm"
    name = re.sub(r"LayerNorm/weight$", f"{norm}/gamma", name)
    name = re.sub(r"LayerNorm/bias$", f"{norm}/beta", name)
    return re.sub(r"/weight$", "/kernel", name)


def _is_transposed(name: str) -> bool:
    """Whether a variable is [out, in], like the heads' last linear maps. All others are [in, out]."""
    return name.endswith("/output_weights") or name == "output_weights"


def _checkpoint_prefix(path: Path) -> Path:
    if not path.is_dir():
        prefix = path.with_name(path.name.removesuffix(".index"))
        if not prefix.with_name(prefix.name + ".index").exists():
            raise UserError(
                f"a TensorFlow 1 checkpoint must be a folder or a prefix with an .index file; received {path}"
            )
        return prefix
    indices = sorted(path.glob("*.index"))
    if len(indices) != 1:
        names = ", ".join(item.name for item in indices) or "none"
        raise UserError(f"{path} must hold one checkpoint (*.index); received {names}; pass the prefix of one")
    return indices[0].with_suffix("")


def _encoder_config(content: dict[str, Any], problems: list[str]) -> EncoderConfig | None:
    content = {key: value for key, value in content.items() if not (key in _WIDTH_KEYS and value is None)}
    hidden = content.get("hidden_size")
    widths = {key: (int, hidden if has_type(hidden, int) else 1) for key in _WIDTH_KEYS}
    values = read_values(content, _KEYS | widths, fixed={}, known=HARMLESS, problems=problems)
    activation = _ACTIVATIONS.get(values.get("hidden_act", "").lower())
    if activation is None:
        problems.append(f"hidden_act must be one of {', '.join(_ACTIVATIONS)}; received {values.get('hidden_act')!r}")
    norm = values.get("normalization_type")
    if norm not in ("layer_norm", "no_norm"):
        problems.append(f"normalization_type must be layer_norm or no_norm; received {norm!r}")
    if problems:
        return None
    bottlenecked = values["use_bottleneck"]
    width, heads = (
        values["intra_bottleneck_size"] if bottlenecked else values["hidden_size"],
        values["num_attention_heads"],
    )
    source = "shared" if values["key_query_shared_bottleneck"] else "raw"
    if values["use_bottleneck_attention"]:
        source = "bottleneck"
    projected = values["trigram_input"] or values["embedding_size"] != values["hidden_size"]
    if heads < 1 or width % heads:
        problems.append(
            f"the width inside a layer must be a multiple of num_attention_heads; received {width}, {heads}"
        )
        return None
    try:
        return EncoderConfig(
            model_type="mobilebert" if bottlenecked or values["trigram_input"] else "bert",
            vocab_size=values["vocab_size"],
            hidden_size=values["hidden_size"],
            num_layers=values["num_hidden_layers"],
            num_attention_heads=heads,
            head_size=width // heads,
            intermediate_size=values["intermediate_size"],
            num_feedforward_networks=values["num_feedforward_networks"],
            activation=activation,  # type: ignore[arg-type]
            norm=norm,  # type: ignore[arg-type]
            # The default in tf.contrib.layers.layer_norm.
            layer_norm_eps=1e-12,
            embedding_layer_norm_eps=1e-12,
            embedding_size=values["embedding_size"],
            embedding_projection="word" if projected else "none",
            trigram=values["trigram_input"],
            max_position_embeddings=values["max_position_embeddings"],
            position_offset=0,
            type_vocab_size=values["type_vocab_size"],
            pad_token_id=0,
            bottleneck=BottleneckConfig(size=width, query_key=source) if bottlenecked else None,  # type: ignore[arg-type]
            pooler="tanh" if values["classifier_activation"] else "first_token",
            hidden_dropout=float(values["hidden_dropout_prob"]),
            attention_dropout=float(values["attention_probs_dropout_prob"]),
            initializer_range=float(values["initializer_range"]),
        )
    except UserError as error:
        problems.append(str(error))
        return None


def _tasks(shapes: dict[str, tuple[int, ...]]) -> tuple[TaskConfig, ...]:
    tasks = []
    if "output_weights" in shapes:
        outputs = shapes["output_weights"][0]
        if outputs == 1:
            tasks.append(TaskConfig(kind="regression"))
        else:
            labels = tuple(f"LABEL_{index}" for index in range(outputs))
            tasks.append(TaskConfig(kind="classification", labels=labels))
    if "cls/squad/output_weights" in shapes:
        tasks.append(TaskConfig(kind="span", dropout=0.0))
    if "cls/predictions/transform/dense/kernel" in shapes:
        tasks.append(TaskConfig(kind="masked_lm", dropout=0.0))
    if "cls/seq_relationship/output_weights" in shapes:
        tasks.append(TaskConfig(kind="next_sentence", dropout=0.0))
    return tuple(tasks)
