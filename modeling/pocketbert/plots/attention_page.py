"""The attention map page: the drawn maps, share curves, and their table."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

from pocketbert.plots.attention_maps import AttentionMaps
from pocketbert.plots.drawing import curve_label
from pocketbert.plots.separator_shares import SeparatorShares
from pocketbert.report import render


def page(
    places: Mapping[str, str],
    texts: Sequence[str],
    maps: Mapping[str, AttentionMaps],
    shares: Mapping[str, SeparatorShares],
    separator: str,
    *,
    maps_png: bytes | None,
    shares_png: bytes | None,
) -> str:
    """Renders a self-contained HTML page.

    Args:
      places: directories by model (`model`, or `teacher` and `student`).
      texts: the drawn text, and its pair.
      maps: maps by model, with the same number of layers each; empty for none.
      shares: shares by model; empty for none.
      separator: the separator's token.
      maps_png: image with the maps.
      shares_png: image with the shares.
    """
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
        maps=maps_png and base64.b64encode(maps_png).decode("ascii"),
        several=len(maps) > 1,
        shares=shares_png and base64.b64encode(shares_png).decode("ascii"),
        num_texts=max((share.texts for share in shares.values()), default=0),
        separator=separator,
        head=["Layer", *(curve_label(name, k, shares).capitalize() for name, k in _curves(shares))],
        rows=_rows(shares),
    )


def _curves(shares: Mapping[str, SeparatorShares]) -> list[tuple[str, int]]:
    return [(name, k) for name, model_shares in shares.items() for k in sorted(model_shares.counts)]


def _rows(shares: Mapping[str, SeparatorShares]) -> list[list[str]]:
    """Shares in percent by layer; a model with fewer layers has dashes."""
    columns = [shares[name].shares(k) for name, k in _curves(shares)]
    return [
        [
            str(layer + 1),
            *(f"{100 * column[layer]:.1f} %" if layer < len(column) else "–" for column in columns),
        ]
        for layer in range(max(map(len, columns), default=0))
    ]
