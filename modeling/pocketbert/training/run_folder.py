"""Opens, records and replaces run folders, names their files, and runs several seeds.

You can kill a run at any moment; rerunning it loses only the time since its last checkpoint.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import json
import os
import shutil
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketbert.errors import UserError, describe_differences
from pocketbert.files import PARTIAL, write_json
from pocketbert.hub.names import HUB_SUFFIX, HubName, is_commit, parse_hub_name
from pocketbert.notation import argument
from pocketbert.output_folders import RUN_KIND, check_no_foreign, held_directory, remove
from pocketbert.progress import log_info
from pocketbert.trials.jobs import RESULT_FILE, read_result
from pocketbert_runtime.json_reading import parse_json, read_bytes, read_members

if TYPE_CHECKING:
    from pocketbert.training.distribution import Distribution

OPTIONS_FILE = "run.json"
# The command line with all options, for `--config`.
COMMAND_FILE = "run.toml"
CHECKPOINT_FILE = "checkpoint.safetensors"
LOG_FILE = "metrics.jsonl"
TENSORBOARD_FOLDER = "tensorboard"
MODEL_FOLDER = "model"
STAGES_FOLDER = "stages"
CHECKPOINTS_FOLDER = "checkpoints"
ADAPTERS_FILE = "adapters.safetensors"
TEACHER_FILE = "teacher.json"
# In the record: the run's outcome, not an option.
_OUTCOME = "outcome"
# How a fine-tuned head started, and scores for simple methods.
START_FILE = "start.json"
GRID_FOLDER = "runs"
REPORT_FILE = "report.html"
FINE_TUNED_FOLDER = "fine_tuned"
COMPARISON_FILE = "comparison.json"
# Runs for the folds, and predictions for their examples.
FOLDS_FOLDER, PREDICTIONS_FILE = "folds", "predictions.jsonl"
# Files next to the folders of several seeds.
_SUMMARY_FILES = (COMMAND_FILE, RESULT_FILE, COMPARISON_FILE, REPORT_FILE)
# Files from training; other packages pass their own names.
RUN_FILES = (
    OPTIONS_FILE,
    COMMAND_FILE,
    RESULT_FILE,
    CHECKPOINT_FILE,
    LOG_FILE,
    TENSORBOARD_FOLDER,
    MODEL_FOLDER,
    STAGES_FOLDER,
    CHECKPOINTS_FOLDER,
    ADAPTERS_FILE,
    TEACHER_FILE,
    START_FILE,
    GRID_FOLDER,
    REPORT_FILE,
    FINE_TUNED_FOLDER,
    COMPARISON_FILE,
    FOLDS_FOLDER,
    PREDICTIONS_FILE,
)
_MOST_LOG_BYTES = 1 << 32
# Folder for a replaced run: while its files move, and afterwards.
_MOVING, _REPLACED = ".moving", ".replaced"


@contextlib.contextmanager
def open_run(
    output: str | os.PathLike[str], options: Mapping[str, Any], *, overwrite: bool, files: Sequence[str] = ()
) -> Iterator[Path]:
    """Locks a run folder for this process: a new folder, or one with the same run, unfinished or finished.

    Args:
      output: the folder.
      options: everything that determines the result, as JSON values; pass them to `begin_run` too.
      overwrite: discard a finished run, or a run with other options, when `begin_run` is called.
      files: names of files and folders besides those from training.
    Yields:
      The folder. It is removed if an error leaves it empty.
    Raises:
      UserError: the folder contains a run with other options or foreign files, or another process uses it.
    """
    names = (*RUN_FILES, *files)
    # Leftovers from killed atomic writers; safetensors uses its own names.
    leftovers = (
        *(f".{name}.{PARTIAL}" for name in names),
        ".tmp??????",
        f"{STAGES_FOLDER}/*/.*",
        f"{CHECKPOINTS_FOLDER}/*/.*",
    )
    with held_directory(output, RUN_KIND, names) as folder:
        _end_replacing(folder, names)
        for pattern in leftovers:
            _remove(folder.glob(pattern))
        difference = _difference(folder, json.loads(json.dumps(options)), overwrite=overwrite)
        finished = (folder / RESULT_FILE).exists()
        if overwrite and (difference or finished):
            check_no_foreign(folder, names)
            _set_aside(folder, names)
        elif difference:
            raise UserError(
                f"{folder} holds {'a finished' if finished else 'an unfinished'} run with other options: {difference}; "
                f"repeat its options, choose another output, or pass {argument('overwrite', True)}"
            )
        try:
            yield folder
        finally:
            _end_replacing(folder, names)


def run_once(
    output: str | os.PathLike[str],
    recorded: Mapping[str, Any],
    train: Callable[[Path], dict[str, Any]],
    *,
    overwrite: bool,
    distribution: Distribution | None = None,
    files: Sequence[str] = (),
    is_finished: Callable[[Path], bool] = lambda folder: (folder / RESULT_FILE).exists(),
) -> tuple[Path, dict[str, Any]]:
    """Returns a finished run's result; starts or resumes any other run.

    Args:
      output: the run's folder.
      recorded: everything that determines the result, as JSON values.
      train: resumes from the state in the folder and returns the result. It checks its input before it calls
        `begin_run`, so bad input leaves no run behind.
      overwrite: discard a finished run, or a run with other options.
      distribution: the run's replicas. Only the chief writes; the other processes read its files.
      files: as for `open_run`.
      is_finished: whether a folder has the result.
    Returns:
      The folder and the result.
    """
    from pocketbert._keras import tf_keras
    from pocketbert.training.distribution import open_distribution

    distribution = distribution or open_distribution()
    with _opened(output, recorded, distribution, overwrite=overwrite, files=files) as folder:
        path = folder / RESULT_FILE
        if distribution.as_chief_says(is_finished(folder)):
            log_info(f"{folder}: this run is finished; reading its result")
            result = read_result(path)
        else:
            # Keras numbers layers across the process, and these numbers in graph names affect the order of sums.
            # Without a reset, the run's last bits would depend on models made before it.
            tf_keras.backend.reset_uids()
            result = train(folder)
            if distribution.is_chief:
                if result.get("outcome") is not None:
                    record_outcome(folder, result["outcome"])
                write_json(path, result)
        if distribution.is_chief:
            (folder / CHECKPOINT_FILE).unlink(missing_ok=True)
        # Other processes would treat a worker that leaves early as failed.
        distribution.leave()
        # The same types as in the file, with lists for tuples, whether or not this process sees the file yet.
        return folder, json.loads(json.dumps(result))


@contextlib.contextmanager
def _opened(
    output: str | os.PathLike[str],
    recorded: Mapping[str, Any],
    distribution: Distribution,
    *,
    overwrite: bool,
    files: Sequence[str],
) -> Iterator[Path]:
    """Opens the run folder; the chief does so before other processes read it."""
    if not distribution.is_chief:
        if not distribution.as_chief_says(True):
            raise UserError(f"the chief could not use {output}; read the chief's error message")
        yield Path(output)
        return
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(open_run(output, recorded, overwrite=overwrite, files=files))
        except UserError:
            distribution.as_chief_says(False)
            raise
        distribution.wait()
        yield folder


def begin_run(folder: Path, options: Mapping[str, Any]) -> None:
    """Records a run's options after its input was checked, and removes the replaced run."""
    write_json(folder / OPTIONS_FILE, options)
    # The record exists, so nothing is restored.
    _end_replacing(folder, ())


