"""Options of `pocketbert compress` that reach the result, and what its result says of them."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny_finetuning
import tiny_questions
from tiny_compression import TEACHER, compress_command, compress_fast, measurements

import pocketbert as pb
from pocketbert.tasks.registry import supervised_task
from pocketbert_bench.compression import budget, rungs
from pocketbert_bench.compression.inputs import check
from pocketbert_bench.compression.lengths import windows_per_example
from pocketbert_bench.compression.teacher import trained_teacher
from pocketbert_bench.compression.trial_examples import part_of
from pocketbert_export.verification.outcomes import ScoringData
from pocketbert_runtime.windows import WindowOptions, make_windows

WHOLE = f"layers=1-2,heads={TEACHER.num_attention_heads},neurons={TEACHER.intermediate_size},finetune"


@pytest.fixture
def inputs(compression_inputs: Path) -> Path:
    return compression_inputs


@pytest.fixture
def compress(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eager: None) -> Callable[..., int]:
    compress_fast(inputs, monkeypatch, any_model=True)
    return compress_command(inputs, tmp_path / "out", monkeypatch)


def result(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "out" / "result.json").read_text())
    return content


def test_classes_that_no_limit_checks_are_named(
    compress: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(budget, "_LEAST_DEV", 40)
    monkeypatch.setattr(budget, "_DEV_A_MINUTE", 0)
    # A bundle of random weights may lose all answers of a class.
    options = ("--minutes=9", f"--like={WHOLE}", "--max-latency-ms=9", "--threads=2")
    assert compress(*options, "--max-class-points-lost=0.5") == 0
    (note,) = [note for note in result(tmp_path)["notes"] if "did not check" in note]
    assert note == (
        "the choice did not check the points that low, high may lose, since fewer than 30 dev examples have the label"
    )
    assert "at 16 tokens, 2 threads" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_too_little_time_for_training_is_named_with_a_time_that_is_enough(
    compress: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(budget, "_ENDING_SECONDS", 52)
    options = (f"--like={WHOLE}", "--max-latency-ms=9")
    assert compress("--minutes=1", *options) == 0
    (note,) = [note for note in result(tmp_path)["notes"] if "left to train" in note]
    assert f"warning: {note}" in capsys.readouterr().err
    advised = re.fullmatch(r"only (\d) of \d\d seconds are left to train .*; with (--minutes=\d), .*", note)
    assert advised is not None
    # The run continues, or starts anew.
    for more in ((), ("--overwrite",)):
        assert compress(advised[2], *options, *more) == 0
        assert not [note for note in result(tmp_path)["notes"] if "left to train" in note]


def test_earlier_trials_of_a_continued_run_count_as_training(
    compress: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(budget, "_ENDING_SECONDS", 52)
    monkeypatch.setattr(rungs.Rungs, "seconds", 90.0)
    assert compress("--minutes=1", f"--like={WHOLE}", "--max-latency-ms=9") == 0
    assert not [note for note in result(tmp_path)["notes"] if "left to train" in note]


@pytest.mark.parametrize(
    ("minutes", "folds", "without_teacher", "training", "advised"),
    [
        (4.0, 0, 216.0, -50.0, 13),
        (4.0, 0, 216.0, 54.0, None),
        (60.0, 10, 392.0, 42.0, 108),
        (0.5, 0, -3.0, -10.0, 1),
    ],
)
def test_the_advised_time_is_always_longer(
    minutes: float, folds: int, without_teacher: float, training: float, advised: int | None
) -> None:
    inputs: Any = SimpleNamespace(minutes=minutes, folds=[None] * folds)
    sentence = budget.short_time(inputs, without_teacher, training)
    assert (f"minutes={advised}," in sentence) if advised else not sentence


@pytest.mark.parametrize(
    ("device", "limit", "share"), [("", None, 1.0), ("", 3.0, 0.25), ("", 13.0, 1.0), ("p", 3.0, 1.0)]
)
def test_a_student_answers_the_final_examples_in_less_time_than_its_teacher(
    device: str, limit: float | None, share: float
) -> None:
    constraints = SimpleNamespace(max_latency_ms=limit)
    inputs: Any = SimpleNamespace(device=SimpleNamespace(name=device), constraints=constraints)
    clock: Any = SimpleNamespace(recorded={budget.EXPORT: 20.0, budget.FINAL: 7.0})
    assert budget.ending_seconds(inputs, 12.0, clock) == pytest.approx(0.9 * 20 + 7 * share + 10)


def test_the_time_of_the_final_answers_is_known_before_the_trials(
    compress: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    score = ScoringData.score

    def slow(self: ScoringData, predictor: Any) -> Any:
        time.sleep(0.3)
        return score(self, predictor)

    monkeypatch.setattr(ScoringData, "score", slow)
    assert compress("--trials=1", f"--like={WHOLE}", "--max-latency-ms=9") == 0
    assert json.loads((tmp_path / "out" / "time.json").read_text())[budget.FINAL] >= 0.3


def test_a_teacher_that_is_faster_makes_no_bundle_faster(
    compress: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    measure = measurements(teacher_slower=0.5)
    monkeypatch.setattr("pocketbert_bench.compression.measurements.measure", measure)
    assert compress("--trials=1", f"--like={WHOLE}", "--max-latency-ms=9") == 0
    assert result(tmp_path)["sentence"].endswith(" points below the teacher's bundle, 2.0 times slower")


@pytest.mark.parametrize(
    ("positions", "length", "read"), [(512, 208, 208), (512, 48, 128), (160, 160, 160), (96, 80, 96)]
)
def test_a_new_teacher_reads_as_much_as_the_bundle(
    positions: int, length: int, read: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lengths = []

    def finetune(*_: Any, config: pb.FinetuneConfig, **others: Any) -> SimpleNamespace:
        lengths.append(config.max_length)
        return SimpleNamespace(model_directory=tmp_path)

    monkeypatch.setattr("pocketbert_bench.compression.teacher.finetune", finetune)
    rows = {"text": [f"text {number}" for number in range(30)], "label": ["low", "high", "mid"] * 10}
    described = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=positions))
    inputs: Any = SimpleNamespace(
        is_teacher=False,
        directory=tmp_path,
        described=described,
        length=length,
        head_examples=7,
        splits=SimpleNamespace(data=pb.data.table(rows)),
        seed=0,
    )
    trained_teacher(inputs, tmp_path, math.inf, lambda name, value: value())
    assert lengths == [read]


def test_seconds_of_a_teacher_from_elsewhere_do_not_count(
    compress: Callable[..., int], inputs: Path, tmp_path: Path
) -> None:
    shutil.copytree(inputs / "teacher", tmp_path / "teacher" / "model")
    other = {"main_metric": "accuracy", "metrics": {"accuracy": 0.5}, "seconds": 1e6}
    (tmp_path / "teacher" / "result.json").write_text(json.dumps(other))
    assert compress(f"--model={tmp_path / 'teacher' / 'model'}", "--trials=1", "--max-latency-ms=9") == 0
    content = result(tmp_path)
    assert content["training_seconds"] == sum(row["training_seconds"] for row in content["leaderboard"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--metric=bleu"], "a metric for classification with 2 labels must be one of accuracy, "),
        (["--task=xnli", "--data=.", "--test-file=few.csv"], "--test-file must be used with --train-file alone"),
    ],
)
def test_options_that_nothing_would_read_are_refused(
    options: list[str],
    message: str,
    compress: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    assert compress("--trials=1", *options) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_a_part_of_the_examples_has_every_class(inputs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = tiny_finetuning.examples(420, seed=5)
    assert rows.labels is not None
    few = min(np.bincount(rows.labels))
    # The classes take turns, so every second row has the same one.
    order = np.stack([np.flatnonzero(rows.labels == label)[:few] for label in (0, 1)], axis=1).ravel()[:200]
    dev = tiny_finetuning.write_table(tmp_path / "dev.csv", rows.select(order))
    monkeypatch.setattr(budget, "_LEAST_DEV", 100)
    monkeypatch.setattr(budget, "_DEV_A_MINUTE", 0)
    data, limits = pb.data.table(inputs / "train.csv", dev=dev), pb.Constraints(length=16)
    checked = check(inputs / "teacher", data, constraints=limits, minutes=9)
    clock: Any = SimpleNamespace(record=lambda name, value: value())
    chosen = budget.with_few_examples(checked, 1.0, clock).splits.data.dev
    assert chosen.classes is not None and np.bincount(chosen.classes).tolist() == [50, 50]
    part = part_of(dataclasses.replace(checked.splits.data, train=checked.splits.data.dev), 0.5).train
    assert part.classes is not None and np.bincount(part.classes).tolist() == [50, 50]


@pytest.mark.parametrize(("teacher_ms", "count"), [(10.0, 90), (360.0, 30), (9000.0, 13)])
def test_a_slow_teacher_answers_fewer_dev_examples(
    teacher_ms: float, count: int, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in {"_LEAST_DEV": 90, "_DEV_A_MINUTE": 0, "_FEWEST_DEV": 13}.items():
        monkeypatch.setattr(budget, name, number)
    data, limits = pb.data.table(inputs / "train.csv"), pb.Constraints(length=16)
    checked = check(inputs / "teacher", data, constraints=limits, minutes=9)
    clock: Any = SimpleNamespace(record=lambda name, value: value())
    # 360 ms for 30 examples are 2 % of 9 minutes.
    assert len(budget.with_few_examples(checked, teacher_ms, clock).splits.data.dev) == count


def test_separate_texts_of_a_pair_are_measured_together(inputs: Path, tmp_path: Path) -> None:
    rows = tiny_finetuning.examples(30, seed=5)
    lines = [f"{text}\t{text}\t{score % 5}" for score, text in enumerate(rows.texts)]
    (tmp_path / "pairs.tsv").write_text("\n".join(["text\tother\tlabel", *lines]) + "\n", encoding="utf-8")
    data = pb.data.table(tmp_path / "pairs.tsv", pair="other")
    separate = dataclasses.replace(data, task=dataclasses.replace(data.task, pairs="separate"))
    assert [windows_per_example(inputs / "teacher", one, 16) for one in (data, separate)] == [1, 1]


def test_each_window_of_a_question_takes_the_time_of_a_text(inputs: Path, tmp_path: Path) -> None:
    train = tiny_questions.write_questions(tmp_path / "train.json", 23, 1)
    data = pb.data.questions(train, dev=tiny_questions.write_questions(tmp_path / "dev.json", 41, 2))
    tokenizer = pb.from_pretrained(inputs / "teacher").tokenizer
    windows = make_windows([*data.dev], tokenizer, WindowOptions(max_length=tiny_questions.MAX_LENGTH))
    assert len(windows) > 41
    assert windows_per_example(inputs / "teacher", data, tiny_questions.MAX_LENGTH) == len(windows) / 41


def test_tags_take_the_order_of_the_model(inputs: Path, tmp_path: Path) -> None:
    kinds = {**dict.fromkeys(tiny_finetuning.GOOD, "B-PER"), **dict.fromkeys(tiny_finetuning.BAD, "B-LOC")}
    texts = tiny_finetuning.examples(130, seed=7).texts
    sentences = ["".join(f"{word} {kinds.get(word, 'O')}\n" for word in text.split()) for text in texts]
    (tmp_path / "names.conll").write_text("\n".join(sentences))
    data, labels = pb.data.tagged(tmp_path / "names.conll"), ("I-PER", "B-LOC", "O", "B-PER", "I-LOC")
    task = pb.TaskConfig(kind="token_classification", labels=labels)
    tokenizer = pb.from_pretrained(inputs / "teacher").tokenizer
    pb.from_preset(TEACHER, [task], tokenizer, seed=4).save_pretrained(tmp_path / "names")
    checked = check(tmp_path / "names", data, constraints=pb.Constraints(length=16), trials=1)
    assert checked.is_teacher and checked.splits.data.task.labels == labels != data.task.labels
    of_model, of_data = (
        np.array([*one.labels, "none"])[supervised_task(one).encode(data.train, tokenizer, 16).labels]
        for one in (checked.splits.data.task, data.task)
    )
    assert np.array_equal(of_model, of_data) and {*of_model.ravel()} == {"none", "O", "B-PER", "B-LOC"}


def test_all_scores_have_the_metric_of_the_data(inputs: Path, tmp_path: Path) -> None:
    # By its name, the teacher's task has F1.
    task = dataclasses.replace(tiny_finetuning.TASK, name="mrpc")
    tokenizer = pb.from_pretrained(inputs / "teacher").tokenizer
    pb.from_preset(TEACHER, [task], tokenizer, seed=4).save_pretrained(tmp_path / "named")
    data = pb.data.table(inputs / "train.csv")
    checked = check(tmp_path / "named", data, constraints=pb.Constraints(length=16), trials=1)
    assert checked.is_teacher and not data.main_metric
    final = checked.splits.final
    assert final is not None and (checked.splits.data.main_metric, final.main_metric) == ("accuracy", "accuracy")
