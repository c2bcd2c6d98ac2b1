"""Whether tests use TFLite 2.16.1, which runs in an environment of its own."""

from __future__ import annotations

import os

from pocketbert_export.tflite import runtimes


def is_here() -> bool:
    """CI makes the environment; elsewhere it is used if somebody made it."""
    return os.environ.get("CI", "").lower() == "true" or runtimes.tflite_2_16().exists
