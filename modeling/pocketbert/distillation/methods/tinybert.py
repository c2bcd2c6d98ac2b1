"""TinyBERT: distils embedding, attention and hidden states, then predictions."""

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
from pocketbert.errors import UserError, raise_if_any
from pocketbert.options import option_problems
from pocketbert.training.objective import Adapters, Batch, Features, Targets
from pocketbert.training.stage import Epochs, OptimizerConfig, Stage, Steps

if TYPE_CHECKING:
    import tensorflow as tf

# The procedures in table 2 and the objectives in table 3; each name is a removed component.
_PROCEDURES = ("general_distillation", "task_distillation", "augmentation")
ABLATIONS = (*_PROCEDURES, "embedding", "prediction", "transformer", "attention", "hidden")

# Values for options that are None. For task distillation, the paper gives no schedule, warm-up or bias correction.
# They come from the authors' code; bias correction is on as in fine-tuning here.
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

# Section 4.2 and footnote 4; 20 for other tasks.
_PAPER_EPOCHS = {"cola": 50, "mnli": 10, "qqp": 10, "qnli": 10}
# From a table in task_distill.py; a bug keeps the code from reading it (Huawei's issue 77).
_AUTHORS_EPOCHS = {"cola": 50, "sst2": 10, "qnli": 10, "mnli": 5, "qqp": 5}
_OTHER_EPOCHS = 20
# For general distillation and the prediction stage (sections 4.2 and 4.3).
_EPOCHS = 3
# For task distillation, by the student's weights.
_LEARNING_RATES: dict[str, dict[str, Any]] = {
    "trained": {"intermediate_learning_rate": 5e-5, "prediction_learning_rate": 3e-5},
    "untrained": {"intermediate_learning_rate": 3e-4, "prediction_learning_rate": 1e-4},
}


