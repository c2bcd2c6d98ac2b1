"""The page of attention maps: an overview of all heads, each map with its tokens, and curves of shares."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from pocketbert.plots.attention_maps import AttentionMaps
from pocketbert.plots.drawing import CURVES, PALETTE, map_png, short
from pocketbert.plots.separator_shares import SeparatorShares
from pocketbert.report import render

# Sizes in units of the drawings: a token, the least side of a map, a letter, a map in the overview.
_TOKEN, _MAP, _LETTER, _SMALL = 11.0, 240.0, 5.4, 44


def page(
    places: Mapping[str, str],
    texts: Sequence[str],
    maps: Mapping[str, AttentionMaps],
    shares: Mapping[str, SeparatorShares],
    separator: str,
) -> str:
    """Renders a self-contained HTML page.

    Args:
      places: directories by model (`model`, or `teacher` and `student`).
      texts: the drawn text, and its pair.
      maps: maps by model, with the same number of layers each; empty for none.
      shares: shares by model; empty for none.
      separator: the separator's token.
    """
    sides = [_side(number, name, model_maps) for number, (name, model_maps) in enumerate(maps.items())]
    return render(
        "attention.html",
        title="Attention",
        places=[(name.capitalize(), path) for name, path in places.items()],
        texts=list(zip(("Text", "Pair"), texts, strict=False)),
        truncated=[
            f"{name} read the first {len(model_maps.tokens)} tokens"
            for name, model_maps in maps.items()
            if model_maps.truncated
        ],
        scale=[(f"{100 * value**0.5:.0f}", f"{value:g}") for value in (0, 0.1, 0.25, 0.5, 1)],
        palette=list(enumerate(PALETTE)),
        steps=len(PALETTE) - 1,
        sides=sides,
        overview=_overview(maps) if maps else None,
        layers=_layers(sides, maps) if maps else [],
        small=_SMALL,
        shares=_shares(shares, separator) if shares else None,
    )


def _side(number: int, name: str, maps: AttentionMaps) -> dict[str, Any]:
    """Sizes and token labels of one model's maps."""
    tokens = [short(token) for token in maps.tokens]
    unit = max(_TOKEN, _MAP / len(tokens))
    side, margin = round(unit * len(tokens), 1), round(8 + _LETTER * max(map(len, tokens)), 1)
    return {
        "number": number,
        "name": name.capitalize(),
        "side": side,
        "margin": margin,
        "size": round(side + margin + 4, 1),
        "labels": [
            {"place": round(unit * (index + 0.5), 1), "text": token, "full": full}
            for index, (token, full) in enumerate(zip(tokens, maps.tokens, strict=True))
        ],
        "images": [[base64.b64encode(map_png(probs)).decode("ascii") for probs in of_layer] for of_layer in maps.probs],
    }


def _overview(maps: Mapping[str, AttentionMaps]) -> dict[str, Any]:
    """Coordinates of the maps in the overview: layers from top to bottom, heads from left to right."""
    cells, columns, rows, names = [], [], [], []
    left = 58
    for number, (name, model_maps) in enumerate(maps.items()):
        names.append({"x": left, "text": name.capitalize()})
        heads = model_maps.probs.shape[1]
        columns += [{"x": left + head * _SMALL + _SMALL // 2 - 2, "text": head + 1} for head in range(heads)]
        for index, layer in enumerate(model_maps.layers):
            y = 34 + index * _SMALL
            rows.append({"x": left - 6, "y": y + _SMALL // 2, "text": f"layer {layer}"})
            cells += [
                {
                    "x": left + head * _SMALL,
                    "y": y,
                    "image": f"map-{number}-{index}-{head}",
                    "text": f"{name}: layer {layer}, head {head + 1}",
                }
                for head in range(heads)
            ]
        left += heads * _SMALL + 64
    depth = len(next(iter(maps.values())).layers)
    return {
        "cells": cells,
        "columns": columns,
        "rows": rows,
        "names": names if len(maps) > 1 else [],
        "width": left - 58,
        "height": 38 + depth * _SMALL,
    }


def _layers(sides: list[dict[str, Any]], maps: Mapping[str, AttentionMaps]) -> list[dict[str, Any]]:
    """Heading and figures of each layer, or pair of layers; the heads of two models alternate."""
    layers = []
    for index in range(len(next(iter(maps.values())).layers)):
        names = [f"{name} layer {model_maps.layers[index]}" for name, model_maps in maps.items()]
        heading = " and ".join(names) if len(names) > 1 else names[0].removeprefix("model ")
        figures: list[dict[str, Any] | None] = []
        for head in range(max(model_maps.probs.shape[1] for model_maps in maps.values())):
            for side, (name, model_maps) in zip(sides, maps.items(), strict=True):
                if head >= model_maps.probs.shape[1]:
                    figures.append(None)
                    continue
                text = f"layer {model_maps.layers[index]}, head {head + 1}"
                text = f"{name} {text}" if len(maps) > 1 else text
                figures.append({"side": side, "image": f"map-{side['number']}-{index}-{head}", "text": text})
        layers.append({"heading": heading[0].upper() + heading[1:], "figures": figures})
    return layers


def _shares(shares: Mapping[str, SeparatorShares], separator: str) -> dict[str, Any]:
    """Curves on a plot area of 292 x 176, and a table."""
    depth = max(len(counts) for share in shares.values() for counts in share.counts.values())
    lines, head = [], ["Layer"]
    for (name, curve), colour in zip(shares.items(), CURVES, strict=False):
        for k, dash in zip(sorted(curve.counts), ("none", "6 4"), strict=False):
            text = f"{name}, top {k}" if len(shares) > 1 else f"top {k}"
            head.append(text[0].upper() + text[1:])
            dots = [
                {"x": round(56 + 292 * (layer + 0.5) / depth, 1), "y": round(192 - 176 * share, 1)}
                for layer, share in enumerate(curve.shares(k))
            ]
            lines.append({"text": text, "colour": colour, "dash": dash, "dots": dots})
    rows = []
    for layer in range(depth):
        cells = []
        for curve in shares.values():
            for k in sorted(curve.counts):
                inside = layer < len(curve.counts[k])
                cells.append(f"{100 * curve.shares(k)[layer]:.1f} %" if inside else "–")
        rows.append([layer + 1, *cells])
    return {
        "separator": separator,
        "texts": f"{next(iter(shares.values())).texts:,}",
        "lines": lines,
        "names": [
            (f"{line['text']} ({'solid' if line['dash'] == 'none' else 'dashed'})", line["colour"]) for line in lines
        ],
        "ticks": [{"y": 192 - 176 * share, "text": f"{share:.0%}"} for share in (0.0, 0.5, 1.0)],
        "places": [
            {"x": round(56 + 292 * (layer + 0.5) / depth, 1), "text": layer + 1, "anchor": "middle"}
            for layer in range(depth)
        ],
        "head": head,
        "rows": rows,
    }
