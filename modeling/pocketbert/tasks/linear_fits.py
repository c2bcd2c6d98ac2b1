"""Linear models on fixed features, from scikit-learn: they initialize heads, and are simple methods to compare with."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

LinearForm: TypeAlias = Literal["classes", "labels", "scores"]
# Inverse L2 penalty strengths, C in scikit-learn's logistic regression; for features with length 10.
STRENGTHS = (0.001, 0.01, 0.1, 1.0)
# Cross-validation reads at most so many rows; more hardly change its choice.
_MOST_ROWS = 2000
_FOLDS = 5
# A fold may lack a class; the loss stays finite.
_LEAST_PROBABILITY = 1e-4


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearFit:
    """A linear map from features to logits or a score.

    Attributes:
      kernel: float32 [H, outputs].
      bias: float32 [outputs].
      loss: cross-validated mean loss: cross-entropy in nats, or the squared error over the scores' variance.
      strength: the chosen value from `STRENGTHS`.
    """

    kernel: np.ndarray
    bias: np.ndarray
    loss: float
    strength: float


def fit_linear(
    form: LinearForm,
    features: np.ndarray,
    labels: np.ndarray,
    outputs: int,
    weights: np.ndarray | None = None,
    strengths: Sequence[float] = STRENGTHS,
) -> LinearFit:
    """Fits a linear map with an L2 penalty; cross-validation chooses its strength.

    Args:
      form: `classes` (multinomial logistic regression), `labels` (a logistic one each) or `scores` (ridge regression).
      features: float [N, H].
      labels: int [N] class indices, 0 and 1 [N, outputs], or float [N] scores.
      outputs: number of logits.
      weights: float [N], a weight per row, or [N, outputs] for `labels`; None for 1. Not for `scores`.
      strengths: values to choose from.
    """
    rows = np.random.default_rng(0).permutation(len(features))[:_MOST_ROWS]
    losses = np.zeros(len(strengths))
    folds = list(_folds(form, labels[rows]))
    for train, test in folds:
        for index, strength in enumerate(strengths):
            kernel, bias = _fit(
                form, features[rows[train]], labels[rows[train]], outputs, strength, weights, rows[train]
            )
            losses[index] += _loss(form, features[rows[test]] @ kernel + bias, labels[rows[test]]) * len(test)
    best = int(losses.argmin())
    kernel, bias = _fit(form, features, labels, outputs, strengths[best], weights, np.arange(len(features)))
    loss = losses[best] / max(1, sum(len(test) for _, test in folds))
    if form == "scores":
        loss /= max(float(np.var(labels)), 1e-12)
    return LinearFit(
        kernel=kernel.astype(np.float32), bias=bias.astype(np.float32), loss=float(loss), strength=strengths[best]
    )


def estimator(form: LinearForm, strength: float) -> Any:
    """An unfitted scikit-learn estimator; its predictions have the labels' form."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.multiclass import OneVsRestClassifier

    if form == "scores":
        return Ridge(alpha=1 / (2 * strength))
    logistic = LogisticRegression(C=strength, max_iter=300)
    return OneVsRestClassifier(logistic) if form == "labels" else logistic


def fit_estimator(form: LinearForm, features: Any, labels: np.ndarray, strength: float, **options: Any) -> Any:
    """Fits `estimator`, or returns None if all rows have one class."""
    if form == "classes" and len(np.unique(labels)) < 2:
        return None
    unfitted = estimator(form, strength)
    # The matrices are small: with several threads, their synchronization takes most of the time.
    with warnings.catch_warnings(), _thread_pools().limit(limits=1):
        # A fit that stops early, and labels that are constant in a fold, are good enough here.
        warnings.simplefilter("ignore")
        return unfitted.fit(features, labels, **options)


@functools.cache
def _thread_pools() -> Any:
    """Thread pools in the libraries loaded by scikit-learn; finding them takes longer than a fit."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _fit(
    form: LinearForm,
    features: np.ndarray,
    labels: np.ndarray,
    outputs: int,
    strength: float,
    weights: np.ndarray | None,
    rows: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Kernel [H, outputs] and bias [outputs]; classes without examples keep a low prior."""
    options = {} if weights is None else {"sample_weight": weights[rows]}
    # scikit-learn's estimator for several labels takes no weight per label.
    one_by_one = form == "labels" and weights is not None
    fitted: Any = None if one_by_one else fit_estimator(form, features, labels, strength, **options)
    kernel = np.zeros((features.shape[1], outputs))
    if form == "scores":
        kernel[:, 0] = fitted.coef_
        return kernel, np.array([fitted.intercept_])
    if form == "labels":
        # A share's log-odds, half an example away from 0 and 1.
        counts = labels.sum(axis=0)
        bias = np.log((counts + 0.5) / (len(labels) - counts + 0.5))
        for index in np.flatnonzero((counts > 0) & (counts < len(labels))):
            if weights is None:
                logistic = fitted.estimators_[index]
            else:
                factors = {"sample_weight": weights[rows, index]}
                logistic = fit_estimator("classes", features, labels[:, index], strength, **factors)
            kernel[:, index], bias[index] = logistic.coef_[0], logistic.intercept_[0]
        return kernel, bias
    counts = np.bincount(labels, minlength=outputs)
    bias = np.log((counts + 0.5) / (len(labels) + 0.5 * outputs))
    if fitted is None:
        return kernel, bias
    coefficients, intercepts = fitted.coef_, fitted.intercept_
    if len(coefficients) == 1:
        coefficients = np.concatenate([-coefficients, coefficients]) / 2
        intercepts = np.concatenate([-intercepts, intercepts]) / 2
    kernel[:, fitted.classes_] = coefficients.T
    # Softmax ignores a constant: keep the priors' mean, so that missing classes stay comparable.
    bias[fitted.classes_] = intercepts - intercepts.mean() + bias[fitted.classes_].mean()
    return kernel, bias


def _folds(form: LinearForm, labels: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    from sklearn.model_selection import KFold, StratifiedKFold

    folds = min(_FOLDS, len(labels))
    if folds < 2:
        return
    if form == "classes" and np.bincount(labels).max() >= folds:
        with warnings.catch_warnings():
            # Classes with fewer examples than folds.
            warnings.simplefilter("ignore")
            yield from StratifiedKFold(folds, shuffle=True, random_state=0).split(np.zeros(len(labels)), labels)
        return
    yield from KFold(folds, shuffle=True, random_state=0).split(np.zeros(len(labels)))


def _loss(form: LinearForm, outputs: np.ndarray, labels: np.ndarray) -> float:
    """Mean loss over logits or scores [N, outputs]."""
    if form == "scores":
        return float(np.mean((outputs[:, 0] - labels) ** 2))
    if form == "labels":
        return float(np.mean(np.logaddexp(0, outputs) - labels * outputs))
    shifted = outputs - outputs.max(axis=1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return float(-np.maximum(logs[np.arange(len(labels)), labels], np.log(_LEAST_PROBABILITY)).mean())
