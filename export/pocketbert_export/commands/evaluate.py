"""Score a model directory or a bundle on a task.

Prints one JSON object: the task's metrics as fractions of one; those of a baseline (always the most frequent label,
the mean score, or no answer); for classification the results of each class, the confusion matrix and the class that F1
is about; warnings; how many examples there are, where they come from, and the seconds it took. A bundle runs on
LiteRT, and each text goes to the shortest of its lengths that holds it. Texts longer than the longest are cut, in a
model directory at its positions.

Labels are matched by name. Whole numbers in the label column of --file count in the order of --task or of --labels.

Of XNLI the accuracy is the mean over the languages, and each has its own beside it.

Questions on paragraphs (a .json file as SQuAD's, or --task=squad, squad2, tydiqa or mlqa) are scored by exact match and
F1. Paragraphs are read in windows. A question has no answer where the model's threshold, found when it was fine-tuned,
says so. Of a data set in several languages "parts" has the scores of each, and the metrics are their mean; MLQA's
answers are compared by its own rules, which --answer-language chooses for a file of your own. --predictions writes the
answers by id, as SQuAD's own scripts read them; of several languages such an object for each.

Example:
  pocketbert evaluate --model=runs/quickstart/bundles/student/dynamic_wi8 --task=sst2 --data=glue
  pocketbert evaluate --model=bundles/xnli --task=xnli --data=xnli --split=test --languages=en,sw
  pocketbert evaluate --model=models/reviews --file=dev.csv --text-column=review --label-column=stars
  pocketbert evaluate --model=models/moods --file=dev.csv --labels=negative,positive
  pocketbert evaluate --model=runs/questions/model --file=held-out.json --predictions=answers.json
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pocketbert.commands.command_line import Options
from pocketbert.commands.task_options import TableOptions
from pocketbert.errors import UserError
from pocketbert_export.commands import example_options, question_options
from pocketbert_export.commands.example_options import ExampleOptions
from pocketbert_export.commands.question_options import AnswerOptions, check_no_questions

if TYPE_CHECKING:
    from pocketbert.tasks.predictor import Predictor


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """What is scored.

    Attributes:
      model: a model directory or a bundle.
    """

    GROUP: ClassVar = "Model"

    model: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictionsOptions:
    """What is kept of answers to questions.

    Attributes:
      answer_language: questions: compare answers as MLQA does in this language: en, es, hi, vi, de, ar or zh.
      predictions: questions: a .json file to write answers to.
      overwrite: replace --predictions.
    """

    GROUP: ClassVar = "Questions"

    answer_language: str | None = None
    predictions: str | None = None
    overwrite: bool = False


OPTIONS = (EvaluateOptions, *example_options.OPTIONS, *question_options.OPTIONS, PredictionsOptions)


def run(options: Options) -> None:
    """Prints the metrics."""
    named, model = options[ExampleOptions], options[EvaluateOptions].model
    if not (named.data or named.file):
        raise UserError("evaluate needs --data, a task's folder, or --file, a file of your own; received neither")
    from pocketbert.progress import log_info
    from pocketbert_export.predictors import open_predictor

    predictor = open_predictor(model, **question_options.windows(options))
    start = time.perf_counter()
    if predictor.task.needs_pairs:
        result = _score_questions(options, predictor)
    else:
        result = _score_texts(options, predictor)
    seconds = time.perf_counter() - start
    for warning in result["warnings"]:
        log_info(f"pocketbert evaluate: warning: {warning}")
    print(json.dumps({**result, "model": model, "seconds": round(seconds, 3)}))


def _score_texts(options: Options, predictor: Predictor) -> dict[str, Any]:
    from pocketbert.progress import log_info
    from pocketbert.tasks.registry import supervised_task
    from pocketbert_export.label_order import named
    from pocketbert_export.scoring import labelled_evaluator

    task = predictor.task.config
    check_no_questions(options, task, "answer_language", "predictions")
    own, table = options[ExampleOptions], options[TableOptions]
    examples = example_options.read_texts(own, table, task)
    assert examples is not None
    of_task = own.data or own.task
    data_task = supervised_task(named(task, own.task))
    names, main = (data_task.metrics, data_task.main_metric) if of_task else data_task.default_metrics
    scores = labelled_evaluator(predictor, examples, own.task, metrics=names).scores(main)
    log_info(scores.sentence)
    skipped = {"skipped_rows": examples.skipped_rows} if table.skip_bad_rows else {}
    return {**scores.to_json(), "examples": len(examples), **skipped, "source": examples.source}


def _score_questions(options: Options, predictor: Predictor) -> dict[str, Any]:
    from pocketbert.data.question_tasks import QUESTION_TASKS
    from pocketbert.files import check_absent, write_json
    from pocketbert.progress import log_info
    from pocketbert.tasks.mlqa_scores import mlqa_scorer
    from pocketbert.tasks.question_answering import QuestionEvaluator
    from pocketbert_export.scoring import labelled_evaluator

    named, kept = options[ExampleOptions], options[PredictionsOptions]
    if kept.predictions:
        check_absent(kept.predictions, overwrite=kept.overwrite)
    files = example_options.question_files(named, options[TableOptions], predictor.task.config)
    task = QUESTION_TASKS.get(named.task or predictor.task.config.name)
    by_language = bool(named.data and task and task.languages)
    if by_language and kept.answer_language:
        raise UserError(
            "--answer-language is for a file of your own; received it with --data, whose files say their language; "
            "leave it out"
        )
    if kept.predictions:
        for questions in files.values():
            questions.check_ids()
    parts: dict[str, dict[str, Any]] = {}
    predictions: dict[str, dict[str, str]] = {}
    for part, questions in files.items():
        language = part.split("-")[0] if by_language else kept.answer_language
        evaluator = labelled_evaluator(
            predictor,
            questions,
            scorer=mlqa_scorer(language) if language else None,
            max_answer_tokens=options[AnswerOptions].max_answer_tokens,
            keep_answers=bool(kept.predictions),
        )
        assert isinstance(evaluator, QuestionEvaluator)
        scores = evaluator.scores()
        predictions[part] = evaluator.answers
        log_info(f"{part}: {scores.sentence}" if len(files) > 1 else scores.sentence)
        parts[part] = {**scores.to_json(), "examples": len(questions)}
    if kept.predictions:
        # The ids of one part may be those of another, as MLQA's are, where they name the same question.
        write_json(
            kept.predictions,
            predictions if len(parts) > 1 else next(iter(predictions.values())),
            overwrite=kept.overwrite,
        )
    baselines = [part["baseline"] for part in parts.values()]
    result = {
        "metrics": _means([part["metrics"] for part in parts.values()]),
        "baseline": {**baselines[0], "metrics": _means([each["metrics"] for each in baselines])}
        if all(baselines)
        else None,
        "warnings": [
            f"{part}: {warning}" if len(parts) > 1 else warning
            for part, found in parts.items()
            for warning in found.pop("warnings")
        ],
        "examples": sum(part["examples"] for part in parts.values()),
        "skipped_rows": sum(questions.skipped_rows for questions in files.values()),
        "source": named.data or named.file,
        "null_threshold": predictor.task.config.null_threshold,
    }
    return result if len(parts) == 1 else {**result, "parts": parts}


def _means(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The means of what all parts have."""
    shared = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: sum(part[name] for part in parts) / len(parts) for name in shared}
