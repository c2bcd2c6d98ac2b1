"""config.json, in transformers' words, to and from our configurations.

Reading is strict: a key that is neither understood nor known to leave the mathematics alone is an error.

Writing keeps transformers' own `model_type` wherever its class computes the same function. What its keys cannot say
without changing that function stands under `"pocketbert"`, which transformers ignores; what it has no class for is
written in a form of our own (`own_config`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pocketbert.checkpoints.config_keys import read_values
from pocketbert.checkpoints.family_keys import ACTIVATIONS, DISTILBERT, FIXED, KEYS, RENAMED, SAME_AS
from pocketbert.checkpoints.name_maps import tensor_specs
from pocketbert.checkpoints.own_config import (
    OWN_KEY,
    OWN_PREFIX,
    own_block,
    own_config,
    own_tasks,
    read_own,
    task_values,
)
from pocketbert.configs import BottleneckConfig, EncoderConfig, TaskConfig, TaskKind
from pocketbert.errors import UserError, raise_if_any

_MOST_LABELS = 1 << 16
_CLASS_PREFIX = {
    "bert": "Bert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "mobilebert": "MobileBert",
    "distilbert": "DistilBert",
}
# These tables and the comparisons of kinds below are transformers' file format; a kind that it has no class for goes by
# `own_config`.
_SENTENCE: tuple[TaskKind, ...] = ("classification", "multi_label", "regression")
_PROBLEM_TYPES: dict[str, TaskKind] = {
    "single_label_classification": "classification",
    "multi_label_classification": "multi_label",
    "regression": "regression",
}
_ARCHITECTURES: dict[str, tuple[TaskKind, ...]] = {
    "Model": (),
    "ForSequenceClassification": ("classification",),
    "ForQuestionAnswering": ("span",),
    "ForMaskedLM": ("masked_lm",),
    "ForNextSentencePrediction": ("next_sentence",),
    "ForPreTraining": ("masked_lm", "next_sentence"),
}
_KIND_ORDER: tuple[TaskKind, ...] = (*_SENTENCE, "span", "masked_lm", "next_sentence")

# Absent or null: the default; the dropout's is hidden_dropout_prob.
_TASK_KEYS: dict[str, tuple[type, object]] = {
    "architectures": (list, []),
    "classifier_dropout": (float, 0.0),
    "finetuning_task": (str, ""),
    "id2label": (dict, {}),
    "label2id": (dict, {}),
    "num_labels": (int, 2),
    "problem_type": (str, "single_label_classification"),
}


def read_config(
    content: Mapping[str, Any], tensor_names: Collection[str], *, headless: bool = False
) -> tuple[EncoderConfig, tuple[TaskConfig, ...]]:
    """Understands the content of a config.json.

    Args:
      content: the parsed file.
      tensor_names: names of the tensors beside it, prefixed (`bert.…`): they say whether there is a pooler, and
        which pretraining heads there are.
      headless: what only concerns the heads is not checked.
    Returns:
      The encoder and the tasks whose heads the directory holds.
    Raises:
      UserError: a key is unknown, missing or has a value that we cannot compute; all of them are listed.
    """
    model_type = content.get("model_type")
    if isinstance(model_type, str) and model_type.startswith(OWN_PREFIX):
        return read_own(content)
    family = "roberta" if model_type == "xlm-roberta" else str(model_type)
    if family not in KEYS:
        known = ", ".join([*_CLASS_PREFIX, *(OWN_PREFIX + name for name in KEYS)])
        raise UserError(f"config.json: model_type must be one of {known}; received {model_type!r}")

    problems: list[str] = []
    own = own_block(content, {"pooler", "tasks"}, problems)
    others = {"model_type", OWN_KEY, *SAME_AS, *_TASK_KEYS}
    values = read_values(content, KEYS[family], fixed=FIXED, known=others, problems=problems)
    if family == "distilbert":
        values = {RENAMED.get(key, key): value for key, value in values.items()} | DISTILBERT
    for key, same in SAME_AS.items():
        if key in content and content[key] != values.get(same):
            problems.append(f"{key} must equal {same}={values.get(same)}; received {content[key]!r}")
    config = _encoder_config(family, values, own.get("pooler"), tensor_names, problems)
    tasks = _tasks(content, own, values, tensor_names, [] if headless else problems)
    if not headless and any(task.kind == "masked_lm" for task in tasks):
        if family == "roberta" and values.get("hidden_act") != "gelu":
            problems.append(
                "RoBERTa's masked-LM head always uses gelu, which must then be hidden_act too; "
                f"received {values.get('hidden_act')!r}"
            )
    raise_if_any(problems, "config.json")
    assert config is not None
    return config, tasks


def write_config(config: EncoderConfig, tasks: Sequence[TaskConfig]) -> dict[str, Any]:
    """The content of a config.json that `read_config` turns into exactly `config` and `tasks`."""
    if len({task.kind for task in tasks}) < len(tasks):
        return own_config(config, tasks)
    content = _transformers_config(config, tasks)
    names = {spec.name for spec in tensor_specs(config, tasks).values()}
    try:
        found_config, found_tasks = read_config(content, names)
    except UserError:
        return own_config(config, tasks)
    own: dict[str, Any] = {}
    if found_config.pooler != config.pooler:
        # The same tanh map, whether it belongs to the encoder or to the head (see name_maps).
        own["pooler"] = config.pooler
        if {found_config.pooler, config.pooler} != {"tanh", "none"}:
            return own_config(config, tasks)
    if found_config.replace(pooler=config.pooler) != config:
        return own_config(config, tasks)
    if found_tasks != tuple(tasks):
        own["tasks"] = [task_values(task) for task in tasks]
    return content | ({OWN_KEY: own} if own else {})


def _encoder_config(
    family: str,
    values: Mapping[str, Any],
    pooler: str | None,
    tensor_names: Collection[str],
    problems: list[str],
) -> EncoderConfig | None:
    key = {name: name for name in ("hidden_act", "hidden_size", "intra_bottleneck_size", "num_attention_heads")}
    if family == "distilbert":
        key |= {ours: theirs for theirs, ours in RENAMED.items()}
    if "hidden_act" in values and values["hidden_act"] not in ACTIVATIONS:
        problems.append(
            f"{key['hidden_act']} must be one of {', '.join(ACTIVATIONS)}; received {values['hidden_act']!r}"
        )
    norm = values.get("normalization_type", "layer_norm")
    if norm not in ("layer_norm", "no_norm"):
        problems.append(f"normalization_type must be layer_norm or no_norm; received {norm!r}")
    width_key = "intra_bottleneck_size" if family == "mobilebert" else "hidden_size"
    width, heads = values.get(width_key, 0), values.get("num_attention_heads", 1)
    if heads < 1 or width % heads:
        problems.append(
            f"{key[width_key]} must be a multiple of {key['num_attention_heads']}; received {width} and {heads}"
        )
    bottleneck, projection = None, "none"
    if family == "mobilebert":
        projection = "word"
        source = "shared" if values.get("key_query_shared_bottleneck") else "raw"
        if values.get("use_bottleneck_attention"):
            source = "bottleneck"
        if source == "raw":
            problems.append(
                "transformers' MobileBERT has no unshared query and key, so that key_query_shared_bottleneck or "
                "use_bottleneck_attention must be true; received false for both; convert from the original checkpoint"
            )
        bottleneck = (width, source)
    if problems:
        return None
    has_pooler = f"{family}.pooler.dense.weight" in tensor_names
    found_pooler = "tanh" if has_pooler else "none"
    if family == "mobilebert" and not values["classifier_activation"]:
        found_pooler = "first_token"
    # transformers' PyTorch MobileBERT leaves its embedding's LayerNorm at torch's default.
    torch_default = family == "mobilebert" and norm == "layer_norm"
    offset = values["pad_token_id"] + 1 if family == "roberta" else 0
    try:
        return EncoderConfig(
            model_type=family,  # type: ignore[arg-type]
            vocab_size=values["vocab_size"],
            hidden_size=values["hidden_size"],
            num_layers=values["num_hidden_layers"],
            num_attention_heads=heads,
            head_size=width // heads,
            intermediate_size=values["intermediate_size"],
            num_feedforward_networks=values.get("num_feedforward_networks", 1),
            activation=ACTIVATIONS[values["hidden_act"]],  # type: ignore[arg-type]
            norm=norm,  # type: ignore[arg-type]
            layer_norm_eps=float(values["layer_norm_eps"]),
            embedding_layer_norm_eps=1e-5 if torch_default else float(values["layer_norm_eps"]),
            embedding_size=values.get("embedding_size", values["hidden_size"]),
            embedding_projection=projection,  # type: ignore[arg-type]
            trigram=family == "mobilebert",
            max_position_embeddings=values["max_position_embeddings"] - offset,
            position_offset=offset,
            type_vocab_size=values["type_vocab_size"],
            pad_token_id=values["pad_token_id"],
            bottleneck=BottleneckConfig(size=bottleneck[0], query_key=bottleneck[1]) if bottleneck else None,  # type: ignore[arg-type]
            pooler=pooler or found_pooler,  # type: ignore[arg-type]
            hidden_dropout=float(values["hidden_dropout_prob"]),
            attention_dropout=float(values["attention_probs_dropout_prob"]),
            initializer_range=float(values["initializer_range"]),
        )
    except UserError as error:
        problems.append(str(error))
        return None


def _tasks(
    content: Mapping[str, Any],
    own: Mapping[str, Any],
    values: Mapping[str, Any],
    tensor_names: Collection[str],
    problems: list[str],
) -> tuple[TaskConfig, ...]:
    given = {key: content[key] for key in _TASK_KEYS if content.get(key) is not None}
    options = read_values(given, _TASK_KEYS, fixed={}, known=(), problems=problems)
    labels = _labels(options, problems)
    if "tasks" in own:
        tasks = own_tasks(own["tasks"], problems)
        for task in [task for task in tasks if task.labels][:1]:
            if task.labels != labels:
                problems.append(f"id2label and the task's labels must be the same; received {labels} and {task.labels}")
        return tasks

    kinds: set[TaskKind] = set()
    class_prefix = _CLASS_PREFIX[content["model_type"]]
    for name in options.get("architectures", ()):
        suffix = str(name).removeprefix(class_prefix)
        known = {key: value for key, value in _ARCHITECTURES.items() if not _is_missing_class(class_prefix, key)}
        if suffix not in known or suffix == name:
            classes = ", ".join(class_prefix + key for key in known)
            problems.append(
                f"architectures must be of {classes}; received {name!r}; its head may be ignored (headless)"
            )
        else:
            kinds.update(known[suffix])
    # Pretraining checkpoints name one class and hold the other's head as well (bert-base-uncased does).
    if set(tensor_names) & {"cls.predictions.transform.dense.weight", "lm_head.dense.weight", "vocab_transform.weight"}:
        kinds.add("masked_lm")
    if "cls.seq_relationship.weight" in tensor_names:
        kinds.add("next_sentence")

    problem_type = options.get("problem_type") if "problem_type" in given else None
    if "classification" in kinds:
        usual = "regression" if len(labels) == 1 else "single_label_classification"
        kinds = kinds - {"classification"} | {_PROBLEM_TYPES.get(problem_type or usual, "classification")}
    if "regression" in kinds and len(labels) != 1:
        problems.append(f"regression must have one output; received id2label with {len(labels)}")
    if problem_type is not None and problem_type not in _PROBLEM_TYPES:
        problems.append(f"problem_type must be one of {', '.join(_PROBLEM_TYPES)}; received {problem_type!r}")
    given_dropout = "classifier_dropout" in given
    usual_dropout = values.get("classifier_dropout", values.get("hidden_dropout_prob", 0.0))
    dropout = options.get("classifier_dropout", 0.0) if given_dropout else usual_dropout
    tasks_found = []
    for kind in _KIND_ORDER:
        if kind in kinds:
            try:
                tasks_found.append(
                    TaskConfig(
                        kind=kind,
                        name=options.get("finetuning_task", ""),
                        labels=labels if kind in ("classification", "multi_label") else (),
                        dropout=float(dropout) if kind in _SENTENCE else 0.0,
                    )
                )
            except UserError as error:
                problems.append(str(error))
    return tuple(tasks_found)


def _is_missing_class(class_prefix: str, suffix: str) -> bool:
    has_next_sentence = "Roberta" not in class_prefix and class_prefix != "DistilBert"
    return not has_next_sentence and suffix in ("ForNextSentencePrediction", "ForPreTraining")


def _labels(options: Mapping[str, Any], problems: list[str]) -> tuple[str, ...]:
    """The labels in the order of the logits; two unnamed ones where the file says nothing, as transformers has it."""
    count = options.get("num_labels", 2)
    if not 0 < count <= _MOST_LABELS:
        problems.append(f"num_labels must lie between 1 and {_MOST_LABELS}; received {count}")
        return ()
    id2label = options.get("id2label") or {str(index): f"LABEL_{index}" for index in range(count)}
    labels = {str(index): str(label) for index, label in id2label.items()}
    if labels.keys() != {str(index) for index in range(len(labels))}:
        problems.append(f"id2label must map 0, 1, 2… to labels; received {id2label!r}")
        return ()
    return tuple(labels[str(index)] for index in range(len(labels)))


def _transformers_config(config: EncoderConfig, tasks: Sequence[TaskConfig]) -> dict[str, Any]:
    """Config that transformers writes for the nearest model it has; `write_config` checks that it matches."""
    kinds = {task.kind for task in tasks}
    remaining = {"classification" if kind in _SENTENCE else kind for kind in kinds}
    suffixes = []
    if remaining >= {"masked_lm", "next_sentence"}:
        suffixes.append("ForPreTraining")
        remaining -= {"masked_lm", "next_sentence"}
    suffixes += [key for key, value in _ARCHITECTURES.items() if len(value) == 1 and value[0] in remaining]
    content: dict[str, Any] = {
        "architectures": [_CLASS_PREFIX[config.model_type] + suffix for suffix in suffixes or ["Model"]],
        "attention_probs_dropout_prob": config.attention_dropout,
        "hidden_act": next(key for key, value in ACTIVATIONS.items() if value == config.activation),
        "hidden_dropout_prob": config.hidden_dropout,
        "hidden_size": config.hidden_size,
        "initializer_range": config.initializer_range,
        "intermediate_size": config.intermediate_size,
        "layer_norm_eps": config.layer_norm_eps,
        "max_position_embeddings": config.num_position_rows,
        "model_type": config.model_type,
        "num_attention_heads": config.num_attention_heads,
        "num_hidden_layers": config.num_layers,
        "pad_token_id": config.pad_token_id,
        "torch_dtype": "float32",
        "type_vocab_size": config.type_vocab_size,
        "vocab_size": config.vocab_size,
    }
    if config.model_type == "mobilebert":
        query_key = config.bottleneck.query_key if config.bottleneck else "raw"
        content |= {
            "classifier_activation": config.pooler != "first_token",
            "embedding_size": config.embedding_size,
            "intra_bottleneck_size": config.block_size,
            "key_query_shared_bottleneck": query_key == "shared",
            "normalization_type": config.norm,
            "num_feedforward_networks": config.num_feedforward_networks,
            "trigram_input": config.trigram,
            "true_hidden_size": config.block_size,
            "use_bottleneck": config.bottleneck is not None,
            "use_bottleneck_attention": query_key == "bottleneck",
        }
    elif config.model_type == "distilbert":
        ours = {ours: theirs for theirs, ours in RENAMED.items()}
        content = {ours.get(key, key): value for key, value in content.items() if key not in DISTILBERT}
        content |= {"sinusoidal_pos_embds": False, "tie_weights_": True}
    else:
        content["position_embedding_type"] = "absolute"
    dropout_key = "seq_classif_dropout" if config.model_type == "distilbert" else "classifier_dropout"
    for task in tasks:
        if task.name:
            content.setdefault("finetuning_task", task.name)
        if task.kind in _SENTENCE:
            content.setdefault(dropout_key, task.dropout)
        if task.labels and "id2label" not in content:
            content["id2label"] = {str(index): label for index, label in enumerate(task.labels)}
            content["label2id"] = {label: index for index, label in enumerate(task.labels)}
    if "multi_label" in kinds and "classification" not in kinds:
        content["problem_type"] = "multi_label_classification"
    elif "regression" in kinds and "classification" not in kinds:
        content |= {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "problem_type": "regression"}
    return content
