"""Texts and networks for tests of calibration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import networks
import numpy as np

from pocketbert.data.examples import Examples
from pocketbert.model import Model

LENGTHS = (7, 19)


def sentences(count: int, seed: int) -> list[str]:
    """Different sentences of 2 to 15 words."""
    generator = np.random.default_rng(seed)
    words = [word for word in networks.WORDS.split() if word.isalpha()]
    return [f"{' '.join(generator.choice(words, generator.integers(2, 15)))} {seed}{index}" for index in range(count)]


def examples(texts: Sequence[str], source: str = "texts") -> Examples:
    return Examples(texts=list(texts), pairs=None, labels=None, ids=[str(i) for i in range(len(texts))], source=source)


def table(path: Path, texts: Sequence[str]) -> Path:
    path.write_text("".join(f"{text}\n" for text in ("text", *texts)), encoding="utf-8")
    return path


def with_unequal_channels(small_model: Model) -> Model:
    """The network with two feed-forward outputs 300 and 80 times as large as the others, as in the 6x384 network."""
    model = Model(small_model.config, small_model.tasks, small_model.tokenizer)
    for (path, variable), source in zip(
        model.weights_by_path().items(), small_model.weights_by_path().values(), strict=True
    ):
        values = source.numpy()
        if path.endswith("feed_forwards.0.output.kernel"):
            values[:, 3] *= 300
            values[:, 17] *= 80
        if path.endswith("feed_forwards.0.norm.gamma"):
            # The norm makes the other channels small; the network reads those.
            values *= np.where(np.isin(np.arange(len(values)), [3, 17]), 0.02, 40)
        variable.assign(values)
    return model
