"""Embeddings that learn from a negative text per pair."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tiny_finetuning
from scipy.special import log_softmax

import pocketbert as pb
from pocketbert.cli import main
from pocketbert.data.batches import EncodedExamples
from pocketbert.data.examples import Examples
from pocketbert.data.readers.text_pairs import positive_pairs, single_texts, text_numbers
from pocketbert.tasks.embedding import EmbeddingRows
from pocketbert.tasks.pair_losses import PairLoss, pair_losses, triplet_losses
from pocketbert.training.config import FinetuneConfig

OPTIONS = FinetuneConfig(epochs=6, batch_size=16, learning_rate=3e-3, max_length=12)


def triplets(texts: str, partners: str, negatives: str) -> Examples:
    """Triplets of texts with one letter."""
    ids = [str(index) for index in range(len(texts))]
    examples = Examples([*texts], [*partners], None, ids, "made for the test", negatives=[*negatives])
    return positive_pairs(examples)


def labels_of(data: Examples) -> tf.Tensor:
    return tf.constant(np.stack([text_numbers(data), np.tile(np.arange(3), len(data))], axis=1), tf.int32)


def vectors_of(data: Examples) -> np.ndarray:
    """A vector for each text, random but for equal texts, which have equal ones."""
    texts = single_texts(data).texts
    of_text = dict(zip(sorted({*texts}), np.random.default_rng(5).normal(size=(26, 7)), strict=False))
    return np.stack([of_text[text] for text in texts]).astype(np.float32)


def units(vectors: np.ndarray) -> np.ndarray:
    scaled: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled


def test_hard_negatives_match_numpy() -> None:
    data = triplets("abcde", "fghij", "klmno")
    unit = units(vectors_of(data))
    # MultipleNegativesRankingLoss of sentence-transformers with a third column: all of them are candidates.
    candidates = np.concatenate([unit[1::3], unit[2::3]])
    expected = -np.diag(log_softmax(20 * unit[0::3] @ candidates.T, axis=1))
    labels, vectors = labels_of(data), tf.constant(vectors_of(data))
    np.testing.assert_allclose(pair_losses(vectors, labels), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(PairLoss(reduction="none")(labels, vectors), expected, rtol=1e-4, atol=1e-5)


def test_equal_texts_are_no_hard_negatives() -> None:
    # The negative of the first text is the partner of the second one; that of the third is the second text itself.
    data = triplets("abc", "fgh", "gkb")
    unit = units(vectors_of(data))
    logits = 20 * unit[0::3] @ np.concatenate([unit[1::3], unit[2::3]]).T
    # Columns f g h g k b: g is the partner of b, and b is b itself.
    logits[1, [3, 5]] = -np.inf
    losses = pair_losses(tf.constant(vectors_of(data)), labels_of(data))
    np.testing.assert_allclose(losses, -np.diag(log_softmax(logits, axis=1)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("margin", [0.3, 5.0])
def test_triplet_loss_matches_numpy(margin: float) -> None:
    vectors = np.random.default_rng(7).normal(size=(15, 4)).astype(np.float32)
    # A partner that equals its text has a distance of 0, and a finite gradient.
    vectors[1] = vectors[0]
    near, far = (np.linalg.norm(vectors[0::3] - vectors[place::3], axis=1) for place in (1, 2))
    variable = tf.Variable(vectors)
    with tf.GradientTape() as tape:
        losses = triplet_losses(variable, margin)
    np.testing.assert_allclose(losses, np.maximum(near - far + margin, 0), rtol=1e-5, atol=1e-6)
    assert np.isfinite(tape.gradient(losses, variable).numpy()).all()


def test_recall_counts_negatives_as_documents() -> None:
    directions = {"a": [1.0, 0.0], "p": [0.8, 0.6], "n": [0.9, 0.3], "b": [0.0, 1.0], "q": [0.1, 1.0], "m": [-1.0, 0.0]}
    data = triplets("ab", "pq", "nm")
    vectors = np.array([directions[text] for text in single_texts(data).texts], np.float32)
    rows = EmbeddingRows(EncodedExamples(*[np.zeros(1)] * 3, 9, 0), data)  # type: ignore[arg-type]
    # The negative n is nearer to a than its partner p.
    assert rows.compute({"embedding": vectors}, ["recall_at_1", "recall_at_10"]) == {
        "recall_at_1": 0.5,
        "recall_at_10": 1.0,
    }


def write_triplets(path: Path, count: int) -> Path:
    """A text and its partner share the mood; the negative shares a word with the text, and has the other mood."""
    random = np.random.default_rng(count)
    rows = ["first\tsecond\tother"]
    for index in range(count):
        moods = [tiny_finetuning.GOOD, tiny_finetuning.BAD]
        mood, opposite = moods if index % 2 else moods[::-1]
        shared = random.choice(tiny_finetuning.NEUTRAL)
        text = f"{random.choice(mood)} {shared} {index}"
        rows.append(f"{text}\t{random.choice(mood)} {random.choice(mood)}\t{random.choice(opposite)} {shared}")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.mark.one_of_each("0.5")
@pytest.mark.parametrize("margin", [None, 0.5])
def test_training_moves_negatives_away(margin: float | None, tmp_path: Path) -> None:
    model = tiny_finetuning.write_model(tmp_path / "model")
    columns = {"text": "first", "pair": "second", "negative": "other"}
    files = [write_triplets(tmp_path / f"{count}.tsv", count) for count in (97, 31)]
    data = pb.data.pairs(files[0], dev=files[1], **columns)  # type: ignore[arg-type]
    config = dataclasses.replace(OPTIONS, triplet_margin=margin)
    trained = pb.finetune(model, data, tmp_path / "run", config=config)

    def nearer(directory: str | Path) -> float:
        """Share of dev texts that are nearer to their partner than to their negative."""
        embedder = pb.from_pretrained(directory, task=data.task)
        dev = data.dev
        assert isinstance(dev, Examples) and dev.pairs is not None and dev.negatives is not None
        pairs = [[*zip(dev.texts, column, strict=True)] for column in (dev.pairs, dev.negatives)]
        of_pairs = [[answer["similarity"] for answer in embedder.predict(part)] for part in pairs]
        return float(np.mean(np.greater(*of_pairs)))

    # Words decide: a random network is right about half of the time, a trained one nearly always.
    assert nearer(trained.model_directory) > 0.9 > nearer(model)


@pytest.mark.usefixtures("eager")
def test_command_reads_negatives_and_resumes_with_the_same_options(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = tiny_finetuning.write_model(tmp_path / "model")
    table = write_triplets(tmp_path / "train.tsv", 60)
    command = ["finetune", f"--model={model}", f"--train-file={table}", "--text-column=first", "--pair-column=second"]
    command += ["--kind=embedding", "--epochs=1", "--max-length=12", f"--output={tmp_path / 'run'}"]
    negative = "--negative-column=other"
    assert main([*command, negative, "--triplet-margin=0.5"]) == 0
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert record["triplet_margin"] == 0.5
    assert main([*command, negative, "--triplet-margin=0.7"]) == 2
    assert "triplet_margin" in capfd.readouterr().err.replace("-", "_")
    assert main([*command, "--triplet-margin=0.5", "--overwrite"]) == 2
    assert "triplet_margin needs pairs with negatives; received 0.5 without them; pass --negative-column=COLUMN" in (
        capfd.readouterr().err
    )


def test_wrong_negatives_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = tiny_finetuning.write_model(tmp_path / "model")
    table = write_triplets(tmp_path / "train.tsv", 40)
    command = ["finetune", f"--model={model}", f"--output={tmp_path / 'run'}", "--text-column=first"]
    pairs = ["--pair-column=second", "--kind=embedding"]
    assert main([*command, *pairs, f"--train-file={table}", "--negative-column=missing"]) == 2
    assert "the header must have the column 'missing'" in capfd.readouterr().err
    lines = table.read_text().splitlines()
    lines[2] = "a\tb\t "
    (tmp_path / "empty.tsv").write_text("\n".join(lines) + "\n")
    assert main([*command, *pairs, f"--train-file={tmp_path / 'empty.tsv'}", "--negative-column=other"]) == 2
    assert "line 3: column 'other' is empty; every row must have a text" in capfd.readouterr().err
    skipping = pb.data.pairs(
        tmp_path / "empty.tsv", text="first", pair="second", negative="other", dev=table, skip_bad_rows=True
    )
    assert len(skipping.train) == len(lines) - 2 and skipping.train.skipped_rows == 1
    assert "skipped 1 of 40 rows; line 3: column 'other' is empty" in capfd.readouterr().err
    classes = ["--label-column=second", f"--train-file={table}", "--negative-column=other"]
    assert main([*command, *classes]) == 2
    assert "--negative-column is for --kind=embedding; received other with classification" in capfd.readouterr().err
    scores = ["first\tsecond\tother\tlabel", *(f"{line}\t0.5" for line in lines[3:])]
    (tmp_path / "scores.tsv").write_text("\n".join(scores) + "\n")
    assert main([*command, *pairs, f"--train-file={tmp_path / 'scores.tsv'}", "--negative-column=other"]) == 2
    assert "is for pairs that belong together; received pairs with scores" in capfd.readouterr().err
