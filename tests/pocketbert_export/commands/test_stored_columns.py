"""Columns of the training file are defaults of later commands, and each command names the texts that it cuts."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import cheap_tensorflow
import pytest
import tiny_finetuning

from pocketbert import cli
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.commands.stored_columns import stored_columns

TRAINED = ["--epochs=1", "--batch-size=16", "--max-length=9", "--head-start=random"]


def _table(path: Path, count: int, seed: int, header: tuple[str, str]) -> Path:
    """A table whose first five texts need more than 19 tokens, the others at most 17."""
    examples = tiny_finetuning.examples(count, seed)
    names = tiny_finetuning.TASK.labels
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter=";")
        writer.writerow(header)
        for row, (text, label) in enumerate(zip(examples.texts, examples.labels, strict=True)):
            # Two words and more, with two special tokens.
            words = text.split() * 19 if row < 5 else text.split()[:15]
            writer.writerow([" ".join(words), names[label]])
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("columns")
    model = tiny_finetuning.write_model(folder / "start")
    _table(folder / "train.csv", 60, 0, ("review", "mood"))
    _table(folder / "dev.csv", 23, 1, ("review", "mood"))
    _table(folder / "other.csv", 11, 2, ("text", "label"))
    columns = ["--text-column=review", "--label-column=mood", "--separator=;"]
    files = [f"--train-file={folder / 'train.csv'}", f"--dev-file={folder / 'dev.csv'}"]
    with cheap_tensorflow.eager():
        command = ["finetune", f"--model={model}", *files, *columns, *TRAINED, f"--output={folder / 'run'}"]
        assert cli.main(command) == 0
    export = ["export", f"--model={folder / 'run'}", "--recipe=float32", "--lengths=11,19"]
    assert cli.main([*export, f"--file={folder / 'dev.csv'}", f"--output={folder / 'bundle'}"]) == 0
    return folder


@pytest.mark.nightly
def test_run_and_bundle_have_the_columns(run: Path) -> None:
    expected = {"text": "review", "label": ["mood"], "separator": ";"}
    assert stored_columns(run / "run" / "model") == stored_columns(run / "bundle") == expected
    Bundle.open(run / "bundle")


@pytest.mark.one_of_each("run", "bundle")
@pytest.mark.parametrize("model", ["run", "run/model", "bundle"])
def test_evaluate_and_predict_need_no_columns(
    run: Path, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["evaluate", f"--model={run / model}", f"--file={run / 'dev.csv'}"]) == 0
    done = capsys.readouterr()
    assert json.loads(done.out)["examples"] == 23
    assert "columns of the training file: --text-column=review --label-column=mood --separator=;" in done.err
    assert cli.main(["predict", f"--model={run / model}", f"--input={run / 'dev.csv'}"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 23
    # Other columns are read with flags, or with the usual names.
    assert cli.main(["evaluate", f"--model={run / model}", f"--file={run / 'other.csv'}", "--separator=;"]) == 0
    done = capsys.readouterr()
    assert json.loads(done.out)["examples"] == 11 and "columns of the training file" not in done.err


def test_verify_needs_no_columns(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", str(run / "bundle"), f"--model={run / 'run'}", f"--file={run / 'dev.csv'}"]) == 0
    assert json.loads(capsys.readouterr().out)["examples"]


@pytest.mark.nightly
def test_commands_name_the_cut_texts(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "5 of 23 texts are longer than 19 tokens and are cut (head)"
    assert cli.main(["evaluate", f"--model={run / 'bundle'}", f"--file={run / 'dev.csv'}"]) == 0
    done = capsys.readouterr()
    assert line in done.err and "export the model with a longer --lengths" in done.err
    assert sum(line in warning for warning in json.loads(done.out)["warnings"]) == 1
    assert cli.main(["predict", f"--model={run / 'bundle'}", f"--input={run / 'dev.csv'}"]) == 0
    assert line in capsys.readouterr().err
    export = ["export", f"--model={run / 'run'}", "--recipe=float32", "--lengths=11,19", f"--file={run / 'dev.csv'}"]
    assert cli.main([*export, f"--output={tmp_path / 'again'}"]) == 0
    assert line in capsys.readouterr().err
    files = [f"--model={run / 'start'}", f"--train-file={run / 'train.csv'}", f"--dev-file={run / 'dev.csv'}"]
    columns = ["--separator=;", "--text-column=review", "--label-column=mood"]
    again = ["--epochs=1", "--max-length=19", f"--output={tmp_path / 'run'}"]
    assert cli.main(["finetune", *files, *columns, *again]) == 0
    sources = f"{run / 'train.csv'}, {run / 'dev.csv'}"
    assert f"{sources}: 10 of 83 texts are longer than 19 tokens and are cut (head)" in capsys.readouterr().err


def test_objects_are_one_line(run: Path) -> None:
    import pocketbert as pb

    bundle = pb.Bundle.open(run / "bundle")
    assert repr(bundle).startswith(f"<Bundle {run / 'bundle'}: classification, ") and "lengths 11, 19, " in repr(bundle)
    assert bundle.tokenizer is bundle.tokenizer
    model = pb.from_pretrained(run / "run" / "model")
    assert repr(model).startswith("<Model bert: ") and " parameters, classification" in repr(model)
    data = pb.data.table(run / "train.csv", text="review", label="mood", separator=";", dev=run / "dev.csv")
    assert ": 60 training and 23 dev examples of " in repr(data) and "\n" not in repr(data)
    assert "<Examples 23 texts with " in repr(data.dev)
