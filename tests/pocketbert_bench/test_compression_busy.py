"""Compressions on machines that other programs slow down."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_compression import TEACHER_MS, compress_command, compress_fast, measurements

from pocketbert_bench.compression import choice, run
from pocketbert_bench.compression.candidates import StudentCandidate
from pocketbert_bench.compression.choice import Choice
from pocketbert_bench.compression.inputs import Inputs
from pocketbert_bench.compression.rungs import Rungs
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.quantization.scored_texts import Loss
from pocketbert_export.verification.verify import GateFailed


@pytest.fixture
def inputs(compression_inputs: Path) -> Path:
    return compression_inputs


@pytest.fixture
def compress(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eager: None) -> Callable[..., int]:
    compress_fast(inputs, monkeypatch, any_model=True)
    return compress_command(inputs, tmp_path / "out", monkeypatch)


def latency(candidate: StudentCandidate) -> float:
    return candidate.cost.latency_ms


def result(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "out" / "result.json").read_text())
    return content


def test_wide_intervals_are_measured_again_and_named(
    compress: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[Bundle] = []
    measure = measurements(interval=0.2)
    monkeypatch.setattr(
        "pocketbert_bench.compression.measurements.measure",
        lambda bundle, *_, **__: calls.append(bundle) or measure(bundle),
    )
    assert compress("--trials=1", "--max-latency-ms=9") == 0
    assert len(calls) == 4
    assert any(note.startswith("the machine is busy") for note in result(tmp_path)["notes"])


@pytest.mark.one_of_each("True")
@pytest.mark.parametrize("late", [False, True])
def test_uncertain_candidates_come_first_if_it_is_too_late_for_others(
    late: bool, compress: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    measure = measurements(slower=1.5, teacher_slower=1.5)
    monkeypatch.setattr("pocketbert_bench.compression.measurements.measure", measure)
    monkeypatch.setattr(Rungs, "preferred", lambda _, all_of_them: sorted(all_of_them[:6], key=latency, reverse=True))
    spare = -1.0 if late else 1.0
    monkeypatch.setattr(run, "Choice", lambda inputs, folder, ms, _: Choice(inputs, folder, ms, lambda: spare))
    limit = TEACHER_MS / 0.92 + 1e-6
    assert compress("--trials=6", f"--max-latency-ms={limit}") == 0
    assert (result(tmp_path)["latency_ms"][0] > limit) == ("is not certain" in result(tmp_path)["sentence"]) == late


@pytest.mark.parametrize("of_teacher", [1.5, 1.04])
def test_a_machine_that_becomes_slower_does_not_lose_the_result(
    of_teacher: float, compress: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    # One layer of the teacher takes 0.92 of this limit by its predicted costs.
    limit = TEACHER_MS / 2 / 0.92 + 1e-6
    measure = measurements(interval=0.04, slower=1.5, teacher_slower=of_teacher)
    monkeypatch.setattr("pocketbert_bench.compression.measurements.measure", measure)
    if of_teacher < 1.5:
        assert compress("--trials=1", f"--max-latency-ms={limit}") == 1
        assert "no trained candidate met limits and gate" in capsys.readouterr().err.splitlines()[-1]
        return
    assert compress("--trials=1", f"--max-latency-ms={limit}") == 0
    start, now = f"{TEACHER_MS:.3g} ms by measurements for predictions", f"{1.5 * TEACHER_MS:.3g} ms now"
    verdict, separator, sentence = result(tmp_path)["sentence"].partition(": ")
    assert (verdict, separator) == ("not learned from this many examples", ": ")
    assert sentence.startswith(f"the limit of {limit:g} ms is not certain, since the machine has become slower: ")
    assert f"the teacher took {start}, and takes {now}: {1.5 * TEACHER_MS / 2:.2f} ms at 16 tokens" in sentence


class Refused(GateFailed):
    def __init__(self) -> None:
        Exception.__init__(self, "the outputs differ")


@pytest.mark.parametrize(("spare", "exports"), [(-119.0, 3), (-121.0, 1)])
def test_exports_end_at_a_fifth_more_than_the_time(
    spare: float, exports: int, compress: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    real, exported = choice.export, list[Path]()

    def export(model: Path, path: Path, **options: Any) -> Bundle:
        if path.parent.name == "exports":
            exported.append(path)
            raise Refused
        return real(model, path, **options)

    def make(inputs: Inputs, folder: Path, teacher_ms: float, _: Any) -> Choice:
        return Choice(dataclasses.replace(inputs, minutes=10.0), folder, teacher_ms, lambda: spare)

    monkeypatch.setattr(choice, "export", export)
    # The dev split tells the candidates apart, so the better one is exported first.
    monkeypatch.setattr(choice, "paired_loss", lambda *_: Loss(3.0, (1.0, 5.0)))
    monkeypatch.setattr(run, "Choice", make)
    assert compress("--trials=2", "--max-latency-ms=9") == 1
    # Two weights of the best candidate, and one of the other.
    assert len(exported) == exports
    message = capsys.readouterr().err.splitlines()[-1]
    assert ("the time was over before all candidates were exported; raise" in message) == (exports == 1)
