"""What MobileBERT's method can be told, and what follows from it before there is a stage."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pocketbert.errors import raise_if_any
from pocketbert.options import option_problems

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class MobileBERTOptions:
    """MobileBERT's options.

    Attributes:
      preset: source of defaults: `paper`, or `authors-code`.
      strategy: how knowledge is transferred (section 3.6): `progressive`, a stage a layer; `joint`, one stage for all
        layers; `auxiliary`, together with pretraining distillation in one stage; or `none`.
      without: the ablations of table 9: `distillation` (masked words are learned from the data alone), `feature_map`,
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

    def resolved(self) -> MobileBERTOptions:
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
