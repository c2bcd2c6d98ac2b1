"""Options for pretraining. Fields become flags and docs. Nothing here imports TensorFlow."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

from pocketbert.errors import raise_if_any
from pocketbert.notation import argument
from pocketbert.options import option_problems
from pocketbert.training.stage import part_problems

# Defaults for options that are None. For masked LM alone, they are from transformers' run_mlm.py, with BERT's optimizer
# and a larger batch.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "mlm-nsp": {"batch_size": 4096, "optimizer": "lamb", "bias_correction": False, "learning_rate": 1.5e-3},
    "mlm": {
        "batch_size": 32,
        "optimizer": "adamw",
        "bias_correction": True,
        "learning_rate": 5e-5,
        "max_length": 128,
        "dev_every": 20,
    },
}
_STEPS, _EPOCHS = 500_000, 3
# Options for plain text; pretrain-data has its own.
_TEXT_OPTIONS = ("max_length", "dev_every")
# [CLS], one token and [SEP].
_SHORTEST = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """Options for pretraining.

    The defaults for `objective="mlm-nsp"` are those for MobileBERT's teacher (Sun et al. 2020, section 4.2); values
    missing in the paper come from the authors' code, google-research/mobilebert. `objective="mlm"` has its own.

    Attributes:
      objective: `mlm-nsp`: masked LM and next-sentence prediction, on examples from pretrain-data. `mlm`: masked LM
        alone, on plain text, for every model with a tokenizer.
      steps: number of updates (default: 500,000 as in the paper; for mlm, 3 epochs).
      epochs: passes over the data, instead of --steps.
      batch_size: examples per update, over all replicas (default: 4096 as in the paper, BERT has 256 for 1,000,000
        steps; for mlm 32).
      micro_batches: parts per batch, to save memory; the update is the same.
      optimizer: lamb (paper) or adamw (BERT) (default: lamb; for mlm adamw).
      bias_correction: correct the moments' bias, as in the LAMB and Adam papers; the authors' code and BERT's code do
        not (default: no; for mlm yes).
      learning_rate: peak learning rate. The paper gives none; the authors' code uses 1.5e-3 with LAMB for batch size
        2048. BERT uses 1e-4 with AdamW for batch size 256 (default: 1.5e-3; for mlm 5e-5).
      schedule: schedule after the warm-up: `linear` decay to 0 (authors' code), `cosine` or `constant`.
      warmup_steps: warm-up steps (authors' code: 10,000), at most a tenth of all steps.
      weight_decay: decoupled weight decay, except for biases and norms (authors' code: 0.01).
      clip_norm: maximum global gradient norm (authors' code: 1.0); 0 for no clipping.
      max_length: for mlm: maximum sequence length with special tokens; texts are packed into inputs (default: 128).
      dev_every: for mlm: one in this many documents is the dev part, or one in this many lines if there are fewer
        documents; 0 for none (default: 20).
    """

    GROUP: ClassVar = "Pretraining"
    COMMON: ClassVar = ("objective", "steps", "epochs", "batch_size", "micro_batches", "optimizer", "learning_rate")

    objective: Literal["mlm-nsp", "mlm"] = "mlm-nsp"
    steps: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    micro_batches: int = 1
    optimizer: Literal["lamb", "adamw"] | None = None
    bias_correction: bool | None = None
    learning_rate: float | None = None
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    warmup_steps: int = 10_000
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    max_length: int | None = None
    dev_every: int | None = None

    def __post_init__(self) -> None:
        problems = option_problems(self, may_be_zero=("warmup_steps", "weight_decay", "clip_norm", "dev_every"))
        if self.objective in _DEFAULTS:
            problems += part_problems(self.batch_size or _DEFAULTS[self.objective]["batch_size"], self.micro_batches)
        if self.objective == "mlm-nsp":
            problems += [
                f"{name} is for plain text with {argument('objective', 'mlm')}; received {getattr(self, name)} for "
                f"examples; pass it when you make them, with {argument(name, of='pretrain-data')}"
                for name in _TEXT_OPTIONS
                if getattr(self, name) is not None
            ]
        elif self.steps is not None and self.epochs is not None:
            problems.append(f"the duration is steps or epochs; received {self.steps} and {self.epochs}; leave out one")
        if self.max_length is not None and 0 < self.max_length < _SHORTEST:
            problems.append(
                f"max_length must leave room for a token between two special tokens; received {self.max_length}"
            )
        if self.dev_every == 1:
            problems.append("dev_every must be 0 or at least 2, so that texts remain for training; received 1")
        raise_if_any(problems, "pretraining options")

    def resolved(self) -> PretrainConfig:
        """Returns the options with the objective's defaults; `steps` or `epochs` is the duration."""
        values = {name: value for name, value in _DEFAULTS[self.objective].items() if getattr(self, name) is None}
        if self.objective == "mlm-nsp":
            values["steps"] = _STEPS if self.steps is None else self.steps
        elif self.steps is None and self.epochs is None:
            values["epochs"] = _EPOCHS
        return dataclasses.replace(self, **values)

    def recorded(self) -> dict[str, Any]:
        """Returns options that affect the result, as JSON values; the record has the objective under its own name."""
        values = dataclasses.asdict(self.resolved())
        del values["objective"]
        if self.objective == "mlm-nsp":
            # Records with two objectives do not have them.
            for name in _TEXT_OPTIONS:
                del values[name]
        return {f"option_{name}": value for name, value in values.items()}
