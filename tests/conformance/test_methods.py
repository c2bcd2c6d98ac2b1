"""Rules for every distillation method. The suite discovers new files in `methods`."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny_distillation
import tiny_finetuning
import tiny_pretraining
from method_cases import (
    HEADS,
    Case,
    batch,
    each_case,
    each_kind_of_data,
    each_kind_of_stored_data,
    each_method,
    label_terms,
    labels_of,
    make_case,
    make_spec,
    short_method,
    shortened,
    terms,
)
from safetensors.numpy import load_file

import pocketbert as pb
from pocketbert.data.batches import dataset, encode, plan_batches
from pocketbert.data.examples import Examples
from pocketbert.data.pretraining.reader import PretrainingData
from pocketbert.data.task_data import TaskData, TextData
from pocketbert.data.teacher_cache.reader import TeacherCache
from pocketbert.distillation.cache_teacher import cache_targets
from pocketbert.distillation.distiller import Distiller
from pocketbert.distillation.method import DistillationSpec, Method
from pocketbert.distillation.methods import names
from pocketbert.distillation.run import distill
from pocketbert.layers import loss_normalization
from pocketbert.training import trainer
from pocketbert.training.config import RunConfig
from pocketbert.training.distribution import open_distribution
from pocketbert.training.stage import LABEL_TERMS, Stage
from pocketbert.training.stage_batches import StageBatches, encoded_batches, pretraining_batches
from pocketbert.training.state import TrainState, restore_stage, write_checkpoint
from pocketbert.training.step import adapter_variables


def test_methods_are_discovered() -> None:
    assert "tinybert" in names()


@each_case
def test_identical_student_has_zero_loss(name: str, kind: str) -> None:
    case, data = make_case(name, kind, copies=True), batch(kind)
    for layer in case.adapters.values():
        layer.kernel.assign(np.eye(*layer.kernel.shape))
    compared = 0
    for distiller in case.distillers():
        learned = {term for name in labels_of(data) for term in label_terms(distiller, data, name)}
        variables = list(case.student.named_variables().values())
        with tf.GradientTape(persistent=True) as tape:
            losses = dict(zip(distiller.loss_names, tf.unstack(distiller.losses(data)), strict=True))
        for term in losses.keys() - learned - {"loss"}:
            gradients = [g for g in tape.gradient(losses[term], variables) if g is not None]
            # Both networks run the same operations on the same numbers; what is left is one rounding of each.
            assert all(np.abs(tf.convert_to_tensor(g).numpy()).max() < 1e-5 for g in gradients), term
            value = float(losses[term])
            entropy = teacher_entropy(case, data)
            assert value == pytest.approx(0.0, abs=1e-6) or value == pytest.approx(entropy, rel=1e-5), term
            compared += bool(gradients)
    assert compared, "no term was compared with the teacher"


def teacher_entropy(case: Case, data: dict[str, tf.Tensor]) -> float:
    """Mean over examples, or over masked tokens, nats; 0 where the teacher gives no distribution."""
    inputs = {name: value for name, value in data.items() if name not in LABEL_TERMS.values()}
    if not {"classification", "masked_lm"} & set(case.spec.teacher_heads or ()):
        return 0.0
    logits = next(iter(case.teacher(inputs).values())).numpy().astype(np.float64)
    if "masked_lm_labels" in data:
        logits = logits[data["masked_lm_labels"].numpy() >= 0]
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return float(-(np.exp(logs) * logs).sum(-1).mean())


@each_case
def test_labels_reach_only_their_term(name: str, kind: str) -> None:
    case, data = make_case(name, kind), batch(kind)
    for stage, distiller in zip(case.stages, case.distillers(), strict=True):
        for label in labels_of(data):
            expected = {term for term in stage.weights if LABEL_TERMS.get(term) == label}
            assert label_terms(distiller, data, label) == expected


@each_method
def test_counting_runs_no_network(name: str, kind: str) -> None:
    case, data = make_case(name, kind), batch(kind)
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


@each_case
def test_padding_and_order_change_nothing(name: str, kind: str) -> None:
    case, data = make_case(name, kind), batch(kind)
    mask = data["input_mask"].numpy()
    assert (mask == 0).any()
    garbage = np.random.default_rng(0).integers(2, 97, mask.shape).astype(np.int32)
    padded = {**data, "input_word_ids": tf.constant(np.where(mask, data["input_word_ids"].numpy(), garbage))}
    order = [2, 0, 1]
    permuted = {key: tf.gather(value, order) for key, value in data.items()}
    for distiller in case.distillers():
        expected = terms(distiller, data)
        # Sums of about a thousand float32 numbers of order 1 in another order.
        assert terms(distiller, padded) == pytest.approx(expected, rel=1e-5)
        assert terms(distiller, permuted) == pytest.approx(expected, rel=1e-5)


@each_case
def test_every_adapter_learns_without_teacher_gradients(name: str, kind: str) -> None:
    case, data = make_case(name, kind), batch(kind)
    taught: dict[str, bool] = dict.fromkeys(adapter_variables(case.adapters), False)
    reads_teacher = False
    for distiller in case.distillers():
        teacher_variables, path_names = list(case.teacher.named_variables().values()), list(taught)
        with tf.GradientTape() as tape:
            loss = distiller.losses(data, training=True)[0]
        adapters = [adapter_variables(case.adapters)[path] for path in path_names]
        gradients = tape.gradient(loss, [*teacher_variables, *adapters])
        assert all(gradient is None for gradient in gradients[: len(teacher_variables)])
        for path, gradient in zip(path_names, gradients[len(teacher_variables) :], strict=True):
            taught[path] |= gradient is not None and bool(tf.reduce_any(gradient != 0))
        assert not {id(v) for v in distiller.variables} & {id(v) for v in teacher_variables}
    reads_teacher = any(stage.teacher_features for stage in case.stages)
    assert reads_teacher and all(taught.values()), taught
    assert not set(taught) & set(case.student.named_variables())


@pytest.fixture(scope="module")
def teachers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Writes a method's teacher for a task, once."""
    folder = tmp_path_factory.mktemp("teachers")
    vocabulary = tiny_finetuning.write_model(folder / "bare")

    @functools.cache
    def write(name: str, kind: str) -> Path:
        config = make_spec(name, kind, shallow=True).teacher
        tokenizer = pb.from_pretrained(vocabulary).tokenizer
        pb.from_preset(config, HEADS[kind], tokenizer, seed=12).save_pretrained(folder / f"{name}-{kind}")
        return folder / f"{name}-{kind}"

    return write


