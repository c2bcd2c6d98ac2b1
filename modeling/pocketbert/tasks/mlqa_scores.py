"""Exact match and F1 as MLQA counts them, each language by its own articles and script.

Source: Lewis et al. 2020, https://arxiv.org/abs/1910.07475, section 5, and the evaluation script of MLQA's repository,
`mlqa_evaluation_v1.py`. An answer is lower-cased, loses every character of Unicode's punctuation and of ASCII's, then
its language's articles, and is split at white space, Chinese also around every ideograph. The language is that of the
paragraph, since answers are parts of it.
"""

from __future__ import annotations

import functools
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

from pocketbert.errors import UserError
from pocketbert.tasks.answer_scores import AnswerScorer

_ARTICLES = {
    "en": r"\b(a|an|the)\b",
    "es": r"\b(un|una|unos|unas|el|la|los|las)\b",
    "hi": None,
    "vi": r"\b(của|là|cái|chiếc|những)\b",
    "de": r"\b(ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b",
    # The article is a prefix, and goes wherever its two letters stand, inside a word too.
    "ar": "ال",
    "zh": None,
}
MLQA_LANGUAGES = tuple(_ARTICLES)
# The script's range, which ends before the block does.
_IDEOGRAPH = re.compile("([\u4e00-\u9fa5])")


def mlqa_scorer(language: str) -> AnswerScorer:
    """How MLQA scores a question; of one that has no answer, which MLQA has none of, "" is right.

    Args:
      language: of the paragraph, one of `MLQA_LANGUAGES`.

    Raises:
      UserError: MLQA does not have that language.
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
    """What two answers are compared by: words with one space between them.

    Args:
      language: of the answers, one of `MLQA_LANGUAGES`.

    Raises:
      UserError: MLQA does not have that language.
    """
    if language not in _ARTICLES:
        raise UserError(
            f"MLQA's answers are in one of {', '.join(MLQA_LANGUAGES)}; received {language!r}; for other languages "
            "take SQuAD's scores"
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
    # Equal to 2PR / (P + R), in the script's own order of operations.
    if common == 0:
        return 0.0
    precision, recall = common / len(predicted), common / len(right)
    return 2 * precision * recall / (precision + recall)