@dataclass(frozen=True, kw_only=True)
class TinyBERT(Method):
    """TinyBERT (Jiao et al. 2020, https://arxiv.org/abs/1909.10351).

    Without a task, the method runs general distillation. With a task, it runs intermediate-layer distillation, then
    prediction-layer distillation. The loss terms are those in eq. 11, summed over the student's layers with the paper's
    weights of 1 (eq. 6):

    - `embedding`: eq. 9 for the embedding output (layer 0).
    - `attention`: eq. 7 for layers m = 1…M and g(m).
    - `hidden`: eq. 8 for the same layers.
    - `prediction`: eq. 10; for regression the mean squared difference from the teacher's score.
    - `labels`: cross-entropy with class indices, or squared difference from scores; replaces `prediction` if an
      ablation or the authors' code learns from labels.

    Choices for values that the paper does not give:

    - Spans (appendix B): `prediction` averages eq. 10 over start and end positions, on the original data. Padding is
      not a position, and the loss is not divided by the number of classes. The length is BERT's, 384.
    - The paper does not tag tokens. Eq. 10 is averaged over tokens, on the original data, with inputs of 128 tokens.
    - Regression has no logits for eq. 10. The student learns the teacher's scores on the original data (footnote 5).
      The authors' code learns the labels (`regression_target`).
    - Task distillation follows the authors' code: a constant rate in the intermediate stage, 10 % warm-up with linear
      decay in the prediction stage, and BERT's weight decay, 0.01.
    - The paper distils a task into a student after general distillation. At these rates, a student with random weights
      learns little in a few epochs, so its rates are higher: 3e-4 and 1e-4, chosen on SST-2. The ablation
      `without=general_distillation` keeps the paper's rates.
    - General distillation uses BERT's warm-up of 10,000 steps, but at most a tenth of its steps.
    - General distillation uses BERT's two segments, because text pairs need them. The second segment always continues
      the first, because no loss predicts the next sentence.
    - Without task distillation (table 2), the student is fine-tuned on the augmented data's labels with the prediction
      stage's hyper-parameters. The paper does not name the data. Table 7 has lower scores for a student without task
      distillation and augmentation, so table 2 must include augmentation.

    Departures: the projections W_h and W_e have a bias, as in the authors' code. They exist even for equal widths, as
    in the paper's equations and the code, because student and teacher features may differ. Padding never counts. The
    authors' code has a relu between the student's pooler and classifier, and augments with another number of samples
    per task; neither is an option here.

    Attributes:
      preset: source of defaults: `paper`, or `authors-code`.
      mapping: layer map: `uniform`, `top`, `bottom`, or one teacher layer per student layer, such as 3,6,9,12.
      without: ablations (tables 2 and 3): `general_distillation` (refuses a student from a directory),
        `task_distillation` (fine-tuning on the augmented data's labels instead), `augmentation`, `embedding`,
        `prediction` (the original data's labels instead), `transformer` (attention and hidden), `attention`, `hidden`.
      shared_projection: use one projection for the embedding and all layers, instead of one for the embedding and one
        for the layers; paper: no, authors' code: yes.
      temperature: temperature in the prediction loss.
      mean_over_classes: whether to divide the prediction loss by the number of classes; paper: no, authors' code: yes.
      regression_target: target for regression: `teacher` (paper) or `labels` (authors' code).
      masked_text: mask the text in general distillation as in BERT's pretraining; paper: yes, authors' code (second
        version): no.
      text_segments: segments per input in general distillation (default: 2 as in BERT's pretraining, or 1 if a model
        has one token type).
      max_length: maximum sequence length (default: 128 for text and pairs, 64 for single sentences, 384 for questions).
      epochs: passes over the data in each stage without its own number of epochs (default: the paper's).
      general_epochs: passes over the text (default: paper 3).
      general_steps: number of steps, instead of passes over the text.
      general_batch_size: batch size.
      general_learning_rate: peak learning rate (default: paper 1e-4, authors-code 5e-5).
      intermediate_epochs: passes over the task's data (default: paper 20; CoLA 50; MNLI, QQP and QNLI 10).
      intermediate_batch_size: batch size.
      intermediate_learning_rate: peak learning rate (default: paper 5e-5; 3e-4 for an untrained student).
      intermediate_schedule: schedule: `constant`, or `linear` decay to 0.
      prediction_epochs: passes over the task's data (default: paper 3).
      prediction_batch_size: batch size; the paper selects 16 or 32 on the dev set.
      prediction_learning_rate: peak learning rate; the paper selects 1e-5, 2e-5 or 3e-5 on the dev set (default: 3e-5;
        1e-4 for an untrained student).
      weight_decay: decoupled weight decay, except for biases and norms.
      clip_norm: maximum global gradient norm; 0 for no clipping.
      bias_correction: whether Adam corrects its moments' bias; authors' code: no.
      micro_batches: number of parts per batch, to save memory; the result is the same.
    """

    name: ClassVar[str] = "tinybert"
    reference: ClassVar[str] = "Jiao et al. 2020, TinyBERT, eq. 6-11, https://arxiv.org/abs/1909.10351"
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
    epochs: int | None = None
    general_epochs: int | None = None
    general_steps: int | None = None
    general_batch_size: int = 256
    general_learning_rate: float | None = None
    intermediate_epochs: int | None = None
    intermediate_batch_size: int = 32
    intermediate_learning_rate: float | None = None
    intermediate_schedule: Literal["constant", "linear"] = "constant"
    prediction_epochs: int | None = None
    prediction_batch_size: int = 32
    prediction_learning_rate: float | None = None
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    bias_correction: bool | None = None
    micro_batches: int = 1

    def __post_init__(self) -> None:
        problems = option_problems(self, may_be_zero=("weight_decay", "clip_norm"))
        unknown = [name for name in self.without if name not in ABLATIONS]
        if unknown:
            problems.append(f"without accepts {', '.join(ABLATIONS)}; received {', '.join(unknown)}")
        if self.text_segments is not None and self.text_segments > 2:
            problems.append(f"text_segments must be 1 or 2; received {self.text_segments}")
        raise_if_any(problems, "tinybert options")

    def resolved(self, *, untrained: bool = False) -> TinyBERT:
        """Returns a copy with the preset's values for options that are None."""
        rates = _LEARNING_RATES["untrained" if untrained and "general_distillation" not in self.without else "trained"]
        values = {**_PRESETS[self.preset], **rates}
        missing = {name: value for name, value in values.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **missing)

    @property
    def layer_terms(self) -> tuple[str, ...]:
        """The loss terms for embedding and Transformer layers, without ablations."""
        dropped = {*self.without, *(("attention", "hidden") if "transformer" in self.without else ())}
        return tuple(term for term in TERMS if term not in dropped)

    def stages(self, spec: DistillationSpec) -> Sequence[Stage]:
        """Returns `general`; or `intermediate` and `prediction`; or `finetuning` without task distillation.

        Raises:
          UserError: the layer map does not fit, or all losses are left out.
        """
        method = self.resolved(untrained=spec.start == "random")
        if spec.task is None:
            if not method.layer_terms:
                raise UserError(
                    f"tinybert: general distillation needs a loss; received without={','.join(self.without)}; leave "
                    "out fewer"
                )
            return [_general_stage(spec, method)]
        if "task_distillation" in method.without:
            return [_label_stage("finetuning", spec, method, original="augmentation" in method.without)]
        stages = [_prediction_stage(spec, method)]
        if method.layer_terms:
            stages.insert(0, _intermediate_stage(spec, method))
        return stages

    def adapters(self, spec: DistillationSpec) -> Adapters:
        """Returns W_h (`hidden_projection`) and W_e (`embedding_projection`), or `shared_projection`, if used.

        Each projects the student's width to the teacher's.
        """
        method = self.resolved()
        if spec.task is not None and "task_distillation" in method.without:
            return {}
        return projections(spec, method.layer_terms, shared=method.shared_projection is True)

    def validate(self, spec: DistillationSpec) -> list[str]:
        """Checks heads, layers, the task's kind, text segments and ablations."""
        problems = []
        mapped = {"attention", "hidden"} & {*self.layer_terms}
        if spec.task is not None and "task_distillation" in self.without:
            mapped = set()
        if "attention" in mapped:
            problems += [f"{text}, or leave out attention (without)" for text in head_count_problems(spec)]
        if mapped:
            problems += mapping_problems(spec, self.mapping)
        if spec.task is not None and spec.task.kind not in KINDS:
            problems.append(f"tinybert supports {', '.join(KINDS)}; received {spec.task.kind}")
        problems += segment_problems(spec, self.text_segments)
        if "general_distillation" in self.without and spec.task is None:
            problems.append("without=general_distillation needs a task; received none; give a task")
        if "general_distillation" in self.without and spec.start in ("directory", "supernet"):
            problems.append(
                "without=general_distillation needs a student with random weights; received a directory; give a preset"
            )
        return problems

    def targets(self, stage: Stage, teacher: Features, batch: Batch) -> Targets:
        """Returns the teacher's features by name and layer, and its logits in `prediction`; see `all_targets`."""
        return all_targets(stage, teacher)

    def loss(
        self, stage: Stage, targets: Targets, student: Features, adapters: Adapters, batch: Batch
    ) -> Mapping[str, tf.Tensor]:
        """Returns the terms in `stage.weights`; see the class."""
        return all_losses(stage, targets, student, adapters, batch)


