"""Which method for my data? Every method that accepts a teacher, on eight tasks, at equal seconds and latency.

A cell is a task, a limit of the latency and a seed. Its rows are fine-tuning, each distillation method, and
`pocketbert compress`. All rows of a task have one teacher: all-MiniLM-L6-v2, fine-tuned on the training examples. Each
row takes four minutes, with the exports of teacher and student, the gate and the measurement; the teacher's training
does not count. A row with one method has the largest number of the teacher's layers within the limit. Another cell of
each task has these rows with more layers, and half of their heads and neurons. A dev split chooses; the scores are of a
final split. The study keeps finished rows, and resumes. Close other programs first: with fewer steps, every row gets
worse. `--until` starts no cell after some minutes, and `--tasks` names the tasks to run.

    python -m studies bake_off
    python -m studies.bake_off --tasks=stsb,names --until=100
    python -m studies.bake_off --train-file=tickets.csv --text-column=text --label-column=queue --methods=finetune,hsk
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

import pocketbert as pb
from pocketbert.data.assets import minilm
from pocketbert.data.task_data import TaskData
from pocketbert.errors import TrainingFailed, UserError
from pocketbert.files import sha256, write_json
from pocketbert.progress import log_info
from pocketbert.training.state import digest_directory
from pocketbert_bench import machine, results
from pocketbert_bench.claims import claim
from pocketbert_bench.compression.candidates import predicted_latency_ms
from pocketbert_bench.compression.inputs import check
from pocketbert_bench.compression.outcome import CompressResult
from pocketbert_bench.compression.run import TEACHER_BUNDLE, planned_candidates
from pocketbert_bench.paired_scores import paired_loss
from pocketbert_export.bundles.bundle import MODEL_FILE, Bundle
from studies.bake_off_cells import (
    COMPRESS,
    FINETUNE,
    MOST_DIFFERENCE,
    TASKS,
    BakeOffCell,
    BakeOffTask,
    all_cells,
    key_of,
)
from studies.jobs import StudyJob, keep, run_jobs
from studies.runner import RESULTS

RESULT, MINUTES = "bake_off", 4.0
_FOLDER = Path("runs/bake_off")
# Half width? → the kind of structure in rows with one method.
_KINDS = {
    False: "even layers, 1 of heads, 1 of neurons, rank None",
    True: "first layers, 0.5 of heads, 0.5 of neurons, rank None",
}


def run(quick: bool) -> dict[str, Any]:
    """Trains the rows of all cells; returns their scores."""
    if not quick:
        return content(all_cells(TASKS), _FOLDER, MINUTES)
    with tempfile.TemporaryDirectory() as name:
        (mrpc,) = [task for task in TASKS if task.name == "mrpc"]
        cells = [BakeOffCell(dataclasses.replace(mrpc, epochs=1), 0.5, 0)]
        return content(cells, Path(name), MINUTES / 2, methods=(FINETUNE, "predictions"), quick=True)


def content(
    cells: Sequence[BakeOffCell],
    folder: Path,
    minutes: float,
    *,
    methods: Sequence[str] = (),
    quick: bool = False,
    chosen: Collection[str] | None = None,
    until: float | None = None,
) -> dict[str, Any]:
    """Runs unfinished cells; returns the result file of those that have finished.

    Args:
      cells: the cells.
      folder: folder of the study.
      minutes: time of each row.
      methods: the rows; all if empty.
      quick: whether this is a trial of the study.
      chosen: names of the cells to run; None for all. The file has those that an earlier call has finished, too.
      until: start no cell after so many minutes; None for no limit.
    """
    threads = os.cpu_count() or 1
    done = {cell.name for cell in cells if (folder / "jobs" / f"{cell.name}.json").exists()}
    jobs: list[StudyJob] = []
    cells = [cell for cell in cells if chosen is None or cell.name in {*chosen, *done}]
    for cell in cells:
        teacher, needs = f"teacher-{cell.task.name}", tuple[str, ...]()
        if cell.name not in done:
            needs = (teacher,)
            if teacher not in [job.name for job in jobs]:
                jobs.append(StudyJob(name=teacher, call=teach, arguments=(cell.task, folder), threads=threads))
        arguments = (cell, folder, minutes, tuple(methods) or cell.task.methods)
        jobs.append(StudyJob(name=cell.name, call=bake, arguments=arguments, needs=needs, threads=threads))
    finished, failed = run_jobs(jobs, folder, processes=1, minutes=until)
    rows = [row for cell in cells for row in finished.get(cell.name, {"rows": []})["rows"]]
    notes = [json.dumps(row, sort_keys=True) for row in rows]
    notes += [f"failed: {name}: {reason}" for name, reason in failed.items()]
    records = [_record(row) for row in rows if "score" in row]
    return results.to_json(results.result_file("bake-off", quick=quick, accuracies=records, notes=notes))


def teach(task: BakeOffTask, folder: Path) -> dict[str, Any]:
    """Trains the teacher of a task, and measures networks for the limits; returns its scores and latency."""
    data, path = task.data(), folder / "teachers" / task.name
    options, labelled = pb.FinetuneConfig(epochs=task.epochs, max_length=task.length), _without_unlabelled(data)
    trained = pb.finetune(task.encoder or minilm(), labelled, path, config=options, run=pb.RunConfig(overwrite=True))
    latency_ms = predicted_latency_ms(path / "model", data, task.length)
    return {"metrics": trained.metrics, "seconds": trained.seconds, "latency_ms": latency_ms}


def _without_unlabelled(data: TaskData) -> TaskData:
    """The labelled examples of a teacher."""
    return dataclasses.replace(data, unlabelled=None, least_confidence=None)


def bake(cell: BakeOffCell, folder: Path, minutes: float, methods: Sequence[str]) -> dict[str, Any]:
    """Trains all rows of a cell; returns their numbers."""
    task, data = cell.task, cell.task.data()
    teacher = json.loads((folder / "jobs" / f"teacher-{task.name}.json").read_text(encoding="utf-8"))
    limits = pb.Constraints(max_latency_ms=cell.share * teacher["latency_ms"], length=task.length)
    inputs = check(folder / "teachers" / task.name / "model", data, constraints=limits, minutes=minutes, seed=cell.seed)
    fixed = {
        candidate.training.name: candidate.name
        for candidate in planned_candidates(inputs)
        if candidate.kind == _KINDS[cell.half_width] and candidate.training.rate == 1
    }
    rows: dict[str, dict[str, Any]] = {
        method: {"failure": "no network with these layers, and within the limit, trains with it"}
        for method in {FINETUNE, *methods} - {*fixed, COMPRESS}
    }
    for method, like in {**fixed, **({} if cell.half_width else {COMPRESS: None})}.items():
        if methods and method not in (FINETUNE, *methods):
            continue
        output = folder / "runs" / cell.name / method
        try:
            result = pb.compress(
                inputs.directory, data, output, constraints=limits, minutes=minutes, like=like, seed=cell.seed
            )
        except (TrainingFailed, UserError) as error:
            log_info(f"{cell.name}, {method}: {error}")
            rows[method] = {"failure": str(error)}
            continue
        rows[method] = numbers(result, output)
    finetuned = folder / "runs" / cell.name / FINETUNE / "bundle"
    named: dict[str, Any] = {"task": task.name, "share": cell.share, "seed": cell.seed, "minutes": minutes}
    named |= {"half_width": cell.half_width, "commit": machine.commit()}
    for method, row in rows.items():
        row |= {**named, "method": method, "teacher_dev_metrics": teacher["metrics"]}
        if "score" in row and method != FINETUNE and finetuned.exists():
            bundles = [Bundle.open(finetuned), Bundle.open(folder / "runs" / cell.name / method / "bundle")]
            networks = [bundle.predictor(max_length=task.length) for bundle in bundles]
            assert inputs.splits.final is not None
            loss = paired_loss(networks[0], networks[1], inputs.splits.final.dev, row["metric"])
            row["points_to_finetuning"] = [-loss.points, -loss.interval[1], -loss.interval[0]]
    paths = (folder / "jobs" / f"teacher-{task.name}.json", folder / "runs" / cell.name)
    check_speed(teacher["latency_ms"], list(rows.values()), inputs.recipe, task.most_difference, paths)
    return {"rows": list(rows.values())}


def check_speed(
    first: float, rows: Sequence[dict[str, Any]], recipe: str, most_difference: float, files: Sequence[Path]
) -> None:
    """Raises a `UserError` if the median of a teacher's later latencies differs too much from the first, in ms."""
    # If a teacher's bundle has another recipe, because of the gate, it has another latency.
    later = [row["teacher_latency_ms"] for row in rows if row.get("teacher_recipe") == recipe]
    median = float(np.median(later)) if later else first
    if abs(median / first - 1) > most_difference:
        raise UserError(
            f"the teacher must be as fast as at first, {first:.3g} ms; received {median:.3g} ms, so its limits are "
            f"wrong; close other programs, delete {', '.join(map(str, files))} and the kept costs, and run the study "
            "again, or pass a larger --most-difference"
        )


