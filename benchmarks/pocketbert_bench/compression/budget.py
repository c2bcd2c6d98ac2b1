"""The time of a compression: what fits into it, and what a short time leaves out."""

from __future__ import annotations

import dataclasses
import math

from pocketbert.data.examples import evenly_of_classes
from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert.trials.clock import RunClock
from pocketbert_bench.compression.inputs import Inputs
from pocketbert_bench.compression.lengths import windows_per_example

# Names of recorded durations.
EXPORT, FINAL = "export of the teacher", "final answers of the teacher"
# Time for the teacher's bundle, one trial, its bundle and the page.
_LEAST_SECONDS = 40
# Each evaluation scores so many dev examples, and so many for each minute. The comparison between the best two
# candidates reads `_COMPARED` times as many, and so does each evaluation with a limit on the points lost.
_LEAST_DEV, _DEV_A_MINUTE, _COMPARED = 500, 100, 3
# With a slow teacher, fewer: it answers them in at most this part of the time. Export and gate take several times that.
_DEV_SHARE, _FEWEST_DEV = 0.02, 200
# A new head starts from a fit on so many examples for each minute.
_HEAD_EXAMPLES_A_MINUTE = 300
# Export and gate, measured in exports of the slower teacher; seconds for measurement and page.
_ENDING_EXPORTS, _ENDING_SECONDS = 0.9, 10
# With less of the time, candidates hardly train; in the advised time, they have this share.
_LEAST_SHARE, _ADVISED_SHARE = 0.25, 0.5


def check_minutes(inputs: Inputs, seconds: float) -> None:
    """Raises a `UserError` if the time is over before one trial; `seconds` have passed."""
    # With folds, each takes as long as the run on all examples.
    shortest = (seconds + _LEAST_SECONDS * (1 + len(inputs.folds))) / 60
    if inputs.minutes is not None and inputs.minutes < shortest:
        raise UserError(
            f"{argument('minutes')} must be at least {math.ceil(10 * shortest) / 10:g} for one trial; received "
            f"{inputs.minutes:g}; pass more"
        )


def with_few_examples(inputs: Inputs, teacher_ms: float, clock: RunClock) -> Inputs:
    """Reduces the dev split and the examples from which heads start, if the time is short.

    Args:
      inputs: the compression's input.
      teacher_ms: predicted latency of the teacher's bundle, for a text, a pair or a window.
      clock: a later attempt reads as many examples.
    """
    if inputs.minutes is None:
        return inputs
    minutes, data, usual = inputs.minutes, inputs.splits.data, inputs.head_examples
    # A larger time later continues the same training, and compares with earlier scores.
    most = round(clock.record("head examples", lambda: min(usual, math.ceil(_HEAD_EXAMPLES_A_MINUTE * minutes))))
    inputs = dataclasses.replace(inputs, head_examples=most)
    most = round(clock.record("dev examples", lambda: _dev_examples(inputs, teacher_ms, minutes)))
    if len(data.dev) <= most:
        return inputs
    log_info(f"the time is short: the choice reads {most:,} of {len(data.dev):,} dev examples")
    few, compared = (data.dev.select(evenly_of_classes(data.dev, count)) for count in (most, _COMPARED * most))
    splits = dataclasses.replace(inputs.splits, data=dataclasses.replace(data, dev=few))
    return dataclasses.replace(inputs, splits=splits, compared=compared)


def _dev_examples(inputs: Inputs, teacher_ms: float, minutes: float) -> float:
    """Most dev examples that choose in some minutes."""
    usual = max(_LEAST_DEV, _DEV_A_MINUTE * minutes)
    if inputs.constraints.max_points_lost is not None:
        usual *= _COMPARED
    if inputs.device.name or inputs.constraints.max_class_points_lost is not None:
        # A phone's latency says nothing about this machine. Each class needs many examples for a limit on its loss.
        return usual
    seconds = teacher_ms / 1000 * windows_per_example(inputs.directory, inputs.splits.data, inputs.length)
    return min(usual, max(_DEV_SHARE * 60 * minutes / seconds, _FEWEST_DEV))


def ending_seconds(inputs: Inputs, teacher_ms: float, clock: RunClock) -> float:
    """Seconds for an export, its measurement, the final scores and the page, once the teacher has answered."""
    limit = math.inf if inputs.device.name else inputs.constraints.max_latency_ms or math.inf
    final = min(limit / teacher_ms, 1) * clock.recorded[FINAL]
    return _ENDING_EXPORTS * clock.recorded[EXPORT] + final + _ENDING_SECONDS


def short_time(inputs: Inputs, without_teacher: float, training: float) -> str:
    """Warns if exports and scores leave too little time for training; empty otherwise.

    Args:
      inputs: the compression's input.
      without_teacher: seconds from the end of the teacher's training to the end of the run.
      training: seconds of them for candidates; may be negative.
    """
    if inputs.minutes is None or training >= _LEAST_SHARE * without_teacher:
        return ""
    needed = (without_teacher - training) / (1 - _ADVISED_SHARE)
    # A new run shares a longer time with folds and teacher; a continued one exports and scores again.
    least = 60 * inputs.minutes * _LEAST_SHARE * 2 / (len(inputs.folds) + 2)
    minutes = max(inputs.minutes * needed / max(without_teacher, least), inputs.minutes + needed / 60)
    return (
        f"only {max(training, 0):.0f} of {max(without_teacher, 0):.0f} seconds are left to train candidates, since "
        f"exports and scores take the others; with {argument('minutes', math.ceil(minutes))}, candidates may be far "
        "better"
    )
