"""Grid search: runs every point with every seed, resumes after a kill, and selects the best point."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pocketbert.errors import TrainingFailed, UserError, raise_if_any
from pocketbert.files import write_json, write_text
from pocketbert.progress import log_info
from pocketbert.tasks.scores import Scores
from pocketbert.training.grids.points import STATISTICS, Choose, Grid, Point, point_name
from pocketbert.training.grids.report import page
from pocketbert.training.run_folder import (
    GRID_FOLDER,
    MODEL_FOLDER,
    OPTIONS_FILE,
    REPORT_FILE,
    begin_run,
    clear_run,
    open_run,
    spread,
)
from pocketbert.trials.jobs import RESULT_FILE, Job, MakeRun, Outcome
from pocketbert.trials.missing import Trials
from pocketbert.trials.workers import InTurn, Workers


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
    """Runs all unfinished runs in a grid and selects the best point.

    Call it again with the same arguments to resume after a kill. Finished runs are kept, and `make_run` resumes the
    others. A point with a failed run cannot be selected; the next call retries the failed run.

    Args:
      grid: the grid.
      seeds: different seeds; each point has one run per seed.
      output: folder for the search: `runs/POINT/seed-N/`, `result.json`, `report.html`.
      recorded: everything that determines the results, except grid and seeds; JSON values.
      make_run: starts or resumes a run in its folder. It writes a model directory and a `result.json` with
        `main_metric` and `metrics`; higher metrics are better. See `Workers.outcomes`.
      choose: statistic over seeds; the first point with the highest mean, median or maximum main metric is best.
      workers: where to execute runs; None for one after another in this process.
      work: relative duration of a run at a point, to estimate the remaining time.
      overwrite: replace a search in `output` that is finished or has other options.
    Returns:
      The result of `summarize`, with `best_model`, the model directory of the best run at the best point.
    Raises:
      UserError: bad input, or `output` contains another search.
      TrainingFailed: every point has a failed run.
    """
    problems = []
    if not seeds or len(set(seeds)) != len(seeds):
        problems.append(f"seeds must be one or more different numbers; received {list(seeds)}")
    if choose not in STATISTICS:
        problems.append(f"choose must be one of {', '.join(STATISTICS)}; received {choose!r}")
    raise_if_any(problems, "grid")
    workers = workers or InTurn()
    recorded = {"grid": {name: list(values) for name, values in grid.values.items()}, "seeds": list(seeds), **recorded}
    with open_run(output, recorded, overwrite=overwrite) as folder:
        root = folder.absolute() / GRID_FOLDER
        jobs = [
            Job(point, seed, root / point_name(point) / f"seed-{seed}") for point in grid.points() for seed in seeds
        ]
        new = not (folder / OPTIONS_FILE).exists()
        begin_run(folder, recorded)
        together = f"; {workers.parallel} at a time" if workers.parallel > 1 else ""
        log_info(f"{len(jobs)} runs, {sum(job.finished for job in jobs)} finished{together}")
        try:
            outcomes = list(Trials(workers, total=len(jobs), work=work).outcomes(make_run, jobs))
        except UserError:
            if new and not any(job.finished for job in jobs):
                # Leave no folder behind after bad input.
                clear_run(folder)
            raise
        summary = summarize(grid, seeds, outcomes, choose)
        write_json(folder / RESULT_FILE, summary)
        write_text(folder / REPORT_FILE, page(summary))
        return summary | {"best_model": str(folder / summary["best"]["run"] / MODEL_FOLDER)}


def summarize(
    grid: Grid,
    seeds: Sequence[int],
    outcomes: Sequence[Outcome],
    choose: Choose,
) -> dict[str, Any]:
    """Summarizes all runs in a grid and selects the best point.

    Args:
      grid: the grid.
      seeds: seeds for each point.
      outcomes: outcomes for all runs.
      choose: see `run_grid`.
    Returns:
      `choose`, `main_metric`, `grid`, `seeds`, `baseline` and `warnings`; `best` with a point's `options`, its `value`
      (the selected main metric statistic), and its best run's `seed` and `run` (folder); and `points` in grid order
      with `options`, `value` (None if a run failed), `metrics` (`spread` over the seeds), `runs`, and `failures`, seed
      → message. Folders are relative to the search folder.
    Raises:
      TrainingFailed: every point has a failed run.
    """
    keys = [(point_name(outcome.job.point), outcome.job.seed) for outcome in outcomes]
    results = {key: outcome.result for key, outcome in zip(keys, outcomes, strict=True) if not outcome.failure}
    failures = {key: outcome.failure for key, outcome in zip(keys, outcomes, strict=True) if outcome.failure}
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
    # `max` returns the first among equal points.
    best = max(chosen, key=lambda point: point["value"])
    run = max(best["runs"], key=lambda run: run["metrics"][main])
    # All runs have the same baseline, because they are scored on the same examples.
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
