"""Every command that writes: what it must not destroy, and what the operating system refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from absl import flags

from pocketbert import cli

# In a process of its own: an error as Python exits shows nowhere else.
PROGRAM = [sys.executable, "-c", "from pocketbert.cli import run; run()"]


def commands_that_overwrite() -> list[str]:
    return [name for name in cli.COMMANDS if "overwrite" in cli.command_flags(name)[1]]


def paths_of(name: str) -> list[str]:
    """The flags of a command that may name an input."""
    found = cli.command_flags(name)[1]
    return [
        flag
        for flag in found
        if flag not in (*cli._OUTPUTS, "method")
        and not isinstance(found[flag], flags.EnumFlag | flags.BooleanFlag)
        and found[flag].flag_type() in ("string", "comma separated list of strings", "multi string")
    ]


def test_commands_that_overwrite_are_found() -> None:
    assert {"convert", "finetune", "distill", "export", "augment", "pretrain-data"} <= set(commands_that_overwrite())


@pytest.mark.parametrize("name", commands_that_overwrite())
def test_inputs_in_the_output_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inside = tmp_path / "out" / "model"
    inside.mkdir(parents=True)
    (inside / "weights").write_text("precious")
    output = "predictions" if name == "evaluate" else "output"
    arguments = [name, f"--{output}={tmp_path / 'out'}", "--overwrite"]
    attempts = [f"--{flag}={inside}" for flag in paths_of(name)]
    if hasattr(cli.command_flags(name)[0], "POSITIONAL"):
        attempts.append(str(inside))
    assert attempts
    for attempt in attempts:
        assert cli.main([*arguments, attempt]) == 2, attempt
        err = capsys.readouterr().err
        assert "an input must not be in the output; received" in err and err.count("\n") == 1, attempt
    assert (inside / "weights").read_text() == "precious"


def test_named_inputs_in_the_output_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out.zip").touch()
    arguments = ["glue-submission", f"--output={tmp_path / 'out.zip'}", f"--model=cola={tmp_path / 'out.zip'}"]
    assert cli.main(arguments) == 2 and "an input must not be in the output" in capsys.readouterr().err


def test_outputs_in_one_another_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["export", "--model=m", f"--output={tmp_path / 'b'}", f"--saved-model={tmp_path / 'b' / 's'}"]
    assert cli.main(arguments) == 2 and "outputs must not lie in one another" in capsys.readouterr().err


def test_names_must_be_utf8(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", "--model=caf\udce9", "--output=b"]) == 2
    err = capsys.readouterr().err
    assert "arguments and names of files must be UTF-8; received b'--model=caf\\\\udce9'; rename the file" in err


@pytest.mark.parametrize("arguments", [["presets"], ["--help"], ["export", "--help"]])
def test_full_standard_output(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "No space left on device" in done.stderr


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device", "x/a"), "x/a: No space left on device; free some space"),
        (OSError(30, "Read-only file system", "x"), "x: Read-only file system; choose an output on a disk"),
        (FileNotFoundError(2, "No such file or directory", "x"), "x: No such file or directory; it was removed"),
        (PermissionError(13, "Permission denied", "x"), "x: Permission denied; choose a path"),
    ],
)
def test_errors_of_the_system_are_one_line(
    error: OSError, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: object) -> int:
        raise error

    monkeypatch.setattr(cli, "_run", fail)
    assert cli.main(["export"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"pocketbert export: {said}") and err.count("\n") == 1


def test_bugs_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_run", lambda *arguments: {}["bug"])
    with pytest.raises(KeyError, match="bug"):
        cli.main(["export"])


def test_reader_that_goes_away_is_no_error() -> None:
    command = f"{' '.join(map(repr, PROGRAM))} presets | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0 and done.stderr == ""
