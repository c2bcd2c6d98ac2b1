"""An ALBERT with Chinese characters that is fine-tuned on names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tiny

import pocketbert as pb
from pocketbert.data.task_data import TaskData
from pocketbert.training.config import FinetuneConfig

SURNAMES, GIVEN, OTHERS = "王李张刘陈", "伟芳娜敏静强", "的在是了和说去来看书天人"
PIECES = [*"[PAD] [UNK] [CLS] [SEP] [MASK]".split(), *SURNAMES, *GIVEN, *OTHERS]
CONFIG = tiny.BERT.replace(
    model_type="albert",
    vocab_size=len(PIECES),
    hidden_size=40,
    num_layers=2,
    head_size=8,
    embedding_size=28,
    embedding_projection="output",
    layer_groups=1,
    hidden_dropout=0.0,
    attention_dropout=0.0,
    pooler="none",
)


def write_sentences(path: Path, count: int, seed: int) -> None:
    """Sentences of characters, each a word: names of a surname and one or two characters among others."""
    random, sentences = np.random.default_rng(seed), []
    for _ in range(count):
        words: list[tuple[str, str]] = []
        for _ in range(int(random.integers(1, 4))):
            words += [(str(word), "O") for word in random.choice([*OTHERS], random.integers(1, 4))]
            name = [random.choice([*SURNAMES]), *random.choice([*GIVEN], random.integers(1, 3))]
            words += [(str(word), "I-PER" if index else "B-PER") for index, word in enumerate(name)]
        sentences.append("".join(f"{word} {tag}\n" for word, tag in words))
    path.write_text("\n".join(sentences), encoding="utf-8")


def data_of(folder: Path) -> TaskData:
    return pb.data.tagged(folder / "train.conll", dev=folder / "dev.conll")


def write_run(folder: Path) -> Path:
    """Writes `train.conll` and `dev.conll`, and fine-tunes the network in `run`; returns its model directory."""
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES), encoding="utf-8")
    tokenizer = pb.WordPieceTokenizer(folder / "vocab.txt")
    pb.from_preset(CONFIG, tokenizer=tokenizer, seed=3).save_pretrained(folder / "start")
    write_sentences(folder / "train.conll", 150, 1)
    write_sentences(folder / "dev.conll", 41, 2)
    config = FinetuneConfig(epochs=8, batch_size=16, learning_rate=3e-3, max_length=23)
    return pb.finetune(folder / "start", data_of(folder), folder / "run", config=config).model_directory
