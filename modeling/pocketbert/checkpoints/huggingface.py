"""Converts config.json, in transformers' words, to and from our configurations.

Reading is strict: an unknown key is an error unless it is known to leave the mathematics alone.

Writing keeps transformers' `model_type` wherever its class computes the same function. transformers ignores the key
`"pocketbert"`. It may then hold `pooler` (whether the tanh map belongs to encoder or head) and `tasks` (names and
dropouts without a key in transformers). An encoder without a class in transformers, such as IB-BERT, has a `model_type`
such as "pocketbert_bert" and all fields under `"pocketbert": {"encoder": {…}, "tasks": […]}`; the tensors keep the
family's names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from pocketbert.checkpoints import family_keys as keys
from pocketbert.checkpoints.cross_encoders import cross_encoder_activation, cross_encoder_config
from pocketbert.checkpoints.families.family import Family
from pocketbert.checkpoints.families.registry import FAMILIES, family_of
from pocketbert.checkpoints.module_layout import load_headless
from pocketbert.checkpoints.name_maps import has_head, tensor_specs
from pocketbert.checkpoints.own_config import (
    OWN_KEY,
    OWN_PREFIX,
    own_block,
    own_config,
    own_tasks,
    read_own,
    task_values,
)
from pocketbert.configs import (
    PRETRAINING_HEADS,
    TASK_RULES,
    EncoderConfig,
    TaskConfig,
    TaskKind,
    TaskRules,
)
from pocketbert.errors import UserError, did_you_mean, raise_if_any
from pocketbert.json_reading import read_values

_MOST_LABELS = 1 << 16
# transformers' default, which it does not write.
_PROBLEM_TYPE = "single_label_classification"


def read_config(
    content: Mapping[str, Any], tensor_names: Collection[str], *, headless: bool = False
) -> tuple[EncoderConfig, tuple[TaskConfig, ...]]:
    """Converts a config.json to the configurations for the encoder and for the tasks with a head in the directory.

    Args:
      content: the parsed file.
      tensor_names: prefixed tensor names (`bert.…`) in the directory; they show pooler and pretraining heads.
      headless: do not check keys about heads.
    Raises:
      UserError: lists all unknown and missing keys and all unsupported values.
    """
    model_type = content.get("model_type")
    if isinstance(model_type, str) and model_type.startswith(OWN_PREFIX):
        return read_own(content)
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        types = [*FAMILIES, *(OWN_PREFIX + name for name in FAMILIES)]
        other = keys.UNSUPPORTED.get(str(model_type))
        hint = f", which is {other}; choose another model" if other else did_you_mean(str(model_type), types)
        raise UserError(f"config.json: model_type must be one of {', '.join(types)}; received {model_type!r}{hint}")

    family = family_of(model_type)
    problems: list[str] = []
    block = own_block(content, {"pooler", "tasks"}, problems)
    same_as = {**family.same_as, **keys.SAME_AS}
    of_masked_lm = {**keys.FIXED_OF_MASKED_LM, **family.fixed_of_masked_lm}
    of_heads = {*of_masked_lm, *family.fixed_of_sentence_heads}
    others = {"model_type", OWN_KEY, *same_as, *keys.TASK_KEYS, *keys.HARMLESS, *of_heads, *family.harmless}
    fixed = {key: value for key, value in {**keys.FIXED, **family.fixed}.items() if key not in family.harmless}
    values = family.bert_values(read_values(content, family.keys, fixed=fixed, known=others, problems=problems))
    for key, same in same_as.items():
        if key in content and content[key] != values.get(same):
            problems.append(f"{key} must equal {same}={values.get(same)}; received {content[key]!r}")
    config = _encoder_config(family, values, block.get("pooler"), tensor_names, problems)
    tasks = _tasks(content, block, values, config, tensor_names, [] if headless else problems)
    heads = {task.rules.head for task in tasks if not headless}
    masked_lm = "masked_lm" in heads
    required = family.masked_lm_activation
    if masked_lm and required not in ("", values.get("hidden_act")):
        problems.append(
            f"{family.class_prefix}'s masked-LM head always uses {required}, so hidden_act must be {required}; "
            f"received {values.get('hidden_act')!r}"
        )
    rules: dict[str, Mapping[str, object]] = {"masked-LM": of_masked_lm if masked_lm else {}}
    rules["sentence"] = family.fixed_of_sentence_heads if "sentence" in heads else {}
    problems += [
        f"{key} must be {value!r} with a {head} head; received {content[key]!r}; {load_headless()}"
        for head, fixed_values in rules.items()
        for key, value in fixed_values.items()
        if content.get(key, value) != value
    ]
    raise_if_any(problems, "config.json")
    assert config is not None
    return config, tasks


def write_config(config: EncoderConfig, tasks: Sequence[TaskConfig]) -> dict[str, Any]:
    """Returns a config.json's content; `read_config` restores `config` and `tasks` exactly from it."""
    has_pooling = bool(family_of(config.model_type).pooling_key)
    own_heads = [task for task in tasks if task.pairs or (task.pooling and not has_pooling)]
    if len({task.kind for task in tasks}) < len(tasks) or own_heads:
        return own_config(config, tasks)
    content = _transformers_config(config, tasks)
    names = {spec.name for spec in tensor_specs(config, tasks).values()}
    try:
        found_config, found_tasks = read_config(content, names)
    except UserError:
        return own_config(config, tasks)
    block: dict[str, Any] = {}
    if found_config.pooler != config.pooler:
        # The same tanh map belongs either to the encoder or to the head (see name_maps).
        block["pooler"] = config.pooler
        if {found_config.pooler, config.pooler} != {"tanh", "none"}:
            return own_config(config, tasks)
    if found_config.replace(pooler=config.pooler) != config:
        return own_config(config, tasks)
    if found_tasks != tuple(tasks):
        block["tasks"] = [task_values(task) for task in tasks]
    return content | ({OWN_KEY: block} if block else {})


