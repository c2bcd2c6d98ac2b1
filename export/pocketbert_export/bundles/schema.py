"""The JSON schema of `bundle.json` (Draft 2020-12)."""

from __future__ import annotations

from typing import Any, get_args

from pocketbert.configs import ScoreActivation
from pocketbert.report.outcome import VERDICT_WORDS
from pocketbert.tokenizers.added_tokens import FLAGS

# Of bundles with a WordPiece tokenizer, which older versions of this project also read.
SCHEMA_VERSION = 2
# The same with another tokenizer, whose kind it names.
OTHER_TOKENIZERS_VERSION = 3

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 1}
_DIGEST = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_FLAG = {"type": "boolean"}
_NUMBER = {"type": "number"}
# int32
_ID = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
# No path may leave the folder. The last part rejects a trailing line break, which Python's `$` would match.
_FILE_NAME = {"type": "string", "pattern": r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$(?!\n)"}
_MOST_FILES = 16


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: Any, least: int = 1) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least}


def _tensors(*dtypes: str) -> dict[str, Any]:
    return _list(_object(name=_TEXT, dtype={"enum": list(dtypes)}))


def _by_name(values: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values, "minProperties": 1}


def _row(number: dict[str, Any]) -> dict[str, Any]:
    """`[1, length]`: a batch of one text."""
    return {**_list(_list(number)), "maxItems": 1}


def _task() -> dict[str, Any]:
    task = _object(kind=_TEXT, name=_TEXT, labels=_list(_TEXT, least=0))
    # For span tasks with unanswerable questions.
    task["properties"]["null_threshold"] = {"type": "number"}
    # Of rerankers; it is in the graph.
    task["properties"]["activation"] = {"enum": list(get_args(ScoreActivation))}
    # The fields of `EmbeddingConfig`, which checks them.
    task["properties"]["embedding"] = {"type": "object"}
    return task


def _tokenizer(**properties: Any) -> dict[str, Any]:
    tokenizer = _object(**properties, vocab_size=_COUNT)
    flags = {flag: _FLAG for flag in FLAGS}
    tokenizer["properties"]["added_tokens"] = _list(_object(content={**_TEXT, "minLength": 1}, id=_ID, **flags))
    return tokenizer


def _model_card() -> dict[str, Any]:
    """Facts of the model card."""
    text_or_null = {"type": ["string", "null"]}
    facts = _object(
        license=text_or_null,
        base_model=text_or_null,
        base_model_license=text_or_null,
        dataset=text_or_null,
        dataset_license=text_or_null,
        limits=_list(_TEXT, least=0),
        run_sha256={"oneOf": [_DIGEST, {"type": "null"}]},
    )
    facts["properties"]["latencies"] = _list(
        _object(length=_COUNT, threads=_COUNT, median_ms=_NUMBER, runtime=_TEXT, machine=_TEXT)
    )
    return facts


def _outcome() -> dict[str, Any]:
    """Of bundles exported with labelled examples: `Scores.outcome` of the file, and the identity of the examples."""
    number_or_null = {"type": ["number", "null"]}
    outcome = _object(
        metric=_TEXT,
        score=_NUMBER,
        examples=_COUNT,
        examples_sha256=_DIGEST,
        interval={"oneOf": [{**_list(_NUMBER, least=2), "maxItems": 2}, {"type": "null"}]},
        baselines=_list(_object(name=_TEXT, score=_NUMBER), least=0),
        teacher=number_or_null,
        float_model=_NUMBER,
        verdict={"enum": [*VERDICT_WORDS]},
        headline=_TEXT,
        warnings=_list(_TEXT, least=0),
    )
    # Options of the windows that questions and long texts were read in.
    outcome["properties"]["windows"] = {"type": "object", "additionalProperties": _COUNT}
    return outcome


def _calibration() -> dict[str, Any]:
    """Of static recipes: texts and method that determined the ranges of activations."""
    return _object(texts=_COUNT, sha256=_DIGEST, method=_TEXT)


def _columns() -> dict[str, Any]:
    """Of the training file: defaults of commands that read tables."""
    columns = _object(text=_TEXT, label=_list(_TEXT, least=0), separator=_TEXT)
    columns["properties"]["pair"] = _TEXT
    return columns


SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "PocketBERT bundle",
    **_object(
        schema_version={"const": SCHEMA_VERSION},
        task={
            "oneOf": [
                {"type": "null"},
                _task(),
            ]
        },
        signatures=_list(_object(name=_TEXT, length=_COUNT)),
        inputs=_tensors("int32"),
        outputs=_tensors("float32", "int8"),
        tokenizer=_tokenizer(lowercase=_FLAG, strip_accents=_FLAG, tokenize_chinese_chars=_FLAG),
        recipe=_TEXT,
        runtimes=_list(_TEXT),
        graph_optimizations=_by_name(_TEXT),
        num_parameters=_COUNT,
        source=_by_name(_DIGEST),
        tools=_by_name(_TEXT),
        files={
            **_by_name(_object(sha256=_DIGEST, size_bytes=_COUNT)),
            "propertyNames": _FILE_NAME,
            "maxProperties": _MOST_FILES,
        },
        goldens=_list(
            _object(
                text=_TEXT,
                pair={"type": ["string", "null"]},
                length=_COUNT,
                inputs=_object(
                    input_word_ids=_row(_ID),
                    input_mask=_row({"type": "integer", "enum": [0, 1]}),
                    input_type_ids=_row(_ID),
                ),
            )
        ),
    ),
}
SCHEMA["properties"]["calibration"] = _calibration()
SCHEMA["properties"]["columns"] = _columns()
SCHEMA["properties"]["model_card"] = _model_card()
SCHEMA["properties"]["outcome"] = _outcome()


def _other_tokenizer() -> dict[str, Any]:
    tokenizer = _tokenizer(kind={"enum": ["byte_bpe", "unigram"]})
    # Of unigram with added tokens; see `Vocabulary`.
    tokenizer["properties"]["keeps_space"] = _FLAG
    # Of byte-level BPE.
    tokenizer["properties"]["add_prefix_space"] = _FLAG
    return tokenizer


# Version → schema.
SCHEMAS: dict[int, dict[str, Any]] = {
    SCHEMA_VERSION: SCHEMA,
    OTHER_TOKENIZERS_VERSION: SCHEMA
    | {
        "properties": SCHEMA["properties"]
        | {
            "schema_version": {"const": OTHER_TOKENIZERS_VERSION},
            "tokenizer": _other_tokenizer(),
        }
    },
}
