"""Soft labels of several heads: a file with a teacher's answers of each head instead of the teacher."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_distillation
import tiny_finetuning
import tiny_heads
from scipy.special import expit, log_softmax, softmax

import pocketbert as pb
from pocketbert.cli import main
from pocketbert.configs import TaskConfig
from pocketbert.data.batches import SOFT_LABELS, dataset
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.distiller import Distiller
from pocketbert.distillation.methods.tinybert import TinyBERT
from pocketbert.distillation.planning import plan_distillation
from pocketbert.errors import UserError
from pocketbert.training.config import RunConfig

KINDS = {**tiny_heads.KINDS, "topics": "multi_label"}
METHOD = TinyBERT(max_length=21, without=("embedding", "transformer"), temperature=2.0)
TASK = TaskConfig(
    kind="several",
    tasks=(
        TaskConfig(kind="token_classification", name="slots", labels=tiny_heads.TAGS, weight=2.0),
        TaskConfig(kind="classification", name="mood", labels=("low", "middle", "high"), weight=0.5),
        TaskConfig(kind="multi_label", name="topics", labels=("x", "y")),
    ),
)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("teacher")
    bare = tiny_finetuning.write_model(folder / "bare", tiny_distillation.TEACHER)
    config = tiny_distillation.TEACHER.replace(initializer_range=0.4)
    pb.from_preset(config, TASK, pb.from_pretrained(bare).tokenizer, seed=3).save_pretrained(folder / "model")
    return folder / "model"


@pytest.fixture(scope="module")
def answers(teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `predict` says of 30 sentences."""
    folder = tmp_path_factory.mktemp("answers")
    texts = tiny_finetuning.examples(30, seed=4).texts
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    command = ["predict", f"--model={teacher}", f"--input={folder / 'texts.txt'}", "--soft-labels"]
    assert main([*command, f"--output={folder / 'answers.jsonl'}"]) == 0
    return folder / "answers.jsonl"


def read(path: Path, **options: Any) -> TaskData:
    weights = {"slots": 2.0, "mood": 0.5}
    return pb.data.heads(path, KINDS, dev=path, soft_labels=("probabilities",), weights=weights, **options)


def test_loss_is_that_of_the_teacher(answers: Path, teacher: Path, tmp_path: Path) -> None:
    data = read(answers)
    names = {part.name: part.labels for part in data.task.tasks or ()}
    assert names["mood"] == ("low", "middle", "high") and names["topics"] == ("x", "y")
    model = pb.from_pretrained(teacher)
    student = pb.from_preset(tiny_distillation.STUDENT, data.task, model.tokenizer, seed=6)
    student.save_pretrained(tmp_path / "student")
    plan = plan_distillation(tmp_path / "student", data, teacher=None, method=METHOD, run=RunConfig())
    (stage,) = plan.stages
    encoded = plan.data.encoded(stage, model.tokenizer, 0, {})
    assert encoded is not None
    ((batch, labels),) = dataset(encoded, [np.arange(5)])
    loss = Distiller(student, METHOD, stage).losses({**batch, "labels": labels})[0]
    inputs = {name: value for name, value in batch.items() if name != SOFT_LABELS}
    taught, learned = (
        {name: values.numpy().astype(np.float64) / 2 for name, values in network(inputs).items()}
        for network in (model, student)
    )

    def soft(output: str) -> np.ndarray:
        return -(softmax(taught[output], axis=-1) * log_softmax(learned[output], axis=-1)).sum(-1)

    order = [tiny_heads.TAGS.index(tag) for tag in names["slots"]]
    taught["slots_token_logits"] = taught["slots_token_logits"][..., order]
    # Each token of this vocabulary is a word; the first and the last ones are special.
    lengths = inputs["input_mask"].numpy().sum(axis=1)
    words = np.concatenate([soft("slots_token_logits")[row, 1 : length - 1] for row, length in enumerate(lengths)])
    binary = np.logaddexp(0, learned["topics_logits"]) - expit(taught["topics_logits"]) * learned["topics_logits"]
    expected = 2 * words.mean() + 0.5 * soft("mood_logits").mean() + binary.mean()
    # float32 logits of the teacher have errors of 5e-7.
    assert float(loss) == pytest.approx(expected, abs=3e-6)


