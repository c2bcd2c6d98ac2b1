"""TinyBERT: attention, hidden states and embedding of mapped layers first, the prediction afterwards."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pocketbert.distillation import layer_maps
from pocketbert.distillation.method import (
    Adapters,
    Batch,
    Epochs,
    OptimizerConfig,
    Setting,
    Stage,
    Steps,
    StudentFeatures,
    TeacherFeatures,
    head_count_mismatches,
)
from pocketbert.distillation.methods.tinybert_options import TinyBERTOptions
from pocketbert.errors import UserError

if TYPE_CHECKING:
    import tensorflow as tf

    from pocketbert.model import Model

# Section 4.2 and its footnote 4; every other task has 20.
_PAPER_EPOCHS = {"cola": 50, "mnli": 10, "qqp": 10, "qnli": 10}
# What task_distill.py has in a table; a slip in it keeps the table from being read (Huawei's issue 77).
_AUTHORS_EPOCHS = {"cola": 50, "sst2": 10, "qnli": 10, "mnli": 5, "qqp": 5}
_OTHER_EPOCHS = 20


class TinyBERT:
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
    """

    name = "tinybert"
    reference = "Jiao et al. 2020, TinyBERT, eq. 6-11, https://arxiv.org/abs/1909.10351"
    options = TinyBERTOptions

    def stages(self, setting: Setting, options: TinyBERTOptions) -> Sequence[Stage]:
        """`general`; or `intermediate` and `prediction`; or, without task distillation, `finetuning`.

        Raises:
          UserError: no layer map, or nothing left to learn.
        """
        options = options.resolved()
        if setting.task is None:
            if not options.layer_terms:
                raise UserError("tinybert: general distillation needs a loss; every one of them is left out")
            return [_general_stage(setting, options)]
        if "task_distillation" in options.without:
            return [_label_stage("finetuning", setting, options, original="augmentation" in options.without)]
        stages = [_prediction_stage(setting, options)]
        if options.layer_terms:
            stages.insert(0, _intermediate_stage(setting, options))
        return stages

    def adapters(self, setting: Setting, options: TinyBERTOptions) -> Adapters:
        """W_h (`hidden_projection`) and W_e (`embedding_projection`), or one `shared_projection`; those that are used.

        Each maps the student's width to the teacher's.
        """
        from pocketbert.layers.dense import Dense

        options = options.resolved()
        if setting.task is not None and "task_distillation" in options.without:
            return {}
        projected = [term for term in ("hidden", "embedding") if term in options.layer_terms]
        names = dict.fromkeys(_projection(term, options) for term in projected)
        return {name: Dense(setting.student.hidden_size, setting.teacher.hidden_size) for name in names}

    def mismatches(self, setting: Setting, options: TinyBERTOptions) -> list[str]:
        """Heads, layers, the task, and ablations that this run cannot leave out."""
        problems = []
        mapped = {"attention", "hidden"} & {*options.layer_terms}
        if setting.task is not None and "task_distillation" in options.without:
            mapped = set()
        if "attention" in mapped:
            problems += [f"{text}, or leave out attention (without)" for text in head_count_mismatches(setting)]
        if mapped:
            try:
                _layer_map(setting, options)
            except UserError as error:
                problems.append(str(error))
        if setting.task is not None and setting.task.kind not in ("classification", "regression", "span"):
            problems.append(f"TinyBERT knows classification, regression and span; received {setting.task.kind}")
        if setting.task is None and options.text_segments == 2 and _text_segments(setting) == 1:
            problems.append(
                "text of two segments needs two token types on both sides; received a teacher with "
                f"{setting.teacher.type_vocab_size} and a student with {setting.student.type_vocab_size}; give "
                "text_segments=1"
            )
        if "general_distillation" in options.without and setting.task is None:
            problems.append("general distillation cannot be left out of a run that is nothing else; give a task")
        if "general_distillation" in options.without and setting.start == "directory":
            problems.append(
                "without general distillation a student starts fresh; received a directory; give a preset's name"
            )
        return problems

    def initialize(self, teacher: Model | None, student: Model, options: TinyBERTOptions) -> None:
        """Copies nothing: the student starts as `initialization` made it, in the paper by general distillation."""

    def targets(self, stage: Stage, teacher: TeacherFeatures, batch: Batch) -> Mapping[str, tf.Tensor]:
        """The teacher's features by name and layer: `hidden_states_3` [B, S, H], `attention_logits_3` [B, N, S, S].

        In the prediction stage `logits`, [B, C] or [B]; of spans `start_logits` and `end_logits`, [B, S].
        """
        targets = layer_maps.layer_targets(stage, teacher, ("hidden_states", "attention_logits"))
        if "logits" in stage.teacher_features:
            targets |= _by_name(teacher["logits"])
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
        from pocketbert.distillation.label_losses import label_loss, span_label_loss
        from pocketbert.distillation.losses import tinybert_attention, tinybert_hidden

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
            labels = batch["labels"]
            own = outputs.get("logits")
            losses["labels"].append(span_label_loss(labels, outputs, mask) if own is None else label_loss(labels, own))
        return {term: sum(layers[1:], layers[0]) for term, layers in losses.items()}


