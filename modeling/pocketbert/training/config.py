"""Options and results for training runs. Fields become flags and docs. Nothing here imports TensorFlow."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from pocketbert.configs import BlockKind
from pocketbert.errors import UserError, raise_if_any
from pocketbert.options import option_problems
from pocketbert.recipes import QatRecipe
from pocketbert.training.class_weights import parse_class_weights
from pocketbert.training.stage import part_problems
from pocketbert.training.weight_patterns import parse_rate_factors, pattern_problems
from pocketbert_runtime.tokenizers.truncation import parse_truncation

if TYPE_CHECKING:
    from pocketbert.model import Model

# Blocks whose rounding `pocketbert.training.rounding` knows.
QAT_BLOCKS: tuple[BlockKind, ...] = ("plain", "bottleneck")
# `RunConfig` fields for a grid.
_VARIED_OF_A_RUN = (
    "precision",
    "evaluation_steps",
    "patience",
    "max_steps",
    "layer_decay",
    "label_smoothing",
    "dropout",
)
_RECORDED_IF_CHANGED = (
    "max_steps",
    "freeze",
    "layer_decay",
    "rate_factors",
    "label_smoothing",
    "dropout",
    "truncation",
    "qat",
    "keep_checkpoints",
    "gradient_checkpointing",
    "decision_thresholds",
    "reject",
)
# Options for questions on paragraphs only.
WINDOW_OPTIONS = ("stride", "max_question_tokens")

# Learning rates by width of the network.
_WIDE, _SMALL_RATE, _WIDE_RATE = 512, 1e-4, 5e-5
# A head on each token must learn more than a fit on frozen features gives it.
_TOKEN_FACTOR = 3
# Pairs taught more than the labels alone with 29 and 115 texts (docs/results/small-data.md); the limits are a choice.
_FEW_EXAMPLES, _CONTRASTIVE_STEPS = range(24, 200), 24
# Few labels at the full rate undo what the pairs taught.
_CONTRASTIVE_DIVISOR = 10

_T = TypeVar("_T", bound="TrainResult")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Options for every training run.

    Attributes:
      precision: compute in `float32`, `bfloat16`, or `float16` with loss scaling; weights and losses stay float32.
      teacher_precision: precision for a live teacher (default: as the student). `bfloat16` and `float16` are faster on
        hardware with support for them; targets then have two to three digits.
      seed: seed for new weights, dropout, masking and example order.
      evaluation_steps: steps between further evaluations, besides one per epoch, in stages with a head or dev split.
      evaluation_batches: maximum number of dev batches, with 32 pretraining examples each, always the same; the default
        has about 50,000 masked tokens.
      whole_words: mask whole words in pretraining examples; the dev split keeps its masks.
      patience: evaluations without improvement before a stage stops; with it, pretraining keeps the best weights.
      max_steps: most updates in each stage; the learning rate falls to 0 there.
      freeze: weights to leave as they are: `embeddings`, `pooler`, `head`, `layers:1-6` (from 1), or weight names from
        the model directory, with * for any characters.
      layer_decay: learning rate factor from each layer to the one below: for 0.9 and 6 layers, 1 for the head and layer
        6, 0.9 for layer 5, 0.9^5 for layer 1 and 0.9^7 for the embeddings.
      rate_factors: learning rate factors for some weights, as PATTERN=FACTOR with the patterns of --freeze.
      label_smoothing: share to spread evenly over all classes in the loss, for labels and masked tokens.
      dropout: dropout in encoder and head during training (default: as in config.json).
      truncation: how to cut texts with more than --max-length tokens: `head` keeps the first tokens, `tail` the last,
        `head-tail:N` the first N and the last; `only-second` cuts the second text in a pair, `longest-first` the longer
        one (default: as stored in the model, otherwise head). The model and its bundles keep it.
      qat: quantization-aware training: in the last stage, round weights and activations as this recipe does, in
        training and evaluation. Start from a trained model, and export with the same recipe.
      keep_checkpoints: models to keep beside the result, in checkpoints/step-N: `best`: none; a number: those from the
        last evaluations, including the last model; `every-epoch`: one after each epoch.
      gradient_checkpointing: compute each layer again in the backward pass instead of storing it: less memory, more
        time, the same gradients.
      decision_thresholds: choose answer thresholds on the dev split, or out of fold, for two classes or several labels:
        those that maximize the checkpoint metric. predict then applies them instead of 0.5. With several heads, each
        suitable head has its own.
      reject: share of right answers to keep, such as 0.95, when each text has one class. A threshold on the highest
        probability keeps this share on the dev split; below it, predict answers null.
      checkpoint_seconds: seconds between checkpoints; it does not change the result.
      show_texts: show up to 20 wrongly predicted texts in report.html; --noshow-texts for private data.
      distribution: devices to share each batch. `one`: TensorFlow's default, one GPU or the processors. `mirrored`: all
        GPUs in this machine. `multi-worker`: several machines; run the command on each, with its own TF_CONFIG and the
        same files; the first one writes. `tpu`: one TPU, not a pod; not tested on a TPU yet.
      tpu: TPU name or address, for --distribution=tpu.
      overwrite: discard a finished run in the output folder, or a run with other options.
    """

    GROUP: ClassVar = "Run"
    COMMON: ClassVar = ("precision", "patience", "qat")

    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    teacher_precision: Literal["float32", "bfloat16", "float16"] | None = None
    seed: int = 0
    evaluation_steps: int | None = None
    evaluation_batches: int = 100
    whole_words: bool = False
    patience: int | None = None
    max_steps: int | None = None
    freeze: tuple[str, ...] = ()
    layer_decay: float | None = None
    rate_factors: tuple[str, ...] = ()
    label_smoothing: float = 0.0
    dropout: float | None = None
    truncation: str | None = None
    qat: QatRecipe = "none"
    keep_checkpoints: int | Literal["best", "every-epoch"] = "best"
    gradient_checkpointing: bool = False
    decision_thresholds: bool = False
    reject: float | None = None
    checkpoint_seconds: float = 60.0
    show_texts: bool = True
    distribution: Literal["one", "mirrored", "multi-worker", "tpu"] = "one"
    tpu: str | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        for name in ("freeze", "rate_factors"):
            patterns = getattr(self, name)
            if isinstance(patterns, str):
                # Each of its letters would be a wrong pattern.
                raise UserError(f"{name} must be a list; received {patterns!r}; pass [{patterns!r}]")
            object.__setattr__(self, name, tuple(patterns))
        problems = option_problems(self, may_be_zero=("seed", "checkpoint_seconds", "label_smoothing", "dropout"))
        problems += pattern_problems("freeze", self.freeze)
        try:
            problems += pattern_problems("rate_factors", parse_rate_factors(self.rate_factors))
        except UserError as error:
            problems.append(str(error))
        if self.truncation is not None:
            object.__setattr__(self, "truncation", self.truncation.replace("_", "-"))
            try:
                parse_truncation(self.truncation)
            except UserError as error:
                problems.append(str(error))
        if self.layer_decay is not None and self.layer_decay > 1:
            problems.append(f"layer_decay must lie in (0, 1]; received {self.layer_decay:g}")
        for name in ("label_smoothing", "dropout"):
            if (getattr(self, name) or 0) >= 1:
                problems.append(f"{name} must lie in [0, 1); received {getattr(self, name):g}")
        if self.reject is not None and self.reject > 1:
            problems.append(f"reject must lie in (0, 1]; received {self.reject:g}")
        if self.reject is not None and self.decision_thresholds:
            problems.append("decision_thresholds and reject exclude each other; received both; leave one out")
        if self.tpu and self.distribution != "tpu":
            problems.append(f"tpu needs distribution=tpu; received {self.tpu!r} with {self.distribution!r}")
        if self.qat != "none" and self.precision != "float32":
            problems.append(f"qat needs precision=float32; received qat={self.qat} with precision={self.precision}")
        if self.distribution == "tpu" and self.precision == "float16":
            problems.append(
                "precision=float16 needs GPUs or processors; received it with distribution=tpu; use bfloat16"
            )
        raise_if_any(problems, "run options")

    def recorded(self) -> dict[str, Any]:
        """Returns the options that affect the result, as JSON values."""
        recorded = dataclasses.asdict(self)
        for name in ("checkpoint_seconds", "show_texts", "tpu", "overwrite"):
            del recorded[name]
        # Records of runs without these options do not have them.
        for field in dataclasses.fields(self):
            if field.name in _RECORDED_IF_CHANGED and recorded[field.name] == field.default:
                del recorded[field.name]
        return recorded


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """Options for fine-tuning. A study with small networks chose the defaults (docs/results/small-data.md).

    Attributes:
      learning_rate: peak learning rate (default: 1e-4, or 5e-5 for networks wider than 512; three times as much for
        token_classification, a tenth after contrastive steps).
      head_pooling: where a sentence head reads the text: the `first` token, the `mean` over tokens, or `auto`: the
        better fit on frozen features. A head on the first token makes bundles faster.
      pairs: how the encoder reads pairs of texts: `joint` in one row, or `separate`, one by one, with a head on their
        two vectors u and v, [u, v, |u − v|, u·v]; `auto`: the better fit on frozen features (default: auto for a
        sentence encoder with up to 1,000 pairs, otherwise joint).
      head_start: weights for a new head: from a linear `fit` on frozen features, or `random`.
      head_start_examples: most training examples for this fit; fewer start sooner.
      contrastive_steps: updates before the head is fitted, to move texts with the same label together, for classes of
        single texts (default: 24 for 24 to 199 examples, otherwise 0).
      calibrate: scale the logits by a temperature fitted on the dev split (Guo et al. 2017); decisions do not change.
      schedule: schedule after the warm-up: `linear` or `cosine` decay to 0, or `constant`.
      warmup_ratio: share of the steps for warm-up.
      epochs: passes over the training examples.
      batch_size: batch size.
      micro_batches: parts per batch, to save memory; the update is the same.
      max_length: maximum sequence length (default: 128, questions 384); longer texts are truncated, paragraphs read in
        windows.
      stride: distance between windows in tokens (default: a third of --max-length).
      max_question_tokens: maximum question length; longer questions are truncated.
      weight_decay: decoupled weight decay, except for biases and norms.
      clip_norm: maximum global gradient norm; 0 or off for no clipping.
      class_weights: class weights in the loss: `none`, `balanced` or `label=weight,…`, for classes, tags and several
        labels; for questions, the labels are has_answer and no_answer. For several heads: `balanced`, or
        `head=balanced` and `head:label=weight`, separated by commas.
      triplet_margin: for embeddings with negatives: learn to place the negative further away than the partner, by this
        margin (triplet loss) (default: learn to place the partner nearest in the batch).
      new_head: start with a new head, even if the model has one with the same labels.
    """

    GROUP: ClassVar = "Training"
    COMMON: ClassVar = ("learning_rate", "epochs", "batch_size", "max_length")

    learning_rate: float | None = None
    head_pooling: Literal["auto", "first", "mean"] = "auto"
    pairs: Literal["joint", "separate", "auto"] | None = None
    head_start: Literal["fit", "random"] = "fit"
    head_start_examples: int = 5000
    contrastive_steps: int | None = None
    calibrate: bool = True
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    warmup_ratio: float = 0.1
    epochs: int = 3
    batch_size: int = 32
    micro_batches: int = 1
    max_length: int = 128
    stride: int | None = None
    max_question_tokens: int = 64
    weight_decay: float = 0.01
    clip_norm: float | None = 1.0
    class_weights: str = "none"
    triplet_margin: float | None = None
    new_head: bool = False

    def __post_init__(self) -> None:
        problems = option_problems(self, may_be_zero=("contrastive_steps", "warmup_ratio", "weight_decay", "clip_norm"))
        for name in ("warmup_ratio", "weight_decay"):
            if getattr(self, name) >= 1:
                problems.append(f"{name} must lie in [0, 1); received {getattr(self, name)}")
        if 0 < self.max_length < 3:
            problems.append(
                f"max_length must leave room for a token between two special tokens; received {self.max_length}"
            )
        problems += part_problems(self.batch_size, self.micro_batches)
        try:
            parse_class_weights(self.class_weights)
        except UserError as error:
            problems.append(str(error))
        if self.pairs == "auto" and self.head_start == "random":
            problems.append(
                "pairs=auto compares linear fits; received it with head_start=random; leave one of them out"
            )
        raise_if_any(problems, "fine-tuning options")

    def resolved(self, hidden_size: int, kind: str, examples: int, *, contrasts: bool) -> FinetuneConfig:
        """Returns the options with the defaults for a network and its data."""
        rate, steps = self.learning_rate, self.contrastive_steps
        if steps is None:
            steps = _CONTRASTIVE_STEPS if contrasts and examples in _FEW_EXAMPLES else 0
        if rate is None:
            rate = _WIDE_RATE if hidden_size > _WIDE else _SMALL_RATE
            rate *= _TOKEN_FACTOR if kind == "token_classification" else 1
            rate /= _CONTRASTIVE_DIVISOR if steps else 1
        return dataclasses.replace(self, learning_rate=rate, contrastive_steps=steps)

    def windows(self) -> dict[str, Any]:
        """Returns the `WindowOptions` fields, for questions on paragraphs."""
        return {name: getattr(self, name) for name in WINDOW_OPTIONS}


