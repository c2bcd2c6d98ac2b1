"""MobileBERT: layer-wise knowledge transfer from an IB-BERT teacher, then pretraining distillation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pocketbert.distillation import layer_maps
from pocketbert.distillation.method import DistillationSpec, Method, head_count_problems
from pocketbert.distillation.teacher_copy import copy_embedding_and_heads, copy_problems
from pocketbert.distillation.transfer_rates import TransferRates
from pocketbert.errors import UserError, raise_if_any
from pocketbert.options import option_problems
from pocketbert.training.objective import Adapters, Batch, Features, Targets
from pocketbert.training.stage import OptimizerConfig, Stage, Steps

if TYPE_CHECKING:
    import tensorflow as tf

    from pocketbert.model import Model

# The ablations in table 9; each name is a removed component.
ABLATIONS = ("distillation", "feature_map", "attention")

# Values for options that are None.
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

    The method is task-independent and uses pretraining examples. Its stages are `transfer_01`, `transfer_02`, …
    (progressive) or `transfer` (joint), then `distillation`; or `auxiliary` alone. The loss terms are:

    - `feature_map`: eq. 2; in the decomposed form `feature_normalized`, `feature_mean` and `feature_variance`.
    - `attention`: eq. 3. These terms compare layer ℓ in student and teacher, and average over the stage's layers.
    - `masked_lm`, `distillation`, `next_sentence`: L_MLM, L_KD and L_NSP in eq. 4, with weights α, 1 − α and 1.

    Choices for values that the paper does not give:

    - Loss weights: the authors' code has 100, 5000 and 5 for the decomposed form and 1 for attention. Eq. 2 has 100, as
      the normalized difference, because both are equal for teacher features with mean 0 and variance 1. Auxiliary
      transfer adds these terms to eq. 4 with the same weights.
    - Learning rates and schedules: as in the authors' code. Distillation uses 1.5e-3 after 10,000 warm-up steps, then
      linear decay to 0. For progressive transfer, see `transfer_rates`. Joint and auxiliary transfer have no public
      code: joint transfer is one phase in which every layer is current; auxiliary transfer uses the distillation
      schedule over the steps of both.
    - Batch size 2048 in transfer, length 512, LAMB without bias correction, and no student dropout: as in the authors'
      code.

    Departures: the authors' code divides a layer's loss by 24 even if one layer learns; here it does not. (The loss
    scale does not affect LAMB's steps, but it affects clipping.) Their attention loss counts padding as queries. Their
    code multiplies the teacher's last feature map by a temperature; it is 1 in their runs, and not an option here.

    Progressive and joint transfer copy the teacher's embedding and heads and freeze them until distillation. They copy
    the next-sentence classifier although its input differs: the teacher's tanh pooler, or the raw first token in
    MobileBERT. They copy the MLM head's transform although its activation may differ. Both adapt in distillation.
    Auxiliary transfer and runs without transfer copy nothing.

    Attributes:
      preset: source of defaults: `paper`, or `authors-code`.
      strategy: knowledge transfer (section 3.6): `progressive`, one stage per layer; `joint`, one stage for all layers;
        `auxiliary`, together with pretraining distillation in one stage; or `none`.
      without: ablations (table 9): `distillation` (MLM learns from the data only), `feature_map`, `attention`; without
        the last two, no transfer stage is left.
      feature_transfer: comparison of feature maps: `mse` (eq. 2), or `decomposed` into differences between normalized
        features, means and variances; paper: mse, authors' code: decomposed.
      lower_layers: in progressive transfer, layers below the current one are `frozen`, or learn at a `reduced` rate, a
        tenth of the current layer's; paper: frozen, authors' code: reduced.
      first_layer: first layer in progressive transfer; above 1, the student must come from a directory with trained
        lower layers.
      copy_norms: also copy the embedding norm's scale and shift to a student with another kind of norm; authors' TF1
        code: no, TF2 code: yes.
      student_dropout: whether the student uses dropout; authors' code: no.
      max_length: maximum sequence length.
      transfer_steps: steps for knowledge transfer; progressive transfer splits them evenly over the layers.
      transfer_batch_size: batch size in transfer; authors' code: 2048.
      transfer_learning_rate: base learning rate in progressive and joint transfer; multipliers per layer reach 3.
      distillation_steps: steps for pretraining distillation, 250000 in the paper's ablations; 0 skips the stage.
      distillation_batch_size: batch size, also in auxiliary transfer (default: paper 4096, authors-code 2048).
      distillation_learning_rate: peak learning rate, also in auxiliary transfer.
      distillation_warmup_steps: warm-up steps, at most a tenth of the stage.
      distillation_schedule: schedule after the warm-up: `linear` decay to 0, or `constant`.
      alpha: weight α of the MLM loss (eq. 4); the distillation loss has 1 − α.
      feature_map_weight: weight of eq. 2.
      feature_normalized_weight: weight of the difference between normalized features; authors' code: 100.
      feature_mean_weight: weight of the difference between means; authors' code: 5000.
      feature_variance_weight: weight of the difference between variances; authors' code: 5.
      attention_weight: weight of eq. 3; authors' code: 1.
      weight_decay: decoupled weight decay, except for biases and norms.
      clip_norm: maximum global gradient norm; 0 for no clipping.
      bias_correction: whether LAMB corrects its moments' bias, as in the LAMB paper; authors' code: no.
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
            problems.append(f"without accepts {', '.join(ABLATIONS)}; received {', '.join(unknown)}")
        if self.alpha >= 1:
            problems.append(
                f"alpha must be below 1; received {self.alpha}; to learn from labels alone, give without=distillation"
            )
        if self.first_layer > 1 and self.strategy != "progressive":
            problems.append(
                f"first_layer needs strategy=progressive; received {self.first_layer} with strategy={self.strategy}"
            )
        raise_if_any(problems, "mobilebert options")

    def resolved(self) -> MobileBERT:
        """Returns a copy with the preset's values for options that are None."""
        missing = {name: value for name, value in _PRESETS[self.preset].items() if getattr(self, name) is None}
        return dataclasses.replace(self, **missing)

    @property
    def transferred(self) -> tuple[str, ...]:
        """The features compared per layer: `hidden_states`, `attention_logits`, both or none."""
        if self.strategy == "none":
            return ()
        features = {"feature_map": "hidden_states", "attention": "attention_logits"}
        return tuple(feature for term, feature in features.items() if term not in self.without)

    @property
    def copies(self) -> bool:
        """Whether the run copies the teacher's embedding and heads (section 3.6)."""
        return self.strategy in ("progressive", "joint") and bool(self.transferred)

    def stages(self, spec: DistillationSpec) -> Sequence[Stage]:
        """Returns `transfer_01`… or `transfer`, then `distillation`; or `auxiliary`.

        Raises:
          UserError: no stage is left, or there are fewer steps than layers.
        """
        method = self.resolved()
        layers = spec.student.num_layers
        if method.strategy == "auxiliary":
            return [_distillation_stage("auxiliary", tuple(range(1, layers + 1)), method)]
        stages = _transfer_stages(layers, method) if method.transferred else []
        if method.distillation_steps:
            stages.append(_distillation_stage("distillation", (), method))
        if not stages:
            raise UserError(
                "mobilebert: a run needs transfer or distillation; received neither; set distillation_steps, or a "
                "strategy with a transfer loss"
            )
        return stages

    def adapters(self, spec: DistillationSpec) -> Adapters:
        """Returns none: teacher and student have equally wide feature maps (section 3.1)."""
        return {}

    def validate(self, spec: DistillationSpec) -> list[str]:
        """Checks task, pooler and initialization, and the depth, heads and sizes that the strategy needs."""
        teacher, student = spec.teacher, spec.student
        problems = []
        if spec.task is not None:
            problems.append(
                f"mobilebert needs pretraining examples; received the task {spec.task.name or spec.task.kind}; distil "
                "without a task and fine-tune the result"
            )
        if student.pooler == "none":
            problems.append(
                "the next-sentence head needs a pooler; the student has none; give a student with first_token or tanh"
            )
        if self.transferred and teacher.num_layers != student.num_layers:
            problems.append(
                f"layer-wise transfer needs the same depth, as in the paper; the teacher has {teacher.num_layers} "
                f"layers, the student {student.num_layers}; give a student with {teacher.num_layers} layers, or use "
                "strategy=none"
            )
        if self.strategy == "progressive" and self.transferred and student.layer_groups is not None:
            problems.append(
                "progressive transfer trains one layer after the other, so a student's layers must not share their "
                f"weights; received layer_groups={student.layer_groups}; use strategy=joint"
            )
        if "attention_logits" in self.transferred:
            remedy = f"or a teacher with {student.num_attention_heads}, or leave out attention (without)"
            problems += [f"{text}, {remedy}" for text in head_count_problems(spec)]
        if self.copies:
            problems += copy_problems(spec)
        elif "hidden_states" in self.transferred and teacher.hidden_size != student.hidden_size:
            problems.append(
                f"feature maps must have the same width; the teacher's is {teacher.hidden_size}, the student's "
                f"{student.hidden_size}; give a student with {teacher.hidden_size}, or leave out feature_map (without)"
            )
        if self.first_layer > student.num_layers:
            problems.append(
                f"first_layer must be 1 to {student.num_layers}, a layer of the student; received {self.first_layer}"
            )
        if self.first_layer > 1 and spec.start not in ("directory", "supernet", None):
            problems.append(
                f"first_layer={self.first_layer} needs a student with trained layers below; the student has random "
                "weights; give a model directory from an earlier transfer"
            )
        return problems

    def initialize(self, teacher: Model | None, student: Model) -> None:
        """Copies the teacher's embedding and heads in progressive and joint transfer (section 3.6); see `teacher_copy`.

        Raises:
          UserError: there is no live teacher.
        """
        if not self.copies:
            return
        if teacher is None:
            raise UserError(
                f"strategy={self.strategy} copies weights of the teacher; received a teacher cache; give a live teacher"
            )
        copy_embedding_and_heads(teacher, student, any_norm=self.copy_norms)

    def targets(self, stage: Stage, teacher: Features, batch: Batch) -> Targets:
        """Returns the teacher's features by name and layer, and in distillation `masked_lm_logits` [B, P, V].

        Examples: `hidden_states_3` [B, S, H], `attention_logits_3` [B, N, S, S].
        """
        targets = layer_maps.layer_targets(stage, teacher, ("hidden_states", "attention_logits"))
        if "logits" in stage.teacher_features:
            targets["masked_lm_logits"] = teacher["logits"][0]
        return targets

    def loss(
        self, stage: Stage, targets: Targets, student: Features, adapters: Adapters, batch: Batch
    ) -> Mapping[str, tf.Tensor]:
        """Returns the terms in `stage.weights`; see the class."""
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
            for term, value in pretraining_losses(student, batch, stage.label_smoothing).items():
                losses[term].append(value)
            if "distillation" in losses:
                # Position 0, [CLS], is never masked; it pads the rows.
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


