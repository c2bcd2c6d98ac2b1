"""Runs `pocketbert` again and again, killing it at given moments: `killed_runs.py MOMENT,… COMMAND ARGUMENT…`.

A moment is `step:N`, before the attempt's N-th training step; `aside:N`, before the N-th rename of a file or folder
into place; or `placed:N`, just after it. The last attempt is left alone. Each attempt is a fork of this process, so
that TensorFlow is imported once; none of its operations runs before the fork. The environment's `REPLICAS` divides the
processor into so many devices. `MEETING` is a folder in which two such programs wait for one another before each
attempt's end: a worker whose partner is killed first would end with an error of its own.
"""

from __future__ import annotations

import importlib
import os
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CHEAP_TENSORFLOW = str(Path(__file__).parents[2] / "cheap_tensorflow.py")


def meet(attempt_number: int) -> None:
    """Waits until both programs have come to the end of this attempt."""
    folder = Path(os.environ["MEETING"])
    (folder / f"{attempt_number}-{os.getpid()}").touch()
    until = time.monotonic() + 120
    while len(list(folder.glob(f"{attempt_number}-*"))) < 2:
        if time.monotonic() > until:
            raise TimeoutError(f"the other worker did not come to the end of attempt {attempt_number}")
        time.sleep(0.01)


def kill_at(moment: str, attempt_number: int) -> None:
    """Makes this process kill itself, as `kill -9` does, at the moment."""
    from pocketbert import files
    from pocketbert.training.stage_run import StageRun

    event, number = moment.split(":")
    left = int(number)

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            if "MEETING" in os.environ:
                meet(attempt_number)
            os.kill(os.getpid(), signal.SIGKILL)

    if event == "step":
        steps = StageRun.steps

        def counted_steps(self: Any, epoch: int, plan: Any, start: int) -> Iterator[Any]:
            count()
            for losses in steps(self, epoch, plan, start):
                yield losses
                count()

        StageRun.steps = counted_steps  # type: ignore[method-assign]
    else:
        replace: Callable[..., None] = os.replace

        def counted_replace(source: Any, target: Any) -> None:
            if event == "aside":
                count()
            replace(source, target)
            if event == "placed":
                count()

        os.replace = counted_replace  # type: ignore[assignment]
        rename: Callable[..., bool] = files._rename

        def counted_rename(*arguments: Any) -> bool:
            if event == "aside":
                count()
            done = rename(*arguments)
            if event == "placed":
                count()
            return done

        files._rename = counted_rename


def attempt(moment: str | None, arguments: list[str], number: int = 0) -> int:
    """One attempt in a process of its own; returns its exit code, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        from pocketbert.cli import main

        code = 99
        try:
            # As the tests' own process, whose runs these are compared with.
            runpy.run_path(CHEAP_TENSORFLOW)["use"]()
            if moment is not None:
                kill_at(moment, number)
            code = main(arguments)
        except Exception:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            sys.stdout.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


MODULES = {
    "finetune": "training.finetune",
    "distill": "distillation.run",
    "pretrain": "training.pretrain",
    "augment": "augmentation.run",
    "pretrain-data": "data.pretraining_run",
}

if __name__ == "__main__":
    # Before the forks, once for all.
    importlib.import_module(f"pocketbert.{MODULES[sys.argv[2]]}")

    if "REPLICAS" in os.environ:
        import tensorflow as tf

        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * int(os.environ["REPLICAS"]),
        )

    moments = [moment for moment in sys.argv[1].split(",") if moment]
    for number, chosen in enumerate(moments):
        ended = attempt(chosen, sys.argv[2:], number)
        if ended != -signal.SIGKILL:
            sys.exit(f"the attempt to be killed at {chosen} ended with {ended}")
    sys.exit(attempt(None, sys.argv[2:]))
