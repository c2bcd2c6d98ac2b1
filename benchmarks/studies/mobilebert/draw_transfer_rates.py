"""Draw MobileBERT's learning-rate multipliers for the docs: `python -m studies.mobilebert.draw_transfer_rates`.

The drawing shows the multipliers that the optimizer receives, from the method's stages for the paper's networks.
"""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from pocketbert.distillation.method import DistillationSpec
from pocketbert.distillation.methods.mobilebert import MobileBERT
from pocketbert.presets import preset
from pocketbert.training.stage import Stage

DRAWING = Path(__file__).resolve().parents[3] / "docs" / "methods" / "transfer-rates.svg"

# For embedding and heads (0) and each layer: (step, multiplier) of the phases, with steps from the beginning.
Curves = list[list[list[tuple[float, float]]]]

PANELS = {"frozen": "layers below frozen (paper)", "reduced": "layers below reduced (authors' code)"}
# Sampling of a phase: the rise has its knee at about a tenth; the rest is smooth.
_PARTS = (0.0, 0.05, 0.0995, 0.3, 0.5, 0.7, 0.85, 0.95, 0.99, 0.9999)
_HIGHEST = 3.0
# In pixels.
_WIDTH, _HEIGHT, _PANEL, _ROW, _LEFT, _TOP, _GAP = 840, 520, 350, 15, 56, 44, 34
_INK, _FAINT, _CURRENT, _LOWER = "#1f2937", "#d1d5db", "#0f766e", "#d97706"


def curves(lower_layers: str) -> Curves:
    """Curves of one way to treat the layers below: a key of `PANELS`."""
    found: Curves = [[] for _ in range(25)]
    begin = 0.0
    for stage in _transfer_stages(lower_layers):
        steps = _steps(stage)
        sampled = tf.constant([part * steps for part in _PARTS])
        for layer, phases in enumerate(found):
            multiplier = tf.zeros_like(sampled) + stage.learning_rate_multiplier(_weight(layer), sampled)
            phases.append([(begin + step, float(rate)) for step, rate in zip(sampled.numpy(), multiplier, strict=True)])
        begin += steps
    return found


def drawing() -> str:
    """Creates the SVG."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="11" fill="{_INK}">',
        "<title>Learning-rate multipliers of progressive knowledge transfer, 24 layers</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
    ]
    for index, (lower_layers, title) in enumerate(PANELS.items()):
        left = _LEFT + index * (_PANEL + _GAP)
        parts += _overview(left, title, curves(lower_layers), labels=index == 0)
    parts += _one_phase()
    return "\n".join([*parts, "</svg>"]) + "\n"


def _overview(left: int, title: str, found: Curves, labels: bool) -> list[str]:
    """Draws all layers over the whole transfer, one row each; the row's height is a multiplier of 3."""
    total = sum(_steps(stage) for stage in _transfer_stages("frozen"))
    parts = [_text(left + _PANEL / 2, 20, title, "middle", size=13)]
    for layer, phases in enumerate(found):
        base = _TOP + (25 - layer) * _ROW
        if labels:
            parts.append(_text(left - 6, base - 3, str(layer) if layer else "others", "end"))
        parts.append(f'<path d="M{left} {base}h{_PANEL}" stroke="{_FAINT}" stroke-width="0.5"/>')
        for points in phases:
            highest = max(rate for _, rate in points)
            if highest == 0:
                continue
            corners = [(left + _PANEL * step / total, base - (_ROW - 2) * rate / _HIGHEST) for step, rate in points]
            outline = "L".join(f"{x:.1f} {y:.1f}" for x, y in corners)
            color = _CURRENT if highest > 1 else _LOWER
            parts.append(f'<path d="M{outline}V{base}H{corners[0][0]:.1f}z" fill="{color}"/>')
    for step in range(0, total + 1, total // 4):
        x = left + _PANEL * step / total
        parts.append(_text(x, _TOP + 25 * _ROW + 14, f"{step:,}", "middle"))
    parts.append(_text(left + _PANEL / 2, _TOP + 25 * _ROW + 30, "step of the transfer", "middle"))
    return parts


def _one_phase() -> list[str]:
    """Draws one phase enlarged: the multipliers of the current layer and of the reduced layers below."""
    stage = _transfer_stages("reduced")[1]
    steps, bottom, height = _steps(stage), _HEIGHT - 14, 44
    width = 2 * _PANEL + _GAP
    parts = [f'<path d="M{_LEFT} {bottom}h{width}" stroke="{_FAINT}"/>']
    for layer, color, words in ((2, _CURRENT, "current layer"), (1, _LOWER, "layers below")):
        sampled = tf.linspace(0.0, float(steps), 81)
        rates = stage.learning_rate_multiplier(_weight(layer), sampled)
        assert isinstance(rates, tf.Tensor)
        corners = [
            f"{_LEFT + width * step / steps:.1f} {bottom - height * rate / _HIGHEST:.1f}"
            for step, rate in zip(sampled.numpy().tolist(), rates.numpy().tolist(), strict=True)
        ]
        parts.append(f'<path d="M{"L".join(corners)}" fill="none" stroke="{color}" stroke-width="2"/>')
        highest = float(tf.reduce_max(rates))
        y = bottom - height * highest / _HIGHEST + (14 if layer == 2 else -5)
        label = f"one phase of {steps:,} steps, {words}: up to {highest:.2f}, at the end {float(rates[-1]):.2f}"
        parts.append(_text(_LEFT + width / 2, y, label, "middle", fill=color))
    return parts


def _transfer_stages(lower_layers: str) -> list[Stage]:
    setting = DistillationSpec(
        teacher=preset("ib_bert_large").config, student=preset("mobilebert_paper").config, task=None
    )
    options = MobileBERT(lower_layers=lower_layers, distillation_steps=0)  # type: ignore[arg-type]
    return list(options.stages(setting))


def _steps(stage: Stage) -> int:
    return stage.duration.count


def _weight(layer: int) -> str:
    """Name of a weight of a layer, or of the embedding for 0."""
    return f"mobilebert.encoder.layer.{layer - 1}.output.dense.weight" if layer else "mobilebert.embeddings.weight"


def _text(x: float, y: float, words: str, anchor: str, size: int = 11, fill: str = _INK) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{fill}">{words}</text>'


if __name__ == "__main__":
    DRAWING.write_text(drawing(), encoding="utf-8")
