"""TinyBERT on questions: eq. 10 over positions (appendix B), with a live and a cached teacher."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tiny_distillation
import tiny_finetuning
import tiny_questions

import pocketbert as pb
from pocketbert import cli
from pocketbert.data.readers.questions import QuestionFile
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.cache_teacher import cache_stages
from pocketbert.distillation.methods.tinybert import TinyBERT
from pocketbert.distillation.plan import DistillationPlan
from pocketbert.distillation.planning import plan_distillation
from pocketbert.distillation.run import distill
from pocketbert.distillation.teacher import CachedTeacher
from pocketbert.tasks.question_answering import encode_questions
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.finetune import finetune
from pocketbert_runtime.windows import WindowOptions

METHOD = TinyBERT(
    without=("augmentation",),
    max_length=tiny_questions.MAX_LENGTH,
    intermediate_epochs=1,
    intermediate_learning_rate=3e-3,
    prediction_epochs=5,
    prediction_learning_rate=1e-2,
    prediction_batch_size=16,
)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("teacher")
    bare = tiny_finetuning.write_model(folder / "bare")
    data = task_data(folder)
    options = FinetuneConfig(learning_rate=3e-3, epochs=1, batch_size=16, max_length=tiny_questions.MAX_LENGTH)
    result = finetune(bare, data, folder / "run", config=options)
    assert result.metrics["f1"] > 0.8
    return Path(result.model_directory)


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("untrained")
    bare = tiny_finetuning.write_model(folder / "bare")
    pb.from_pretrained(bare, task=tiny_questions.TASK).save_pretrained(folder / "model")
    return folder / "model"


def task_data(folder: Path) -> TaskData:
    return TaskData(
        task=tiny_questions.TASK,
        train=QuestionFile(tiny_questions.write_questions(folder / "train.json", 200, 0, impossible=0.3)),
        dev=QuestionFile(tiny_questions.write_questions(folder / "dev.json", 37, 1, impossible=0.3)),
        metrics=("exact_match", "f1"),
        main_metric="f1",
    )


def planned(folder: Path, teacher: Path, method: TinyBERT = METHOD) -> DistillationPlan:
    return plan_distillation(
        tiny_distillation.STUDENT, task_data(folder), teacher=teacher, method=method, run=RunConfig()
    )


def test_stages_match_the_paper(untrained: Path, tmp_path: Path) -> None:
    _, prediction = planned(tmp_path, untrained, TinyBERT(max_length=23)).stages
    # Appendix B: "the prediction-layer distillation on the original training dataset".
    assert prediction.data == "task"
    with pytest.raises(Exception, match="384 tokens; the student has"):
        planned(tmp_path, untrained, TinyBERT())


@pytest.mark.parametrize("padding", [0, 3])
def test_losses_apply_equation_10_to_positions(untrained: Path, tmp_path: Path, padding: int) -> None:
    prepared = planned(tmp_path, untrained, TinyBERT(max_length=19, temperature=2.0))
    prediction = prepared.stages[1]
    model = pb.from_pretrained(untrained)
    encoded = encode_questions(prepared.data.given.dev.select(range(5)), model.tokenizer, WindowOptions(max_length=19))
    inputs, positions = encoded.batch(np.arange(len(encoded)))
    inputs = {name: tf.constant(np.pad(array, ((0, 0), (0, padding)))) for name, array in inputs.items()}
    random = np.random.default_rng(0)
    mask = inputs["input_mask"].numpy()
    names = ("start_logits", "end_logits")
    teacher_logits = {name: random.normal(0, 3, mask.shape).astype(np.float32) for name in names}
    student_logits = {name: random.normal(0, 3, mask.shape).astype(np.float32) for name in names}

    losses = {"prediction": [], "labels": []}
    for row in range(len(mask)):
        real = mask[row] == 1
        for column, name in enumerate(names):
            teacher_z, student_z = teacher_logits[name][row, real] / 2.0, student_logits[name][row, real]
            target = np.exp(teacher_z) / np.exp(teacher_z).sum()
            log_student = student_z / 2.0 - np.log(np.exp(student_z / 2.0).sum())
            losses["prediction"].append(-(target * log_student).sum())
            losses["labels"].append(np.log(np.exp(student_z).sum()) - student_z[positions[row, column]])

    features = {"logits": [tf.constant(student_logits[name]) for name in names]}
    terms = TinyBERT().loss(
        prediction, {name: tf.constant(teacher_logits[name]) for name in names}, features, {}, inputs
    )
    # float32 sums of some 20 terms.
    assert float(terms["prediction"]) == pytest.approx(np.mean(losses["prediction"]), rel=1e-5)
    labels = planned(tmp_path, untrained, TinyBERT(max_length=19, without=("prediction",))).stages[1]
    terms = TinyBERT().loss(labels, {}, features, {}, {**inputs, "labels": tf.constant(positions)})
    assert float(terms["labels"]) == pytest.approx(np.mean(losses["labels"]), rel=1e-5)


@pytest.mark.nightly
def test_student_learns_unanswerable_questions(teacher: Path, tmp_path: Path) -> None:
    stored = cache_stages(planned(tmp_path, teacher), tmp_path / "store", dtype="float32")
    assert [folder.name for folder in stored] == ["intermediate", "prediction"]
    results = {
        name: distill(tiny_distillation.STUDENT, task_data(tmp_path), tmp_path / name, teacher=source, method=METHOD)
        for name, source in {"live": teacher, "stored": CachedTeacher(tmp_path / "store", teacher)}.items()
    }
    live = pb.from_pretrained(results["live"].model_directory)
    assert results["live"].metrics["f1"] > 0.8
    assert results["live"].teacher_metrics["f1"] > 0.8
    assert live.task.kind == "span" and np.isfinite(live.task.null_threshold)
    # The same targets in the same order: what a float32 step rounds differently, some 40 steps amplify.
    assert results["stored"].metrics == pytest.approx(results["live"].metrics, abs=0.1)
    losses = {
        name: [
            json.loads(line)["loss"]
            for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()
            if "loss" in json.loads(line)
        ]
        for name in results
    }
    assert losses["stored"] == pytest.approx(losses["live"], rel=1e-2)


def test_command_refuses_unsupported_data(untrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = tiny_questions.task_arguments(tmp_path)
    (tmp_path / "more.csv").write_text("text,label\na,b\n")
    common = ["distill", "--method=tinybert", f"--teacher={untrained}", f"--student={untrained}", *arguments]
    assert cli.main([*common, f"--augmented-file={tmp_path / 'more.csv'}", f"--output={tmp_path / 'run'}"]) == 2
    assert "questions must have no augmented file" in capsys.readouterr().err