def record_outcome(folder: Path, outcome: Mapping[str, Any]) -> None:
    """Adds a finished run's outcome to its record."""
    write_json(folder / OPTIONS_FILE, {**read_record(folder / OPTIONS_FILE), _OUTCOME: outcome})


def clear_run(folder: Path, files: Sequence[str] = ()) -> None:
    """Removes a run's files but not the folder's marker; `open_run` removes the folder if it stays empty."""
    _remove(folder / name for name in (*RUN_FILES, *files))


def pinned_commits(output: str | os.PathLike[str]) -> dict[str, str]:
    """Returns the hub models of the runs in an output: requested name → commit, for a resumed run.

    Args:
      output: a run's folder, a folder with several runs, or a file that a run with its name writes.
    """
    path = Path(output)
    folders = [path, path / "run", *path.glob("seed-*"), *path.parent.glob(f"{glob.escape(path.name)}.*")]
    commits: dict[str, str] = {}
    for record in [folder / OPTIONS_FILE for folder in folders]:
        # `open_run` reports a damaged record.
        with contextlib.suppress(UserError):
            for field, value in read_record(record).items() if record.is_file() else ():
                if field.endswith(HUB_SUFFIX):
                    origin = read_members(value, {"name": str, "revision": str}, f"{record}: {field}")
                    name = parse_hub_name(origin["name"])
                    commits[str(HubName(name.repository, origin["revision"]))] = name.revision
    return {name: commit for name, commit in commits.items() if is_commit(commit)}


