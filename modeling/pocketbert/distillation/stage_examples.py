"""A stage's examples as tokens: the same for a run, whether its teacher is live or stored, and for the store itself."""

from __future__ import annotations

from pocketbert.data.batches import EncodedExamples
from pocketbert.data.packing import pack
from pocketbert.data.text import read_documents
from pocketbert.distillation.preparation import Preparation
from pocketbert.progress import say
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
from pocketbert.training.task_examples import encode_examples


class StageExamples:
    """The examples of a prepared distillation, encoded when they are first asked for.

    Args:
      preparation: says where they are; its seed decides how text is packed.
      tokenizer: of the preparation's vocabulary.
    """

    def __init__(self, preparation: Preparation, tokenizer: WordPieceTokenizer) -> None:
        self._preparation, self._tokenizer = preparation, tokenizer
        self._encoded: dict[tuple[str, int], EncodedExamples] = {}

    def encoded(self, data: str, max_length: int) -> EncodedExamples:
        """Examples as tokens.

        Args:
          data: `text`, `task`, `augmented` (the task's own where there are none) or `dev`.
          max_length: tokens; longer texts are cut, and plain text is packed into pieces of this length.
        """
        if (data, max_length) not in self._encoded:
            self._encoded[data, max_length] = self._encode(data, max_length)
        return self._encoded[data, max_length]

    def _encode(self, data: str, max_length: int) -> EncodedExamples:
        preparation, task_data = self._preparation, self._preparation.task_data
        if data == "text":
            assert preparation.text is not None
            say(f"packing {preparation.text} into pieces of {max_length} tokens")
            return pack(read_documents(preparation.text), self._tokenizer, max_length, seed=preparation.run.seed)
        assert task_data is not None
        if data == "augmented" and task_data.augmented is None:
            return self.encoded("task", max_length)
        examples = {"task": task_data.train, "augmented": task_data.augmented, "dev": task_data.dev}[data]
        assert examples is not None
        say(f"tokenizing {len(examples)} examples ({data})")
        return encode_examples(examples, self._tokenizer, max_length)
