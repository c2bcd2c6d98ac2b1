"""SST-2 with half the vocabulary: the 6x384 network, trimmed to Wikipedia or to SST-2's sentences, then fine-tuned.

    python -m studies.trimming.accuracy
    python -m studies.tables

all-MiniLM-L6-v2 keeps half of its tokens: those that occur most often in all of `enwiki2015`, or in the sentences of
SST-2's training split; or every token of these sentences, and the most frequent ones of `enwiki2015`. It is then
fine-tuned on 10,000 of these sentences, like the untrimmed network, with three seeds. Scores are those of the last
epoch on the development set.

Two jobs run in parallel, each in one thread. Rerun the same command to resume; scores in the committed result file are
reused if they were made with the same settings.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.data.assets import minilm
from pocketbert.data.glue import read_glue
from pocketbert.training.published_grids import PUBLISHED_HEAD
from pocketbert_bench.quickstart_training import NETWORK
from studies.jobs import StudyJob
from studies.runs import finetune_to_the_end
from studies.shared_data import shared_data
from studies.sweep import Subject, Sweep, folder_name, job_name

TASK = "sst2"
SEEDS = (0, 1, 2)
EXAMPLES = 10_000
SHARE = 0.5
EPOCHS, BATCH_SIZE, RATE, LENGTH = 3, 32, 5e-5, 64
WHOLE = "whole vocabulary"
WIKIPEDIA, SENTENCES = "half, counted on Wikipedia", "half, counted on SST-2's sentences"
BOTH = "half, SST-2's tokens first, then Wikipedia's"
_HALVES = (WIKIPEDIA, SENTENCES, BOTH)
VOCABULARIES = (WHOLE, *_HALVES)


def trim(vocabulary: str, output: Path) -> str:
    """Trims the network; returns the share of the development set that stays the same, as text."""
    from pocketbert.pruning.vocabulary import trim_vocabulary

    folder = output / _trimmed(vocabulary)
    folder.mkdir(parents=True, exist_ok=True)
    texts = {}
    for split in ("train", "dev"):
        texts[split] = folder / f"{split}.txt"
        sentences = read_glue(TASK, shared_data("glue"), split).texts
        texts[split].write_text("\n".join(sentences) + "\n", encoding="utf-8")
    counted = texts["train"] if vocabulary == SENTENCES else shared_data("text/enwiki2015-train.txt.xz")
    keep = None
    if vocabulary == BOTH:
        keep = folder / "keep.txt"
        keep.write_text("\n".join(_tokens_of(read_glue(TASK, shared_data("glue"), "train").texts)) + "\n", "utf-8")
    trimmed = trim_vocabulary(
        minilm(), [counted], folder / "model", keep_top=_size(), keep=keep, dev_text=[texts["dev"]], overwrite=True
    )
    before, after = trimmed.tokens
    return (
        f"{after:,} of {before:,} tokens; {100 * trimmed.same_tokens:.2f} % of the development set's tokens and "
        f"{100 * trimmed.same_sentences:.2f} % of its sentences stay the same"
    )


def finetune_network(vocabulary: str, task: str, seed: int, output: Path) -> dict[str, Any]:
    """Fine-tunes the network; returns the metrics of its last epoch."""
    from pocketbert.training.config import FinetuneConfig

    start = minilm() if vocabulary == WHOLE else output / _trimmed(vocabulary) / "model"
    options = FinetuneConfig(
        **PUBLISHED_HEAD, learning_rate=RATE, epochs=EPOCHS, batch_size=BATCH_SIZE, max_length=LENGTH
    )
    folder = output / job_name(NETWORK, vocabulary, task, seed)
    return finetune_to_the_end(start, task, folder, options, seed, EXAMPLES)


def _size() -> int:
    return round(SHARE * len(_vocabulary()))


def _vocabulary() -> list[str]:
    return (Path(minilm()) / "vocab.txt").read_text(encoding="utf-8").splitlines()


def _tokens_of(sentences: Sequence[str]) -> list[str]:
    """All tokens of the sentences, by id."""
    from pocketbert.model import from_pretrained

    tokenizer = from_pretrained(minilm()).tokenizer
    assert tokenizer is not None
    ids = np.unique(tokenizer(list(sentences), max_length=LENGTH)["input_word_ids"])
    vocabulary = _vocabulary()
    return [vocabulary[index] for index in ids]


def _trimmed(vocabulary: str) -> str:
    return f"trimmed/{folder_name(vocabulary)}"


def settings() -> dict[str, Any]:
    """All settings that determine the scores, as JSON values."""
    return {
        "share": SHARE,
        "examples": EXAMPLES,
        "epochs": EPOCHS,
        "batch size": BATCH_SIZE,
        "rate": RATE,
        "length": LENGTH,
        "scored": "last epoch",
    }


def _subject(vocabulary: str) -> Subject:
    needs = (_trimmed(vocabulary),) if vocabulary in _HALVES else ()
    return Subject(
        model=NETWORK,
        label=vocabulary,
        call=finetune_network,
        arguments=(vocabulary,),
        needs=lambda task, seed: needs,
    )


SWEEP = Sweep(
    result="trimming/accuracy",
    title="SST-2 with half the vocabulary",
    subjects=tuple(map(_subject, VOCABULARIES)),
    tasks=(TASK,),
    seeds=SEEDS,
    settings=settings,
    preparations=lambda output: [
        StudyJob(name=_trimmed(vocabulary), call=trim, arguments=(vocabulary, output)) for vocabulary in _HALVES
    ],
    recorded={vocabulary: _trimmed(vocabulary) for vocabulary in _HALVES},
)

if __name__ == "__main__":
    sys.exit(SWEEP.main(sys.argv))
