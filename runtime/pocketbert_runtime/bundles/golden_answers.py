"""Golden answers: texts with their ids, offsets and final answers, in `answers.jsonl`.

Export writes them. Programs in every language compare their tokenizer and their answers with them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pocketbert_runtime.answers.base import Answers, Evidence
from pocketbert_runtime.answers.best_spans import N_BEST
from pocketbert_runtime.answers.inputs import texts_and_pairs
from pocketbert_runtime.answers.several import part_outputs
from pocketbert_runtime.answers.span import SpanAnswers
from pocketbert_runtime.errors import UserError
from pocketbert_runtime.forward import Forward, Outputs
from pocketbert_runtime.json_reading import parse_json, read_members
from pocketbert_runtime.rows import TokenRows, token_rows
from pocketbert_runtime.tokenizers.base import TextTokenizer, Tokens

MOST_LINES = 50
MOST_BYTES = 200_000
# The members of an input, as in JSONL files for `predict`.
_FORMS = (("question", "context"), ("text", "pair"), ("text",))
_LINE = {
    "text": str | None, "pair": str | None, "question": str | None, "context": str | None,
    "windows": list[dict[str, Any]], "answer": dict[str, Any] | None,
}  # fmt: skip
_WINDOW = {"ids": list[int], "type_ids": list[int] | None, "offsets": list[list[int]]}
# Probabilities have six decimals, here and in the file.
_ROUNDING = 1.1e-6
_MOST_SHOWN = 5


class Window(NamedTuple):
    """A row that the network reads.

    Attributes:
      ids: token ids without padding.
      type_ids: segments; None for a tokenizer with one segment.
      offsets: each token's start and end in code points of its text, behind the prompt in front of it, which counts;
        (0, 0) for special tokens.
    """

    ids: tuple[int, ...]
    type_ids: tuple[int, ...] | None
    offsets: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class GoldenLine:
    """A line of `answers.jsonl`.

    Attributes:
      inputs: `text`; `text` and `pair`; or `question` and `context`.
      windows: the rows that the network reads: one for a task that truncates texts, one or more for questions and
        spans, and two for a pair whose texts are encoded apart.
      answer: the answer of `Bundle.predict`; None for a network without a task.
    """

    inputs: Mapping[str, str]
    windows: tuple[Window, ...]
    answer: Mapping[str, Any] | None

    @property
    def text(self) -> str:
        """The text, the first text of a pair, or the question."""
        return next(iter(self.inputs.values()))

    @property
    def pair(self) -> str | None:
        """The second text, or the question's paragraph; None for a single text."""
        return [*self.inputs.values(), None][1]

    def to_json(self) -> str:
        """Returns the line, without a line break."""
        windows = [
            {name: value for name, value in window._asdict().items() if value is not None} for window in self.windows
        ]
        content = {**self.inputs, "windows": windows, "answer": self.answer}
        return json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class GoldenReader:
    """Encodes and answers golden texts as `Bundle.predict` does.

    Args:
      task: the network's task; None for a network without answers.
      tokenizer: the network's tokenizer.
      max_length: maximum tokens per input or window.
      forward: runs the network; None to encode only.
    """

    def __init__(self, task: Answers | None, tokenizer: Any, max_length: int, forward: Forward | None = None) -> None:
        self._task, self._tokenizer, self._max_length, self._forward = task, tokenizer, max_length, forward

    @property
    def pad_token_id(self) -> int:
        """Padding id."""
        return int(self._tokenizer.pad_token_id)

    def windows(self, inputs: Sequence[Mapping[str, str]]) -> tuple[Window, ...]:
        """Returns the rows for one or more inputs with the same members, one input after the other."""
        positions = _PositionTokenizer(self._tokenizer)
        rows, rows_of_positions = self._rows(inputs, self._tokenizer), self._rows(inputs, positions)
        has_types = self._tokenizer.frame.second_segment > 0
        windows = []
        for first, last in zip(rows.offsets, rows.offsets[1:], strict=False):
            tokens = rows_of_positions.word_ids[first:last].tolist()
            windows.append(
                Window(
                    ids=tuple(rows.word_ids[first:last].tolist()),
                    type_ids=tuple(rows.type_ids[first:last].tolist()) if has_types else None,
                    offsets=tuple(positions.offsets[token] for token in tokens),
                )
            )
        return tuple(windows)

    def _rows(self, inputs: Sequence[Mapping[str, str]], tokenizer: Any) -> TokenRows:
        if self._task is None:
            texts, pairs = texts_and_pairs(inputs)
            return token_rows(texts, pairs, tokenizer, self._max_length)
        try:
            self._task.predict(inputs, _stop, tokenizer, self._max_length)
        except _RowsRead as read:
            return read.rows
        raise AssertionError("a task runs its network on inputs")

    def answer(self, inputs: Mapping[str, str]) -> tuple[dict[str, Any], Evidence] | None:
        """Returns an input's answer, and what it rests on; None for a network without a task.

        Raises:
          UserError: an output is not finite, or the runtime cannot run the file.
        """
        task, run = self._task, self._forward
        if task is None or run is None:
            return None
        outputs: list[Outputs] = []

        def forward(encoded: TokenRows, *, show_progress: bool = False) -> Outputs:
            outputs.append(run(encoded))
            return outputs[-1]

        options = {"n_best": N_BEST} if isinstance(task, SpanAnswers) else {}
        (answer,) = task.predict([inputs], forward, self._tokenizer, self._max_length, **options)
        return answer, Evidence(outputs[0], tuple(answer.pop("answers")) if options else ())

    def line(self, inputs: Mapping[str, str]) -> tuple[GoldenLine, Outputs]:
        """Makes a line for `answers.jsonl`, and returns the network's outputs for it, without padding."""
        windows, answered = self.windows([inputs]), self.answer(inputs)
        answer, outputs = (None, {}) if answered is None else (_rounded(answered[0]), answered[1].outputs)
        return GoldenLine(inputs=inputs, windows=windows, answer=answer), outputs

    def problems(self, lines: Sequence[GoldenLine], tolerance: float) -> list[str]:
        """Compares lines with this tokenizer and network; lists each line with other ids, offsets or answers.

        Args:
          lines: the golden lines.
          tolerance: largest difference of a probability, score or vector element.
        """
        listed = []
        for number, line in enumerate(lines, start=1):
            if problems := self._line_problems(line, tolerance):
                more = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
                listed.append(f"{line_subject(number, line)} {problems[0]}{more}")
        return listed

    def _line_problems(self, line: GoldenLine, tolerance: float) -> list[str]:
        windows = self.windows([line.inputs])
        if problems := window_problems(line.windows, windows):
            return problems
        answered = self.answer(line.inputs)
        if answered is None or line.answer is None or self._task is None:
            rule = "no answer, because the bundle has no task" if answered is None else "an answer"
            return [] if answered is None and line.answer is None else [f"must have {rule}; received {line.answer}"]
        answer, evidence = answered
        offsets = np.array([offset for window in windows for offset in window.offsets], np.int64).reshape(-1, 2)
        evidence = evidence._replace(offsets=offsets)
        return [*_answer_problems(self._task, line.answer, answer, tolerance, evidence)]


