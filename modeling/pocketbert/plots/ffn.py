"""Surfaces that show the nonlinearity of feed-forward networks (EfficientBERT, section 4.6 and figure 5)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from pocketbert.configs import EncoderConfig
from pocketbert.errors import UserError, raise_if_any
from pocketbert.feedforward import evaluate
from pocketbert.files import write_bytes, write_text
from pocketbert.hub.names import shown
from pocketbert.layers.core import activate, feedforward_operations
from pocketbert.output_folders import check_directory, check_inputs, new_directory
from pocketbert.plots.ffn_page import page, surfaces_png
from pocketbert.training.initialization import plan_model

KIND = "folder of feed-forward plots"
PAGE_FILE, SURFACES_FILE = "report.html", "ffn.png"
# Both input features (section 4.6).
LOW, HIGH = -15.0, 5.0
_WIDTH = 2


@dataclass(frozen=True, kw_only=True)
class FeedForwardPlots:
    """Results of `plot_ffn`.

    Attributes:
      surfaces: model → output, float64 `[points, points]`, see `ffn_surface`.
    """

    surfaces: Mapping[str, np.ndarray]


def ffn_surface(config: EncoderConfig, points: int = 81) -> np.ndarray:
    """Computes the last layer's mean output for inputs with two features.

    The networks have no attention, weights of 1 and biases of 0. Instead of layer normalization, the mean of residual
    and network follows each network: the paper's "simple average operation", in our reading. Another choice: the inner
    width is scaled to two features, 2·inner/hidden rounded down, and at least 1.

    Args:
      config: the architecture.
      points: values per feature, evenly spaced from -15 to 5.
    Returns:
      float64 `[points, points]`, first feature before second; infinite or NaN where a value overflows.
    Raises:
      UserError: the architecture has bottlenecks.
    """
    if config.bottleneck is not None:
        raise UserError(
            f"a feed-forward plot needs layers without bottleneck; received model type {config.model_type}; pass "
            "another model"
        )
    remedy = "pass another model"
    raise_if_any(config.block_problems("a feed-forward plot", ("plain", "relative"), remedy), "plot")
    axis = tf.linspace(tf.constant(LOW, tf.float64), HIGH, points)
    x = tf.reshape(tf.stack(tf.meshgrid(axis, axis, indexing="ij"), -1), [-1, _WIDTH])
    for layer in range(config.num_layers):
        stacks, inner_size = config.feedforward_networks(layer)
        linears = [_Ones(max(1, _WIDTH * inner_size // config.hidden_size)), _Ones(_WIDTH)]
        for _ in range(stacks):
            if config.feedforward is None:
                output = linears[1](activate(linears[0](x), config.activation))
            else:
                operations = feedforward_operations(config.feedforward.mismatch)
                output = evaluate(config.feedforward.expression(layer).tree, x, linears, operations)
            x = (x + output) / 2
    return tf.reshape(tf.reduce_mean(x, -1), [points, points]).numpy()


def plot_ffn(
    models: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    points: int = 81,
    overwrite: bool = False,
) -> FeedForwardPlots:
    """Draws a surface per model, see `ffn_surface`, in `ffn.png` and `report.html`. Weights are not used.

    Args:
      models: presets, model directories or config.json files.
      output: folder to create.
      points: values per feature.
      overwrite: replace a folder with feed-forward plots.
    Raises:
      UserError: an argument is invalid, a model cannot be read or has bottlenecks, or the folder exists. Nothing is
        written.
    """
    check_directory(output, KIND, overwrite=overwrite)
    if not 2 <= points <= 501:
        raise UserError(f"points must be 2 to 501; received {points}")
    if len({str(model) for model in models}) != len(models) or not models:
        raise UserError(f"models must be different; received {', '.join(map(str, models)) or 'none'}")
    configs = {shown(model): plan_model(model).config for model in models}
    check_inputs(output, [model for model in models if Path(model).exists()])
    surfaces = {name: ffn_surface(config, points) for name, config in configs.items()}
    axis = np.linspace(LOW, HIGH, points)
    with new_directory(output, KIND, overwrite=overwrite) as folder:
        image = surfaces_png(surfaces, axis)
        write_bytes(folder / SURFACES_FILE, image)
        write_text(folder / PAGE_FILE, page(configs, surfaces, axis, image))
    return FeedForwardPlots(surfaces=surfaces)


class _Ones:
    """A linear map with weights of 1 and no bias: every output sums the inputs."""

    def __init__(self, width: int) -> None:
        self._width = width

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return tf.repeat(tf.reduce_sum(x, -1, keepdims=True), self._width, axis=-1)
