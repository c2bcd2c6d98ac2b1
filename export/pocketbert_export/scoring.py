"""A model's or a bundle's scores on labelled examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pocketbert.data.examples import Examples
from pocketbert.data.questions import QuestionFile
from pocketbert.errors import UserError
from pocketbert.tasks import metrics
from pocketbert.tasks.answer_scores import AnswerScorer, squad_scorer
from pocketbert.tasks.answers import MAX_ANSWER_TOKENS
from pocketbert.training.question_answering import QuestionScores
from pocketbert_export.label_order import as_glue_numbers, named
from pocketbert_export.predictors import Predictor, predictions_of
from pocketbert_export.span_predictors import SpanPredictor


def score(
    predictor: Predictor | SpanPredictor, examples: Examples | QuestionFile, names: Sequence[str]
) -> dict[str, float]:
    """The metrics of a task, as parts of 1.

    Args:
      predictor: answers the examples.
      examples: labelled ones.
      names: of `pocketbert.tasks.metrics`; questions have their own.

    Raises:
      UserError: examples without labels, or of another kind than the predictor's.
    """
    if isinstance(predictor, SpanPredictor) and isinstance(examples, QuestionFile):
        return score_questions(predictor, examples)[0]
    if isinstance(predictor, Predictor) and isinstance(examples, Examples):
        return score_texts(predictor, examples, names)
    raise UserError(f"the examples must be the task's; received {examples.source} for {predictor.task.kind}")


def score_texts(
    predictor: Predictor, examples: Examples, names: Sequence[str], data_task: str | None = None
) -> dict[str, float]:
    """The metrics of answers to texts.

    Args:
      predictor: answers them.
      examples: labelled ones, their labels in the order of the predictor's.
      names: of `pocketbert.tasks.metrics`; of one of GLUE's tasks F1 is that of its own class 1.
      data_task: the name of the examples' task where the predictor's has none, or another's.

    Raises:
      UserError: there are no labels.
    """
    if examples.labels is None:
        raise UserError(f"evaluate needs labels; {examples.source} has none; pocketbert predict answers without")
    logits = predictor.logits(examples.texts, examples.pairs, show_progress=True)
    task = named(predictor.task, data_task)
    labels, predictions = (
        as_glue_numbers(task, each) for each in (examples.labels, predictions_of(predictor.task, logits))
    )
    return metrics.compute(names, labels, predictions, examples.groups)


def score_questions(
    predictor: SpanPredictor,
    questions: QuestionFile,
    scorer: AnswerScorer | None = None,
    *,
    max_answer_tokens: int = MAX_ANSWER_TOKENS,
    keep_answers: bool = False,
) -> tuple[dict[str, float], dict[str, Any]]:
    """Exact match and F1 of answers, at the predictor's threshold for questions without one.

    Args:
      predictor: answers them.
      questions: labelled ones.
      scorer: how an answer is scored; None takes SQuAD 2.0's way where a question has no answer, else 1.1's.
      max_answer_tokens: the longest answer.
      keep_answers: whether they are wanted by their questions' ids, which differ (`QuestionFile.check_ids`).

    Returns:
      The scores as `mean_scores` names them; and id → answer, or nothing.

    Raises:
      UserError: a question without an answer.
    """
    if not questions.labelled:
        raise UserError(
            f"evaluate needs answers; of the questions in {questions.source} {questions.num_unlabelled} have none; "
            "pocketbert predict answers without"
        )
    threshold = predictor.task.null_threshold
    scores = QuestionScores(scorer or squad_scorer(questions.num_impossible > 0))
    answers = {}
    found = predictor.answers(questions, max_answer_tokens=max_answer_tokens, progress_total=len(questions))
    for question, answered in found:
        scores.add(question, answered)
        if keep_answers:
            answers[question.id] = answered.text(threshold)
    return scores.scores(threshold), answers
