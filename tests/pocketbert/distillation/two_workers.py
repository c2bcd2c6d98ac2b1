"""Distils for a few steps as one of several worker processes: `two_workers.py INDEX PORT,PORT OUTPUT`.

With one port it is the only one. Each batch has 8 rows of 2 to 9 tokens; worker i of n takes the rows i, i + n, ….
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

STEPS = 3
ROWS, LENGTH = 8, 9


def batches(index: int, workers: int) -> Iterator[dict[str, Any]]:
    """What one worker sees."""
    import numpy as np

    random = np.random.default_rng(7)
    for _ in range(STEPS):
        lengths = random.integers(2, LENGTH + 1, ROWS)
        mask = (np.arange(LENGTH) < lengths[:, None]).astype(np.int32)
        whole = {
            "input_word_ids": random.integers(5, 97, mask.shape).astype(np.int32) * mask,
            "input_mask": mask,
            "input_type_ids": np.zeros_like(mask),
            "labels": random.integers(0, 2, ROWS).astype(np.int32),
        }
        yield {name: value[index::workers] for name, value in whole.items()}


def main(index: int, ports: list[str], output: str) -> None:
    """Trains; the first worker writes weights and losses."""
    if len(ports) > 1:
        cluster = {"worker": [f"localhost:{port}" for port in ports]}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
    import numpy as np
    import tensorflow as tf
    import tiny_distillation
    import toy_method

    import pocketbert as pb
    from pocketbert.distillation.distiller import Distiller, make_optimizer
    from pocketbert.distillation.initialization import initialize_adapters
    from pocketbert.distillation.method import Setting

    # Made before TensorFlow runs anything, as it demands.
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if len(ports) > 1 else tf.distribute.get_strategy()
    task = tiny_distillation.TASK
    setting = Setting(teacher=tiny_distillation.TEACHER, student=tiny_distillation.STUDENT, task=task)
    method = toy_method.ToyMethod()
    stage = toy_method.hidden_stage(
        setting,
        student_features={"hidden_states": (1,), "logits": ()},
        weights={"hidden": 2.0, "labels": 0.5},
        batch_size=ROWS,
        micro_batches=2,
        student_dropout=False,
    )
    with strategy.scope():
        teacher = pb.build(setting.teacher, (task,), seed=12)
        student = pb.build(setting.student, (task,), seed=4)
        adapters = method.adapters(setting, method.options())
        initialize_adapters(adapters, 0.2, seed=1)
        distiller = Distiller(student, method, stage, teacher=teacher, adapters=adapters)
        distiller.compile(optimizer=make_optimizer(stage, STEPS))
    signature = {
        name: tf.TensorSpec([None] * value.ndim, tf.int32) for name, value in next(batches(index, len(ports))).items()
    }
    data = strategy.distribute_datasets_from_function(
        lambda _: tf.data.Dataset.from_generator(lambda: batches(index, len(ports)), output_signature=signature)
    )
    losses: list[dict[str, float]] = []
    logged = pb._keras.tf_keras.callbacks.LambdaCallback(on_batch_end=lambda _, logs: losses.append(dict(logs)))
    distiller.fit(data, steps_per_epoch=STEPS, verbose=0, callbacks=[logged])
    if index == 0:
        weights = {name: variable.numpy() for name, variable in distiller.named_variables().items()}
        np.savez(output, losses=json.dumps(losses), **weights)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3])
