"""Bad input is found before TensorFlow is imported, and options with models take the same values in all commands."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import forks
import pytest
import tiny

import pocketbert as pb
from pocketbert import cli
from pocketbert.commands import COMMANDS, inputs
from pocketbert.commands.command_line import Command, Options
from pocketbert.configs import TaskConfig
from pocketbert.data.model_paths import hub_name

PROBE = """
import sys
from pocketbert.cli import main
code = main(sys.argv[1:])
print(code, 'tensorflow' in sys.modules)
"""
START = "--model={model}"
DISTIL = "--method=tinybert --student=tinybert_4l_312d --teacher={model}"
SEARCH = "--student=efficientbert_base --teacher={model}"
# Command → options for a model and a table, without the table.
TRAINING = {
    "finetune": START,
    "bundle": START,
    "prune": START,
    "distill": DISTIL,
    "cache-teacher": DISTIL,
    "search": SEARCH,
}
READING = {"evaluate": "--model={model}", "export": "--model={model} --output=new"}
# What these commands import before they read anything.
IMPORTED = (
    "pocketbert.cli",
    "pocketbert.checkpoints.name_maps",
    "pocketbert.data.constructors",
    *(COMMANDS[name][0] for name in (*TRAINING, *READING)),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory, a table, and things that are neither."""
    root = tmp_path_factory.mktemp("inputs")
    task = TaskConfig(kind="classification", labels=("bad", "good"))
    pb.from_preset(tiny.BERT, [task], seed=1).save_pretrained(root / "model")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "fine", "dull", "film"]
    words += [f"word{number}" for number in range(tiny.BERT.vocab_size - len(words))]
    (root / "model" / "vocab.txt").write_text("".join(f"{word}\n" for word in words), "utf-8")
    (root / "t.csv").write_text("review,mood\n" + "fine film,good\ndull film,bad\n" * 10, "utf-8")
    (root / "t.xlsx").write_bytes(b"PK")
    (root / "t.parquet").write_bytes(b"PAR1")
    (root / "empty").mkdir()
    (root / "taken").mkdir()
    (root / "taken" / "mine.txt").write_text("x", "utf-8")
    return root


def _cases() -> list[tuple[str, str]]:
    """Command line → part of the message."""
    table = "--text-column=review --label-column=mood"
    defaults = []
    for name, model in TRAINING.items():
        good = f"{name} {model.format(model='model')} --output=new"
        defaults += [
            (f"{good} --train-file=t.csv", "must have the column 'text'; received 'review', 'mood'"),
            (f"{good} --train-file=t.csv --text-column=review", "must have the column 'label'"),
            (f"{good} --train-file=none.csv {table}", "none.csv: there is no such file"),
            (f"{good} --train-file=t.xlsx {table}", "save it as CSV"),
            (f"{good} --train-file=t.parquet {table}", "convert it in Python: pandas.read_parquet"),
            (f"{good} --train-file=empty {table}", "it is a folder"),
            (f"{name} {model.format(model='empty')} --output=new --train-file=t.csv {table}", "a model directory must"),
            (f"{name} {model.format(model='none')} --output=new --train-file=t.csv {table}", "received none"),
        ]
        if name not in ("cache-teacher",):
            defaults.append((f"{good} --output=t.csv --train-file=t.csv {table}".replace("--output=new ", ""), "t.csv"))
    for name, model in READING.items():
        good = f"{name} {model.format(model='model')}"
        defaults += [
            (f"{good} --file=t.csv", "must have the column 'text'; received 'review', 'mood'"),
            (f"{good} --file=t.csv --text-column=review", "must have the column 'label'"),
            (f"{good} --file=none.csv", "none.csv: there is no such file"),
            (f"{good} --file=t.xlsx", "save it as CSV"),
            (f"{name} {model.format(model='empty')} --file=t.csv", "a model"),
        ]
    return [
        *defaults,
        *(
            (f"{name} {model.format(model='model')} --output=taken --train-file=t.csv {table}", "something else")
            for name, model in TRAINING.items()
            if name in ("finetune", "bundle", "prune", "distill")
        ),
        ("export --model=model --output=taken", "must not exist yet"),
        ("predict --model=model --input=none.csv", "none.csv"),
        ("predict --model=model --input=t.csv", "must have the column 'text'"),
        ("predict --model=empty --input=t.csv", "a model must be a folder"),
        ("embed --model=empty --input=t.csv", "a model must be a folder"),
        ("embed --model=model --input=none.txt", "none.txt"),
        ("verify empty", "a bundle must be a folder with bundle.json"),
        ("verify model", "export it first: pocketbert export --model=model"),
        ("bench empty", "a bundle must be a folder with bundle.json"),
        ("augment --masked-lm=model --train-file=t.csv --output=a.tsv", "must have the column 'text'"),
    ]


