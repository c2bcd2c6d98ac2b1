"""Spans: an answer's start and end in a paragraph, for a question."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pocketbert_runtime.answers.base import Answers, Evidence
from pocketbert_runtime.answers.best_spans import MAX_ANSWER_TOKENS, N_BEST, Answer, Answered, answer_questions
from pocketbert_runtime.answers.inputs import texts_and_pairs
from pocketbert_runtime.errors import UserError
from pocketbert_runtime.forward import Forward, Outputs, check_finite_answers
from pocketbert_runtime.progress import bar
from pocketbert_runtime.rows import TokenRows
from pocketbert_runtime.windows import Question, WindowOptions, Windows, stream_windows

SPAN_OUTPUTS = ("start_logits", "end_logits")


class SpanAnswers(Answers):
    """Answers to questions about paragraphs. With a null threshold, an answer may be empty."""

    kind = "span"
    output_names = SPAN_OUTPUTS
    per_token = True
    window_options = ("stride", "max_question_tokens")

    def predict(
        self,
        inputs: Sequence[Any],
        forward: Forward,
        tokenizer: Any,
        max_length: int,
        *,
        n_best: int = 0,
        max_answer_tokens: int = MAX_ANSWER_TOKENS,
        **windows: Any,
    ) -> list[dict[str, Any]]:
        """Answers pairs of question and paragraph; adds the `n_best` best answers as `answers`.

        Returns:
          `answer` (a part of the paragraph, or "" for none), its offsets `start` and `end`, `score` and `probability`.
        """
        questions, contexts = texts_and_pairs(inputs)
        if contexts is None and inputs:
            raise UserError(f"inputs must be pairs of question and paragraph; received {inputs[0]!r:.80}")
        questions_of_inputs = [
            Question("", question, context, answers=(), starts=(), impossible=False)
            for question, context in zip(questions, contexts or (), strict=True)
        ]
        answers = read_answers(
            questions_of_inputs,
            tokenizer,
            WindowOptions(max_length=max_length, **windows),
            lambda encoded: check_finite_answers(forward(encoded)),
            with_null=self.config.null_threshold is not None,
            n_best=max(n_best, N_BEST),
            max_answer_tokens=max_answer_tokens,
        )
        return [_described(answered, self.config.null_threshold, n_best) for _, answered in answers]

    def near_ties(
        self, expected: Mapping[str, Any], answer: Mapping[str, Any], tolerance: float, evidence: Evidence
    ) -> Collection[str]:
        """The answer and its offsets, if its score exceeds the other one's by less than twice the tolerance.

        If one of both is empty: all members, if the null threshold is as near.
        """
        scores = [part["score"] for part in (expected, answer)]
        texts = [part["answer"] for part in (expected, answer)]
        if not isinstance(scores[0], int | float):
            return ()
        if texts.count("") == 1:
            threshold = self.config.null_threshold
            empty = texts.index("")
            difference = scores[empty] - scores[1 - empty]
            near = threshold is not None and abs(difference - threshold) < 2 * tolerance
            return answer.keys() if near else ()
        place = [expected[name] for name in ("answer", "start", "end")]
        near = any(
            [other[name] for name in ("answer", "start", "end")] == place and scores[1] - other["score"] < 2 * tolerance
            for other in evidence.others
        )
        return ("answer", "start", "end") if near else ()


def read_answers(
    questions: Iterable[Question],
    tokenizer: Any,
    options: WindowOptions,
    forward: Callable[[TokenRows], Outputs],
    *,
    with_null: bool,
    n_best: int = N_BEST,
    max_answer_tokens: int = MAX_ANSWER_TOKENS,
    progress_total: int | None = None,
) -> Iterator[tuple[Question, Answered]]:
    """Answers questions in chunks; yields each question with its answers, in order.

    Args:
      questions: any number of questions.
      tokenizer: the model's tokenizer.
      options: window options.
      forward: runs the network.
      with_null: whether a question may have no answer; the probabilities then include the empty answer.
      n_best: maximum answers per question.
      max_answer_tokens: maximum answer length.
      progress_total: number of questions for a progress bar; None for no bar.
    """
    with bar(progress_total, "answer", "question") if progress_total else contextlib.nullcontext() as progress:
        for chunk, windows in stream_windows(questions, tokenizer, options):
            outputs = forward(rows_of(windows, options.max_length, tokenizer.pad_token_id))
            answered = answer_questions(
                [question.context for question in chunk],
                windows,
                outputs["start_logits"],
                outputs["end_logits"],
                n_best=n_best,
                max_answer_tokens=max_answer_tokens,
                with_null=with_null,
            )
            yield from zip(chunk, answered, strict=True)
            if progress is not None:
                progress.update(len(chunk))


def rows_of(windows: Windows, max_length: int, pad_token_id: int) -> TokenRows:
    """The windows as rows."""
    return TokenRows(
        word_ids=windows.word_ids,
        type_ids=windows.type_ids,
        offsets=windows.offsets,
        max_length=max_length,
        pad_token_id=pad_token_id,
    )


def _described(answered: Answered, null_threshold: float | None, n_best: int) -> dict[str, Any]:
    """Formats an answer as in `Span.predict`."""
    if answered.text(null_threshold) and answered.best is not None:
        description = _described_answer(answered.best)
    else:
        description = {"answer": "", "start": None, "end": None, "score": round(answered.null_score, 6)}
        description["probability"] = round(1 - sum(answer.probability for answer in answered.answers), 6)
    if n_best:
        description["answers"] = [_described_answer(answer) for answer in answered.answers[:n_best]]
    return description


def _described_answer(answer: Answer) -> dict[str, Any]:
    return {
        "answer": answer.text,
        "start": answer.start,
        "end": answer.end,
        "score": round(answer.score, 6),
        "probability": round(answer.probability, 6),
    }
