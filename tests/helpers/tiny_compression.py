"""A compression of a tiny teacher with predicted and measured costs that are simple formulas."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cheap_tensorflow
import pytest
import scipy.stats
import tiny
import tiny_finetuning

import pocketbert as pb
from pocketbert.checkpoints.directory import describe_directory
from pocketbert.checkpoints.name_maps import parameter_count
from pocketbert.cli import main
from pocketbert.training.grids.points import Point
from pocketbert.training.state import digest_directory
from pocketbert_bench.compression import choice, final_scores, run, rungs, students, teacher
from pocketbert_bench.compression.costs import CostModel, LengthModel
from pocketbert_bench.compression.measurements import Measured
from pocketbert_bench.compression.methods import TrialData, passes
from pocketbert_bench.compression.trial_examples import trial_steps
from pocketbert_export import exporter
from pocketbert_export.bundles.bundle import Bundle

TEACHER = tiny.BERT.replace(num_layers=2, initializer_range=0.1)
# A layer takes 1 ms, each of its heads 0.1 ms, and each of its neurons 0.01 ms.
COSTS = CostModel(
    first_token=False,
    latency=[LengthModel(length=16, coefficients=[0.0, 1.0, 0.1, 0.01, 0.0, 0.0, 0.0])],
    size=[1.0] + 4 * [0.0],
    memory=[9.0] + 4 * [0.0],
)


TEACHER_MS = 2 * (1 + 0.1 * TEACHER.num_attention_heads + 0.01 * TEACHER.intermediate_size)


def measurements(interval: float = 0.01, slower: float = 1.0, teacher_slower: float = 1.0) -> Callable[..., Measured]:
    """Latencies by the structure in the name of a bundle's folder, on a machine that may be slower than at first."""

    def measure(bundle: Bundle, *_: Any, **__: Any) -> Measured:
        parts = dict(part.split("=") for part in bundle.directory.name.split(",")[:3])
        layers, heads, neurons = len(parts["layers"].split("-")), int(parts["heads"]), int(parts["neurons"])
        milliseconds = slower * layers * (1 + 0.1 * heads + 0.01 * neurons)
        half = interval * milliseconds
        latency = (milliseconds, milliseconds - half, milliseconds + half)
        teacher_ms = teacher_slower * TEACHER_MS
        return Measured(latency_ms=latency, teacher_ms=teacher_ms, size_mb=1.0, memory_mb=9.0)

    return measure


# Steps of a first rung: an epoch of 500 examples, or a few of the folds.
STEPS = 6


def train_briefly(monkeypatch: pytest.MonkeyPatch, steps: int = STEPS) -> None:
    """First rungs of candidates have so many steps, rounded up to whole epochs."""
    monkeypatch.setattr(rungs, "_STEPS", steps)


# Exports and teachers of all modules, by what determines them.
_MADE: dict[str, Path] = {}


def export_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, any_data: bool = False, any_model: bool = False
) -> None:
    """Equal exports of compressions are made once; `folder` keeps them.

    Args:
      folder: the folder.
      monkeypatch: replaces the export.
      any_data: exports on other examples are equal, too: examples decide scores and checks, and not the file.
      any_model: exports of other models are equal, too, for tests that do not call the file.
    """

    def kept_export(
        model: Path, path: Path, *, examples: pb.TaskData, lengths: Sequence[int], **options: Any
    ) -> Bundle:
        options |= {"lengths": [*lengths]}
        data = "" if any_data else f"{examples.train.identity} {examples.dev.identity}"  # type: ignore[union-attr]
        settings = f"{folder if any_model else digest_directory(model)} {data} {sorted(options.items())}"
        if settings not in _MADE:
            made = folder / hashlib.sha256(settings.encode()).hexdigest()
            folder.mkdir(exist_ok=True)
            exporter.export(model, made, examples=examples, **options)
            _MADE[settings] = made
        shutil.copytree(_MADE[settings], path)
        return Bundle.open(path)

    monkeypatch.setattr(choice, "export", kept_export)


