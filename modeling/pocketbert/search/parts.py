"""A search's examples and text, divided for supernets, candidates and scores."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np

from pocketbert.data.examples import LabelledData
from pocketbert.data.readers.text import Document, read_documents
from pocketbert.data.task_data import TaskData
from pocketbert.data.train_dev_split import train_dev_split
from pocketbert.files import write_text
from pocketbert.search.config import SearchConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts:
    """Parts of the searched task's examples.

    Attributes:
      supernets: for supernets and second trainings, with the task's dev split.
      candidates: for candidates in stages 1 and 2; the dev split is for their scores.
      stage_3: the same with the dev split for stage 3 scores.
    """

    supernets: TaskData
    candidates: TaskData
    stage_3: TaskData

    @property
    def examples(self) -> list[LabelledData]:
        """The different parts, for a record."""
        return [self.supernets.train, self.candidates.train, self.candidates.dev, self.stage_3.dev]


def divide(data: TaskData, config: SearchConfig) -> Parts:
    """Divides training examples with the seed. Supernets and candidates never learn from examples for scores."""
    part, *score_parts = config.resolved_shares
    most = max(score_parts)
    rest, left_out = train_dev_split(data.train, most, config.seed, stratify=True)
    scored = [
        left_out if share == most else train_dev_split(left_out, share / most, config.seed, stratify=True)[1]
        for share in score_parts
    ]
    share = part / (1 - most)
    trained = rest if share >= 1 else train_dev_split(rest, share, config.seed, stratify=True)[1]
    candidates, stage_3 = (dataclasses.replace(data, train=trained, dev=dev, augmented=None) for dev in scored)
    return Parts(
        supernets=dataclasses.replace(data, train=rest, augmented=None), candidates=candidates, stage_3=stage_3
    )


def leave_out(data: TaskData, config: SearchConfig) -> TaskData:
    """Removes examples from another task, to hide them from the stage 3 supernet."""
    if not config.left_out_share:
        return data
    training, _ = train_dev_split(data.train, config.left_out_share, config.seed, stratify=True)
    return dataclasses.replace(data, train=training)


def draw_text(source: Path, share: float, seed: int, path: Path) -> None:
    """Writes a share of the documents in a text, each drawn with this probability, as JSONL; at least one.

    Args:
      source: the text, see `read_documents`.
      share: between 0 and 1.
      seed: selects the documents.
      path: the file; an existing one is kept.
    """
    if path.exists():
        return
    random = np.random.default_rng(seed)
    drawn: list[Document] = []
    for document in read_documents(source):
        if random.random() < share:
            drawn.append(document)
    rows = (
        {"title": document.title, "text": "\n".join(document.paragraphs)}
        for document in drawn or [next(read_documents(source))]
    )
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))
