from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pocketbert.data.readers.questions import QuestionFile
from pocketbert.errors import UserError
from pocketbert.tasks.answer_scores import MLQA_LANGUAGES, mlqa_normalizer, mlqa_scorer
from pocketbert_runtime.windows import Question


@pytest.mark.parametrize(
    ("language", "answer", "expected"),
    [
        ("en", "The “Big”  Apple—a city", "big applea city"),
        ("en", "una, anthem the", "una anthem"),
        ("es", "¿La  Mancha? unos, el El", "mancha"),
        ("es", "Elena ella", "elena ella"),
        ("de", "„Der“ Dom zu Köln, eines", "dom zu köln"),
        ("de", "Derby einige", "derby einige"),
        ("vi", "Những con mèo của cái nhà", "con mèo nhà"),
        ("vi", "làm  Mèo", "làm mèo"),
        # No articles; the danda is punctuation, vowel signs are none.
        ("hi", "भारत की राजधानी।", "भारत की राजधानी"),
        # The prefix goes, and the same two letters inside a word; the question mark is Arabic.
        ("ar", "الكتاب، والقلم؟", "كتاب و قلم"),
        ("zh", "北京（Beijing City）2008年", "北 京 beijing city2008 年"),
        # Kana stay together; U+9FA6 is behind the range, an ideograph though it is.
        ("zh", "東京タワー龦龦", "東 京 タワー龦龦"),
        # ASCII's symbols are punctuation here, other symbols are not.
        ("en", "$5 + £6 = <11>", "5 £6 11"),
    ],
)
def test_normal_forms_by_hand(language: str, answer: str, expected: str) -> None:
    assert mlqa_normalizer(language)(answer) == expected


@pytest.mark.parametrize(
    ("language", "prediction", "right", "exact", "f1"),
    [
        ("de", "den Dom", ["Dom"], 1.0, 1.0),
        ("en", "den Dom", ["Dom"], 0.0, 2 / 3),
        # Chinese counts characters: two of three are right, and both found.
        ("zh", "北京市", ["北京"], 0.0, 0.8),
        ("en", "北京市", ["北京"], 0.0, 0.0),
        ("es", "la casa roja", ["perro", "casa"], 0.0, 2 / 3),
        ("en", "", ["red"], 0.0, 0.0),
        # As in SQuAD 1.1.
        ("en", "the", ["a"], 1.0, 0.0),
        # As in SQuAD 2.0, where MLQA has no such questions.
        ("de", "der", [], 1.0, 1.0),
        ("de", "Dom", [], 0.0, 0.0),
    ],
)
def test_scores_counted_by_hand(language: str, prediction: str, right: list[str], exact: float, f1: float) -> None:
    assert mlqa_scorer(language)(prediction, right) == pytest.approx((exact, f1), rel=1e-14)


def test_other_languages_are_refused() -> None:
    assert MLQA_LANGUAGES == ("en", "es", "hi", "vi", "de", "ar", "zh")
    with pytest.raises(UserError, match="one of en, es, .*received 'fi'; for other languages use SQuAD's scores"):
        mlqa_scorer("fi")


def _prediction(question: Question, number: int) -> str:
    (answer,), (start,) = question.answers, question.starts
    wider = question.context[max(start - 9, 0) : start + len(answer) + 7]
    return [answer, wider, answer[: len(answer) // 2 + 1], question.context[:30]][number % 4]


@pytest.mark.data
@pytest.mark.parametrize(
    ("pair", "exact", "f1"),
    [
        ("ar-question-ar", 0.2572533849129594, 0.5120442969952297),
        ("de-question-de", 0.259765625, 0.5185662558103317),
        ("en-question-en", 0.25522648083623695, 0.49720481523326915),
        ("es-question-en", 0.254, 0.5120245657303029),
        ("hi-question-hi", 0.2583826429980276, 0.4906748260914398),
        ("vi-question-vi", 0.2583170254403131, 0.533268915119092),
        ("zh-question-zh", 0.2916666666666667, 0.5601023513720012),
    ],
)
def test_files_have_the_scores_of_mlqas_script(shared: Path, pair: str, exact: float, f1: float) -> None:
    """The figures: facebookresearch/MLQA, mlqa_evaluation_v1.py, commit 5ef5c73, for the same predictions."""
    score = mlqa_scorer(pair[:2])
    questions = QuestionFile(shared / f"data/mlqa/dev-context-{pair}.json")
    scores = [score(_prediction(question, number), question.answers) for number, question in enumerate(questions)]
    # Sums of some hundred doubles in another order.
    np.testing.assert_allclose(np.mean(scores, axis=0), (exact, f1), rtol=1e-13)
