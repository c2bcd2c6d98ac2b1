"""What every distillation method must satisfy. A new file in `methods` is tested here at once."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_distillation
import tiny_finetuning
from safetensors.numpy import load_file

import pocketbert as pb
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.batches import dataset, encode, plan_batches
from pocketbert.data.examples import Examples
from pocketbert.data.feature_store import FeatureStore
from pocketbert.distillation import means
from pocketbert.distillation.distiller import Distiller, adapter_variables, make_optimizer
from pocketbert.distillation.initialization import initialize_adapters
from pocketbert.distillation.method import Method, Setting, Stage, Steps, check_setting
from pocketbert.distillation.methods import get_method, names
from pocketbert.distillation.preparation import TaskData
from pocketbert.distillation.run import distill
from pocketbert.distillation.run_options import RunOptions
from pocketbert.distillation.teacher_dump import dump_targets
from pocketbert.training import run as driving
from pocketbert.training.checkpointing import write_checkpoint

# Teacher and student for methods that need a family of their own; every other method takes these.
PAIRS: dict[str, tuple[EncoderConfig, EncoderConfig]] = {}
PAIR = (tiny_distillation.TEACHER, tiny_distillation.STUDENT)
TASKS = {
    "classification": TaskConfig(kind="classification", name="three", labels=("low", "middle", "high")),
    "regression": TaskConfig(kind="regression", name="score"),
    "general": None,
}
CASES = [pytest.param(method, kind, id=f"{method}-{kind}") for method in names() for kind in TASKS]
each_case = pytest.mark.parametrize(("name", "kind"), CASES)
# What takes seconds and does not depend on what the task's head is.
each_kind_of_data = pytest.mark.parametrize(
    ("name", "kind"), [each for each in CASES if "regression" not in str(each.id)]
)


@dataclasses.dataclass(frozen=True)
class Case:
    """A method on tiny models, every stage cut to 23 tokens, 8 examples a batch and 3 steps."""

    method: Method
    setting: Setting
    options: Any
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
        adapters = dict(self.method.adapters(self.setting, self.options))
        initialize_adapters(adapters, 0.2, seed=1)
        return adapters


def shortened(stage: Stage) -> Stage:
    return dataclasses.replace(stage, max_length=23, duration=Steps(3), batch_size=8, micro_batches=1)


def make_case(name: str, kind: str, *, copies: bool = False) -> Case:
    method, task = get_method(name), TASKS[kind]
    teacher_config, student_config = PAIRS[name] if name in PAIRS else PAIR
    student_config = teacher_config if copies else student_config
    setting = Setting(teacher=teacher_config, student=student_config, task=task, teacher_task=task)
    options = dataclasses.replace(method.options(), **lengths(method))
    stages = tuple(shortened(stage) for stage in check_setting(method, setting, options))
    tasks = (task,) if task else ()
    teacher, student = (
        pb.build(teacher_config, tasks, seed=12),
        pb.build(student_config, tasks, seed=12 if copies else 4),
    )
    return Case(method, setting, options, stages, teacher, student)


def lengths(method: Method) -> dict[str, int]:
    """The tiny models have fewer positions than real texts have tokens."""
    return {"max_length": 23} if "max_length" in {field.name for field in dataclasses.fields(method.options)} else {}


def batch(kind: str, seed: int = 3) -> dict[str, tf.Tensor]:
    random = np.random.default_rng(seed)
    inputs = dict(tiny.batch(tiny_distillation.TEACHER, length=9, seed=seed))
    rows = len(tiny.BATCH_LENGTHS)
    if kind == "classification":
        inputs["labels"] = tf.constant(random.integers(0, 3, rows).astype(np.int32))
    elif kind == "regression":
        inputs["labels"] = tf.constant(random.normal(size=rows).astype(np.float32))
    return inputs


def terms(distiller: Distiller, data: Any, targets: Any = None) -> dict[str, float]:
    return dict(zip(distiller.loss_names, distiller.losses(data, targets).numpy().tolist(), strict=True))


def label_terms(distiller: Distiller, data: dict[str, tf.Tensor]) -> set[str]:
    """The terms that other labels change."""
    if "labels" not in data:
        return set()
    labels = data["labels"]
    other = {**data, "labels": (labels + 1) % 3 if labels.dtype == tf.int32 else labels + 1.0}
    one, two = terms(distiller, data), terms(distiller, other)
    return {name for name in one if name != "loss" and one[name] != two[name]}


def test_there_are_methods() -> None:
    assert "tinybert" in names()


@each_case
def test_a_student_that_is_the_teacher_has_nothing_to_learn(name: str, kind: str) -> None:
    case, data = make_case(name, kind, copies=True), batch(kind)
    for layer in case.adapters.values():
        layer.kernel.assign(np.eye(*layer.kernel.shape))
    compared = 0
    for distiller in case.distillers():
        learned = label_terms(distiller, data)
        variables = list(case.student.named_variables().values())
        with tf.GradientTape(persistent=True) as tape:
            found = dict(zip(distiller.loss_names, tf.unstack(distiller.losses(data)), strict=True))
        for term in found.keys() - learned - {"loss"}:
            gradients = [g for g in tape.gradient(found[term], variables) if g is not None]
            # Both networks run the same operations on the same numbers; what is left is one rounding of each.
            assert all(np.abs(tf.convert_to_tensor(g).numpy()).max() < 1e-5 for g in gradients), term
            value = float(found[term])
            entropy = teacher_entropy(case, data) if kind == "classification" else 0.0
            assert value == pytest.approx(0.0, abs=1e-6) or value == pytest.approx(entropy, rel=1e-5), term
            compared += bool(gradients)
    assert compared, "no term was compared with the teacher"


def teacher_entropy(case: Case, data: dict[str, tf.Tensor]) -> float:
    """Mean over examples, nats."""
    inputs = {name: value for name, value in data.items() if name != "labels"}
    logits = case.teacher(inputs)["logits"].numpy().astype(np.float64)
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return float(-(np.exp(logs) * logs).sum(-1).mean())


@each_case
def test_labels_reach_the_term_of_their_name_and_no_other(name: str, kind: str) -> None:
    case, data = make_case(name, kind), batch(kind)
    for stage, distiller in zip(case.stages, case.distillers(), strict=True):
        assert label_terms(distiller, data) == {"labels"} & set(stage.weights)


@each_case
def test_micro_batches_are_counted_without_running_a_network(name: str, kind: str) -> None:
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
    found: list[tf.Operation] = []
    signature = {key: tf.TensorSpec([None] * value.shape.rank, value.dtype) for key, value in data.items()}

    @tf.function(input_signature=[signature])
    def record(data: Any) -> None:
        with means.recording() as totals:
            distiller.losses(data)
        found.extend(total.op for total in totals)

    record.get_concrete_function()
    return found


@each_case
def test_padding_and_the_order_of_the_batch_change_nothing(name: str, kind: str) -> None:
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
def test_no_gradient_reaches_the_teacher_and_every_adapter_learns(name: str, kind: str) -> None:
    case, data = make_case(name, kind), batch(kind)
    taught: dict[str, bool] = dict.fromkeys(adapter_variables(case.adapters), False)
    reads_teacher = False
    for distiller in case.distillers():
        theirs, ours = list(case.teacher.named_variables().values()), list(taught)
        with tf.GradientTape() as tape:
            loss = distiller.losses(data, training=True)[0]
        adapters = [adapter_variables(case.adapters)[each] for each in ours]
        gradients = tape.gradient(loss, [*theirs, *adapters])
        assert all(gradient is None for gradient in gradients[: len(theirs)])
        for each, gradient in zip(ours, gradients[len(theirs) :], strict=True):
            taught[each] |= gradient is not None and bool(tf.reduce_any(gradient != 0))
        assert not {id(v) for v in distiller.variables} & {id(v) for v in theirs}
    reads_teacher = any(stage.teacher_features for stage in case.stages)
    assert reads_teacher and all(taught.values()), taught
    assert not set(taught) & set(case.student.named_variables())


@each_kind_of_data
def test_one_trace_a_stage(name: str, kind: str) -> None:
    case = make_case(name, kind)
    signature = {key: tf.TensorSpec([None] * value.shape.rank, value.dtype) for key, value in batch(kind).items()}
    for stage, distiller in zip(case.stages, case.distillers(), strict=True):
        distiller.compile(optimizer=make_optimizer(stage, 3))
        step = tf.function(distiller.train_step, input_signature=[signature])
        for length in (9, 11):
            data = batch(kind)
            extra = [[0, 0], [0, length - 9]]
            wider = {key: tf.pad(value, extra) if value.shape.rank == 2 else value for key, value in data.items()}
            losses = step(wider)
            assert all(value.dtype == tf.float32 and np.isfinite(value) for value in losses.values())
        assert step.experimental_get_tracing_count() == 1


@pytest.fixture(scope="module")
def teachers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Writes a method's teacher for a task, once."""
    folder = tmp_path_factory.mktemp("teachers")
    vocabulary = tiny_finetuning.write_model(folder / "bare")

    @functools.cache
    def write(name: str, kind: str) -> Path:
        task = TASKS[kind]
        config = (PAIRS[name] if name in PAIRS else PAIR)[0]
        tokenizer = pb.load(vocabulary).tokenizer
        pb.build(config, (task,) if task else (), tokenizer, seed=12).save_pretrained(folder / f"{name}-{kind}")
        return folder / f"{name}-{kind}"

    return write


