"""Comparison with the same student, fine-tuned: equal initial weights, steps and evaluations."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_distillation
import tiny_finetuning
import toy_method

import pocketbert as pb
from pocketbert.data import batches
from pocketbert.data.task_data import TextData
from pocketbert.distillation import comparison, comparison_report
from pocketbert.distillation.comparison import compared, distill_and_compare
from pocketbert.distillation.initialization import TeacherLayers
from pocketbert.distillation.planning import plan_distillation
from pocketbert.errors import UserError
from pocketbert.files import write_json
from pocketbert.training import trainer
from pocketbert.training.config import DistillResult, FinetuneConfig, RunConfig, TrainResult
from pocketbert.training.distribution import open_distribution
from pocketbert.training.finetune import finetune
from pocketbert.training.grids.published import PUBLISHED_HEAD
from pocketbert.training.run_folder import read_record, run_seeds
from pocketbert.training.stage import Epochs, OptimizerConfig, Steps
from pocketbert.training.stage_batches import encoded_batches
from pocketbert.training.state import write_checkpoint
from pocketbert.training.trainer import Trainer

RUN = RunConfig(seed=5)
RATE = 4e-3
# Nothing is random but the first weights and the order, so that another loop takes the same steps.
TASK = dataclasses.replace(tiny_distillation.TASK, dropout=0.0)
STUDENT = tiny_distillation.STUDENT.replace(hidden_dropout=0.0, attention_dropout=0.0)


class Ended(BaseException):
    """Stands for the end of the process; no handler in the code catches it."""


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """90 examples in batches of 16 are 6 steps an epoch; two stages of two epochs are 24."""
    teacher = tiny_distillation.write_teacher(tmp_path_factory.mktemp("models") / "teacher")
    pb.from_preset(STUDENT, tokenizer=pb.from_pretrained(teacher).tokenizer, seed=3).save_pretrained(
        teacher.parent / "student"
    )
    method = toy_method.toy(duration=Epochs(2), optimizer=OptimizerConfig(learning_rate=RATE, warmup_ratio=0.25))
    return {
        "method": method,
        "student": teacher.parent / "student",
        "teacher": teacher,
        "data": tiny_distillation.task_data(teacher, task=TASK),
    }


@pytest.fixture(scope="module")
def compared_run(arguments: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("runs") / "compared"
    return folder, distill_and_compare((5,), output=folder, run=RUN, **arguments)


def lines_of(folder: Path, split: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [line for line in lines if line["split"] == split]


def test_both_have_equal_steps_and_evaluations(compared_run: tuple[Path, dict[str, Any]]) -> None:
    folder, answer = compared_run
    _, distilled, fine_tuned = answer["comparison"]["rows"]
    assert (distilled["steps"], fine_tuned["steps"]) == (24, 24)
    # Of the distilled student in its second stage, after each epoch; of the other evenly.
    assert [line["step"] for line in lines_of(folder, "dev")] == [18, 24]
    assert [line["step"] for line in lines_of(folder / "fine_tuned", "dev")] == [12, 24]
    assert answer["steps"] == 24 and answer["teacher_metrics"] == {"accuracy": 1.0}


@pytest.mark.nightly
def test_baseline_matches_finetune(
    compared_run: tuple[Path, dict[str, Any]], arguments: dict[str, Any], tmp_path: Path
) -> None:
    data = arguments["data"]
    config = FinetuneConfig(
        **PUBLISHED_HEAD, learning_rate=RATE, warmup_ratio=0.25, epochs=4, batch_size=16, max_length=23
    )
    run = dataclasses.replace(RUN, evaluation_steps=6)
    finetune(arguments["student"], data, tmp_path / "run", config=config, run=run)
    baseline_lines, alone_lines = (
        lines_of(folder, "train") for folder in (compared_run[0] / "fine_tuned", tmp_path / "run")
    )
    assert [line["step"] for line in alone_lines] == [6, 12, 18, 24]
    means = [(alone_lines[index]["loss"] + alone_lines[index + 1]["loss"]) / 2 for index in (0, 2)]
    # The same sums of float32 in other graphs: 2^-24 relatively at a step, which 24 steps of Adam carry on.
    assert [line["labels"] for line in baseline_lines] == pytest.approx(means, rel=1e-4)
    assert [line["learning_rate"] for line in baseline_lines] == [line["learning_rate"] for line in alone_lines[1::2]]
    dev = [line["accuracy"] for line in lines_of(compared_run[0] / "fine_tuned", "dev")]
    assert dev == [line["accuracy"] for line in lines_of(tmp_path / "run", "dev")[1::2]]


def test_rounding_is_refused(arguments: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="qat=none, because the baseline does not round; received dynamic_wi4"):
        distill_and_compare((5,), output=tmp_path / "run", run=RunConfig(qat="dynamic_wi4"), **arguments)
    assert not (tmp_path / "run").exists()


@pytest.mark.nightly
def test_interrupted_fine_tuning_resumes_bit_exactly(
    compared_run: tuple[Path, dict[str, Any]],
    arguments: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(compared_run[0], folder, ignore=shutil.ignore_patterns("fine_tuned", "comparison*", "report*"))
    run = dataclasses.replace(RUN, checkpoint_seconds=0.0)
    calls = []

    def interrupting(*arguments: Any) -> None:
        write_checkpoint(*arguments)
        calls.append(arguments)
        # In the second pass over the examples and before the first evaluation; then between the two.
        if len(calls) in (8, 15):
            raise Ended

    for _ in range(2):
        with monkeypatch.context() as patch, pytest.raises(Ended):
            patch.setattr(trainer, "write_checkpoint", interrupting)
            distill_and_compare((5,), output=folder, run=run, **arguments)
    answer = distill_and_compare((5,), output=folder, run=run, **arguments)
    assert "resuming after step 15, in stage fine_tuning" in capsys.readouterr().err
    for name in ("model/model.safetensors", "fine_tuned/model/model.safetensors", "fine_tuned/metrics.jsonl"):
        assert (folder / name).read_bytes() == (compared_run[0] / name).read_bytes(), name
    for row, expected in zip(answer["comparison"]["rows"], compared_run[1]["comparison"]["rows"], strict=True):
        assert {**row, "seconds": 0} == {**expected, "seconds": 0}


def test_other_runs_are_shown(
    compared_run: tuple[Path, dict[str, Any]], arguments: dict[str, Any], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(compared_run[0], tmp_path / "run"))
    other = Path(shutil.copytree(folder / "fine_tuned", tmp_path / "other"))
    write_json(other / "result.json", {**read_record(other / "result.json"), "teacher_cache_bytes": 1_234_567})
    answer = distill_and_compare((5,), output=folder, run=RUN, others=[other], **arguments)
    _, distilled, fine_tuned, shown = answer["comparison"]["rows"]
    assert shown == {**fine_tuned, "name": str(other), "teacher_cache_bytes": 1_234_567}
    assert distilled["teacher_cache_bytes"] is None
    header, *rows = comparison_report.table(answer["comparison"])
    assert header.endswith("teacher cache") and rows[3].endswith("1,234,567 bytes")
    assert str(other) in (folder / "report.html").read_text("utf-8")


@pytest.mark.parametrize("change", [{"dev_sha256": "0" * 64}, {"main_metric": "f1"}, None])
def test_run_with_other_data_is_refused(
    change: dict[str, str] | None, compared_run: tuple[Path, dict[str, Any]], arguments: dict[str, Any], tmp_path: Path
) -> None:
    other = Path(shutil.copytree(compared_run[0] / "fine_tuned", tmp_path / "other"))
    if change is None:
        (other / "result.json").unlink()
    else:
        write_json(other / "run.json", {**read_record(other / "run.json"), **change})
    message = "must be a finished run" if change is None else "must have the same dev split and metric"
    with pytest.raises(UserError, match=f"{message}.*; received {re.escape(str(other))}"):
        distill_and_compare((5,), output=tmp_path / "run", run=RUN, others=[other], **arguments)
    assert not (tmp_path / "run").exists()


def test_page_is_self_contained_with_curves(compared_run: tuple[Path, dict[str, Any]]) -> None:
    folder, answer = compared_run
    html = (folder / "report.html").read_text("utf-8")
    assert not re.search(r"(src|href)=|https?://", html)
    titles = re.findall(r'aria-label="([^"]*) by step"', html)
    assert titles == ["dev accuracy", "hidden: hidden", "labels: labels", "fine_tuning: labels"]
    first = html[html.index("<figure ") : html.index("</figure>")]
    # Two students, two evaluations each; the teacher's 1 is a level between the ticks.
    assert first.count("<polyline") == 2 and first.count("<circle") == 4 and "stroke-dasharray" in first
    places = [
        [tuple(map(float, dot.split(","))) for dot in line.split()] for line in re.findall(r'points="([^"]*)"', first)
    ]
    assert [[round(x) for x, _ in line] for line in places] == [[202, 348], [56, 348]]
    rows = comparison_report.table(answer["comparison"])
    assert [row.split("  ")[0] for row in rows[1:]] == [
        "teacher", "distilled", "fine-tuned alone", "baseline", "difference"
    ]  # fmt: skip
    assert "<td>baseline</td>" in html


@pytest.mark.usefixtures("eager")
def test_both_start_from_the_same_weights(
    arguments: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[dict[str, np.ndarray]] = []

    train_stage = Trainer._train_stage

    def watched(self: Trainer) -> None:
        starts.append({name: value.numpy() for name, value in self.model.weights_by_path().items()})
        if len(starts) == 2:
            raise Ended
        train_stage(self)

    def copy_pooler(self: Any, teacher: Any, student: Any) -> None:
        # Widths differ: a part of it.
        student.encoder.pooler.bias.assign(teacher.encoder.pooler.bias[: STUDENT.hidden_size] + self.scale)

    method = toy_method.toy(only="hidden", duration=Steps(1), student_features={"hidden_states": (1,), "logits": ()})
    monkeypatch.setattr(toy_method.ToyMethod, "initialize", copy_pooler)
    monkeypatch.setattr(Trainer, "_train_stage", watched)
    # Fresh weights, on which a method may copy.
    with pytest.raises(Ended):
        fresh = {**arguments, "student": STUDENT, "method": method}
        distill_and_compare((8,), output=tmp_path / "run", run=RUN, **fresh)
    first, alone = starts
    assert first.keys() == alone.keys()
    assert not [name for name in first if not np.array_equal(first[name], alone[name])]
    assert np.all(first["encoder.pooler.bias"] == 1.0)


def test_evaluations_divide_the_steps_evenly(tmp_path: Path) -> None:
    encoded = batches.EncodedExamples(np.ones(40, np.int32), np.ones(40, np.int32), np.arange(41), 23, 0)

    def plans(count: int, evaluations: int | None, numbers: int) -> list[list[np.ndarray]]:
        stage = toy_method.label_stage(duration=Steps(count), evaluations=evaluations)
        data = encoded_batches(stage, encoded, seed=0)
        return [data.rows(number) for number in range(numbers)]

    # 40 examples in batches of 16 are 3 steps a pass.
    passes = [rows for plan in plans(8, None, 3) for rows in plan]
    pieces = plans(8, 3, 3)
    assert [len(piece) for piece in pieces] == [2, 3, 3]
    for rows_read, expected in zip([rows for piece in pieces for rows in piece], passes[:8], strict=True):
        assert np.array_equal(rows_read, expected)
    # More of them than steps there cannot be.
    assert [len(piece) for piece in plans(4, 9, 4)] == [1, 1, 1, 1]


def result_of(seed: int, accuracy: float, folder: Path, teacher: dict[str, float] | None) -> DistillResult:
    stages = [{"name": name, "steps": 7 + seed, "metrics": {}, "best_step": 1} for name in ("hidden", "labels")]
    return DistillResult(
        model_directory=str(folder / "model"), main_metric="accuracy",
        metrics={"accuracy": accuracy, "f1": accuracy / 2},
        teacher_metrics=teacher, seed=seed, best_step=2, steps=14 + 2 * seed, seconds=10.0 + seed, stages=stages,
    )  # fmt: skip


def test_several_seeds_give_mean_and_spread(
    arguments: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    accuracies = {(3, False): 0.8, (3, True): 0.7, (4, False): 0.9, (4, True): 0.85}
    runs = []

    def pretended(plan: Any, output: Path, *trainer: Any) -> Any:
        seed, alone = plan.run.seed, output.name == "fine_tuned"
        runs.append((str(output.relative_to(tmp_path)), plan, plan.run.overwrite))
        output.mkdir(parents=True)
        lines = [
            {"step": 5, "split": "train", "stage": "labels", "loss": 0.5, "labels": 0.5, "learning_rate": 0.1},
            {"step": 7, "split": "dev", "stage": "labels", "accuracy": accuracies[seed, alone], "f1": 0.4},
        ]
        (output / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        result = result_of(seed, accuracies[seed, alone], output, None)
        fields = {field.name for field in dataclasses.fields(TrainResult if alone else DistillResult)}
        fields -= {"model_directory"}
        return output, {name: value for name, value in vars(result).items() if name in fields}

    monkeypatch.setattr(comparison, "run_plan", pretended)
    run = dataclasses.replace(RUN, evaluation_steps=3, patience=2, overwrite=True)
    # What a kill left of the summary of an attempt before.
    (tmp_path / ".result.json.partial").write_text("{")
    answer = distill_and_compare((3, 4), output=tmp_path, run=run, learning_rate=0.25, **arguments)
    assert [(name, overwrite) for name, _, overwrite in runs] == [
        ("seed-3", True), ("seed-3/fine_tuned", True), ("seed-4", True), ("seed-4/fine_tuned", True)
    ]  # fmt: skip
    alone = runs[3][1]
    (stage,) = alone.stages
    assert stage.duration == Steps(22) and stage.evaluations == 1
    assert stage.optimizer == dataclasses.replace(runs[2][1].stages[-1].optimizer, learning_rate=0.25)
    assert (alone.run.evaluation_steps, alone.run.patience, alone.run.seed) == (None, None, 4)

    teacher, distilled, fine_tuned = answer["comparison"]["rows"]
    assert teacher["metrics"] is None and answer["comparison"]["seeds"] == [3, 4]
    assert (distilled["steps"], distilled["seconds"]) == (21, 13.5)
    assert distilled["metrics"]["accuracy"]["mean"] == pytest.approx(0.85)
    assert fine_tuned["metrics"]["accuracy"]["mean"] == pytest.approx(0.775)
    # Seed by seed 0.1 and 0.05: deviations of 0.025 from their mean, over one degree of freedom.
    difference = answer["comparison"]["difference"]["accuracy"]
    assert difference["mean"] == pytest.approx(0.075)
    assert difference["standard_deviation"] == pytest.approx(0.025 * 2**0.5)
    stderr = capsys.readouterr().err
    assert (
        "0.8500 ± 0.0707 distilled, 0.7750 ± 0.1061 fine-tuned alone; the difference is +0.0750 ± 0.0354. Values are "
        "means over 2 seeds" in stderr
    )
    assert "not scored" in stderr
    assert answer["best_model"] == str(tmp_path / "seed-4" / "model")
    assert {path.name for path in tmp_path.iterdir()} == {
        "seed-3", "seed-4", "result.json", "comparison.json", "report.html"
    }  # fmt: skip
    html = (tmp_path / "report.html").read_text("utf-8")
    assert html.count("<polyline") == 4 + 4 + 2 + 2 and "One line per seed." in html
    # A seed that is not among them still is in the way.
    with pytest.raises(UserError, match="contain only runs with these seeds; received .* with seed-4; choose another"):
        run_seeds((3,), tmp_path, pytest.fail)


def test_one_seed_is_reported() -> None:
    pair = tuple(result_of(3, accuracy, Path("run"), {"accuracy": 0.95}) for accuracy in (0.8, 0.9))
    summary = compared([pair], 40)  # type: ignore[list-item]
    assert summary["rows"][0]["metrics"]["accuracy"]["mean"] == 0.95
    assert comparison_report.sentence(summary) == (
        "accuracy on 40 development examples, after 20 steps each: 0.8000 distilled, 0.9000 fine-tuned alone; the "
        "difference is -0.1000. This is one seed; give several seeds= to estimate the noise."
    )


def test_students_below_baseline_warn() -> None:
    baseline = {"answer": "always 'low'", "metrics": {"accuracy": 0.6, "f1": 0.0}}
    poor = dataclasses.replace(result_of(3, 0.6, Path("run"), None), baseline=baseline, warnings=["it <is> poor"])
    good = dataclasses.replace(result_of(3, 0.7, Path("run"), None), baseline=baseline)
    summary = compared([(poor, good)], 40)
    assert summary["warnings"] == ["distilled, seed 3: it <is> poor"]
    assert "the difference is -0.1000; the baseline, always 'low', has 0.6000." in comparison_report.sentence(summary)
    log = [{"step": 7, "split": "dev", "stage": "labels", "accuracy": 0.5, "f1": 0.4}]
    html = comparison_report.page(summary, [{"distilled": log, "fine_tuned": log}])
    assert "distilled, seed 3: it &lt;is&gt; poor" in html


def unlabelled(arguments: dict[str, Any]) -> dict[str, Any]:
    data = arguments["data"]
    plain = dataclasses.replace(data.train, labels=None, source="plain.csv")
    follows = toy_method.toy(only="hidden", student_features={"hidden_states": (1,), "logits": ()})
    return {"data": dataclasses.replace(data, train=plain), "method": follows}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (unlabelled, "fine-tuning learns from labels; plain.csv has none; give labelled examples"),
        (
            lambda _: {"method": toy_method.toy(only="hidden")},
            "the last stage must train a head, to compare metrics; received stage hidden",
        ),
        (
            lambda _: {"method": toy_method.toy(only="labels")},
            "a comparison needs a stage that reads the teacher; toy has none in labels",
        ),
        (
            lambda _: {"method": toy_method.toy(only="hidden", data="text"), "data": TextData(__file__)},
            "a comparison needs a task with labels; toy ends with stage hidden on text; leave the",
        ),
    ],
    ids=["unlabelled", "no-head", "labels-alone", "text"],
)  # fmt: skip
def test_impossible_comparison_trains_nothing(
    changes: Callable[..., dict[str, Any]], message: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        distill_and_compare((0,), output=tmp_path / "run", run=RUN, **{**arguments, **changes(arguments)})
    assert not (tmp_path / "run").exists()


def test_default_labels_copy_the_head(arguments: dict[str, Any], tmp_path: Path) -> None:
    nameless = dataclasses.replace(tiny_finetuning.TASK, name="", labels=("LABEL_0", "LABEL_1"))
    tokenizer = pb.from_pretrained(arguments["teacher"]).tokenizer
    teacher = pb.from_preset(tiny_distillation.TEACHER, (nameless,), tokenizer, seed=6)
    teacher.save_pretrained(tmp_path / "teacher")
    layers = {"student": TeacherLayers((2,), None), "teacher": tmp_path / "teacher"}
    plan = plan_distillation(run=RUN, **{**arguments, **layers})
    student = Trainer(plan, tmp_path, open_distribution()).model
    student_weights, teacher_weights = student.weights_by_path(), teacher.weights_by_path()
    heads = [name for name in student_weights if name.startswith("heads.")]
    assert heads and all(np.array_equal(student_weights[name], teacher_weights[name]) for name in heads)