def numbers(result: CompressResult, output: Path) -> dict[str, Any]:
    """What the pages read of a compression."""
    (winner,) = [row for row in result.leaderboard if row["chosen"]]
    return {
        "structure": winner["structure"],
        "winner": winner["name"],
        "winner_method": winner["method"],
        "candidates": len(result.leaderboard),
        "epochs": winner["epochs"],
        "dev_score": winner["score"],
        "teacher_dev_score": result.teacher_dev_score,
        "metric": result.main_metric,
        "score": result.metrics[result.main_metric],
        "interval": list(result.interval),
        "examples": result.outcome["examples"],
        "teacher_score": result.teacher_score,
        "points_lost": list(result.points_lost),
        "latency_ms": list(result.latency_ms),
        "teacher_latency_ms": result.teacher_latency_ms,
        "teacher_recipe": Bundle.open(output / TEACHER_BUNDLE).recipe,
        "size_mb": result.size_mb,
        "seconds": result.seconds,
        "training_seconds": result.training_seconds,
        "model_sha256": sha256(output / "bundle" / MODEL_FILE),
    }


def _record(row: dict[str, Any]) -> results.Accuracy:
    width = ", half width" if row["half_width"] else ""
    return results.Accuracy(
        label=f"{row['task']}, {row['share']:g} of the latency, seed {row['seed']}{width}: {row['method']}",
        model=row["structure"],
        recipe="dynamic_wi8",
        model_sha256=row["model_sha256"],
        task=row["task"],
        split="final split",
        metric=row["metric"],
        value=row["score"],
        examples=row["examples"],
    )


