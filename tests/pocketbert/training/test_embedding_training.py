"""Fine-tuning of sentence embeddings on scored and on positive pairs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny_finetuning
from scipy.special import log_softmax

import pocketbert as pb
from pocketbert import cli
from pocketbert.data.batches import EncodedExamples
from pocketbert.data.examples import Examples
from pocketbert.data.readers.text_pairs import is_positive, positive_pairs, single_texts, text_numbers
from pocketbert.errors import UserError
from pocketbert.tasks.embedding import EmbeddingRows, pair_losses
from pocketbert.training.config import FinetuneConfig
from pocketbert_runtime.embedding_config import EmbeddingConfig

WORDS = {"high": tiny_finetuning.GOOD, "low": tiny_finetuning.BAD}
OPTIONS = FinetuneConfig(epochs=6, batch_size=16, learning_rate=3e-3, max_length=12)


def write_pairs(path: Path, count: int, *, scored: bool) -> Path:
    """Texts of one mood are similar (4), of two moods not (0); positive pairs share no word."""
    random = np.random.default_rng(count)
    rows = ["first\tsecond\tlabel" if scored else "first\tsecond"]
    for index in range(count):
        moods = random.choice(list(WORDS), 2)
        if not scored:
            word, other = (words[index % 6] for words in WORDS.values())
            rows.append(
                f"{word} {random.choice(tiny_finetuning.NEUTRAL)}\t{random.choice(tiny_finetuning.NEUTRAL)} {other}"
            )
            continue
        texts = [" ".join(random.choice(WORDS[mood], 3)) for mood in moods]
        rows.append(f"{texts[0]}\t{texts[1]}\t{4 * int(moods[0] == moods[1])}")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_in_batch_negatives_match_numpy() -> None:
    random = np.random.default_rng(3)
    vectors = random.normal(size=(10, 7)).astype(np.float32)
    losses = pair_losses(tf.constant(vectors), tf.range(10))
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    # MultipleNegativesRankingLoss of sentence-transformers: cross-entropy of 20·cosine, first texts against second.
    expected = -np.diag(log_softmax(20 * units[0::2] @ units[1::2].T, axis=1))
    np.testing.assert_allclose(losses, expected, rtol=2e-5)


def pairs_of(texts: str, partners: str) -> Examples:
    """Positive pairs of texts with one letter."""
    ids = [str(index) for index in range(len(texts))]
    return positive_pairs(Examples([*texts], [*partners], None, ids, "made for the test"))


def vectors_of(data: Examples) -> np.ndarray:
    """A vector for each text of the pairs, random but for equal texts, which have equal ones."""
    texts = single_texts(data).texts
    vector_of = dict(
        zip(sorted({*texts}), np.random.default_rng(3).normal(size=(26, 7)).astype(np.float32), strict=False)
    )
    return np.stack([vector_of[text] for text in texts])


def test_equal_documents_are_no_negatives() -> None:
    # A perfect model: the texts of a topic have one vector, those of two topics opposite ones.
    data = pairs_of("abcdefgh", "xyxyxyxy")
    topics = np.repeat(np.arange(8) % 2, 2)
    vectors = np.where(topics[:, np.newaxis] == 0, [[1.0, 0.0]], [[-1.0, 0.0]]).astype(np.float32)
    # Three wrong negatives would give ln 4 = 1.386; cosines of -1 give four times exp(-40).
    np.testing.assert_allclose(pair_losses(tf.constant(vectors), tf.constant(text_numbers(data))), 0, atol=1e-6)


def test_equal_texts_leave_the_negatives() -> None:
    # Equal partners (0, 3), equal first texts (1, 2), and a partner that is another's first text (4 for 0).
    data = pairs_of("abbcd", "vwxva")
    vectors = vectors_of(data)
    distinct = np.array([[1, 1, 1, 0, 0], [1, 1, 0, 1, 1], [1, 0, 1, 1, 1], [0, 1, 1, 1, 1], [1, 1, 1, 1, 1]], bool)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    logits = np.where(distinct, 20 * units[0::2] @ units[1::2].T, -np.inf)
    losses = pair_losses(tf.constant(vectors), tf.constant(text_numbers(data)))
    # Float32 logits up to 20: within 1e-5.
    np.testing.assert_allclose(losses, -np.diag(log_softmax(logits, axis=1)), rtol=1e-4, atol=1e-5)


def test_recall_ignores_equal_texts() -> None:
    # The text b has two partners; w is nearer to it than x, and the second text a is the first text itself.
    data = pairs_of("abbc", "vwxa")
    directions = {"a": [1.0, 0.0], "v": [0.9, 0.4], "b": [0.0, 1.0], "w": [0.1, 1.0], "x": [0.3, 0.9], "c": [-1.0, 0.1]}
    vectors = np.array([directions[text] for text in single_texts(data).texts], np.float32)
    rows = EmbeddingRows(EncodedExamples(*[np.zeros(1)] * 3, 9, 0), data)  # type: ignore[arg-type]
    # Only c misses its partner.
    assert rows.compute({"embedding": vectors}, ["recall_at_1"]) == {"recall_at_1": 0.75}


@pytest.mark.one_of_each("False")
@pytest.mark.parametrize("scored", [True, False])
def test_training_improves_the_metric(scored: bool, tmp_path: Path) -> None:
    model = tiny_finetuning.write_model(tmp_path / "model")
    columns: dict[str, Any] = {
        "text": "first",
        "pair": "second",
        "score": "label" if scored else None,
        "max_score": 4.0,
    }
    files = [write_pairs(tmp_path / f"{count}.tsv", count, scored=scored) for count in (96, 36 if scored else 6)]
    data = pb.data.pairs(files[0], dev=files[1], **columns)
    assert is_positive(data.train) != scored
    trained = pb.finetune(model, data, tmp_path / "run", config=OPTIONS)
    main = "spearman" if scored else "recall_at_1"
    result = json.loads((tmp_path / "run/result.json").read_text())
    # A random network has about 0 and 1/6.
    assert result["metrics"][main] > 0.6
    assert trained.model.task.kind == "embedding"


def test_pairs_stay_together_in_batches(tmp_path: Path) -> None:
    folder = tiny_finetuning.write_model(tmp_path / "model")
    data = pb.data.pairs(
        write_pairs(tmp_path / "pairs.tsv", 41, scored=True), text="first", pair="second", score="label", max_score=4
    )
    model = pb.from_pretrained(folder, task=data.task)
    from pocketbert.tasks.registry import supervised_task

    encoded = supervised_task(data.task).encode(data.train, model.tokenizer, 12)
    assert len(encoded) == len(data.train)
    chosen = np.array([5, 0, 17])
    inputs, labels = encoded.batch(chosen)
    texts = [text for row in chosen for text in (data.train.texts[row], data.train.pairs[row])]
    expected = model.tokenizer(texts, max_length=12)
    width = int(np.asarray(expected["input_mask"]).sum(axis=1).max())
    np.testing.assert_array_equal(
        inputs["input_word_ids"][:, :width], np.asarray(expected["input_word_ids"])[:, :width]
    )
    np.testing.assert_array_equal(labels, np.repeat(data.train.labels[chosen], 2))


@pytest.mark.usefixtures("eager")
def test_own_pooling_and_dense_layer_continue(tmp_path: Path) -> None:
    embedding = EmbeddingConfig(pooling="max", dimensions=7, normalize=False)
    data = pb.data.pairs(
        write_pairs(tmp_path / "pairs.tsv", 30, scored=True), text="first", pair="second", score="label", max_score=4
    )
    start = pb.from_pretrained(
        tiny_finetuning.write_model(tmp_path / "start"),
        task=pb.TaskConfig(kind="embedding", embedding=embedding),
        seed=4,
    )
    start.save_pretrained(tmp_path / "model")
    config = FinetuneConfig(epochs=1, batch_size=27, learning_rate=1e-9, max_length=12)
    trained = pb.finetune(tmp_path / "model", data, tmp_path / "run", config=config).model
    assert trained.task.embedding == embedding
    np.testing.assert_allclose(
        trained.predict(["warm"])[0]["embedding"], start.predict(["warm"])[0]["embedding"], atol=1e-4
    )


def test_scores_above_the_largest_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="scores must lie in -1 to 1, for cosines .*; received 4; give .* max_score="):
        pb.data.pairs(write_pairs(tmp_path / "pairs.tsv", 30, scored=True), text="first", pair="second", score="label")


@pytest.mark.parametrize("largest", [0.0, -4.0, float("nan")])
def test_largest_score_is_positive(largest: float, tmp_path: Path) -> None:
    table = write_pairs(tmp_path / "pairs.tsv", 30, scored=True)
    with pytest.raises(UserError, match=f"max_score= must be positive; received {largest:g}"):
        pb.data.pairs(table, text="first", pair="second", score="label", max_score=largest)


@pytest.mark.parametrize("flag", ["--pooling=cls", "--max-score=5"])
def test_options_of_embeddings_are_for_them(flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_finetuning.write_model(tmp_path / "model")
    table = tiny_finetuning.write_table(tmp_path / "train.csv", tiny_finetuning.examples(40, 3))
    command = ["finetune", f"--model={model}", f"--train-file={table}", f"--output={tmp_path / 'run'}", flag]
    assert cli.main(command) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"{flag.partition('=')[0]} is for --kind=embedding; received" in error and "with classification" in error


@pytest.mark.parametrize("task", ["sst2", "xnli", "squad"])
def test_kind_is_that_of_a_task(task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_finetuning.write_model(tmp_path / "model")
    command = ["finetune", f"--model={model}", f"--task={task}", f"--data={tmp_path}", f"--output={tmp_path / 'run'}"]
    assert cli.main([*command, "--kind=regression"]) == 2
    assert f"received regression with --task={task}; leave it out" in capsys.readouterr().err.splitlines()[-1]
    # The kind of the task itself is no contradiction.
    assert cli.main([*command, "--task=stsb", "--kind=regression"]) == 2
    assert "--kind" not in capsys.readouterr().err


@pytest.mark.parametrize("scored", [True, False])
def test_parts_of_a_batch_are_refused(scored: bool, tmp_path: Path) -> None:
    # A part would have fewer negatives, and the last one might cut a pair in two.
    model = tiny_finetuning.write_model(tmp_path / "model")
    table = write_pairs(tmp_path / "pairs.tsv", 40, scored=scored)
    data = pb.data.pairs(table, text="first", pair="second", score="label" if scored else None, max_score=4.0)
    config = dataclasses.replace(OPTIONS, micro_batches=2)
    with pytest.raises(UserError, match="single texts; embedding compares several; received 2; leave it out"):
        pb.finetune(model, data, tmp_path / "run", config=config)
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("eager")
def test_command_trains_on_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_finetuning.write_model(tmp_path / "model")
    table = write_pairs(tmp_path / "pairs.tsv", 40, scored=False)
    arguments = [f"--model={model}", f"--train-file={table}", "--kind=embedding", "--text-column=first"]
    arguments += [
        "--pair-column=second",
        "--pooling=cls",
        "--epochs=1",
        "--max-length=9",
        f"--output={tmp_path / 'run'}",
    ]
    assert cli.main(["finetune", *arguments]) in (None, 0)
    assert set(json.loads(capsys.readouterr().out)["metrics"]) == {"recall_at_1", "recall_at_10"}
    assert json.loads((tmp_path / "run/model/1_Pooling/config.json").read_text())["pooling_mode_cls_token"] is True
