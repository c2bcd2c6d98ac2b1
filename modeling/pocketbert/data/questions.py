"""Questions about paragraphs, in the JSON format of SQuAD, read as a stream.

`{"data": [{"paragraphs": [{"context": …, "qas": [{"id": …, "question": …, "answers": [{"text": …, "answer_start": …}],
"is_impossible": …}]}]}]}`: SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018), MLQA, XQuAD, TyDi QA GoldP, and files of a
user's own. `answers` and `is_impossible` may be absent; other keys are left alone, `plausible_answers` among them.
Offsets count code points.
"""

from __future__ import annotations

import array
import contextlib
import copy
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import ijson
import numpy as np

from pocketbert import files
from pocketbert.data.reading import PROBLEMS_SHOWN
from pocketbert.errors import UserError, raise_if_any

_FORMAT = '{"data": [{"paragraphs": [{"context": "…", "qas": [{"id": "…", "question": "…", "answers": […]}]}]}]}'
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UNLABELLED, _ANSWERED, _IMPOSSIBLE = range(3)
_CHARACTERS_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the paragraph that it is about, and the right answers as far as they are known.

    Attributes:
      id: its name in the file.
      question: its text.
      context: the paragraph.
      answers: the right answers, parts of `context`; empty if there is none, or none is given.
      starts: of each answer, the offset of its first code point in `context`.
      impossible: the file says that the paragraph does not answer the question (SQuAD 2.0).
    """

    id: str
    question: str
    context: str
    answers: tuple[str, ...]
    starts: tuple[int, ...]
    impossible: bool


class QuestionFile:
    """A file of questions, checked as a whole once and then read anew, a paragraph at a time, by every iteration.

    An answer without text counts as not given (files of TyDi QA write development answers that are kept back so). Ids
    may repeat (TyDi QA's training ids do): where they are keys, call `check_ids`. The file must stay as it is,
    since only its labels are kept; it is found again from another working directory too.

    Args:
      path: the file, UTF-8, with or without a byte-order mark.

    Attributes:
      path: as given.
      sha256: of the file's bytes.

    Raises:
      UserError: no such file, not JSON, not of SQuAD's format, an empty text, an answer that does not stand where its
        offset says: the first few with paragraph, question and remedy, and how many more there are. An iteration
        raises it if the file has gone.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._absolute_path = self.path.absolute()
        self.sha256 = files.sha256(self.path)
        self._chosen: np.ndarray | None = None
        problems = _Problems()
        labels = array.array("b")
        try:
            _check_articles(self.path, problems.add)
            for number, paragraph in enumerate(_paragraphs(self.path), start=1):
                _check_paragraph(paragraph, number, problems.add)
                if not problems.count:
                    labels.extend(map(_label, _questions(paragraph)))
        except (ijson.JSONError, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())
            raise UserError(
                f"{self.path}: the file must be JSON in UTF-8; received: {reason}; look at that place, or write the "
                "file anew"
            ) from error
        problems.raise_if_any(self.path)
        if not labels:
            raise UserError(f"{self.path}: the file must hold at least one question; received none; as in {_FORMAT}")
        self._labels = np.frombuffer(labels, np.int8)

    @property
    def source(self) -> str:
        """What to call the file in messages and records."""
        return str(self.path)

    @property
    def identity(self) -> str:
        """SHA-256 of the file's bytes, and of the selection where this is one."""
        if self._chosen is None:
            return self.sha256
        return hashlib.sha256(self.sha256.encode() + self._chosen.tobytes()).hexdigest()

    @property
    def count(self) -> int:
        """How many questions."""
        return len(self._labels)

    @property
    def num_impossible(self) -> int:
        """How many of them are said to have no answer."""
        return int((self._labels == _IMPOSSIBLE).sum())

    @property
    def num_unlabelled(self) -> int:
        """How many have neither an answer nor the word that there is none."""
        return int((self._labels == _UNLABELLED).sum())

    @property
    def labelled(self) -> bool:
        """Every question has an answer, or is said to have none."""
        return self.num_unlabelled == 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Question]:
        questions = self._read()
        return questions if self._chosen is None else _at(questions, self._chosen)

    def _read(self) -> Iterator[Question]:
        try:
            for paragraph in _paragraphs(self._absolute_path):
                yield from _questions(paragraph)
        except OSError as error:
            raise UserError(
                f"{self.source}: the file must stay where it is, since it is read anew whenever its questions are "
                f"needed; received: {error.strerror}; put it back and repeat the command"
            ) from error

    def select(self, indices: Iterable[int] | np.ndarray) -> QuestionFile:
        """The same file with only the questions at `indices`, in the file's order, each once.

        Raises:
          ValueError: an index is negative or not below `count`.
        """
        wanted = np.unique(np.asarray(list(indices), np.int64))
        if len(wanted) and not 0 <= wanted[0] <= wanted[-1] < self.count:
            raise ValueError(f"indices must be in [0, {self.count}); received {wanted[0]} to {wanted[-1]}")
        view = copy.copy(self)
        view._chosen = wanted if self._chosen is None else self._chosen[wanted]
        view._labels = self._labels[wanted]
        return view

    def check_ids(self) -> None:
        """Reads the questions once to see that their ids, which are to be keys, differ.

        Raises:
          UserError: they do not.
        """
        # Eight bytes a question, however long ids are.
        hashes = np.fromiter((hash(question.id) for question in self), np.int64, self.count)
        values, counts = np.unique(hashes, return_counts=True)
        if len(values) < self.count:
            repeated = set(values[counts > 1].tolist())
            example = next(question.id for question in self if hash(question.id) in repeated)
            raise UserError(
                f"{self.path}: ids of questions must differ where answers are written by id; received "
                f"{self.count - len(values)} repetitions, of {example!r} for one; give every question an id of its own"
            )


