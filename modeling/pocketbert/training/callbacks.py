"""What watches a run: its log and its losses."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import tensorflow as tf

from pocketbert.errors import UserError
from pocketbert.training.checkpointing import LOG_FILE, TENSORBOARD_FOLDER


class TrainingFailed(RuntimeError):
    """The run cannot go on, though its input was good: the loss or the outputs are no longer finite."""


class MetricsLog:
    """`metrics.jsonl`, one object a line, and the same numbers as TensorBoard events.

    A line has `step` (steps taken), `split` (`train` or `dev`) and the numbers.

    Args:
      folder: the run's folder.
      position: bytes of the log to keep. What a killed run wrote after its last checkpoint goes; it will be written
        again. The events are made anew from what is kept.

    Raises:
      UserError: the log is shorter than `position`.
    """

    def __init__(self, folder: Path, position: int) -> None:
        path = folder / LOG_FILE
        self._stream = open(path, "ab")  # noqa: SIM115 (closed by __exit__)
        size = self._stream.seek(0, os.SEEK_END)
        if size < position:
            self._stream.close()
            raise UserError(f"{path} must be as the run left it, {position} bytes or more; received {size}")
        self._stream.truncate(position)
        shutil.rmtree(folder / TENSORBOARD_FOLDER, ignore_errors=True)
        self._events = tf.summary.create_file_writer(str(folder / TENSORBOARD_FOLDER))
        for line in path.read_text("utf-8").splitlines():
            self._write_events(json.loads(line))

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()
        self._events.close()

    def write(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        """Adds a line.

        Args:
          step: steps taken.
          split: `train` or `dev`.
          numbers: name → number.
        """
        line = {"step": step, "split": split, **numbers}
        self._stream.write(json.dumps(line, allow_nan=False).encode() + b"\n")
        self._stream.flush()
        self._write_events(line)

    def sync(self) -> int:
        """Makes sure that all lines are on disk; returns the log's length in bytes."""
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._events.flush()
        return self._stream.tell()

    def _write_events(self, line: Mapping[str, Any]) -> None:
        with self._events.as_default():
            for name, number in line.items():
                if name not in ("step", "split"):
                    tf.summary.scalar(f"{line['split']}/{name}", number, step=line["step"])


class LossWatch:
    """Collects the steps' losses as they are, tensors, and looks at them only now and then.

    Looking means waiting for the accelerator; the step at fault is named all the same.

    Args:
      losses: those already looked at that no log line covers yet.
      step: steps taken before the next loss.
    """

    def __init__(self, losses: list[float], step: int) -> None:
        self._seen = list(losses)
        self._unseen: list[tf.Tensor] = []
        self._step = step

    def add(self, loss: tf.Tensor) -> None:
        """Takes the next step's loss, a scalar."""
        self._unseen.append(loss)

    def look(self) -> list[float]:
        """Checks what was added since the last look.

        Returns:
          All losses since the last `clear`.

        Raises:
          TrainingFailed: names the first step whose loss is not finite.
        """
        if self._unseen:
            for value in tf.stack(self._unseen).numpy().tolist():
                self._step += 1
                if not math.isfinite(value):
                    raise TrainingFailed(
                        f"the loss must stay finite; it is {value} at step {self._step}; try a lower learning rate, a "
                        "longer warm-up, clipping, or float32"
                    )
                self._seen.append(value)
            self._unseen = []
        return list(self._seen)

    def clear(self) -> None:
        """Forgets the losses that a log line now covers."""
        self.look()
        self._seen = []
