"""Reads and writes tokenizer.json for unigram, in every layout. Components that our tokenizers lack are errors."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pocketbert.checkpoints.roberta_tokenizer_files import TokenizerJson, component, sequence
from pocketbert.checkpoints.tokenizer_files import post_processor_problems, template_processing
from pocketbert.progress import log_info
from pocketbert_runtime.tokenizers.albert_text import is_split_again
from pocketbert_runtime.tokenizers.layouts import LAYOUTS, NORMAL, UnigramLayout
from pocketbert_runtime.tokenizers.sentencepiece_model import (
    layout_tokens,
    make_model,
    read_model,
    scored_subwords,
    subword_problems,
    user_defined,
)
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

# A null stands for a missing key. Keys without values hold the vocabulary.
_UNIGRAM: dict[str, tuple[object, ...]] = {"type": ("Unigram",), "byte_fallback": (False, None), "vocab": ()}
_METASPACE: dict[str, tuple[object, ...]] = {
    "type": ("Metaspace",),
    "replacement": ("▁",),
    "add_prefix_space": (True, None),
    "prepend_scheme": ("always", None),
    "split": (True, None),
    "str_rep": ("▁", None),
}
# sentencepiece's removal of repeated spaces and of those at the ends, as transformers writes it.
_STRIP: dict[str, tuple[object, ...]] = {"type": ("Strip",), "strip_left": (False, True), "strip_right": (True,)}
_REPEATED: dict[str, tuple[object, ...]] = {
    "type": ("Replace",),
    "pattern": ({"Regex": " {2,}"},),
    "content": (" ", "▁"),
}
_SPACES = (_STRIP, _REPEATED)
# As sentencepiece, whose normalizer has made spaces of other white space. WhitespaceSplit also splits at U+0085.
_SPACE_SPLIT = {"type": "Split", "pattern": {"Regex": " "}, "behavior": "Removed", "invert": False}
# `albert_text`; sentencepiece's normalizer does not know this white space of Python's.
_WHITE: dict[str, Any] = {"type": "Replace", "pattern": {"Regex": "[\x1c-\x1f\x85\u2028\u2029]"}, "content": " "}
_CLEANING: list[dict[str, Any]] = [
    {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
    {"type": "Replace", "pattern": {"String": "''"}, "content": '"'},
    {"type": "NFKD"},
    {"type": "StripAccents"},
    {"type": "Lowercase"},
]
# What transformers takes off the score of a subword that `albert_text` splits again.
_SPLIT_AGAIN = 100.0
_NOT_USED = {"<unk>NOTUSED": -100.0}


def parse_unigram(parts: Mapping[str, Any], layout: UnigramLayout, problems: list[str]) -> TokenizerJson:
    """Reads a tokenizer.json's parsed content."""
    unknown = layout.leading.index(layout.unknown)
    model = component(parts, "model", {**_UNIGRAM, "unk_id": (unknown,)}, problems)
    pre_tokenizers = sequence(parts.get("pre_tokenizer"), "pretokenizers")
    keeps_space = len(pre_tokenizers) == 1
    splits_white = pre_tokenizers[:1] == [{"type": "WhitespaceSplit"}]
    if len(pre_tokenizers) == 2 and (splits_white or pre_tokenizers[0] == _SPACE_SPLIT):
        pre_tokenizers = pre_tokenizers[1:]
    if len(pre_tokenizers) != 1:
        problems.append(f"pre_tokenizer must be Metaspace; received {parts.get('pre_tokenizer')!r:.60}")
    else:
        component({"pre_tokenizer": pre_tokenizers[0]}, "pre_tokenizer", _METASPACE, problems)
    templates, segments = _templates(layout)
    problems += post_processor_problems(
        parts.get("post_processor"), templates, "", segments if layout.second_segment else None
    )
    normalizers = _without_cleaning(sequence(parts.get("normalizer"), "normalizers"), layout, problems)
    charsmap = _charsmap(normalizers, problems)
    if splits_white and not _makes_spaces(charsmap):
        log_info(
            "tokenizer.json splits texts at tabs, line ends and other white space, which its normalizer does not make "
            "spaces; here only a space splits, so replace them in your texts"
        )
    kept = {"at the end of a text": _STRIP, "repeated or at the start of a text": _REPEATED}
    kept = {where: part for where, part in kept.items() if not any(_matches(other, part) for other in normalizers)}
    if keeps_space and kept:
        log_info(f"tokenizer.json makes white space {' and '.join(kept)} a token; here it is dropped")
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
    leading, last = layout.leading, _last(layout)
    if (*tokens[: len(leading)], *tokens[len(tokens) - len(last) :]) != (*leading, *last):
        received = f"{' '.join(tokens[: len(leading)])} and {tokens[-1] if tokens else 'nothing'}"
        rule = f" and end with {' '.join(last)}" if last else ""
        problems.append(f"model.vocab must begin with {' '.join(leading)}{rule}; received {received}")
        return TokenizerJson([])
    rest = entries[len(leading) : len(entries) - len(last)]
    problems += subword_problems([text for text, _ in rest], layout)
    scores = [(text, float(np.float32(score + _taken_off(text, layout)))) for text, score in rest]
    return TokenizerJson(
        [*leading, *(text for text, _ in rest), *layout.after],
        scores=scores,
        charsmap=charsmap,
        keeps_space=keeps_space,
        user_defined=_user_defined(parts, tokens, layout),
    )


