from __future__ import annotations

import numpy as np
import pytest

from pocketbert.data.examples import Examples


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
        ({"groups": ["en", "de"]}, "groups must be as many as texts; received 2 and 3"),
        ({"ids": ["1", "2", "1"]}, "received 1 repeated"),
    ],
)
def test_misaligned_parts_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _examples(**changes)