def _transfer_stages(num_layers: int, method: MobileBERT) -> list[Stage]:
    """Returns one stage per layer from `first_layer` on, or one stage for joint transfer."""
    if method.strategy == "joint":
        return [_transfer_stage("transfer", 1, num_layers, method.transfer_steps, method)]
    if method.transfer_steps < num_layers:
        raise UserError(
            f"mobilebert: progressive transfer needs one step per layer; received "
            f"transfer_steps={method.transfer_steps} for {num_layers} layers"
        )
    # Layer ℓ ends after ℓ/L of the steps, so the sum is exact for every L.
    ends = [layer * method.transfer_steps // num_layers for layer in range(num_layers + 1)]
    digits = max(2, len(str(num_layers)))
    return [
        _transfer_stage(f"transfer_{layer:0{digits}}", layer, layer, ends[layer] - ends[layer - 1], method)
        for layer in range(method.first_layer, num_layers + 1)
    ]


def _transfer_stage(name: str, first: int, last: int, steps: int, method: MobileBERT) -> Stage:
    """Returns a stage in which layers `first` to `last` learn from the teacher's same layers."""
    rates = TransferRates(first=first, last=last, steps=steps, lower=method.lower_layers == "reduced")
    features = dict.fromkeys(method.transferred, tuple(range(first, last + 1)))
    return Stage(
        name=name,
        teacher_features=features,
        student_features=features,
        weights=_transfer_weights(method),
        duration=Steps(steps),
        batch_size=method.transfer_batch_size,
        optimizer=_optimizer(method, learning_rate=method.transfer_learning_rate, schedule="constant"),
        trainable=rates.trains,
        learning_rate_multiplier=rates,
        **_common_fields(method),
    )


def _distillation_stage(name: str, layers: tuple[int, ...], method: MobileBERT) -> Stage:
    """Returns a pretraining distillation stage, with auxiliary knowledge transfer in `layers`."""
    assert method.distillation_batch_size is not None
    features: dict[str, tuple[int, ...]] = dict.fromkeys(method.transferred if layers else (), layers)
    weights = _transfer_weights(method) if layers else {}
    teaches = "distillation" not in method.without
    weights |= {"masked_lm": method.alpha if teaches else 1.0, "next_sentence": 1.0}
    if teaches:
        weights["distillation"] = 1 - method.alpha
    return Stage(
        name=name,
        teacher_features={**features, "logits": ()} if teaches else features,
        student_features={**features, "logits": ()},
        weights=weights,
        duration=Steps(method.distillation_steps + (method.transfer_steps if layers else 0)),
        batch_size=method.distillation_batch_size,
        optimizer=_optimizer(
            method,
            learning_rate=method.distillation_learning_rate,
            schedule=method.distillation_schedule,
            warmup_steps=method.distillation_warmup_steps,
        ),
        **_common_fields(method),
    )


def _common_fields(method: MobileBERT) -> dict[str, Any]:
    return {
        "data": "pretraining",
        "max_length": method.max_length,
        "micro_batches": method.micro_batches,
        "student_dropout": method.student_dropout,
        "options": method,
    }


def _optimizer(method: MobileBERT, **fields: Any) -> OptimizerConfig:
    return OptimizerConfig(
        algorithm="lamb",
        weight_decay=method.weight_decay,
        clip_norm=method.clip_norm or None,
        bias_correction=method.bias_correction,
        **fields,
    )


def _transfer_weights(method: MobileBERT) -> dict[str, float]:
    weights = {}
    if "hidden_states" in method.transferred:
        decomposed = ("feature_normalized", "feature_mean", "feature_variance")
        terms = decomposed if method.feature_transfer == "decomposed" else ("feature_map",)
        weights = {term: getattr(method, f"{term}_weight") for term in terms}
    if "attention_logits" in method.transferred:
        weights["attention"] = method.attention_weight
    return weights