def unigram_parts(vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns the parts of a unigram tokenizer.json that depend on the kind.

    With added tokens, transformers' own conversion from a sentencepiece model would treat the spaces before them in
    another way.
    """
    layout = LAYOUTS[vocabulary.layout]
    model = read_model(vocabulary.path, vocabulary.held_content(vocabulary.path), layout)
    ids = {token: position for position, token in enumerate(layout_tokens(model, layout))}
    scores = [(text, score - _taken_off(text, layout)) for text, score in _found_scores(model, layout)]
    vocab = [*((text, _NOT_USED.get(text, 0.0)) for text in layout.leading), *scores]
    vocab += [(text, 0.0) for text in _last(layout)]
    charsmap = base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    normalizers: list[dict[str, Any]] = [_WHITE, *_CLEANING] if layout.cleans_text else []
    normalizers += [{"type": "Precompiled", "precompiled_charsmap": charsmap}] * bool(charsmap)
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
        "post_processor": template_processing(*_templates(layout), ids),
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": layout.leading.index(layout.unknown),
            "vocab": [list(pair) for pair in vocab],
            "byte_fallback": False,
        },
    }


def json_scores(model: Any, layout: UnigramLayout) -> list[list[tuple[str, float]]]:
    """Returns the subwords and scores that a tokenizer.json of the same model may have: transformers', or ours."""
    effective = [(text, float(np.float32(score))) for text, score in _found_scores(model, layout)]
    return [scored_subwords(model, layout), effective]


def _found_scores(model: Any, layout: UnigramLayout) -> list[tuple[str, float]]:
    """The subwords with the scores by which sentencepiece finds them.

    Source: google/sentencepiece `unigram_model.cc`: a user-defined subword wins over all others.
    """
    special = {*user_defined(model)}
    if not special:
        return scored_subwords(model, layout)
    highest = max((subword.score for subword in model.subwords if subword.type == NORMAL), default=0.0)
    return [
        (text, len(text.encode()) * highest - 0.1 if text in special else score)
        for text, score in scored_subwords(model, layout)
    ]


def _taken_off(text: str, layout: UnigramLayout) -> float:
    return _SPLIT_AGAIN if layout.cleans_text and is_split_again(text) else 0.0


def _last(layout: UnigramLayout) -> tuple[str, ...]:
    """The last tokens in `model.vocab`; transformers has a mask token behind the model's own ids outside it."""
    return layout.after if layout.before else ()


def _templates(layout: UnigramLayout) -> tuple[dict[str, list[str]], dict[str, list[int]]]:
    """Items around one text and two, and their segments."""
    first, last = layout.special_names["cls_token"], layout.special_names["sep_token"]
    between, second = [last] * layout.separators, layout.second_segment
    templates = {"single": [first, "A", last], "pair": [first, "A", *between, "B", last]}
    return templates, {"single": [0] * 3, "pair": [0] * (2 + len(between)) + [second] * 2}


def _user_defined(parts: Mapping[str, Any], tokens: Sequence[str], layout: UnigramLayout) -> tuple[str, ...]:
    """The subwords that are also added tokens, as transformers writes user-defined ones."""
    listed = parts.get("added_tokens")
    if not layout.has_user_defined or not isinstance(listed, list):
        return ()
    contents = {str(part.get("content")) for part in listed if isinstance(part, dict) and not part.get("special")}
    return tuple(text for text in tokens[len(layout.leading) :] if text in contents)


def _without_cleaning(normalizers: list[Any], layout: UnigramLayout, problems: list[str]) -> list[Any]:
    """Takes out the components that clean texts; the layout decides whether they must be there."""
    if not layout.cleans_text:
        return normalizers
    rest = normalizers[1:] if normalizers[:1] == [_WHITE] else normalizers
    if rest[: len(_CLEANING)] != _CLEANING:
        types = [part.get("type") if isinstance(part, dict) else part for part in rest[: len(_CLEANING)]]
        names = ", ".join(str(part["type"]) for part in _CLEANING)
        problems.append(
            f"normalizer must begin with {layout.title}'s {names} (quotation marks, no accents, small letters); "
            f"received {', '.join(map(str, types)) or 'none':.60}"
        )
        return []
    return rest[len(_CLEANING) :]


def _charsmap(normalizers: Sequence[Any], problems: list[str]) -> bytes:
    """The compiled map: Precompiled, alone or before removal of spaces; only Strip may be in front of it."""
    charsmap, is_start = b"", True
    for part in normalizers:
        if is_start and _matches(part, {"type": ("Precompiled",)}):
            is_start = False
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
        else:
            is_start &= _matches(part, _STRIP)
    return charsmap


def _makes_spaces(charsmap: bytes) -> bool:
    """Whether sentencepiece's normalizer makes one space of each kind of white space in its own rules."""
    import sentencepiece

    content = make_model([], charsmap).SerializeToString()
    options: dict[str, Any] = {"add_dummy_prefix": False, "escape_whitespaces": False}
    options["remove_extra_whitespaces"] = False
    try:
        core: Any = sentencepiece.SentencePieceNormalizer(model_proto=content, **options)
        return bool(core.normalize("\t\n\r\u00a0\u2003\u3000") == 6 * " ")
    except RuntimeError:
        # A damaged map; the tokenizer's own error says so.
        return True


def _matches(part: Any, accepted: Mapping[str, tuple[object, ...]]) -> bool:
    return isinstance(part, dict) and all(part.get(key) in values for key, values in accepted.items())
