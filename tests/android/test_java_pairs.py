"""Separate pairs in Java: the vectors and answers of Python, from the same bundles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import bundle_folders
import numpy as np
import pytest
import tiny
from test_java_host import host

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.tasks.registry import get_task
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.exporter import export
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import SPECIAL_TOKENS

pytestmark = pytest.mark.java

WORDS = "how do i reset my pass ##word shop find ##s a new cafe zurich 東 京 , . ! ' e good bad".split()
LABELS = ("other", "née", '"same"')
LENGTHS = (9, 17)
PAIRS: dict[str, Any] = {"pairs": "separate"}
TASKS = {
    "plain": TaskConfig(kind="classification", labels=LABELS, pooling="mean", **PAIRS),
    "reject": TaskConfig(
        kind="classification",
        labels=LABELS,
        decisions={"reject_below": 0.55},  # type: ignore[arg-type]
        **PAIRS,
    ),
    "labels": TaskConfig(
        kind="multi_label",
        labels=LABELS,
        decisions={"thresholds": (0.2, 0.5, 0.61)},  # type: ignore[arg-type]
        pooling="mean",
        **PAIRS,
    ),
    "score": TaskConfig(kind="regression", pooling="mean", **PAIRS),
    "reranker": TaskConfig(kind="regression", activation="sigmoid", **PAIRS),
}


def pairs() -> list[tuple[str, str]]:
    """Pairs of texts of 1 to 29 words, some longer than the longest length."""
    random = np.random.default_rng(4)
    texts = [" ".join(random.choice(WORDS, count)) for count in random.integers(1, 30, 40)]
    return [("Find a shop in Zürich, 東京!", ""), ("🙂 e", "e\u0301"), *zip(texts[:20], texts[20:], strict=True)]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bundle]:
    """Networks with random weights, whose answers differ between pairs."""
    folder = tmp_path_factory.mktemp("pairs")
    vocabulary = folder / "vocab.txt"
    unused = [f"[unused{number}]" for number in range(tiny.BERT.vocab_size - len(WORDS) - len(SPECIAL_TOKENS))]
    vocabulary.write_text("\n".join([*SPECIAL_TOKENS, *WORDS, *unused]) + "\n", encoding="utf-8")
    bundles = {}
    for name, task in TASKS.items():
        config = get_task(task).encoder_config(tiny.BERT.replace(initializer_range=0.4))
        model = pb.from_preset(config, [task], pb.WordPieceTokenizer(vocabulary), seed=9)
        inputs = [model.tokenizer(list(pair), max_length=max(LENGTHS)) for pair in pairs()]
        logits = [np.ravel(model(dict(one))["logits"].numpy()[0]) for one in inputs]
        # Random logits differ more between labels than between pairs.
        next(iter(model.heads.values())).output_projection.bias.assign(-np.mean(logits, axis=0))
        bundles[name] = export(model, folder / name, recipe="float32", lengths=LENGTHS)
    return bundles


def answers(bundle: Bundle, rows: list[dict[str, str]]) -> list[dict[str, Any]]:
    done = host("answer", bundle.directory, text="".join(json.dumps(row) + "\n" for row in rows))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("name", TASKS)
def test_answers_equal_those_of_python(name: str, bundles: dict[str, Bundle]) -> None:
    rows = [{"text": first, "pair": second} for first, second in pairs()]
    expected = bundles[name].predict(pairs())
    decisions = set()
    for row, line, answer in zip(rows, answers(bundles[name], rows), expected, strict=True):
        assert {key: line.pop(key) for key in ("text", "pair")} == row
        if "score" in answer:
            assert line == {"score": pytest.approx(answer["score"], abs=1e-5, rel=1e-5)}
            decisions.add(round(answer["score"], 2))
            continue
        # Both round to six digits.
        assert line.pop("probabilities") == pytest.approx(answer.pop("probabilities"), abs=1e-5)
        assert line == answer
        decisions.add(json.dumps(answer))
    # Each kind of answer occurs.
    assert len(decisions) > 1
    assert ('{"label": null}' in decisions) is (name == "reject")


def test_golden_answers_are_checked(bundles: dict[str, Bundle]) -> None:
    done = host("check", *(bundle.directory for bundle in bundles.values()))
    assert (done.returncode, done.stdout) == (0, "ok\n" * len(bundles)), done.stdout


def test_vectors_equal_those_of_python(bundles: dict[str, Bundle]) -> None:
    bundle = bundles["plain"]
    texts = [first for first, _ in pairs()]
    lines = answers(bundle, [{"text": text} for text in texts])
    for text, line in zip(texts, lines, strict=True):
        inputs = bundle.tokenizer([text], max_length=max(LENGTHS))
        length = next(length for length in LENGTHS if length >= inputs["input_word_ids"].shape[1])
        inputs = bundle.tokenizer([text], max_length=length, pad_to=length)
        vector = bundle.run({name: np.asarray(ids) for name, ids in inputs.items()})["embedding"][0]
        np.testing.assert_allclose(line["embedding"], vector, atol=1e-5)


def test_measured_text_is_named(bundles: dict[str, Bundle], tmp_path: Path) -> None:
    path = tmp_path / "java.json"
    done = host(bundles["plain"].directory, "--lengths=9", f"--output={path}")
    assert done.returncode == 0, done.stderr
    notes = json.loads(path.read_text("utf-8"))["notes"]
    sentence = "latencies are for one text in model.tflite; a pair needs two, and head.tflite."
    assert f"plain is for separate pairs: {sentence}" in notes


def test_other_heads_are_refused(bundles: dict[str, Bundle], tmp_path: Path) -> None:
    import shutil

    changed = Path(shutil.copytree(bundles["plain"].directory, tmp_path / "changed"))
    pairs_task = bundle_folders.description_of(changed)["pairs"]["task"]
    bundle_folders.describe_again(changed, pairs={"task": {**pairs_task, "kind": "token_classification"}})
    done = host("answer", changed, text="a\n")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "$.pairs.task.kind must be one of classification, multi_label, regression" in done.stderr