class _Problems:
    """The first few problems, and how many there are."""

    def __init__(self) -> None:
        self.count = 0
        self._shown: list[str] = []

    def add(self, problem: str) -> None:
        self.count += 1
        if len(self._shown) < PROBLEMS_SHOWN:
            self._shown.append(problem)

    def raise_if_any(self, path: Path) -> None:
        more = self.count - len(self._shown)
        raise_if_any(self._shown + [f"and {more} more problems"] * bool(more), str(path))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    with open(path, "rb") as stream:
        if stream.read(len(_BYTE_ORDER_MARK)) != _BYTE_ORDER_MARK:
            stream.seek(0)
        yield stream


def _paragraphs(path: Path) -> Iterator[Any]:
    """What the file holds as paragraphs, whatever it is, one after the other."""
    with _opened(path) as stream:
        yield from ijson.items(stream, "data.item.paragraphs.item", use_float=True)


def _questions(paragraph: dict[str, Any]) -> Iterator[Question]:
    """The questions of a paragraph without problems."""
    for entry in paragraph["qas"]:
        given = [answer for answer in entry.get("answers") or () if answer["text"].strip()]
        yield Question(
            id=str(entry["id"]),
            question=entry["question"],
            context=paragraph["context"],
            answers=tuple(answer["text"] for answer in given),
            starts=tuple(answer["answer_start"] for answer in given),
            impossible=bool(entry.get("is_impossible")),
        )


def _label(question: Question) -> int:
    if question.impossible:
        return _IMPOSSIBLE
    return _ANSWERED if question.answers else _UNLABELLED


def _at(questions: Iterator[Question], indices: np.ndarray) -> Iterator[Question]:
    wanted = iter(indices.tolist())
    next_wanted = next(wanted, None)
    for index, question in enumerate(questions):
        if next_wanted is None:
            return
        if index == next_wanted:
            yield question
            next_wanted = next(wanted, None)


def _check_articles(path: Path, add: Callable[[str], None]) -> None:
    """The file's outer shape, which a stream of paragraphs does not see."""
    articles, has_paragraphs = 0, False
    with _opened(path) as stream:
        for prefix, event, _ in ijson.parse(stream):
            if prefix == "data.item.paragraphs" and event == "start_array":
                has_paragraphs = True
            elif prefix == "data.item" and event not in ("start_map", "map_key", "start_array"):
                # Its end, or all of it where it is no object.
                articles += 1
                if not has_paragraphs:
                    add(f'article {articles}: an article must have a list "paragraphs"; received none; as in {_FORMAT}')
                has_paragraphs = False
    if not articles:
        add(f'the file must be an object with a list "data" of articles; received no article; as in {_FORMAT}')