@pytest.mark.nightly
def test_student_learns_from_a_file(teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, columns = [], tiny_heads.table(150, 1)
    for text, mood, tags in zip(*columns.values(), strict=True):
        starts = np.cumsum([0, *(len(word) + 1 for word in text.split())]).tolist()
        spans = [
            [start, start + len(word), tag[2:]]
            for start, word, tag in zip(starts, text.split(), tags, strict=False)
            if tag != "O"
        ]
        soft = [{name: 0.88 if name == tag else 0.03 for name in tiny_heads.TAGS} for tag in tags]
        other = {"low": "high", "high": "low"}[mood]
        slots = {"spans": spans, "probabilities": soft}
        lines.append({"text": text, "mood": {"probabilities": {mood: 0.9, other: 0.1}}, "slots": slots})
    train = tmp_path / "train.jsonl"
    train.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    dev = tmp_path / "dev.jsonl"
    columns = tiny_heads.table(31, 2)
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    dev.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    bare = pb.from_preset(tiny_distillation.STUDENT, tokenizer=pb.from_pretrained(teacher).tokenizer, seed=2)
    bare.save_pretrained(tmp_path / "student")
    command = [
        "distill", "--method=tinybert", "--without=embedding,transformer", f"--student={tmp_path / 'student'}",
        f"--train-file={train}", f"--dev-file={dev}", "--heads=mood:classification,slots:token_classification",
        "--max-length=21", "--soft-label-columns=probabilities", "--prediction-epochs=10",
        "--prediction-learning-rate=0.01", "--prediction-batch-size=16", f"--output={tmp_path / 'run'}",
    ]  # fmt: skip
    assert main(command) == 0
    result = json.loads((tmp_path / "run/result.json").read_text("utf-8"))
    assert result["metrics"]["mood_accuracy"] > 0.85 and result["metrics"]["slots_f1"] > 0.85
    # The file decides on the run: other probabilities are refused.
    lines[7]["mood"] = {"probabilities": {"low": 0.4, "high": 0.6}}
    train.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert main(command) == 2
    assert "train_sha256" in capsys.readouterr().err


def test_what_has_no_soft_labels_is_refused(answers: Path, teacher: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in answers.read_text("utf-8").splitlines()]

    def changed(line: int, head: str, answer: Any) -> Path:
        rows = [*lines]
        rows[line] = {**rows[line], head: answer}
        path = tmp_path / f"changed-{len([*tmp_path.iterdir()])}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    for path, message in (
        (
            changed(3, "mood", {"label": "low"}),
            r"line 4: 'mood': probabilities must have the labels 'low', 'middle', 'high'",
        ),
        (changed(3, "mood", "low"), r"line 4: 'mood': must be an object with 'probabilities'"),
        (
            changed(5, "topics", {"labels": [], "probabilities": {"x": 2.5, "y": 0}}),
            r"line 6: 'topics': .* in \[0, 1\]",
        ),
        (changed(2, "slots", {"spans": [], "probabilities": []}), "line 3: 'slots': .* an entry for each of the"),
        (changed(2, "slots", {"probabilities": lines[2]["slots"]["probabilities"]}), "answers of all heads, tags with"),
    ):
        with pytest.raises(UserError, match=message):
            read(path)
    with pytest.raises(UserError, match="soft labels of several heads are in 'probabilities' of each head"):
        pb.data.heads(answers, KINDS, soft_labels=("low", "high"))
    with pytest.raises(UserError, match=r"soft labels are for heads with labels; received stars \(regression\)"):
        pb.data.heads(answers, {"mood": "classification", "stars": "regression"}, soft_labels=("probabilities",))
    with pytest.raises(UserError, match="soft labels need all rows"):
        read(answers, skip_bad_rows=True)
    data = pb.data.with_unlabelled(read(answers), {"text": ["a b c"]})
    with pytest.raises(UserError, match="unlabelled texts have no soft labels"):
        plan_distillation(tiny_distillation.STUDENT, data, teacher=None, method=METHOD, run=RunConfig())
    with pytest.raises(UserError, match="soft labels are for distillation"):
        pb.finetune(teacher, read(answers), tmp_path / "run")
