"""How a run cuts long texts: checks of `RunConfig.truncation`, and of the truncation that a model has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pocketbert.notation import argument
from pocketbert.tasks.registry import get_task
from pocketbert.training.stage import Stage
from pocketbert_runtime.tokenizers.truncation import HEAD, LONGEST_FIRST, ONLY_SECOND, head_tokens, room_problem

if TYPE_CHECKING:
    from pocketbert.training.run_data import RunData
    from pocketbert_runtime.tokenizers.vocabulary import Vocabulary


def truncation_problems(
    given: str | None, vocabulary: Vocabulary | None, stages: Sequence[Stage], data: RunData
) -> list[str]:
    """Reasons why texts of these data cannot be cut so.

    Args:
      given: `RunConfig.truncation`.
      vocabulary: vocabulary of the run, whose truncation counts if none is given; None if it is unknown.
      stages: stages of the run.
      data: data of the run.
    """
    remedy = "leave it out" if given else f"the model is stored with it; pass {argument('truncation', 'head')}"
    if data.task is None or get_task(data.task).window_options:
        what = "packed texts are never cut" if data.task is None else f"{data.task.kind} reads long texts in windows"
        return [f"truncation is for one answer per text; {what}; received {given}; leave it out"] if given else []
    truncation = given or (vocabulary.truncation if vocabulary else None)
    if truncation is None:
        return []
    task = get_task(data.task)
    reads_pairs = data.has_pairs and not (task.has_vectors or task.separates_pairs)
    if truncation in (ONLY_SECOND, LONGEST_FIRST) and not reads_pairs:
        what = "the texts of each pair one by one" if data.has_pairs else "single texts"
        return [f"truncation={truncation} is for pairs of texts; the run reads {what}; {remedy}"]
    if head_tokens(truncation) is not None and reads_pairs:
        return [f"truncation={truncation} is for single texts; the run reads pairs of texts; {remedy}"]
    if truncation != HEAD and any(part.per_token for part in get_task(data.task).parts.values()):
        return [f"truncation={truncation} is for answers per text; a head has a tag for each word; {remedy}"]
    lengths = {stage.max_length for stage in stages if stage.data in ("task", "augmented")}
    return [*filter(None, (room_problem(truncation, length) for length in sorted(lengths)))]
