"""Tiny teachers, students and batches; awkward, different sizes show swapped axes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert.configs import BottleneckConfig, EncoderConfig, TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.distiller import Distiller
from pocketbert.distillation.initialization import initialize_adapters
from pocketbert.distillation.method import DistillationSpec, Method, plan_stages, validated_stages
from pocketbert.distillation.methods import get_method
from pocketbert.feedforward import FeedForwardConfig
from pocketbert.model import from_preset
from pocketbert.presets import preset
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
from pocketbert.training.stage import LABEL_TERMS, Stage, Steps

MAX_LENGTH = 23
_VOCABULARY = 97
_BERT = preset("bert_base_uncased").config.replace(
    vocab_size=_VOCABULARY,
    hidden_size=30,
    num_layers=2,
    num_attention_heads=5,
    head_size=6,
    intermediate_size=41,
    embedding_size=30,
    max_position_embeddings=29,
    initializer_range=0.2,
)
# Attention heads are compared one by one; every other size differs.
_PAIR = (_BERT, _BERT.replace(num_layers=1, hidden_size=20, embedding_size=20, head_size=4, intermediate_size=33))
_MOBILEBERT = _BERT.replace(
    model_type="mobilebert",
    head_size=4,
    intermediate_size=37,
    num_feedforward_networks=3,
    activation="relu",
    norm="no_norm",
    embedding_size=11,
    embedding_projection="word",
    trigram=True,
    bottleneck=BottleneckConfig(size=20, query_key="raw"),
    pooler="first_token",
    hidden_dropout=0.0,
    # NoNorm lets values grow with depth: smaller weights keep them of order 1.
    initializer_range=0.1,
)
_IB_BERT = _MOBILEBERT.replace(
    head_size=7,
    num_feedforward_networks=1,
    norm="layer_norm",
    activation="gelu_tanh",
    bottleneck=BottleneckConfig(size=35, query_key="raw"),
    pooler="tanh",
    hidden_dropout=0.1,
)
_EXPRESSION = FeedForwardConfig(expressions=("linear2_2(gelu(mul(linear2_2(x),tanh(x))))",))
# Teacher and student for methods with a family of their own.
_PAIRS: Mapping[str, tuple[EncoderConfig, EncoderConfig]] = {
    "mobilebert": (_IB_BERT, _MOBILEBERT),
    "efficientbert": (_PAIR[0], _PAIR[1].replace(feedforward=_EXPRESSION)),
}
# Options for methods with unsuitable defaults: relation heads must divide the networks' widths, 30 and 20. Only at full
# width can a student equal HSK's targets. Token 3 stands for [SEP].
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "minilmv2": {"relation_heads": 2},
    "hsk": {"knowledge": "2,4,1", "separator_id": 3},
}
# A method's data → the heads in teacher and student.
HEADS: Mapping[str, tuple[TaskConfig, ...]] = {
    "classification": (TaskConfig(kind="classification", name="three", labels=("low", "middle", "high")),),
    "regression": (TaskConfig(kind="regression", name="score"),),
    "embedding": (TaskConfig(kind="embedding", name="films"),),
    "general": (),
    "pretraining": (TaskConfig(kind="masked_lm"), TaskConfig(kind="next_sentence")),
}
# A batch's rows, in tokens; each row's masked positions, filled up with 0; and whether a second text follows.
_LENGTHS = (7, 4, 6)
_POSITIONS = np.array([[1, 3, 5, 6], [2, 0, 0, 0], [1, 4, 0, 0]], np.int32)
_SIDES = np.array([0, 1, 1], np.int32)
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def kinds(name: str, options: Mapping[str, Any] = {}) -> dict[str, list[str]]:
    """A method's keys of `HEADS` → its problems. Without a task, its stages decide: text or pretraining examples."""
    method = short_method(name, options)
    if method.task_kinds:
        return {kind: [] for kind in HEADS if kind in method.task_kinds}
    problems, pretrains = {}, False
    for kind in HEADS:
        stages, problems[kind] = validated_stages(method, spec(name, kind))
        pretrains |= kind == "pretraining" and any(stage.data == "pretraining" for stage in stages)
    if pretrains:
        return {"pretraining": problems["pretraining"]}
    return {kind: of_kind for kind, of_kind in problems.items() if kind not in ("pretraining", "embedding")}


def spec(name: str, kind: str, *, copies: bool = False, shallow: bool = False) -> DistillationSpec:
    """Teacher, student and task.

    Args:
      name: the method.
      kind: key of `HEADS`.
      copies: whether the student has the teacher's architecture.
      shallow: whether both have one layer.
    """
    teacher, student = _PAIRS.get(name, _PAIR)
    if shallow:
        teacher, student = teacher.replace(num_layers=1), student.replace(num_layers=1)
    heads = HEADS[kind]
    task = heads[0] if kind in ("classification", "regression", "embedding") else None
    return DistillationSpec(
        teacher=teacher,
        student=teacher if copies else student,
        task=task,
        teacher_task=task,
        teacher_heads=tuple(head.kind for head in heads),
    )


@dataclasses.dataclass(frozen=True)
class TinyCase:
    """A method on tiny networks; every stage has 23 tokens, 8 examples a batch and 3 steps."""

    method: Method
    kind: str
    spec: DistillationSpec
    stages: tuple[Stage, ...]
    teacher: Any
    student: Any

    def distillers(self) -> list[Distiller]:
        """Returns each stage's losses."""
        return [
            Distiller(self.student, self.method, stage, teacher=self.teacher, adapters=self.adapters)
            for stage in self.stages
        ]

    @functools.cached_property
    def adapters(self) -> dict[str, Any]:
        """The adapters, with weights."""
        adapters = dict(self.method.adapters(self.spec))
        initialize_adapters(adapters, 0.2, seed=1)
        return adapters


