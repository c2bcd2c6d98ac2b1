"""Outcomes of measured bundles: in result files, tables and pages, before sizes, latencies and checks."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import bench_subjects
import numpy as np
import pytest
from bench_subjects import measurement

from pocketbert import cli
from pocketbert.data.examples import Examples
from pocketbert_bench import host, report, results
from pocketbert_bench.bundle_outcomes import BaselineScore, BundleOutcome
from pocketbert_bench.host import Schedule
from pocketbert_bench.results import ResultFile
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.exporter import export

BRIEF = Schedule(rounds=2, runs=6, seconds=0.0, longest_seconds=1.0, warm_up_seconds=0.0)
# In any notation of the option.
NO_SCORE = "No score: export with "
CHECKS = {"checks": [{"name": "padding", "passed": True, "measured": 0.0, "bound": 0.0, "reason": "", "runtime": "x"}]}


@pytest.fixture(scope="module")
def bundles(plain_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A bundle with an outcome, and one without."""
    folder = tmp_path_factory.mktemp("outcomes")
    texts = [f"the film is {word}" for word in ("good", "bad", "dull", "very good", "not bad", "bright", "not good")]
    labels = np.arange(7, dtype=np.int32) % 3
    labelled = Examples(texts, None, labels, texts, "here")
    # Another file than that of the other bundle, which would else have the same score.
    export(plain_bundle.parent / "network", folder / "scored", recipe="float32", lengths=(9,), examples=labelled)
    shutil.copytree(plain_bundle, folder / "unscored")
    return folder / "scored", folder / "unscored"


def outcome(**changes: Any) -> BundleOutcome:
    fields = {
        "model": "net",
        "label": "dynamic_wi8",
        "model_sha256": "ab" * 32,
        "metric": "accuracy",
        "score": 0.28,
        "examples": 100,
        "interval": (0.2, 0.37),
        "baselines": (BaselineScore(name="always <a>", score=0.25), BaselineScore(name="TF-IDF", score=0.95)),
        "teacher": 0.88,
        "float_model": 0.3,
        "verdict": "below the baseline",
        "headline": "below the baseline: accuracy 0.280",
        "warnings": ("use TF-IDF",),
        **changes,
    }
    return BundleOutcome(**fields)  # type: ignore[arg-type]


def measured(*outcomes: BundleOutcome) -> ResultFile:
    return bench_subjects.result(
        measurement("dynamic_wi8", 32, 1.0, recipe="dynamic_wi8", size_bytes=1_000_000),
        measurement("TFLite converter float32", 32, 2.0, peer=True, size_bytes=4_000_000, model_sha256="cd" * 32),
        outcomes=outcomes or None,
    )


def order(text: str, *parts: str) -> bool:
    places = [text.index(part) for part in parts]
    return places == sorted(places)


@pytest.mark.usefixtures("without_plots")
def test_bench_records_the_bundles_outcome(
    bundles: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(host, "FULL", BRIEF)
    output = tmp_path / "r.json"
    assert cli.main(["bench", *map(str, bundles), f"--output={output}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    stored = Bundle.open(bundles[0]).outcome
    assert stored is not None
    assert lines[0] == f"scored: {stored['headline']}"
    assert lines[1] == "unscored: no score: export with --file=…, your labelled examples, to see it."
    content = json.loads(output.read_text())
    (recorded,) = content["outcomes"]
    shared = {name: value for name, value in stored.items() if name != "examples_sha256"}
    digest = hashlib.sha256((bundles[0] / "model.tflite").read_bytes()).hexdigest()
    assert recorded == {**shared, "model": "scored", "label": "scored", "model_sha256": digest}
    assert results.read(output).outcomes is not None
    # The page needs no bundle.
    assert cli.main(["report", str(output), f"--output={tmp_path / 'page'}"]) == 0
    text = (tmp_path / "page" / "report.html").read_text(encoding="utf-8")
    assert order(text, f"<b>{stored['score']:.3f}</b>", "Exports", "Size (MB)")


@pytest.mark.usefixtures("without_plots")
def test_report_takes_outcomes_of_bundles(bundles: tuple[Path, Path], tmp_path: Path) -> None:
    digest = hashlib.sha256((bundles[0] / "model.tflite").read_bytes()).hexdigest()
    run = bench_subjects.result(measurement("phone", 9, 1.0, model_sha256=digest))
    results.write(tmp_path / "r.json", run)
    call = ["report", str(tmp_path / "r.json"), f"--bundles={bundles[0]}", f"--output={tmp_path / 'page'}"]
    assert cli.main(call) in (None, 0)
    stored = Bundle.open(bundles[0]).outcome
    assert stored is not None
    text = (tmp_path / "page" / "report.html").read_text(encoding="utf-8")
    assert order(text, f"<b>{stored['score']:.3f}</b>", "checks passed") and NO_SCORE not in text


@pytest.mark.usefixtures("without_plots")
def test_lost_bundle_is_red_above_all(tmp_path: Path) -> None:
    path = report.build_report([measured(outcome())], tmp_path / "page", verification={"dynamic_wi8": CHECKS})
    text = path.read_text(encoding="utf-8")
    assert order(
        text,
        '<section class="card outcome lost">',
        '<p class="bad verdict">below the baseline</p>',
        "<b>0.280</b>",
        "0.200 to 0.370",
        "Float model",
        "\N{MINUS SIGN}2.0",
        "Teacher",
        "\N{MINUS SIGN}60.0",
        "Always &lt;a&gt;",
        "TF-IDF",
        "\N{MINUS SIGN}67.0",
        "use TF-IDF",
        "4.00×",
        "1 of 1",
        '<td class="n bad">28.00 %</td>',
    )


@pytest.mark.usefixtures("without_plots")
def test_page_without_scores_has_a_hint(tmp_path: Path) -> None:
    path = report.build_report([measured()], tmp_path / "page", verification={"dynamic_wi8": CHECKS})
    text = path.read_text(encoding="utf-8")
    # Once, for our export; another tool's export has no outcome.
    assert text.count(NO_SCORE) == 1 and order(text, NO_SCORE, "checks passed")


@pytest.mark.usefixtures("without_plots")
def test_scores_of_the_run_need_no_hint(tmp_path: Path) -> None:
    score = results.Accuracy(
        label="dynamic_wi8", model="net", recipe="dynamic_wi8", model_sha256=None, task="mood", split="dev",
        metric="accuracy", value=0.75, examples=80,
    )  # fmt: skip
    run = dataclasses.replace(measured(), accuracies=(score,))
    text = report.build_report([run], tmp_path / "page").read_text(encoding="utf-8")
    assert order(text, "<b>0.750</b>", "accuracy on 80 examples", "Exports") and NO_SCORE not in text
    assert "no score" not in report.table(run)


def test_score_column_comes_from_the_bundle() -> None:
    lines = report.table(measured(outcome())).splitlines()
    assert lines[0] == "dynamic_wi8: below the baseline: accuracy 0.280"
    assert lines[1].split()[:4] == ["export", "MB", "accuracy", "%"]
    assert next(line.split() for line in lines[2:] if line.startswith("dynamic_wi8"))[1:3] == ["1.0", "28.00"]
