"""A stage's examples as tokens: the same for a run, whether its teacher is live or stored, and for the store itself."""

from __future__ import annotations

from typing import Literal

from pocketbert.data.batches import EncodedExamples
from pocketbert.data.packing import pack
from pocketbert.data.text import read_documents
from pocketbert.distillation.preparation import Preparation
from pocketbert.distillation.stage import Stage
from pocketbert.progress import log_info
from pocketbert.tasks.registry import supervised_task
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer


class StageExamples:
    """The examples of a prepared distillation, encoded when they are first asked for.

    Args:
      preparation: says where they are; its seed decides how text is packed.
      tokenizer: of the preparation's vocabulary.
    """

    def __init__(self, preparation: Preparation, tokenizer: WordPieceTokenizer) -> None:
        self._preparation, self._tokenizer = preparation, tokenizer
        self._encoded: dict[tuple[str, int, int], EncodedExamples] = {}

    def of_stage(self, stage: Stage) -> EncodedExamples:
        """What a stage learns from, but for pretraining's examples."""
        return self.encoded(stage.data, stage.max_length, stage.text_segments)

    def encoded(self, data: str, max_length: int, text_segments: Literal[1, 2] = 1) -> EncodedExamples:
        """Examples as tokens.

        Args:
          data: `text`, `task`, `augmented` (the task's own where there are none) or `dev`.
          max_length: tokens; longer texts are cut, and plain text is packed into pieces of this length.
          text_segments: of each piece of plain text.
        """
        key = data, max_length, text_segments
        if key not in self._encoded:
            self._encoded[key] = self._encode(*key)
        return self._encoded[key]

    def _encode(self, data: str, max_length: int, text_segments: Literal[1, 2]) -> EncodedExamples:
        preparation, task_data = self._preparation, self._preparation.task_data
        if data == "text":
            assert preparation.text is not None
            log_info(f"packing {preparation.text} into pieces of {max_length} tokens")
            documents, seed = read_documents(preparation.text), preparation.run.seed
            return pack(documents, self._tokenizer, max_length, segments=text_segments, seed=seed)
        assert task_data is not None
        if data == "augmented" and task_data.augmented is None:
            return self.encoded("task", max_length)
        examples = {"task": task_data.train, "augmented": task_data.augmented, "dev": task_data.dev}[data]
        assert examples is not None
        log_info(f"tokenizing {len(examples)} examples ({data})")
        return supervised_task(task_data.task).encode(examples, self._tokenizer, max_length)
