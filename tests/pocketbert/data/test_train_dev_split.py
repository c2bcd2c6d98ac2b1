"""Size of the dev split for texts with many examples. The tests of the command cover groups."""

from __future__ import annotations

import numpy as np
import pytest

from pocketbert.data.examples import Examples
from pocketbert.data.train_dev_split import train_dev_split


def _examples(*sizes: int) -> Examples:
    """So many examples of each text."""
    texts = [f"text {number}" for number, size in enumerate(sizes) for _ in range(size)]
    return Examples(texts, None, None, [str(index) for index in range(len(texts))], "here")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("sizes", "aside"),
    [
        # A tenth of 520 is 52: 20 at most, since 500 would be almost all.
        ([500, 20], 20),
        ([20, 500], 20),
        # 92: 20 or 420, which is too much.
        ([500, 20, 400], 20),
        # 90.1: a part is not so small either where one more text brings it there.
        ([100] * 9 + [1], 101),
        # Nothing is small: one, the smallest.
        ([300, 200, 400], 200),
        ([700, 700], 700),
        # Small ones are enough, whatever the large one is.
        ([4] * 30 + [480], 60),
    ],
)
def test_dev_split_avoids_large_texts(sizes: list[int], aside: int, seed: int) -> None:
    train, dev = train_dev_split(_examples(*sizes), seed=seed)
    assert (len(train), len(dev)) == (sum(sizes) - aside, aside)
    assert not {*train.texts} & {*dev.texts}


def test_draw_for_small_texts_is_unchanged() -> None:
    sizes = np.random.default_rng(4).integers(1, 12, 41)
    examples = _examples(*sizes)
    # Texts in the order of the draw until there is a tenth.
    drawn, count = set(), 0
    for text in np.random.default_rng(0).permutation(len(sizes)):
        drawn.add(f"text {text}")
        count += sizes[text]
        if count >= 0.1 * sizes.sum():
            break
    assert {*train_dev_split(examples)[1].texts} == drawn


def _classes(counts: dict[int, int], seed: int = 0) -> Examples:
    """So many texts of each class, in a random order."""
    labels = np.repeat(np.array([*counts], np.int32), [*counts.values()])
    np.random.default_rng(seed).shuffle(labels)
    names = [str(index) for index in range(len(labels))]
    return Examples([f"text {name}" for name in names], None, labels, names, "here")


def _counts(examples: Examples) -> np.ndarray:
    assert examples.labels is not None
    return np.bincount(examples.labels, minlength=50)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "counts",
    [
        {label: 2 for label in range(50)},
        {0: 1, 1: 2, 2: 3, 3: 997},
        {0: 33, 1: 55, 2: 7},
        {0: 400, 1: 9, 2: 9, 3: 9, 4: 11},
        {0: 5, 1: 5},
        {label: label + 1 for label in range(50)},
    ],
)
def test_stratified_part_keeps_the_proportions(counts: dict[int, int], seed: int) -> None:
    examples = _classes(counts)
    train, dev = train_dev_split(examples, seed=seed, stratify=True)
    whole, train_counts, aside = _counts(examples), _counts(train), _counts(dev)
    assert (train_counts + aside == whole).all()
    # Every class stays in training, and has its tenth aside, but for less than one row.
    assert (train_counts[whole > 0] > 0).all()
    assert (np.abs(aside - 0.1 * whole) < 1).all()
    # A tenth of all, but for classes of one row.
    assert 0 <= np.ceil(0.1 * whole.sum()) - aside.sum() <= (whole == 1).sum()
    again = train_dev_split(examples, seed=seed, stratify=True)
    assert again[1].ids == dev.ids
    assert train_dev_split(examples, seed=seed + 1, stratify=True)[1].ids != dev.ids


@pytest.mark.parametrize("seed", range(4))
def test_stratified_part_keeps_texts_together(seed: int) -> None:
    random = np.random.default_rng(9)
    texts = [f"text {number}" for number in random.integers(0, 120, 600)]
    examples = Examples(texts, None, random.integers(0, 7, 600).astype(np.int32), [*map(str, range(600))], "here")
    train, dev = train_dev_split(examples, seed=seed, stratify=True)
    assert not {*train.texts} & {*dev.texts}
    assert 0 < len(dev) <= 60
    assert (_counts(dev) <= np.ceil(0.1 * _counts(examples))).all()


def test_scores_and_questions_are_not_stratified() -> None:
    # Each class once, and each text too large for a tenth of its class: the part is drawn as without classes.
    examples = _classes({label: 1 for label in range(20)})
    assert train_dev_split(examples, stratify=True)[1].ids == train_dev_split(examples)[1].ids
    large = Examples(["a"] * 5 + ["b"] * 5, None, np.arange(10, dtype=np.int32) % 2, [*map(str, range(10))], "here")
    assert [len(part) for part in train_dev_split(large, stratify=True)] == [5, 5]
    scores = Examples([*"abcdefghij"], None, np.linspace(0, 1, 10, dtype=np.float32), [*map(str, range(10))], "here")
    assert train_dev_split(scores, stratify=True)[1].ids == train_dev_split(scores)[1].ids
