"""How good answers are: exact match and F1 of words, as SQuAD's own scripts count them, in fractions of one.

One question is scored at a time, and means are taken over questions, so that a file of any size needs two numbers a
question. The scripts are those that tf-models-official keeps, `official.nlp.tools.squad_evaluate_v1_1` and `…_v2_0`
(Rajpurkar et al. 2016, 2018). Both lower-case, drop ASCII punctuation and the articles a, an, the, and take the best of
several right answers. They differ where nothing is left of an answer: to 1.1 its F1 is 0, to 2.0 it says that there is
no answer. MLQA's own counting is in `mlqa_scores`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

# (prediction, right answers) → exact match and F1.
AnswerScorer: TypeAlias = Callable[[str, Sequence[str]], tuple[float, float]]


def squad_scorer(any_impossible: bool) -> AnswerScorer:
    """How SQuAD scores a question of a file.

    Args:
      any_impossible: the file has questions without an answer, which is SQuAD 2.0's case.
    """
    return squad_2_score if any_impossible else squad_1_score


def squad_1_score(prediction: str, right_answers: Sequence[str]) -> tuple[float, float]:
    """Exact match and F1 of one answer, by SQuAD 1.1's script; there is at least one right answer."""
    from official.nlp.tools import squad_evaluate_v1_1

    scores = squad_evaluate_v1_1.evaluate(_as_data_set(right_answers), {"": prediction})
    return float(scores["exact_match"]), float(scores["final_f1"])


def squad_2_score(prediction: str, right_answers: Sequence[str]) -> tuple[float, float]:
    """Exact match and F1 of one answer, by SQuAD 2.0's script; without a right answer, "" is right."""
    from official.nlp.tools import squad_evaluate_v2_0

    scores = squad_evaluate_v2_0.evaluate(_as_data_set(right_answers), {"": prediction})
    return scores["exact"] / 100.0, scores["f1"] / 100.0


def mean_scores(
    exact: Sequence[float] | np.ndarray, f1: Sequence[float] | np.ndarray, is_impossible: Sequence[bool] | np.ndarray
) -> dict[str, float]:
    """The scores of a file.

    Args:
      exact: [N] exact match of each question, N > 0.
      f1: [N].
      is_impossible: [N], the question has no answer.

    Returns:
      `exact_match` and `f1`; where some questions have no answer also both of the two kinds of questions, where there
      are such, under `has_answer_…` and `no_answer_…`.
    """
    impossible = np.asarray(is_impossible, bool)
    kinds = {"": np.ones(len(impossible), bool)}
    if impossible.any():
        kinds |= {"has_answer_": ~impossible, "no_answer_": impossible}
    return {
        f"{kind}{name}": float(np.mean(np.asarray(values, np.float64)[members]))
        for kind, members in kinds.items()
        for name, values in (("exact_match", exact), ("f1", f1))
        if members.any()
    }


def _as_data_set(right_answers: Sequence[str]) -> list[dict]:
    """What the scripts read: a data set of one question."""
    return [{"paragraphs": [{"qas": [{"id": "", "answers": [{"text": text} for text in right_answers]}]}]}]
