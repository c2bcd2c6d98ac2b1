"""Training of the scaled-down MobileBERT: shapes, variants, steps and rates."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pocketbert.configs import BottleneckConfig
from pocketbert.distillation.methods.mobilebert import MobileBERT
from pocketbert.presets import preset
from pocketbert.training.config import FinetuneConfig, PretrainConfig, RunConfig
from pocketbert.training.grids.published import PUBLISHED_HEAD
from studies.glue_examples import APART, CHOOSING, SST2_EXAMPLES

if TYPE_CHECKING:
    from pocketbert.data.pretraining.options import PretrainingOptions

SEEDS = (0, 1)
# Different from the students' seeds, so that no student sees examples in the teacher's order.
TEACHER_SEED = 1000
TEXT_FILE = "text/enwiki2015-train.txt.xz"
# Lengths for pretraining examples, and for tasks and exported networks (table 6).
PRETRAINING_LENGTH, TASK_LENGTH = 64, 128
DEV_EVERY = 50
BATCH_SIZE = 32

TEACHER_STEPS = 5000
# AdamW: in small batches, the paper's LAMB has no advantage and takes steps of the same rate, which must be twenty
# times higher, on biases and norms too. The rate is that of ELECTRA-small, a network of the same width, and the best
# of four in 300 steps.
TEACHER_RATE = 5e-4
# LAMB's rate, as in the method. A higher rate is slightly better for the no-distillation baseline in 300 steps, but not
# for transfer. A student that starts with the teacher's embedding and heads loses part of them at the rate for new
# weights.
RATE, COPIED_RATE, TRANSFER_RATE = 2e-2, 5e-3, 5e-3
UPDATES = 1000
# Similar to the paper's ablations: 240,000 of 490,000.
TRANSFER_STEPS = 490
# A live teacher takes more than half of a step's operations; this format takes less time.
LIVE_TEACHER_PRECISION: Literal["float32", "bfloat16"] = "bfloat16"
EVALUATION_BATCHES, DIVERGENCE_BATCHES = 60, 20
# Batches to count token frequencies: a million masked tokens.
COUNTED_BATCHES = 4000

TASKS = ("sst2", "mrpc")
TASK_PASSES, TASK_RATE = 3, 2e-4
# Options that are newer than the committed scores; with their values here, everything is as before.
_LATER_OPTIONS = {*PUBLISHED_HEAD, "contrastive_steps", "new_head", "feedforward"}

# Proportionally narrower than the paper's: 256 between layers and 384 inside instead of 512 and 1024; the teacher's
# feed-forward network is 3 times as wide as its block, not 4.
TEACHER = preset("ib_bert_large").config.replace(
    num_layers=6,
    hidden_size=256,
    head_size=96,
    intermediate_size=1152,
    bottleneck=BottleneckConfig(size=384, query_key="raw"),
    max_position_embeddings=TASK_LENGTH,
    # Each example is seen once.
    hidden_dropout=0.0,
    attention_dropout=0.0,
)
STUDENT = preset("mobilebert_paper").config.replace(
    num_layers=6,
    hidden_size=256,
    head_size=16,
    intermediate_size=256,
    bottleneck=BottleneckConfig(size=64, query_key="raw"),
    max_position_embeddings=TASK_LENGTH,
)


@dataclass(frozen=True, kw_only=True)
class MobileBERTVariant:
    """One way to make a student.

    Attributes:
      label: name in the table.
      strategy: strategy of knowledge transfer.
      without: losses to leave out.
      copied: whether it starts with the teacher's embedding and heads although the strategy does not copy them.
      trained: whether it is trained at all.
    """

    label: str
    strategy: Literal["none", "auxiliary", "joint", "progressive"] = "none"
    without: tuple[str, ...] = ()
    copied: bool = False
    trained: bool = True

    @property
    def starts_from_teacher(self) -> bool:
        """Whether it starts with the teacher's embedding and heads."""
        return self.copied or self.strategy in ("joint", "progressive")

    @property
    def taught(self) -> bool:
        """Whether it learns from the teacher."""
        return self.trained and (self.strategy != "none" or "distillation" not in self.without)


