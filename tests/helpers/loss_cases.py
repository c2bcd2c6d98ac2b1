"""Cases for every loss: awkward inputs, an oracle, and variants with one mistake each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import oracles.distillation as oracle
import tensorflow as tf

from pocketbert.distillation import losses

# Pairwise distinct, so that a mix-up of axes shows. Relation heads have sizes 3 and 2.
B, S, N, H, STUDENT_H, R, C, P, V = 3, 7, 5, 12, 8, 4, 9, 6, 11

MASKS = {
    "padded": np.array([[1] * 7, [1] * 4 + [0] * 3, [1] * 6 + [0]], np.int32),
    "an example is all padding": np.array([[1] * 4 + [0] * 3, [0] * 7, [1] * 7], np.int32),
    "tokens eliminated": np.array([[1, 0, 1, 1, 0, 1, 0], [0, 1, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 1, 1]], np.int32),
}
PADDED = MASKS["padded"]

Inputs = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One loss.

    Attributes:
      loss: the function under test.
      expected: its oracle, called with the same inputs in the same order.
      arrays: float inputs' shapes by the loss's own argument names.
      more: makes the other inputs out of a generator and the mask.
      token_axes: the axes of length S of each input that has one; none: the loss takes no mask.
    """

    loss: Callable[..., Any]
    expected: Callable[..., Any]
    arrays: Mapping[str, tuple[int, ...]]
    more: Callable[[np.random.Generator, np.ndarray], Inputs]
    token_axes: Mapping[str, tuple[int, ...]]

    def inputs(self, mask: np.ndarray = PADDED, seed: int = 5) -> Inputs:
        """NumPy arrays and plain numbers; floats have a standard deviation of 1.5."""
        generator = np.random.default_rng(seed)
        floats = {name: 1.5 * generator.standard_normal(shape) for name, shape in self.arrays.items()}
        arrays = {name: array.astype(np.float32) for name, array in floats.items()} | self.more(generator, mask)
        return {name: arrays[name] for name in inspect.signature(self.loss).parameters if name in arrays}

    def oracle(self, inputs: Inputs) -> dict[str, float]:
        """The terms as the papers have them."""
        return terms(self.expected(*inputs.values()))


def terms(result: Any) -> dict[str, Any]:
    """A scalar as the one term of a dict."""
    return dict(result) if isinstance(result, Mapping) else {"loss": result}


def _mask_only(generator: np.random.Generator, mask: np.ndarray) -> Inputs:
    del generator
    return {"mask": mask}


def _hidden(loss: Callable, expected: Callable, student: str, more: Callable = _mask_only, **axes: Any) -> Case:
    shapes = {"teacher_hidden": (B, S, H), student: (B, S, H)}
    return Case(loss, expected, shapes, more, {name: (1,) for name in shapes} | {"mask": (1,)} | axes)


def _attention(loss: Callable, expected: Callable) -> Case:
    shapes = {"teacher_logits": (B, N, S, S), "student_logits": (B, N, S, S)}
    return Case(loss, expected, shapes, _mask_only, {name: (2, 3) for name in shapes} | {"mask": (1,)})


def _relation(*, others: bool) -> Case:
    shapes = {"teacher_vectors": (B, S, H), "student_vectors": (B, S, STUDENT_H)}
    if others:
        shapes |= {"teacher_others": (B, S, H), "student_others": (B, S, STUDENT_H)}
    axes = {name: (1,) for name in shapes} | {"mask": (1,)}
    more = lambda generator, mask: {"mask": mask, "num_relation_heads": R}  # noqa: E731
    return Case(losses.relation_transfer, oracle.relation_transfer, shapes, more, axes)


def _static_widths(generator: np.random.Generator, mask: np.ndarray) -> Inputs:
    return {"mask": mask, "width_keep": (generator.permutation(H) < 5).astype(np.int32)}


def _widths_of_each_token(generator: np.random.Generator, mask: np.ndarray) -> Inputs:
    return {"mask": mask, "width_keep": generator.random((B, S, H)) < 0.4}


