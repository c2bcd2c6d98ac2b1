"""All tokenizers but plain WordPiece: equality with transformers, and the packages that they need."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from awkward_texts import awkward_texts
from tiny_tokenizers import SENTENCES, byte_bpe_files, unigram_file

from pocketbert_runtime.errors import UserError
from pocketbert_runtime.tokenizers.added_tokens import AddedToken, default_special
from pocketbert_runtime.tokenizers.base import TextTokenizer
from pocketbert_runtime.tokenizers.kinds.registry import TOKENIZER_RULES
from pocketbert_runtime.tokenizers.opening import open_tokenizer
from pocketbert_runtime.tokenizers.unigram import _literals
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})
LITERALS = {"[SEP]": "</s>", "[CLS]": "<s>", "[MASK]": "<mask>", "[PAD]": "<pad>", "[UNK]": "<unk>"}
NAMES = {"input_ids": "input_word_ids", "attention_mask": "input_mask"}


def hard_texts(count: int, seed: int) -> list[str]:
    texts = awkward_texts(count, WORDS, seed)
    return [re.sub(r"\[(SEP|CLS|MASK|PAD|UNK)\]", lambda match: LITERALS[match[0]], text) for text in texts]


def byte_bpe(folder: Path) -> tuple[Vocabulary, Any]:
    from transformers import RobertaTokenizerFast

    vocab, merges = byte_bpe_files(folder)
    reference = RobertaTokenizerFast(str(vocab), str(merges))
    return Vocabulary(path=vocab, merges=merges, kind="byte_bpe"), reference


def unigram(folder: Path) -> tuple[Vocabulary, Any]:
    from transformers import XLMRobertaTokenizer

    path = unigram_file(folder)
    return Vocabulary(path=path, kind="unigram"), XLMRobertaTokenizer(str(path))


def wordpiece(folder: Path) -> tuple[Vocabulary, Any]:
    from transformers import BertTokenizerFast

    path = folder / "vocab.txt"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", *(f"##{letter}" for letter in "abcdefghij")]
    path.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    reference = BertTokenizerFast(str(path))
    reference.add_tokens(["<e1>"])
    return Vocabulary(path=path, added=(AddedToken(content="<e1>", id=len(tokens), normalized=True),)), reference


@pytest.fixture(params=[byte_bpe, unigram, wordpiece])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[TextTokenizer, Any]:
    """A tokenizer, and that of transformers."""
    vocabulary, reference = request.param(tmp_path)
    return open_tokenizer(vocabulary), reference


@pytest.mark.parametrize("pairs", [False, True])
def test_inputs_are_those_of_transformers(both: tuple[TextTokenizer, Any], pairs: bool) -> None:
    tokenizer, reference = both
    texts = [*SENTENCES, "a bad<e1>cab", "<s> a</s>", ""]
    second = texts[::-1] if pairs else None
    expected = reference(texts, second, padding="max_length", max_length=150)
    inputs = tokenizer(texts, second, max_length=150, pad_to=150)
    for reference_name, name in NAMES.items():
        np.testing.assert_array_equal(inputs[name], expected[reference_name])


def test_long_white_space_takes_linear_time() -> None:
    rules = TOKENIZER_RULES["unigram"]
    literals = _literals([default_special(rules, token, index) for index, token in enumerate(rules.special_tokens)])
    spaces, start = " " * 200_000, time.process_time()
    assert literals.split(f"{spaces}a{spaces}<mask>") == [f"{spaces}a", f"{spaces}<mask>", ""]
    # Quadratic time would be a minute.
    assert time.process_time() - start < 5


def test_offsets_agree_with_ids(both: tuple[TextTokenizer, Any]) -> None:
    tokenizer, _ = both
    texts = [*hard_texts(100, seed=23), "a\ud800b", "<e1> a <e1>"]
    tokens = tokenizer.tokens(texts)
    rows = [tokens.ids[start:end].tolist() for start, end in zip(tokens.splits, tokens.splits[1:], strict=False)]
    assert rows == tokenizer.id_rows(texts)
    lengths = np.repeat([len(text) for text in texts], np.diff(tokens.splits))
    assert ((0 <= tokens.starts) & (tokens.starts <= tokens.ends) & (tokens.ends <= lengths)).all()


def test_byte_bpe_has_offsets_of_transformers(tmp_path: Path) -> None:
    vocabulary, reference = byte_bpe(tmp_path)
    texts = hard_texts(100, seed=31)
    expected = reference(texts, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    tokens = open_tokenizer(vocabulary).tokens(texts)
    offsets = list(zip(tokens.starts.tolist(), tokens.ends.tolist(), strict=True))
    assert offsets == [offset for row in expected for offset in row]


def test_missing_package_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary, _ = unigram(tmp_path)
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(UserError, match="XLM-R's tokenizer needs .* run: pip install 'sentencepiece>=0.2.3,<0.3'$"):
        open_tokenizer(vocabulary)


@pytest.mark.parametrize("make", [byte_bpe, wordpiece])
def test_other_tokenizers_need_no_package(
    make: Callable[[Path], tuple[Vocabulary, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary, reference = make(tmp_path)
    for package in ("sentencepiece", "tokenizers"):
        monkeypatch.setitem(sys.modules, package, None)
    assert open_tokenizer(vocabulary)(["a <e1> cab"])["input_word_ids"].tolist() == [reference("a <e1> cab").input_ids]
