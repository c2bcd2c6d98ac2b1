"""Predict labels, scores or answers for texts, with a model directory or a bundle.

Reads a .csv or .tsv file with a header (--text-column and, for pairs, --pair-column), the sentences in a .conll file,
or lines from another file or standard input: one text per line, or one JSON object per line with "text" and, for pairs,
"pair". For JSON the column flags choose other names. Writes one JSON object per line, in input order: the text (and
pair), and for classification "label" and "probabilities", for multi_label "labels" (probability at least 0.5) and
"probabilities", for regression "score", for token_classification "spans" with "text", "label", "start" and "end" in
code points, and "probability". A model with several heads gives each answer under the head's name. If a run chose
thresholds, they replace 0.5, and "label" is null for a rejected text. A bundle runs on LiteRT at the shortest
sufficient length.

The format is detected from the file's extension and the first non-blank line; --format overrides it.

With --output-format=csv or a .csv --output, each prediction is a row with one column per probability. --top-k=3 prints
the three best labels with their probabilities.

A question-answering model reads one JSON object per line with "question" and "context", or a .json file in SQuAD's
format. It adds "answer" (a substring of the context), "start" and "end" in code points, "score" and "probability". An
empty answer means that there is none. --n-best adds the best "answers".

Longer texts are cut as in training. With --windows, classes, several labels and scores for single texts are the mean
over overlapping windows of --max-length tokens instead, --stride tokens apart.

With --soft-labels, "probabilities" have all digits instead of six decimals, and token_classification has them for each
word, with offsets in "words". distill --soft-label-columns=probabilities and compress learn from such a file.

Example:
  echo "a gripping film" | pocketbert predict --model=runs/quickstart/bundle
  pocketbert predict --model=models/mrpc --input=pairs.jsonl > answers.jsonl
  pocketbert predict --model=bundles/moods --input=reviews.csv --text-column=review --output=moods.csv
  pocketbert predict --model=bundles/questions --input=questions.jsonl --n-best=3
  pocketbert predict --model=runs/reviews/model --input=reviews.csv --windows --max-length=128
  pocketbert predict --model=runs/reviews/model --input=reviews.csv --soft-labels --output=answers.jsonl
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, Literal

from pocketbert.commands.command_line import OptionGroup, Options
from pocketbert.commands.task_options import TableOptions
from pocketbert.errors import UserError, raise_if_any
from pocketbert.options import FilePath, ModelOrBundlePath, option_problems
from pocketbert_export.commands import answer_lines, question_options, stored_columns
from pocketbert_export.commands.answer_lines import AnswerFileOptions
from pocketbert_export.commands.question_options import AnswerOptions
from pocketbert_runtime.heads_config import without_labels
from pocketbert_runtime.json_reading import parse_json
from pocketbert_runtime.windows import WindowOptions

if TYPE_CHECKING:
    from pocketbert.tasks.predictor import Predictor

# A person at a terminal gets each prediction at once; files are predicted in chunks.
LINES_A_CHUNK = 256
TABLES = (".csv", ".tsv")
_TABLE_OPTIONS = {
    "text_column": "tables and JSON",
    "pair_column": "tables and JSON",
    "separator": "tables",
    "skip_bad_rows": ".csv and .tsv files",
}
# A question's required and optional members.
QUESTIONS = (("question", "context"), ("id",))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """Model, input and output for predictions.

    Attributes:
      model: a model directory or a bundle.
      input: file to read (default: standard input).
      format: input format; auto detects it.
      top_k: labels: number of best labels to print (default: all).
      n_best: questions: number of best answers to print.
      windows: read longer texts in overlapping windows, and print the mean of their probabilities or scores.
      soft_labels: write probabilities for distill and compress to learn from: with all digits, and in
        token_classification for each word; with several heads, for each head.
    """

    GROUP: ClassVar = "Input"

    model: ModelOrBundlePath
    input: FilePath | None = None
    format: Literal["auto", "lines", "jsonl"] = "auto"
    top_k: int | None = None
    n_best: int = 0
    windows: bool = False
    soft_labels: bool = False

    def __post_init__(self) -> None:
        raise_if_any(option_problems(self, may_be_zero=("n_best",)), "predict")


OPTIONS = (
    PredictOptions,
    OptionGroup(TableOptions, without=("label_column", "label_separator")),
    AnswerFileOptions,
    *question_options.OPTIONS,
)


def run(options: Options) -> None:
    """Streams predictions to the output."""
    chosen, target = options[PredictOptions], options[AnswerFileOptions]
    form = answer_lines.form_of(target)
    with opened_input(chosen.input) as stream:
        stored_columns.use(options, chosen.model, chosen.input)
        task = stored_columns.stored_task(chosen.model)
        asks = task is not None and task.rules.reads == "questions"
        if chosen.format == "auto" and Path(chosen.input or "").suffix.lower() in TABLES and not asks:
            stored_columns.check(options, None, chosen.input, labelled=False)
        from pocketbert_export.bundles.predictors import limit_remedy, open_predictor

        predictor = open_predictor(chosen.model, **question_options.windows(options))
        if chosen.windows:
            _check_windows(options, predictor)
        if chosen.soft_labels:
            _check_soft_labels(predictor, form)
        if predictor.task.needs_pairs:
            columns = ["id", "question"]
            answered = _answer_questions(predictor, stream, options, form)
        else:
            rows, columns = _text_rows(predictor, stream, options)
            size = 1 if stream.isatty() else LINES_A_CHUNK
            answered = _answer_texts(predictor, rows, size, options, limit_remedy(chosen.model))
        with answer_lines.opened(
            target.output, form, columns, safe=target.safe_csv, overwrite=target.overwrite
        ) as write:
            for answers in answered:
                write(answers)


def _check_windows(options: Options, predictor: Predictor) -> None:
    """Raises a `UserError` if windows have no meaning for the model, or do not fit into it."""
    from pocketbert.tasks.texts import TextTask

    if not isinstance(predictor.task, TextTask):
        raise UserError(
            f"--windows is for classes, several labels and scores; received it for {predictor.task.kind}; leave it out"
        )
    length = options[WindowOptions].max_length
    if options.given("max_length") and length > predictor.max_length:
        raise UserError(
            f"windows must have at most {predictor.max_length} tokens, the limit of the model; received "
            f"--max-length={length}; pass a smaller one"
        )
    if options[TableOptions].pair_column:
        raise UserError("--windows is for single texts; received it with --pair-column; leave one of them out")


def _check_soft_labels(predictor: Predictor, form: str) -> None:
    """Raises a `UserError` if soft labels have no meaning for the model or the output."""
    task = predictor.task
    if lacking := without_labels(task.config):
        raise UserError(f"--soft-labels is for labels; received it for {lacking}; leave it out")
    if form == "csv" and any(head.per_token for head in (task, *task.parts.values())):
        raise UserError("--soft-labels of words needs JSON; received it with CSV; write a .jsonl file")


def _text_rows(predictor: Predictor, stream: IO[str], options: Options) -> tuple[Iterator[dict[str, str]], list[str]]:
    """Reads rows with `text`, and `pair` for pairs; also returns the possible members."""
    chosen, table = options[PredictOptions], options[TableOptions]
    question_options.check_no_questions(options, predictor.task.config, "n_best", windows=chosen.windows)
    from pocketbert.data.readers.tagged_texts import is_tagged_file, read_tagged
    from pocketbert.tasks.texts import TextTask

    if chosen.top_k and not (predictor.task.config.labels and isinstance(predictor.task, TextTask)):
        raise UserError(f"--top-k is for a model with labels; received it for {predictor.task.kind}; leave it out")
    source = chosen.input or "standard input"
    text, pair = table.text_column, table.pair_column
    if chosen.format == "auto" and Path(source).suffix.lower() in TABLES:
        from pocketbert.data.readers.tables import read_table

        examples, _ = read_table(source, **table.rows)
        if examples.pairs is None:
            return ({"text": text} for text in examples.texts), ["text"]
        pairs = zip(examples.texts, examples.pairs, strict=True)
        return ({"text": text, "pair": pair} for text, pair in pairs), ["text", "pair"]
    if chosen.format == "auto" and is_tagged_file(source):
        return ({"text": text} for text in read_tagged(source).texts), ["text"]
    form, lines = _detected(stream, chosen.format, source)
    used = {"jsonl": ("text_column", "pair_column"), "lines": ()}[form]
    shown = {"jsonl": "JSON", "lines": "lines of text"}[form]
    raise_if_any(
        [
            f"--{name.replace('_', '-')} is for {kinds}; received it for {shown}; leave it out"
            for name, kinds in _TABLE_OPTIONS.items()
            if options.given(name) and name not in used
        ],
        "predict",
    )
    if form == "lines":
        return read_rows(lines, form, source), ["text"]
    required, optional = ((text, pair), ()) if pair else ((text,), ("pair",))
    names = {text: "text", pair or "pair": "pair"}
    rows = read_rows(lines, form, source, required, optional)
    return ({names[name]: value for name, value in row.items()} for row in rows), ["text", "pair"]


def _answer_texts(
    predictor: Predictor, rows: Iterator[dict[str, str]], size: int, options: Options, remedy: str
) -> Iterator[list[dict[str, Any]]]:
    from pocketbert.data.data_warnings import truncation_warning, vocabulary_warnings
    from pocketbert.data.examples import examples_of
    from pocketbert.progress import log_info
    from pocketbert.tasks.texts import TextTask

    given = options[PredictOptions]
    chosen: dict[str, Any] = {} if given.top_k is None else {"top_k": given.top_k}
    if given.windows:
        chosen |= {"windows": True, "stride": options[WindowOptions].stride}
    if given.soft_labels:
        chosen |= {"soft_labels": True}
    truncated = count = 0
    for chunk in text_chunks(rows, size):
        if not count:
            for warning in vocabulary_warnings([row["text"] for row in chunk], predictor.tokenizer):
                log_info(f"pocketbert predict: warning: {warning}")
        count += len(chunk) * (2 if predictor.task.separates_pairs else 1)
        inputs = [(row["text"], row["pair"]) if "pair" in row else row["text"] for row in chunk]
        answers = predictor.predict(inputs, **chosen)
        if isinstance(predictor.task, TextTask) or predictor.task.parts:
            truncated += predictor.task.count_truncated(examples_of(inputs), predictor.tokenizer, predictor.max_length)
        yield [{**row, **answer} for row, answer in zip(chunk, answers, strict=True)]
    if given.windows:
        if truncated:
            log_info(
                f"pocketbert predict: {truncated} of {count} texts are longer than {predictor.max_length} tokens and "
                "are read in windows"
            )
        return
    how = predictor.tokenizer.vocabulary.truncation
    if line := truncation_warning("predict", truncated, count, predictor.max_length, remedy, how):
        log_info(f"pocketbert {line}")


def _answer_questions(
    predictor: Predictor, stream: IO[str], options: Options, form: str
) -> Iterator[list[dict[str, Any]]]:
    from pocketbert.data.readers.question_tasks import is_question_file
    from pocketbert.data.readers.questions import QuestionFile

    chosen = options[PredictOptions]
    if chosen.format == "lines":
        raise UserError("a model that answers questions reads JSON objects; received --format=lines; leave it out")
    path = chosen.input
    if path and Path(path).suffix.lower() in TABLES:
        raise UserError(
            f"a model that answers questions reads .json or .jsonl files, or lines of JSON; received {path}"
        )
    flags = [name.replace("_", "-") for name in (*_TABLE_OPTIONS, "top_k") if options.given(name)]
    raise_if_any([f"--{name} is for texts; received it for questions; leave it out" for name in flags], "predict")
    if form == "csv" and chosen.n_best:
        raise UserError("--n-best needs JSON, since a row of CSV has one answer; received it with CSV; leave one out")
    source, n_best = chosen.input or "standard input", chosen.n_best
    questions: Iterator[tuple[dict[str, str], tuple[str, str]]]
    if is_question_file(source):
        questions = (
            ({"id": question.id, "question": question.question}, (question.question, question.context))
            for question in QuestionFile(source)
        )
    else:
        rows = read_rows(stream, "jsonl", source, *QUESTIONS)
        questions = ((row, (row["question"], row["context"])) for row in rows)
    for chunk in _chunks(questions, 1 if stream.isatty() else LINES_A_CHUNK):
        answers = predictor.predict(
            [pair for _, pair in chunk], n_best=n_best, max_answer_tokens=options[AnswerOptions].max_answer_tokens
        )
        yield [{**row, **answer} for (row, _), answer in zip(chunk, answers, strict=True)]


def read_rows(
    stream: Iterable[str],
    form: str,
    source: str,
    required: Sequence[str] = ("text",),
    optional: Sequence[str] = ("pair",),
) -> Iterator[dict[str, str]]:
    """Reads texts, one per line; blank lines are skipped.

    The form is `lines`, `jsonl`, or `auto`, which detects it from the first non-blank line. Objects have required and
    optional members; all others are ignored. A plain line is the first required member. A `UserError` about another
    line has its number.
    """
    form, lines = _detected(stream, form, source)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if form == "lines":
            yield {required[0]: line.rstrip("\r\n")}
        else:
            yield _parse(line, f"{source}: line {number}", required, optional)


def _detected(stream: Iterable[str], form: str, source: str) -> tuple[str, Iterator[str]]:
    """Returns the format, detected if it is `auto`, and all lines."""
    lines = decoded(stream, source)
    seen: list[str] = []
    while form == "auto" and (line := next(lines, None)) is not None:
        seen.append(line)
        if line.strip():
            form = "jsonl" if line.lstrip().startswith("{") else "lines"
    return "lines" if form == "auto" else form, itertools.chain(seen, lines)


def decoded(stream: Iterable[str], source: str) -> Iterator[str]:
    """Yields a stream's lines; raises a `UserError` unless they are UTF-8."""
    try:
        yield from stream
    except UnicodeDecodeError as error:
        raise UserError(
            f"{source} must be UTF-8 text; received {error.reason}: {error.object[error.start :][:1]!r}"
        ) from error


