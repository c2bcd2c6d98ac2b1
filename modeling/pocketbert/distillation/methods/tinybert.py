"""TinyBERT: attention, hidden states and embedding of mapped layers first, the prediction afterwards."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pocketbert.distillation import layer_maps
from pocketbert.distillation.method import DistillationSpec, Method, head_count_problems
from pocketbert.distillation.methods.tinybert_stages import (
    general_stage,
    intermediate_stage,
    label_stage,
    layer_map,
    prediction_stage,
    text_segments,
)
from pocketbert.errors import UserError, raise_if_any
from pocketbert.options import option_problems
from pocketbert.training.objective import Adapters, Batch, Features, Targets
from pocketbert.training.stage import Stage

if TYPE_CHECKING:
    import tensorflow as tf

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


@dataclass(frozen=True, kw_only=True)
class TinyBERT(Method):
    """TinyBERT (Jiao et al. 2020, https://arxiv.org/abs/1909.10351).

    Without a task: general distillation. With one: intermediate layer distillation, then prediction layer
    distillation. The terms are the layers' losses of eq. 11, each summed over the student's layers with the paper's
    weights of 1 (eq. 6):

    - `embedding`: eq. 9, of the embedding output (layer 0).
    - `attention`: eq. 7, of layers m = 1…M with g(m).
    - `hidden`: eq. 8, of the same layers.
    - `prediction`: eq. 10; for regression the mean squared difference to the teacher's score.
    - `labels`: cross-entropy against class indices, or squared difference to scores, where an ablation or the authors'
      code learns from labels instead.

    What the paper leaves open, and what is done here:

    - Spans (appendix B): `prediction` is the mean of eq. 10 over the positions of an answer's start and of its end, on
      the original data; padding is no position, and there are no classes to divide by. The length is BERT's, 384.
    - Regression has no logits to compare by eq. 10: the student's score follows the teacher's, on the original data
      (footnote 5). The authors' code fits the labels there (`regression_target`).
    - Schedules, warm-up and weight decay of task distillation: as in the authors' code a constant rate for the
      intermediate stage, then 10 % warm-up and a straight line down, with BERT's decay of 0.01.
    - BERT's warm-up of 10,000 steps is cut to a tenth of a shorter general distillation.
    - General distillation has BERT's two segments, which pairs of texts will need; the second is always the text that
      follows the first, since nothing here predicts the next sentence.
    - Without task distillation (table 2): the student is fine-tuned on the labels of the augmented data, with the
      prediction stage's hyper-parameters. The paper does not say on which data; table 7 has lower figures for a student
      with neither task distillation nor augmentation, so in table 2 the augmented data must have stayed.

    Departures: the projections W_h and W_e have a bias, as in the authors' code. They are there even where the widths
    are equal, which is the paper's formula and the code's practice: the student's features need not be the teacher's.
    Padding never counts. The authors' code puts a relu between pooler and classifier of the student, and augments with
    another number of samples a task; neither is an option here.

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
      epochs: passes over the data of each stage that has no number of its own below; by default the paper's.
      general_epochs: passes over the text; paper: 3.
      general_steps: steps, instead of passes over the text.
      general_batch_size: batch size.
      general_learning_rate: peak learning rate (default: paper 1e-4, authors-code 5e-5).
      intermediate_epochs: passes over the task's data (default: paper 20, but 50 for CoLA and 10 for MNLI, QQP and
        QNLI).
      intermediate_batch_size: batch size.
      intermediate_learning_rate: the learning rate.
      intermediate_schedule: `constant`, or `linear` to 0.
      prediction_epochs: passes over the task's data; paper: 3.
      prediction_batch_size: batch size; the paper selects 16 or 32 on the dev set.
      prediction_learning_rate: peak learning rate; the paper selects 1e-5, 2e-5 or 3e-5 on the dev set.
      weight_decay: decoupled weight decay, except for biases and norms.
      clip_norm: maximum global gradient norm; 0 for no clipping.
      bias_correction: whether Adam corrects the bias of its moments; authors' code: no.
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
    intermediate_learning_rate: float = 5e-5
    intermediate_schedule: Literal["constant", "linear"] = "constant"
    prediction_epochs: int | None = None
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

    def resolved(self) -> TinyBERT:
        """The same with the preset's value wherever an option that a preset decides was not given."""
        missing = {name: value for name, value in _PRESETS[self.preset].items() if getattr(self, name) is None}
        return dataclasses.replace(self, **missing)

    @property
    def layer_terms(self) -> tuple[str, ...]:
        """The losses of embedding and Transformer layers that no ablation leaves out."""
        dropped = {*self.without, *(("attention", "hidden") if "transformer" in self.without else ())}
        return tuple(term for term in ("embedding", "attention", "hidden") if term not in dropped)

    def stages(self, spec: DistillationSpec) -> Sequence[Stage]:
        """`general`; or `intermediate` and `prediction`; or, without task distillation, `finetuning`.

        Raises:
          UserError: no layer map, or nothing left to learn.
        """
        method = self.resolved()
        if spec.task is None:
            if not method.layer_terms:
                raise UserError("tinybert: general distillation needs a loss; every one of them is left out")
            return [general_stage(spec, method)]
        if "task_distillation" in method.without:
            return [label_stage("finetuning", spec, method, original="augmentation" in method.without)]
        stages = [prediction_stage(spec, method)]
        if method.layer_terms:
            stages.insert(0, intermediate_stage(spec, method))
        return stages

    def adapters(self, spec: DistillationSpec) -> Adapters:
        """W_h (`hidden_projection`) and W_e (`embedding_projection`), or one `shared_projection`; those that are used.

        Each maps the student's width to the teacher's.
        """
        from pocketbert.layers.core import Dense

        method = self.resolved()
        if spec.task is not None and "task_distillation" in method.without:
            return {}
        projected = [term for term in ("hidden", "embedding") if term in method.layer_terms]
        names = dict.fromkeys(_projection(term, method) for term in projected)
        return {name: Dense(spec.student.hidden_size, spec.teacher.hidden_size) for name in names}

    def validate(self, spec: DistillationSpec) -> list[str]:
        """Heads, layers, the task, and ablations that this run cannot leave out."""
        problems = []
        mapped = {"attention", "hidden"} & {*self.layer_terms}
        if spec.task is not None and "task_distillation" in self.without:
            mapped = set()
        if "attention" in mapped:
            problems += [f"{text}, or leave out attention (without)" for text in head_count_problems(spec)]
        if mapped:
            try:
                layer_map(spec, self)
            except UserError as error:
                problems.append(str(error))
        # The kinds for which the paper gives a loss.
        if spec.task is not None and spec.task.kind not in ("classification", "regression", "span"):
            problems.append(f"TinyBERT knows classification, regression and span; received {spec.task.kind}")
        if spec.task is None and self.text_segments == 2 and text_segments(spec) == 1:
            problems.append(
                "text of two segments needs two token types on both sides; received a teacher with "
                f"{spec.teacher.type_vocab_size} and a student with {spec.student.type_vocab_size}; give "
                "text_segments=1"
            )
        if "general_distillation" in self.without and spec.task is None:
            problems.append("general distillation cannot be left out of a run that is nothing else; give a task")
        if "general_distillation" in self.without and spec.start == "directory":
            problems.append(
                "without general distillation a student starts fresh; received a directory; give a preset's name"
            )
        return problems

    def targets(self, stage: Stage, teacher: Features, batch: Batch) -> Targets:
        """The teacher's features by name and layer: `hidden_states_3` [B, S, H], `attention_logits_3` [B, N, S, S].

        In the prediction stage `logits`, [B, C] or [B]; of spans `start_logits` and `end_logits`, [B, S].
        """
        targets = layer_maps.layer_targets(stage, teacher, ("hidden_states", "attention_logits"))
        if "logits" in stage.teacher_features:
            targets |= _by_name(teacher["logits"])
        return targets

    def loss(
        self, stage: Stage, targets: Targets, student: Features, adapters: Adapters, batch: Batch
    ) -> Mapping[str, tf.Tensor]:
        """The terms of `stage.weights`; see the class."""
        from pocketbert.distillation.losses import tinybert_attention, tinybert_hidden
        from pocketbert.training.label_losses import labels_loss

        mask = batch["input_mask"]
        losses: dict[str, list[tf.Tensor]] = {term: [] for term in stage.weights}
        for layer, learned, target in layer_maps.layer_pairs("hidden_states", stage, student, targets):
            term = "hidden" if layer else "embedding"
            projection = adapters[_projection(term, stage.options)]
            losses[term].append(tinybert_hidden(target, projection(learned), mask))
        for _, learned, target in layer_maps.layer_pairs("attention_logits", stage, student, targets):
            losses["attention"].append(tinybert_attention(target, learned, mask))
        outputs = _by_name(student.get("logits", ()))
        if "prediction" in losses:
            losses["prediction"].append(_prediction_loss(targets, outputs, mask, stage.options))
        if "labels" in losses:
            losses["labels"].append(labels_loss(stage, student, batch))
        return {term: sum(layers[1:], layers[0]) for term, layers in losses.items()}


