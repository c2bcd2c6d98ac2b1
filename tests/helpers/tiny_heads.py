"""Sentences with a mood and tags of words, which a tiny network with two heads learns in seconds."""

from __future__ import annotations

from typing import Any

import tiny_finetuning
from tiny_finetuning import BAD, GOOD

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.data.task_data import TaskData

KINDS = {"mood": "classification", "slots": "token_classification"}
TAGS = ("O", "B-BLAME", "I-BLAME", "B-PRAISE", "I-PRAISE")


def task(**weights: float) -> TaskConfig:
    """The heads that `table` has labels for."""
    mood = TaskConfig(kind="classification", name="mood", labels=("high", "low"), weight=weights.get("mood"))
    slots = TaskConfig(kind="token_classification", name="slots", labels=TAGS, weight=weights.get("slots"))
    return TaskConfig(kind="several", tasks=(mood, slots))


def table(count: int, seed: int) -> dict[str, list[Any]]:
    """Columns of sentences with two words that say the mood; each of them has a tag, others have none."""
    plain = tiny_finetuning.examples(count, seed)
    assert plain.labels is not None
    kinds = {**dict.fromkeys(GOOD, "B-PRAISE"), **dict.fromkeys(BAD, "B-BLAME")}
    tags = [[kinds.get(word, "O") for word in text.split()] for text in plain.texts]
    return {"text": plain.texts, "mood": [("low", "high")[label] for label in plain.labels], "slots": tags}


def data(count: int = 90, **options: Any) -> TaskData:
    """Training examples and a dev split of 31."""
    return pb.data.heads(table(count, 1), KINDS, dev=table(31, 2), **options)
