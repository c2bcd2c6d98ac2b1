"""Fine-tuning: one stage that trains a head on the labels of a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from pocketbert.configs import TaskConfig
from pocketbert.files import write_text
from pocketbert.tasks.scores import Scores
from pocketbert.training.config import FinetuneConfig
from pocketbert.training.label_losses import labels_loss
from pocketbert.training.objective import Adapters, Batch, Features, Objective, Targets
from pocketbert.training.run_folder import REPORT_FILE
from pocketbert.training.score_report import page
from pocketbert.training.stage import Epochs, OptimizerConfig, Stage
from pocketbert.training.trainer import Trainer


@dataclass(frozen=True, kw_only=True, eq=False)
class Finetuning(Objective):
    """The loss of the labels (Devlin et al. 2019, BERT, section 3.2, https://arxiv.org/abs/1810.04805).

    Attributes:
      class_weights: float32 `[classes]`, weight of each class in the loss; None for 1.
    """

    name: ClassVar[str] = "finetuning"
    class_weights: np.ndarray | None = None

    def loss(
        self, stage: Stage, targets: Targets, model: Features, adapters: Adapters, batch: Batch
    ) -> Mapping[str, tf.Tensor]:
        """`labels`: cross-entropy for classes and spans, squared difference for scores; see `Task.loss`."""
        labels = batch["labels"]
        weights = None if self.class_weights is None else tf.gather(tf.constant(self.class_weights), labels)
        return {"labels": labels_loss(stage, model, batch, weights)}


def label_stage(task: TaskConfig, **fields: Any) -> Stage:
    """A stage that trains a head on labels and keeps the best weights; `fields` are other fields of `Stage`."""
    labels: dict[str, Any] = {"student_features": {"logits": ()}, "weights": {"labels": 1.0}, "data": "task"}
    return Stage(**{**labels, "task": task, "keep": "best", **fields})


def finetuning_stage(config: FinetuneConfig, task: TaskConfig) -> Stage:
    """The stage of a fine-tuning."""
    return label_stage(
        task,
        name="",
        max_length=config.max_length,
        duration=Epochs(config.epochs),
        batch_size=config.batch_size,
        optimizer=OptimizerConfig(
            learning_rate=config.learning_rate,
            schedule=config.schedule,
            warmup_ratio=config.warmup_ratio,
            weight_decay=config.weight_decay,
            clip_norm=config.clip_norm or None,
        ),
    )


class Finetuner(Trainer):
    """Trainer of a fine-tuning. It adds the outcome and scores per class to the result, and writes a report."""

    def scores(self) -> dict[str, Any]:
        """See `Trainer`; adds scores per class and writes `report.html`."""
        state, dev = self.state, self.plan.data.given.dev
        evaluator: Any = self.evaluator(self.plan.stages[-1])
        self.load_kept()
        found: Scores = evaluator.scores(self.plan.main_metric, state.best_metrics)
        found.log(f"best, after step {state.best_step}")
        if self.distribution.is_chief:
            mistakes = evaluator.mistakes() if self.plan.run.show_texts else None
            train = self.plan.data.given.train.source
            text = page({"model": found}, len(dev), dev.source, data=train, mistakes=mistakes)
            write_text(self.folder / REPORT_FILE, text)
        return found.to_json()