def examples(kind: str, count: int, seed: int) -> Examples:
    plain = tiny_finetuning.examples(count, seed)
    if kind == "general":
        return dataclasses.replace(plain, labels=None)
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, count).astype(np.int32) if kind == "classification" else random.normal(size=count)
    return dataclasses.replace(plain, labels=labels if kind == "classification" else labels.astype(np.float32))


@each_kind_of_data
def test_live_and_stored_targets_agree(name: str, kind: str, teachers: Any, tmp_path: Path) -> None:
    case, directory = make_case(name, kind), teachers(name, kind)
    teacher = pb.load(directory)
    encoded = encode(examples(kind, 21, seed=0), teacher.tokenizer, 23)
    plan = plan_batches(encoded.lengths, batch_size=8, seed=0, epoch=0)
    for stage in case.stages:
        if not stage.teacher_features:
            continue
        path = dump_targets(teacher, directory, case.method, stage, encoded, tmp_path)
        live = Distiller(case.student, case.method, stage, teacher=teacher, adapters=case.adapters)
        stored = FeatureStore.open(path).dataset(encoded, plan)
        plain = dataset(encoded, plan)
        for (data, targets), element in zip(stored, plain, strict=True):
            assert set(data) == set(element if kind == "general" else {**element[0], "labels": 0})
            # Half of float16's 11 bits on each target of order 1 to 10; a loss takes the mean of many.
            assert terms(live, data, targets) == pytest.approx(terms(live, data), rel=2e-3)


