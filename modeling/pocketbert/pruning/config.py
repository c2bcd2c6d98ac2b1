"""Options and result of pruning. The fields become flags and docs. Nothing here imports TensorFlow."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pocketbert.checkpoints.families.registry import FAMILIES
from pocketbert.configs import BlockKind, EncoderConfig, TaskConfig
from pocketbert.errors import UserError, raise_if_any
from pocketbert.options import option_problems
from pocketbert_runtime.heads_config import described_heads

if TYPE_CHECKING:
    from pocketbert.model import Model


# Blocks with heads and neurons that can be cut.
_NARROWABLE: tuple[BlockKind, ...] = ("plain", "relative")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PruneConfig:
    """Pruning options; the default sizes are ROSITA6's (Liu et al. 2021, Marginal Utility Diminishes, appendix A).

    Attributes:
      method: pruning method: `rosita`.
      layers: number of layers to keep, from the first; off keeps all.
      teacher_layers: exactly the layers to keep, in ascending order from 1, such as 2,4,6; instead of --layers.
      heads: attention heads to keep in each layer; off keeps all.
      intermediate_size: feed-forward neurons to keep in each layer; off keeps all.
      embedding_rank: rank of the factored word embedding; off leaves it whole.
      examples: number of training examples for the importance, evenly spaced (default: all).
      batch_size: batch size for the importance. It changes the importance, since gradients within a batch cancel.
      max_length: maximum sequence length; longer texts are truncated (default: 128, questions 384).
      seed: seed for the batches.
      checkpoint_seconds: seconds between checkpoints; it does not change the result.
    """

    GROUP: ClassVar = "Pruning"
    COMMON: ClassVar = (
        "method", "layers", "teacher_layers", "heads", "intermediate_size", "embedding_rank", "batch_size", "max_length"
    )  # fmt: skip

    method: Literal["rosita"] = "rosita"
    layers: int | None = 6
    teacher_layers: tuple[int, ...] = ()
    heads: int | None = 2
    intermediate_size: int | None = 768
    embedding_rank: int | None = 128
    examples: int | None = None
    batch_size: int = 32
    max_length: int = 128
    seed: int = 0
    checkpoint_seconds: float = 60.0

    def __post_init__(self) -> None:
        problems = option_problems(self, may_be_zero=("seed", "checkpoint_seconds"))
        if 0 < self.max_length < 3:
            problems.append(
                f"max_length must leave room for a token between two special tokens; received {self.max_length}"
            )
        if list(self.teacher_layers) != sorted({layer for layer in self.teacher_layers if layer > 0}):
            received = ",".join(map(str, self.teacher_layers))
            problems.append(f"teacher_layers must be different layers from 1 in ascending order; received {received}")
        if self.teacher_layers and self.layers not in (PruneConfig.layers, None, len(self.teacher_layers)):
            problems.append(f"give layers or teacher_layers; received both, with layers={self.layers}")
        raise_if_any(problems, "pruning options")

    def recorded(self) -> dict[str, Any]:
        """Returns the options that affect the result, as JSON values."""
        recorded = dataclasses.asdict(self)
        del recorded["checkpoint_seconds"]
        return recorded

    def problems(self, teacher: EncoderConfig) -> list[str]:
        """Returns why a teacher cannot be pruned to these sizes."""
        problems = []
        cuts = self.cuts_widths(teacher) or self.embedding_rank is not None
        if teacher.feedforward or (cuts and not can_be_narrowed(teacher)):
            titles = [family.title for family in FAMILIES.values() if family.block in _NARROWABLE]
            kind = "an EfficientBERT" if teacher.feedforward else f"a {teacher.model_type}"
            remedy = "" if teacher.feedforward else "; turn heads, intermediate_size and embedding_rank off"
            problems.append(
                f"the teacher must be a {', '.join(titles[:-1])} or {titles[-1]}, without bottlenecks and stacked "
                f"feed-forward networks; received {kind}{remedy}"
            )
        if teacher.rotary is not None and max(self.kept_layers(teacher)) <= teacher.num_layers:
            problems += teacher.rotary.unlike_layers(self.kept_layers(teacher))
        last = max(self.teacher_layers, default=0)
        if last > teacher.num_layers:
            problems.append(
                f"teacher_layers must be among the teacher's {teacher.num_layers}; received layer {last}; leave it out"
            )
        elif teacher.layer_groups is not None and len(self.kept_layers(teacher)) <= teacher.num_layers:
            try:
                teacher.sources(self.kept_layers(teacher))
            except UserError as error:
                problems.append(str(error))
        limits = {
            **({} if self.teacher_layers else {"layers": teacher.num_layers}),
            "heads": teacher.num_attention_heads,
            "intermediate_size": teacher.intermediate_size,
            "embedding_rank": min(teacher.vocab_size, teacher.hidden_size),
        }
        for name, limit in limits.items():
            value = getattr(self, name)
            if value is not None and value > limit:
                problems.append(
                    f"{name} must be at most the teacher's {limit}; received {value}; lower it, or turn it off "
                    "(None in Python)"
                )
        if self.embedding_rank is not None and teacher.embedding_projection != "none":
            problems.append(
                "embedding_rank needs a teacher with a whole word embedding; received one with "
                f"embedding_size={teacher.embedding_size} and a map to {teacher.hidden_size}; turn it off (None in "
                "Python)"
            )
        if self.max_length > teacher.max_position_embeddings:
            problems.append(
                f"max_length must be at most the teacher's {teacher.max_position_embeddings} positions; received "
                f"{self.max_length}"
            )
        return problems

    def kept_layers(self, teacher: EncoderConfig) -> Sequence[int]:
        """Returns the teacher layers that stay, counted from 1."""
        return self.teacher_layers or range(1, (self.layers or teacher.num_layers) + 1)

    def cuts_widths(self, teacher: EncoderConfig) -> bool:
        """Whether heads or neurons are removed, so that their importance counts."""
        return self.heads not in (None, teacher.num_attention_heads) or (
            self.intermediate_size not in (None, teacher.intermediate_size)
        )

    def pruned(self, teacher: EncoderConfig) -> EncoderConfig:
        """Returns the pruned model's architecture; the head size stays."""
        config = teacher.replace(
            num_layers=len(self.kept_layers(teacher)),
            num_attention_heads=self.heads or teacher.num_attention_heads,
            intermediate_size=self.intermediate_size or teacher.intermediate_size,
        )
        if self.embedding_rank is None:
            return config
        return config.replace(embedding_size=self.embedding_rank, embedding_projection="factors")


