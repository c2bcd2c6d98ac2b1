"""Reads and writes BERT's tokenizer_config.json and tokenizer.json. Options that our tokenizer lacks are errors."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pocketbert.checkpoints.tokenizer_keys import CONFIG_NAME, unknown_keys
from pocketbert.configs import TokenizerConfig
from pocketbert.errors import UserError
from pocketbert_runtime.tokenizers.added_tokens import default_special
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import (
    CLS,
    MAX_CHARACTERS_PER_WORD,
    PAD,
    SEP,
    SPECIAL_TOKENS,
    UNK,
    token_problems,
)

_MODEL = {
    "type": "WordPiece",
    "unk_token": UNK,
    "continuing_subword_prefix": "##",
    "max_input_chars_per_word": MAX_CHARACTERS_PER_WORD,
}
_NORMALIZER = {"type": "BertNormalizer", "clean_text": True}
_NORMALIZER_OPTIONS = ("lowercase", "strip_accents", "handle_chinese_chars")
_TEMPLATES = {"single": [CLS, "A", SEP], "pair": [CLS, "A", SEP, "B", SEP]}
_SEGMENTS = {"single": [0, 0, 0], "pair": [0, 0, 0, 1, 1]}
# Lower-casing does the same. Hugging Face's library for JavaScript would make a final sigma at the ends of words.
_SIGMA = {"type": "Replace", "pattern": {"String": "Σ"}, "content": "σ"}
_PRE_TOKENIZER = {"type": "BertPreTokenizer"}
_OPTIONS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "tokenize_chinese_chars",
}
_PARTS = {
    "version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder",
    "model",
}  # fmt: skip
_TRUNCATION = {"max_length", "strategy", "stride", "direction"}
_PADDING = {"strategy", "direction", "pad_to_multiple_of", "pad_id", "pad_type_id", "pad_token"}


def read_tokenizer_config(content: Mapping[str, Any], problems: list[str]) -> dict[str, bool]:
    """Returns the WordPiece options in a tokenizer_config.json; leaves out missing ones.

    Args:
      content: the parsed file; empty if there is none.
      problems: list that receives one problem per option that our tokenizer lacks.
    """
    never_split = content.get("never_split") or []
    if not isinstance(never_split, list) or not set(map(str, never_split)) <= set(SPECIAL_TOKENS):
        problems.append(f"never_split in {CONFIG_NAME} must contain only special tokens; received {never_split!r}")
    options = {name: content[key] for key, name in _OPTIONS.items() if content.get(key) is not None}
    wrong = [key for key, name in _OPTIONS.items() if not isinstance(options.get(name, True), bool)]
    problems += [f"{key} in {CONFIG_NAME} must be true or false; received {content[key]!r}" for key in wrong]
    return {} if wrong else options


def write_tokenizer_config(config: TokenizerConfig, max_length: int) -> dict[str, Any]:
    """Returns a tokenizer_config.json's content; `read_tokenizer_config` restores `config` from it."""
    return {
        "do_lower_case": config.lowercase,
        "model_max_length": max_length,
        "strip_accents": None if config.strip_accents == config.lowercase else config.strip_accents,
        "tokenize_chinese_chars": config.tokenize_chinese_chars,
        "tokenizer_class": "BertTokenizer",
    }


def common_problems(parts: Mapping[str, Any], pad: str) -> list[str]:
    """Lists problems common to every tokenizer.json: unknown parts, and padding at the left."""
    problems = unknown_keys(parts, _PARTS, "it")
    for name, accepted in (("truncation", _TRUNCATION), ("padding", _PADDING)):
        part = parts.get(name)
        if part is None:
            continue
        if not isinstance(part, dict):
            problems.append(f"{name} must be an object or null; received {part!r:.60}")
            continue
        problems += unknown_keys(part, accepted, name)
        # `truncation_keys` reads the other truncation side.
        sides = ("Right", "Left") if name == "truncation" else ("Right",)
        if part.get("direction", "Right") not in sides:
            problems.append(f"{name}.direction must be {' or '.join(sides)}; received {part['direction']!r:.60}")
        if part.get("pad_token", pad) != pad:
            problems.append(f"{name}.pad_token must be {pad!r}; received {part['pad_token']!r:.60}")
    return problems


