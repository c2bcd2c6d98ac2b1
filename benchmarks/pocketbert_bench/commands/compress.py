r"""Find the best verified bundle for your data within limits on latency and size, in one command.

The command fine-tunes a teacher on your examples, unless --model is one. It cuts smaller networks out of the teacher,
predicts their latency and size, and trains those within the limits: first shortly, then the best ones longer. It
exports the winner, runs the verification gate, and measures it beside the teacher.

A dev split chooses the winner. Neither training nor choice reads the final split, which gives the page's first score.
If --model was trained on --train-file, pass --test-file: otherwise the model knows the final split.

--output gets bundle/, model/ (its weights), models/ (other good candidates' weights), report.html, leaderboard.json
with a row for each candidate and the commands to make it by hand, splits/ (the examples for these commands),
journal.jsonl and result.json, which is also printed. Rerun the same command to resume; with a larger --minutes or
--trials, a finished run continues.

Example:
  pocketbert compress --train-file=tickets.csv --text-column=text --label-column=queue --max-latency-ms=3 --length=64 \
    --max-mb=15 --minutes=60 --output=runs/small
  pocketbert compress --model=runs/reviews/model --train-file=reviews.csv --max-latency-ms=1.5 --trials=6 \
    --output=runs/small
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any, ClassVar

from pocketbert.commands import runs, task_options
from pocketbert.commands.command_line import OptionGroup, Options
from pocketbert.commands.runs import RunFolderOptions
from pocketbert.commands.task_options import TableOptions, TaskOptions
from pocketbert.errors import raise_if_any
from pocketbert.options import AnyPath, DirectoryPath, FilePath, ModelPath, PresetOrPath
from pocketbert_bench.commands.search import ParallelOptions, open_workers, worker_problems
from pocketbert_bench.compression.constraints import Constraints, budget_problems
from pocketbert_export.bundles.model_card import CardOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompressOptions:
    """Model and time.

    Attributes:
      model: fine-tuned model directory (the teacher), or an encoder to fine-tune first (default: all-MiniLM-L6-v2).
      test_file: examples for the final score, formatted like --train-file (default: 15 % of --train-file).
      kfold: number of folds for the final score, instead of one final split (default: 5 below 500 examples).
      minutes: time from start to the finished bundle, without interruptions.
      trials: number of candidates to train, instead of --minutes.
      measurements: finished run; reuse its measured latencies. With --trials, the same options then give the same
        winner in a new folder.
      recipe: the bundle's recipe: float32, float16, dynamic_wi8, dynamic_wi4, or mixed with --max-mb (default:
        dynamic_wi8, or dynamic_wi4 if --max-mb asks for it).
      students: further networks to train: presets with the teacher's vocabulary for random weights, or models. A model
        with another tokenizer learns predictions alone, also with two thirds and one third of its layers (default:
        all-minilm if no network can be cut out of --model).
      supernet: supernet from pocketbert search, with the teacher's vocabulary. EfficientBERTs among --students start
        from slices of its weights; a few parts of it with other expressions are trained, too.
      soft_label_columns: columns of --train-file with the probability of each label, in the order of --labels; or
        probabilities, as predict --soft-labels writes them into .jsonl. Candidates learn them instead of the teacher's
        predictions.
      unlabelled_file: texts without labels, on which candidates also learn the teacher's predictions: a table with
        --text-column, or a file with a text per line.
      least_confidence: leave out unlabelled texts if the teacher's best label has a lower probability.
      text: file or folder of plain text; candidates may learn the teacher's relations on it before the labels.
      slice_column: table columns; the page has the loss for each value with at least 30 final examples.
      like: finished run on other data; train only its winner's structure and method, with its recipe. Or the name of a
        candidate, as in its leaderboard.
      stop_below_baseline: stop if a simple method is better than the teacher, instead of warning.
      seed: seed for splits, new weights, shuffling and dropout.
      dry_run: list the candidates within the limits with their predicted costs, and train none; needs neither --output
        nor --minutes.
    """

    GROUP: ClassVar = "Compression"

    model: ModelPath | None = None
    test_file: FilePath | None = None
    kfold: int | None = None
    minutes: float | None = None
    trials: int | None = None
    measurements: DirectoryPath | None = None
    recipe: str | None = None
    students: tuple[PresetOrPath, ...] = ()
    supernet: ModelPath | None = None
    soft_label_columns: tuple[str, ...] = ()
    unlabelled_file: FilePath | None = None
    least_confidence: float | None = None
    text: AnyPath | None = None
    slice_column: tuple[str, ...] = ()
    like: str | None = None
    stop_below_baseline: bool = False
    seed: int = 0
    dry_run: bool = False


OPTIONS = (
    CompressOptions,
    TaskOptions,
    TableOptions,
    Constraints,
    ParallelOptions,
    CardOptions,
    OptionGroup(RunFolderOptions, without=("seeds",), may_be_missing=("output",)),
)


def check(options: Options) -> None:
    """Raises a `UserError` if the options contradict each other."""
    chosen = options[CompressOptions]
    problems = task_options.problems(options[TaskOptions])
    problems += budget_problems(chosen.minutes, _trials(chosen), chosen.measurements)
    problems += worker_problems(options[ParallelOptions])
    problems += task_options.unlabelled_problems(chosen.unlabelled_file, chosen.least_confidence)
    if not (chosen.dry_run or options[RunFolderOptions].output):
        problems.append("--output is required; received none")
    if chosen.test_file and (options[TaskOptions].task or not options[TaskOptions].train_file):
        received = f"--task={options[TaskOptions].task}" if options[TaskOptions].task else "no table"
        problems.append(f"--test-file must be used with --train-file alone; received {received}")
    if chosen.soft_label_columns and not options[TaskOptions].train_file:
        problems.append("--soft-label-columns needs --train-file; received it alone")
    if chosen.slice_column and (options[TaskOptions].task or not options[TaskOptions].train_file):
        problems.append("--slice-column must be used with --train-file alone; received no table of your own")
    raise_if_any(problems, "compress")


def run(options: Options) -> int | None:
    """Compresses; prints the result as JSON."""
    chosen = options[CompressOptions]
    data = _read(options)
    arguments: dict[str, Any] = {
        "constraints": options[Constraints],
        "minutes": chosen.minutes,
        "trials": _trials(chosen),
        "measurements": chosen.measurements,
        "kfold": chosen.kfold,
        "recipe": chosen.recipe,
        "students": chosen.students,
        "supernet": chosen.supernet,
        "text": chosen.text,
        "slices": _slices(options),
        "like": chosen.like,
        "stop_below_baseline": chosen.stop_below_baseline,
        "card": options[CardOptions],
        "seed": chosen.seed,
    }
    if chosen.dry_run:
        _print_candidates(chosen.model, data, arguments)
        return None

    runs.check_output(options, single=True)

    from pocketbert_bench.compression.run import compress

    def make() -> dict[str, Any]:
        result = compress(
            chosen.model,
            data,
            options[RunFolderOptions].output,
            **arguments,
            workers=open_workers(options[ParallelOptions], chosen.trials or 0),
            overwrite=options[RunFolderOptions].overwrite,
        )
        # A finished run with a larger budget keeps its result.
        options.resolve(minutes=result.minutes, trials=result.trials)
        return dataclasses.asdict(result)

    return runs.print_result(options, make, _by_hand)


def _trials(chosen: CompressOptions) -> int | None:
    """Number of candidates to train; those of a dry run do not depend on it."""
    return 1 if chosen.dry_run and chosen.minutes is None else chosen.trials


def _by_hand(result: dict[str, Any]) -> Iterator[str]:
    """The commands of each row, for the end of the file of options."""
    for row in result["leaderboard"]:
        yield ""
        yield f"{row['name']}, by hand:"
        yield from [f"Not identical: {row['difference']}."] if row["difference"] and row["commands"] else []
        yield from row["commands"]


def _read(options: Options) -> Any:
    """The examples, with those of --test-file and --unlabelled-file."""
    chosen, table = options[CompressOptions], options[TableOptions]
    soft_labels = chosen.soft_label_columns
    data = task_options.read_examples(options[TaskOptions], table, soft_labels=soft_labels)
    if chosen.test_file is not None:
        with_test = dataclasses.replace(options[TaskOptions], dev_file=chosen.test_file)
        data = dataclasses.replace(data, test=task_options.read_examples(with_test, table, soft_labels=soft_labels).dev)
    return task_options.with_unlabelled(data, chosen.unlabelled_file, chosen.least_confidence, table)


def _slices(options: Options) -> dict[str, dict[str, str]]:
    """The values of --slice-column in the file with the final examples."""
    from pocketbert.data.readers.tables import column_values

    chosen, table = options[CompressOptions], options[TableOptions]
    path = chosen.test_file or options[TaskOptions].train_file
    return {column: column_values(str(path), column, table.separator) for column in chosen.slice_column}


def _print_candidates(model: str | None, data: Any, arguments: dict[str, Any]) -> None:
    """Prints the candidates that would be trained, in their order, as JSON lines."""
    from pocketbert_bench.compression.inputs import check as checked
    from pocketbert_bench.compression.run import planned_candidates

    for candidate in planned_candidates(checked(model, data, **arguments)):
        cost = {name: round(value, 3) for name, value in dataclasses.asdict(candidate.cost).items()}
        row = {"structure": candidate.structure.name, "method": candidate.training.name, "recipe": candidate.recipe}
        print(json.dumps({**row, "trimmed_vocabulary": candidate.trimmed, "lengths": candidate.lengths, **cost}))