def examples(kind: str, count: int, seed: int) -> Examples:
    plain = tiny_finetuning.examples(count, seed)
    if kind == "general":
        return dataclasses.replace(plain, labels=None)
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, count).astype(np.int32) if kind == "classification" else random.normal(size=count)
    return dataclasses.replace(plain, labels=labels if kind == "classification" else labels.astype(np.float32))


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
    encoded = encode(examples(kind, 21, seed=0), tokenizer, 23)
    return [encoded_batches(stage, encoded, 0, masks=tokenizer if stage.masked_text else None) for stage in stages]


def losses_of_step(distiller: Distiller, batch: Any) -> tf.Tensor:
    return tf.stack(list(distiller.update(batch).values()))


@each_kind_of_data
def test_one_trace_serves_all_shapes(name: str, kind: str, teachers: Any, tmp_path: Path) -> None:
    case, tokenizer = make_case(name, kind, shallow=True), pb.from_pretrained(teachers(name, kind)).tokenizer
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


@each_kind_of_stored_data
def test_live_and_cached_targets_agree(name: str, kind: str, teachers: Any, tmp_path: Path) -> None:
    case, directory = make_case(name, kind, shallow=True), teachers(name, kind)
    teacher = pb.from_pretrained(directory)
    encoded = encode(examples(kind, 21, seed=0), teacher.tokenizer, 23)
    plan = plan_batches(encoded.lengths, batch_size=8, seed=0, epoch=0)
    for stage in case.stages:
        if not stage.teacher_features:
            continue
        path = cache_targets(teacher, directory, case.method, stage, encoded, tmp_path)
        live = Distiller(case.student, case.method, stage, teacher=teacher, adapters=case.adapters)
        stored = TeacherCache.open(path).dataset(encoded, plan)
        plain = dataset(encoded, plan)
        for (data, targets), element in zip(stored, plain, strict=True):
            assert set(data) == set(element if kind == "general" else {**element[0], "labels": 0})
            # Half of float16's 11 bits on each target of order 1 to 10; a loss takes the mean of many.
            assert terms(live, data, targets) == pytest.approx(terms(live, data), rel=2e-3)


