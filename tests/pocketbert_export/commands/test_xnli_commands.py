"""XNLI from training to scores: `finetune`, `export` and `evaluate`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tiny_finetuning

import pocketbert as pb
from pocketbert import cli
from pocketbert.data.readers.xnli import XNLI, read_xnli

# Each predicts a few texts, for which a graph takes longer than it saves.
pytestmark = pytest.mark.usefixtures("eager")

# Words by label; the made languages differ in how often the hypothesis says the label.
WORDS = {"entailment": "good", "neutral": "plot", "contradiction": "bad"}
COUNTS = {"en": 24, "de": 15, "sw": 9}


def rows(count: int, seed: int, wrong: int = 0) -> list[tuple[str, str, str]]:
    """Pairs whose hypothesis says the label, but for the first few, which say another."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        label = XNLI.labels[int(random.integers(3))]
        prediction = XNLI.labels[(XNLI.labels.index(label) + 1) % 3] if number < wrong else label
        rows.append(("the film of a scene", f"{WORDS[prediction]} story {WORDS[prediction]}", label))
    return rows


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("xnli")
    for seed, (language, count) in enumerate(COUNTS.items()):
        # 0, 3 and 6 wrong.
        lines = ["\t".join(row) + "\n" for row in rows(count, seed, wrong=3 * seed)]
        (folder / f"dev-{language}.tsv").write_text("".join(lines), encoding="utf-8")
    lines = [f"{premise}\t{hypothesis}\t{label}\n" for premise, hypothesis, label in rows(180, 7)]
    text = "".join(["premise\thypo\tlabel\n", *lines]).replace("\tcontradiction", "\tcontradictory")
    (folder / "multinli.train.en.tsv").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    model = tiny_finetuning.write_model(folder / "tiny")
    command = [
        "finetune", f"--model={model}", "--task=xnli", f"--data={data}", "--epochs=3", "--batch-size=16",
        "--max-length=23", "--learning-rate=1e-2", "--head-start=random", f"--output={folder / 'run'}",
    ]  # fmt: skip
    assert cli.main(command) == 0
    return folder / "run"


def accuracies(model: pb.Model, data: Path) -> dict[str, float]:
    """By hand, language by language."""
    assert model.tokenizer is not None
    scores = {}
    for language in COUNTS:
        dev = read_xnli(data, "dev", [language])
        answers = model(dict(model.tokenizer(dev.texts, dev.pairs)), training=False)["logits"].numpy().argmax(axis=1)
        scores[f"accuracy_{language}"] = float((answers == dev.labels).mean())
    return {"accuracy": sum(scores.values()) / 3} | scores


@pytest.mark.nightly
def test_training_selects_by_mean_over_languages(run: Path, data: Path) -> None:
    result = json.loads((run / "result.json").read_text("utf-8"))
    assert result["main_metric"] == "accuracy"
    model = pb.from_pretrained(run / "model")
    assert model.task is not None and (model.task.name, model.task.labels) == ("xnli", XNLI.labels)
    assert result["metrics"] == pytest.approx(accuracies(model, data), abs=1e-12)
    # What it has learnt is the word: in the other languages it is wrong where the word is.
    assert result["metrics"]["accuracy_en"] == 1.0
    assert result["metrics"]["accuracy_de"] == pytest.approx(12 / 15)
    assert result["metrics"]["accuracy_sw"] == pytest.approx(3 / 9)
    # Over all 48 examples it would be 39 of 48.
    assert result["metrics"]["accuracy"] == pytest.approx((1 + 12 / 15 + 3 / 9) / 3)


def evaluate(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    capsys.readouterr()
    assert cli.main(["evaluate", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def check_scores(scored: Path, model: Path, data: Path, capsys: pytest.CaptureFixture[str], *task: str) -> None:
    """Evaluates a model or its bundle."""
    expected = accuracies(pb.from_pretrained(model), data)
    scores = evaluate(capsys, f"--model={scored}", *task, f"--data={data}")
    assert scores["metrics"] == pytest.approx(expected, abs=1e-12) and scores["examples"] == 48
    assert list(scores["metrics"]) == ["accuracy", "accuracy_en", "accuracy_de", "accuracy_sw"]
    part = evaluate(capsys, f"--model={scored}", f"--data={data}", "--languages=sw,en")
    assert list(part["metrics"]) == ["accuracy", "accuracy_en", "accuracy_sw"] and part["examples"] == 33
    assert part["metrics"]["accuracy"] == pytest.approx((expected["accuracy_en"] + expected["accuracy_sw"]) / 2)


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("untrained")
    tiny = tiny_finetuning.write_model(folder / "tiny", tiny_finetuning.CONFIG.replace(initializer_range=0.3))
    pb.from_pretrained(tiny, task=XNLI, seed=3).save_pretrained(folder / "model")
    return folder / "model"


def test_evaluate_scores_languages(untrained: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The task is the model's own.
    check_scores(untrained, untrained, data, capsys)


@pytest.mark.nightly
def test_evaluate_scores_languages_of_a_bundle(
    run: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "bundle"
    assert cli.main([
        "export", f"--model={run / 'model'}", "--recipe=float32", "--lengths=16,23", f"--output={bundle}",
        f"--data={data}", "--languages=en",
    ]) == 0  # fmt: skip
    check_scores(bundle, run / "model", data, capsys, "--task=xnli")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--task=xnli", "--data={empty}"], "training on xnli needs MultiNLI in English"),
        (["--task=xnli", "--data={data}", "--languages=en,fr"], "no language fr; there are en, de, sw"),
        (["--task=xnli", "--data={data}", "--dev-file=dev.csv"], "data must be --task and --data, or"),
        (
            ["--task=sst2", "--data={data}", "--languages=en"],
            "--languages needs --task=xnli; received it with sst2",
        ),
        (["--task=sst2", "--data={data}", "--train-file=a.tsv"], "data must be --task and --data, or"),
    ],
)
def test_bad_input_is_refused(
    changes: list[str], message: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tiny_finetuning.write_model(tmp_path / "model")
    command = ["finetune", f"--model={model}", f"--output={tmp_path / 'run'}"]
    assert cli.main([*command, *(change.format(data=data, empty=tmp_path) for change in changes)]) == 2
    assert message in capsys.readouterr().err


def test_languages_belong_to_xnli(untrained: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [f"--model={untrained}", "--task=mnli", f"--data={data}", "--languages=en"]
    assert cli.main(["evaluate", *arguments]) == 2
    assert "--languages needs --task=xnli and --data; received it with mnli" in capsys.readouterr().err


def test_a_training_file_of_its_own(data: Path, fixtures: Path, tmp_path: Path) -> None:
    from pocketbert.commands import task_options
    from pocketbert.commands.task_options import TableOptions, TaskOptions

    train = fixtures / "glue" / "MNLI" / "train.tsv"
    options = TaskOptions(task="xnli", data=str(data), train_file=str(train), languages=("de",))
    assert task_options.problems(options) == []
    examples = task_options.read_examples(options, TableOptions())
    assert (len(examples.train), examples.train.source) == (5, str(train))
    assert (len(examples.dev), set(examples.dev.groups or [])) == (15, {"de"})
    assert (examples.task, examples.metrics, examples.main_metric) == (XNLI, ("accuracy",), "accuracy")
