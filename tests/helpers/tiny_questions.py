"""Questions that a tiny model learns to answer in seconds: the answer is the one good word of the paragraph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import tiny_finetuning

from pocketbert.configs import TaskConfig

TASK = TaskConfig(kind="span", dropout=0.0)
# Short enough that longer paragraphs have several windows.
MAX_LENGTH = 19


def write_questions(path: Path, count: int, seed: int, *, impossible: float = 0.0) -> Path:
    """A file in SQuAD's format; a part of its paragraphs have no good word, and so no answer."""
    random = np.random.default_rng(seed)
    paragraphs = []
    for index in range(count):
        words = [str(word) for word in random.choice(tiny_finetuning.NEUTRAL, random.integers(3, 30))]
        position = int(random.integers(len(words)))
        answers: list[dict[str, Any]] = []
        if random.random() >= impossible:
            words[position] = str(random.choice(tiny_finetuning.GOOD))
            answers.append({"text": words[position], "answer_start": len(" ".join([*words[:position], ""]))})
        entry = {"id": f"q{index}", "question": "the film", "answers": answers}
        paragraphs.append(
            {"context": " ".join(words), "qas": [entry | ({"is_impossible": not answers} if impossible else {})]}
        )
    path.write_text(
        json.dumps({"version": "tiny", "data": [{"title": "t", "paragraphs": paragraphs}]}), encoding="utf-8"
    )
    return path


def task_arguments(folder: Path, *, impossible: float = 0.0) -> list[str]:
    """The flags with which a command is told such a task."""
    train = write_questions(folder / "train.json", 300, 0, impossible=impossible)
    dev = write_questions(folder / "dev.json", 41, 1, impossible=impossible)
    return [f"--train-file={train}", f"--dev-file={dev}"]
