"""Soft labels of words: a teacher's probabilities of tags in a .jsonl file instead of the teacher."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny_distillation
import tiny_finetuning
from scipy.special import log_softmax, softmax

import pocketbert as pb
from pocketbert.cli import main
from pocketbert.data.batches import SOFT_LABELS, dataset
from pocketbert.data.example_files import write_examples
from pocketbert.distillation.distiller import Distiller
from pocketbert.distillation.methods.tinybert import TinyBERT
from pocketbert.distillation.planning import plan_distillation
from pocketbert.distillation.predictions import TAUGHT_TOKENS, logits_by_name, prediction_loss, taught_tokens
from pocketbert.errors import UserError
from pocketbert.training.config import RunConfig
from pocketbert.training.run_data import TaskRunData

# Runs of a few steps: graphs would take longer to trace than to run.
pytestmark = pytest.mark.usefixtures("eager")
SOFT = ("probabilities",)
TYPES = {"FLAW": tiny_finetuning.BAD, "MOOD": tiny_finetuning.GOOD}
TAGS = ("O", "B-FLAW", "I-FLAW", "B-MOOD", "I-MOOD")
METHOD = TinyBERT(
    max_length=19,
    without=("embedding", "transformer"),
    prediction_epochs=6,
    prediction_learning_rate=1e-2,
    prediction_batch_size=16,
    temperature=2.0,
)


def answer(tag: str, most: float) -> dict[str, float]:
    return {name: most if name == tag else (1 - most) / 4 for name in TAGS}


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Texts whose words say their tags, and probabilities of 0.8 to 0.95 for these."""
    random, lines = np.random.default_rng(seed), []
    for _ in range(count):
        words = random.choice([*tiny_finetuning.GOOD, *tiny_finetuning.BAD, *tiny_finetuning.NEUTRAL], 5, replace=False)
        tags = [next((f"B-{name}" for name, of_type in TYPES.items() if word in of_type), "O") for word in words]
        probabilities = [answer(tag, random.uniform(0.8, 0.95)) for tag in tags]
        starts = np.cumsum([0, *(len(word) + 1 for word in words)])
        spans = [
            [int(start), int(start) + len(word), tag[2:]]
            for start, word, tag in zip(starts, words, tags, strict=False)
            if tag != "O"
        ]
        lines.append({"text": " ".join(words), "spans": spans, "probabilities": probabilities})
    return lines


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


