"""Several heads on one encoder, such as an intent and its slots: each head answers each text.

An output starts with its head's name: `intent_logits`, `slots_token_logits`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pocketbert_runtime.answers.base import Answers
from pocketbert_runtime.answers.classification import ClassAnswers
from pocketbert_runtime.answers.inputs import texts_and_pairs
from pocketbert_runtime.answers.multi_label import LabelAnswers
from pocketbert_runtime.answers.regression import ScoreAnswers
from pocketbert_runtime.answers.tag_rows import TEXTS_A_CALL, TagRows
from pocketbert_runtime.answers.texts import TextAnswers
from pocketbert_runtime.answers.token_classification import TagAnswers, described_rows
from pocketbert_runtime.answers.words import split_words
from pocketbert_runtime.errors import UserError
from pocketbert_runtime.forward import Forward, Outputs, check_finite_answers
from pocketbert_runtime.rows import token_rows
from pocketbert_runtime.task_config import TaskConfig
from pocketbert_runtime.windows import WindowOptions

_T = TypeVar("_T")


def output_name(part: str, output: str) -> str:
    """Returns the model's output name, from the head's own name for it, `output`."""
    return f"{part}_{output}"


def part_of(output: str) -> str:
    """Returns the head's name for an output or a metric."""
    return output.partition("_")[0]


def part_outputs(part: str, outputs: Mapping[str, _T]) -> dict[str, _T]:
    """Returns a head's outputs by its own names."""
    return {name.partition("_")[2]: value for name, value in outputs.items() if part_of(name) == part}


# Kinds that a head can have; `TaskConfig` checks them.
_HEADS: dict[str, type[Answers]] = {
    answers.kind: answers for answers in (ClassAnswers, LabelAnswers, ScoreAnswers, TagAnswers)
}


class HeadAnswers(Answers):
    """One answer per head for a text."""

    kind = "several"
    output_names: tuple[str, ...] = ()

    def __init__(self, config: TaskConfig) -> None:
        super().__init__(config)
        self._parts = {part.name: self._part(part) for part in config.tasks or ()}
        self.output_names = tuple(
            output_name(name, output) for name, part in self._parts.items() for output in part.output_names
        )

    def _part(self, config: TaskConfig) -> Any:
        """Returns a head's task."""
        return _HEADS[config.kind](config)

    @property
    def parts(self) -> Mapping[str, Any]:
        """Tasks by head name."""
        return self._parts

    def of_output(self, name: str) -> Any:
        """Returns the task for an output."""
        return self._parts[part_of(name)]

    def predict(
        self, inputs: Sequence[Any], forward: Forward, tokenizer: Any, max_length: int, **options: Any
    ) -> list[dict[str, Any]]:
        """Predicts with all heads for texts, such as `{"intent": {"label": …}, "slots": {"spans": […]}}`."""
        answers = []
        for start in range(0, len(inputs), TEXTS_A_CALL):
            texts, pairs = texts_and_pairs(inputs[start : start + TEXTS_A_CALL])
            if pairs is not None:
                raise UserError(f"inputs must be texts; received a pair, {inputs[start]!r:.80}; pass one text each")
            rows = self._tag_rows(texts, tokenizer, max_length)
            # All heads read the same tokens.
            encoded = [of_head.encoded for of_head in rows.values()] or [token_rows(texts, None, tokenizer, max_length)]
            answers += self.described(check_finite_answers(forward(encoded[0])), rows, len(texts), **options)
        return answers

    def _tag_rows(self, texts: Sequence[str], tokenizer: Any, max_length: int) -> dict[str, TagRows]:
        """Returns rows by name for the heads with tags."""
        names = [name for name, part in self.parts.items() if isinstance(part, TagAnswers)]
        words = [split_words(text) for text in texts] if names else []
        arguments = texts, words, tokenizer, WindowOptions(max_length=max_length)
        return {name: TagRows(self.parts[name], *arguments, truncated=True) for name in names}

    def described(
        self, outputs: Outputs, rows: Mapping[str, TagRows], count: int, **options: Any
    ) -> list[dict[str, Any]]:
        """Returns all heads' answers as from `predict`.

        Args:
          outputs: outputs for the texts.
          rows: the texts' rows for each head with tags.
          count: number of texts.
          **options: options for the heads' tasks.
        """
        answers: list[dict[str, Any]] = [{} for _ in range(count)]
        for name, part in self.parts.items():
            of_head = part_outputs(name, outputs)
            if name in rows:
                described = described_rows(rows[name], of_head, soft_labels=bool(options.get("soft_labels")))
            else:
                assert isinstance(part, TextAnswers)
                described = part.describe(of_head["logits"], **options)
            for answer, values in zip(answers, described, strict=True):
                answer[name] = values
        return answers