def window_problems(expected: Sequence[Window], windows: Sequence[Window]) -> list[str]:
    """Lists differences between an input's golden windows and a tokenizer's."""
    if len(expected) != len(windows):
        return [f"must have {len(expected)} windows; the tokenizer gives {len(windows)}"]
    return [
        f"must have the {name} {_shown(golden)}; the tokenizer gives {_shown(received)}"
        for both in zip(expected, windows, strict=True)
        for name, golden, received in zip(Window._fields, *both, strict=True)
        if golden != received
    ]


def read_lines(content: bytes, path: Path) -> tuple[GoldenLine, ...]:
    """Reads `answers.jsonl`.

    Args:
      content: the file's bytes.
      path: its path, for messages.
    Raises:
      UserError: the file is cut, too large, has too many lines, or a line is not as in the format.
    """
    lines = content.split(b"\n")
    if lines.pop():
        raise UserError(f"{path} must end with a line break; its last line is cut; copy it again")
    if len(content) > MOST_BYTES or not 1 <= len(lines) <= MOST_LINES:
        raise UserError(
            f"{path} must have 1 to {MOST_LINES} lines and at most {MOST_BYTES:,} bytes; received {len(lines)} lines "
            f"and {len(content):,} bytes; export the bundle again"
        )
    return tuple(_line(line, f"{path}: line {number}") for number, line in enumerate(lines, start=1))


def _line(content: bytes, where: str) -> GoldenLine:
    value = parse_json(content, where, most_bytes=MOST_BYTES)
    members = read_members(value, _LINE, where)
    names = next((form for form in _FORMS if {*value} == {*form, "windows", "answer"}), ())
    if not names or None in [members[name] for name in names]:
        raise UserError(
            f"{where} must have text, text and pair, or question and context, beside windows and answer; received "
            f"{', '.join(value)[:120]}; export the bundle again"
        )
    windows = tuple(_window(window, f"{where}: windows[{number}]") for number, window in enumerate(members["windows"]))
    if not windows:
        raise UserError(f"{where} must have windows; received none; export the bundle again")
    inputs = {name: members[name] for name in names}
    return GoldenLine(inputs=inputs, windows=windows, answer=members["answer"])


