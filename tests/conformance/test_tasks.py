"""Rules for every task. The suite discovers new rows in `TASKS`; `tiny_tasks.CASES` has the data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import golden_checks
import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_finetuning
import tiny_tasks
import toy_task
from tiny_tasks import CASES, TaskCase

import pocketbert as pb
import pocketbert_runtime
from pocketbert.configs import TASK_RULES
from pocketbert.data.batches import EncodedExamples
from pocketbert.errors import UserError
from pocketbert.tasks.base import SupervisedTask
from pocketbert.tasks.predictor import model_predictor
from pocketbert.tasks.registry import TASKS, get_task, register
from pocketbert.training.dev_loss import mean_loss
from pocketbert_export.bundles.predictors import open_predictor
from pocketbert_export.exporter import export
from pocketbert_runtime.answers.table import ANSWERS

LENGTH = 19
CONFIG = tiny_finetuning.CONFIG.replace(num_layers=1, initializer_range=0.3)
KINDS = [*TASKS, toy_task.Grades.kind]
SUPERVISED = [kind for kind in KINDS if issubclass(TASKS.get(kind, toy_task.Grades), SupervisedTask)]
each_task = pytest.mark.parametrize("kind", KINDS)
each_supervised_task = pytest.mark.parametrize("kind", SUPERVISED)


@pytest.fixture(scope="module", autouse=True)
def toy() -> Iterator[None]:
    """The toy is a task while this module is tested."""
    register(toy_task.Grades, toy_task.RULES)
    yield
    for table in (TASKS, TASK_RULES):
        del table[toy_task.Grades.kind]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tiny_finetuning.write_model(tmp_path_factory.mktemp("bare") / "model", CONFIG)
    return pb.from_pretrained(folder).tokenizer


@pytest.fixture(scope="module")
def models(tokenizer: Any) -> dict[str, pb.Model]:
    """A network of each kind, made on first use."""

    class Models(dict[str, pb.Model]):
        def __missing__(self, kind: str) -> pb.Model:
            config = case_of(kind).config
            encoder = get_task(config).encoder_config(CONFIG)
            model = self[kind] = pb.from_preset(encoder, [config], tokenizer=tokenizer, seed=5)
            if config.labels:
                # So that several labels are the answer to some text.
                (logits,) = model(dict(tokenizer(tiny_tasks.TEXTS, max_length=LENGTH))).values()
                mean = tf.reduce_mean(logits, axis=range(len(logits.shape) - 1))
                model.weights_by_path()[f"heads.{kind}.output.bias"].assign_sub(mean)
            return model

    return Models()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Labelled data of each kind, read on first use."""
    folder = tmp_path_factory.mktemp("data")

    class Data(dict[str, Any]):
        def __missing__(self, kind: str) -> Any:
            case = case_of(kind)
            path = folder / f"{kind}{case.suffix}"
            case.write(path)
            self[kind] = task_of(kind).read(path, **case.columns)
            return self[kind]

    return Data()


def case_of(kind: str) -> TaskCase:
    if kind not in CASES:
        pytest.fail(
            f"the task {kind!r} has no case; add a TaskCase(kind={kind!r}, ...) to CASES in tests/helpers/tiny_tasks.py"
        )
    return CASES[kind]


def batch_of(kind: str, length: int = 7) -> tuple[dict[str, tf.Tensor], np.ndarray]:
    """Inputs of three examples, with the label of its example for each row."""
    case, inputs = case_of(kind), tiny.batch(CONFIG, length=length)
    if case.rows_per_example == 1:
        return inputs, case.loss_labels
    # Each example has its own row and the next one's.
    rows = [(example + offset) % 3 for example in range(3) for offset in range(case.rows_per_example)]
    inputs = {name: tf.gather(value, rows) for name, value in inputs.items()}
    return inputs, np.repeat(case.loss_labels, case.rows_per_example, axis=0)


def task_of(kind: str) -> SupervisedTask:
    task = get_task(case_of(kind).config)
    assert isinstance(task, SupervisedTask)
    return task


def inputs_of(data: Any) -> list[Any]:
    """What `predict` is given."""
    taken = data.first_texts(len(data))
    return taken.texts if taken.pairs is None else list(zip(taken.texts, taken.pairs, strict=True))


def numpy_of(tensors: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(tensor, np.float64) for name, tensor in tensors.items()}


@each_task
def test_head_matches_numpy(kind: str, models: dict[str, pb.Model]) -> None:
    model, inputs = models[kind], tiny.batch(CONFIG)
    encoded = {**model.encoder(inputs), "word_table": model.encoder.embeddings.output_table()}
    encoded["input_mask"] = inputs["input_mask"]
    prefix = f"heads.{kind}."
    weights = {
        path.removeprefix(prefix): weight for path, weight in model.weights_by_path().items() if path.startswith(prefix)
    }
    expected = case_of(kind).head(numpy_of(encoded), numpy_of(weights))
    outputs = model(inputs)
    assert set(outputs) == set(expected)
    for name, values in expected.items():
        # float32 sums of 30 products of values near 1.
        np.testing.assert_allclose(outputs[name], values, atol=3e-5, rtol=1e-5)


