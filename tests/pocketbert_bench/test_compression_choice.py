"""Which candidate `pocketbert compress` chooses, and what it says about it."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.stats
import tiny_finetuning
from tiny_compression import COSTS, TEACHER, compress_command, compress_fast, export_once, train_briefly
from tiny_models import edit_tensors

import pocketbert as pb
from pocketbert.checkpoints.name_maps import parameter_count
from pocketbert.cli import main
from pocketbert.tasks.scores import Baseline
from pocketbert.trials.journal import Journal
from pocketbert_bench.compression import budget, choice, final_scores, run, rungs, space, students
from pocketbert_bench.compression.inputs import Inputs, check
from pocketbert_bench.compression.journal import Trial
from pocketbert_bench.compression.methods import TrialData
from pocketbert_bench.paired_scores import PartLoss
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.quantization.scored_texts import Loss
from pocketbert_export.verification.verify import GateFailed


@pytest.fixture
def inputs(compression_inputs: Path) -> Path:
    return compression_inputs


@pytest.fixture
def compress(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    return compress_command(inputs, tmp_path / "out", monkeypatch)


@pytest.fixture
def compress_untrained(
    compress: Callable[..., int], inputs: Path, monkeypatch: pytest.MonkeyPatch, eager: None
) -> Callable[..., int]:
    compress_fast(inputs, monkeypatch, any_model=True)
    return compress


def result(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "out" / "result.json").read_text())
    return content


def answer_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates give half of the dev texts each label; untrained ones would answer all texts as the teacher does."""
    train = rungs.train_trial

    def train_and_shift(shared: TrialData, point: Any, seed: int, folder: Path) -> None:
        train(shared, point, seed, folder)
        model, texts = pb.from_pretrained(folder / "model"), [*shared.data.dev.texts]  # type: ignore[union-attr]
        low, high = model(model.tokenizer(texts, max_length=16))["logits"].numpy().T
        edit_tensors(folder / "model", lambda arrays: arrays["classifier.bias"].put(0, np.median(high - low)))

    monkeypatch.setattr(rungs, "train_trial", train_and_shift)


