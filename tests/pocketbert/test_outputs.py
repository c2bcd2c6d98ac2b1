"""What is there is never lost, and what is not complete is never there."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import killing
import pytest

from pocketbert import files
from pocketbert import output_folders as outputs
from pocketbert.errors import UserError

KIND = "parcel"


def make(path: Path, text: str = "new", *, overwrite: bool = False) -> None:
    with outputs.new_directory(path, KIND, overwrite=overwrite) as folder:
        (folder / "a").write_text(text)
        (folder / "deep").mkdir()
        (folder / "deep" / "b").write_text(text)


def content(path: Path) -> dict[str, bytes | None]:
    return {name: value for name, value in killing.tree(path).items() if name != outputs.MARKER}


def test_overwrite_replaces_its_own(tmp_path: Path) -> None:
    make(tmp_path / "out", "old")
    make(tmp_path / "out", "new", overwrite=True)
    assert content(tmp_path / "out") == {"a": b"new", "deep": None, "deep/b": b"new"}
    assert os.listdir(tmp_path) == ["out"]


def test_overwrite_without_exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_rename", lambda *arguments: False)
    make(tmp_path / "out", "old")
    make(tmp_path / "out", "new", overwrite=True)
    assert content(tmp_path / "out")["a"] == b"new" and os.listdir(tmp_path) == ["out"]
    with pytest.raises(UserError, match="must not exist yet"):
        make(tmp_path / "out")


@pytest.mark.parametrize("marked", [True, False], ids=["foreign_file", "foreign_folder"])
def test_foreign_files_are_named_and_kept(tmp_path: Path, marked: bool) -> None:
    out = tmp_path / "out"
    if marked:
        make(out)
    else:
        out.mkdir()
    (out / "thesis.tex").write_text("years")
    before = killing.tree(tmp_path)
    with pytest.raises(UserError, match=r"PocketBERT replaces only what it (made|wrote).*thesis\.tex"):
        make(out, overwrite=True)
    assert killing.tree(tmp_path) == before


def test_overwrite_refuses_another_kind(tmp_path: Path) -> None:
    with outputs.held_directory(tmp_path / "out", "run", ["a"]) as folder:
        (folder / "a").touch()
    with pytest.raises(UserError, match="must be a parcel; .* holds a run; choose another"):
        make(tmp_path / "out", overwrite=True)


@pytest.mark.parametrize("overwrite", [True, False])
def test_folder_made_meanwhile_is_kept(tmp_path: Path, overwrite: bool) -> None:
    out = tmp_path / "out"
    with pytest.raises(UserError, match="precious" if overwrite else "must not exist yet"):
        with outputs.new_directory(out, KIND, overwrite=overwrite) as folder:
            (folder / "a").touch()
            out.mkdir()
            (out / "precious").touch()
    assert killing.tree(tmp_path) == {"out": None, "out/precious": b""}


@pytest.mark.parametrize("portable", [True, False])
def test_empty_folder_made_meanwhile_is_kept(tmp_path: Path, portable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if portable:
        monkeypatch.setattr(files, "_rename", lambda *arguments: False)
    with pytest.raises(UserError, match="must not exist yet"):
        with outputs.new_directory(tmp_path / "out", KIND):
            (tmp_path / "out").mkdir()
            inode = (tmp_path / "out").stat().st_ino
    assert (tmp_path / "out").stat().st_ino == inode and os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("portable", [True, False])
def test_file_made_meanwhile_is_kept(tmp_path: Path, portable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if portable:
        monkeypatch.setattr(files, "_rename", lambda *arguments: False)
    with pytest.raises(UserError, match="must not exist yet"):
        with files.new_file(tmp_path / "out", overwrite=False) as stream:
            stream.write(b"mine")
            (tmp_path / "out").write_text("theirs")
    assert killing.tree(tmp_path) == {"out": b"theirs"}


def _race(path: str, barrier: object, answers: object) -> None:
    barrier.wait()  # type: ignore[attr-defined]
    try:
        with outputs.new_directory(path, KIND) as folder:
            (folder / "pid").write_text(str(os.getpid()))
            barrier.wait()  # type: ignore[attr-defined]
        answers.put(("made", os.getpid()))  # type: ignore[attr-defined]
    except UserError as error:
        barrier.wait()  # type: ignore[attr-defined]
        answers.put((str(error), 0))  # type: ignore[attr-defined]


def test_one_of_two_writers_wins(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(2, timeout=20), context.Queue()
    racers = [context.Process(target=_race, args=(str(tmp_path / "out"), barrier, answers)) for _ in range(2)]
    for racer in racers:
        racer.start()
    (first, pid), (second, _) = sorted((answers.get(timeout=20) for _ in racers), key=lambda call: call[0] != "made")
    for racer in racers:
        racer.join()
    assert first == "made" and second.startswith("one process at a time may write an output; another has")
    assert (tmp_path / "out" / "pid").read_text() == str(pid) and os.listdir(tmp_path) == ["out"]


def test_overwrite_refuses_a_folder_in_use(tmp_path: Path) -> None:
    make(tmp_path / "out", "old")
    with outputs.held_directory(tmp_path / "out", KIND):
        with pytest.raises(UserError, match="one process at a time"):
            make(tmp_path / "out", overwrite=True)
    assert content(tmp_path / "out")["a"] == b"old"


def test_second_holder_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with outputs.held_directory(tmp_path / "a" / "run", "run"):
        with pytest.raises(UserError, match="one process at a time .*a/run"):
            with outputs.held_directory(tmp_path / "a" / "run", "run"):
                pass
    assert not (tmp_path / "a" / "run").exists()


def test_error_leaves_no_parents(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        with outputs.new_directory(tmp_path / "a" / "b" / "out", KIND):
            raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        with files.new_file(tmp_path / "c" / "d" / "out"):
            raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


def test_umask_decides_the_modes(tmp_path: Path) -> None:
    previous = os.umask(0o027)
    try:
        make(tmp_path / "out")
        files.write_text(tmp_path / "file", "text")
        import numpy as np

        files.write_tensors(tmp_path / "tensors", {"a": np.zeros(3)}, {})
    finally:
        os.umask(previous)
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("out", "file", "tensors")}
    assert modes == {"out": 0o750, "file": 0o640, "tensors": 0o640}


@pytest.mark.parametrize("name", ["n" * 246, "n" * 255, "ü" * 127], ids=["246", "255", "254_in_utf8"])
def test_long_names(tmp_path: Path, name: str) -> None:
    make(tmp_path / name)
    make(tmp_path / name, overwrite=True)
    assert os.listdir(tmp_path) == [name]
    with files.new_file(tmp_path / f"{name[:-1]}x") as stream:
        stream.write(b"1")
    assert len(os.listdir(tmp_path)) == 2
    assert len(os.fsencode(files.named_after(tmp_path / name, "unfinished", hidden=False).name)) <= 255


def test_too_long_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at most 255 bytes; the output's has 256"):
        make(tmp_path / ("n" * 256))


def test_dangling_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("nowhere")
    for write in (lambda: make(tmp_path / "out"), lambda: files.check_absent(tmp_path / "out", overwrite=True)):
        with pytest.raises(UserError, match="points to nowhere, which does not exist; remove the link"):
            write()
    assert (tmp_path / "out").is_symlink()


def test_link_to_a_folder_stays(tmp_path: Path) -> None:
    make(tmp_path / "real", "old")
    (tmp_path / "out").symlink_to("real")
    make(tmp_path / "out", overwrite=True)
    assert (tmp_path / "out").is_symlink() and content(tmp_path / "real")["a"] == b"new"


def test_parent_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="must be in a folder; .*file/a/b, and .*file is a file; choose another"):
        make(tmp_path / "file" / "a" / "b")


def test_device_is_no_output(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="/dev/full is no plain file"):
        files.check_absent("/dev/full", overwrite=True)


@pytest.mark.parametrize("inside", ["out", "out/deep/b", "link", "out/../out/a"])
def test_input_in_the_output_is_refused(tmp_path: Path, inside: str) -> None:
    make(tmp_path / "out")
    (tmp_path / "link").symlink_to("out/a")
    with pytest.raises(UserError, match="an input must not be in the output; received .* choose another output"):
        outputs.check_inputs(tmp_path / "out", [None, tmp_path / "missing", tmp_path / inside])
    outputs.check_inputs(tmp_path / "out" / "new", [tmp_path / "out", tmp_path])


def test_removed_folder_is_noticed(tmp_path: Path) -> None:
    with outputs.held_directory(tmp_path / "run", "run", ["a"]) as folder:
        files.write_text(folder / "a", "1")
        (folder / "a").unlink()
        (folder / outputs.MARKER).unlink()
        folder.rmdir()
        with pytest.raises(UserError, match="run was removed or replaced; start again"):
            files.write_text(folder / "a", "2")
    assert os.listdir(tmp_path) == []


def _replace(root: Path) -> None:
    make(root / "a" / "out", overwrite=True)


def _write_and_remove(root: Path) -> None:
    files.write_json(root / "out.json", {"a": 1})
    with outputs.held_directory(root / "run", "run", ["a"]) as folder:
        files.write_text(folder / "a", "1")
        outputs.remove_directory(folder)


NAMES = ("main", "second", "third")


def make_together(root: Path, text: str = "new", *, main: str = "main", overwrite: bool = False) -> None:
    outputs.check_together({str(root / name): KIND for name in (main, *NAMES[1:])}, overwrite=overwrite)
    with outputs.together() as group:
        for name in (main, *NAMES[1:]):
            with outputs.new_directory(root / name, KIND, overwrite=overwrite, group=group) as folder:
                (folder / "a").write_text(text)


def _new(write: Callable[[], object]) -> int:
    """The exit code of a command without --overwrite."""
    try:
        write()
    except UserError:
        return 2
    return 0


def _make(root: Path) -> int:
    return _new(lambda: make(root / "out"))


def _make_file(root: Path) -> int:
    def write() -> None:
        files.check_absent(root / "out", overwrite=False)
        with files.new_file(root / "out", overwrite=False) as stream:
            stream.write(b"new")

    return _new(write)


def _make_together(root: Path) -> int:
    return _new(lambda: make_together(root))


def _replace_together(root: Path) -> None:
    make_together(root, overwrite=True)


def _kill_all(folder: Path) -> None:
    old, nothing = (lambda root: make(root / "a" / "out", "old")), (lambda root: None)
    several = lambda root: make_together(root, "old")  # noqa: E731
    for name, action, before in (
        ("replace", _replace, old),
        ("file", _write_and_remove, old),
        ("new", _make, nothing),
        ("new_file", _make_file, nothing),
        ("together", _make_together, nothing),
        ("replace_together", _replace_together, several),
    ):
        for system in ("linux", "portable"):
            if system == "portable":
                original, files._rename = files._rename, lambda *arguments: False  # type: ignore[assignment]
            (folder / f"{name}_{system}").mkdir()
            changes = killing.kill_at_each_change(action, before, folder / f"{name}_{system}")
            if system == "portable":
                files._rename = original
            print(f"{name}, {system}: {changes} changes", flush=True)
            assert changes >= 2, name


def test_killed_at_each_change(tmp_path: Path) -> None:
    # In a small process: forks of one with TensorFlow take long.
    with killing.folder_in_memory(tmp_path) as folder:
        process = multiprocessing.get_context("spawn").Process(target=_kill_all, args=(folder,))
        process.start()
        process.join(120)
    assert process.exitcode == 0


def at_the_last_name(action: Callable[[], object]) -> None:
    """Makes the rename to the main output do something else."""
    rename = files._rename

    def renamed(source: Path, target: Path, flag: int) -> bool:
        if target.name == "main":
            action()
        return rename(source, target, flag)

    files._rename = renamed


@pytest.mark.parametrize("overwrite", [True, False])
def test_full_disk_at_the_last_name(tmp_path: Path, overwrite: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if overwrite:
        make_together(tmp_path, "old")
    before = killing.tree(tmp_path)
    with monkeypatch.context() as context:
        context.setattr(files, "_rename", files._rename)
        at_the_last_name(full)
        with pytest.raises(OSError, match="No space left"):
            make_together(tmp_path, overwrite=overwrite)
    assert killing.tree(tmp_path) == before
    make_together(tmp_path, overwrite=overwrite)
    assert [content(tmp_path / name)["a"] for name in NAMES] == [b"new"] * 3
    assert sorted(os.listdir(tmp_path)) == sorted(NAMES)


def test_killed_command_keeps_foreign_files(tmp_path: Path) -> None:
    def killed() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    code = killing.attempt(lambda: _make_together(tmp_path), lambda: at_the_last_name(killed))
    assert code == -signal.SIGKILL
    assert sorted(name for name in os.listdir(tmp_path) if name in NAMES) == ["second", "third"]
    before = killing.tree(tmp_path / "second")
    with pytest.raises(UserError, match="must not exist yet; received .*second"):
        make_together(tmp_path, main="another")
    with pytest.raises(UserError, match="must not exist yet; received .*second"):
        make(tmp_path / "second")
    (tmp_path / "second" / "thesis.tex").touch()
    with pytest.raises(UserError, match=r"also holds thesis\.tex; move it away"):
        make_together(tmp_path)
    (tmp_path / "second" / "thesis.tex").unlink()
    assert killing.tree(tmp_path / "second") == before
    make_together(tmp_path)
    with pytest.raises(UserError, match="must not exist yet"):
        make_together(tmp_path)
    assert not list(tmp_path.rglob("*.ahead"))
    assert sorted(os.listdir(tmp_path)) == sorted(NAMES)
