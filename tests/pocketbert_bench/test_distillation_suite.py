from __future__ import annotations

import importlib.util
import json

import pytest

from pocketbert.errors import UserError
from pocketbert_bench import results
from pocketbert_bench.suites import distillation, pytorch_process, runner


def test_the_peer_is_no_suite() -> None:
    assert "distillation" in runner.suites() and "pytorch_distillation" not in runner.suites()


def test_a_peer_that_fails_is_an_error_and_not_a_number() -> None:
    # The preset is looked for in the peer's own process.
    with pytorch_process.steps(distillation.PEER_MODULE, "no_such_teacher", "none", 2, 3, 1, threads=1) as take:
        with pytest.raises(UserError, match="the PyTorch peer must answer each step with its loss"):
            take()


@pytest.mark.slow
@pytest.mark.data
def test_the_suite_runs_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distillation, "TEACHER", "minilmv2_12l_384d")
    monkeypatch.setattr(distillation, "RANDOM_BATCHES", 1)
    monkeypatch.setattr(distillation, "SENTENCES", 200)
    monkeypatch.setattr(distillation, "LENGTH", 32)
    monkeypatch.setattr(distillation, "STEPS_A_ROUND", dict.fromkeys(distillation.STEPS_A_ROUND, 1))
    content = distillation.run(quick=True)
    assert results.problems(content) == [] and json.dumps(content, allow_nan=False)
    found = {ratio["name"]: ratio for ratio in content["ratios"]}
    missing = 0 if importlib.util.find_spec("torch") else 1
    assert len(found) == 5 - missing
    assert len([note for note in content["notes"] if "PyTorch eager is not installed" in note]) == missing
    # The vocabulary's file weighs as much as 75 tokens; of 40 short sentences that is seen, of thousands it is not.
    assert 1 < found["store, bytes a token"]["value"] < 1.3
    assert found["distillation step, reading against stored"]["value"] > 1
