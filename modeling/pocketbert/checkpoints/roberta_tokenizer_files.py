"""Reads and writes RoBERTa's and XLM-R's tokenizer.json. Components that our tokenizers lack are errors."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pocketbert.checkpoints.tokenizer_files import (
    common_problems,
    post_processor_problems,
    template_processing,
    token_pair_problems,
)
from pocketbert.checkpoints.tokenizer_keys import unknown_keys
from pocketbert.configs import TokenizerKind
from pocketbert.progress import log_info
from pocketbert_runtime.tokenizers.byte_bpe_files import byte_bpe_problems, ordered_tokens
from pocketbert_runtime.tokenizers.kinds.registry import TOKENIZER_RULES
from pocketbert_runtime.tokenizers.sentencepiece_model import (
    fairseq_scores,
    fairseq_tokens,
    read_model,
    subword_problems,
)
from pocketbert_runtime.tokenizers.special_tokens import BOS, EOS, MASK, PAD, ROBERTA_SPECIAL_TOKENS, UNK
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

# A null stands for a missing key. Keys without values change only offsets, or hold the vocabulary.
_BYTE_LEVEL = {"type": ("ByteLevel",), "add_prefix_space": (False, True), "use_regex": (True, None), "trim_offsets": ()}
_BPE = {
    "type": ("BPE",),
    "dropout": (None,),
    "unk_token": (None, UNK),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "fuse_unk": (False, None),
    "byte_fallback": (False, None),
    "ignore_merges": (False, None),
    "vocab": (),
    "merges": (),
}
_UNIGRAM = {"type": ("Unigram",), "unk_id": (3,), "byte_fallback": (False, None), "vocab": ()}
_METASPACE = {
    "type": ("Metaspace",),
    "replacement": ("▁",),
    "add_prefix_space": (True, None),
    "prepend_scheme": ("always", None),
    "split": (True, None),
    "str_rep": ("▁", None),
}
_ROBERTA_PROCESSING = ("type", "sep", "cls", "trim_offsets", "add_prefix_space")
# sentencepiece's removal of repeated and trailing spaces, as transformers writes it.
_SPACES = (
    {"type": ("Strip",), "strip_left": (False,), "strip_right": (True,)},
    {"type": ("Replace",), "pattern": ({"Regex": " {2,}"},), "content": (" ", "▁")},
)
# As sentencepiece, whose normalizer has made spaces of other white space. WhitespaceSplit also splits at U+0085.
_SPACE_SPLIT = {"type": "Split", "pattern": {"Regex": " "}, "behavior": "Removed", "invert": False}
_TEMPLATES = {"single": [BOS, "A", EOS], "pair": [BOS, "A", EOS, EOS, "B", EOS]}
_SEGMENTS = {"single": [0] * 3, "pair": [0] * 6}


@dataclass(frozen=True)
class TokenizerJson:
    """A tokenizer.json's content.

    Attributes:
      tokens: all tokens but added ones, by id.
      merges: merges for byte-level BPE, else empty.
      scores: subwords with float32 scores for unigram, without special tokens, else empty.
      charsmap: compiled map in unigram's normalizer; empty for none.
      keeps_space: see `Vocabulary`.
      add_prefix_space: see `Vocabulary`.
    """

    tokens: Sequence[str]
    merges: Sequence[tuple[str, str]] = ()
    scores: Sequence[tuple[str, float]] = ()
    charsmap: bytes = b""
    keeps_space: bool = False
    add_prefix_space: bool = False


def write_config(vocabulary: Vocabulary, max_length: int) -> dict[str, Any]:
    """Returns a tokenizer_config.json's content; transformers makes the same tokenizer with it."""
    if vocabulary.rules.tokens_are_bytes:
        prefix = vocabulary.add_prefix_space
        options = {"add_prefix_space": prefix, "tokenizer_class": "RobertaTokenizer", "trim_offsets": True}
    else:
        options = {"tokenizer_class": "XLMRobertaTokenizer"}
    return {"model_max_length": max_length, **options}