class Shortened:
    """A method with the stages of `shortened`."""

    def __init__(self, method: Method) -> None:
        self._method = method

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def stages(self, setting: Setting, options: Any) -> Sequence[Stage]:
        return [shortened(stage) for stage in self._method.stages(setting, options)]


class Interrupted(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("name", names())
def test_a_run_that_is_interrupted_in_every_stage_ends_with_the_same_bits_and_without_adapters(
    name: str, teachers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = get_method(name)
    pair = PAIRS[name] if name in PAIRS else PAIR
    task = TASKS["classification"]
    assert task is not None
    train, dev = examples("classification", 20, seed=0), examples("classification", 11, seed=1)
    arguments: dict[str, Any] = {
        "method": Shortened(method),
        "options": dataclasses.replace(method.options(), **lengths(method)),
        "student": pair[1],
        "teacher_directory": teachers(name, "classification"),
        "task_data": TaskData(task=task, train=train, dev=dev, metrics=("accuracy",), main_metric="accuracy"),
        "run": RunOptions(seed=2, checkpoint_seconds=0.0),
    }
    whole = distill(output=tmp_path / "whole", **arguments)
    interruptions = 0
    while True:
        calls = []

        # Two steps of each stage, then the third together with two of the next.
        def interrupting(*given: Any, calls: list[Any] = calls, allowed: int = 3 if interruptions else 2) -> None:
            write_checkpoint(*given)
            calls.append(given)
            if len(calls) == allowed:
                raise Interrupted

        with monkeypatch.context() as patch:
            patch.setattr(driving, "write_checkpoint", interrupting)
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
            assert not any("adapter" in each for each in load_file(tmp_path / "whole" / path))
