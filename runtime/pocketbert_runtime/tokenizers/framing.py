"""Makes model inputs from token ids, for all tokenizers: special tokens, truncation and padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pocketbert_runtime.tokenizers.special_tokens import BOS, EOS, PAD
from pocketbert_runtime.tokenizers.truncation import ONLY_SECOND, TAIL, head_tokens

# Inputs of every network, int32 [batch, length]; the mask is 1 for tokens.
INPUT_NAMES = ("input_word_ids", "input_mask", "input_type_ids")


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The special tokens around one or two texts.

    BERT: `[CLS] A [SEP]` and `[CLS] A [SEP] B [SEP]` with segments 0 and 1. RoBERTa and XLM-R: `<s> A </s>` and
    `<s> A </s></s> B </s>` with segment 0 everywhere.

    Attributes:
      first: the first token's id.
      last: id for the last token and the separators.
      pad: padding id.
      separators: number of tokens between two texts.
      second_segment: segment for the second text and its last token.
    """

    first: int
    last: int
    pad: int
    separators: int = 1
    second_segment: int = 1

    def num_special_tokens(self, *, pairs: bool) -> int:
        """Counts special tokens around one text, or two."""
        return 2 + self.separators if pairs else 2

    def length_problems(self, *, pairs: bool, max_length: int, pad_to: int | None) -> list[str]:
        """Lists problems with the lengths in a tokenizer's call."""
        least, problems = self.num_special_tokens(pairs=pairs), []
        if max_length < least:
            problems.append(
                f"max_length must have room for {least} special tokens; received {max_length}; pass at least {least}"
            )
        if pad_to is not None and pad_to < max_length:
            problems.append(
                f"pad_to must be at least max_length; received pad_to={pad_to}, max_length={max_length}; "
                "pass max_length too, to truncate texts"
            )
        return problems


def roberta_frame(ids: Mapping[str, int]) -> Frame:
    """Returns RoBERTa's and XLM-R's frame, from their special tokens' ids."""
    return Frame(first=ids[BOS], last=ids[EOS], pad=ids[PAD], separators=2, second_segment=0)


def pack(
    frame: Frame,
    first: Sequence[Sequence[int]],
    second: Sequence[Sequence[int]] | None,
    *,
    max_length: int,
    pad_to: int | None,
    truncation: str,
) -> dict[str, np.ndarray]:
    """Makes model inputs, int32 `[batch, length]`: `input_word_ids`, `input_mask`, `input_type_ids`.

    Args:
      frame: the special tokens.
      first: the first texts' ids.
      second: ids of as many second texts, or None.
      max_length: maximum sequence length, including special tokens; longer inputs are truncated.
      pad_to: length of the result, at least `max_length`; None for the longest row's length.
      truncation: see `pocketbert_runtime.tokenizers.truncation`.
    """
    room = max_length - frame.num_special_tokens(pairs=second is not None)
    rows, segments = [], []
    for number, ids in enumerate(first):
        if second is None:
            row = [frame.first, *_cut(ids, min(len(ids), room), truncation), frame.last]
            start = len(row)
        else:
            others = second[number]
            lengths = _lengths(len(ids), len(others), room, truncation)
            # The ends of a pair are cut, except for "tail".
            cut = TAIL if truncation == TAIL else ""
            row = [frame.first, *_cut(ids, lengths[0], cut), *[frame.last] * frame.separators]
            start = len(row)
            row += [*_cut(others, lengths[1], cut), frame.last]
        rows.append(row)
        segments.append([0] * start + [frame.second_segment] * (len(row) - start))
    width = pad_to or max(map(len, rows), default=0)
    shape = len(rows), width
    inputs = {name: np.zeros(shape, np.int32) for name in INPUT_NAMES}
    inputs["input_word_ids"].fill(frame.pad)
    for number, (row, types) in enumerate(zip(rows, segments, strict=True)):
        inputs["input_word_ids"][number, : len(row)] = row
        inputs["input_mask"][number, : len(row)] = 1
        inputs["input_type_ids"][number, : len(row)] = types
    return inputs


def _cut(ids: Sequence[int], count: int, truncation: str) -> Sequence[int]:
    """Keeps `count` ids: the last for "tail", the first N and the last for "head-tail:N", else the first."""
    head = 0 if truncation == TAIL else head_tokens(truncation)
    if head is None or head >= count or count == len(ids):
        return ids[:count]
    return [*ids[:head], *ids[len(ids) - count + head :]]


def _lengths(first: int, second: int, room: int, truncation: str) -> tuple[int, int]:
    """Returns the numbers of tokens kept for two texts.

    Without "only-second", the longer one is shortened first, as in transformers' `longest_first`: if both are too long,
    each keeps half, and the longer one the odd token (the second one at equal lengths).
    """
    if truncation == ONLY_SECOND:
        first = min(first, room)
        return first, min(second, room - first)
    if first + second <= room:
        return first, second
    shorter = min(first, second, room // 2)
    return (room - shorter, shorter) if first > second else (shorter, room - shorter)
