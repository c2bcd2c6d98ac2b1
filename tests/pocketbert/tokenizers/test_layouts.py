"""Unigram's layouts: equality with transformers' slow classes, spans, trimming, and files of other layouts."""

from __future__ import annotations

import pickle
import re
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from awkward_texts import awkward_texts
from tiny_tokenizers import LAYOUT_SENTENCES, layout_file

import pocketbert as pb
from pocketbert.tokenizers.opening import open_tokenizer
from pocketbert.tokenizers.trimming import required_ids, write_trimmed
from pocketbert_runtime.tokenizers.albert_text import cleaned
from pocketbert_runtime.tokenizers.layouts import LAYOUTS
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

PEERS = {
    "xlm_r": "XLMRobertaTokenizer",
    "camembert": "CamembertTokenizer",
    "albert": "AlbertTokenizer",
    "deberta": "DebertaV2Tokenizer",
}
NAMES = {"input_ids": "input_word_ids", "attention_mask": "input_mask", "token_type_ids": "input_type_ids"}
WORDS = sorted({word for sentence in LAYOUT_SENTENCES for word in sentence.split()})
NUMBERS = ["1990, 5,9", "9,123,", "a9,b", "5,, 9", "²,", "٣,", "in 2,5,", "\u30001,"]
QUOTES = ["``a''", "'''", "```", "＇＇", "a 'b' ''c"]
layouts = pytest.mark.parametrize("layout", LAYOUTS)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {layout: layout_file(tmp_path_factory.mktemp(layout), layout) for layout in LAYOUTS}


def peer(path: Path, layout: str, **options: Any) -> Any:
    import transformers

    return getattr(transformers, PEERS[layout])(str(path), **options)


def hard_texts(layout: str, count: int, seed: int) -> list[str]:
    """Generated texts with the layout's special tokens. U+0085 is left out: the slow classes strip it before a mask."""
    names = {"SEP": "sep_token", "CLS": "cls_token", "MASK": "mask_token", "PAD": "pad_token", "UNK": "unk_token"}
    special = {name: LAYOUTS[layout].special_names[key] for name, key in names.items()}
    texts = [
        re.sub(r"\[(SEP|CLS|MASK|PAD|UNK)\]", lambda match: special[match[1]], text).replace("\x85", "")
        for text in awkward_texts(count, WORDS, seed)
    ]
    texts += [f"a{token}b {token} c" for token in LAYOUTS[layout].special_tokens]
    texts += [*LAYOUT_SENTENCES[:9], *NUMBERS, *QUOTES]
    return [*texts, *(unicodedata.normalize("NFD", text) for text in texts[:60])]


@layouts
@pytest.mark.parametrize("mode", ["token", "text"])
def test_ids_are_transformers(paths: dict[str, Path], layout: str, mode: Any) -> None:
    tokenizer = pb.UnigramTokenizer(paths[layout], mode, layout=layout)
    reference = peer(paths[layout], layout, split_special_tokens=mode == "text")
    assert tokenizer.vocab_size == len(reference)
    assert [tokenizer.vocabulary.tokens()[index] for index in (tokenizer.mask_token_id, tokenizer.pad_token_id)] == [
        reference.mask_token,
        reference.pad_token,
    ]
    assert tokenizer.mask_token_id == reference.mask_token_id and tokenizer.unk_token_id == reference.unk_token_id
    texts = hard_texts(layout, 400, seed=5)
    expected = [reference(text, add_special_tokens=False)["input_ids"] for text in texts]
    if mode == "text":
        # The slow classes make a special token of unknown characters that read like one.
        unknown, special = tokenizer.unk_token_id, {*reference.all_special_ids}
        expected = [[unknown if index in special else index for index in row] for row in expected]
    for text, row, expected_row in zip(texts, tokenizer.tokenize(texts).to_list(), expected, strict=True):
        assert row == expected_row, ascii(text)
    assert tokenizer.tokenize_with_offsets(texts).ids.to_list() == expected


@layouts
def test_inputs_are_transformers(paths: dict[str, Path], layout: str) -> None:
    tokenizer, reference = pb.UnigramTokenizer(paths[layout], layout=layout), peer(paths[layout], layout)
    texts, pairs = (hard_texts(layout, 20, seed) for seed in (7, 8))
    for second in (None, pairs):
        expected = reference(texts, second, padding="max_length", max_length=1900, return_token_type_ids=True)
        inputs = tokenizer(texts, second, max_length=1900, pad_to=1900)
        for name, own in NAMES.items():
            np.testing.assert_array_equal(inputs[own], expected[name], err_msg=name)


