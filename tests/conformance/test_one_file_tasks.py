"""A task is one row and one file: a toy with an output per token trains, exports, passes the gate and answers."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
import tiny_finetuning
import tiny_tasks
import toy_runs

import java_tables
from pocketbert.configs import TASK_RULES

TOY = "highlight"
OPTIONS = ("--epochs=2", "--max-length=19", "--learning-rate=3e-3")
pocketbert = functools.partial(toy_runs.pocketbert, "toy_token_task")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    tiny_finetuning.write_model(folder / "start")
    file = folder / "texts.jsonl"
    tiny_tasks.CASES["token_classification"].write(file.with_suffix(".conll"))
    data = [f"--train-file={file.with_suffix('.conll')}", f"--kind={TOY}", f"--output={folder / 'run'}"]
    pocketbert("finetune", f"--model={folder / 'start'}", *data, *OPTIONS)
    data = [f"--file={file.with_suffix('.conll')}", f"--output={folder / 'bundle'}"]
    pocketbert("export", f"--model={folder / 'run'}", "--recipe=float32", "--lengths=13,19", *data)
    return folder / "bundle"


def test_toy_trains_exports_and_passes_the_gate(bundle: Path) -> None:
    description = json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))
    assert description["task"]["kind"] == TOY
    assert [output["name"] for output in description["outputs"]] == ["highlight_logits"]
    pocketbert("verify", bundle)
    assert TOY not in TASK_RULES


def test_toy_answers_and_is_scored(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a good film\nthe plot\n", encoding="utf-8")
    for model in (bundle, bundle.parent / "run"):
        lines = pocketbert("predict", f"--model={model}", f"--input={tmp_path / 'texts.txt'}").splitlines()
        assert all(isinstance(json.loads(line)["highlights"], list) for line in lines) and len(lines) == 2
    scores = pocketbert("evaluate", f"--model={bundle}", f"--file={bundle.parent / 'texts.conll'}")
    assert "f1" in scores


@pytest.mark.java
def test_toy_runs_in_java(bundle: Path, tmp_path: Path) -> None:
    measurements, refusal = toy_runs.java_host("toy_token_task", "tasks.txt", bundle, tmp_path)
    assert len(measurements) == 2 and "$.task.kind must be one of" in refusal


def test_tables_of_java_are_current() -> None:
    stored = {name: (java_tables.FOLDER / name).read_text(encoding="utf-8") for name in java_tables.tables()}
    assert stored == java_tables.tables()
