"""XNLI (Conneau et al. 2018, https://arxiv.org/abs/1809.05053): train on English, evaluate in 15 languages.

An example is a premise, a hypothesis and a label: entailment, contradiction or neutral. Labels have the order in GLUE's
MNLI, the English training data. Quotes are ordinary characters in all files.

Dev and test files have two layouts:
xnli.dev.tsv  the official distribution (XNLI-1.0): with a header, all languages in one file.
dev-de.tsv    one file per language, without a header: premise, hypothesis, label.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.data.readers.glue import GLUE
from pocketbert.data.readers.rows import RowProblems, read_utf8, shown, tsv_rows
from pocketbert.errors import UserError
from pocketbert.notation import argument

XNLI = TaskConfig(kind="classification", name="xnli", labels=GLUE["mnli"].task.labels)
SPLITS = ("dev", "test")
# In the order of published tables.
LANGUAGES = ("en", "fr", "es", "de", "el", "bg", "ru", "tr", "ar", "vi", "th", "zh", "hi", "sw", "ur")

_TRAINING_FILES = (
    "multinli.train.en.tsv",
    "multinli/multinli.train.en.tsv",
    "XNLI-MT-1.0/multinli/multinli.train.en.tsv",
    "train.tsv",
    "MNLI/train.tsv",
)
# Premise, hypothesis and label by their headers in XNLI-1.0 and GLUE's MNLI, and in XNLI-MT-1.0.
_HEADERS = (("sentence1", "sentence2", "gold_label"), ("premise", "hypo", "label"))
_HEADLESS = ("premise", "hypothesis", "label")
# XNLI-MT-1.0 has its own spelling.
_LABEL_OF = {**{label: label for label in XNLI.labels}, "contradictory": "contradiction"}


class _Row(NamedTuple):
    """One row; the language is None if the file has no such column."""

    language: str | None
    premise: str
    hypothesis: str
    label: int


def read_xnli(folder: str | os.PathLike[str], split: str, languages: Sequence[str] | None = None) -> Examples:
    """Reads the dev or test examples, one language after the other; `groups` are the languages.

    Args:
      folder: folder with `xnli.dev.tsv` and `xnli.test.tsv`, with `XNLI-1.0`, or with one file per language.
      split: `dev` or `test`.
      languages: languages to read; None for all in the folder.
    Raises:
      UserError: an unknown split or language, a missing file, text that is not UTF-8, or unreadable rows, all listed.
    """
    folder = Path(folder)
    if split not in SPLITS:
        raise UserError(f"no split {split!r} of xnli; its splits are {', '.join(SPLITS)}")
    official = _first_file(folder, (f"xnli.{split}.tsv", f"XNLI-1.0/xnli.{split}.tsv"))
    rows: dict[str, list[_Row]] = {}
    if official:
        for row in _read(official, needs_language=True):
            assert row.language is not None
            rows.setdefault(row.language, []).append(row)
        chosen = _chosen(official, list(rows), languages)
    else:
        files = {path.stem.removeprefix(f"{split}-"): path for path in sorted(folder.glob(f"{split}-*.tsv"))}
        if not files:
            raise UserError(
                f"{folder}: xnli needs xnli.{split}.tsv or a file {split}-LANGUAGE.tsv for each language; "
                "found neither; pass the folder with these files"
            )
        chosen = _chosen(folder, list(files), languages)
        rows = {language: _read(files[language]) for language in chosen}
    return _examples({language: rows[language] for language in chosen}, split, official or folder)


def read_xnli_training(folder: str | os.PathLike[str], file: str | os.PathLike[str] | None = None) -> Examples:
    """Reads the English training examples: MultiNLI from XNLI-MT-1.0 or GLUE.

    Args:
      folder: folder with `multinli.train.en.tsv`, `XNLI-MT-1.0` or MNLI's `train.tsv`.
      file: a file to read instead.
    Raises:
      UserError: there is no such file; see also `read_xnli`.
    """
    path = Path(file) if file else _first_file(Path(folder), _TRAINING_FILES)
    if path is None:
        raise UserError(
            f"{folder}: training on xnli needs MultiNLI in English; found none of {', '.join(_TRAINING_FILES)}; add "
            f"multinli.train.en.tsv from XNLI-MT-1.0, or pass a file as {argument('train')}, such as GLUE's "
            "MNLI/train.tsv"
        )
    return dataclasses.replace(_examples({"en": _read(path)}, "train", path), groups=None)


def _first_file(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _chosen(source: Path, available: Sequence[str], languages: Sequence[str] | None) -> list[str]:
    """Returns the requested languages, or all, in the order of `LANGUAGES`."""
    missing = [language for language in languages or () if language not in available]
    if missing:
        raise UserError(f"{source}: no language {', '.join(missing)}; there are {', '.join(_ordered(available))}")
    return _ordered(set(languages or available))


def _ordered(languages: Sequence[str] | set[str]) -> list[str]:
    return sorted(
        languages,
        key=lambda language: (LANGUAGES.index(language) if language in LANGUAGES else len(LANGUAGES), language),
    )


def _examples(rows: Mapping[str, Sequence[_Row]], split: str, source: Path) -> Examples:
    """Concatenates all languages' rows."""
    together = [row for language_rows in rows.values() for row in language_rows]
    return Examples(
        texts=[row.premise for row in together],
        pairs=[row.hypothesis for row in together],
        labels=np.asarray([row.label for row in together], np.int32),
        ids=[
            f"{split}-{language}-{number}"
            for language, language_rows in rows.items()
            for number in range(len(language_rows))
        ],
        source=str(source),
        groups=[language for language, language_rows in rows.items() for _ in language_rows],
    )


def _read(path: Path, *, needs_language: bool = False) -> list[_Row]:
    """Reads a file's rows, with or without a header."""
    rows = tsv_rows(read_utf8(path))
    columns = rows[0][1]
    header = next((names for names in _HEADERS if set(names) <= set(columns)), None)
    if header:
        rows = rows[1:]
    else:
        header, columns = _HEADLESS, list(_HEADLESS)
    if needs_language and "language" not in columns:
        raise UserError(
            f"{path}: line 1: the header must have the columns language, {', '.join(_HEADERS[0])}; received "
            f"{', '.join(columns)[:200]}"
        )
    if not rows:
        raise UserError(f"{path}: line 2: the file has a header and no rows; it must have at least one example")
    premise, hypothesis, label = (columns.index(name) for name in header)
    language = columns.index("language") if "language" in columns else None
    problems = RowProblems(path)
    examples = []
    for line, cells in rows:
        if len(cells) != len(columns):
            names = ", ".join(columns)[:100]
            problems.add(line, f"the row must have {len(columns)} columns, {names}; received {len(cells)}")
        elif cells[label].strip() not in _LABEL_OF:
            problems.add(line, f"the label must be one of {', '.join(_LABEL_OF)}; received {shown(cells[label])}")
        else:
            index = XNLI.labels.index(_LABEL_OF[cells[label].strip()])
            language_cell = None if language is None else cells[language]
            examples.append(_Row(language_cell, cells[premise], cells[hypothesis], index))
    problems.raise_if_any()
    return examples