def can_be_narrowed(teacher: EncoderConfig) -> bool:
    """Whether heads, neurons and the word embedding can be cut, and not only layers."""
    return teacher.block in _NARROWABLE and not (teacher.feedforward or teacher.num_feedforward_networks > 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PruneResult:
    """A pruned model.

    Attributes:
      model_directory: the pruned model's directory.
      main_metric: the task's main metric.
      metrics: the pruned model's metrics on the dev split, before any training.
      teacher_metrics: the teacher's metrics on the same dev split.
      parameters: number of weights before and after, heads included.
      weight_bytes: size of the weights before and after, float32.
      kept_heads: heads that each kept layer keeps, counted from 0.
      kept_importance: fraction of the importance in the kept `heads` and `neurons`, for each kept layer.
      kept_embedding: fraction of the word embedding's squared norm in its factors; 1.0 if it stays whole.
      examples: number of examples, or windows, in the pass over the data; 0 if no head and no neuron is removed.
    """

    model_directory: str
    main_metric: str
    metrics: dict[str, float]
    teacher_metrics: dict[str, float]
    parameters: tuple[int, int]
    weight_bytes: tuple[int, int]
    kept_heads: list[list[int]]
    kept_importance: dict[str, list[float]]
    kept_embedding: float
    examples: int

    @functools.cached_property
    def model(self) -> Model:
        """The model, loaded on first use."""
        from pocketbert.model import from_pretrained

        return from_pretrained(self.model_directory)


def head_problems(teacher_tasks: tuple[TaskConfig, ...], data_task: TaskConfig) -> list[str]:
    """Returns why a teacher's heads do not fit the data's task; the caller compares labels."""
    if data_task.tasks:
        return [f"prune is for models with one head; received {described_heads(data_task)}; prune before fine-tuning"]
    if (
        len(teacher_tasks) == 1
        and teacher_tasks[0].kind == data_task.kind
        and teacher_tasks[0].labels == data_task.labels
    ):
        return []
    shown = ", ".join(" ".join([task.kind, *task.labels]) for task in teacher_tasks) or "none"
    return [
        "the teacher must have one head, fine-tuned on the task of the data "
        f"({' '.join([data_task.kind, *data_task.labels])}); received {shown}; "
        "fine-tune it on these data, or list its labels in order (labels)"
    ]