METHOD = TinyBERT()


def _general_stage(setting: Setting, options: TinyBERTOptions) -> Stage:
    # BERT's pretraining, Devlin et al. 2019, appendix A.2; the authors' code has 10 % of the steps.
    warmup: dict[str, Any] = {"warmup_steps": 10_000} if options.preset == "paper" else {"warmup_ratio": 0.1}
    assert options.general_learning_rate is not None and options.masked_text is not None
    return Stage(
        name="general",
        **_layer_features(setting, options),
        data="text",
        masked_text=options.masked_text,
        text_segments=1 if options.text_segments == 1 else _text_segments(setting),
        max_length=options.max_length or 128,
        duration=Steps(options.general_steps) if options.general_steps else Epochs(options.general_epochs),
        batch_size=options.general_batch_size,
        micro_batches=options.micro_batches,
        optimizer=_optimizer(options, learning_rate=options.general_learning_rate, **warmup),
        options=options,
    )


def _text_segments(setting: Setting) -> Literal[1, 2]:
    """The most that both sides tell apart."""
    return 1 if min(setting.teacher.type_vocab_size, setting.student.type_vocab_size) < 2 else 2


def _intermediate_stage(setting: Setting, options: TinyBERTOptions) -> Stage:
    assert setting.task is not None
    epochs = _PAPER_EPOCHS if options.preset == "paper" else _AUTHORS_EPOCHS
    return Stage(
        name="intermediate",
        **_layer_features(setting, options),
        data="task" if "augmentation" in options.without else "augmented",
        max_length=_task_length(setting, options),
        duration=Epochs(options.intermediate_epochs or epochs.get(setting.task.name, _OTHER_EPOCHS)),
        batch_size=options.intermediate_batch_size,
        micro_batches=options.micro_batches,
        optimizer=_optimizer(
            options, learning_rate=options.intermediate_learning_rate, schedule=options.intermediate_schedule
        ),
        options=options,
    )


def _prediction_stage(setting: Setting, options: TinyBERTOptions) -> Stage:
    assert setting.task is not None
    regression = setting.task.kind == "regression"
    if "prediction" in options.without or (regression and options.regression_target == "labels"):
        # Footnotes 5 and 10: the original data.
        return _label_stage("prediction", setting, options, original=True)
    # Footnote 5, and appendix B of spans.
    original = setting.task.kind != "classification" or "augmentation" in options.without
    stage = _label_stage("prediction", setting, options, original=original)
    return dataclasses.replace(stage, teacher_features={"logits": ()}, weights={"prediction": 1.0})


