"""Bundles for separate pairs: latencies are for two texts and the head."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bench_subjects
import bundle_folders
import numpy as np
import pytest

from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.tasks.registry import get_task
from pocketbert_bench import configurations, host, worker
from pocketbert_bench.host import Schedule

BRIEF = Schedule(rounds=3, runs=12, seconds=0.0, longest_seconds=1.0, warm_up_seconds=0.0)
TASK = TaskConfig(kind="classification", labels=("no", "maybe", "yes"), pairs="separate", pooling="mean")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = get_task(TASK).encoder_config(bench_subjects.bert_config(num_layers=1))
    return bench_subjects.write_network(tmp_path_factory.mktemp("pairs") / "network", config, TASK)


@pytest.fixture(scope="module")
def bundle(network: Path) -> Path:
    from pocketbert_export.exporter import export

    return export(network, network.parent / "bundle", recipe="float32", lengths=(9, 17)).directory


def test_call_runs_both_texts_and_the_head() -> None:
    events: list[Any] = []

    def text(number: int) -> Callable[[], dict[str, np.ndarray]]:
        def call() -> dict[str, np.ndarray]:
            events.append(number)
            return {"embedding": np.array([[number, -number]], np.float32)}

        return call

    def open_model(job: dict[str, Any]) -> tuple[Any, Any]:
        assert (job["model_path"], job["weight_cache"], job["threads"]) == ("head.tflite", None, 2)

        def make_call(signature: str, inputs: dict[str, np.ndarray]) -> Callable[[], dict[str, np.ndarray]]:
            assert signature == "head"
            return lambda: events.append({name: vector[0, 0] for name, vector in inputs.items()}) or {}

        return make_call, dict

    job = {"model_path": "model.tflite", "head_path": "head.tflite", "weight_cache": "cache", "threads": 2}
    calls, init_us = worker._on_pairs([text(3), text(5), text(7)], open_model, job)
    assert init_us > 0
    assert [call()["embedding"][0, 0] for call in calls] == [3, 5, 7]
    # A pair is a text and the next one.
    assert events[:3] == [3, 5, {"first": 3, "second": 5}]
    assert events[3:] == [5, 7, {"first": 5, "second": 7}, 7, 3, {"first": 7, "second": 3}]


@pytest.mark.parametrize("runtime", ["litert", "litert-compiled"])
def test_pairs_are_measured_and_named(runtime: Any, bundle: Path) -> None:
    subjects = configurations.on_runtimes(configurations.from_bundle(bundle, [17], [1]), [runtime])
    (measurement,) = host.measure(subjects, BRIEF)
    assert (measurement.status, measurement.error) == ("ok", None)
    assert measurement.golden and measurement.golden.max_absolute_difference <= measurement.golden.tolerance
    assert (measurement.model_file, measurement.signature) == ("model.tflite", "length_17")
    (sentence,) = configurations.pair_notes(subjects)
    assert sentence == (
        "float32 is for separate pairs: latencies are for a pair, two texts in model.tflite and their vectors in "
        "head.tflite; the size is for model.tflite alone."
    )


def test_head_that_does_not_run_is_reported(bundle: Path, tmp_path: Path) -> None:
    changed = Path(shutil.copytree(bundle, tmp_path / "changed"))
    # A file without the signature of a head.
    shutil.copy(bundle / "model.tflite", changed / "head.tflite")
    bundle_folders.describe_again(changed)
    (measurement,) = host.measure(configurations.from_bundle(changed, [9], [1]), BRIEF)
    assert measurement.status == "failed" and "the runtime cannot run the model" in str(measurement.error)


def test_command_says_what_it_measured(
    network: Path, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench_subjects.measure_briefly(monkeypatch)
    output = tmp_path / "result.json"
    assert cli.main(["bench", str(bundle), "--lengths=9", "--quick", f"--output={output}"]) == 0
    sentence = "bundle is for separate pairs: latencies are for a pair"
    assert sentence in capsys.readouterr().err and sentence in output.read_text("utf-8")
    assert cli.main(["bench", str(bundle), "--baselines", f"--model={network}"]) == 2
    assert "a baseline reads one row per call; received a head on separate pairs" in capsys.readouterr().err
