"""Draws attention maps and share curves as PNG images, the same bytes every time.

Colours show a probability's square root, on the same scale from 0 to 1 in all maps: most probabilities are small.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketbert.plots.attention_maps import AttentionMaps
from pocketbert.plots.separator_shares import SeparatorShares

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# From probability 0 to 1.
PALETTE = ("#f8fafc", "#5eb5ac", "#0f766e", "#042f2e")
INK, SOFT = "#111827", "#4b5563"
# One colour per model; one dash per k.
CURVES = ("#0f766e", "#b45309")
# matplotlib's version stays out.
_METADATA: Any = {"Software": None}
_MOST_LETTERS = 14
_POINTS, _DPI = 6.5, 110
# In inches: a token's row or column, and a map's least side, with room for its title.
_TOKEN, _MAP = 0.115, 1.05
_MOST_PIXELS = 40e6
# Fonts for other scripts, where they are installed.
_FONTS = ("DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans", "WenQuanYi Zen Hei", "Arial Unicode MS")


def coloured(probs: np.ndarray) -> np.ndarray:
    """Returns colours for probabilities: uint8 [..., 3]; NaN is white."""
    stops = np.array([[int(colour[digit : digit + 2], 16) for digit in (1, 3, 5)] for colour in PALETTE])
    places = np.sqrt(np.nan_to_num(probs, nan=0.0)) * (len(PALETTE) - 1)
    channels = [np.interp(places, range(len(PALETTE)), stops[:, channel]) for channel in range(3)]
    return np.where(np.isnan(probs)[..., np.newaxis], 255, np.stack(channels, -1)).round().astype(np.uint8)


def maps_png(sides: Sequence[tuple[str, AttentionMaps]], title: str) -> bytes:
    """Draws all maps: one row per layer, or layer pair, and one column per head.

    Args:
      sides: each model's name and maps, with the same number of layers, drawn side by side.
      title: figure title.
    """
    return draw_png(lambda figure: _draw_maps(figure, sides, title))


def shares_png(shares: Mapping[str, SeparatorShares], separator: str) -> bytes:
    """Draws a separator's shares as curves over the layers."""
    return draw_png(lambda figure: _draw_shares(figure, shares, separator))


def curve_label(name: str, k: int, shares: Mapping[str, SeparatorShares]) -> str:
    """Names a curve: the k, and the model if there are several."""
    return f"{name}, top {k}" if len(shares) > 1 else f"top {k}"


def draw_png(draw: Callable[[Figure], None]) -> bytes:
    """Returns a figure's PNG image after `draw` has drawn it."""
    # The object-oriented interface has no global state and needs no display.
    import matplotlib
    from matplotlib import font_manager
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    fonts = {font.name for font in font_manager.fontManager.ttflist}
    settings: Any = {"font.family": [name for name in _FONTS if name in fonts], "text.parse_math": False}
    stream = io.BytesIO()
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # A box replaces letters that no installed font has.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure()
        FigureCanvasAgg(figure)
        draw(figure)
        figure.savefig(stream, format="png", dpi=figure.dpi, facecolor="white", metadata=_METADATA)
    return stream.getvalue()


