"""AdamW and LAMB, with weights selected by their names in the model.

Keras' AdamW and tf-models-official's LAMB use variable names, which are uninformative in a subclassed model. A
multiplier on *gradients* has no effect on an adaptive step, and weight decay ignores it (ADR 3). These optimizers use
the names in `Model.named_variables()`, and their multiplier scales a weight's whole update.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.errors import UserError, raise_if_any
from pocketbert.training.gradients import dense_and_clipped

# Biases and norms, by their names in a model directory (…LayerNorm.weight) and in PocketBERT (…attention.norm.gamma).
BIASES_AND_NORMS: tuple[str, ...] = (r"bias$", r"LayerNorm\.", r"layer_norm\.", r"(^|[._])norm\.")

Multiplier = Callable[[str, tf.Tensor], "tf.Tensor | float"]
GradientsAndVariables = Iterable[tuple["tf.Tensor | tf.IndexedSlices | None", tf.Variable]]


@dataclass(frozen=True)
class StepScalars:
    """Scalars shared by all updates in a step; computed once.

    Attributes:
      step: int64, counts from 0.
      rate: float32, the learning rate.
      beta_1_power, beta_2_power: float32, beta^t in 1 - beta^t, where t counts from 1; 0 without bias correction.
    """

    step: tf.Tensor
    rate: tf.Tensor
    beta_1_power: tf.Tensor
    beta_2_power: tf.Tensor

    def times(self, factor: tf.Tensor | float) -> StepScalars:
        """Returns a copy with the rate multiplied by `factor`."""
        return replace(self, rate=self.rate * factor)


class NamedOptimizer(tf_keras.optimizers.Optimizer):
    """Base class for AdamW and LAMB: names, exclusions, multiplier, clipping and dense gradients.

    Args:
      learning_rate: a float or a `LearningRateSchedule`.
      weight_decay: decoupled weight decay; each step subtracts learning rate * weight_decay * weight.
      beta_1: decay rate for the first moment m.
      beta_2: decay rate for the second moment v.
      epsilon: added to the square root of v.
      bias_correction: divide m and v by 1 - beta^t (Kingma & Ba 2015, section 3); BERT and MobileBERT do not.
      clip_norm: maximum global gradient norm; None for no clipping. Duplicate rows in sparse gradients are added first.
      exclude_from_decay: regular expressions (`re.search`) on names; weights with a match do not decay.
      multiplier: `(name, step) -> factor` on a weight's whole update, including decay; `step` is an int64 scalar and
        counts from 0. The moments ignore the factor. With a factor of 0 the weight keeps its bits, even for a NaN
        gradient. The Python number 0 also skips the moments.
      named_variables: `Model.named_variables()`; None if you call `bind` later.
      name: the optimizer's name; None for the class name.
    """

    def __init__(
        self,
        learning_rate: float | tf_keras.optimizers.schedules.LearningRateSchedule = 2e-5,
        *,
        weight_decay: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        bias_correction: bool = True,
        clip_norm: float | None = None,
        exclude_from_decay: Sequence[str] = BIASES_AND_NORMS,
        multiplier: Multiplier | None = None,
        named_variables: Mapping[str, tf.Variable] | None = None,
        name: str | None = None,
    ) -> None:
        name = name or type(self).__name__
        # Keras' decay selects weights by variable names, and its clipping does not sum duplicate rows in IndexedSlices;
        # both stay off.
        super().__init__(name=name, weight_decay=None, jit_compile=False)
        problems = []
        for argument, value in (("weight_decay", weight_decay), ("beta_1", beta_1), ("beta_2", beta_2)):
            if not 0 <= value < 1:
                problems.append(f"{argument} must lie in [0, 1); received {value}")
        if not epsilon > 0:
            problems.append(f"epsilon must be positive; received {epsilon}")
        if clip_norm is not None and not clip_norm > 0:
            problems.append(f"clip_norm must be positive, or None for no clipping; received {clip_norm}")
        raise_if_any(problems, name)
        self._learning_rate = self._build_learning_rate(learning_rate)
        self.decay_rate = weight_decay
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.bias_correction = bias_correction
        self.clip_norm = clip_norm
        self.exclude_from_decay = tuple(exclude_from_decay)
        self.multiplier = multiplier
        self._name_of: dict[Any, str] | None = None
        self._scalars: StepScalars | None = None
        if named_variables is not None:
            self.bind(named_variables)

    @property
    def schedule(self) -> Any:
        """The learning rate's schedule, or the variable with it."""
        return self._learning_rate

    def bind(self, named_variables: Mapping[str, tf.Variable]) -> None:
        """Names the weights.

        Args:
          named_variables: name → variable for all trained weights, from `Model.named_variables()`.
        """
        self._name_of = self._no_dependency({self._var_key(value): name for name, value in named_variables.items()})

    def named_state(self) -> dict[str, tf.Variable]:
        """Returns the optimizer's state, name → variable: `iterations`, `m/NAME` and `v/NAME`. Call `build` first."""
        state = {"iterations": self.iterations}
        for key, index in self._index_dict.items():
            state[f"m/{self._weight_name(key)}"] = self._momentums[index]
            state[f"v/{self._weight_name(key)}"] = self._velocities[index]
        return state

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        """Creates each weight's moments m and v, filled with zeros."""
        super().build(var_list)
        if getattr(self, "_built", False):
            return
        self._built = True
        for variable in var_list:
            self._weight_name(self._var_key(variable))
        self._momentums = [self.add_variable_from_reference(variable, "m") for variable in var_list]
        self._velocities = [self.add_variable_from_reference(variable, "v") for variable in var_list]

    def apply_gradients(
        self,
        grads_and_vars: GradientsAndVariables,
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
        **options: Any,
    ) -> tf.Variable:
        """Takes one step: sums gradients over replicas, clips them and updates the weights; returns the step counter.

        Args:
          grads_and_vars: pairs of gradient and weight; weights without a gradient (None) do not change.
          name: name scope for the operations.
          skip_gradients_aggregation: whether the gradients are already summed over replicas.
          **options: see Keras.
        """
        aggregated = options.pop("experimental_aggregate_gradients", True) and not skip_gradients_aggregation
        if aggregated:
            grads_and_vars = self.aggregate_gradients(grads_and_vars)
        pairs = [(gradient, variable) for gradient, variable in grads_and_vars if gradient is not None]
        # Without gradients, Keras' method raises the error.
        gradients, variables = zip(*pairs, strict=True) if pairs else ((), ())
        return super().apply_gradients(
            list(zip(dense_and_clipped(gradients, self.clip_norm), variables, strict=True))
            if pairs
            else grads_and_vars,
            name=name,
            skip_gradients_aggregation=True,
        )

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        """Updates one weight and its moments."""
        key = self._var_key(variable)
        index = self._index_dict[key]
        name = self._weight_name(key)
        m, v = self._momentums[index], self._velocities[index]
        at = self._scalars or self._read_scalars()
        factor = 1.0 if self.multiplier is None else self.multiplier(name, at.step)
        if isinstance(factor, int | float):
            if factor:
                self._update(name, gradient, variable, m, v, at if factor == 1 else at.times(float(factor)))
            return
        factor = tf.cast(factor, variable.dtype)
        # Subtracting 0 times the update would turn -0.0 into 0.0, and a NaN gradient into a NaN weight.
        tf.cond(
            tf.equal(factor, 0.0),
            lambda: _done(self._update_moments(gradient, m, v)),
            lambda: _done(self._update(name, gradient, variable, m, v, at.times(factor))),
        )

    def get_config(self) -> dict[str, Any]:
        """Returns arguments for a new instance, without the names; call `bind` on it."""
        if self.multiplier is not None:
            raise UserError(
                "an optimizer with a multiplier has no configuration; received a function as multiplier; save the "
                "model with save_pretrained"
            )
        return {
            "name": self.name,
            "learning_rate": self._serialize_hyperparameter(self._learning_rate),
            "weight_decay": self.decay_rate,
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "bias_correction": self.bias_correction,
            "clip_norm": self.clip_norm,
            "exclude_from_decay": self.exclude_from_decay,
        }

    def _update(
        self, name: str, gradient: tf.Tensor, variable: tf.Variable, m: tf.Variable, v: tf.Variable, at: StepScalars
    ) -> tf.Operation:
        raise NotImplementedError

    def _distributed_apply_gradients_fn(self, *arguments: Any, **options: Any) -> Any:
        # Keras calls `update_step` for each weight from this hook.
        self._scalars = self._read_scalars()
        try:
            return super()._distributed_apply_gradients_fn(*arguments, **options)
        finally:
            self._scalars = None

    def _read_scalars(self) -> StepScalars:
        step = self.iterations.read_value()
        powers = [tf.constant(0.0)] * 2
        if self.bias_correction:
            count = tf.cast(step + 1, tf.float32)
            powers = [tf.pow(self.beta_1, count), tf.pow(self.beta_2, count)]
        return StepScalars(step, tf.convert_to_tensor(self.learning_rate), *powers)

    def _update_moments(self, gradient: tf.Tensor, m: tf.Variable, v: tf.Variable) -> tuple[tf.Tensor, tf.Tensor]:
        # 1 - beta in float32, like the fused kernel and the bias correction.
        new_m = m.assign_add((gradient - m) * (1 - tf.constant(self.beta_1)), read_value=True)
        new_v = v.assign_add((tf.square(gradient) - v) * (1 - tf.constant(self.beta_2)), read_value=True)
        return tf.convert_to_tensor(new_m), tf.convert_to_tensor(new_v)

    def _weight_name(self, key: Any) -> str:
        if self._name_of is None:
            raise ValueError(
                f"{self.name} needs the names of the weights for exclusions from decay; received none; pass "
                "named_variables=model.named_variables() or call bind(model.named_variables())"
            )
        if key not in self._name_of:
            raise ValueError(
                f"{self.name} needs the name of every trained weight; received a variable that is not among the "
                f"{len(self._name_of)} named ones; call bind(model.named_variables()) with this model"
            )
        return self._name_of[key]

    def _decays(self, name: str) -> bool:
        return self.decay_rate > 0 and not _matches(self.exclude_from_decay, name)


