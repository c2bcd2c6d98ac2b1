"""MobileBERT: knowledge transfer layer by layer from an IB-BERT teacher, then pretraining distillation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pocketbert.distillation import layer_maps
from pocketbert.distillation.method import (
    Adapters,
    Batch,
    OptimizerConfig,
    Setting,
    Stage,
    Steps,
    StudentFeatures,
    TeacherFeatures,
    head_count_mismatches,
)
from pocketbert.distillation.methods.mobilebert_options import MobileBERTOptions
from pocketbert.distillation.teacher_copy import copy_embedding_and_heads, copy_mismatches
from pocketbert.distillation.transfer_rates import TransferRates
from pocketbert.errors import UserError

if TYPE_CHECKING:
    import tensorflow as tf

    from pocketbert.model import Model


class MobileBERT:
    """MobileBERT (Sun et al. 2020, https://arxiv.org/abs/2004.02984).

    On pretraining's examples, without a task. Stages: `transfer_01`, `transfer_02`, … (progressive) or `transfer`
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
    """

    name = "mobilebert"
    reference = "Sun et al. 2020, MobileBERT, eq. 2-4, section 3.6, https://arxiv.org/abs/2004.02984"
    options = MobileBERTOptions

    def stages(self, setting: Setting, options: MobileBERTOptions) -> Sequence[Stage]:
        """`transfer_01`… or `transfer`, then `distillation`; or `auxiliary`.

        Raises:
          UserError: nothing is left to learn, or fewer steps than layers.
        """
        options = options.resolved()
        layers = setting.student.num_layers
        if options.strategy == "auxiliary":
            return [_distillation_stage("auxiliary", tuple(range(1, layers + 1)), options)]
        stages = _transfer_stages(layers, options) if options.transferred else []
        if options.distillation_steps:
            stages.append(_distillation_stage("distillation", (), options))
        if not stages:
            raise UserError(
                "mobilebert: there must be a stage of transfer or of distillation; both are left out; give "
                "distillation_steps, or a strategy and a loss of its own"
            )
        return stages

    def adapters(self, setting: Setting, options: MobileBERTOptions) -> Adapters:
        """None: teacher and student have feature maps of one width (section 3.1)."""
        return {}

    def mismatches(self, setting: Setting, options: MobileBERTOptions) -> list[str]:
        """Depth, widths, heads and tables, of those that the strategy compares or copies; and where to start."""
        teacher, student = setting.teacher, setting.student
        problems = []
        if setting.task is not None:
            problems.append(
                f"mobilebert distils on pretraining's examples; received the task {setting.task.name or 'given'}; "
                "distil without one and fine-tune the result"
            )
        if student.pooler == "none":
            problems.append(
                "the next-sentence head needs a pooler; the student has none; give one with first_token or tanh"
            )
        if options.transferred and teacher.num_layers != student.num_layers:
            problems.append(
                f"layer by layer, both need one depth, as in the paper; the teacher has {teacher.num_layers} layers, "
                f"the student {student.num_layers}; give a student with {teacher.num_layers}, or transfer nothing "
                "(strategy none)"
            )
        if "attention_logits" in options.transferred:
            remedy = f"or a teacher with {student.num_attention_heads}, or leave out attention (without)"
            problems += [f"{text}, {remedy}" for text in head_count_mismatches(setting)]
        if options.copies:
            problems += copy_mismatches(setting)
        elif "hidden_states" in options.transferred and teacher.hidden_size != student.hidden_size:
            problems.append(
                f"feature maps are compared as they are; the teacher's are {teacher.hidden_size} wide, the student's "
                f"{student.hidden_size}; give a student with {teacher.hidden_size}, or leave out feature_map (without)"
            )
        if options.first_layer > student.num_layers:
            problems.append(
                f"first_layer must be one of the student's {student.num_layers} layers; received {options.first_layer}"
            )
        if options.first_layer > 1 and setting.start not in ("directory", None):
            problems.append(
                f"transfer from layer {options.first_layer} on needs layers below that had their turn; the student "
                "starts fresh; give the model directory that they are in"
            )
        return problems

    def initialize(self, teacher: Model | None, student: Model, options: MobileBERTOptions) -> None:
        """In progressive and joint transfer: copies the teacher's embedding and heads (section 3.6).

        What exactly is told in `teacher_copy`. A student from a directory keeps what it has: the run does not call
        this for it.

        Raises:
          UserError: there is no live teacher to copy from.
        """
        if not options.copies:
            return
        if teacher is None:
            raise UserError(
                "the embedding and the heads are copied from the teacher's own weights; received stored targets; give "
                "a live teacher"
            )
        copy_embedding_and_heads(teacher, student, any_norm=options.copy_norms)

    def targets(self, stage: Stage, teacher: TeacherFeatures, batch: Batch) -> Mapping[str, tf.Tensor]:
        """The teacher's features by name and layer: `hidden_states_3` [B, S, H], `attention_logits_3` [B, N, S, S].

        In distillation `masked_lm_logits`, [B, P, V].
        """
        targets = layer_maps.layer_targets(stage, teacher, ("hidden_states", "attention_logits"))
        if "logits" in stage.teacher_features:
            targets["masked_lm_logits"] = teacher["logits"][0]
        return targets

    def loss(
        self,
        stage: Stage,
        targets: Mapping[str, tf.Tensor],
        student: StudentFeatures,
        adapters: Adapters,
        batch: Batch,
    ) -> Mapping[str, tf.Tensor]:
        """The terms of `stage.weights`; see the class."""
        from pocketbert.distillation.label_losses import masked_lm_loss, next_sentence_loss
        from pocketbert.distillation.losses import attention_transfer, soft_cross_entropy

        mask = batch["input_mask"]
        losses: dict[str, list[tf.Tensor]] = {term: [] for term in stage.weights}
        for _, learned, target in layer_maps.layer_pairs("hidden_states", stage, student, targets):
            for term, value in _feature_map_terms(target, learned, mask, stage.options).items():
                losses[term].append(value)
        for _, learned, target in layer_maps.layer_pairs("attention_logits", stage, student, targets):
            losses["attention"].append(attention_transfer(target, learned, mask))
        if "masked_lm" in losses:
            masked_lm_logits, next_sentence_logits = student["logits"]
            losses["masked_lm"].append(masked_lm_loss(batch["masked_lm_labels"], masked_lm_logits))
            losses["next_sentence"].append(next_sentence_loss(batch["next_sentence_labels"], next_sentence_logits))
            if "distillation" in losses:
                # The first token, [CLS], is never masked: its position fills up the rows.
                masked = batch["masked_lm_positions"] > 0
                losses["distillation"].append(
                    soft_cross_entropy(targets["masked_lm_logits"], masked_lm_logits, mask=masked)
                )
        return {term: sum(layers[1:], layers[0]) / len(layers) for term, layers in losses.items()}


METHOD = MobileBERT()


def _transfer_stages(num_layers: int, options: MobileBERTOptions) -> list[Stage]:
    """A stage a layer, of which the first few may be left out; or one stage."""
    if options.strategy == "joint":
        return [_transfer_stage("transfer", 1, num_layers, options.transfer_steps, options)]
    if options.transfer_steps < num_layers:
        raise UserError(
            f"mobilebert: progressive transfer needs a step a layer; received transfer_steps={options.transfer_steps} "
            f"for {num_layers} layers"
        )
    # Layer ℓ ends after ℓ/L of the steps: their sum is exact whatever L is.
    ends = [layer * options.transfer_steps // num_layers for layer in range(num_layers + 1)]
    digits = max(2, len(str(num_layers)))
    return [
        _transfer_stage(f"transfer_{layer:0{digits}}", layer, layer, ends[layer] - ends[layer - 1], options)
        for layer in range(options.first_layer, num_layers + 1)
    ]


def _transfer_stage(name: str, first: int, last: int, steps: int, options: MobileBERTOptions) -> Stage:
    """Layers `first` to `last` follow the teacher's."""
    rates = TransferRates(first=first, last=last, steps=steps, lower=options.lower_layers == "reduced")
    features = dict.fromkeys(options.transferred, tuple(range(first, last + 1)))
    return Stage(
        name=name,
        teacher_features=features,
        student_features=features,
        weights=_transfer_weights(options),
        duration=Steps(steps),
        batch_size=options.transfer_batch_size,
        optimizer=_optimizer(options, learning_rate=options.transfer_learning_rate, schedule="constant"),
        trainable=rates.trains,
        learning_rate_multiplier=rates,
        **_common_fields(options),
    )


def _distillation_stage(name: str, layers: tuple[int, ...], options: MobileBERTOptions) -> Stage:
    """Pretraining distillation, with knowledge transfer in these layers beside it."""
    assert options.distillation_batch_size is not None
    features: dict[str, tuple[int, ...]] = dict.fromkeys(options.transferred if layers else (), layers)
    weights = _transfer_weights(options) if layers else {}
    teaches = "distillation" not in options.without
    weights |= {"masked_lm": options.alpha if teaches else 1.0, "next_sentence": 1.0}
    if teaches:
        weights["distillation"] = 1 - options.alpha
    return Stage(
        name=name,
        teacher_features={**features, "logits": ()} if teaches else features,
        student_features={**features, "logits": ()},
        weights=weights,
        duration=Steps(options.distillation_steps + (options.transfer_steps if layers else 0)),
        batch_size=options.distillation_batch_size,
        optimizer=_optimizer(
            options,
            learning_rate=options.distillation_learning_rate,
            schedule=options.distillation_schedule,
            warmup_steps=options.distillation_warmup_steps,
        ),
        **_common_fields(options),
    )


def _common_fields(options: MobileBERTOptions) -> dict[str, Any]:
    return {
        "data": "pretraining",
        "max_length": options.max_length,
        "micro_batches": options.micro_batches,
        "student_dropout": options.student_dropout,
        "options": options,
    }


def _optimizer(options: MobileBERTOptions, **fields: Any) -> OptimizerConfig:
    return OptimizerConfig(
        algorithm="lamb",
        weight_decay=options.weight_decay,
        clip_norm=options.clip_norm or None,
        bias_correction=options.bias_correction,
        **fields,
    )


def _transfer_weights(options: MobileBERTOptions) -> dict[str, float]:
    weights = {}
    if "hidden_states" in options.transferred:
        decomposed = ("feature_normalized", "feature_mean", "feature_variance")
        terms = decomposed if options.feature_transfer == "decomposed" else ("feature_map",)
        weights = {term: getattr(options, f"{term}_weight") for term in terms}
    if "attention_logits" in options.transferred:
        weights["attention"] = options.attention_weight
    return weights


def _feature_map_terms(
    teacher: tf.Tensor, student: tf.Tensor, mask: tf.Tensor, options: MobileBERTOptions
) -> dict[str, tf.Tensor]:
    from pocketbert.distillation.losses import feature_map_transfer, feature_statistics_transfer

    if options.feature_transfer == "mse":
        return {"feature_map": feature_map_transfer(teacher, student, mask)}
    statistics = feature_statistics_transfer(teacher, student, mask)
    return {f"feature_{name}": value for name, value in statistics.items()}
