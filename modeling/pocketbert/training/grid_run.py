"""A search over a grid: a run of every point with every seed, gone on with after a kill, and which point is best."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tqdm import tqdm

from pocketbert.errors import TrainingFailed, UserError, raise_if_any
from pocketbert.files import write_json, write_text
from pocketbert.progress import log_info
from pocketbert.tasks.metrics import Scores
from pocketbert.training.grid import STATISTICS, Choose, Grid, Point, point_name
from pocketbert.training.grid_report import page
from pocketbert.training.grid_workers import InTurn, Job, MakeRun, Workers
from pocketbert.training.run_folder import (
    GRID_FOLDER,
    MODEL_FOLDER,
    OPTIONS_FILE,
    REPORT_FILE,
    RESULT_FILE,
    begin_run,
    clear_run,
    open_run,
    read_result,
    spread,
)


def run_grid(
    grid: Grid,
    seeds: Sequence[int],
    output: str | os.PathLike[str],
    recorded: Mapping[str, Any],
    make_run: MakeRun,
    *,
    choose: Choose = "median",
    workers: Workers | None = None,
    work: Callable[[Point], float] = lambda point: 1.0,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Makes all runs of a grid that are not finished yet, and says which point is the best.

    Killed at any moment and called again with the same arguments, it resumes: finished runs are not made again, and
    the others resume from wherever `make_run` can. A run whose training fails makes its point one that is not chosen;
    called again, it is tried again.

    Args:
      grid: what varies.
      seeds: all different; each point has a run of each.
      output: the search's folder: `runs/POINT/seed-N/`, `result.json`, `report.html`.
      recorded: all that decides the results but the grid and the seeds, as JSON values.
      make_run: makes or resumes with a run in its folder, and leaves a `result.json` there with `main_metric` and
        `metrics`, every one better when it is higher, and a model directory. See `Workers.outcomes`.
      choose: the best point is that with the highest mean, median or maximum of the main metric over the seeds; of
        equals the earlier.
      workers: where the runs are made; None: here, one after another.
      work: how long a point's runs take in proportion to others', for the estimate of the time left.
      overwrite: throw away a finished search in `output`, or one with other options.

    Returns:
      What `summarize` says, and `best_model`, the best point's best run's model directory.

    Raises:
      UserError: bad input, or `output` holds another search.
      TrainingFailed: no point has all of its runs.
    """
    _check(seeds, choose)
    workers = workers or InTurn()
    recorded = {"grid": {name: list(values) for name, values in grid.values.items()}, "seeds": list(seeds), **recorded}
    with open_run(output, recorded, overwrite=overwrite) as folder:
        root = folder.absolute() / GRID_FOLDER
        jobs = [
            Job(point, seed, root / point_name(point) / f"seed-{seed}") for point in grid.points() for seed in seeds
        ]
        new = not (folder / OPTIONS_FILE).exists()
        begin_run(folder, recorded)
        try:
            failures = _make_missing(jobs, make_run, workers, work)
        except UserError:
            if new and not any(map(_finished, jobs)):
                # Bad input leaves no search behind.
                clear_run(folder)
            raise
        results = {_key(job): _read(job) for job in jobs if _key(job) not in failures}
        summary = summarize(grid, seeds, results, failures, choose)
        write_json(folder / RESULT_FILE, summary)
        write_text(folder / REPORT_FILE, page(summary))
        return summary | {"best_model": str(folder / summary["best"]["run"] / MODEL_FOLDER)}


