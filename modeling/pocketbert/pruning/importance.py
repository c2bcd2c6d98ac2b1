"""First-order Taylor importance of attention heads and feed-forward neurons."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert.configs import EncoderConfig
from pocketbert.data.batches import EncodedExamples, dataset, plan_batches
from pocketbert.errors import TrainingFailed, UserError
from pocketbert.files import write_tensors
from pocketbert.model import Model
from pocketbert.notation import argument
from pocketbert.progress import bar
from pocketbert.tasks.registry import get_task

_DIGEST_KEY = "sha256"


@dataclass(frozen=True)
class Importance:
    """Importance of an encoder's heads and neurons, on some batches.

    Attributes:
      heads: float64 [layers, heads]; layers that share their weights have one row.
      neurons: float64 [layers, intermediate_size].
      batches: number of batches in the sums.
    """

    heads: np.ndarray
    neurons: np.ndarray
    batches: int

    @classmethod
    def none(cls, config: EncoderConfig) -> Importance:
        """The importance before the first batch."""
        return cls(
            np.zeros([config.num_stored_layers, config.num_attention_heads]),
            np.zeros([config.num_stored_layers, config.intermediate_size]),
            0,
        )

    def write(self, path: Path) -> None:
        """Writes a safetensors file with a digest, under a temporary name, and renames it."""
        arrays = {"heads": self.heads, "neurons": self.neurons, "batches": np.array([self.batches], np.int64)}
        write_tensors(path, arrays, {_DIGEST_KEY: _digest(arrays)})


def read_importance(path: Path) -> Importance:
    """Reads the file from `Importance.write`; raises a `UserError` if it is damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as stored:
            arrays = {name: stored.get_tensor(name) for name in stored.keys()}
            whole = stored.metadata()[_DIGEST_KEY] == _digest(arrays)
    except (SafetensorError, KeyError, TypeError, OSError):
        whole = False
    if not whole:
        raise UserError(
            f"{path} is damaged: it must be unchanged since the run wrote it; pass {argument('overwrite', True)} to "
            "start again"
        )
    return Importance(arrays["heads"], arrays["neurons"], int(arrays["batches"][0]))


def measure_importance(
    model: Model,
    encoded: EncodedExamples,
    path: Path,
    *,
    batch_size: int,
    seed: int = 0,
    checkpoint_seconds: float = 60.0,
) -> Importance:
    """Measures every head's and neuron's importance in one pass over labelled examples.

    A weight w has the importance |w| · Σ over batches |∂loss/∂w|, with the task's loss, a mean over the batch, and
    without dropout. A head sums over its columns in the attention-output weight, a neuron over its row in the first and
    its column in the second feed-forward weight (ROSITA, Liu et al. 2021, as in the code for Marginal Utility
    Diminishes). Absolute values are summed, since signed gradients add up to zero where training has converged. A
    smaller last batch counts as one batch. Sums within a batch are float32, sums over batches float64.

    Args:
      model: the fine-tuned teacher, with one head.
      encoded: labelled examples.
      path: file for the importance; if it holds partial sums, the pass continues there.
      batch_size: examples per batch.
      seed: seed for the batches; see `plan_batches`.
      checkpoint_seconds: seconds between two writes to the file.
    Raises:
      UserError: the file is damaged.
      TrainingFailed: a gradient is not finite.
    """
    plan = plan_batches(encoded.lengths, batch_size=batch_size, seed=seed, epoch=0)
    importance = read_importance(path) if path.exists() else Importance.none(model.config)
    if importance.batches == len(plan):
        return importance
    batches = dataset(encoded, plan, importance.batches)
    step = tf.function(lambda element: _batch_importance(model, *element), input_signature=[batches.element_spec])
    written = time.monotonic()
    with bar(len(plan), "importance", "batch", initial=importance.batches) as progress:
        for element in batches:
            heads, neurons = (sums.numpy().astype(np.float64) for sums in step(element))
            importance = Importance(importance.heads + heads, importance.neurons + neurons, importance.batches + 1)
            if not (np.isfinite(heads).all() and np.isfinite(neurons).all()):
                raise TrainingFailed(
                    f"the gradients of batch {importance.batches} must be finite; check the teacher's weights"
                )
            progress.update()
            if time.monotonic() - written >= checkpoint_seconds and importance.batches < len(plan):
                importance.write(path)
                written = time.monotonic()
    importance.write(path)
    return importance


def kept(scores: np.ndarray, count: int) -> np.ndarray:
    """Returns indices with the highest scores, in ascending order; equal scores go to the lower index.

    Args:
      scores: float64 [parts].
      count: number of parts to keep.
    """
    return np.sort(np.argsort(-scores, kind="stable")[:count])


def _batch_importance(model: Model, inputs: dict[str, tf.Tensor], labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """|w · ∂loss/∂w| for one batch: float32 [layers, heads] and [layers, intermediate_size]."""
    assert model.task is not None
    config, task = model.config, get_task(model.task)
    watched = []
    for layer in model.encoder.layers_:
        (feed_forward,) = layer.feed_forwards
        maps = (layer.attention.output_projection, feed_forward.intermediate, feed_forward.output_projection)
        watched.append([dense.kernel for dense in maps])
    with tf.GradientTape() as tape:
        outputs = model.head_outputs(model.encoder(inputs, training=False), inputs, False)
        loss = task.loss(outputs, labels, inputs["input_mask"])
    gradients: Any = tape.gradient(loss, watched)
    heads, neurons = [], []
    for weights, own_gradients in zip(watched, gradients, strict=True):
        # Kernels are [in, out], so the paper's columns are our rows.
        output, first, second = (
            tf.abs(weight * gradient) for weight, gradient in zip(weights, own_gradients, strict=True)
        )
        by_head = tf.reshape(output, [config.num_attention_heads, config.head_size * config.hidden_size])
        heads.append(tf.reduce_sum(by_head, axis=1))
        neurons.append(tf.reduce_sum(first, axis=0) + tf.reduce_sum(second, axis=1))
    return tf.stack(heads), tf.stack(neurons)


def _digest(arrays: dict[str, np.ndarray]) -> str:
    return hashlib.sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest()