def without(lines: list[dict[str, Any]], member: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in line.items() if name != member} for line in lines]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights, and a vocabulary in which some words have two tokens."""
    folder = tmp_path_factory.mktemp("teacher")
    words = [*tiny_finetuning.SPECIAL, *tiny_finetuning.GOOD, *tiny_finetuning.BAD, *tiny_finetuning.NEUTRAL]
    words += ["##s", "-"]
    size = tiny_distillation.TEACHER.vocab_size
    words += [f"filler{number}" for number in range(size - len(words))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    task = pb.TaskConfig(kind="token_classification", labels=TAGS)
    config = tiny_distillation.TEACHER.replace(initializer_range=0.5, pooler="none")
    model = pb.from_preset(config, task, pb.WordPieceTokenizer(folder / "vocab.txt"), seed=3)
    model.save_pretrained(folder / "model")
    return folder / "model"


# A student learns tags from a file in test_heads_soft_labels.py.
@pytest.mark.nightly
def test_student_learns_the_tags_of_a_file(tmp_path: Path, teacher: Path) -> None:
    train = write(tmp_path / "train.jsonl", without(rows(150, 1), "spans"))
    dev = write(tmp_path / "dev.jsonl", without(rows(31, 2), "probabilities"))
    student = tmp_path / "student"
    bare = pb.from_preset(tiny_distillation.STUDENT, tokenizer=pb.from_pretrained(teacher).tokenizer, seed=2)
    bare.save_pretrained(student)
    command = [
        "distill", "--method=tinybert", "--without=embedding,transformer", f"--student={student}",
        f"--train-file={train}", f"--dev-file={dev}", "--kind=token_classification", "--max-length=19",
        "--soft-label-columns=probabilities", "--prediction-epochs=6", "--prediction-learning-rate=0.01",
        "--prediction-batch-size=16", f"--output={tmp_path / 'run'}",
    ]  # fmt: skip
    assert main(command) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["metrics"]["f1"] > 0.9
    # The file decides on the run: other probabilities are refused.
    changed = without(rows(150, 1), "spans")
    changed[7]["probabilities"][2] = answer("O", 0.6)
    write(train, changed)
    assert main(command) == 2


def test_loss_is_that_of_the_teacher_on_first_tokens(teacher: Path, tmp_path: Path) -> None:
    model = pb.from_pretrained(teacher)
    texts = ["the films - good", "a plot", "awfuls stories of warm-cold actors and superbs", "scene"]
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    command = ["predict", f"--model={teacher}", f"--input={tmp_path / 'texts.txt'}", "--soft-labels"]
    assert main([*command, f"--output={tmp_path / 'answers.jsonl'}"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert [[text[start:end] for start, end in line["words"]] for text, line in zip(texts, lines, strict=True)] == [
        ["the", "films", "-", "good"], ["a", "plot"],
        ["awfuls", "stories", "of", "warm", "-", "cold", "actors", "and", "superbs"], ["scene"],
    ]  # fmt: skip
    data = pb.data.tagged(tmp_path / "answers.jsonl", dev=tmp_path / "answers.jsonl", soft_labels=SOFT)
    assert set(data.task.labels) <= set(TAGS) and data.train.soft_labels is not None
    student = pb.from_preset(tiny_distillation.STUDENT, data.task, model.tokenizer, seed=6)
    student.save_pretrained(tmp_path / "student")
    plan = plan_distillation(tmp_path / "student", data, teacher=None, method=METHOD, run=RunConfig())
    (stage,) = plan.stages
    encoded = plan.data.encoded(stage, model.tokenizer, 0, {})
    assert encoded is not None and encoded.soft_labels is not None
    ((batch, labels),) = dataset(encoded, [np.arange(4)])
    # The first token of each word: [CLS] the film ##s - good [SEP].
    assert batch[SOFT_LABELS][0].numpy().any(axis=-1).tolist() == [False, True, True, False, True, True] + 13 * [False]
    loss = Distiller(student, METHOD, stage).losses({**batch, "labels": labels})[0]
    inputs = {name: value for name, value in batch.items() if name != SOFT_LABELS}
    first = labels.numpy()[:, : inputs["input_mask"].shape[1]] >= 0
    assert first.sum() == 16
    order = [TAGS.index(label) for label in data.task.labels]
    taught, learned = (network(inputs)["token_logits"].numpy().astype(np.float64) / 2 for network in (model, student))
    expected = -(softmax(taught[..., order], axis=-1) * log_softmax(learned, axis=-1)).sum(-1)[first].mean()
    # float32 logits of the teacher have errors of 5e-7.
    assert float(loss) == pytest.approx(expected, abs=1e-6)


def test_loss_leaves_out_tokens_without_soft_labels() -> None:
    random = np.random.default_rng(4)
    soft = softmax(random.normal(0, 2, [3, 9, 5]), axis=-1).astype(np.float32)
    has = random.integers(0, 2, [3, 9]).astype(bool)
    soft[~has] = 0
    student = random.normal(0, 3, [3, 7, 5]).astype(np.float32)
    mask = (np.arange(7) < np.array([7, 4, 6])[:, np.newaxis]).astype(np.int32)
    probabilities, taught = taught_tokens(tf.constant(soft), tf.constant(7))
    np.testing.assert_array_equal(taught, has[:, :7])
    targets = logits_by_name([tf.math.log(probabilities)]) | {TAUGHT_TOKENS: taught}
    loss = prediction_loss(targets, logits_by_name([tf.constant(student)]), tf.constant(mask), temperature=3.0)
    powers = soft[:, :7] ** (1 / 3)
    counted = has[:, :7] & (mask == 1)
    entropies = -(powers * log_softmax(student / 3, axis=-1)).sum(-1)[counted] / powers.sum(-1)[counted]
    assert float(loss) == pytest.approx(entropies.mean(), rel=1e-5)


def test_words_may_be_those_of_another_tokenizer(tmp_path: Path) -> None:
    one, other = answer("B-MOOD", 0.8), answer("O", 0.9)
    line = {"text": "U.S. film, warm", "words": [[0, 4], [5, 9], [11, 15]], "probabilities": [one, None, other]}
    path = write(tmp_path / "a.jsonl", [line] * 3)
    examples = pb.data.tagged(path, dev=path, soft_labels=SOFT).train
    # U . S . film , warm
    (first, *_) = examples.soft_labels
    assert first.any(axis=1).tolist() == [True, False, False, False, False, False, True]
    np.testing.assert_allclose(first[0], [one[name] for name in TAGS])
    np.testing.assert_allclose(first[6], [other[name] for name in TAGS])
    assert examples.tags[0] == ["B-MOOD", *["O"] * 6] and examples.has_likely_labels
    assert examples.select([2]).soft_labels[0] is examples.soft_labels[2] and examples.select([2]).has_likely_labels


def test_written_file_has_the_same_examples(tmp_path: Path) -> None:
    lines = rows(20, 5)
    lines[3]["probabilities"][1] = None
    path = write(tmp_path / "a.jsonl", lines)
    data = pb.data.tagged(path, dev=path, soft_labels=SOFT)
    assert not data.train.has_likely_labels
    written = write_examples(data.train, data.task.labels, tmp_path / "written")
    assert pb.data.tagged(written, dev=path, soft_labels=SOFT).train.identity == data.train.identity
    hard = pb.data.tagged(path, dev=path)
    assert hard.train.soft_labels is None and hard.train.identity != data.train.identity
    assert TaskRunData(data).has_soft_labels and not TaskRunData(hard).has_soft_labels


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probabilities": [answer("O", 0.9)]}, "an entry for each of the 5 words; received 1"),
        ({"words": [[0, 1]]}, "'words' must have as many offsets as 'probabilities', 5"),
        ({"words": [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]]}, "a word must start where a word of the text starts"),
        ({"words": 5 * [[0, 2]]}, "words must start at different places"),
        ({"probabilities": 5 * [{"O": 1.0}]}, "must have the labels 'O', 'B-FLAW', 'I-FLAW', 'B-MOOD', 'I-MOOD'; rec"),
        (
            {"probabilities": 5 * [answer("O", 3.0)]},
            r"must lie in \[0, 1\]; received 3, -0.5, .*look like logits",
        ),
        ({"probabilities": 5 * [dict.fromkeys(TAGS, 0.1)]}, "must sum to 1; received"),
        ({"probabilities": {"O": 1.0}}, "the line must have a list 'probabilities'"),
    ],
)
def test_lines_that_are_no_soft_labels(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    lines = rows(12, 6)
    lines[4] |= change
    path = write(tmp_path / "a.jsonl", lines)
    with pytest.raises(UserError, match=f"line 5: .*{message}"):
        pb.data.tagged(path, dev=path, soft_labels=SOFT)


def test_files_that_cannot_have_soft_labels(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", rows(12, 6))
    with pytest.raises(UserError, match=r"words are in 'probabilities' of a \.jsonl file; received 'p_o'"):
        pb.data.tagged(path, soft_labels=("p_o",))
    with pytest.raises(UserError, match="soft labels need all rows; received skip_bad_rows=True; leave it out"):
        pb.data.tagged(path, soft_labels=SOFT, skip_bad_rows=True)
    (tmp_path / "a.conll").write_text("film O\n\n" * 12)
    with pytest.raises(UserError, match=r"soft labels of words .*a\.conll"):
        pb.data.tagged(tmp_path / "a.conll", soft_labels=SOFT)
    plain = write(tmp_path / "plain.jsonl", without(rows(12, 6), "probabilities"))
    with pytest.raises(UserError, match=r"plain\.jsonl must have soft labels in 'probabilities'; it has none"):
        pb.data.tagged(plain, soft_labels=SOFT, label_names=("FLAW", "MOOD"))
    with pytest.raises(UserError, match="must have O, and B- and I- for each type; received 'O', 'B-FLAW'"):
        write(tmp_path / "few.jsonl", [{"text": "bad", "probabilities": [{"O": 0.5, "B-FLAW": 0.5}]}])
        pb.data.tagged(tmp_path / "few.jsonl", soft_labels=SOFT)


def test_csv_has_no_words(teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "texts.txt").write_text("a good film\n")
    command = ["predict", f"--model={teacher}", f"--input={tmp_path / 'texts.txt'}", "--soft-labels"]
    assert main([*command, "--output-format=csv"]) == 2
    assert "--soft-labels of words needs JSON; received it with CSV; write a .jsonl file" in capsys.readouterr().err
    # Without the option, the answers are as before.
    assert main(command[:-1]) == 0
    assert [*json.loads(capsys.readouterr().out)] == ["text", "spans"]
