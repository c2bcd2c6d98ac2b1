"""Reads RoBERTa's and XLM-R's tokenizer.json and tokenizer_config.json.

Components that our tokenizers lack are errors.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pocketbert.checkpoints.tokenizer_files import (
    CONFIG_NAME,
    added_problems,
    content_of,
    post_processor_problems,
)
from pocketbert.configs import TokenizerKind
from pocketbert.tokenizers.byte_bpe_files import byte_bpe_problems, ordered_tokens
from pocketbert.tokenizers.sentencepiece_model import subword_problems
from pocketbert.tokenizers.special_tokens import BOS, EOS, MASK, PAD, ROBERTA_SPECIAL_TOKENS, UNK

_TOKENS = {"bos_token": BOS, "cls_token": BOS, "eos_token": EOS, "sep_token": EOS} | {
    "pad_token": PAD,
    "unk_token": UNK,
    "mask_token": MASK,
}
# Options that change ids or their order, with the supported values; missing ones have these values.
_FIXED: dict[str, tuple[object, ...]] = {
    "add_prefix_space": (False,),
    "split_special_tokens": (False,),
    "padding_side": ("right",),
    "truncation_side": ("right",),
    "additional_special_tokens": ([],),
    "sp_model_kwargs": ({},),
}
_BYTE_LEVEL = {"type": ("ByteLevel",), "add_prefix_space": (False,), "use_regex": (True, None)}
_BPE = {
    "type": ("BPE",),
    "dropout": (None,),
    "unk_token": (None, UNK),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "fuse_unk": (False, None),
    "byte_fallback": (False, None),
    "ignore_merges": (False, None),
}
_UNIGRAM = {"type": ("Unigram",), "unk_id": (3,), "byte_fallback": (False, None)}
_METASPACE = {
    "type": ("Metaspace",),
    "replacement": ("▁",),
    "add_prefix_space": (True, None),
    "prepend_scheme": ("always", None),
    "split": (True, None),
}
# What transformers writes for sentencepiece's removal of repeated and trailing spaces.
_SPACES = (
    {"type": ("Strip",), "strip_left": (False,), "strip_right": (True,)},
    {"type": ("Replace",), "pattern": ({"Regex": " {2,}"},), "content": (" ", "▁")},
)
_TEMPLATES = {"single": [BOS, "A", EOS], "pair": [BOS, "A", EOS, EOS, "B", EOS]}


@dataclass(frozen=True)
class TokenizerJson:
    """The content of a tokenizer.json.

    Attributes:
      tokens: all tokens in the order of their ids.
      merges: merges of byte-level BPE, else empty.
      scores: subwords with float32 scores of unigram, without special tokens, else empty.
      charsmap: compiled map of unigram's normalizer; empty for none.
    """

    tokens: Sequence[str]
    merges: Sequence[tuple[str, str]] = ()
    scores: Sequence[tuple[str, float]] = ()
    charsmap: bytes = b""


def config_problems(content: Mapping[str, Any]) -> list[str]:
    """Problems of the content of a tokenizer_config.json: options that change ids."""
    problems = [
        f"{key} in {CONFIG_NAME} must be {accepted[0]!r}; received {content[key]!r}"
        for key, accepted in _FIXED.items()
        if content.get(key) is not None and content[key] not in accepted
    ]
    problems += [
        f"{key} in {CONFIG_NAME} must be {token}; received {content_of(content[key])!r}"
        for key, token in _TOKENS.items()
        if content.get(key) is not None and content_of(content[key]) != token
    ]
    added = content.get("added_tokens_decoder") or {}
    added = list(added.values()) if isinstance(added, dict) else added
    return problems + added_problems(added, CONFIG_NAME, ROBERTA_SPECIAL_TOKENS, may_strip=MASK)


def write_config(kind: TokenizerKind, max_length: int) -> dict[str, Any]:
    """The content of a tokenizer_config.json with which transformers makes the same tokenizer."""
    if kind == "byte_bpe":
        own = {"add_prefix_space": False, "tokenizer_class": "RobertaTokenizer", "trim_offsets": True}
    else:
        own = {"tokenizer_class": "XLMRobertaTokenizer"}
    return {"model_max_length": max_length, **own}


def parse_tokenizer_json(parts: Mapping[str, Any], kind: TokenizerKind, found: list[str]) -> TokenizerJson:
    """Reads the parsed content of a tokenizer.json.

    Args:
      parts: the content.
      kind: `byte_bpe` or `unigram`.
      found: list that receives one problem per component that our tokenizers lack.
    """
    read = _byte_bpe(parts, found) if kind == "byte_bpe" else _unigram(parts, found)
    added = parts.get("added_tokens") or []
    found += added_problems(added, "tokenizer.json", ROBERTA_SPECIAL_TOKENS, may_strip=MASK)
    ids = {token: index for index, token in enumerate(read.tokens)}
    moved = [
        each["content"]
        for each in added
        if isinstance(each, dict) and each.get("content") in ids and each.get("id") not in (None, ids[each["content"]])
    ]
    if moved:
        found.append(f"the ids in added_tokens must be those in model.vocab; received others for {', '.join(moved)}")
    return read


def _byte_bpe(parts: Mapping[str, Any], found: list[str]) -> TokenizerJson:
    model = _component(parts, "model", _BPE, found)
    _component(parts, "pre_tokenizer", _BYTE_LEVEL, found)
    if parts.get("normalizer") is not None:
        found.append(f"normalizer must be null; received {parts['normalizer']!r:.60}")
    post = parts.get("post_processor")
    if isinstance(post, dict) and post.get("type") == "RobertaProcessing":
        wrong = [key for key, token in (("sep", EOS), ("cls", BOS)) if (post.get(key) or [None])[0] != token]
        found += [f"post_processor.{key} must be RoBERTa's; received {post.get(key)!r:.60}" for key in wrong]
        if post.get("add_prefix_space"):
            found.append("post_processor.add_prefix_space must be False; received True")
    else:
        found += post_processor_problems(post, _TEMPLATES, "RobertaProcessing")
    tokens = ordered_tokens(model.get("vocab"), found)
    merges = [_merge(each) for each in model["merges"]] if isinstance(model.get("merges"), list) else [None]
    if None in merges:
        found.append("model.merges must be a list of pairs of tokens; received others")
    pairs = [pair for pair in merges if pair is not None]
    if tokens and not found:
        found += byte_bpe_problems(tokens, pairs)
    return TokenizerJson(tokens, merges=pairs)


def _merge(value: Any) -> tuple[str, str] | None:
    parts = value.split(" ") if isinstance(value, str) else value
    if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(each, str) and each for each in parts):
        return None
    return parts[0], parts[1]


def _unigram(parts: Mapping[str, Any], found: list[str]) -> TokenizerJson:
    model = _component(parts, "model", _UNIGRAM, found)
    pre_tokenizers = _sequence(parts.get("pre_tokenizer"), "pretokenizers")
    if len(pre_tokenizers) == 2 and _matches(pre_tokenizers[0], {"type": ("WhitespaceSplit",)}):
        pre_tokenizers = pre_tokenizers[1:]
    if len(pre_tokenizers) != 1:
        found.append(f"pre_tokenizer must be Metaspace; received {parts.get('pre_tokenizer')!r:.60}")
    else:
        _component({"pre_tokenizer": pre_tokenizers[0]}, "pre_tokenizer", _METASPACE, found)
    found += post_processor_problems(parts.get("post_processor"), _TEMPLATES, "")
    charsmap = _charsmap(parts.get("normalizer"), found)
    entries = model.get("vocab")
    if not isinstance(entries, list) or not all(_is_entry(each) for each in entries):
        found.append("model.vocab must be a list of subwords with their scores; received others")
        return TokenizerJson([])
    tokens = [text for text, _ in entries]
    if (*tokens[:4], tokens[-1] if tokens else "") != ROBERTA_SPECIAL_TOKENS:
        found.append(
            f"model.vocab must begin with {BOS} {PAD} {EOS} {UNK} and end with {MASK}; received "
            f"{' '.join(tokens[:4])} and {tokens[-1] if tokens else 'nothing'}"
        )
        return TokenizerJson([])
    found += subword_problems(tokens[4:-1])
    return TokenizerJson(
        tokens, scores=[(text, float(np.float32(score))) for text, score in entries[4:-1]], charsmap=charsmap
    )


def _is_entry(value: Any) -> bool:
    is_pair = isinstance(value, list) and len(value) == 2
    return is_pair and isinstance(value[0], str) and type(value[1]) in (int, float) and abs(value[1]) < 3e38


def _charsmap(normalizer: Any, found: list[str]) -> bytes:
    """The compiled map in a normalizer: Precompiled, alone or before what stands for the removal of spaces."""
    parts = _sequence(normalizer, "normalizers")
    charsmap = b""
    for index, part in enumerate(parts):
        if index == 0 and _matches(part, {"type": ("Precompiled",)}):
            try:
                charsmap = base64.b64decode(part.get("precompiled_charsmap") or "", validate=True)
            except (binascii.Error, TypeError, ValueError):
                found.append("normalizer.precompiled_charsmap must be Base64; received other characters")
        elif not any(_matches(part, accepted) for accepted in _SPACES):
            received = part.get("type") if isinstance(part, dict) else part
            found.append(
                "normalizer must be Precompiled, which the removal of repeated and trailing spaces may follow; "
                f"received {received!r:.60}"
            )
    return charsmap


def _sequence(component: Any, key: str) -> list[Any]:
    if isinstance(component, dict) and component.get("type") == "Sequence" and isinstance(component.get(key), list):
        return component[key]
    return [] if component is None else [component]


def _matches(part: Any, accepted: Mapping[str, tuple[object, ...]]) -> bool:
    return isinstance(part, dict) and all(part.get(key) in values for key, values in accepted.items())


def _component(
    parts: Mapping[str, Any], name: str, accepted: Mapping[str, tuple[object, ...]], found: list[str]
) -> Mapping[str, Any]:
    part = parts.get(name)
    if not isinstance(part, dict) or part.get("type") not in accepted["type"]:
        received = part.get("type") if isinstance(part, dict) else part
        found.append(f"{name} must be of type {accepted['type'][0]}; received {received!r:.60}")
        return {}
    found += [
        f"{name}.{key} must be {values[0]!r}; received {part.get(key)!r:.60}"
        for key, values in accepted.items()
        if part.get(key) not in values
    ]
    return part
