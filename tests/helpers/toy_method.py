"""A small distillation method for tests of what runs every method: two stages, an adapter, labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import tensorflow as tf

from pocketbert.distillation.method import DistillationSpec, Method
from pocketbert.layers.core import Dense
from pocketbert.layers.loss_normalization import masked_mean
from pocketbert.training.stage import Epochs, OptimizerConfig, Stage, Steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToyMethod(Method):
    """The student's last hidden state follows the teacher's; then its class the labels.

    Attributes:
      scale: multiplies the teacher's hidden states.
      only: the one stage that there is; None for both.
      changes: of the stages' fields.
    """

    name: ClassVar[str] = "toy"
    reference: ClassVar[str] = "made for the tests"
    scale: float = 1.0
    only: str | None = None
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def stages(self, spec: DistillationSpec) -> Sequence[Stage]:
        make = {
            "hidden": lambda: hidden_stage(spec, **self.changes),
            "labels": lambda: label_stage(optimizer_state="carry", **self.changes),
        }
        return [make[name]() for name in make if self.only in (None, name)]

    def adapters(self, spec: DistillationSpec) -> dict[str, Any]:
        return {"widening": Dense(spec.student.hidden_size, spec.teacher.hidden_size)}

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


def hidden_stage(spec: DistillationSpec, **changes: Any) -> Stage:
    """Follows the teacher's last layer."""
    fields: dict[str, Any] = {
        "name": "hidden",
        "teacher_features": {"hidden_states": (spec.teacher.num_layers,)},
        "student_features": {"hidden_states": (spec.student.num_layers,)},
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


def toy(only: str | None = None, scale: float = 1.0, **changes: Any) -> ToyMethod:
    """The method with other fields of its stages."""
    return ToyMethod(only=only, scale=scale, changes=changes)
