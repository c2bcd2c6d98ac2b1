"""Fine-tuning of sentence embeddings on scored and on positive pairs."""

from __future__ import annotations

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
from pocketbert.data.text_pairs import is_positive
from pocketbert.embedding_config import EmbeddingConfig
from pocketbert.errors import UserError
from pocketbert.tasks.embedding import pair_losses
from pocketbert.training.config import FinetuneConfig

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
    found = pair_losses(tf.constant(vectors), tf.ones([10], tf.int32))
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    # MultipleNegativesRankingLoss of sentence-transformers: cross-entropy of 20·cosine, first texts against second.
    expected = -np.diag(log_softmax(20 * units[0::2] @ units[1::2].T, axis=1))
    np.testing.assert_allclose(found, expected, rtol=2e-5)


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
    found = pb.finetune(model, data, tmp_path / "run", config=OPTIONS)
    main = "spearman" if scored else "recall_at_1"
    result = json.loads((tmp_path / "run/result.json").read_text())
    # A random network has about 0 and 1/6.
    assert result["metrics"][main] > 0.6
    assert found.model.task.kind == "embedding"


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
    found = pb.finetune(tmp_path / "model", data, tmp_path / "run", config=config).model
    assert found.task.embedding == embedding
    np.testing.assert_allclose(
        found.predict(["warm"])[0]["embedding"], start.predict(["warm"])[0]["embedding"], atol=1e-4
    )


def test_scores_above_the_largest_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="scores must lie in -1 to 1, for cosines .*; received 4; give .* --max-score"):
        pb.data.pairs(write_pairs(tmp_path / "pairs.tsv", 30, scored=True), text="first", pair="second", score="label")


def test_command_trains_on_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_finetuning.write_model(tmp_path / "model")
    table = write_pairs(tmp_path / "pairs.tsv", 40, scored=False)
    given = [f"--model={model}", f"--train-file={table}", "--kind=embedding", "--text-column=first"]
    given += ["--pair-column=second", "--pooling=cls", "--epochs=1", "--max-length=9", f"--output={tmp_path / 'run'}"]
    assert cli.main(["finetune", *given]) in (None, 0)
    assert set(json.loads(capsys.readouterr().out)["metrics"]) == {"recall_at_1", "recall_at_10"}
    assert json.loads((tmp_path / "run/model/1_Pooling/config.json").read_text())["pooling_mode_cls_token"] is True