def parse_tokenizer_json(parts: Mapping[str, Any], kind: TokenizerKind, problems: list[str]) -> TokenizerJson:
    """Reads a tokenizer.json's parsed content."""
    problems += common_problems(parts, PAD)
    return _byte_bpe(parts, problems) if TOKENIZER_RULES[kind].tokens_are_bytes else _unigram(parts, problems)


def _byte_bpe(parts: Mapping[str, Any], problems: list[str]) -> TokenizerJson:
    model = _component(parts, "model", _BPE, problems)
    has_prefix = _component(parts, "pre_tokenizer", _BYTE_LEVEL, problems).get("add_prefix_space") is True
    if parts.get("normalizer") is not None:
        problems.append(f"normalizer must be null; received {parts['normalizer']!r:.60}")
    post = parts.get("post_processor")
    processors = _sequence(post, "processors")
    if len(processors) == 2:
        # Offsets without spaces, then the template.
        _component({"post_processor": processors[0]}, "post_processor", _BYTE_LEVEL, problems)
        post = processors[1]
    if isinstance(post, dict) and post.get("type") == "RobertaProcessing":
        problems += unknown_keys(post, _ROBERTA_PROCESSING, "post_processor")
        problems += token_pair_problems(post, {"sep": EOS, "cls": BOS}, "RoBERTa")
    else:
        problems += post_processor_problems(post, _TEMPLATES, "RobertaProcessing")
    tokens = ordered_tokens(model.get("vocab"), problems)
    merges = model["merges"] if isinstance(model.get("merges"), list) else [None]
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
    pairs = [
        (merge[0], merge[1])
        for merge in merges
        if isinstance(merge, list) and len(merge) == 2 and all(isinstance(token, str) and token for token in merge)
    ]
    if len(pairs) < len(merges):
        problems.append("model.merges must be a list of pairs of tokens; received others")
    if tokens and not problems:
        problems += byte_bpe_problems(tokens, pairs)
    return TokenizerJson(tokens, merges=pairs, add_prefix_space=has_prefix)


def _unigram(parts: Mapping[str, Any], problems: list[str]) -> TokenizerJson:
    model = _component(parts, "model", _UNIGRAM, problems)
    pre_tokenizers = _sequence(parts.get("pre_tokenizer"), "pretokenizers")
    keeps_space = len(pre_tokenizers) == 1
    if len(pre_tokenizers) == 2 and pre_tokenizers[0] in ({"type": "WhitespaceSplit"}, _SPACE_SPLIT):
        pre_tokenizers = pre_tokenizers[1:]
    if len(pre_tokenizers) != 1:
        problems.append(f"pre_tokenizer must be Metaspace; received {parts.get('pre_tokenizer')!r:.60}")
    else:
        _component({"pre_tokenizer": pre_tokenizers[0]}, "pre_tokenizer", _METASPACE, problems)
    problems += post_processor_problems(parts.get("post_processor"), _TEMPLATES, "")
    charsmap = _charsmap(parts.get("normalizer"), problems)
    normalizers = _sequence(parts.get("normalizer"), "normalizers")
    if keeps_space and not any(_matches(part, _SPACES[0]) for part in normalizers):
        log_info("tokenizer.json makes white space at the end of a text a token; here it is dropped")
    entries = model.get("vocab")
    if not isinstance(entries, list) or not all(
        isinstance(entry, list)
        and len(entry) == 2
        and isinstance(entry[0], str)
        and type(entry[1]) in (int, float)
        and abs(entry[1]) < 3e38
        for entry in entries
    ):
        problems.append("model.vocab must be a list of subwords with their scores; received others")
        return TokenizerJson([])
    tokens = [text for text, _ in entries]
    if (*tokens[:4], tokens[-1] if tokens else "") != ROBERTA_SPECIAL_TOKENS:
        problems.append(
            f"model.vocab must begin with {BOS} {PAD} {EOS} {UNK} and end with {MASK}; received "
            f"{' '.join(tokens[:4])} and {tokens[-1] if tokens else 'nothing'}"
        )
        return TokenizerJson([])
    problems += subword_problems(tokens[4:-1])
    scores = [(text, float(np.float32(score))) for text, score in entries[4:-1]]
    return TokenizerJson(tokens, scores=scores, charsmap=charsmap, keeps_space=keeps_space)


