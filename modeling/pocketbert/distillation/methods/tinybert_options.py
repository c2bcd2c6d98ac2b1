"""What TinyBERT's method can be told, and what follows from it before there is a stage."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pocketbert.errors import raise_if_any
from pocketbert.options import option_problems

# The procedures of table 2 and the objectives of table 3; each name is what is left out.
_PROCEDURES = ("general_distillation", "task_distillation", "augmentation")
ABLATIONS = (*_PROCEDURES, "embedding", "prediction", "transformer", "attention", "hidden")

# What a None in the options stands for. The paper says nothing of schedule, warm-up and bias correction in task
# distillation; there the authors' code fills in, but for the correction, which is that of fine-tuning here.
_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper": {
        "shared_projection": False,
        "mean_over_classes": False,
        "regression_target": "teacher",
        "masked_text": True,
        # BERT's pretraining (Devlin et al. 2019, appendix A.2).
        "general_learning_rate": 1e-4,
        "bias_correction": True,
    },
    "authors-code": {
        "shared_projection": True,
        "mean_over_classes": True,
        "regression_target": "labels",
        "masked_text": False,
        "general_learning_rate": 5e-5,
        "bias_correction": False,
    },
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TinyBERTOptions:
    """TinyBERT's options.

    Attributes:
      preset: source of defaults: `paper`, or `authors-code`.
      mapping: layer map: `uniform`, `top`, `bottom`, or one teacher layer per student layer, such as 3,6,9,12.
      without: the paper's ablations (tables 2 and 3): `general_distillation` (the student must then not start from a
        directory), `task_distillation` (fine-tuning on the labels of the augmented data instead), `augmentation`,
        `embedding`, `prediction` (the labels of the original data instead), `transformer` (attention and hidden),
        `attention`, `hidden`.
      shared_projection: one projection for the embedding and all layers, instead of one for the embedding and one for
        the layers; paper: no, authors' code: yes.
      temperature: temperature of the prediction loss.
      mean_over_classes: whether to divide the prediction loss by the number of classes; paper: no, authors' code: yes.
      regression_target: target for regression: `teacher` (paper) or `labels` (authors' code).
      masked_text: mask the text of general distillation as in BERT's pretraining; paper: yes, authors' second version:
        no.
      text_segments: segments per input in general distillation (default: 2 as in BERT's pretraining, or 1 if a model
        has one token type).
      max_length: maximum sequence length (default: 128 for text and pairs, 64 for single sentences, 384 for questions).
      general_epochs: passes over the text.
      general_steps: steps, instead of passes over the text.
      general_batch_size: batch size.
      general_learning_rate: peak learning rate (default: paper 1e-4, authors-code 5e-5).
      intermediate_epochs: passes over the task's data (default: paper 20, but 50 for CoLA and 10 for MNLI, QQP and
        QNLI).
      intermediate_batch_size: batch size.
      intermediate_learning_rate: the learning rate.
      intermediate_schedule: `constant`, or `linear` to 0.
      prediction_epochs: passes over the task's data.
      prediction_batch_size: batch size; the paper selects 16 or 32 on the dev set.
      prediction_learning_rate: peak learning rate; the paper selects 1e-5, 2e-5 or 3e-5 on the dev set.
      weight_decay: decoupled weight decay, except for biases and norms.
      clip_norm: maximum global gradient norm; 0 for no clipping.
      bias_correction: whether Adam corrects the bias of its moments; authors' code: no.
      micro_batches: number of parts per batch, to save memory; the result is the same.
    """

    GROUP: ClassVar = "Method"
    COMMON: ClassVar = ("preset", "mapping", "max_length", "general_epochs", "intermediate_epochs", "prediction_epochs")

    preset: Literal["paper", "authors-code"] = "paper"
    mapping: str = "uniform"
    without: tuple[str, ...] = ()
    shared_projection: bool | None = None
    temperature: float = 1.0
    mean_over_classes: bool | None = None
    regression_target: Literal["teacher", "labels"] | None = None
    masked_text: bool | None = None
    text_segments: int | None = None
    max_length: int | None = None
    general_epochs: int = 3
    general_steps: int | None = None
    general_batch_size: int = 256
    general_learning_rate: float | None = None
    intermediate_epochs: int | None = None
    intermediate_batch_size: int = 32
    intermediate_learning_rate: float = 5e-5
    intermediate_schedule: Literal["constant", "linear"] = "constant"
    prediction_epochs: int = 3
    prediction_batch_size: int = 32
    prediction_learning_rate: float = 3e-5
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    bias_correction: bool | None = None
    micro_batches: int = 1

    def __post_init__(self) -> None:
        problems = option_problems(self, may_be_zero=("weight_decay", "clip_norm"))
        unknown = [name for name in self.without if name not in ABLATIONS]
        if unknown:
            problems.append(f"without takes the ablations {', '.join(ABLATIONS)}; received {', '.join(unknown)}")
        if self.text_segments is not None and self.text_segments > 2:
            problems.append(f"text_segments is 1 or 2; received {self.text_segments}")
        raise_if_any(problems, "tinybert options")

    def resolved(self) -> TinyBERTOptions:
        """The same with the preset's value wherever an option that a preset decides was not given."""
        missing = {name: value for name, value in _PRESETS[self.preset].items() if getattr(self, name) is None}
        return dataclasses.replace(self, **missing)

    @property
    def layer_terms(self) -> tuple[str, ...]:
        """The losses of embedding and Transformer layers that no ablation leaves out."""
        dropped = {*self.without, *(("attention", "hidden") if "transformer" in self.without else ())}
        return tuple(term for term in ("embedding", "attention", "hidden") if term not in dropped)
