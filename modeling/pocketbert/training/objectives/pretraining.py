"""Pretraining: one stage with masked LM and next-sentence prediction, or masked LM alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import tensorflow as tf

from pocketbert.training.label_losses import head_loss, pretraining_losses
from pocketbert.training.objective import Adapters, Batch, Features, Objective, Targets
from pocketbert.training.pretrain_config import PretrainConfig
from pocketbert.training.stage import Epochs, OptimizerConfig, Stage, Steps


@dataclass(frozen=True)
class Pretraining(Objective):
    """The sum of BERT's two losses (Devlin et al. 2019, section 3.1, https://arxiv.org/abs/1810.04805)."""

    name: ClassVar[str] = "pretraining"

    def loss(
        self, stage: Stage, targets: Targets, model: Features, adapters: Adapters, batch: Batch
    ) -> Mapping[str, tf.Tensor]:
        """`masked_lm` and `next_sentence`."""
        return pretraining_losses(model, batch, stage.label_smoothing)


@dataclass(frozen=True)
class MaskedText(Objective):
    """Masked LM loss (Devlin et al. 2019, section 3.1, task 1; Liu et al. 2019 have no other one)."""

    name: ClassVar[str] = "mlm"

    def loss(
        self, stage: Stage, targets: Targets, model: Features, adapters: Adapters, batch: Batch
    ) -> Mapping[str, tf.Tensor]:
        """`masked_lm`."""
        (logits,) = model["logits"]
        return {"masked_lm": head_loss("masked_lm", logits, batch["masked_lm_labels"], stage.label_smoothing)}


def pretraining_stage(config: PretrainConfig, max_length: int) -> Stage:
    """Makes the stage for a pretraining."""
    config = config.resolved()
    alone = config.objective == "mlm"
    # `resolved` has given every option its value.
    assert config.batch_size and config.optimizer and config.learning_rate and config.bias_correction is not None
    assert config.steps or config.epochs
    return Stage(
        name="pretraining",
        student_features={"logits": ()},
        weights={"masked_lm": 1.0} if alone else {"masked_lm": 1.0, "next_sentence": 1.0},
        data="text" if alone else "pretraining",
        masked_text=alone,
        max_length=max_length,
        duration=Steps(config.steps or 0) if config.epochs is None else Epochs(config.epochs),
        batch_size=config.batch_size,
        micro_batches=config.micro_batches,
        optimizer=OptimizerConfig(
            algorithm=config.optimizer,
            bias_correction=config.bias_correction,
            learning_rate=config.learning_rate,
            schedule=config.schedule,
            warmup_steps=config.warmup_steps,
            weight_decay=config.weight_decay,
            clip_norm=config.clip_norm or None,
        ),
    )
