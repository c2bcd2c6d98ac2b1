"""Strata of several labels in folds and drawn splits, with bounds from the algorithm, and classes as before."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold, StratifiedKFold

import pocketbert as pb
from pocketbert.data.examples import Examples
from pocketbert.data.final_split import examples_to_fold, fold_indices, recorded_parts, three_splits
from pocketbert.data.label_strata import label_folds
from pocketbert.data.train_dev_split import train_dev_split
from pocketbert.errors import UserError

FOLDS = 4


def several(seed: int) -> np.ndarray:
    """Labels of 178 examples: 13, 37 and 101 with each label, of which few have a rarer label, too; 40 without one.

    Of 37 and 101, 4 and 9 have a rarer label: fewer than a fold's share. So rarer labels overfill no fold.
    """
    rows = [(1, 1, 0)] * 4 + [(1, 0, 1)] * 3 + [(1, 0, 0)] * 6 + [(0, 1, 1)] * 6 + [(0, 1, 0)] * 27
    rows += [(0, 0, 1)] * 92 + [(0, 0, 0)] * 40
    labels = np.array(rows, np.int32)
    assert labels.sum(axis=0).tolist() == [13, 37, 101]
    np.random.default_rng(seed).shuffle(labels)
    return labels


def examples(labels: np.ndarray, texts: list[str] | None = None) -> Examples:
    names = [str(number) for number in range(len(labels))]
    return Examples(texts or [f"text {name}" for name in names], None, labels, names, "here")


def by_fold(labels: np.ndarray, folds: list[np.ndarray]) -> np.ndarray:
    return np.array([labels[fold].sum(axis=0) for fold in folds])


def rows_by_fold(rows: Examples, count: int, seed: int = 0) -> list[np.ndarray]:
    folds = [indices for _, indices in fold_indices(rows, count, seed)]
    assert sorted(np.concatenate(folds).tolist()) == list(range(len(rows)))
    return folds


def test_worked_example_of_the_algorithm() -> None:
    # Three examples with a and b, three with b, two without a label, for two folds. The rarer label is a: one example
    # each, then one more for a fold r. Label b lacks 1 in r and 2 in the other fold: it gets two of the rest, r one.
    labels = np.array([[1, 1]] * 3 + [[0, 1]] * 3 + [[0, 0]] * 2, np.int32)
    for seed in range(20):
        fold_of = label_folds(labels, np.arange(8), 2, seed)
        found_counts = sorted(by_fold(labels, [fold_of == 0, fold_of == 1]).tolist())
        assert found_counts == [[1, 3], [2, 3]] and np.bincount(fold_of).tolist() == [4, 4]


@pytest.mark.parametrize("seed", range(5))
def test_each_label_has_its_share_of_a_fold(seed: int) -> None:
    labels = several(seed)
    folds = rows_by_fold(examples(labels), FOLDS, seed)
    # Where no fold has too many examples of a label before its turn, the fold that lacks most of it gets the next one:
    # in the end, each lacks less than one, or has less than one too many.
    assert (np.abs(by_fold(labels, folds) - labels.sum(axis=0) / FOLDS) < 1).all()
    # The examples without labels make the sizes equal in the same way.
    assert sorted(map(len, folds)) == [44, 44, 45, 45]
    again, others = rows_by_fold(examples(labels), FOLDS, seed), rows_by_fold(examples(labels), FOLDS, seed + 1)
    assert all(map(np.array_equal, folds, again)) and not all(map(np.array_equal, folds, others))


@pytest.mark.parametrize("seed", range(5))
def test_equal_texts_stay_together(seed: int) -> None:
    random = np.random.default_rng(seed)
    # Each text comes one to three times, in any order.
    numbers = random.permutation(np.repeat(np.arange(178), random.integers(1, 4, 178)))
    labels = several(seed)[numbers]
    folds = rows_by_fold(examples(labels, [f"text {number}" for number in numbers]), FOLDS, seed)
    assert sum(len({*numbers[fold].tolist()}) for fold in folds) == 178
    # As above, but a fold gets up to three examples at once.
    assert (np.abs(by_fold(labels, folds) - labels.sum(axis=0) / FOLDS) < 3).all()


def test_one_label_each_is_stratified_like_classes() -> None:
    classes = np.random.default_rng(3).choice(3, 89, p=[0.6, 0.3, 0.1])
    folds = rows_by_fold(examples(np.eye(3, dtype=np.int32)[classes]), FOLDS)
    counts = [np.bincount(classes[fold], minlength=3) for fold in folds]
    expected = [np.bincount(classes[test]) for _, test in StratifiedKFold(FOLDS).split(classes, classes)]
    assert (np.sort(counts, axis=0) == np.sort(expected, axis=0)).all()
    assert max(map(len, folds)) - min(map(len, folds)) <= 1


def test_no_fold_is_empty() -> None:
    # One text has nearly all examples of a label; the other label has two.
    labels = np.array([[1, 0]] * 20 + [[0, 1]] * 2 + [[0, 0]], np.int32)
    rows = examples(labels, ["a"] * 20 + ["b", "c", "d"])
    assert sorted(map(len, rows_by_fold(rows, 4))) == [1, 1, 1, 20]


def test_folds_of_classes_and_scores_are_scikit_learns() -> None:
    random = np.random.default_rng(5)
    texts = [f"text {number}" for number in random.integers(0, 60, 97)]
    groups = [*map(texts.index, texts)]
    _, numbers = np.unique(groups, return_inverse=True)
    classes, scores = random.integers(0, 3, 97).astype(np.int32), random.random(97).astype(np.float32)
    stratified = StratifiedGroupKFold(3, shuffle=True, random_state=2).split(numbers, classes, numbers)
    plain = GroupKFold(3, shuffle=True, random_state=2).split(numbers, groups=numbers)
    for labels, expected in ((classes, stratified), (scores, plain)):
        rows = examples(labels, texts)
        assert all(map(np.array_equal, rows_by_fold(rows, 3, 2), [test for _, test in expected]))
        assert recorded_parts(rows, [rows]) == {}


@pytest.mark.parametrize("seed", range(5))
def test_drawn_split_has_a_tenth_of_each_label(seed: int) -> None:
    rows = examples(several(seed))
    train, dev = train_dev_split(rows, seed=seed, stratify=True)
    assert not {*train.texts} & {*dev.texts} and len(train) + len(dev) == 178
    assert rows.labels is not None and dev.labels is not None and train.labels is not None
    # Whole numbers next to a tenth; those who lack most come first, so they are exact.
    assert (np.abs(dev.labels.sum(axis=0) - 0.1 * rows.labels.sum(axis=0)) < 1).all()
    # 17.8, rounded up.
    assert len(dev) == 18
    assert train_dev_split(rows, seed=seed, stratify=True)[1].ids == dev.ids
    assert train_dev_split(rows, seed=seed + 1, stratify=True)[1].ids != dev.ids
    assert recorded_parts(rows, [dev]) == {"parts_sha256": [dev.identity]}


def test_rare_labels_stay_in_training() -> None:
    # Fifty labels with two examples each, and one with a single example.
    labels = np.zeros([101, 51], np.int32)
    labels[np.arange(101), np.arange(101) // 2] = 1
    for seed in range(4):
        train, dev = train_dev_split(examples(labels), seed=seed, stratify=True)
        assert train.labels is not None and train.labels.any(axis=0).all()
        assert len(dev) == 11 and dev.labels is not None and dev.labels.sum(axis=0).max() == 1


def test_dev_split_is_not_too_small() -> None:
    # Ten of 100 examples have all five labels, so two or three of them meet the quotas: at most 14 labels in all.
    labels = np.concatenate([np.ones([10, 5], np.int32), np.tile(np.eye(5, dtype=np.int32), [18, 1])])
    for seed in range(4):
        assert 10 <= len(train_dev_split(examples(labels), seed=seed, stratify=True)[1]) <= 14


def test_large_texts_are_drawn_as_without_labels() -> None:
    labels = np.array([[1, 0]] * 10 + [[0, 1]] * 10, np.int32)
    rows = examples(labels, ["a"] * 10 + ["b"] * 10)
    assert train_dev_split(rows, stratify=True)[1].ids == train_dev_split(rows)[1].ids


def test_final_split_has_a_share_of_each_label() -> None:
    labels = np.concatenate([several(0)] * 4)
    names = [[name for name, is_given in zip("abc", row, strict=True) if is_given] for row in labels]
    texts = [f"text {number}" for number in range(len(labels))]
    data = pb.data.table({"text": texts, "label": names}, kind="multi_label")
    splits = three_splits(data, seed=2)
    assert splits.final is not None
    parts = (splits.data.train, splits.data.dev, splits.final.dev)
    assert sum(map(len, parts)) == len(labels) and len({text for part in parts for text in part.texts}) == len(labels)
    # 15 % of 712 are at least 106.8 examples; then again so many.
    assert [len(part) for part in parts[1:]] == [107, 107]
    for part in parts[1:]:
        assert part.labels is not None
        np.testing.assert_allclose(part.labels.sum(axis=0), 0.15 * labels.sum(axis=0), atol=1.5)


def test_rare_labels_in_folds_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    names = [["rare"] if number < 2 else ["often"] for number in range(30)]
    data = pb.data.table({"text": [f"text {number}" for number in range(30)], "label": names}, kind="multi_label")
    assert len(examples_to_fold(data, 3)) == 30
    assert "some of the 3 folds lack labels with fewer texts: 'rare' (2)\n" in capsys.readouterr().err


def test_more_folds_than_texts_are_refused() -> None:
    rows = examples(np.ones([6, 1], np.int32), ["a", "b", "b", "c", "a", "c"])
    with pytest.raises(UserError, match="4 folds need at least 4 different texts; received 3"):
        fold_indices(rows, 4)
