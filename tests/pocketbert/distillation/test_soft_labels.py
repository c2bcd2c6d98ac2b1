"""Soft labels: a teacher's probabilities in a table instead of the teacher."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import tensorflow as tf
import tiny_distillation
import tiny_finetuning
from scipy.special import expit, logit, softmax

import pocketbert as pb
from pocketbert.cli import main
from pocketbert.configs import TaskConfig
from pocketbert.data.example_files import write_examples
from pocketbert.data.readers.soft_labels import soft_logits
from pocketbert.distillation import ensemble
from pocketbert.distillation.ensemble import with_mean_predictions
from pocketbert.distillation.methods import get_method
from pocketbert.errors import UserError
from pocketbert.training.config import FinetuneConfig, RunConfig

# Runs of a few steps: graphs would take longer to trace than to run.
pytestmark = pytest.mark.usefixtures("eager")
LABELS = ("low", "high")
PREDICTIONS = {"max_length": 23, "without": ("embedding", "transformer"), "prediction_epochs": 2}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_distillation.write_teacher(tmp_path_factory.mktemp("models") / "teacher")


@pytest.fixture(scope="module")
def tables(teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts with the teacher's answers: as columns, as `predict` writes them, and with labels."""
    folder = tmp_path_factory.mktemp("tables")
    for name, count, seed in (("train", 60, 0), ("dev", 30, 1)):
        texts = tiny_finetuning.examples(count, seed).texts
        frame = pandas.DataFrame({"text": texts})
        frame.to_csv(folder / f"{name}.texts.csv", index=False)
        output = folder / f"{name}.jsonl"
        command = ["predict", f"--model={teacher}", f"--input={folder / name}.texts.csv", f"--output={output}"]
        assert main([*command, "--soft-labels"]) == 0
        answers = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
        for label in LABELS:
            frame[f"p_{label}"] = [answer["probabilities"][label] for answer in answers]
        frame["label"] = [answer["label"] for answer in answers]
        frame.to_csv(folder / f"{name}.csv", index=False)
    return folder


def weights(path: Path) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in pb.from_pretrained(path).weights_by_path().items()}


@pytest.mark.parametrize("form", ["predict", pytest.param("columns", marks=pytest.mark.nightly)])
def test_probabilities_of_the_teacher_teach_as_the_teacher(
    form: str, teacher: Path, tables: Path, tmp_path: Path
) -> None:
    method = get_method("tinybert")(**PREDICTIONS, temperature=3.0)
    student = tiny_finetuning.write_model(tmp_path / "student")
    run = RunConfig(seed=3)
    results = {}
    forms = {"columns": ("csv", ("p_low", "p_high")), "predict": ("jsonl", ("probabilities",))}
    for name, (source, columns) in {"live": ("csv", ()), form: forms[form]}.items():
        data = pb.data.table(
            tables / f"train.{source}",
            dev=tables / "dev.csv",
            label_names=LABELS,
            soft_labels=columns,
        )
        pb.distill(student, data, tmp_path / name, teacher=teacher if name == "live" else None, method=method, run=run)
        results[name] = [
            json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text("utf-8").splitlines()
        ]
    assert len(results[form]) == len(results["live"])
    for soft, live in zip(results[form], results["live"], strict=True):
        for term in {"loss", "prediction"} & soft.keys() & live.keys():
            # float32 has logits up to 8 with an error of 5e-7, and a loss near 1 with 6e-8.
            assert soft[term] == pytest.approx(live[term], abs=1e-6)


def test_columns_and_answers_of_predict_are_equal(tables: Path) -> None:
    files = {"csv": ("p_low", "p_high"), "jsonl": ("probabilities",)}
    columns, answers = (
        pb.data.table(tables / f"train.{suffix}", dev=tables / "dev.csv", label_names=LABELS, soft_labels=names)
        for suffix, names in files.items()
    )
    np.testing.assert_array_equal(columns.train.soft_labels, answers.train.soft_labels)
    assert columns.train.texts == answers.train.texts and columns.train.labels.tolist() == answers.train.labels.tolist()


