"""Each study can be started, and its committed result is valid. What it measures is not checked here."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from pocketbert.errors import UserError
from pocketbert_bench import results
from studies import __main__ as program
from studies import runner, tables

EXPERIMENTS = (
    "efficientbert/accuracy", "hsk/accuracy", "minilmv2/accuracy", "mobilebert/accuracy", "tasks/accuracy", "tasks/qat",
    "tinybert/accuracy", "trimming/accuracy",
)  # fmt: skip


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Studies that measure nothing: one meets its target, one lacks its data, one writes an invalid result."""

    def good(quick: bool) -> dict[str, Any]:
        return _content(quick, 0.6, "a note")

    def bad(quick: bool) -> dict[str, Any]:
        return _content(quick, 0.4)

    def absent(quick: bool) -> dict[str, Any]:
        raise UserError("this study reads SST-2")

    found = {"good": good, "bad": bad, "absent": absent, "invalid": lambda quick: {"title": "half"}}
    monkeypatch.setattr(runner, "studies", lambda: list(found))
    monkeypatch.setattr(runner, "run_of", found.__getitem__)


def _content(quick: bool, target: float, *notes: str) -> dict[str, Any]:
    ratio = results.ratio(
        name="r", description="", ours="a", peer="b", unit="us", ours_samples=[1.0, 1.0], peer_samples=[2.0, 2.0],
        better="lower", target=target,
    )  # fmt: skip
    return results.to_json(results.result_file("made up", quick=quick, ratios=[ratio], notes=notes))


@pytest.mark.parametrize("name", [*runner.studies(), *EXPERIMENTS])
def test_study_starts_and_result_validates(name: str) -> None:
    module = importlib.import_module(f"studies.{name.replace('/', '.')}")
    assert callable(module.run if name not in EXPERIMENTS else module.EXPERIMENT.jobs)
    content = json.loads((runner.RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    assert results.problems(content) == []


def test_every_committed_result_has_its_study() -> None:
    committed = {str(path.relative_to(runner.RESULTS).with_suffix("")) for path in runner.RESULTS.rglob("*.json")}
    assert committed == {*runner.studies(), *EXPERIMENTS, "quickstart"} and len(committed) >= 20


@pytest.mark.parametrize(("block", "path", "table"), tables.PAGES, ids=lambda value: getattr(value, "stem", None))
def test_committed_tables_match_their_results(block: Any, path: Path, table: Any) -> None:
    assert block.read() == tables.text(path, table), "run: python -m studies.tables"


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
