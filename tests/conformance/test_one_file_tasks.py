"""A task is one row and one file: a toy with an output per token trains, exports, passes the gate and answers."""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path

import pytest
import separate_python
import tiny_finetuning
import tiny_tasks

import java_tables
from pocketbert.configs import TASK_RULES

JAR = Path(__file__).parents[2] / "android_app/host/target/pocketbert-host.jar"
TOY = "highlight"
OPTIONS = ("--epochs=2", "--max-length=19", "--learning-rate=3e-3")
python = functools.partial(separate_python.run, "toy_token_task")
pocketbert = functools.partial(separate_python.pocketbert, "toy_token_task")


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
    resource = tmp_path / "org/pocketbert/bundle/tasks.txt"
    resource.parent.mkdir(parents=True)
    table = python("import java_tables\nprint(java_tables.tables()['tasks.txt'], end='')")
    resource.write_text(table, encoding="utf-8")
    result = tmp_path / "result.json"

    def host(path: str) -> subprocess.CompletedProcess[str]:
        command = ["java", "-cp", path, "org.pocketbert.host.Main", str(bundle), f"--output={result}"]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    done = host(f"{tmp_path}:{JAR}")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(result.read_text(encoding="utf-8"))["measurements"]) == 2
    result.unlink()
    without = host(str(JAR))
    assert without.returncode == 2 and "$.task.kind must be one of" in without.stderr


def test_tables_of_java_are_current() -> None:
    found = {name: (java_tables.FOLDER / name).read_text(encoding="utf-8") for name in java_tables.tables()}
    assert found == java_tables.tables()
