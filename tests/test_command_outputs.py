"""Every command that writes: what it must not destroy, and what the operating system refuses."""

from __future__ import annotations

import mmap
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import killing
import numpy as np
import pytest
import tensorflow as tf
import tiny_finetuning
from pretraining_text import write_text, write_vocabulary

from pocketbert import cli
from pocketbert import output_folders as outputs
from pocketbert.commands import COMMANDS
from pocketbert.commands.command_line import Command
from pocketbert.training import state as checkpointing

# In a process of its own: an error as Python exits shows nowhere else.
PROGRAM = [sys.executable, "-c", "from pocketbert.cli import run; run()"]


def commands_that_overwrite() -> list[str]:
    return [name for name in COMMANDS if any(field.name == "overwrite" for field in Command(name).fields)]


def test_commands_that_overwrite_are_found() -> None:
    assert {"convert", "finetune", "distill", "export", "augment", "pretrain-data"} <= set(commands_that_overwrite())


@pytest.mark.parametrize("name", commands_that_overwrite())
def test_inputs_in_the_output_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inside = tmp_path / "out" / "model"
    inside.mkdir(parents=True)
    (inside / "weights").write_text("precious")
    output = "predictions" if name == "evaluate" else "output"
    fields = [field for field in Command(name).fields if field.kind == "str" and not field.choices]
    paths = [field for field in fields if field.name not in (*cli._OUTPUTS, "method", "config")]
    assert paths
    for field in paths:
        values = {
            field.flag: "mobilebert" if field.name == "method" else "x"
            for field in Command(name).fields
            if field.required
        }
        values |= {field.flag: str(inside), output: str(tmp_path / "out")}
        positional = [values.pop(field.flag) for field in fields if field.positional and field.flag in values]
        arguments = [f"--{flag}={value}" for flag, value in values.items()]
        assert cli.main([name, *arguments, "--overwrite", *positional]) == 2, field
        err = capsys.readouterr().err
        assert "an input must not be in the output; received" in err and err.count("\n") == 1, field
    assert (inside / "weights").read_text() == "precious"


def test_named_inputs_in_the_output_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out.zip").touch()
    arguments = [
        "glue-submission",
        "--data=glue",
        f"--output={tmp_path / 'out.zip'}",
        f"--model=cola={tmp_path / 'out.zip'}",
    ]
    assert cli.main(arguments) == 2 and "an input must not be in the output" in capsys.readouterr().err


def test_outputs_in_one_another_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["export", "--model=m", f"--output={tmp_path / 'b'}", f"--saved-model={tmp_path / 'b' / 's'}"]
    assert cli.main(arguments) == 2 and "outputs must not lie in one another" in capsys.readouterr().err


def test_names_must_be_utf8(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", "--model=caf\udce9", "--output=b"]) == 2
    err = capsys.readouterr().err
    assert "arguments and file names must be UTF-8; received b'--model=caf\\\\udce9'; rename the file" in err


@pytest.mark.parametrize("arguments", [["presets"], ["--help"], ["export", "--help"]])
def test_full_standard_output(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "No space left on device" in done.stderr


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(28, "No space left on device", "x/a"), "x/a: No space left on device; free some space"),
        (OSError(30, "Read-only file system", "x"), "x: Read-only file system; choose an output on a writable disk"),
        (FileNotFoundError(2, "No such file or directory", "x"), "x: No such file or directory; check the path"),
        (PermissionError(13, "Permission denied", "x"), "x: Permission denied; choose a path"),
    ],
)
def test_errors_of_the_system_are_one_line(
    error: OSError, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: object) -> int:
        raise error

    monkeypatch.setattr(cli, "_run", fail)
    assert cli.main(["export"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"pocketbert export: {message}") and err.count("\n") == 1


def _too_large(what: str) -> None:
    """Asks for more memory than there can be."""
    if what == "numpy":
        np.zeros(1 << 50, np.int8)
    if what == "python":
        _ = b" " * (1 << 50)
    if what == "tensorflow":
        tf.zeros([1 << 50], tf.int8)
    if what == "system":
        mmap.mmap(-1, 1 << 50)

    def rows() -> Iterator[np.ndarray]:
        yield np.zeros(1 << 50, np.int8)

    next(iter(tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec([None], tf.int8))))


