"""Answer lines of text with a model directory or a bundle.

Reads a file, or standard input: one text a line, or one JSON object a line with "text" and, for pairs, "pair".
Writes one JSON object a line, in the order of the input and as soon as a chunk is answered: the text (and pair),
and for classification "label" and "probabilities" by label, for multi_label "labels" (those with a probability of at
least 0.5) and "probabilities", for regression "score". A bundle runs on LiteRT and
each text goes to the shortest of its lengths that holds it.

A file is JSON if its first line that is not blank begins with an opening brace; --format says it outright.

A model that answers questions reads one JSON object a line with "question" and "context", of any length, or a .json
file as SQuAD's. It adds "answer", a part of the context, with "start" and "end", the offsets of its first code point
and behind its last, its "score" and its "probability" among the best; an answer of "" says that there is none. With
--n-best the best so many follow as "answers".

Example:
  echo "a gripping film" | pocketbert predict --model=runs/quickstart/bundles/student/dynamic_wi8
  pocketbert predict --model=models/mrpc --input=pairs.jsonl > answers.jsonl
  pocketbert predict --model=bundles/questions --input=questions.jsonl --n-best=3
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

from absl import flags

from pocketbert.errors import UserError
from pocketbert.json_reading import parse_json
from pocketbert_export.commands import window_flags

if TYPE_CHECKING:
    from pocketbert.tasks.answers import Answer, Answered
    from pocketbert_export.predictors import Predictor
    from pocketbert_export.span_predictors import SpanPredictor

# A person who types at a terminal waits for each answer; a file is answered in chunks.
LINES_A_CHUNK = 256
# Members of a question's row: those that it must have, and those that it may have.
QUESTIONS = (("question", "context"), ("id",))


def define(flag_values: flags.FlagValues) -> None:
    """Defines the command's flags."""
    flags.DEFINE_string("model", None, "a model directory or a bundle", flag_values=flag_values)
    flags.DEFINE_string("input", None, "file to read (default: standard input)", flag_values=flag_values)
    flags.DEFINE_enum("format", "auto", ["auto", "lines", "jsonl"], "what a line is", flag_values=flag_values)
    flags.DEFINE_integer(
        "n-best", 0, "questions: so many of the best answers, too", lower_bound=0, flag_values=flag_values
    )
    window_flags.define(flag_values)


