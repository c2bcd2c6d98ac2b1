from __future__ import annotations

import numpy as np
import pytest

from pocketbert.data.examples import Examples, evenly, evenly_of_classes


def _examples(**changes: object) -> Examples:
    parts: dict = {
        "texts": ["a", "b", "c"],
        "pairs": ["x", "y", "z"],
        "labels": np.asarray([2, 0, 1], np.int32),
        "ids": ["1", "2", "3"],
        "source": "here",
        "groups": ["en", "de", "en"],
    }
    return Examples(**{**parts, **changes})


def test_select_keeps_the_parts_aligned() -> None:
    chosen = _examples().select([2, 0])
    assert (chosen.texts, chosen.pairs, chosen.ids) == (["c", "a"], ["z", "x"], ["3", "1"])
    assert _examples().select([1, 2]).groups == ["de", "en"]
    assert chosen.labels is not None and chosen.labels.tolist() == [1, 2] and chosen.labels.dtype == np.int32
    bare = _examples(pairs=None, labels=None, groups=None).select(np.asarray([1]))
    assert (len(bare), bare.texts, bare.pairs, bare.labels, bare.groups) == (1, ["b"], None, None, None)
    assert len(_examples().select([])) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pairs": ["x"]}, "pairs must be as many as texts; received 1 and 3"),
        ({"labels": np.zeros(2, np.int32)}, "labels must be as many as texts; received 2 and 3"),
        ({"labels": np.zeros(3, np.int64)}, "labels must be int32"),
        ({"labels": np.zeros([3, 1], np.float32)}, r"received float32 \(3, 1\)"),
        ({"labels": np.array([1, -1, 0], np.int32)}, "labels must be indices from 0, or 0 and 1; received -1"),
        ({"labels": np.array([1, np.nan, 0], np.float32)}, "labels must be finite scores; received nan"),
        ({"groups": ["en", "de"]}, "groups must be as many as texts; received 2 and 3"),
        ({"ids": ["1", "2", "1"]}, "received 1 repeated"),
    ],
)
def test_misaligned_parts_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _examples(**changes)


def test_even_parts_have_the_shares_of_the_classes() -> None:
    labels = np.tile(np.array([0, 1, 0, 2, 0, 1], np.int32), 17)
    count = len(labels)
    rows = Examples([""] * count, None, labels, [str(index) for index in range(count)], "here")
    for most in (count // 6, count // 2, 50, count, 500):
        chosen = evenly_of_classes(rows, most)
        assert len(chosen) == len({*chosen.tolist()}) == min(most, count) and (np.diff(chosen) > 0).all()
        shares = np.bincount(labels[chosen]) - min(most, count) * np.array([3, 2, 1]) / 6
        assert np.abs(shares).max() <= 1
    # Without classes, they are evenly spaced.
    scores = Examples([""] * count, None, labels.astype(np.float32), rows.ids, "here")
    assert np.array_equal(evenly_of_classes(scores, 31), evenly(count, 31))
