"""Answers in Java: ids and answers of every task and tokenizer equal the runtime's, for golden and real texts."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import roberta_texts
import tiny
from awkward_texts import awkward_texts
from test_java_host import host

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.presets import preset
from pocketbert.tasks.registry import get_task
from pocketbert_export.exporter import export
from pocketbert_runtime.bundles.bundle import Bundle

pytestmark = [pytest.mark.java, pytest.mark.data]

SHARED = Path(__file__).parents[3] / "shared"
LENGTHS = (16, 48)
COUNT = 1_000
WORDS = ["cat", "journey", "good", "film", "Привет", "слова", "中文"]
APART: dict[str, Any] = {"pairs": "separate"}
TAGS = ("O", "B-LOC", "I-LOC")
TASKS = {
    "classes": TaskConfig(kind="classification", labels=("low", "née", '"high"')),
    "labels": TaskConfig(kind="multi_label", labels=("sport", "art", "of war")),
    "score": TaskConfig(kind="regression"),
    "reranker": TaskConfig(kind="regression", activation="sigmoid"),
    "apart": TaskConfig(kind="regression", pooling="mean", **APART),
    "classes_apart": TaskConfig(kind="classification", labels=("other", "same"), pooling="mean", **APART),
    "questions": TaskConfig(kind="span"),
    "unanswerable": TaskConfig(kind="span", null_threshold=0.0),
    "vectors": TaskConfig(kind="embedding"),
    "tags": TaskConfig(kind="token_classification", labels=TAGS),
    "several": TaskConfig(
        kind="several",
        tasks=(
            TaskConfig(kind="classification", name="intent", labels=("ask", "book", "cancel")),
            TaskConfig(kind="token_classification", name="slots", labels=TAGS),
            TaskConfig(kind="regression", name="stars"),
        ),
    ),
}
PAIRED = ("reranker", "apart", "classes_apart")
QUESTIONS = ("questions", "unanswerable")
SIZES = ("hidden_size", "embedding_size", "num_attention_heads", "head_size", "intermediate_size")
TOKENIZERS = ("wordpiece", "byte_bpe", "unigram")


def pairs_of_sentences() -> list[tuple[str, str]]:
    """Premises and hypotheses in 15 languages."""
    pairs = []
    for path in sorted((SHARED / "data" / "xnli").glob("dev-*.tsv")):
        with path.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
        pairs += [(row[0], row[1]) for row in rows[:: len(rows) * 15 // COUNT]]
    assert len(pairs) >= COUNT
    return pairs[:COUNT]


def questions() -> list[tuple[str, str]]:
    """Questions and paragraphs in several languages, some of them without an answer."""
    data = SHARED / "data"
    files = [*sorted((data / "mlqa").glob("*.json")), data / "squad" / "dev-v2.0.json"]
    pairs: list[tuple[str, str]] = []
    for path in files:
        content = json.loads(path.read_text("utf-8"))["data"]
        in_file = [
            (entry["question"], paragraph["context"][:1500])
            for article in content
            for paragraph in article["paragraphs"]
            for entry in paragraph["qas"]
        ]
        count = -(-COUNT // len(files))
        pairs += in_file[:: len(in_file) // count][:count]
    assert len(pairs) >= COUNT
    return pairs[:COUNT]


def inputs_of(task: str) -> list[Any]:
    """Real texts, pairs or questions, and awkward ones."""
    awkward = awkward_texts(60, WORDS, seed=31)
    if task in QUESTIONS:
        pairs = questions()
        return [*pairs, *zip(awkward[:30], awkward[30:], strict=True), (pairs[0][0], ""), ("", pairs[0][1])]
    if task in PAIRED:
        return [*pairs_of_sentences(), *zip(awkward[:30], awkward[30:], strict=True), ("", "")]
    return [*(first for first, _ in pairs_of_sentences()), *awkward, "", " "]


def tokenizer_of(kind: str, folder: Path) -> Any:
    vocab = SHARED / "data" / "vocab"
    if kind == "wordpiece":
        return pb.WordPieceTokenizer(vocab / "bert-base-uncased.vocab.txt")
    if kind == "byte_bpe":
        return pb.ByteBPETokenizer(vocab / "roberta.vocab.json", vocab / "roberta.merges.txt")
    model = folder / "sentencepiece.bpe.model"
    model.write_bytes(roberta_texts.xlmr_model(SHARED, roberta_texts.toy_model()))
    return pb.UnigramTokenizer(model)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("tokenizers")
    return {kind: tokenizer_of(kind, folder) for kind in TOKENIZERS}


def bundle_of(task_name: str, kind: str, tokenizer: Any, folder: Path) -> Path:
    """Exports one layer of random weights in float32, whose answers differ between texts."""
    task = TASKS[task_name]
    sizes: dict[str, Any] = {name: getattr(tiny.BERT, name) for name in SIZES}
    sizes |= {"num_layers": 1, "vocab_size": tokenizer.vocab_size, "max_position_embeddings": 53}
    base = {"wordpiece": tiny.BERT, "byte_bpe": preset("roberta_base").config, "unigram": preset("xlm_r_base").config}
    config = base[kind].replace(initializer_range=0.4, **sizes)
    model = pb.from_preset(get_task(task).encoder_config(config), [task], tokenizer, seed=11)
    export(model, folder / task_name, recipe="float32", lengths=LENGTHS)
    return folder / task_name


class Recorded:
    """A bundle of the runtime, and the ids that its network reads."""

    def __init__(self, path: Path) -> None:
        self.bundle = Bundle.open(path)
        self.rows: list[list[int]] = []
        run = self.bundle.run

        def recording(inputs: Any, length: int | None = None) -> Any:
            self.rows += inputs["input_word_ids"].tolist()
            return run(inputs, length)

        self.bundle.run = recording  # type: ignore[method-assign]

    def answers(self, inputs: Sequence[Any], **options: Any) -> Iterator[tuple[dict[str, Any], list[list[int]]]]:
        """Yields the answer of each input, and the ids of its rows."""
        for item in inputs:
            self.rows.clear()
            (answer,) = self.bundle.predict([item], **options)
            yield answer, list(self.rows)


def line_of(task: str, item: Any) -> dict[str, str]:
    names = ("question", "context") if task in QUESTIONS else ("text", "pair")
    return dict(zip(names, [item] if isinstance(item, str) else item, strict=False))


def java_answers(bundle: Path, rows: Sequence[dict[str, str]], *flags: str) -> list[dict[str, Any]]:
    done = host("answer", *flags, bundle, text="".join(json.dumps(row) + "\n" for row in rows))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [{name: line.pop(name) for name in row} for row, line in zip(rows, lines, strict=True)] == list(rows)
    return lines


def has_near_tie(answer: dict[str, Any]) -> bool:
    """Whether the two best labels of a word, or of a text, are equal but for the order of sums; with soft labels."""
    heads = [head for head in (answer, *answer.values()) if isinstance(head, dict)]
    labelled = [head["probabilities"] for head in heads if "probabilities" in head]
    # A head for tags has a list with an entry for each word.
    words = [entry for entries in labelled for entry in (entries if isinstance(entries, list) else [entries])]
    return any(is_near_tie([*probabilities.values()], 1e-5) for probabilities in words)


def is_near_tie(values: Sequence[float], bound: float) -> bool:
    best = sorted(values, reverse=True)
    return len(best) > 1 and best[0] - best[1] < bound


def assert_answers(answer: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Compares an answer with Python's; returns whether it is a near tie with another decision."""
    if all(isinstance(value, dict) for value in expected.values()):
        # One answer for each head.
        assert list(answer) == list(expected)
        return any([assert_answers(answer[name], value) for name, value in expected.items()])
    if "similarity" in expected or "score" in expected and "answer" not in expected:
        (name,) = expected
        assert answer == {name: pytest.approx(expected[name], abs=1e-5, rel=1e-5)}
        return False
    if "embedding" in expected:
        np.testing.assert_allclose(answer["embedding"], expected["embedding"], atol=1e-5)
        return False
    if "probabilities" in expected:
        probabilities = expected["probabilities"]
        assert list(answer["probabilities"]) == list(probabilities)
        # Both round to six digits.
        assert answer["probabilities"] == pytest.approx(probabilities, abs=1.1e-5)
        decision = "label" if "label" in expected else "labels"
        if answer[decision] == expected[decision]:
            return False
        ties = [abs(value - 0.5) < 1e-5 for value in probabilities.values()]
        assert is_near_tie([*probabilities.values()], 1e-5) if decision == "label" else any(ties)
        return True
    if "spans" in expected:
        spans, expected_spans = (
            [{**span, "probability": 0} for span in spans] for spans in (answer["spans"], expected["spans"])
        )
        if spans != expected_spans:
            # The caller compares the probabilities of the words.
            return True
        for one, other in zip(answer["spans"], expected["spans"], strict=True):
            assert one["probability"] == pytest.approx(other["probability"], abs=1.1e-5)
        return False
    best, expected_best = answer.pop("answers"), expected.pop("answers")
    ties = [abs(one["score"] - other["score"]) < 1e-4 for one, other in itertools.pairwise(expected_best)]
    for mine, other in ((answer, expected), *zip(best, expected_best, strict=True)):
        for name, bound in (("score", 3e-5), ("probability", 1.1e-5)):
            assert mine.pop(name) == pytest.approx(other.pop(name), abs=bound, rel=1e-5)
    if (answer, best) == (expected, expected_best):
        return False
    assert any(ties), (answer, expected)
    return True


