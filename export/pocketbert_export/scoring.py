"""A model's or a bundle's scores on labelled examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pocketbert.data.examples import Examples
from pocketbert.data.questions import QuestionFile
from pocketbert.errors import UserError
from pocketbert.tasks.answer_scores import AnswerScorer, squad_scorer
from pocketbert.tasks.answers import MAX_ANSWER_TOKENS
from pocketbert.tasks.metrics import predictions_of
from pocketbert.training.question_answering import QuestionScores, unanswered_baseline
from pocketbert.training.scores import Scores, score_answers
from pocketbert_export.label_order import named
from pocketbert_export.predictors import Predictor
from pocketbert_export.span_predictors import SpanPredictor


def score(
    predictor: Predictor | SpanPredictor, examples: Examples | QuestionFile, names: Sequence[str], main_metric: str
) -> Scores:
    """The scores of a task.

    Args:
      predictor: answers the examples.
      examples: labelled ones.
      names: of `pocketbert.tasks.metrics`; questions have their own.
      main_metric: the one of them that counts most.

    Raises:
      UserError: examples without labels, or of another kind than the predictor's.
    """
    if isinstance(predictor, SpanPredictor) and isinstance(examples, QuestionFile):
        return score_questions(predictor, examples)[0]
    if isinstance(predictor, Predictor) and isinstance(examples, Examples):
        return score_texts(predictor, examples, names, main_metric)
    raise UserError(f"the examples must be the task's; received {examples.source} for {predictor.task.kind}")


def score_texts(
    predictor: Predictor,
    examples: Examples,
    names: Sequence[str],
    main_metric: str | None = None,
    data_task: str | None = None,
) -> Scores:
    """The scores of answers to texts.

    Args:
      predictor: answers them.
      examples: labelled ones, their labels in the order of the predictor's.
      names: of `pocketbert.tasks.metrics`.
      main_metric: the one of them that counts most; None takes the first.
      data_task: the name of the examples' task where the predictor's has none, or another's.

    Raises:
      UserError: there are no labels.
    """
    if examples.labels is None:
        raise UserError(f"evaluate needs labels; {examples.source} has none; pocketbert predict answers without")
    logits = predictor.logits(examples.texts, examples.pairs, show_progress=True)
    return score_answers(
        named(predictor.task, data_task),
        names,
        main_metric or names[0],
        examples.labels,
        predictions_of(predictor.task, logits),
        examples.groups,
    )


def score_questions(
    predictor: SpanPredictor,
    questions: QuestionFile,
    scorer: AnswerScorer | None = None,
    *,
    max_answer_tokens: int = MAX_ANSWER_TOKENS,
    keep_answers: bool = False,
) -> tuple[Scores, dict[str, Any]]:
    """Exact match and F1 of answers, at the predictor's threshold for questions without one.

    Args:
      predictor: answers them.
      questions: labelled ones.
      scorer: how an answer is scored; None takes SQuAD 2.0's way where a question has no answer, else 1.1's.
      max_answer_tokens: the longest answer.
      keep_answers: whether they are wanted by their questions' ids, which differ (`QuestionFile.check_ids`).

    Returns:
      The scores, with metrics as `mean_scores` names them; and id → answer, or nothing.

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
    found_scores = Scores(main_metric="f1", metrics=scores.scores(threshold), baseline=unanswered_baseline(questions))
    return found_scores, answers