def _general_stage(spec: DistillationSpec, method: TinyBERT) -> Stage:
    """Returns the general distillation stage on plain text."""
    # From BERT's pretraining, Devlin et al. 2019, appendix A.2; the authors' code uses 10 % of the steps.
    warmup: dict[str, Any] = {"warmup_steps": 10_000} if method.preset == "paper" else {"warmup_ratio": 0.1}
    assert method.general_learning_rate is not None and method.masked_text is not None
    return Stage(
        name="general",
        **layer_features(spec, method.mapping, method.layer_terms),
        data="text",
        masked_text=method.masked_text,
        text_segments=1 if method.text_segments == 1 else text_segments(spec),
        max_length=method.max_length or 128,
        duration=Steps(method.general_steps)
        if method.general_steps
        else Epochs(method.general_epochs or method.epochs or 3),
        batch_size=method.general_batch_size,
        micro_batches=method.micro_batches,
        optimizer=_optimizer(method, learning_rate=method.general_learning_rate, **warmup),
        options=method,
    )


def _intermediate_stage(spec: DistillationSpec, method: TinyBERT) -> Stage:
    """Returns the stage with a loss per layer on augmented data."""
    assert spec.task is not None
    assert method.intermediate_learning_rate is not None
    epochs = _PAPER_EPOCHS if method.preset == "paper" else _AUTHORS_EPOCHS
    return Stage(
        name="intermediate",
        **layer_features(spec, method.mapping, method.layer_terms),
        data="task" if "augmentation" in method.without else "augmented",
        max_length=_task_length(spec, method),
        duration=Epochs(method.intermediate_epochs or method.epochs or epochs.get(spec.task.name, _OTHER_EPOCHS)),
        batch_size=method.intermediate_batch_size,
        micro_batches=method.micro_batches,
        optimizer=_optimizer(
            method, learning_rate=method.intermediate_learning_rate, schedule=method.intermediate_schedule
        ),
        options=method,
    )


def _prediction_stage(spec: DistillationSpec, method: TinyBERT) -> Stage:
    """Returns the stage that learns the teacher's predictions or, if an option requests it, the labels."""
    assert spec.task is not None
    # Footnotes 5 and 10 in the paper concern this kind.
    regression = spec.task.kind == "regression"
    if "prediction" in method.without or (regression and method.regression_target == "labels"):
        # Footnotes 5 and 10: original data.
        return _label_stage("prediction", spec, method, original=True)
    # Footnote 5; appendix B for spans.
    original = spec.task.kind != "classification" or "augmentation" in method.without
    stage = _label_stage("prediction", spec, method, original=original)
    return dataclasses.replace(stage, teacher_features={"logits": ()}, weights={"prediction": 1.0})


def _label_stage(name: str, spec: DistillationSpec, method: TinyBERT, *, original: bool) -> Stage:
    """Returns a stage that trains the student with its head on labels."""
    assert method.prediction_learning_rate is not None
    return Stage(
        name=name,
        teacher_features={},
        student_features={"logits": ()},
        weights={"labels": 1.0},
        task=spec.task,
        data="task" if original else "augmented",
        max_length=_task_length(spec, method),
        duration=Epochs(method.prediction_epochs or method.epochs or _EPOCHS),
        batch_size=method.prediction_batch_size,
        micro_batches=method.micro_batches,
        optimizer=_optimizer(method, learning_rate=method.prediction_learning_rate, warmup_ratio=0.1),
        keep="best",
        options=method,
    )


def _optimizer(method: TinyBERT, **fields: Any) -> OptimizerConfig:
    return OptimizerConfig(
        weight_decay=method.weight_decay,
        clip_norm=method.clip_norm or None,
        bias_correction=method.bias_correction is True,
        **fields,
    )


def _task_length(spec: DistillationSpec, method: TinyBERT) -> int:
    from pocketbert.tasks.registry import get_task

    # Appendix B in the paper; for questions 384, and for tags the length of fine-tuning.
    default = None if spec.task is None else get_task(spec.task).default_max_length
    return method.max_length or default or (128 if spec.pairs else 64)
