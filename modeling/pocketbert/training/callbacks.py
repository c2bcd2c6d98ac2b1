"""What watches a run: its log and its losses."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import tensorflow as tf

from pocketbert.errors import TrainingFailed, UserError
from pocketbert.training.run_folder import LOG_FILE, TENSORBOARD_FOLDER

# What a line of the log says beside its numbers.
LINE_NAMES = ("step", "split", "stage")


class MetricsLog:
    """`metrics.jsonl`, one object a line, and the same numbers as TensorBoard events.

    A line has `step` (steps taken), `split` (`train`, `dev`, or `activations` where those are watched), `stage` where a
    run has stages, and the numbers.

    Args:
      folder: folder of the run.
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

    def write(self, step: int, split: str, numbers: Mapping[str, float], stage: str = "") -> None:
        """Adds a line.

        Args:
          step: steps taken.
          split: `train`, `dev` or `activations`.
          numbers: name → number; not one of the names `step`, `split` and `stage`.
          stage: the stage's name, or empty where a run has none.
        """
        line = {"step": step, "split": split, **({"stage": stage} if stage else {}), **numbers}
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
        curves = "/".join(line[part] for part in ("stage", "split") if part in line)
        with self._events.as_default():
            for name, number in line.items():
                if name not in LINE_NAMES:
                    tf.summary.scalar(f"{curves}/{name}", number, step=line["step"])


class NoLog(MetricsLog):
    """What a process has that does not write: its lines go nowhere."""

    def __init__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def write(self, step: int, split: str, numbers: Mapping[str, float], stage: str = "") -> None:
        """Does nothing."""

    def sync(self) -> int:
        """Does nothing; returns 0."""
        return 0


class LossWatch:
    """Collects the steps' losses as they are, tensors, and looks at them only now and then.

    Looking means waiting for the accelerator; the step at fault is named all the same.

    Args:
      losses: those already looked at that no log line covers yet, a row a step.
      step: steps taken before the next loss.
      names: what a row holds.
      stage: the stage's name, or empty where a run has none.
    """

    def __init__(
        self, losses: Sequence[Sequence[float]], step: int, names: Sequence[str] = ("loss",), stage: str = ""
    ) -> None:
        self._seen = [list(row) for row in losses]
        self._unseen: list[tf.Tensor] = []
        self._step, self._names, self._stage = step, names, stage

    def add(self, losses: tf.Tensor) -> None:
        """Takes the next step's losses, [names]."""
        self._unseen.append(losses)

    def look(self) -> list[list[float]]:
        """Checks what was added since the last look.

        Returns:
          All rows since the last `clear`.

        Raises:
          TrainingFailed: names the first step at which something is not finite.
        """
        if self._unseen:
            for row in tf.stack(self._unseen).numpy().tolist():
                self._step += 1
                self._check(row)
                self._seen.append(row)
            self._unseen = []
        return list(self._seen)

    def clear(self) -> None:
        """Forgets the losses that a log line now covers."""
        self.look()
        self._seen = []

    def _check(self, row: Sequence[float]) -> None:
        if all(map(math.isfinite, row)):
            return
        bad = {name: value for name, value in zip(self._names, row, strict=True) if not math.isfinite(value)}
        # The loss is their sum: it is named only where no term of it is to blame.
        terms = [f"{name} {value}" for name, value in bad.items() if name != "loss"]
        where = f" of stage {self._stage}" if self._stage else ""
        raise TrainingFailed(
            f"the loss must stay finite; it is {', '.join(terms) or bad['loss']} at step {self._step}{where}; try a "
            "lower learning rate, a longer warm-up, clipping, or float32"
        )