def summarize(
    grid: Grid,
    seeds: Sequence[int],
    results: Mapping[tuple[str, int], Mapping[str, Any]],
    failures: Mapping[tuple[str, int], str],
    choose: Choose,
) -> dict[str, Any]:
    """All runs of a grid in one table, and the best point.

    Args:
      grid: what varied.
      seeds: of each point.
      results: (point's name, seed) → result of the run.
      failures: (point's name, seed) → why the training failed.
      choose: as for `run_grid`.

    Returns:
      `choose`, `main_metric`, `grid`, `seeds`; `best`, with a point's `options`, its `value` (the chosen statistic of
      the main metric), and `seed` and `run` (folder) of its best run; and `points`, in the grid's order, with
      `options`, `value` (None for a point with a failed run), `metrics` (each metric's `spread` over the seeds),
      `runs`, and `failures`, seed → why. Folders are relative to the search's.

    Raises:
      TrainingFailed: every point has a failed run.
    """
    main = next((result["main_metric"] for result in results.values()), "")
    points: list[dict[str, Any]] = []
    for point in grid.points():
        name = point_name(point)
        runs = [
            {"run": f"{GRID_FOLDER}/{name}/seed-{seed}", **results[name, seed], "seed": seed}
            for seed in seeds
            if (name, seed) in results
        ]
        whole = len(runs) == len(seeds)
        metrics = (
            {metric: spread([run["metrics"][metric] for run in runs]) for metric in runs[0]["metrics"]} if whole else {}
        )
        points.append(
            {
                "options": dict(point),
                "value": metrics[main][STATISTICS[choose]] if whole else None,
                "metrics": metrics,
                "runs": runs,
                "failures": {str(seed): failures[name, seed] for seed in seeds if (name, seed) in failures},
            }
        )
    chosen = [point for point in points if point["value"] is not None]
    if not chosen:
        (name, seed), why = next(iter(failures.items()))
        raise TrainingFailed(f"every point of the grid has a failed run; {name}, seed {seed}: {why}")
    # `max` gives the first of equals.
    best = max(chosen, key=lambda point: point["value"])
    run = max(best["runs"], key=lambda run: run["metrics"][main])
    # The same for all, since all are scored on the same examples.
    baseline = next(iter(results.values())).get("baseline")
    chosen_scores = Scores(main_metric=main, metrics={main: best["value"]}, baseline=baseline)
    return {
        "choose": choose,
        "main_metric": main,
        "grid": {name: list(values) for name, values in grid.values.items()},
        "seeds": list(seeds),
        "best": {key: best[key] for key in ("options", "value")} | {"seed": run["seed"], "run": run["run"]},
        "points": points,
        "baseline": baseline,
        "warnings": chosen_scores.warnings if baseline else [],
    }


def _make_missing(
    jobs: Sequence[Job], make_run: MakeRun, workers: Workers, work: Callable[[Point], float]
) -> dict[tuple[str, int], str]:
    """Makes the runs that are not finished; returns those that failed, with the reason."""
    waiting = [job for job in jobs if not _finished(job)]
    done = len(jobs) - len(waiting)
    log_info(
        f"{len(jobs)} runs, {done} of them finished"
        + (f"; {workers.parallel} at a time" if workers.parallel > 1 else "")
    )
    failures: dict[tuple[str, int], str] = {}
    spent = worked = 0.0
    left = sum(work(job.point) for job in waiting)
    for job, seconds, failure in workers.outcomes(make_run, waiting):
        done += 1
        left -= work(job.point)
        if failure is not None:
            failures[_key(job)] = failure
            said = f"failed: {failure}"
        else:
            spent, worked = spent + seconds, worked + work(job.point)
            result = _read(job)
            said = f"{result['main_metric']} {result['metrics'][result['main_metric']]:.4f}"
        line = f"{job.name}: {said} ({tqdm.format_interval(seconds)}); {done} of {len(jobs)} runs are done"
        if left and worked:
            line += f", about {tqdm.format_interval(spent / worked * left / workers.parallel)} left"
        log_info(line)
    return failures


def _key(job: Job) -> tuple[str, int]:
    return point_name(job.point), job.seed


def _finished(job: Job) -> bool:
    return (job.folder / RESULT_FILE).exists()


def _read(job: Job) -> dict[str, Any]:
    if not _finished(job):
        raise UserError(f"a run's folder must be on storage that all machines share; {job.folder} has no {RESULT_FILE}")
    return read_result(job.folder / RESULT_FILE)


def _check(seeds: Sequence[int], choose: str) -> None:
    problems = []
    if not seeds or len(set(seeds)) != len(seeds):
        problems.append(f"seeds must be given and differ from one another; received {list(seeds)}")
    if choose not in STATISTICS:
        problems.append(f"the best point is chosen by {', '.join(STATISTICS)}; received {choose!r}")
    raise_if_any(problems, "grid")