def finetune_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal teachers are trained once; `folder` keeps them."""

    def kept_finetune(model: Path, data: pb.TaskData, output: Path, **options: Any) -> pb.FinetuneResult:
        examples = f"{data.train.identity} {data.dev.identity}"  # type: ignore[union-attr]
        settings = f"{digest_directory(model)} {examples} {sorted(options.items())}"
        if settings not in _MADE:
            made = folder / hashlib.sha256(settings.encode()).hexdigest()
            pb.finetune(model, data, made, **options)
            _MADE[settings] = made
        if not output.exists():
            shutil.copytree(_MADE[settings], output)
        # The finished run.
        return pb.finetune(model, data, output, **options)

    monkeypatch.setattr(teacher, "finetune", kept_finetune)


def measure_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs are `COSTS` and `measurements`."""
    monkeypatch.setattr(run, "measured_costs", lambda _: {"dynamic_wi8": COSTS})
    monkeypatch.setattr("pocketbert_bench.compression.measurements.measure", measurements())


def write_inputs(folder: Path) -> Path:
    """A teacher, and tables of 560 and 150 examples."""
    tokenizer = pb.from_pretrained(tiny_finetuning.write_model(folder / "encoder", TEACHER)).tokenizer
    pb.from_preset(TEACHER, tiny_finetuning.TASK, tokenizer, seed=4).save_pretrained(folder / "teacher")
    for name, count in (("train", 560), ("few", 150)):
        tiny_finetuning.write_table(folder / f"{name}.csv", tiny_finetuning.examples(count, seed=1))
    return folder


def compress_fast(inputs: Path, monkeypatch: pytest.MonkeyPatch, *, any_model: bool = False) -> None:
    """Trials keep the weights of their structure; equal exports are made once, whatever their examples.

    Larger structures and later rungs score more.

    Args:
      inputs: the folder of `write_inputs`, which keeps the exports.
      monkeypatch: replaces training and export.
      any_model: see `export_once`.
    """

    def train(shared: TrialData, point: Point, seed: int, folder: Path) -> None:
        trial = json.loads(str(point["candidate"]))
        shutil.copytree(trial["start"], folder / "model")
        size = parameter_count(describe_directory(folder / "model").config) / parameter_count(TEACHER)
        score = 0.8 + 0.1 * size - 0.001 * len(trial["method"]) + 0.001 * int(folder.name[-1])
        interval = scipy.stats.binomtest(round(100 * score), 100).proportion_ci(method="wilson")
        unlabelled = trial.get("unlabelled", False)
        steps = passes(trial["method"]) * trial_steps(shared.data, trial["epochs"], unlabelled=unlabelled)
        metrics = {"accuracy": score}
        result = {"main_metric": "accuracy", "metrics": metrics, "best_step": steps, "steps": steps, "seconds": 1.0}
        result["outcome"] = {"interval": list(interval)}
        (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
        line = {"step": steps, "split": "dev", **metrics, "loss": 1 - score}
        (folder / "metrics.jsonl").write_text(f"{json.dumps(line)}\n", encoding="utf-8")

    monkeypatch.setattr(rungs, "train_trial", train)
    monkeypatch.setattr(students, "_MOST_EXAMPLES", 32)
    # A batch is not worth a graph.
    monkeypatch.setattr(students, "measure_importance", cheap_tensorflow.eager()(students.measure_importance))
    export_once(inputs / "exports", monkeypatch, any_data=True, any_model=any_model)


def compress_command(inputs: Path, output: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`pocketbert compress` with these costs, few steps and some options."""
    measure_nothing(monkeypatch)
    train_briefly(monkeypatch)
    if choice.export is exporter.export:
        export_once(inputs / "exports", monkeypatch)
    for module in (choice, final_scores):
        monkeypatch.setattr(module, "simple_methods", lambda *_: [])

    def command(*options: str, table: str = "train") -> int:
        start = ["compress", f"--model={inputs / 'teacher'}", f"--train-file={inputs / table}.csv", "--length=16"]
        return main([*start, *options, f"--output={output}"])

    return command
