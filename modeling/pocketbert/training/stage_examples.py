"""A run's examples as tokens: the same whether its teacher is live or cached, and for the cache itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pocketbert.data.batches import EncodedExamples
from pocketbert.data.packing import pack
from pocketbert.data.task_data import TaskData, TextData
from pocketbert.data.text import read_documents
from pocketbert.progress import log_info
from pocketbert.tasks.registry import supervised_task
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
from pocketbert.training.stage import Stage


class StageExamples:
    """The examples of a run, encoded on first use.

    Args:
      data: the run's; pretraining examples are tokens already.
      tokenizer: the run's.
      seed: decides how text is packed.
      windows: other fields of `WindowOptions`, for questions on paragraphs.
    """

    def __init__(
        self, data: Any, tokenizer: WordPieceTokenizer, seed: int, windows: Mapping[str, Any] | None = None
    ) -> None:
        self._data, self._tokenizer, self._seed, self._windows = data, tokenizer, seed, windows or {}
        self._encoded: dict[tuple[str, int, int], EncodedExamples] = {}

    def of_stage(self, stage: Stage) -> EncodedExamples:
        """What a stage learns from, but for pretraining examples."""
        return self.encoded(stage.data, stage.max_length, stage.text_segments)

    def encoded(self, data: str, max_length: int, text_segments: Literal[1, 2] = 1) -> EncodedExamples:
        """Examples as tokens.

        Args:
          data: `text`, `task`, `augmented` (the task's own where there are none) or `dev`.
          max_length: tokens; longer texts are truncated, and plain text is packed into inputs of this length.
          text_segments: segments per input of plain text.
        """
        key = data, max_length, text_segments
        if key not in self._encoded:
            self._encoded[key] = self._encode(*key)
        return self._encoded[key]

    def _encode(self, data: str, max_length: int, text_segments: Literal[1, 2]) -> EncodedExamples:
        given = self._data
        if isinstance(given, TextData):
            log_info(f"packing {given.path} into inputs of {max_length} tokens")
            return pack(
                read_documents(given.path), self._tokenizer, max_length, segments=text_segments, seed=self._seed
            )
        assert isinstance(given, TaskData)
        if data == "augmented" and given.augmented is None:
            return self.encoded("task", max_length)
        examples = {"task": given.train, "augmented": given.augmented, "dev": given.dev}[data]
        assert examples is not None
        log_info(f"tokenizing {len(examples)} examples ({data})")
        return supervised_task(given.task).encode(examples, self._tokenizer, max_length, **self._windows)
