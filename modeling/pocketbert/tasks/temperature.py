"""Temperature scaling for probabilities (Guo et al. 2017, section 4.2, https://arxiv.org/abs/1706.04599)."""

from __future__ import annotations

import numpy as np

# With fewer examples a temperature is mostly chance.
_LEAST_EXAMPLES = 20
_LEAST, _MOST = 0.2, 10.0
# A temperature must lower the loss by this fraction.
_HELPS = 1e-3


def softmax_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """The divisor for logits with the smallest cross-entropy; 1 if none helps or there are fewer than 20 examples.

    A departure: the right class counts (n + 1) / (n + 2) per example, as in Platt 1999, section 2.2. Without it, a few
    right answers would make all probabilities 1.

    Args:
      logits: float [N, classes].
      labels: int [N], the right classes.
    """
    count, classes = logits.shape
    if count < _LEAST_EXAMPLES:
        return 1.0
    from scipy.optimize import minimize_scalar

    targets = np.full((count, classes), 1 / (count + 2) / (classes - 1))
    targets[np.arange(count), labels] = (count + 1) / (count + 2)
    values = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)

    def loss(log_temperature: float) -> float:
        scaled = values / np.exp(log_temperature)
        logs = scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True))
        return float(-(targets * logs).sum(axis=1).mean())

    best = minimize_scalar(loss, bounds=(np.log(_LEAST), np.log(_MOST)), method="bounded")
    return float(np.exp(best.x)) if best.fun < loss(0.0) * (1 - _HELPS) else 1.0