# Fields fixed in a grid. class_weights may contain labels, and these do not fit into folder names.
FIXED_IN_A_GRID = (
    "class_weights",
    "contrastive_steps",
    "head_start",
    "head_start_examples",
    "micro_batches",
    "new_head",
    "pairs",
    *(field.name for field in dataclasses.fields(RunConfig) if field.name not in _VARIED_OF_A_RUN),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainResult:
    """Result of a finished run.

    Attributes:
      model_directory: directory of the trained model.
      main_metric: metric for choosing checkpoints and comparing runs; empty without an evaluation.
      metrics: the model's dev metrics; empty without an evaluation.
      seed: the run's seed.
      best_step: steps before the evaluation with these `metrics`.
      steps: steps in all stages.
      seconds: time for training and evaluation, over all attempts.
      stages: each stage's name, `steps`, `metrics` and `best_step`.
      activation_range: for NoNorm models, the largest activations per layer on some training examples, with float16
        warnings, as from `pocketbert.activation_stats.ActivationRange.to_json`; None for other models.
      baseline: the majority baseline and its dev metrics, as in `pocketbert.tasks.metrics.Scores`; None without one.
      positive_label: positive label for F1, or None.
      outcome: main metric with interval, baselines and verdict, from `pocketbert.tasks.scores.Scores.outcome`, or None.
      decisions: chosen thresholds, as in `pocketbert.tasks.scores.Scores`, or None.
      warnings: reasons why the metrics are not meaningful.
      skipped_steps: steps without an update, because gradients overflowed float16; None for other precisions.
    """

    model_directory: str
    main_metric: str
    metrics: dict[str, float]
    seed: int
    best_step: int
    steps: int
    seconds: float
    stages: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    activation_range: dict[str, Any] | None = None
    baseline: dict[str, Any] | None = None
    positive_label: str | None = None
    outcome: dict[str, Any] | None = None
    decisions: dict[str, Any] | None = None
    warnings: list[str] = dataclasses.field(default_factory=list)
    skipped_steps: int | None = None

    @classmethod
    def of(cls: type[_T], folder: Path, result: Mapping[str, Any]) -> _T:
        """Returns a folder's result. The result file does not name the folder, so you can move it."""
        from pocketbert.training.run_folder import MODEL_FOLDER

        return cls(model_directory=str(folder / MODEL_FOLDER), **result)

    @functools.cached_property
    def model(self) -> Model:
        """The model, loaded on first use."""
        from pocketbert.model import from_pretrained

        return from_pretrained(self.model_directory)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneResult(TrainResult):
    """Result of a finished fine-tuning.

    Attributes:
      classes: results per class, as from `pocketbert.tasks.metrics.class_results`, or None.
      head: the head's `pooling`, the `reason` for it, and the `temperature` (the logits' divisor).
    """

    classes: dict[str, Any] | None = None
    head: dict[str, Any] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CrossValidatedResult(FinetuneResult):
    """Result of a finished fine-tuning with folds.

    The model was trained on all examples, so no example can score it. `metrics` and `outcome` come from the folds, and
    `best_step` counts the model's steps.

    Attributes:
      cross_validation: `folds` (examples, metrics, best step and seconds for each, and `decisions`, the thresholds
        chosen by the other folds), `metrics` (mean, standard deviation and range over the folds), and `pooled` (metrics
        for all out-of-fold predictions together).
    """

    cross_validation: dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillResult(TrainResult):
    """Result of a finished distillation.

    Attributes:
      teacher_metrics: the teacher's metrics on the same dev split; with a teacher cache, as measured by
        `cache-teacher`. None without a teacher or a head for the task, or if these examples were not measured.
      teacher_cache_bytes: size of the cached targets read by the run; None with a live teacher.
    """

    teacher_metrics: dict[str, float] | None
    teacher_cache_bytes: int | None = None