def _pretraining(generator: np.random.Generator, mask: np.ndarray) -> Inputs:
    del mask
    labels = generator.integers(0, V, (B, P)).astype(np.int32)
    labels[0, 4:], labels[2, 1:] = -1, -1
    return {"mlm_labels": labels, "nsp_labels": np.array([0, 1, 1], np.int32), "alpha": 0.3}


CASES = {
    "feature_map_transfer": _hidden(losses.feature_map_transfer, oracle.feature_map_transfer, "student_hidden"),
    "feature_statistics_transfer": _hidden(
        losses.feature_statistics_transfer, oracle.feature_statistics_transfer, "student_hidden"
    ),
    "attention_transfer": _attention(losses.attention_transfer, oracle.attention_transfer),
    "tinybert_attention": _attention(losses.tinybert_attention, oracle.tinybert_attention),
    "tinybert_hidden": _hidden(losses.tinybert_hidden, oracle.feature_map_transfer, "student_projected"),
    "soft_cross_entropy": Case(
        losses.soft_cross_entropy,
        oracle.soft_cross_entropy,
        {"teacher_logits": (B, C), "student_logits": (B, C)},
        lambda generator, mask: {"temperature": 1.7},
        {},
    ),
    "relation_transfer": _relation(others=False),
    "relation_transfer of pairs": _relation(others=True),
    "masked_hidden": _hidden(losses.masked_hidden, oracle.masked_hidden, "student_projected", _static_widths),
    "masked_hidden of each token": _hidden(
        losses.masked_hidden, oracle.masked_hidden, "student_projected", _widths_of_each_token, width_keep=(1,)
    ),
    "embedding_vectors": Case(
        losses.embedding_vectors,
        oracle.embedding_vectors,
        {"teacher_vectors": (B, H), "student_vectors": (B, H)},
        _mask_only,
        {},
    ),
    "embedding_similarities": Case(
        losses.embedding_similarities,
        oracle.embedding_similarities,
        {"teacher_vectors": (B, H), "student_vectors": (B, STUDENT_H)},
        lambda generator, mask: {"mask": mask, "temperature": 0.1},
        {},
    ),
    "pretraining_distillation": Case(
        losses.pretraining_distillation,
        oracle.pretraining_distillation,
        {"teacher_mlm_logits": (B, P, V), "student_mlm_logits": (B, P, V), "nsp_logits": (B, 2)},
        _pretraining,
        {},
    ),
}
MASKED = [name for name, case in CASES.items() if case.token_axes]


def student_names(inputs: Inputs) -> list[str]:
    """The inputs that get a gradient."""
    return [name for name in inputs if name.startswith("student") or name == "nsp_logits"]


def teacher_names(inputs: Inputs) -> list[str]:
    """The inputs that must get none."""
    return [name for name in inputs if name.startswith("teacher")]


def _swapped(inputs: Inputs) -> Inputs:
    """Teacher and student exchanged: the other direction of a KL divergence or cross-entropy."""
    other = {"teacher": "student", "student": "teacher"}
    swap = {name: name.replace(who, other[who], 1) for name in inputs for who in other if name.startswith(who)}
    return {swap.get(name, name): value for name, value in inputs.items()}


def _all_tokens(inputs: Inputs) -> Inputs:
    return inputs | {"mask": np.ones_like(inputs["mask"])}


def _over_queries(inputs: Inputs) -> Inputs:
    return inputs | {name: np.swapaxes(inputs[name], 2, 3) for name in ("teacher_logits", "student_logits")}


def _softmax(inputs: Inputs) -> Inputs:
    return inputs | {name: tf.nn.softmax(inputs[name]).numpy() for name in ("teacher_logits", "student_logits")}


def _undivided(inputs: Inputs) -> Inputs:
    """Undoes the division by √d of both models' relations: heads of sizes 3 and 2."""
    return inputs | {
        "teacher_vectors": inputs["teacher_vectors"] * np.float32((H / R) ** 0.25),
        "student_vectors": inputs["student_vectors"] * np.float32((STUDENT_H / R) ** 0.25),
    }


