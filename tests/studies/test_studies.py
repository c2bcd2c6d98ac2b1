"""Each study can be started, and its committed result is valid. What it measures is not checked here."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from test_sweeps import SWEEPS

from pocketbert.errors import UserError
from pocketbert_bench import results
from studies import __main__ as program
from studies import closed, runner, tables
from studies.tables.render import MarkedBlock


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Studies that measure nothing: one meets its target, one lacks its data, one writes an invalid result."""

    def good(quick: bool) -> dict[str, Any]:
        return _content(quick, 0.6, "a note")

    def bad(quick: bool) -> dict[str, Any]:
        return _content(quick, 0.4)

    def absent(quick: bool) -> dict[str, Any]:
        raise UserError("this study reads SST-2")

    studies = {"good": good, "bad": bad, "absent": absent, "invalid": lambda quick: {"title": "half"}}
    monkeypatch.setattr(runner, "studies", lambda: list(studies))
    monkeypatch.setattr(runner, "run_of", studies.__getitem__)


def _content(quick: bool, target: float, *notes: str) -> dict[str, Any]:
    ratio = results.ratio(
        name="r", description="", ours="a", peer="b", unit="us", ours_samples=[1.0, 1.0], peer_samples=[2.0, 2.0],
        better="lower", target=target,
    )  # fmt: skip
    return results.to_json(results.result_file("made up", quick=quick, ratios=[ratio], notes=notes))


@pytest.mark.parametrize("name", runner.studies())
def test_study_starts(name: str) -> None:
    assert callable(importlib.import_module(f"studies.{name.replace('/', '.')}").run)


@pytest.mark.parametrize("path", sorted(runner.RESULTS.rglob("*.json")), ids=lambda path: path.stem)
def test_committed_result_validates(path: Path) -> None:
    assert results.problems(json.loads(path.read_text(encoding="utf-8"))) == []


def test_every_committed_result_has_its_study() -> None:
    committed = {str(path.relative_to(runner.RESULTS).with_suffix("")) for path in runner.RESULTS.rglob("*.json")}
    assert committed == {*runner.studies(), *SWEEPS, *closed.CLOSED, "quickstart"} and len(committed) >= 20


@pytest.mark.parametrize("block", tables.BLOCKS, ids=lambda block: f"{Path(block.page).stem}-{block.name}")
def test_committed_tables_match_their_results(block: MarkedBlock) -> None:
    assert block.read() == block.render(), "run: python -m studies.tables"


def test_pages_tell_how_to_repeat_closed_measurements() -> None:
    pages = "".join(block.read() for block in tables.BLOCKS)
    assert closed.LAST_COMMIT in pages
    for name in closed.CLOSED:
        commit = results.read(runner.RESULTS / f"{name}.json").commit
        assert commit is not None and f"`{commit[:8]}`" in pages
        assert closed.command(name) in pages or f"| `{name}` |" in pages, name


def test_pictures_are_drawn_from_their_results(tmp_path: Path) -> None:
    for picture in tables.PICTURES:
        drawn = tmp_path / Path(picture.path).name
        picture.draw(results.read(runner.RESULTS / f"{picture.result}.json"), drawn)
        committed = (tables.render.ROOT / picture.path).read_text(encoding="utf-8")
        # The words; shapes may differ with the fonts.
        assert words(drawn.read_text(encoding="utf-8")) == words(committed) != []


def words(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_closed_study_names_its_commit(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="received hsk/speed, which are closed; check out commit [0-9a-f]{8} and run"):
        runner.run_studies(["hsk/speed"], tmp_path, quick=True)


@pytest.mark.usefixtures("made_up")
def test_results_are_written_and_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = runner.run_studies(["good", "absent"], tmp_path, quick=True)
    assert written == {"good": tmp_path / "good.json"}
    assert results.read(written["good"]).quick
    assert "study absent is left out: this study reads SST-2" in capsys.readouterr().err
    with pytest.raises(UserError, match="invalid.json"):
        runner.run_studies(["invalid"], tmp_path, quick=True)
    with pytest.raises(UserError, match="a study is one of good, bad, absent, invalid; received wrong"):
        runner.run_studies(["wrong"], tmp_path, quick=True)


@pytest.mark.usefixtures("made_up")
def test_missed_target_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["studies", "good", f"--output={tmp_path}"]) == 0
    assert "r: 0.500 (95 % 0.500 to 0.500), target <= 0.6: met\n  a note" in capsys.readouterr().out
    assert program.main(["studies", "bad", f"--output={tmp_path}"]) == 1
    assert program.main(["studies", "nothing"]) == 2
