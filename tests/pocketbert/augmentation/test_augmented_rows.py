from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from pocketbert.augmentation.augmented_rows import (
    AugmentationOptions,
    Sentence,
    Slot,
    augmented_rows,
    augmented_text,
    preset_options,
)
from pocketbert.augmentation.stop_words import STOP_WORDS
from pocketbert.errors import UserError

# Two-sided normal quantile of 1e-6: a right implementation misses such a bound once in a million.
SIGMAS = 4.89


def candidates(words: list[str], index: int) -> tuple[str, ...]:
    """A toy BERT and GloVe: depends on the original sentence alone; some words have no candidates."""
    size = (len(words[index]) + index) % 4
    return tuple(f"{words[index]}{index}of{len(words)}{letter}" for letter in "xyz"[:size])


def sentence(text: str) -> Sentence:
    words = text.split(" ")
    slots, start = [], 0
    for index, word in enumerate(words):
        if substitutes := candidates(words, index):
            slots.append(Slot(start, start + len(word), substitutes))
        start += len(word) + 1
    return Sentence(text, tuple(slots))


def algorithm_1(x: list[str], p_t: float, copies: int, key: list[int], side: int, first_copy: int = 1) -> list[str]:
    """Algorithm 1 word by word, with its two stated departures, on the same random numbers.

    Draws are made for words with candidates only: first all p, then all choices.
    """
    augmented = []
    n = 0
    while n < copies:
        x_m = list(x)
        can = [i for i in range(len(x)) if candidates(x, i)]
        numbers = np.random.default_rng([*key, first_copy + n, side]).random(2 * len(can))
        for i in range(len(x)):
            # Departure: from x, the original, where the paper asks about x_m.
            C = candidates(x, i)
            if not C:
                continue
            p = numbers[can.index(i)]
            if p < p_t:
                x_m[i] = C[math.floor(numbers[len(can) + can.index(i)] * len(C))]
            # Departure: else x_m[i] is x[i] again, not [MASK].
        augmented.append(" ".join(x_m))
        n += 1
    return augmented


TEXTS = ["the film was good", "dull", "a plot , an actor and it was not fine at all", "of"]


@pytest.mark.parametrize("probability", [0.0, 0.4, 1.0])
def test_copies_are_those_of_the_algorithm(probability: float) -> None:
    options = AugmentationOptions(probability=probability, copies=7, seed=3)
    for example, text in enumerate(TEXTS):
        rows = augmented_rows([sentence(text)], example, options)
        expected = algorithm_1(text.split(" "), probability, 7, [3, example], side=0)
        assert rows == [(0, (text,)), *((number, (copy,)) for number, copy in enumerate(expected, start=1))]
    assert any(copy != TEXTS[2] for copy in algorithm_1(TEXTS[2].split(" "), 0.4, 7, [3, 2], side=0))


def test_in_turn_keeps_the_other_side() -> None:
    options = AugmentationOptions(probability=0.9, copies=5, seed=1)
    first, second = TEXTS[0], TEXTS[2]
    rows = [texts for _, texts in augmented_rows([sentence(first), sentence(second)], 6, options)]
    firsts = algorithm_1(first.split(" "), 0.9, 5, [1, 6], side=0)
    seconds = algorithm_1(second.split(" "), 0.9, 5, [1, 6], side=1, first_copy=6)
    assert rows == [(first, second), *((first, second) for first in firsts), *((first, second) for second in seconds)]
    # The authors' code keeps the row that it wrote last: that would be seen here.
    row, by_authors = [first, second], []
    for side, copies in enumerate((firsts, seconds)):
        for copy in copies:
            row[side] = copy
            by_authors.append(tuple(row))
    assert firsts[-1] != first and by_authors != rows[1:]


def test_together_changes_both_sides() -> None:
    options = AugmentationOptions(probability=0.9, copies=5, seed=1, pair_sides="together")
    first, second = TEXTS[0], TEXTS[2]
    rows = [texts for _, texts in augmented_rows([sentence(first), sentence(second)], 6, options)]
    sides = [algorithm_1(text.split(" "), 0.9, 5, [1, 6], side) for side, text in enumerate((first, second))]
    assert rows == [(first, second), *zip(*sides, strict=True)]


def test_rows_depend_on_seed_and_number() -> None:
    options = AugmentationOptions(copies=6, probability=0.6)
    in_order = [augmented_rows([sentence(text)], number, options) for number, text in enumerate(TEXTS)]
    for number in (2, 0, 3, 1):
        assert augmented_rows([sentence(TEXTS[number])], number, options) == in_order[number]
    other_seed = AugmentationOptions(copies=6, probability=0.6, seed=1)
    assert augmented_rows([sentence(TEXTS[2])], 2, other_seed) != in_order[2]
    assert augmented_rows([sentence(TEXTS[2])], 3, options) != in_order[2]
    # More copies begin with the same ones.
    more = augmented_rows([sentence(TEXTS[2])], 2, AugmentationOptions(copies=9, probability=0.6))
    assert more[:7] == in_order[2]


