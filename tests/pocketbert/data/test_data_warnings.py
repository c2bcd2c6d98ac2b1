"""Counts of odd data. Oracles: counts by hand, transformers' tokenizer, real text in several languages."""

from __future__ import annotations

import json
import pickle
import time
from pathlib import Path

import numpy as np
import pytest
import transformers

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.data.data_warnings import DataWarning, count_truncated, label_warnings, vocabulary_warnings
from pocketbert.data.examples import Examples
from pocketbert.data.readers.tagged_texts import read_tagged
from pocketbert.tasks.data_checks import training_warnings

LABELS = ("a", "b", "c")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two", "##s", "three", "!"]


def _examples(rows: list[tuple[str, int]], pairs: list[str] | None = None) -> Examples:
    texts, labels = zip(*rows, strict=True)
    return Examples([*texts], pairs, np.array(labels, np.int32), [str(i) for i in range(len(texts))], "t.csv")


CLEAN = [(f"text {number}", number % 3) for number in range(30)]


def _found(train: Examples, dev: Examples) -> dict[str, int]:
    return {warning.kind: warning.number for warning in label_warnings(train, dev, LABELS)}


def test_clean_data_give_no_line() -> None:
    dev = _examples([("another", 0)])
    # Equal texts with equal labels are no conflict.
    assert not _found(_examples(CLEAN + CLEAN), dev)


def test_conflicts_copies_and_rare_classes_count() -> None:
    train = _examples([*CLEAN[:9], ("text 0", 1), ("text 0", 2), ("text 4", 0)])
    dev = _examples([("text 3", 1), ("text 3", 0), ("new", 1)])
    assert _found(train, dev) == {"conflicting_labels": 2, "train_in_dev": 2}
    few = _examples([*CLEAN[:9:3], ("x", 1), ("y", 1), ("z", 2)])
    assert _found(few, dev) == {"rare_classes": 2, "train_in_dev": 2}
    sentence = next(str(label_warning) for label_warning in label_warnings(train, dev, LABELS))
    assert "t.csv: 2 texts occur with different labels, such as 'text 0'; correct" in sentence


def test_pairs_are_compared_as_pairs() -> None:
    train = _examples([("x", 0), ("x", 1), ("x", 2)] * 3, ["p", "q", "r"] * 3)
    assert not _found(train, _examples([("x", 0)], ["s"]))
    assert _found(train, _examples([("x", 0)], ["q"])) == {"train_in_dev": 1}


def test_labels_of_multi_label_and_spans_count(tmp_path: Path) -> None:
    vectors = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1], [0, 1, 0]], np.int32)
    train = Examples(["p", "q", "r", "s"], None, vectors, [*"0123"], "t.csv")
    assert _found(train, _examples([("another", 0)])) == {"rare_classes": 1}
    path = tmp_path / "t.conll"
    path.write_text("Ann B-PER\nran O\n\nBob B-PER\nin O\nRome B-LOC\n\nCy B-PER\n\nDi B-PER\n", "utf-8")
    tagged = read_tagged(path)
    warnings = label_warnings(tagged, tagged, ("O", "B-LOC", "I-LOC", "B-PER", "I-PER"))
    assert {warning.kind: warning.number for warning in warnings} == {"train_in_dev": 4, "rare_classes": 1}


def test_warning_is_json_and_a_sentence() -> None:
    warning = pickle.loads(pickle.dumps(DataWarning("2 texts", "truncated", 2)))
    assert warning.to_json() == {"kind": "truncated", "count": 2, "sentence": "2 texts"} and warning == "2 texts"


def test_seventy_thousand_rows_take_a_second() -> None:
    train = _examples([(f"text {number}", number % 3) for number in range(70_000)])
    start = time.process_time()
    assert not _found(train, _examples([("another", 0)]))
    assert time.process_time() - start < 1


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS), "utf-8")
    return tmp_path / "vocab.txt"


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("paired", [False, True])
def test_cut_texts_count_as_in_transformers(vocabulary: Path, paired: bool) -> None:
    texts = ["one", "one two three", "ones twos", "one!!", "three ones two", "ﬁ", "", "一一一一一"] * 3
    pairs = texts[::-1] if paired else None
    oracle = transformers.BertTokenizerFast(str(vocabulary))
    lengths = [len(ids) for ids in oracle(texts, pairs)["input_ids"]]
    tokenizer = pb.WordPieceTokenizer(vocabulary)
    counts = [count_truncated(texts, pairs, tokenizer, limit) for limit in range(4, 13)]
    assert counts == [sum(length > limit for length in lengths) for limit in range(4, 13)]
    assert counts[0] > counts[2] > counts[-1] == 0


