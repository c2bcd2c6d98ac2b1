"""`add_prefix_space`: a space in front of the first word of a text; transformers' tokenizers are the oracle."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from tiny_tokenizers import byte_bpe_files, byte_bpe_json, unigram_file

import pocketbert as pb
from pocketbert.checkpoints.vocabulary_files import read_vocabulary_files, write_vocabulary_files
from pocketbert.tokenizers.opening import open_tokenizer
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

transformers = pytest.importorskip("transformers")
TEXTS = ["the cat sat", " the cat", "cats<mask>cat </s>the", "", "\tthe", "é!", "\u00a0the"]


def directory(folder: Path, prefix: bool | None, *, stored: bool | None = None) -> Path:
    """RoBERTa's files with the option in tokenizer_config.json and in tokenizer.json, each if it is not None."""
    files = byte_bpe_files(folder)
    options = {"tokenizer_class": "RobertaTokenizer"} | ({} if prefix is None else {"add_prefix_space": prefix})
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    if stored is not None:
        content = byte_bpe_json(*files)
        content["pre_tokenizer"]["add_prefix_space"] = content["post_processor"]["add_prefix_space"] = stored
        (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder


def read(folder: Path) -> tuple[Vocabulary | None, list[str]]:
    problems: list[str] = []
    return read_vocabulary_files(folder, problems), problems


@pytest.mark.parametrize("stored", [None, True])
def test_first_word_has_a_space(tmp_path: Path, stored: bool | None) -> None:
    folder = directory(tmp_path / "model", True, stored=stored)
    vocabulary, problems = read(folder)
    assert problems == [] and vocabulary is not None
    tokenizer = open_tokenizer(vocabulary)
    reference_tokenizer = transformers.RobertaTokenizerFast.from_pretrained(folder)
    assert reference_tokenizer.add_prefix_space
    expected = reference_tokenizer(TEXTS, add_special_tokens=False, return_offsets_mapping=True)
    columns = tokenizer.tokenize_with_offsets(TEXTS)
    assert columns.ids.to_list() == expected["input_ids"]
    spans = [list(zip(*row, strict=True)) for row in zip(columns.starts.to_list(), columns.ends.to_list(), strict=True)]
    assert spans == expected["offset_mapping"]
    # "the" at the start is the token of a later "the".
    assert tokenizer.tokenize(["the"]).to_list()[0] == tokenizer.tokenize([" the"]).to_list()[0]
    pairs = reference_tokenizer(
        TEXTS, TEXTS[::-1], padding="max_length", truncation=True, max_length=13, return_tensors="np"
    )
    inputs = tokenizer(TEXTS, TEXTS[::-1], max_length=13, pad_to=13)
    np.testing.assert_array_equal(inputs["input_word_ids"], pairs["input_ids"])


def test_prefix_survives_saving_and_pickling(tmp_path: Path) -> None:
    vocabulary, _ = read(directory(tmp_path / "model", True))
    assert vocabulary is not None
    (tmp_path / "saved").mkdir()
    write_vocabulary_files(tmp_path / "saved", vocabulary, 17)
    saved, problems = read(tmp_path / "saved")
    assert problems == [] and saved is not None and saved.add_prefix_space
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "saved").add_prefix_space
    tokenizer = open_tokenizer(vocabulary)
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again.tokenize(TEXTS).to_list() == tokenizer.tokenize(TEXTS).to_list()
    without, _ = read(directory(tmp_path / "other", False))
    assert without is not None and without.digest() != vocabulary.digest()
    assert without.segmentation() != vocabulary.segmentation()


@pytest.mark.parametrize(("prefix", "stored"), [(True, False), (False, True), (None, True)])
def test_files_must_agree_on_the_prefix(tmp_path: Path, prefix: bool | None, stored: bool) -> None:
    _, problems = read(directory(tmp_path / "model", prefix, stored=stored))
    assert len(problems) == 1
    expected = f"received {prefix or False} and {stored}; correct the file that does not suit the model's training"
    assert expected in problems[0]
    # The remedy.
    assert read(directory(tmp_path / "corrected", stored, stored=stored))[1] == []


def test_unigram_ignores_the_prefix(tmp_path: Path) -> None:
    """Every directory of XLM-R has the key since transformers 5."""
    unigram_file(tmp_path)
    plain, _ = read(tmp_path)
    options = {"tokenizer_class": "XLMRobertaTokenizer", "add_prefix_space": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(options))
    vocabulary, problems = read(tmp_path)
    assert problems == [] and vocabulary is not None and plain is not None
    assert vocabulary.digest() == plain.digest()
    reference_tokenizer = transformers.XLMRobertaTokenizer(
        str(tmp_path / "sentencepiece.bpe.model"), add_prefix_space=True
    )
    texts = ["the cat sat", "  the cat", "中文"]
    rows = pb.UnigramTokenizer(tmp_path / "sentencepiece.bpe.model").tokenize(texts).to_list()
    assert rows == reference_tokenizer(texts, add_special_tokens=False)["input_ids"]