def parse_tokenizer(parts: Mapping[str, Any], problems: list[str]) -> tuple[Sequence[str], TokenizerConfig | None]:
    """Reads a WordPiece tokenizer.json: its tokens, without added ones, and its options."""
    problems += common_problems(parts, PAD)
    model = _component(parts, "model", _MODEL, ("vocab",), problems)
    is_lowered, parts = _without_lowercase(parts)
    normalizer = _component(parts, "normalizer", _NORMALIZER, _NORMALIZER_OPTIONS, problems)
    _component(parts, "pre_tokenizer", _PRE_TOKENIZER, (), problems)
    post = parts.get("post_processor")
    if isinstance(post, dict) and post.get("type") == "BertProcessing":
        problems += unknown_keys(post, ("type", "sep", "cls"), "post_processor")
        problems += token_pair_problems(post, {"sep": SEP, "cls": CLS}, "BERT")
    else:
        problems += post_processor_problems(post, _TEMPLATES, "BertProcessing", _SEGMENTS)
    tokens = _tokens(model.get("vocab"), problems)
    problems += token_problems(tokens)
    strip_accents = normalizer.get("strip_accents")
    options = {
        "lowercase": is_lowered or normalizer.get("lowercase"),
        "strip_accents": normalizer.get("lowercase") if strip_accents is None else strip_accents,
        "tokenize_chinese_chars": normalizer.get("handle_chinese_chars"),
    }
    try:
        return tokens, TokenizerConfig(**options)  # type: ignore[arg-type]
    except UserError as error:
        problems.append(f"normalizer: {error}")
        return tokens, None