def _encoder_config(
    family: Family,
    values: Mapping[str, Any],
    pooler: str | None,
    tensor_names: Collection[str],
    problems: list[str],
) -> EncoderConfig | None:
    if "hidden_act" in values and values["hidden_act"] not in keys.ACTIVATIONS:
        problems.append(
            f"{family.key('hidden_act')} must be one of {', '.join(keys.ACTIVATIONS)}; received "
            f"{values['hidden_act']!r}"
        )
    width, heads = values.get(family.head_width_key, 0), values.get("num_attention_heads", 1)
    if heads < 1 or width % heads:
        problems.append(
            f"{family.key(family.head_width_key)} must be a multiple of {family.key('num_attention_heads')}; received "
            f"{width} and {heads}"
        )
    problems += family.problems(values)
    if problems:
        return None
    offset = values["pad_token_id"] + 1 if family.positions_follow_padding else 0
    fields = {
        "model_type": family.model_type,
        "vocab_size": values["vocab_size"],
        "hidden_size": values["hidden_size"],
        "num_layers": values["num_hidden_layers"],
        "num_attention_heads": heads,
        "head_size": width // heads,
        "intermediate_size": values["intermediate_size"],
        "num_feedforward_networks": 1,
        "activation": keys.ACTIVATIONS[values["hidden_act"]],
        "norm": "layer_norm",
        "layer_norm_eps": float(values["layer_norm_eps"]),
        "embedding_layer_norm_eps": float(values["layer_norm_eps"]),
        "embedding_size": values["hidden_size"],
        "embedding_projection": "none",
        "trigram": False,
        "max_position_embeddings": values["max_position_embeddings"] - offset,
        "position_offset": offset,
        "type_vocab_size": values["type_vocab_size"],
        "pad_token_id": values["pad_token_id"],
        "bottleneck": None,
        "pooler": "tanh" if family.tensor_name("bert.pooler.dense.weight") in tensor_names else "none",
        "hidden_dropout": float(values["hidden_dropout_prob"]),
        "attention_dropout": float(values["attention_probs_dropout_prob"]),
        "initializer_range": float(values["initializer_range"]),
    }
    try:
        return EncoderConfig(**{**fields, **family.encoder_fields(values), **({"pooler": pooler} if pooler else {})})
    except UserError as error:
        problems.append(str(error))
        return None


def _tasks(
    content: Mapping[str, Any],
    block: Mapping[str, Any],
    values: Mapping[str, Any],
    config: EncoderConfig | None,
    tensor_names: Collection[str],
    problems: list[str],
) -> tuple[TaskConfig, ...]:
    present = {key: content[key] for key in keys.TASK_KEYS if content.get(key) is not None}
    options = read_values(present, keys.TASK_KEYS, fixed={}, known=(), problems=problems)
    labels = _labels(options, problems)
    if "tasks" in block:
        tasks = own_tasks(block["tasks"], problems)
        for task in [task for task in tasks if task.labels][:1]:
            if task.labels != labels:
                problems.append(f"id2label and the task's labels must be the same; received {labels} and {task.labels}")
        kinds = {task.kind for task in tasks}
        activation = cross_encoder_activation(present, len(labels), kinds, problems)
        return tuple(
            dataclasses.replace(task, activation=activation) if activation and task.rules.num_outputs == 1 else task
            for task in tasks
        )

    problem_type = options.get("problem_type") if "problem_type" in present else None
    by_problem_type = {rules.problem_type: kind for kind, rules in TASK_RULES.items() if rules.problem_type}
    if problem_type is not None and problem_type not in by_problem_type:
        problems.append(f"problem_type must be one of {', '.join(by_problem_type)}; received {problem_type!r}")
    usual = "regression" if len(labels) == 1 else _PROBLEM_TYPE
    classifier = by_problem_type.get(problem_type or usual, by_problem_type[_PROBLEM_TYPE])
    family = family_of(content["model_type"])
    kinds = _kinds(family, options, classifier, problems)
    # Pretraining checkpoints such as bert-base-uncased name one class and have the other head, too.
    if config is not None:
        kinds |= {kind for kind in PRETRAINING_HEADS if has_head(config, TaskConfig(kind=kind), tensor_names)}
    dropout = values.get("classifier_dropout", values.get("hidden_dropout_prob", 0.0))
    # A family with another key for it does not read this one.
    if "classifier_dropout" in present and family.key("classifier_dropout") in present:
        dropout = options.get("classifier_dropout", 0.0)
    of_tokens = values.get("hidden_dropout_prob", 0.0) if family.tokens_drop_states else dropout
    activation = cross_encoder_activation(present, len(labels), kinds, problems)
    key = family.pooling_key
    pooling: Literal["mean"] | None = "mean" if key and values.get(key) == "mean" else None
    if key and values.get(key, "cls") not in ("cls", "mean"):
        problems.append(f"{key} must be cls or mean; received {values.get(key)!r}")
    tasks_found = []
    for kind, rules in TASK_RULES.items():
        if kind not in kinds:
            continue
        if rules.head == "sentence" and rules.num_outputs not in (None, len(labels)):
            problems.append(f"{kind} must have one output; received id2label with {len(labels)}")
        try:
            tasks_found.append(
                TaskConfig(
                    kind=kind,
                    name=options.get("finetuning_task", ""),
                    labels=labels if rules.min_labels else (),
                    dropout=float(dropout if rules.head == "sentence" else of_tokens) if _has_dropout(rules) else 0.0,
                    pooling=pooling if rules.head == "sentence" else None,
                    activation=activation if rules.num_outputs == 1 else None,
                )
            )
        except UserError as error:
            problems.append(str(error))
    return tuple(tasks_found)


