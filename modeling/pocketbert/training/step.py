"""One training step for any objective: model features, losses, and one update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.data.batches import SOFT_LABELS
from pocketbert.data.teacher_rows import without_teacher_rows
from pocketbert.encoder import complete_inputs
from pocketbert.errors import UserError
from pocketbert.layers import loss_normalization
from pocketbert.layers.core import weights_by_path
from pocketbert.layers.dropout import dropout_generators
from pocketbert.layers.embeddings import padding_after_texts
from pocketbert.training.gradients import dense
from pocketbert.training.loss_scaling import (
    apply_gradients,
    scaled_loss,
    unscaled_gradients,
    without_loss_scaling,
)
from pocketbert.training.objective import Adapters, Batch, Features, Objective, Targets
from pocketbert.training.optimizers import LAMB, AdamW, NamedOptimizer
from pocketbert.training.schedules import ConstantSchedule, CosineSchedule, LinearSchedule
from pocketbert.training.stage import LABEL_TERMS, FeatureRequest, Stage

ADAPTERS = "adapters"
_DECAYS = {"linear": LinearSchedule, "cosine": CosineSchedule}


class Trainable(Protocol):
    """A `Model`, or a Keras layer with the same methods, such as a supernet that samples in `features`."""

    def features(self, inputs: Any, request: FeatureRequest, training: bool | None = None) -> Features:
        """See `Model.features`."""

    def named_variables(self) -> Mapping[str, tf.Variable]:
        """See `Model.named_variables`."""

    def __call__(self, inputs: Any, training: bool | None = None) -> Any:
        """Returns the model's outputs."""


