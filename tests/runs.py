"""Runs as tests describe them: by keywords in one dictionary, of which each test changes a few."""

from __future__ import annotations

import dataclasses
from typing import Any

from pocketbert.data.pretraining_data import PretrainingData
from pocketbert.data.task_data import TaskData, TextData
from pocketbert.distillation import comparison, run
from pocketbert.distillation.initialization import TeacherLayers
from pocketbert.distillation.methods import get_method
from pocketbert.distillation.plan import CachedTeacher, DistillationPlan, plan_distillation
from pocketbert.training import finetune as finetuning
from pocketbert.training import pretrain as pretraining
from pocketbert.training.config import FinetuneConfig, PretrainConfig, RunConfig


def arguments(
    *,
    method: Any,
    options: Any = None,
    student: Any = None,
    teacher_layers: Any = (),
    teacher_directory: Any = None,
    store: Any = None,
    task_data: Any = None,
    text: Any = None,
    pretraining: Any = None,
    dev_pretraining: Any = None,
    run: RunConfig = RunConfig(),  # noqa: B008
    overwrite: bool = False,
) -> tuple[Any, Any, dict[str, Any]]:
    """What `distill` takes: student, data, and its keywords."""
    if pretraining is not None:
        data: Any = PretrainingData.open(pretraining, dev_pretraining)
    else:
        data = task_data if text is None else TextData(text)
    return (
        TeacherLayers(tuple(teacher_layers), student) if teacher_layers else student,
        data,
        {
            "teacher": teacher_directory if store is None else CachedTeacher(store, teacher_directory),
            "method": options or (get_method(method)() if isinstance(method, str) else method),
            "run": dataclasses.replace(run, overwrite=overwrite),
        },
    )


def distill(*, output: Any, **given: Any) -> Any:
    """`distill` of these keywords."""
    student, data, keywords = arguments(**given)
    return run.distill(student, data, output, **keywords)


def plan(**given: Any) -> DistillationPlan:
    """`plan_distillation` of these keywords."""
    student, data, keywords = arguments(**given)
    return plan_distillation(student, data, **keywords)


def distill_and_compare(
    seeds: Any, output: Any, run: RunConfig, learning_rate: float | None = None, **given: Any
) -> Any:
    """`distill_and_compare` of these keywords."""
    student, data, keywords = arguments(run=run, **given)
    return comparison.distill_and_compare(seeds, student, data, output, learning_rate=learning_rate, **keywords)


# All that a fine-tuning is told, in one place: the fields of both.
FinetuneOptions = dataclasses.make_dataclass(
    "FinetuneOptions",
    [
        (field.name, Any, dataclasses.field(default=field.default))
        for field in (*dataclasses.fields(FinetuneConfig), *dataclasses.fields(RunConfig))
    ],
    frozen=True,
    kw_only=True,
)


def _finetuning(given: dict[str, Any]) -> dict[str, Any]:
    """The keywords of `finetune`, out of those of a test."""
    names = ("task", "train", "dev", "metrics", "main_metric")
    values = vars(given.pop("options"))
    configs = []
    for kind in (FinetuneConfig, RunConfig):
        configs.append(kind(**{field.name: values[field.name] for field in dataclasses.fields(kind)}))
    return {
        "model": given.pop("model_directory"),
        "data": TaskData(**{name: given.pop(name) for name in names if name in given}),
        "output": given.pop("output"),
        "config": configs[0],
        "run": dataclasses.replace(configs[1], overwrite=given.pop("overwrite", False)),
        **given,
    }


def finetune(*positional: Any, **given: Any) -> Any:
    """`finetune` of these keywords; the first of them may come without their names."""
    names = ("model_directory", "task", "train", "dev", "output", "options", "metrics", "main_metric")
    return finetuning.finetune(**_finetuning({**dict(zip(names, positional, strict=False)), **given}))


def finetune_seeds(seeds: Any, **given: Any) -> Any:
    """`finetune_seeds` of these keywords."""
    return finetuning.finetune_seeds(seeds, **_finetuning(given))


def finetune_grid(grid: Any, seeds: Any, **given: Any) -> Any:
    """`finetune_grid` of these keywords."""
    return finetuning.finetune_grid(grid, seeds, **_finetuning(given))


def pretrain(*, model: Any, data: Any, output: Any, dev_data: Any = None, options: Any = None, **given: Any) -> Any:
    """`pretrain` of these keywords."""
    run = dataclasses.replace(given.pop("run", RunConfig()), overwrite=given.pop("overwrite", False))
    config = options or PretrainConfig()
    return pretraining.pretrain(model, PretrainingData.open(data, dev_data), output, config=config, run=run)