@pytest.mark.nightly
def test_certain_teacher_of_several_labels_teaches_as_itself(teacher: Path, tmp_path: Path) -> None:
    model = pb.from_pretrained(teacher)
    task = TaskConfig(kind="multi_label", labels=LABELS)
    certain = pb.from_preset(model.config, task, model.tokenizer, seed=5)
    projection = certain.heads["multi_label"].output_projection
    projection.kernel.assign(projection.kernel * [[60.0, -60.0]])
    certain.save_pretrained(tmp_path / "certain")
    texts = tiny_finetuning.examples(40, 6).texts
    answers = certain.predict(texts, soft_labels=True)
    # In float32, or with six decimals, many of them would be 0 and 1, and have no logit.
    likely = [value for answer in answers for value in answer["probabilities"].values()]
    assert sum(value > 1 - 1e-7 for value in likely) > 9 and sum(value < 1e-7 for value in likely) > 9
    rows = [{"text": text, **answer, "label": answer["labels"]} for text, answer in zip(texts, answers, strict=True)]
    student = tiny_finetuning.write_model(tmp_path / "student")
    method = get_method("tinybert")(**PREDICTIONS, temperature=5.0)
    losses = {}
    for name, columns in (("live", ()), ("soft", ("probabilities",))):
        data = pb.data.table(rows, dev=rows[:9], kind="multi_label", label_names=LABELS, soft_labels=columns)
        source = tmp_path / "certain" if name == "live" else None
        pb.distill(student, data, tmp_path / name, teacher=source, method=method)
        lines = (tmp_path / name / "metrics.jsonl").read_text("utf-8").splitlines()
        losses[name] = [row["prediction"] for row in map(json.loads, lines) if "prediction" in row]
    assert losses["soft"] and losses["soft"] == pytest.approx(losses["live"], abs=1e-6)


@pytest.mark.parametrize(
    ("independent", "p"),
    [(False, [[0.7, 0.2999999, 1e-7], [1e-30, 1.0, 1e-12]]), (True, [[1e-12, 0.3, 1 - 1e-12], [1 - 1e-9, 0.5, 1e-20]])],
)
def test_logits_of_small_and_large_probabilities(independent: bool, p: list[list[float]]) -> None:
    probabilities = np.array(p)
    expected = logit(probabilities) if independent else np.log(probabilities)
    np.testing.assert_allclose(soft_logits(tf.constant(probabilities), independent=independent), expected, rtol=2e-7)


def test_written_probabilities_keep_their_bits(tmp_path: Path) -> None:
    p = softmax(np.random.default_rng(3).normal(size=[37, 2]), axis=1)
    texts = tiny_finetuning.examples(37, 3).texts
    rows = [{"text": text, "low": low, "high": high} for text, (low, high) in zip(texts, p.tolist(), strict=True)]
    examples = pb.data.table(rows, dev=rows[:5], soft_labels=LABELS).train
    np.testing.assert_array_equal(examples.soft_labels, p)
    path = write_examples(examples, LABELS, tmp_path / "written")
    again = pb.data.table(path, dev=path, label_names=LABELS, soft_labels=("probabilities",)).train
    assert again.identity == examples.identity
    assert examples.has_likely_labels and examples.select([3, 1]).has_likely_labels and not again.has_likely_labels


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_temperature_is_a_power_of_the_probabilities(temperature: float) -> None:
    p = np.array([[0.7, 0.2, 0.1], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5]], np.float32)
    powers = p ** (1 / temperature)
    logits = soft_logits(tf.constant(p), independent=False) / temperature
    np.testing.assert_allclose(tf.nn.softmax(logits), powers / powers.sum(axis=1, keepdims=True), atol=1e-6)
    odds = expit(np.log(p[:1] / (1 - p[:1])) / temperature)
    np.testing.assert_allclose(
        tf.sigmoid(soft_logits(tf.constant(p[:1]), independent=True) / temperature), odds, atol=1e-6
    )


