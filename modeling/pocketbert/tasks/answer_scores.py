"""Answer scores as fractions: exact match and word F1, by the SQuAD and MLQA scripts.

SQuAD's scripts are those in tf-models-official, `official.nlp.tools.squad_evaluate_v1_1` and `…_v2_0` (Rajpurkar et al.
2016, 2018). Both lower-case, drop ASCII punctuation and the articles a, an and the, and take the best among several
right answers. An answer may become empty: its F1 is 0 in 1.1; in 2.0 it means "no answer".

MLQA's script, `mlqa_evaluation_v1.py` (Lewis et al. 2020, https://arxiv.org/abs/1910.07475, section 5), lower-cases,
drops all Unicode and ASCII punctuation and the language's articles, and splits at white space and, in Chinese, around
each ideograph. The paragraph determines the language, since answers are parts of it.
"""

from __future__ import annotations

import functools
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from pocketbert.errors import UserError

# (prediction, right answers) → exact match and F1.
AnswerScorer: TypeAlias = Callable[[str, Sequence[str]], tuple[float, float]]
_ARTICLES = {
    "en": r"\b(a|an|the)\b",
    "es": r"\b(un|una|unos|unas|el|la|los|las)\b",
    "hi": None,
    "vi": r"\b(của|là|cái|chiếc|những)\b",
    "de": r"\b(ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b",
    # The article is a prefix; the script removes its two letters everywhere, even inside words.
    "ar": "ال",
    "zh": None,
}
MLQA_LANGUAGES = tuple(_ARTICLES)
# Largest distance between a threshold and the differences below it. Logits vary far less with the batch's shape.
_MOST_MARGIN = 1.0
# The range in the script, which ends before the Unicode block.
_IDEOGRAPH = re.compile("([\u4e00-\u9fa5])")


def squad_scorer(any_impossible: bool) -> AnswerScorer:
    """Selects SQuAD's script for a file.

    Args:
      any_impossible: whether the file has unanswerable questions, as in SQuAD 2.0.
    """
    return squad_2_score if any_impossible else squad_1_score


def squad_1_score(prediction: str, right_answers: Sequence[str]) -> tuple[float, float]:
    """Exact match and F1 for one answer by SQuAD 1.1's script; needs at least one right answer."""
    from official.nlp.tools import squad_evaluate_v1_1

    scores = squad_evaluate_v1_1.evaluate(_as_data_set(right_answers), {"": prediction})
    return float(scores["exact_match"]), float(scores["final_f1"])


def squad_2_score(prediction: str, right_answers: Sequence[str]) -> tuple[float, float]:
    """Exact match and F1 for one answer by SQuAD 2.0's script; without right answers, "" is right."""
    from official.nlp.tools import squad_evaluate_v2_0

    scores = squad_evaluate_v2_0.evaluate(_as_data_set(right_answers), {"": prediction})
    return scores["exact"] / 100.0, scores["f1"] / 100.0


