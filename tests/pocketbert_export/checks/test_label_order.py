"""The labels of a model and of data are matched by name."""

from __future__ import annotations

import numpy as np
import pytest

from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.data.readers.glue import GLUE
from pocketbert.errors import UserError
from pocketbert_export.checks.label_order import in_order_of, logit_positions

MNLI = GLUE["mnli"].task


def task(*labels: str) -> TaskConfig:
    return TaskConfig(kind="classification", name="other", labels=labels)


# Neither of the first two is its own inverse.
@pytest.mark.parametrize(
    ("labels", "positions"),
    [
        (("contradiction", "entailment", "neutral"), [1, 2, 0]),
        (("neutral", "contradiction", "entailment"), [2, 0, 1]),
        (("entailment", "neutral", "contradiction"), [0, 1, 2]),
        (("LABEL_0", "LABEL_1", "LABEL_2"), [0, 1, 2]),
    ],
)
def test_positions(labels: tuple[str, ...], positions: list[int]) -> None:
    assert logit_positions(task(*labels), MNLI).tolist() == positions
    # Entailment, contradiction, neutral.
    examples = Examples(["a", "b", "c"], None, np.array([0, 2, 1], np.int32), ["1", "2", "3"], "here")
    moved = in_order_of(task(*labels), MNLI, examples).labels
    assert moved is not None and moved.dtype == np.int32
    assert moved.tolist() == [positions[0], positions[2], positions[1]]


def test_scores_have_no_order() -> None:
    stsb = GLUE["stsb"].task
    scores = Examples(["a", "b"], None, np.array([4.5, 0.5], np.float32), ["1", "2"], "here")
    assert in_order_of(TaskConfig(kind="regression"), stsb, scores).labels is scores.labels
    assert logit_positions(TaskConfig(kind="regression"), stsb).tolist() == []


def test_other_labels_are_refused() -> None:
    with pytest.raises(UserError, match="must be the model's, yes, no, maybe; received mnli with entailment, neutral"):
        logit_positions(task("yes", "no", "maybe"), MNLI)
    with pytest.raises(UserError, match="must be the model's, regression; received mnli"):
        logit_positions(TaskConfig(kind="regression"), MNLI)
