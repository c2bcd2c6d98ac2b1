"""Lists of work: what is pending, and the line about what is finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from pocketbert.work_list import WorkList


def work(folder: Path) -> WorkList[str]:
    return WorkList(("c", "a", "b"), lambda name: (folder / name).exists())


def test_items_without_files_are_pending(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert work(tmp_path).pending == ["c", "a", "b"]
    work(tmp_path).log(tmp_path, "parts")
    assert capsys.readouterr().err == ""
    (tmp_path / "a").touch()
    resumed = work(tmp_path)
    assert (resumed.pending, resumed.finished) == (["c", "b"], ["a"])
    resumed.log(tmp_path, "parts")
    assert f"{tmp_path}: 1 of 3 parts are already complete\n" == capsys.readouterr().err
