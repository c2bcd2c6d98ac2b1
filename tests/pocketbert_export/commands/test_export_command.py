"""`pocketbert export` from the command line."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

import pocketbert as pb
from pocketbert import cli
from pocketbert.errors import UserError
from pocketbert.recipes import RECIPES
from pocketbert_export.bundles.bundle import Bundle


@pytest.fixture(scope="module")
def directory(small_directory: Path) -> Path:
    return small_directory


def test_export_prints_one_json_object(directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "dev.csv"
    table.write_text("text,label\nthe film is good,good\na dull film,bad\nthe sun,fair\n", encoding="utf-8")
    arguments = [
        "export",
        f"--model={directory}",
        "--recipe=float32",
        "--lengths=19,7",
        f"--output={tmp_path / 'bundle'}",
        f"--file={table}",
        "--nofuse-projections",
        f"--saved-model={tmp_path / 'saved'}",
    ]
    assert cli.main(arguments) == 0
    captured = capsys.readouterr()
    summary = json.loads(captured.out)
    assert summary["lengths"] == [7, 19]
    assert summary["graph_optimizations"]["fuse_projections"] == "off"
    assert summary["graph_optimizations"]["first_token_only"] == "applied"
    assert summary["examples"] == {"count": 3, "source": str(table), "labelled": True}
    assert summary["size_bytes"] == (tmp_path / "bundle" / "model.tflite").stat().st_size
    assert "verifying" in captured.err
    assert Bundle.open(tmp_path / "bundle").lengths == (7, 19)
    assert (tmp_path / "saved" / "saved_model.pb").exists()
    assert cli.main(arguments) == 2
    assert "--overwrite" in capsys.readouterr().err


@pytest.mark.nightly
def test_texts_without_labels_are_compared_without_scores(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "dev.csv"
    table.write_text("number,text\n7,the film is good\n8,a dull film\n", encoding="utf-8")
    bundle = tmp_path / "bundle"
    texts = {"count": 2, "source": str(table), "labelled": False}
    line = (
        f"{table} has the columns 'number', 'text' and no 'label': texts without scores; name the column of the labels"
    )
    export = ["export", f"--model={directory}", "--recipe=float32", "--lengths=7", f"--file={table}"]
    assert cli.main([*export, f"--output={bundle}"]) == 0
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert (summary["examples"], summary["outcome"]) == (texts, None) and "metric/litert" not in summary["checks"]
    assert printed.err.count(line) == 1
    verify = ["verify", str(bundle), f"--model={directory}", f"--file={table}"]
    assert cli.main(verify) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["examples"] == texts and printed.err.count(line) == 1
    result = pb.export(directory, tmp_path / "again", recipe="float32", lengths=[7], examples=table)
    assert result.outcome is None and capsys.readouterr().err.count(line) == 1
    # Labels under another name, or their numbers, are no texts without labels.
    for cells in (("Bad", "good"), ("2", "0")):
        other = tmp_path / "other.csv"
        other.write_text("text,mood\n" + "".join(f"the film,{cell}\n" for cell in cells), encoding="utf-8")
        for command in ([*export, f"--output={tmp_path / 'third'}"], ["verify", str(bundle), f"--model={directory}"]):
            assert cli.main([*command, f"--file={other}"]) == 2
            message = (
                "must have the column 'label'; received 'text', 'mood'; pass --label-column=mood if that column has"
            )
            assert message in capsys.readouterr().err
        with pytest.raises(UserError, match="must have the column 'label'"):
            pb.export(directory, tmp_path / "third", recipe="float32", lengths=[7], examples=other)
    # Who names a column, a class or a metric wants scores.
    for flag, message in (
        ("--label-column=label", "must have the column 'label'"),
        ("--label-column=mood", "must have the column 'mood'"),
        ("--labels=bad,fair,good", "must have the column 'label'"),
        ("--metric=accuracy", "a metric needs labelled examples"),
    ):
        for command in ([*export, f"--output={tmp_path / 'third'}"], verify):
            assert cli.main([*command, flag]) == 2
            assert message in capsys.readouterr().err
    assert cli.main(["evaluate", f"--model={bundle}", f"--file={table}"]) == 2
    assert "must have the column 'label'" in capsys.readouterr().err


def test_failed_gate_exits_1_without_output(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = dataclasses.replace(RECIPES["dynamic_wi8"].bounds, rms_difference=1e-9)
    monkeypatch.setitem(RECIPES, "dynamic_wi8", dataclasses.replace(RECIPES["dynamic_wi8"], bounds=strict))
    assert cli.main(["export", f"--model={directory}", "--lengths=7", f"--output={tmp_path / 'bundle'}"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "RMS difference" in captured.err
    assert "--recipe=float16 rounds less; nothing was written" in captured.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--output=bundle"], "--model is required; received none"),
        (["--model=nowhere"], "--output is required; received none"),
        (["--model=nowhere", "--output=bundle"], "nowhere"),
        (
            ["--model=nowhere", "--output=bundle", "--lengths=7,many"],
            "--lengths=7,many: must be a list of whole numbers",
        ),
        (["--model=DIRECTORY", "--output=bundle", "--recipe=int3"], "--recipe=int3: must be one of float32"),
        (["--model=DIRECTORY", "--output=bundle", "--lengths=7,99"], "received 99"),
        (["--model=DIRECTORY", "--output=bundle", "--lengths="], "--lengths=: must be a list of whole numbers"),
        (
            ["--model=DIRECTORY", "--output=bundle", "--padding-margin=5"],
            "--padding-margin needs --recipe=static_wi8_ai8_full; received --recipe=dynamic_wi8; leave it out",
        ),
        (
            ["--model=DIRECTORY", "--output=bundle", "--recipe=float32", "--padding-margin=nan"],
            "--padding-margin needs --recipe=static_wi8_ai8_full; received --recipe=float32; leave it out",
        ),
        (
            ["--model=DIRECTORY", "--output=bundle", "--recipe=dynamic_wi4", "--calibration-examples=500"],
            "--calibration-examples needs calibration texts; received --recipe=dynamic_wi4 without them; leave it out",
        ),
        (
            ["--model=DIRECTORY", "--output=bundle", "--recipe=float16", "--calibration-ranges=mse"],
            "--calibration-ranges needs a static recipe; received --recipe=float16; leave it out",
        ),
        (
            ["--model=DIRECTORY", "--output=bundle", "--noequalize"],
            "--noequalize needs a static recipe; received --recipe=dynamic_wi8; leave it out",
        ),
    ],
)
def test_bad_input_exits_2(
    arguments: list[str],
    reason: str,
    directory: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["export", *(argument.replace("DIRECTORY", str(directory)) for argument in arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = [line for line in captured.err.splitlines() if line.startswith("pocketbert export:")]
    assert len(lines) == 1
    assert reason in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_impossible_outputs_are_found_before_the_conversion(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export = ["export", f"--model={directory}", "--recipe=float32", "--lengths=7"]
    for flags in (
        ["--output=/proc/nothing/bundle"],
        [f"--output={tmp_path / 'bundle'}", "--saved-model=/proc/nothing/saved"],
        [f"--output={tmp_path / ('n' * 250)}", "--mediapipe"],
    ):
        assert cli.main([*export, *flags]) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err.count("\n") == 1, printed.err
        assert "cannot be written" in printed.err or "at most 255 bytes" in printed.err
    with pytest.raises(UserError, match="/proc/nothing/bundle cannot be written"):
        pb.export(directory, "/proc/nothing/bundle", recipe="float32", lengths=[7])
    assert "converting" not in capsys.readouterr().err and list(tmp_path.iterdir()) == []


def test_help_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", "--help-all"]) == 0
    text = capsys.readouterr().out
    assert "Example:\n  pocketbert export --model=" in text
    for flag in ("recipe", "lengths", "runtime", "fold-no-norm", "fuse-projections", "first-token-only", "overwrite"):
        assert re.search(rf"^  --(\[no\])?{flag}\b", text, flags=re.MULTILINE), flag
