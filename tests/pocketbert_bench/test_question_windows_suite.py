from __future__ import annotations

import pytest

from pocketbert_bench import results
from pocketbert_bench.suites import question_windows


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.usefixtures("shared")
def test_a_quick_run_compares_like_with_like(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in question_windows.ONE_THREAD.items():
        # So that the suite's own setting is taken back.
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(question_windows, "QUICK_STEP", 40)
    content = question_windows.run(quick=True)
    assert results.problems(content) == []
    assert [ratio["target"] for ratio in content["ratios"]] == [5.0, 5.0, None]
    # A hundred questions, on a machine that may have other work.
    assert all(ratio["value"] > 1.0 for ratio in content["ratios"])