def _projection(term: str, method: TinyBERT) -> str:
    return "shared_projection" if method.shared_projection else f"{term}_projection"


def _by_name(logits: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
    """A head's outputs, as `features` gives them, by their names."""
    from pocketbert.tasks.span import SPAN_OUTPUTS

    return dict(zip(("logits",) if len(logits) < 2 else SPAN_OUTPUTS, logits, strict=False))


def _prediction_loss(
    targets: Mapping[str, tf.Tensor], student: Mapping[str, tf.Tensor], mask: tf.Tensor, method: TinyBERT
) -> tf.Tensor:
    """Eq. 10 for logits [B, C], for spans its mean over start and end; the mean squared difference of scores [B]."""
    from pocketbert.distillation.losses import soft_cross_entropy
    from pocketbert.tasks.span import without_padding

    # Every example has a first token: so they are counted without asking a network how many there are.
    examples = mask[:, 0]
    if "logits" not in student:
        teachers, students = (
            without_padding({name: each[name] for name in student}, mask) for each in (targets, student)
        )
        losses = [soft_cross_entropy(teachers[name], students[name], method.temperature, examples) for name in students]
        return sum(losses[1:], losses[0]) / len(losses)
    logits = student["logits"]
    if logits.shape.rank == 1:
        return _squared_difference(targets["logits"], logits, examples)
    loss = soft_cross_entropy(targets["logits"], logits, method.temperature, examples)
    return loss / logits.shape[-1] if method.mean_over_classes else loss


def _squared_difference(target: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Mean squared difference of scores [B], of those with a mask [B] of 1; float32; the target gets no gradient."""
    import tensorflow as tf

    from pocketbert.layers.loss_normalization import masked_mean

    target = tf.stop_gradient(tf.cast(target, tf.float32))
    return masked_mean(tf.math.squared_difference(tf.cast(scores, tf.float32), target), mask)
