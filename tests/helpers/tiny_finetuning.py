"""A tiny model directory and a task that it learns in seconds."""

from __future__ import annotations

import csv
import functools
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import tiny

from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.examples import Examples

GOOD = "good fine great lovely superb warm".split()
BAD = "bad dull poor awful weak cold".split()
NEUTRAL = "the a film plot actor scene story with and of".split()
SPECIAL = "[PAD] [UNK] [CLS] [SEP] [MASK]".split()
TASK = TaskConfig(kind="classification", name="mood", labels=("low", "high"), dropout=0.1)
# Every kind of random state is in use: dropout on attention, hidden states and head, and shuffling.
CONFIG = tiny.BERT.replace(num_layers=1, initializer_range=0.1)


def write_model(folder: Path, config: EncoderConfig = CONFIG) -> Path:
    """A model directory with random weights and a vocabulary of config.vocab_size tokens, [PAD] at its id."""
    files = _model_files(config)
    folder.parent.mkdir(parents=True, exist_ok=True)
    (folder.parent / f"{folder.name}-vocab.txt").write_bytes(files["vocab.txt"])
    return write_files(folder, files)


# Most modules of the suite begin with such a model, and making it takes a second where others work, too.
@functools.cache
def _model_files(config: EncoderConfig) -> dict[str, bytes]:
    import pocketbert as pb

    special = SPECIAL[1:]
    special.insert(config.pad_token_id, SPECIAL[0])
    pieces = [*special, *GOOD, *BAD, *NEUTRAL]
    pieces += [f"filler{number}" for number in range(config.vocab_size - len(pieces))]
    with tempfile.TemporaryDirectory() as scratch:
        vocabulary, folder = Path(scratch) / "vocab.txt", Path(scratch) / "model"
        vocabulary.write_text("\n".join(pieces) + "\n", encoding="utf-8")
        pb.from_preset(config, tokenizer=pb.WordPieceTokenizer(vocabulary), seed=11).save_pretrained(folder)
        return read_files(folder)


def read_files(folder: Path) -> dict[str, bytes]:
    """Name → content of a folder without folders."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Makes a folder with these files."""
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def examples(count: int, seed: int) -> Examples:
    """Sentences of 2 to 19 words, two of which say the label."""
    random = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(count):
        label = int(random.integers(2))
        words = [*random.choice(NEUTRAL, random.integers(0, 18)), *random.choice(GOOD if label else BAD, 2)]
        random.shuffle(words)
        texts.append(" ".join(words))
        labels.append(label)
    return Examples(texts, None, np.array(labels, np.int32), [str(i) for i in range(count)], "made for the test")


def write_table(path: Path, rows: Examples) -> Path:
    """The examples as a CSV file with the columns text and label."""
    assert rows.labels is not None
    with open(path, "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["text", "label"])
        writer.writerows((text, TASK.labels[label]) for text, label in zip(rows.texts, rows.labels, strict=True))
    return path


def write_stsb(folder: Path, split: str, pairs: Sequence[tuple[str, str]], scores: Iterable[float]) -> None:
    """A split of STS-B in GLUE's form."""
    columns = "index genre filename year old_index source1 source2 sentence1 sentence2 score".split()
    rows = [
        [str(index), "main", "made", "2024", str(index), "none", "none", *pair, f"{score:.3f}"]
        for index, (pair, score) in enumerate(zip(pairs, scores, strict=True))
    ]
    (folder / "STS-B").mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(row) for row in [columns, *rows]]
    (folder / "STS-B" / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