def mean_scores(
    exact: Sequence[float] | np.ndarray, f1: Sequence[float] | np.ndarray, is_impossible: Sequence[bool] | np.ndarray
) -> dict[str, float]:
    """Returns a file's mean scores, `exact_match` and `f1`.

    A file with unanswerable questions also has both under `no_answer_…`, and under `has_answer_…` if others exist.

    Args:
      exact: [N], exact match per question, N > 0.
      f1: [N].
      is_impossible: [N], whether the question is unanswerable.
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


def best_null_threshold(
    null_differences: Sequence[float] | np.ndarray,
    scores_if_answered: Sequence[float] | np.ndarray,
    scores_if_not: Sequence[float] | np.ndarray,
) -> tuple[float, float]:
    """Finds the null threshold with the best score on dev questions.

    Source: `find_best_thresh` in SQuAD 2.0's evaluation script. Departures:

    - Questions with equal differences are on the same side of the threshold.
    - An answer's gain is its score minus the empty answer's. The script subtracts one for any answer to an unanswerable
      question, and scores no empty answers to the others.
    - The threshold lies between two differences, so that rounding moves no question to the other side.
    - If never answering is best, the threshold lies below all differences. The script returns 0.

    Args:
      null_differences: [N], `Answered.null_difference`; N > 0.
      scores_if_answered: [N], the best answer's exact match or F1.
      scores_if_not: [N], the empty answer's scores.
    Returns:
      The threshold and its mean score. The threshold is the midpoint between the largest difference still answered (the
      smallest, for ties) and the next one, but at most 1 above the former; 1 below all if no question is answered.
    """
    differences = np.asarray(null_differences, np.float64)
    answered, unanswered = np.asarray(scores_if_answered, np.float64), np.asarray(scores_if_not, np.float64)
    order = np.argsort(differences, kind="stable")
    totals = unanswered.sum() + np.concatenate([[0.0], np.cumsum((answered - unanswered)[order])])
    ordered = differences[order]
    # Possible cuts: before all differences, and after the last of equal ones.
    possible = np.flatnonzero(np.concatenate([[True], np.diff(ordered) > 0, [True]]))
    best = possible[np.argmax(totals[possible])]
    below = ordered[best - 1] if best else -np.inf
    above = ordered[best] if best < len(ordered) else np.inf
    if below == -np.inf:
        threshold = above - _MOST_MARGIN
    else:
        # Adjacent floats have no midpoint.
        threshold = min(below + min((above - below) / 2, _MOST_MARGIN), np.nextafter(above, -np.inf))
    return float(threshold), float(totals[best] / len(ordered))


def _as_data_set(right_answers: Sequence[str]) -> list[dict]:
    """A data set with one question, as the scripts read it."""
    return [{"paragraphs": [{"qas": [{"id": "", "answers": [{"text": text} for text in right_answers]}]}]}]


def mlqa_scorer(language: str) -> AnswerScorer:
    """Returns MLQA's scorer. MLQA has no unanswerable questions; for these, "" is right.

    Args:
      language: the paragraph's language, one of `MLQA_LANGUAGES`.
    Raises:
      UserError: MLQA does not have the language.
    """
    normalize = mlqa_normalizer(language)

    def score(prediction: str, right_answers: Sequence[str]) -> tuple[float, float]:
        predicted = normalize(prediction)
        if not right_answers:
            return float(not predicted), float(not predicted)
        right = [normalize(answer) for answer in right_answers]
        return float(predicted in right), max(_f1(predicted.split(), answer.split()) for answer in right)

    return score


def mlqa_normalizer(language: str) -> Callable[[str], str]:
    """Returns the function that normalizes answers before comparison.

    Args:
      language: the answers' language, one of `MLQA_LANGUAGES`.
    Raises:
      UserError: MLQA does not have the language.
    """
    if language not in _ARTICLES:
        raise UserError(
            f"the language of MLQA must be one of {', '.join(MLQA_LANGUAGES)}; received {language!r}; for other "
            "languages use SQuAD's scores"
        )
    pattern = _ARTICLES[language]
    articles = None if pattern is None else re.compile(pattern)

    def normalize(answer: str) -> str:
        text = "".join(character for character in answer.lower() if not _is_punctuation(character))
        if articles is not None:
            text = articles.sub(" ", text)
        if language == "zh":
            text = _IDEOGRAPH.sub(r" \1 ", text)
        return " ".join(text.split())

    return normalize


@functools.cache
def _is_punctuation(character: str) -> bool:
    return character in string.punctuation or unicodedata.category(character).startswith("P")


def _f1(predicted: Sequence[str], right: Sequence[str]) -> float:
    common = sum((Counter(predicted) & Counter(right)).values())
    # 2PR / (P + R), with the script's order of operations.
    if common == 0:
        return 0.0
    precision, recall = common / len(predicted), common / len(right)
    return 2 * precision * recall / (precision + recall)
