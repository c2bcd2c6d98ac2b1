"""MobileBERT: knowledge transfer layer by layer from an IB-BERT teacher, then pretraining distillation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pocketbert.distillation import layer_maps
from pocketbert.distillation.method import DistillationSpec, Method, head_count_problems
from pocketbert.distillation.methods.mobilebert_stages import distillation_stage, transfer_stages
from pocketbert.distillation.teacher_copy import copy_embedding_and_heads, copy_problems
from pocketbert.errors import UserError, raise_if_any
from pocketbert.options import option_problems
from pocketbert.training.objective import Adapters, Batch, Features, Targets
from pocketbert.training.stage import Stage

if TYPE_CHECKING:
    import tensorflow as tf

    from pocketbert.model import Model

# The columns of table 9, one by one; each name is what is left out.
ABLATIONS = ("distillation", "feature_map", "attention")

# What a None in the options stands for.
_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper": {
        "feature_transfer": "mse",
        "lower_layers": "frozen",
        "distillation_batch_size": 4096,
    },
    "authors-code": {
        "feature_transfer": "decomposed",
        "lower_layers": "reduced",
        "distillation_batch_size": 2048,
    },
}


@dataclass(frozen=True, kw_only=True)
class MobileBERT(Method):
    """MobileBERT (Sun et al. 2020, https://arxiv.org/abs/2004.02984).

    On pretraining examples, without a task. Stages: `transfer_01`, `transfer_02`, … (progressive) or `transfer`
    (joint), then `distillation`; or `auxiliary` alone. The terms:

    - `feature_map`: eq. 2; or, decomposed, `feature_normalized`, `feature_mean` and `feature_variance`. `attention`:
      eq. 3. Layer ℓ of the student follows layer ℓ of the teacher; each is the mean over the stage's layers.
    - `masked_lm`, `distillation`, `next_sentence`: L_MLM, L_KD and L_NSP of eq. 4, weighted α, 1 − α and 1.

    What the paper leaves open, and what is done here:

    - The weights between the losses. Decomposed: the authors' code's, 100, 5000 and 5, and 1 for attention. For eq. 2:
      100, the weight of the authors' normalized difference, which eq. 2 is where the teacher's features have mean 0 and
      variance 1; attention again 1. In auxiliary transfer these are added to eq. 4 as they are.
    - Rates and schedules: the authors' code's. Distillation: 1.5e-3 after 10,000 steps of warm-up, linear to 0.
      Progressive transfer: see `transfer_rates`. Joint transfer, of which there is no public code: the same in one
      phase in which every layer is current. Auxiliary transfer, likewise: the schedule of distillation over the steps
      of both.
    - Batch of transfer 2048, length 512, LAMB without bias correction, and no dropout in the student: the authors'
      code's.

    Departures: the authors' code divides a layer's loss by all 24 layers also where one layer learns; here the
    progressive stages' losses are those of one layer (LAMB's steps do not depend on a loss's scale, but clipping does).
    Their attention loss counts padding as queries. Their code multiplies the teacher's last feature map by a
    temperature, which is 1 in their runs and no option here.

    In progressive and joint transfer the embedding and the heads are the teacher's and do not move until distillation.
    A next-sentence classifier is copied although the teacher's reads its tanh pooler and MobileBERT's the raw first
    token; it has to learn that in distillation. So has the masked-LM head's transform, whose activation is each model's
    own. In auxiliary transfer and without transfer nothing is copied.

    Attributes:
      preset: source of defaults: `paper`, or `authors-code`.
      strategy: how knowledge is transferred (section 3.6): `progressive`, a stage a layer; `joint`, one stage for all
        layers; `auxiliary`, together with pretraining distillation in one stage; or `none`.
      without: the ablations of table 9: `distillation` (masked tokens are learned from the data alone), `feature_map`,
        `attention`; without these two no stage of transfer is left.
      feature_transfer: feature maps are compared by `mse` (eq. 2), or `decomposed` into the difference of normalized
        features, of means and of variances; paper: mse, authors' code: decomposed.
      lower_layers: in progressive transfer, layers that had their turn are `frozen`, or learn on at a `reduced` rate, a
        tenth of the current layer's; paper: frozen, authors' code: reduced.
      first_layer: progressive transfer begins with this layer, in a student from a directory in which the layers below
        had their turn.
      copy_norms: copy the embedding norm's scale and shift into a student with another kind of norm too; the authors'
        TF1 code: no, their TF2 code: yes.
      student_dropout: whether the student uses dropout; authors' code: no.
      max_length: maximum sequence length.
      transfer_steps: steps of knowledge transfer; progressive transfer splits them evenly over the layers.
      transfer_batch_size: batch size; authors' code: 2048.
      transfer_learning_rate: base learning rate of progressive and joint transfer, times the layer multipliers (up to
        3).
      distillation_steps: steps of pretraining distillation, 250000 in the paper's ablations; 0 skips the stage.
      distillation_batch_size: batch size, also in auxiliary transfer (default: paper 4096, authors-code 2048).
      distillation_learning_rate: peak learning rate, also in auxiliary transfer.
      distillation_warmup_steps: warm-up steps, at most a tenth of the stage.
      distillation_schedule: schedule after the warm-up: `linear` to 0, or `constant`.
      alpha: weight α of the MLM loss (eq. 4); the distillation loss has 1 − α.
      feature_map_weight: weight of eq. 2.
      feature_normalized_weight: weight of the normalized features' difference; authors' code: 100.
      feature_mean_weight: weight of the means' difference; authors' code: 5000.
      feature_variance_weight: weight of the variances' difference; authors' code: 5.
      attention_weight: weight of eq. 3; authors' code: 1.
      weight_decay: decoupled weight decay, except for biases and norms.
      clip_norm: maximum global gradient norm; 0 for no clipping.
      bias_correction: whether LAMB corrects the bias of its moments, as in the LAMB paper; authors' code: no.
      micro_batches: number of parts per batch, to save memory; the result is the same.
    """

    name: ClassVar[str] = "mobilebert"
    reference: ClassVar[str] = "Sun et al. 2020, MobileBERT, eq. 2-4, section 3.6, https://arxiv.org/abs/2004.02984"
    GROUP: ClassVar = "Method"
    COMMON: ClassVar = ("preset", "strategy", "max_length", "transfer_steps", "distillation_steps", "micro_batches")

    preset: Literal["paper", "authors-code"] = "paper"
    strategy: Literal["progressive", "joint", "auxiliary", "none"] = "progressive"
    without: tuple[str, ...] = ()
    feature_transfer: Literal["mse", "decomposed"] | None = None
    lower_layers: Literal["frozen", "reduced"] | None = None
    first_layer: int = 1
    copy_norms: bool = False
    student_dropout: bool = False
    max_length: int = 512
    transfer_steps: int = 240_000
    transfer_batch_size: int = 2048
    transfer_learning_rate: float = 1.5e-3
    distillation_steps: int = 500_000
    distillation_batch_size: int | None = None
    distillation_learning_rate: float = 1.5e-3
    distillation_warmup_steps: int = 10_000
    distillation_schedule: Literal["linear", "constant"] = "linear"
    alpha: float = 0.5
    feature_map_weight: float = 100.0
    feature_normalized_weight: float = 100.0
    feature_mean_weight: float = 5000.0
    feature_variance_weight: float = 5.0
    attention_weight: float = 1.0
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    bias_correction: bool = False
    micro_batches: int = 1

    def __post_init__(self) -> None:
        may_be_zero = ("distillation_steps", "distillation_warmup_steps", "weight_decay", "clip_norm")
        problems = option_problems(self, may_be_zero=may_be_zero)
        unknown = [name for name in self.without if name not in ABLATIONS]
        if unknown:
            problems.append(f"without takes the ablations {', '.join(ABLATIONS)}; received {', '.join(unknown)}")
        if self.alpha >= 1:
            problems.append(
                f"alpha must be below 1; received {self.alpha}; leave out distillation (without) to learn from the "
                "labels alone"
            )
        if self.first_layer > 1 and self.strategy != "progressive":
            problems.append(
                f"first_layer is of progressive transfer; received {self.first_layer} with strategy={self.strategy}"
            )
        raise_if_any(problems, "mobilebert options")

    def resolved(self) -> MobileBERT:
        """The same with the preset's value wherever an option that a preset decides was not given."""
        missing = {name: value for name, value in _PRESETS[self.preset].items() if getattr(self, name) is None}
        return dataclasses.replace(self, **missing)

    @property
    def transferred(self) -> tuple[str, ...]:
        """The features that layers take from the teacher: out of `hidden_states` and `attention_logits`."""
        if self.strategy == "none":
            return ()
        features = {"feature_map": "hidden_states", "attention": "attention_logits"}
        return tuple(feature for term, feature in features.items() if term not in self.without)

    @property
    def copies(self) -> bool:
        """Whether the student starts with the teacher's embedding and heads, as section 3.6 has it."""
        return self.strategy in ("progressive", "joint") and bool(self.transferred)

    def stages(self, spec: DistillationSpec) -> Sequence[Stage]:
        """`transfer_01`… or `transfer`, then `distillation`; or `auxiliary`.

        Raises:
          UserError: nothing is left to learn, or fewer steps than layers.
        """
        method = self.resolved()
        layers = spec.student.num_layers
        if method.strategy == "auxiliary":
            return [distillation_stage("auxiliary", tuple(range(1, layers + 1)), method)]
        stages = transfer_stages(layers, method) if method.transferred else []
        if method.distillation_steps:
            stages.append(distillation_stage("distillation", (), method))
        if not stages:
            raise UserError(
                "mobilebert: there must be a stage of transfer or of distillation; both are left out; give "
                "distillation_steps, or a strategy and a loss of its own"
            )
        return stages

    def adapters(self, spec: DistillationSpec) -> Adapters:
        """None: teacher and student have feature maps of one width (section 3.1)."""
        return {}

    def validate(self, spec: DistillationSpec) -> list[str]:
        """Depth, widths, heads and tables, of those that the strategy compares or copies; and where to start."""
        teacher, student = spec.teacher, spec.student
        problems = []
        if spec.task is not None:
            problems.append(
                f"mobilebert distils on pretraining examples; received the task {spec.task.name or 'given'}; "
                "distil without one and fine-tune the result"
            )
        if student.pooler == "none":
            problems.append(
                "the next-sentence head needs a pooler; the student has none; give one with first_token or tanh"
            )
        if self.transferred and teacher.num_layers != student.num_layers:
            problems.append(
                f"layer by layer, both need one depth, as in the paper; the teacher has {teacher.num_layers} layers, "
                f"the student {student.num_layers}; give a student with {teacher.num_layers}, or transfer nothing "
                "(strategy none)"
            )
        if "attention_logits" in self.transferred:
            remedy = f"or a teacher with {student.num_attention_heads}, or leave out attention (without)"
            problems += [f"{text}, {remedy}" for text in head_count_problems(spec)]
        if self.copies:
            problems += copy_problems(spec)
        elif "hidden_states" in self.transferred and teacher.hidden_size != student.hidden_size:
            problems.append(
                f"feature maps are compared as they are; the teacher's are {teacher.hidden_size} wide, the student's "
                f"{student.hidden_size}; give a student with {teacher.hidden_size}, or leave out feature_map (without)"
            )
        if self.first_layer > student.num_layers:
            problems.append(
                f"first_layer must be one of the student's {student.num_layers} layers; received {self.first_layer}"
            )
        if self.first_layer > 1 and spec.start not in ("directory", None):
            problems.append(
                f"transfer from layer {self.first_layer} on needs layers below that had their turn; the student "
                "starts fresh; give the model directory that they are in"
            )
        return problems

    def initialize(self, teacher: Model | None, student: Model) -> None:
        """In progressive and joint transfer: copies the teacher's embedding and heads (section 3.6).

        What exactly is told in `teacher_copy`. A student from a directory keeps what it has: the run does not call
        this for it.

        Raises:
          UserError: there is no live teacher to copy from.
        """
        if not self.copies:
            return
        if teacher is None:
            raise UserError(
                "the embedding and the heads are copied from the teacher's own weights; received stored targets; give "
                "a live teacher"
            )
        copy_embedding_and_heads(teacher, student, any_norm=self.copy_norms)

    def targets(self, stage: Stage, teacher: Features, batch: Batch) -> Targets:
        """The teacher's features by name and layer: `hidden_states_3` [B, S, H], `attention_logits_3` [B, N, S, S].

        In distillation `masked_lm_logits`, [B, P, V].
        """
        targets = layer_maps.layer_targets(stage, teacher, ("hidden_states", "attention_logits"))
        if "logits" in stage.teacher_features:
            targets["masked_lm_logits"] = teacher["logits"][0]
        return targets

    def loss(
        self, stage: Stage, targets: Targets, student: Features, adapters: Adapters, batch: Batch
    ) -> Mapping[str, tf.Tensor]:
        """The terms of `stage.weights`; see the class."""
        from pocketbert.distillation.losses import attention_transfer, soft_cross_entropy
        from pocketbert.training.label_losses import pretraining_losses

        mask = batch["input_mask"]
        losses: dict[str, list[tf.Tensor]] = {term: [] for term in stage.weights}
        for _, learned, target in layer_maps.layer_pairs("hidden_states", stage, student, targets):
            for term, value in _feature_map_terms(target, learned, mask, stage.options).items():
                losses[term].append(value)
        for _, learned, target in layer_maps.layer_pairs("attention_logits", stage, student, targets):
            losses["attention"].append(attention_transfer(target, learned, mask))
        if "masked_lm" in losses:
            for term, value in pretraining_losses(student, batch).items():
                losses[term].append(value)
            if "distillation" in losses:
                # The first token, [CLS], is never masked: its position fills up the rows.
                masked = batch["masked_lm_positions"] > 0
                losses["distillation"].append(
                    soft_cross_entropy(targets["masked_lm_logits"], student["logits"][0], mask=masked)
                )
        return {term: sum(layers[1:], layers[0]) / len(layers) for term, layers in losses.items()}


def _feature_map_terms(
    teacher: tf.Tensor, student: tf.Tensor, mask: tf.Tensor, method: MobileBERT
) -> dict[str, tf.Tensor]:
    from pocketbert.distillation.losses import feature_map_transfer, feature_statistics_transfer

    if method.feature_transfer == "mse":
        return {"feature_map": feature_map_transfer(teacher, student, mask)}
    statistics = feature_statistics_transfer(teacher, student, mask)
    return {f"feature_{name}": value for name, value in statistics.items()}
