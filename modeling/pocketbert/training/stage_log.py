"""A run's metrics log, loss checks and clock, and a stage's log lines."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import tensorflow as tf

from pocketbert.activation_stats import ActivationRange
from pocketbert.errors import TrainingFailed, UserError
from pocketbert.training.loss_scaling import LOSS_SCALE, SKIPPED, report_skipped
from pocketbert.training.run_folder import LOG_FILE, TENSORBOARD_FOLDER, read_log

# Keys of a log line that are not metrics.
LINE_NAMES = ("step", "split", "stage")


class MetricsLog:
    """Writes `metrics.jsonl`, one JSON object per line, and the same values as TensorBoard events.

    A line has the values, `step` (steps taken), `split` (`train`, `dev` or `activations`), and a named stage's `stage`.

    Args:
      folder: the run's folder.
      position: bytes to keep in the log. After a kill, lines past the last checkpoint are removed, because the resumed
        run writes them again. Events are written again from the kept lines.
    Raises:
      UserError: the log is shorter than `position`.
    """

    def __init__(self, folder: Path, position: int) -> None:
        path = folder / LOG_FILE
        self._stream = open(path, "ab")  # noqa: SIM115 (closed by __exit__)
        size = self._stream.seek(0, os.SEEK_END)
        if size < position:
            self._stream.close()
            raise UserError(f"{path} must have at least {position} bytes, as the run wrote them; received {size}")
        self._stream.truncate(position)
        try:
            lines = read_log(folder)
        except UserError:
            self._stream.close()
            raise
        shutil.rmtree(folder / TENSORBOARD_FOLDER, ignore_errors=True)
        self._events = tf.summary.create_file_writer(str(folder / TENSORBOARD_FOLDER))
        for line in lines:
            self._write_events(line)

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
          numbers: name → value; the names `step`, `split` and `stage` are reserved.
          stage: stage name, or empty.
        """
        line = {"step": step, "split": split, **({"stage": stage} if stage else {}), **numbers}
        self._stream.write(json.dumps(line, allow_nan=False).encode() + b"\n")
        self._stream.flush()
        self._write_events(line)

    def sync(self) -> int:
        """Flushes all lines to disk; returns the log's length in bytes."""
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._events.flush()
        return self._stream.tell()

    def _write_events(self, line: Mapping[str, Any]) -> None:
        curves = "/".join(line[part] for part in ("stage", "split") if part in line)
        # A user's `TensorBoard` may have turned recording off for its own events.
        with self._events.as_default(), tf.summary.record_if(True):
            for name, number in line.items():
                if name not in LINE_NAMES:
                    tf.summary.scalar(f"{curves}/{name}", number, step=line["step"])


class NoLog(MetricsLog):
    """Discards its lines, for processes other than the chief."""

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
    """Collects losses as tensors and checks them in groups.

    Reading a tensor waits for the accelerator, so the check is rare; errors still name the exact step.

    Args:
      losses: checked losses that no log line covers yet, one row per step.
      step: steps taken before the next loss.
      names: names for the values in a row.
      stage: stage name, or empty.
    """

    def __init__(
        self, losses: Sequence[Sequence[float]], step: int, names: Sequence[str] = ("loss",), stage: str = ""
    ) -> None:
        self._seen = [list(row) for row in losses]
        self._unseen: list[tf.Tensor] = []
        self._step, self._names, self._stage = step, names, stage

    def add(self, losses: tf.Tensor) -> None:
        """Adds the next step's losses, [names]."""
        self._unseen.append(losses)

    def look(self) -> list[list[float]]:
        """Checks the losses added since the last call; returns all rows since the last `clear`.

        Raises:
          TrainingFailed: a loss is not finite; the message names the first such step.
        """
        if self._unseen:
            for row in tf.stack(self._unseen).numpy().tolist():
                self._step += 1
                self._check(row)
                self._seen.append(row)
            self._unseen = []
        return list(self._seen)

    def clear(self) -> None:
        """Discards losses that a log line covers."""
        self.look()
        self._seen = []

    def _check(self, row: Sequence[float]) -> None:
        if all(map(math.isfinite, row)):
            return
        bad = {name: value for name, value in zip(self._names, row, strict=True) if not math.isfinite(value)}
        # The loss is the sum of the terms, so name it only if all terms are finite.
        terms = [f"{name} {value}" for name, value in bad.items() if name != "loss"]
        where = f" of stage {self._stage}" if self._stage else ""
        raise TrainingFailed(
            f"the loss must stay finite; it is {', '.join(terms) or bad['loss']} at step {self._step}{where}; try a "
            "lower learning rate, a longer warm-up, clipping, or float32"
        )


