"""`pocketbert predict --windows`: long texts in overlapping windows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
import scipy.special

import pocketbert as pb
from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.tasks.predictor import model_predictor
from pocketbert_export.commands import predict

# Each predicts a few texts, for which a graph takes longer than it saves.
pytestmark = pytest.mark.usefixtures("eager")

# All words are tokens of the vocabulary, except walking and dogs.
LONG = "the film is good . a dull film walks the cat is bad ! the sun the rain not good walking dogs the dull cat"
TEXTS = ["dull", LONG, "the cat is bad", f"{LONG} {LONG}", "the sun the rain"]
LENGTH, STRIDE = 9, 4
TASKS = {
    "classification": TaskConfig(kind="classification", name="mood", labels=("bad", "fair", "good")),
    "multi_label": TaskConfig(kind="multi_label", name="moods", labels=("calm", "loud", "odd")),
    "regression": TaskConfig(kind="regression", name="stars"),
}


def model_of(task: TaskConfig, folder: Path) -> Model:
    tokenizer = pb.WordPieceTokenizer(networks.vocabulary(folder))
    # Large weights, so that windows have different answers.
    return pb.from_preset(networks.bert_config(initializer_range=0.5), task=task, tokenizer=tokenizer, seed=3)


def separate_logits(model: Model, text: str, length: int, stride: int) -> np.ndarray:
    """Logits [windows, ...] of the windows of a text, each predicted alone."""
    tokenizer, room = model.tokenizer, length - 2
    ids = tokenizer.tokenize([text]).to_list()[0]
    starts = [0]
    while starts[-1] + room < len(ids):
        starts.append(starts[-1] + stride)
    outputs = []
    for start in starts:
        row = [tokenizer.cls_token_id, *ids[start : start + room], tokenizer.sep_token_id]
        parts = np.array([[row], [[1] * len(row)], [[0] * len(row)]])
        inputs = dict(zip(("input_word_ids", "input_mask", "input_type_ids"), parts, strict=True))
        outputs.append(model(inputs)["logits"].numpy())
    return np.concatenate(outputs)


def expected(model: Model, kind: str, text: str, length: int, stride: int) -> np.ndarray:
    logits = separate_logits(model, text, length, stride).astype(np.float64)
    squash = {"classification": lambda x: scipy.special.softmax(x, axis=1), "multi_label": scipy.special.expit}
    return np.mean(squash.get(kind, lambda x: x)(logits), axis=0)


def received(answer: dict[str, Any]) -> np.ndarray:
    return np.array([*answer["probabilities"].values()]) if "probabilities" in answer else np.array(answer["score"])


@pytest.mark.one_of_each("4-classification", "None-classification", "4-regression")
@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("stride", [STRIDE, None])
def test_answers_are_means_of_windows(
    stride: int | None, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predict, "LINES_A_CHUNK", 3)
    model = model_of(TASKS[kind], tmp_path)
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    command = ["predict", f"--model={tmp_path / 'model'}", f"--input={tmp_path / 'texts.txt'}", "--windows"]
    options = [f"--stride={stride}"] if stride else []
    assert cli.main([*command, f"--max-length={LENGTH}", *options]) in (None, 0)
    output = capsys.readouterr()
    answers = [json.loads(line) for line in output.out.splitlines()]
    assert [answer["text"] for answer in answers] == TEXTS
    for answer in answers:
        mean = expected(model, kind, answer["text"], LENGTH, stride or LENGTH // 3)
        np.testing.assert_allclose(received(answer), mean, atol=3e-6)
        if kind == "classification":
            assert answer["label"] == TASKS[kind].labels[int(mean.argmax())]
        if kind == "multi_label":
            named = zip(TASKS[kind].labels, mean, strict=True)
            assert answer["labels"] == [name for name, value in named if value >= 0.5]
    assert output.err.count("2 of 5 texts are longer than 9 tokens and are read in windows") == 1
    assert "are cut" not in output.err
    # More than one window, which say different things.
    assert np.ptp(separate_logits(model, LONG, LENGTH, STRIDE), axis=0).max() > 0.01


def test_bundles_read_windows(small_model: Model, small_bundle: Path, tmp_path: Path) -> None:
    from pocketbert_export.bundles.predictors import open_predictor

    options = {"windows": True, "stride": STRIDE, "top_k": 3}
    answers = open_predictor(small_bundle, max_length=LENGTH).predict(TEXTS, **options)
    assert pb.Bundle.open(small_bundle).predict(TEXTS, max_length=LENGTH, **options) == answers
    for wrong, message in (
        ({"max_length": LENGTH}, "max_length needs windows=True; received 9 alone"),
        ({"stride": STRIDE}, "stride needs windows=True; received 4 alone"),
        ({"max_length": 20, **options}, "at most 19"),
    ):
        with pytest.raises(UserError, match=message):
            pb.Bundle.open(small_bundle).predict(TEXTS, **wrong)
    for text, answer in zip(TEXTS, answers, strict=True):
        mean = expected(small_model, "classification", text, LENGTH, STRIDE)
        assert [row["probability"] for row in answer["top"]] == pytest.approx(sorted(mean, reverse=True), abs=2e-5)


def test_certain_windows_have_finite_means(tmp_path: Path) -> None:
    for kind in ("classification", "multi_label"):
        model = model_of(TASKS[kind], tmp_path)
        for variable in model.heads[kind].trainable_variables:
            variable.assign(1e5 * variable)
        answers = model_predictor(model, max_length=LENGTH).predict(TEXTS, windows=True)
        for text, answer in zip(TEXTS, answers, strict=True):
            np.testing.assert_allclose(received(answer), expected(model, kind, text, LENGTH, 3), atol=1e-6)


def test_windows_without_meaning_are_one_line(
    small_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.txt").write_text(f"{LONG}\n", encoding="utf-8")
    (tmp_path / "pairs.jsonl").write_text('{"text": "the cat", "pair": "the sun"}\n', encoding="utf-8")
    longest = pb.from_pretrained(small_directory).config.max_position_embeddings
    for options, message in (
        ([f"--input={tmp_path / 'pairs.jsonl'}"], "windows are for single texts; received pairs of texts"),
        ([f"--input={tmp_path / 'texts.txt'}", "--pair-column=pair"], "--windows is for single texts"),
        ([f"--input={tmp_path / 'texts.txt'}", f"--max-length={longest + 1}"], f"at most {longest} tokens"),
        ([f"--input={tmp_path / 'texts.txt'}", "--max-length=9", "--stride=8"], "must lie between 1 and 7"),
    ):
        assert cli.main(["predict", f"--model={small_directory}", "--windows", *options]) == 2, options
        assert message in capsys.readouterr().err
    command = ["predict", f"--model={small_directory}", f"--input={tmp_path / 'texts.txt'}", "--stride=3"]
    assert cli.main(command) == 2
    assert "--stride is for a model that answers questions" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["token_classification", "span", "embedding"])
def test_tasks_without_one_answer_refuse(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pocketbert_runtime.embedding_config import EmbeddingConfig

    labels = {"token_classification": ("person", "place")}.get(kind, ())
    embedding = EmbeddingConfig() if kind == "embedding" else None
    task = TaskConfig(kind=kind, name="other", labels=labels, embedding=embedding)
    tokenizer = pb.WordPieceTokenizer(networks.vocabulary(tmp_path))
    config = networks.bert_config(pooler="none") if kind == "embedding" else networks.bert_config()
    model = pb.from_preset(config, task=task, tokenizer=tokenizer)
    model.save_pretrained(tmp_path / "model")
    assert cli.main(["predict", f"--model={tmp_path / 'model'}", "--windows"]) == 2
    assert f"received it for {kind}; leave it out" in capsys.readouterr().err
    with pytest.raises(UserError, match=f"windows are for one answer per text; received them for {kind}"):
        model.predict([("what", LONG)] if kind == "span" else [LONG], windows=True)
