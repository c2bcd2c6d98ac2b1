"""The drawing in the docs shows the multipliers that the optimizer is given."""

from __future__ import annotations

import pytest

import draw_transfer_rates as tool


def test_the_drawing_is_not_older_than_the_code() -> None:
    drawn = tool.DRAWING.read_text(encoding="utf-8")
    assert drawn == tool.drawing(), "run: python tools/draw_transfer_rates.py"


@pytest.mark.parametrize(("lower_layers", "below"), [("frozen", 0.0), ("reduced", 0.3)])
def test_each_layer_has_its_turn(lower_layers: str, below: float) -> None:
    others, *layers = tool.curves(lower_layers)
    assert len(layers) == 24
    assert not any(rate for phase in others for _, rate in phase)
    for layer, phases in enumerate(layers):
        # Sampled where the rise ends, at 0.995.
        peaks = [max(rate for _, rate in phase) for phase in phases]
        assert peaks == pytest.approx([0.0] * layer + [3 * 0.995] + [below * 0.995] * (23 - layer), abs=2e-3)
        assert [phase[0][0] for phase in phases] == [10_000 * number for number in range(24)]
