"""Runs `pocketbert` again and again, killing it at given moments: `killed_runs.py MOMENT,… COMMAND ARGUMENT…`.

For the moments see `killing.kill_at`. The last attempt is left alone. Each attempt is a fork of this process, so that
TensorFlow is imported once; none of its operations runs before the fork. The environment's `REPLICAS` divides the
processor into so many devices. `MEETING` is a folder in which two such programs wait for one another before each
attempt's end: a worker whose partner is killed first would end with an error of its own. `EAGER` runs without graphs.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import cheap_tensorflow
import killing

MODULES = {
    "finetune": "training.finetune",
    "distill": "distillation.run",
    "pretrain": "training.pretrain",
    "augment": "augmentation.run",
    "pretrain-data": "data.pretraining.run",
}


def meet(attempt_number: int) -> None:
    """Waits until both programs have come to the end of this attempt."""
    if "MEETING" not in os.environ:
        return
    folder = Path(os.environ["MEETING"])
    (folder / f"{attempt_number}-{os.getpid()}").touch()
    until = time.monotonic() + 120
    while len(list(folder.glob(f"{attempt_number}-*"))) < 2:
        if time.monotonic() > until:
            raise TimeoutError(f"the other worker did not come to the end of attempt {attempt_number}")
        time.sleep(0.01)


def run(arguments: list[str]) -> int:
    from pocketbert.cli import main

    # As the tests' own process, whose runs these are compared with.
    cheap_tensorflow.use()
    with cheap_tensorflow.eager() if "EAGER" in os.environ else contextlib.nullcontext():
        return main(arguments)


def main(moments: list[str], arguments: list[str]) -> int:
    # Before the forks, once for all.
    importlib.import_module(f"pocketbert.{MODULES[arguments[0]]}")

    if "REPLICAS" in os.environ:
        import tensorflow as tf

        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * int(os.environ["REPLICAS"]),
        )

    for number, moment in enumerate(moments):
        ended = killing.attempt(partial(run, arguments), partial(killing.kill_at, moment, partial(meet, number)))
        if ended != -signal.SIGKILL:
            sys.exit(f"the attempt to be killed at {moment} ended with {ended}")
    return killing.attempt(partial(run, arguments))


if __name__ == "__main__":
    sys.exit(main([moment for moment in sys.argv[1].split(",") if moment], sys.argv[2:]))
