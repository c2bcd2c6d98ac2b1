"""A process that takes steps of one kind and prints the most memory that it took: for `mobilebert_memory`.

python -m pocketbert_bench.suites.mobilebert_memory_process KIND LAYERS BATCH_SIZE LENGTH
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pocketbert_bench.suites import mobilebert_setting as setting
from pocketbert_bench.suites.mobilebert_setting import Shape

PASSES, TRANSFER = "passes", "transfer"
STEPS = 3


def gradients(kind: str, shape: Shape) -> Any:
    """Teacher forward, student forward and backward, without an update.

    Args:
      kind: `passes`: the loss reads the last feature map of each; `transfer`: it compares all feature maps and all
        attention.
      shape: of both models and the batch.

    Returns:
      A function of TensorFlow's, which gives one number that the loss and every gradient go into.
    """
    import tensorflow as tf

    from pocketbert.model import build

    teacher, student = (build(setting.config(name, shape), seed=0) for name in (setting.TEACHER, setting.STUDENT))
    batch = setting.batch(shape)
    method, stage = setting.transfer(shape)
    variables = student.trainable_variables

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
    """Prints `{"peak_bytes": …}`: the process' largest resident memory during steps, above that after tracing."""
    kind, *sizes = arguments
    layers, batch_size, length = map(int, sizes)
    setting.use_threads()
    step = gradients(kind, Shape(layers=layers, batch_size=batch_size, length=length)).get_concrete_function()
    # 5 sets the kernel's record of the peak back to what is resident now.
    Path("/proc/self/clear_refs").write_text("5")
    # TensorFlow's allocator keeps what it once had, so that between steps nothing more could be told apart.
    before = _resident("VmRSS")
    for _ in range(STEPS):
        float(step())
    print(json.dumps({"peak_bytes": _resident("VmHWM") - before}))


def _resident(entry: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{entry}:"):
            return 1024 * int(line.split()[1])
    raise OSError(f"/proc/self/status must have {entry}; received none")


if __name__ == "__main__":
    main(sys.argv[1:])