@tf_keras.utils.register_keras_serializable(package="pocketbert")
class AdamW(NamedOptimizer):
    """Adam with decoupled weight decay.

    Loshchilov & Hutter 2019, algorithm 2 (https://arxiv.org/abs/1711.05101), with Adam in the form at the end of
    section 2 in Kingma & Ba 2015: it adds epsilon to the uncorrected square root of v. Set `bias_correction=False` for
    BERT's optimizer. The update for a weight w with rate a = learning rate * multiplier is:

      w <- w - a * weight_decay * w - a * sqrt(1 - beta_2^t) / (1 - beta_1^t) * m / (sqrt(v) + epsilon)

    See `NamedOptimizer` for the arguments.
    """

    def _update(
        self, name: str, gradient: tf.Tensor, variable: tf.Variable, m: tf.Variable, v: tf.Variable, at: StepScalars
    ) -> tf.Operation:
        if self._decays(name):
            variable.assign_sub(variable * (at.rate * self.decay_rate))
        # The fused kernel reads and writes each array once. Separate operations take about twice as long.
        return tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=m.handle,
            v=v.handle,
            beta1_power=at.beta_1_power,
            beta2_power=at.beta_2_power,
            lr=at.rate,
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=gradient,
        )


@tf_keras.utils.register_keras_serializable(package="pocketbert")
class LAMB(NamedOptimizer):
    """Layer-wise adaptive moments for large batches.

    You et al. 2020, algorithm 2 (https://arxiv.org/abs/1904.00962), where phi is the identity. The update for a weight
    w with rate a = learning rate * multiplier is:

      u = m' / (sqrt(v') + epsilon) + weight_decay * w
      w <- w - a * |w| / |u| * u

    m' and v' are the moments, corrected with `bias_correction`. The paper corrects them; MobileBERT's code does not.
    The trust ratio |w| / |u| (L2 norms over the whole tensor) is 1 if a norm is 0, and for excluded weights.

    Args:
      exclude_from_trust_ratio: regular expressions on names; weights with a match have a trust ratio of 1.
      learning_rate: a float or a `LearningRateSchedule`.
      **options: further arguments for `NamedOptimizer`.
    """

    def __init__(
        self,
        learning_rate: float | tf_keras.optimizers.schedules.LearningRateSchedule = 1e-3,
        *,
        exclude_from_trust_ratio: Sequence[str] = BIASES_AND_NORMS,
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, **options)
        self.exclude_from_trust_ratio = tuple(exclude_from_trust_ratio)

    def get_config(self) -> dict[str, Any]:
        """See `NamedOptimizer`."""
        return super().get_config() | {"exclude_from_trust_ratio": self.exclude_from_trust_ratio}

    def _update(
        self, name: str, gradient: tf.Tensor, variable: tf.Variable, m: tf.Variable, v: tf.Variable, at: StepScalars
    ) -> tf.Operation:
        new_m, new_v = self._update_moments(gradient, m, v)
        weight = tf.convert_to_tensor(variable)
        update = new_m / (1 - at.beta_1_power) / (tf.sqrt(new_v / (1 - at.beta_2_power)) + self.epsilon)
        if self._decays(name):
            update += self.decay_rate * weight
        if not _matches(self.exclude_from_trust_ratio, name):
            weight_norm, update_norm = tf.norm(weight), tf.norm(update)
            at = at.times(tf.where((weight_norm > 0) & (update_norm > 0), weight_norm / update_norm, 1.0))
        return variable.assign_sub(at.rate * update)


def _matches(patterns: Iterable[str], name: str) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)


def _done(operations: object) -> tf.Tensor:
    """Returns a value for both `tf.cond` branches; automatic control dependencies run the operations."""
    del operations
    return tf.constant(True)
