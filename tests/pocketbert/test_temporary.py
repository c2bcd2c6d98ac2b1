"""Temporary folders: removed at the end, after a kill by the next process, and nobody else's."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from pathlib import Path

import killing
import pytest

from pocketbert.temporary import temporary_files_go_with_the_run, temporary_folder

NAMED_ALIKE = ("pocketbert-abcdefgh", "pocketbert-cache", "pocketbert-")


def test_next_process_removes_folders_of_killed_ones(tmp_path: Path) -> None:
    def killed() -> None:
        with temporary_folder(tmp_path) as folder:
            (folder / "deep" / "er").mkdir(parents=True)
            (folder / "deep" / "file").touch()
            (folder / "link").symlink_to(tmp_path / "precious")
            os.kill(os.getpid(), signal.SIGKILL)

    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").touch()
    for name in NAMED_ALIKE:
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.tex").touch()
    before = killing.tree(tmp_path)
    with temporary_folder(tmp_path) as used:
        (used / "file").touch()
        for _ in range(2):
            assert killing.attempt(killed) == -signal.SIGKILL
            assert len(os.listdir(tmp_path)) == len(NAMED_ALIKE) + 3
        with temporary_folder(tmp_path):
            pass
        assert (used / "file").exists()
    assert killing.tree(tmp_path) == before


def _leave(root: Path) -> None:
    with temporary_folder(root) as folder:
        (folder / "deep").mkdir()
        for name in ("deep/a", "b"):
            (folder / name).touch()
        os.kill(os.getpid(), signal.SIGKILL)


def _use(root: Path) -> None:
    with temporary_folder(root) as folder:
        (folder / "c").touch()


def _prepare(root: Path) -> None:
    assert killing.attempt(lambda: _leave(root)) == -signal.SIGKILL  # type: ignore[func-returns-value]


def _kill_all(folder: Path) -> None:
    assert killing.kill_at_each_change(_use, _prepare, folder) > 8  # type: ignore[arg-type]


def test_killed_at_each_change(tmp_path: Path) -> None:
    # In a small process: forks of one with TensorFlow take long.
    process = multiprocessing.get_context("spawn").Process(target=_kill_all, args=(tmp_path,))
    process.start()
    process.join(60)
    assert process.exitcode == 0


def test_all_temporary_files_are_in_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with temporary_files_go_with_the_run():
        (folder,) = tmp_path.iterdir()
        assert Path(tempfile.mkdtemp()).parent == folder
    assert tempfile.tempdir == str(tmp_path) and list(tmp_path.iterdir()) == []


def test_commands_run_without_a_place_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with temporary_files_go_with_the_run():
        assert tempfile.tempdir == str(tmp_path / "missing")
