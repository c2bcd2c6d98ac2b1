"""The only place that imports Keras: version 2, as the `tf_keras` package (ADR 1)."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterator

# Read by TensorFlow, tf-models-official and tfmot when they are first imported.
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tf_keras  # noqa: E402
from tf_keras.src import backend  # noqa: E402

__all__ = ["fresh_layer_names", "tf_keras"]


@contextlib.contextmanager
def fresh_layer_names() -> Iterator[None]:
    """Numbers the layers made inside the block from the start, as in a new process.

    Keras numbers layers of one class over the whole process, and the numbers reach the names of a converted file's
    tensors. `reset_uids` would change the names of the caller's own later layers too, so the counters come back.
    """
    kept = backend.PER_GRAPH_OBJECT_NAME_UIDS, backend.OBSERVED_NAMES
    backend.PER_GRAPH_OBJECT_NAME_UIDS, backend.OBSERVED_NAMES = weakref.WeakKeyDictionary(), set()
    try:
        yield
    finally:
        backend.PER_GRAPH_OBJECT_NAME_UIDS, backend.OBSERVED_NAMES = kept
