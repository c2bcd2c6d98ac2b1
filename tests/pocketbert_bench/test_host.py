from __future__ import annotations

import dataclasses
import os
import re
import signal
from pathlib import Path

import bench_subjects
import numpy as np
import pytest

from pocketbert.errors import UserError
from pocketbert.files import sha256
from pocketbert_bench import configurations, host, report, results, worker_process
from pocketbert_bench.host import Schedule, Worker
from pocketbert_bench.worker_process import WorkerFailed

BRIEF = Schedule(rounds=3, runs=12, seconds=0.0, longest_seconds=1.0, warm_up_seconds=0.0)


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bench_subjects.write_sum_model(tmp_path_factory.mktemp("sum") / "sum.tflite")


def test_each_configuration_is_measured_whole(model_path: Path) -> None:
    subjects = [
        bench_subjects.configuration(model_path, 5),
        bench_subjects.configuration(model_path, 8, threads=2, label="other"),
    ]
    measured = host.measure(subjects, BRIEF)
    assert [(mistake.label, mistake.length, mistake.threads) for mistake in measured] == [
        ("sum", 5, 1),
        ("other", 8, 2),
    ]
    for measurement in measured:
        assert (measurement.status, measurement.error) == ("ok", None)
        assert measurement.round_sizes == (4, 4, 4) and len(measurement.latency_us) == 12
        assert measurement.warm_up_runs >= 5 and measurement.warmed_up is not None
        assert measurement.signature == f"length_{measurement.length}"
        assert measurement.model_sha256 == sha256(model_path) and measurement.size_bytes == model_path.stat().st_size
        assert measurement.runtime and measurement.runtime.name == "litert" and measurement.runtime.version[0].isdigit()
        assert measurement.golden and measurement.golden.examples == 1
        assert (
            measurement.init_us
            and measurement.init_us > 0
            and measurement.first_inference_us
            and measurement.first_inference_us > 0
        )
        # A process with numpy and LiteRT takes tens of megabytes; one with TensorFlow would take hundreds.
        assert measurement.base_memory_bytes and measurement.peak_memory_bytes
        assert 2e7 < measurement.base_memory_bytes <= measurement.peak_memory_bytes < 2e8
    assert results.problems(results.to_json(bench_subjects.result(*measured))) == []


@pytest.mark.usefixtures("without_plots")
def test_unsteady_calls_are_marked(model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "LONGEST_WARM_UP_SECONDS", 0.05)
    run, calls = Worker.run, iter(range(1000))

    def doubling(self: Worker, numbers: list[int]) -> list[float]:
        result = run(self, numbers)
        # Batches of 5 warm up; every one takes twice as long as the one before.
        return [1000.0 * 2 ** next(calls)] * 5 if len(numbers) == host.WARM_UP_BATCH else result

    monkeypatch.setattr(Worker, "run", doubling)
    (unsteady,) = host.measure([bench_subjects.configuration(model_path, 5)], BRIEF)
    # 5, 10, 20 and 40 ms: the fourth batch goes beyond 50.
    assert (unsteady.status, unsteady.warmed_up, unsteady.warm_up_runs) == ("ok", False, 20)
    run_ = bench_subjects.result(unsteady)
    note = "† 1 of 1 measurements were not steady"
    table = report.table(run_)
    assert note in table and re.search(r"^sum .*\d\*?†", table, re.MULTILINE)
    page = report.build_report([run_], tmp_path / "page").read_text(encoding="utf-8")
    assert note in page and re.search(r" ms\*?†</td>", page)


def test_wrong_output_fails_without_latency(model_path: Path) -> None:
    # The sum's largest value is 7; a thousandth of it is allowed.
    subjects = [
        bench_subjects.configuration(model_path, 5, calls=(bench_subjects.sum_call(5, wrong_by=wrong_by),))
        for wrong_by in (0.005, 0.02)
    ]
    good, bad = host.measure(subjects, BRIEF)
    assert good.status == "ok" and good.golden and good.golden.max_absolute_difference == pytest.approx(0.005, rel=0.01)
    assert bad.status == "failed" and bad.latency_us == () and bad.summary is None
    assert bad.error and "those recorded at export; an output is off by 0.02" in bad.error
    named = dataclasses.replace(bad, label="bad")
    assert results.problems(results.to_json(bench_subjects.result(good, named))) == []


def test_nan_output_fails(model_path: Path) -> None:
    from pocketbert_bench import worker

    outputs = {"logits": np.array([[1.0, np.nan]])}
    assert worker._difference(outputs, {"logits": [[1.0, 2.0]]}) > 1e9
    with pytest.raises(ValueError, match="has 2 values; expected 3"):
        worker._difference(outputs, {"logits": [[1.0, 2.0, 3.0]]})
    with pytest.raises(ValueError, match="outputs are named"):
        worker._difference(outputs, {"scores": [[1.0, 2.0]]})


