"""How large activations become in a run: a curve in its log, and the maxima of the model that it leaves.

Of networks with NoNorm alone: layer normalization bounds what it lets through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pocketbert.activation_stats import ActivationWatch
from pocketbert.model import Model
from pocketbert.progress import log_info

# So few that a look costs less than a training step, in batches that fit wherever training does.
BATCHES, BATCH_SIZE = 4, 8


def open_watch(model: Model, batches: Callable[[], Iterable[Mapping[str, Any]]]) -> ActivationWatch | None:
    """What looks at a run's activations; None where a norm bounds them.

    Args:
      model: what is trained.
      batches: gives the inputs to look at; not called where nothing is looked at.
    """
    return ActivationWatch(model, batches()) if model.config.norm == "no_norm" else None


def report(watch: ActivationWatch | None) -> dict[str, Any] | None:
    """The maxima of the weights as they are, for a run's result; says the largest, and float16's warning.

    Args:
      watch: of the run.

    Returns:
      `ActivationRange.to_json`; None without a watch.
    """
    if watch is None:
        return None
    maxima = watch.maxima()
    log_info(maxima.describe())
    return maxima.to_json()
