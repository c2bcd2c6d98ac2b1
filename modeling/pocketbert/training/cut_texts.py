"""Checks how a run cuts long texts: `RunConfig.truncation`, or the model's truncation."""

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
    """Reports why texts in these data cannot be cut this way.

    Args:
      given: `RunConfig.truncation`.
      vocabulary: the run's vocabulary; its truncation counts if `given` is None. None if unknown.
      stages: the run's stages.
      data: the run's data.
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