@layouts
def test_spans_have_the_subwords(paths: dict[str, Path], layout: str) -> None:
    """A span's text is the subword, where the layout's cleaning and the model's normalizer leave its letters alone."""
    tokenizer = pb.UnigramTokenizer(paths[layout], "text", layout=layout)
    tokens = tokenizer.vocabulary.tokens()
    texts = ["the  cat\t sat", "  9,123, cats (and a hat) ", "café-straße: A Naïve ``mat''", "1990, 1991,\n5,9"]
    compared = 0
    for text, ids, starts, ends in zip(texts, *map(lambda part: part.to_list(), tokenizer.tokenize_with_offsets(texts)),
                                       strict=True):  # fmt: skip
        behind = 0
        for token_id, start, end in zip(ids, starts, ends, strict=True):
            assert behind <= start <= end <= len(text)
            behind = end
            subword = tokens[token_id].removeprefix("▁")
            if tokens[token_id] != tokenizer.vocabulary.rules.special_names["unk_token"]:
                part = text[start:end]
                assert (cleaned(part).text if layout == "albert" else part) == subword
                compared += 1
        assert "".join(text[start:end] for start, end in zip(starts, ends, strict=True)) == "".join(text.split())
    assert compared > 60


def test_albert_spans_by_hand(paths: dict[str, Path]) -> None:
    tokenizer = pb.UnigramTokenizer(paths["albert"], layout="albert")

    def spans(text: str) -> list[str]:
        _, starts, ends = (column.to_list()[0] for column in tokenizer.tokenize_with_offsets(text))
        return [text[start:end] for start, end in zip(starts, ends, strict=True)]

    assert "".join(spans("the \u3000 cat\n")) == "thecat"
    # An accent, composed or not, belongs to its letter; both quotation marks to one token.
    assert spans("cafe\u0301")[-1].endswith("e\u0301") and "".join(spans("cafe\u0301s")) == "cafe\u0301s"
    assert "``" in spans("a ``b") and {*spans("½")} <= {"", "½"}
    assert spans("the 9,")[-1] == "," and spans("  [MASK] a")[0] == "[MASK]"
    assert spans("") == spans(" \n") == spans("\u0301") == []


@layouts
def test_trimmed_vocabulary_gives_the_same_tokens(paths: dict[str, Path], layout: str, tmp_path: Path) -> None:
    vocabulary = Vocabulary(path=paths[layout], kind="unigram", layout=layout)
    whole, texts = open_tokenizer(vocabulary), ["in 1990, the cat sat on 9,123, mats", "don't you think it's 5,9?"]
    tokens = vocabulary.tokens()
    kept = sorted({*required_ids(vocabulary), *(index for row in whole.tokenize(texts).to_list() for index in row)})
    assert len(kept) < len(tokens)
    trimmed = write_trimmed(vocabulary, kept, tmp_path)
    assert trimmed.tokens() == [tokens[index] for index in kept] and trimmed.layout == layout
    small = open_tokenizer(trimmed)
    for row, expected in zip(small.tokenize(texts).to_list(), whole.tokenize(texts).to_list(), strict=True):
        assert [trimmed.tokens()[index] for index in row] == [tokens[index] for index in expected]
    # transformers reads the file, too.
    assert peer(trimmed.path, layout)(texts)["input_ids"] == [
        [index for index in row if index != small.pad_token_id]
        for row in small(texts)["input_word_ids"].numpy().tolist()
    ]


@layouts
def test_layout_is_kept(paths: dict[str, Path], layout: str) -> None:
    tokenizer = pb.UnigramTokenizer(paths[layout], layout=layout)
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again.vocabulary == tokenizer.vocabulary and again.vocabulary.layout == layout
    assert open_tokenizer(tokenizer.vocabulary).tokenize(["a 9,"]).to_list() == tokenizer.tokenize(["a 9,"]).to_list()


def test_digests_tell_layouts_with_one_file_apart(paths: dict[str, Path]) -> None:
    rows = [Vocabulary(path=paths["xlm_r"], kind="unigram", layout=layout) for layout in ("xlm_r", "camembert")]
    assert rows[0].digest() != rows[1].digest() and rows[0].segmentation() != rows[1].segmentation()


@pytest.mark.parametrize(
    ("stored", "layout", "message"),
    [
        ("xlm_r", "deberta", r"DeBERTa-v3's models are '\[PAD\]', .* received '<unk>', '<s>', '</s>', .*spm.model"),
        ("deberta", "xlm_r", "XLM-R's models are '<unk>', '<s>' and '</s>'; received '\\[PAD\\]'"),
        ("deberta", "albert", "ALBERT's models are '<pad>', "),
        ("albert", "camembert", "CamemBERT's models are '<unk>'"),
    ],
)
def test_models_of_other_layouts(paths: dict[str, Path], stored: str, layout: str, message: str) -> None:
    with pytest.raises(pb.UserError, match=message):
        pb.UnigramTokenizer(paths[stored], layout=layout)


def test_unknown_layouts(paths: dict[str, Path]) -> None:
    with pytest.raises(pb.UserError, match="layout must be one of xlm_r, camembert, .*did you mean 'deberta'"):
        pb.UnigramTokenizer(paths["deberta"], layout="debert")


@pytest.mark.parametrize("layout", ["xlm_r", "camembert"])
def test_user_defined_subwords_are_refused(layout: str, tmp_path: Path) -> None:
    path = layout_file(tmp_path, layout, user_defined_symbols=["cat"])
    with pytest.raises(pb.UserError, match="must be of type NORMAL; received others: 'cat'"):
        pb.UnigramTokenizer(path, layout=layout)
