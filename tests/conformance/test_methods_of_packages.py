"""Methods of other packages, by their entry points: `distill`, the rules, and messages for those that do not work."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_distillation
import tiny_finetuning

from pocketbert import cli
from pocketbert.commands import distill
from pocketbert.conformance import cases, rules
from pocketbert.conformance.__main__ import main
from pocketbert.conformance.rules import RULES
from pocketbert.distillation import methods
from pocketbert.errors import TrainingFailed

PACKAGE = Path(__file__).resolve().parents[1] / "fixtures" / "toy_package"


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package is on the path, as if installed."""
    monkeypatch.syspath_prepend(PACKAGE)
    for cache in (methods._entry_points, methods._method_of_package):
        cache.cache_clear()
    yield
    for cache in (methods._entry_points, methods._method_of_package):
        cache.cache_clear()
    sys.modules.pop("toy_distillation", None)


def test_distill_trains_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str], eager: None) -> None:
    assert cli.main(["distill", "--method=last-layer", "--help"]) == 0
    assert "passes over the examples" in capsys.readouterr().out
    teacher = tiny_distillation.write_teacher(tmp_path / "teacher")
    table = tiny_finetuning.write_table(tmp_path / "train.csv", tiny_finetuning.examples(60, seed=2))
    student = tmp_path / "config.json"
    config = json.loads((teacher / "config.json").read_text())
    student.write_text(json.dumps(config | {"num_hidden_layers": 1}))
    code = cli.main([
        "distill", "--method=last-layer", f"--teacher={teacher}", f"--student={student}", f"--train-file={table}",
        "--labels=low,high", "--max-length=19", "--epochs=2", f"--output={tmp_path / 'run'}",
    ])  # fmt: skip
    assert code == 0
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["objective"] == "last-layer" and record["option_epochs"] == 2
    # 54 of 60 examples, in batches of 32, twice.
    assert json.loads((tmp_path / "run" / "result.json").read_text())["steps"] == 4
    first, *_, last = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    assert {"hidden", "labels"} <= set(first)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "code"), [("last-layer", 0), ("careless", 1)])
def test_rules_find_what_is_broken(name: str, code: int, capsys: pytest.CaptureFixture[str], eager: None) -> None:
    assert main([name]) == code
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("ok", "BROKEN", "skipped"))]
    broken = [line.split(": ")[1] for line in lines if line.startswith("BROKEN")]
    # Three kinds of data, and six rules for each.
    assert len(lines) == 18 and set(broken) == ({"padding", "teacher cache"} if code else set())
    if code:
        assert lines[1].startswith("BROKEN   careless, classification: padding: BrokenRule: stage all: tokens in the ")


@pytest.mark.parametrize(("name", "code"), [("last-layer", 0), ("careless", 1)])
def test_some_rules_find_what_is_broken(
    name: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], eager: None
) -> None:
    few = {rule: RULES[rule] for rule in (["labels", "padding", "teacher cache"] if code else ["labels", "padding"])}
    monkeypatch.setattr(rules, "RULES", few)
    every = cases.kinds
    monkeypatch.setattr(
        cases, "kinds", lambda *method: {kind: every(*method)[kind] for kind in ("classification", "general")}
    )
    assert main([name]) == code
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("ok", "BROKEN", "skipped"))]
    broken = [line.split(": ")[1] for line in lines if line.startswith("BROKEN")]
    assert len(lines) == 2 * len(few) and broken == (["padding", "teacher cache"] * 2 if code else [])
    if code:
        assert lines[1].startswith("BROKEN   careless, classification: padding: BrokenRule: stage all: tokens in the ")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent", "of toy-distillation must be importable; received AttributeError: module 'toy_distillation' has no"),
        ("only-tags", "no rule could be checked for only-tags"),
        ("last-leyer", "no distillation method 'last-leyer' (did you mean 'last-layer'?)"),
    ],
)
def test_methods_that_cannot_be_used(name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert message in errors[-1]
    if name != "only-tags":
        assert cli.main(["distill", f"--method={name}", "--output=out"]) == 2
        assert message in capsys.readouterr().err.splitlines()[-1]


def test_our_methods_keep_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert methods.get_method("tinybert").__module__ == "pocketbert.distillation.methods.tinybert"
    assert "tinybert" in methods.names() and "finetune" not in methods.names()
    error = capsys.readouterr().err
    for name in ("tinybert", "finetune"):
        assert f"the method {name!r} of toy-distillation is ignored, since PocketBERT has one with this name" in error
    # Shells complete the options of those that can be used.
    lines = [line for (line,) in distill.variants()]
    assert "--method=last-layer" in lines and "--method=absent" not in lines


def test_options_of_the_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert [main(["last-layer", option]) for option in ("--epoch=2", "--epochs=two", "2")] == [2, 2, 2]
    errors = [line for line in capsys.readouterr().err.splitlines() if "is ignored" not in line]
    assert (
        "no option --epoch (did you mean '--epochs'?); last-layer has --label-weight, --schedule, --max-len"
        in errors[0]
    )
    assert "--epochs" in errors[1] and "received two" in errors[1] and len(errors) == 3


def test_compress_tries_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: Any, capsys: Any) -> None:
    from pocketbert_bench.compression import methods as of_compression

    of_compression._methods_of_packages.cache_clear()
    teacher = tiny_distillation.write_teacher(tmp_path / "teacher")
    described = of_compression.describe_directory(teacher)
    data = tiny_distillation.task_data(teacher)
    ways = of_compression.trainings(data, described, described.config.replace(num_layers=1), text=False)
    of_compression._methods_of_packages.cache_clear()
    names = [way.method for way in ways if way.rate == 1]
    # One for this kind alone does not replace the others.
    assert names[-3:] == ["careless", "last-layer", "only-classes"] and names[:2] == ["finetune", "predictions"]
    error = capsys.readouterr().err
    assert "the method absent is not tried: the distillation method 'absent' of toy-distillation must be" in error
    shape = of_compression.TrialShape(
        teacher=described.config, student=described.config, kind="classification", examples=9, max_length=19, epochs=4
    )
    options, _ = of_compression.trial_options(of_compression.Training(method="last-layer", rate=3.0), shape, seed=0)
    given = {name: value for name, value in dataclasses.asdict(options).items() if value is not None}
    assert given == {"max_length": 19, "epochs": 4, "learning_rate": pytest.approx(3e-4)}


def test_a_faulty_method_costs_its_trial(tmp_path: Path) -> None:
    from pocketbert_bench.compression import methods as of_compression

    teacher = tiny_distillation.write_teacher(tmp_path / "teacher")
    shared = of_compression.TrialData(data=tiny_distillation.task_data(teacher), teacher=str(teacher), max_length=19)
    point = of_compression.trial_point(of_compression.Training(method="faulty"), teacher, 1)
    with pytest.raises(TrainingFailed, match="the method faulty raised KeyError: 'nothing'"):
        of_compression.train_trial(shared, point, 0, tmp_path / "trial")