def _parse(line: str, where: str, required: Sequence[str], optional: Sequence[str]) -> dict[str, str]:
    row = parse_json(line, where, half_pairs=True)
    if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in required):
        members = " and ".join(f'a string "{name}"' for name in required)
        raise UserError(f"{where} must be a JSON object with {members}; received {line.strip()[:80]}")
    for name in optional:
        if not isinstance(row.get(name, ""), str):
            raise UserError(f'{where}: "{name}" must be a string; received {row[name]!r}')
    return {name: row[name] for name in (*required, *optional) if name in row}


def text_chunks(rows: Iterator[dict[str, str]], size: int) -> Iterator[list[dict[str, str]]]:
    """Groups texts into chunks; a chunk has either single texts or pairs."""
    for has_pair, alike in itertools.groupby(rows, lambda row: "pair" in row):
        del has_pair
        yield from _chunks(alike, size)


def _chunks(rows: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while chunk := list(itertools.islice(rows, size)):
        yield chunk


@contextlib.contextmanager
def opened_input(path: str | None, flag: str = "--input") -> Iterator[IO[str]]:
    """Opens a text file, or standard input for None; `flag` names it in messages."""
    if path is None:
        if isinstance(sys.stdin, io.TextIOWrapper):
            # UTF-8 in every locale, with or without a byte-order mark.
            sys.stdin.reconfigure(encoding="utf-8-sig")
        yield sys.stdin
        return
    try:
        stream = open(path, encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"{flag} must be a file that can be read; received {path}: {error.strerror}") from error
    with stream:
        yield stream
