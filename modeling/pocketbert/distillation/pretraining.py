"""Pretraining as a run of one stage without a teacher: masked words and next sentences.

Nothing at the top imports TensorFlow, since the command line reads the options before it answers `--help`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pocketbert.configs import EncoderConfig
from pocketbert.distillation.method import (
    Adapters,
    Batch,
    Epochs,
    OptimizerConfig,
    Setting,
    Stage,
    Steps,
    StudentFeatures,
    WithoutTeacher,
)
from pocketbert.distillation.run_options import DistillResult, RunOptions
from pocketbert.errors import raise_if_any
from pocketbert.options import option_problems

if TYPE_CHECKING:
    import tensorflow as tf


@dataclass(frozen=True, kw_only=True)
class PretrainOptions:
    """How to pretrain. The defaults are those of MobileBERT's teacher (Sun et al. 2020, section 4.2).

    What the paper leaves open is taken from its authors' code, google-research/mobilebert.

    Attributes:
      steps: updates of the weights; the paper's 500,000.
      epochs: passes over the data, in place of --steps.
      batch_size: examples an update, over all replicas; the paper's 4096. BERT took 256 (and 1,000,000 steps).
      micro_batches: parts of a replica's examples that are computed one after the other, for memory; the update is the
        same.
      optimizer: lamb, as the paper has it, or adamw, which is BERT's.
      bias_correction: correct the moments, as LAMB's and Adam's papers do; the authors' code and BERT's do not.
      learning_rate: the highest rate; the 1.5e-3 of the authors' LAMB for batches of 2048, since the paper gives none.
        BERT's AdamW took 1e-4 for batches of 256.
      schedule: after the warm-up, linear down to 0 at the last step, as the authors have it, or constant.
      warmup_steps: steps in which the rate rises from 0; the authors' 10,000, and a tenth of all steps at most.
      weight_decay: decoupled, not on biases and norms; the authors' 0.01.
      clip_norm: the highest global norm of the gradients; the authors' 1.0; 0 for no clipping.
    """

    GROUP: ClassVar = "Pretraining"
    COMMON: ClassVar = ("steps", "batch_size", "micro_batches", "optimizer", "learning_rate")

    steps: int = 500_000
    epochs: int | None = None
    batch_size: int = 4096
    micro_batches: int = 1
    optimizer: Literal["lamb", "adamw"] = "lamb"
    bias_correction: bool = False
    learning_rate: float = 1.5e-3
    schedule: Literal["linear", "constant"] = "linear"
    warmup_steps: int = 10_000
    weight_decay: float = 0.01
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        problems = option_problems(self, may_be_zero=("warmup_steps", "weight_decay", "clip_norm"))
        if self.micro_batches > 0 and self.batch_size % self.micro_batches:
            problems.append(
                f"batch_size must divide into micro_batches; received {self.batch_size} and {self.micro_batches}"
            )
        raise_if_any(problems, "pretraining options")


class Pretraining(WithoutTeacher):
    """What `Method` asks of a distillation, of a run that learns from labels alone.

    Args:
      max_length: of the examples, in tokens.
    """

    name = "pretraining"
    reference = "Devlin et al. 2019, section 3.1, https://arxiv.org/abs/1810.04805"
    options = PretrainOptions

    def __init__(self, max_length: int) -> None:
        self._max_length = max_length

    def stages(self, setting: Setting, options: PretrainOptions) -> Sequence[Stage]:
        """One stage."""
        return [
            Stage(
                name="pretraining",
                teacher_features={},
                student_features={"logits": ()},
                weights={"masked_lm": 1.0, "next_sentence": 1.0},
                data="pretraining",
                max_length=self._max_length,
                duration=Steps(options.steps) if options.epochs is None else Epochs(options.epochs),
                batch_size=options.batch_size,
                micro_batches=options.micro_batches,
                optimizer=OptimizerConfig(
                    algorithm=options.optimizer,
                    bias_correction=options.bias_correction,
                    learning_rate=options.learning_rate,
                    schedule=options.schedule,
                    warmup_steps=options.warmup_steps,
                    weight_decay=options.weight_decay,
                    clip_norm=options.clip_norm or None,
                ),
            )
        ]

    def loss(
        self,
        stage: Stage,
        targets: Mapping[str, tf.Tensor],
        student: StudentFeatures,
        adapters: Adapters,
        batch: Batch,
    ) -> Mapping[str, tf.Tensor]:
        """BERT's two losses; their sum is what is trained."""
        from pocketbert.distillation.label_losses import masked_lm_loss, next_sentence_loss

        words, sentences = student["logits"]
        return {
            "masked_lm": masked_lm_loss(batch["masked_lm_labels"], words),
            "next_sentence": next_sentence_loss(batch["next_sentence_labels"], sentences),
        }


def pretrain(
    *,
    model: str | Path | EncoderConfig,
    data: str | os.PathLike[str],
    output: str | os.PathLike[str],
    dev_data: str | os.PathLike[str] | None = None,
    options: PretrainOptions = PretrainOptions(),  # noqa: B008
    run: RunOptions = RunOptions(),  # noqa: B008
    overwrite: bool = False,
) -> DistillResult:
    """Pretrains a model on masked words and next sentences.

    Interrupted and resumed it behaves as `distill` does, whose engine this is.

    Args:
      model: a preset's name, an architecture or a config.json for fresh weights; or a model directory to go on from,
        whose masked-LM and next-sentence heads are kept where it has them.
      data: a folder of `pocketbert pretrain-data`.
      output: the run's folder, as of `distill`.
      dev_data: held-out examples; None evaluates nothing.
      options: how to train.
      run: how it is run.
      overwrite: throw away a finished run in `output`, or one with other options.

    Returns:
      The model, with both heads, and its metrics on the held-out examples.

    Raises:
      UserError: bad input; nothing has been written then.
      TrainingFailed: the loss is no longer finite.
    """
    from pocketbert.distillation.run import distill

    return distill(**_arguments(model, data, dev_data, options), output=output, run=run, overwrite=overwrite)


def pretrain_seeds(
    seeds: Sequence[int], output: str | os.PathLike[str], run: RunOptions, *, overwrite: bool = False, **arguments: Any
) -> dict[str, Any]:
    """Runs `pretrain` once a seed; see `distill_seeds`."""
    from pocketbert.distillation.run import distill_seeds

    return distill_seeds(seeds, output, run, overwrite=overwrite, **_arguments(**arguments))


def _arguments(
    model: str | Path | EncoderConfig,
    data: str | os.PathLike[str],
    dev_data: str | os.PathLike[str] | None,
    options: PretrainOptions,
) -> dict[str, Any]:
    from pocketbert.data.pretraining_data import PretrainingData

    # What it says of its length is checked against the model's; the files are verified when they are read.
    max_length = PretrainingData.open(data, verify=False).max_length
    return {
        "method": Pretraining(max_length),
        "options": options,
        "student": model,
        "pretraining": data,
        "dev_pretraining": dev_data,
    }
