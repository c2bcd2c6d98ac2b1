"""Answer lines of text with a model directory or a bundle.

Reads a file, or standard input: one text a line, or one JSON object a line with "text" and, for pairs, "pair".
Writes one JSON object a line, in the order of the input and as soon as a chunk is answered: the text (and pair),
and for classification "label" and "probabilities" by label, for regression "score". A bundle runs on LiteRT and
each text goes to the shortest of its lengths that holds it.

A file is JSON if its first line that is not blank begins with an opening brace; --format says it outright.

Example:
  echo "a gripping film" | pocketbert predict --model=runs/quickstart/bundles/student/dynamic_wi8
  pocketbert predict --model=models/mrpc --input=pairs.jsonl > answers.jsonl
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Iterator
from typing import IO, Any

from absl import flags

from pocketbert.errors import UserError

# A person who types at a terminal waits for each answer; a file is answered in chunks.
LINES_A_CHUNK = 256


def define(flag_values: flags.FlagValues) -> None:
    """Defines the command's flags."""
    flags.DEFINE_string("model", None, "a model directory or a bundle", flag_values=flag_values)
    flags.DEFINE_string("input", None, "file to read (default: standard input)", flag_values=flag_values)
    flags.DEFINE_enum("format", "auto", ["auto", "lines", "jsonl"], "what a line is", flag_values=flag_values)


def run(flag_values: flags.FlagValues) -> None:
    """Streams answers to standard output."""
    if not flag_values.model:
        raise UserError("predict needs --model, a model directory or a bundle; received none")
    with _open(flag_values.input) as stream:
        from pocketbert_export.predictors import open_predictor, probabilities_of

        predictor = open_predictor(flag_values.model)
        task = predictor.task
        rows = read_rows(stream, flag_values.format, flag_values.input or "standard input")
        for chunk in _chunks(rows, 1 if stream.isatty() else LINES_A_CHUNK):
            # Only pairs go together with pairs.
            pairs = [row["pair"] for row in chunk] if "pair" in chunk[0] else None
            logits = predictor.logits([row["text"] for row in chunk], pairs)
            if task.kind == "regression":
                answers: list[dict[str, Any]] = [{"score": float(score)} for score in logits]
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
            for row, answer in zip(chunk, answers, strict=True):
                print(json.dumps({**row, **answer}, ensure_ascii=False))
            sys.stdout.flush()


def read_rows(stream: IO[str], form: str, source: str) -> Iterator[dict[str, str]]:
    """Reads texts, one a line; blank lines are passed over.

    Args:
      stream: the lines.
      form: `lines`, `jsonl`, or `auto`: by the first line that is not blank.
      source: the stream's name, for messages.

    Yields:
      `{"text": …}`, and `"pair"` where there is one.

    Raises:
      UserError: a line that is not such an object, with its number.
    """
    for number, line in enumerate(_decoded(stream, source), start=1):
        if not line.strip():
            continue
        if form == "auto":
            form = "jsonl" if line.lstrip().startswith("{") else "lines"
        yield {"text": line.rstrip("\r\n")} if form == "lines" else _parse(line, f"{source}: line {number}")


def _decoded(stream: IO[str], source: str) -> Iterator[str]:
    try:
        yield from stream
    except UnicodeDecodeError as error:
        raise UserError(
            f"{source} must be UTF-8 text; received {error.reason}: {error.object[error.start :][:1]!r}"
        ) from error


def _parse(line: str, where: str) -> dict[str, str]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"{where} must be one JSON object ({error.msg} at column {error.colno})") from error
    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
        raise UserError(f'{where} must be a JSON object with a string "text"; received {line.strip()[:80]}')
    if not isinstance(row.get("pair", ""), str):
        raise UserError(f'{where}: "pair" must be a string; received {row["pair"]!r}')
    return {name: row[name] for name in ("text", "pair") if name in row}


def _chunks(rows: Iterator[dict[str, str]], size: int) -> Iterator[list[dict[str, str]]]:
    chunk: list[dict[str, str]] = []
    for row in rows:
        if chunk and (len(chunk) == size or ("pair" in row) != ("pair" in chunk[0])):
            yield chunk
            chunk = []
        chunk.append(row)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
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