@pytest.mark.one_of_each("loss0-fast", "loss2-best")
@pytest.mark.parametrize(
    ("loss", "chosen"),
    [(Loss(0.5, (-1.0, 2.0)), "fast"), (Loss(-0.5, (-2.0, 1.0)), "fast"), (Loss(3.0, (1.0, 5.0)), "best")],
)
def test_the_faster_of_two_candidates_that_dev_does_not_tell_apart(
    loss: Loss, chosen: str, compress_untrained: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def half(inputs: Inputs, teacher_ms: float, clock: Any) -> Inputs:
        data = inputs.splits.data
        data = dataclasses.replace(data, dev=data.dev.select(range(len(data.dev) // 2)))
        return dataclasses.replace(inputs, splits=dataclasses.replace(inputs.splits, data=data))

    # The whole dev split compares them, although half of it has chosen them.
    monkeypatch.setattr(run, "with_few_examples", half)
    monkeypatch.setattr(choice, "paired_loss", lambda _, __, dev, ___: loss if len(dev) == 100 else None)
    assert compress_untrained("--trials=2", "--max-latency-ms=9") == 0
    rows = result(tmp_path)["leaderboard"]
    assert len({row["latency_ms"] for row in rows}) == len(rows) == 2
    expected = min(rows, key=lambda row: row["latency_ms"]) if chosen == "fast" else rows[0]
    assert [row for row in rows if row["chosen"]] == [expected]
    notes = [note for note in result(tmp_path)["notes"] if "do not tell" in note]
    assert len(notes) == (chosen == "fast" and expected is not rows[0])
    words = "loses 0.5 points (-1.0 to 2.0)" if loss.points > 0 else "gains 0.5 points (-1.0 to 2.0)"
    assert all(f": it {words}, with its 95 % interval; so the faster one is chosen" in note for note in notes)


def test_final_loss_is_that_of_the_answers(compress: Callable[..., int], inputs: Path, tmp_path: Path) -> None:
    final = tmp_path / "final.csv"
    tiny_finetuning.write_table(final, tiny_finetuning.examples(240, seed=9))
    with final.open(encoding="utf-8", newline="") as table:
        shops = ["east" if number % 3 else "west" if number > 30 else "north" for number in range(240)]
        rows = [{**row, "shop": shop} for shop, row in zip(shops, csv.DictReader(table), strict=True)]
    with final.open("w", encoding="utf-8", newline="") as table:
        writer = csv.DictWriter(table, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    assert compress("--trials=1", "--max-latency-ms=9", f"--test-file={final}", "--slice-column=shop") == 0
    written = result(tmp_path)
    # Texts of the training table are left out.
    with (inputs / "train.csv").open(encoding="utf-8", newline="") as table:
        known = {row["text"] for row in csv.DictReader(table)}
    rows = [row for row in rows if row["text"] not in known]
    texts, labels = [row["text"] for row in rows], [row["label"] for row in rows]
    right, right_of_teacher = (
        np.array([answer["label"] for answer in Bundle.open(tmp_path / "out" / name).predict(texts)]) == labels
        for name in ("bundle", "teacher_bundle")
    )
    assert written["metrics"]["accuracy"] == pytest.approx(right.mean())
    assert written["teacher_score"] == pytest.approx(right_of_teacher.mean())
    lost = 100 * (right_of_teacher * 1.0 - right)
    assert written["points_lost"][0] == pytest.approx(lost.mean())
    parts = {(part["column"], part["value"]): part["points"] for part in written["parts"]}
    groups = {"label": np.array(labels), "shop": np.array([row["shop"] for row in rows])}
    assert parts == {
        (column, value): pytest.approx(lost[groups[column] == value].mean())
        for column, value in [("label", "high"), ("label", "low"), ("shop", "east"), ("shop", "west")]
    }
    assert "classes and slices with fewer than 30 final examples, which have no row: 1" in written["notes"]
    column, value = max(parts, key=lambda part: parts[part])
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert f"the largest loss or least gain: {column} &#39;{value}&#39; " in page


@pytest.mark.parametrize(("most", "code"), [("4.9", 1), ("5", 0)])
def test_no_class_may_lose_more(
    most: str,
    code: int,
    compress_untrained: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    worst = PartLoss(column="label", value="low", examples=44, points=5.0, interval=(1.0, 9.0))
    monkeypatch.setattr(choice.PairedScores, "parts", lambda *_: ([worst], 0))
    assert compress_untrained("--trials=1", "--max-latency-ms=9", f"--max-class-points-lost={most}") == code
    message = "label 'low' loses 5.0 points (1.0 to 9.0) on 44 examples of the dev split"
    assert (message in capsys.readouterr().err.splitlines()[-1]) == bool(code)


@pytest.mark.nightly
def test_the_winner_of_another_run_is_made_again(
    compress_untrained: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compress_untrained("--trials=3", "--max-latency-ms=9") == 0
    (winner,) = [row for row in result(tmp_path)["leaderboard"] if row["chosen"]]
    earlier = (tmp_path / "out").rename(tmp_path / "earlier")
    assert compress_untrained("--trials=1", f"--like={earlier}", "--max-latency-ms=2") == 2
    assert compress_untrained("--trials=1", f"--like={earlier / 'bundle'}") == 2
    assert not (tmp_path / "out").exists()
    assert compress_untrained("--trials=1", f"--like={earlier}", "--seed=7") == 0
    rows = result(tmp_path)["leaderboard"]
    assert [(row["name"], row["recipe"]) for row in rows] == [(winner["name"], winner["recipe"])]
    # Or by its name in the leaderboard, without the run.
    assert compress_untrained("--trials=1", f"--like={winner['name']}", "--seed=7", "--overwrite") == 0
    assert [row["name"] for row in result(tmp_path)["leaderboard"]] == [winner["name"]]
    assert compress_untrained("--trials=1", "--like=layers=9,heads=5,neurons=41,finetune", "--overwrite") == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("pocketbert compress: ")]
    assert f"the nearest, {winner['structure']}, has about" in errors[0]
    assert "must be a finished run of pocketbert compress; it has no leaderboard.json" in errors[1]
    assert "received layers=9,heads=5,neurons=41,finetune; pass" in errors[2] and "--unlabelled-file" in errors[2]


def test_the_fastest_within_the_points(compress_untrained: Callable[..., int], tmp_path: Path) -> None:
    assert compress_untrained("--trials=4", "--max-points-lost=100") == 0
    rows = result(tmp_path)["leaderboard"]
    (winner,) = [row for row in rows if row["chosen"]]
    # The smallest network loses less than that untrained, so the search begins and ends there.
    assert (winner["structure"], len(rows)) == ("layers=1,heads=2,neurons=10", 4)
    assert [row["latency_ms"] for row in rows] == pytest.approx(4 * [1 + 0.1 * 2 + 0.01 * 10])


def test_labels_take_the_order_of_the_teacher(inputs: Path) -> None:
    data, limits = pb.data.table(inputs / "train.csv"), pb.Constraints(length=16)
    read = check(inputs / "teacher", data, constraints=limits, trials=1).splits.data.train
    with (inputs / "train.csv").open(encoding="utf-8", newline="") as table:
        labels = {row["text"]: row["label"] for row in csv.DictReader(table)}
    assert data.task.labels == ("high", "low")
    assert [("low", "high")[label] for label in read.labels] == [labels[text] for text in read.texts]


@pytest.mark.nightly
def test_labels_in_another_order_keep_their_names(
    compress: Callable[..., int], inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_briefly(monkeypatch, steps=36)
    # The teacher has the order low, high; the table's labels are in alphabetical order.
    assert compress("--trials=1", "--max-latency-ms=9") == 0
    bundle = Bundle.open(tmp_path / "out" / "bundle")
    assert bundle.task is not None and bundle.task.labels == ("low", "high")
    with (inputs / "train.csv").open(encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table))
    answers = bundle.predict([row["text"] for row in rows])
    right = np.mean([answer["label"] == row["label"] for answer, row in zip(answers, rows, strict=True)])
    assert right > 0.9


def test_points_that_the_final_split_cannot_show(
    compress_untrained: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(choice.PairedScores, "loss", lambda _: Loss(2.0, (-7.0, 101.0)))
    assert compress_untrained("--trials=1", "--max-points-lost=100") == 0
    assert "100 examples cannot show that at most 100 points are lost: " in result(tmp_path)["sentence"]


def test_points_that_no_candidate_keeps(
    compress_untrained: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    perfect = property(lambda self: {"metric": "accuracy", "score": 1.0, "baselines": []})
    monkeypatch.setattr(choice.Choice, "teacher_outcome", perfect)
    assert compress_untrained("--trials=1", "--max-points-lost=0.001") == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert "no trained candidate met limits and gate: the nearest, layers=" in message
    assert "points on the dev split" in message


def test_without_a_limit_the_fastest_near_the_best(compress_untrained: Callable[..., int], tmp_path: Path) -> None:
    assert compress_untrained("--trials=5") == 0
    content = result(tmp_path)
    rows = content["leaderboard"]
    (winner,) = [row for row in rows if row["chosen"]]
    # Wilson's interval of the best accuracy on 100 dev examples.
    interval = scipy.stats.binomtest(round(100 * rows[0]["score"]), 100).proportion_ci(method="wilson")
    least = rows[0]["score"] - (interval.high - interval.low) / (2 * scipy.stats.norm.ppf(0.975))
    near = [row for row in rows if row["score"] >= least]
    assert winner == min(near, key=lambda row: row["latency_ms"])
    assert content["notes"][0].startswith("the fastest candidate within one standard error")


def test_memory_limits_that_nothing_meets(compress: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert compress("--trials=1", "--max-memory-mb=8") == 2
    assert "9 MB of memory as dynamic_wi8; raise the limit" in capsys.readouterr().err.splitlines()[-1]


def test_dry_run_lists_candidates_and_writes_nothing(
    compress: Callable[..., int], inputs: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert compress("--trials=1", "--max-latency-ms=1.5", "--dry-run") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["method"] for row in rows if "rate" not in row["method"]} == {
        "finetune",
        "predictions",
        "tinybert",
        "minilmv2",
        "hsk",
    }
    assert all(row["latency_ms"] <= 1.5 and row["memory_mb"] == 9 for row in rows)
    assert not (tmp_path / "out").exists()
    command = ["compress", f"--model={inputs / 'teacher'}", f"--train-file={inputs / 'train'}.csv", "--length=16"]
    command.append("--max-latency-ms=1.5")
    assert main([*command, "--dry-run"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == rows
    assert main([*command, "--trials=1"]) == 2
    assert "--output is required; received none" in capsys.readouterr().err


@pytest.mark.usefixtures("eager")
def test_full_disks_are_refused_before_anything_is_written(
    compress: Callable[..., int],
    inputs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    usage = shutil.disk_usage(tmp_path)
    free = [1000]
    monkeypatch.setattr(space.shutil, "disk_usage", lambda _: usage._replace(free=free[0]))

    def needed(*options: str) -> int:
        assert compress("--max-latency-ms=9", *options) == 2
        message = capsys.readouterr().err.splitlines()[-1]
        assert not (tmp_path / "out").exists()
        return int(message.partition("must have ")[2].partition(" free bytes")[0].replace(",", ""))

    one = needed("--trials=1")
    with monkeypatch.context() as patched:
        patched.setattr(run, "measured_costs", lambda _: {"dynamic_wi8": dataclasses.replace(COSTS, size=5 * [0.0])})
        patched.setattr(space, "_SMALL_FILES", 0)
        # Each of two workers has initial and best weights, and two checkpoints of weights and two moments.
        assert needed("--trials=2", "--parallel=2") - needed("--trials=2") == 8 * 4 * parameter_count(TEACHER)
    # In a long time, 24 candidates keep their weights.
    assert one < needed("--trials=23") < needed("--trials=24") == needed("--trials=25") == needed("--minutes=90")
    free[0] = one - 1
    assert needed("--trials=1") == one
    sizes: list[int] = []
    add = Journal.add

    def add_and_weigh(self: Journal[Trial], trial: Trial) -> None:
        print("a library's warning")
        sizes.append(sum(path.stat().st_size for path in (tmp_path / "out").rglob("*") if path.is_file()))
        add(self, trial)

    monkeypatch.setattr(Journal, "add", add_and_weigh)
    free[0] = one
    # The largest candidate trains for an epoch of four steps.
    monkeypatch.setattr(rungs, "_FACTORS", (1, 1, 1))
    export_once(inputs / "exports", monkeypatch, any_data=True, any_model=True)
    heads, neurons = TEACHER.num_attention_heads, TEACHER.intermediate_size
    options = (f"--like=layers=1-2,heads={heads},neurons={neurons},finetune", f"--test-file={inputs / 'train.csv'}")
    assert compress("--max-latency-ms=9", "--trials=1", "--seed=5", *options, table="few") == 0
    assert max(sizes) < one
    assert json.loads((tmp_path / "out" / "run.json").read_text())["seed"] == 5
    assert json.loads(capsys.readouterr().out)["trials"] == 1


def test_a_time_without_a_trial_is_refused(
    compress: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert compress("--minutes=0.4", "--max-latency-ms=9") == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert "--minutes must be at least 0.7 for one trial; received 0.4; pass more" in message
    assert not (tmp_path / "out").exists()


def test_small_files_get_four_bits(
    compress: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    half = dataclasses.replace(COSTS, size=[0.5] + 4 * [0.0])
    monkeypatch.setattr(run, "measured_costs", lambda _: {"dynamic_wi8": COSTS, "dynamic_wi4": half})
    for limit, recipe in (("1.0", "dynamic_wi8"), ("0.9", "dynamic_wi4")):
        assert compress("--trials=1", f"--max-mb={limit}", "--dry-run") == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert {row["recipe"] for row in rows} == {recipe}


def test_a_teacher_below_a_simple_method(
    compress_untrained: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    for module in (choice, final_scores):
        monkeypatch.setattr(module, "simple_methods", lambda *_: [Baseline(name="word counts", score=1.0)])
    assert compress_untrained("--trials=1", "--max-latency-ms=9", "--stop-below-baseline") == 1
    assert "the teacher is below the baseline: accuracy 0." in capsys.readouterr().err.splitlines()[-1]
    assert compress_untrained("--trials=1", "--max-latency-ms=9", "--overwrite") == 0
    assert "warning: the teacher is below the baseline" in capsys.readouterr().err
    assert result(tmp_path)["sentence"].startswith("below the baseline (word counts has 100.0): ")


@pytest.mark.parametrize(("minutes", "count", "head"), [(0.1, 20, 30), (0.2, 40, 60), (9.0, 100, 2700)])
def test_short_times_read_a_part_of_the_examples(
    minutes: float, count: int, head: int, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "_LEAST_DEV", 20)
    monkeypatch.setattr(budget, "_DEV_A_MINUTE", 200)
    data, limits = pb.data.table(inputs / "train.csv"), pb.Constraints(length=16)
    options: dict[str, Any] = dict.fromkeys(("trials", "measurements", "kfold", "recipe", "text"))
    options |= {"students": (), "stop_below_baseline": False, "seed": 0}
    checked = check(inputs / "teacher", data, constraints=limits, minutes=minutes, **options)
    whole, numbers = checked.splits.data, dict[str, float]()
    clock: Any = SimpleNamespace(record=lambda name, value: numbers.setdefault(name, value()))
    shortened = budget.with_few_examples(checked, 1.0, clock)
    few = shortened.splits.data
    assert len(whole.dev) == 100 and len(few.dev) == count and set(few.dev.texts) <= set(whole.dev.texts)
    # Three times as many compare the best two candidates.
    compared = shortened.compared
    assert len(compared) == min(3 * count, 100) and set(compared.texts) <= set(whole.dev.texts)
    assert few.train is whole.train and shortened.head_examples == head
    # More time later compares with the same examples.
    longer = dataclasses.replace(checked, minutes=9.0)
    continued = budget.with_few_examples(longer, 1.0, clock)
    assert (len(continued.splits.data.dev), continued.head_examples) == (count, head)


class Refused(GateFailed):
    def __init__(self) -> None:
        Exception.__init__(self, "the outputs differ")


@pytest.mark.nightly
def test_teacher_that_fails_the_gate_is_compared_as_float32(
    compress_untrained: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    real = choice.export

    def export(model: Path, path: Path, *, recipe: str, **options: Any) -> Bundle:
        if path.name == "teacher_bundle" and recipe != "float32":
            raise Refused
        return real(model, path, recipe=recipe, **options)

    monkeypatch.setattr(choice, "export", export)
    assert compress_untrained("--trials=1", "--max-latency-ms=9") == 0
    sentence = "the teacher's bundle is float32, since as dynamic_wi8 it fails the gate"
    assert f"{sentence}: the outputs differ" in capsys.readouterr().err and sentence in result(tmp_path)["notes"]
    recipes = [Bundle.open(tmp_path / "out" / name).recipe for name in ("teacher_bundle", "bundle")]
    assert recipes == ["float32", "dynamic_wi8"]


@pytest.mark.parametrize("continued", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_few_examples_are_scored_in_folds(
    continued: bool, compress: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = run.score_fold
    scored: list[Path] = []

    def score_and_die(inputs: Any, teacher: Path, student: Path, path: Path) -> None:
        real(inputs, teacher, student, path)
        scored.append(path)
        if len(scored) == 1:
            raise SystemExit(9)

    measure_importance = students.measure_importance
    read: dict[str, int] = {}

    def measure(model: Any, encoded: Any, path: Path, **options: Any) -> Any:
        read[path.parent.name] = len(encoded)
        return measure_importance(model, encoded, path, **options)

    monkeypatch.setattr(run, "score_fold", score_and_die)
    monkeypatch.setattr(students, "measure_importance", measure)
    # Within this limit the slowest candidates have fewer heads.
    options = ["--trials=1", "--max-latency-ms=2.9", "--kfold=2"]
    with pytest.raises(SystemExit):
        compress(*options, table="few")
    assert compress(*options, table="few") == 0
    # 75 of 150 examples are not final in a fold, and 12 of these are its dev split.
    assert read == {"fold-0": 63, "fold-1": 63, "out": 127}
    assert [path.parent.name for path in scored] == ["fold-0", "fold-1"]
    content = result(tmp_path)
    folds = [json.loads(path.read_text()) for path in scored]
    assert sum(fold["examples"] for fold in folds) == 150
    assert content["metrics"] == {"accuracy": pytest.approx(np.mean([fold["student"] for fold in folds]))}
    assert "150 examples in 2 folds that your model may know" in content["sentence"]
    assert (tmp_path / "out" / "bundle" / "model.tflite").exists()
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "The scores above are means over 2 folds" in page and "Means over the folds" in page
    assert "come from the final split" not in page and "on the final split</h" not in page
    if not continued:
        return
    # More trials continue after the folds, which keep their scores.
    assert compress("--trials=2", *options[1:], table="few") == 0
    assert len(scored) == 2 and result(tmp_path)["metrics"] == content["metrics"]
    assert "the scores of the folds are those of a smaller budget" in result(tmp_path)["notes"]
    assert len(result(tmp_path)["leaderboard"]) == 2
