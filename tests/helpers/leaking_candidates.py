"""Candidates of a search that leave as much memory behind as a trained one. Other processes import this module."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_KEPT: list[bytes] = []


def train(training: Any, point: Any, seed: int, folder: Path) -> None:
    """Scores a candidate by its length and keeps 8 MiB."""
    del training, seed
    _KEPT.append(b"\1" * (8 << 20))
    folder.mkdir(parents=True)
    metrics = {"accuracy": len(point["expressions"]) / 1000}
    (folder / "result.json").write_text(json.dumps({"main_metric": "accuracy", "metrics": metrics}))