class StageLog:
    """A stage's log lines: mean losses, activations, and dev metrics.

    Attributes:
      names: names of a step's losses, and `skipped` with loss scaling.
      watch: the losses that no log line covers yet.
    """

    def __init__(
        self,
        log: MetricsLog,
        stage: str,
        names: Sequence[str],
        losses: Sequence[Sequence[float]],
        step: int,
        loss_scale: Callable[[], float] | None = None,
    ) -> None:
        self._loss_scale = loss_scale
        self._log, self._stage, self.names = log, stage, names
        self.watch = LossWatch(losses, step, names, stage)

    def when(self, step: int) -> str:
        """Returns step and stage for messages."""
        return f"after step {step}{f' of stage {self._stage}' if self._stage else ''}"

    def write_losses(self, step: int, learning_rate: float) -> dict[str, float]:
        """Writes mean losses since the last such line; returns them, empty without new losses.

        With loss scaling, the line also has the skipped updates and the scale.

        Raises:
          TrainingFailed: a loss is not finite, or gradients do not fit into float16.
        """
        rows = self.watch.look()
        if not rows:
            return {}
        columns = zip(self.names, zip(*rows, strict=True), strict=True)
        means = {name: math.fsum(values) / len(rows) for name, values in columns}
        if self._loss_scale is not None:
            scale = self._loss_scale()
            skipped = report_skipped(rows, self.names.index(SKIPPED), step, scale)
            means |= {SKIPPED: float(skipped), LOSS_SCALE: scale}
        self._write(step, "train", {**means, "learning_rate": learning_rate})
        self.watch.clear()
        return means

    def write_activations(self, step: int, maxima: ActivationRange) -> None:
        """Writes the largest activations.

        Raises:
          TrainingFailed: an activation is not finite.
        """
        for where, value in maxima.named().items():
            if not math.isfinite(value):
                raise TrainingFailed(
                    f"activations must stay finite; {where} is not {self.when(step)}; try a lower learning rate, a "
                    "longer warm-up, or clipping"
                )
        self._write(step, "activations", maxima.largest())

    def write_metrics(self, step: int, metrics: Mapping[str, float], loss: float | None) -> str:
        """Writes dev metrics and the mean label loss, if known; returns them as text."""
        measured = metrics if loss is None else {**metrics, "loss": loss}
        self._write(step, "dev", measured)
        return as_text(measured)

    def _write(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        self._log.write(step, split, numbers, self._stage)


def skipped_steps(folder: Path) -> int:
    """Counts skipped updates in the log of a run with loss scaling."""
    return int(sum(line.get(SKIPPED, 0) for line in read_log(folder)))


def as_text(numbers: Mapping[str, float]) -> str:
    """Formats numbers with their names, for people."""
    return ", ".join(f"{name} {value:.4f}" for name, value in numbers.items())


class Clock:
    """Measures a run's seconds over all attempts, and since its last checkpoint.

    Args:
      before: seconds in earlier attempts.
    """

    def __init__(self, before: float) -> None:
        self._start = time.monotonic() - before
        self._restarted = time.monotonic()

    def seconds(self) -> float:
        """Returns seconds over all attempts."""
        return time.monotonic() - self._start

    def due(self, interval: float) -> bool:
        """Whether `interval` seconds have passed since the last `restart`."""
        return time.monotonic() - self._restarted >= interval

    def restart(self) -> None:
        """Begins an interval."""
        self._restarted = time.monotonic()
