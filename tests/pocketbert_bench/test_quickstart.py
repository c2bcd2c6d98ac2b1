"""Both quickstarts: what they compress, and every step of the full one on a tiny network."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bench_subjects
import cheap_tensorflow
import numpy as np
import pytest
import tiny_finetuning

import pocketbert as pb
from pocketbert import cli
from pocketbert.errors import TrainingFailed, UserError
from pocketbert.output_folders import held_directory
from pocketbert_bench import quickstart as module
from pocketbert_bench import results
from pocketbert_bench.compression import candidates
from pocketbert_bench.compression.costs import CostModel, LengthModel
from pocketbert_export.bundles.predictors import open_predictor
from pocketbert_export.checks.outputs import Check
from pocketbert_export.verification.verify import GateFailed, Verification

TRAIN, DEV = 40, 24
REFUSED = Verification(
    examples_sha256="",
    recipe="float32",
    checks=(Check(name="finite", passed=False, measured=0.0, bound=1.0, reason="it answers nothing but zeros"),),
    runtimes={},
    num_examples=0,
    source="none",
    labelled=False,
    metric=None,
    weights_need={},
    graph_optimizations={},
    operators={},
    delegates=(),
)


@pytest.fixture
def tiny_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network and sentences that take seconds instead of minutes."""
    network = tiny_finetuning.write_model(tmp_path / "network", tiny_finetuning.CONFIG)
    sentences = (tiny_finetuning.examples(TRAIN, 1), tiny_finetuning.examples(DEV, 2))
    monkeypatch.setattr(module, "minilm", lambda: network)
    monkeypatch.setattr(module, "rotten_tomatoes", lambda: sentences)
    monkeypatch.setattr(module, "TEACHER_LAYERS", (1,))
    options = pb.FinetuneConfig(learning_rate=3e-3, epochs=1, batch_size=20, max_length=23, contrastive_steps=0)
    monkeypatch.setattr(module, "OPTIONS", options)
    distillation = pb.TinyBERT(
        without=("augmentation", "attention"), max_length=23, intermediate_epochs=1, prediction_epochs=1
    )
    monkeypatch.setattr(module, "DISTILLATION", distillation)
    for name in ("finetune", "distill"):
        monkeypatch.setattr(pb, name, cheap_tensorflow.eager()(getattr(pb, name)))


@pytest.fixture
def tiny_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_training: None) -> Path:
    """Where the quickstart writes, with a length for the tiny network."""
    monkeypatch.setattr(module, "LENGTHS", (23,))
    monkeypatch.setattr(module, "BASELINE_LENGTH", 23)
    # Without float32: an export takes seconds.
    monkeypatch.setattr(module, "GATE_EXAMPLES", {"dynamic_wi8": 2000})
    return tmp_path / "run"


def run_until(owner: object, name: str, output: Path) -> None:
    """Runs until a function is called that is killed."""

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(owner, name, killed)
        module.quickstart(output, full=True)


