from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import bench_subjects
import numpy as np
import pytest

from pocketbert.errors import UserError
from pocketbert_bench import results
from pocketbert_bench.suites import latency, lengths, runner


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Suites that measure nothing: one that meets its target, one whose data is absent."""

    def good(quick: bool) -> dict[str, Any]:
        ratio = results.ratio(
            name="r", description="", ours="a", peer="b", unit="us", ours_samples=[1.0, 1.0], peer_samples=[2.0, 2.0],
            better="lower", target=0.6,
        )  # fmt: skip
        return results.to_json(bench_subjects.result(ratios=(ratio,), quick=quick, notes=("a note",)))

    def absent(quick: bool) -> dict[str, Any]:
        raise UserError("this suite reads SST-2")

    def wrong(quick: bool) -> dict[str, Any]:
        return {"title": "half"}

    found = {"good": good, "absent": absent, "wrong": wrong}
    monkeypatch.setattr(runner, "suites", lambda: found)
    return found


def test_every_suite_is_found() -> None:
    assert {"latency", "lengths", "tokenizer", "training"} <= set(runner.suites())
    assert not {"runner", "shared_data"} & set(runner.suites())


@pytest.mark.usefixtures("made_up")
def test_suites_are_written_and_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = runner.run_suites(["good", "absent"], tmp_path, quick=True)
    assert written == {"good": tmp_path / "good.json"}
    assert results.read(written["good"]).quick
    assert "suite absent is left out: this suite reads SST-2" in capsys.readouterr().err
    with pytest.raises(UserError, match="a suite is one of good, absent, wrong; received bad"):
        runner.run_suites(["bad"], tmp_path, quick=True)
    with pytest.raises(UserError, match="wrong.json: .*'machine' is a required property"):
        runner.run_suites(["wrong"], tmp_path, quick=True)
    assert [path.name for path in tmp_path.iterdir()] == ["good.json"]


def test_a_summary_names_the_verdict(made_up: dict[str, Any]) -> None:
    content = made_up["good"](True)
    assert runner.summary(content) == ["r: 0.500 (95 % 0.500 to 0.500), target <= 0.6: met", "a note"]
    content["ratios"][0]["met"] = False
    assert runner.summary(content)[0].endswith("MISSED")


@pytest.mark.usefixtures("made_up")
def test_a_missed_target_is_exit_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pocketbert_bench.suites import __main__ as program

    arguments = ["suites", "good", f"--output={tmp_path}"]
    assert program.main(arguments) == 0
    monkeypatch.setattr(results.statistics, "bootstrap_median", lambda *_, **__: (0.5, 0.7))
    assert program.main(arguments) == 1
    assert program.main(["suites", "bad"]) == 2


def test_a_sentence_goes_to_the_shortest_length_that_holds_it() -> None:
    row = {"input_mask": np.array([1] * 24 + [0] * 104), "input_word_ids": np.arange(128)}
    call = lengths.call_of(row, (16, 24, 128))
    assert call.signature == "length_24" and len(call.inputs["input_word_ids"]) == 24
    row["input_mask"][24] = 1
    assert lengths.call_of(row, (16, 24, 128)).signature == "length_128"
    # By hand: 10 → 16, 16 → 16, 17 → 32, 33 → 128.
    tokens, latency_us = np.array([10, 16, 17, 33]), {16: 1.0, 32: 2.0, 128: 8.0}
    assert lengths.mean_latency_us(tokens, latency_us, (128, 16, 32)) == (1 + 1 + 2 + 8) / 4
    assert lengths.mean_latency_us(tokens, latency_us, (128,)) == 8


@pytest.mark.parametrize("family", ["bert", "mobilebert"])
def test_the_peer_has_the_same_architecture(family: str) -> None:
    import pocketbert as pb
    from pocketbert.configs import BottleneckConfig
    from pocketbert.presets import preset

    # transformers' heads are hidden_size / heads wide.
    config = bench_subjects.bert_config(num_attention_heads=4, head_size=10)
    if family == "mobilebert":
        config = preset("mobilebert").config.replace(
            vocab_size=31, hidden_size=40, embedding_size=11, num_layers=2, num_attention_heads=2, head_size=8,
            intermediate_size=19, num_feed_forwards=3, max_positions=23,
            bottleneck=BottleneckConfig(size=16, query_key="shared"),
        )  # fmt: skip
    peer, ours = latency.transformers_classifier(config, 2), pb.build(config, [latency.TASK])
    assert peer.count_params() == ours.count_params()


@pytest.mark.slow
def test_the_latency_suite_runs_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "TARGETS", {"tinybert_4l_312d": 0.85})
    content = latency.run(quick=True)
    assert results.problems(content) == []
    assert [each["error"] for each in content["measurements"]] == [None, None]
    assert content["measurements"][1]["peer"] and content["ratios"][0]["value"] < 1
    assert json.dumps(content, allow_nan=False)