def _draw_maps(figure: Figure, sides: Sequence[tuple[str, AttentionMaps]], title: str) -> None:
    """Lays the maps out in inches, from the top left corner."""
    labels = [
        [token if len(token) <= _MOST_LETTERS else token[: _MOST_LETTERS - 1] + "…" for token in maps.tokens]
        for _, maps in sides
    ]
    margins = [0.15 + 0.62 * _POINTS / 72 * max(map(len, label)) for label in labels]
    units = [max(_TOKEN, _MAP / len(label)) for label in labels]
    side_inches = [unit * len(tick_labels) for unit, tick_labels in zip(units, labels, strict=True)]
    heads = [maps.probs.shape[1] for _, maps in sides]
    blocks = [margin + count * (side + 0.12) for margin, count, side in zip(margins, heads, side_inches, strict=True)]
    top, row = (
        1.0 + 0.2 * (len(sides) > 1),
        0.25 + max(side + margin for side, margin in zip(side_inches, margins, strict=True)),
    )
    width = max(sum(blocks) + 0.3 * len(sides), 0.062 * 11 * (len(title) + 4) / 7, 3.6)
    height = top + row * len(sides[0][1].layers) + 0.1
    figure.set_size_inches(width, height)
    figure.set_dpi(min(_DPI, (_MOST_PIXELS / (width * height)) ** 0.5))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])
    axes.set_axis_off()
    axes.text(0.15, 0.28, title, fontsize=11, fontweight="bold", color=INK, va="center")
    _draw_scale(axes, 0.15, 0.55)
    left = 0.0
    for (name, maps), tokens, margin, unit, side, block in zip(
        sides, labels, margins, units, side_inches, blocks, strict=True
    ):
        if len(sides) > 1:
            axes.text(left + margin, top - 0.12, name, fontsize=9, fontweight="bold", color=INK, va="center")
        for layer_index, layer in enumerate(maps.layers):
            above = top + row * layer_index + 0.25
            for index, token in enumerate(tokens):
                y = above + unit * (index + 0.5)
                axes.text(left + margin - 0.05, y, token, fontsize=_POINTS, color=SOFT, ha="right", va="center")
            for head, probs in enumerate(maps.probs[layer_index]):
                start = left + margin + head * (side + 0.12)
                text = f"layer {layer}, head {head + 1}"
                axes.text(start + side / 2, above - 0.09, text, fontsize=_POINTS + 0.5, color=INK, ha="center")
                extent = (start, start + side, above + side, above)
                axes.imshow(coloured(probs), extent=extent, interpolation="nearest", aspect="auto")
                axes.plot(
                    [start, start + side, start + side, start, start],
                    [above, above, above + side, above + side, above],
                    color="#cbd5e1",
                    linewidth=0.6,
                )
                for index, token in enumerate(tokens):
                    x = start + unit * (index + 0.5)
                    axes.text(
                        x, above + side + 0.04, token, fontsize=_POINTS, color=SOFT, rotation=90, ha="center", va="top"
                    )
        left += block + 0.3
    axes.set(xlim=(0, width), ylim=(height, 0))


def _draw_scale(axes: Any, x: float, y: float) -> None:
    """Draws the colour scale, 1.6 inches wide."""
    axes.imshow(coloured(np.linspace(0, 1, 256)[np.newaxis] ** 2), extent=(x, x + 1.6, y + 0.12, y), aspect="auto")
    for value in (0, 0.1, 0.25, 0.5, 1):
        axes.text(x + 1.6 * value**0.5, y + 0.22, f"{value:g}", fontsize=_POINTS, color=SOFT, ha="center", va="center")
    axes.text(
        x + 1.75,
        y + 0.06,
        "attention probability; rows attend to columns",
        fontsize=_POINTS + 0.5,
        color=SOFT,
        va="center",
    )


def _draw_shares(figure: Figure, shares: Mapping[str, SeparatorShares], separator: str) -> None:
    figure.set_size_inches(5.0, 3.5)
    figure.set_dpi(170)
    figure.set_layout_engine("constrained")
    axes = figure.add_subplot()
    for (name, model_shares), colour in zip(shares.items(), CURVES, strict=False):
        for k, dash in zip(sorted(model_shares.counts), ("-", "--"), strict=False):
            values, label = [100 * share for share in model_shares.shares(k)], curve_label(name, k, shares)
            axes.plot(range(1, len(values) + 1), values, dash, color=colour, marker="o", markersize=4, label=label)
    axes.set_ylim(-3, 103)
    axes.set_xticks(range(1, max(len(counts) for model in shares.values() for counts in model.counts.values()) + 1))
    axes.set_xlabel("layer")
    axes.set_ylabel(f"texts with {separator} among the top k, %")
    axes.set_title(f"Share of {separator} among the tokens most attended by the first", fontsize=10, loc="left")
    axes.grid(color="#e5e7eb")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8.5)
