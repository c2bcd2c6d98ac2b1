"""Configuration for sentence embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pocketbert_runtime.errors import literal_problems, raise_if_any

Pooling = Literal["mean", "cls", "max"]
DenseActivation = Literal["tanh", "relu", "gelu", "identity"]


@dataclass(frozen=True, kw_only=True)
class EmbeddingConfig:
    """How the last feature map becomes a sentence embedding; terms and defaults from sentence-transformers.

    Attributes:
      pooling: `mean` or maximum (`max`) over the tokens, or the first token (`cls`).
      normalize: scale embeddings to length 1.
      dimensions: outputs of a dense layer after pooling; None for no dense layer.
      dense_bias: whether the dense layer has a bias.
      dense_activation: activation after the dense layer.
      dense_residual: add the dense layer's input to its output, after a second linear map, without a bias, if the
        widths differ.
      max_length: maximum sequence length in tokens; None for the encoder's positions.
      prompts: (name, text) for prompts that can precede a text, such as `("query", "query: ")`.
      default_prompt: prompt name for all texts that select none; None for no prompt.
    """

    pooling: Pooling = "mean"
    normalize: bool = True
    dimensions: int | None = None
    dense_bias: bool = True
    dense_activation: DenseActivation = "tanh"
    dense_residual: bool = False
    max_length: int | None = None
    prompts: tuple[tuple[str, str], ...] = ()
    default_prompt: str | None = None

    def __post_init__(self) -> None:
        problems = []
        if isinstance(self.prompts, list | tuple) and all(map(_is_prompt, self.prompts)):
            object.__setattr__(self, "prompts", tuple((name, text) for name, text in self.prompts))
        else:
            problems.append(f"prompts must be pairs of name and text; received {self.prompts!r:.80}")
            object.__setattr__(self, "prompts", ())
        problems += literal_problems("pooling", self.pooling, Pooling)
        problems += literal_problems("dense_activation", self.dense_activation, DenseActivation)
        for name, number, least in (("dimensions", self.dimensions, 1), ("max_length", self.max_length, 3)):
            if number is not None and not (type(number) is int and least <= number <= 1 << 20):
                problems.append(f"{name} must be a whole number from {least} to {1 << 20}; received {number!r}")
        for name in ("normalize", "dense_bias", "dense_residual"):
            if not isinstance(getattr(self, name), bool):
                problems.append(f"{name} must be true or false; received {getattr(self, name)!r}")
        names = [name for name, _ in self.prompts]
        if self.default_prompt is not None and self.default_prompt not in names:
            problems.append(
                f"default_prompt must be one of {', '.join(names) or 'no prompts'}; received {self.default_prompt!r}"
            )
        raise_if_any(problems, "EmbeddingConfig")

    @property
    def prompt(self) -> str:
        """The default prompt's text; empty for none."""
        return dict(self.prompts).get(self.default_prompt or "", "")


def _is_prompt(prompt: object) -> bool:
    return isinstance(prompt, list | tuple) and len(prompt) == 2 and all(isinstance(part, str) for part in prompt)


def embedding_config(fields: EmbeddingConfig | Mapping[str, Any] | None) -> EmbeddingConfig:
    """Makes a configuration from its fields, such as from JSON; the defaults for None.

    Raises:
      UserError: a field is unknown or has a wrong value.
    """
    if fields is None or isinstance(fields, EmbeddingConfig):
        return fields or EmbeddingConfig()
    names = EmbeddingConfig.__dataclass_fields__
    raise_if_any([f"the field {name!r} is unknown" for name in fields if name not in names], "EmbeddingConfig")
    return EmbeddingConfig(**fields)


def dense_shapes(encoder: Any, task: Any) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the head's weights by path, for `TaskRules.head`; empty without a dense layer."""
    config = task.embedding
    if config.dimensions is None:
        return {}
    bias = {"dense.bias": (config.dimensions,)} if config.dense_bias else {}
    shape = (encoder.hidden_size, config.dimensions)
    residual = {"residual.kernel": shape} if config.dense_residual and shape[0] != shape[1] else {}
    return {"dense.kernel": shape, **bias, **residual}