def _student_widths_too(inputs: Inputs) -> Inputs:
    return inputs | {"student_projected": inputs["student_projected"] * inputs["width_keep"]}


def _ignored_labels_counted(inputs: Inputs) -> Inputs:
    return inputs | {"mlm_labels": np.maximum(inputs["mlm_labels"], 0)}


# (case, what is wrong, the inputs that make the loss compute the wrong thing).
WRONG_INPUTS: list[tuple[str, str, Callable[[Inputs], Inputs]]] = [
    *[(name, "padding counts", _all_tokens) for name in MASKED],
    ("attention_transfer", "KL the other way round", _swapped),
    ("attention_transfer", "distributions over queries", _over_queries),
    ("tinybert_attention", "probabilities instead of logits", _softmax),
    ("soft_cross_entropy", "cross-entropy the other way round", _swapped),
    ("soft_cross_entropy", "no temperature", lambda inputs: inputs | {"temperature": 1.0}),
    ("relation_transfer", "KL the other way round", _swapped),
    ("relation_transfer", "another number of heads", lambda inputs: inputs | {"num_relation_heads": 2}),
    ("relation_transfer", "no division by the root of the head's size", _undivided),
    (
        "relation_transfer of pairs",
        "others ignored",
        lambda inputs: {name: value for name, value in inputs.items() if not name.endswith("others")},
    ),
    ("masked_hidden", "eliminated widths leave the student too", _student_widths_too),
    ("masked_hidden", "nothing eliminated", lambda inputs: inputs | {"width_keep": np.ones(H)}),
    ("embedding_similarities", "KL the other way round", _swapped),
    ("embedding_similarities", "no temperature", lambda inputs: inputs | {"temperature": 1.0}),
    ("pretraining_distillation", "alpha weighs the other term", lambda inputs: inputs | {"alpha": 1 - inputs["alpha"]}),
    ("pretraining_distillation", "ignored labels count", _ignored_labels_counted),
    ("pretraining_distillation", "cross-entropy the other way round", _swapped),
]


def _reshaped_without_transpose(vectors: tf.Tensor, heads: int) -> tf.Tensor:
    batch, length, width = vectors.shape
    split = tf.transpose(tf.reshape(vectors, [batch, heads, length, width // heads]), [1, 0, 2, 3])
    return tf.reshape(split, [heads * batch, length, width // heads])


def _normalized_over_tokens(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    mean, variance = tf.nn.moments(x, [1], keepdims=True)
    over_features = tf.nn.moments(x, [2])
    return (x - mean) * tf.math.rsqrt(variance), *over_features


def _unbiased_variance(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    mean, variance = tf.nn.moments(x, [2], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance), mean[:, :, 0], variance[:, :, 0] * H / (H - 1)


# (case, what is wrong, name in `pocketbert.distillation`, its wrong replacement).
WRONG_PARTS: list[tuple[str, str, str, Callable]] = [
    ("attention_transfer", "padding is a key", "losses.mask_bias", lambda mask, dtype: tf.zeros([1, 1, 1, 1], dtype)),
    ("relation_transfer", "padding is a key", "relations.mask_bias", lambda mask, dtype: tf.zeros([B, 1, 1, S], dtype)),
    ("relation_transfer", "heads mix tokens", "relations._split_heads", _reshaped_without_transpose),
    ("feature_statistics_transfer", "normalized over tokens", "losses._normalize", _normalized_over_tokens),
    ("feature_statistics_transfer", "unbiased variance", "losses._normalize", _unbiased_variance),
    *[
        (name, "mean of everything", "losses.masked_mean", lambda values, weights: tf.reduce_mean(values))
        for name in (*MASKED, "pretraining_distillation")
        if not name.startswith("relation_transfer")
    ],
    ("relation_transfer", "padding counts in the mean", "losses.normalized_sum", lambda total, weight: total / (B * S)),
]
