"""Compare two models or bundles on the same labelled examples.

Prints one JSON object: both scores, the second network's loss in points with the paired 95 % interval, the number of
answers that become wrong or right with up to 20 texts for each, sizes, and latencies for two bundles. "parts" has the
loss for each class and each value of --slice-column with at least 30 examples, the largest first; these intervals hold
together. The first line of the summary on stderr names the largest loss.

Classes count right answers; slices count the metric. Scores and embeddings have no right answers, and so no texts.

Example:
  pocketbert compare runs/reviews/model runs/small/bundle --file=dev.csv
  pocketbert compare bundles/old bundles/new --file=tickets.csv --slice-column=country --max-points-lost=1
  pocketbert compare bundles/teacher bundles/student --task=sst2 --data=glue
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, ClassVar

from pocketbert.commands.command_line import Options
from pocketbert.commands.task_options import TableOptions
from pocketbert.errors import UserError
from pocketbert.hub.names import shown
from pocketbert.options import ModelOrBundlePath, option
from pocketbert_export.commands import example_options, question_options, stored_columns
from pocketbert_export.commands.example_options import ExampleOptions
from pocketbert_runtime.windows import WindowOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Networks to compare.

    Attributes:
      networks: two model directories or bundles; the second one may lose.
      metric: the compared metric, such as accuracy, f1 or macro_f1 (default: the task's).
      slice_column: columns of --file; each value has a row.
      max_points_lost: exit with code 1 if the second network loses more points.
      latency: measure two bundles, in turns.
    """

    GROUP: ClassVar = "Comparison"

    networks: tuple[ModelOrBundlePath, ...] = option(positional="MODEL|BUNDLE…")
    metric: str | None = None
    slice_column: tuple[str, ...] = ()
    max_points_lost: float | None = None
    latency: bool = True


OPTIONS = (CompareOptions, *example_options.OPTIONS, WindowOptions)


def check(options: Options) -> None:
    """Raises a `UserError` without two networks or data, or for slices without a table."""
    source, chosen = options[ExampleOptions], options[CompareOptions]
    if len(chosen.networks) != 2:
        raise UserError(f"compare takes two models or bundles; received {len(chosen.networks)}")
    if not (source.data or source.file):
        raise UserError("compare needs --data, a task's folder, or --file, a file of your own; received neither")
    if chosen.slice_column and not source.file:
        raise UserError("--slice-column names columns of --file; received it with --data; pass your own file")


def run(options: Options) -> int:
    """Prints the comparison."""
    chosen, source = options[CompareOptions], options[ExampleOptions]
    if source.file:
        stored_columns.use(options, chosen.networks[0], source.file)
        stored_columns.check(options, stored_columns.stored_task(chosen.networks[0]), source.file)
    table = options[TableOptions]
    from pocketbert.data.readers.tables import column_values
    from pocketbert.progress import log_info
    from pocketbert.tasks.predictor import predicting_task
    from pocketbert.tasks.registry import get_task, supervised_task
    from pocketbert_bench.compression.constraints import ROUNDING
    from pocketbert_bench.model_comparison import compare
    from pocketbert_bench.paired_scores import slice_values
    from pocketbert_export.bundles.predictors import open_network
    from pocketbert_export.checks.label_order import named

    first, second = (open_network(path) for path in chosen.networks)
    task = predicting_task(first.task, chosen.networks[0]).config
    question_options.check_no_questions(options, task)
    data: Any
    if get_task(task).needs_pairs:
        files = example_options.question_files(source, table, task)
        (part, data), *others = files.items()
        if others:
            log_info(f"comparing {part}; leaving {', '.join(name for name, _ in others)} out")
    else:
        data = example_options.read_texts(source, table, task)
    columns = {column: column_values(str(source.file), column, table.separator) for column in chosen.slice_column}
    of_data = supervised_task(named(task, source.task)) if source.task else None
    compared = compare(
        first,
        second,
        data,
        metric=chosen.metric or (of_data.main_metric if of_data else None),
        labels=source.labels,
        slices=slice_values(columns, data),
        latency=chosen.latency,
        **question_options.windows(options),
    )
    log_info(str(compared))
    names = dict(zip(("first", "second"), map(shown, chosen.networks), strict=True))
    print(json.dumps({**names, **dataclasses.asdict(compared)}))
    most = chosen.max_points_lost
    if most is None or compared.points_lost <= most + ROUNDING:
        return 0
    lost = f"{shown(chosen.networks[1])} loses {compared.points_lost:.2f}"
    log_info(f"pocketbert compare: at most {most:g} points may be lost; {lost}")
    return 1
