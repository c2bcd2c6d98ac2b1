"""Models for GLUE tasks, given on the command line as `task=path`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pocketbert.data.examples import Examples
from pocketbert.data.readers.glue import GLUE
from pocketbert.errors import UserError, raise_if_any
from pocketbert.notation import argument
from pocketbert.tasks.texts import TextTask
from pocketbert_export.bundles.predictors import open_predictor
from pocketbert_export.checks.label_order import logit_positions


class GlueModel:
    """A model directory or bundle for one GLUE task.

    Raises:
      UserError: the folder is neither, or its labels differ from the task's.
    """

    def __init__(self, task: str, path: str) -> None:
        self._predictor = open_predictor(path)
        try:
            self._positions = logit_positions(self._predictor.task.config, GLUE[task].task)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None

    def predictions(self, examples: Examples) -> np.ndarray:
        """Predicts class indices in the task's order, or scores, `[N]`; a `UserError` if an output is not finite."""
        logits = self._predictor.logits(examples.texts, examples.pairs, show_progress=True)
        if not len(self._positions):
            return logits
        task = self._predictor.task
        assert isinstance(task, TextTask)
        decided: np.ndarray = np.argsort(self._positions)[task.decide(logits)]
        return decided


def parse_models(texts: Sequence[str]) -> dict[str, str]:
    """Parses `--model=TASK=PATH`, repeated, to task → path in GLUE's order; a `UserError` lists all problems."""
    problems = []
    models: dict[str, str] = {}
    for text in texts:
        task, _, path = text.partition("=")
        if not path:
            problems.append(f"{argument('model')} must be TASK=PATH, such as sst2=runs/sst2/model; received {text}")
        elif task not in GLUE:
            problems.append(f"no GLUE task {task!r}; the tasks are {', '.join(GLUE)}")
        elif task in models:
            problems.append(f"give one model per task; received {models[task]} and {path} for {task}")
        models.setdefault(task, path)
    raise_if_any(problems, "models")
    return {task: models[task] for task in GLUE if task in models}


def check_models(models: Mapping[str, str]) -> None:
    """Opens each model once before hours of work; a `UserError` lists all that cannot predict their tasks."""
    problems = []
    for task, path in models.items():
        try:
            GlueModel(task, path)
        except UserError as error:
            problems.append(f"{task}: {error}")
    raise_if_any(problems, "models")
