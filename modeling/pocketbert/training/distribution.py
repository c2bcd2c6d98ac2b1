"""Where a run computes: on one device, on all of this machine's, on several machines, or on a TPU (ADR 7)."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert.errors import UserError


class Distribution:
    """A run's replicas: each computes an equal part of every step's examples, and all hold the same weights.

    Models and optimizers are made inside `scope`.

    Args:
      strategy: TensorFlow's.
      is_chief: whether this process is the one that writes.
      processes: how many processes the replicas are in.
    """

    def __init__(self, strategy: tf.distribute.Strategy, *, is_chief: bool = True, processes: int = 1) -> None:
        self.strategy, self.is_chief = strategy, is_chief
        self.replicas: int = strategy.num_replicas_in_sync
        self._processes = processes

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Variables that are made inside have a copy a replica."""
        return self.strategy.scope()

    def batches(self, rows: Sequence[np.ndarray], make: Callable[[list[np.ndarray]], tf.data.Dataset]) -> Any:
        """What the replicas of this process compute, an element a step.

        Args:
          rows: the examples of each step; their number is a multiple of the number of replicas.
          make: a data set with a batch for each array of examples.
        """

        def pieces(context: tf.distribute.InputContext) -> tf.data.Dataset:
            here = context.num_replicas_in_sync // context.num_input_pipelines
            first = context.input_pipeline_id * here
            return make([piece for row in rows for piece in np.split(row, self.replicas)[first : first + here]])

        return self.strategy.distribute_datasets_from_function(pieces)

    def step(self, function: Callable[[Any], tf.Tensor], batches: Any) -> Callable[[Any], tf.Tensor]:
        """A function of an element of `batches`, traced once: `function` on each replica.

        Args:
          function: of one replica's batch; its result must be the same on all.
          batches: what `batches` gave.
        """

        def on_all(batch: Any) -> tf.Tensor:
            return self.strategy.experimental_local_results(self.strategy.run(function, (batch,)))[0]

        return tf.function(on_all, input_signature=[batches.element_spec], autograph=False)

    def as_chief_says(self, answer: bool) -> bool:
        """The chief's answer, in every process; none continues before all have asked."""
        if self._processes == 1:
            return answer
        share = tf.constant(float(answer and self.is_chief))

        def total() -> tf.Tensor:
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, share)

        results = tf.function(lambda: self.strategy.run(total), autograph=False)()
        return bool(self.strategy.experimental_local_results(results)[0] > 0)

    def wait(self) -> None:
        """Continues when every process has arrived."""
        self.as_chief_says(True)

    def leave(self) -> None:
        """As `wait`, where nothing follows: a process that came through and has ended is no failure of this one."""
        with contextlib.suppress(tf.errors.UnavailableError):
            self.wait()


def open_distribution(strategy: str = "one", tpu: str | None = None) -> Distribution:
    """The replicas that a run asks for.

    Args:
      strategy: `one`, `mirrored`, `multi-worker` or `tpu`, as `RunConfig` explains them.
      tpu: the TPU's name or address, for `tpu`.

    Raises:
      UserError: what it needs is not there.
    """
    if strategy == "mirrored":
        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        return Distribution(_mirrored(tuple(device.name for device in devices)))
    if strategy == "multi-worker":
        return _multi_worker()
    if strategy == "tpu":
        return _tpu(tpu)
    return Distribution(tf.distribute.get_strategy())


# A second strategy would number its collective operations as the first does, and TensorFlow takes them for the same.
@functools.cache
def _mirrored(devices: tuple[str, ...]) -> tf.distribute.MirroredStrategy:
    return tf.distribute.MirroredStrategy(list(devices))


# A process can join a cluster once.
@functools.cache
def _multi_worker() -> Distribution:
    """`MultiWorkerMirroredStrategy`, as `TF_CONFIG` describes the cluster."""
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
            "several workers are named by the environment variable TF_CONFIG, for example "
            '{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 0}}; '
            f"received {received or 'none'} ({error!r}); set it on each worker, with its own index"
        ) from error
    try:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        raise UserError(
            f"workers join before TensorFlow computes anything in their process; received: {error}; start each worker "
            "as a process of its own"
        ) from error
    return Distribution(strategy, is_chief=is_chief, processes=sum(workers.values()))


@functools.cache
def _tpu(name: str | None) -> Distribution:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect(name or "")
    except (ValueError, tf.errors.OpError) as error:
        raise UserError(
            f"the TPU must be one that this machine can reach; received {name or 'no name'} ({error}); give its name "
            "or its address"
        ) from error
    return Distribution(tf.distribute.TPUStrategy(resolver))
