from __future__ import annotations

import json
from pathlib import Path

import pytest

from pocketbert_bench import results
from pocketbert_bench.suites import masked_lm


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.usefixtures("minilm_directory", "shared")
def test_a_quick_run_trains_a_head_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pocketbert as pb

    monkeypatch.setattr(masked_lm, "QUICK_STEPS", 2)
    content = masked_lm.run_for(1, tmp_path, quick=True)
    assert results.problems(content) == []
    values = {each["label"]: each["value"] for each in content["accuracies"]}
    assert values.keys() == {"before", "after", "most frequent token"}
    # A fresh head over 30,522 pieces names next to nothing right; "the" is 4 to 6 % of English text.
    assert values["before"] < 0.01 and 0.02 < values["most frequent token"] < 0.08
    assert "by always saying 'the'" in content["notes"][0]
    assert json.loads((tmp_path / "training.json").read_text("utf-8"))["steps"] == 2
    assert pb.load(tmp_path / "model").task.kind == "masked_lm"

    def never(*_: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(masked_lm, "_train", never)
    again = masked_lm.run_for(1, tmp_path, quick=True)
    assert again["accuracies"] == content["accuracies"]
