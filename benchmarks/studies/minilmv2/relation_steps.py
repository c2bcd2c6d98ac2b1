"""Steps with MiniLMv2's relation loss, in chunks and as a whole; as a program, the peak memory of one of them.

python -m studies.minilmv2.relation_steps KIND BATCH_SIZE LENGTH
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketbert.presets import preset

if TYPE_CHECKING:
    import tensorflow as tf

THREADS = 2
TEACHER, STUDENT = "bert_base_uncased", "minilmv2_6l_384d"
RELATION_HEADS = 48
RELATIONS = ("queries", "keys", "values")
# The loss given both models' vectors; or the teacher forward, the student forward and backward, without an update.
LOSS, LOSS_WHOLE = "loss, in chunks", "loss, as a whole"
STEP, STEP_WHOLE = "step, in chunks", "step, as a whole"
KINDS = (LOSS, LOSS_WHOLE, STEP, STEP_WHOLE)
_RUNS = 2

Loss = Callable[["tf.Tensor", "tf.Tensor", "tf.Tensor"], "tf.Tensor"]


def use_threads() -> None:
    """Gives TensorFlow `THREADS` threads; call it before TensorFlow is imported."""
    os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["TF_NUM_INTEROP_THREADS"] = str(THREADS)


def make_step(kind: str, batch_size: int, length: int) -> Callable[[], Any]:
    """Makes a step on random inputs without padding.

    Args:
      kind: one of `KINDS`.
      batch_size: texts in the batch.
      length: tokens of each text.

    Returns:
      A TensorFlow function that returns a number, which depends on the loss and on every gradient.
    """
    import tensorflow as tf

    loss = _chunked if kind in (LOSS, STEP) else whole
    mask = tf.ones([batch_size, length], tf.int32)
    inputs, watched = _given_vectors(batch_size, length) if kind in (LOSS, LOSS_WHOLE) else _models(mask)

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(watched)
            teacher, student = inputs()
            terms: list[tf.Tensor] = []
            for name in RELATIONS:
                # One relation after another, as in the method.
                with tf.control_dependencies(terms):
                    learned = tf.identity(student[name])
                terms.append(loss(teacher[name], learned, mask))
            value = tf.add_n(terms)
        gradients = [each for each in tape.gradient(value, watched) if each is not None]
        return tf.add_n([value, *(tf.reduce_sum(tf.convert_to_tensor(each)) for each in gradients)])

    return step


def whole(teacher: tf.Tensor, student: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Eq. 6 to 8 with all relations in memory, differentiated by TensorFlow.

    Args:
      teacher: [B, S, H].
      student: [B, S, H'].
      mask: int32 [B, S].
    """
    import tensorflow as tf

    from pocketbert.layers.attention import mask_bias
    from pocketbert.layers.loss_normalization import masked_mean

    bias = mask_bias(mask, tf.float32)

    def log_relation(vectors: tf.Tensor) -> tf.Tensor:
        batch, length, width = vectors.shape
        size = width // RELATION_HEADS
        heads = tf.transpose(tf.reshape(vectors, [batch, length, RELATION_HEADS, size]), [0, 2, 1, 3])
        return tf.nn.log_softmax(tf.matmul(heads * size**-0.5, heads, transpose_b=True) + bias)

    target, learned = tf.stop_gradient(log_relation(teacher)), log_relation(student)
    return masked_mean(tf.reduce_sum(tf.exp(target) * (target - learned), -1), mask[:, tf.newaxis, :])


def _chunked(teacher: tf.Tensor, student: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    from pocketbert.distillation.losses import relation_transfer

    return relation_transfer(teacher, student, mask, RELATION_HEADS)


def _given_vectors(batch_size: int, length: int) -> tuple[Callable[[], Any], list[Any]]:
    import tensorflow as tf

    random = np.random.default_rng(0)
    # Variables: TensorFlow would compute a function of constants only once.
    teacher, student = (
        {
            name: tf.Variable(
                random.standard_normal([batch_size, length, preset(each).config.attention_size], "float32")
            )
            for name in RELATIONS
        }
        for each in (TEACHER, STUDENT)
    )
    return lambda: (teacher, student), list(student.values())


def _models(mask: tf.Tensor) -> tuple[Callable[[], Any], list[Any]]:
    import tensorflow as tf

    from pocketbert.model import from_preset

    teacher, student = (from_preset(preset(name).config, seed=0) for name in (TEACHER, STUDENT))
    ids = np.random.default_rng(0).integers(1000, 30_000, mask.shape).astype(np.int32)
    # A variable, so that TensorFlow does not fold the teacher into a constant.
    batch = {"input_word_ids": tf.Variable(ids), "input_mask": mask}

    def vectors(model: Any, training: bool) -> Mapping[str, tf.Tensor]:
        request = dict.fromkeys(RELATIONS, (model.config.num_layers,))
        inputs = {name: tf.convert_to_tensor(value) for name, value in batch.items()}
        return {name: found[0] for name, found in model.features(inputs, request, training=training).items()}

    return lambda: (vectors(teacher, False), vectors(student, True)), student.trainable_variables


def main(arguments: list[str]) -> None:
    """Prints `{"peak_bytes": …}`: peak memory of arrays during the steps, above the level between them."""
    import tensorflow as tf

    kind, batch_size, length = arguments[0], *map(int, arguments[1:])
    step: Any = make_step(kind, batch_size, length)
    # The first step traces and folds constants.
    float(step())
    tf.config.experimental.reset_memory_stats("CPU:0")
    before = tf.config.experimental.get_memory_info("CPU:0")["current"]
    for _ in range(_RUNS):
        float(step())
    print(json.dumps({"peak_bytes": tf.config.experimental.get_memory_info("CPU:0")["peak"] - before}))


if __name__ == "__main__":
    use_threads()
    main(sys.argv[1:])
