"""Converts tf-models-official's BERT and MobileBERT encoders from and to ours.

The encoders are `official.nlp.modeling.networks.BertEncoder`, `BertEncoderV2` and `MobileBERTEncoder`, including
IB-BERT and MobileBERT with unshared query and key. Heads are not converted: Model Garden's tasks have no common layout.

A folder has the parameters in their `EncoderConfig`, `params.yaml` or .json, and a `tf.train.Checkpoint`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.checkpoints.directory import VOCAB_NAME
from pocketbert.checkpoints.model_garden_variables import bert_variables, mobilebert_variables
from pocketbert.checkpoints.name_maps import tensor_specs
from pocketbert.configs import BottleneckConfig, EncoderConfig
from pocketbert.errors import UserError, first_line, raise_if_any
from pocketbert.files import write_text
from pocketbert.json_reading import has_type
from pocketbert.output_folders import MODEL_GARDEN_KIND, new_directory
from pocketbert.presets import preset
from pocketbert_runtime.json_reading import parse_json, read_bytes

PARAMS_NAME = "params.yaml"
CHECKPOINT_NAME = "encoder"
_OPTIMIZER_SLOT = "/.OPTIMIZER_SLOT/"

# Fixed in all LayerNormalization layers of both encoders.
_NORM_EPSILON = 1e-12
# Field in our configuration → parameter in their MobileBERT.
_MOBILEBERT_NAMES = {
    "vocab_size": "word_vocab_size",
    "embedding_size": "word_embed_size",
    "type_vocab_size": "type_vocab_size",
    "max_position_embeddings": "max_sequence_length",
    "num_layers": "num_blocks",
    "hidden_size": "hidden_size",
    "num_attention_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "num_feedforward_networks": "num_feedforward_networks",
    "norm": "normalization_type",
    "hidden_dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "initializer_range": "initializer_range",
}


def from_model_garden(encoder: tf_keras.layers.Layer) -> tuple[EncoderConfig, dict[str, np.ndarray]]:
    """Converts one of their encoders to an architecture, and canonical path → float32 array.

    Args:
      encoder: a `BertEncoder`, `BertEncoderV2` or `MobileBERTEncoder`.
    Raises:
      UserError: the encoder has another class or an unsupported option.
    """
    if _is_mobilebert(encoder):
        config, pairs = _mobilebert_config(encoder), mobilebert_variables
    elif type(encoder).__name__ in ("BertEncoder", "BertEncoderV2"):
        config, pairs = _bert_config(encoder), bert_variables
    else:
        raise UserError(
            "the encoder must be a BertEncoder, BertEncoderV2 or MobileBERTEncoder of tf-models-official; "
            f"received {type(encoder).__name__}"
        )
    _build(encoder)
    specs = tensor_specs(config)
    tensors = {path: variable.numpy().reshape(specs[path].canonical_shape) for path, variable in pairs(encoder, config)}
    return config, {path: tensors[path] for path in specs}


def to_model_garden(config: EncoderConfig, tensors_by_path: Mapping[str, np.ndarray]) -> tf_keras.layers.Layer:
    """Creates their `MobileBERTEncoder` or `BertEncoderV2` with our weights.

    Args:
      config: the architecture.
      tensors_by_path: canonical path → array; head weights are ignored.
    Raises:
      UserError: they have no encoder with this architecture.
    """
    from official.nlp.configs import encoders

    encoder = encoders.build_encoder(_official_config(config))
    mobilebert = _is_mobilebert(encoder)
    pairs = mobilebert_variables if mobilebert else bert_variables
    if config.activation == "gelu":
        # Their builder reads "gelu" as the tanh form for BERT; only the constructor accepts the exact one.
        key = "intermediate_act_fn" if mobilebert else "inner_activation"
        encoder = type(encoder).from_config(encoder.get_config() | {key: tf_keras.activations.gelu})
    _build(encoder)
    for path, variable in pairs(encoder, config):
        variable.assign(np.asarray(tensors_by_path[path]).reshape(variable.shape))
    return encoder


def read_model_garden(path: str | os.PathLike[str]) -> tuple[EncoderConfig, dict[str, np.ndarray]]:
    """Reads an encoder from a folder with its parameters and a checkpoint.

    The parameters can be an encoder's, a task's or an experiment's (`task.model.encoder`). In the checkpoint, the
    encoder can be `encoder`, `model` or `model.encoder_network`, as their converters and trainers write it.

    Raises:
      UserError: a part is missing, or the encoder is not supported.
    """
    from official.modeling import hyperparams
    from official.nlp.configs import encoders

    path = Path(path)
    params = _encoder_params(path)
    try:
        official_config = hyperparams.override_params_dict(encoders.EncoderConfig(), params, is_strict=True)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: the encoder's parameters must be those of EncoderConfig; {first_line(error)}"
        ) from None
    _check_types(path, official_config.get())
    checkpoint = tf.train.latest_checkpoint(str(path))
    if checkpoint is None:
        indices = sorted(path.glob("*.index"))
        if len(indices) != 1:
            names = ", ".join(item.name for item in indices) or "none"
            raise UserError(f"{path} must hold one checkpoint (*.index); received {names}")
        checkpoint = str(indices[0].with_suffix(""))
    try:
        shapes = tf.train.load_checkpoint(checkpoint).get_variable_to_shape_map()
        # Before building anything: no size can exceed both the largest dimension and the number of variables.
        most = max([len(shapes), *(size for shape in shapes.values() for size in shape)])
        for name, value in official_config.get().as_dict().items():
            if isinstance(value, int) and value > most:
                raise ValueError(f"received {name}={value}, where no dimension is larger than {most}")
        encoder = encoders.build_encoder(official_config)
        _build(encoder)
        keys = set(shapes)
        prefix, root = _checkpoint_root(keys, encoder)
        # `expect_partial` ignores leftovers (optimizer slots, heads), so the encoder's variables are counted below.
        root.read(checkpoint).expect_partial().assert_existing_objects_matched()
    except (tf.errors.OpError, AssertionError, IndexError, RuntimeError, ValueError) as error:
        raise UserError(f"{checkpoint} must be a checkpoint of this encoder; {first_line(error)}") from None
    stored = [key for key in keys if key.startswith(prefix) and _OPTIMIZER_SLOT not in key]
    if len(stored) > len(encoder.weights):
        raise UserError(
            f"{checkpoint} must match the parameters, with {len(encoder.weights)} variables under {prefix}; "
            f"received {len(stored)}"
        )
    return from_model_garden(encoder)


def write_model_garden(
    path: str | os.PathLike[str],
    config: EncoderConfig,
    tensors_by_path: Mapping[str, np.ndarray],
    vocab_path: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
) -> None:
    """Writes params.yaml and a `tf.train.Checkpoint(encoder=…)` for `read_model_garden` and Model Garden.

    Args:
      path: the folder to create.
      config: the architecture.
      tensors_by_path: canonical path → array.
      vocab_path: vocabulary to copy, or None.
      overwrite: replace an existing folder.
    Raises:
      UserError: they have no encoder with this architecture or would build another activation, or `path` exists.
    """
    import yaml

    official_config = _official_config(config)
    if config.activation == "gelu" and not config.trigram:
        raise UserError(
            "activation must be gelu_tanh or relu, since Model Garden's builder always uses the tanh form for BERT; "
            f"received {config.activation!r}; use to_model_garden in Python"
        )
    encoder = to_model_garden(config, tensors_by_path)
    with new_directory(path, MODEL_GARDEN_KIND, overwrite=overwrite) as folder:
        params = {"type": official_config.type, official_config.type: official_config.get().as_dict()}
        write_text(folder / PARAMS_NAME, yaml.safe_dump(params, sort_keys=False))
        tf.train.Checkpoint(encoder=encoder).write(str(folder / CHECKPOINT_NAME))
        if vocab_path is not None:
            shutil.copyfile(vocab_path, folder / VOCAB_NAME)


def _official_config(config: EncoderConfig) -> Any:
    from official.nlp.configs import encoders

    problems = config.block_problems("it", ("plain", "bottleneck"), "write a model directory instead")
    if config.feedforward:
        problems.append("feedforward must be None; received expressions")
    if config.norm == "layer_norm":
        for name in ("layer_norm_eps", "embedding_layer_norm_eps"):
            if getattr(config, name) != _NORM_EPSILON:
                problems.append(f"{name} must be {_NORM_EPSILON}; received {getattr(config, name)}")
    if config.attention_size != config.block_size:
        problems.append(
            f"the width of all heads must be that of the block, {config.block_size}; received {config.attention_size}"
        )
    official = encoders.EncoderConfig()
    if config.trigram:
        if config.bottleneck is None:
            problems.append("MobileBERT must have a bottleneck; received bottleneck=None")
        if config.pooler == "none":
            problems.append("the pooler must be tanh or first_token; received 'none'")
        raise_if_any(problems, "Model Garden has no such encoder")
        assert config.bottleneck is not None
        official.type = "mobilebert"
        official.mobilebert = encoders.MobileBertEncoderConfig(
            **{official_name: getattr(config, name) for name, official_name in _MOBILEBERT_NAMES.items()},
            # For MobileBERT, "gelu" is Keras' exact form; the tanh form has a registered name.
            hidden_activation="Text>gelu" if config.activation == "gelu_tanh" else config.activation,
            intra_bottleneck_size=config.bottleneck.size,
            use_bottleneck_attention=config.bottleneck.query_key == "bottleneck",
            key_query_shared_bottleneck=config.bottleneck.query_key == "shared",
            classifier_activation=config.pooler == "tanh",
        )
        return official
    for name, required in (
        ("pooler", "tanh"),
        ("norm", "layer_norm"),
        ("bottleneck", None),
        ("num_feedforward_networks", 1),
        ("position_offset", 0),
        ("layer_groups", None),
        ("embedding_projection", "none" if config.embedding_size == config.hidden_size else "output"),
    ):
        if getattr(config, name) != required:
            problems.append(f"{name} must be {required!r}; received {getattr(config, name)!r}")
    raise_if_any(problems, "Model Garden has no such encoder")
    official.type = "bert_v2"
    official.bert_v2 = encoders.BertEncoderConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_layers=config.num_layers,
        num_attention_heads=config.num_attention_heads,
        hidden_activation="relu" if config.activation == "relu" else "gelu",
        intermediate_size=config.intermediate_size,
        dropout_rate=config.hidden_dropout,
        attention_dropout_rate=config.attention_dropout,
        max_position_embeddings=config.max_position_embeddings,
        type_vocab_size=config.type_vocab_size,
        initializer_range=config.initializer_range,
        embedding_size=config.embedding_size,
    )
    return official


def _is_mobilebert(encoder: tf_keras.layers.Layer) -> bool:
    return type(encoder).__name__ == "MobileBERTEncoder"


def _build(encoder: tf_keras.layers.Layer) -> None:
    """Creates the variables; layers have none before the first call."""
    ids = tf.zeros([1, 2], tf.int32)
    encoder({"input_word_ids": ids, "input_mask": ids + 1, "input_type_ids": ids})


def _mobilebert_config(encoder: tf_keras.layers.Layer) -> EncoderConfig:
    options = encoder.get_config()
    source = "shared" if options["key_query_shared_bottleneck"] else "raw"
    if options["use_bottleneck_attention"]:
        source = "bottleneck"
    return preset("mobilebert").config.replace(
        **{name: options[official_name] for name, official_name in _MOBILEBERT_NAMES.items()},
        head_size=options["intra_bottleneck_size"] // options["num_attention_heads"],
        activation=_activation(encoder.transformer_layers[0].block_layers["ffn"][0][0].activation),
        bottleneck=BottleneckConfig(size=options["intra_bottleneck_size"], query_key=source),  # type: ignore[arg-type]
        pooler="tanh" if options["classifier_activation"] else "first_token",
    )


def _bert_config(encoder: tf_keras.layers.Layer) -> EncoderConfig:
    options = encoder.get_config()
    problems = []
    for name, required in (("norm_first", False), ("output_range", None), ("embedding_layer", None)):
        if options[name] != required:
            problems.append(f"{name} must be {required!r}; received {options[name]!r}")
    raise_if_any(problems, "this encoder is not supported")
    hidden, width = options["hidden_size"], options["embedding_width"]
    deviation = options["initializer"]["config"].get("stddev") if isinstance(options["initializer"], dict) else None
    return preset("bert_base_uncased").config.replace(
        vocab_size=options["vocab_size"],
        hidden_size=hidden,
        num_layers=options["num_layers"],
        num_attention_heads=options["num_attention_heads"],
        head_size=hidden // options["num_attention_heads"],
        intermediate_size=options["inner_dim"],
        activation=_activation(encoder.transformer_layers[0]._inner_activation),
        embedding_size=width,
        embedding_projection="none" if width == hidden else "output",
        max_position_embeddings=options["max_sequence_length"],
        type_vocab_size=options["type_vocab_size"],
        hidden_dropout=options["output_dropout"],
        attention_dropout=options["attention_dropout"],
        initializer_range=deviation or 0.02,
    )


def _activation(function: Callable[[tf.Tensor], tf.Tensor] | str) -> str:
    """Names an activation function by evaluating it, since theirs have several names and objects."""
    points = tf.constant([-3.0, -1.0, -0.25, 0.5, 2.0])
    answer = tf_keras.activations.get(function)(points)
    candidates = {
        "gelu": tf.nn.gelu(points),
        "gelu_tanh": tf.nn.gelu(points, approximate=True),
        "relu": tf.nn.relu(points),
    }
    for name, expected in candidates.items():
        # Rounding is 1e-7 in float32, and the two forms of gelu differ by 4e-4 at -3.
        if float(tf.reduce_max(tf.abs(answer - expected))) < 1e-5:
            return name
    raise UserError(f"the encoder's activation must be one of {', '.join(candidates)}; received {function!r}")


def _encoder_params(path: Path) -> dict[str, Any]:
    """Reads the encoder's parameters, anywhere in the file."""
    import yaml

    if not path.is_dir():
        raise UserError(f"a Model Garden model must be a folder with parameters and a checkpoint; received {path}")
    files = sorted(item for item in path.iterdir() if item.suffix in (".yaml", ".yml", ".json"))
    if len(files) != 1:
        names = ", ".join(item.name for item in files) or "none"
        raise UserError(f"{path} must hold one file of parameters (*.yaml or *.json); received {names}")
    try:
        content = read_bytes(files[0])
        params = parse_json(content, files[0]) if files[0].suffix == ".json" else yaml.safe_load(content.decode())
    except UserError:
        raise
    except (RecursionError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{files[0]} must be YAML or JSON; received {first_line(error)}") from None
    for key in ("task", "model", "encoder"):
        if isinstance(params, dict) and "type" not in params and key in params:
            params = params[key]
    if not isinstance(params, dict) or params.get("type") not in ("bert", "bert_v2", "mobilebert"):
        received = params.get("type") if isinstance(params, dict) else params
        raise UserError(
            f"{files[0]}: the encoder's type must be bert, bert_v2 or mobilebert; received {received!r:.60}"
        )
    if not isinstance(stated := params.get(params["type"], {}), dict):
        raise UserError(f"{files[0]}: the encoder's parameters must be names and values; received {stated!r:.60}")
    return params


def _check_types(path: Path, parameters: Any) -> None:
    """Raises `UserError` for parameters with other types than the defaults."""
    problems = []
    for name, default in type(parameters)().as_dict().items():
        value = getattr(parameters, name)
        # Parameters without a default are widths.
        kind = int if default is None else type(default)
        if not (default is None and value is None) and not has_type(value, kind):
            problems.append(f"{name} must be of type {kind.__name__}; received {value!r:.60}")
    raise_if_any(problems, f"{path}: the encoder's parameters")


def _checkpoint_root(keys: set[str], encoder: tf_keras.layers.Layer) -> tuple[str, tf.train.Checkpoint]:
    """The encoder's prefix in a checkpoint, and a matching object to restore it with."""
    if any(key.startswith("model/encoder_network/") for key in keys):
        return "model/encoder_network/", tf.train.Checkpoint(model=tf.train.Checkpoint(encoder_network=encoder))
    if any(key.startswith("model/") for key in keys):
        return "model/", tf.train.Checkpoint(model=encoder)
    return "encoder/", tf.train.Checkpoint(encoder=encoder)
