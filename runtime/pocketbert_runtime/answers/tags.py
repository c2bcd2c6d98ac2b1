"""Tags of words that mark spans: IOB1, IOB2 and BIOES.

A tag is `O` or a prefix and a type, such as `B-LOC`. IOB1 (Ramshaw and Marcus 1995) has I- for each word of a span, and
B- only for the first word of a span that follows another one of its type. IOB2 has B- for the first word of each span.
BIOES also has E- for the last word and S- for a span of one word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

OUTSIDE = "O"
_PREFIXES = "BIES"


class WordSpan(NamedTuple):
    """A span of words.

    Attributes:
      first: index of the first word.
      last: index of the last word.
      label: type of the span.
    """

    first: int
    last: int
    label: str


def is_tag(text: str) -> bool:
    """Whether a text is `O`, or a prefix and a type."""
    return text == OUTSIDE or (text[:1] in _PREFIXES and text[1:2] == "-" and len(text) > 2)


def type_of(tag: str) -> str:
    """The type of a tag; empty for `O`."""
    return "" if tag == OUTSIDE else tag[2:]


def prefixed(label: str) -> str:
    """A model's label as a tag; labels without a prefix, such as `LOC`, are read as `I-LOC`."""
    return label if is_tag(label) else f"I-{label}"


def spans_of(tags: Sequence[str]) -> list[WordSpan]:
    """The spans of a sentence's tags, by the rules of conlleval.

    They decode IOB1, IOB2 and BIOES, and give every other sequence a meaning: a type that changes starts a span.
    """
    spans, before, first = [], OUTSIDE, 0
    for position, tag in enumerate([*tags, OUTSIDE]):
        if before[0] in "BI" and tag[0] in "IE" and type_of(before) == type_of(tag):
            # The span continues.
            before = tag
            continue
        if before != OUTSIDE:
            spans.append(WordSpan(first, position - 1, type_of(before)))
        before, first = tag, position
    return spans


def iob2(spans: Sequence[WordSpan], count: int) -> list[str]:
    """The IOB2 tags of `count` words with these spans, which do not overlap."""
    tags = [OUTSIDE] * count
    for first, last, label in spans:
        tags[first : last + 1] = [f"B-{label}", *[f"I-{label}"] * (last - first)]
    return tags