def rows_of(file: results.ResultFile) -> list[dict[str, Any]]:
    """The rows of a result file."""
    return [json.loads(note) for note in file.notes if note.startswith("{")]


def kept_cells(file: results.ResultFile, cells: Sequence[BakeOffCell], minutes: float) -> dict[str, Any]:
    """Name → result of the cells in a result file whose rows have had this time."""
    kept: dict[str, Any] = {}
    for cell in cells:
        rows = [row for row in rows_of(file) if key_of(row) == cell.key and row["minutes"] == minutes]
        if rows:
            kept[cell.name] = {"rows": rows}
    return kept


def _shares(texts: Sequence[str]) -> tuple[float, ...]:
    try:
        shares = tuple(map(float, texts))
    except ValueError:
        shares = ()
    if not shares or not all(0 < share <= 1 for share in shares):
        raise UserError(f"--shares must be numbers up to 1, such as 0.5,0.25; received {','.join(texts)}")
    return shares


def main(arguments: list[str]) -> int:
    """Runs the study, or a bake-off of your own table; returns 2 for bad input."""
    values = flags.FlagValues()
    for name, default, help_text in (
        ("train-file", None, "a table of your own, instead of the study's tasks"),
        ("text-column", "text", "its column with the texts"),
        ("pair-column", "", "its column with second texts"),
        ("label-column", "label", "its column with the labels"),
        ("model", "", "model directory of the encoder to fine-tune for your table (default: all-MiniLM-L6-v2)"),
        ("output", str(_FOLDER), "folder of the runs"),
    ):
        flags.DEFINE_string(name, default, help_text, flag_values=values)
    flags.DEFINE_list("methods", [], "rows beside fine-tuning; all if empty", flag_values=values)
    flags.DEFINE_list("tasks", [], "tasks of the study; all if empty", flag_values=values)
    flags.DEFINE_list("shares", ["0.5", "0.25"], "limits for your table, of the teacher's latency", flag_values=values)
    flags.DEFINE_float("minutes", MINUTES, "time of each row", flag_values=values)
    help_text = "largest later change of the teacher's latency, as a share"
    flags.DEFINE_float("most-difference", MOST_DIFFERENCE, help_text, flag_values=values)
    flags.DEFINE_float("until", None, "start no cell after so many minutes", flag_values=values)
    try:
        if rest := values(arguments)[1:]:
            raise UserError(f"the bake-off takes flags only; received {' '.join(rest)}")
        options = values.flag_values_dict()
        folder, path = Path(options["output"]), RESULTS / f"{RESULT}.json"
        tasks: Sequence[BakeOffTask] = TASKS
        if options["train-file"]:
            names = {"source": "train-file", "text": "text-column", "label": "label-column", "pair": "pair-column"}
            columns = {argument: options[flag] for argument, flag in names.items() if options[flag]}
            name, shares = Path(options["train-file"]).stem, _shares(options["shares"])
            table = tuple(columns.items())
            tasks = (BakeOffTask(name=name, shares=shares, table=table, encoder=options["model"]),)
            path = folder / f"{RESULT}.json"
            if options["tasks"]:
                raise UserError(f"--tasks is for the study; received it with --train-file={options['train-file']}")
        elif options["model"] or options["methods"]:
            raise UserError("--model and --methods must be used with --train-file; received them alone")
        elif unknown := {*options["tasks"]} - {task.name for task in TASKS}:
            known = ", ".join(task.name for task in TASKS if "," not in task.name)
            raise UserError(f"--tasks must be among {known}; received {', '.join(sorted(unknown))}")
        # Another set of methods would be ignored for cells that have finished.
        digest = options["train-file"] and sha256(Path(options["train-file"]))
        settings = {"minutes": options["minutes"], "methods": options["methods"], "table_sha256": digest}
        settings["model_sha256"] = options["model"] and digest_directory(Path(options["model"]))
        tasks = [dataclasses.replace(task, most_difference=options["most-difference"]) for task in tasks]
        settings["tasks"] = [dataclasses.asdict(task) for task in tasks]
        claim(folder / "settings.json", json.loads(json.dumps(settings)))
        cells = all_cells(tasks)
        if path.exists():
            keep(folder, kept_cells(results.read(path), cells, options["minutes"]))
        chosen = [cell.name for cell in cells if cell.task.name in (options["tasks"] or [cell.task.name])]
        made = content(
            cells, folder, options["minutes"], methods=options["methods"], chosen=chosen, until=options["until"]
        )
    except (UserError, flags.Error) as error:
        print(error, file=sys.stderr)
        return 2
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, made)
    print(path)
    written = results.read(path)
    for row in rows_of(written):
        print(json.dumps({name: row.get(name) for name in ("task", "share", "seed", "method", "score", "latency_ms")}))
    failures = [note for note in written.notes if not note.startswith("{") or "failure" in json.loads(note)]
    print(*failures, sep="\n", end="\n" if failures else "", file=sys.stderr)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
