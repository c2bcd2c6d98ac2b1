"""Runs that start from a model on the hub: pinned commit, licence, resumption, export, and work without a network."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_distillation
import tiny_finetuning
from hub_stand_in import Hub

import pocketbert as pb
from pocketbert import cli
from pocketbert.training.run_folder import pinned_commits

NAME = "hf:lab/encoder"
TABLE = ["--text-column=text", "--label-column=label", "--epochs=1", "--batch-size=8", "--max-length=9"]


@pytest.fixture
def commits(hub: Hub, tmp_path: Path) -> list[str]:
    """An older and a newer commit of a model; main is the older one."""
    commits = []
    for layers in (1, 2):
        config = tiny_finetuning.CONFIG.replace(num_layers=layers)
        folder = tiny_finetuning.write_model(tmp_path / f"layers-{layers}", config)
        (folder / "README.md").write_text("---\nlicense: mit\nbase_model: lab/older\n---\n", encoding="utf-8")
        commits.append(hub.push("lab/encoder", folder))
    hub.repositories["lab/encoder"].branches["main"] = commits[0]
    return commits


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "train.csv"
    rows = [
        f"a {word} film,{label}"
        for label, words in enumerate((tiny_finetuning.BAD, tiny_finetuning.GOOD))
        for word in words
    ]
    path.write_text("text,label\n" + "".join(f"{row}\n" for row in rows * 4), encoding="utf-8")
    return str(path)


def test_run_and_bundle_name_commit_and_licence(
    hub: Hub,
    commits: list[str],
    table: str,
    tmp_path: Path,
    offline: Callable[[], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "run"
    line = ["finetune", f"--model={NAME}", f"--train-file={table}", *TABLE, f"--output={run}"]
    assert cli.main(line) == 0
    assert f"downloading {NAME}@{commits[0]}: " in capsys.readouterr().err
    record = json.loads((run / "run.json").read_text("utf-8"))
    assert record["model_hub"] == {"name": f"{NAME}@{commits[0]}", "revision": "main", "license": "mit"}
    assert f'model = "{NAME}@{commits[0]}"' in (run / "run.toml").read_text("utf-8")
    # The branch moves: the same command still is the same run, and reads its result.
    hub.repositories["lab/encoder"].branches["main"] = commits[1]
    assert pinned_commits(run) == {NAME: commits[0]}
    assert cli.main(line) == 0
    err = capsys.readouterr().err
    assert f"{NAME}: resuming the run with its commit, {commits[0]}" in err and "this run is finished" in err
    assert cli.main(["finetune", f"--config={run / 'run.toml'}"]) == 0
    assert "this run is finished" in capsys.readouterr().err
    # Another name is another run.
    assert cli.main([*line, f"--model={NAME}@{commits[1]}"]) == 2
    assert "run with other options" in capsys.readouterr().err
    offline()
    bundle = tmp_path / "bundle"
    assert cli.main(["export", f"--model={run}", "--recipe=float32", "--lengths=9", f"--output={bundle}"]) == 0
    facts = json.loads((bundle / "bundle.json").read_text("utf-8"))["model_card"]
    assert (facts["base_model"], facts["base_model_license"]) == (f"lab/encoder@{commits[0]}", "mit")
    card = (bundle / "README.md").read_text("utf-8")
    assert 'base_model: "lab/encoder"\n' in card
    assert f"| Base model | lab/encoder@{commits[0]} (licence: mit) |" in card


def test_bundle_of_a_model_on_the_hub(commits: list[str], tmp_path: Path, offline: Callable[[], None]) -> None:
    assert pb.from_pretrained(NAME).config.num_layers == 1
    offline()
    bundle = pb.export(NAME, tmp_path / "bundle", recipe="float32", lengths=(9,))
    facts = json.loads((tmp_path / "bundle" / "bundle.json").read_text("utf-8"))["model_card"]
    # The same weights, so the same licence.
    assert (facts["license"], facts["base_model"]) == ("mit", f"lab/encoder@{commits[0]}")
    assert [*bundle.lengths] == [9]


def test_teacher_cache_keeps_the_teachers_commit(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commits = []
    for layers in (1, 2):
        config = tiny_finetuning.CONFIG.replace(num_layers=layers)
        folder = tiny_distillation.write_teacher(tmp_path / f"{layers}" / "teacher", config)
        commits.append(hub.push("lab/teacher", folder))
    rows = zip(["a good film", "a bad film"] * 9, tiny_distillation.TASK.labels * 9, strict=True)
    table = tmp_path / "rows.csv"
    table.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows), encoding="utf-8")
    hub.repositories["lab/teacher"].branches["main"] = commits[0]
    line = [
        "cache-teacher",
        "--method=tinybert",
        "--teacher=hf:lab/teacher",
        "--student=hf:lab/teacher",
        f"--train-file={table}",
    ]
    line += ["--text-column=text", "--label-column=label", "--max-length=9", f"--output={tmp_path / 'cache'}"]
    assert cli.main(line) == 0
    shards = {path: path.read_bytes() for path in (tmp_path / "cache").rglob("shard-*")}
    hub.repositories["lab/teacher"].branches["main"] = commits[1]
    capsys.readouterr()
    assert cli.main(line) == 0
    assert f"hf:lab/teacher: resuming the run with its commit, {commits[0]}" in capsys.readouterr().err
    assert shards and {path: path.read_bytes() for path in (tmp_path / "cache").rglob("shard-*")} == shards


def test_interrupted_run_resumes_with_its_commit(
    hub: Hub, commits: list[str], table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pb.data.table(table)
    config, run = pb.FinetuneConfig(epochs=1, batch_size=8, max_length=9), pb.RunConfig()

    def killed(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pocketbert.training.trainer.Trainer.run", killed)
        with pytest.raises(KeyboardInterrupt):
            pb.finetune(NAME, data, tmp_path / "run", config=config, run=run)
    hub.repositories["lab/encoder"].branches["main"] = commits[1]
    result = pb.finetune(NAME, data, tmp_path / "run", config=config, run=run)
    assert pb.from_pretrained(result.model_directory).config.num_layers == 1
    # The requested branch stays known, so that a third call finds the commit, too.
    assert pinned_commits(tmp_path / "run") == {NAME: commits[0]}
    newer = pb.finetune(NAME, data, tmp_path / "newer", config=config, run=run)
    assert pb.from_pretrained(newer.model_directory).config.num_layers == 2