def byte_bpe_parts(vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns the parts of a byte-level BPE tokenizer.json that depend on the kind."""
    ids = {token: position for position, token in enumerate(vocabulary.base_tokens())}
    byte_level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    prefixed = {**byte_level, "add_prefix_space": vocabulary.add_prefix_space}
    return {
        "normalizer": None,
        "pre_tokenizer": prefixed,
        # Not RobertaProcessing: Hugging Face's library for JavaScript gives it segment 1 for second texts.
        "post_processor": {
            "type": "Sequence",
            "processors": [prefixed, template_processing(_TEMPLATES, _SEGMENTS, ids)],
        },
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": ids,
            "merges": [list(merge) for merge in vocabulary.byte_bpe.merges],
        },
    }


def unigram_parts(vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns the parts of a unigram tokenizer.json that depend on the kind.

    With added tokens, transformers' own conversion from a sentencepiece model would treat the spaces before them in
    another way.
    """
    model = read_model(vocabulary.path, vocabulary.held_content(vocabulary.path))
    tokens = fairseq_tokens(model)
    ids = {token: position for position, token in enumerate(tokens)}
    scores = [0.0] * 4 + [score for _, score in fairseq_scores(model)] + [0.0]
    charsmap = base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    normalizers: list[dict[str, Any]] = [{"type": "Precompiled", "precompiled_charsmap": charsmap}] * bool(charsmap)
    if vocabulary.keeps_space:
        normalizers += [
            {"type": "Strip", "strip_left": False, "strip_right": True},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"},
        ]
        pre_tokenizer: dict[str, Any] = metaspace
    else:
        pre_tokenizer = {"type": "Sequence", "pretokenizers": [_SPACE_SPLIT, metaspace]}
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers} if normalizers else None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": template_processing(_TEMPLATES, _SEGMENTS, ids),
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": 3,
            "vocab": [list(pair) for pair in zip(tokens, scores, strict=True)],
            "byte_fallback": False,
        },
    }


def _charsmap(normalizer: Any, problems: list[str]) -> bytes:
    """A normalizer's compiled map: Precompiled, alone or before removal of spaces."""
    parts = _sequence(normalizer, "normalizers")
    charsmap = b""
    for index, part in enumerate(parts):
        if index == 0 and _matches(part, {"type": ("Precompiled",)}):
            try:
                charsmap = base64.b64decode(part.get("precompiled_charsmap") or "", validate=True)
            except (binascii.Error, TypeError, ValueError):
                problems.append("normalizer.precompiled_charsmap must be Base64; received other characters")
        elif not any(_matches(part, accepted) for accepted in _SPACES):
            received = part.get("type") if isinstance(part, dict) else part
            problems.append(
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
    parts: Mapping[str, Any], name: str, accepted: Mapping[str, tuple[object, ...]], problems: list[str]
) -> Mapping[str, Any]:
    part = parts.get(name)
    if not isinstance(part, dict) or part.get("type") not in accepted["type"]:
        received = part.get("type") if isinstance(part, dict) else part
        problems.append(f"{name} must be of type {accepted['type'][0]}; received {received!r:.60}")
        return {}
    problems += [
        f"{name}.{key} must be {values[0]!r}; received {part.get(key)!r:.60}"
        for key, values in accepted.items()
        if values and part.get(key) not in values
    ]
    problems += unknown_keys(part, accepted, name)
    return part
