"""Draw MobileBERT's learning-rate multipliers for the docs: `python -m studies.mobilebert.draw_transfer_rates`.

The picture shows the multipliers that the optimizer receives, from the method's stages for the paper's networks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pocketbert.distillation.method import DistillationSpec
from pocketbert.distillation.methods.mobilebert import MobileBERT
from pocketbert.presets import preset
from pocketbert.training.stage import Stage
from studies.tables.charts import svg
from studies.tables.render import ROOT

PICTURE = "docs/methods/transfer-rates.svg"
PANELS = {"frozen": "layers below frozen (paper)", "reduced": "layers below reduced (authors' code)"}
_LAYERS = 24
_CURRENT, _LOWER = "#0f766e", "#d97706"
# Sampling of a phase: the rise has its knee at about a tenth; the rest is smooth.
_PARTS = np.array([0.0, 0.05, 0.0995, 0.3, 0.5, 0.7, 0.85, 0.95, 0.99, 0.9999])
# A row's height as a multiplier.
_HIGHEST = 3.2


def stages_of(lower_layers: str) -> list[Stage]:
    """The phases of progressive transfer; `lower_layers` is a key of `PANELS`."""
    teacher, student = (preset(name).config for name in ("ib_bert_large", "mobilebert_paper"))
    options = MobileBERT(lower_layers=lower_layers, distillation_steps=0)  # type: ignore[arg-type]
    return list(options.stages(DistillationSpec(teacher=teacher, student=student, task=None)))


def multipliers(stage: Stage, layer: int, steps: np.ndarray) -> np.ndarray:
    """Multipliers [N] of a layer, or of the embedding for 0, at steps [N] of a phase."""
    name = f"mobilebert.encoder.layer.{layer - 1}.output.dense.weight" if layer else "mobilebert.embeddings.weight"
    return np.zeros_like(steps) + np.asarray(stage.learning_rate_multiplier(name, steps.astype(np.float32)))


def _draw_overview(axes: Any, lower_layers: str) -> None:
    """All layers over the whole transfer, one row each."""
    start = 0
    for stage in stages_of(lower_layers):
        steps = stage.duration.count * _PARTS
        for layer in range(_LAYERS + 1):
            rates = multipliers(stage, layer, steps)
            if rates.max() > 0:
                colour = _CURRENT if rates.max() > 1 else _LOWER
                corners = np.concatenate([steps[:1], steps, steps[-1:]]), np.concatenate([[0.0], rates, [0.0]])
                axes.fill(start + corners[0], layer + corners[1] / _HIGHEST, color=colour, linewidth=0)
        start += stage.duration.count
    axes.set_title(PANELS[lower_layers], fontsize=10)
    axes.set_xlabel("step of the transfer")
    axes.set_yticks(range(_LAYERS + 1), ["others", *map(str, range(1, _LAYERS + 1))], fontsize=7)
    axes.set_xticks(np.linspace(0, start, 4))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(axis="y", color="#e5e7eb", linewidth=0.5)


def _draw_phase(axes: Any) -> None:
    """One phase enlarged: the multipliers of the current layer and of the reduced layers below."""
    stage = stages_of("reduced")[1]
    steps = np.linspace(0.0, stage.duration.count, 81)
    for layer, colour, name in ((2, _CURRENT, "current layer"), (1, _LOWER, "layers below")):
        rates = multipliers(stage, layer, steps)
        axes.plot(steps, rates, color=colour, label=f"{name}: up to {rates.max():.2f}, at the end {rates[-1]:.2f}")
    axes.set_title(f"one phase of {stage.duration.count:,} steps", fontsize=10)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.legend(fontsize=8)


if __name__ == "__main__":
    with svg(ROOT / PICTURE, 9.0, 6.5) as figure:
        parts = figure.subplot_mosaic([["frozen", "reduced"], ["phase", "phase"]], height_ratios=[3, 1])
        for panel in PANELS:
            _draw_overview(parts[panel], panel)
        _draw_phase(parts["phase"])
