"""HSK: distils a small part of the teacher's hidden states, then its predictions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pocketbert.configs import EncoderConfig
from pocketbert.distillation.method import DistillationSpec, Method, text_segments
from pocketbert.distillation.methods.hsk_knowledge import Knowledge, layer_map, static_mask
from pocketbert.distillation.predictions import KINDS, logits_by_name, prediction_terms
from pocketbert.errors import UserError, raise_if_any
from pocketbert.options import option_problems
from pocketbert.training.objective import Adapters, Batch, Features, Targets
from pocketbert.training.stage import Epochs, OptimizerConfig, Stage

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

    from pocketbert.data.batches import EncodedExamples

# Table 4, by task name; the second value is for all others.
_EPOCHS = {"cola": 30, "sst2": 10, "qnli": 5, "mnli": 5}, 20
_BATCH_SIZES = {"qnli": 64, "mnli": 64}, 32
_LENGTHS = {"cola": 64, "sst2": 64}, 128
_PREDICTION_RATES = {"mnli": 5e-5}, 2e-5
_SPAN_LENGTH = 384
# The layer that the paper recommends for 12 layers (section 4.1.2).
_TOP_LAYER = (10, 12)


@dataclass(frozen=True, kw_only=True)
class HSK(Method):
    """HSK compression (Liu et al. 2021, Marginal Utility Diminishes, https://arxiv.org/abs/2106.05691).

    The stage `hidden` distils `knowledge`: the top N_D layer pairs, N_L tokens per example and N_W of the d activations
    per vector. The loss is eq. 3, the mean squared error of each pair, summed over pairs. The mean is over the kept
    tokens and all d activations. Activations that are not kept are zero in the target. One projection W serves all
    pairs; there is none if both models have the same width. The stage `prediction` distils the teacher's predictions.
    Without a task, there is only `hidden`, on plain text.

    Choices for values that the paper does not give:

    - L_top is 10 for teachers with 12 layers, and the same share, rounded, for others. Att (L_top = 12) uses the
      attention in the teacher's last layer for the student's last layer.
    - The embedding has no attention; it uses layer 1's, as in the authors' code.
    - The stages use BERT's weight decay and clipping; `prediction` has 10 % warm-up, as in `tinybert`. Regression
      learns the teacher's scores, as in `tinybert`.
    - Questions have 384 tokens. On plain text, `hidden` takes 3 epochs in batches of 256 inputs with 128 tokens, as
      TinyBERT's general distillation.

    Departures: eq. 5 as printed contradicts the text; g(l, L_top) = round(l·L_top/L'), as in the authors' code. W has a
    bias, as in `tinybert`. Padding is never kept.

    Attributes:
      preset: `paper`, or `authors-code`: tokens by attention logits, and one threshold for a batch's activations (live
        teachers only).
      knowledge: N_D,N_L,N_W/d, such as `1,9,0.1`; `all` for every layer or token; or row R in column A of table 5,
        `table5-A-R`.
      top_layer: L_top, the teacher layer for the student's last layer (default: 10 for 12 layers).
      tokens: tokens to keep: `left`, `att`, `att-no-sep`, or `att-last-no-sep`, which is Att (L_top = 12) w/o [SEP].
      widths: activations to keep: `mag`, the largest in each vector; `uniform` or `rand`, one mask for all.
      mask_seed: seed for the `rand` mask.
      separator_id: id of the separator, for tokens without [SEP] (default: from the tokenizer).
      max_length: maximum sequence length (default: paper 64 for CoLA and SST-2, otherwise 128; questions 384).
      epochs: passes over the data in each stage without its own number of epochs (default: the paper's).
      hidden_epochs: passes over the data in `hidden` (default: paper 20; CoLA 30, SST-2 10, QNLI and MNLI 5).
      hidden_learning_rate: constant learning rate in `hidden`.
      prediction_epochs: passes over the data in `prediction` (default: paper 5).
      prediction_learning_rate: peak learning rate in `prediction` (default: paper 2e-5, MNLI 5e-5).
      batch_size: batch size (default: paper 32, but 64 for QNLI and MNLI).
      weight_decay: decoupled weight decay, except for biases and norms.
      clip_norm: maximum global gradient norm; 0 for no clipping.
      micro_batches: number of parts per batch, to save memory; the result is the same, except for `authors-code`.
    """

    name: ClassVar[str] = "hsk"
    reference: ClassVar[str] = "Liu et al. 2021, Marginal Utility Diminishes, eq. 3-8, https://arxiv.org/abs/2106.05691"
    GROUP: ClassVar = "Method"
    COMMON: ClassVar = ("preset", "knowledge", "top_layer", "tokens", "widths", "max_length", "epochs")

    preset: Literal["paper", "authors-code"] = "paper"
    knowledge: str = "1,9,0.1"
    top_layer: int | None = None
    tokens: Literal["left", "att", "att-no-sep", "att-last-no-sep"] = "att-last-no-sep"
    widths: Literal["mag", "uniform", "rand"] = "mag"
    mask_seed: int = 0
    separator_id: int | None = None
    max_length: int | None = None
    epochs: int | None = None
    hidden_epochs: int | None = None
    hidden_learning_rate: float = 5e-5
    prediction_epochs: int | None = None
    prediction_learning_rate: float | None = None
    batch_size: int | None = None
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    micro_batches: int = 1

    def __post_init__(self) -> None:
        problems = option_problems(self, may_be_zero=("weight_decay", "clip_norm", "mask_seed", "separator_id"))
        try:
            Knowledge.parse(self.knowledge)
        except UserError as error:
            problems.append(str(error))
        raise_if_any(problems, "hsk options")

    @property
    def amounts(self) -> Knowledge:
        """`knowledge` as numbers."""
        return Knowledge.parse(self.knowledge)

    @property
    def excludes_separators(self) -> bool:
        """Whether separators are never kept. With all tokens, nothing is selected."""
        return self.amounts.tokens is not None and self.tokens.endswith("no-sep")

    def resolved(self, spec: DistillationSpec) -> HSK:
        """Returns a copy with the paper's values for options that are None."""
        task = None if spec.task is None else spec.task.name
        span = spec.task is not None and spec.task.kind == "span"
        first, last = _TOP_LAYER
        separator_id, vocabulary = None, spec.teacher_vocabulary or spec.student_vocabulary
        if self.excludes_separators and vocabulary is not None:
            separator_id = list(vocabulary.tokens()).index(vocabulary.rules.special_names["sep_token"])
        values: dict[str, Any] = {
            "top_layer": max(1, round(spec.teacher.num_layers * first / last)),
            "separator_id": separator_id,
            "max_length": _SPAN_LENGTH if span else _of_task(_LENGTHS, task),
            "hidden_epochs": self.epochs or (_of_task(_EPOCHS, task) if task is not None else 3),
            "prediction_epochs": self.epochs or 5,
            "prediction_learning_rate": _of_task(_PREDICTION_RATES, task),
            "batch_size": _of_task(_BATCH_SIZES, task) if task is not None else 256,
        }
        missing = {name: value for name, value in values.items() if getattr(self, name) is None}
        # One spelling, so that a cache of table5-1-3 is one of 1,9,0.1.
        return dataclasses.replace(self, knowledge=str(self.amounts), **missing)

    def stages(self, spec: DistillationSpec) -> Sequence[Stage]:
        """Returns `hidden`, and `prediction` with a task."""
        method = self.resolved(spec)
        assert method.hidden_epochs is not None and method.prediction_epochs is not None
        assert method.prediction_learning_rate is not None
        shared: dict[str, Any] = {
            "max_length": method.max_length,
            "batch_size": method.batch_size,
            "micro_batches": method.micro_batches,
            "options": method,
        }
        decay: dict[str, Any] = {"weight_decay": method.weight_decay, "clip_norm": method.clip_norm or None}
        hidden = Stage(
            name="hidden",
            **_features(spec, method),
            weights={"hidden": 1.0},
            data="text" if spec.task is None else "task",
            text_segments=text_segments(spec) if spec.task is None else 1,
            duration=Epochs(method.hidden_epochs),
            optimizer=OptimizerConfig(learning_rate=method.hidden_learning_rate, schedule="constant", **decay),
            **shared,
        )
        if spec.task is None:
            return [hidden]
        prediction = Stage(
            name="prediction",
            teacher_features={"logits": ()},
            student_features={"logits": ()},
            weights={"prediction": 1.0},
            task=spec.task,
            data="task",
            duration=Epochs(method.prediction_epochs),
            optimizer=OptimizerConfig(learning_rate=method.prediction_learning_rate, warmup_ratio=0.1, **decay),
            keep="best",
            **shared,
        )
        return [hidden, prediction]

    def adapters(self, spec: DistillationSpec) -> Adapters:
        """Returns W (`projection`), from the student's width to the teacher's, if they differ."""
        from pocketbert.layers.core import Dense

        widths = spec.student.hidden_size, spec.teacher.hidden_size
        return {} if widths[0] == widths[1] else {"projection": Dense(*widths)}

    def validate(self, spec: DistillationSpec) -> list[str]:
        """Checks the amounts against both models, L_top, the separator and the task's kind."""
        method, amounts = self.resolved(spec), self.amounts
        pairs, width, layers = spec.student.num_layers + 1, spec.teacher.hidden_size, spec.teacher.num_layers
        problems = []
        if (amounts.layers or 1) > pairs:
            problems.append(
                f"knowledge allows at most {pairs} pairs of layers for a student with {pairs - 1} layers, because the "
                f"embedding counts; received {amounts.layers}; give 1 to {pairs}"
            )
        if amounts.kept(width) < 1:
            problems.append(
                f"knowledge must keep an activation of the teacher's width {width}; received a share of "
                f"{float(amounts.width):g}; give at least {1 / width:.2g}"
            )
        if method.top_layer is not None and method.top_layer > layers:
            problems.append(f"top_layer must be 1 to {layers}, the teacher's layers; received {method.top_layer}")
        if method.excludes_separators and method.separator_id is None:
            problems.append(
                f"tokens={self.tokens} needs the id of [SEP]; received models without tokenizer files; give "
                "separator_id, or another value of tokens"
            )
        if spec.task is not None and spec.task.kind not in KINDS:
            problems.append(f"hsk supports {', '.join(KINDS)}; received {spec.task.kind}")
        return problems

    def summary(self, spec: DistillationSpec) -> list[str]:
        """Describes the amount of knowledge."""
        method, amounts = self.resolved(spec), self.amounts
        pairs, width = spec.student.num_layers + 1, spec.teacher.hidden_size
        assert method.max_length is not None
        most = method.max_length
        tokens = "all tokens" if amounts.tokens is None else f"N_L = {amounts.tokens}"
        units, full = amounts.units(pairs, min(amounts.tokens or most, most), width), pairs * most
        lines = [
            f"hsk: A^HSK = {units:.2f} of {full:,} units: N_D = {amounts.layers or pairs}, {tokens}, N_W = "
            f"{amounts.kept(width)} of {width}, for {most} tokens"
        ]
        if amounts.tokens is not None:
            lines.append(f"hsk: an example with fewer than {amounts.tokens} tokens to select from keeps all of them")
        return lines

    def uncacheable(self, stage: Stage) -> str:
        """Refuses the authors' threshold, because it depends on the other examples in a batch."""
        if self.preset == "paper" or "hidden_states" not in stage.teacher_features:
            return ""
        return (
            "targets of preset=authors-code depend on the batch, so a teacher cache cannot store them; received "
            f"stage {stage.name}; distil with the teacher itself, or use preset=paper"
        )

    def index_limits(self, stage: Stage, teacher: EncoderConfig) -> Mapping[str, int]:
        """Returns the teacher's width for `widths_I`; see `targets`."""
        pairs = len(stage.teacher_features.get("hidden_states", ()))
        return {f"widths_{number}": teacher.hidden_size for number in range(1, pairs + 1)}

    def candidates(self, stage: Stage, encoded: EncodedExamples) -> np.ndarray | None:
        """Returns the number of real tokens, without separators for `no-sep`; None for predictions and all tokens."""
        from pocketbert.distillation.hidden_selection import candidate_counts

        options = stage.options
        if "logits" in stage.teacher_features or options.amounts.tokens is None:
            return None
        return candidate_counts(encoded, options.separator_id if options.excludes_separators else None)

    def targets(self, stage: Stage, teacher: Features, batch: Batch) -> Targets:
        """Returns pair I's kept hidden states, counted from 1, or the teacher's logits.

        All are zero where an example has fewer than k tokens; k is S for all tokens.

        - `values_I` [B, k, N_W], or [B, k, d] for the authors' code, with zeros for other activations.
        - `positions_I` int32 [B, k], ascending, except for `left` and all tokens.
        - `widths_I` int32 [B, k, N_W], ascending, for `mag` below the full width.
        """
        import tensorflow as tf

        from pocketbert.distillation import hidden_selection

        if "logits" in stage.teacher_features:
            return logits_by_name(teacher["logits"], stage.task)
        options, amounts = stage.options, stage.options.amounts
        targets: dict[str, tf.Tensor] = {}
        for index, states in enumerate(teacher["hidden_states"]):
            number = index + 1
            count, width = amounts.kept(states.shape[-1]), states.shape[-1]
            by_batch = options.preset == "authors-code" and options.widths == "mag" and count < width
            if by_batch:
                states = hidden_selection.above_threshold(states, amounts.width)
            attention = next((teacher[name][index] for name in _ATTENTION if name in teacher), None)
            vectors, positions = _selected(stage, states, attention, batch)
            if attention is not None:
                targets[f"positions_{number}"] = positions
            if count == width or by_batch:
                targets[f"values_{number}"] = vectors
            elif options.widths == "mag":
                values, indices = hidden_selection.largest(vectors, count)
                indices *= _token_weights(options, batch)[:, :, None]
                targets |= {f"values_{number}": values, f"widths_{number}": indices}
            else:
                targets[f"values_{number}"] = tf.gather(vectors, _mask(options, count, width), axis=-1)
        return targets

    def loss(
        self, stage: Stage, targets: Targets, student: Features, adapters: Adapters, batch: Batch
    ) -> Mapping[str, tf.Tensor]:
        """Returns `hidden`, eq. 3; or `prediction` and `labels`, as the stage asks."""
        import tensorflow as tf

        from pocketbert.distillation import hidden_selection
        from pocketbert.distillation.losses import tinybert_hidden

        if "logits" in student:
            return prediction_terms(stage, targets, student, batch)
        options = stage.options
        weights = _token_weights(options, batch)
        losses = []
        for number, learned in enumerate(student["hidden_states"], start=1):
            positions = targets.get(f"positions_{number}")
            if positions is None and options.amounts.tokens is not None:
                positions = _left(learned, options)
            if positions is not None:
                learned = tf.gather(learned, positions, batch_dims=1)
            # None for equal widths.
            width = learned.shape[-1]
            if "projection" in adapters:
                learned = adapters["projection"](learned)
                width = learned.shape[-1]
            values, indices = targets[f"values_{number}"], targets.get(f"widths_{number}")
            if indices is None and values.shape[-1] < width:
                indices = _mask(options, values.shape[-1], width)
            if indices is not None:
                values = hidden_selection.widened(values, indices, width)
            # The stored targets already have zeros for eliminated widths.
            losses.append(tinybert_hidden(values, learned, weights))
        return {"hidden": sum(losses[1:], losses[0])}


# One of them scores the tokens: the paper's, or the authors'.
_ATTENTION = ("attention_probs", "attention_logits")


def _of_task(table: tuple[Mapping[str, Any], Any], task: str | None) -> Any:
    return table[0].get(task or "", table[1])


def _features(spec: DistillationSpec, method: HSK) -> dict[str, Any]:
    """Returns the teacher and student layers that a stage reads: the top N_D pairs."""
    layers, amounts = spec.student.num_layers, method.amounts
    assert method.top_layer is not None
    # N_D beyond L' + 1 is reported by `validate`.
    first = max(0, layers + 1 - (amounts.layers or layers + 1))
    teacher = {"hidden_states": layer_map(layers, method.top_layer)[first:]}
    if amounts.tokens is not None and method.tokens != "left":
        top = spec.teacher.num_layers if method.tokens == "att-last-no-sep" else method.top_layer
        name = "attention_probs" if method.preset == "paper" else "attention_logits"
        teacher[name] = tuple(max(1, layer) for layer in layer_map(layers, top)[first:])
    return {"teacher_features": teacher, "student_features": {"hidden_states": tuple(range(first, layers + 1))}}


def _available(options: HSK, batch: Batch) -> tf.Tensor:
    from pocketbert.distillation.hidden_selection import candidates

    return candidates(batch, options.separator_id if options.excludes_separators else None)


def _token_weights(options: HSK, batch: Batch) -> tf.Tensor:
    """Returns the targets' token mask: [B, k], or [B, S] for all tokens."""
    from pocketbert.distillation.hidden_selection import kept_weights

    if options.amounts.tokens is None:
        return batch["input_mask"]
    return kept_weights(_available(options, batch), options.amounts.tokens)


def _left(states: tf.Tensor, options: HSK) -> tf.Tensor:
    import tensorflow as tf

    from pocketbert.distillation.hidden_selection import left_positions

    assert options.amounts.tokens is not None
    return left_positions(tf.shape(states)[1], tf.shape(states)[0], options.amounts.tokens)


def _selected(
    stage: Stage, states: tf.Tensor, attention: tf.Tensor | None, batch: Batch
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Returns the kept tokens' vectors [B, k, H], float32, zero beyond an example's own, and their positions."""
    import tensorflow as tf

    from pocketbert.distillation.hidden_selection import attended_positions

    options, states = stage.options, tf.cast(states, tf.float32)
    weights = tf.cast(_token_weights(options, batch), tf.float32)[:, :, tf.newaxis]
    tokens = options.amounts.tokens
    if tokens is None:
        return states * weights, None
    if attention is None:
        positions = _left(states, options)
    else:
        positions = attended_positions(attention, _available(options, batch), tokens)
    return tf.gather(states, positions, batch_dims=1) * weights, positions


def _mask(options: HSK, count: int, width: int) -> tuple[int, ...]:
    return static_mask(options.widths, count, width, options.mask_seed)
