"""Questions about paragraphs in SQuAD's JSON format, read as a stream.

`{"data": [{"paragraphs": [{"context": …, "qas": [{"id": …, "question": …, "answers": [{"text": …, "answer_start": …}],
"is_impossible": …}]}]}]}`: SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018), MLQA, XQuAD, TyDi QA GoldP, and your own
files. `answers` and `is_impossible` are optional. Other keys, such as `plausible_answers`, are ignored.

Hugging Face's `"answers": {"text": […], "answer_start": […]}` works too, and so do its rows, one object per line with
its own `context`. Empty lists mean "no answer", unless the whole file has no answers. Offsets count code points.
"""

from __future__ import annotations

import array
import copy
import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pocketbert import files
from pocketbert.data.examples import Examples
from pocketbert.data.readers.question_stream import Layout, find_layout, opened, paragraphs, remedy_for_offset
from pocketbert.data.readers.rows import PROBLEMS_SHOWN, shown
from pocketbert.errors import UserError
from pocketbert.progress import log_info
from pocketbert_runtime.windows import Question

_FORMAT = '{"data": [{"paragraphs": [{"context": "…", "qas": [{"id": "…", "question": "…", "answers": […]}]}]}]}'
# Question labels; _EMPTY is Hugging Face's pair of empty lists.
_UNLABELLED, _ANSWERED, _IMPOSSIBLE, _EMPTY = range(4)


class QuestionFile:
    """A question file. The constructor checks it; each iteration reads it again, one paragraph at a time.

    Only labels stay in memory, so do not change the file. An answer without text counts as unknown (in TyDi QA's files
    without dev answers). Ids may repeat (TyDi QA's training ids do): call `check_ids` before you use them as keys.
    Articles without paragraphs and paragraphs without text are skipped, and their number is logged.

    Args:
      path: JSON file in UTF-8, with or without a byte-order mark.
      skip_bad: skip unreadable questions instead of raising an error.
    Attributes:
      path: path as passed.
      sha256: file SHA-256.
      skipped_rows: number of skipped questions.
    Raises:
      UserError: the file is missing, is not JSON in SQuAD's format, or has an empty question or an answer not at its
        offset (the first problems are listed with remedies); or it was removed or changed before an iteration.
    """

    unit: ClassVar[str] = "questions"
    has_pairs: ClassVar[bool] = True
    classes: ClassVar[None] = None
    label_sets: ClassVar[None] = None
    answers: ClassVar[None] = None  # Several spans of a paragraph may be right.

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
        left_out = problems.left_out(self._layout)
        if not skip_bad or not labels:
            problems.raise_if_any(self.path)
        if not labels:
            received = f"only {left_out}" if left_out else "none"
            raise UserError(
                f"{self.path}: the file must have at least one question; received {received}; use the form {_FORMAT}"
            )
        if left_out:
            log_info(f"{self.path}: skipped {left_out}")
        self._labels = np.frombuffer(labels, np.int8)
        # In a file without any answers, answers are unknown.
        self._empty_label = _IMPOSSIBLE if np.isin(self._labels, (_ANSWERED, _IMPOSSIBLE)).any() else _UNLABELLED
        self._labels = np.where(self._labels == _EMPTY, np.int8(self._empty_label), self._labels)

    def __repr__(self) -> str:
        return f"<QuestionFile {self.count} questions, {self.num_impossible} without an answer, of {self.path}>"

    def label_counts(self, labels: Sequence[str]) -> dict[str, int]:
        """Empty: answers have no labels."""
        return {}

    @property
    def read_texts(self) -> Iterator[tuple[str, str]]:
        """Questions with their paragraphs."""
        return ((question.question, question.context) for question in self)

    @property
    def source(self) -> str:
        """File name in messages and records."""
        return str(self.path)

    @property
    def identity(self) -> str:
        """SHA-256 over the file and, after `select`, the selection."""
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
        """Whether each question has an answer or is marked as unanswerable."""
        return self.num_unlabelled == 0

    @property
    def missing_labels(self) -> str:
        """Names the missing labels for a message."""
        return f"answers; {self.num_unlabelled} questions in {self.source} have none"

    @property
    def split_keys(self) -> Iterable[str]:
        """The paragraphs; questions on the same one stay in the same split."""
        return (question.context for question in self)

    def first_texts(self, count: int) -> Examples:
        """Returns up to `count` questions with their paragraphs, as unlabelled pairs."""
        taken = [*itertools.islice(self, count)]
        texts, pairs = [question.question for question in taken], [question.context for question in taken]
        return Examples(texts, pairs, None, [str(index) for index in range(len(taken))], self.source)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Question]:
        questions = self._read()
        return questions if self._chosen is None else _at(questions, self._chosen)

    def _read(self) -> Iterator[Question]:
        reason = "since each epoch reads it again"
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
                        f"{self.source}: the file must not change, {reason}; received other content than before; run "
                        "the command again"
                    )
        except OSError as error:
            raise UserError(
                f"{self.source}: the file must remain readable, {reason}; received: {error.strerror}; restore it and "
                "run the command again"
            ) from error

    def select(self, indices: Iterable[int] | np.ndarray) -> QuestionFile:
        """Selects questions at `indices`, in file order, without repetition. Raises `ValueError` for invalid ones."""
        selected = np.unique(np.asarray(list(indices), np.int64))
        if len(selected) and not 0 <= selected[0] <= selected[-1] < self.count:
            raise ValueError(f"indices must be in [0, {self.count}); received {selected[0]} to {selected[-1]}")
        view = copy.copy(self)
        view._chosen = selected if self._chosen is None else self._chosen[selected]
        view._labels = self._labels[selected]
        return view

    def check_ids(self) -> None:
        """Reads the file once, and raises `UserError` if an id is repeated."""
        # Hashes take eight bytes per question.
        hashes = np.fromiter((hash(question.id) for question in self), np.int64, self.count)
        values, counts = np.unique(hashes, return_counts=True)
        if len(values) < self.count:
            repeated = set(values[counts > 1].tolist())
            example = next(question.id for question in self if hash(question.id) in repeated)
            raise UserError(
                f"{self.path}: ids of questions must be unique to write answers by id; received "
                f"{self.count - len(values)} repetitions, such as {example!r}; give each question its own id"
            )


