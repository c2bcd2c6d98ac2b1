"""Questions about paragraphs, in the JSON format of SQuAD, read as a stream.

`{"data": [{"paragraphs": [{"context": …, "qas": [{"id": …, "question": …, "answers": [{"text": …, "answer_start": …}],
"is_impossible": …}]}]}]}`: SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018), MLQA, XQuAD, TyDi QA GoldP, and files of a
user's own. `answers` and `is_impossible` may be absent; other keys are left alone, `plausible_answers` among them.

Hugging Face's `"answers": {"text": […], "answer_start": […]}` is read too, and so are its rows, an object a line with a
`context` of its own. Empty lists there say that there is no answer, unless the file has no answers at all. Offsets
count code points.
"""

from __future__ import annotations

import array
import copy
import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert import files
from pocketbert.data.examples import Examples
from pocketbert.data.question_stream import Layout, find_layout, opened, paragraphs, remedy_for_offset
from pocketbert.data.reading import PROBLEMS_SHOWN, shown
from pocketbert.errors import UserError
from pocketbert.progress import log_info

_FORMAT = '{"data": [{"paragraphs": [{"context": "…", "qas": [{"id": "…", "question": "…", "answers": […]}]}]}]}'
# What is known of a question's answers; _EMPTY is Hugging Face's pair of empty lists.
_UNLABELLED, _ANSWERED, _IMPOSSIBLE, _EMPTY = range(4)


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

    An article without paragraphs and a paragraph without text are left out; a line on stderr says how many.

    Args:
      path: the file, UTF-8, with or without a byte-order mark.
      skip_bad: leave out questions that cannot be read too, instead of refusing the file.

    Attributes:
      path: as given.
      sha256: of the file's bytes.
      skipped_rows: how many questions are left out.

    Raises:
      UserError: no such file, not JSON, not of SQuAD's format, an empty question, an answer that does not stand where
        its offset says: the first few with paragraph, question and remedy, and how many more there are. An iteration
        raises it if the file has gone or has other content.
    """

    def __init__(self, path: str | os.PathLike[str], *, skip_bad: bool = False) -> None:
        self.path = Path(path)
        self._absolute_path = self.path.absolute()
        self.sha256 = files.sha256(self.path)
        self._chosen: np.ndarray | None = None
        with opened(self.path) as stream:
            self._layout = find_layout(stream)
        problems = _QuestionProblems()
        problems.check_articles(self._layout)
        labels = array.array("b")
        with opened(self.path, checked=True) as stream:
            for number, paragraph in enumerate(paragraphs(stream, self._layout), start=1):
                where = f"{'row' if self._layout.in_rows else 'paragraph'} {number}"
                labels.extend(label for _, label in _questions(paragraph, where, problems))
        self.skipped_rows = problems.skipped + problems.bad_questions
        self._has_bad = problems.bad_questions > 0
        if not skip_bad or not labels:
            problems.raise_if_any(self.path)
        if not labels:
            received = f"only {problems.left_out(self._layout)}" if problems.left_out(self._layout) else "none"
            raise UserError(
                f"{self.path}: the file must hold at least one question; received {received}; as in {_FORMAT}"
            )
        if left_out := problems.left_out(self._layout):
            log_info(f"{self.path}: skipped {left_out}")
        self._labels = np.frombuffer(labels, np.int8)
        # A file without any answer keeps them back.
        known = np.isin(self._labels, (_ANSWERED, _IMPOSSIBLE)).any()
        self._empty_label = _IMPOSSIBLE if known else _UNLABELLED
        self._labels = np.where(self._labels == _EMPTY, np.int8(self._empty_label), self._labels)

    @property
    def source(self) -> str:
        """Name of the file in messages and records."""
        return str(self.path)

    @property
    def identity(self) -> str:
        """SHA-256 of the file's bytes, and of the selection where this is one."""
        if self._chosen is None:
            return self.sha256
        return hashlib.sha256(self.sha256.encode() + self._chosen.tobytes()).hexdigest()

    @property
    def count(self) -> int:
        """Number of questions."""
        return len(self._labels)

    @property
    def num_impossible(self) -> int:
        """Number of questions marked as unanswerable."""
        return int((self._labels == _IMPOSSIBLE).sum())

    @property
    def num_unlabelled(self) -> int:
        """Number of unlabelled questions: no answer, and not marked as unanswerable."""
        return int((self._labels == _UNLABELLED).sum())

    @property
    def labelled(self) -> bool:
        """Every question has an answer, or is said to have none."""
        return self.num_unlabelled == 0

    @property
    def missing_labels(self) -> str:
        """For a message."""
        return f"answers; of the questions in {self.source} {self.num_unlabelled} have none"

    @property
    def has_pairs(self) -> bool:
        """A question and its paragraph are a pair."""
        return True

    @property
    def classes(self) -> None:
        """Questions have no classes."""

    @property
    def split_keys(self) -> Iterable[str]:
        """The paragraphs: questions that share one stay together where a part is split off."""
        return (question.context for question in self)

    def first_texts(self, count: int) -> Examples:
        """The first questions with their paragraphs, at most `count`, as unlabelled pairs."""
        taken = list(itertools.islice(self, count))
        return Examples(
            texts=[question.question for question in taken],
            pairs=[question.context for question in taken],
            labels=None,
            ids=[str(index) for index in range(len(taken))],
            source=self.source,
        )

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Question]:
        questions = self._read()
        return questions if self._chosen is None else _at(questions, self._chosen)

    def _read(self) -> Iterator[Question]:
        remedy = "since it is read anew whenever its questions are needed"
        try:
            with opened(self._absolute_path, checked=True) as stream:
                for paragraph in paragraphs(stream, self._layout):
                    for question, label in _questions(paragraph, "", _QuestionProblems(), are_good=not self._has_bad):
                        impossible = label == _EMPTY and self._empty_label == _IMPOSSIBLE
                        yield replace(question, impossible=True) if impossible else question
                while stream.read(1 << 16):
                    pass
                if stream.digest.hexdigest() != self.sha256:
                    raise UserError(
                        f"{self.source}: the file must stay as it is, {remedy}; received other content than at "
                        "first; repeat the command"
                    )
        except OSError as error:
            raise UserError(
                f"{self.source}: the file must stay where it is, {remedy}; received: {error.strerror}; put it back and "
                "repeat the command"
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


class _QuestionProblems:
    """The first few problems, how many there are, and what is left out without being one."""

    def __init__(self) -> None:
        self.bad_questions = self.empty_paragraphs = self.skipped = 0
        self._count = 0
        self._shown: list[str] = []

    def add(self, problem: str) -> None:
        self._count += 1
        if len(self._shown) < PROBLEMS_SHOWN:
            self._shown.append(problem)

    @property
    def count(self) -> int:
        return self._count

    def check_articles(self, layout: Layout) -> None:
        form = f'must have a list "paragraphs"; received none; as in {_FORMAT}'
        for article in layout.wrong_articles:
            self.add(f"article {article}: an article {form}")
        if layout.articles == layout.without_paragraphs and not layout.in_rows:
            received = f"{layout.articles} without paragraphs" if layout.articles else "no article"
            self.add(f'the file must be an object with a list "data" of articles; received {received}; as in {_FORMAT}')

    def raise_if_any(self, path: Path) -> None:
        if self._count:
            raise UserError(f"{path}: {self._listed()}")

    def left_out(self, layout: Layout) -> str:
        """Skipped items with their numbers, on one line; empty if there are none."""
        kinds = {
            "articles without paragraphs": 0 if layout.in_rows else layout.without_paragraphs,
            f"paragraphs without text ({self.skipped} questions)": self.empty_paragraphs,
            f"questions that cannot be read ({self._listed()})": self.bad_questions,
        }
        return ", ".join(f"{number} {kind}" for kind, number in kinds.items() if number)

    def _listed(self) -> str:
        more = self._count - len(self._shown)
        return "; ".join([*self._shown, *[f"and {more} more problems"] * (more > 0)])


def _at(questions: Iterator[Question], indices: np.ndarray) -> Iterator[Question]:
    wanted = iter(indices.tolist())
    next_wanted = next(wanted, None)
    for index, question in enumerate(questions):
        if next_wanted is None:
            return
        if index == next_wanted:
            yield question
            next_wanted = next(wanted, None)


def _questions(
    paragraph: Any, where: str, problems: _QuestionProblems, *, are_good: bool = False
) -> Iterator[tuple[Question, int]]:
    """The questions of a paragraph that can be read, with their labels; `are_good` says that all can."""
    if not isinstance(paragraph, dict):
        problems.add(f'{where}: a paragraph must be an object with "context" and "qas"; received {shown(paragraph)}')
        return
    context, entries = paragraph.get("context", 0), paragraph.get("qas")
    if context is None or (isinstance(context, str) and not context.strip()):
        problems.empty_paragraphs += 1
        problems.skipped += len(entries) if isinstance(entries, list) else 0
        return
    if not isinstance(context, str):
        received = shown(context) if "context" in paragraph else "none"
        problems.add(f'{where}: "context" must be a text; received {received}; write or remove it')
        return
    if not are_good:
        where = f"{where} ({shown(context)})"
    if not isinstance(entries, list):
        problems.add(f'{where}: "qas" must be a list of questions; received {shown(entries)}')
        return
    for position, entry in enumerate(entries, start=1):
        if are_good:
            answers = _as_list(entry.get("answers")) or []
        else:
            before = problems.count
            answers = _checked_answers(entry, context, f"{where}, question {position}", problems.add)
            if problems.count > before:
                problems.bad_questions += 1
                continue
        given = [answer for answer in answers if answer["text"].strip()]
        question = Question(
            id=str(entry["id"]),
            question=entry["question"],
            context=context,
            answers=tuple(answer["text"] for answer in given),
            starts=tuple(answer["answer_start"] for answer in given),
            impossible=bool(entry.get("is_impossible")),
        )
        yield question, _label(entry, question)


def _label(entry: dict[str, Any], question: Question) -> int:
    if question.impossible:
        return _IMPOSSIBLE
    if question.answers:
        return _ANSWERED
    empty = isinstance(entry.get("answers"), dict) and not entry["answers"]["text"] and "is_impossible" not in entry
    return _EMPTY if empty else _UNLABELLED


def _checked_answers(entry: Any, context: str, where: str, add: Callable[[str], None]) -> list[dict[str, Any]]:
    """A question's answers, and all that is wrong with it."""
    if not isinstance(entry, dict):
        add(f'{where}: a question must be an object with "id" and "question"; received {shown(entry)}')
        return []
    identifier, text = entry.get("id"), entry.get("question")
    if not isinstance(identifier, str | int) or isinstance(identifier, bool):
        add(f'{where}: "id" must be a text; received {shown(identifier)}; give the question a name')
    else:
        where = f"{where} (id {identifier})"
    if not isinstance(text, str) or not text.strip():
        add(f'{where}: "question" must be a text that is not empty; received {shown(text)}; write or remove it')
    impossible = entry.get("is_impossible", False)
    if not isinstance(impossible, bool):
        add(f'{where}: "is_impossible" must be true or false; received {shown(impossible)}')
    answers = _as_list(entry.get("answers"))
    if answers is None:
        add(
            f'{where}: "answers" must be a list of objects with "text" and "answer_start", or an object with lists of '
            f"them; received {shown(entry['answers'])}"
        )
        return []
    if impossible is True and answers:
        add(
            f"{where}: a question that is_impossible has no answers; received {shown(answers[0])}; remove them, or "
            'move them to "plausible_answers"'
        )
        return []
    for answer in answers:
        _check_answer(answer, context, where, add)
    return answers


def _as_list(answers: Any) -> list[Any] | None:
    """SQuAD's list of answers out of either form; None for what is neither."""
    if isinstance(answers, dict):
        texts, starts = answers.get("text"), answers.get("answer_start")
        if isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts):
            return [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
        return None
    return answers if isinstance(answers, list) else None if answers else []


def _check_answer(answer: Any, context: str, where: str, add: Callable[[str], None]) -> None:
    text = answer.get("text") if isinstance(answer, dict) else None
    start = answer.get("answer_start") if isinstance(answer, dict) else None
    if not isinstance(text, str) or not isinstance(start, int) or isinstance(start, bool):
        add(f'{where}: an answer must have a "text" and a whole number "answer_start"; received {shown(answer)}')
    elif start < 0 or context[start : start + len(text)] != text:
        stands = context[start : start + len(text)] if start >= 0 else ""
        add(
            f"{where}: the answer {shown(text)} must stand in the context at its answer_start, {start}; there stands "
            f"{shown(stands)}; {remedy_for_offset(text, start, context)}"
        )