@pytest.mark.one_of_each("python", "numpy", "system", "dataset")
@pytest.mark.parametrize("what", ["python", "numpy", "tensorflow", "system", "dataset"])
def test_full_memory_is_one_line(
    what: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pocketbert.commands.presets.run", lambda options: _too_large(what))
    message = refused(["presets"], capsys)
    assert ("Cannot allocate memory; " if what == "system" else "memory is full") in message
    assert "end other programs, use a machine with more memory" in message and "run the same command" in message


def test_bugs_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_run", lambda *arguments: {}["bug"])
    with pytest.raises(KeyError, match="bug"):
        cli.main(["export"])


def test_reader_that_goes_away_is_no_error() -> None:
    command = f"{' '.join(map(repr, PROGRAM))} presets | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0 and done.stderr == ""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_finetuning.write_model(tmp_path_factory.mktemp("model") / "model")


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert cli.main(arguments) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1, err
    return err


@pytest.mark.parametrize("limit", [200, 3000, 20_000])
def test_full_disk_is_one_line_and_leaves_nothing(
    model: Path, tmp_path: Path, limit: int, capsys: pytest.CaptureFixture[str]
) -> None:
    # A limit on a file's size gives the errors of a full disk, at the same calls. Python ignores its signal.
    previous = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, previous[1]))
    try:
        err = refused(["convert", "--from=hf", f"--input={model}", f"--output={tmp_path / 'a' / 'out'}"], capsys)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, previous)
    assert "File too large; choose an output on a disk that supports larger files" in err and f"{tmp_path}/a/" in err
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("limit", [100, 5000])
def test_full_disk_under_tensorflow_is_one_line(
    model: Path, tmp_path: Path, limit: int, capsys: pytest.CaptureFixture[str]
) -> None:
    text, vocabulary = write_text(tmp_path / "text.txt"), write_vocabulary(tmp_path / "vocab.txt")
    previous = resource.getrlimit(resource.RLIMIT_FSIZE)
    arguments = [f"--text={text}", f"--vocab={vocabulary}", f"--output={tmp_path / 'out'}", "--shards=1"]
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, previous[1]))
    try:
        assert cli.main(["pretrain-data", *arguments, "--workers=1", "--max-length=21"]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, previous)
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert re.search(r"out\.unfinished/\S+: File too large; choose an output", last)
    assert sorted(os.listdir(tmp_path)) == ["text.txt", "vocab.txt"]


def test_outputs_that_cannot_be_are_one_line(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    convert = ["convert", "--from=hf", f"--input={model}", "--overwrite"]
    for output, message in (
        (tmp_path / "file", "file is a file; choose another"),
        (tmp_path / "file" / "out", "file is a file; choose another"),
        (tmp_path / "link", "points to nowhere, which does not exist"),
        (tmp_path / ("n" * 256), "at most 255 bytes; the output's has 256"),
        (Path("/dev/full"), "/dev/full is a file; choose another"),
        (Path("/proc/out"), "/proc/out cannot be written (No such file or directory); choose another"),
    ):
        assert message in refused([*convert, f"--output={output}"], capsys), output
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]


def test_read_only_folder_is_one_line(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Root may write anywhere, so the answer of the system is put in its mouth.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    err = refused(["convert", "--from=hf", f"--input={model}", f"--output={tmp_path / 'out'}"], capsys)
    assert f"{tmp_path} is read-only; choose another" in err and os.listdir(tmp_path) == []


def test_umask_decides_the_modes_of_a_model(model: Path, tmp_path: Path) -> None:
    previous = os.umask(0o077)
    try:
        assert cli.main(["convert", "--from=hf", f"--input={model}", f"--output={tmp_path / 'out'}"]) == 0
    finally:
        os.umask(previous)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()}
    assert set(modes.values()) == {0o600} and "model.safetensors" in modes


def test_marker_disturbs_nobody(model: Path) -> None:
    digest = checkpointing.digest_directory(model)
    marker = model / outputs.MARKER
    content = marker.read_bytes()
    marker.unlink()
    assert checkpointing.digest_directory(model) == digest
    marker.write_bytes(content)


def test_killed_at_each_change_convert(model: Path, tmp_path: Path) -> None:
    def action(root: Path) -> int:
        return cli.main(["convert", "--from=hf", f"--input={model}", f"--output={root / 'out'}", "--overwrite"])

    def prepare(root: Path) -> None:
        shutil.copytree(model, root / "out")
        (root / "out" / "vocab.txt").write_text("old")

    assert killing.kill_at_each_change(action, prepare, tmp_path, every=4) > 15
