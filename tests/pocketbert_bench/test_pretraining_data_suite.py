from __future__ import annotations

import pytest

from pocketbert_bench import results
from pocketbert_bench.suites import pretraining_data


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.usefixtures("shared")
def test_a_quick_run_compares_like_with_like(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretraining_data, "QUICK_DOCUMENTS", 30)
    content = pretraining_data.run(quick=True)
    assert results.problems(content) == []
    (ratio,) = content["ratios"]
    # Of so little text both are mostly start-up.
    assert ratio["value"] > 0.3 and ratio["unit"] == "sentences/s"