@pytest.mark.parametrize(("line", "message"), _cases())
def test_bad_input_needs_no_tensorflow(folder: Path, line: str, message: str) -> None:
    done = forks.run(PROBE, line.split(), folder=folder, imported=IMPORTED)
    assert done.stdout.split() == ["2", "False"], done.stderr
    lines = [text for text in done.stderr.splitlines() if "are the dev split" not in text]
    assert len(lines) == 1 and message in lines[0], done.stderr


def test_options_with_models_take_the_same_values() -> None:
    kinds = {
        (name, field.flag): field.value_name
        for name in COMMANDS
        for field in Command(name).fields
        if re.match(r"(?:pretrained |float )*(?:a )?(?:model directory|model directories)", field.help)
    }
    assert len(kinds) > 10
    assert {value for value in kinds.values()} <= {"MODEL", "MODEL|BUNDLE", "PRESET|PATH"}, kinds


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bert-base-uncased", "google-bert/bert-base-uncased"),
        ("roberta-base", "FacebookAI/roberta-base"),
        ("xlm-roberta-base", "FacebookAI/xlm-roberta-base"),
        ("distilbert-base-uncased", "distilbert/distilbert-base-uncased"),
        ("google/mobilebert-uncased", "google/mobilebert-uncased"),
        ("models/a/b", None),
        ("mymodel", None),
        ("./a", None),
    ],
)
def test_hub_names_are_recognized(name: str, expected: str | None) -> None:
    assert hub_name(name) == expected


def test_remedy_for_hub_names_makes_the_model(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import hub_stand_in

    monkeypatch.chdir(tmp_path)
    line = ["--task=sst2", "--data=glue", "--output=run"]
    assert cli.main(["finetune", "--model=bert-base-uncased", *line]) == 2
    match = re.search(r"pass (hf:\S+) \(see", capsys.readouterr().err)
    assert match is not None
    with hub_stand_in.serve() as hub:
        hub_stand_in.connect(monkeypatch, hub.endpoint, tmp_path / "cache")
        hub.push("google-bert/bert-base-uncased", folder / "model")
        assert cli.main(["finetune", f"--model={match[1]}", *line]) == 2
        assert "model.safetensors" in hub.files()
    assert "glue" in capsys.readouterr().err.splitlines()[-1]


def test_all_model_options_take_names_on_the_hub(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = tmp_path / "models--lab--tiny" / "snapshots" / ("0123456789" * 4)
    shutil.copytree(folder / "model", snapshot)
    names: list[str] = []
    monkeypatch.setattr("pocketbert.data.model_paths.download", lambda name, pinned: names.append(name) or snapshot)
    count = 0
    for name in COMMANDS:
        command = Command(name)
        for field in command.fields:
            if not {"MODEL", "PRESET"} & {*field.value_name.split("|")}:
                continue
            count += 1
            value = "hf:lab/tiny"
            values = {other.name: () if other.many else other.default for other in command.fields}
            options = Options(command, values | {field.name: (value,) if field.many else value}, [field.name])
            inputs.check(options)
            assert names.pop() == value and not names, (name, field.flag)
            assert f"{value}@{snapshot.name}" in options.to_toml()
    assert count > 25


def test_parquet_remedy_makes_a_readable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    from pocketbert.data.readers.tables import read_table
    from pocketbert.errors import UserError

    monkeypatch.chdir(tmp_path)
    pandas.DataFrame({"text": ["a\nb", "ü"], "label": ["x", "y"]}).to_parquet("t.parquet")
    with pytest.raises(UserError, match="convert it in Python: ") as raised:
        read_table("t.parquet", text_column="text")
    exec(str(raised.value).partition("convert it in Python: ")[2], {"pandas": pandas})
    assert read_table("t.jsonl", text_column="text", label_column="label")[0].texts == ["a\nb", "ü"]


def test_a_run_stands_for_its_model(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model").symlink_to(folder / "model")
    (tmp_path / "t.txt").write_text("fine film\n", "utf-8")
    assert cli.main(["predict", f"--model={tmp_path / 'run'}", f"--input={tmp_path / 't.txt'}"]) == 0
    done = capsys.readouterr()
    assert f"{tmp_path / 'run'}: using {tmp_path / 'run' / 'model'}" in done.err
    assert json.loads(done.out)["label"] in ("bad", "good")


def test_python_takes_runs_and_names_too(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pocketbert.data import assets
    from pocketbert.training.initialization import saved_models

    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model").symlink_to(folder / "model")
    monkeypatch.setattr(assets, "fetch_asset", lambda name: folder / "model")
    models = (tmp_path / "run", "all-minilm", "tinybert_4l_312d", folder / "model")
    with saved_models(*models) as opened:
        assert opened == (tmp_path / "run" / "model", folder / "model", "tinybert_4l_312d", folder / "model")