def read_record(path: Path, names: Collection[str] = ()) -> dict[str, Any]:
    """Reads a JSON object that a run wrote.

    Args:
      path: the file.
      names: required names, and no others; empty for any.
    Raises:
      UserError: the file is damaged.
    """
    try:
        content = parse_json(read_bytes(path), path)
    except UserError:
        content = None
    if not isinstance(content, dict) or (names and set(content) != set(names)):
        raise UserError(
            f"{path} is damaged: it must be unchanged since the run wrote it; pass {argument('overwrite', True)} to "
            "repeat the run, or choose another output"
        )
    return content


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Reads a run's log lines: `step`, `split`, `stage` if the run has several, and numbers by name.

    Raises:
      UserError: a line is damaged.
    """
    path, lines = folder / LOG_FILE, []
    for number, line in enumerate(read_bytes(path, most_bytes=_MOST_LOG_BYTES).splitlines(), 1):
        where = f"{path} is damaged at line {number}; pass {argument('overwrite', True)} to repeat the run"
        content = parse_json(line, where)
        names = read_members(content, {"step": int, "split": str, "stage": str | None}, where)
        numbers = {name: value for name, value in content.items() if name not in names}
        read_members({"numbers": numbers}, {"numbers": dict[str, float]}, where)
        stated = {name: value for name, value in names.items() if value is not None}
        lines.append(stated | {name: float(value) for name, value in numbers.items()})
    return lines


def run_seeds(
    seeds: Sequence[int],
    output: str | os.PathLike[str],
    run_one: Callable[[int, Path], Any],
    *,
    writes: Callable[[], bool] = lambda: True,
) -> dict[str, Any]:
    """Runs once per seed, in subfolders `seed-N` of `output`.

    Args:
      seeds: seeds without duplicates.
      output: parent folder; receives a `result.json` with the returned values.
      run_one: trains with one seed in one folder and returns a `TrainResult`.
      writes: whether this process writes the file; called after the runs.
    Returns:
      `runs` (all results), `best_model` (the best run's model directory), and for every metric its `mean`, `median`,
      `standard_deviation` (of the sample; None for one seed), `minimum` and `maximum` over the seeds.
    Raises:
      UserError: there are no seeds or duplicates, or the folder contains other runs.
    """
    if not seeds or len(set(seeds)) != len(seeds):
        raise UserError(f"seeds must be one or more different numbers; received {list(seeds)}")
    folder = Path(output)
    # Names with a dot in front are leftovers from a killed process.
    names = {path.name for path in folder.glob("[!.]*")}
    others = sorted(names - {f"seed-{seed}" for seed in seeds} - {*_SUMMARY_FILES})
    if others:
        raise UserError(
            f"the output must be a new folder or contain only runs with these seeds; received {folder} with "
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
    """Statistics for a metric over seeds; the standard deviation is the sample's, None for one seed."""
    return {
        "mean": statistics.fmean(values),
        "median": statistics.median(values),
        "standard_deviation": statistics.stdev(values) if len(values) > 1 else None,
        "minimum": min(values),
        "maximum": max(values),
    }


def _set_aside(folder: Path, names: Sequence[str]) -> None:
    """Moves a run into a subfolder, for `_end_replacing` to restore."""
    moving = folder / _MOVING
    moving.mkdir()
    for name in names:
        if os.path.lexists(folder / name):
            os.replace(folder / name, moving / name)
    os.replace(moving, folder / _REPLACED)


def _end_replacing(folder: Path, names: Sequence[str]) -> None:
    """Removes a moved run if its replacement has begun; restores it otherwise."""
    moving, replaced = folder / _MOVING, folder / _REPLACED
    if not (moving.exists() or replaced.exists()):
        return
    if replaced.exists() and (folder / OPTIONS_FILE).exists():
        shutil.rmtree(replaced)
        return
    if replaced.exists():
        clear_run(folder, names)
        os.replace(replaced, moving)
    for name in os.listdir(moving):
        os.replace(moving / name, folder / name)
    moving.rmdir()


def _difference(folder: Path, received: Mapping[str, Any], *, overwrite: bool) -> str:
    if not (folder / OPTIONS_FILE).exists():
        return ""
    try:
        recorded = read_record(folder / OPTIONS_FILE)
    except UserError as error:
        if not overwrite:
            raise
        return str(error)
    recorded.pop(_OUTCOME, None)
    # Digests compare the models; the same files may come from the hub or from a folder.
    return describe_differences(*(_without_origins(record) for record in (recorded, received)))


def _without_origins(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if not name.endswith(HUB_SUFFIX)}


def _remove(paths: Iterable[Path]) -> None:
    for path in list(paths):
        remove(path)
