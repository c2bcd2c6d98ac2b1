"""Embed texts with a model directory or a bundle, compare pairs, and search.

Reads lines of text, or JSON lines with "text", from --input or standard input. Writes one JSON object per line with the
"embedding", or with --output=FILE.npy a float32 array with a row for each text. JSON lines with "text" and "pair" give
the "similarity", the cosine between both embeddings.

With a model for separate pairs, the embeddings are the vectors for its head. pocketbert predict gives the head's
answers for pairs.

--search=FILE embeds the lines in a file, too, and prints the --top-k nearest for each input text, with their line
numbers and similarities. --prompt-name and --search-prompt-name select the model's prompts, such as query and passage.

Example:
  pocketbert embed --model=models/all-minilm --input=sentences.txt --output=vectors.npy
  echo "How do I reset my password?" | pocketbert embed --model=bundles/minilm --search=questions.txt --top-k=3
  pocketbert embed --model=bundles/minilm --input=pairs.jsonl > similarities.jsonl
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pocketbert.commands.command_line import Options
from pocketbert.errors import UserError, raise_if_any
from pocketbert.options import FilePath, ModelOrBundlePath, option_problems
from pocketbert_export.commands import answer_lines
from pocketbert_export.commands.predict import LINES_A_CHUNK, decoded, opened_input, read_rows, text_chunks

if TYPE_CHECKING:
    import numpy as np

    from pocketbert.tasks.predictor import Predictor

_ARRAY = ".npy"


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbedOptions:
    """Model, input and output for embeddings.

    Attributes:
      model: a model directory or a bundle with sentence embeddings, or for separate pairs.
      input: file to read (default: standard input).
      format: input format; auto detects it.
      prompt_name: name of the model's prompt in front of each text (default: the model's default prompt).
      search: file with texts, one per line; prints the nearest ones for each input text.
      search_prompt_name: name of the prompt in front of the texts in --search (default: the model's default prompt).
      top_k: number of texts that --search prints.
      output: a .npy or .jsonl file to write (default: JSON lines on standard output).
      overwrite: replace --output.
    """

    GROUP: ClassVar = "Input"

    model: ModelOrBundlePath
    input: FilePath | None = None
    format: Literal["auto", "lines", "jsonl"] = "auto"
    prompt_name: str | None = None
    search: FilePath | None = None
    search_prompt_name: str | None = None
    top_k: int = 5
    output: FilePath | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        problems = option_problems(self)
        suffix = Path(self.output).suffix.lower() if self.output else ".jsonl"
        if suffix not in (_ARRAY, ".jsonl"):
            problems.append(f"--output must end in .npy or .jsonl; received {self.output}")
        if suffix == _ARRAY and self.search:
            problems.append(f"--search prints JSON lines; received --output={self.output}; name a .jsonl file")
        raise_if_any(problems, "embed")


OPTIONS = (EmbedOptions,)


def run(options: Options) -> None:
    """Writes embeddings, similarities or nearest texts."""
    chosen = options[EmbedOptions]
    from pocketbert.files import check_absent

    if chosen.output:
        check_absent(chosen.output, overwrite=chosen.overwrite)
    with opened_input(chosen.input) as stream:
        from pocketbert_export.bundles.predictors import limit_remedy, open_text_predictor

        embedder = _Embedder(open_text_predictor(chosen.model), chosen.prompt_name, chosen.search_prompt_name)
        rows = read_rows(stream, chosen.format, chosen.input or "standard input")
        if chosen.output and Path(chosen.output).suffix.lower() == _ARRAY:
            _write_array(embedder, rows, chosen)
            embedder.log_truncated(limit_remedy(chosen.model))
            return
        documents = _read_lines(chosen.search) if chosen.search else {}
        size = 1 if stream.isatty() else LINES_A_CHUNK
        with answer_lines.opened(chosen.output, "jsonl", ["text"], overwrite=chosen.overwrite) as write:
            vectors = embedder.documents([*documents.values()]) if documents else None
            for chunk in text_chunks(rows, size):
                write(_answers(embedder, chunk, [*documents.items()], vectors, chosen.top_k))
        embedder.log_truncated(limit_remedy(chosen.model))


class _Embedder:
    """Embeds texts with prompts."""

    def __init__(self, predictor: Predictor, prompt: str | None, document_prompt: str | None) -> None:
        from pocketbert.tasks.embedding import SentenceEmbedding

        if not isinstance(predictor.task, SentenceEmbedding):
            raise UserError(
                f"embed needs a model with sentence embeddings; received {predictor.task.kind}; use pocketbert predict"
            )
        self._task, self._predictor = predictor.task, predictor
        self._count = self._truncated = 0
        prompts = dict(predictor.task.embedding.prompts)
        for name in (prompt, document_prompt):
            if name is not None and name not in prompts:
                raise UserError(f"the model's prompts are {', '.join(prompts) or 'none'}; received {name!r}")
        self._prompts = [None if name is None else prompts[name] for name in (prompt, document_prompt)]

    def log_truncated(self, remedy: str) -> None:
        """Logs how many texts were cut, if any."""
        from pocketbert.data.data_warnings import truncation_warning
        from pocketbert.progress import log_info

        longest, how = self._predictor.max_length, self._predictor.tokenizer.vocabulary.truncation
        if line := truncation_warning("embed", self._truncated, self._count, longest, remedy, how):
            log_info(f"pocketbert {line}")

    def texts(self, texts: Sequence[str]) -> np.ndarray:
        return self._embed(texts, self._prompts[0])

    def documents(self, texts: Sequence[str]) -> np.ndarray:
        return self._embed(texts, self._prompts[1])

    def _embed(self, texts: Sequence[str], prompt: str | None) -> np.ndarray:
        from pocketbert.data.data_warnings import count_truncated

        predictor = self._predictor
        own_prompt = self._task.embedding.prompt if prompt is None else prompt
        self._count += len(texts)
        self._truncated += count_truncated(
            [own_prompt + text for text in texts], None, predictor.tokenizer, predictor.max_length
        )
        return self._task.embed(texts, predictor.forward, predictor.tokenizer, predictor.max_length, prompt=prompt)


def _answers(
    embedder: _Embedder,
    chunk: list[dict[str, str]],
    documents: Sequence[tuple[int, str]],
    vectors: np.ndarray | None,
    top_k: int,
) -> list[dict[str, Any]]:
    from pocketbert_runtime.answers.vectors import cosines, search

    chunk_vectors = embedder.texts([row["text"] for row in chunk])
    if vectors is not None:
        indices, values = search(chunk_vectors, vectors, top_k)
        return [
            {
                "text": row["text"],
                "nearest": [
                    {"line": documents[index][0], "text": documents[index][1], "similarity": round(float(value), 6)}
                    for index, value in zip(*nearest, strict=True)
                ],
            }
            for row, *nearest in zip(chunk, indices, values, strict=True)
        ]
    if "pair" in chunk[0]:
        similar = cosines(chunk_vectors, embedder.documents([row["pair"] for row in chunk]))
        return [{**row, "similarity": round(float(value), 6)} for row, value in zip(chunk, similar, strict=True)]
    return [{**row, "embedding": vector.tolist()} for row, vector in zip(chunk, chunk_vectors, strict=True)]


def _write_array(embedder: _Embedder, rows: Iterator[dict[str, str]], chosen: EmbedOptions) -> None:
    import numpy as np

    from pocketbert.files import new_file

    assert chosen.output is not None
    parts = []
    for chunk in text_chunks(rows, LINES_A_CHUNK):
        if "pair" in chunk[0]:
            raise UserError("pairs give similarities, as JSON lines; received a .npy --output; name a .jsonl file")
        parts.append(embedder.texts([row["text"] for row in chunk]))
    if not parts:
        raise UserError(f"{chosen.input or 'standard input'} must have at least one text; received none")
    with new_file(chosen.output, overwrite=chosen.overwrite) as stream:
        np.save(stream, np.concatenate(parts))
    print(chosen.output)


def _read_lines(path: str) -> dict[int, str]:
    """Line number → text, for each line with text."""
    with opened_input(path, "--search") as stream:
        lines = enumerate(decoded(stream, path), start=1)
        texts = {number: line.rstrip("\r\n") for number, line in lines if line.strip()}
    if not texts:
        raise UserError(f"--search must have at least one text; received {path} without any")
    return texts
