"""Answer thresholds to choose on the dev split, from run options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert.tasks.decisions import DecisionChoice
from pocketbert.tasks.registry import supervised_task
from pocketbert.training.config import RunConfig
from pocketbert.training.stage import Stage

if TYPE_CHECKING:
    from pocketbert.training.run_data import RunData


def choice_of(run: RunConfig, metric: str) -> DecisionChoice | None:
    """Returns the run's choice, or None; `metric` selects its best checkpoint."""
    if not run.decision_thresholds and run.reject is None:
        return None
    return DecisionChoice(metric=metric if run.decision_thresholds else None, keep=run.reject)


def choice_problems(run: RunConfig, stages: Sequence[Stage], data: RunData) -> list[str]:
    """Reports why a run with these stages and data cannot choose thresholds."""
    choice = choice_of(run, data.main_metric)
    if choice is None:
        return []
    given = "reject" if choice.metric is None else "decision_thresholds"
    if data.task is None:
        return [f"{given} needs a task with labels; received it without one; leave it out"]
    if data.evaluated_length(stages[-1]) is None:
        return [f"{given} needs a last stage that trains the head; received stage {stages[-1].name}; leave it out"]
    return supervised_task(data.task).choice_problems(choice)


def log_heads_without_choice(run: RunConfig, data: RunData) -> None:
    """Names heads without thresholds, in a run that chooses them for others."""
    choice = choice_of(run, data.main_metric)
    if choice is None or data.task is None:
        return
    task = supervised_task(data.task)
    chosen = task.choices(choice)
    if heads := [f"{name} ({part.kind})" for name, part in task.parts.items() if name not in chosen]:
        option = argument("reject", run.reject) if choice.metric is None else argument("decision_thresholds", True)
        log_info(f"{option} has no meaning for the heads {', '.join(heads)}; the others have thresholds")
