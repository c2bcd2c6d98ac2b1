"""A text of which every word says where it is, its vocabulary, and pretraining data made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

SPECIAL = "[PAD] [UNK] [CLS] [SEP] [MASK]".split()
PAD, CLS, SEP, MASK = 0, 2, 3, 4
DOCUMENTS = 61
FIRST_WORD = len(SPECIAL)


def sentence_lengths() -> list[list[int]]:
    """Words of each sentence of each document."""
    generator = np.random.default_rng(11)
    return [generator.integers(1, 9, generator.integers(1, 14)).tolist() for _ in range(DOCUMENTS)]


def documents() -> list[list[list[int]]]:
    """Ids of each sentence of each document: all different, in order."""
    texts, word = [], FIRST_WORD
    for document in sentence_lengths():
        texts.append([])
        for length in document:
            texts[-1].append(list(range(word, word + length)))
            word += length
    return texts


def write_text(path: Path) -> Path:
    """One file: a sentence a paragraph, an empty line between documents."""
    blocks = ("\n".join(" ".join(f"w{word}" for word in sentence) for sentence in document) for document in documents())
    path.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    return path


def write_vocabulary(path: Path) -> Path:
    """The words, each second of the last ones a continuation too, which the text has not."""
    count = sum(map(sum, sentence_lengths()))
    words = [f"w{word}" for word in range(FIRST_WORD, FIRST_WORD + count)]
    path.write_text("\n".join([*SPECIAL, *words, "##a", "##b"]) + "\n", encoding="utf-8")
    return path


def make(folder: Path, *, text: Path, vocabulary: Path, shards: int = 3, workers: int = 1, **options: Any) -> Path:
    """Pretraining data of at most 21 tokens an example."""
    import pocketbert as pb
    from pocketbert.data.pretraining.options import PretrainingOptions
    from pocketbert.data.pretraining.run import write_pretraining_data

    tokenizer = pb.WordPieceTokenizer(vocabulary, special_tokens_in_text="text")
    chosen = PretrainingOptions(**{"max_length": 21, "seed": 5, **options})
    write_pretraining_data(text, tokenizer, folder, chosen, shards=shards, workers=workers)
    return folder


def command(folder: Path, output: Path, *arguments: str) -> list[str]:
    """The arguments of a `pretrain-data` of a folder's text and vocabulary, with one worker."""
    options = (f"--text={folder / 'text.txt'}", f"--vocab={folder / 'vocab.txt'}", f"--output={output}")
    return ["pretrain-data", *options, "--max-length=21", "--shards=3", "--dev-every=7", "--workers=1", *arguments]


def tree(folder: Path) -> dict[str, bytes]:
    """The files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
