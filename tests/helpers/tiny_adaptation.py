"""Tiny encoders of all families with their tokenizers, and a text for masked LM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tiny_models import (
    random_tensors,
    tiny_bert,
    tiny_distilbert,
    tiny_electra,
    tiny_mobilebert,
    tiny_modernbert,
    tiny_roberta,
    tiny_xlm_roberta,
)
from tiny_tokenizers import byte_bpe_files, unigram_file

from pocketbert.checkpoints.directory import write_directory
from pocketbert.configs import EncoderConfig, TaskConfig, TokenizerConfig
from pocketbert.tokenizers.opening import open_tokenizer
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

MAX_LENGTH = 13
MASKED_LM = TaskConfig(kind="masked_lm", dropout=0.0)
WORDS = "the cat cats sat on mat charming journey journeys film better don't café straße".split()
# Subwords of these words, so that most of them have several tokens.
PIECES = [*"[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on mat charm journey film bet don cafe stra . ' a".split()]
PIECES += [f"##{piece}" for piece in "s ing ter ß e t ss".split()] + ["##r", "t", "s"]
# Family -> architecture, tokenizer and transformers' class, empty for none. MiniLM is a BERT, with XLM-R's tokenizer.
FAMILIES: dict[str, tuple[EncoderConfig, str, str]] = {
    "bert": (tiny_bert(), "wordpiece", "TFBertForMaskedLM"),
    "roberta": (tiny_roberta(pooler="none"), "byte_bpe", "TFRobertaForMaskedLM"),
    "xlm_roberta": (tiny_xlm_roberta(pooler="none"), "unigram", "TFXLMRobertaForMaskedLM"),
    "distilbert": (tiny_distilbert(), "wordpiece", "TFDistilBertForMaskedLM"),
    "electra": (tiny_electra(), "wordpiece", "TFElectraForMaskedLM"),
    "minilm": (tiny_bert(num_layers=3, activation="gelu"), "unigram", "TFBertForMaskedLM"),
    "mobilebert": (tiny_mobilebert("bottleneck"), "wordpiece", "TFMobileBertForMaskedLM"),
    "modernbert": (tiny_modernbert(), "byte_bpe", ""),
}


def vocabulary(folder: Path, kind: str) -> Vocabulary:
    """A tokenizer's files."""
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "byte_bpe":
        path, merges = byte_bpe_files(folder)
        return Vocabulary(path=path, merges=merges, kind="byte_bpe")
    if kind == "unigram":
        return Vocabulary(path=unigram_file(folder), kind="unigram")
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES), "utf-8")
    return Vocabulary(path=folder / "vocab.txt", config=TokenizerConfig())


def write_encoder(folder: Path, family: str, tasks: Sequence[TaskConfig] = (MASKED_LM,)) -> Path:
    """A model directory with random weights, a tokenizer and a masked-LM head."""
    config, kind, _ = FAMILIES[family]
    files = vocabulary(folder.parent / f"{folder.name}-{kind}", kind)
    tokenizer = open_tokenizer(files)
    config = config.replace(vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.pad_token_id)
    tensors = {path: 0.2 * tensor for path, tensor in random_tensors(config, tasks).items()}
    write_directory(folder, config, tasks, tensors, files)
    return folder


def lines(count: int, seed: int = 0) -> list[str]:
    """Lines of one or two sentences."""
    random = np.random.default_rng(seed)
    return [
        " ".join(f"{' '.join(random.choice(WORDS, random.integers(2, 7))).capitalize()}." for _ in range(1 + index % 2))
        for index in range(count)
    ]


def write_lines(path: Path, count: int = 63, seed: int = 0) -> Path:
    """A text with a line for each text, without empty lines."""
    path.write_text("\n".join(lines(count, seed)) + "\n", "utf-8")
    return path


def command_line(folder: Path, family: str = "bert", *more: str) -> list[str]:
    """A `pretrain` of 5 steps, over more than one epoch. `folder` gets what it reads."""
    return [
        "pretrain", "--objective=mlm", f"--model={write_encoder(folder / family, family)}",
        f"--text={write_lines(folder / 'lines.txt')}", f"--max-length={MAX_LENGTH}", "--dev-every=7", "--steps=5",
        "--batch-size=12", "--micro-batches=2", "--learning-rate=1e-2", "--seeds=5", "--evaluation-steps=2",
        "--checkpoint-seconds=0", *more,
    ]  # fmt: skip
