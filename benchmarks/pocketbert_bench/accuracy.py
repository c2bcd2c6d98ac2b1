"""Create accuracy records for result files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pocketbert import files
from pocketbert_bench.results import Accuracy


def record(*, value: float, model_file: Path | None = None, **fields: Any) -> Accuracy:
    """Creates an `Accuracy` with the hash of the scored `.tflite` file; None for a model directory."""
    digest = files.sha256(model_file) if model_file else None
    return Accuracy(value=float(value), model_sha256=digest, **fields)
