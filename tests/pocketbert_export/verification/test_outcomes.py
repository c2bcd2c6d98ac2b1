"""The outcome of a bundle: compared with scikit-learn and SciPy on its own predictions, and forged in every number."""

from __future__ import annotations

import copy
import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import accuracy_score

from pocketbert import cli
from pocketbert.data.examples import Examples
from pocketbert.errors import UserError
from pocketbert.model import Model, from_pretrained
from pocketbert.tasks.predictor import model_predictor
from pocketbert.tasks.registry import text_task
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.exporter import export
from pocketbert_export.verification import outcomes
from pocketbert_export.verification.verify import verify_bundle

COUNT, WRONG = 43, 7


TEXTS = [
    " ".join(words)
    for random in [np.random.default_rng(5)]
    for words in (random.choice("the cat dog film story is good bad dull very not".split(), 5) for _ in range(COUNT))
]


@pytest.fixture(scope="module")
def model(small_directory: Path) -> Model:
    """A network that gives different answers to the texts."""
    model = from_pretrained(small_directory)
    bias = next(
        weight
        for path, weight in model.weights_by_path().items()
        if path.startswith("heads.") and tuple(weight.shape) == (3,)
    )
    bias.assign_sub(model_predictor(model).logits(TEXTS).mean(axis=0))
    return model


@pytest.fixture(scope="module")
def labelled(model: Model) -> Examples:
    """Sentences with the model's own answers, seven of which are changed."""
    texts = TEXTS
    answers = np.array([model.task.labels.index(answer["label"]) for answer in model.predict(texts)], np.int32)
    answers[::7] = (answers[::7] + 1) % 3
    return Examples(texts, None, answers, [str(index) for index in range(COUNT)], "reviews.csv")


