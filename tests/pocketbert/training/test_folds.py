"""Cross-validation in fine-tuning: `kfold`."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import forks
import numpy as np
import pytest
import tiny_finetuning
from safetensors.numpy import load_file
from scipy.stats import spearmanr
from seqeval.metrics import f1_score as span_f1
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score
from sklearn.model_selection import StratifiedKFold

import pocketbert as pb
from pocketbert import cli
from pocketbert.data.examples import Examples
from pocketbert.data.final_split import folds_of
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.training import trainer
from pocketbert.training.config import CrossValidatedResult, FinetuneConfig, RunConfig
from pocketbert.training.finetune import finetune
from pocketbert.training.state import write_checkpoint
from pocketbert.training.trainer import train_seeds
from pocketbert.trials.jobs import read_result

pytestmark = pytest.mark.usefixtures("eager_module")
FOLDS = 3
# A rate with which the folds' best steps differ.
CONFIG = FinetuneConfig(
    learning_rate=3e-2, epochs=2, batch_size=8, max_length=23, contrastive_steps=0, head_start="random"
)
TAGGING = dataclasses.replace(CONFIG, learning_rate=1e-2, head_start="fit")
RUN = RunConfig(seed=5, evaluation_steps=2)
FLAGS = ["--learning-rate=3e-2", "--epochs=2", "--batch-size=8", "--max-length=23", "--contrastive-steps=0"]
FLAGS += ["--head-start=random", "--evaluation-steps=2", f"--kfold={FOLDS}"]


@pytest.fixture(scope="module")
def rows() -> Examples:
    """71 sentences, of which the first seven come again, once with the other label."""
    examples = tiny_finetuning.examples(71, seed=5)
    assert examples.labels is not None
    texts, labels = [*examples.texts, *examples.texts[:7]], np.append(examples.labels, examples.labels[:7])
    labels[-1] = 1 - labels[-1]
    return Examples(texts, None, labels, [str(number) for number in range(78)], "made for the test")


@pytest.fixture(scope="module")
def train_file(rows: Examples, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_finetuning.write_table(tmp_path_factory.mktemp("tables") / "moods.csv", rows)


@pytest.fixture(scope="module")
def data(train_file: Path) -> TaskData:
    return dataclasses.replace(pb.data.table(train_file), main_metric="macro_f1")


@pytest.fixture(scope="module")
def finished(start: Path, data: TaskData, tmp_path_factory: pytest.TempPathFactory) -> CrossValidatedResult:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    result = finetune(start, data, folder, config=CONFIG, run=RUN, kfold=FOLDS)
    assert isinstance(result, CrossValidatedResult)
    return result


def folder_of(result: CrossValidatedResult) -> Path:
    return Path(result.model_directory).parent


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def predictions_of(result: CrossValidatedResult) -> list[dict[str, Any]]:
    return lines_of(folder_of(result) / "predictions.jsonl")


def test_each_example_is_predicted_once(finished: CrossValidatedResult, rows: Examples) -> None:
    predictions = predictions_of(finished)
    assert rows.labels is not None
    labels = [tiny_finetuning.TASK.labels[label] for label in rows.labels]
    assert [(line["text"], line["true_label"]) for line in predictions] == list(zip(rows.texts, labels, strict=True))
    assert {line["fold"] for line in predictions} == {1, 2, 3}
    counts = Counter(line["fold"] for line in predictions)
    assert [fold["examples"] for fold in finished.cross_validation["folds"]] == [counts[1], counts[2], counts[3]]


def test_equal_texts_are_in_one_fold(finished: CrossValidatedResult) -> None:
    folds_by_text: dict[str, set[int]] = {}
    for line in predictions_of(finished):
        folds_by_text.setdefault(line["text"], set()).add(line["fold"])
    assert len(folds_by_text) < 78 and all(len(folds) == 1 for folds in folds_by_text.values())


def test_classes_keep_their_shares() -> None:
    labels = np.random.default_rng(3).choice(3, 89, p=[0.6, 0.3, 0.1])
    table = {"text": [f"text {number}" for number in range(89)], "label": [str(label) for label in labels]}
    folds = folds_of(pb.data.table(table), 4)
    counts = np.array([np.bincount(fold.final.dev.classes, minlength=3) for fold in folds if fold.final])
    expected = [np.bincount(labels[test]) for _, test in StratifiedKFold(4).split(labels, labels)]
    # Each class has as many examples as in another fold, or one more.
    assert (np.sort(counts, axis=0) == np.sort(expected, axis=0)).all()


def test_metrics_are_scikit_learns(finished: CrossValidatedResult) -> None:
    predictions = predictions_of(finished)
    folds = [[line for line in predictions if line["fold"] == number] for number in (1, 2, 3)]

    def score(lines: list[dict[str, Any]]) -> float:
        pairs = [(line["true_label"], line["label"]) for line in lines]
        return float(f1_score(*zip(*pairs, strict=True), average="macro"))

    expected = [score(lines) for lines in folds]
    spread = finished.cross_validation["metrics"]["macro_f1"]
    assert finished.metrics["macro_f1"] == spread["mean"] == pytest.approx(np.mean(expected))
    assert spread["standard_deviation"] == pytest.approx(np.std(expected, ddof=1)) and spread["standard_deviation"] > 0
    assert [fold["metrics"]["macro_f1"] for fold in finished.cross_validation["folds"]] == pytest.approx(expected)
    assert finished.cross_validation["pooled"]["macro_f1"] == pytest.approx(score(predictions))
    assert finished.outcome is not None and finished.outcome["folds"] == pytest.approx(expected)
    low, high = finished.outcome["interval"]
    assert low < np.mean(expected) < high
    truth, answers = zip(*[(line["true_label"], line["label"]) for line in predictions], strict=True)
    assert finished.classes is not None
    expected_matrix = confusion_matrix(truth, answers, labels=["high", "low"])
    assert finished.classes["confusion_matrix"] == expected_matrix.tolist()
    assert all(line["label"] == max(line["probabilities"], key=line["probabilities"].get) for line in predictions)


def test_a_fold_is_an_ordinary_run_on_the_others(
    finished: CrossValidatedResult, start: Path, data: TaskData, tmp_path: Path
) -> None:
    splits = folds_of(data, FOLDS)[1]
    assert splits.final is not None
    parts = [set(part.texts) for part in (splits.data.train, splits.data.dev, splits.final.dev)]
    assert not parts[0] & parts[2] and not parts[1] & parts[2]
    alone = finetune(start, splits.data, tmp_path / "alone", config=CONFIG, run=RUN)
    answers = alone.model.predict(splits.final.dev.texts)
    expected = [(answer["label"], answer["probabilities"]) for answer in answers]
    lines = [line for line in predictions_of(finished) if line["fold"] == 2]
    assert [(line["label"], line["probabilities"]) for line in lines] == expected
    assert finished.cross_validation["folds"][1]["best_step"] == alone.best_step


def test_model_has_median_steps_on_all_examples(
    finished: CrossValidatedResult, start: Path, data: TaskData, tmp_path: Path
) -> None:
    best_steps = [fold["best_step"] for fold in finished.cross_validation["folds"]]
    steps = int(np.median(best_steps))
    assert len(set(best_steps)) > 1 and finished.steps == finished.best_step == steps
    log = lines_of(folder_of(finished) / "metrics.jsonl")
    assert {line["split"] for line in log} == {"train"} and log[-1]["step"] == steps
    # An ordinary run with the same steps keeps its last weights beside the best ones.
    assert data.undivided is not None
    everything = dataclasses.replace(data, train=data.undivided, undivided=None)
    run = dataclasses.replace(RUN, max_steps=steps, keep_checkpoints=1)
    finetune(start, everything, tmp_path / "run", config=CONFIG, run=run)
    last = tmp_path / "run" / "checkpoints" / f"step-{steps:07d}" / "model"
    expected = load_file(last / "model.safetensors")
    for name, array in load_file(Path(finished.model_directory) / "model.safetensors").items():
        assert np.array_equal(array, expected[name]), name


def test_records_claim_no_dev_score(finished: CrossValidatedResult) -> None:
    folder = folder_of(finished)
    page = (folder / "report.html").read_text("utf-8")
    assert "as a mean over 3 folds of 78 examples" in page and "it has no score of its own" in page
    assert "development examples" not in page
    assert finished.outcome is not None and " over 3 folds on 78 examples" in finished.outcome["headline"]
    assert "has no dev score of its own" in finished.cross_validation["note"]
    record = json.loads((folder / "run.json").read_text("utf-8"))
    assert record["kfold"] == 3 and record["dev_sha256"] is None and "parts_sha256" not in record
    assert [stage["metrics"] for stage in finished.stages] == [{}]
    assert not list(folder.glob("folds/*/model")) and not list(folder.glob("folds/*/report.html"))


@pytest.mark.nightly
def test_interrupted_run_resumes_exactly(
    finished: CrossValidatedResult,
    start: Path,
    data: TaskData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is interrupted in the second fold, and the first one is not trained again."""
    run, output = dataclasses.replace(RUN, checkpoint_seconds=0.0), tmp_path / "run"
    calls = []

    def interrupting(*arguments: Any) -> None:
        write_checkpoint(*arguments)
        calls.append(arguments)
        if (output / "folds/fold-1.safetensors").exists() and len(calls) % 3 == 0:
            raise KeyboardInterrupt

    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        context.setattr(trainer, "write_checkpoint", interrupting)
        finetune(start, data, output, config=CONFIG, run=run, kfold=FOLDS)
    assert not (output / "folds/fold-2.safetensors").exists()
    with pytest.raises(UserError, match="an unfinished run with other options: kfold=3, received 4"):
        finetune(start, data, output, config=CONFIG, run=run, kfold=4)
    capsys.readouterr()
    finetune(start, data, output, config=CONFIG, run=run, kfold=FOLDS)
    messages = capsys.readouterr().err
    assert "resuming after step" in messages and "fold 1 of 3" not in messages
    for name in ("model/model.safetensors", "metrics.jsonl", "predictions.jsonl"):
        assert (output / name).read_bytes() == (folder_of(finished) / name).read_bytes(), name