# Variants without a teacher come first, then the most informative ones.
VARIANTS = (
    MobileBERTVariant(label="never pretrained", trained=False),
    MobileBERTVariant(label="no distillation", without=("distillation",)),
    MobileBERTVariant(label="progressive (PD, FMT, AT)", strategy="progressive"),
    MobileBERTVariant(label="PD, copied embedding and heads", copied=True),
    MobileBERTVariant(label="PD"),
    MobileBERTVariant(label="joint", strategy="joint"),
    MobileBERTVariant(label="progressive without FMT", strategy="progressive", without=("feature_map",)),
    MobileBERTVariant(label="progressive without AT", strategy="progressive", without=("attention",)),
    MobileBERTVariant(label="progressive without PD", strategy="progressive", without=("distillation",)),
    MobileBERTVariant(label="auxiliary", strategy="auxiliary"),
    MobileBERTVariant(label="auxiliary, copied embedding and heads", strategy="auxiliary", copied=True),
)


def data_options() -> PretrainingOptions:
    """Options of the pretraining examples."""
    from pocketbert.data.pretraining.options import PretrainingOptions

    return PretrainingOptions(max_length=PRETRAINING_LENGTH, dev_every=DEV_EVERY)


def teacher_options() -> PretrainConfig:
    """Options of the teacher's pretraining."""
    return PretrainConfig(
        steps=TEACHER_STEPS,
        batch_size=BATCH_SIZE,
        optimizer="adamw",
        learning_rate=TEACHER_RATE,
        bias_correction=True,
    )


def student_options(variant: MobileBERTVariant) -> MobileBERT:
    """Options of a trained variant; each takes `UPDATES` updates."""
    transfers = variant.strategy != "none"
    return MobileBERT(
        strategy=variant.strategy,
        without=variant.without,
        max_length=PRETRAINING_LENGTH,
        transfer_steps=TRANSFER_STEPS,
        distillation_steps=UPDATES - TRANSFER_STEPS if transfers else UPDATES,
        transfer_batch_size=BATCH_SIZE,
        distillation_batch_size=BATCH_SIZE,
        transfer_learning_rate=TRANSFER_RATE,
        distillation_learning_rate=COPIED_RATE if variant.starts_from_teacher else RATE,
        bias_correction=True,
    ).resolved()


def finetune_options() -> FinetuneConfig:
    """Options of fine-tuning on either task."""
    return FinetuneConfig(
        **PUBLISHED_HEAD, learning_rate=TASK_RATE, epochs=TASK_PASSES, batch_size=BATCH_SIZE, max_length=TASK_LENGTH
    )


def run_options(seed: int, *, taught: bool = False) -> RunConfig:
    """Options of all pretraining and distillation runs; each stage is scored at its end."""
    return RunConfig(
        seed=seed,
        teacher_precision=LIVE_TEACHER_PRECISION if taught else None,
        evaluation_batches=EVALUATION_BATCHES,
        checkpoint_seconds=300,
    )


def settings() -> dict[str, Any]:
    """All settings that determine the table, as JSON values."""
    students = {variant.label: _recorded(student_options(variant)) for variant in VARIANTS if variant.trained}
    first, *others = students.values()
    common = {name: value for name, value in first.items() if all(other[name] == value for other in others)}
    values = {
        "seeds": SEEDS,
        "text": TEXT_FILE,
        "data": _recorded(data_options()),
        "teacher": _recorded(TEACHER),
        "teacher's training": {**_recorded(teacher_options()), "seed": TEACHER_SEED},
        "student": _recorded(STUDENT),
        "students' training": common,
        "variants": {
            label: {name: value for name, value in options.items() if name not in common}
            for label, options in students.items()
        },
        "start with the teacher's embedding and heads": [variant.label for variant in VARIANTS if variant.copied],
        "a live teacher computes in": LIVE_TEACHER_PRECISION,
        "evaluation batches": [EVALUATION_BATCHES, DIVERGENCE_BATCHES, COUNTED_BATCHES],
        "tasks": TASKS,
        "sentences of SST-2 that teach, choose and are scored": [SST2_EXAMPLES, CHOOSING, APART],
        "fine-tuning": _recorded(finetune_options()),
        "exported tokens": TASK_LENGTH,
    }
    # Convert tuples to lists, as in the JSON that is read back.
    return json.loads(json.dumps(values))


def _recorded(options: Any) -> dict[str, Any]:
    """Options by name, without those that are newer than the committed scores."""
    return {name: value for name, value in dataclasses.asdict(options).items() if name not in _LATER_OPTIONS}
