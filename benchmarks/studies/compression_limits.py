"""Whether `pocketbert compress` keeps its limits and its time: 20 runs on three tasks.

Six runs compress all-MiniLM-L6-v2. The others compress a small network, so they show limits and not scores. Each limit
is a share of the teacher's latency; half of the runs have limits of size and memory, too. After a run, its bundle and
the teacher's are measured again, in turns. The study takes about an hour on two cores; it keeps finished runs and
resumes. Close other programs first.

    python -m studies compression_limits
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pocketbert as pb
from pocketbert.data.assets import minilm
from pocketbert.data.task_data import TaskData
from pocketbert.errors import raise_if_any
from pocketbert_bench import host, results
from pocketbert_bench.compression.measurements import round_ratio
from pocketbert_export.bundles.bundle import MODEL_FILE, Bundle
from studies.glue_examples import task_data
from studies.jobs import StudyJob, run_jobs
from studies.names_corpus import write_corpus
from studies.quantized import any_outputs
from studies.shared_data import shared_data

LENGTH = 48
# Limit and time, and how far a second measurement of the ratio to the teacher may be from the first.
MOST_MINUTES, MOST_DIFFERENCE = 1.1, 0.05
_FOLDER = Path("runs/compression_limits")
_SMALL = {"hidden_size": 256, "num_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
# Of the teacher's file and of the memory of its process.
_SIZE, _MEMORY = 0.75, 0.98
_SHARES = {"sst2": (0.15, 0.3, 0.45, 0.6, 0.8), "stsb": (0.15, 0.3, 0.45, 0.6, 0.8), "names": (0.2, 0.4, 0.6, 0.8)}
_REAL_SHARES = (0.25, 0.6)
# Examples for the head of a teacher whose latency counts, and not its answers.
_FEW = 64


@dataclasses.dataclass(frozen=True)
class CompressedCase:
    """A run.

    Attributes:
      task: key of `DATA`.
      share: limit of the latency, as a share of the teacher's.
      sizes: whether size and memory have limits, too.
      real: whether the teacher is all-MiniLM-L6-v2, which the run fine-tunes.
    """

    task: str
    share: float
    sizes: bool
    real: bool

    @property
    def name(self) -> str:
        """Name of the run."""
        return f"{self.task}, {'all-MiniLM-L6-v2' if self.real else 'small network'}, {self.share:g}"

    @property
    def teacher(self) -> str:
        """Name of the teacher."""
        return f"{self.task}-real" if self.real else self.task

    @property
    def minutes(self) -> float:
        """Time of the run; with a limit of the size, two recipes are measured first."""
        if self.real:
            return 4.0
        return 1.75 if self.sizes else 1.25


def run(quick: bool) -> dict[str, Any]:
    """Makes all runs; returns for each the used share of every limit."""
    cases = all_cases()[:1] if quick else all_cases()
    threads = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if quick else _FOLDER
        jobs = [
            StudyJob(name=f"teacher-{case.teacher}", call=teach, arguments=(case, folder), threads=threads)
            for case in {case.teacher: case for case in cases}.values()
        ]
        jobs += [
            StudyJob(
                name=case.name,
                call=compress,
                arguments=(case, folder),
                needs=(f"teacher-{case.teacher}",),
                threads=threads,
            )
            for case in cases
        ]
        done, failed = run_jobs(jobs, folder, processes=1)
    raise_if_any([f"{name}: {reason}" for name, reason in failed.items()], "compression limits")
    ratios = [_ratio(f"{case.name}, {what}", *pair) for case in cases for what, pair in done[case.name].items()]
    title = "limits and times of pocketbert compress"
    return results.to_json(results.result_file(title, quick=quick, ratios=ratios))


def all_cases() -> list[CompressedCase]:
    """The runs; every second one also has limits of size and memory."""
    pairs = [(task, share, False) for task, shares in _SHARES.items() for share in shares]
    pairs += [(task, share, True) for share in _REAL_SHARES for task in _SHARES]
    return [
        CompressedCase(task, share, sizes=number % 2 == 1, real=real)
        for number, (task, share, real) in enumerate(pairs)
    ]


def teach(case: CompressedCase, folder: Path) -> None:
    """Trains and exports the teacher of some runs; the latency of its bundle gives their limits."""
    data, path, model = DATA[case.task](), folder / "teachers" / case.teacher, pb.from_pretrained(minilm())
    if case.real:
        data = dataclasses.replace(data, train=data.train.select(range(_FEW)))
    else:
        config = model.config.replace(embedding_size=_SMALL["hidden_size"], **_SMALL)
        model = pb.from_preset(config, (), model.tokenizer)
    options = pb.FinetuneConfig(epochs=1, max_length=LENGTH)
    trained = pb.finetune(model, data, path / "run", config=options, run=pb.RunConfig(overwrite=True))
    # What it answers does not matter.
    bounds = any_outputs()
    pb.export(
        trained.model_directory, path / "bundle", lengths=(LENGTH,), examples=data.dev, bounds=bounds, overwrite=True
    )


def compress(case: CompressedCase, folder: Path) -> dict[str, tuple[float, float]]:
    """Compresses; returns what was used and its limit, by name."""
    path = folder / "teachers" / case.teacher
    teacher = Bundle.open(path / "bundle")
    (costs,) = _measured({teacher.directory: "teacher"})
    limits = pb.Constraints(
        max_latency_ms=case.share * float(np.median(costs.latency_us)) / 1e3,
        length=LENGTH,
        max_mb=_SIZE * (teacher.directory / MODEL_FILE).stat().st_size / 1e6 if case.sizes else None,
        max_memory_mb=_MEMORY * (costs.peak_memory_bytes or 0) / 1e6 if case.sizes else None,
    )
    output = folder / "runs" / case.name.replace(", ", "-")
    model = None if case.real else path / "run" / "model"
    result = pb.compress(model, DATA[case.task](), output, constraints=limits, minutes=case.minutes, overwrite=True)
    bundle = result.bundle
    ours, peer = _measured({bundle.directory: "compressed", output / "teacher_bundle": "teacher"})
    again = round_ratio(ours, peer)
    used: dict[str, tuple[float, float]] = {
        "latency": (result.latency_ms[2], limits.max_latency_ms or 0.0),
        "latency again": (again, result.latency_ms[0] / result.teacher_latency_ms),
        "time": (result.seconds, 60 * case.minutes),
    }
    if limits.max_mb is not None and limits.max_memory_mb is not None:
        used["size"] = ((bundle.directory / MODEL_FILE).stat().st_size / 1e6, limits.max_mb)
        used["memory"] = ((ours.peak_memory_bytes or 0) / 1e6, limits.max_memory_mb)
    return used


def _measured(bundles: dict[Path, str]) -> list[results.Measurement]:
    """Measures bundles in turns, in the order of `bundles`."""
    measured = host.bench_bundles(list(bundles), lengths=[LENGTH], threads=[1], weights="trained", names=bundles)
    by_name = {measurement.model: measurement for measurement in measured.measurements}
    return [by_name[name] for name in bundles.values()]


def _ratio(name: str, used: float, limit: float) -> results.Ratio:
    what = name.rpartition(", ")[2]
    targets = {"time": MOST_MINUTES, "latency again": 1 + MOST_DIFFERENCE}
    units = {"latency": "ms", "latency again": "of the teacher's latency", "time": "s"}
    return results.ratio(
        name=name,
        description=f"{what} of a run, and its limit; again: of a second measurement, and of the run's own",
        ours="used",
        peer="limit",
        unit=units.get(what, "MB"),
        ours_samples=[used],
        peer_samples=[limit],
        better="lower",
        target=targets.get(what, 1.0),
    )


def _names() -> TaskData:
    with tempfile.TemporaryDirectory() as name:
        train, dev = write_corpus(shared_data("text/enwiki2015-train.txt.xz"), Path(name), 14)
        return pb.data.tagged(train, dev=dev)


DATA: dict[str, Callable[[], TaskData]] = {
    "sst2": lambda: task_data("sst2", 2000),
    "stsb": lambda: task_data("stsb"),
    "names": _names,
}