def _label_stage(name: str, setting: Setting, options: TinyBERTOptions, *, original: bool) -> Stage:
    """A stage that trains the head, here on labels alone."""
    return Stage(
        name=name,
        teacher_features={},
        student_features={"logits": ()},
        weights={"labels": 1.0},
        data="task" if original else "augmented",
        max_length=_task_length(setting, options),
        duration=Epochs(options.prediction_epochs),
        batch_size=options.prediction_batch_size,
        micro_batches=options.micro_batches,
        optimizer=_optimizer(options, learning_rate=options.prediction_learning_rate, warmup_ratio=0.1),
        keep="best",
        options=options,
    )


def _optimizer(options: TinyBERTOptions, **fields: Any) -> OptimizerConfig:
    return OptimizerConfig(
        weight_decay=options.weight_decay,
        clip_norm=options.clip_norm or None,
        bias_correction=options.bias_correction is True,
        **fields,
    )


def _task_length(setting: Setting, options: TinyBERTOptions) -> int:
    if setting.task is not None and setting.task.kind == "span":
        return options.max_length or 384
    return options.max_length or (128 if setting.pairs else 64)


def _layer_map(setting: Setting, options: TinyBERTOptions) -> layer_maps.LayerMap:
    return layer_maps.named(options.mapping, setting.student.num_layers, setting.teacher.num_layers)


def _layer_features(setting: Setting, options: TinyBERTOptions) -> dict[str, Any]:
    """The stage's weights, and of teacher and student the features that these losses read and no others."""
    terms = options.layer_terms
    # Without a Transformer-layer loss no layer is mapped, and a depth that does not fit does no harm.
    mapped = _layer_map(setting, options) if {"attention", "hidden"} & {*terms} else ()
    own = tuple(range(1, len(mapped) + 1))
    requests: list[dict[str, tuple[int, ...]]] = []
    for layers in (mapped, own):
        hidden = ((0,) if "embedding" in terms else ()) + (layers if "hidden" in terms else ())
        request = {"hidden_states": hidden, "attention_logits": layers if "attention" in terms else ()}
        requests.append({name: asked for name, asked in request.items() if asked})
    return {
        "teacher_features": requests[0],
        "student_features": requests[1],
        "weights": dict.fromkeys(terms, 1.0),
    }


def _projection(term: str, options: TinyBERTOptions) -> str:
    return "shared_projection" if options.shared_projection else f"{term}_projection"


def _by_name(logits: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
    """A head's outputs, as `features` gives them, by their names."""
    from pocketbert.tasks.span import SPAN_OUTPUTS

    return dict(zip(("logits",) if len(logits) < 2 else SPAN_OUTPUTS, logits, strict=False))


def _prediction_loss(
    targets: Mapping[str, tf.Tensor], student: Mapping[str, tf.Tensor], mask: tf.Tensor, options: TinyBERTOptions
) -> tf.Tensor:
    """Eq. 10 for logits [B, C], for spans its mean over start and end; the mean squared difference of scores [B]."""
    from pocketbert.distillation.label_losses import mean_squared_error
    from pocketbert.distillation.losses import soft_cross_entropy
    from pocketbert.tasks.span import without_padding

    # Every example has a first token: so they are counted without asking a network how many there are.
    examples = mask[:, 0]
    if "logits" not in student:
        teachers, students = (
            without_padding({name: each[name] for name in student}, mask) for each in (targets, student)
        )
        losses = [
            soft_cross_entropy(teachers[name], students[name], options.temperature, examples) for name in students
        ]
        return sum(losses[1:], losses[0]) / len(losses)
    logits = student["logits"]
    if logits.shape.rank == 1:
        return mean_squared_error(targets["logits"], logits, examples)
    loss = soft_cross_entropy(targets["logits"], logits, options.temperature, examples)
    return loss / logits.shape[-1] if options.mean_over_classes else loss