def _window(value: Any, where: str) -> Window:
    members = read_members(value, _WINDOW, where)
    count, types, offsets = len(members["ids"]), members["type_ids"], members["offsets"]
    if not count or len(offsets) != count or len(types or offsets) != count or any(len(pair) != 2 for pair in offsets):
        raise UserError(
            f"{where} must have a start and an end in offsets, and one of type_ids, for each of the ids; received "
            f"{count} ids, {len(offsets)} offsets and {len(types or ())} type_ids; export the bundle again"
        )
    if min(members["ids"]) < 0 or not {*(types or ())} <= {0, 1}:
        raise UserError(
            f"{where}: ids must be at least 0, and type_ids 0 or 1; received others; export the bundle again"
        )
    return Window(
        ids=tuple(members["ids"]),
        type_ids=None if types is None else tuple(types),
        offsets=tuple((start, end) for start, end in offsets),
    )


class _RowsRead(Exception):
    """Stops a prediction before its network runs."""

    def __init__(self, rows: TokenRows) -> None:
        self.rows = rows


def _stop(encoded: TokenRows, *, show_progress: bool = False) -> Outputs:
    raise _RowsRead(encoded)


class _PositionTokenizer(TextTokenizer):
    """A tokenizer whose ids are indices into `offsets`: rows of it tell where their tokens are.

    Args:
      tokenizer: gives the tokens.
    Attributes:
      offsets: start and end of each token so far; at index 0, those for special tokens.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.vocabulary = tokenizer.vocabulary
        self.frame = dataclasses.replace(tokenizer.frame, first=0, last=0, pad=0)
        self.offsets = [(0, 0)]
        self._tokenizer = tokenizer

    def _ids_of(self, texts: Sequence[str]) -> list[list[int]]:
        return [list(tokens.ids) for tokens in self._tokens_of(texts)]

    def _tokens_of(self, texts: Sequence[str]) -> list[Tokens]:
        _, starts, ends, splits = self._tokenizer.tokens(texts)
        rows = []
        for first, last in zip(splits, splits[1:], strict=False):
            before = len(self.offsets)
            self.offsets += zip(starts[first:last].tolist(), ends[first:last].tolist(), strict=True)
            rows.append(Tokens(range(before, len(self.offsets)), starts[first:last], ends[first:last]))
        return rows


def _answer_problems(
    task: Answers, expected: Mapping[str, Any], answer: Mapping[str, Any], tolerance: float, evidence: Evidence
) -> Iterator[str]:
    if task.parts and expected.keys() == answer.keys():
        for name, part in task.parts.items():
            of_part = evidence._replace(outputs=part_outputs(name, evidence.outputs))
            if not isinstance(expected[name], dict):
                yield f"must have an object as {name}; received {_shown(expected[name])}"
                continue
            for problem in _answer_problems(part, expected[name], answer[name], tolerance, of_part):
                yield f"{name}: {problem}"
        return
    if expected.keys() != answer.keys():
        yield f"must have an answer with {', '.join(expected)}; the bundle answers with {', '.join(answer)}"
        return
    tied = task.near_ties(expected, answer, tolerance, evidence)
    for name in answer:
        if name not in tied:
            yield from _differences(expected[name], answer[name], tolerance + _ROUNDING, name)


def _differences(expected: Any, value: Any, tolerance: float, name: str) -> Iterator[str]:
    """Yields a sentence for each number that differs by more than the tolerance, and for any other difference."""
    both = expected, value
    if all(isinstance(part, dict) for part in both) and expected.keys() == value.keys():
        for key in value:
            yield from _differences(expected[key], value[key], tolerance, f"{name}.{key}")
    elif all(isinstance(part, list) for part in both) and len(expected) == len(value):
        for number, parts in enumerate(zip(expected, value, strict=True)):
            yield from _differences(*parts, tolerance, f"{name}[{number}]")
    elif isinstance(value, float) and type(expected) in (int, float):
        if not abs(expected - value) <= tolerance:
            yield f"must have the {name} {expected:.6g}, up to {tolerance:.2g}; the bundle answers {value:.6g}"
    elif expected != value or type(expected) is not type(value):
        yield f"must have the {name} {_shown(expected)}; the bundle answers {_shown(value)}"


def _rounded(value: Any) -> Any:
    """Rounds numbers to six decimals, as probabilities are: the digits of float32 would double the file."""
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return round(value, 6) if isinstance(value, float) else value


def line_subject(number: int, line: GoldenLine) -> str:
    """Names a line in a message."""
    return f"line {number} ({_shown(line.text)})"


def shown_problems(problems: Sequence[str]) -> list[str]:
    """Shortens a list for one message."""
    more = len(problems) - _MOST_SHOWN
    return [*problems[:_MOST_SHOWN], *([f"and {more} more"] if more > 0 else [])]


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:59]}…"
