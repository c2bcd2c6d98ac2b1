"""A run's devices and precision: one device, all devices in a machine, several machines, or a TPU (ADR 7)."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.errors import UserError


class Distribution:
    """A run's replicas. Each computes an equal part of every batch, and all have the same weights.

    Make models and optimizers inside `scope`.
    """

    def __init__(self, strategy: tf.distribute.Strategy, *, is_chief: bool = True, processes: int = 1) -> None:
        self.strategy, self.is_chief = strategy, is_chief
        self.replicas: int = strategy.num_replicas_in_sync
        self._processes = processes

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Opens a context in which new variables get one copy per replica."""
        return self.strategy.scope()

    def batches(self, rows: Sequence[np.ndarray], make: Callable[[list[np.ndarray]], tf.data.Dataset]) -> Any:
        """Makes batches for this process' replicas, one element per step.

        Args:
          rows: example indices for each step, a multiple of the number of replicas.
          make: makes a dataset with one batch per index array.
        """

        def pieces(context: tf.distribute.InputContext) -> tf.data.Dataset:
            here = context.num_replicas_in_sync // context.num_input_pipelines
            first = context.input_pipeline_id * here
            return make([piece for row in rows for piece in np.split(row, self.replicas)[first : first + here]])

        return self.strategy.distribute_datasets_from_function(pieces)

    def step(self, function: Callable[[Any], tf.Tensor], batches: Any) -> Callable[[Any], tf.Tensor]:
        """Compiles `function` to run on each replica; it is traced once."""

        def on_all(batch: Any) -> tf.Tensor:
            return self.strategy.experimental_local_results(self.strategy.run(function, (batch,)))[0]

        return tf.function(on_all, input_signature=[batches.element_spec], autograph=False)

    def as_chief_says(self, answer: bool) -> bool:
        """Gives every process the chief's answer; waits until all processes have called it."""
        if self._processes == 1:
            return answer
        share = tf.constant(float(answer and self.is_chief))

        def total() -> tf.Tensor:
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, share)

        results = tf.function(lambda: self.strategy.run(total), autograph=False)()
        return bool(self.strategy.experimental_local_results(results)[0] > 0)

    def wait(self) -> None:
        """Waits until every process has called it."""
        self.as_chief_says(True)

    def leave(self) -> None:
        """Waits at the end; unlike in `wait`, a process that has already ended is not an error."""
        with contextlib.suppress(tf.errors.UnavailableError):
            self.wait()


def open_distribution(strategy: str = "one", tpu: str | None = None) -> Distribution:
    """Opens a run's replicas.

    Args:
      strategy: `one`, `mirrored`, `multi-worker` or `tpu`; see `RunConfig`.
      tpu: TPU name or address, for `tpu`.
    Raises:
      UserError: the devices or workers are not available.
    """
    if strategy == "mirrored":
        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        return Distribution(_mirrored(tuple(device.name for device in devices)))
    if strategy == "multi-worker":
        return _multi_worker()
    if strategy == "tpu":
        return _tpu(tpu)
    return Distribution(tf.distribute.get_strategy())


# TensorFlow confuses collective operations in two strategies, because both count from the same number.
@functools.cache
def _mirrored(devices: tuple[str, ...]) -> tf.distribute.MirroredStrategy:
    return tf.distribute.MirroredStrategy(list(devices))


# A process can join a cluster only once.
@functools.cache
def _multi_worker() -> Distribution:
    """Joins the cluster in `TF_CONFIG`."""
    received = os.environ.get("TF_CONFIG", "")
    try:
        config = json.loads(received)
        cluster, task = config["cluster"], config["task"]
        workers = {kind: len(cluster[kind]) for kind in ("chief", "worker") if kind in cluster}
        is_chief = task["type"] == "chief" or ("chief" not in workers and task["index"] == 0)
        if task["index"] not in range(workers[task["type"]]):
            raise ValueError(f"there is no {task['type']} {task['index']}")
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            "multi-worker needs the cluster in the environment variable TF_CONFIG, for example "
            '{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 0}}; '
            f"received {received or 'none'} ({error!r}); set it on each worker with the worker's index"
        ) from error
    try:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        raise UserError(
            f"workers must join before TensorFlow is initialized; received: {error}; start each worker in a new process"
        ) from error
    return Distribution(strategy, is_chief=is_chief, processes=sum(workers.values()))


@functools.cache
def _tpu(name: str | None) -> Distribution:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect(name or "")
    except (ValueError, tf.errors.OpError) as error:
        raise UserError(
            f"this machine must be able to reach the TPU; received {name or 'no name'} ({error}); give the name or "
            "address of the TPU"
        ) from error
    return Distribution(tf.distribute.TPUStrategy(resolver))


@contextlib.contextmanager
def precision_policy(precision: str) -> Iterator[None]:
    """Opens a context in which new models compute in `float32`, `bfloat16` or `float16`; their weights are float32."""
    previous = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy(precision if precision == "float32" else f"mixed_{precision}")
    try:
        yield
    finally:
        tf_keras.mixed_precision.set_global_policy(previous)
