"""Spans in Java: the same windows, words, offsets and labels as in Python, from the outputs of one bundle."""

from __future__ import annotations

import itertools
import json
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from awkward_texts import awkward_texts
from test_java_host import host

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.data.batches import EncodedExamples
from pocketbert.training.config import FinetuneConfig
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.exporter import export
from pocketbert_runtime.answers.words import split_words
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import SPECIAL_TOKENS

pytestmark = pytest.mark.java

WORDS = "new york ##er ##s lives in un ##aff ##able zurich cafe 東 京 , . ! ' 🙂 a b c d e".split()
KANA = "マ ##リア ##は ##トヨ ##タ".split()
SCHEMES = {
    "IOB2": ("O", "B-LOC", "I-LOC", "B-PER", "I-PER"),
    "BIOES": ("B-LOC", "I-LOC", "O", "E-LOC", "S-LOC", "S-A-B", "B-A-B"),
    "types": ("LOC", "O", "PER"),
}
TEXTS = [
    "New Yorkers lives in Zürich, 東京!",
    "🙂🙂 cafe unaffable  New York's",
    "",
    "   ",
    "a b c d e " * 9 + "unaffable New York " * 4,
    "a\u200db \u00a0new\u3000york e\u0301e \ufeff",
    # Scripts without spaces: tokens of one run have their own tags, and unknown runs one.
    "マリアはトヨタ東京マリアはマ、トヨタトヨタ",
    "マリアは" * 9 + " カ\u3099カ ไทยไทย new東京マ",
]


def bundle_of(labels: tuple[str, ...], folder: Path) -> Bundle:
    """A bundle of a tiny network with random weights, whose tags all occur."""
    vocabulary = folder / "vocab.txt"
    unused = [f"[unused{number}]" for number in range(tiny.BERT.vocab_size - len(WORDS) - len(KANA) - 5)]
    vocabulary.write_text("\n".join([*SPECIAL_TOKENS, *WORDS, *KANA, *unused]) + "\n", encoding="utf-8")
    task = TaskConfig(kind="token_classification", labels=labels)
    config = tiny.BERT.replace(initializer_range=0.4)
    model = pb.from_preset(config, [task], pb.WordPieceTokenizer(vocabulary), seed=7)
    model.save_pretrained(folder / "model")
    return export(folder / "model", folder / "bundle", recipe="float32", lengths=(9, 17))