@pytest.mark.parametrize(
    ("content", "message"), [(b"no model at all", "the runtime cannot run the model"), (b"", "the runtime cannot run")]
)
def test_broken_file_fails_alone(model_path: Path, tmp_path: Path, content: bytes, message: str) -> None:
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(content)
    good, bad = host.measure(
        [bench_subjects.configuration(model_path), bench_subjects.configuration(broken, label="broken")], BRIEF
    )
    assert good.status == "ok"
    assert bad.status == "failed" and bad.error and message in bad.error and "\n" not in bad.error


def test_crashed_process_gives_a_sentence(model_path: Path) -> None:
    with Worker(bench_subjects.configuration(model_path)) as worker:
        assert len(worker.run([0, 0, 0])) == 3
        os.kill(worker._process.pid, signal.SIGKILL)
        with pytest.raises(WorkerFailed, match="was ended by SIGKILL"):
            worker.run([0])
            worker.run([0])


def test_hanging_process_times_out(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Worker(bench_subjects.configuration(model_path)) as worker:
        os.kill(worker._process.pid, signal.SIGSTOP)
        monkeypatch.setattr(worker_process, "SECONDS_TO_ANSWER", 0.2)
        with pytest.raises(WorkerFailed, match="did not answer within 0 s"):
            worker.run([0])


def test_order_is_shuffled_and_rounds_interleave(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []
    take_turn = host._Subject.take_turn
    monkeypatch.setattr(
        host._Subject, "take_turn", lambda self: (turns.append(self.configuration.label), take_turn(self))
    )
    labels = ["a", "b", "c", "d"]
    host.measure([bench_subjects.configuration(model_path, label=label) for label in labels], BRIEF, seed=1)
    rounds = [turns[start : start + 4] for start in range(0, 12, 4)]
    assert all(sorted(round_labels) == labels for round_labels in rounds)
    assert len({tuple(round_labels) for round_labels in rounds}) > 1


def test_the_workers_imports_are_few() -> None:
    import subprocess
    import sys

    program = "import sys, pocketbert_bench.worker; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "numpy" in loaded
    assert not {"tensorflow", "pocketbert", "pocketbert_export", "transformers", "tqdm"} & set(loaded)


def test_bundles_run_at_requested_lengths(plain_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench_subjects.measure_briefly(monkeypatch)
    measured = host.bench_bundles([plain_bundle], lengths=[17], threads=[1, 2], quick=True, weights="random")
    assert [(measurement.length, measurement.threads, measurement.status) for measurement in measured.measurements] == [
        (17, 1, "ok"),
        (17, 2, "ok"),
    ]
    assert all(
        measurement.golden and measurement.golden.examples >= 1 and measurement.recipe == "float32"
        for measurement in measured.measurements
    )
    assert measured.quick and any("random" in note for note in measured.notes)
    assert results.problems(results.to_json(measured)) == []


def test_bundle_calls_are_golden_examples(plain_bundle: Path) -> None:
    subjects = configurations.from_bundle(plain_bundle, None, [1])
    assert [subject.length for subject in subjects] == [9, 17]
    for subject in subjects:
        assert subject.problem is None and subject.length
        for call in subject.calls:
            assert call.signature == f"length_{subject.length}"
            assert {len(ids) for ids in call.inputs.values()} == {subject.length}
            assert max(call.inputs["input_word_ids"]) < len(bench_subjects.WORDS)
    # The longer signature serves the shorter one's examples too.
    assert len(subjects[1].calls) >= len(subjects[0].calls) >= 1


def test_damaged_bundle_fails_at_each_length(
    plain_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    bench_subjects.measure_briefly(monkeypatch)
    damaged = Path(shutil.copytree(plain_bundle, tmp_path / "damaged"))
    (damaged / "model.tflite").write_bytes(b"cut short")
    measured = host.bench_bundles([damaged, plain_bundle], lengths=[9, 17], quick=True, weights="random").measurements
    assert {measurement.weights for measurement in measured} == {"random"} and len(measured) == 4
    by_key = {(mistake.label, mistake.length): mistake for mistake in measured}
    assert by_key["float32", 9].status == by_key["float32", 17].status == "ok"
    assert all("model.tflite must have" in str(by_key["damaged", length].error) for length in (9, 17))
    assert results.problems(results.to_json(bench_subjects.result(*measured))) == []


def test_nonsense_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a bundle must be a folder .* received .*nowhere"):
        host.bench_bundles([tmp_path / "nowhere"])
    with pytest.raises(UserError, match="must be positive"):
        host.bench_bundles([tmp_path], threads=[0])


def test_golden_tolerance_scales_with_largest_output(model_path: Path) -> None:
    subject = bench_subjects.configuration(model_path)
    largest = float(bench_subjects.TABLE[[1, 4, 10]].sum(axis=0).max())
    assert subject.tolerance() == pytest.approx(1e-3 * largest)
    assert dataclasses.replace(subject, relative_tolerance=0.5).tolerance() == pytest.approx(0.5 * largest)
