"""A model's activation range, and warnings about float16.

Unlike LayerNorm, MobileBERT's NoNorm does not bound activations, which can grow from layer to layer and with training.
The largest float16 is 65,504; larger values become infinite and then NaN. float32 and bfloat16 reach 3e38.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pocketbert.encoder import INPUT_NAMES
from pocketbert.model import Model
from pocketbert.progress import log_info

FLOAT16_MAX = 65_504.0
# Other texts can have larger activations, and sums inside a layer are larger than the measured features.
FLOAT16_MARGIN = 8.0


@dataclass(frozen=True, kw_only=True)
class ActivationRange:
    """Largest absolute values per layer, over all positions in some batches; infinite for NaN and infinity.

    Attributes:
      hidden_states: feature maps: the embedding output, then one value per layer.
      attention_logits: scaled dot products before the mask, one value per layer.
    """

    hidden_states: tuple[float, ...]
    attention_logits: tuple[float, ...]

    def named(self) -> dict[str, float]:
        """Returns description → maximum, in computation order."""
        names = {"the embedding's output": self.hidden_states[0]}
        for layer, (logits, hidden) in enumerate(
            zip(self.attention_logits, self.hidden_states[1:], strict=True), start=1
        ):
            names[f"layer {layer}'s attention logits"] = logits
            names[f"layer {layer}'s hidden state"] = hidden
        return names

    def largest(self) -> dict[str, float]:
        """Returns the maximum over layers by feature, for a training run's charts."""
        return {"hidden_states": max(self.hidden_states), "attention_logits": max(self.attention_logits)}

    def describe(self) -> str:
        """Returns one line with the overall maximum, its place, and the first float16 warning."""
        where, value = max(self.named().items(), key=lambda item: item[1])
        text = f"activations reach {value:,.4g} in {where}"
        if warnings := self.float16_warnings():
            more = f" (and {len(warnings) - 1} more)" if warnings[1:] else ""
            text += f"; warning: {warnings[0]}{more}"
        return text

    def float16_warnings(self) -> list[str]:
        """See `float16_warnings`."""
        return float16_warnings(self.named())

    def to_json(self) -> dict[str, Any]:
        """Returns both lists, with null for values that are not finite, and the limits and warnings for float16."""
        return {
            "hidden_states": [_finite(value) for value in self.hidden_states],
            "attention_logits": [_finite(value) for value in self.attention_logits],
            "float16": {
                "largest": FLOAT16_MAX,
                "margin": FLOAT16_MARGIN,
                "warnings": self.float16_warnings(),
            },
        }


def float16_warnings(maxima: Mapping[str, float]) -> list[str]:
    """Warns about each maximum above the float16 range, or within a factor of `FLOAT16_MARGIN` below its end.

    Args:
      maxima: tensor description → its largest absolute value.
    """
    warnings = []
    for name, value in maxima.items():
        if not math.isfinite(value):
            warnings.append(f"{name}: not finite, in float32 already")
        elif value > FLOAT16_MAX:
            warnings.append(f"{name}: {value:,.0f}, which overflows in float16 (its largest is {FLOAT16_MAX:,.0f})")
        elif value * FLOAT16_MARGIN > FLOAT16_MAX:
            near = f"within a factor of {FLOAT16_MARGIN:.0f} of float16's largest, {FLOAT16_MAX:,.0f}"
            warnings.append(f"{name}: {value:,.0f}, {near}")
    return warnings


class ActivationWatch:
    """Measures a model repeatedly on the same examples while its weights change.

    Args:
      model: any model; runs in its own number format, without dropout.
      batches: at least one batch of inputs, integers [B, S] by name, or of (inputs, labels).
    Raises:
      ValueError: there are no batches.
    """

    def __init__(self, model: Model, batches: Iterable[Mapping[str, Any]]) -> None:
        inputs = (batch[0] if isinstance(batch, tuple) else batch for batch in batches)
        self._batches = [
            {name: tf.convert_to_tensor(batch[name]) for name in INPUT_NAMES if name in batch} for batch in inputs
        ]
        if not self._batches:
            raise ValueError("an activation range needs at least one batch; received none")
        layers = tuple(range(1, model.config.num_layers + 1))
        request = {"hidden_states": (0, *layers), "attention_logits": layers}

        @tf.function(reduce_retracing=True)
        def largest(batch: Mapping[str, tf.Tensor]) -> tuple[tf.Tensor, ...]:
            features = model.features(batch, request, training=False)
            return tuple(tf.stack([_largest(feature) for feature in features[name]]) for name in request)

        self._largest = largest

    def report(self) -> dict[str, Any]:
        """Returns `ActivationRange.to_json` for the current weights; logs the maximum and float16 warnings."""
        maxima = self.maxima()
        log_info(maxima.describe())
        return maxima.to_json()

    def maxima(self) -> ActivationRange:
        """Measures the activation range with the current weights.

        Padding counts, since the mask does not stop an attention logit from overflowing there.
        """
        by_batch = zip(*map(self._largest, self._batches), strict=True)
        hidden_states, attention_logits = (
            tuple(map(float, tf.reduce_max(batches, axis=0).numpy())) for batches in by_batch
        )
        return ActivationRange(hidden_states=hidden_states, attention_logits=attention_logits)


def activation_range(model: Model, batches: Iterable[Mapping[str, Any]]) -> ActivationRange:
    """Measures a model's activation range; see `ActivationWatch`."""
    return ActivationWatch(model, batches).maxima()


def _largest(x: tf.Tensor) -> tf.Tensor:
    x = tf.cast(x, tf.float32)
    # `reduce_max` can ignore NaN.
    return tf.where(tf.reduce_all(tf.math.is_finite(x)), tf.reduce_max(tf.abs(x)), math.inf)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