@pytest.mark.usefixtures("eager")
@each_task
def test_loss_matches_numpy(kind: str, models: dict[str, pb.Model]) -> None:
    case, task = case_of(kind), get_task(case_of(kind).config)
    inputs, labels = batch_of(kind)
    outputs, mask = models[kind](inputs), inputs["input_mask"]
    expected = case.loss(numpy_of(outputs), labels, mask.numpy())
    assert float(task.loss(outputs, labels, mask)) == pytest.approx(expected, rel=1e-5)
    # What `compile` and `fit` take.
    models[kind].compile(optimizer="sgd")
    assert np.ravel(models[kind].test_on_batch(inputs, labels))[0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.usefixtures("eager")
@each_supervised_task
def test_dev_loss_is_that_of_all_rows(kind: str, models: dict[str, pb.Model]) -> None:
    case, task = case_of(kind), task_of(kind)
    inputs, labels = batch_of(kind)
    outputs, mask = numpy_of(models[kind](inputs)), inputs["input_mask"].numpy()
    lengths = mask.sum(axis=1)
    encoded = EncodedExamples(
        word_ids=inputs["input_word_ids"].numpy()[mask == 1],
        type_ids=inputs["input_type_ids"].numpy()[mask == 1],
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        labels=labels,
        max_length=7,
        pad_token_id=0,
        rows_per_example=case.rows_per_example,
    )
    # As a network gives them: without padding.
    gathered = {
        name: output[mask == 1] if task.of_output(name).per_token else output for name, output in outputs.items()
    }
    # Two calls of the loss, with two examples and one.
    loss = mean_loss(task, encoded, gathered, batch_size=2)
    assert loss == pytest.approx(case.loss(outputs, labels, mask), rel=1e-5)


@each_task
def test_loss_ignores_padding(kind: str, models: dict[str, pb.Model]) -> None:
    task, losses = get_task(case_of(kind).config), []
    for width in (7, 11):
        inputs, labels = batch_of(kind, length=width)
        expected_labels = labels
        if labels.shape[1:] >= (7,):
            expected_labels = np.pad(labels, ((0, 0), (0, width - 7)), constant_values=-1)
        losses.append(float(task.loss(models[kind](inputs), expected_labels, inputs["input_mask"])))
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


# The losses of several heads have divisors of their own; see tests/pocketbert/tasks/test_several.py.
@pytest.mark.parametrize("kind", [kind for kind in SUPERVISED if kind != "several"])
def test_loss_weighs_examples(kind: str, models: dict[str, pb.Model]) -> None:
    case, task = case_of(kind), task_of(kind)
    inputs, labels = batch_of(kind)
    outputs, mask = models[kind](inputs), inputs["input_mask"]
    factors, count = np.array([0.5, 2.0, 0.0], np.float32), case.rows_per_example
    alone = [
        case.loss(
            {name: array[row : row + count] for name, array in numpy_of(outputs).items()},
            labels[row : row + count],
            mask.numpy()[row : row + count],
        )
        for row in range(0, 3 * count, count)
    ]
    # The factors do not enter the divisor.
    weighed = float(task.loss(outputs, labels, mask, tf.constant(np.repeat(factors, count))))
    assert weighed == pytest.approx(float(factors @ (alone * case.counts)) / case.counts.sum(), rel=1e-5)


@each_supervised_task
def test_bad_file_is_one_message(kind: str, tmp_path: Path) -> None:
    case = case_of(kind)
    path = tmp_path / f"bad{case.suffix}"
    case.write_bad(path)
    with pytest.raises(UserError) as caught:
        task_of(kind).read(path, **case.columns)
    message = str(caught.value)
    assert "\n" not in message and str(path) in message
    for part in case.bad_row_problem:
        assert part in message


@pytest.mark.usefixtures("eager")
@each_supervised_task
def test_metrics_match_their_library(kind: str, models: dict[str, pb.Model], data: dict[str, Any]) -> None:
    predictor, task = model_predictor(models[kind], max_length=LENGTH), task_of(kind)
    scores = predictor.evaluator(data[kind], metrics=task.gate_metrics).metrics("now")
    reference = case_of(kind).metrics
    assert reference is not None
    expected = reference(data[kind], predictor.predict(inputs_of(data[kind])))
    assert {name: scores[name] for name in task.gate_metrics} == pytest.approx(expected, rel=1e-5)
    assert {task.main_metric, *task.metrics} <= set(task.gate_metrics)


@pytest.mark.usefixtures("eager")
@each_supervised_task
def test_gate_scores_as_evaluate(kind: str, models: dict[str, pb.Model], data: dict[str, Any]) -> None:
    predictor, task = model_predictor(models[kind], max_length=LENGTH), task_of(kind)
    evaluator = predictor.evaluator(data[kind], metrics=task.gate_metrics)
    rows = task.rows(data[kind], predictor.tokenizer, predictor.max_length)
    outputs = predictor.forward(rows.encoded)
    for metric, value in evaluator.metrics("now").items():
        score, right = rows.score(outputs, metric)
        resampled = rows.resampled(outputs, metric)
        assert resampled(np.arange(len(rows))) == pytest.approx(score, abs=1e-12)
        # Each example twice changes no share and no correlation.
        assert resampled(np.repeat(np.arange(len(rows)), 2)) == pytest.approx(score, abs=1e-12)
        assert score == pytest.approx(value)
        assert right is None or len(right) == len(rows) == len(data[kind])


@pytest.mark.usefixtures("eager")
@each_supervised_task
def test_scores_include_a_baseline(kind: str, models: dict[str, pb.Model], data: dict[str, Any]) -> None:
    task, metrics = task_of(kind), {"any": 0.5}
    scores = model_predictor(models[kind], max_length=LENGTH).evaluator(data[kind]).scores()
    assert set(task.metrics) <= set(scores.metrics)
    baseline = task.with_baseline(data[kind], {**scores.metrics, **metrics})
    assert baseline.baseline == scores.baseline
    assert baseline.main_metric == scores.main_metric == task.main_metric


def check_predictions(kind: str, model: pb.Model, data: Any, *others: Any) -> None:
    """Predictors answer as the network does."""
    case, inputs = case_of(kind), inputs_of(data)
    predictors = [model_predictor(model, max_length=LENGTH), *others]
    expected, *received = ([case.answer_of(answer) for answer in each.predict(inputs)] for each in predictors)
    assert len(expected) == len(inputs)
    assert len({str(answer_text) for answer_text in expected}) > 1
    for answers in received:
        # Labels and texts are equal; of scores float32 sums differ.
        assert answers == (pytest.approx(expected, abs=1e-4) if isinstance(expected[0], float) else expected)


@pytest.mark.usefixtures("eager")
@each_supervised_task
def test_predictions_survive_saving(
    kind: str, models: dict[str, pb.Model], data: dict[str, Any], tmp_path: Path
) -> None:
    models[kind].save_pretrained(tmp_path / "model")
    check_predictions(kind, models[kind], data[kind], open_predictor(tmp_path / "model", max_length=LENGTH))


# Positions, and classes with tags.
@pytest.mark.one_of_each("span", "several")
@each_supervised_task
def test_predictions_survive_export(
    kind: str, models: dict[str, pb.Model], data: dict[str, Any], tmp_path: Path
) -> None:
    models[kind].save_pretrained(tmp_path / "model")
    export(tmp_path / "model", tmp_path / "bundle", recipe="float32", lengths=(LENGTH,), examples=data[kind])
    predictors: list[Any] = [open_predictor(tmp_path / "bundle", max_length=LENGTH)]
    if kind in ANSWERS:
        predictors.append(pocketbert_runtime.Bundle.open(tmp_path / "bundle").predictor())
    check_predictions(kind, models[kind], data[kind], *predictors)
    lines = golden_checks.check_golden_answers(tmp_path / "bundle", models[kind])
    assert any("[SEP]" in line.get("text", line.get("context", "")) + line.get("pair", "") for line in lines)


@pytest.mark.usefixtures("eager")
@each_supervised_task
def test_predictions_keep_the_order(kind: str, models: dict[str, pb.Model], data: dict[str, Any]) -> None:
    predictor, answer_of = model_predictor(models[kind], max_length=LENGTH), case_of(kind).answer_of
    inputs = inputs_of(data[kind])[:4]
    alone = [answer_of(predictor.predict([text_input])[0]) for text_input in inputs]
    assert len({str(answer_text) for answer_text in alone}) > 1
    together = [answer_of(answer) for answer in predictor.predict(inputs)]
    assert together == (pytest.approx(alone, abs=1e-5) if isinstance(alone[0], float) else alone)


@each_supervised_task
def test_no_input_gives_no_prediction(kind: str, models: dict[str, pb.Model]) -> None:
    assert model_predictor(models[kind], max_length=LENGTH).predict([]) == []


@each_supervised_task
def test_invalid_inputs_are_refused(kind: str, models: dict[str, pb.Model]) -> None:
    with pytest.raises(UserError, match="inputs must be .*; received"):
        model_predictor(models[kind], max_length=LENGTH).predict(["a text", ("a", "pair")])


def test_registered_kind_is_new() -> None:
    with pytest.raises(UserError, match="must be new; received 'grades'"):
        register(toy_task.Grades)


def test_every_case_has_a_task() -> None:
    assert set(tiny_tasks.CASES) == set(TASKS)
