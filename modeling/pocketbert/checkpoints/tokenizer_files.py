"""Reads BERT's tokenizer_config.json and tokenizer.json as a vocabulary and options of our tokenizer.

Options that our tokenizer lacks are errors.
"""

from __future__ import annotations

import functools
import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pocketbert.configs import TokenizerConfig
from pocketbert.errors import UserError
from pocketbert.json_reading import read_json
from pocketbert.tokenizers.vocabulary import CLS, MASK, PAD, SEP, SPECIAL_TOKENS, UNK, token_problems

CONFIG_NAME = "tokenizer_config.json"
TOKENIZER_NAME = "tokenizer.json"

# Options that change ids or their order, with the supported values.
_FIXED: dict[str, tuple[object, ...]] = {
    "do_basic_tokenize": (True,),
    "split_special_tokens": (False,),
    "wordpieces_prefix": ("##",),
    "max_input_chars_per_word": (100,),
    "padding_side": ("right",),
    "truncation_side": ("right",),
    "additional_special_tokens": ([],),
}
_TOKENS = {"pad_token": PAD, "unk_token": UNK, "cls_token": CLS, "sep_token": SEP, "mask_token": MASK}
_MODEL = {"type": "WordPiece", "unk_token": UNK, "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
_NORMALIZER = {"type": "BertNormalizer", "clean_text": True}
_TEMPLATES = {"single": [CLS, "A", SEP], "pair": [CLS, "A", SEP, "B", SEP]}
_OPTIONS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "tokenize_chinese_chars",
}


def read_tokenizer_config(content: Mapping[str, Any], problems: list[str]) -> TokenizerConfig | None:
    """The options in the content of a tokenizer_config.json.

    Args:
      content: the parsed file; empty if there is none.
      problems: list that receives one problem per option that our tokenizer lacks.
    Returns:
      The options, with transformers' defaults for missing ones. None if there are none, or a problem.
    """
    count = len(problems)
    for key, accepted in _FIXED.items():
        if content.get(key) is not None and content[key] not in accepted:
            problems.append(f"{key} in {CONFIG_NAME} must be {accepted[0]!r}; received {content[key]!r}")
    for key, token in _TOKENS.items():
        if content.get(key) is not None and content_of(content[key]) != token:
            problems.append(f"{key} in {CONFIG_NAME} must be {token}; received {content_of(content[key])!r}")
    never_split = content.get("never_split") or []
    if not isinstance(never_split, list) or not set(map(str, never_split)) <= set(SPECIAL_TOKENS):
        problems.append(f"never_split in {CONFIG_NAME} must contain only special tokens; received {never_split!r}")
    added = content.get("added_tokens_decoder") or {}
    problems += added_problems(list(added.values()) if isinstance(added, dict) else added, CONFIG_NAME)
    given = {ours: content[theirs] for theirs, ours in _OPTIONS.items() if content.get(theirs) is not None}
    for theirs, ours in _OPTIONS.items():
        if ours in given and not isinstance(given[ours], bool):
            problems.append(f"{theirs} in {CONFIG_NAME} must be true or false; received {given[ours]!r}")
    return TokenizerConfig(**given) if given and len(problems) == count else None


def write_tokenizer_config(config: TokenizerConfig, max_length: int) -> dict[str, Any]:
    """The content of a tokenizer_config.json from which `read_tokenizer_config` restores `config`."""
    return {
        "do_lower_case": config.lowercase,
        "model_max_length": max_length,
        "strip_accents": None if config.strip_accents == config.lowercase else config.strip_accents,
        "tokenize_chinese_chars": config.tokenize_chinese_chars,
        "tokenizer_class": "BertTokenizer",
    }


def read_tokenizer(path: Path, problems: list[str]) -> tuple[Path, TokenizerConfig] | None:
    """Reads a tokenizer.json; returns its vocabulary as a temporary vocab.txt, and its options.

    Args:
      path: the file, as written by Hugging Face's `tokenizers`.
      problems: list that receives one problem per component that our tokenizer lacks.
    """
    try:
        content = read_json(path, where=path.name)
    except UserError as error:
        problems.append(str(error))
        return None
    found: list[str] = []
    parts = content if isinstance(content, dict) else {}
    model, normalizer = _component(parts, "model", _MODEL, found), _component(parts, "normalizer", _NORMALIZER, found)
    _component(parts, "pre_tokenizer", {"type": "BertPreTokenizer"}, found)
    post = parts.get("post_processor")
    if isinstance(post, dict) and post.get("type") == "BertProcessing":
        found += _bert_processing_problems(post)
    else:
        found += post_processor_problems(post, _TEMPLATES, "BertProcessing")
    found += added_problems(parts.get("added_tokens") or [], path.name)
    tokens = _tokens(model.get("vocab"), found)
    found += token_problems(tokens)
    options = {
        "lowercase": normalizer.get("lowercase"),
        "strip_accents": normalizer.get("strip_accents"),
        "tokenize_chinese_chars": normalizer.get("handle_chinese_chars"),
    }
    try:
        config = TokenizerConfig(**options)  # type: ignore[arg-type]
    except UserError as error:
        found.append(f"normalizer: {error}")
    problems += [f"{path.name}: {problem}" for problem in found]
    return (
        None
        if found
        else (
            kept_file("".join(f"{token}\n" for token in tokens).encode(), "vocab.txt"),
            config,
        )
    )