def _has_dropout(rules: TaskRules) -> bool:
    """Whether `classifier_dropout` is for such a head: for sentences or tokens, with labels."""
    return rules.head == "sentence" or (rules.head == "linear" and rules.min_labels > 0)


def _kinds(family: Family, options: Mapping[str, Any], classifier: TaskKind, problems: list[str]) -> set[TaskKind]:
    """Head kinds in the classes under `architectures`; sequence classifiers have the kind `classifier`."""
    kinds_by_class: dict[str, tuple[TaskKind, ...]] = {"Model": ()}
    kinds_by_class |= {rules.architecture: (kind,) for kind, rules in TASK_RULES.items() if rules.architecture}
    kinds_by_class |= {TASK_RULES[classifier].architecture: (classifier,), "ForPreTraining": PRETRAINING_HEADS}
    if not family.has_next_sentence:
        del kinds_by_class["ForNextSentencePrediction"], kinds_by_class["ForPreTraining"]
    kinds_by_class |= dict.fromkeys(family.unread_heads, ())
    kinds: set[TaskKind] = set()
    for name in options.get("architectures", ()):
        suffix = str(name).removeprefix(family.class_prefix)
        if suffix in kinds_by_class and suffix != name:
            kinds.update(kinds_by_class[suffix])
        else:
            classes = ", ".join(family.class_prefix + name for name in kinds_by_class)
            problems.append(f"architectures must be one of {classes}; received {name!r}; {load_headless()}")
    return kinds


def _labels(options: Mapping[str, Any], problems: list[str]) -> tuple[str, ...]:
    """Labels by logit; the default is two unnamed labels, as in transformers."""
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
    """Content as transformers writes it for its nearest model; `write_config` checks whether it matches."""
    kinds = {task.kind for task in tasks}
    rows = [row for kind, row in TASK_RULES.items() if kind in kinds]
    suffixes = list(dict.fromkeys(row.architecture for row in rows if row.architecture))
    if kinds >= {*PRETRAINING_HEADS}:
        pretraining = [TASK_RULES[kind].architecture for kind in PRETRAINING_HEADS]
        suffixes = ["ForPreTraining", *(suffix for suffix in suffixes if suffix not in pretraining)]
    family = family_of(config.model_type)
    values: dict[str, Any] = {
        "architectures": [family.class_prefix + suffix for suffix in suffixes or ["Model"]],
        "attention_probs_dropout_prob": config.attention_dropout,
        "hidden_act": next(key for key, value in keys.ACTIVATIONS.items() if value == config.activation),
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
    content = family.config_values(config, values)
    for task in tasks:
        if task.name:
            content.setdefault("finetuning_task", task.name)
        if family.pooling_key and task.rules.head == "sentence":
            content[family.pooling_key] = task.pooling or "cls"
        if _has_dropout(task.rules):
            content.setdefault(family.key("classifier_dropout"), task.dropout)
        content |= cross_encoder_config(task)
        if task.labels and "id2label" not in content:
            content["id2label"] = {str(index): label for index, label in enumerate(task.labels)}
            content["label2id"] = {label: index for index, label in enumerate(task.labels)}
    classifier = next((row for row in rows if row.problem_type), None)
    if classifier is not None and classifier.problem_type != _PROBLEM_TYPE:
        content["problem_type"] = classifier.problem_type
    if classifier is not None and classifier.num_outputs == 1:
        content |= {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    return content
