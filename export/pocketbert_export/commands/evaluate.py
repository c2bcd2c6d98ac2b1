"""Score a model directory or a bundle on a task.

Prints one JSON object: metrics as fractions; a baseline (most frequent label, mean score, or no answer); for
classification also scores per class, confusion matrix and the class for F1; warnings; number and source of the
examples, and seconds. A bundle runs on LiteRT at the shortest sufficient length. Longer texts are truncated.

Labels are matched by name, without case. Whole numbers in the label column of --file follow the order in --task or
--labels. If a model has the placeholder labels LABEL_0, LABEL_1, …, --labels names them in the order of its logits.

A .conll file, or a .jsonl file with spans, is scored by seqeval: F1, precision and recall for spans, and tag accuracy,
in windows of --max-length tokens.

XNLI's accuracy is the mean over languages; each language is reported too.

Questions (a .json file in SQuAD's format, or --task=squad, squad2, tydiqa or mlqa) are scored by exact match and F1.
Paragraphs are read in windows. The model's threshold decides whether a question has no answer. For several languages,
"parts" has each one's scores and the metrics are their mean. MLQA's rules compare its answers; choose them for your own
file with --answer-language. --predictions writes the answers by id, as SQuAD's scripts read them.

Example:
  pocketbert evaluate --model=runs/quickstart/bundle --task=sst2 --data=glue
  pocketbert evaluate --model=bundles/xnli --task=xnli --data=xnli --split=test --languages=en,sw
  pocketbert evaluate --model=models/reviews --file=dev.csv --text-column=review --label-column=stars
  pocketbert evaluate --model=models/moods --file=dev.csv --labels=negative,positive
  pocketbert evaluate --model=runs/questions/model --file=dev.json --predictions=answers.json
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
from pocketbert.options import FilePath, ModelOrBundlePath
from pocketbert_export.commands import example_options, question_options, stored_columns
from pocketbert_export.commands.example_options import ExampleOptions
from pocketbert_export.commands.question_options import AnswerOptions, check_no_questions

if TYPE_CHECKING:
    from pocketbert.tasks.predictor import Predictor


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Model to score.

    Attributes:
      model: a model directory or a bundle.
    """

    GROUP: ClassVar = "Model"

    model: ModelOrBundlePath


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictionsOptions:
    """Output of answers to questions.

    Attributes:
      answer_language: questions: compare answers by MLQA's rules for this language: en, es, hi, vi, de, ar or zh.
      predictions: questions: a .json file for the predicted answers.
      overwrite: replace --predictions.
    """

    GROUP: ClassVar = "Questions"

    answer_language: str | None = None
    predictions: FilePath | None = None
    overwrite: bool = False


OPTIONS = (EvaluateOptions, *example_options.OPTIONS, *question_options.OPTIONS, PredictionsOptions)


def check(options: Options) -> None:
    """Raises a `UserError` without data."""
    if not (options[ExampleOptions].data or options[ExampleOptions].file):
        raise UserError("evaluate needs --data, a task's folder, or --file, a file of your own; received neither")


def run(options: Options) -> None:
    """Prints the metrics."""
    named, model = options[ExampleOptions], options[EvaluateOptions].model
    from pocketbert.progress import log_info

    if named.file and not any(map(options.given, (*question_options.NAMES, "answer_language", "predictions"))):
        task = stored_columns.stored_task(model)
        example_options.check_source(named, task)
        stored_columns.use(options, model, named.file)
        stored_columns.check(options, task, named.file)

    from pocketbert_export.bundles.predictors import open_predictor

    predictor = open_predictor(model, **question_options.windows(options))
    start = time.perf_counter()
    score = _score_questions if predictor.task.needs_pairs else _score_texts
    result = score(options, predictor)
    seconds = time.perf_counter() - start
    for warning in result["warnings"]:
        log_info(f"pocketbert evaluate: warning: {warning}")
    print(json.dumps({**result, "model": model, "seconds": round(seconds, 3)}))