class _QuestionProblems:
    """Collects the first problems, their number, and the numbers of skipped items."""

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
        form = f'must have a list "paragraphs"; received none; use the form {_FORMAT}'
        for article in layout.wrong_articles:
            self.add(f"article {article}: an article {form}")
        if layout.articles == layout.without_paragraphs and not layout.in_rows:
            received = f"{layout.articles} without paragraphs" if layout.articles else "no article"
            self.add(f'the file must be an object with a list "data" of articles; received {received}; use {_FORMAT}')

    def raise_if_any(self, path: Path) -> None:
        if self._count:
            raise UserError(f"{path}: {self._listed()}")

    def left_out(self, layout: Layout) -> str:
        """Lists skipped items with their numbers; empty if there are none."""
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
    selected = iter(indices.tolist())
    next_wanted = next(selected, None)
    for index, question in enumerate(questions):
        if next_wanted is None:
            return
        if index == next_wanted:
            yield question
            next_wanted = next(selected, None)


def _questions(
    paragraph: Any, where: str, problems: _QuestionProblems, *, are_good: bool = False
) -> Iterator[tuple[Question, int]]:
    """Yields a paragraph's readable questions with their labels; `are_good` skips the checks."""
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
        problems.add(f'{where}: "context" must be a text; received {received}; add the text or remove the paragraph')
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
        with_text = [answer for answer in answers if answer["text"].strip()]
        question = Question(
            id=str(entry["id"]),
            question=entry["question"],
            context=context,
            answers=tuple(answer["text"] for answer in with_text),
            starts=tuple(answer["answer_start"] for answer in with_text),
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
    """Returns a question's answers, and adds its problems."""
    if not isinstance(entry, dict):
        add(f'{where}: a question must be an object with "id" and "question"; received {shown(entry)}')
        return []
    identifier, text = entry.get("id"), entry.get("question")
    if not isinstance(identifier, str | int) or isinstance(identifier, bool):
        add(f'{where}: "id" must be a text; received {shown(identifier)}; give the question a name')
    else:
        where = f"{where} (id {identifier})"
    if not isinstance(text, str) or not text.strip():
        add(f'{where}: "question" must be a text that is not empty; received {shown(text)}; add it or remove the entry')
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
            f"{where}: a question with is_impossible must have no answers; received {shown(answers[0])}; remove them "
            'or move them to "plausible_answers"'
        )
        return []
    for answer in answers:
        _check_answer(answer, context, where, add)
    return answers


def _as_list(answers: Any) -> list[Any] | None:
    """Returns answers in SQuAD's form; None if they have neither form."""
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
        at_offset = context[start : start + len(text)] if start >= 0 else ""
        add(
            f"{where}: the answer {shown(text)} must be in the context at its answer_start, {start}; received "
            f"{shown(at_offset)} there; {remedy_for_offset(text, start, context)}"
        )