def test_replacements_have_the_right_frequency() -> None:
    places, copies, probability = 10, 3000, 0.4
    names = "abcdefg"
    text = " ".join(["-"] * places)
    many = Sentence(text, tuple(Slot(2 * index, 2 * index + 1, tuple(names)) for index in range(places)))
    rows = augmented_rows([many], 0, AugmentationOptions(copies=copies, probability=probability, keep_original=False))
    words = np.array([texts[0].split(" ") for _, texts in rows])
    assert words.shape == (copies, places)
    replaced = words != "-"

    def within(count: int, trials: int, chance: float) -> bool:
        return abs(count - trials * chance) <= SIGMAS * math.sqrt(trials * chance * (1 - chance))

    assert within(int(replaced.sum()), copies * places, probability)
    for index in range(places):
        assert within(int(replaced[:, index].sum()), copies, probability)
    # Neighbouring words are replaced independently of one another, and so are neighbouring copies.
    assert within(int((replaced[:, 0::2] & replaced[:, 1::2]).sum()), copies * places // 2, probability**2)
    assert within(int((replaced[0::2] & replaced[1::2]).sum()), copies * places // 2, probability**2)
    chosen = Counter(words[replaced].tolist())
    assert set(chosen) == set(names)
    for count in chosen.values():
        assert within(count, copies * places, probability / len(names))


def test_other_text_is_unchanged() -> None:
    text = "Ça\u3000n'est  pas\t(mal)!\n"
    slots = (Slot(0, 2, ("It",)), Slot(10, 13, ("not",)), Slot(15, 18, ("bad",)))
    assert text[10:13] == "pas" and text[15:18] == "mal"
    generator = np.random.default_rng(0)
    assert augmented_text(Sentence(text, slots), 1.0, generator) == "It\u3000n'est  not\t(bad)!\n"
    assert augmented_text(Sentence(text, slots), 0.0, generator) == text
    assert augmented_text(Sentence(text, ()), 1.0, generator) == text


def test_unique_skips_equal_copies() -> None:
    short = Sentence("dull", (Slot(0, 4, ("dull", "bad")),))
    all_rows = augmented_rows([short], 0, AugmentationOptions(copies=30))
    rows = augmented_rows([short], 0, AugmentationOptions(copies=30, unique=True))
    assert len(all_rows) == 31
    assert [texts for _, texts in rows] == [("dull",), ("bad",)]
    # The copy keeps its number.
    assert rows[1] == next(row for row in all_rows if row[1] == ("bad",))
    copies_alone = AugmentationOptions(copies=30, unique=True, keep_original=False)
    assert [texts for _, texts in augmented_rows([short], 0, copies_alone)] == [("bad",)]


def test_presets() -> None:
    paper = preset_options("paper", "cola")
    assert (paper.probability, paper.copies, paper.num_candidates, paper.words) == (0.4, 20, 15, "all")
    assert paper == AugmentationOptions()
    copies = {"cola": 30, "mrpc": 30, "rte": 30, "stsb": 30, "sst2": 20, "qnli": 20, "mnli": 10, "qqp": 10, None: 30}
    for task, count in copies.items():
        code = preset_options("authors-code", task)
        assert (code.copies, code.probability, code.num_candidates) == (count, 0.4, 15)
        assert (code.words, code.unique, code.masked_input, code.keep_original) == (
            "content",
            True,
            "with-original",
            True,
        )
    with pytest.raises(UserError, match="paper, authors-code; received 'code'"):
        preset_options("code")  # type: ignore[arg-type]


def test_every_wrong_option_is_named() -> None:
    with pytest.raises(UserError) as error:
        AugmentationOptions(probability=1.5, copies=0, num_candidates=0, seed=-1, words="some")  # type: ignore[arg-type]
    for message in ("[0, 1]; received 1.5", "copies must be at least 1", "num_candidates", "seed", "received 'some'"):
        assert message in str(error.value)


def test_stop_words_carry_no_sentiment() -> None:
    assert {"the", "not", "don", "t", "i", "very", "would"} <= STOP_WORDS
    assert not {"good", "bad", "film", "never", "well", "like"} & STOP_WORDS
    assert all(word.isascii() and word.isalpha() and word.islower() for word in STOP_WORDS)