def _score_texts(options: Options, predictor: Predictor) -> dict[str, Any]:
    from pocketbert.progress import log_info
    from pocketbert.tasks.data_checks import reading_warnings
    from pocketbert.tasks.registry import supervised_task
    from pocketbert_export.bundles.predictors import limit_remedy
    from pocketbert_export.checks.label_order import named, with_label_names
    from pocketbert_export.glue.scoring import labelled_evaluator

    source, table = options[ExampleOptions], options[TableOptions]
    task = with_label_names(predictor.task.config, source.labels)
    check_no_questions(options, task, "answer_language", "predictions")
    examples = example_options.read_texts(source, table, task)
    assert examples is not None
    of_task = source.data or source.task
    data_task = supervised_task(named(task, source.task))
    names, main = (data_task.metrics, data_task.main_metric) if of_task else data_task.default_metrics
    evaluator = labelled_evaluator(predictor, examples, named(task, source.task), metrics=names)
    warnings = reading_warnings(predictor, examples, limit_remedy(options[EvaluateOptions].model))
    scores = evaluator.scores(main)
    log_info(scores.sentence)
    skipped = {"skipped_rows": examples.skipped_rows} if table.skip_bad_rows else {}
    described = scores.to_json()
    described["warnings"] = [*warnings, *described["warnings"]]
    return {**described, "examples": len(examples), **skipped, "source": examples.source}


def _score_questions(options: Options, predictor: Predictor) -> dict[str, Any]:
    from pocketbert.data.readers.question_tasks import QUESTION_TASKS
    from pocketbert.files import check_absent, write_json
    from pocketbert.progress import log_info
    from pocketbert.tasks.answer_scores import mlqa_scorer
    from pocketbert.tasks.question_answering import QuestionEvaluator
    from pocketbert_export.glue.scoring import labelled_evaluator

    named, answer_file = options[ExampleOptions], options[PredictionsOptions]
    if answer_file.predictions:
        check_absent(answer_file.predictions, overwrite=answer_file.overwrite)
    files = example_options.question_files(named, options[TableOptions], predictor.task.config)
    task = QUESTION_TASKS.get(named.task or predictor.task.config.name)
    by_language = bool(named.data and task and task.languages)
    if by_language and answer_file.answer_language:
        raise UserError(
            "--answer-language is for a file of your own; received it with --data, whose files have a language; "
            "leave it out"
        )
    if answer_file.predictions:
        for questions in files.values():
            questions.check_ids()
    parts: dict[str, dict[str, Any]] = {}
    predictions: dict[str, dict[str, str]] = {}
    for part, questions in files.items():
        language = part.split("-")[0] if by_language else answer_file.answer_language
        evaluator = labelled_evaluator(
            predictor,
            questions,
            scorer=mlqa_scorer(language) if language else None,
            max_answer_tokens=options[AnswerOptions].max_answer_tokens,
            keep_answers=bool(answer_file.predictions),
        )
        assert isinstance(evaluator, QuestionEvaluator)
        scores = evaluator.scores()
        predictions[part] = evaluator.answers
        log_info(f"{part}: {scores.sentence}" if len(files) > 1 else scores.sentence)
        parts[part] = {**scores.to_json(), "examples": len(questions)}
    if answer_file.predictions:
        # Parts may share ids, as in MLQA, whose languages use the same ids for the same questions.
        answers = predictions if len(parts) > 1 else next(iter(predictions.values()))
        write_json(answer_file.predictions, answers, overwrite=answer_file.overwrite)
    baselines = [part["baseline"] for part in parts.values()]
    result = {
        "metrics": _means([part["metrics"] for part in parts.values()]),
        "baseline": {**baselines[0], "metrics": _means([baseline["metrics"] for baseline in baselines])}
        if all(baselines)
        else None,
        "warnings": [
            f"{part}: {warning}" if len(parts) > 1 else warning
            for part, part_scores in parts.items()
            for warning in part_scores.pop("warnings")
        ],
        "examples": sum(part["examples"] for part in parts.values()),
        "skipped_rows": sum(questions.skipped_rows for questions in files.values()),
        "source": named.data or named.file,
        "null_threshold": predictor.task.config.null_threshold,
    }
    return result if len(parts) == 1 else {**result, "parts": parts}


def _means(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Averages the metrics that all parts have."""
    shared = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: sum(part[name] for part in parts) / len(parts) for name in shared}
