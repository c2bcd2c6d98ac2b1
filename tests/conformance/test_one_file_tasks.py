"""A task is one row and one file: a toy with an output per token trains, exports, passes the gate and answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny_finetuning
import tiny_tasks
import toy_runs

import java_tables
from pocketbert.configs import TASK_RULES
from pocketbert.recipes import RECIPES

TOY, RECIPE = "highlight", "float16_9bits"
OPTIONS = ("--epochs=2", "--max-length=19", "--learning-rate=3e-3", f"--qat={RECIPE}")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A bundle, whose gate passed; and what `predict` answers with it and its model, and its scores.

    Beside it, of the same model and with the toy of a recipe, `rounded`, whose gate passed and whose latency is in
    `result.json`.
    """
    folder = tmp_path_factory.mktemp("toy")
    tiny_finetuning.write_model(folder / "start")
    file = folder / "texts.conll"
    tiny_tasks.CASES["token_classification"].write(file)
    (folder / "texts.txt").write_text("a good film\nthe plot\n", encoding="utf-8")
    data = [f"--train-file={file}", f"--kind={TOY}", f"--output={folder / 'run'}"]
    export = ["export", f"--model={folder / 'run'}", f"--file={file}"]
    rounded, result = folder / "rounded", folder / "result.json"
    *_, first, second, scores = toy_runs.commands(
        "toy_token_task, toy_recipe",
        ["finetune", f"--model={folder / 'start'}", *data, *OPTIONS],
        [*export, "--recipe=float32", "--lengths=13,19", f"--output={folder / 'bundle'}"],
        ["verify", folder / "bundle"],
        [*export, f"--recipe={RECIPE}", "--lengths=19", f"--output={rounded}"],
        ["verify", rounded],
        ["bench", rounded, "--lengths=19", "--quick", f"--output={result}"],
        *(["predict", f"--model={folder / name}", f"--input={folder / 'texts.txt'}"] for name in ("bundle", "run")),
        ["evaluate", f"--model={folder / 'bundle'}", f"--file={file}"],
    )
    return folder / "bundle", [first, second, scores]


@pytest.fixture(scope="module")
def bundle(made: tuple[Path, list[str]]) -> Path:
    return made[0]


def test_toy_trains_exports_and_passes_the_gate(bundle: Path) -> None:
    description = json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))
    assert description["task"]["kind"] == TOY
    assert [output["name"] for output in description["outputs"]] == ["highlight_logits"]
    assert TOY not in TASK_RULES


def test_toy_of_a_recipe_rounds_and_is_measured(bundle: Path) -> None:
    folder = bundle.parent
    assert json.loads((folder / "rounded" / "bundle.json").read_text(encoding="utf-8"))["recipe"] == RECIPE
    assert json.loads((folder / "run" / "run.json").read_text(encoding="utf-8"))["qat"] == RECIPE
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert result["measurements"][0]["recipe"] == RECIPE
    assert RECIPE not in RECIPES


def test_toy_answers_and_is_scored(made: tuple[Path, list[str]]) -> None:
    *answers, scores = made[1]
    for printed in answers:
        lines = printed.splitlines()
        assert all(isinstance(json.loads(line)["highlights"], list) for line in lines) and len(lines) == 2
    assert "f1" in scores


@pytest.mark.java
def test_toy_runs_in_java(bundle: Path, tmp_path: Path) -> None:
    measurements, refusal = toy_runs.java_host("toy_token_task", "tasks.txt", bundle, tmp_path)
    assert len(measurements) == 2 and "$.task.kind must be one of" in refusal


def test_tables_of_java_are_current() -> None:
    stored = {name: (java_tables.FOLDER / name).read_text(encoding="utf-8") for name in java_tables.tables()}
    assert stored == java_tables.tables()
