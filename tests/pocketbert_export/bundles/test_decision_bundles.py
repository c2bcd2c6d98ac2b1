"""Decision thresholds and rejection from a run to a bundle: description, card, gate, answers and scores."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_finetuning
from bundle_folders import describe_again, description_of
from sklearn.metrics import accuracy_score, f1_score

import pocketbert as pb
from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert.tasks.predictor import model_predictor
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.bundles.predictors import open_predictor
from pocketbert_runtime.decision_config import DecisionConfig

# Each predicts a few texts, for which a graph takes longer than it saves.
pytestmark = pytest.mark.usefixtures("eager")

NAMES = ("thresholds", "reject", "labels")
MOODS = ("low", "high")
WORDS = {"kind": tiny_finetuning.GOOD, "rude": tiny_finetuning.BAD}


def write_moods(path: Path, count: int, seed: int, share: float) -> None:
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        label = "high" if random.random() < share else "low"
        words = [*random.choice(tiny_finetuning.NEUTRAL, random.integers(2, 7))]
        # Two of five texts mix words of both labels.
        words += [*random.choice(WORDS["kind" if label == "high" else "rude"], 2)]
        words += [*random.choice([*WORDS["kind"], *WORDS["rude"]], random.integers(0, 3))]
        random.shuffle(words)
        rows.append({"text": " ".join(words), "label": label})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_several(path: Path, count: int, seed: int) -> None:
    random, rows = np.random.default_rng(seed), []
    for _ in range(count):
        chosen = [name for name, share in zip(WORDS, (0.6, 0.1), strict=True) if random.random() < share]
        words = [*random.choice(tiny_finetuning.NEUTRAL, random.integers(1, 7))]
        for name in chosen:
            words.append(random.choice(WORDS[name]))
        random.shuffle(words)
        rows.append({"text": " ".join(words), "label": chosen})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture(scope="module", params=["made", pytest.param("trained", marks=pytest.mark.nightly)])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`NAME/run/model`, `NAME/dev.jsonl` and `NAME/bundle` for each of `NAMES`."""
    folder = tmp_path_factory.mktemp("decisions")
    # Random weights of this size tell texts apart.
    config = tiny_finetuning.CONFIG.replace(initializer_range=0.1 if request.param == "trained" else 0.3)
    tiny_finetuning.write_model(folder / "start", config)
    for name in NAMES:
        (folder / name).mkdir()
        for part, count, seed in (("train", 160, 1), ("dev", 71, 2)):
            path = folder / name / f"{part}.jsonl"
            if name == "labels":
                write_several(path, count, seed)
            else:
                write_moods(path, count, seed, share=0.2 if name == "thresholds" else 0.5)
        (train if request.param == "trained" else make)(name, folder)
        metric = "--metric=f1:high" if name == "thresholds" else "--metric=macro_f1"
        form = "--recipe=float16 --lengths=16,24" if request.param == "trained" else "--recipe=float32 --lengths=24"
        assert cli.main(
            f"export --model={folder / name / 'run/model'} {form} {metric} "
            f"--file={folder / name / 'dev.jsonl'} --output={folder / name / 'bundle'}".split()
        ) in (None, 0)
    return folder


def train(name: str, folder: Path) -> None:
    flags = {
        "thresholds": "--decision-thresholds --metric=f1:high --labels=low,high",
        "reject": "--reject=0.8 --labels=low,high",
        "labels": "--decision-thresholds --metric=macro_f1 --kind=multi_label",
    }
    files = f"--train-file={folder / name / 'train.jsonl'} --dev-file={folder / name / 'dev.jsonl'}"
    assert cli.main(
        f"finetune --model={folder / 'start'} {files} --max-length=24 --batch-size=16 --epochs=3 "
        f"--learning-rate=3e-3 --head-start=random {flags[name]} --output={folder / name / 'run'}".split()
    ) in (None, 0)


