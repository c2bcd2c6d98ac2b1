"""Rules for every distillation method. The suite discovers new files in `methods`."""

from __future__ import annotations

import collections
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny_pretraining
from method_cases import each_kind_of_data, each_kind_of_stored_data, each_method

from pocketbert.conformance import cases
from pocketbert.conformance.rules import RULES, MethodUnderTest
from pocketbert.data.batches import encode
from pocketbert.data.pretraining.reader import PretrainingData
from pocketbert.distillation.distiller import Distiller
from pocketbert.distillation.method import Method
from pocketbert.distillation.methods import names
from pocketbert.layers import loss_normalization
from pocketbert.training.distribution import open_distribution
from pocketbert.training.stage import Stage
from pocketbert.training.stage_batches import StageBatches, encoded_batches, pretraining_batches
from pocketbert.training.state import TrainState, restore_stage


def test_methods_are_discovered() -> None:
    assert "tinybert" in names()


_make_case = cases.make_case
_made: dict[tuple[Any, ...], cases.TinyCase] = {}


@pytest.fixture
def made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that change no weight share networks, as making them takes longer than most rules."""

    def make_case(name: str, kind: str, options: Any = (), **shape: bool) -> cases.TinyCase:
        key = (name, kind, *sorted(shape.items()), *dict(options).items())
        if key not in _made:
            _made[key] = _make_case(name, kind, options=dict(options), **shape)
        return _made[key]

    monkeypatch.setattr(cases, "make_case", make_case)


def check(rule: str, name: str, kind: str, folder: Path) -> None:
    """Raises unless the method keeps a rule, and there is something to check."""
    assert not RULES[rule](MethodUnderTest(name=name, kind=kind, options={}, folder=folder))


@each_method
def test_identical_student_has_zero_loss(name: str, kind: str, tmp_path: Path) -> None:
    check("identical student", name, kind, tmp_path)


@each_method
def test_labels_reach_only_their_term(name: str, kind: str, tmp_path: Path, made_once: None) -> None:
    check("labels", name, kind, tmp_path)


@each_method
def test_padding_and_order_change_nothing(name: str, kind: str, tmp_path: Path, made_once: None) -> None:
    check("padding", name, kind, tmp_path)


@each_method
def test_every_adapter_learns_without_teacher_gradients(name: str, kind: str, tmp_path: Path, made_once: None) -> None:
    check("gradients", name, kind, tmp_path)


@each_kind_of_stored_data
def test_live_and_cached_targets_agree(name: str, kind: str, tmp_path: Path, made_once: None, eager: None) -> None:
    check("teacher cache", name, kind, tmp_path)


@pytest.mark.one_of_each("minilmv2-classification")
@each_kind_of_data
def test_interrupted_run_resumes_exactly(name: str, kind: str, tmp_path: Path, request: Any) -> None:
    # Once a method with what users' runs have, else without graphs, of which each attempt would make its own.
    request.getfixturevalue("graph_optimizer" if kind == "general" else "eager")
    check("resuming", name, kind, tmp_path)


# Losses of layers and predictions, and of masked tokens.
@pytest.mark.one_of_each("tinybert-classification", "mobilebert-pretraining")
@each_method
def test_counting_runs_no_network(name: str, kind: str, made_once: None) -> None:
    case, data = cases.make_case(name, kind, shallow=True), cases.batch(kind)
    for distiller in case.distillers():
        todo, needed = recorded_operations(distiller, data), set()
        assert todo
        while todo:
            operation = todo.pop()
            if operation not in needed:
                needed.add(operation)
                todo += [tensor.op for tensor in operation.inputs] + list(operation.control_inputs)
        assert not {operation.type for operation in needed} & {"ReadVariableOp", "ResourceGather"}


def recorded_operations(distiller: Distiller, data: dict[str, tf.Tensor]) -> list[tf.Operation]:
    """What gives the totals in a graph; what a function returns would also wait for all that it reads."""
    operations: list[tf.Operation] = []
    signature = {key: tf.TensorSpec([None] * value.shape.rank, value.dtype) for key, value in data.items()}

    @tf.function(input_signature=[signature])
    def record(data: Any) -> None:
        with loss_normalization.count_weights() as totals:
            distiller.losses(data)
        operations.extend(total.op for total in totals)

    record.get_concrete_function()
    return operations


class Traced:
    """A method that counts how often the loss of each stage is written into a graph."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self.traces: collections.Counter[str] = collections.Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def loss(self, stage: Stage, targets: Any, student: Any, adapters: Any, batch: Any) -> Any:
        self.traces[stage.name] += 1
        return self._method.loss(stage, targets, student, adapters, batch)


def batches_of(kind: str, stages: Sequence[Stage], tokenizer: Any, folder: Path) -> list[StageBatches]:
    """Each stage's examples, as a run has them."""
    if kind == "pretraining":
        data = tiny_pretraining.write_data(
            folder / "data", documents=10, max_length=23, vocabulary=tokenizer.vocab_path
        )
        opened = PretrainingData.open(data)
        return [pretraining_batches(stage, opened, 0, index=number) for number, stage in enumerate(stages)]
    encoded = encode(cases.examples(kind, 21, seed=0), tokenizer, 23)
    return [encoded_batches(stage, encoded, 0, masks=tokenizer if stage.masked_text else None) for stage in stages]


def losses_of_step(distiller: Distiller, batch: Any) -> tf.Tensor:
    return tf.stack(list(distiller.update(batch).values()))


@pytest.mark.nightly
def test_one_trace_serves_each_layers_stage(tmp_path: Path) -> None:
    check_traces("mobilebert", "pretraining", tmp_path, {})


@each_kind_of_data
def test_one_trace_serves_all_shapes(name: str, kind: str, tmp_path: Path) -> None:
    # One stage with the terms of all the others.
    check_traces(name, kind, tmp_path, {"strategy": "auxiliary"} if name == "mobilebert" else {})


def check_traces(name: str, kind: str, tmp_path: Path, options: dict[str, str]) -> None:
    case = cases.make_case(name, kind, shallow=True, options=options)
    tokenizer = cases.write_vocabulary(tmp_path / "vocab.txt")
    traced, distribution = Traced(case.method), open_distribution()
    for stage, data in zip(case.stages, batches_of(kind, case.stages, tokenizer, tmp_path), strict=True):
        distiller = Distiller(case.student, traced, stage, teacher=case.teacher, adapters=case.adapters)
        restore_stage(tmp_path / "none", TrainState(), stage, distiller, data.total_steps, 0)
        plan = np.split(np.arange(12), (1, 3, 6))
        widths = {batch["input_word_ids"].shape[1] for batch in data.elements(plan, 0)}
        assert len(widths) > 1
        elements = [distribution.batches(plan, functools.partial(data.elements, epoch=epoch)) for epoch in (0, 1)]
        step = distribution.step(functools.partial(losses_of_step, distiller), elements[0])
        for batches in elements:
            losses = tf.stack([step(batch) for batch in batches])
            assert losses.dtype == tf.float32 and np.isfinite(losses).all() and len(losses) == len(plan)
        assert traced.traces[stage.name] == 1
    assert set(traced.traces) == {stage.name for stage in case.stages}
