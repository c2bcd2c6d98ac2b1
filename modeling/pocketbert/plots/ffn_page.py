"""Feed-forward surfaces as PNG images, and their page."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketbert.configs import EncoderConfig
from pocketbert.plots.drawing import INK, PALETTE, draw_png
from pocketbert.report import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = 3
# In inches.
_SIDE = 3.6
# Lines per surface in each direction.
_LINES = 41


def surfaces_png(surfaces: Mapping[str, np.ndarray], axis: np.ndarray) -> bytes:
    """Draws surfaces side by side.

    Args:
      surfaces: model → values [points, points], first feature before second; values that are not finite stay empty.
      axis: both features' values, [points].
    """
    return draw_png(lambda figure: _draw(figure, surfaces, axis))


def page(
    configs: Mapping[str, EncoderConfig], surfaces: Mapping[str, np.ndarray], axis: np.ndarray, image: bytes
) -> str:
    """Renders a self-contained HTML page with each model's networks.

    Args:
      configs: model → architecture.
      surfaces: model → values [points, points].
      axis: both features' values, [points].
      image: the drawn surfaces.
    """
    models = []
    for name, config in configs.items():
        finite = surfaces[name][np.isfinite(surfaces[name])]
        networks = []
        for layer in range(config.num_layers):
            stacks, inner = config.feedforward_networks(layer)
            network = f"linear({config.activation}(linear(x))), inner width {inner}"
            network += f", {stacks} times" if stacks > 1 else ""
            networks.append([layer + 1, str(config.feedforward.expression(layer)) if config.feedforward else network])
        models.append(
            {
                "name": name,
                "range": f"{finite.min():.4g} to {finite.max():.4g}" if finite.size else "–",
                "overflowed": surfaces[name].size - finite.size,
                "layers": networks,
            }
        )
    return render(
        "ffn.html",
        title="Feed-forward networks",
        low=f"{axis[0]:g}",
        high=f"{axis[-1]:g}",
        image=base64.b64encode(image).decode("ascii"),
        models=models,
    )


def _draw(figure: Figure, surfaces: Mapping[str, np.ndarray], axis: np.ndarray) -> None:
    from matplotlib.colors import LinearSegmentedColormap
    from mpl_toolkits.mplot3d import Axes3D

    columns = min(_COLUMNS, len(surfaces))
    rows = -(-len(surfaces) // columns)
    figure.set_size_inches(_SIDE * columns, _SIDE * rows)
    figure.set_dpi(130)
    colours: Any = LinearSegmentedColormap.from_list("values", PALETTE[1:])
    ticks = np.linspace(axis[0], axis[-1], 5)
    first, second = np.meshgrid(axis, axis, indexing="ij")
    for index, (name, values) in enumerate(surfaces.items()):
        rectangle = (index % columns / columns, 1 - (index // columns + 1) / rows, 0.86 / columns, 0.9 / rows)
        axes = Axes3D(figure)
        axes.set_position(rectangle)
        figure.add_axes(axes)
        shown = np.where(np.isfinite(values), values, np.nan)
        axes.plot_surface(first, second, shown, cmap=colours, rcount=_LINES, ccount=_LINES, linewidth=0)
        # A preset, or a path's last two parts.
        axes.set_title(str(Path(*Path(name).parts[-2:])), fontsize=9, color=INK)
        axes.set_xticks(ticks)
        axes.set_yticks(ticks)
        axes.tick_params(labelsize=6.5)
        axes.set_xlabel("x", fontsize=7)
        axes.set_ylabel("y", fontsize=7)
        axes.zaxis.get_offset_text().set_fontsize(6.5)
