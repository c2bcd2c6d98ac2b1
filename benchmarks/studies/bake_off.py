"""Which method for my data? Every method that accepts a teacher, on eight tasks, at equal seconds and latency.

A cell is a task, a limit of the latency and a seed. Its rows are fine-tuning, each distillation method, and
`pocketbert compress`. All rows of a task have one teacher: all-MiniLM-L6-v2, fine-tuned on the training examples. Each
row takes four minutes, with the exports of teacher and student, the gate and the measurement; the teacher's training
does not count. A row with one method has the largest number of the teacher's layers within the limit. A dev split
chooses; the scores are of a final split. The study keeps finished rows, and resumes. Close other programs first: with
fewer steps, every row gets worse. `--until` starts no cell after some minutes.

    python -m studies bake_off
    python -m studies.bake_off --until=100
    python -m studies.bake_off --train-file=tickets.csv --text-column=text --label-column=queue --methods=finetune,hsk
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

import pocketbert as pb
from pocketbert.data.assets import minilm
from pocketbert.data.task_data import TaskData
from pocketbert.data.train_dev_split import train_dev_split
from pocketbert.data.unlabelled import with_unlabelled
from pocketbert.errors import TrainingFailed, UserError
from pocketbert.files import sha256, write_json
from pocketbert.progress import log_info
from pocketbert.training.state import digest_directory
from pocketbert_bench import machine, results
from pocketbert_bench.claims import claim
from pocketbert_bench.compression.candidates import predicted_latency_ms
from pocketbert_bench.compression.inputs import check
from pocketbert_bench.compression.outcome import CompressResult
from pocketbert_bench.compression.run import planned_candidates
from pocketbert_bench.paired_scores import paired_loss
from pocketbert_export.bundles.bundle import MODEL_FILE, Bundle
from studies import small_data
from studies.jobs import StudyJob, keep, run_jobs
from studies.runner import RESULTS

RESULT, MINUTES = "bake_off", 4.0
FINETUNE, COMPRESS = "finetune", "compress"
# The name of the training; see `pocketbert_bench.compression.methods.Training`.
_UNLABELLED = "predictions+unlabelled"
_FOLDER = Path("runs/bake_off")
# Layers that are copied evenly, at full width.
_KIND = "even layers, 1 of heads, 1 of neurons, rank None"
# Longer texts are cut.
_USUAL_LENGTH = 64
_DEV_SHARE = 0.15
MOST_DIFFERENCE = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class BakeOffTask:
    """A task of the study, or a table of your own.

    Attributes:
      name: name of the task.
      data_set: key of `studies.small_data.DATA`; empty for the name, or a table.
      shares: limits, as shares of the latency of the teacher's bundle.
      seeds: seeds of all rows.
      length: tokens of a text; longer ones are cut.
      dev_share: share of the training examples that choose.
      epochs: epochs of the teacher.
      labelled: number of examples that have labels; None for all.
      unlabelled: number of others, whose labels nobody reads.
      methods: rows beside fine-tuning; all if empty.
      table: arguments of `pb.data.table`, and their values; empty for a task of the study.
      encoder: model directory of the encoder to fine-tune; empty for all-MiniLM-L6-v2.
      most_difference: largest difference of the teacher's latency in a cell from that of the limits, as a share.
    """

    name: str
    data_set: str = ""
    shares: tuple[float, ...] = (0.5,)
    seeds: tuple[int, ...] = (0,)
    length: int = _USUAL_LENGTH
    dev_share: float = _DEV_SHARE
    epochs: int = 3
    labelled: int | None = None
    unlabelled: int = 0
    methods: tuple[str, ...] = ()
    table: tuple[tuple[str, Any], ...] = ()
    encoder: str = ""
    most_difference: float = MOST_DIFFERENCE

    def data(self) -> TaskData:
        """Training examples, a dev split that chooses, and the test examples of the final score."""
        if self.table:
            whole = pb.data.table(**dict(self.table))
            rows, test = train_dev_split(whole.undivided or whole.train, _DEV_SHARE, 0, stratify=True)
        else:
            whole, test = small_data.DATA[self.data_set or self.name]()
            rows = whole.train
        others = None
        if self.labelled is not None:
            order = np.random.default_rng(0).permutation(len(rows))
            others = rows.select(order[self.labelled : self.labelled + self.unlabelled])
            rows = rows.select(order[: self.labelled])
        train, dev = train_dev_split(rows, self.dev_share, 0, stratify=True)
        data = dataclasses.replace(whole, train=train, dev=dev, test=test, undivided=None)
        return with_unlabelled(data, {"text": others.texts}) if self.unlabelled and others is not None else data


_HALF_AND_QUARTER = (0.5, 0.25)
# One task of each kind comes first.
TASKS = (
    # SST-2 has many sentences, so a small share of them chooses.
    BakeOffTask(name="sst2", shares=_HALF_AND_QUARTER, seeds=(0, 1, 2), dev_share=0.03, epochs=1),
    BakeOffTask(name="stsb", shares=_HALF_AND_QUARTER, seeds=(0, 1, 2)),
    BakeOffTask(name="names", shares=_HALF_AND_QUARTER),
    BakeOffTask(name="questions", length=192),
    BakeOffTask(name="mrpc", shares=_HALF_AND_QUARTER, length=96),
    BakeOffTask(name="cola"),
    BakeOffTask(name="xnli", length=96, epochs=4),
    # 500 labels, and 20,000 sentences that only the teacher labels.
    BakeOffTask(
        name="sst2, few labels",
        data_set="sst2",
        labelled=500,
        unlabelled=20_000,
        methods=("predictions", _UNLABELLED, COMPRESS),
    ),
)


@dataclasses.dataclass(frozen=True)
class BakeOffCell:
    """A task, a limit and a seed; the limit is a share of the latency of the teacher's bundle."""

    task: BakeOffTask
    share: float
    seed: int

    @property
    def name(self) -> str:
        """Name of the job, which is also a folder."""
        return f"{self.task.name}-{self.share:g}-{self.seed}"