@pytest.mark.one_of_each
@pytest.mark.parametrize(
    ("task", "kind"), [(task, TOKENIZERS[(at + add) % 3]) for add in range(3) for at, task in enumerate(TASKS)]
)
def test_ids_and_answers_equal_the_runtimes(
    task: str, kind: str, tokenizers: dict[str, Any], java: Any, tmp_path: Path
) -> None:
    path = bundle_of(task, kind, tokenizers[kind], tmp_path)
    golden_texts: list[Any] = []
    for line in (path / "answers.jsonl").read_text("utf-8").splitlines():
        *texts, _, _ = json.loads(line).values()
        golden_texts.append(tuple(texts) if len(texts) > 1 else texts[0])
    needs_pairs = task in (*PAIRED, *QUESTIONS)
    inputs = [*inputs_of(task), *(one for one in golden_texts if isinstance(one, tuple) is needs_pairs)]
    lines, outputs = tmp_path / "texts.jsonl", tmp_path / "ids.jsonl"
    parts = [[item] if isinstance(item, str) else list(item) for item in inputs]
    lines.write_text("".join(json.dumps(row) + "\n" for row in parts), encoding="utf-8")
    java("org.pocketbert.bundle.InputsMain", path, lines, outputs)
    ids = [json.loads(line) for line in outputs.read_text("utf-8").splitlines()]
    options = {"n_best": 4} if task in QUESTIONS else {}
    flags = [f"--n-best={options['n_best']}"] if options else []
    answers = java_answers(path, [line_of(task, item) for item in inputs], *flags)
    differing, lengths, distinct = 0, set(), set()
    recorded = Recorded(path)
    results = recorded.answers(inputs, **options)
    for item, answer, rows, (expected, expected_rows) in zip(inputs, answers, ids, results, strict=True):
        # The runtime sorts windows by their length.
        assert sorted(rows) == sorted(expected_rows), ascii(item)
        distinct.add(json.dumps(expected)[:60])
        if assert_answers(answer, expected):
            differing += 1
            if task in ("tags", "several"):
                assert has_near_tie(recorded.bundle.predict([item], soft_labels=True)[0]), ascii(item)
        lengths |= {len(row) for row in rows}
    assert lengths == set(LENGTHS) and len(distinct) > 100
    assert differing <= len(inputs) // 200
