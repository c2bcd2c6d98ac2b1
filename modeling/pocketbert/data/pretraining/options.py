"""Options for pretraining examples and masking; nothing here imports TensorFlow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from pocketbert.errors import raise_if_any


@dataclass(frozen=True, kw_only=True)
class MaskingOptions:
    """Masking rates. The defaults are BERT's for examples with 128 tokens.

    Attributes:
      rate: share of tokens to select; 0 for none.
      max_predictions: maximum number of selected tokens per example.
      mask_token_rate: share of selected tokens replaced with [MASK].
      random_token_rate: share of selected tokens replaced with a random token; the rest stays.
      whole_words: select whole words instead of tokens.
    """

    rate: float = 0.15
    max_predictions: int = 20
    mask_token_rate: float = 0.8
    random_token_rate: float = 0.1
    whole_words: bool = False

    def __post_init__(self) -> None:
        problems = []
        if not 0 <= self.rate <= 1:
            problems.append(f"rate must be in [0, 1]; received {self.rate}")
        if self.max_predictions < 1:
            problems.append(f"max_predictions must be at least 1; received {self.max_predictions}")
        rates = (self.mask_token_rate, self.random_token_rate)
        # 0.9 + 0.1 is not exactly 1.
        if min(rates) < 0 or sum(rates) > 1 + 1e-9:
            problems.append(
                "mask_token_rate and random_token_rate must not be negative, and add up to at most 1; received "
                f"{rates[0]} and {rates[1]}"
            )
        raise_if_any(problems, "masking options")

    @classmethod
    def of_length(cls, max_length: int, *, whole_words: bool = False) -> MaskingOptions:
        """Returns BERT's options for up to `max_length` tokens: 20 predictions at 128 tokens, 77 at 512."""
        return cls(max_predictions=math.ceil(cls.rate * max_length), whole_words=whole_words)


@dataclass(frozen=True, kw_only=True)
class PretrainingOptions:
    """Options for pretraining examples.

    Attributes:
      max_length: maximum sequence length, including special tokens.
      duplicates: number of passes over the text, each with new pairs and static masks.
      masking: static masks; None for dynamic masking.
      short_sequence_probability: share of documents split into shorter examples with a random length.
      seed: seed for all random draws.
      dev_every: one in this many documents of a shard goes to the dev split; 0 for none.
    """

    GROUP: ClassVar = "Examples"
    COMMON: ClassVar = ("max_length", "duplicates", "dev_every")

    max_length: int = 128
    duplicates: int = 1
    masking: MaskingOptions | None = None
    short_sequence_probability: float = 0.1
    seed: int = 0
    dev_every: int = 0

    def __post_init__(self) -> None:
        problems = []
        if self.max_length < 5:
            problems.append(
                f"max_length must be at least 5 (3 special tokens and two others); received {self.max_length}"
            )
        if self.duplicates < 1:
            problems.append(f"duplicates must be at least 1; received {self.duplicates}")
        if not 0 <= self.short_sequence_probability <= 1:
            problems.append(f"short_sequence_probability must be in [0, 1]; received {self.short_sequence_probability}")
        if not 0 <= self.seed < 2**31:
            problems.append(f"seed must be in [0, 2^31); received {self.seed}")
        if self.dev_every < 0 or self.dev_every == 1:
            problems.append(f"dev_every must be 0 or at least 2; received {self.dev_every}")
        raise_if_any(problems, "pretraining data")
