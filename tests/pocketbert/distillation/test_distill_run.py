"""Distillation runs on tiny models: output, resume and errors."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny_distillation
import tiny_finetuning
import toy_method
from safetensors.numpy import load_file

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.data import batches
from pocketbert.data.task_data import TaskData, TextData
from pocketbert.distillation import run as distillation
from pocketbert.distillation.cache_teacher import cache_targets
from pocketbert.distillation.method import DistillationSpec
from pocketbert.distillation.methods.tinybert import TinyBERT
from pocketbert.distillation.plan import DistillationPlan
from pocketbert.distillation.teacher import CachedTeacher
from pocketbert.errors import TrainingFailed, UserError
from pocketbert.tasks.text_evaluator import TextEvaluator
from pocketbert.training import trainer
from pocketbert.training.config import DistillResult, RunConfig
from pocketbert.training.rounding import round_model
from pocketbert.training.stage import Epochs, OptimizerConfig, Steps
from pocketbert.training.state import write_checkpoint
from pocketbert.training.trainer import Trainer, train_seeds

RUN = RunConfig(seed=5, checkpoint_seconds=0.0)
METHOD = toy_method.toy()


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_distillation.write_teacher(tmp_path_factory.mktemp("models") / "teacher")


@pytest.fixture(scope="module")
def task_data(teacher: Path) -> Any:
    return tiny_distillation.task_data(teacher)


@pytest.fixture(scope="module")
def distill(teacher: Path, task_data: Any) -> Callable[..., DistillResult]:
    def call(output: Path, **changes: Any) -> DistillResult:
        arguments = {
            "method": METHOD,
            "student": tiny_distillation.STUDENT,
            "data": task_data,
            "teacher": teacher,
            "run": RUN,
        }
        return distillation.distill(output=output, **{**arguments, **changes})

    return call


@pytest.fixture(scope="module")
def finished(distill: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    distill(folder)
    return folder


def log_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]


def test_run_writes_student_log_and_result(finished: Path, task_data: Any) -> None:
    result = json.loads((finished / "result.json").read_text("utf-8"))
    # 90 examples in batches of 16 are 6 steps an epoch: 12 of them, then 8.
    assert [(stage["name"], stage["steps"]) for stage in result["stages"]] == [("hidden", 12), ("labels", 8)]
    assert result["steps"] == 20 and result["teacher_metrics"] == {"accuracy": 1.0}
    lines = log_of(finished)
    seen = [(line["step"], line["split"], line["stage"]) for line in lines]
    assert seen == [
        (6, "train", "hidden"), (12, "train", "hidden"), (18, "train", "labels"), (18, "dev", "labels"),
        (20, "train", "labels"), (20, "dev", "labels"),
    ]  # fmt: skip
    assert set(lines[0]) == {"step", "split", "stage", "loss", "hidden", "learning_rate"}
    assert set(lines[2]) == {"step", "split", "stage", "loss", "labels", "learning_rate"}
    # Of the last step: 6 steps into 8 with a warm-up of 2, then of the last.
    assert [lines[index]["learning_rate"] for index in (2, 4)] == pytest.approx([3e-3 * 3 / 6, 3e-3 * 1 / 6])
    assert lines[0]["loss"] == pytest.approx(2.0 * lines[0]["hidden"], rel=1e-6)
    assert lines[1]["hidden"] < 0.9 * lines[0]["hidden"]
    best = max((line for line in lines if line["split"] == "dev"), key=lambda line: line["accuracy"])
    assert (best["step"], {"accuracy": best["accuracy"]}) == (result["best_step"], result["metrics"])
    assert not (finished / "checkpoint.safetensors").exists()

    model = pb.from_pretrained(finished / "model")
    assert model.config == tiny_distillation.STUDENT and model.task is not None and model.tokenizer is not None
    logits = model(model.tokenizer(task_data.dev.texts, max_length=23))["logits"].numpy()
    assert (logits.argmax(-1) == task_data.dev.labels).mean() == result["metrics"]["accuracy"]


def test_adapters_are_saved_separately(finished: Path) -> None:
    adapters = [load_file(finished / subfolder / "adapters.safetensors") for subfolder in ("stages/hidden", "")]
    assert all(set(arrays) == {"adapters.widening.kernel", "adapters.widening.bias"} for arrays in adapters)
    # The second stage does not reach them.
    assert all(np.array_equal(adapters[0][name], adapters[1][name]) for name in adapters[0])
    assert adapters[0]["adapters.widening.bias"].any()
    for subfolder in ("stages/hidden/model", "model"):
        assert not any("adapters" in name for name in load_file(finished / subfolder / "model.safetensors"))


def test_tensorboard_has_stages_and_terms(finished: Path) -> None:
    tags = set()
    for path in (finished / "tensorboard").iterdir():
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            tags |= {value.tag for value in event.summary.value}
    assert {"hidden/train/loss", "hidden/train/hidden", "labels/train/labels", "labels/dev/accuracy"} < tags


def test_finished_run_refuses_other_options(finished: Path, distill: Any, capsys: pytest.CaptureFixture[str]) -> None:
    before = (finished / "model" / "model.safetensors").stat().st_mtime_ns
    assert distill(finished).steps == 20
    assert "this run is finished" in capsys.readouterr().err
    assert (finished / "model" / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(UserError, match="finished run with other options: option_scale=1.0, received 2.0, seed=5"):
        distill(finished, method=toy_method.toy(scale=2.0), run=dataclasses.replace(RUN, seed=6))


class Interrupted(BaseException):
    """Stands for the end of the process; no handler in the code catches it."""


@pytest.mark.nightly
def test_interrupted_run_resumes_exactly(
    finished: Path, distill: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Checkpoints, one a step: 7 in the first stage; 5 more to its end; 3 in the second, whose moments are carried on.
    for count in (7, 5, 3):
        interrupt_after(count, monkeypatch, lambda: distill(tmp_path / "run"))
    with open(tmp_path / "run" / "metrics.jsonl", "ab") as stream:
        stream.write(b'{"step": 17, "split": "tr')
    stderr = capsys.readouterr().err
    assert "resuming after step 7, in stage hidden" in stderr and "resuming after step 12, in stage hidden" in stderr
    distill(tmp_path / "run", run=dataclasses.replace(RUN, checkpoint_seconds=1e9))
    assert "resuming after step 15, in stage labels" in capsys.readouterr().err
    assert_same_run(tmp_path / "run", finished)


@pytest.mark.nightly
def test_qat_rounds_the_last_stage_and_resumes_exactly(
    finished: Path, distill: Any, task_data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Smaller matrices stay exact.
    wide = tiny_distillation.STUDENT.replace(intermediate_size=70)
    runs = {"none": RUN, "int4": dataclasses.replace(RUN, qat="dynamic_wi4")}
    results = {name: distill(tmp_path / name, student=wide, run=run) for name, run in runs.items()}
    for subfolder, is_equal in {"stages/hidden/model": True, "model": False}.items():
        weights = [(tmp_path / name / subfolder / "model.safetensors").read_bytes() for name in runs]
        assert (weights[0] == weights[1]) == is_equal
    model = pb.from_pretrained(tmp_path / "int4" / "model")
    assert model.tokenizer is not None
    logits = {}
    for name in runs:
        if name == "int4":
            round_model(model, "dynamic_wi4")
        logits[name] = model(model.tokenizer(task_data.dev.texts, max_length=23))["logits"].numpy()
    accuracy = (logits["int4"].argmax(-1) == task_data.dev.labels).mean()
    assert accuracy == results["int4"].metrics["accuracy"]
    assert np.abs(logits["int4"] - logits["none"]).max() > 1e-3

    # In the first stage, at its end, and in the second.
    for count in (7, 5, 3):
        interrupt_after(count, monkeypatch, lambda: distill(tmp_path / "again", student=wide, run=runs["int4"]))
    distill(tmp_path / "again", student=wide, run=runs["int4"])
    assert_same_run(tmp_path / "again", tmp_path / "int4")


@pytest.mark.usefixtures("eager")
def test_qat_of_one_stage_needs_a_trained_student(distill: Any, finished: Path, tmp_path: Path) -> None:
    arguments = {
        "method": toy_method.toy(only="labels", duration=Steps(2)),
        "run": dataclasses.replace(RUN, qat="dynamic_wi8"),
    }
    with pytest.raises(UserError, match="qat needs a trained student, because toy has only one stage; received random"):
        distill(tmp_path / "run", **arguments)
    assert not (tmp_path / "run").exists()
    continued = distill(tmp_path / "run", student=finished / "model", **arguments)
    assert continued.steps == 2


def interrupt_after(checkpoints: int, monkeypatch: pytest.MonkeyPatch, run: Callable[[], Any]) -> None:
    """Runs until so many checkpoints are written."""
    calls = []

    def interrupting(*arguments: Any) -> None:
        write_checkpoint(*arguments)
        calls.append(arguments)
        if len(calls) == checkpoints:
            raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "write_checkpoint", interrupting)
        with pytest.raises(Interrupted):
            run()


def assert_same_run(actual: Path, expected: Path) -> None:
    names = [
        "metrics.jsonl", "model/model.safetensors", "adapters.safetensors", "stages/hidden/model/model.safetensors",
        "stages/hidden/adapters.safetensors",
    ]  # fmt: skip
    for name in names:
        assert (actual / name).read_bytes() == (expected / name).read_bytes(), name
    results = [json.loads((folder / "result.json").read_text("utf-8")) for folder in (actual, expected)]
    assert {**results[0], "seconds": 0} == {**results[1], "seconds": 0}


# Each method learns from a cache as from its teacher in the conformance suite.
@pytest.mark.nightly
def test_cache_replaces_the_teacher(
    finished: Path, distill: Any, teacher: Path, task_data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = pb.from_pretrained(teacher)
    setting = DistillationSpec(teacher=model.config, student=tiny_distillation.STUDENT, task=tiny_distillation.TASK)
    method = toy_method.toy(only="hidden")
    stage = method.stages(setting)[0]
    encoded = batches.encode(task_data.train, model.tokenizer, stage.max_length)
    cache_targets(model, teacher, method, stage, encoded, tmp_path / "store", dtype="float32")
    with monkeypatch.context() as patch:
        patch.setattr(DistillationPlan, "load_teacher", lambda *_: pytest.fail("the teacher was loaded"))
        result = distill(tmp_path / "run", method=method, teacher=CachedTeacher(tmp_path / "store"))
    stored = sum(path.stat().st_size for path in (tmp_path / "store" / "hidden").iterdir() if path.name[0] != ".")
    assert result.teacher_cache_bytes == stored
    assert result.teacher_metrics is None and pb.from_pretrained(result.model_directory).tokenizer is not None
    lines, expected = log_of(tmp_path / "run"), log_of(finished)[:2]
    # The teacher's batches were others, so its sums are rounded otherwise; 12 steps carry that on.
    assert [line["hidden"] for line in lines] == pytest.approx([line["hidden"] for line in expected], rel=1e-3)
    other = dataclasses.replace(task_data, train=task_data.train.select(range(80)))
    with pytest.raises(UserError, match="another dataset"):
        distill(tmp_path / "other", method=method, teacher=CachedTeacher(tmp_path / "store", teacher), data=other)
    assert not (tmp_path / "other").exists()


@pytest.mark.usefixtures("eager")
def test_infinite_loss_names_stage_and_term(distill: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Trainer.steps

    def poisoned(self: Any, *where: Any) -> Any:
        for index, losses in enumerate(steps(self, *where)):
            yield losses * (float("nan") if index == 3 else 1.0)

    monkeypatch.setattr(Trainer, "steps", poisoned)
    with pytest.raises(TrainingFailed, match="finite; it is labels nan at step 4 of stage labels; try a lower"):
        distill(tmp_path / "run", method=toy_method.toy(only="labels"))


# Weights and losses of training in bfloat16 are those of test_distiller.py.
@pytest.mark.nightly
@pytest.mark.usefixtures("eager")
def test_tinybert_in_bfloat16_on_scored_pairs(teacher: Path, tmp_path: Path) -> None:
    task = TaskConfig(kind="regression", name="score")
    scorer = pb.from_preset(
        tiny_distillation.TEACHER, task=(task,), tokenizer=pb.from_pretrained(teacher).tokenizer, seed=2
    )
    scorer.save_pretrained(tmp_path / "scorer")

    def scored(count: int, seed: int) -> Any:
        plain = tiny_finetuning.examples(count, seed)
        return dataclasses.replace(plain, pairs=plain.texts[::-1], labels=plain.labels.astype(np.float32) * 2.5)

    data = {"task": task, "train": scored(20, 0), "dev": scored(9, 1), "metrics": ("pearson",)}
    result = distillation.distill(
        tiny_distillation.STUDENT,
        TaskData(**data, main_metric="pearson"),
        tmp_path / "run",
        teacher=tmp_path / "scorer",
        method=TinyBERT(max_length=23, prediction_epochs=1, without=("embedding", "transformer")),
        run=RunConfig(precision="bfloat16"),
    )
    assert set(result.metrics) == {"pearson"} == set(result.teacher_metrics or ())
    tensors = load_file(tmp_path / "run" / "model" / "model.safetensors")
    assert all(array.dtype == np.float32 for array in tensors.values())


# Of several teachers in test_soft_labels.py.
@pytest.mark.nightly
def test_only_the_teacher_uses_bfloat16(distill: Any, finished: Path, tmp_path: Path) -> None:
    method = toy_method.toy(only="hidden")
    dtypes: dict[str, set[str]] = {"teacher": set(), "student": set()}
    targets, loss = method.targets, method.loss

    def seen_targets(stage: Any, teacher: Any, batch: Any) -> Any:
        dtypes["teacher"] |= {state.dtype.name for state in teacher["hidden_states"]}
        return targets(stage, teacher, batch)

    def seen_loss(stage: Any, targets: Any, student: Any, adapters: Any, batch: Any) -> Any:
        dtypes["student"] |= {state.dtype.name for state in student["hidden_states"]}
        return loss(
            stage, {name: tf.cast(target, tf.float32) for name, target in targets.items()}, student, adapters, batch
        )

    # A method is frozen.
    vars(method).update(targets=seen_targets, loss=seen_loss)
    distill(tmp_path / "run", method=method, run=dataclasses.replace(RUN, teacher_precision="bfloat16"))
    assert dtypes == {"teacher": {"bfloat16"}, "student": {"float32"}}
    hidden_losses, expected = (
        [line["hidden"] for line in log_of(folder)[:2]] for folder in (tmp_path / "run", finished)
    )
    # Targets with 8 bits: each number is off by 2^-9 at most at each of some ten roundings; the loss is their mean.
    assert hidden_losses != expected and hidden_losses == pytest.approx(expected, rel=0.02)
    assert json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))["teacher_precision"] == "bfloat16"
    assert json.loads((finished / "run.json").read_text("utf-8"))["teacher_precision"] is None


def test_several_seeds_give_separate_runs(tmp_path: Path) -> None:
    received = []

    def pretended(student: Any, data: Any, output: Path, **arguments: Any) -> DistillResult:
        received.append({"student": student, "output": output})
        seed = arguments["run"].seed
        return DistillResult(
            model_directory=f"model-{seed}", main_metric="accuracy",
            metrics={"accuracy": 0.1 * seed}, teacher_metrics=None, seed=seed, best_step=1,
            steps=2, seconds=3.0, stages=[],
        )  # fmt: skip

    summary = train_seeds(pretended, (3, 8), "s", None, tmp_path, run=RUN)
    assert [call["output"] for call in received] == [tmp_path / "seed-3", tmp_path / "seed-8"]
    assert all(call["student"] == "s" for call in received)
    assert summary["best_model"] == "model-8"
    assert summary["metrics"]["accuracy"]["mean"] == pytest.approx(0.55)


@pytest.mark.usefixtures("eager")
def test_general_distillation_on_masked_text(teacher: Path, tmp_path: Path) -> None:
    lines = tiny_finetuning.examples(120, seed=7).texts
    text = tmp_path / "text"
    text.mkdir()
    for name, part in (("a", lines[:50]), ("b.txt", lines[50:])):
        (text / name).write_text("\n\n".join(f"{line.capitalize()}." for line in part), encoding="utf-8")

    def general(text: Path) -> DistillResult:
        return distillation.distill(
            tiny_distillation.STUDENT,
            TextData(text),
            tmp_path / "run",
            teacher=teacher,
            method=TinyBERT(max_length=16, general_steps=3, general_batch_size=8),
        )

    result = general(text)
    assert (result.steps, result.metrics, result.teacher_metrics) == (3, {}, None)
    assert {line["stage"] for line in log_of(tmp_path / "run")} == {"general"}
    student = pb.from_pretrained(result.model_directory)
    assert student.task is None and student.tokenizer is not None
    # The same text in another place is the same run; another letter in it is not, at the same size and time.
    moved = text.rename(tmp_path / "moved")
    (moved / ".hidden").write_text("not read")
    assert general(moved) == result
    changed, times = moved / "b.txt", (moved / "b.txt").stat()
    changed.write_text(changed.read_text("utf-8").swapcase(), encoding="utf-8")
    os.utime(changed, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert changed.stat().st_size == times.st_size
    with pytest.raises(UserError, match="a finished run with other options: text_sha256='[0-9a-f]{64}', received"):
        general(moved)


@pytest.mark.usefixtures("eager")
def test_stages_stop_early(distill: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # After steps 2, 4 and 6, where the first epoch ends too.
    scores = iter([0.5, 0.7, 0.7])
    monkeypatch.setattr(TextEvaluator, "metrics", lambda *_: {"accuracy": next(scores)})
    options = dataclasses.replace(RUN, evaluation_steps=2, patience=1)
    result = distill(tmp_path / "run", method=toy_method.toy(only="labels"), run=options)
    assert [line["step"] for line in log_of(tmp_path / "run") if line["split"] == "dev"] == [2, 4, 6]
    assert (result.steps, result.best_step, result.metrics) == (6, 4, {"accuracy": 0.7})
    # This stage reads nothing of a teacher.
    assert result.teacher_metrics is None


def refusals() -> list[Any]:
    student = tiny_distillation.STUDENT
    best = {"duration": Epochs(1), "optimizer": OptimizerConfig(learning_rate=1e-3)}
    return [
        ({"student": "no_such_student"}, "a preset, a model directory or a config.json; received no_such_student"),
        ({"student": student.replace(vocab_size=98)}, "the teacher's has 97 tokens, the student's 98"),
        ({"data": None}, "a task's examples, plain text or pretraining examples; received none"),
        (
            {"teacher": None},
            "stage hidden reads hidden_states from a teacher; received neither a model directory nor a teacher cache",
        ),
        ({"teacher": CachedTeacher("no-such-store")}, "no-such-store: a teacher cache has one folder per stage"),
        ({"method": toy_method.toy(keep="best", **best)}, "stage hidden keeps its best weights by a metric"),
        (
            {"method": toy_method.toy(only="hidden", data="text")},
            "stage hidden needs plain text; received none",
        ),
        ({"method": toy_method.toy(max_length=30)}, "stage hidden has texts of 30 tokens; the student has 29"),
    ]


@pytest.mark.usefixtures("eager")
def test_unlabelled_examples_are_refused(
    distill: Any, task_data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = dataclasses.replace(task_data.train, labels=None, source="plain.csv")
    more = dataclasses.replace(task_data.train, labels=None, source="more.jsonl")
    unlabelled = dataclasses.replace(task_data, train=plain)
    # What follows the teacher alone needs none.
    method = toy_method.toy(only="hidden", duration=Steps(2))
    assert distill(tmp_path / "hidden", method=method, data=unlabelled).steps == 2
    monkeypatch.setattr("pocketbert.training.plan.make_model", None)
    augmented = dataclasses.replace(unlabelled, augmented=more)
    only = toy_method.toy(only="labels", data="augmented")
    for method, data, source in (
        (METHOD, unlabelled, "plain.csv"),
        (METHOD, augmented, "plain.csv"),
        (only, unlabelled, "plain.csv"),
        (only, augmented, "more.jsonl"),
    ):
        message = f"stage labels learns from labels; {source} has none; give labelled examples"
        with pytest.raises(UserError, match=message):
            distill(tmp_path / "run", method=method, data=data)
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("changes", "message"), refusals())
def test_mismatch_writes_nothing(changes: dict[str, Any], message: str, distill: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        distill(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()
