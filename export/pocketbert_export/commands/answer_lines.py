"""Write predictions as JSON lines or CSV rows, to standard output or a file, as they arrive."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, Literal

from pocketbert.errors import UserError
from pocketbert.options import FilePath

Answers = Sequence[Mapping[str, Any]]
_FORMS = ("jsonl", "csv")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerFileOptions:
    """Output of predictions.

    Attributes:
      output: a .csv or .jsonl file to write (default: standard output).
      output_format: output format (default: from the extension of --output, otherwise jsonl).
      safe_csv: put an apostrophe before CSV cells that a spreadsheet would read as a formula.
      overwrite: replace --output.
    """

    GROUP: ClassVar = "Output"

    output: FilePath | None = None
    output_format: Literal["jsonl", "csv"] | None = None
    safe_csv: bool = False
    overwrite: bool = False


def form_of(options: AnswerFileOptions) -> str:
    """Returns `jsonl` or `csv`; raises a `UserError` if the options determine neither, or the output exists."""
    from pocketbert.files import check_absent

    form: str | None = options.output_format
    if options.output:
        form = form or Path(options.output).suffix.lower().removeprefix(".")
        if form not in _FORMS:
            raise UserError(
                f"--output must end in .csv or .jsonl, or --output-format must name one; received {options.output}"
            )
        check_absent(options.output, overwrite=options.overwrite)
    form = form or "jsonl"
    if options.safe_csv and form != "csv":
        raise UserError(f"--safe-csv is for CSV; received it with {form}; leave it out, or write CSV")
    return form


@contextlib.contextmanager
def opened(
    output: str | None, form: str, columns: Sequence[str], *, safe: bool = False, overwrite: bool = False
) -> Iterator[Callable[[Answers], None]]:
    """Yields a function to write a chunk of predictions.

    Args:
      output: a file, renamed to its final name when the block ends without error, or None for standard output.
      form: `jsonl` or `csv`.
      columns: CSV: first columns, whether or not a prediction has them.
      safe: CSV: pass cells through `safe_cell`.
      overwrite: replace an existing file.
    """
    from pocketbert.files import new_file

    if output is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            # UTF-8 in every locale. Half a surrogate pair, which UTF-8 cannot encode, stays \uXXXX, as in JSON.
            sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
        yield _json_writer(sys.stdout) if form == "jsonl" else _csv_writer(sys.stdout, columns, safe)
        return
    with new_file(output, overwrite=overwrite) as binary:
        stream = io.TextIOWrapper(binary, encoding="utf-8", errors="backslashreplace", newline="")
        yield _json_writer(stream) if form == "jsonl" else _csv_writer(stream, columns, safe)
        # Closing the wrapper would close the file before it is on disk.
        stream.detach()


def safe_cell(value: Any) -> Any:
    """Puts an apostrophe before `=`, `+`, `-`, `@`, tab and carriage return (no formula then), except in numbers."""
    is_formula = isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value)
    return f"'{value}" if is_formula else value


def _json_writer(stream: IO[str]) -> Callable[[Answers], None]:
    def write(answers: Answers) -> None:
        stream.write("".join(json.dumps(answer, ensure_ascii=False) + "\n" for answer in answers))
        stream.flush()

    return write


def _csv_writer(stream: IO[str], columns: Sequence[str], safe: bool) -> Callable[[Answers], None]:
    rows: csv.DictWriter[str] | None = None

    def write(answers: Answers) -> None:
        nonlocal rows
        for answer in answers:
            flat = _flat(answer)
            if safe:
                flat = {safe_cell(name): safe_cell(cell) for name, cell in flat.items()}
            if rows is None:
                # RFC 4180's line ending: the module then quotes both kinds of line break in cells.
                rows = csv.DictWriter(stream, list(dict.fromkeys([*columns, *flat])), lineterminator="\r\n")
                rows.writeheader()
            rows.writerow(flat)
        stream.flush()

    return write


def _flat(answer: Mapping[str, Any]) -> dict[str, Any]:
    """A prediction as cells: one column per label's probability, or per best label."""
    cells: dict[str, Any] = {}
    for name, value in answer.items():
        if name == "probabilities":
            cells |= {f"probability_{label}": probability for label, probability in value.items()}
        elif name == "top":
            for rank, best in enumerate(value, start=1):
                cells |= {f"label_{rank}": best["label"], f"probability_{rank}": best["probability"]}
        elif name == "spans":
            cells[name] = json.dumps(value, ensure_ascii=False)
        elif isinstance(value, Mapping):
            # One head's answer, from several.
            cells |= {f"{name}_{column}": cell for column, cell in _flat(value).items()}
        elif isinstance(value, list):
            # `read_table` reads this form.
            cells[name] = "|".join(value)
        elif name != "context":
            cells[name] = value
    return cells
