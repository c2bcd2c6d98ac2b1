"""Whole numbers in a file's label column count in the order of the task or of --labels, never in the model's."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import networks
import numpy as np
import pytest

from pocketbert import cli
from pocketbert.commands import task_options
from pocketbert.commands.command_line import parse
from pocketbert.commands.flag_notation import FlagNotation
from pocketbert.commands.task_options import TableOptions, TaskOptions
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.notation import use_notation
from pocketbert_export.commands import example_options
from pocketbert_export.commands.example_options import ExampleOptions

# Each predicts a few texts, for which a graph takes longer than it saves.
pytestmark = pytest.mark.usefixtures("eager")

TEXTS = ["the film is good", "dull", "a cat walks", "very bad", "so bright a story", "rain", "sun"]
# Two of seven are of class 1.
NUMBERS = [0, 0, 1, 0, 1, 0, 0]

Write = Callable[..., Path]


@pytest.fixture
def write_model(small_model: Model, tmp_path: Path) -> Write:
    """Writes a model that always gives its first label."""

    def write(*labels: str, name: str = "") -> Path:
        task = TaskConfig(kind="classification", name=name, labels=labels)
        model = networks.network(networks.bert_config(num_layers=1), [task], small_model.tokenizer)
        bias = np.where(np.arange(len(labels)) == 0, 90.0, -90.0)
        model.weights_by_path()["heads.classification.output.bias"].assign(bias.astype(np.float32))
        path = tmp_path / ("-".join(labels) + name)
        model.save_pretrained(path)
        return path

    return write


def table(folder: Path, cells: list[object], name: str = "dev.csv") -> Path:
    with open(folder / name, "w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([["text", "label"], *zip(TEXTS, cells, strict=True)])
    return folder / name


@pytest.mark.one_of_each(
    "labels1--flags1-0.2857142857142857",
    "labels2-sst2-flags2-0.2857142857142857",
    "labels3--flags3-0.7142857142857143",
    "labels6-sst2-flags6-0.7142857142857143",
    "labels8--flags8-0.2857142857142857",
)
@pytest.mark.parametrize(
    ("labels", "name", "flags", "accuracy"),
    [
        # Class 0 of SST-2 is negative: five of seven.
        (("negative", "positive"), "", ["--task=sst2"], 5 / 7),
        (("positive", "negative"), "", ["--task=sst2"], 2 / 7),
        (("positive", "negative"), "sst2", [], 2 / 7),
        (("LABEL_0", "LABEL_1"), "", ["--task=sst2"], 5 / 7),
        (("positive", "negative"), "", ["--labels=negative,positive"], 2 / 7),
        (("positive", "negative"), "", ["--labels=positive,negative"], 5 / 7),
        # What the command line says goes before what the model says of itself.
        (("positive", "negative"), "sst2", ["--labels=positive,negative"], 5 / 7),
        # The label's name is its number.
        (("LABEL_0", "LABEL_1"), "", [], 5 / 7),
        (("1", "0"), "", [], 2 / 7),
    ],
)
def test_other_label_order_is_scored_correctly(
    labels: tuple[str, ...],
    name: str,
    flags: list[str],
    accuracy: float,
    write_model: Write,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, file = write_model(*labels, name=name), table(tmp_path, [*NUMBERS])
    assert cli.main(["evaluate", f"--model={model}", f"--file={file}", *flags]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["accuracy"] == pytest.approx(accuracy)


def read(file: Path, task: TaskConfig, *flags: str) -> list[int]:
    options = parse("evaluate", ["--model=m", f"--file={file}", *flags])
    with use_notation(FlagNotation("evaluate")):
        examples = example_options.read(options[ExampleOptions], options[TableOptions], task)
    return examples.labels.tolist()  # type: ignore[union-attr]


MOOD = TaskConfig(kind="classification", name="mood", labels=("sad", "glad", "mad"))


def test_cyclic_label_order_is_scored_correctly(tmp_path: Path) -> None:
    file = table(tmp_path, [0, 1, 2, 2, 0, 1, "mad"])
    # 0 is mad, at the logit 2; 1 is sad, at 0; 2 is glad, at 1.
    assert read(file, MOOD, "--labels=mad,sad,glad") == [2, 0, 1, 1, 2, 0, 2]


@pytest.mark.parametrize(
    ("cells", "flags", "message"),
    [
        (
            NUMBERS,
            [],
            r"dev.csv: column 'label' must have the labels sad, glad, mad; received whole numbers; .*list the labels "
            r"for 0, 1, 2 in this order with --labels, such as --labels=sad,glad,mad, or use --task$",
        ),
        (["sad"] * 6 + [1], [], "must have the labels sad, glad, mad; received whole numbers"),
        (NUMBERS, ["--labels=sad,glad"], "the data's labels must be the model's, sad, glad, mad; received sad, glad$"),
        (NUMBERS, ["--task=sst2"], "must be the model's, sad, glad, mad; received sst2 with negative, positive"),
        ([*NUMBERS[:-1], 7], ["--labels=sad,glad,mad"], "line 8: the label must be one of sad, glad, mad; received"),
    ],
)
def test_numbers_without_order_are_refused(cells: list[object], flags: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        read(table(tmp_path, cells), MOOD, *flags)


def test_labels_need_a_file_with_classes(tmp_path: Path) -> None:
    file = table(tmp_path, [*NUMBERS])
    for task, flags in (
        (TaskConfig(kind="regression"), [f"--file={file}"]),
        (TaskConfig(kind="span"), ["--file=questions.json"]),
        (MOOD, ["--data=x", "--task=sst2"]),
    ):
        options = parse("evaluate", ["--model=m", "--labels=a,b", *flags])
        with pytest.raises(UserError, match="--labels names the classes of --file"):
            example_options.read(options[ExampleOptions], TableOptions(), task)


def test_gate_scores_the_same(
    small_directory: Path, small_bundle: Path, small_model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = small_model(dict(small_model.tokenizer(TEXTS)), training=False)["logits"].numpy().argmax(axis=1)
    # The file counts good, bad, fair, and every answer is right.
    file = table(tmp_path, [("good", "bad", "fair").index(("bad", "fair", "good")[answer]) for answer in answers])
    call = ["verify", str(small_bundle), f"--model={small_directory}", f"--file={file}"]
    assert cli.main(call) == 2
    assert "--labels=bad,fair,good" in capsys.readouterr().err
    assert cli.main([*call, "--labels=good,bad,fair"]) == 0
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert "100.00 with the float model" in json.dumps(checks)


def test_development_file_with_numbers_needs_labels(tmp_path: Path) -> None:
    files = [f"--train-file={table(tmp_path, ['neg', 'pos'] * 3 + ['neg'], 'train.csv')}"]
    files.append(f"--dev-file={table(tmp_path, [*NUMBERS])}")

    def labels(*more: str) -> list[int]:
        options = parse("finetune", ["--model=m", "--output=o", *files, *more])
        return task_options.read_examples(options[TaskOptions], options[TableOptions]).dev.labels.tolist()  # type: ignore[union-attr]

    with pytest.raises(UserError, match="dev.csv: column 'label' must have the labels neg, pos; received whole"):
        labels()
    assert labels("--labels=neg,pos") == NUMBERS
    assert labels("--labels=pos,neg") == NUMBERS


@pytest.mark.one_of_each("labels0-mrpc-equivalent-0.4444444444444444", "labels3--same-0.0")
@pytest.mark.parametrize(
    ("labels", "name", "positive", "f1"),
    [
        # Class 1 of MRPC is equivalent, for which two of seven are right: 2·2 / (2·2 + 5).
        (("equivalent", "not_equivalent"), "mrpc", "equivalent", 4 / 9),
        (("not_equivalent", "equivalent"), "mrpc", "equivalent", 0.0),
        # Of any other task the second.
        (("same", "other"), "", "other", 0.0),
        (("other", "same"), "", "same", 0.0),
    ],
)
def test_f1_names_its_positive_class(
    labels: tuple[str, str],
    name: str,
    positive: str,
    f1: float,
    write_model: Write,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = ("not_equivalent", "equivalent") if name else labels
    file = table(tmp_path, [names[number] for number in NUMBERS])
    arguments = [f"--model={write_model(*labels, name=name)}", f"--file={file}"]
    assert cli.main(["evaluate", *arguments]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["positive_label"] == positive
    assert result["metrics"]["f1"] == pytest.approx(f1)
