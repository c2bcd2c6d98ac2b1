"""The tasks of the bake-off, and its cells."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import pocketbert as pb
from pocketbert.data.task_data import TaskData
from pocketbert.data.train_dev_split import train_dev_split
from pocketbert.data.unlabelled import with_unlabelled
from studies import small_data

FINETUNE, COMPRESS = "finetune", "compress"
# The name of the training; see `pocketbert_bench.compression.methods.Training`.
_UNLABELLED = "predictions+unlabelled"
# Longer texts are cut.
_USUAL_LENGTH = 64
_DEV_SHARE = 0.15
MOST_DIFFERENCE = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class BakeOffTask:
    """A task of the study, or a table of your own.

    Attributes:
      name: name of the task.
      data_set: key of `studies.small_data.DATA`; empty for the name, or a table.
      shares: limits, as shares of the latency of the teacher's bundle.
      seeds: seeds of all rows.
      length: tokens of a text; longer ones are cut.
      dev_share: share of the training examples that choose.
      epochs: epochs of the teacher.
      labelled: number of examples that have labels; None for all.
      unlabelled: number of others, whose labels nobody reads.
      methods: rows beside fine-tuning; all if empty.
      table: arguments of `pb.data.table`, and their values; empty for a task of the study.
      encoder: model directory of the encoder to fine-tune; empty for all-MiniLM-L6-v2.
      most_difference: largest difference of the teacher's latency in a cell from that of the limits, as a share.
    """

    name: str
    data_set: str = ""
    shares: tuple[float, ...] = (0.5,)
    seeds: tuple[int, ...] = (0,)
    length: int = _USUAL_LENGTH
    dev_share: float = _DEV_SHARE
    epochs: int = 3
    labelled: int | None = None
    unlabelled: int = 0
    methods: tuple[str, ...] = ()
    table: tuple[tuple[str, Any], ...] = ()
    encoder: str = ""
    most_difference: float = MOST_DIFFERENCE

    def data(self) -> TaskData:
        """Training examples, a dev split that chooses, and the test examples of the final score."""
        if self.table:
            whole = pb.data.table(**dict(self.table))
            rows, test = train_dev_split(whole.undivided or whole.train, _DEV_SHARE, 0, stratify=True)
        else:
            whole, test = small_data.DATA[self.data_set or self.name]()
            rows = whole.train
        others = None
        if self.labelled is not None:
            order = np.random.default_rng(0).permutation(len(rows))
            others = rows.select(order[self.labelled : self.labelled + self.unlabelled])
            rows = rows.select(order[: self.labelled])
        train, dev = train_dev_split(rows, self.dev_share, 0, stratify=True)
        data = dataclasses.replace(whole, train=train, dev=dev, test=test, undivided=None)
        return with_unlabelled(data, {"text": others.texts}) if self.unlabelled and others is not None else data


_HALF_AND_QUARTER = (0.5, 0.25)
# One task of each kind comes first.
TASKS = (
    # SST-2 has many sentences, so a small share of them chooses.
    BakeOffTask(name="sst2", shares=_HALF_AND_QUARTER, seeds=(0, 1, 2), dev_share=0.03, epochs=1),
    BakeOffTask(name="stsb", shares=_HALF_AND_QUARTER, seeds=(0, 1, 2)),
    BakeOffTask(name="names", shares=_HALF_AND_QUARTER),
    BakeOffTask(name="questions", length=192),
    BakeOffTask(name="mrpc", shares=_HALF_AND_QUARTER, length=96),
    BakeOffTask(name="cola"),
    BakeOffTask(name="xnli", length=96, epochs=4),
    # 500 labels, and 20,000 sentences that only the teacher labels.
    BakeOffTask(
        name="sst2, few labels",
        data_set="sst2",
        labelled=500,
        unlabelled=20_000,
        methods=("predictions", _UNLABELLED, COMPRESS),
    ),
)


@dataclasses.dataclass(frozen=True)
class BakeOffCell:
    """A task, a limit and a seed.

    Attributes:
      task: the task.
      share: the limit, as a share of the latency of the teacher's bundle.
      seed: the seed.
      half_width: whether rows have half of the heads and neurons, instead of fewer layers; then none is `compress`.
    """

    task: BakeOffTask
    share: float
    seed: int
    half_width: bool = False

    @property
    def name(self) -> str:
        """Name of the job, which is also a folder."""
        return f"{self.task.name}-{self.share:g}-{self.seed}{'-half' if self.half_width else ''}"

    @property
    def key(self) -> tuple[str, float, int, bool]:
        """What its rows name it by; see `key_of`."""
        return self.task.name, self.share, self.seed, self.half_width


def key_of(row: Mapping[str, Any]) -> tuple[str, float, int, bool]:
    """The `BakeOffCell.key` of a row."""
    return row["task"], row["share"], row["seed"], row["half_width"]


def all_cells(tasks: Sequence[BakeOffTask]) -> list[BakeOffCell]:
    """All cells: first seeds first, and first limits before second ones.

    A task of the study with all methods has a cell with half width, for its first limit and seed.
    """
    cells = [BakeOffCell(task, share, seed) for task in tasks for share in task.shares for seed in task.seeds]
    cells += [
        BakeOffCell(task, task.shares[0], task.seeds[0], half_width=True)
        for task in tasks
        if not (task.table or task.methods)
    ]
    return sorted(cells, key=lambda cell: (cell.seed, cell.task.shares.index(cell.share)))
