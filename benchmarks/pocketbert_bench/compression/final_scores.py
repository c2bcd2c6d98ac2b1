"""Scores of a bundle on the final split, beside the teacher's bundle and simple methods."""

from __future__ import annotations

import dataclasses

from pocketbert.tasks.scores import Scores
from pocketbert.training.outcome_notes import simple_methods
from pocketbert_bench.compression.inputs import Inputs
from pocketbert_bench.paired_scores import LEAST_EXAMPLES, PairedScores, PartLoss, remembering, slice_values
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.quantization.scored_texts import Loss
from pocketbert_export.verification.outcomes import ScoringData


def final_scores(inputs: Inputs, bundle: Bundle, teacher: Bundle) -> tuple[Scores, Loss, list[PartLoss], str]:
    """Scores a bundle on the final split.

    Args:
      inputs: the input of the compression, with a final split.
      bundle: the bundle.
      teacher: the teacher's bundle.

    Returns:
      Its scores, the points lost to the teacher, those of each class and slice, and a remark on small classes and
      slices; the remark may be empty.
    """
    final = inputs.splits.final
    assert final is not None
    examples = ScoringData(data=final.dev, metrics=tuple(final.metrics) or None, main_metric=final.main_metric or None)
    longest = max(bundle.lengths)
    network, reference = (remembering(one.predictor(max_length=longest)) for one in (bundle, teacher))
    scores, _ = examples.score(network)
    of_teacher, _ = examples.score(reference)
    methods = simple_methods(final, scores.main_metric)
    scores = dataclasses.replace(scores, teacher=of_teacher.score, baselines=tuple(methods))
    paired = PairedScores((reference, network), examples.scored, scores.main_metric)
    parts, small = paired.parts(slice_values(inputs.slices, examples.scored))
    remark = f"classes and slices with fewer than {LEAST_EXAMPLES} final examples, which have no row: {small}"
    return scores, paired.loss(), parts, remark if small else ""