def run(flag_values: flags.FlagValues) -> None:
    """Streams answers to standard output."""
    if not flag_values.model:
        raise UserError("predict needs --model, a model directory or a bundle; received none")
    with _open(flag_values.input) as stream:
        from pocketbert_export.predictors import open_any_predictor
        from pocketbert_export.span_predictors import SpanPredictor

        predictor = open_any_predictor(flag_values.model, **window_flags.windows(flag_values))
        answered = (
            _answer_questions(predictor, stream, flag_values)
            if isinstance(predictor, SpanPredictor)
            else _answer_texts(predictor, stream, flag_values)
        )
        if isinstance(sys.stdout, io.TextIOWrapper):
            # Whatever the locale says. Half a surrogate pair, which UTF-8 has no bytes for, stays \uXXXX, as in JSON.
            sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
        for lines in answered:
            print("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), end="", flush=True)


def _answer_texts(
    predictor: Predictor, stream: IO[str], flag_values: flags.FlagValues
) -> Iterator[list[dict[str, Any]]]:
    from pocketbert_export.predictors import probabilities_of, sigmoid_of

    task = predictor.task
    window_flags.check_no_questions(flag_values, task, "predict", "n-best")
    rows = read_rows(stream, flag_values.format, flag_values.input or "standard input")
    for chunk in _text_chunks(rows, 1 if stream.isatty() else LINES_A_CHUNK):
        pairs = [row["pair"] for row in chunk] if "pair" in chunk[0] else None
        logits = predictor.logits([row["text"] for row in chunk], pairs)
        if task.kind == "regression":
            answers: list[dict[str, Any]] = [{"score": float(score)} for score in logits]
        elif task.kind == "multi_label":
            answers = [
                {
                    "labels": [label for label, logit in zip(task.labels, values, strict=True) if logit >= 0],
                    "probabilities": {
                        label: round(float(value), 6)
                        for label, value in zip(task.labels, sigmoid_of(values), strict=True)
                    },
                }
                for values in logits
            ]
        else:
            answers = [
                {
                    "label": task.labels[int(values.argmax())],
                    "probabilities": {
                        label: round(float(value), 6) for label, value in zip(task.labels, values, strict=True)
                    },
                }
                for values in probabilities_of(logits)
            ]
        yield [{**row, **answer} for row, answer in zip(chunk, answers, strict=True)]


def _answer_questions(
    predictor: SpanPredictor, stream: IO[str], flag_values: flags.FlagValues
) -> Iterator[list[dict[str, Any]]]:
    from pocketbert.data.question_tasks import is_question_file
    from pocketbert.data.questions import Question, QuestionFile
    from pocketbert.tasks.answers import N_BEST

    if flag_values.format == "lines":
        raise UserError("a model that answers questions reads JSON objects; received --format=lines; leave it out")
    source, n_best = flag_values.input or "standard input", flag_values["n-best"].value
    asked: Iterator[tuple[dict[str, str], Question]]
    if is_question_file(source):
        asked = (({"id": question.id, "question": question.question}, question) for question in QuestionFile(source))
    else:
        rows = read_rows(stream, "jsonl", source, *QUESTIONS)
        asked = (
            (row, Question(row.get("id", ""), row["question"], row["context"], answers=(), starts=(), impossible=False))
            for row in rows
        )
    for chunk in _chunks(asked, 1 if stream.isatty() else LINES_A_CHUNK):
        found = predictor.answers(
            [question for _, question in chunk],
            n_best=max(n_best, N_BEST),
            max_answer_tokens=flag_values["max-answer-tokens"].value,
        )
        yield [
            {**row, **_described(answered, predictor.task.null_threshold, n_best)}
            for (row, _), (_, answered) in zip(chunk, found, strict=True)
        ]


def _described(answered: Answered, null_threshold: float | None, n_best: int) -> dict[str, Any]:
    if answered.text(null_threshold) and answered.best is not None:
        described = _described_answer(answered.best)
    else:
        described = {"answer": "", "start": None, "end": None, "score": round(answered.null_score, 6)}
        described["probability"] = round(1 - sum(answer.probability for answer in answered.answers), 6)
    if n_best:
        described["answers"] = [_described_answer(answer) for answer in answered.answers[:n_best]]
    return described


def _described_answer(answer: Answer) -> dict[str, Any]:
    return {
        "answer": answer.text,
        "start": answer.start,
        "end": answer.end,
        "score": round(answer.score, 6),
        "probability": round(answer.probability, 6),
    }


def read_rows(
    stream: IO[str], form: str, source: str, required: Sequence[str] = ("text",), optional: Sequence[str] = ("pair",)
) -> Iterator[dict[str, str]]:
    """Reads texts, one a line; blank lines are passed over.

    Args:
      stream: the lines.
      form: `lines`, `jsonl`, or `auto`: by the first line that is not blank.
      source: the stream's name, for messages.
      required: the members of an object.
      optional: others that it may have; all further ones are left out.

    Yields:
      Those members; of a plain line the first of `required`.

    Raises:
      UserError: a line that is not such an object, with its number.
    """
    for number, line in enumerate(_decoded(stream, source), start=1):
        if not line.strip():
            continue
        if form == "auto":
            form = "jsonl" if line.lstrip().startswith("{") else "lines"
        if form == "lines":
            yield {required[0]: line.rstrip("\r\n")}
        else:
            yield _parse(line, f"{source}: line {number}", required, optional)


def _decoded(stream: IO[str], source: str) -> Iterator[str]:
    try:
        yield from stream
    except UnicodeDecodeError as error:
        raise UserError(
            f"{source} must be UTF-8 text; received {error.reason}: {error.object[error.start :][:1]!r}"
        ) from error


def _parse(line: str, where: str, required: Sequence[str], optional: Sequence[str]) -> dict[str, str]:
    row = parse_json(line, where)
    if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in required):
        wanted = " and ".join(f'a string "{name}"' for name in required)
        raise UserError(f"{where} must be a JSON object with {wanted}; received {line.strip()[:80]}")
    for name in optional:
        if not isinstance(row.get(name, ""), str):
            raise UserError(f'{where}: "{name}" must be a string; received {row[name]!r}')
    return {name: row[name] for name in (*required, *optional) if name in row}


def _text_chunks(rows: Iterator[dict[str, str]], size: int) -> Iterator[list[dict[str, str]]]:
    """Texts in chunks; only pairs go together with pairs."""
    for has_pair, alike in itertools.groupby(rows, lambda row: "pair" in row):
        del has_pair
        yield from _chunks(alike, size)


def _chunks(rows: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while chunk := list(itertools.islice(rows, size)):
        yield chunk


@contextlib.contextmanager
def _open(path: str | None) -> Iterator[IO[str]]:
    if path is None:
        if isinstance(sys.stdin, io.TextIOWrapper):
            # Whatever the locale says.
            sys.stdin.reconfigure(encoding="utf-8")
        yield sys.stdin
        return
    try:
        stream = open(path, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--input must be a file that can be read; received {path}: {error.strerror}") from error
    with stream:
        yield stream