# In the first fold, in the second one, and when a file of the third one is in its place.
@pytest.mark.parametrize(
    "moments",
    [
        pytest.param("step:4,step:20,placed:9", marks=pytest.mark.nightly),
        pytest.param("aside:3,placed:6,step:15,aside:5,placed:3,step:2", marks=pytest.mark.slow),
    ],
)
def test_killed_runs_resume_exactly(
    moments: str,
    finished: CrossValidatedResult,
    start: Path,
    train_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["finetune", f"--model={start}", f"--train-file={train_file}", *FLAGS, "--seeds=5", "--metric=macro_f1"]
    output = tmp_path / "killed"
    answer = forks.run_killed(moments, [*command, "--checkpoint-seconds=0", f"--output={output}"], EAGER="1")
    assert answer.returncode == 0, answer.stderr
    for name in ("model/model.safetensors", "metrics.jsonl", "predictions.jsonl"):
        assert (output / name).read_bytes() == (folder_of(finished) / name).read_bytes(), name
    results = [read_result(folder / "result.json") for folder in (output, folder_of(finished))]
    for result in results:
        result["seconds"] = 0
        for fold in result["cross_validation"]["folds"]:
            fold["seconds"] = 0
    assert results[0] == results[1]
    assert not list(output.rglob(".*.partial"))
    # The file repeats the run.
    assert "kfold = 3\n" in (output / "run.toml").read_text("utf-8")
    assert cli.main(["finetune", f"--config={output / 'run.toml'}"]) == 0
    assert "this run is finished" in capsys.readouterr().err


@pytest.mark.nightly
def test_finished_folds_are_not_trained_again(
    start: Path, data: TaskData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pocketbert.training import folds

    def full(*_: Any) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as context:
        context.setattr(folds, "write_text", full)
        with pytest.raises(OSError, match="the disk is full"):
            finetune(start, data, tmp_path / "run", config=CONFIG, run=RUN, kfold=2)
    assert "fold 2 of 2" in capsys.readouterr().err
    result = finetune(start, data, tmp_path / "run", config=CONFIG, run=RUN, kfold=2)
    assert "fold 1 of 2" not in capsys.readouterr().err
    assert isinstance(result, CrossValidatedResult)
    # A median between two numbers is rounded down.
    assert result.steps == int(np.median([fold["best_step"] for fold in result.cross_validation["folds"]]))
    with pytest.raises(UserError, match="a finished run with other options: kfold=2, received 3"):
        finetune(start, data, tmp_path / "run", config=CONFIG, run=RUN, kfold=3)


@pytest.mark.nightly
def test_seeds_have_the_same_folds(start: Path, tmp_path: Path) -> None:
    # Dev splits of 21 examples, enough for a temperature.
    train = tiny_finetuning.write_table(tmp_path / "train.csv", tiny_finetuning.examples(280, seed=4))
    output, run = tmp_path / "seeds", RunConfig(max_steps=1)
    summary = train_seeds(finetune, (3, 4), start, pb.data.table(train), output, config=CONFIG, run=run, kfold=2)
    values = [run["metrics"]["accuracy"] for run in summary["runs"]]
    assert summary["metrics"]["accuracy"]["mean"] == pytest.approx(np.mean(values)) and values[0] != values[1]
    folders = [tmp_path / "seeds" / f"seed-{seed}" for seed in (3, 4)]
    folds = [[line["fold"] for line in lines_of(folder / "predictions.jsonl")] for folder in folders]
    assert folds[0] == folds[1]
    for run, folder in zip(summary["runs"], folders, strict=True):
        results = [read_result(folder / "folds" / f"fold-{number}" / "result.json") for number in (1, 2)]
        temperatures = [result["head"]["temperature"] for result in results]
        assert run["head"]["temperature"] == np.median(temperatures) != 1


@pytest.mark.nightly
def test_scores_have_folds(start: Path, tmp_path: Path) -> None:
    texts = tiny_finetuning.examples(43, seed=2).texts
    scores = [len(text) / 10 for text in texts]
    data = pb.data.table({"text": texts, "label": scores}, kind="regression")
    result = finetune(start, data, tmp_path / "run", config=dataclasses.replace(CONFIG, epochs=1), kfold=2)
    assert isinstance(result, CrossValidatedResult)
    predictions = predictions_of(result)
    assert [line["true_score"] for line in predictions] == pytest.approx(scores, abs=1e-6)
    columns = [
        [(line["true_score"], line["score"]) for line in predictions if line["fold"] == number] for number in (1, 2)
    ]
    assert result.metrics["spearman"] == pytest.approx(np.mean([spearmanr(column)[0] for column in columns]))


@pytest.mark.nightly
def test_several_labels_have_folds(start: Path, tmp_path: Path) -> None:
    examples = tiny_finetuning.examples(43, seed=2)
    names = [["odd", "low"] if number % 3 == 1 else ["low"] if number % 2 else [] for number in range(43)]
    data = pb.data.table({"text": examples.texts, "label": names}, kind="multi_label")
    result = finetune(start, data, tmp_path / "run", config=dataclasses.replace(CONFIG, epochs=1), kfold=2)
    assert isinstance(result, CrossValidatedResult)
    predictions = predictions_of(result)
    assert [sorted(line["true_labels"]) for line in predictions] == [sorted(labels) for labels in names]

    def matrix(lines: list[dict[str, Any]], name: str) -> np.ndarray:
        return np.array([["odd" in line[name], "low" in line[name]] for line in lines], int)

    folds = [[line for line in predictions if line["fold"] == fold] for fold in (1, 2)]
    expected = [accuracy_score(matrix(lines, "true_labels"), matrix(lines, "labels")) for lines in folds]
    assert result.metrics["subset_accuracy"] == pytest.approx(np.mean(expected))


@pytest.mark.nightly
def test_spans_have_folds(start: Path, tmp_path: Path) -> None:
    texts = tiny_finetuning.examples(37, seed=2).texts
    good = {*tiny_finetuning.GOOD}
    tags = [["B-MOOD" if word in good else "O" for word in text.split()] for text in texts]
    lines = [
        "".join(f"{word} {tag}\n" for word, tag in zip(text.split(), row, strict=True))
        for text, row in zip(texts, tags, strict=True)
    ]
    path = tmp_path / "train.conll"
    path.write_text("\n".join(lines), encoding="utf-8")
    result = finetune(start, pb.data.tagged(path), tmp_path / "run", config=TAGGING, kfold=2)
    assert isinstance(result, CrossValidatedResult)
    predictions = predictions_of(result)
    assert [line["text"] for line in predictions] == texts

    def words(line: dict[str, Any], name: str) -> list[str]:
        starts = {span["start"]: span["end"] for span in line[name]}
        tags_of_words, place, end = [], 0, 0
        for word in line["text"].split():
            end = starts.get(place, end)
            tags_of_words.append("B-MOOD" if place in starts else "I-MOOD" if place < end else "O")
            place += len(word) + 1
        return tags_of_words

    assert [words(line, "true_spans") for line in predictions] == tags
    expected = []
    for number in (1, 2):
        lines_of_fold = [line for line in predictions if line["fold"] == number]
        expected.append(span_f1(*([words(line, name) for line in lines_of_fold] for name in ("true_spans", "spans"))))
    assert result.metrics["f1"] == pytest.approx(np.mean(expected)) and result.metrics["f1"] > 0.3


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--kfold=1"], "--kfold must be at least 2; received 1"),
        (["--kfold=40"], "--kfold must lie between 2 and half of the 78 examples; received 40"),
        (["--kfold=3", "--dev-file={train}"], "received --kfold=3 with --dev-file; leave one of them out"),
        (["--kfold=3", "--grid=epochs=1,2"], "received --kfold=3 with --grid; leave one of them out"),
        (
            ["--kfold=3", "--distribution=multi-worker"],
            "received --kfold=3 with --distribution=multi-worker; leave one of them out",
        ),
    ],
)  # fmt: skip
def test_contradictions_are_refused(
    flags: list[str],
    message: str,
    start: Path,
    train_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = [flag.format(train=train_file) for flag in flags]
    command = ["finetune", f"--model={start}", f"--train-file={train_file}", *flags, f"--output={tmp_path / 'run'}"]
    assert cli.main(command) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error and not (tmp_path / "run").exists()


def test_folds_larger_than_a_class_are_refused(start: Path, tmp_path: Path) -> None:
    labels = ["rare" if number in (3, 8, 9) else "common" for number in range(30)]
    texts = [f"text {number - (number == 9)}" for number in range(30)]
    data = pb.data.table({"text": texts, "label": labels})
    # Three examples, two of which have the same text.
    with pytest.raises(UserError, match="3 folds need at least 3 different texts of each label; received 2 of 'rare'"):
        finetune(start, data, tmp_path / "run", config=CONFIG, kfold=3)
    assert not (tmp_path / "run").exists()


def test_other_splits_and_callbacks_are_refused(start: Path, data: TaskData, rows: Examples, tmp_path: Path) -> None:
    import tf_keras

    given = dataclasses.replace(data, undivided=None)
    with pytest.raises(UserError, match="kfold=3 draws the splits from the training examples; received a dev split"):
        finetune(start, given, tmp_path / "run", config=CONFIG, kfold=3)
    with pytest.raises(UserError, match="received test examples, too"):
        finetune(start, dataclasses.replace(data, test=rows), tmp_path / "run", config=CONFIG, kfold=3)
    with pytest.raises(UserError, match="kfold=3 trains several models; received callbacks"):
        finetune(start, data, tmp_path / "run", config=CONFIG, kfold=3, callbacks=[tf_keras.callbacks.Callback()])


def test_pairs_for_embeddings_are_refused(start: Path, tmp_path: Path) -> None:
    rows = "".join(f"good film {number}\twarm plot {number}\n" for number in range(30))
    path = tmp_path / "pairs.tsv"
    path.write_text(f"text\tpair\n{rows}", encoding="utf-8")
    with pytest.raises(UserError, match="kfold=3 needs a task of kind .*; received embedding"):
        finetune(start, pb.data.pairs(path), tmp_path / "run", config=CONFIG, kfold=3)
