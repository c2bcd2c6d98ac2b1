"""The papers' losses in float64, one loop for each Σ, over a text's own tokens: padding is not there at all."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def feature_map_transfer(teacher: np.ndarray, student: np.ndarray, mask: np.ndarray) -> float:
    """MobileBERT, eq. 2; TinyBERT, eq. 8 and 9."""
    squares = []
    for b, t in tokens(mask):
        for n in range(teacher.shape[2]):
            squares.append((float(teacher[b, t, n]) - float(student[b, t, n])) ** 2)
    return mean(squares)


def feature_statistics_transfer(teacher: np.ndarray, student: np.ndarray, mask: np.ndarray) -> dict[str, float]:
    """MobileBERT's code: normalized difference and difference of the statistics of each token's features."""
    normalized, means, variances = [], [], []
    for b, t in tokens(mask):
        statistics = []
        for hidden in (teacher[b, t], student[b, t]):
            features = [float(x) for x in hidden]
            mu = sum(features) / len(features)
            variance = sum((x - mu) ** 2 for x in features) / len(features)
            statistics.append((mu, variance, [(x - mu) / math.sqrt(variance + 1e-12) for x in features]))
        (teacher_mu, teacher_variance, teacher_features), (student_mu, student_variance, student_features) = statistics
        normalized += [(x - y) ** 2 for x, y in zip(teacher_features, student_features, strict=True)]
        means.append((teacher_mu - student_mu) ** 2)
        variances.append(abs(teacher_variance - student_variance))
    return {"normalized": mean(normalized), "mean": mean(means), "variance": mean(variances)}


def attention_transfer(teacher: np.ndarray, student: np.ndarray, mask: np.ndarray) -> float:
    """MobileBERT, eq. 3."""
    divergences = []
    for b, query in tokens(mask):
        keys = [key for example, key in tokens(mask) if example == b]
        for head in range(teacher.shape[1]):
            teacher_row = [float(teacher[b, head, query, key]) for key in keys]
            student_row = [float(student[b, head, query, key]) for key in keys]
            divergences.append(kl_divergence(teacher_row, student_row))
    return mean(divergences)


def tinybert_attention(teacher: np.ndarray, student: np.ndarray, mask: np.ndarray) -> float:
    """TinyBERT, eq. 7."""
    squares_of_heads = []
    for head in range(teacher.shape[1]):
        squares = []
        for b, query in tokens(mask):
            for example, key in tokens(mask):
                if example == b:
                    squares.append((float(student[b, head, query, key]) - float(teacher[b, head, query, key])) ** 2)
        squares_of_heads.append(mean(squares))
    return mean(squares_of_heads)


def soft_cross_entropy(teacher: np.ndarray, student: np.ndarray, temperature: float) -> float:
    """TinyBERT, eq. 10."""
    losses = []
    for teacher_row, student_row in zip(teacher, student, strict=True):
        losses.append(cross_entropy([z / temperature for z in teacher_row], [z / temperature for z in student_row]))
    return mean(losses)


def embedding_vectors(teacher: np.ndarray, student: np.ndarray, mask: np.ndarray) -> float:
    """Reimers & Gurevych 2020, eq. 1."""
    del mask
    return mean(
        [mean([(s - t) ** 2 for s, t in zip(*rows, strict=True)]) for rows in zip(student, teacher, strict=True)]
    )


def embedding_similarities(teacher: np.ndarray, student: np.ndarray, mask: np.ndarray, temperature: float) -> float:
    """SEED (Fang et al. 2021), eq. 4 and 5, over the other texts of the batch."""
    del mask

    def cosine(one: np.ndarray, other: np.ndarray) -> float:
        return float(np.dot(one, other) / np.sqrt(np.dot(one, one) * np.dot(other, other)))

    divergences = []
    for text in range(len(teacher)):
        others = [other for other in range(len(teacher)) if other != text]
        logits = [[cosine(x[text], x[other]) / temperature for other in others] for x in (teacher, student)]
        divergences.append(kl_divergence(*logits))
    return mean(divergences)


def relation_transfer(
    teacher_i: np.ndarray,
    student_i: np.ndarray,
    mask: np.ndarray,
    relation_heads: int,
    teacher_j: np.ndarray | None = None,
    student_j: np.ndarray | None = None,
) -> float:
    """MiniLMv2, eq. 6 to 8."""
    divergences = []
    for a in range(relation_heads):
        for b, t in tokens(mask):
            rows = []
            for vectors_i, vectors_j in ((teacher_i, teacher_j), (student_i, student_j)):
                vectors_j = vectors_i if vectors_j is None else vectors_j
                size = vectors_i.shape[2] // relation_heads
                row = []
                for example, other in tokens(mask):
                    if example == b:
                        product = 0.0
                        for feature in range(a * size, (a + 1) * size):
                            product += float(vectors_i[b, t, feature]) * float(vectors_j[b, other, feature])
                        row.append(product / math.sqrt(size))
                rows.append(row)
            divergences.append(kl_divergence(*rows))
    return mean(divergences)


def masked_hidden(teacher: np.ndarray, student: np.ndarray, width_keep: np.ndarray, mask: np.ndarray) -> float:
    """HSK, eq. 3 against the teacher's vectors with eliminated activations set to zero (section 2.3)."""
    squares = []
    for b, t in tokens(mask):
        for n in range(teacher.shape[2]):
            width = width_keep[n] if width_keep.ndim == 1 else width_keep[b, t, n]
            target = float(teacher[b, t, n]) if width else 0.0
            squares.append((float(student[b, t, n]) - target) ** 2)
    return mean(squares)


def pretraining_distillation(
    mlm_labels: np.ndarray,
    teacher: np.ndarray,
    student: np.ndarray,
    nsp_labels: np.ndarray,
    nsp_logits: np.ndarray,
    alpha: float,
) -> float:
    """MobileBERT, eq. 4."""
    mlm, distilled = [], []
    for b in range(mlm_labels.shape[0]):
        for p in range(mlm_labels.shape[1]):
            if mlm_labels[b, p] != -1:
                mlm.append(-log_softmax(student[b, p])[mlm_labels[b, p]])
                distilled.append(cross_entropy(teacher[b, p], student[b, p]))
    nsp = [-log_softmax(nsp_logits[b])[nsp_labels[b]] for b in range(len(nsp_labels))]
    return alpha * mean(mlm) + (1 - alpha) * mean(distilled) + mean(nsp)


def tokens(mask: np.ndarray) -> list[tuple[int, int]]:
    """(example, position) of every token of the batch."""
    return [(b, t) for b in range(mask.shape[0]) for t in range(mask.shape[1]) if mask[b, t]]


def mean(values: Sequence[float]) -> float:
    """0 where there is nothing to compare."""
    return math.fsum(values) / len(values) if values else 0.0


def log_softmax(logits: Sequence[float]) -> list[float]:
    logits = [float(z) for z in logits]
    highest = max(logits)
    log_sum = highest + math.log(math.fsum(math.exp(z - highest) for z in logits))
    return [z - log_sum for z in logits]


def cross_entropy(teacher_logits: Sequence[float], student_logits: Sequence[float]) -> float:
    pairs = zip(log_softmax(teacher_logits), log_softmax(student_logits), strict=True)
    return -math.fsum(math.exp(log_p) * log_q for log_p, log_q in pairs)


def kl_divergence(teacher_logits: Sequence[float], student_logits: Sequence[float]) -> float:
    pairs = zip(log_softmax(teacher_logits), log_softmax(student_logits), strict=True)
    return math.fsum(math.exp(log_p) * (log_p - log_q) for log_p, log_q in pairs)
