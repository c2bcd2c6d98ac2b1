"""Word tags that mark spans: IOB1, IOB2 and BIOES.

A tag is `O` or a prefix and a type, such as `B-LOC`. IOB1 (Ramshaw and Marcus 1995) has I- for each word in a span; B-
only starts a span right after another one with the same type. IOB2 has B- for each span's first word. BIOES also has E-
for the last word and S- for a single word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

OUTSIDE = "O"
_PREFIXES = "BIES"


class WordSpan(NamedTuple):
    """A word span.

    Attributes:
      first: index of the first word.
      last: index of the last word.
      label: span type.
    """

    first: int
    last: int
    label: str


def is_tag(text: str) -> bool:
    """Returns whether a text is `O`, or a prefix and a type."""
    return text == OUTSIDE or (text[:1] in _PREFIXES and text[1:2] == "-" and len(text) > 2)


def type_of(tag: str) -> str:
    """Returns a tag's type; empty for `O`."""
    return "" if tag == OUTSIDE else tag[2:]


def prefixed(label: str) -> str:
    """Returns a model's label as a tag, with I- if it has no prefix, such as `LOC`."""
    return label if is_tag(label) else f"I-{label}"


def spans_of(tags: Sequence[str]) -> list[WordSpan]:
    """Decodes any tags to spans by conlleval's rules: a changed type starts a span."""
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
    """Returns IOB2 tags for `count` words with these spans, which do not overlap."""
    tags = [OUTSIDE] * count
    for first, last, label in spans:
        tags[first : last + 1] = [f"B-{label}", *[f"I-{label}"] * (last - first)]
    return tags
