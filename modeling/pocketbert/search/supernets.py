"""A search's supernets: a frozen one for stages 1 and 2, a learning one for stage 3."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pocketbert.checkpoints.supernet import supernet_config
from pocketbert.configs import EncoderConfig
from pocketbert.data.task_data import TaskData, TextData
from pocketbert.distillation.initialization import SupernetSlices
from pocketbert.distillation.methods.efficientbert import EfficientBERT
from pocketbert.distillation.plan import DistillationPlan
from pocketbert.distillation.planning import plan_distillation
from pocketbert.distillation.run import distill_planned
from pocketbert.errors import UserError
from pocketbert.progress import log_info
from pocketbert.search.config import SearchConfig
from pocketbert.search.folder import LEARNING_SUPERNET_FOLDER, SUPERNET_FOLDER
from pocketbert.search.space import SearchSpace
from pocketbert.search.supernet_tasks import SupernetTask
from pocketbert.search.supernet_training import train_supernet
from pocketbert.training.config import RunConfig
from pocketbert.training.initialization import plan_model
from pocketbert.training.run_folder import MODEL_FOLDER


@dataclasses.dataclass(frozen=True, kw_only=True)
class Supernets:
    """Trains a search's supernets.

    Attributes:
      base: base architecture.
      data: the task and the examples for training supernets.
      text: plain text, or None.
      teacher: the teacher's model directory.
      text_teacher: model directory of the teacher for plain text.
      config: search options, resolved.
      tasks: other tasks for the stage 3 supernet.
      supernet: model directory of a warmed-up supernet, or None.
    """

    base: EncoderConfig
    data: TaskData
    text: str | None
    teacher: str
    text_teacher: str
    config: SearchConfig
    tasks: Sequence[SupernetTask] = ()
    supernet: Path | None = None

    def frozen(self, folder: Path) -> Path:
        """Warms up the complete supernet for stages 1 and 2, unless you give one; returns its model directory.

        Args:
          folder: the search folder.
        """
        if self.supernet:
            return self.supernet
        log_info("warming up the supernet")
        return self._distill(supernet_config(self.base), self._first_data, folder / SUPERNET_FOLDER)

    def learning(self, folder: Path, space: SearchSpace) -> Path:
        """Warms up the stage 3 supernet, trains it with one candidate per step, and returns its model directory.

        Args:
          folder: the search folder.
          space: stage 3 space, with the operations to keep.
        """
        log_info("warming up the supernet of stage 3")
        root, winner = folder / LEARNING_SUPERNET_FOLDER, space.config(space.winner)
        # Without constraints, the draw is uniform.
        drawn = space if space.constraints else None
        start = SupernetSlices(
            self.supernet or folder / SUPERNET_FOLDER / MODEL_FOLDER, supernet_config(winner, keep_operations=True)
        )
        directory = self._distill(start, self._first_data, root / "warmed_up")
        log_info("training the supernet of stage 3 with one candidate per step")
        if self.text:
            text = TextData(self.text)
            train_supernet(
                directory,
                text,
                root / "pretrained",
                teacher=self.text_teacher,
                method=self.method(text),
                run=self._run,
                space=drawn,
            )
            directory = root / "pretrained" / MODEL_FOLDER
        data: Any = self.data
        teacher: str | None = self.teacher
        if self.tasks:
            data, teacher = [SupernetTask(data=data, teacher=self.teacher), *self.tasks], None
        method = self.method(self.data)
        train_supernet(directory, data, root / "finetuned", teacher=teacher, method=method, run=self._run, space=drawn)
        return root / "finetuned" / MODEL_FOLDER

    def plan(self, student: EncoderConfig | SupernetSlices, data: TaskData | TextData) -> DistillationPlan:
        """Plans to warm up a complete supernet on some data; see `plan_distillation`."""
        teacher = self.text_teacher if isinstance(data, TextData) else self.teacher
        return plan_distillation(student, data, teacher=teacher, method=self.method(data), run=self._run)

    def method(
        self, data: TaskData | TextData, *, epochs: int | None = None, steps: int | None = None
    ) -> EfficientBERT:
        """Makes the method for examples or plain text; the default duration is the supernets'."""
        config, text = self.config, isinstance(data, TextData)
        return EfficientBERT(
            batch_size=config.text_batch_size if text else config.batch_size,
            learning_rate=config.text_learning_rate if text else config.learning_rate,
            max_length=config.max_length,
            epochs=config.supernet_epochs if epochs is None and steps is None else epochs,
            steps=steps,
        )

    @property
    def _first_data(self) -> TaskData | TextData:
        return TextData(self.text) if self.text else self.data

    @property
    def _run(self) -> RunConfig:
        return RunConfig(seed=self.config.seed)

    def _distill(self, student: EncoderConfig | SupernetSlices, data: TaskData | TextData, folder: Path) -> Path:
        distill_planned(self.plan(student, data), folder)
        return folder / MODEL_FOLDER


def check_supernet(directory: Path, config: EncoderConfig) -> None:
    """Raises a `UserError` if a model directory is not the search's supernet."""
    received = dataclasses.asdict(plan_model(directory).config)
    differ = [name for name, value in dataclasses.asdict(config).items() if received[name] != value]
    if differ:
        raise UserError(
            f"search: the supernet must have the architecture of this search's own; {directory} differs in "
            f"{', '.join(differ)}; give supernet/model of a search with the same student, or leave it out"
        )
