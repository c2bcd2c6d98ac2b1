"""Distils sentence embeddings: the teacher's vectors, and the similarities between a batch's texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.distillation.method import DistillationSpec, Method
from pocketbert.errors import raise_if_any
from pocketbert.notation import argument
from pocketbert.options import option_problems
from pocketbert.training.objective import Adapters, Batch, Features, Targets
from pocketbert.training.stage import Epochs, OptimizerConfig, Stage

if TYPE_CHECKING:
    import tensorflow as tf

_ADAPTER = "vectors"


@dataclass(frozen=True, kw_only=True)
class EmbeddingDistillation(Method):
    """Sentence embedding distillation on the texts in pairs, without their scores.

    Two terms compare student and teacher on each text in a batch:

    - `vectors`: the squared distance between both vectors (Reimers & Gurevych 2020, eq. 1,
      https://arxiv.org/abs/2004.09813), as a mean over texts and features. If the widths differ, a linear map, which is
      not exported, takes the student's vector to the teacher's width.
    - `similarities`: the KL divergence between the teacher's and the student's distribution over the batch's other
      texts. The probabilities are the softmax over their cosines, divided by a temperature (Fang et al. 2021, SEED,
      eq. 4 and 5, https://arxiv.org/abs/2101.04731, with the batch in place of the queue).

    With `dimensions`, the first features in the student's vectors are embeddings, too: `similarities` is the mean over
    all widths (Kusupati et al. 2022, Matryoshka representations, eq. 1, https://arxiv.org/abs/2205.13147, with this
    loss).

    Attributes:
      vector_weight: weight of the term `vectors`, multiplied by the teacher's number of features, so that vectors with
        length 1 have the same loss at any width.
      similarity_weight: weight of the term `similarities`.
      temperature: divides the cosines.
      dimensions: numbers of leading features that are embeddings by themselves, such as 64,128,256.
      max_length: maximum sequence length.
      epochs: passes over the pairs.
      batch_size: pairs per batch; a batch compares twice as many texts.
      learning_rate: peak learning rate.
      warmup_ratio: share of steps for warm-up.
      weight_decay: decoupled weight decay, except for biases and norms.
      clip_norm: maximum global gradient norm; 0 for no clipping.
    """

    name: ClassVar[str] = "embedding"
    reference: ClassVar[str] = "Reimers & Gurevych 2020, eq. 1; Fang et al. 2021, SEED, eq. 4-5"
    task_kinds: ClassVar[tuple[str, ...]] = ("embedding",)
    GROUP: ClassVar = "Method"
    COMMON: ClassVar = ("dimensions", "epochs", "batch_size", "learning_rate", "max_length")

    vector_weight: float = 1.0
    similarity_weight: float = 1.0
    temperature: float = 0.05
    dimensions: tuple[int, ...] = ()
    max_length: int = 64
    epochs: int = 3
    batch_size: int = 32
    learning_rate: float = 1e-4
    warmup_ratio: float = 0.1
    weight_decay: float = 0.01
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        zero = ("vector_weight", "similarity_weight", "warmup_ratio", "weight_decay", "clip_norm")
        problems = option_problems(self, may_be_zero=zero)
        if len(set(self.dimensions)) < len(self.dimensions):
            problems.append(f"dimensions must differ; received {','.join(map(str, self.dimensions))}")
        if not self.vector_weight and not self.similarity_weight:
            problems.append("a term must have a weight; received vector_weight=0 and similarity_weight=0")
        raise_if_any(problems, "embedding options")

    def stages(self, spec: DistillationSpec) -> Sequence[Stage]:
        """Returns one stage."""
        width = _width(spec.teacher, spec.teacher_task)
        return [
            Stage(
                name="embedding",
                teacher_features={"logits": ()},
                student_features={"logits": ()},
                weights={"vectors": self.vector_weight * width, "similarities": self.similarity_weight},
                task=spec.task,
                data="task",
                max_length=self.max_length,
                duration=Epochs(self.epochs),
                batch_size=self.batch_size,
                optimizer=OptimizerConfig(
                    learning_rate=self.learning_rate,
                    warmup_ratio=self.warmup_ratio,
                    weight_decay=self.weight_decay,
                    clip_norm=self.clip_norm or None,
                ),
                keep="best",
                options=self,
            )
        ]

    def validate(self, spec: DistillationSpec) -> list[str]:
        """Checks the tasks and the nested dimensions."""
        if spec.task is None or spec.task.kind not in self.task_kinds:
            received = "none" if spec.task is None else spec.task.kind
            pairs = argument("kind", "embedding", python="pb.data.pairs(…)")
            return [f"the task must be embedding; received {received}; give pairs of texts with {pairs}"]
        width = _width(spec.student, spec.task)
        return [
            f"dimensions must be below the student's {width} features; received {dimensions}"
            for dimensions in self.dimensions
            if dimensions >= width
        ]

    def adapters(self, spec: DistillationSpec) -> Adapters:
        """Returns a linear map to the teacher's width, if the widths differ."""
        from pocketbert.layers.core import Dense

        widths = _width(spec.student, spec.task), _width(spec.teacher, spec.teacher_task)
        return {} if widths[0] == widths[1] else {_ADAPTER: Dense(*widths)}

    def targets(self, stage: Stage, teacher: Features, batch: Batch) -> Targets:
        """Returns `vectors`, the teacher's embeddings [B, D]."""
        return {"vectors": teacher["logits"][0]}

    def loss(
        self, stage: Stage, targets: Targets, student: Features, adapters: Adapters, batch: Batch
    ) -> Mapping[str, tf.Tensor]:
        """Returns `vectors` and `similarities`."""
        import tensorflow as tf

        from pocketbert.distillation.losses import embedding_similarities, embedding_vectors

        teacher_vectors, vectors, options = targets["vectors"], student["logits"][0], stage.options
        mapped = adapters[_ADAPTER](vectors) if _ADAPTER in adapters else vectors
        parts = [vectors, *(vectors[:, :count] for count in options.dimensions)]
        similar = [
            embedding_similarities(teacher_vectors, part, batch["input_mask"], options.temperature) for part in parts
        ]
        return {
            "vectors": embedding_vectors(teacher_vectors, mapped, batch["input_mask"]),
            "similarities": tf.add_n(similar) / len(similar),
        }


def _width(encoder: EncoderConfig, task: TaskConfig | None) -> int:
    dimensions = task.embedding.dimensions if task is not None and task.embedding is not None else None
    return dimensions or encoder.hidden_size
