"""Sentence embeddings: one vector per text; the cosine between two vectors is the similarity between their texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pocketbert_runtime.answers.base import Answers
from pocketbert_runtime.answers.inputs import texts_and_pairs
from pocketbert_runtime.answers.vectors import cosines
from pocketbert_runtime.errors import UserError
from pocketbert_runtime.forward import Forward, check_finite_answers
from pocketbert_runtime.notation import argument
from pocketbert_runtime.rows import token_rows
from pocketbert_runtime.task_config import TaskConfig

OUTPUT = "embedding"


class VectorAnswers(Answers):
    """A vector for a text, or a pair's similarity.

    Attributes:
      embedding: `TaskConfig.embedding`.
    """

    kind = "embedding"
    output_names = (OUTPUT,)

    def __init__(self, config: TaskConfig) -> None:
        super().__init__(config)
        assert config.embedding is not None
        self.embedding = config.embedding

    def max_length(self, positions: int) -> int:
        """The model's sequence length, at most the encoder's positions."""
        return min(self.embedding.max_length or positions, positions)

    def predict(
        self,
        inputs: Sequence[Any],
        forward: Forward,
        tokenizer: Any,
        max_length: int,
        *,
        prompt_name: str | None = None,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Returns a text's `embedding` as a list of numbers, or a pair's `similarity`, its cosine.

        `prompt_name` selects a prompt in front of each text; None for the default prompt.
        """
        texts, pairs = texts_and_pairs(inputs)
        prompts = dict(self.embedding.prompts)
        if prompt_name is not None and prompt_name not in prompts:
            raise UserError(
                f"{argument('prompt_name')} must be one of {', '.join(prompts) or 'no prompts'}; received "
                f"{prompt_name!r}; leave it out for the default prompt"
            )
        if not texts:
            return []
        prompt = None if prompt_name is None else prompts[prompt_name]
        both = texts if pairs is None else [*texts, *pairs]
        vectors = self.embed(both, forward, tokenizer, max_length, prompt=prompt)
        if pairs is None:
            return [{OUTPUT: vector.tolist()} for vector in vectors]
        return [{"similarity": float(cosine)} for cosine in cosines(*np.split(vectors, 2))]

    def embed(
        self,
        texts: Sequence[str],
        forward: Forward,
        tokenizer: Any,
        max_length: int,
        *,
        prompt: str | None = None,
        show_progress: bool = False,
    ) -> np.ndarray:
        """Embeds texts, as float32 [N, D].

        Args:
          texts: at least one text.
          forward: runs the network.
          tokenizer: the network's tokenizer.
          max_length: maximum sequence length; longer texts are truncated.
          prompt: text in front of each text; None for the default prompt.
          show_progress: print progress to stderr.
        Raises:
          UserError: an embedding is not finite.
        """
        prompt = self.embedding.prompt if prompt is None else prompt
        prompted = [prompt + text for text in texts]
        rows = token_rows(prompted, None, tokenizer, max_length, show_progress=show_progress)
        return check_finite_answers(forward(rows, show_progress=show_progress))[OUTPUT]