def test_table_without_labels_has_the_most_likely_ones(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = (
        pandas.read_csv(tables / "train.csv").drop(columns="label").rename(columns={"p_low": "low", "p_high": "high"})
    )
    frame.to_csv(tables / "unlabelled.csv", index=False)
    data = pb.data.table(tables / "unlabelled.csv", dev=tables / "dev.csv", soft_labels=LABELS)
    assert data.task.labels == LABELS and "has no column 'label'" in capsys.readouterr().err
    expected = (frame["high"] > frame["low"]).astype(int).tolist()
    assert data.train.labels.tolist() == expected
    in_memory = pb.data.table(
        frame.assign(label=[LABELS[i] for i in expected]), dev=tables / "dev.csv", soft_labels=LABELS
    )
    np.testing.assert_array_equal(in_memory.train.soft_labels, data.train.soft_labels)
    np.testing.assert_allclose(data.train.soft_labels.sum(axis=1), 1, atol=1e-6)
    # Without labels, and as predict writes them.
    objects = [
        {"text": row.text, "probabilities": {"low": row.low, "high": row.high}} for row in frame.itertuples(index=False)
    ]
    for source, columns in ((frame, LABELS), (objects, ("probabilities",))):
        read = pb.data.table(source, dev=tables / "dev.csv", soft_labels=columns).train
        assert read.labels.tolist() == expected
        np.testing.assert_array_equal(read.soft_labels, data.train.soft_labels)
    assert data.train.select([4, 2]).soft_labels.tolist() == data.train.soft_labels[[4, 2]].tolist()


@pytest.mark.parametrize("form", ["file", "frame"])
def test_labels_in_several_columns_are_kept(form: str, tmp_path: Path) -> None:
    # The labels contradict the probabilities, so that they can only come from their columns.
    frame = pandas.DataFrame(
        {
            "text": ["one", "two", "three"],
            "a": [1, 0, 0],
            "b": [0, 0, 1],
            "p_a": [0.1, 0.8, 0.9],
            "p_b": [0.7, 0.6, 0.2],
        }
    )
    frame.to_csv(tmp_path / "train.csv", index=False)
    source = frame if form == "frame" else tmp_path / "train.csv"
    data = pb.data.table(source, dev=source, label=["a", "b"], soft_labels=["p_a", "p_b"])
    assert data.train.labels.tolist() == data.dev.labels.tolist() == [[1, 0], [0, 0], [0, 1]]
    np.testing.assert_array_equal(data.train.soft_labels, frame[["p_a", "p_b"]].to_numpy())


@pytest.mark.parametrize("form", ["file", "rows"])
def test_first_row_does_not_decide_for_all(form: str, tmp_path: Path) -> None:
    rows = [{"text": "one", "low": 0.1, "high": 0.9}, {"text": "two", "low": 0.2, "high": 0.8, "label": "low"}]
    table = tmp_path / "train.jsonl"

    def read(some: list[dict[str, object]]) -> pb.TaskData:
        table.write_text("".join(json.dumps(row) + "\n" for row in some), encoding="utf-8")
        source = table if form == "file" else some
        return pb.data.table(source, dev=source, soft_labels=LABELS)

    with pytest.raises(UserError, match=r"(line 1|row 0): the row must have a column 'label'"):
        read(rows)
    del rows[0]["low"], rows[0]["high"]
    rows[0]["label"] = "high"
    with pytest.raises(UserError, match=r"(line 1|row 0): probabilities must be numbers; received ''"):
        read(rows)


def test_probabilities_of_some_row_name_the_labels(tmp_path: Path) -> None:
    table = tmp_path / "train.jsonl"
    table.write_text('{"text": "one"}\n{"text": "two", "probabilities": 0.5}\n', encoding="utf-8")
    with pytest.raises(UserError, match="train.jsonl: probabilities must be an object from label to probability"):
        pb.data.table(table, dev=table, soft_labels=("probabilities",))
    table.write_text('{"text": "one"}\n{"text": "two", "probabilities": {"a": 1, "b": 0}}\n', encoding="utf-8")
    with pytest.raises(UserError, match="line 1: probabilities must be an object from label to probability"):
        pb.data.table(table, dev=table, soft_labels=("probabilities",))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("1.5", "-0.5"), r"line 2: probabilities must lie in \[0, 1\]; received 1.5, -0.5; these look like logits"),
        (("0.6", "0.39"), "line 2: the probabilities of a text must sum to 1; received 0.6, 0.39, with the sum 0.99"),
        (("much", "0.4"), "line 2: probabilities must be numbers; received 'much'"),
    ],
)
def test_rows_that_are_no_probabilities(row: tuple[str, str], message: str, tmp_path: Path) -> None:
    table = tmp_path / "train.csv"
    table.write_text(f"text,low,high\none,{','.join(row)}\ntwo,0.2,0.8\n", encoding="utf-8")
    with pytest.raises(UserError, match=message):
        pb.data.table(table, dev=table, soft_labels=LABELS)
    # The remedy for logits.
    if "logits" in message:
        low, high = softmax(np.array(row, float))
        table.write_text(f"text,low,high\none,{low},{high}\ntwo,0.2,0.8\n", encoding="utf-8")
        assert len(pb.data.table(table, dev=table, soft_labels=LABELS).train) == 2


def test_objects_must_have_the_labels(tmp_path: Path) -> None:
    table = tmp_path / "train.jsonl"
    rows = [{"text": "one", "probabilities": {"low": 0.5, "high": 0.5}}, {"text": "two", "probabilities": {"low": 1}}]
    table.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match="line 2: probabilities must have the labels 'low', 'high'; received 'low'"):
        pb.data.table(table, dev=table, soft_labels=("probabilities",))