class TrainingModel(tf_keras.Model):
    """A model with one stage's loss, for the trainer and for Keras' `compile`, `fit` and `evaluate`.

    Dataset elements have one of three kinds: a batch, a mapping with inputs and labels (`Batch`); `(inputs, labels)`,
    with one label array or labels by name; or `(batch, targets)` with cached teacher targets, as from
    `TeacherCache.dataset`. `fit` and `evaluate` report `loss` and its unweighted terms, averaged over an epoch's
    examples; `update` returns them for one step.

    A weight is trained if both the stage and Keras' `trainable` allow it. Compile again after you change `trainable`.

    Make the optimizer with `make_optimizer`, so that it uses the stage's schedule and multipliers.
    """

    # Whether the trainer compiles `update`; False for updates with several graphs.
    TRACED: ClassVar = True

    def __init__(
        self, model: Trainable, objective: Objective, stage: Stage, *, adapters: Adapters | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.adapters = dict(adapters or {})
        self.objective, self.stage = objective, stage
        self._means = [tf_keras.metrics.Mean(name) for name in self.loss_names]
        # `update` has summed the losses over replicas; Keras must not sum them again.
        self.distribute_reduction_method = "first"

    def targets(self, inputs: Batch) -> Targets:
        """Returns teacher targets for batches without cached ones."""
        del inputs
        return {}

    def named_variables(self) -> dict[str, tf.Variable]:
        """Model weights by their names in a model directory, and adapter weights by `adapters.NAME.kernel`."""
        return {**self.model.named_variables(), **adapter_variables(self.adapters)}

    def trained_variables(self) -> dict[str, tf.Variable]:
        """The trained weights among `named_variables`."""
        learning = {id(variable) for variable in self.trainable_variables}
        return {
            name: variable
            for name, variable in self.named_variables().items()
            if id(variable) in learning and self.stage.trainable(name)
        }

    def dropout_generators(self) -> list[tf.random.Generator]:
        """Random states for all dropout layers; checkpoints contain them."""
        return dropout_generators(self)

    def make_optimizer(self, total_steps: int, first_step: int = 0) -> NamedOptimizer:
        """Makes the stage's optimizer; see `make_optimizer`."""
        return make_optimizer(self.stage, total_steps, first_step)

    def compile(self, *arguments: Any, **options: Any) -> None:
        """Keras' `compile`; also binds the optimizer to the weights' names and builds it."""
        optimizer = arguments[0] if arguments else options.get("optimizer")
        if optimizer is not None and hasattr(optimizer, "bind"):
            optimizer.bind(self.named_variables())
        super().compile(*arguments, **options)
        # Slots that are made inside the step would cause a second trace.
        self.optimizer.build(list(self.trained_variables().values()))

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Returns the model's outputs."""
        return self.model(inputs, training=training)

    @tf.autograph.experimental.do_not_convert
    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Keras' hook: one update; returns means over the epoch so far."""
        return self._mean(data, self.update(data))

    @tf.autograph.experimental.do_not_convert
    def test_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Keras' hook: losses without dropout; returns means over the epoch so far."""
        losses = _sum_over_replicas(self.losses(*batch_and_targets(data), training=False))
        return self._mean(data, dict(zip(self.loss_names, tf.unstack(losses), strict=True)))

    @tf.autograph.experimental.do_not_convert
    def update(self, data: Any) -> dict[str, tf.Tensor]:
        """Updates the weights once; returns `loss`, the unweighted terms, and `skipped` in float16: float32 scalars."""
        batch, targets = batch_and_targets(data)
        variables = list(self.trained_variables().values())
        if self.stage.micro_batches == 1:
            losses, gradients = self._losses_and_gradients(batch, targets, variables)
        else:
            losses, gradients = self._accumulated(batch, targets, variables)
        gradients = [*unscaled_gradients(self.optimizer, gradients)]
        # Keras warns about weights without a gradient; here they are normal.
        reached = [pair for pair in zip(gradients, variables, strict=True) if pair[0] is not None]
        skipped = apply_gradients(self.optimizer, reached)
        return {**dict(zip(self.loss_names, tf.unstack(_sum_over_replicas(losses)), strict=True)), **skipped}

    @property
    def named_optimizer(self) -> NamedOptimizer:
        """The optimizer from `compile`."""
        optimizer: NamedOptimizer = without_loss_scaling(self.optimizer)
        return optimizer

    @property
    def loss_names(self) -> tuple[str, ...]:
        """Names of a step's results: `loss` and the stage's terms."""
        return ("loss", *self.stage.weights)

    def losses(self, batch: Batch, targets: Targets | None = None, training: bool | None = None) -> tf.Tensor:
        """Computes the loss and its unweighted terms in the order of `loss_names`, float32 [1 + terms].

        Args:
          batch: inputs and labels; the objective receives the labels in `stage.label_names`.
          targets: cached targets; None runs the teacher, if there is one.
          training: whether dropout is active, if the stage uses dropout.
        Raises:
          UserError: the batch lacks labels for the stage.
        """
        inputs, readable, targets = self.prepared(batch, targets)
        with padding_after_texts(self.model):
            features = self.model.features(
                inputs, self.stage.student_features, training=bool(training and self.stage.student_dropout)
            )
        return self.losses_of(features, readable, targets)

    def prepared(self, batch: Batch, targets: Targets | None) -> tuple[Batch, Batch, Targets]:
        """Returns the model's inputs, the objective's inputs and labels, and targets, for `losses`."""
        stage = self.stage
        batch = complete_inputs(batch)
        inputs = {name: value for name, value in batch.items() if name not in LABEL_TERMS.values()}
        missing = [name for name in stage.label_names if name not in batch]
        if missing:
            raise UserError(
                f"stage {stage.name} learns from {', '.join(missing)}; its examples have none; give labelled ones"
            )
        if targets is None:
            targets = self.targets(inputs)
        targets = {name: tf.stop_gradient(value) for name, value in targets.items()}
        inputs = without_teacher_rows(inputs)
        inputs.pop(SOFT_LABELS, None)
        return inputs, {**inputs, **{name: batch[name] for name in stage.label_names}}, targets

    def losses_of(self, features: Features, readable: Batch, targets: Targets) -> tf.Tensor:
        """Computes the loss and its unweighted terms from model features, for `losses`."""
        stage = self.stage
        terms = self.objective.loss(stage, targets, features, self.adapters, readable)
        if set(terms) != set(stage.weights):
            raise ValueError(
                f"{self.objective.name}, stage {stage.name}: the loss must give the terms {', '.join(stage.weights)}; "
                f"received {', '.join(terms)}"
            )
        total = tf.add_n([weight * terms[name] for name, weight in stage.weights.items()])
        return tf.stack([total, *(terms[name] for name in stage.weights)])

    def get_config(self) -> dict[str, Any]:
        """Raises a `UserError`: you cannot save a model with its objective."""
        raise UserError("a training model cannot be saved or copied; save its model with save_pretrained(path)")

    def _mean(self, data: Any, losses: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        rows = tf.shape(batch_and_targets(data)[0]["input_word_ids"])[0]
        for mean in self._means:
            mean.update_state(losses[mean.name], sample_weight=rows)
        return {mean.name: mean.result() for mean in self._means}

    def _losses_and_gradients(
        self, batch: Batch, targets: Targets | None, variables: Sequence[tf.Variable]
    ) -> tuple[tf.Tensor, list[Any]]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            losses = self.losses(batch, targets, training=True)
            loss = scaled_loss(self.optimizer, losses[0])
        return losses, tape.gradient(loss, variables)

    def _accumulated(
        self, batch: Batch, targets: Targets | None, variables: Sequence[tf.Variable]
    ) -> tuple[tf.Tensor, list[tf.Tensor | None]]:
        """Computes batch parts in sequence, so that memory holds one part's activations."""
        parts = self.stage.micro_batches
        size = tf.shape(batch["input_word_ids"])[0]
        # The two rows of a separate pair stay together.
        task = self.stage.task
        together = 2 if task is not None and task.pairs == "separate" else 1
        rows = together * -(-size // (parts * together))
        # Losses divide by counts in the whole batch. TensorFlow prunes the rest of this call.
        with loss_normalization.count_weights() as recorded:
            self.losses(batch, targets, training=False)
        totals = loss_normalization.shared_totals([recorded])
        # Set while the loop's body is traced: weights without a gradient must not decay.
        unused: list[bool] = []

        def add_part(
            index: tf.Tensor, losses: tf.Tensor, sums: Sequence[tf.Tensor]
        ) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
            def part(values: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
                return {name: value[index * rows : (index + 1) * rows] for name, value in values.items()}

            with loss_normalization.normalize_by(totals):
                more, gradients = self._losses_and_gradients(
                    part(batch), None if targets is None else part(targets), variables
                )
            unused[:] = [gradient is None for gradient in gradients]
            sums = [
                total if gradient is None else total + tf.ensure_shape(dense(gradient), total.shape)
                for total, gradient in zip(sums, gradients, strict=True)
            ]
            return index + 1, losses + more, sums

        zeros = [tf.zeros(variable.shape, variable.dtype) for variable in variables]
        # The last batch may have fewer rows than parts.
        count = -(-size // rows)
        _, losses, sums = tf.while_loop(
            lambda index, *_: index < count,
            add_part,
            (0, tf.zeros([len(self.loss_names)]), zeros),
            parallel_iterations=1,
        )
        return losses, [None if skip else total for skip, total in zip(unused, sums, strict=True)]


def batch_and_targets(data: Any) -> tuple[Batch, Targets | None]:
    """Splits a dataset element into a batch with labels, and cached targets or None."""
    batch, *others = data if isinstance(data, tuple) else (data,)
    if not isinstance(batch, Mapping) or len(others) > 1:
        raise UserError(
            "training takes mappings with input_word_ids, (inputs, labels) or (batch, targets); received "
            f"{'a tuple of ' + str(1 + len(others)) if others else type(batch).__name__}"
        )
    second = others[0] if others else None
    if second is None:
        return batch, None
    if isinstance(second, Mapping) and not set(second) <= set(LABEL_TERMS.values()):
        return batch, second
    return {**batch, **(second if isinstance(second, Mapping) else {"labels": second})}, None


def adapter_variables(adapters: Adapters) -> dict[str, tf.Variable]:
    """Adapter weights by name, for example `adapters.NAME.kernel`."""
    return {
        f"{ADAPTERS}.{name}.{path}": variable
        for name, layer in adapters.items()
        for path, variable in weights_by_path(layer).items()
    }


def make_optimizer(
    stage: Stage, total_steps: int, first_step: int = 0, kind: Callable[..., NamedOptimizer] | None = None
) -> NamedOptimizer:
    """Makes a stage's optimizer, with its schedule and multiplier.

    Args:
      stage: the stage.
      total_steps: steps in the stage.
      first_step: the optimizer's step counter when the stage begins; 0 unless moments are carried over.
      kind: makes the optimizer; None for the stage's algorithm.
    """
    config = stage.optimizer
    warmup_steps = config.warmup(total_steps)
    schedule: tf_keras.optimizers.schedules.LearningRateSchedule = (
        ConstantSchedule(config.learning_rate, warmup_steps)
        if config.schedule == "constant"
        else _DECAYS[config.schedule](config.learning_rate, total_steps, warmup_steps)
    )
    kind = kind or {"adamw": AdamW, "lamb": LAMB}[config.algorithm]
    multiplier, factors = stage.learning_rate_multiplier, stage.rate_factors
    return kind(
        StageSchedule(schedule, total_steps, first_step),
        weight_decay=config.weight_decay,
        beta_1=config.beta_1,
        beta_2=config.beta_2,
        epsilon=config.epsilon,
        bias_correction=config.bias_correction,
        clip_norm=config.clip_norm,
        multiplier=lambda name, step: factors.get(name, 1.0) * multiplier(name, step - first_step),
    )


class StageSchedule(tf_keras.optimizers.schedules.LearningRateSchedule):
    """The schedule for a stage that can end early.

    Args:
      schedule: the planned schedule.
      total_steps: planned steps.
      first_step: the optimizer's step counter when the stage begins.
    """

    def __init__(
        self, schedule: tf_keras.optimizers.schedules.LearningRateSchedule, total_steps: int, first_step: int = 0
    ) -> None:
        super().__init__()
        self._schedule, self._total_steps, self._first_step = schedule, total_steps, first_step
        self._speed = tf.Variable(1.0, trainable=False, name="schedule_speed")

    def end_after(self, steps: int) -> None:
        """Fits the whole schedule into fewer steps."""
        self._speed.assign(self._total_steps / steps)

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the learning rate, a float32 scalar, at a step in the optimizer's count."""
        # Keras reads the rate at step 0 when it makes the optimizer.
        position = tf.maximum(tf.convert_to_tensor(step) - self._first_step, 0)
        return self._schedule(self._speed * tf.cast(position, tf.float32))


def _sum_over_replicas(losses: tf.Tensor) -> tf.Tensor:
    """Sums losses over replicas; each has its share of the batch's mean."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return losses
    return context.all_reduce(tf.distribute.ReduceOp.SUM, losses)
