"""The only module that imports Keras: version 2, from the package `tf_keras` (ADR 1)."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterator

# TensorFlow, tf-models-official and tfmot read these on import.
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tf_keras  # noqa: E402
from tf_keras.src import backend  # noqa: E402

__all__ = ["fresh_layer_names", "tf_keras"]


@contextlib.contextmanager
def fresh_layer_names() -> Iterator[None]:
    """Restarts the numbering of layer names inside the block, as in a new process.

    Keras numbers a class' layers over the whole process, and the numbers become part of tensor names in converted
    files. `reset_uids` would also rename the caller's later layers, so the counters are restored.
    """
    counters = backend.PER_GRAPH_OBJECT_NAME_UIDS, backend.OBSERVED_NAMES
    backend.PER_GRAPH_OBJECT_NAME_UIDS, backend.OBSERVED_NAMES = weakref.WeakKeyDictionary(), set()
    try:
        yield
    finally:
        backend.PER_GRAPH_OBJECT_NAME_UIDS, backend.OBSERVED_NAMES = counters
