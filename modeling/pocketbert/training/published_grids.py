"""The hyper-parameters among which the papers chose, by name, as options of fine-tuning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pocketbert.errors import raise_if_any

Value = int | float | str | None

_TEXTS = ("classification", "regression")
_QUESTIONS = ("span",)


@dataclass(frozen=True, kw_only=True)
class PublishedGrid:
    """What a paper searched.

    Attributes:
      source: the paper and where in it.
      values: option of `FinetuneConfig` → the paper's values; one value is what the paper did not vary. What it does
        not name, or says differently for different tasks, is left out.
      kinds: of the tasks for which the paper searched it, as `TaskConfig.kind`.
      note: what a reader of the result should know; may be empty.
    """

    source: str
    values: Mapping[str, tuple[Value, ...]]
    kinds: tuple[str, ...] = _TEXTS
    note: str = ""


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
        note="the paper gives the rates as (1-10)e-5 and the epochs as 2-10, without steps; here every whole number",
    ),
    "tinybert": PublishedGrid(
        source="Jiao et al. 2020, TinyBERT, section 4.2",
        values={"batch_size": (16, 32), "learning_rate": (1e-5, 2e-5, 3e-5), "epochs": (3,)},
        note="the paper's are for the distillation of the prediction layer; it takes 64 tokens for single sentences "
        "and 128 for pairs (--max-length)",
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
        note="CoLA is trained for 25 epochs (--grid=minilmv2 --grid=epochs=25), XNLI by --grid=minilmv2-xnli",
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
        note="the paper trains on SQuAD 1.1 and chooses by MLQA's English development questions (--train-file, "
        "--dev-file)",
    ),
    "hsk": PublishedGrid(
        source="Liu et al. 2021, Marginal Utility Diminishes, appendix B",
        values={"learning_rate": (2e-5, 5e-5), "epochs": (5, 10), "schedule": ("linear",)},
        note="the paper's are for the distillation of the predictions; batches are of 32 examples, for MNLI and QNLI "
        "of 64 (--batch-size)",
    ),
}


def check_kind(names: Iterable[str], kind: str) -> None:
    """Sees to it that a task is not searched by another's grid.

    Args:
      names: keys of `PUBLISHED`.
      kind: the task's.

    Raises:
      UserError: a paper did not search a grid for such tasks; the message names those for which one did.
    """
    fitting = ", ".join(name for name, grid in PUBLISHED.items() if kind in grid.kinds)
    raise_if_any(
        [
            f"{name} is a grid for {' and '.join(PUBLISHED[name].kinds)}; received a task of the kind {kind}; choose "
            f"one of {fitting}, or name options and their values"
            for name in names
            if kind not in PUBLISHED[name].kinds
        ],
        "grid",
    )