def make(name: str, folder: Path) -> None:
    """A random network whose probabilities lie on both sides of one half, and of its decisions."""
    several, texts = name == "labels", [row["text"] for row in rows_of(folder / name)]
    # Both tasks of moods have one network, which is converted once.
    spread = texts if several else [row["text"] for row in rows_of(folder / "thresholds")]
    task = TaskConfig(kind="multi_label" if several else "classification", labels=(*WORDS,) if several else MOODS)
    model = pb.from_pretrained(folder / "start", task=task, seed=3)
    head = next(iter(model.heads.values())).output_projection
    logits = model_predictor(model).logits(spread)
    scale = 2 / logits.std(axis=0)
    head.kernel.assign(head.kernel * scale)
    head.bias.assign((head.bias - np.median(logits, axis=0)) * scale)
    probabilities = np.array([[*answer["probabilities"].values()] for answer in model.predict(texts)])
    if name == "reject":
        decisions = DecisionConfig(reject_below=widest_gap(probabilities.max(axis=1), 0.1, 0.4))
    elif several:
        decisions = DecisionConfig(thresholds=tuple(widest_gap(column, 0.6, 0.8) for column in probabilities.T))
    else:
        threshold = widest_gap(probabilities[:, 1], 0.6, 0.8)
        decisions = DecisionConfig(thresholds=(1 - threshold, threshold))
    model.tasks = (dataclasses.replace(task, decisions=decisions),)
    model.save_pretrained(folder / name / "run/model")


def widest_gap(values: np.ndarray, low: float, high: float) -> float:
    """The middle of the widest gap between two quantiles: rounding moves no text over it."""
    between = np.sort(values)[int(low * len(values)) : int(high * len(values))]
    index = int(np.diff(between).argmax())
    return float(between[index : index + 2].mean())


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "dev.jsonl").read_text("utf-8").splitlines()]


def decisions_of(folder: Path) -> Any:
    (task,) = json.loads((folder / "run/model/config.json").read_text("utf-8"))["pocketbert"]["tasks"]
    return task["decisions"]


@pytest.mark.parametrize("name", NAMES)
def test_bundle_and_card_have_the_models_decisions(name: str, folder: Path) -> None:
    decisions = decisions_of(folder / name)
    described = description_of(folder / name / "bundle")["task"]["decisions"]
    assert described == decisions
    task = Bundle.open(folder / name / "bundle").task
    assert task is not None and task.decisions is not None
    card = (folder / name / "bundle/README.md").read_text("utf-8")
    if name == "reject":
        assert task.decisions.reject_below == decisions["reject_below"]
        assert f"| No label if the highest probability is below {decisions['reject_below']:.4g} |" in card
    else:
        assert list(task.decisions.thresholds or ()) == decisions["thresholds"] != [0.5, 0.5]
        shown = ", ".join(
            f"{label} {value:.4g}" for label, value in zip(task.labels, decisions["thresholds"], strict=True)
        )
        assert f"| Decision thresholds | {shown} |" in card


