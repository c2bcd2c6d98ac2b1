"""JSON schema for `bundle.json` (Draft 2020-12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pocketbert.configs import ScoreActivation
from pocketbert.report.outcome import VERDICT_WORDS
from pocketbert_runtime.bundles.description import ANSWERS_FILE, FILE_NAME, SCHEMA_VERSION
from pocketbert_runtime.tokenizers.added_tokens import FLAGS
from pocketbert_runtime.tokenizers.byte_layouts import MODERNBERT
from pocketbert_runtime.tokenizers.kinds.registry import TOKENIZER_RULES
from pocketbert_runtime.tokenizers.layouts import LAYOUTS
from pocketbert_runtime.tokenizers.truncation import PATTERN

_TEXT, _FLAG, _NUMBER = {"type": "string"}, {"type": "boolean"}, {"type": "number"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_COUNT = {"type": "integer", "minimum": 1}
_DIGEST = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_ID = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
_FILE_NAME = {"type": "string", "pattern": FILE_NAME}


def _object(optional: Mapping[str, Any] = {}, /, **required: Any) -> dict[str, Any]:
    properties = {**required, **optional}
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _list(items: Any, least: int = 1) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least}


def _by_name(values: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values, "minProperties": 1}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"oneOf": [schema, {"type": "null"}]}


def _tokenizer(optional: Mapping[str, Any] = {}, /, **required: Any) -> dict[str, Any]:
    token = _object(content={**_TEXT, "minLength": 1}, id=_ID, **dict.fromkeys(FLAGS, _FLAG))
    # Absent if texts are cut at the end.
    truncation = {**_TEXT, "pattern": PATTERN}
    optional = {"added_tokens": _list(token), "truncation": truncation, **optional}
    return _object(optional, **required, vocab_size=_COUNT)


_TASK_OPTIONS = {
    # For span tasks with unanswerable questions.
    "null_threshold": _NUMBER,
    # For rerankers; it is in the graph.
    "activation": {"enum": list(get_args(ScoreActivation))},
    # The fields of `EmbeddingConfig`, which checks them.
    "embedding": {"type": "object"},
    # The fields of `DecisionConfig`, one of which is null.
    "decisions": _object(thresholds=_or_null(_list(_NUMBER)), reject_below={"type": ["number", "null"]}),
}
_TASK_FIELDS = {"kind": _TEXT, "name": _TEXT, "labels": _list(_TEXT, least=0)}
# For several heads, `tasks` are theirs, in output order.
_HEAD = _object(_TASK_OPTIONS, **_TASK_FIELDS)
_TASK = _object({**_TASK_OPTIONS, "tasks": _list(_HEAD, least=2)}, **_TASK_FIELDS)
# `Scores.outcome` of the file, and the identity of the examples.
_OUTCOME = _object(
    # Options for the windows over questions and long texts.
    {"windows": {"type": "object", "additionalProperties": _COUNT}},
    metric=_TEXT,
    score=_NUMBER,
    examples=_COUNT,
    examples_sha256=_DIGEST,
    interval=_or_null({**_list(_NUMBER, least=2), "maxItems": 2}),
    baselines=_list(_object(name=_TEXT, score=_NUMBER), least=0),
    teacher={"type": ["number", "null"]},
    float_model=_NUMBER,
    verdict={"enum": [*VERDICT_WORDS]},
    headline=_TEXT,
    warnings=_list(_TEXT, least=0),
)
_LATENCY = _object(length=_COUNT, threads=_COUNT, median_ms=_NUMBER, runtime=_TEXT, machine=_TEXT)
_CARD_TEXTS = ("license", "base_model", "base_model_license", "dataset", "dataset_license")
_FILE = _object(sha256=_DIGEST, size_bytes=_COUNT)
# Largest difference of a probability, score or vector element on another runtime or processor.
_ANSWERS = _object(file={"const": ANSWERS_FILE}, sha256=_DIGEST, tolerance={**_NUMBER, "minimum": 0})
_WORDPIECE = _tokenizer(lowercase=_FLAG, strip_accents=_FLAG, tokenize_chinese_chars=_FLAG)
# `layout` is for unigram, with XLM-R's as the default; the flags are for unigram with added tokens, and byte-level BPE.
# See `Vocabulary`.
_OTHER_TOKENIZER = _tokenizer(
    {**dict.fromkeys(("keeps_space", "add_prefix_space"), _FLAG), "layout": {"enum": [*LAYOUTS, MODERNBERT]}},
    kind={"enum": [kind for kind, rules in TOKENIZER_RULES.items() if not rules.has_options]},
)
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "PocketBERT bundle",
    **_object(
        {
            # For static recipes: texts and method behind the activation ranges.
            "calibration": _object(texts=_COUNT, sha256=_DIGEST, method=_TEXT),
            # From the training file: defaults for commands that read tables.
            "columns": _object({"pair": _TEXT}, text=_TEXT, label=_list(_TEXT, least=0), separator=_TEXT),
            "model_card": _object(
                {"latencies": _list(_LATENCY)},
                **dict.fromkeys(_CARD_TEXTS, _TEXT_OR_NULL),
                limits=_list(_TEXT, least=0),
                run_sha256=_or_null(_DIGEST),
            ),
            # For bundles exported with labelled examples.
            "outcome": _OUTCOME,
            # For networks that read the texts in a pair one by one: the task in head.tflite.
            "pairs": _object(task=_TASK),
        },
        schema_version={"const": SCHEMA_VERSION},
        task={"oneOf": [{"type": "null"}, _TASK]},
        signatures=_list(_object(name=_TEXT, length=_COUNT)),
        inputs=_list(_object(name=_TEXT, dtype={"enum": ["int32"]})),
        outputs=_list(_object(name=_TEXT, dtype={"enum": ["float32", "int8"]})),
        tokenizer={"if": {"required": ["kind"]}, "then": _OTHER_TOKENIZER, "else": _WORDPIECE},
        recipe=_TEXT,
        runtimes=_list(_TEXT),
        graph_optimizations=_by_name(_TEXT),
        num_parameters=_COUNT,
        source=_by_name(_DIGEST),
        tools=_by_name(_TEXT),
        files=_by_name(_FILE) | {"propertyNames": _FILE_NAME, "maxProperties": 32},
        answers=_ANSWERS,
    ),
}
