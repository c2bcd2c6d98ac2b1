"""Run steps of one kind and print their peak memory, for `mobilebert.memory`.

python -m studies.mobilebert.memory_process KIND LEARNS LAYERS BATCH_SIZE LENGTH
"""

from __future__ import annotations

import json
import sys
from typing import Any

from studies.mobilebert import shapes as setting
from studies.mobilebert.shapes import Shape

PASSES, TRANSFER = "passes", "transfer"
ALL_WEIGHTS, WORD_TABLE = "all", "word-table"
STEPS = 3


def gradients(kind: str, shape: Shape, learns: str = ALL_WEIGHTS) -> Any:
    """Teacher forward, student forward and backward, without an update.

    Args:
      kind: `passes`: the loss reads the last feature map of each; `transfer`: it compares all feature maps and all
        attention.
      shape: shape of both models and the batch.
      learns: `all`: gradients of all the student's weights; `word-table`: gradient of the first weight only, so that
        the backward pass goes through all layers without computing other weights' gradients.

    Returns:
      A TensorFlow function that returns one number, which depends on the loss and every gradient.
    """
    import tensorflow as tf

    from pocketbert.model import from_preset

    teacher, student = (from_preset(setting.config(name, shape), seed=0) for name in (setting.TEACHER, setting.STUDENT))
    batch = setting.batch(shape)
    method, stage = setting.transfer(shape)
    variables = student.trainable_variables
    if learns == WORD_TABLE:
        variables = [student.weights_by_path()["encoder.embeddings.word.table"]]

    def loss() -> tf.Tensor:
        request: Any = stage.student_features if kind == TRANSFER else {"hidden_states": (shape.layers,)}
        theirs = teacher.features(batch, request, training=False)
        own = student.features(batch, request, training=False)
        if kind == PASSES:
            return tf.reduce_sum(own["hidden_states"][0]) + tf.reduce_sum(theirs["hidden_states"][0])
        terms = method.loss(stage, method.targets(stage, theirs, batch), own, {}, batch)
        return tf.add_n([stage.weights[name] * value for name, value in terms.items()])

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            value = loss()
        found = [each for each in tape.gradient(value, variables) if each is not None]
        # Include the loss: the gradients of `passes` do not depend on the teacher, which TensorFlow would prune.
        return tf.add_n([value, *(tf.reduce_sum(tf.convert_to_tensor(each)) for each in found)])

    return step


def main(arguments: list[str]) -> None:
    """Prints `{"peak_bytes": …}`: peak memory of arrays during the steps, above the level between them.

    Counted by TensorFlow's allocator. Resident memory differs: the allocator of TensorFlow's oneDNN build takes ever
    larger regions from the system and keeps them.
    """
    import tensorflow as tf

    kind, learns, *sizes = arguments
    layers, batch_size, length = map(int, sizes)
    setting.use_threads()
    shape = Shape(layers=layers, batch_size=batch_size, length=length)
    step = gradients(kind, shape, learns).get_concrete_function()
    # The first step folds constants.
    float(step())
    tf.config.experimental.reset_memory_stats("CPU:0")
    before = tf.config.experimental.get_memory_info("CPU:0")["current"]
    for _ in range(STEPS):
        float(step())
    print(json.dumps({"peak_bytes": tf.config.experimental.get_memory_info("CPU:0")["peak"] - before}))


if __name__ == "__main__":
    main(sys.argv[1:])