@pytest.mark.usefixtures("eager")
def test_training_names_the_cut_texts(vocabulary: Path) -> None:
    texts = ["one two three", "two", "three two"] * 3
    rows = [(text, number % 2) for number, text in enumerate(texts)]
    train = _examples(rows)
    data = pb.TaskData(task=TaskConfig(kind="classification", labels=("a", "b")), train=train, dev=_examples(rows[:1]))
    warnings = training_warnings(data, pb.WordPieceTokenizer(vocabulary).vocabulary, 4)
    # Three texts of the training file and one of the dev file have 5 tokens.
    cut = [str(warning) for warning in warnings if warning.kind == "truncated"]
    assert len(cut) == 1
    assert cut[0].startswith("t.csv: 4 of 10 texts are longer than 4 tokens and are cut (head); pass a larger")
    assert not any("cut" in training_warning for training_warning in training_warnings(data, None, 4))


@pytest.mark.one_of_each(
    "uncased-en-kinds0",
    "uncased-squad-kinds3",
    "uncased-fr-kinds4",
    "uncased-zh-kinds13",
    "chinese-zh-kinds26",
    "chinese-ar-kinds27",
)
@pytest.mark.data
@pytest.mark.parametrize(
    ("vocabulary", "language", "kinds"),
    [
        *[("uncased", name, []) for name in ("en", "sst2", "cola", "squad")],
        *[("uncased", name, ["many_tokens"]) for name in ("fr", "de", "es", "vi", "tr", "ru", "el", "ar", "ur")],
        *[("uncased", name, ["unknown_words"]) for name in ("zh", "th", "hi")],
        *[("multilingual-cased", name, []) for name in ("en", "fr", "de", "ru", "el", "ar", "zh", "th", "tr", "hi")],
        ("chinese", "zh", []),
        ("chinese", "ar", ["unknown_words"]),
    ],
)
def test_another_language_gives_one_warning(shared: Path, vocabulary: str, language: str, kinds: list[str]) -> None:
    data = shared / "data"
    if language == "sst2":
        texts = [line.split("\t")[0] for line in (data / "glue/SST-2/dev.tsv").read_text("utf-8").splitlines()[1:]]
    elif language == "cola":
        texts = [line.split("\t")[3] for line in (data / "glue/CoLA/dev.tsv").read_text("utf-8").splitlines()]
    elif language == "squad":
        parts = json.loads((data / "squad/dev-v1.1.json").read_text("utf-8"))["data"]
        texts = [row["question"] for part in parts for paragraph in part["paragraphs"] for row in paragraph["qas"]]
    else:
        lines = (data / f"xnli/dev-{language}.tsv").read_text("utf-8").splitlines()
        texts = [text for line in lines for text in line.split("\t")[:2]]
    lowercase = vocabulary != "multilingual-cased"
    tokenizer = pb.WordPieceTokenizer(data / f"vocab/bert-base-{vocabulary}.vocab.txt", lowercase=lowercase)
    warnings = vocabulary_warnings(texts, tokenizer)
    assert [warning.kind for warning in warnings] == kinds
    if (vocabulary, language) == ("uncased", "fr"):
        assert 140 < warnings[0].number < 160


@pytest.mark.usefixtures("eager")
def test_every_counted_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]) + "\n", encoding="utf-8")
    parts = {
        name: Examples(texts, None, labels, [str(index) for index in range(len(texts))], f"{name}.csv")
        for name, texts, labels in (
            ("train", ["a", "a b a"], np.array([0, 1], np.int32)),
            ("dev", ["b", "b a"], np.array([0, 1], np.int32)),
            ("unlabelled", ["a b a b", "a a a", "b b"], None),
        )
    }
    data = pb.TaskData(task=pb.TaskConfig(kind="classification", labels=("x", "y")), **parts)
    tokenizer = pb.WordPieceTokenizer(path, truncation="tail")
    cut = [warning for warning in training_warnings(data, tokenizer.vocabulary, 4) if warning.kind == "truncated"]
    line = "train.csv, dev.csv, unlabelled.csv: 3 of 7 texts are longer than 4 tokens and are cut (tail);"
    assert len(cut) == 1 and cut[0].startswith(line)
