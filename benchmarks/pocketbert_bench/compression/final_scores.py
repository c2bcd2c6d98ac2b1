"""Score a bundle on the final split, beside the teacher's bundle and simple methods."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from pocketbert.tasks.predictor import Predictor
from pocketbert.tasks.scores import Scores
from pocketbert.training.outcome_notes import simple_methods
from pocketbert_bench.compression.constraints import ROUNDING
from pocketbert_bench.compression.inputs import Inputs
from pocketbert_bench.paired_scores import (
    CLASS_COLUMN,
    LEAST_EXAMPLES,
    PairedScores,
    PartLoss,
    remembering,
    slice_values,
    small_classes,
)
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.quantization.scored_texts import Loss
from pocketbert_export.verification.outcomes import ScoringData

# Most classes in a remark.
_SHOWN = 5


def final_scores(inputs: Inputs, bundle: Bundle, teacher: Predictor) -> tuple[Scores, Loss, list[PartLoss], str]:
    """Scores a bundle on the final split.

    Args:
      inputs: the compression's input, with a final split.
      bundle: the bundle.
      teacher: the teacher's bundle; see `remembering`.
    Returns:
      Its scores, the points lost to the teacher, in total and in each class and slice, and a remark on small classes
      and slices; the remark may be empty.
    """
    final = inputs.splits.final
    assert final is not None
    examples = ScoringData.of_dev(final)
    network = remembering(bundle.predictor(max_length=max(bundle.lengths)))
    scores, _ = examples.score(network)
    of_teacher, _ = examples.score(teacher)
    methods = simple_methods(final, scores.main_metric)
    scores = dataclasses.replace(scores, teacher=of_teacher.score, baselines=tuple(methods))
    paired = PairedScores((teacher, network), examples.scored, scores.main_metric)
    parts, small = paired.parts(slice_values(inputs.slices, examples.scored))
    remark = f"classes and slices with fewer than {LEAST_EXAMPLES} final examples, which have no row: {small}"
    return scores, paired.loss(), parts, remark if small else ""


def class_notes(inputs: Inputs, parts: Sequence[PartLoss]) -> list[str]:
    """Remarks on the class limit: classes beyond it on the final split, and those without enough dev examples.

    Args:
      inputs: the compression's input, with the dev examples that choose.
      parts: losses on the final split.
    """
    most, data = inputs.constraints.max_class_points_lost, inputs.splits.data
    if most is None:
        return []
    losses = [part for part in parts if part.column == CLASS_COLUMN]
    notes = [f"on the final split, {part}" for part in losses if part.points > most + ROUNDING]
    if small := small_classes(data.dev, data.task.labels):
        more = f" and {len(small) - _SHOWN} others" if len(small) > _SHOWN else ""
        notes.append(
            f"the choice did not check the points that {', '.join(small[:_SHOWN])}{more} may lose, since fewer than "
            f"{LEAST_EXAMPLES} dev examples have the label"
        )
    return notes