def refuse(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(command) == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_what_soft_labels_cannot_do(
    teacher: Path, tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    student = tiny_finetuning.write_model(tmp_path / "student")
    soft = ["--soft-label-columns=p_low,p_high", "--labels=low,high"]
    files = [f"--train-file={tables / 'train.csv'}", f"--dev-file={tables / 'dev.csv'}"]
    start = ["distill", f"--student={student}", *files, *soft, f"--output={tmp_path / 'run'}", "--max-length=23"]
    hsk = [*start, "--method=hsk"]
    assert "stage hidden reads hidden_states, attention_probs from a teacher; received soft labels" in refuse(
        hsk, capsys
    )
    predictions = [*start, "--method=tinybert", "--without=embedding,transformer", "--prediction-epochs=1"]
    assert "soft labels replace the teacher" in refuse([*predictions, f"--teacher={teacher}"], capsys)
    assert "label_smoothing is for labels" in refuse([*predictions, "--label-smoothing=0.1"], capsys)
    assert "augmented examples have no soft labels" in refuse(
        [*predictions, f"--augmented-file={tables / 'train.csv'}"], capsys
    )
    assert "no stage learns the teacher's logits" in refuse(
        [*start, "--method=minilmv2", f"--teacher={teacher}", "--relation-heads=5"], capsys
    )
    cache = ["cache-teacher", *hsk[1:4], *soft, *files[1:], f"--output={tmp_path / 'cache'}", "--method=hsk"]
    assert "a cache has the logits of its teacher, which soft labels replace; leave out --soft-label-columns" in refuse(
        [*cache, f"--teacher={teacher}", "--max-length=23"], capsys
    )
    assert f"{tables / 'train.csv'} must have soft labels in 'p_a', 'p_b'; it has none" in refuse(
        [*predictions, f"--teacher={teacher}", "--soft-label-columns=p_a,p_b"], capsys
    )
    text = tiny_distillation.write_text(tmp_path / "text.txt")
    assert "--soft-label-columns needs --train-file" in refuse(
        ["distill", "--method=tinybert", f"--student={student}", f"--teacher={teacher}", f"--text={text}", *soft[:1],
         f"--output={tmp_path / 'run'}"],
        capsys,
    )  # fmt: skip
    assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match="soft labels are for distillation"):
        data = pb.data.table(
            tables / "train.csv", dev=tables / "dev.csv", label_names=LABELS, soft_labels=("p_low", "p_high")
        )
        pb.finetune(student, data, tmp_path / "tuned", config=FinetuneConfig(max_length=23))
    # The remedy: without the teacher.
    assert main(predictions) == 0


def test_predict_writes_soft_labels_of_labels_alone(
    teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("a good film\n", encoding="utf-8")
    command = ["predict", f"--model={teacher}", f"--input={texts}", "--soft-labels"]
    assert "--soft-labels writes all labels; received --top-k=2, too" in refuse([*command, "--top-k=2"], capsys)
    model = pb.from_pretrained(teacher)
    scores = pb.from_preset(model.config, TaskConfig(kind="regression"), model.tokenizer)
    scores.save_pretrained(tmp_path / "scores")
    command[1] = f"--model={tmp_path / 'scores'}"
    assert "--soft-labels is for labels; received it for regression; leave it out" in refuse(command, capsys)
    with pytest.raises(UserError, match="soft_labels=True is for labels; received it for regression"):
        scores.predict(["a good film"], soft_labels=True)
    # Six decimals without the option, all digits with it.
    (rounded,), (exact,) = (model.predict(["a good film"], soft_labels=digits) for digits in (False, True))
    logits = model(model.tokenizer(["a good film"]))["logits"].numpy().astype(np.float64)
    np.testing.assert_allclose([*exact["probabilities"].values()], softmax(logits[0]), rtol=1e-6)
    assert rounded["probabilities"] == {label: round(p, 6) for label, p in exact["probabilities"].items()}
    assert rounded != exact


# Of several heads in test_heads_soft_labels.py.
@pytest.mark.nightly
def test_changed_probabilities_are_another_run(tables: Path, tmp_path: Path) -> None:
    def data(shift: float) -> pb.TaskData:
        frame = pandas.read_csv(tables / "train.csv")
        frame["low"] = np.clip(frame["p_low"] + shift, 0, 1)
        frame["high"] = 1 - frame["low"]
        return pb.data.table(frame, dev=tables / "dev.csv", soft_labels=LABELS)

    student, method = tiny_finetuning.write_model(tmp_path / "student"), get_method("tinybert")(**PREDICTIONS)
    pb.distill(student, data(0.0), tmp_path / "run", teacher=None, method=method)
    with pytest.raises(UserError, match="other options: train_sha256="):
        pb.distill(student, data(0.05), tmp_path / "run", teacher=None, method=method)


@pytest.mark.one_of_each("2.5")
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_several_teachers_teach_the_mean_of_their_predictions(
    temperature: float, teacher: Path, tables: Path, tmp_path: Path
) -> None:
    # The second has its labels in another order.
    model = pb.from_pretrained(teacher)
    turned = pb.from_preset(model.config, dataclasses.replace(model.task, labels=LABELS[::-1]), model.tokenizer, seed=8)
    turned.save_pretrained(tmp_path / "turned")
    data = pb.data.table(tables / "train.csv", dev=tables / "dev.csv", label_names=LABELS)
    method = get_method("tinybert")(**PREDICTIONS, temperature=temperature)
    soft = with_mean_predictions([teacher, tmp_path / "turned"], data, method).train.soft_labels
    inputs = model.tokenizer(data.train.texts, max_length=23)
    of_both = [model(inputs)["logits"].numpy(), turned(inputs)["logits"].numpy()[:, ::-1]]
    mean = np.mean([softmax(logits / temperature, axis=1) for logits in of_both], axis=0)
    np.testing.assert_allclose(
        tf.nn.softmax(soft_logits(tf.constant(soft), independent=False) / temperature), mean, atol=1e-5
    )


def test_precision_of_teachers_is_used_or_refused(
    teacher: Path, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dtypes, text_logits = [], ensemble.text_logits

    def seen(model: pb.Model, *arguments: Any) -> np.ndarray:
        dtypes.append(model.encoder.layers_[0].compute_dtype)
        return text_logits(model, *arguments)

    monkeypatch.setattr(ensemble, "text_logits", seen)
    data = pb.data.table(tables / "train.csv", dev=tables / "dev.csv", label_names=LABELS)
    method, student = get_method("tinybert")(**PREDICTIONS), tiny_finetuning.write_model(tmp_path / "student")
    run = RunConfig(teacher_precision="bfloat16", max_steps=1)
    pb.distill(student, data, tmp_path / "run", teacher=[teacher, teacher], method=method, run=run)
    assert dtypes == ["bfloat16", "bfloat16"]
    soft = pb.data.table(
        tables / "train.csv", dev=tables / "dev.csv", label_names=LABELS, soft_labels=["p_low", "p_high"]
    )
    with pytest.raises(UserError, match="for a teacher that runs; received bfloat16 with soft labels; leave it out"):
        pb.distill(student, soft, tmp_path / "soft", teacher=None, method=method, run=run)
    config = FinetuneConfig(max_length=23)
    with pytest.raises(UserError, match="teacher_precision needs a teacher; received bfloat16 without one"):
        pb.finetune(student, data, tmp_path / "tuned", config=config, run=run)
    with pytest.raises(UserError, match="evaluation_batches needs pretraining examples; received none; leave it out"):
        pb.finetune(student, data, tmp_path / "tuned", config=config, run=RunConfig(evaluation_batches=7))


def of_teachers(teacher: Path, others: str, tables: Path, output: Path) -> list[str]:
    return ["distill", "--method=tinybert", f"--teacher={teacher}", f"--more-teachers={others}",
            "--teacher-layers=1", f"--train-file={tables / 'train.csv'}", f"--dev-file={tables / 'dev.csv'}",
            "--labels=low,high", "--max-length=23", f"--output={output}"]  # fmt: skip


@pytest.mark.nightly
def test_several_teachers_on_the_command_line(
    teacher: Path, tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = of_teachers(teacher, f"{teacher},{teacher}", tables, tmp_path / "run")
    assert main([*start, "--without=embedding,transformer", "--prediction-epochs=1"]) == 0
    assert "3 teachers answer 60 texts" in capsys.readouterr().err


def test_several_teachers_must_fit(
    teacher: Path, tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = of_teachers(teacher, str(teacher), tables, tmp_path / "run")
    assert "several teachers have predictions alone" in refuse(start, capsys)
    predictions = ["--without=embedding,transformer", "--prediction-epochs=1"]
    assert "--compare is for one teacher" in refuse([*start, *predictions, "--compare"], capsys)
    other = pb.from_preset(tiny_distillation.TEACHER, TaskConfig(kind="classification", labels=("a", "b")), seed=1)
    other.tokenizer = pb.from_pretrained(teacher).tokenizer
    other.save_pretrained(tmp_path / "other")
    start[3] = f"--more-teachers={tmp_path / 'other'}"
    assert "other must have the labels low, high; received a, b" in refuse([*start, *predictions], capsys)