@pytest.mark.parametrize("model", ["run/model", "bundle"])
def test_answers_follow_the_thresholds(
    model: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in NAMES:
        path, rows, decisions = folder / name / model, rows_of(folder / name), decisions_of(folder / name)
        texts = [row["text"] for row in rows]
        (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
        assert cli.main(["predict", f"--model={path}", f"--input={tmp_path / 'texts.txt'}"]) in (None, 0)
        answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        differing = 0
        for answer in answers:
            probabilities = answer["probabilities"]
            best = max(probabilities, key=probabilities.get)
            if name == "reject":
                is_certain = probabilities[best] >= decisions["reject_below"]
                assert answer["label"] == (best if is_certain else None)
                differing += not is_certain
            elif name == "thresholds":
                expected = "high" if probabilities["high"] > decisions["thresholds"][1] else "low"
                assert answer["label"] == expected
                differing += expected != best
            else:
                pairs = [*zip(probabilities.items(), decisions["thresholds"], strict=True)]
                expected_labels = [label for (label, value), threshold in pairs if value >= threshold]
                # predict rounds to six digits.
                if all(abs(value - threshold) > 1e-6 for (_, value), threshold in pairs):
                    assert answer["labels"] == expected_labels
                differing += expected_labels != [label for label, value in probabilities.items() if value >= 0.5]
        # The thresholds change answers, but not all.
        assert 0 < differing < len(answers)


@pytest.mark.parametrize("model", ["run/model", "bundle"])
def test_scores_are_those_of_the_answers(model: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in NAMES:
        path, rows = folder / name / model, rows_of(folder / name)
        assert cli.main(["evaluate", f"--model={path}", f"--file={folder / name / 'dev.jsonl'}"]) in (None, 0)
        content = json.loads(capsys.readouterr().out)
        answers = open_predictor(path).predict([row["text"] for row in rows])
        if name == "labels":
            gold, given = (
                [[label in row[key] for label in WORDS] for row in part]
                for part, key in ((rows, "label"), (answers, "labels"))
            )
            assert content["metrics"]["macro_f1"] == pytest.approx(f1_score(gold, given, average="macro"))
            assert [*content["decisions"]["thresholds"]] == [*WORDS]
        elif name == "thresholds":
            pair = [row["label"] for row in rows], [answer["label"] for answer in answers]
            assert content["metrics"]["f1"] == pytest.approx(f1_score(*pair, pos_label="high"))
        else:
            # Accuracy counts all answers; the coverage tells the rest.
            best = [max(answer["probabilities"], key=answer["probabilities"].get) for answer in answers]
            assert content["metrics"]["accuracy"] == accuracy_score([row["label"] for row in rows], best)
            given = np.array([answer["label"] is not None for answer in answers])
            assert content["decisions"]["coverage"][0]["coverage"] == given.mean()


@pytest.mark.parametrize("name", NAMES)
def test_gate_compares_the_decisions(name: str, folder: Path) -> None:
    records = json.loads((folder / name / "bundle/verification.json").read_text("utf-8"))
    checks = {check["name"]: check for check in records["checks"] if check["runtime"] != "tflite-2.16"}
    answers = [open_predictor(folder / name / model).predict([row["text"] for row in rows_of(folder / name)])
               for model in ("run/model", "bundle")]  # fmt: skip
    if name == "labels":
        same = sum(
            (label in one["labels"]) == (label in other["labels"])
            for one, other in zip(*answers, strict=True)
            for label in WORDS
        )
    else:
        same = sum(one["label"] == other["label"] for one, other in zip(*answers, strict=True))
    assert f"{same} of {142 if name == 'labels' else 71} " in checks["labels"]["reason"] and checks["labels"]["passed"]
    if name != "reject":
        # The scores of the gate are those of the answers.
        gold = rows_of(folder / name)
        for score, predictions in zip(checks["metric"]["scores"], answers, strict=True):
            expected = (
                f1_score([row["label"] for row in gold], [answer["label"] for answer in predictions], pos_label="high")
                if name == "thresholds"
                else f1_score(
                    [[label in row["label"] for label in WORDS] for row in gold],
                    [[label in answer["labels"] for label in WORDS] for answer in predictions],
                    average="macro",
                )
            )
            assert score == pytest.approx(expected)


def test_other_decisions_than_the_models_fail_the_gate(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    for name, decisions in (
        ("thresholds", {"thresholds": [0.5, 0.5], "reject_below": None}),
        ("reject", {"thresholds": None, "reject_below": 0.99}),
        ("labels", None),
    ):
        changed = Path(shutil.copytree(folder / name / "bundle", tmp_path / name))
        task = description_of(changed)["task"]
        task = {**task, "decisions": decisions} if decisions else {k: v for k, v in task.items() if k != "decisions"}
        describe_again(changed, task=task)
        assert cli.main(["verify", str(changed), f"--model={folder / name / 'run/model'}",
                         f"--file={folder / name / 'dev.jsonl'}"]) == 1  # fmt: skip
        assert "the tasks differ: the bundle has decisions" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("decisions", "message"),
    [
        ({"thresholds": [0.5, 0.5]}, "is not valid under any of the given schemas"),
        ({"thresholds": [0.5, 0.4], "reject_below": None}, "must sum to 1"),
        ({"thresholds": None, "reject_below": None}, "there must be thresholds or reject_below; received none"),
        ({"thresholds": ["a", "b"], "reject_below": None}, "decisions"),
    ],
)
def test_damaged_decisions_are_refused(decisions: Any, message: str, folder: Path, tmp_path: Path) -> None:
    import shutil

    changed = Path(shutil.copytree(folder / "thresholds/bundle", tmp_path / "bundle"))
    describe_again(changed, task={**description_of(changed)["task"], "decisions": decisions})
    with pytest.raises(UserError, match=message):
        Bundle.open(changed)


def test_csv_leaves_the_label_of_a_rejected_answer_empty(folder: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(row["text"] for row in rows_of(folder / "reject")) + "\n", encoding="utf-8")
    output = tmp_path / "answers.csv"
    assert cli.main(["predict", f"--model={folder / 'reject/bundle'}", f"--input={texts}", f"--output={output}"]) in (
        None,
        0,
    )
    labels = [line.split(",")[1] for line in output.read_text("utf-8").splitlines()[1:]]
    assert {*labels} == {"", "low", "high"}
