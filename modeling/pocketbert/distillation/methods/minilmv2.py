"""MiniLMv2: distils the self-attention relations of one teacher layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pocketbert.checkpoints.families.registry import family_of
from pocketbert.configs import EncoderConfig
from pocketbert.distillation.method import DistillationSpec, Method, segment_problems, text_segments
from pocketbert.distillation.predictions import logits_by_name, prediction_terms
from pocketbert.errors import did_you_mean, raise_if_any
from pocketbert.options import option_problems
from pocketbert.training.objective import Adapters, Batch, Features, Targets
from pocketbert.training.stage import Epochs, OptimizerConfig, Stage, Steps

if TYPE_CHECKING:
    import tensorflow as tf

_VECTORS = {"q": "queries", "k": "keys", "v": "values"}
RELATIONS = tuple(one + other for one in _VECTORS for other in _VECTORS)
_LARGE_WIDTH = 1024
# Layers and width of students with a β₂ of their own (section 4.1).
_BASE = (12, 768)
# Appendix C.
_TASK_LENGTH = 128


@dataclass(frozen=True, kw_only=True)
class MiniLMv2(Method):
    """MiniLMv2 (Wang et al. 2021, https://arxiv.org/abs/2012.15828).

    The stage `relations` distils one teacher layer into the student's last layer. The loss is eq. 5, a sum over
    relations. Each term is the KL divergence between the teacher's and the student's relation, averaged over relation
    heads and tokens (eq. 6 to 8), and has its relation's name, such as `qq`. Teacher and student may differ in depth,
    width and number of heads. Each model computes nothing above the projections in its layer. So the rest of the
    student's last layer and its pooler keep their initial weights until you fine-tune it.

    The paper distils on plain text, and you fine-tune the student afterwards. With a task, this method does both on the
    task's examples: the stage `relations`, then the stage `finetuning` on the labels (appendix C).

    Choices for values that the paper does not give:

    - The text is not masked (`masked_text`).
    - Texts have two segments, as in BERT's pretraining, if both models have two token types (`text_segments`).
    - Gradients are clipped to a global norm of 1, and Adam's epsilon is 1e-6, as in BERT's pretraining.
    - On a task's examples, `relations` takes 10 epochs with batch size 32 and rate 1e-4. For `finetuning`, learning
      rate and epochs are in the paper's grid.
    - Teachers that are neither 12 nor 24 layers deep use their last layer.

    MiniLM v1 (Wang et al. 2020, https://arxiv.org/abs/2002.10957) is a special case: the relations Q-K and V-V with as
    many relation heads as attention heads, because the Q-K relation is then the attention distribution
    (`preset="minilm"`).

    Departure: padding is neither a key nor a query; the paper's equations are for one text's tokens.

    Attributes:
      preset: source of defaults: `paper`, or `minilm` for MiniLM v1, which needs equal numbers of attention heads.
      relations: relations to distil, each a pair of `q` (queries), `k` (keys) and `v` (values) (default: paper
        qq,kk,vv; minilm qk,vv).
      relation_heads: number of relation heads; must divide both models' attention width (default: paper 48, or 64 for
        teachers with a width of 1024 or more; minilm the number of attention heads).
      teacher_layer: teacher layer, counted from 1 (default: the last one; for teachers with 24 layers 21 for BERT and
        19 for RoBERTa and XLM-R).
      masked_text: mask the text as in BERT's pretraining.
      text_segments: segments per input on plain text (default: 2 as in BERT's pretraining, or 1 if a model has one
        token type).
      max_length: maximum sequence length (default: paper 512 for text, 128 for tasks, 384 for questions).
      steps: training steps in `relations` on plain text (default: paper 400,000, or 1,000,000 for XLM-R teachers).
      epochs: passes over the data in `relations`, instead of steps (default for tasks: 10).
      batch_size: batch size in `relations` (default: paper 256; 32 for tasks).
      learning_rate: peak learning rate in `relations` (default: paper 6e-4; 1e-4 for tasks).
      warmup_steps: linear warm-up steps in `relations`, at most a tenth of the stage.
      beta_2: decay of Adam's second moment in `relations` (default: paper 0.999; 0.98 for RoBERTa students with 12
        layers of 768).
      weight_decay: decoupled weight decay, except for biases and norms.
      clip_norm: maximum global gradient norm; 0 for no clipping.
      micro_batches: number of parts per batch, to save memory; the result is the same.
      relation_mib: memory for a chunk of relations, in MiB; the result is the same to rounding.
      finetuning_epochs: passes over the task's data in `finetuning`.
      finetuning_batch_size: batch size in `finetuning`.
      finetuning_learning_rate: peak learning rate in `finetuning`; the paper selects 1e-5 to 5e-5 on the dev set.
    """

    name: ClassVar[str] = "minilmv2"
    reference: ClassVar[str] = "Wang et al. 2021, MiniLMv2, eq. 5-8, https://arxiv.org/abs/2012.15828"
    GROUP: ClassVar = "Method"
    COMMON: ClassVar = ("preset", "relations", "relation_heads", "teacher_layer", "max_length", "steps", "epochs")

    preset: Literal["paper", "minilm"] = "paper"
    relations: tuple[str, ...] = ()
    relation_heads: int | None = None
    teacher_layer: int | None = None
    masked_text: bool = False
    text_segments: int | None = None
    max_length: int | None = None
    steps: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    warmup_steps: int = 4000
    beta_2: float | None = None
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    micro_batches: int = 1
    relation_mib: int = 64
    finetuning_epochs: int = 3
    finetuning_batch_size: int = 32
    finetuning_learning_rate: float = 5e-5

    def __post_init__(self) -> None:
        problems = option_problems(self, may_be_zero=("weight_decay", "clip_norm", "warmup_steps"))
        for relation in self.relations:
            if relation not in RELATIONS:
                hint = did_you_mean(relation, RELATIONS)
                problems.append(f"relations accepts {', '.join(RELATIONS)}; received {relation!r}{hint}")
        if len(set(self.relations)) != len(self.relations):
            problems.append(f"relations must be different; received {','.join(self.relations)}; remove the repetition")
        if self.steps is not None and self.epochs is not None:
            problems.append(f"give steps or epochs; received steps={self.steps} and epochs={self.epochs}")
        if self.text_segments is not None and self.text_segments > 2:
            problems.append(f"text_segments must be 1 or 2; received {self.text_segments}")
        if self.beta_2 is not None and self.beta_2 >= 1:
            problems.append(f"beta_2 must be below 1; received {self.beta_2}")
        raise_if_any(problems, "minilmv2 options")

    def stages(self, spec: DistillationSpec) -> Sequence[Stage]:
        """Returns `relations`, and `finetuning` with a task."""
        method = self.resolved(spec)
        assert method.teacher_layer is not None and method.beta_2 is not None
        assert method.batch_size is not None and method.learning_rate is not None and method.max_length is not None
        names = dict.fromkeys(_VECTORS[letter] for relation in method.relations for letter in relation)
        relations = Stage(
            name="relations",
            teacher_features={name: (method.teacher_layer,) for name in names},
            student_features={name: (spec.student.num_layers,) for name in names},
            weights=dict.fromkeys(method.relations, 1.0),
            data="text" if spec.task is None else "task",
            masked_text=method.masked_text and spec.task is None,
            text_segments=1 if spec.task is not None or method.text_segments == 1 else text_segments(spec),
            max_length=method.max_length,
            duration=Epochs(method.epochs) if method.steps is None else Steps(method.steps),  # type: ignore[arg-type]
            batch_size=method.batch_size,
            micro_batches=method.micro_batches,
            optimizer=OptimizerConfig(
                learning_rate=method.learning_rate,
                warmup_steps=method.warmup_steps,
                beta_2=method.beta_2,
                weight_decay=method.weight_decay,
                clip_norm=method.clip_norm or None,
            ),
            options=method,
        )
        if spec.task is None:
            return [relations]
        return [relations, _finetuning_stage(spec, method)]

    def validate(self, spec: DistillationSpec) -> list[str]:
        """Checks relation heads and text segments."""
        method = self.resolved(spec)
        widths = spec.teacher.attention_size, spec.student.attention_size
        heads, problems = method.relation_heads, []
        assert heads is not None
        counts = spec.teacher.num_attention_heads, spec.student.num_attention_heads
        if self.preset == "minilm" and self.relation_heads is None and counts[0] != counts[1]:
            problems.append(
                f"MiniLM v1 compares attention heads one by one; the teacher has {counts[0]} heads, the student "
                f"{counts[1]}; give relation_heads, or a student with {counts[0]} heads"
            )
        elif any(width % heads for width in widths):
            valid = [str(number) for number in range(1, min(widths) + 1) if not any(w % number for w in widths)]
            problems.append(
                f"relation_heads must divide the teacher's width {widths[0]} and the student's {widths[1]}; received "
                f"{heads}; give one of {', '.join(valid)}"
            )
        problems += segment_problems(spec, self.text_segments)
        if spec.task is not None:
            options = [name for name in ("masked_text", "text_segments") if getattr(self, name)]
            problems += [f"{name} is for plain text; received it with a task; leave it out" for name in options]
        return problems

    def resolved(self, spec: DistillationSpec) -> MiniLMv2:
        """Returns a copy with the preset's values for options without one."""
        first_version, student = self.preset == "minilm", spec.student
        family, is_base = family_of(student.model_type), (student.num_layers, student.hidden_size) == _BASE
        large = spec.teacher.attention_size >= _LARGE_WIDTH
        values: dict[str, int | float | tuple[str, ...]] = {
            "relations": ("qk", "vv") if first_version else ("qq", "kk", "vv"),
            "relation_heads": spec.teacher.num_attention_heads if first_version else (64 if large else 48),
            "teacher_layer": default_teacher_layer(spec.teacher),
            "max_length": 512,
            "batch_size": 256,
            "learning_rate": 6e-4,
            "beta_2": family.relation_beta_2 if is_base else 0.999,
        }
        if spec.task is not None:
            from pocketbert.tasks.registry import get_task

            # Appendix B and C for the lengths, for questions 384; see the class for the other values.
            length = get_task(spec.task).default_max_length or _TASK_LENGTH
            values |= {"max_length": length, "batch_size": 32, "learning_rate": 1e-4}
        missing = {name: value for name, value in values.items() if getattr(self, name) in (None, ())}
        if self.steps is None and self.epochs is None:
            # Section 4.1.
            text_steps = family_of(spec.teacher.model_type).relation_steps
            missing |= {"steps": text_steps} if spec.task is None else {"epochs": 10}
        return dataclasses.replace(self, **missing)  # type: ignore[arg-type]

    def targets(self, stage: Stage, teacher: Features, batch: Batch) -> Targets:
        """Returns the logits; or `queries`, `keys` and `values` [B, S, A] from the teacher's layer, as requested."""
        if "logits" in stage.teacher_features:
            return logits_by_name(teacher["logits"], stage.task)
        return {name: teacher[name][0] for name in stage.teacher_features}

    def loss(
        self, stage: Stage, targets: Targets, student: Features, adapters: Adapters, batch: Batch
    ) -> Mapping[str, tf.Tensor]:
        """Returns a term per relation; or `labels` and, with a label weight, `prediction`."""
        import tensorflow as tf

        from pocketbert.distillation.losses import relation_transfer

        if "logits" in student:
            return prediction_terms(stage, targets, student, batch)
        terms: dict[str, tf.Tensor] = {}
        for relation in stage.weights:
            one, other = (_VECTORS[letter] for letter in relation)
            # One relation after another, because each uses the memory of a chunk.
            with tf.control_dependencies(list(terms.values())):
                learned = [tf.identity(student[name][0]) for name in (one, other)]
            terms[relation] = relation_transfer(
                targets[one],
                learned[0],
                batch["input_mask"],
                stage.options.relation_heads,
                targets[other],
                learned[1],
                chunk_bytes=stage.options.relation_mib << 20,
            )
        return terms


def default_teacher_layer(teacher: EncoderConfig) -> int:
    """Returns the paper's teacher layer, counted from 1 (section 3.2): 21 or 19 for 24 layers, otherwise the last."""
    layer = family_of(teacher.model_type).relation_layer if teacher.num_layers == 24 else None
    return layer or teacher.num_layers


def _finetuning_stage(spec: DistillationSpec, method: MiniLMv2) -> Stage:
    assert method.max_length is not None
    return Stage(
        name="finetuning",
        student_features={"logits": ()},
        weights={"labels": 1.0},
        task=spec.task,
        data="task",
        max_length=method.max_length,
        duration=Epochs(method.finetuning_epochs),
        batch_size=method.finetuning_batch_size,
        micro_batches=method.micro_batches,
        # Appendix C.
        optimizer=OptimizerConfig(
            learning_rate=method.finetuning_learning_rate,
            warmup_ratio=0.1,
            weight_decay=method.weight_decay,
            clip_norm=method.clip_norm or None,
        ),
        keep="best",
        options=method,
    )
