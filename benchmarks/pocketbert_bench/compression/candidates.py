"""Candidates: a structure and how it trains. Their training runs in this or in another process."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from pocketbert.data.task_data import TaskData
from pocketbert.distillation.methods.tinybert import TinyBERT
from pocketbert.distillation.planning import plan_distillation
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.finetune import plan_finetuning
from pocketbert.training.grids.points import Point
from pocketbert.training.plan import Plan
from pocketbert.training.run_folder import MODEL_FOLDER
from pocketbert.training.trainer import run_plan
from pocketbert_bench.compression.constraints import Cost
from pocketbert_bench.compression.pace import Deadline
from pocketbert_bench.compression.structures import Structure

# How a candidate trains: on the labels; on the teacher's predictions; on its layers, then on its predictions.
Method = Literal["finetune", "predictions", "tinybert"]
METHODS: tuple[Method, ...] = get_args(Method)
_KINDS_WITHOUT_TEACHER = ("multi_label", "embedding")
# The default of fine-tuning for narrow networks; no study has compared others.
_PREDICTION_RATE = 1e-4
_OPTION = "candidate"
# The first trial also traces graphs in its time; after fewer steps, scores compare nothing.
_LEAST_STEPS = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudentCandidate:
    """A structure, how it trains, and its predicted costs.

    Attributes:
      kind: kind of the structure; see `structures`.
      structure: the structure.
      method: how it trains; see `METHODS`.
      all_heads: whether the structure has as many heads as the teacher.
      recipe: recipe of its file; the training does not depend on it.
      cost: predicted latency, size and memory.
    """

    kind: str
    structure: Structure
    method: Method
    all_heads: bool
    recipe: str
    cost: Cost

    @property
    def name(self) -> str:
        """Name of a folder."""
        return f"{self.structure.name},{self.method}"

    @property
    def without(self) -> tuple[str, ...]:
        """TinyBERT's losses that are left out: those of layers, or those of attention maps if heads are missing."""
        if self.method != "tinybert":
            return ("embedding", "transformer")
        return () if self.all_heads else ("attention",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialData:
    """What all trials share.

    Attributes:
      data: training examples, and the dev split that scores a trial.
      teacher: model directory of the teacher.
      max_length: maximum sequence length.
      deadline: time at which training stops, in seconds since the epoch; None for no limit.
    """

    data: TaskData
    teacher: str
    max_length: int
    deadline: float | None = None


def methods_for(data: TaskData) -> tuple[Method, ...]:
    """Methods that can train a student on a kind of task, the simplest first."""
    return ("finetune",) if data.task.kind in _KINDS_WITHOUT_TEACHER else METHODS


def trial_point(candidate: StudentCandidate, start: Path, epochs: int) -> Point:
    """A trial as the options of a job.

    Args:
      candidate: the candidate.
      start: model directory from which it trains.
      epochs: passes over the training examples.
    """
    return {
        _OPTION: json.dumps(
            {"method": candidate.method, "without": candidate.without, "start": str(start), "epochs": epochs}
        )
    }


def train_trial(shared: TrialData, point: Point, seed: int, folder: Path) -> None:
    """Trains a candidate for some epochs and scores it on the dev split.

    Args:
      shared: what all trials share.
      point: the trial, as `trial_point` gives it.
      seed: random seed.
      folder: run folder; its `result.json` has the scores, its `model/` the weights.

    Raises:
      TrainingFailed: the loss or the outputs are not finite.
    """
    trial = json.loads(str(point[_OPTION]))
    options, run = trial_options(
        trial["method"],
        tuple(trial["without"]),
        trial["epochs"],
        max_length=shared.max_length,
        examples=len(shared.data.train),
        seed=seed,
    )
    if isinstance(options, FinetuneConfig):
        plan: Plan = plan_finetuning(trial["start"], shared.data, options, run)
    else:
        plan = plan_distillation(trial["start"], shared.data, teacher=shared.teacher, method=options, run=run)
    callbacks = [] if shared.deadline is None else [Deadline(shared.deadline, _LEAST_STEPS)]
    run_plan(dataclasses.replace(plan, compares=False), folder, callbacks)


def trial_options(
    method: Method, without: tuple[str, ...], epochs: int, *, max_length: int, examples: int, seed: int
) -> tuple[FinetuneConfig | TinyBERT, RunConfig]:
    """The options of a trial, which a user can pass to `finetune` or `distill`.

    Args:
      method: how the candidate trains.
      without: see `StudentCandidate.without`.
      epochs: passes over the training examples.
      max_length: maximum sequence length.
      examples: number of training examples.
      seed: random seed.
    """
    if method == "finetune":
        config = FinetuneConfig(epochs=epochs, max_length=max_length, contrastive_steps=0, calibrate=False)
        # One evaluation after each epoch, even a short one: the choice needs no finer one.
        return config, RunConfig(seed=seed, evaluation_steps=math.ceil(examples / config.batch_size))
    distillation = TinyBERT(
        max_length=max_length,
        without=without,
        intermediate_epochs=epochs,
        prediction_epochs=epochs,
        prediction_learning_rate=_PREDICTION_RATE,
    )
    return distillation, RunConfig(seed=seed)


def passes(method: Method) -> int:
    """Passes over the examples in one epoch of a trial: TinyBERT has two stages."""
    return 2 if method == "tinybert" else 1


def trained_model(folder: Path) -> Path:
    """Model directory of a finished trial."""
    return folder / MODEL_FOLDER


def in_order(candidates: Sequence[StudentCandidate], most_ms: Sequence[float]) -> list[StudentCandidate]:
    """Candidates in the order of trials: the slowest of each kind below each latency, the simplest method first.

    Args:
      candidates: candidates within the limits.
      most_ms: latencies; several of them spread the trials over fast and slow networks.
    """
    ordered: dict[str, StudentCandidate] = {}
    for method in METHODS:
        slowest: list[list[StudentCandidate]] = []
        for most in most_ms:
            of_kind: dict[str, StudentCandidate] = {}
            for candidate in candidates:
                best = of_kind.get(candidate.kind)
                fits = candidate.method == method and candidate.cost.latency_ms <= most
                if fits and (best is None or candidate.cost.latency_ms > best.cost.latency_ms):
                    of_kind[candidate.kind] = candidate
            slowest.append(sorted(of_kind.values(), key=lambda candidate: -candidate.cost.latency_ms))
        for row in itertools.zip_longest(*slowest):
            ordered |= {candidate.name: candidate for candidate in row if candidate and candidate.name not in ordered}
    return list(ordered.values())
