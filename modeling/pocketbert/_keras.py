"""The only place that imports Keras: version 2, as the `tf_keras` package (ADR 1)."""

from __future__ import annotations

import os

# Read by TensorFlow, tf-models-official and tfmot when they are first imported.
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tf_keras  # noqa: E402

__all__ = ["tf_keras"]
