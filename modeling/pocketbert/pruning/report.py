"""The page of a pruning: head and neuron importance, and the remaining ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pocketbert.configs import EncoderConfig
from pocketbert.pruning.importance import Importance
from pocketbert.report import render

_CELL = 22
# Points per curve; more would not show.
_POINTS = 60


def page(
    importance: Importance,
    teacher: EncoderConfig,
    pruned: EncoderConfig,
    layers: Sequence[int],
    result: Mapping[str, Any],
) -> str:
    """Renders a self-contained HTML page.

    It has the metrics before and after, a table and, if heads or neurons were chosen by their importance, a map of all
    heads and a curve for each layer's neurons. `layers` are the teacher's remaining ones, counted from 1.
    """
    before, after = result["parameters"]
    return render(
        "pruning.html",
        title="Pruning",
        before=f"{before:,}",
        after=f"{after:,}",
        ratio=f"{before / after:.1f}",
        examples=f"{result['examples']:,}" if result["examples"] else "",
        factored=pruned.embedding_projection != teacher.embedding_projection,
        rank=pruned.embedding_size,
        energy=f"{100 * result['kept_embedding']:.1f}",
        metrics=[
            [name, f"{result['teacher_metrics'][name]:.4f}", f"{value:.4f}"]
            for name, value in result["metrics"].items()
        ],
        heads=_head_map(
            importance.heads,
            {
                teacher.stored_layer(layer - 1) + 1: heads
                for layer, heads in zip(layers, result["kept_heads"], strict=True)
            },
        ),
        neurons=_neuron_chart(importance.neurons, pruned),
        layers=[
            [
                layer,
                ", ".join(str(head + 1) for head in heads),
                *([f"{100 * of_heads:.1f} %", f"{100 * of_neurons:.1f} %"] if result["examples"] else []),
            ]
            for layer, heads, of_heads, of_neurons in zip(
                layers, result["kept_heads"], *result["kept_importance"].values(), strict=True
            )
        ],
    )


def _head_map(heads: np.ndarray, kept_heads: Mapping[int, list[int]]) -> dict[str, Any]:
    """Returns one square per head, layers from top to bottom; opacity relative to the layer's highest importance."""
    cells = []
    for layer, scores in enumerate(heads):
        highest = float(scores.max()) or 1.0
        for head, score in enumerate(scores.tolist()):
            cells.append(
                {
                    "x": 56 + head * _CELL,
                    "y": layer * _CELL,
                    "opacity": round(score / highest, 3),
                    "kept": head in kept_heads.get(layer + 1, ()),
                    "text": f"layer {layer + 1}, head {head + 1}: {score:.4g}",
                }
            )
    layers, count = heads.shape
    return {
        "cells": cells,
        "size": _CELL - 2,
        "width": 60 + count * _CELL,
        "height": layers * _CELL + 18,
        "rows": [{"y": layer * _CELL + 15, "text": f"layer {layer + 1}"} for layer in range(layers)],
        "columns": [{"x": 66 + head * _CELL, "text": head + 1} for head in range(count)],
        "bottom": layers * _CELL + 13,
    }


def _neuron_chart(neurons: np.ndarray, pruned: EncoderConfig) -> dict[str, Any]:
    """One curve per layer: its importance share in the most important neurons; plot area 292 x 176."""
    layers, size = neurons.shape
    counts = np.unique(np.linspace(0, size, min(size, _POINTS) + 1).astype(int))
    lines = []
    for layer, scores in enumerate(neurons):
        sums = np.concatenate([[0.0], np.cumsum(np.sort(scores)[::-1])])
        shares = sums[counts] / (sums[-1] or 1.0)
        points = zip(56 + 292 * counts / size, 192 - 176 * shares, strict=True)
        lines.append(
            {
                "points": " ".join(f"{x:.1f},{y:.1f}" for x, y in points),
                # From light (first layer) to dark.
                "colour": f"hsl(175, 60%, {round(70 - 50 * layer / max(layers - 1, 1))}%)",
                "text": f"layer {layer + 1}",
            }
        )
    return {
        "lines": lines,
        "names": [(line["text"], line["colour"]) for line in lines],
        "cut": round(56 + 292 * pruned.intermediate_size / size, 1),
        "ticks": [{"y": 192 - 176 * share, "text": f"{share:.0%}"} for share in (0.0, 0.5, 1.0)],
        "places": [
            {"x": 56, "text": "0", "anchor": "start"},
            {"x": 348, "text": f"{size} neurons", "anchor": "end"},
        ],
    }
