"""TinyBERT's data augmentation: copies of an example with some words replaced.

Source: Jiao et al. 2020, https://arxiv.org/abs/1909.10351, section 3.2 and Algorithm 1. For the candidates see
`pocketbert.augmentation.word_candidates`. Departures from Algorithm 1:

- an unreplaced word stays; the printed algorithm leaves `[MASK]` in its place;
- candidates come from the original sentence, so they are the same for all copies; the printed algorithm passes earlier
  replacements to the language model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from pocketbert.errors import raise_if_any

WordChoice = Literal["all", "content"]
PairSides = Literal["in-turn", "together"]
MaskedInput = Literal["alone", "with-original"]
Preset = Literal["paper", "authors-code"]

# N by GLUE task in the authors' code.
_AUTHORS_COPIES = {
    "cola": 30,
    "mrpc": 30,
    "rte": 30,
    "stsb": 30,
    "sst2": 20,
    "qnli": 20,
    "mnli": 10,
    "qqp": 10,
}
_AUTHORS_OTHER_COPIES = 30


@dataclass(frozen=True, kw_only=True)
class AugmentationOptions:
    """Augmentation options. The defaults are the paper's; see `preset_options` for the authors' code.

    Attributes:
      probability: probability p_t of replacing a word.
      copies: number N_a of copies per example; some may be equal to each other or to the original.
      num_candidates: number K of candidates per word, all with the same probability.
      words: words that may be replaced. `all`: all words with a letter or digit, as in the paper. `content`: words with
        the letters a to z only, except English function words, as in the authors' code.
      pair_sides: sides of a pair to augment. `in-turn`: --copies rows with a changed first side, and as many with a
        changed second side. `together`: --copies rows with both sides changed.
      keep_original: write each example before its copies.
      unique: skip copies equal to the original or an earlier copy.
      masked_input: input for the masked-LM model. `alone`: the masked sentence (paper). `with-original`: a pair with
        the original sentence (authors' code).
      fill_candidates: choose the K most probable words (paper), instead of the words among the K most probable tokens
        (authors' code).
      seed: seed for all random draws.
    """

    GROUP: ClassVar = "Replacement"
    COMMON: ClassVar = ("copies", "probability")

    probability: float = 0.4
    copies: int = 20
    num_candidates: int = 15
    words: WordChoice = "all"
    pair_sides: PairSides = "in-turn"
    keep_original: bool = True
    unique: bool = False
    masked_input: MaskedInput = "alone"
    fill_candidates: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        problems = []
        if not 0 <= self.probability <= 1:
            problems.append(f"probability must be in [0, 1]; received {self.probability}")
        for name, least in (("copies", 1), ("num_candidates", 1), ("seed", 0)):
            value = getattr(self, name)
            if value < least:
                problems.append(f"{name} must be at least {least}; received {value}")
        for name, choices in (("words", WordChoice), ("pair_sides", PairSides), ("masked_input", MaskedInput)):
            accepted = get_args(choices)
            if getattr(self, name) not in accepted:
                problems.append(f"{name} must be one of {', '.join(accepted)}; received {getattr(self, name)!r}")
        raise_if_any(problems, "augmentation")


def preset_options(preset: Preset, task: str | None = None) -> AugmentationOptions:
    """Returns a preset's options; raises `UserError` if it is unknown.

    Args:
      preset: `paper`, or `authors-code` for huawei-noah's `TinyBERT/data_augmentation.py`.
      task: a GLUE task, which determines the number of copies in the authors' code (30 for other tasks).
    """
    if preset not in get_args(Preset):
        raise_if_any([f"the preset must be one of {', '.join(get_args(Preset))}; received {preset!r}"], "augmentation")
    paper = AugmentationOptions()
    if preset == "paper":
        return paper
    return dataclasses.replace(
        paper,
        copies=_AUTHORS_COPIES.get(task or "", _AUTHORS_OTHER_COPIES),
        words="content",
        unique=True,
        masked_input="with-original",
        fill_candidates=False,
    )


@dataclass(frozen=True)
class Slot:
    """A replaceable word.

    Attributes:
      start: offset of its first code point.
      end: offset after its last code point.
      candidates: at least one replacement.
    """

    start: int
    end: int
    candidates: tuple[str, ...]


@dataclass(frozen=True)
class Sentence:
    """A text and its replaceable words, in order, without overlap."""

    text: str
    slots: tuple[Slot, ...]


def augmented_text(sentence: Sentence, probability: float, generator: np.random.Generator) -> str:
    """Replaces words in one copy: lines 3 to 15 of Algorithm 1. Draws two numbers for each slot.

    The test is p < p_t, so that 0 replaces nothing; the paper has p ≤ p_t, a difference of 2⁻⁵³.
    """
    draws, choices = generator.random([2, len(sentence.slots)])
    parts = []
    behind = 0
    for slot, draw, choice in zip(sentence.slots, draws, choices, strict=True):
        if draw < probability:
            parts += [sentence.text[behind : slot.start], slot.candidates[int(choice * len(slot.candidates))]]
            behind = slot.end
    return "".join([*parts, sentence.text[behind:]])


def augmented_rows(
    sides: Sequence[Sentence], example: int, options: AugmentationOptions
) -> list[tuple[int, tuple[str, ...]]]:
    """Makes one example's rows: (copy number, texts of the sides); the original has number 0.

    A copy depends only on seed, example number, copy number and side, not on example order or machines. For pairs, the
    paper does not define the sides. The authors' code intends `in-turn`, but keeps the last augmented first side with
    the augmented second sides.
    """
    original = tuple(side.text for side in sides)
    rows = [(0, original)] if options.keep_original else []
    seen = {original}
    number = 0
    together = options.pair_sides == "together"
    for changed in [range(len(sides))] if together else [range(side, side + 1) for side in range(len(sides))]:
        for _ in range(options.copies):
            number += 1
            texts = list(original)
            for side in changed:
                generator = np.random.default_rng([options.seed, example, number, side])
                texts[side] = augmented_text(sides[side], options.probability, generator)
            row = tuple(texts)
            if options.unique and row in seen:
                continue
            seen.add(row)
            rows.append((number, row))
    return rows
