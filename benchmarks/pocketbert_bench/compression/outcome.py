"""Result of a compression, and how its bundle is measured beside the teacher's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.data.batches import EncodedExamples
from pocketbert.data.examples import LabelledData
from pocketbert.errors import UserError
from pocketbert.tasks.base import Outputs
from pocketbert.tasks.predictor import Predictor
from pocketbert_bench.compression.constraints import Cost
from pocketbert_bench.network_latency import Device
from pocketbert_bench.statistics import bootstrap_median
from pocketbert_export.bundles.bundle import MODEL_FILE, Bundle
from pocketbert_export.quantization.scored_texts import Loss, paired


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompressResult:
    """Result of a finished compression.

    Attributes:
      bundle_directory: the verified bundle.
      model_directory: its float model.
      report: the page.
      main_metric: metric of the scores.
      metrics: metrics of the bundle on the final split.
      interval: 95 % interval of the main metric.
      teacher_score: main metric of the teacher's bundle on the final split.
      teacher_dev_score: the same on the dev split, to compare with the leaderboard.
      points_lost: points lost against the teacher's bundle on the final split, with the ends of the paired 95 %
        interval.
      latency_ms: measured median latency, with the ends of its 95 % interval.
      teacher_latency_ms: median latency of the teacher's bundle in the same run.
      size_mb: size of model.tflite, in MB of 10⁶ bytes.
      memory_mb: peak of resident memory, in MB of 10⁶ bytes; 0 if the device does not report it.
      lengths: tokens of the measured texts.
      shares: share of each length in the latency, which is a mean over the texts.
      sentence: the answer in one sentence.
      outcome: score on the final split with its interval, baselines and verdict, as
        `pocketbert.tasks.scores.Scores.outcome` gives it.
      notes: remarks on the choice, the measurement and the outcome.
      leaderboard: one row for each candidate that was trained, the best first.
      minutes: the budget, or None.
      trials: the budget, or None.
      seconds: duration of all attempts.
      training_seconds: seconds of it in steps and evaluations of teacher and candidates, without those of folds.
    """

    bundle_directory: str
    model_directory: str
    report: str
    main_metric: str
    metrics: dict[str, float]
    interval: Sequence[float]
    teacher_score: float
    teacher_dev_score: float
    points_lost: Sequence[float]
    latency_ms: Sequence[float]
    teacher_latency_ms: float
    size_mb: float
    memory_mb: float
    lengths: Sequence[int]
    shares: Sequence[float]
    sentence: str
    outcome: dict[str, Any]
    notes: Sequence[str]
    leaderboard: list[dict[str, Any]]
    minutes: float | None
    trials: int | None
    seconds: float
    training_seconds: float

    @property
    def bundle(self) -> Bundle:
        """The bundle, opened."""
        return Bundle.open(Path(self.bundle_directory))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """Median latency with its 95 % interval, the teacher's median in the same rounds, size, memory, and runtime."""

    latency_ms: tuple[float, float, float]
    teacher_ms: float
    size_mb: float
    memory_mb: float
    runtime: str = ""

    @property
    def upper(self) -> Cost:
        """The costs, with the upper end of the latency's interval."""
        return Cost(latency_ms=self.latency_ms[2], size_mb=self.size_mb, memory_mb=self.memory_mb)


def measure(
    bundle: Bundle, teacher: Bundle, shares: Mapping[int, float], *, device: Device, threads: int, folder: Path
) -> Measured:
    """Measures a bundle and the teacher's in interleaved rounds.

    Args:
      bundle: the bundle.
      teacher: the teacher's bundle.
      shares: length in tokens → share in the mean latency. The ends of its interval are means of the ends of each
        length, so the interval is rather too wide.
      device: where they run.
      threads: threads of a call.
      folder: keeps what an interrupted call has measured on a phone.

    Raises:
      UserError: a bundle does not run.
    """
    paths = {bundle.directory: "candidate", teacher.directory: "teacher"}
    measurements = device.bench(paths, list(shares), threads, folder)
    if problems := [measurement.error for measurement in measurements if measurement.error]:
        raise UserError(f"the bundles must run to be measured; received: {problems[0]}")
    medians, memory, runtime = {"candidate": np.zeros(3), "teacher": np.zeros(3)}, 0, ""
    for measurement in measurements:
        assert measurement.length is not None
        samples = np.array(measurement.latency_us) / 1e3
        medians[measurement.model] += shares[measurement.length] * np.array(
            [np.median(samples), *bootstrap_median(samples)]
        )
        if measurement.model == "candidate":
            memory = max(memory, measurement.peak_memory_bytes or 0)
            runtime = f"{measurement.runtime.name} {measurement.runtime.version}" if measurement.runtime else ""
    median, low, high = map(float, medians["candidate"])
    return Measured(
        latency_ms=(median, low, high),
        teacher_ms=float(medians["teacher"][0]),
        size_mb=(bundle.directory / MODEL_FILE).stat().st_size / 1e6,
        memory_mb=memory / 1e6,
        runtime=runtime,
    )


def remembering(predictor: Predictor) -> Predictor:
    """A predictor that computes rows only once if it gets the same ones again."""
    known: list[tuple[EncodedExamples, Outputs]] = []

    def forward(encoded: EncodedExamples, *, show_progress: bool = False) -> Outputs:
        if not known or any(
            not np.array_equal(getattr(known[0][0], name), getattr(encoded, name))
            for name in ("word_ids", "type_ids", "offsets")
        ):
            known[:] = [(encoded, predictor.forward(encoded, show_progress=show_progress))]
        return known[0][1]

    return Predictor(predictor.task, forward, predictor.tokenizer, predictor.max_length, **predictor.windows)


def paired_loss(teacher: Predictor, student: Predictor, data: LabelledData, metric: str) -> Loss:
    """Points of a metric lost against the teacher on the same examples, with the paired interval.

    Each network has a tokenizer of its own: a trimmed vocabulary has other ids.
    """
    both = [
        network.task.rows(data, network.tokenizer, network.max_length, **network.windows)
        for network in (teacher, student)
    ]
    of_teacher, of_student = (
        rows.resampled(network.forward(rows.encoded), metric)
        for network, rows in zip((teacher, student), both, strict=True)
    )
    return paired(of_teacher, of_student, len(both[0]))
