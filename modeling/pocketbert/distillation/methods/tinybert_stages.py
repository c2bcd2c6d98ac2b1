"""The stages of TinyBERT; see `TinyBERT` for values that the paper does not give."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from pocketbert.distillation.method import DistillationSpec, text_segments
from pocketbert.distillation.transformer_distillation import layer_features
from pocketbert.training.stage import Epochs, OptimizerConfig, Stage, Steps

if TYPE_CHECKING:
    from pocketbert.distillation.methods.tinybert import TinyBERT

# Section 4.2 and footnote 4; 20 for other tasks.
_PAPER_EPOCHS = {"cola": 50, "mnli": 10, "qqp": 10, "qnli": 10}
# From a table in task_distill.py that a bug prevents the code from reading (Huawei's issue 77).
_AUTHORS_EPOCHS = {"cola": 50, "sst2": 10, "qnli": 10, "mnli": 5, "qqp": 5}
_OTHER_EPOCHS = 20
# For general distillation and the prediction stage (sections 4.2 and 4.3).
_EPOCHS = 3


def general_stage(spec: DistillationSpec, method: TinyBERT) -> Stage:
    """Returns the stage of general distillation on plain text."""
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


def intermediate_stage(spec: DistillationSpec, method: TinyBERT) -> Stage:
    """Returns the stage with the losses per layer on augmented data."""
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


def prediction_stage(spec: DistillationSpec, method: TinyBERT) -> Stage:
    """Returns the stage that learns the teacher's predictions, or the labels if an option requests them."""
    assert spec.task is not None
    # Footnotes 5 and 10 in the paper concern this kind.
    regression = spec.task.kind == "regression"
    if "prediction" in method.without or (regression and method.regression_target == "labels"):
        # Footnotes 5 and 10: original data.
        return label_stage("prediction", spec, method, original=True)
    # Footnote 5; appendix B for spans.
    original = spec.task.kind != "classification" or "augmentation" in method.without
    stage = label_stage("prediction", spec, method, original=original)
    return dataclasses.replace(stage, teacher_features={"logits": ()}, weights={"prediction": 1.0})


def label_stage(name: str, spec: DistillationSpec, method: TinyBERT, *, original: bool) -> Stage:
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
    own = None if spec.task is None else get_task(spec.task).default_max_length
    return method.max_length or own or (128 if spec.pairs else 64)
