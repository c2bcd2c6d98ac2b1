"""Model inputs: their names, and the special tokens in them."""

from __future__ import annotations

from dataclasses import dataclass

# Inputs of every network, int32 [batch, length]; the mask is 1 for tokens.
INPUT_NAMES = ("input_word_ids", "input_mask", "input_type_ids")


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The special tokens around one or two texts.

    BERT: `[CLS] A [SEP]` and `[CLS] A [SEP] B [SEP]` with segments 0 and 1. RoBERTa and XLM-R: `<s> A </s>` and
    `<s> A </s></s> B </s>` with segment 0 everywhere.

    Attributes:
      first: id of the first token.
      last: id of the last token and of the separators.
      pad: id of padding.
      separators: number of tokens between two texts.
      second_segment: segment of the second text and its last token.
    """

    first: int
    last: int
    pad: int
    separators: int = 1
    second_segment: int = 1

    def num_special_tokens(self, *, pairs: bool) -> int:
        """Number of special tokens around one text, or two."""
        return 2 + self.separators if pairs else 2

    def length_problems(self, *, pairs: bool, max_length: int, pad_to: int | None) -> list[str]:
        """Problems of the lengths in a tokenizer's call."""
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