def wordpiece_parts(vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns the parts of a WordPiece tokenizer.json that depend on the kind; `parse_tokenizer` reads them."""
    options = vocabulary.options
    ids = {token: position for position, token in enumerate(vocabulary.base_tokens())}
    normalizer = _NORMALIZER | {
        "handle_chinese_chars": options.tokenize_chinese_chars,
        "strip_accents": options.strip_accents,
        "lowercase": options.lowercase,
    }
    return {
        "normalizer": {"type": "Sequence", "normalizers": [_SIGMA, normalizer]} if options.lowercase else normalizer,
        "pre_tokenizer": _PRE_TOKENIZER,
        "post_processor": template_processing(_TEMPLATES, _SEGMENTS, ids),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {**_MODEL, "vocab": ids},
    }


def template_processing(
    templates: Mapping[str, Sequence[str]], segments: Mapping[str, Sequence[int]], ids: Mapping[str, int]
) -> dict[str, Any]:
    """Returns a post-processor that puts special tokens around one text, A, or two, A and B.

    Args:
      templates: items in `single` and `pair`.
      segments: each item's segment.
      ids: token → id, with all special tokens in the templates.
    """
    items = {
        name: [
            {"Sequence" if item in "AB" else "SpecialToken": {"id": item, "type_id": segment}}
            for item, segment in zip(template, segments[name], strict=True)
        ]
        for name, template in templates.items()
    }
    special = dict.fromkeys(item for template in templates.values() for item in template if item not in "AB")
    tokens = {token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in special}
    return {"type": "TemplateProcessing", **items, "special_tokens": tokens}


def added_token_parts(vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """Returns a tokenizer.json's added tokens by id: the kind's special tokens, and the vocabulary's own."""
    ids = {token: position for position, token in enumerate(vocabulary.base_tokens())}
    rules = vocabulary.rules
    added = {token: default_special(rules, token, ids[token]) for token in rules.special_tokens if token in ids}
    added |= {token.content: token for token in vocabulary.added}
    return [dataclasses.asdict(token) for token in sorted(added.values(), key=lambda token: token.id)]


def _without_lowercase(parts: Mapping[str, Any]) -> tuple[bool, Mapping[str, Any]]:
    """Takes out sentence-transformers' lower-casing, or our sigma, and returns whether the former is there."""
    normalizer = parts.get("normalizer")
    listed = normalizer.get("normalizers") if isinstance(normalizer, dict) else None
    lowercase = {"type": "Lowercase"}
    if isinstance(listed, list) and len(listed) == 2 and listed[0] in (lowercase, _SIGMA):
        return listed[0] == lowercase, {**parts, "normalizer": listed[1]}
    return False, parts


def _component(
    content: Mapping[str, Any], name: str, required: Mapping[str, object], others: Sequence[str], problems: list[str]
) -> Mapping[str, Any]:
    part = content.get(name)
    if not isinstance(part, dict):
        problems.append(f"{name} must be of type {required['type']}; received {part!r:.60}")
        return {}
    for key, value in required.items():
        if part.get(key) != value:
            problems.append(f"{name}.{key} must be {value!r}; received {part.get(key)!r:.60}")
    if part.get("type") == required["type"]:
        problems += unknown_keys(part, {*required, *others}, name)
    return part


def token_pair_problems(part: Mapping[str, Any], tokens: Mapping[str, str], family: str) -> list[str]:
    """Lists problems with a post-processor's tokens; each must be a list with a token and its id."""
    received = {key: part.get(key) for key in tokens}
    return [
        f"post_processor.{key} must be {family}'s; received {value!r:.60}"
        for key, value in received.items()
        if not isinstance(value, list) or value[:1] != [tokens[key]]
    ]


def post_processor_problems(
    part: Any, templates: Mapping[str, list[str]], other_type: str, segments: Mapping[str, list[int]] | None = None
) -> list[str]:
    """Lists problems with a template for special tokens.

    Args:
      part: the component.
      templates: items in `single` and `pair`.
      other_type: another accepted type, for the message; empty for none.
      segments: each item's segment; None for a family without segments.
    """
    kind = part.get("type") if isinstance(part, dict) else None
    if kind != "TemplateProcessing":
        types = " or ".join(filter(None, ("TemplateProcessing", other_type)))
        return [f"post_processor must be of type {types}; received {kind!r:.60}"]
    problems = unknown_keys(part, ("type", "single", "pair", "special_tokens"), "post_processor")
    for name, expected in templates.items():
        values = [
            value
            for item in (part[name] if isinstance(part.get(name), list) else [])
            if isinstance(item, dict)
            for value in item.values()
            if isinstance(value, dict)
        ]
        items = [str(value.get("id")) for value in values]
        type_ids = [value.get("type_id") for value in values]
        if items != expected:
            problems.append(f"post_processor.{name} must be {' '.join(expected)}; received {' '.join(items):.60}")
        elif segments is not None and type_ids != segments[name]:
            problems.append(f"post_processor.{name} must have the segments {segments[name]}; received {type_ids!r:.60}")
    return problems


def _tokens(vocabulary: Any, problems: list[str]) -> Sequence[str]:
    if not isinstance(vocabulary, dict) or sorted(value for value in vocabulary.values() if type(value) is int) != list(
        range(len(vocabulary))
    ):
        problems.append("model.vocab must map tokens to the ids 0, 1, 2…, each used once; received other ids")
        return []
    return sorted(vocabulary, key=vocabulary.__getitem__)


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for the whole process: a tokenizer reads its vocabulary more than once."""
    return tempfile.TemporaryDirectory(prefix="pocketbert-vocabulary-")


def kept_file(content: bytes, name: str) -> Path:
    """Writes a temporary file that stays until the process ends, and returns its path."""
    path = Path(_folder().name) / hashlib.sha256(content).hexdigest() / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path