@pytest.fixture(scope="module")
def run(model: Model, labelled: Examples, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder with `model/` and a record with baselines and a teacher on the same examples."""
    folder = tmp_path_factory.mktemp("run")
    model.save_pretrained(folder / "model")
    (folder / "run.json").write_text(json.dumps({"dev_sha256": labelled.identity, "model_sha256": "0" * 64}))
    baselines = [{"name": "always 'other'", "score": 0.1}, {"name": "TF-IDF", "score": 0.5}]
    outcome = {"metric": "accuracy", "score": 0.7, "baselines": baselines, "teacher": 0.875}
    (folder / "result.json").write_text(json.dumps({"outcome": outcome}))
    return folder


@pytest.fixture(scope="module")
def bundle(run: Path, labelled: Examples, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("outcome") / "mood"
    export(run / "model", path, recipe="float32", lengths=(7, 19), examples=labelled)
    return path


def description(folder: Path) -> dict[str, Any]:
    content = json.loads((folder / "bundle.json").read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def test_bundle_records_its_own_score(bundle: Path, labelled: Examples) -> None:
    opened = Bundle.open(bundle)
    outcome = opened.outcome
    assert outcome is not None and outcome == description(bundle)["outcome"]
    labels = opened.task.labels
    predicted = [labels.index(answer["label"]) for answer in opened.predict(labelled.texts)]
    assert outcome["score"] == pytest.approx(accuracy_score(labelled.labels, predicted)) == (COUNT - WRONG) / COUNT
    right = binomtest(COUNT - WRONG, COUNT).proportion_ci(0.95, method="wilson")
    assert outcome["interval"] == pytest.approx([right.low, right.high], abs=1e-6)
    constant = np.bincount(labelled.labels).max() / COUNT
    names = [baseline["name"] for baseline in outcome["baselines"]]
    assert names[0].startswith("always '") and names[1:] == ["TF-IDF"]
    assert [baseline["score"] for baseline in outcome["baselines"]] == pytest.approx([constant, 0.5])
    assert (outcome["teacher"], outcome["float_model"]) == (0.875, outcome["score"])
    assert (outcome["metric"], outcome["examples"], outcome["verdict"]) == ("accuracy", COUNT, "good")
    assert outcome["examples_sha256"] == labelled.identity


def test_unlabelled_export_has_no_outcome(small_bundle: Path) -> None:
    assert Bundle.open(small_bundle).outcome is None
    card = (small_bundle / "README.md").read_text(encoding="utf-8")
    assert card.index("No score: export with `examples=…`") < card.index("## Latency") < card.index("checks.")


@pytest.mark.parametrize("change", [{"dev_sha256": "1" * 64}, {"metric": "f1"}, {"outcome": None}])
def test_record_of_other_examples_is_left_out(
    change: dict[str, Any], run: Path, labelled: Examples, model: Model, tmp_path: Path
) -> None:
    record = json.loads((run / "run.json").read_text()) | {key: change[key] for key in change if key != "metric"}
    result = json.loads((run / "result.json").read_text())
    result["outcome"] = change.get("outcome", result["outcome"]) and result["outcome"] | change
    (tmp_path / "run.json").write_text(json.dumps(record))
    (tmp_path / "result.json").write_text(json.dumps(result))
    scores = text_task(model.task).score(labelled.labels, labelled.labels)
    assert outcomes.recorded(tmp_path, labelled, scores) == {}
    assert outcomes.recorded(run, labelled, scores)["teacher"] == 0.875
    # A run may keep its outcome in run.json.
    (tmp_path / "result.json").unlink()
    outcome_of_run = json.loads((run / "result.json").read_text())["outcome"]
    (tmp_path / "run.json").write_text(json.dumps({"dev_sha256": labelled.identity, "outcome": outcome_of_run}))
    assert outcomes.recorded(tmp_path, labelled, scores)["baselines"][0].name == "TF-IDF"


def test_training_examples_are_no_score(labelled: Examples, model: Model, tmp_path: Path) -> None:
    scores = text_task(model.task).score(labelled.labels, labelled.labels)
    (tmp_path / "run.json").write_text(json.dumps({"train_sha256": labelled.identity, "dev_sha256": None}))
    noted = dataclasses.replace(scores, **outcomes.recorded(tmp_path, labelled, scores))
    assert "the model was trained on these examples" in noted.outcome()["warnings"][-1]
    (tmp_path / "run.json").write_text(json.dumps({"train_sha256": "1" * 64, "dev_sha256": None}))
    assert outcomes.recorded(tmp_path, labelled, scores) == {}


@pytest.mark.parametrize(
    ("name", "record", "message"),
    [
        ("run.json", [1], r"run\.json: it must be an object; received \[1\]"),
        ("run.json", {"dev_sha256": 3}, r"run\.json: dev_sha256 must be a string; received 3"),
        ("run.json", {"outcome": "good"}, r"run\.json: outcome must be an object; received 'good'"),
        ("result.json", 3, r"result\.json: it must be an object; received 3"),
        ("result.json", {"outcome": {"metric": "accuracy"}}, r"result\.json: outcome: baselines must be a list"),
        ("result.json", {"outcome": {"metric": "accuracy", "baselines": [3]}}, r"baselines\[0\] must be an object"),
        (
            "result.json",
            {"outcome": {"metric": "accuracy", "baselines": [], "teacher": "0.5"}},
            "outcome: teacher must be a number; received '0.5'",
        ),
    ],
)
def test_foreign_records_beside_a_model_are_one_line(
    name: str, record: Any, message: str, run: Path, labelled: Examples, model: Model, tmp_path: Path
) -> None:
    folder = shutil.copytree(run, tmp_path / "run")
    content = (
        record if name == "result.json" or isinstance(record, list) else {"dev_sha256": labelled.identity} | record
    )
    (folder / name).write_text(json.dumps(content))
    scores = text_task(model.task).score(labelled.labels, labelled.labels)
    with pytest.raises(UserError, match=message):
        outcomes.recorded(folder, labelled, scores)


def checked(folder: Path, model: Model, examples: Examples, run: Path | None = None) -> tuple[bool, str]:
    verification = verify_bundle(
        folder, reference=model, examples=examples, model_directory=None if run is None else run / "model"
    )
    (check,) = [check for check in verification.checks if check.name == "outcome"]
    assert check.passed == verification.passed
    return check.passed, check.reason


def test_true_outcome_passes(bundle: Path, model: Model, labelled: Examples, run: Path) -> None:
    passed, reason = checked(bundle, model, labelled, run)
    assert passed and reason == f"accuracy {(COUNT - WRONG) / COUNT:.4f} on the 43 examples of bundle.json's outcome"


def test_other_examples_are_not_compared(bundle: Path, model: Model, labelled: Examples) -> None:
    passed, reason = checked(bundle, model, labelled.select(range(31)))
    assert passed and "is not compared, since these are other examples" in reason


def raised(name: str, by: float = 0.05) -> Callable[[dict[str, Any]], None]:
    def change(outcome: dict[str, Any]) -> None:
        outcome[name] += by

    return change


def replaced(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda outcome: outcome.update(copy.deepcopy(values))


FORGED: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "score": (raised("score", 1 / COUNT), "score must be 0.8372; it is 0.8605"),
    "examples": (replaced(examples=430), "examples must be 43"),
    "interval": (lambda outcome: outcome["interval"].__setitem__(0, 0.8), "lower end of the interval must be"),
    "no interval": (replaced(interval=None), "lower end of the interval must be 0.7003; it is null"),
    "float model": (raised("float_model"), "float_model must be 0.8372"),
    "teacher": (replaced(teacher=0.8), "teacher must be 0.8750; it is 0.8000"),
    "constant": (lambda outcome: outcome["baselines"][0].update(score=0.2), "always"),
    "method": (lambda outcome: outcome["baselines"][1].update(score=0.3), "TF-IDF must be 0.5000; it is 0.3000"),
    "fewer methods": (lambda outcome: outcome["baselines"].pop(), "baselines must be"),
    "verdict": (replaced(verdict="not learned"), "verdict must be 'good'"),
    "headline": (replaced(headline="accuracy 0.999"), "headline must be"),
}


@pytest.mark.one_of_each("score", "interval", "teacher", "fewer methods", "headline")
@pytest.mark.parametrize("forged", FORGED)
def test_forged_outcome_fails_the_gate(
    forged: str, bundle: Path, model: Model, labelled: Examples, run: Path, tmp_path: Path
) -> None:
    change, message = FORGED[forged]
    copied = shutil.copytree(bundle, tmp_path / "copy")
    content = description(copied)
    change(content["outcome"])
    (copied / "bundle.json").write_text(json.dumps(content), encoding="utf-8")
    passed, reason = checked(copied, model, labelled, run)
    assert not passed and "but bundle.json says otherwise" in reason and message in reason


@pytest.mark.nightly
def test_verify_command_reports_forged_outcome(
    bundle: Path, run: Path, labelled: Examples, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model_labels = Bundle.open(bundle).task.labels
    table = tmp_path / "dev.csv"
    assert labelled.labels is not None
    rows = [f"{text},{model_labels[label]}\n" for text, label in zip(labelled.texts, labelled.labels, strict=True)]
    table.write_text("text,label\n" + "".join(rows), encoding="utf-8")
    copied = shutil.copytree(bundle, tmp_path / "copy")
    call = ["verify", str(copied), f"--model={run / 'model'}", f"--file={table}"]
    assert cli.main(call) == 0
    content = description(copied)
    content["outcome"]["score"] = 0.97
    (copied / "bundle.json").write_text(json.dumps(content), encoding="utf-8")
    capsys.readouterr()
    assert cli.main(call) == 1
    assert "outcome: 0.1328 against a bound of 1e-06" in capsys.readouterr().err.splitlines()[-1]


def test_near_ties_pass_on_another_processor(bundle: Path, model: Model, labelled: Examples) -> None:
    opened = Bundle.open(bundle)
    assert opened.outcome is not None
    opened.outcome = copy.deepcopy(opened.outcome) | {"score": (COUNT - WRONG - 1) / COUNT}
    check_of_outcome = outcomes.check(opened, model, labelled, exact=False)
    # The headline is that of the recorded score.
    assert not check_of_outcome.passed and 'headline must be "accuracy 0.814' in check_of_outcome.reason
    headline = opened.outcome["headline"].replace("accuracy 0.837", "accuracy 0.814")
    opened.outcome["headline"] = headline
    assert outcomes.check(opened, model, labelled, exact=False).passed
    assert not outcomes.check(opened, model, labelled, exact=True).passed
