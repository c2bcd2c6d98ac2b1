"""EfficientBERT: distils embedding, attention, hidden states and predictions in one stage."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pocketbert.distillation.method import (
    DistillationSpec,
    Method,
    head_count_problems,
    segment_problems,
    text_segments,
)
from pocketbert.distillation.predictions import KINDS
from pocketbert.distillation.transformer_distillation import (
    TERMS,
    all_losses,
    all_targets,
    layer_features,
    mapping_problems,
    projections,
)
from pocketbert.errors import raise_if_any
from pocketbert.options import option_problems
from pocketbert.training.objective import Adapters, Batch, Features, Targets
from pocketbert.training.stage import Epochs, OptimizerConfig, Stage, Steps

if TYPE_CHECKING:
    import tensorflow as tf

# Section 4.3.
_EPOCHS, _COLA_EPOCHS = 10, 50
_LENGTH = 128
# Values for options that are None.
_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper": {"shared_projection": False, "mean_over_classes": False, "regression_target": "teacher"},
    "authors-code": {"shared_projection": True, "mean_over_classes": True, "regression_target": "labels"},
}


@dataclass(frozen=True, kw_only=True)
class EfficientBERT(Method):
    """EfficientBERT distillation (Dong et al. 2021, https://arxiv.org/abs/2109.07222).

    The loss is eq. 4. Its terms are summed over the student's layers m = 1…M, which learn from teacher layers n:

    - `attention`: eq. 1 for all layers, on attention matrices before the softmax.
    - `hidden`: eq. 2 for all layers, with one W_h.
    - `embedding`: eq. 2 for the embedding output, with W_e.
    - `prediction`: eq. 3, weighted with γ.
    - `labels`: squared difference from regression scores, weighted with γ; replaces `prediction` in the authors' code.

    Without a task, the stage `pretraining` distils on plain text with γ = 0. With a task, the stage `finetuning`
    distils all terms at once. Any student is possible; its feed-forward networks need no expressions.

    Choices for values that the paper does not give:

    - Eq. 1 does not name the attention matrices. The authors' code takes them before the softmax, as TinyBERT.
    - The layer map is TinyBERT's `uniform`, as in the authors' code: every second layer for 12 → 6 layers.
    - The text is not masked, as in the authors' code. It has BERT's two segments, because text pairs need them.
    - Regression has no logits for eq. 3. The student learns the teacher's scores, as in `tinybert`. The authors' code
      learns the labels (`regression_target`).
    - Spans: `prediction` averages eq. 3 over start and end positions. Padding is not a position. The authors' code also
      excludes [CLS], adds start and end, and divides by the number of positions.
    - Gradients are clipped to a global norm of 1, as in the authors' code. Weight decay is decoupled, and Adam corrects
      its moments' bias, as there. Adam's epsilon is BERT's 1e-6; the authors' code has PyTorch's 1e-8.

    Departures: the projections W_h and W_e have a bias, as in the authors' code. They exist even for equal widths, as
    in eq. 2 and the code. Padding never counts; the code includes it in its means. The dev set is scored after each
    epoch; the code scores it every 50 steps or more.

    Attributes:
      preset: source of defaults: `paper`, or `authors-code`.
      mapping: layer map: `uniform`, `top`, `bottom`, or one teacher layer per student layer, such as 2,4,6,8,10,12.
      shared_projection: use one projection for the embedding and all layers, instead of W_e and W_h; paper: no,
        authors' code: yes.
      prediction_weight: γ in fine-tuning; in pretraining it is 0.
      temperature: temperature t in the prediction loss.
      mean_over_classes: whether to divide the prediction loss by the number of classes; paper: no, authors' code: yes.
      regression_target: target for regression: `teacher` (paper) or `labels` (authors' code).
      masked_text: mask the text in pretraining as in BERT's pretraining.
      text_segments: segments per input in pretraining (default: 2 as in BERT's pretraining, or 1 if a model has one
        token type).
      max_length: maximum sequence length.
      epochs: passes over the data (default: paper 10, but 50 for CoLA).
      steps: number of steps, instead of passes over the data.
      batch_size: batch size (default: paper 256 in pretraining, 32 in fine-tuning).
      learning_rate: peak learning rate (default: paper 1e-4 in pretraining, 5e-5 in fine-tuning, 1e-4 for questions).
      warmup_ratio: share of the steps for warm-up; linear decay to 0 follows.
      weight_decay: decoupled weight decay, except for biases and norms.
      clip_norm: maximum global gradient norm; 0 for no clipping.
      micro_batches: number of parts per batch, to save memory; the result is the same.
    """

    name: ClassVar[str] = "efficientbert"
    # In the authors' code, the projection is one of the student's weights, also in a supernet.
    keeps_adapters: ClassVar[bool] = True
    reference: ClassVar[str] = "Dong et al. 2021, EfficientBERT, eq. 1-4, https://arxiv.org/abs/2109.07222"
    GROUP: ClassVar = "Method"
    COMMON: ClassVar = ("preset", "mapping", "max_length", "epochs", "steps", "learning_rate")

    preset: Literal["paper", "authors-code"] = "paper"
    mapping: str = "uniform"
    shared_projection: bool | None = None
    prediction_weight: float = 1.0
    temperature: float = 1.0
    mean_over_classes: bool | None = None
    regression_target: Literal["teacher", "labels"] | None = None
    masked_text: bool = False
    text_segments: int | None = None
    max_length: int = _LENGTH
    epochs: int | None = None
    steps: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    warmup_ratio: float = 0.1
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    micro_batches: int = 1

    def __post_init__(self) -> None:
        problems = option_problems(self, may_be_zero=("warmup_ratio", "weight_decay", "clip_norm"))
        if self.warmup_ratio >= 1:
            problems.append(f"warmup_ratio must be below 1; received {self.warmup_ratio}")
        if self.text_segments is not None and self.text_segments > 2:
            problems.append(f"text_segments must be 1 or 2; received {self.text_segments}")
        if self.steps is not None and self.epochs is not None:
            problems.append(f"give steps or epochs; received steps={self.steps} and epochs={self.epochs}")
        raise_if_any(problems, "efficientbert options")

    def resolved(self, spec: DistillationSpec) -> EfficientBERT:
        """Returns a copy with the preset's and the paper's values for options that are None."""
        task = spec.task
        values: dict[str, Any] = {**_PRESETS[self.preset], "batch_size": 256, "learning_rate": 1e-4}
        if task is not None:
            values |= {"batch_size": 32, "learning_rate": 1e-4 if task.kind == "span" else 5e-5}
        if self.steps is None:
            values["epochs"] = _COLA_EPOCHS if task is not None and task.name == "cola" else _EPOCHS
        missing = {name: value for name, value in values.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **missing)

    def stages(self, spec: DistillationSpec) -> Sequence[Stage]:
        """Returns `pretraining`; or `finetuning` with a task.

        Raises:
          UserError: the layer map does not fit.
        """
        method = self.resolved(spec)
        assert method.batch_size is not None and method.learning_rate is not None
        text = Stage(
            name="pretraining",
            **layer_features(spec, method.mapping, TERMS),
            data="text",
            masked_text=method.masked_text and spec.task is None,
            text_segments=1 if method.text_segments == 1 else text_segments(spec),
            max_length=method.max_length,
            duration=Steps(method.steps) if method.steps is not None else Epochs(method.epochs or _EPOCHS),
            batch_size=method.batch_size,
            micro_batches=method.micro_batches,
            optimizer=OptimizerConfig(
                learning_rate=method.learning_rate,
                warmup_ratio=method.warmup_ratio,
                weight_decay=method.weight_decay,
                clip_norm=method.clip_norm or None,
            ),
            options=method,
        )
        if spec.task is None:
            return [text]
        labels = spec.task.kind == "regression" and method.regression_target == "labels"
        return [
            dataclasses.replace(
                text,
                name="finetuning",
                teacher_features={**text.teacher_features, **({} if labels else {"logits": ()})},
                student_features={**text.student_features, "logits": ()},
                weights={**text.weights, "labels" if labels else "prediction": method.prediction_weight},
                data="task",
                text_segments=1,
                task=spec.task,
                keep="best",
            )
        ]

    def adapters(self, spec: DistillationSpec) -> Adapters:
        """Returns W_h (`hidden_projection`) and W_e (`embedding_projection`), or `shared_projection`.

        Each projects the student's width to the teacher's.
        """
        return projections(spec, TERMS, shared=self.resolved(spec).shared_projection is True)

    def validate(self, spec: DistillationSpec) -> list[str]:
        """Checks heads, layers, the task's kind and the text options."""
        problems = [*head_count_problems(spec), *mapping_problems(spec, self.mapping)]
        problems += segment_problems(spec, self.text_segments)
        if spec.task is not None and spec.task.kind not in KINDS:
            problems.append(f"efficientbert supports {', '.join(KINDS)}; received {spec.task.kind}")
        if spec.task is not None:
            options = [name for name in ("masked_text", "text_segments") if getattr(self, name)]
            problems += [f"{name} is for plain text; received it with a task; leave it out" for name in options]
        return problems

    def summary(self, spec: DistillationSpec) -> list[str]:
        """Describes the layer map, and names the missing step for a student with random weights."""
        (stage,) = self.stages(spec)
        mapped = ", ".join(map(str, stage.teacher_features["attention_logits"]))
        lines = [f"efficientbert: layers 1 to {spec.student.num_layers} learn from the teacher's layers {mapped}"]
        if spec.task is not None and spec.start == "random" and self.learning_rate is None:
            lines.append(
                "efficientbert: the student's weights are random, and the paper's rate is for a pretrained student; "
                "distil on plain text first, or raise learning_rate, for example to 4e-4"
            )
        return lines

    def targets(self, stage: Stage, teacher: Features, batch: Batch) -> Targets:
        """Returns the teacher's features by name and layer, and its logits in fine-tuning; see `all_targets`."""
        return all_targets(stage, teacher)

    def loss(
        self, stage: Stage, targets: Targets, student: Features, adapters: Adapters, batch: Batch
    ) -> Mapping[str, tf.Tensor]:
        """Returns the terms in `stage.weights`; see the class."""
        return all_losses(stage, targets, student, adapters, batch)
