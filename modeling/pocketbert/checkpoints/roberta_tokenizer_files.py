"""Reads and writes RoBERTa's tokenizer.json. Components that our tokenizers lack are errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pocketbert.checkpoints.tokenizer_files import (
    post_processor_problems,
    template_processing,
    token_pair_problems,
)
from pocketbert.checkpoints.tokenizer_keys import unknown_keys
from pocketbert_runtime.tokenizers.byte_bpe_files import byte_bpe_problems, ordered_tokens
from pocketbert_runtime.tokenizers.byte_layouts import BYTE_LAYOUTS, MODERNBERT, ByteLayout
from pocketbert_runtime.tokenizers.layouts import XLM_R
from pocketbert_runtime.tokenizers.special_tokens import BOS, EOS, UNK
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

# A null stands for a missing key. Keys without values change only offsets, or hold the vocabulary.
_BYTE_LEVEL = {"type": ("ByteLevel",), "add_prefix_space": (False, True), "use_regex": (True, None), "trim_offsets": ()}
_BPE = {
    "type": ("BPE",),
    "dropout": (None,),
    "unk_token": (None, UNK, "[UNK]"),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "fuse_unk": (False, None),
    "byte_fallback": (False, None),
    "ignore_merges": (False, None),
    "vocab": (),
    "merges": (),
}
_ROBERTA_PROCESSING = ("type", "sep", "cls", "trim_offsets", "add_prefix_space")
_COMPOSITION = {"type": "NFC"}


@dataclass(frozen=True)
class TokenizerJson:
    """A tokenizer.json's content.

    Attributes:
      tokens: all tokens but added ones, by id.
      merges: merges for byte-level BPE, else empty.
      scores: subwords with float32 scores for unigram, without the layout's first ones, else empty.
      charsmap: compiled map in unigram's normalizer; empty for none.
      user_defined: subwords in `scores` that texts always have as tokens of their own.
      keeps_space: see `Vocabulary`.
      add_prefix_space: see `Vocabulary`.
    """

    tokens: Sequence[str]
    merges: Sequence[tuple[str, str]] = ()
    scores: Sequence[tuple[str, float]] = ()
    charsmap: bytes = b""
    user_defined: tuple[str, ...] = ()
    keeps_space: bool = False
    add_prefix_space: bool = False


def write_config(vocabulary: Vocabulary, max_length: int) -> dict[str, Any]:
    """Returns a tokenizer_config.json's content; transformers makes the same tokenizer with it."""
    if vocabulary.rules.special_behind:
        names = {"tokenizer_class": "PreTrainedTokenizerFast", **vocabulary.rules.special_names}
        options: dict[str, Any] = {"model_input_names": ["input_ids", "attention_mask"], **names}
    elif vocabulary.rules.tokens_are_bytes:
        prefix = vocabulary.add_prefix_space
        options = {"add_prefix_space": prefix, "tokenizer_class": "RobertaTokenizer", "trim_offsets": True}
    else:
        options = {"tokenizer_class": f"{vocabulary.rules.classes[0]}Tokenizer"}
    return {"model_max_length": max_length, **options}


def byte_layout_of(parts: Mapping[str, Any] | None) -> str:
    """Returns the layout of byte-level BPE: ModernBERT's if its tokenizer.json has BERT's special tokens."""
    added = (parts or {}).get("added_tokens")
    tokens = added if isinstance(added, list) else []
    contents = [token.get("content") for token in tokens if isinstance(token, dict)]
    return MODERNBERT if BYTE_LAYOUTS[MODERNBERT].special_names["cls_token"] in contents else XLM_R


def parse_byte_bpe(parts: Mapping[str, Any], layout: ByteLayout, problems: list[str]) -> TokenizerJson:
    """Reads a tokenizer.json's parsed content."""
    model = component(parts, "model", _BPE, problems)
    has_prefix = component(parts, "pre_tokenizer", _BYTE_LEVEL, problems).get("add_prefix_space") is True
    normalizer = _COMPOSITION if layout.composes else None
    if parts.get("normalizer") != normalizer:
        problems.append(f"normalizer must be {normalizer or 'null'}; received {parts.get('normalizer')!r:.60}")
    post = parts.get("post_processor")
    processors = sequence(post, "processors")
    if len(processors) == 2:
        # Offsets without spaces, then the template.
        component({"post_processor": processors[0]}, "post_processor", _BYTE_LEVEL, problems)
        post = processors[1]
    if isinstance(post, dict) and post.get("type") == "RobertaProcessing" and not layout.only_json:
        problems += unknown_keys(post, _ROBERTA_PROCESSING, "post_processor")
        problems += token_pair_problems(post, {"sep": EOS, "cls": BOS}, "RoBERTa")
    else:
        problems += post_processor_problems(post, layout.templates, "" if layout.only_json else "RobertaProcessing")
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
        problems += byte_bpe_problems(tokens, pairs, () if layout.only_json else layout.special_tokens)
    return TokenizerJson(tokens, merges=pairs, add_prefix_space=has_prefix)


def byte_bpe_parts(vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns the parts of a byte-level BPE tokenizer.json that depend on the kind."""
    ids = {token: position for position, token in enumerate(vocabulary.base_tokens())}
    layout = BYTE_LAYOUTS[vocabulary.layout]
    special = ids | {token.content: token.id for token in vocabulary.added}
    segments = {name: [0] * len(template) for name, template in layout.templates.items()}
    byte_level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    prefixed = {**byte_level, "add_prefix_space": vocabulary.add_prefix_space}
    return {
        "normalizer": _COMPOSITION if layout.composes else None,
        "pre_tokenizer": prefixed,
        # Not RobertaProcessing: Hugging Face's library for JavaScript gives it segment 1 for second texts.
        "post_processor": {
            "type": "Sequence",
            "processors": [prefixed, template_processing(layout.templates, segments, special)],
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


def sequence(part: Any, key: str) -> list[Any]:
    """A component's parts, which its list `key` has if it is a sequence."""
    if isinstance(part, dict) and part.get("type") == "Sequence" and isinstance(part.get(key), list):
        parts: list[Any] = part[key]
        return parts
    return [] if part is None else [part]


def component(
    parts: Mapping[str, Any], name: str, accepted: Mapping[str, tuple[object, ...]], problems: list[str]
) -> Mapping[str, Any]:
    """A component with supported values; empty for another type.

    Args:
      parts: the components by name.
      name: the component's.
      accepted: key → supported values; no values for any.
      problems: list for problems with the component.
    """
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
