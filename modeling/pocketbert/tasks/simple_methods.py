"""Simple methods to compare a model with: they train in seconds on the same examples, and can beat it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketbert.data.examples import Examples, evenly
from pocketbert.notation import argument
from pocketbert.tasks.linear_fits import LinearForm, fit_estimator
from pocketbert.tasks.scores import Baseline
from pocketbert_runtime.answers.tags import OUTSIDE, iob2, spans_of

if TYPE_CHECKING:
    from pocketbert.data.readers.tagged_texts import TaggedTexts

MOST_EXAMPLES = 5000
# Separate vectors cost two encoder passes per pair, so fewer pairs must do.
_MOST_PAIRS = 1000
# Penalty strengths: word counts are sparse, vectors dense.
_WORD_STRENGTH, _VECTOR_STRENGTH = 10.0, 0.1

# Texts → unit vectors, float32 [N, H].
Vectors = Callable[[Sequence[str]], np.ndarray]
# Predictions as in `Examples.labels` → the main metric.
Metric = Callable[[np.ndarray], float]


def word_method(form: LinearForm, train: Examples, dev: Examples, metric: Metric) -> list[Baseline]:
    """Logistic or ridge regression on TF-IDF for words and word pairs; for text pairs with overlap features."""
    from scipy.sparse import csr_matrix, hstack
    from sklearn.feature_extraction.text import TfidfVectorizer

    train = train.select(evenly(len(train), MOST_EXAMPLES))
    # The default pattern drops words with one letter, and all words in writing without spaces.
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b")
    try:
        features = vectorizer.fit_transform(_joined(train))
    except ValueError:
        # No text has a word.
        return []
    dev_features = vectorizer.transform(_joined(dev))
    if train.pairs is not None:
        features = hstack([features, csr_matrix(overlaps(train))]).tocsr()
        dev_features = hstack([dev_features, csr_matrix(overlaps(dev))]).tocsr()
    name = "ridge regression on words" if form == "scores" else "logistic regression on words"
    remedy = f"use more examples, or {name}, which needs no network"
    return _scored(form, features, train.labels, dev_features, metric, name, _WORD_STRENGTH, remedy)


def pair_methods(form: LinearForm, train: Examples, dev: Examples, metric: Metric, vectors: Vectors) -> list[Baseline]:
    """Methods on separate vectors u and v for the two texts in a pair.

    The cosine with overlap features, and [u, v, |u − v|, u·v] (Conneau et al. 2017, InferSent, section 3). For scores
    also the cosine itself, without training.
    """
    assert dev.pairs is not None
    train = train.select(evenly(len(train), _MOST_PAIRS))
    assert train.pairs is not None
    remedy = "the encoder knows each text, but not the pair"
    if form == "scores":
        pairs = argument("kind", "embedding", python="pb.data.pairs(…)")
        remedy += f"; for similarity of texts, train with {pairs}"
    else:
        remedy += "; use more examples, or this method"
    sides = [vectors(texts) for texts in (train.texts, train.pairs, dev.texts, dev.pairs)]
    cosines = [np.sum(sides[first] * sides[first + 1], axis=1, keepdims=True) for first in (0, 2)]
    name = "regression on cosine and overlap"
    simple = [
        np.concatenate([cosine, overlaps(data)], axis=1) for cosine, data in zip(cosines, (train, dev), strict=True)
    ]
    methods = _scored(form, simple[0], train.labels, simple[1], metric, name, _WORD_STRENGTH, remedy)
    # Lengths near 10, as the penalty strength expects.
    joined = [
        10 * np.concatenate([first, second, np.abs(first - second), np.sqrt(first.shape[1]) * first * second], axis=1)
        for first, second in (sides[:2], sides[2:])
    ]
    name = "regression on separate vectors"
    methods += _scored(form, joined[0], train.labels, joined[1], metric, name, _VECTOR_STRENGTH, remedy)
    if form == "scores":
        methods.append(Baseline(name="the cosine of separate vectors", score=metric(cosines[1][:, 0]), remedy=remedy))
    return methods


def tag_method(train: TaggedTexts, dev: TaggedTexts, metric: Callable[[list[list[str]]], float]) -> list[Baseline]:
    """Predicts each word's most frequent tag in the training texts; `O` for new words."""
    assert train.tags is not None
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for text, words, tags in zip(train.texts, train.words, train.tags, strict=True):
        for (start, end), tag in zip(words, tags, strict=True):
            counts[text[start:end]][tag] += 1
    best = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    predictions = []
    for text, words in zip(dev.texts, dev.words, strict=True):
        tags = [best.get(text[start:end], OUTSIDE) for start, end in words]
        predictions.append(iob2(spans_of(tags), len(tags)))
    name = "the most frequent tag of each word"
    return [Baseline(name=name, score=metric(predictions), remedy="use more examples, or a list of names")]


def overlaps(pairs: Examples) -> np.ndarray:
    """Features for shared words, float64 [N, 5]: Jaccard index, shares in both texts, lengths, equality."""
    assert pairs.pairs is not None
    rows = []
    for first, second in zip(pairs.texts, pairs.pairs, strict=True):
        one, other = first.lower().split(), second.lower().split()
        shared = len({*one} & {*other})
        rows.append(
            [
                shared / max(1, len({*one} | {*other})),
                shared / max(1, len({*one})),
                shared / max(1, len({*other})),
                abs(len(one) - len(other)) / max(1, len(one) + len(other)),
                float(one == other),
            ]
        )
    return np.array(rows)


def _scored(
    form: LinearForm,
    features: Any,
    labels: np.ndarray | None,
    dev_features: Any,
    metric: Metric,
    name: str,
    strength: float,
    remedy: str,
) -> list[Baseline]:
    assert labels is not None
    fitted = fit_estimator(form, features, labels, strength)
    if fitted is None:
        return []
    predictions = np.asarray(fitted.predict(dev_features))
    if form == "labels":
        predictions = predictions.reshape(dev_features.shape[0], -1)
    return [Baseline(name=name, score=metric(predictions), remedy=remedy)]


def _joined(data: Examples) -> list[str]:
    return (
        data.texts
        if data.pairs is None
        else [f"{one} {other}" for one, other in zip(data.texts, data.pairs, strict=True)]
    )