def make_case(
    name: str, kind: str, *, copies: bool = False, shallow: bool = False, options: Mapping[str, Any] = {}
) -> TinyCase:
    """A method on tiny networks; see `spec`. `options` replace suitable defaults."""
    planned = spec(name, kind, copies=copies, shallow=shallow)
    method = short_method(name, options)
    stages = tuple(shortened(stage) for stage in plan_stages(method, planned))
    teacher = from_preset(planned.teacher, HEADS[kind], seed=12)
    student = from_preset(planned.student, HEADS[kind], seed=12 if copies else 4)
    return TinyCase(method, kind, planned, stages, teacher, student)


def shortened(stage: Stage) -> Stage:
    """Shortens a stage to 3 steps."""
    return dataclasses.replace(stage, max_length=MAX_LENGTH, duration=Steps(3), batch_size=8, micro_batches=1)


def short_method(name: str, options: Mapping[str, Any] = {}) -> Method:
    """Returns a method with its defaults, except a length for networks with few positions, and some options."""
    method = get_method(name)
    short = {field.name: MAX_LENGTH for field in dataclasses.fields(method) if field.name == "max_length"}
    return method(**{**short, **_OPTIONS.get(name, {}), **options})


def batch(kind: str, seed: int = 3) -> dict[str, tf.Tensor]:
    """Three rows with padding, and further loss inputs, by key of `HEADS`."""
    random = np.random.default_rng(seed)
    mask = (np.arange(9) < np.array(_LENGTHS)[:, np.newaxis]).astype(np.int32)
    arrays: dict[str, np.ndarray] = {
        "input_word_ids": random.integers(2, _VOCABULARY, mask.shape) * mask,
        "input_mask": mask,
        "input_type_ids": random.integers(0, 2, mask.shape) * mask,
    }
    rows = len(_LENGTHS)
    if kind == "classification":
        arrays["labels"] = random.integers(0, 3, rows)
    elif kind == "pretraining":
        words = random.integers(2, _VOCABULARY, _POSITIONS.shape)
        arrays["masked_lm_positions"] = _POSITIONS
        arrays["masked_lm_labels"] = np.where(_POSITIONS > 0, words, -1)
        arrays["next_sentence_labels"] = _SIDES
    tensors = {name: tf.constant(array, tf.int32) for name, array in arrays.items()}
    if kind in ("regression", "embedding"):
        tensors["labels"] = tf.constant(random.normal(size=rows), tf.float32)
    return tensors


def terms(distiller: Distiller, data: Any, targets: Any = None) -> dict[str, float]:
    """Name → value for each loss term."""
    return dict(zip(distiller.loss_names, distiller.losses(data, targets).numpy().tolist(), strict=True))


def label_terms(distiller: Distiller, data: dict[str, tf.Tensor], name: str) -> set[str]:
    """Terms that change with other labels of one name."""
    one, two = terms(distiller, data), terms(distiller, _other_labels(data, name))
    return {term for term in one if term != "loss" and one[term] != two[term]}


def labels_of(data: Mapping[str, tf.Tensor]) -> list[str]:
    """The labels' names in a batch."""
    return [name for name in LABEL_TERMS.values() if name in data]


def write_vocabulary(path: Path) -> WordPieceTokenizer:
    """Returns a tokenizer for the tiny networks."""
    words = [*_SPECIAL, *(f"word{number}" for number in range(_VOCABULARY - len(_SPECIAL)))]
    path.write_text("\n".join(words) + "\n", encoding="utf-8")
    return WordPieceTokenizer(path)


def examples(kind: str, count: int, seed: int) -> Examples:
    """Texts with 2 to 19 words and random labels; none without a task."""
    random = np.random.default_rng(seed)
    words = [f"word{number}" for number in range(_VOCABULARY - len(_SPECIAL))]
    texts = [" ".join(random.choice(words, random.integers(2, 20))) for _ in range(count)]
    labels: Any = None
    if kind == "classification":
        labels = random.integers(0, 3, count).astype(np.int32)
    elif kind in ("regression", "embedding"):
        labels = random.normal(size=count).astype(np.float32)
    return Examples(texts, None, labels, [str(index) for index in range(count)], "made for the rules")


def task_data(kind: str) -> TaskData:
    """20 training examples, and 11 for the dev split."""
    (task,) = HEADS[kind]
    metrics = {"classification": "accuracy", "regression": "pearson"}
    metric = metrics.get(kind, "")
    train, dev = examples(kind, 20, seed=20), examples(kind, 11, seed=11)
    if kind == "embedding":
        train, dev = (dataclasses.replace(part, pairs=part.texts[::-1]) for part in (train, dev))
    return TaskData(
        task=task,
        train=train,
        dev=dev,
        metrics=(metric,) if metric else (),
        main_metric=metric,
    )


def _other_labels(data: dict[str, tf.Tensor], name: str) -> dict[str, tf.Tensor]:
    """The batch with other labels of one name; unlabelled entries stay unlabelled."""
    labels = data[name]
    if labels.dtype != tf.int32:
        return {**data, name: labels + 1.0}
    classes = {"masked_lm_labels": _VOCABULARY, "next_sentence_labels": 2, "labels": 3}[name]
    return {**data, name: tf.where(labels < 0, labels, (labels + 1) % classes)}


def texts(count: int) -> Sequence[str]:
    """Returns sentences for a plain text."""
    return [f"{text.capitalize()}." for text in examples("general", count, seed=7).texts]
