"""A run in its folder: made once, resumed, or repeated for several seeds."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pocketbert._keras import tf_keras
from pocketbert.errors import UserError
from pocketbert.files import write_json
from pocketbert.progress import log_info
from pocketbert.training.distribution import Distribution, open_distribution
from pocketbert.training.plan import TrainingPlan
from pocketbert.training.run_folder import (
    CHECKPOINT_FILE,
    COMMAND_FILE,
    COMPARISON_FILE,
    REPORT_FILE,
    RESULT_FILE,
    begin_run,
    open_run,
    read_result,
)

# What stands beside the runs of several seeds.
_SUMMARY_FILES = (COMMAND_FILE, RESULT_FILE, COMPARISON_FILE, REPORT_FILE)


class Clock:
    """Seconds of a run over all its attempts, and since the last checkpoint.

    Args:
      before: seconds of the attempts before this one.
    """

    def __init__(self, before: float) -> None:
        self._start = time.monotonic() - before
        self._restarted = time.monotonic()

    def seconds(self) -> float:
        """Seconds of all attempts."""
        return time.monotonic() - self._start

    def due(self, interval: float) -> bool:
        """Whether so many seconds have passed since the last `restart`."""
        return time.monotonic() - self._restarted >= interval

    def restart(self) -> None:
        """Begins an interval."""
        self._restarted = time.monotonic()


@contextlib.contextmanager
def precision_policy(precision: str) -> Iterator[None]:
    """Models made inside compute in `float32`, or in `bfloat16` with weights that stay float32."""
    previous = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16" if precision == "bfloat16" else "float32")
    try:
        yield
    finally:
        tf_keras.mixed_precision.set_global_policy(previous)


def run_once(
    output: str | os.PathLike[str],
    recorded: Mapping[str, Any],
    train: Callable[[Path], dict[str, Any]],
    *,
    overwrite: bool,
    distribution: Distribution | None = None,
) -> tuple[Path, dict[str, Any]]:
    """The result of a run: of a finished one as it stands, of any other after going on to its end.

    Args:
      output: the run's folder.
      recorded: all that decides the result, as JSON values.
      train: resumes from the state of the folder and returns the result. It writes `recorded` as `OPTIONS_FILE` once
        it has found nothing wrong with its input, so that bad input leaves no run behind.
      overwrite: throw away a finished run, or one with other options.
      distribution: the run's replicas. Of several processes only the chief writes; the others read what it has written.

    Returns:
      The folder and the result.
    """
    distribution = distribution or open_distribution()
    with _opened(output, recorded, distribution, overwrite=overwrite) as folder:
        path = folder / RESULT_FILE
        if distribution.as_chief_says(path.exists()):
            log_info(f"{folder}: this run is finished; its result follows")
            result = read_result(path)
        else:
            # Keras numbers layers through the whole process, and the numbers are in the names of a graph's operations,
            # on which the order of sums depends: a run's last bits would depend on what was made before it.
            tf_keras.backend.reset_uids()
            result = train(folder)
            if distribution.is_chief:
                write_json(path, result)
        if distribution.is_chief:
            (folder / CHECKPOINT_FILE).unlink(missing_ok=True)
        # A worker that left earlier would be taken for a dead one.
        distribution.leave()
        # As the file has it, with lists for tuples, whether or not this process sees the file yet.
        return folder, json.loads(json.dumps(result))


@contextlib.contextmanager
def _opened(
    output: str | os.PathLike[str], recorded: Mapping[str, Any], distribution: Distribution, *, overwrite: bool
) -> Iterator[Path]:
    """The run's folder, which the chief has taken and made ready before any other process looks into it."""
    if not distribution.is_chief:
        if not distribution.as_chief_says(True):
            raise UserError(f"the chief must be able to work in {output}; it is not, and says why")
        yield Path(output)
        return
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(open_run(output, recorded, overwrite=overwrite))
        except UserError:
            distribution.as_chief_says(False)
            raise
        distribution.wait()
        yield folder


def run_plan(
    plan: TrainingPlan, output: str | os.PathLike[str], trainer: Callable[..., Any]
) -> tuple[Path, dict[str, Any]]:
    """Makes a planned run, or resumes it.

    Args:
      plan: the run.
      output: its folder.
      trainer: makes the `Trainer` of a plan, a folder and a distribution.

    Returns:
      The folder and the result.
    """
    run, recorded = plan.run, plan.recorded()
    distribution = open_distribution(run.distribution, run.tpu)

    def train_in(folder: Path) -> dict[str, Any]:
        with precision_policy(run.precision), distribution.scope():
            started = trainer(plan, folder, distribution)
            # Only now: bad input leaves no run behind.
            if distribution.is_chief:
                begin_run(folder, recorded)
            return started.run()

    return run_once(output, recorded, train_in, overwrite=run.overwrite, distribution=distribution)


def run_seeds(
    seeds: Sequence[int],
    output: str | os.PathLike[str],
    run_one: Callable[[int, Path], Any],
    *,
    writes: Callable[[], bool] = lambda: True,
) -> dict[str, Any]:
    """Makes one run a seed, each in a folder `seed-N` of its own inside `output`.

    Args:
      seeds: all different.
      output: the folder of folders; gets a `result.json` with what is returned.
      run_one: makes the run of one seed in one folder; its result is a `TrainResult`.
      writes: whether this process writes the file; asked after the runs.

    Returns:
      `runs` (each run's result), `best_model` (the best run's model directory), and for every metric its `mean`,
      `median`, `standard_deviation` (of a sample; None for one seed), `minimum` and `maximum` over the seeds.
    """
    if not seeds or len(set(seeds)) != len(seeds):
        raise UserError(f"seeds must be given and differ from one another; received {list(seeds)}")
    folder = Path(output)
    # Names with a dot are what a killed process left of a file that it was writing.
    found = {path.name for path in folder.glob("[!.]*")}
    others = sorted(found - {f"seed-{seed}" for seed in seeds} - {*_SUMMARY_FILES})
    if others:
        raise UserError(
            f"the output must be a new folder or hold runs of these seeds alone; received {folder} with "
            f"{', '.join(others[:5])}; choose another"
        )
    results = []
    for seed in seeds:
        log_info(f"seed {seed}")
        results.append(run_one(seed, folder / f"seed-{seed}"))
    main = results[0].main_metric
    best = max(results, key=lambda result: result.metrics[main])
    summary = {
        "main_metric": main,
        "best_model": best.model_directory,
        "metrics": {name: spread([result.metrics[name] for result in results]) for name in results[0].metrics},
        "runs": [dataclasses.asdict(result) for result in results],
    }
    if writes():
        for name in _SUMMARY_FILES:
            (folder / f".{name}.partial").unlink(missing_ok=True)
        write_json(folder / RESULT_FILE, summary)
    return summary


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """What is said of a metric over several seeds; the standard deviation is a sample's, None for one seed."""
    return {
        "mean": statistics.fmean(values),
        "median": statistics.median(values),
        "standard_deviation": statistics.stdev(values) if len(values) > 1 else None,
        "minimum": min(values),
        "maximum": max(values),
    }
