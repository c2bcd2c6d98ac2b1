"""The Java unigram tokenizer in every layout and Python's, token by token and offset by offset."""

from __future__ import annotations

import shutil
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import roberta_texts
from layout_texts import NUMBERS, QUOTES, WORDS, with_special
from tiny_tokenizers import LAYOUT_SENTENCES, layout_file

from pocketbert_runtime.tokenizers.layouts import LAYOUTS
from pocketbert_runtime.tokenizers.unigram import Unigram
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

pytestmark = pytest.mark.java

EXTRA = [
    *NUMBERS, *QUOTES, "(a-b) £5.–", "a" * 40, "ab" * 33,
    "İstanbul ŞĞ ΟΔΟΣ 𝚺a", "e\u0301\u0323 \u0301", " \x1c\x85\u2029 x", "한국어", "\U0001e030\U0001e4f1,",
]  # fmt: skip


@pytest.fixture(scope="module", params=LAYOUTS)
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    layout_file(folder, request.param)
    (folder / "layout").write_text(request.param, "ascii")
    return folder


def tokenizer(files: Path, special: Any = "token") -> Unigram:
    layout = (files / "layout").read_text("ascii")
    return Unigram(Vocabulary(path=files / LAYOUTS[layout].file, kind="unigram", layout=layout), special)


@pytest.mark.parametrize("special", ["token", "text"])
def test_tokens_and_spans_are_pythons(java: Any, files: Path, tmp_path: Path, special: str) -> None:
    python = tokenizer(files, special)
    layout = python.vocabulary.layout
    texts = [with_special(layout, text) for text in roberta_texts.hard_texts(WORDS, 400, seed=19)]
    texts += [f"a{token}b {token} c" for token in python.vocabulary.rules.special_tokens]
    texts += [*EXTRA, *LAYOUT_SENTENCES, *(unicodedata.normalize("NFD", text) for text in texts[:60])]
    tokens = python.tokens(texts)
    rows = roberta_texts.run(java, files, tmp_path, texts, special)
    for row, text, start, end in zip(rows, texts, tokens.splits, tokens.splits[1:], strict=False):
        expected = [part[start:end].tolist() for part in (tokens.ids, tokens.starts, tokens.ends)]
        assert row == expected, ascii(text)
    assert len(rows) == len(texts)


def test_inputs_are_pythons(java: Any, files: Path, tmp_path: Path) -> None:
    inputs = tokenizer(files)(["the cat 9,"], ["sat on 1990, mats"], max_length=40, pad_to=40)
    ((ids, mask, segments),) = roberta_texts.run(java, files, tmp_path, [("the cat 9,", "sat on 1990, mats", 40)])
    names = ("input_word_ids", "input_mask", "input_type_ids")
    assert [ids, mask, segments] == [inputs[name][0].tolist() for name in names]


def test_every_code_point_is_cleaned_as_in_python(java: Any, tmp_path: Path) -> None:
    folder = tmp_path / "albert"
    layout_file(folder, "albert")
    (folder / "layout").write_text("albert", "ascii")
    texts = roberta_texts.everything()
    tokens = tokenizer(folder).tokens(texts)
    rows = roberta_texts.run(java, folder, tmp_path, texts)
    for row, text, start, end in zip(rows, texts, tokens.splits, tokens.splits[1:], strict=False):
        assert row == [part[start:end].tolist() for part in (tokens.ids, tokens.starts, tokens.ends)], ascii(text)


def test_models_of_other_layouts_are_refused(java: Any, tmp_path: Path) -> None:
    path = layout_file(tmp_path / "deberta", "deberta")
    folder = tmp_path / "renamed"
    folder.mkdir()
    shutil.copyfile(path, folder / "spiece.model")
    (folder / "layout").write_text("albert", "ascii")
    with pytest.raises(AssertionError, match="first tokens of ALBERT's models must be <pad>, <unk>, .*received"):
        roberta_texts.run(java, folder, tmp_path, ["a"])
