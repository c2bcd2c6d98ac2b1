"""Tiny teachers, students, stages and batches for every method."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_distillation
import tiny_mobilebert

import pocketbert as pb
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.distillation.distiller import Distiller
from pocketbert.distillation.initialization import initialize_adapters
from pocketbert.distillation.method import DistillationSpec, Method, plan_stages
from pocketbert.distillation.methods import get_method, names
from pocketbert.feedforward import FeedForwardConfig
from pocketbert.training.stage import LABEL_TERMS, Stage, Steps

# Teacher and student for methods that need a family of their own; every other method takes these.
PAIRS: dict[str, tuple[EncoderConfig, EncoderConfig]] = {
    "mobilebert": (tiny_mobilebert.TEACHER.replace(num_layers=2), tiny_mobilebert.STUDENT.replace(num_layers=2)),
    "efficientbert": (
        tiny_distillation.TEACHER,
        tiny_distillation.STUDENT.replace(
            feedforward=FeedForwardConfig(expressions=("linear2_2(gelu(mul(linear2_2(x),tanh(x))))",))
        ),
    ),
}


# Options of methods whose defaults do not fit the tiny models: relation heads must divide their widths, 30 and 20. Only
# at full width can a student equal HSK's targets; `test_hsk` has others. Token 3 stands for [SEP].
OPTIONS: dict[str, dict[str, Any]] = {
    "minilmv2": {"relation_heads": 2},
    "hsk": {"knowledge": "2,4,1", "separator_id": 3},
}


# The same, with as few layers and stages as there can be: for whole runs, where most of the time goes into graphs.
SHALLOW_PAIRS = {name: (pair[0].replace(num_layers=1), pair[1].replace(num_layers=1)) for name, pair in PAIRS.items()}


PAIR = (tiny_distillation.TEACHER, tiny_distillation.STUDENT)


# What a method may be given, by the heads that teacher and student then have.
HEADS: dict[str, tuple[TaskConfig, ...]] = {
    "classification": (TaskConfig(kind="classification", name="three", labels=("low", "middle", "high")),),
    "regression": (TaskConfig(kind="regression", name="score"),),
    "embedding": (TaskConfig(kind="embedding", name="films"),),
    "general": (),
    "pretraining": tiny_mobilebert.HEADS,
}


def kinds(name: str) -> list[str]:
    """What a method is given: its stages without a task say whether that is text or pretraining examples."""
    if of_method := get_method(name).task_kinds:
        return [kind for kind in HEADS if kind in of_method]
    stages = get_method(name)().stages(make_spec(name, "general"))
    pretrains = any(stage.data == "pretraining" for stage in stages)
    return ["pretraining"] if pretrains else [kind for kind in HEADS if kind not in ("pretraining", "embedding")]


def make_spec(name: str, kind: str, *, copies: bool = False, shallow: bool = False) -> DistillationSpec:
    teacher, student = (SHALLOW_PAIRS if shallow else PAIRS).get(name, PAIR)
    heads = HEADS[kind]
    task = heads[0] if kind in ("classification", "regression", "embedding") else None
    return DistillationSpec(
        teacher=teacher,
        student=teacher if copies else student,
        task=task,
        teacher_task=task,
        teacher_heads=tuple(head.kind for head in heads),
    )


CASES = [pytest.param(method, kind, id=f"{method}-{kind}") for method in names() for kind in kinds(method)]


def cases(*excluded: str, one_a_method: bool = False) -> Any:
    """Every method with everything that it is given, but for some kinds; or the others of a method are nightly."""
    chosen: dict[str, list[Any]] = {name: [] for name in names()}
    for case in CASES:
        name, kind = case.values
        if kind not in excluded:
            nightly = [pytest.mark.nightly] if one_a_method and chosen[str(name)] else []
            chosen[str(name)].append(pytest.param(name, kind, id=case.id, marks=nightly))
    return pytest.mark.parametrize(("name", "kind"), [case for of_method in chosen.values() for case in of_method])


each_case = cases()


# What takes seconds.
each_method = cases(one_a_method=True)


# What does not depend on what the task's head is, too.
each_kind_of_data = cases("regression", one_a_method=True)


# Pretraining masks anew in each epoch, so a teacher's outputs cannot be cached.
each_kind_of_stored_data = cases("regression", "pretraining")


@dataclasses.dataclass(frozen=True)
class Case:
    """A method on tiny models, every stage cut to 23 tokens, 8 examples a batch and 3 steps."""

    method: Method
    spec: DistillationSpec
    stages: tuple[Stage, ...]
    teacher: Any
    student: Any

    def distillers(self) -> list[Distiller]:
        return [
            Distiller(self.student, self.method, stage, teacher=self.teacher, adapters=self.adapters)
            for stage in self.stages
        ]

    @functools.cached_property
    def adapters(self) -> dict[str, Any]:
        adapters = dict(self.method.adapters(self.spec))
        initialize_adapters(adapters, 0.2, seed=1)
        return adapters


def shortened(stage: Stage) -> Stage:
    return dataclasses.replace(stage, max_length=23, duration=Steps(3), batch_size=8, micro_batches=1)


def make_case(name: str, kind: str, *, copies: bool = False, shallow: bool = False) -> Case:
    spec = make_spec(name, kind, copies=copies, shallow=shallow)
    method = short_method(name)
    stages = tuple(shortened(stage) for stage in plan_stages(method, spec))
    teacher = pb.from_preset(spec.teacher, HEADS[kind], seed=12)
    student = pb.from_preset(spec.student, HEADS[kind], seed=12 if copies else 4)
    return Case(method, spec, stages, teacher, student)


def short_method(name: str) -> Method:
    """The method with its defaults, but for `OPTIONS` and the length: the tiny models have few positions."""
    method = get_method(name)
    short = {field.name: 23 for field in dataclasses.fields(method) if field.name == "max_length"}
    return method(**short, **OPTIONS.get(name, {}))


def batch(kind: str, seed: int = 3) -> dict[str, tf.Tensor]:
    if kind == "pretraining":
        return tiny_mobilebert.batch(length=9, seed=seed)
    random = np.random.default_rng(seed)
    inputs = dict(tiny.batch(tiny_distillation.TEACHER, length=9, seed=seed))
    rows = len(tiny.BATCH_LENGTHS)
    if kind == "classification":
        inputs["labels"] = tf.constant(random.integers(0, 3, rows).astype(np.int32))
    elif kind in ("regression", "embedding"):
        inputs["labels"] = tf.constant(random.normal(size=rows).astype(np.float32))
    return inputs


def terms(distiller: Distiller, data: Any, targets: Any = None) -> dict[str, float]:
    return dict(zip(distiller.loss_names, distiller.losses(data, targets).numpy().tolist(), strict=True))


def other_labels(data: dict[str, tf.Tensor], name: str) -> dict[str, tf.Tensor]:
    """The batch with other labels of one name; what has none keeps none."""
    labels, classes = data[name], {"masked_lm_labels": 97, "next_sentence_labels": 2, "labels": 3}[name]
    if labels.dtype != tf.int32:
        return {**data, name: labels + 1.0}
    return {**data, name: tf.where(labels < 0, labels, (labels + 1) % classes)}


def label_terms(distiller: Distiller, data: dict[str, tf.Tensor], name: str) -> set[str]:
    """The terms that other labels of one name change."""
    one, two = terms(distiller, data), terms(distiller, other_labels(data, name))
    return {term for term in one if term != "loss" and one[term] != two[term]}


def labels_of(data: dict[str, tf.Tensor]) -> list[str]:
    return [name for name in LABEL_TERMS.values() if name in data]
