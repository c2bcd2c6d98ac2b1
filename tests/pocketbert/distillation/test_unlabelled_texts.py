"""Texts without labels, on which a student learns the teacher's predictions."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import tiny_distillation
import tiny_finetuning

import pocketbert as pb
from pocketbert.cli import main
from pocketbert.commands.command_line import parse
from pocketbert.commands.distill import read_data
from pocketbert.distillation.confidence import confident
from pocketbert.distillation.ensemble import with_mean_predictions
from pocketbert.distillation.methods import get_method
from pocketbert.distillation.planning import plan_distillation
from pocketbert.errors import UserError
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert_runtime.decision_config import DecisionConfig

# Runs of a few steps: graphs would take longer to trace than to run.
pytestmark = pytest.mark.usefixtures("eager")
PREDICTIONS = {"max_length": 23, "without": ("embedding", "transformer"), "prediction_epochs": 1}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_distillation.write_teacher(tmp_path_factory.mktemp("models") / "teacher")


@pytest.fixture
def texts(tmp_path: Path, teacher: Path) -> Path:
    """40 new texts, one of them twice, 3 texts of the dev split and 2 training examples, a text per line."""
    data = tiny_distillation.task_data(teacher)
    new = [f"{text} film plot" for text in tiny_finetuning.examples(40, seed=8).texts]
    lines = [*new, new[7], "", *data.dev.texts[:3], *data.train.texts[5:7]]
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_known_texts_are_left_out_and_counted(texts: Path, teacher: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tiny_distillation.task_data(teacher)
    more = pb.data.with_unlabelled(data, texts)
    assert not {*more.unlabelled.texts} & {*data.dev.texts, *data.train.texts}
    line = capsys.readouterr().err.splitlines()[-1]
    count = len(more.unlabelled)
    assert (
        f"{count} unlabelled texts; left out 3 that are also in the dev split, 2 that are also in the training" in line
    )
    in_memory = pb.data.with_unlabelled(data, [{"text": text, "label": "low"} for text in more.unlabelled.texts])
    assert in_memory.unlabelled.texts == more.unlabelled.texts and in_memory.unlabelled.labels is None
    with pytest.raises(UserError, match="every text is known already"):
        pb.data.with_unlabelled(data, [{"text": data.dev.texts[0]}])
    with pytest.raises(UserError, match="least_confidence must lie between 0 and 1; received 1"):
        pb.data.with_unlabelled(data, texts, least_confidence=1)


def test_stages_with_a_teacher_alone_read_them(texts: Path, teacher: Path) -> None:
    data = pb.data.with_unlabelled(tiny_distillation.task_data(teacher), texts)
    every = len(data.train) + len(data.unlabelled)
    student = pb.TeacherLayers((1,))
    for method, counts in [
        (get_method("tinybert")(**PREDICTIONS), [every]),
        (get_method("minilmv2")(max_length=23, relation_heads=5), [every, len(data.train)]),
        (get_method("hsk")(max_length=23), [every, every]),
        (get_method("hsk")(max_length=23, label_weight=0.5), [every, len(data.train)]),
    ]:
        plan = plan_distillation(student, data, teacher=teacher, method=method, run=RunConfig())
        assert [len(plan.encoded(stage)) for stage in plan.stages] == counts


def test_only_sure_texts_with_the_teachers_own_probabilities(
    texts: Path, teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = pb.data.with_unlabelled(tiny_distillation.task_data(teacher), texts)
    answers = pb.from_pretrained(teacher).predict(plain.unlabelled.texts)
    sure = np.array([max(answer["probabilities"].values()) for answer in answers])
    least = float(np.median(sure))
    data = pb.data.with_unlabelled(tiny_distillation.task_data(teacher), texts, least_confidence=least)
    method = get_method("tinybert")(**PREDICTIONS)
    expected = int((sure >= least).sum())
    capsys.readouterr()
    result = pb.distill(pb.TeacherLayers((1,)), data, tmp_path / "run", teacher=teacher, method=method)
    assert f"{expected} of {len(sure)} unlabelled texts have a label" in capsys.readouterr().err
    assert result.steps == -(-(len(data.train) + expected) // 32)
    # The same run, finished; another threshold is another run.
    assert pb.distill(pb.TeacherLayers((1,)), data, tmp_path / "run", teacher=teacher, method=method) == result
    with pytest.raises(UserError, match="other options: least_confidence="):
        pb.distill(pb.TeacherLayers((1,)), plain, tmp_path / "run", teacher=teacher, method=method)
    with pytest.raises(UserError, match="the teacher must be sure of some text; its largest probability is 0."):
        most = pb.data.with_unlabelled(tiny_distillation.task_data(teacher), texts, least_confidence=0.9999)
        pb.distill(pb.TeacherLayers((1,)), most, tmp_path / "none", teacher=teacher, method=method)
    assert not (tmp_path / "none").exists()


def test_thresholds_of_the_teacher_do_not_count(texts: Path, teacher: Path) -> None:
    model = pb.from_pretrained(teacher)
    data = pb.data.with_unlabelled(tiny_distillation.task_data(teacher), texts)
    sure = [max(answer["probabilities"].values()) for answer in model.predict(data.unlabelled.texts)]
    data = dataclasses.replace(data, least_confidence=float(np.median(sure)))
    expected = confident(data, model, 23).unlabelled.texts
    assert len(expected) == int((sure >= np.median(sure)).sum()) < len(sure)
    model.tasks = (dataclasses.replace(model.task, decisions=DecisionConfig(thresholds=(0.9, 0.1))),)
    assert confident(data, model, 23).unlabelled.texts == expected


def of_two_teachers(texts: Path, teacher: Path, folder: Path) -> tuple[list[Path], pb.TaskData, int]:
    """Two teachers; unlabelled texts with a least confidence between two of them; how many are surer than that."""
    model = pb.from_pretrained(teacher)
    pb.from_preset(model.config, model.task, model.tokenizer, seed=8).save_pretrained(folder / "other")
    teachers = [teacher, folder / "other"]
    plain = pb.data.with_unlabelled(tiny_distillation.task_data(teacher), texts)
    shares = [
        [[*answer["probabilities"].values()] for answer in pb.from_pretrained(path).predict(plain.unlabelled.texts)]
        for path in teachers
    ]
    sure = np.sort(np.mean(shares, axis=0).max(axis=1))
    # Between two texts, so that rounding moves none.
    least = float(sure[11] + sure[12]) / 2
    data = pb.data.with_unlabelled(tiny_distillation.task_data(teacher), texts, least_confidence=least)
    return teachers, data, len(sure) - 12


def test_several_teachers_are_sure_by_the_mean_of_their_probabilities(
    texts: Path, teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teachers, data, sure = of_two_teachers(texts, teacher, tmp_path)
    capsys.readouterr()
    taught = with_mean_predictions(teachers, data, get_method("tinybert")(**PREDICTIONS))
    assert f"{sure} of {len(data.unlabelled)} unlabelled texts have a label" in capsys.readouterr().err
    assert len(taught.unlabelled) == sure


@pytest.mark.nightly
@pytest.mark.parametrize("start", ["layers", "directory"])
def test_students_of_several_sure_teachers(
    start: str, texts: Path, teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teachers, data, sure = of_two_teachers(texts, teacher, tmp_path)
    method = get_method("tinybert")(**PREDICTIONS)
    student = pb.TeacherLayers((1,)) if start == "layers" else tiny_finetuning.write_model(tmp_path / "student")
    result = pb.distill(student, data, tmp_path / "run", teacher=teachers, method=method)
    assert f"{sure} of {len(data.unlabelled)} unlabelled texts have a label" in capsys.readouterr().err
    assert result.steps == -(-(len(data.train) + sure) // 32)


def test_of_several_labels_each_one_must_be_sure(
    texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = ("a", "b", "c")
    task = pb.TaskConfig(kind="multi_label", labels=labels)
    tokenizer = pb.from_pretrained(tiny_finetuning.write_model(tmp_path / "bare")).tokenizer
    config = tiny_distillation.TEACHER.replace(initializer_range=0.3)
    model = pb.from_preset(config, (task,), tokenizer, seed=2)
    rows = [
        {"text": text, "label": "|".join(labels[: index % 3])}
        for index, text in enumerate(dict.fromkeys(tiny_finetuning.examples(90, seed=0).texts))
    ]
    table = pb.data.table(rows, kind="multi_label", label_names=labels)
    plain = pb.data.with_unlabelled(table, texts)
    answers = model.predict(plain.unlabelled.texts)
    given = np.array([[*answer["probabilities"].values()] for answer in answers])
    sure = np.sort(np.maximum(given, 1 - given).min(axis=1))
    least = float(sure[6] + sure[7]) / 2
    data = pb.data.with_unlabelled(table, texts, least_confidence=least)
    capsys.readouterr()
    assert len(confident(data, model, 23).unlabelled) == len(sure) - 7
    assert f"{len(sure) - 7} of {len(sure)} unlabelled texts have a label" in capsys.readouterr().err


def test_where_they_have_no_effect(texts: Path, teacher: Path, tmp_path: Path) -> None:
    data = pb.data.with_unlabelled(tiny_distillation.task_data(teacher), texts)
    with pytest.raises(UserError, match="unlabelled texts need a teacher; received them in fine-tuning"):
        pb.finetune(teacher, data, tmp_path / "run", config=FinetuneConfig(max_length=23))
    method = get_method("tinybert")(max_length=23, without=("embedding", "transformer", "prediction"))
    with pytest.raises(UserError, match="no stage learns from a teacher alone, so unlabelled texts have no effect"):
        plan_distillation(pb.TeacherLayers((1,)), data, teacher=teacher, method=method, run=RunConfig())


def command_line(texts: Path, teacher: Path, folder: Path) -> list[str]:
    table = tiny_finetuning.write_table(folder / "train.csv", tiny_finetuning.examples(60, seed=0))
    dev = tiny_finetuning.write_table(folder / "dev.csv", tiny_finetuning.examples(30, seed=1))
    return ["--method=tinybert", f"--teacher={teacher}", "--teacher-layers=1", f"--train-file={table}",
            f"--dev-file={dev}", "--labels=low,high", f"--unlabelled-file={texts}", "--max-length=23",
            "--without=embedding,transformer", "--prediction-epochs=1"]  # fmt: skip


def test_command_reads_the_file(texts: Path, teacher: Path, tmp_path: Path) -> None:
    line = [*command_line(texts, teacher, tmp_path), "--least-confidence=0.7", f"--output={tmp_path / 'run'}"]
    data = read_data(parse("distill", line))
    assert len(data.unlabelled) == 40 and data.least_confidence == 0.7


@pytest.mark.nightly
def test_cached_predictions_give_the_same_run(texts: Path, teacher: Path, tmp_path: Path) -> None:
    shared = command_line(texts, teacher, tmp_path)
    assert main(["cache-teacher", *shared, f"--output={tmp_path / 'cache'}", "--dtype=float32"]) == 0
    results = []
    for name, cache in (("live", []), ("cached", [f"--teacher-cache={tmp_path / 'cache'}"])):
        assert main(["distill", *shared, *cache, f"--output={tmp_path / name}"]) == 0
        results.append(json.loads((tmp_path / name / "result.json").read_text("utf-8")))
    live, cached = results
    assert live["steps"] == cached["steps"] and live["steps"] > -(-60 // 32)
    assert live["metrics"] == pytest.approx(cached["metrics"])


def test_pairs(teacher: Path, tmp_path: Path) -> None:
    frame: Any = pandas.DataFrame(
        {"text": [f"film {i}" for i in range(20)], "pair": ["plot"] * 20, "label": [0, 1] * 10}
    )
    data = pb.data.table(frame, pair="pair", dev=frame[:4].assign(pair="scene"))
    more = pb.data.with_unlabelled(data, frame[:6].assign(pair="actor"), pair="pair")
    assert more.unlabelled.pairs == ["actor"] * 6
    with pytest.raises(UserError, match="pairs: name the column of the second text"):
        pb.data.with_unlabelled(data, frame)
