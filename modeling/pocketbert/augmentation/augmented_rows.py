"""TinyBERT's data augmentation: copies of an example with some words replaced.

Source: Jiao et al. 2020, https://arxiv.org/abs/1909.10351, section 3.2 and Algorithm 1. This module is the algorithm
alone; where the candidates come from is `pocketbert.augmentation.word_candidates`.

Departures from Algorithm 1 as printed, which leaves a word that was masked but not replaced as `[MASK]`, and asks the
language model with the replacements made so far:

- a word that is not replaced stays what it was;
- candidates come from the original sentence, so they are the same for all copies and are found once.
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

# The authors' N by GLUE task, from their code.
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
    """How examples are augmented. The defaults are the paper's; `authors_code` gives the authors' code's.

    Attributes:
      probability: p_t, how likely each word is replaced. (The test is p < p_t, so that 0 replaces nothing; the paper's
        p ≤ p_t differs by 2⁻⁵³.)
      copies: N_a, augmented samples an example. Drawn, not accepted: copies may be equal, also to the original.
      num_candidates: K (the authors' M), words to choose from, each equally likely.
      words: which words may be replaced. `all`: every word with a letter or digit, as Algorithm 1 goes over all words;
        punctuation marks stay, though the language model may put one in a word's place. `content`: as the authors'
        code, only words of the letters a to z (after lower-casing) that are not English function words (`STOP_WORDS`);
        the paper does not speak of this.
      pair_sides: what is augmented in a pair; the paper says nothing. `in-turn`: `copies` rows with the first side
        augmented and as many with the second, the other side being the original (the authors' code means this, but
        keeps the last augmented first side beside the augmented second ones). `together`: `copies` rows with both
        sides augmented.
      keep_original: whether each example itself comes first, before its copies.
      unique: leave out copies that are equal to the original or to an earlier copy.
      masked_input: what the language model reads. `alone`: the sentence with one word masked (paper).
        `with-original`: the pair of it and the whole original sentence, which shows the model the masked token (code).
      fill_candidates: `[MASK]`'s K most probable *words* (paper); False: those of the K most probable *tokens* that
        are words (code), which may be fewer. Tokens that continue a word (`##ing`) and special tokens are no words.
      seed: seed of all random draws.
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
            problems.append(f"probability must lie in [0, 1]; received {self.probability}")
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
    """The options of a named set.

    Args:
      preset: `paper`, or `authors-code` for what `TinyBERT/data_augmentation.py` of huawei-noah does.
      task: a GLUE task, whose N is taken; the authors' code takes 30 for one that it does not know.
    Raises:
      UserError: no such preset.
    """
    if preset not in get_args(Preset):
        raise_if_any([f"the presets are {', '.join(get_args(Preset))}; received {preset!r}"], "augmentation")
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
    """A word that can be replaced.

    Attributes:
      start: offset of its first code point in the text.
      end: offset behind its last code point.
      candidates: what it may be replaced by, at least one word.
    """

    start: int
    end: int
    candidates: tuple[str, ...]


@dataclass(frozen=True)
class Sentence:
    """A text and its words that can be replaced, in their order, not overlapping."""

    text: str
    slots: tuple[Slot, ...]


def augmented_text(sentence: Sentence, probability: float, generator: np.random.Generator) -> str:
    """One copy of a sentence: lines 3 to 15 of Algorithm 1.

    Args:
      sentence: the original.
      probability: p_t.
      generator: two numbers are drawn for each slot, whether or not it is replaced.
    Returns:
      The text with the replaced words in their places; everything else is as it was, to the character.
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
    """All rows that one example becomes.

    A copy is a pure function of the seed, the example's number, the copy's number and the side: neither the order of
    examples nor the way they are split over machines matters.

    Args:
      sides: one sentence, or the two of a pair; always the original's.
      example: the example's number in its data set.
      options: how to augment.
    Returns:
      (number of the copy, texts of the sides); the original has number 0, copies count from 1.
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