def _component(
    content: Mapping[str, Any], name: str, required: Mapping[str, object], found: list[str]
) -> Mapping[str, Any]:
    part = content.get(name)
    if not isinstance(part, dict):
        found.append(f"{name} must be of type {required['type']}; received {part!r:.60}")
        return {}
    for key, value in required.items():
        if part.get(key) != value:
            found.append(f"{name}.{key} must be {value!r}; received {part.get(key)!r:.60}")
    return part


def _bert_processing_problems(part: Mapping[str, Any]) -> list[str]:
    wrong = [key for key, token in (("sep", SEP), ("cls", CLS)) if (part.get(key) or [None])[0] != token]
    return [f"post_processor.{key} must be BERT's; received {part.get(key)!r:.60}" for key in wrong]


def post_processor_problems(part: Any, templates: Mapping[str, list[str]], other_type: str) -> list[str]:
    """Problems of a template with special tokens.

    Args:
      part: the component.
      templates: items of `single` and `pair`.
      other_type: another type that the caller accepts, for the message; empty for none.
    """
    kind = part.get("type") if isinstance(part, dict) else None
    if kind != "TemplateProcessing":
        types = " or ".join(filter(None, ("TemplateProcessing", other_type)))
        return [f"post_processor must be of type {types}; received {kind!r:.60}"]
    found = []
    for name, expected in templates.items():
        items = [
            str(value.get("id"))
            for item in part.get(name) or []
            if isinstance(item, dict)
            for value in item.values()
            if isinstance(value, dict)
        ]
        if items != expected:
            found.append(f"post_processor.{name} must be {' '.join(expected)}; received {' '.join(items):.60}")
    return found


def added_problems(
    tokens: Any, name: str, special: Sequence[str] = SPECIAL_TOKENS, may_strip: str | None = None
) -> list[str]:
    """Problems of added tokens, which can only be the special tokens.

    Args:
      tokens: the tokens.
      name: the file, for messages.
      special: the special tokens.
      may_strip: the one that may have the flag `lstrip`.
    """
    if not isinstance(tokens, list):
        return [f"the added tokens in {name} must be a list or an object; received {type(tokens).__name__}"]
    unknown = [content_of(token) for token in tokens if content_of(token) not in special]
    problems = []
    if unknown:
        problems.append(
            f"the added tokens in {name} must be special tokens ({' '.join(special)}); received "
            f"{', '.join(map(repr, unknown[:5]))}, which our tokenizer would split"
        )
    for flag in ("single_word", "lstrip", "rstrip"):
        flagged = [content_of(token) for token in tokens if isinstance(token, dict) and token.get(flag)]
        if flag == "lstrip":
            flagged = [token for token in flagged if token != may_strip]
        if flagged:
            problems.append(f"{flag} of added tokens in {name} must be false; received true for {flagged[0]!r}")
    return problems


def content_of(token: Any) -> Any:
    """The text of a token, which files give as a string or as an object with flags."""
    return token.get("content") if isinstance(token, dict) else token


def _tokens(vocabulary: Any, found: list[str]) -> Sequence[str]:
    if not isinstance(vocabulary, dict) or sorted(
        value for value in vocabulary.values() if isinstance(value, int)
    ) != list(range(len(vocabulary))):
        found.append("model.vocab must map tokens to the ids 0, 1, 2…, each used once; received other ids")
        return []
    return sorted(vocabulary, key=vocabulary.__getitem__)


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for the lifetime of the process: a tokenizer reads its vocabulary more than once."""
    return tempfile.TemporaryDirectory(prefix="pocketbert-vocabulary-")


def kept_file(content: bytes, name: str) -> Path:
    """Writes a temporary file that stays until the process ends, and returns its path."""
    path = Path(_folder().name) / hashlib.sha256(content).hexdigest() / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path
