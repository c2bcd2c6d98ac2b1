r"""Search feed-forward networks for a small student under a latency or size limit (EfficientBERT).

The search warms up a supernet, the base architecture with the most stacks and the full width. Each candidate starts
from its slices, trains for a short time and is scored on another part of the training examples. --output gets
student/config.json (the best architecture), supernet/model/ (without --supernet), journal.jsonl with a line per
candidate, report.html and result.json, which is also printed. Rerun the same command to resume; the journal ends the
same.

Limits: --max-parameters, --max-flops, or --max-latency-ms, which predicts an exported bundle's latency: it measures its
parts on this machine and ten networks on --device. The report shows score against the limited quantities and the number
of weights.

Distil the best architecture next, with the supernet named in result.json:
  pocketbert distill --method=efficientbert --student=SEARCH/student/config.json --supernet=SEARCH/supernet/model …

Example:
  pocketbert search --teacher=runs/reviews/model --student=efficientbert_tiny --train-file=train.csv \
    --text-column=review --label-column=stars --max-parameters=9500000 --minutes=10 --output=runs/search
  pocketbert search --teacher=runs/sst2/model --student=efficientbert_base --task=sst2 --data=glue --text=wikipedia \
    --preset=paper --min-parameters=15000000 --max-parameters=16000000 --output=runs/search
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, ClassVar

from pocketbert.commands import runs, task_options
from pocketbert.commands.command_line import OptionGroup, Options
from pocketbert.commands.runs import RunFolderOptions
from pocketbert.commands.task_options import TableOptions, TaskOptions
from pocketbert.errors import raise_if_any
from pocketbert.options import AnyPath, FilePath, ModelPath, PresetOrPath
from pocketbert.search.config import SearchConfig
from pocketbert.search.strategies import StrategyOptions
from pocketbert_bench.adb import HOST


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchModelOptions:
    """Teacher and base architecture.

    Attributes:
      teacher: model directory of the teacher, fine-tuned on the task.
      student: base architecture: a preset or config.json.
      text: plain text to warm up the supernet: a file or folder.
      text_teacher: model directory of the teacher for plain text, not fine-tuned, as in the authors' code (default:
        --teacher).
      supernet: supernet/model from an earlier search with the same student, data, --seed, --score-share and
        --stage3-score-share, instead of a new one.
    """

    GROUP: ClassVar = "Model"

    teacher: ModelPath
    student: PresetOrPath
    text: AnyPath | None = None
    text_teacher: ModelPath | None = None
    supernet: ModelPath | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class OtherTaskOptions:
    """Other tasks to train the supernet in stage 3.

    Attributes:
      supernet_tasks: GLUE tasks in --data besides --task, such as cola,mrpc; the paper takes all.
      supernet_teachers: model directories of teachers fine-tuned on them, in the same order.
    """

    GROUP: ClassVar = "Search"
    COMMON: ClassVar = ()

    supernet_tasks: tuple[str, ...] = ()
    supernet_teachers: tuple[ModelPath, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """Limits on candidates.

    Attributes:
      min_parameters: minimum number of weights in the encoder.
      max_parameters: maximum number of weights in the encoder, including a pooler.
      max_flops: maximum number of floating-point operations for a text with --max-length tokens.
      max_latency_ms: maximum latency in milliseconds, with one thread.
      recipe: recipe for the exported file, for --max-latency-ms: float32, float16 or dynamic_wi8.
      length: tokens in the text, for --max-latency-ms (default: --max-length).
      device: where to measure, for --max-latency-ms: host, or a phone's serial number as listed by adb devices.
      apk: benchmark app, for a phone without it; built by make android.
    """

    GROUP: ClassVar = "Limits"

    min_parameters: int | None = None
    max_parameters: int | None = None
    max_flops: int | None = None
    max_latency_ms: float | None = None
    recipe: str = "dynamic_wi8"
    length: int | None = None
    device: str = HOST
    apk: FilePath | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParallelOptions:
    """Workers.

    Attributes:
      parallel: number of candidates to train at the same time; they share the cores. More than 20 candidates train in
        another process, which returns its memory after 20.
      ray: address of a Ray cluster, for example auto; its machines must share the storage for all files.
    """

    GROUP: ClassVar = "Run"

    parallel: int = 1
    ray: str | None = None


OPTIONS = (
    SearchModelOptions,
    TaskOptions,
    TableOptions,
    SearchConfig,
    OtherTaskOptions,
    StrategyOptions,
    LimitOptions,
    ParallelOptions,
    OptionGroup(RunFolderOptions, without=("seeds",)),
)
# Candidates' graphs leak about 8 MiB each.
_CANDIDATES_A_PROCESS = 20


def check(options: Options) -> None:
    """Raises a `UserError` if the options contradict each other."""
    problems = task_options.problems(options[TaskOptions])
    problems += worker_problems(options[ParallelOptions])
    limits = options[LimitOptions]
    for name in ("min_parameters", "max_parameters", "max_flops", "max_latency_ms", "length"):
        if (value := getattr(limits, name)) is not None and not value > 0:
            problems.append(f"--{name.replace('_', '-')} must be positive; received {value}")
    if limits.max_latency_ms is None and (alone := options.changed("recipe", "length", "device", "apk")):
        problems.append(f"{', '.join(alone)} must be used with --max-latency-ms; received no latency")
    problems += _other_problems(options[OtherTaskOptions], options[TaskOptions])
    if limits.apk and limits.device == HOST:
        problems.append("--apk is for phones; received it without --device; name a phone or leave it out")
    raise_if_any(problems, "search")


def run(options: Options) -> int | None:
    """Searches; prints the result as JSON."""
    limits = options[LimitOptions]
    if limits.recipe != LimitOptions.recipe:
        from pocketbert_bench.latency_model import check_recipe

        check_recipe(limits.recipe)
    workers = open_workers(options[ParallelOptions], sum(options[SearchConfig].resolved().candidates))
    data = task_options.read_examples(options[TaskOptions], options[TableOptions])
    runs.check_output(options, single=False)

    from pocketbert.search.run import search

    def make() -> dict[str, Any]:
        chosen, models = options[RunFolderOptions], options[SearchModelOptions]
        result = search(
            models.student,
            data,
            chosen.output,
            teacher=models.teacher,
            text=models.text,
            text_teacher=models.text_teacher,
            config=options[SearchConfig],
            strategy=options[StrategyOptions],
            constraints=_constraints(options, data.task),
            workers=workers,
            tasks=_others(options),
            supernet=models.supernet,
            overwrite=chosen.overwrite,
        )
        return dataclasses.asdict(result)

    return runs.print_result(options, make)


def _other_problems(others: OtherTaskOptions, task: TaskOptions) -> list[str]:
    names, teachers = others.supernet_tasks, others.supernet_teachers
    problems = []
    if len(names) != len(teachers):
        problems.append(
            "--supernet-teachers needs one model directory for each of --supernet-tasks; received "
            f"{len(teachers)} for {len(names)}"
        )
    elif names and not (task.task and task.data):
        problems.append("--supernet-tasks must be used with --task and --data; received none")
    if repeated := {name for name in names if name == task.task} or {name for name in names if names.count(name) > 1}:
        problems.append(
            f"--supernet-tasks must be different tasks besides --task; received {', '.join(repeated)} twice"
        )
    return problems


def _others(options: Options) -> list[Any]:
    from pocketbert.search.supernet_tasks import SupernetTask

    others, table = options[OtherTaskOptions], options[TableOptions]
    return [
        SupernetTask(
            data=task_options.read_examples(dataclasses.replace(options[TaskOptions], task=name, metric=None), table),
            teacher=teacher,
        )
        for name, teacher in zip(others.supernet_tasks, others.supernet_teachers, strict=True)
    ]


def _constraints(options: Options, task: Any) -> list[Any]:
    from pocketbert.search.constraints import FlopsConstraint, ParameterConstraint

    limits = options[LimitOptions]
    constraints: list[Any] = []
    if limits.max_latency_ms is not None:
        from pocketbert_bench.latency_model import LatencyConstraint
        from pocketbert_bench.network_latency import Setting, open_device

        setting = Setting(
            task=task,
            recipe=limits.recipe,
            lengths=(limits.length or options[SearchConfig].max_length,),
        )
        device = open_device(limits.device, limits.apk, Path(options[SearchModelOptions].teacher))
        constraints.append(LatencyConstraint(limit=limits.max_latency_ms, setting=setting, device=device))
    if limits.min_parameters is not None or limits.max_parameters is not None:
        most = math.inf if limits.max_parameters is None else limits.max_parameters
        constraints.append(ParameterConstraint(minimum=limits.min_parameters or 0, limit=most))
    if limits.max_flops is not None:
        constraints.append(FlopsConstraint(limit=limits.max_flops, length=options[SearchConfig].max_length))
    return constraints


def worker_problems(options: ParallelOptions) -> list[str]:
    """Problems of the number of workers."""
    return [] if options.parallel > 0 else [f"--parallel must be positive; received {options.parallel}"]


def open_workers(options: ParallelOptions, candidates: int) -> Any:
    """Workers for at most so many candidates; see `Workers`."""
    from pocketbert.trials.workers import InTurn, Processes, Ray

    if options.ray:
        return Ray(options.parallel, options.ray)
    if options.parallel == 1 and candidates <= _CANDIDATES_A_PROCESS:
        return InTurn()
    return Processes(options.parallel, _CANDIDATES_A_PROCESS)