def cut(method: Method) -> Method:
    """The method with the stages of `shortened`."""
    whole = type(method)

    def stages(self: Any, spec: DistillationSpec) -> Sequence[Stage]:
        return [shortened(stage) for stage in whole.stages(self, spec)]

    return dataclasses.make_dataclass(
        whole.__name__, [], bases=(whole,), frozen=True, kw_only=True, namespace={"stages": stages}
    )(**vars(method))


class Interrupted(BaseException):
    """Stands for the end of the process."""


def task_data(kind: str = "classification") -> TaskData:
    if kind == "embedding":
        pairs = [examples("regression", count, seed=count) for count in (20, 11)]
        pairs = [dataclasses.replace(part, pairs=part.texts[::-1]) for part in pairs]
        return TaskData(task=HEADS[kind][0], train=pairs[0], dev=pairs[1])
    train, dev = examples("classification", 20, seed=0), examples("classification", 11, seed=1)
    (task,) = HEADS["classification"]
    return TaskData(task=task, train=train, dev=dev, metrics=("accuracy",), main_metric="accuracy")


@each_kind_of_data
def test_interrupted_run_resumes_exactly(
    name: str, kind: str, teachers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: Any
) -> None:
    # Once a method with what users' runs have, else without graphs, of which each attempt would make its own.
    request.getfixturevalue("graph_optimizer" if kind == "general" else "eager")
    directory = teachers(name, kind)
    arguments: dict[str, Any] = {
        "method": cut(short_method(name)),
        "student": make_spec(name, kind, shallow=True).student,
        "teacher": directory,
        "run": RunConfig(seed=2, checkpoint_seconds=0.0),
    }
    if kind == "pretraining":
        folder = tmp_path / "pretraining"
        tiny_pretraining.write_data(folder, documents=10, max_length=23, vocabulary=directory / "vocab.txt")
        arguments["data"] = PretrainingData.open(folder)
    elif kind == "general":
        # More inputs than two steps take: the stage is interrupted inside of an epoch.
        arguments["data"] = TextData(tiny_distillation.write_text(tmp_path / "text.txt", sentences=40))
    else:
        arguments["data"] = task_data(kind)
    whole = distill(output=tmp_path / "whole", **arguments)
    interruptions = 0
    while True:
        calls = []

        # Two steps of each stage, then the third together with two of the next.
        def interrupting(*arguments: Any, calls: list[Any] = calls, allowed: int = 3 if interruptions else 2) -> None:
            write_checkpoint(*arguments)
            calls.append(arguments)
            if len(calls) == allowed:
                raise Interrupted

        with monkeypatch.context() as patch:
            patch.setattr(trainer, "write_checkpoint", interrupting)
            try:
                resumed = distill(output=tmp_path / "resumed", **arguments)
                break
            except Interrupted:
                interruptions += 1
    assert interruptions == len(whole.stages)
    assert (resumed.metrics, resumed.steps) == (whole.metrics, whole.steps)
    files = [path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*.safetensors")]
    assert len([path for path in files if path.name == "model.safetensors"]) == len(whole.stages)
    for path in files:
        assert (tmp_path / "resumed" / path).read_bytes() == (tmp_path / "whole" / path).read_bytes(), path
        if path.name == "model.safetensors":
            assert not any("adapter" in key for key in load_file(tmp_path / "whole" / path))
