from __future__ import annotations

import json
import re
import shutil
import urllib.parse
from pathlib import Path

import bench_subjects
import pytest

from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert_bench import host, results
from pocketbert_bench.benchmark import benchmark
from pocketbert_bench.host import Schedule

BRIEF = Schedule(rounds=2, runs=6, seconds=0.0, longest_seconds=1.0, warm_up_seconds=0.0)


@pytest.fixture(scope="module")
def folder(plain_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network, a bundle of it, and a damaged copy."""
    folder = tmp_path_factory.mktemp("bench")
    for source, copy in (("network", "network"), ("whole", "whole"), ("whole", "damaged")):
        shutil.copytree(plain_bundle.parent / source, folder / copy)
    (folder / "damaged" / "vocab.txt").write_text("other\n", encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "FULL", BRIEF)


@pytest.mark.usefixtures("without_plots")
def test_bench_output_is_readable_by_report(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "r.json"
    arguments = ["bench", str(folder / "whole"), "--lengths=9,17", "--threads=1,2", f"--output={output}"]
    assert cli.main(arguments) == 0
    table = capsys.readouterr().out
    hint, heads = table.split("\n")[:2]
    assert hint == "whole: no score: export with --file=…, your labelled examples, to see it."
    assert heads.split() == "export MB ms@9 ms@17 ms@9/2t ms@17/2t smaller faster".split()
    measured = results.read(output)
    assert [(measurement.length, measurement.threads) for measurement in measured.measurements] == [
        (9, 1),
        (9, 2),
        (17, 1),
        (17, 2),
    ]
    # A bundle does not tell.
    assert {measurement.weights for measurement in measured.measurements} == {None}
    assert results.RANDOM_WEIGHTS_NOTE not in measured.notes
    assert cli.main(["report", str(output), f"--output={tmp_path / 'page'}", f"--bundles={folder / 'whole'}"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "page" / "report.html")
    page = (tmp_path / "page" / "report.html").read_text(encoding="utf-8")
    assert "whole: " in page and "passed" in page
    (link,) = re.findall(r'href="data:text/markdown;charset=utf-8,([^"]*)" download="README.md"', page)
    assert urllib.parse.unquote(link) == (folder / "whole" / "README.md").read_text(encoding="utf-8")
    # A second time the result file is in the way, and nothing is measured.
    assert cli.main(arguments) == 2
    assert "must not exist yet" in capsys.readouterr().err
    assert cli.main(["bench", str(folder / "whole"), "--output=/proc/nothing/r.json"]) == 2
    printed = capsys.readouterr()
    assert "r.json cannot be written" in printed.err and printed.err.count("\n") == 1


def test_damaged_bundle_fails_other_is_measured(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", str(folder / "damaged"), str(folder / "whole"), "--lengths=9", "--json"]) == 1
    printed = capsys.readouterr()
    content = json.loads(printed.out)
    assert results.problems(content) == []
    assert {measurement["label"]: measurement["status"] for measurement in content["measurements"]} == {
        "damaged": "failed",
        "whole": "ok",
    }
    assert "vocab.txt must have" in content["measurements"][0]["error"]


@pytest.mark.nightly
def test_token_outputs_compare_at_own_length(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pocketbert_export.exporter import export

    spans = TaskConfig(kind="span", null_threshold=-0.5)
    network = bench_subjects.write_network(tmp_path / "network", task=spans)
    export(network, tmp_path / "spans", recipe="float32", lengths=(9, 17))
    assert cli.main(["bench", str(tmp_path / "spans"), "--json"]) == 0
    measurements = json.loads(capsys.readouterr().out)["measurements"]
    assert [(measurement["length"], measurement["status"]) for measurement in measurements] == [(9, "ok"), (17, "ok")]
    # One golden example fills each length; the longest also has the shortest one, and the tokenizer's text twice: as a
    # context and as a question.
    assert [measurement["golden"]["examples"] for measurement in measurements] == [1, 4]


def test_baselines_are_measured_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    peers = ["--baselines", f"--model={folder / 'network'}"]
    assert cli.main(["bench", str(folder / "whole"), "--lengths=17", *peers, "--weights=random", "--json"]) == 0
    measurements = json.loads(capsys.readouterr().out)["measurements"]
    labels = [measurement["label"] for measurement in measurements]
    assert {"whole", "TFLite converter float32", "TFLite converter dynamic_wi8"} <= set(labels)
    assert {(measurement["model"], measurement["weights"]) for measurement in measurements} == {("network", "random")}
    assert all(
        measurement["peer"] == (measurement["label"] != "whole") and measurement["status"] == "ok"
        for measurement in measurements
    )


def test_repeated_bundle_is_refused(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "link").symlink_to(folder / "whole")
    for again in (folder / "whole", tmp_path / "link", f"{folder}/whole/"):
        assert cli.main(["bench", str(folder / "whole"), str(again)]) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err.count("\n") == 1
        assert f"BUNDLE… must be different; {folder / 'whole'} and {again} are the same; name each once" in printed.err
    for again in (folder / "whole", tmp_path / "link"):
        with pytest.raises(UserError, match=f"bundles must be different; .*whole and {again} are the same"):
            benchmark([folder / "whole", again])


def test_length_of_no_bundle_is_refused(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pocketbert_export.exporter import export

    phones = ["--device=SERIAL", f"--output={tmp_path / 'phones'}"]
    for more in ([], [str(folder / "damaged")], phones):
        assert cli.main(["bench", str(folder / "whole"), *more, "--lengths=9,33"]) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err.count("\n") == 1
        assert "whole has no signature for 33 tokens; it has 9, 17; choose such a length, or export" in printed.err
    # A length that one of them has is measured there.
    export(folder / "network", tmp_path / "other", recipe="float32", lengths=(13,))
    assert cli.main(["bench", str(folder / "whole"), str(tmp_path / "other"), "--lengths=13", "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)["measurements"]
    assert {row["label"]: row["status"] for row in rows} == {"whole": "failed", "other": "ok"}
    assert "has no signature for 13 tokens; it has 9, 17" in rows[0]["error"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench"], "takes at least one BUNDLE;"),
        (["bench", ".", "--lengths="], "--lengths=: must be a list of whole numbers"),
        (["bench", ".", "--threads="], "--threads=: must be a list of whole numbers"),
        (["bench", ".", "--runtime="], "--runtime=: must be one of litert, litert-compiled"),
        (["bench", ".", "--device="], "--device=: must name at least one"),
        (["bench", "nowhere"], "received nowhere"),
        (["bench", ".", "--threads=0"], "--threads takes different positive numbers"),
        (["bench", ".", "--lengths=32,32"], "--lengths takes different positive numbers"),
        (["bench", ".", "--baselines"], "--baselines needs --model"),
        (["report", "--output=x"], "takes at least one RESULT, or --try;"),
        (["report", "nowhere.json"], "--output is required"),
        (["report", "a.json", "./a.json", "--output=x"], "RESULT… must be different; a.json and ./a.json are the same"),
        (["report", "nowhere.json", "--output=x"], "nowhere.json"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.err and printed.err.count("\n") == 1 and printed.out == ""


def test_unverified_bundle_is_refused(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results.write(tmp_path / "r.json", bench_subjects.result(bench_subjects.measurement("float32", 9, 1.0)))
    assert cli.main(["report", str(tmp_path / "r.json"), f"--output={tmp_path / 'p'}", f"--bundles={tmp_path}"]) == 2
    assert "verification.json: the file cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "p").exists()
