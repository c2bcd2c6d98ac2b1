"""An exported file's signatures: one per length, with named inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.encoder import INPUT_NAMES
from pocketbert.errors import UserError, raise_if_any
from pocketbert.layers.embeddings import padding_after_texts
from pocketbert.model import Model
from pocketbert.tasks.base import Task
from pocketbert.tasks.registry import get_task
from pocketbert_runtime.bundles.description import signature_name

# Standard tools look for this signature in a SavedModel.
DEFAULT_SIGNATURE = "serving_default"


def default_lengths(task: TaskConfig | None, max_position_embeddings: int, longest: int | None = None) -> list[int]:
    """Returns default lengths: 32, 64 and 128; for questions on paragraphs 128 and 384.

    Args:
      task: the model's task.
      max_position_embeddings: the model's; longer lengths are left out.
      longest: the model's training length; it is one of the lengths, and longer lengths are left out.
    """
    usual = Task.default_lengths if task is None else get_task(task).default_lengths
    longest = longest or min(usual[-1], max_position_embeddings)
    return [*(length for length in usual if length < longest), longest]


def check_lengths(lengths: Sequence[int], config: EncoderConfig) -> tuple[int, ...]:
    """Returns the lengths in ascending order.

    Raises:
      UserError: no length, a repeated one, or one beyond the position embeddings or too short for special tokens.
    """
    if not lengths:
        raise UserError("lengths must name at least one number of tokens; received none; for example 32,64,128")
    problems = []
    if len(set(lengths)) != len(lengths):
        problems.append(f"each length once; received {','.join(map(str, lengths))}")
    problems += [
        f"a length must lie in 3 to {config.max_position_embeddings}, the model's positions; received {length}"
        for length in lengths
        if not 3 <= length <= config.max_position_embeddings
    ]
    raise_if_any(problems, "lengths")
    return tuple(sorted(lengths))


def concrete_functions(model: Model, lengths: Sequence[int]) -> dict[str, tf.types.experimental.ConcreteFunction]:
    """Creates one function per length, with int32 `[1, length]` inputs and the model's outputs, both by name."""

    def answer(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        with padding_after_texts(model):
            return dict(model(inputs, training=False))

    functions = {}
    for length in lengths:
        specs = {name: tf.TensorSpec([1, length], tf.int32, name=name) for name in INPUT_NAMES}
        # Each length has its own function, so names do not depend on the others.
        functions[signature_name(length)] = tf.function(answer).get_concrete_function(**specs)
    return functions
