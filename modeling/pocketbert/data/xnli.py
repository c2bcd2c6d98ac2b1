"""XNLI (Conneau et al. 2018, https://arxiv.org/abs/1809.05053): train on English, be examined in 15 languages.

A premise and a hypothesis, and whether the one entails the other, contradicts it, or neither. Labels stand in the
order of GLUE's MNLI, on whose English examples models are trained. Quotes are ordinary characters in all files.

Development and test files come in two layouts:
xnli.dev.tsv  the official distribution's (XNLI-1.0): a header, all languages in one file.
dev-de.tsv    a file a language, without a header: premise, hypothesis, label.
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
from pocketbert.data.glue import GLUE
from pocketbert.data.reading import RowProblems, read_utf8, shown, tsv_rows
from pocketbert.errors import UserError

XNLI = TaskConfig(kind="classification", name="xnli", labels=GLUE["mnli"].task.labels)
SPLITS = ("dev", "test")
# In the order of the literature's tables.
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
# XNLI-MT-1.0 has a spelling of its own.
_LABEL_OF = {**{label: label for label in XNLI.labels}, "contradictory": "contradiction"}


class _Row(NamedTuple):
    """One row; the language is None where the file does not say it."""

    language: str | None
    premise: str
    hypothesis: str
    label: int


def read_xnli(folder: str | os.PathLike[str], split: str, languages: Sequence[str] | None = None) -> Examples:
    """Reads the development or test examples of several languages.

    Args:
      folder: with `xnli.dev.tsv` and `xnli.test.tsv`, or with `XNLI-1.0`, which holds them, or with a file a language.
      split: `dev` or `test`.
      languages: which of those that are there; None for all.

    Returns:
      The examples, language after language; `groups` are the languages.

    Raises:
      UserError: no such split, file or language, text that is not UTF-8, rows that are no such examples: with the
        file, the line and the reason, all bad rows together.
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
                f"{folder}: xnli needs xnli.{split}.tsv, of all languages, or {split}-LANGUAGE.tsv, one a language; "
                "found neither; give the folder that holds them"
            )
        chosen = _chosen(folder, list(files), languages)
        rows = {language: _read(files[language]) for language in chosen}
    return _examples({language: rows[language] for language in chosen}, split, official or folder)


def read_xnli_training(folder: str | os.PathLike[str], file: str | os.PathLike[str] | None = None) -> Examples:
    """Reads the English training examples: MultiNLI, as XNLI-MT-1.0 or GLUE has it.

    Args:
      folder: with `multinli.train.en.tsv` (or `XNLI-MT-1.0`, which holds it), or with MNLI's `train.tsv`.
      file: read this one instead.

    Raises:
      UserError: there is none, or as for `read_xnli`.
    """
    path = Path(file) if file else _first_file(Path(folder), _TRAINING_FILES)
    if path is None:
        raise UserError(
            f"{folder}: training on xnli needs MultiNLI in English; found none of {', '.join(_TRAINING_FILES)}; put "
            "multinli.train.en.tsv of XNLI-MT-1.0 there, or name a file with --train-file, such as MNLI/train.tsv of "
            "GLUE"
        )
    return dataclasses.replace(_examples({"en": _read(path)}, "train", path), groups=None)


def _first_file(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _chosen(source: Path, found: Sequence[str], wanted: Sequence[str] | None) -> list[str]:
    """The wanted languages, else those found, in the literature's order."""
    missing = [language for language in wanted or () if language not in found]
    if missing:
        raise UserError(f"{source}: no language {', '.join(missing)}; there are {', '.join(_ordered(found))}")
    return _ordered(set(wanted or found))


def _ordered(languages: Sequence[str] | set[str]) -> list[str]:
    return sorted(languages, key=lambda each: (LANGUAGES.index(each) if each in LANGUAGES else len(LANGUAGES), each))


def _examples(rows: Mapping[str, Sequence[_Row]], split: str, source: Path) -> Examples:
    """The rows of each language, one language after the other."""
    together = [row for each in rows.values() for row in each]
    return Examples(
        texts=[row.premise for row in together],
        pairs=[row.hypothesis for row in together],
        labels=np.asarray([row.label for row in together], np.int32),
        ids=[f"{split}-{language}-{number}" for language, each in rows.items() for number in range(len(each))],
        source=str(source),
        groups=[language for language, each in rows.items() for _ in each],
    )


def _read(path: Path, *, needs_language: bool = False) -> list[_Row]:
    """The rows of one file, in any of the layouts; its first line tells which."""
    rows = tsv_rows(read_utf8(path))
    columns = rows[0][1]
    header = next((names for names in _HEADERS if set(names) <= set(columns)), None)
    if header:
        rows = rows[1:]
    else:
        header, columns = _HEADLESS, list(_HEADLESS)
    if needs_language and "language" not in columns:
        raise UserError(
            f"{path}: line 1: the header must name the columns language, {', '.join(_HEADERS[0])}; received "
            f"{', '.join(columns)[:200]}"
        )
    if not rows:
        raise UserError(f"{path}: line 2: the file holds a header and no rows; it must hold at least one example")
    premise, hypothesis, label = (columns.index(name) for name in header)
    language = columns.index("language") if "language" in columns else None
    problems = RowProblems(path)
    found = []
    for line, cells in rows:
        if len(cells) != len(columns):
            names = ", ".join(columns)[:100]
            problems.add(line, f"the row must have {len(columns)} columns, {names}; received {len(cells)}")
        elif cells[label].strip() not in _LABEL_OF:
            problems.add(line, f"the label must be one of {', '.join(_LABEL_OF)}; received {shown(cells[label])}")
        else:
            index = XNLI.labels.index(_LABEL_OF[cells[label].strip()])
            said = None if language is None else cells[language]
            found.append(_Row(said, cells[premise], cells[hypothesis], index))
    problems.raise_if_any()
    return found
