"""Spans in Java: the same windows, words, offsets and labels as in Python, from the outputs of one bundle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from test_java_tokenizer import awkward  # noqa: F401

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.data.batches import EncodedExamples
from pocketbert.data.tagged_texts import split_words
from pocketbert.tokenizers.vocabulary import SPECIAL_TOKENS
from pocketbert_export.bundle import Bundle
from pocketbert_export.exporter import export

pytestmark = pytest.mark.java

WORDS = "new york ##er ##s lives in un ##aff ##able zurich cafe 東 京 , . ! ' 🙂 a b c d e".split()
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
]


def bundle_of(labels: tuple[str, ...], folder: Path) -> Bundle:
    """A bundle of a tiny network with random weights, whose tags all occur."""
    vocabulary = folder / "vocab.txt"
    unused = [f"[unused{number}]" for number in range(tiny.BERT.vocab_size - len(WORDS) - len(SPECIAL_TOKENS))]
    vocabulary.write_text("\n".join([*SPECIAL_TOKENS, *WORDS, *unused]) + "\n", encoding="utf-8")
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
            length = min(each for each in bundle.lengths if each >= last - first)
            padding = length - (last - first)
            ids = np.pad(encoded.word_ids[first:last], (0, padding), constant_values=encoded.pad_token_id)
            # A wrong place would be seen: padding has logits, too.
            logits = np.pad(outputs["token_logits"][first:last], ((0, padding), (0, 0)), constant_values=-9.0)
            windows.append({"ids": ids.tolist(), "logits": logits.ravel().tolist()})
        return outputs

    expected, rows = [], []
    for text in texts:
        windows.clear()
        (found,) = predictor.task.predict([text], forward, predictor.tokenizer, predictor.max_length)
        expected.append(found["spans"])
        rows.append({"text": text, "windows": list(windows)})
    given, answers = folder / "texts.jsonl", folder / "spans.jsonl"
    given.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    java("org.pocketbert.bundle.SpansMain", bundle.directory, given, answers)
    lines = answers.read_text(encoding="utf-8").splitlines()
    for text, ours, line in zip(texts, expected, lines, strict=True):
        theirs = json.loads(line)
        for one, other in zip(ours, theirs, strict=True):
            # Python rounds to six digits.
            assert other.pop("probability") == pytest.approx(one.pop("probability"), abs=1e-5)
        assert theirs == ours, ascii(text)
    return sum(map(len, expected))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_spans_equal_those_of_python(scheme: str, java: Any, tmp_path: Path) -> None:
    bundle = bundle_of(SCHEMES[scheme], tmp_path)
    random = np.random.default_rng(3)
    texts = [" ".join(random.choice([*WORDS[:2], *WORDS[4:7], *WORDS[9:]], count)) for count in range(1, 60)]
    assert assert_equal(java, bundle, tmp_path, [*TEXTS, *texts]) > 50


def test_words_equal_those_of_python(java: Any, tmp_path: Path, awkward: Any) -> None:  # noqa: F811
    # Every code point, between letters.
    texts = ["a".join(map(chr, range(first, first + 4096))) for first in range(0, 0x110000, 4096)]
    texts += ["", *awkward.awkward_texts(2_000, WORDS, seed=89)]
    given, found = tmp_path / "texts.jsonl", tmp_path / "words.jsonl"
    given.write_text("".join(json.dumps(text) + "\n" for text in texts), encoding="utf-8")
    java("org.pocketbert.tokenizer.WordsMain", given, found)
    for text, line in zip(texts, found.read_text(encoding="utf-8").splitlines(), strict=True):
        assert json.loads(line) == split_words(text).T.tolist(), ascii(text)
