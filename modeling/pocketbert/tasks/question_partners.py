"""Question windows for a teacher with its own tokenizer, and which of the student's tokens take its probabilities.

A teacher's row has the question and the part of the paragraph in the student's window. Its start probability of a token
goes to the student's token with the same first character, its end probability to the one with the same last character.
Special tokens go to special tokens. If several tokens share the character, they are matched in order from the front
(start) or the back (end), and the last one takes the rest. A token without a partner has -1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from pocketbert.data.teacher_rows import TeacherRows
from pocketbert_runtime.answers.span import SPAN_OUTPUTS
from pocketbert_runtime.windows import Question, WindowOptions, Windows, stream_windows

_NO_PARTNER = -1
# A row's parts: first token, question, separators, paragraph, last token.
_PARTS = 5


class _Row(NamedTuple):
    """A row's tokens: ids and segments, and keys that tell part and first or last character, all int64 [S]."""

    ids: np.ndarray
    type_ids: np.ndarray
    start_keys: np.ndarray
    end_keys: np.ndarray


def teacher_windows(
    questions: Iterable[Question],
    tokenizer: Any,
    teacher_tokenizer: Any,
    options: WindowOptions,
    positions: int,
) -> TeacherRows:
    """Makes a teacher's row for each of the student's windows.

    Args:
      questions: the questions in `encode_questions`.
      tokenizer: the student's tokenizer.
      teacher_tokenizer: the teacher's tokenizer.
      options: the student's window options.
      positions: the teacher's longest row; a part of a paragraph with more tokens is cut.
    """
    ids, type_ids, starts, ends = (list[np.ndarray]() for _ in range(4))
    for chunk, windows in stream_windows(questions, tokenizer, options):
        students = _student_rows(chunk, windows, tokenizer)
        teachers = _teacher_rows(chunk, windows, teacher_tokenizer, options, positions)
        for student, teacher in zip(students, teachers, strict=True):
            # The keys of all questions would take more memory than the rows.
            ids.append(teacher.ids.astype(np.int32))
            type_ids.append(teacher.type_ids.astype(np.int32))
            starts.append(partners(teacher.start_keys, student.start_keys))
            ends.append(partners(teacher.end_keys, student.end_keys, from_end=True))
    lengths = list(map(len, ids))
    return TeacherRows(
        word_ids=np.concatenate(ids),
        type_ids=np.concatenate(type_ids),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        max_length=max(lengths),
        pad_token_id=int(teacher_tokenizer.pad_token_id),
        partners=dict(zip(SPAN_OUTPUTS, (np.concatenate(starts), np.concatenate(ends)), strict=True)),
    )


def partners(teacher_keys: np.ndarray, student_keys: np.ndarray, *, from_end: bool = False) -> np.ndarray:
    """Matches a row's tokens by their keys.

    Args:
      teacher_keys: int [T].
      student_keys: int [S].
      from_end: whether tokens with the same key are matched from the back.
    Returns:
      For each of the teacher's tokens, the position of the student's token, or -1; int32 [T].
    """
    if from_end:
        reverse = partners(teacher_keys[::-1], student_keys[::-1])[::-1]
        return np.where(reverse < 0, _NO_PARTNER, len(student_keys) - 1 - reverse).astype(np.int32)
    order, teacher_order = (np.argsort(keys, kind="stable") for keys in (student_keys, teacher_keys))
    ascending, teacher_ascending = student_keys[order], teacher_keys[teacher_order]
    first = np.searchsorted(ascending, teacher_ascending, "left")
    count = np.searchsorted(ascending, teacher_ascending, "right") - first
    rank = np.arange(len(teacher_keys)) - np.searchsorted(teacher_ascending, teacher_ascending, "left")
    matched = np.full(len(teacher_keys), _NO_PARTNER, np.int32)
    has_partner = count > 0
    matched[teacher_order[has_partner]] = order[(first + np.minimum(rank, count - 1))[has_partner]]
    return matched


def _student_rows(questions: list[Question], windows: Windows, tokenizer: Any) -> Iterable[_Row]:
    """The student's windows with their keys."""
    _, starts, ends, splits = tokenizer.tokens([question.question for question in questions])
    for window, number in enumerate(windows.question_index):
        tokens = slice(windows.offsets[window], windows.offsets[window + 1])
        separators = tokenizer.frame.separators
        question_tokens = int(windows.context_start[window]) - 1 - separators
        question = slice(splits[number], splits[number] + question_tokens)
        paragraph = slice(tokens.start + windows.context_start[window], tokens.stop - 1)
        yield _Row(
            ids=windows.word_ids[tokens],
            type_ids=windows.type_ids[tokens],
            start_keys=_keys(starts[question], separators, windows.char_starts[paragraph]),
            end_keys=_keys(ends[question], separators, windows.char_ends[paragraph]),
        )


def _teacher_rows(
    questions: list[Question], windows: Windows, tokenizer: Any, options: WindowOptions, positions: int
) -> Iterable[_Row]:
    """The teacher's rows for the same parts of the paragraphs."""
    frame = tokenizer.frame
    special = frame.num_special_tokens(pairs=True)
    contexts = {context: row for row, context in enumerate(dict.fromkeys(question.context for question in questions))}
    ids, starts, ends, splits = tokenizer.tokens([*(question.question for question in questions), *contexts])
    for window, number in enumerate(windows.question_index):
        question = slice(splits[number], min(splits[number + 1], splits[number] + options.question_room(special)))
        row = len(questions) + contexts[questions[number].context]
        context = slice(splits[row], splits[row + 1])
        span = windows.char_starts[windows.offsets[window] : windows.offsets[window + 1]] >= 0
        first, last = 0, 0
        if span.any():
            tokens = np.flatnonzero(span) + windows.offsets[window]
            first = int(np.searchsorted(starts[context], windows.char_starts[tokens].min(), "left"))
            last = int(np.searchsorted(ends[context], windows.char_ends[tokens].max(), "right"))
        last = min(last, first + positions - special - (question.stop - question.start))
        paragraph = slice(context.start + first, max(context.start + last, context.start + first))
        head = [[frame.first], ids[question], [frame.last] * frame.separators]
        row_ids = np.concatenate([*head, ids[paragraph], [frame.last]])
        segments = np.zeros(len(row_ids), np.int64)
        segments[sum(map(len, head)) :] = frame.second_segment
        yield _Row(
            ids=row_ids,
            type_ids=segments,
            start_keys=_keys(starts[question], frame.separators, starts[paragraph]),
            end_keys=_keys(ends[question], frame.separators, ends[paragraph]),
        )


def _keys(question: np.ndarray, separators: int, paragraph: np.ndarray) -> np.ndarray:
    """A row's keys from the characters of question and paragraph: different parts have different keys."""
    none = np.zeros(1, np.int64)
    parts = (none, question, np.zeros(separators, np.int64), paragraph, none)
    return np.concatenate([_PARTS * np.asarray(chars, np.int64) + part for part, chars in enumerate(parts)])
