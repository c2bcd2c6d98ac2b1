"""HSK's store study: the paper's format by arithmetic, and MNLI's repeated lengths."""

from __future__ import annotations

import numpy as np
import pytest

from pocketbert.data.batches import EncodedExamples
from studies.hsk import store

GIB = 2**30


@pytest.mark.parametrize(
    ("knowledge", "values", "masks"), [("1,9,0.1", 1.0, 2.5), ("5,2,0.3", 3.4, 2.8), ("3,8,0.2", 5.4, 6.8)]
)
def test_paper_format_matches_table_3(knowledge: str, values: float, masks: float) -> None:
    # Table 3 has one digit, and its MNLI may have other examples than ours.
    assert [size / GIB for size in store.paper_bytes(knowledge)] == pytest.approx([values, masks], abs=0.1)


def test_full_knowledge_matches_table_3() -> None:
    values, masks = store.paper_bytes("7,128,1")
    assert values / GIB == pytest.approx(1011, rel=0.005) and masks == 0


def test_repeated_examples_keep_their_order() -> None:
    ids = np.arange(10, dtype=np.int32)
    given = EncodedExamples(ids, 0 * ids, np.array([0, 2, 5, 10]), None, max_length=7, pad_token_id=0)
    found = store.repeated(given, 5)
    assert found.lengths.tolist() == [2, 3, 5, 2, 3]
    assert found.word_ids.tolist() == [*range(10), *range(5)] and len(found.type_ids) == 15
