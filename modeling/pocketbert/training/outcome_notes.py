"""Signs that a run ended with a weak model, and simple methods to compare it with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pocketbert.data.data_warnings import FOREIGN_WORDS, DataWarning
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert.tasks.registry import supervised_task
from pocketbert.tasks.scores import Baseline, Scores
from pocketbert.tasks.simple_methods import Vectors
from pocketbert.training.run_folder import read_log

# Mean top probability above chance, below which probabilities say nothing.
_FLAT = 0.15
# Ratio between the last two dev losses: below it, more steps would help.
_FALLING = 0.97


def simple_methods(data: Any, main_metric: str, vectors: Vectors | None = None) -> list[Baseline]:
    """Scores simple methods on the dev split; see `SupervisedTask.simple_methods`."""
    log_info("scoring simple methods on the dev split, to compare with")
    return supervised_task(data.task).simple_methods(data.train, data.dev, main_metric, vectors)


def with_notes(
    scores: Scores,
    methods: Sequence[Mapping[str, Any]],
    notes: Sequence[str],
    data: Sequence[str],
    sources: Sequence[object],
    cause: str | None = None,
) -> Scores:
    """Adds simple methods and warnings to a run's scores.

    Args:
      scores: dev scores.
      methods: `Baseline` fields.
      notes: signs of weak training.
      data: data warnings.
      sources: data files. A result does not name them: it is the same if they move.
      cause: see `Scores`.
    """
    texts = [str(note) for note in data]
    for source in sources:
        texts = [text.removeprefix(f"{source}: ") for text in texts]
    return dataclasses.replace(
        scores,
        baselines=tuple(Baseline(**method) for method in methods),
        notes=tuple(notes),
        cause=cause,
        data_notes=tuple(texts),
        foreign=any(isinstance(note, DataWarning) and note.kind in FOREIGN_WORDS for note in data),
    )


def flat_notes(evaluator: Any, classes: Sequence[str], whose: str = "the") -> list[str]:
    """Warns if the last evaluation's probabilities are hardly better than chance."""
    top = getattr(evaluator, "top_probability", None)
    if top is None or not classes or top >= 1 / len(classes) + _FLAT:
        return []
    remedy = "train the teacher longer first" if whose != "the" else "use more examples or more epochs"
    return [
        f"{whose} probabilities are flat: the best of {len(classes)} classes has {top:.2f} on average, and chance is "
        f"{1 / len(classes):.2f}; {remedy}"
    ]


def falling_notes(folder: Path, stage: str) -> list[str]:
    """Warns if a stage's dev loss fell to the end."""
    losses = [
        line["loss"]
        for line in read_log(folder)
        if line.get("split") == "dev" and line.get("stage", "") == stage and "loss" in line
    ]
    if len(losses) < 2 or losses[-1] > min(losses) or losses[-1] >= _FALLING * losses[-2]:
        return []
    return [f"the dev loss was still falling, from {losses[-2]:.4f} to {losses[-1]:.4f}; try more epochs"]


def teacher_notes(scores: Scores, teacher: float | None) -> list[str]:
    """Warns if a student is more than two standard errors below its teacher."""
    if teacher is None or teacher - scores.score <= 2 * scores.standard_error:
        return []
    layers = argument("teacher_layers", python="pb.TeacherLayers(…)")
    return [
        f"the student is far below its teacher: {scores.main_metric} {scores.score:.4f} against {teacher:.4f}; start "
        f"from the teacher's layers ({layers}), or use more examples or epochs"
    ]
