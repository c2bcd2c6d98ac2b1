"""Hyper-parameter grids from papers, as fine-tuning options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pocketbert.errors import raise_if_any
from pocketbert.notation import argument

Value = int | float | str | None

_TEXTS = ("classification", "regression")
_QUESTIONS = ("span",)


@dataclass(frozen=True, kw_only=True)
class PublishedGrid:
    """A grid from a paper.

    Attributes:
      source: paper and section.
      values: `FinetuneConfig` option → values in the paper; one value for an option that the paper did not vary.
        Options without values in the paper, or with other values per task, are omitted.
      kinds: the paper's tasks, as `TaskConfig.kind`.
      note: makes remarks on using the grid, or an empty string.
    """

    source: str
    values: Mapping[str, tuple[Value, ...]]
    kinds: tuple[str, ...] = _TEXTS
    note: Callable[[], str] = str


PUBLISHED = {
    "bert": PublishedGrid(
        source="Devlin et al. 2019, BERT, appendix A.3",
        values={"batch_size": (16, 32), "learning_rate": (5e-5, 3e-5, 2e-5), "epochs": (2, 3, 4)},
        kinds=_TEXTS + _QUESTIONS,
    ),
    "mobilebert": PublishedGrid(
        source="Sun et al. 2020, MobileBERT, section 4.2",
        values={
            "batch_size": (16, 32, 48),
            "learning_rate": (1e-5, 2e-5, 3e-5, 4e-5, 5e-5, 6e-5, 7e-5, 8e-5, 9e-5, 1e-4),
            "epochs": (2, 3, 4, 5, 6, 7, 8, 9, 10),
        },
        kinds=_TEXTS + _QUESTIONS,
        note=lambda: "the paper gives ranges: rates (1-10)e-5 and epochs 2-10; the grid has every whole number",
    ),
    "tinybert": PublishedGrid(
        source="Jiao et al. 2020, TinyBERT, section 4.2",
        values={"batch_size": (16, 32), "learning_rate": (1e-5, 2e-5, 3e-5), "epochs": (3,)},
        note=lambda: (
            "the paper searches them for prediction-layer distillation, with 64 tokens for single sentences and 128 "
            f"for pairs ({argument('max_length')})"
        ),
    ),
    "minilmv2": PublishedGrid(
        source="Wang et al. 2021, MiniLMv2, appendix C, GLUE",
        values={
            "batch_size": (32,),
            "learning_rate": (1e-5, 1.5e-5, 2e-5, 3e-5, 5e-5),
            "epochs": (3, 5, 10),
            "max_length": (128,),
            "warmup_ratio": (0.1,),
            "weight_decay": (0.01,),
        },
        note=lambda: (
            f"for CoLA, use 25 epochs ({argument('grid', 'minilmv2')} {argument('grid', 'epochs=25')}); for XNLI, use "
            f"{argument('grid', 'minilmv2-xnli')}"
        ),
    ),
    "minilmv2-xnli": PublishedGrid(
        source="Wang et al. 2021, MiniLMv2, appendix C, XNLI",
        values={"batch_size": (128,), "learning_rate": (5e-5, 6e-5), "epochs": (5,), "max_length": (128,)},
        kinds=("classification",),
    ),
    "minilmv2-squad2": PublishedGrid(
        source="Wang et al. 2021, MiniLMv2, appendix C, SQuAD 2.0",
        values={
            "batch_size": (32,),
            "learning_rate": (3e-5, 6e-5, 8e-5, 9e-5),
            "epochs": (3,),
            "max_length": (384,),
            "warmup_ratio": (0.1,),
            "weight_decay": (0.01,),
        },
        kinds=_QUESTIONS,
    ),
    "minilmv2-mlqa": PublishedGrid(
        source="Wang et al. 2021, MiniLMv2, appendix C, MLQA",
        values={"batch_size": (32,), "learning_rate": (5e-5, 6e-5), "epochs": (3,), "max_length": (512,)},
        kinds=_QUESTIONS,
        note=lambda: (
            "the paper trains on SQuAD 1.1 and selects on MLQA's English dev questions "
            f"({argument('train')}, {argument('dev')})"
        ),
    ),
    "hsk": PublishedGrid(
        source="Liu et al. 2021, Marginal Utility Diminishes, appendix B",
        values={"learning_rate": (2e-5, 5e-5), "epochs": (5, 10), "schedule": ("linear",)},
        note=lambda: (
            "the paper searches them for prediction distillation, with batch size 32, or 64 for MNLI and QNLI "
            f"({argument('batch_size')})"
        ),
    ),
}


# `FinetuneConfig` options for the head, as in the papers.
PUBLISHED_HEAD: Mapping[str, Any] = {"head_pooling": "first", "head_start": "random", "calibrate": False}


def check_kind(names: Iterable[str], kind: str) -> None:
    """Checks that published grids fit the task kind.

    Raises:
      UserError: the paper used the grid for other kinds; lists grids that fit.
    """
    fitting = ", ".join(name for name, grid in PUBLISHED.items() if kind in grid.kinds)
    raise_if_any(
        [
            f"{name} is a grid for {' and '.join(PUBLISHED[name].kinds)}; received a {kind} task; choose one of "
            f"{fitting}, or give options with values"
            for name in names
            if kind not in PUBLISHED[name].kinds
        ],
        "grid",
    )
