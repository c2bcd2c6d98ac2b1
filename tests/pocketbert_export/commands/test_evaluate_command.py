"""`pocketbert evaluate`: the task's metrics of a model directory or a bundle."""

from __future__ import annotations

import json
from pathlib import Path

import networks
import numpy as np
import pytest

from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.model import Model

# Each predicts a few texts, for which a graph takes longer than it saves.
pytestmark = pytest.mark.usefixtures("eager")

TEXTS = ["the film is good", "dull", "a cat walks", "very bad", "so bright a story", "rain", "sun"]
LABELS = ("bad", "fair", "good")


@pytest.fixture(scope="module")
def paths(
    small_model: Model, small_directory: Path, small_bundle: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    # Right but for two of seven, in a table whose columns have names of their own.
    answers = small_model(dict(small_model.tokenizer(TEXTS)), training=False)["logits"].numpy().argmax(axis=1)
    answers[[1, 4]] = (answers[[1, 4]] + 1) % 3
    lines = [f"{text}\t{LABELS[answer]}" for text, answer in zip(TEXTS, answers, strict=True)]
    table = tmp_path_factory.mktemp("table") / "dev.tsv"
    table.write_text("\n".join(["review\tmood", *lines]) + "\n", encoding="utf-8")
    return {"directory": small_directory, "bundle": small_bundle, "table": table}


@pytest.mark.parametrize("form", ["directory", "bundle"])
def test_a_table(form: str, paths: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    columns = ["--text-column=review", "--label-column=mood"]
    assert cli.main(["evaluate", f"--model={paths[form]}", f"--file={paths['table']}", *columns]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["metrics"] == {"accuracy": pytest.approx(5 / 7)}
    assert result["examples"] == 7
    assert result["source"] == str(paths["table"])
    assert result["seconds"] >= 0


def test_skipped_rows_are_in_the_result(
    paths: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "dirty.csv"
    table.write_text("text;label\na film;good\n;bad\nb;good;c\n", "utf-8")
    table_options = [f"--file={table}", "--separator=;", "--skip-bad-rows"]
    assert cli.main(["evaluate", f"--model={paths['directory']}", *table_options]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["examples"], result["skipped_rows"]) == (1, 2)


def write_sst2(folder: Path, labels: list[int]) -> Path:
    (folder / "SST-2").mkdir()
    rows = [f"{text}\t{label}" for text, label in zip(TEXTS, labels, strict=True)]
    (folder / "SST-2" / "dev.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n", encoding="utf-8")
    return folder


@pytest.mark.one_of_each("labels1", "labels3")
@pytest.mark.parametrize(
    "labels", [("negative", "positive"), ("positive", "negative"), ("POSITIVE", "NEGATIVE"), ("LABEL_0", "LABEL_1")]
)
def test_glue_labels_are_matched_by_name(
    labels: tuple[str, str], small_model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = TaskConfig(kind="classification", name="sst2", labels=labels)
    other = networks.network(networks.bert_config(), [task], small_model.tokenizer)
    bias = other.weights_by_path()["heads.classification.output.bias"]
    # Always the first logit.
    bias.assign(np.array([90.0, -90.0], np.float32))
    other.save_pretrained(tmp_path / "model")
    data = write_sst2(tmp_path, [0, 0, 1, 0, 1, 0, 0])
    assert cli.main(["evaluate", f"--model={tmp_path / 'model'}", f"--data={data}"]) == 0
    captured = capsys.readouterr()
    accuracy = json.loads(captured.out)["metrics"]["accuracy"]
    assert accuracy == pytest.approx(2 / 7 if labels[0].lower() == "positive" else 5 / 7)
    line = (
        "the model's labels LABEL_0, LABEL_1 are placeholders; its logits are read as negative, positive, in this order"
    )
    assert (f"{line}; pass --labels for another order" in captured.err) == (labels[0] == "LABEL_0")
    arguments = [
        "evaluate",
        f"--model={tmp_path / 'model'}",
        "--task=sst2",
        f"--data={data}",
        "--labels=positive,negative",
    ]
    if labels[0] != "LABEL_0":
        # Names of the model itself say nothing new.
        assert cli.main(arguments) == (0 if labels == ("positive", "negative") else 2)
        assert (
            labels == ("positive", "negative")
            or "received positive,negative with --data, whose labels have names" in capsys.readouterr().err
        )
        return
    # The remedy of that line.
    assert cli.main(arguments) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["metrics"]["accuracy"] == pytest.approx(2 / 7)
    assert "placeholders" not in captured.err
    assert cli.main([*arguments[:-1], "--labels=positive,negative,neutral"]) == 2
    assert "--labels must name each of the model's 2 logits; received 3" in capsys.readouterr().err


def test_other_labels_are_refused(paths: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_sst2(tmp_path, [0] * 7)
    assert cli.main(["evaluate", f"--model={paths['directory']}", "--task=sst2", f"--data={data}"]) == 2
    assert "labels must be the model's, bad, fair, good; received sst2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--file=x.csv"], "--model is required"),
        (["--model={directory}"], "needs --data, a task's folder, or --file"),
        (["--model={directory}", "--file={table}", "--data=x"], "not both"),
        (["--model={directory}", "--file={table}"], "column 'text'"),
        (["--model={directory}", "--data=x", "--task=sst3"], "no GLUE task 'sst3'"),
        (
            ["--model={directory}", "--file={table}", "--languages=en"],
            "--languages needs --task=xnli and --data; received it with",
        ),
        (
            ["--model={bundle}", "--file={table}", "--max-length=9"],
            "--max-length is for a model that answers questions",
        ),
        (
            ["--model={bundle}", "--file={table}", "--stride=9", "--max-answer-tokens=30"],
            "--stride is for a model that answers questions; received one for classification; --max-answer-tokens is",
        ),
        (["--model={bundle}", "--file={table}", "--predictions=x"], "--predictions is for a model that answers"),
    ],
)
def test_bad_input_is_refused(
    arguments: list[str], message: str, paths: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["evaluate", *(argument.format(**paths) for argument in arguments)]) == 2
    assert message in capsys.readouterr().err
