"""A process that takes steps of one kind and prints the most memory that it took: for `mobilebert_memory`.

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
      shape: of both models and the batch.
      learns: `all`: the gradients of all the student's weights; `word-table`: that of the first alone, so that the
        backward pass goes through all layers and makes no weight's gradient on its way.

    Returns:
      A function of TensorFlow's, which gives one number that the loss and every gradient go into.
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
        # The loss too: no gradient of the passes' reads the teacher, and TensorFlow leaves out what nobody asks for.
        return tf.add_n([value, *(tf.reduce_sum(tf.convert_to_tensor(each)) for each in found)])

    return step


def main(arguments: list[str]) -> None:
    """Prints `{"peak_bytes": …}`: the most that arrays took during steps, above what is there between them.

    By its allocator's own count. Resident memory says something else: the allocator of TensorFlow's oneDNN build takes
    ever larger regions from the system and keeps them.
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