def run(quick: bool) -> dict[str, Any]:
    """Trains the rows of all cells; returns their scores."""
    if not quick:
        return content(all_cells(TASKS), _FOLDER, MINUTES)
    with tempfile.TemporaryDirectory() as name:
        cells = [BakeOffCell(TASKS[4], 0.5, 0)]
        return content(cells, Path(name), MINUTES / 2, methods=(FINETUNE, "predictions"), quick=True)


def all_cells(tasks: Sequence[BakeOffTask]) -> list[BakeOffCell]:
    """All cells: first seeds first, and first limits before second ones."""
    cells = [BakeOffCell(task, share, seed) for task in tasks for share in task.shares for seed in task.seeds]
    return sorted(cells, key=lambda cell: (cell.seed, cell.task.shares.index(cell.share)))


def content(
    cells: Sequence[BakeOffCell],
    folder: Path,
    minutes: float,
    *,
    methods: Sequence[str] = (),
    quick: bool = False,
    until: float | None = None,
) -> dict[str, Any]:
    """Runs unfinished cells; returns the result file of those that have finished.

    Args:
      cells: the cells.
      folder: folder of the study.
      minutes: time of each row.
      methods: the rows; all if empty.
      quick: whether this is a trial of the study.
      until: start no cell after so many minutes; None for no limit.
    """
    threads = os.cpu_count() or 1
    done = {cell.name for cell in cells if (folder / "jobs" / f"{cell.name}.json").exists()}
    jobs: list[StudyJob] = []
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
        if candidate.kind == _KIND and candidate.training.rate == 1
    }
    rows: dict[str, dict[str, Any]] = {
        method: {"failure": "no network with these layers, and within the limit, trains with it"}
        for method in {FINETUNE, *methods} - {*fixed, COMPRESS}
    }
    for method, like in {**fixed, COMPRESS: None}.items():
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
    named["commit"] = machine.commit()
    for method, row in rows.items():
        row |= {**named, "method": method, "teacher_dev_metrics": teacher["metrics"]}
        if "score" in row and method != FINETUNE and finetuned.exists():
            bundles = [Bundle.open(finetuned), Bundle.open(folder / "runs" / cell.name / method / "bundle")]
            networks = [bundle.predictor(max_length=task.length) for bundle in bundles]
            assert inputs.splits.final is not None
            loss = paired_loss(networks[0], networks[1], inputs.splits.final.dev, row["metric"])
            row["points_to_finetuning"] = [-loss.points, -loss.interval[1], -loss.interval[0]]
    later = [row["teacher_latency_ms"] for row in rows.values() if "score" in row]
    paths = (folder / "jobs" / f"teacher-{task.name}.json", folder / "runs" / cell.name)
    check_speed(teacher["latency_ms"], later, task.most_difference, paths)
    return {"rows": list(rows.values())}


def check_speed(first: float, later: Sequence[float], most_difference: float, files: Sequence[Path]) -> None:
    """Raises a `UserError` if the median of a teacher's later latencies differs too much from the first, in ms."""
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
        "size_mb": result.size_mb,
        "seconds": result.seconds,
        "training_seconds": result.training_seconds,
        "model_sha256": sha256(output / "bundle" / MODEL_FILE),
    }


def _record(row: dict[str, Any]) -> results.Accuracy:
    return results.Accuracy(
        label=f"{row['task']}, {row['share']:g} of the latency, seed {row['seed']}: {row['method']}",
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
        key = cell.task.name, cell.share, cell.seed, minutes
        rows = [row for row in rows_of(file) if (row["task"], row["share"], row["seed"], row["minutes"]) == key]
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
        elif options["model"] or options["methods"]:
            raise UserError("--model and --methods must be used with --train-file; received them alone")
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
        made = content(cells, folder, options["minutes"], methods=options["methods"], until=options["until"])
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