def _check_paragraph(paragraph: Any, number: int, add: Callable[[str], None]) -> None:
    where = f"paragraph {number}"
    if not isinstance(paragraph, dict):
        add(f'{where}: a paragraph must be an object with "context" and "qas"; received {_shown(paragraph)}')
        return
    context, entries = paragraph.get("context"), paragraph.get("qas")
    if not isinstance(context, str) or not context.strip():
        add(f'{where}: "context" must be a text that is not empty; received {_shown(context)}; write or remove it')
        return
    where = f"{where} ({_shown(context)})"
    if not isinstance(entries, list):
        add(f'{where}: "qas" must be a list of questions; received {_shown(entries)}')
        return
    for position, entry in enumerate(entries, start=1):
        _check_question(entry, context, f"{where}, question {position}", add)


def _check_question(entry: Any, context: str, where: str, add: Callable[[str], None]) -> None:
    if not isinstance(entry, dict):
        add(f'{where}: a question must be an object with "id" and "question"; received {_shown(entry)}')
        return
    identifier, text = entry.get("id"), entry.get("question")
    if not isinstance(identifier, str | int) or isinstance(identifier, bool):
        add(f'{where}: "id" must be a text; received {_shown(identifier)}; give the question a name')
    else:
        where = f"{where} (id {identifier})"
    if not isinstance(text, str) or not text.strip():
        add(f'{where}: "question" must be a text that is not empty; received {_shown(text)}; write or remove it')
    impossible = entry.get("is_impossible", False)
    if not isinstance(impossible, bool):
        add(f'{where}: "is_impossible" must be true or false; received {_shown(impossible)}')
    answers = entry.get("answers") or []
    if not isinstance(answers, list):
        add(f'{where}: "answers" must be a list of objects with "text" and "answer_start"; received {_shown(answers)}')
        return
    if impossible is True and answers:
        add(
            f"{where}: a question that is_impossible has no answers; received {_shown(answers[0])}; remove them, or "
            'move them to "plausible_answers"'
        )
        return
    for answer in answers:
        _check_answer(answer, context, where, add)


def _check_answer(answer: Any, context: str, where: str, add: Callable[[str], None]) -> None:
    text = answer.get("text") if isinstance(answer, dict) else None
    start = answer.get("answer_start") if isinstance(answer, dict) else None
    if not isinstance(text, str) or not isinstance(start, int) or isinstance(start, bool):
        add(f'{where}: an answer must have a "text" and a whole number "answer_start"; received {_shown(answer)}')
    elif start < 0 or context[start : start + len(text)] != text:
        stands = context[start : start + len(text)] if start >= 0 else ""
        add(
            f"{where}: the answer {_shown(text)} must stand in the context at its answer_start, {start}; there stands "
            f"{_shown(stands)}; {_remedy(text, start, context)}"
        )


def _remedy(text: str, start: int, context: str) -> str:
    for unit, coding in (("UTF-16 units", "utf-16-le"), ("bytes", "utf-8")):
        width = len("a".encode(coding))
        coded, wanted = context.encode(coding, "replace"), text.encode(coding, "replace")
        if start >= 0 and coded[width * start :].startswith(wanted):
            return f"the offset counts {unit}: count code points, as Python does"
    places = [place for place in range(len(context)) if context.startswith(text, place)]
    if not places:
        return "the context does not hold it: an answer is a part of its context, character by character"
    return f"the nearest is at {min(places, key=lambda place: abs(place - start))}: correct answer_start"


def _shown(value: Any) -> str:
    """A value in a message: on one line, and not long."""
    text = repr(value)
    return text if len(text) <= _CHARACTERS_SHOWN else text[: _CHARACTERS_SHOWN - 1] + "…"
