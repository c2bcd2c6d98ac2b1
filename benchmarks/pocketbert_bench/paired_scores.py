"""Scores of two networks on the same examples."""

from __future__ import annotations

import numpy as np

from pocketbert.data.batches import EncodedExamples
from pocketbert.data.examples import LabelledData
from pocketbert.tasks.base import Outputs
from pocketbert.tasks.predictor import Predictor
from pocketbert_export.quantization.scored_texts import Loss, paired


def remembering(predictor: Predictor) -> Predictor:
    """A predictor that computes rows only once if it gets the same ones again."""
    known: list[tuple[EncodedExamples, Outputs]] = []

    def forward(encoded: EncodedExamples, *, show_progress: bool = False) -> Outputs:
        if not known or any(
            not np.array_equal(getattr(known[0][0], name), getattr(encoded, name))
            for name in ("word_ids", "type_ids", "offsets")
        ):
            known[:] = [(encoded, predictor.forward(encoded, show_progress=show_progress))]
        return known[0][1]

    return Predictor(predictor.task, forward, predictor.tokenizer, predictor.max_length, **predictor.windows)


def paired_loss(teacher: Predictor, student: Predictor, data: LabelledData, metric: str) -> Loss:
    """Points of a metric lost against the teacher on the same examples, with the paired interval.

    Each network has a tokenizer of its own: a trimmed vocabulary has other ids.
    """
    both = [
        network.task.rows(data, network.tokenizer, network.max_length, **network.windows)
        for network in (teacher, student)
    ]
    of_teacher, of_student = (
        rows.resampled(network.forward(rows.encoded), metric)
        for network, rows in zip((teacher, student), both, strict=True)
    )
    return paired(of_teacher, of_student, len(both[0]))
