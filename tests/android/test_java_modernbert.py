"""ModernBERT's byte-level BPE in Java and in Python: ids, offsets, inputs, and the answers of a bundle."""

from __future__ import annotations

import dataclasses
import json
import random
import unicodedata
from pathlib import Path
from typing import Any

import modernbert_tokenizer
import pytest
import roberta_texts
import tiny
from test_java_host import host

import pocketbert as pb
from pocketbert.checkpoints.vocabulary_files import read_vocabulary_files
from pocketbert.configs import TaskConfig
from pocketbert.tokenizers.opening import open_tokenizer
from pocketbert_runtime.tokenizers.byte_bpe import ByteBPE
from pocketbert_runtime.tokenizers.byte_layouts import MODERNBERT
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

pytestmark = pytest.mark.java

WORDS = ["cat", "charming", "journey", "[MASK]", "[unused1]", "  ", "    ", "Cafe\u0301"]
# Form D, singletons, exclusions, Hangul, marks in another order or without a base, and marks newer than Unicode 9.
EXTRA = [
    "Cafe\u0301 A\u030a \u212b \u0958 \u1112\u1161\u11ab q\u0323\u0307 q\u0307\u0323 \u0301x \u2000\u2001 \u0344",
    "  e\u0301  \u0301 7e\u0323\u0302 \U0001f600   [MASK]  e\u0301", "e\u1abf\u0301\u0323 e\u0323\u0301\u0898\u0323",
    "\U00011935\U00011930 \U00011938 e\u0301",
    "\u0f71\u0f72\u0f73 x\u0301\u0f73\u0f39 e\u0301", "각\u11a8 \uac00\u11a7\u11a8",
    "\u0cc6\u0cc2\u0cd5 \u0cc6\u0301\u0cc2 e\u0301", "[CLS]e\u0301[SEP]\u0301 [PAD]\u0301[UNK]",
    "", " ", " \u0301e\u0301",
]  # fmt: skip
MARKS = [
    *"aeq '\u0301\u0302\u0307\u0323\u0327\u0334\u0345\u1112\u1161\u11ab\uac00\u0f71\u0f73\u3099か\u0898\u1abf",
    "  ",
]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    problems: list[str] = []
    read = read_vocabulary_files(modernbert_tokenizer.write(tmp_path_factory.mktemp("tokenizer")), problems)
    assert not problems and read is not None
    return read


@pytest.fixture(scope="module")
def files(vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for name, content in vocabulary.contents().items():
        (folder / name).write_bytes(content)
    (folder / "added.json").write_text(json.dumps([dataclasses.asdict(token) for token in vocabulary.added]))
    (folder / "layout").write_text(MODERNBERT, "ascii")
    return folder


def texts() -> list[str]:
    draw = random.Random(29)
    hard = roberta_texts.hard_texts(WORDS, 350, seed=23)
    marks = ["".join(draw.choice(MARKS) for _ in range(draw.randint(2, 14))) for _ in range(150)]
    return [*hard, *marks, *EXTRA, *(unicodedata.normalize("NFD", text) for text in hard[:80])]


def assert_equal(java: Any, python: ByteBPE, files: Path, folder: Path, lines: list[str], special: str) -> None:
    tokens = python.tokens(lines)
    rows = roberta_texts.run(java, files, folder, lines, special)
    assert len(rows) == len(lines)
    for row, text, start, end in zip(rows, lines, tokens.splits, tokens.splits[1:], strict=False):
        assert row == [part[start:end].tolist() for part in (tokens.ids, tokens.starts, tokens.ends)], ascii(text)


@pytest.mark.parametrize("special", ["token", "text"])
def test_tokens_and_spans_are_pythons(
    java: Any, vocabulary: Vocabulary, files: Path, tmp_path: Path, special: Any
) -> None:
    assert_equal(java, ByteBPE(vocabulary, special), files, tmp_path, texts(), special)


def test_every_code_point_is_composed_as_in_python(
    java: Any, vocabulary: Vocabulary, files: Path, tmp_path: Path
) -> None:
    rows = [row for row in roberta_texts.everything() if any(map(changes, row))]
    rows += [unicodedata.normalize("NFD", row) for row in rows]
    rows += [
        f"x\u0334{mark}\u0323\u0345\u0301" for mark in map(chr, range(0x300, 0x20000)) if unicodedata.combining(mark)
    ]
    assert_equal(java, ByteBPE(vocabulary), files, tmp_path, rows, "token")


def changes(character: str) -> bool:
    return bool(unicodedata.combining(character)) or unicodedata.normalize("NFD", character) != character


def test_inputs_are_pythons(java: Any, vocabulary: Vocabulary, files: Path, tmp_path: Path) -> None:
    inputs = ByteBPE(vocabulary)(["the cat"], ["sat  on e\u0301"], max_length=40, pad_to=40)
    (row,) = roberta_texts.run(java, files, tmp_path, [("the cat", "sat  on e\u0301", 40)])
    assert row == [inputs[name][0].tolist() for name in ("input_word_ids", "input_mask", "input_type_ids")]


def test_bundle_answers_as_in_python(vocabulary: Vocabulary, tmp_path: Path) -> None:
    tokenizer = open_tokenizer(vocabulary)
    config = tiny.MODERNBERT.replace(vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.pad_token_id)
    mood = TaskConfig(kind="classification", name="mood", labels=("bad", "fair", "good"))
    path = tmp_path / "bundle"
    pb.export(pb.from_preset(config, [mood], tokenizer, seed=5), path, recipe="float32", lengths=(9, 29))
    bundle = pb.Bundle.open(path)
    lines = [*texts()[:20], *EXTRA]
    done = host("answer", path, text="".join(json.dumps({"text": line}) + "\n" for line in lines))
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for line, answer, expected in zip(lines, answers, bundle.predict(lines), strict=True):
        assert answer["label"] == expected["label"], ascii(line)
        assert answer["probabilities"] == pytest.approx(expected["probabilities"], abs=1.1e-5)
    assert host(path, "--lengths=29", f"--output={tmp_path / 'result.json'}").returncode == 0
