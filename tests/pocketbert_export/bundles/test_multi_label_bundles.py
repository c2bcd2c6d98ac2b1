"""A multi-label task from a table to a verified bundle, on the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tiny_finetuning
from sklearn.metrics import f1_score

from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.recipes import RECIPES
from pocketbert.tasks.registry import get_task
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.bundles.predictors import open_predictor
from pocketbert_export.checks.label_order import in_order_of
from pocketbert_export.checks.outputs import check_labels
from pocketbert_runtime.answers.probabilities import sigmoid_of

WORDS = {"kind": tiny_finetuning.GOOD, "rude": tiny_finetuning.BAD}


def write_rows(path, count, seed):
    """Sentences with words of neither, either or both labels."""
    random, rows = np.random.default_rng(seed), []
    for _ in range(count):
        chosen = [name for name in WORDS if random.random() < 0.5]
        words = [*random.choice(tiny_finetuning.NEUTRAL, random.integers(1, 7))]
        for name in chosen:
            words += [*random.choice(WORDS[name], 2)]
        random.shuffle(words)
        rows.append({"text": " ".join(words), "label": chosen})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return rows


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """`start/`, `train.jsonl` and `dev.jsonl`."""
    folder = tmp_path_factory.mktemp("multi_label")
    tiny_finetuning.write_model(folder / "start")
    write_rows(folder / "train.jsonl", 256, 1)
    write_rows(folder / "dev.jsonl", 47, 2)
    return folder


@pytest.fixture(scope="module")
def folder(files):
    """`run/`, fine-tuned on the words, and `bundle/`, beside `files`."""
    folder = files
    train = f"--train-file={folder / 'train.jsonl'} --dev-file={folder / 'dev.jsonl'} --kind=multi_label"
    assert cli.main(
        f"finetune --model={folder / 'start'} {train} --max-length=24 --batch-size=16 --epochs=6 "
        f"--learning-rate=3e-3 --output={folder / 'run'}".split()
    ) in (None, 0)
    assert cli.main(
        f"export --model={folder / 'run/model'} --recipe=dynamic_wi8 --lengths=16,24 --file={folder / 'dev.jsonl'} "
        f"--output={folder / 'bundle'}".split()
    ) in (None, 0)
    return folder


@pytest.mark.nightly
def test_training_learns_the_labels(folder):
    result = json.loads((folder / "run" / "result.json").read_text())
    assert result["main_metric"] == "micro_f1" and result["metrics"]["micro_f1"] > 0.95
    page = (folder / "run" / "report.html").read_text()
    assert "<td>micro-F1</td>" in page and "<td>rude</td>" in page and "Confusion matrix" not in page


@pytest.mark.nightly
@pytest.mark.parametrize("model", ["run/model", "bundle"])
def test_evaluate_scores_decisions(folder, model, capsys):
    assert cli.main(["evaluate", f"--model={folder / model}", f"--file={folder / 'dev.jsonl'}"]) in (None, 0)
    content = json.loads(capsys.readouterr().out)
    rows = [json.loads(line) for line in (folder / "dev.jsonl").read_text().splitlines()]
    logits = open_predictor(folder / model).logits([row["text"] for row in rows])
    labels = np.array([[name in row["label"] for name in WORDS] for row in rows])
    assert content["metrics"]["micro_f1"] == pytest.approx(f1_score(labels, logits >= 0, average="micro"))
    assert list(content["classes"]["by_label"]) == list(WORDS)
    assert 0.5 < content["baseline"]["metrics"]["micro_f1"] < content["metrics"]["micro_f1"]


@pytest.mark.nightly
def test_predict_gives_each_labels_probability(folder, tmp_path, capsys):
    texts = ["lovely film with bad plot and awful weak story great warm", "the film of a scene"]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    assert cli.main(["predict", f"--model={folder / 'run/model'}", f"--input={tmp_path / 'texts.txt'}"]) in (None, 0)
    both, neither = map(json.loads, capsys.readouterr().out.splitlines())
    assert both["labels"] == ["kind", "rude"] and neither["labels"] == []
    logits = open_predictor(folder / "run/model").logits(texts).astype(np.float64)
    for answer, expected in zip((both, neither), 1 / (1 + np.exp(-logits)), strict=True):
        assert [*answer["probabilities"].values()] == pytest.approx(expected, abs=1e-5)
        assert answer["labels"] == [name for name, value in answer["probabilities"].items() if value >= 0.5]


@pytest.mark.nightly
def test_gate_compares_every_label(folder):
    checks = {check["name"]: check for check in json.loads((folder / "bundle/verification.json").read_text())["checks"]}
    assert (
        checks["labels"]["passed"] and "of 94 decisions, one for each example and label" in checks["labels"]["reason"]
    )
    assert "micro_f1" in checks["metric"]["reason"]
    assert Bundle.open(folder / "bundle").task == TaskConfig(kind="multi_label", labels=("kind", "rude"))


TASK = get_task(TaskConfig(kind="multi_label", labels=("a", "b", "c")))


def test_lost_decisions_fail_the_gate():
    bounds = RECIPES["dynamic_wi8"].bounds
    reference = np.random.default_rng(0).choice([-2.0, 2.0], [500, 3]).astype(np.float32)
    flipped = reference.copy()
    flipped[:50, 1] *= -1
    check = check_labels(TASK, reference, flipped, bounds)
    # 50 of 1,500.
    assert not check.passed and check.measured == pytest.approx(1 - 50 / 1500)
    # A shift that softmax would not see changes every decision.
    assert check_labels(TASK, reference, reference + 4, bounds).measured < 0.6


def test_only_near_ties_count_as_agreement():
    bounds, reference = RECIPES["dynamic_wi8"].bounds, np.ones([100, 2], np.float32)
    for logit, passes in ((0.5 * bounds.rms_difference, True), (2 * bounds.rms_difference, False)):
        reference[:, 0] = logit
        answers = reference * [-1, 1]
        assert check_labels(TASK, reference, answers, bounds).passed is passes


def test_labels_are_matched_by_name():
    data = TaskConfig(kind="multi_label", labels=("a", "b", "c"))
    model = TaskConfig(kind="multi_label", labels=("c", "a", "b"))
    labels = np.array([[1, 0, 0], [0, 1, 1]], np.int32)
    examples = Examples(["x", "y"], None, labels, ["0", "1"], "here")
    assert in_order_of(model, data, examples).labels.tolist() == [[0, 1, 0], [1, 0, 1]]


def test_sigmoid_of_large_logits():
    np.testing.assert_allclose(sigmoid_of(np.float32([-2000, 0, np.log(3), 2000])), [0, 0.5, 0.75, 1], rtol=1e-6)


def test_augmentation_refuses_multi_label(files, tmp_path, capsys):
    arguments = [f"--train-file={files / 'train.jsonl'}", "--kind=multi_label", f"--output={tmp_path / 'out'}"]
    assert cli.main(["augment", *arguments, f"--masked-lm={files / 'start'}"]) == 2
    assert "multi_label" in capsys.readouterr().err.strip().splitlines()[-1]
    assert not (tmp_path / "out").exists()
