"""The hyper-parameters among which the papers chose, by name, as options of fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Value = int | float | str | None


@dataclass(frozen=True, kw_only=True)
class PublishedGrid:
    """What a paper searched.

    Attributes:
      source: the paper and where in it.
      values: option of `FinetuneOptions` → the paper's values; one value is what the paper did not vary. What it does
        not name, or says differently for different tasks, is left out.
      note: what a reader of the result should know; may be empty.
    """

    source: str
    values: Mapping[str, tuple[Value, ...]]
    note: str = ""


PUBLISHED = {
    "bert": PublishedGrid(
        source="Devlin et al. 2019, BERT, appendix A.3",
        values={"batch_size": (16, 32), "learning_rate": (5e-5, 3e-5, 2e-5), "epochs": (2, 3, 4)},
    ),
    "mobilebert": PublishedGrid(
        source="Sun et al. 2020, MobileBERT, section 4.2",
        values={
            "batch_size": (16, 32, 48),
            "learning_rate": (1e-5, 2e-5, 3e-5, 4e-5, 5e-5, 6e-5, 7e-5, 8e-5, 9e-5, 1e-4),
            "epochs": (2, 3, 4, 5, 6, 7, 8, 9, 10),
        },
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
        note="CoLA is trained for 25 epochs: --grid=minilmv2 --grid=epochs=25",
    ),
    "hsk": PublishedGrid(
        source="Liu et al. 2021, Marginal Utility Diminishes, appendix B",
        values={"learning_rate": (2e-5, 5e-5), "epochs": (5, 10), "schedule": ("linear",)},
        note="the paper's are for the distillation of the predictions; batches are of 32 examples, for MNLI and QNLI "
        "of 64 (--batch-size)",
    ),
}
