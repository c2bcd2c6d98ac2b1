"""A small distillation method for tests of what runs every method: two stages, an adapter, labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from pocketbert.distillation.method import Epochs, OptimizerConfig, Setting, Stage, Steps
from pocketbert.layers.dense import Dense
from pocketbert.layers.loss_normalization import masked_mean


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToyOptions:
    """Options of the toy.

    Attributes:
      scale: multiplies the teacher's hidden states.
    """

    scale: float = 1.0


class ToyMethod:
    """The student's last hidden state follows the teacher's; then its class the labels.

    Args:
      only: the one stage that there is; None for both.
      **changes: of the stages' fields.
    """

    name = "toy"
    reference = "made for the tests"
    options = ToyOptions

    def __init__(self, only: str | None = None, **changes: Any) -> None:
        self.only, self.changes = only, changes

    def stages(self, setting: Setting, options: ToyOptions) -> Sequence[Stage]:
        make = {
            "hidden": lambda: hidden_stage(setting, **self.changes),
            "labels": lambda: label_stage(optimizer_state="carry", **self.changes),
        }
        return [make[name]() for name in make if self.only in (None, name)]

    def adapters(self, setting: Setting, options: ToyOptions) -> dict[str, Any]:
        return {"widening": Dense(setting.student.hidden_size, setting.teacher.hidden_size)}

    def mismatches(self, setting: Setting, options: ToyOptions) -> list[str]:
        return []

    def initialize(self, teacher: Any, student: Any, options: ToyOptions) -> None:
        pass

    def targets(self, stage: Stage, teacher: Any, batch: Any) -> dict[str, tf.Tensor]:
        return {"hidden": teacher["hidden_states"][0]} if "hidden_states" in teacher else {}

    def loss(
        self, stage: Stage, targets: Mapping[str, tf.Tensor], student: Any, adapters: Any, batch: Any
    ) -> dict[str, tf.Tensor]:
        terms = {}
        if "hidden" in stage.weights:
            difference = adapters["widening"](student["hidden_states"][0]) - targets["hidden"]
            terms["hidden"] = masked_mean(tf.square(difference), batch["input_mask"][:, :, tf.newaxis])
        if "labels" in stage.weights:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["labels"], student["logits"][0])
            terms["labels"] = masked_mean(losses, tf.ones_like(losses))
        return terms


def hidden_stage(setting: Setting, **changes: Any) -> Stage:
    """Follows the teacher's last layer."""
    fields: dict[str, Any] = {
        "name": "hidden",
        "teacher_features": {"hidden_states": (setting.teacher.num_layers,)},
        "student_features": {"hidden_states": (setting.student.num_layers,)},
        "weights": {"hidden": 2.0},
        "data": "task",
        "max_length": 23,
        "duration": Epochs(2),
        "batch_size": 16,
        "optimizer": OptimizerConfig(learning_rate=3e-3, schedule="constant"),
    }
    return Stage(**{**fields, **changes})


def label_stage(**changes: Any) -> Stage:
    """Learns the labels; reads nothing of a teacher. Its 8 steps of 16 end in the middle of the second epoch."""
    fields: dict[str, Any] = {
        "name": "labels",
        "teacher_features": {},
        "student_features": {"logits": ()},
        "weights": {"labels": 1.0},
        "data": "task",
        "max_length": 23,
        "duration": Steps(8),
        "batch_size": 16,
        "optimizer": OptimizerConfig(learning_rate=3e-3, warmup_ratio=0.25),
        "keep": "best",
    }
    return Stage(**{**fields, **changes})
