"""Windows over questions and paragraphs, as in BERT's `run_squad.py`.

Source: Devlin et al. 2019, section 4.2, and google-research/bert `run_squad.py`. A window is `[CLS] question [SEP] part
of the paragraph [SEP]`, with segments 0 and 1. Departures: the tokenizer's offsets map an answer to tokens (BERT maps
white-space words to tokens with the same text); a paragraph without tokens has one window (none in BERT), so each
question gets a prediction. RoBERTa and XLM-R have `<s> question </s></s> part of the paragraph </s>` with segment 0.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pocketbert_runtime.errors import raise_if_any
from pocketbert_runtime.progress import bar

# BERT's; RoBERTa has one more.
_SPECIAL_TOKENS = 3
# A chunk's windows are all in memory, and long paragraphs have many.
_CHARACTERS_A_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class WindowOptions:
    """Window options. The defaults are those in BERT's `run_squad.py`.

    Attributes:
      max_length: maximum window length for questions, including special tokens (default for a bundle: its longest
        signature).
      stride: distance between windows in paragraph tokens; in transformers, `stride` is the overlap (default: a third
        of --max-length, as BERT's 128 for 384).
      max_question_tokens: maximum question length; longer questions are truncated. The paragraph gets at least a third
        of the window.

    Raises:
      UserError: lists all invalid values.
    """

    GROUP: ClassVar = "Questions"
    COMMON: ClassVar = ()

    max_length: int = 384
    stride: int | None = None
    max_question_tokens: int = 64

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be positive; received {value}"
            for name, value in vars(self).items()
            if value is not None and not value > 0
        ]
        least = _SPECIAL_TOKENS + 2
        if 0 < self.max_length < least:
            problems.append(f"max_length must be at least {least}; received {self.max_length}")
        raise_if_any(problems, "windows")

    def question_room(self, special_tokens: int = _SPECIAL_TOKENS) -> int:
        """Returns the maximum question length: the paragraph gets a third of the window."""
        return min(self.max_question_tokens, self.max_length - special_tokens - self.max_length // 3)


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its paragraph and its answers.

    Attributes:
      id: id in the file.
      question: question text.
      context: the paragraph.
      answers: correct answers, spans in `context`; empty if there are none or they are unknown.
      starts: each answer's offset in `context`, in code points.
      impossible: whether the file marks the question as unanswerable (SQuAD 2.0).
    """

    id: str
    question: str
    context: str
    answers: tuple[str, ...]
    starts: tuple[int, ...]
    impossible: bool


@dataclass(frozen=True, eq=False)
class Windows:
    """W question windows: T concatenated tokens, without padding.

    Attributes:
      word_ids: int32 [T].
      type_ids: int32 [T], 1 for the paragraph and its [SEP]; 0 everywhere for tokenizers with one segment.
      offsets: int64 [W+1]; window w has the tokens `offsets[w]:offsets[w + 1]`.
      question_index: int64 [W], ascending question index.
      context_start: int32 [W], the first paragraph token's position in the window.
      char_starts: int32 [T], paragraph offset where a token starts, in code points; -1 outside the paragraph.
      char_ends: int32 [T], paragraph offset after its end; -1 outside the paragraph.
      most_context: bool [T], whether this window has a paragraph token's maximum context: the most tokens on the
        shorter side (BERT; the first window for ties). False outside the paragraph.
      positions: int32 [W, 2], the first answer's first and last token in the window; (0, 0) without the entire answer.
    """

    word_ids: np.ndarray
    type_ids: np.ndarray
    offsets: np.ndarray
    question_index: np.ndarray
    context_start: np.ndarray
    char_starts: np.ndarray
    char_ends: np.ndarray
    most_context: np.ndarray
    positions: np.ndarray

    def __len__(self) -> int:
        return len(self.question_index)


def make_windows(questions: Sequence[Question], tokenizer: Any, options: WindowOptions) -> Windows:
    """Makes windows for questions. It tokenizes each paragraph once.

    Args:
      questions: any number of questions, also none.
      tokenizer: a tokenizer. With `special_tokens_in_text="text"`, a literal `[SEP]` is ordinary text.
      options: window options.
    """
    frame = tokenizer.frame
    special = frame.num_special_tokens(pairs=True)
    contexts = {context: row for row, context in enumerate(dict.fromkeys(question.context for question in questions))}
    ids, starts, ends, splits = tokenizer.tokens([*(question.question for question in questions), *contexts])
    lengths = np.diff(splits)

    # One value per question.
    paragraph = len(questions) + np.fromiter(
        (contexts[question.context] for question in questions), np.int64, len(questions)
    )
    question_length = np.minimum(lengths[: len(questions)], options.question_room(special))
    paragraph_length = lengths[paragraph]
    room = options.max_length - special - question_length
    step = np.minimum(options.stride or options.max_length // 3, room)
    windows_of_question = 1 - np.minimum(room - paragraph_length, 0) // step

    # One value per window.
    question = np.repeat(np.arange(len(questions)), windows_of_question)
    before = np.repeat(np.cumsum(windows_of_question) - windows_of_question, windows_of_question)
    begin = (np.arange(len(question)) - before) * step[question]
    length = np.minimum(room[question], paragraph_length[question] - begin)
    context_start = question_length[question] + 1 + frame.separators
    offsets = np.concatenate([[0], np.cumsum(context_start + length + 1)])

    # One value per token.
    window = np.repeat(np.arange(len(question)), np.diff(offsets))
    position = np.arange(offsets[-1]) - offsets[window]
    is_question = (position > 0) & (position < context_start[window] - frame.separators)
    in_paragraph = position - context_start[window]
    is_paragraph = (in_paragraph >= 0) & (in_paragraph < length[window])
    word_ids = np.full(len(position), frame.last, np.int32)
    word_ids[offsets[:-1]] = frame.first
    word_ids[is_question] = ids[(splits[question][window] + position - 1)[is_question]]

    # One value per paragraph token.
    window, in_paragraph = window[is_paragraph], in_paragraph[is_paragraph]
    source = splits[paragraph[question]][window] + begin[window] + in_paragraph
    word_ids[is_paragraph] = ids[source]
    starts, ends = starts[source], ends[source]
    most_context = _most_context(
        question[window], begin[window] + in_paragraph, in_paragraph, length[window], paragraph_length
    )
    place_in_window = context_start[window] + in_paragraph
    return Windows(
        word_ids=word_ids,
        type_ids=(position >= np.repeat(context_start, np.diff(offsets))).astype(np.int32)
        * np.int32(frame.second_segment),
        offsets=offsets,
        question_index=question,
        context_start=context_start.astype(np.int32),
        char_starts=_spread(starts, is_paragraph, -1),
        char_ends=_spread(ends, is_paragraph, -1),
        most_context=_spread(most_context, is_paragraph, False),
        positions=_positions(questions, question, window, place_in_window, starts, ends, most_context),
    )


def stream_windows(
    questions: Iterable[Question],
    tokenizer: Any,
    options: WindowOptions,
    *,
    questions_a_chunk: int = 256,
    progress_total: int | None = None,
) -> Iterator[tuple[list[Question], Windows]]:
    """Makes windows in chunks. Memory does not grow with the number of questions.

    Args:
      questions: for example a `QuestionFile`.
      tokenizer: see `make_windows`.
      options: window options.
      questions_a_chunk: maximum number of questions; long paragraphs reduce it.
      progress_total: number of questions for a progress bar on stderr; None for no bar.
    Yields:
      Questions and their windows, in order; `question_index` counts within the chunk.
    """
    silent = contextlib.nullcontext()
    with silent if progress_total is None else bar(progress_total, "cut windows", "question") as progress:
        for chunk in _chunks(questions, questions_a_chunk):
            yield chunk, make_windows(chunk, tokenizer, options)
            if progress is not None:
                progress.update(len(chunk))


def _chunks(questions: Iterable[Question], most: int) -> Iterator[list[Question]]:
    chunk: list[Question] = []
    characters = 0
    for question in questions:
        if chunk and (len(chunk) == most or characters + len(question.context) > _CHARACTERS_A_CHUNK):
            yield chunk
            chunk, characters = [], 0
        chunk.append(question)
        characters += len(question.context)
    if chunk:
        yield chunk


def _spread(values: np.ndarray, where: np.ndarray, elsewhere: Any) -> np.ndarray:
    spread = np.full(len(where), elsewhere, values.dtype)
    spread[where] = values
    return spread


def _most_context(
    question: np.ndarray,
    position: np.ndarray,
    left: np.ndarray,
    length: np.ndarray,
    paragraph_length: np.ndarray,
) -> np.ndarray:
    """Returns bool [P], whether each token has its maximum context in its window; inputs but the last are [P]."""
    token = (np.cumsum(paragraph_length) - paragraph_length)[question] + position
    # BERT's floating-point sum; integers would resolve some ties differently.
    score = np.minimum(left, length - 1 - left) + 0.01 * length
    best = np.full(paragraph_length.sum(), -np.inf)
    np.maximum.at(best, token, score)
    candidates = np.flatnonzero(score == best[token])
    _, first = np.unique(token[candidates], return_index=True)
    is_most = np.zeros(len(token), bool)
    is_most[candidates[first]] = True
    return is_most


def _positions(
    questions: Sequence[Question],
    question_of_window: np.ndarray,
    window: np.ndarray,
    place: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    most_context: np.ndarray,
) -> np.ndarray:
    """Returns the first answer's positions in each window, [W, 2]; all arguments but the first two are [P]."""
    spans = [
        (question.starts[0], question.starts[0] + len(question.answers[0])) if question.answers else (0, 0)
        for question in questions
    ]
    answer_start, answer_end = np.asarray(spans, np.int64).reshape(-1, 2).T
    question = question_of_window[window]
    is_answer = (ends > answer_start[question]) & (starts < answer_end[question])
    count = np.bincount(window[is_answer], minlength=len(question_of_window))
    # Each paragraph token has its maximum context in one window.
    total = np.bincount(question[is_answer & most_context], minlength=len(questions))[question_of_window]
    inside = np.flatnonzero((count > 0) & (count == total))
    window_of_answer, place_of_answer = window[is_answer], place[is_answer]
    positions = np.zeros((len(question_of_window), 2), np.int32)
    positions[inside, 0] = place_of_answer[np.searchsorted(window_of_answer, inside, "left")]
    positions[inside, 1] = place_of_answer[np.searchsorted(window_of_answer, inside, "right") - 1]
    return positions