def assert_equal(java: Any, bundle: Bundle, folder: Path, texts: list[str]) -> int:
    """Compares the spans of texts and returns their number."""
    predictor = bundle.predictor()
    windows: list[dict[str, Any]] = []

    def forward(encoded: EncodedExamples, *, show_progress: bool = False) -> Mapping[str, np.ndarray]:
        outputs = predictor.forward(encoded)
        for first, last in zip(encoded.offsets, encoded.offsets[1:], strict=False):
            length = min(length for length in bundle.lengths if length >= last - first)
            padding = length - (last - first)
            ids = np.pad(encoded.word_ids[first:last], (0, padding), constant_values=encoded.pad_token_id)
            # A wrong place would be seen: padding has logits, too.
            logits = np.pad(outputs["token_logits"][first:last], ((0, padding), (0, 0)), constant_values=-9.0)
            windows.append({"ids": ids.tolist(), "logits": logits.ravel().tolist()})
        return outputs

    expected, rows = [], []
    for text in texts:
        windows.clear()
        (spans,) = predictor.task.predict([text], forward, predictor.tokenizer, predictor.max_length)
        expected.append(spans["spans"])
        rows.append({"text": text, "windows": list(windows)})
    inputs, answers = folder / "texts.jsonl", folder / "spans.jsonl"
    inputs.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    java("org.pocketbert.bundle.SpansMain", bundle.directory, inputs, answers)
    lines = answers.read_text(encoding="utf-8").splitlines()
    for text, values, line in zip(texts, expected, lines, strict=True):
        content = json.loads(line)
        for one, other in zip(values, content, strict=True):
            # Python rounds to six digits.
            assert other.pop("probability") == pytest.approx(one.pop("probability"), abs=1e-5)
        assert content == values, ascii(text)
    return sum(map(len, expected))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_spans_equal_those_of_python(scheme: str, java: Any, tmp_path: Path) -> None:
    bundle = bundle_of(SCHEMES[scheme], tmp_path)
    random = np.random.default_rng(3)
    texts = [" ".join(random.choice([*WORDS[:2], *WORDS[4:7], *WORDS[9:]], count)) for count in range(1, 60)]
    assert assert_equal(java, bundle, tmp_path, [*TEXTS, *texts]) > 50


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A bundle of a network that was fine-tuned on a CoNLL file."""
    folder = tmp_path_factory.mktemp("trained")
    people, places = ("ada", "grace", "zoë"), ("new york", "zürich", "東 京")
    random, sentences = np.random.default_rng(3), []
    for person, town_name in itertools.product(people, places * 12):
        town = [f"{word}\t{'I' if index else 'B'}-LOC" for index, word in enumerate(town_name.split())]
        start = [f"{person}\tB-PER", "lives\tO", "in\tO"] if random.random() < 0.7 else ["cafe\tO", "of\tO"]
        # Other words ahead, so that names are learned and not positions.
        others = [f"{word}\tO" for word in random.choice(["the", "!", ",", ".", "🙂", "in"], 7)]
        sentences.append("\n".join([*others[: random.integers(6)], *start, *town, others[-1]]))
    (folder / "train.conll").write_text("\n\n".join(sentences) + "\n", encoding="utf-8")
    words = "ada grace zoe new york zur ##ich 東 京 lives in the cafe of ! 🙂 , .".split()
    vocabulary = folder / "vocab.txt"
    unused = [f"[unused{number}]" for number in range(tiny.BERT.vocab_size - len(words) - len(SPECIAL_TOKENS))]
    vocabulary.write_text("\n".join([*SPECIAL_TOKENS, *words, *unused]) + "\n", encoding="utf-8")
    bare = pb.from_preset(tiny.BERT.replace(num_layers=1), tokenizer=pb.WordPieceTokenizer(vocabulary), seed=7)
    data = pb.data.tagged(folder / "train.conll", dev=folder / "train.conll")
    config = FinetuneConfig(epochs=6, learning_rate=3e-3, batch_size=8, max_length=17)
    run = pb.finetune(bare, data, folder / "run", config=config)
    return pb.export(run.model, folder / "bundle", recipe="dynamic_wi8", lengths=(9, 17), examples=data)


def test_trained_bundle_finds_the_same_spans(trained: Bundle) -> None:
    long = " ".join(["Ada lives in New York ,", "the cafe of Zürich !", "🙂 Zoë lives in 東京 ."] * 4)
    texts = ["🙂🙂 Zoë lives in 東京!", "The  cafe of\u00a0Zürich!", long, "Grace", "...", "🙂"]
    texts += [unicodedata.normalize("NFD", text) for text in texts]
    done = host("answer", trained.directory, text="".join(json.dumps({"text": text}) + "\n" for text in texts))
    assert done.returncode == 0, done.stderr
    labels = set()
    for text, line, expected in zip(texts, done.stdout.splitlines(), trained.predict(texts), strict=True):
        content = json.loads(line)
        assert content["text"] == text
        for one, other in zip(content["spans"], expected["spans"], strict=True):
            # int8: two releases of the kernels may round a value to another step.
            assert one.pop("probability") == pytest.approx(other.pop("probability"), abs=0.02)
            assert one == other, ascii(text)
            assert text[one["start"] : one["end"]] == one["text"]
            labels.add((unicodedata.normalize("NFC", one["text"]), one["label"]))
    # It has learned its training file: these are right, not only equal.
    assert {("Zoë", "PER"), ("Ada", "PER"), ("New York", "LOC"), ("Zürich", "LOC"), ("東京", "LOC")} <= labels


def test_words_equal_those_of_python(java: Any, tmp_path: Path) -> None:
    # Every code point, between letters.
    texts = ["a".join(map(chr, range(first, first + 4096))) for first in range(0, 0x110000, 4096)]
    texts += ["", *awkward_texts(2_000, WORDS, seed=89)]
    inputs, outputs = tmp_path / "texts.jsonl", tmp_path / "words.jsonl"
    inputs.write_text("".join(json.dumps(text) + "\n" for text in texts), encoding="utf-8")
    java("org.pocketbert.tokenizer.WordsMain", inputs, outputs)
    for text, line in zip(texts, outputs.read_text(encoding="utf-8").splitlines(), strict=True):
        assert json.loads(line) == split_words(text).T.tolist(), ascii(text)