def test_quickstart_resumes_and_reports(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench_subjects.measure_briefly(monkeypatch)
    run_until(pb, "distill", tiny_path)
    assert "[3/7]" in capsys.readouterr().err
    teacher = (tiny_path / "teacher" / "model" / "model.safetensors").stat().st_mtime_ns
    run_until(module.baselines, "plain_export", tiny_path)
    progress = capsys.readouterr().err
    assert "[6/7]" in progress and progress.count("this run is finished") == 1
    times = {path: path.stat().st_mtime_ns for path in tiny_path.rglob("*.tflite") if "bundles" in path.parts}
    assert len(times) == 2

    # A student that differs from its teacher on these sentences is put in its place.
    dev, differ = tiny_finetuning.examples(DEV, 2), [1, 4, 7]
    bundles = tiny_path / "bundles"
    logits = {role: open_predictor(bundles / role / "dynamic_wi8").logits(dev.texts) for role in ("teacher", "student")}
    differing = logits["teacher"].copy()
    differing[differ] = differing[differ, ::-1]
    answers = {"teacher": logits["teacher"], "student": differing}
    monkeypatch.setattr(
        pb.Bundle,
        "predictor",
        lambda bundle: SimpleNamespace(logits=lambda texts: answers[bundle.directory.parent.name]),
    )

    text = module.quickstart(tiny_path, full=True)
    progress = capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert (tiny_path / "teacher" / "model" / "model.safetensors").stat().st_mtime_ns == teacher
    assert progress.count("already exported") == 2 and progress.count("this run is finished") == 2

    assert re.search(r"^student, dynamic_wi8 +\d", text, re.MULTILINE)
    assert re.search(r"^TFLite converter float32 +\d", text, re.MULTILINE)
    page = Path(text.rsplit("report: ")[-1])
    content = page.read_text()
    assert page.name == "report.html" and "<svg" in content
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", content), "the page stands alone"
    assert len(re.findall(r"\b(\d+) of \1 checks passed", content)) == 2 and "Teacher and student</h2>" in content

    measured = results.read(tiny_path / "results.json")
    labels = {(measurement.model, measurement.label) for measurement in measured.measurements if not measurement.peer}
    assert labels == {(role, recipe) for role in ("teacher", "student") for recipe in module.GATE_EXAMPLES}
    assert {measurement.model for measurement in measured.measurements if measurement.peer} == {"teacher"}
    assert all(measurement.status == "ok" for measurement in measured.measurements)
    scores = {(accuracy.model, accuracy.label): accuracy.value for accuracy in measured.accuracies}
    assert len(scores) == 4

    assert dev.labels is not None
    share = np.bincount(dev.labels).max() / DEV
    baseline = f"has {100 * share:.2f} % accuracy"
    assert baseline in text and baseline in content
    outcomes = {(outcome.model, outcome.label): outcome for outcome in measured.outcomes or ()}
    assert outcomes.keys() == labels
    # The dev split alone, although the gate of dynamic_wi8 also runs training sentences.
    assert {outcome.examples for outcome in outcomes.values()} == {DEV}
    for key in labels:
        assert outcomes[key].score == pytest.approx(scores[key])
    # The record of the distillation has the teacher's score on the same examples.
    assert all((outcome.teacher is not None) == (role == "student") for (role, _), outcome in outcomes.items())
    assert content.index('class="card outcome') < content.index("Teacher and student</h2>")
    warned = sum(outcome.verdict != "good" for outcome in outcomes.values())
    assert progress.count("  warning: ") >= warned and (warned == 0) == ("outcome lost" not in content)
    for role, values in logits.items():
        assert scores[role, "dynamic_wi8"] == pytest.approx((values.argmax(axis=1) == dev.labels).mean())
        model = open_predictor(tiny_path / role / "model").logits(dev.texts)
        assert scores[role, "model"] == pytest.approx((model.argmax(axis=1) == dev.labels).mean())
    assert f"on 3 of {DEV} texts" in content and f"on 3 of {DEV} texts" in text
    assert [f">{sentence}</td>" in content for sentence in dev.texts] == [index in differ for index in range(DEV)]


def test_quickstart_compresses_the_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tiny_training: None
) -> None:
    compressions: list[dict[str, Any]] = []

    def compress(model: None, data: pb.TaskData, output: Path, **options: Any) -> SimpleNamespace:
        compressions.append({"data": data, **options})
        return SimpleNamespace(sentence="small and fast", bundle_directory=output / "bundle", report=output / "page")

    monkeypatch.setattr(pb, "compress", compress)
    costs = CostModel(
        first_token=False,
        latency=[LengthModel(length=module.LENGTH, coefficients=[3.0, *6 * [0.0]])],
        size=5 * [0.0],
        memory=5 * [0.0],
    )
    parts = tiny_finetuning.examples(400, 1), tiny_finetuning.examples(120, 2)
    monkeypatch.setattr(module, "rotten_tomatoes", lambda: parts)
    monkeypatch.setattr(candidates, "measured_costs", lambda inputs: {inputs.recipe: costs})
    assert cli.main(["quickstart", f"--output={tmp_path / 'run'}", "--seed=3"]) == 0
    assert capsys.readouterr().out == f"Small and fast\n\nbundle: {tmp_path}/run/bundle\nreport: {tmp_path}/run/page\n"
    data, test = compressions[0]["data"], parts[1]
    # The dev split is the final split; choice and training share the others.
    assert data.test.texts == test.texts and data.test.labels.tolist() == test.labels.tolist()
    assert len(data.train) + len(data.dev) == 400 and data.task.labels == module.TASK.labels
    assert compressions[0]["seed"] == 3 and compressions[0]["minutes"] <= 4
    assert compressions[0]["constraints"] == pb.Constraints(max_latency_ms=1.2, length=module.LENGTH)


@pytest.mark.parametrize(
    "failure", [GateFailed(REFUSED), TrainingFailed("the loss is not finite")], ids=["gate", "loss"]
)
def test_negative_result_exits_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failure: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(module, "quickstart", fail)
    assert cli.main(["quickstart", f"--output={tmp_path}"]) == 1
    output = capsys.readouterr()
    assert output.out == "" and output.err == f"pocketbert quickstart: {failure}\n"


def test_refuses_a_folder_with_other_settings(tiny_path: Path) -> None:
    tiny_path.mkdir()
    with held_directory(tiny_path, "quickstart"):
        (tiny_path / "quickstart.json").write_text('{"full": true, "seed": 3}')
    with pytest.raises(UserError, match="holds a run with .*'seed': 3.*choose another output="):
        module.quickstart(tiny_path, full=True)
