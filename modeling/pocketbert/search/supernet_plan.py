"""The plan for a learning supernet, and its training step: one random candidate per step."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from pocketbert.distillation.distiller import Distiller
from pocketbert.distillation.plan import DistillationPlan
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.search.sliced_adamw import SlicedAdamW
from pocketbert.search.space import SearchSpace, Shape
from pocketbert.search.supernet_step import SupernetStep, draw_shapes, sliced_axes
from pocketbert.training.objective import Adapters
from pocketbert.training.optimizers import NamedOptimizer
from pocketbert.training.stage import Stage
from pocketbert.training.step import batch_and_targets, make_optimizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class SupernetPlan(DistillationPlan):
    """A learning supernet's training before its first step.

    Attributes:
      space: stage 3 space with constraints on the candidates; None draws from all candidates.
    """

    space: SearchSpace | None = None

    def make_step(self, stage: Stage, model: Model, adapters: Adapters) -> SupernetDistiller:
        step = SupernetDistiller(model, self.objective, stage, teacher=self.live_teacher(stage), adapters=adapters)
        step.seed, step.space = self.run.seed, self.space
        return step


class SupernetDistiller(Distiller):
    """A `Distiller` that updates one candidate's slices per step.

    Attributes:
      seed: seed for the candidates.
      space: draws candidates within its constraints; None draws from all.
      tasks: returns the distillers for several tasks in head order, for batches with a task number; None for one task.
        A function, because Keras tracks every model attribute.
    """

    TRACED: ClassVar = False
    model: Model
    seed = 0
    space: SearchSpace | None = None
    tasks: Callable[[], Sequence[Distiller]] | None = None

    def make_optimizer(self, total_steps: int, first_step: int = 0) -> NamedOptimizer:
        kind = functools.partial(SlicedAdamW, sliced_axes=sliced_axes(self.model))
        return make_optimizer(self.stage, total_steps, first_step, kind)

    def compile(self, *arguments: Any, **options: Any) -> None:
        super().compile(*arguments, **options)
        tasks = self.tasks() if self.tasks else [self]
        heads = list(self.model.heads) if self.tasks or "logits" in self.stage.student_features else [""]
        self._supernet_step = SupernetStep(
            self.model,
            self.optimizer,
            {head: task.losses_of for head, task in zip(heads, tasks, strict=True)},
            self.stage.student_features,
            adapters=self.adapters,
            trainable=set(self.trained_variables()).__contains__,
            dropout=self.stage.student_dropout,
        )
        self._prepared = {
            head: tf.function(task.prepared, autograph=False, reduce_retracing=True)
            for head, task in zip(heads, tasks, strict=True)
        }

    def update(self, data: Any) -> dict[str, tf.Tensor]:
        """Updates the weights of one candidate; see `TrainingModel`."""
        heads, number = list(self._prepared), 0
        if self.tasks:
            data, number = data
        head = heads[int(number)]
        _, readable, targets = self._prepared[head](*batch_and_targets(data))
        step = int(self.optimizer.iterations)
        if self.space is None:
            shapes = draw_shapes(self.model.config, self.seed, step)
        else:
            shapes = _shapes_within_limits(self.space, self.seed, step)
        losses = self._supernet_step(shapes, readable, targets, head)
        return dict(zip(self.loss_names, tf.unstack(losses), strict=True))


def _shapes_within_limits(space: SearchSpace, seed: int, step: int) -> tuple[Shape, ...]:
    """Draws a step's candidate within the constraints; returns the winner if no other is in reach."""
    try:
        genotype = space.sample(np.random.default_rng((seed, step)))
    except UserError:
        genotype = space.winner
    return space.shapes(genotype)
