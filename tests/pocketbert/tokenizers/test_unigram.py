"""XLM-R's tokenizer: equality with sentencepiece and transformers' slow class, spans, and bad files."""

from __future__ import annotations

import pickle
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from test_byte_bpe import SENTENCES, hard_texts
from tiny_tokenizers import unigram_file

import pocketbert as pb
from pocketbert_runtime.tokenizers import sentencepiece_model
from pocketbert_runtime.tokenizers.layouts import LAYOUTS

NAMES = {"input_ids": "input_word_ids", "attention_mask": "input_mask"}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unigram_file(tmp_path_factory.mktemp("unigram"))


@pytest.fixture(scope="module")
def tokenizer(path: Path) -> pb.UnigramTokenizer:
    return pb.UnigramTokenizer(path)


def peer(path: Path, **options: Any) -> Any:
    from transformers import XLMRobertaTokenizer

    return XLMRobertaTokenizer(str(path), **options)


def texts_with_nfd(count: int, seed: int) -> list[str]:
    texts = hard_texts(count, seed)
    return [*texts, *(unicodedata.normalize("NFD", text) for text in (*SENTENCES, *texts[:50]))]


def core(path: Path) -> Any:
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_file=str(path))


@pytest.mark.parametrize("mode", ["token", "text"])
def test_generated_texts(path: Path, mode: Any) -> None:
    """U+0085 is left out: the slow class strips it before <mask>, sentencepiece has a subword for it."""
    unigram_tokenizer = pb.UnigramTokenizer(path, special_tokens_in_text=mode)
    reference = peer(path, split_special_tokens=mode == "text")
    texts = [text.replace("\x85", "") for text in texts_with_nfd(400, seed=5)]
    expected = [reference(text, add_special_tokens=False)["input_ids"] for text in texts]
    for text, row, expected_values in zip(texts, unigram_tokenizer.tokenize(texts).to_list(), expected, strict=True):
        assert row == expected_values, ascii(text)
    assert unigram_tokenizer.tokenize_with_offsets(texts).ids.to_list() == expected


def test_spans_lie_in_sentencepieces(path: Path) -> None:
    """Where sentencepiece's own span is not empty, ours is the same without white space."""
    unigram_tokenizer = pb.UnigramTokenizer(path, special_tokens_in_text="text")
    texts = texts_with_nfd(200, seed=9)
    _, starts, ends = (
        tokenize_with_offset.to_list() for tokenize_with_offset in unigram_tokenizer.tokenize_with_offsets(texts)
    )
    rows = core(path).encode(texts, return_type="offset_mapping")
    compared = 0
    for text, row, begins, stops in zip(texts, rows, starts, ends, strict=True):
        assert len(row["pieces"]) == len(begins)
        assert all(0 <= begin <= stop <= len(text) for begin, stop in zip(begins, stops, strict=True)), ascii(text)
        for piece, (start, end), begin, stop in zip(row["pieces"], row["offsets"], begins, stops, strict=True):
            if not piece.startswith("▁") and start < end:
                compared += 1
                assert begin == start and stop >= end, ascii(text)
    assert compared > 1000


def test_spans_by_hand(tokenizer: pb.UnigramTokenizer) -> None:
    def spans(text: str) -> list[str]:
        _, starts, ends = (
            tokenize_with_offset.to_list()[0] for tokenize_with_offset in tokenizer.tokenize_with_offsets(text)
        )
        return [text[start:end] for start, end in zip(starts, ends, strict=True)]

    assert "".join(spans("  the \u3000 cat\n")) == "thecat"
    # The ligature and the fraction become several subwords; each spans the whole character.
    assert {*spans("½")} <= {"", "½"} and spans("½").count("½") > 1
    assert "".join(dict.fromkeys(spans("caf" + "e\u0301"))) == "cafe\u0301"
    # A dropped character belongs to the one before it.
    assert spans("☃\x01☂") in (["", "☃\x01☂"], ["☃\x01☂"])
    assert spans(" <mask> the")[0] == "<mask>"
    assert spans("") == spans(" \n") == []


def test_combining_marks_are_composed(tokenizer: pb.UnigramTokenizer) -> None:
    for sentence in SENTENCES:
        composed, decomposed = (unicodedata.normalize(form, sentence) for form in ("NFC", "NFD"))
        assert tokenizer.tokenize(composed).to_list() == tokenizer.tokenize(decomposed).to_list()


def test_pairs_truncation_and_padding(path: Path, tokenizer: pb.UnigramTokenizer) -> None:
    reference = peer(path)
    texts, pairs = (texts_with_nfd(20, seed) for seed in (7, 8))
    texts, pairs = ([text.replace("\x85", "") for text in part] for part in (texts, pairs))
    for max_length in (4, 11, 24):
        options = {"max_length": max_length, "truncation": "only_first", "padding": "max_length"}
        expected = reference(texts, **options)
        inputs = tokenizer(texts, max_length=max_length, pad_to=max_length)
        for reference_name, name in NAMES.items():
            np.testing.assert_array_equal(inputs[name], expected[reference_name])
    expected = reference(texts, pairs, padding="max_length", max_length=1500)
    inputs = tokenizer(texts, pairs, max_length=1500, pad_to=1500)
    for expected_values, name in NAMES.items():
        np.testing.assert_array_equal(inputs[name], expected[expected_values])
    assert not np.any(inputs["input_type_ids"])


def test_call_forms_agree(tokenizer: pb.UnigramTokenizer) -> None:
    texts = ["the cat", "", "a naïve <mask>!"]
    expected = tokenizer.tokenize(texts).to_list()
    graph = tf.function(lambda strings: tokenizer(strings, max_length=9, pad_to=12)["input_word_ids"])
    np.testing.assert_array_equal(
        graph(tf.constant(texts)), tokenizer(texts, max_length=9, pad_to=12)["input_word_ids"]
    )
    assert pickle.loads(pickle.dumps(tokenizer)).tokenize(texts).to_list() == expected
    rows = tf.data.Dataset.from_tensor_slices(texts).map(lambda text: tokenizer.tokenize(text).values)
    assert [row.numpy().tolist() for row in rows] == expected


def test_texts_that_are_not_unicode(tokenizer: pb.UnigramTokenizer) -> None:
    as_bytes = tokenizer.tokenize_with_offsets([b"cat\xff cat", b"\xc3", b"a\x00b", b""])
    as_text = tokenizer.tokenize_with_offsets(["cat\ud800 cat", "\udfff", "a\x00b", ""])
    expected = tokenizer.tokenize_with_offsets(["cat\ufffd cat", "\ufffd", "a\x00b", ""])
    for columns in (as_bytes, as_text):
        assert [column.to_list() for column in columns] == [column.to_list() for column in expected]
    assert tokenizer([])["input_word_ids"].shape == (0, 0)
    np.testing.assert_array_equal(tokenizer([""])["input_word_ids"], [[0, 2]])


def test_ids_are_fairseqs(path: Path, tokenizer: pb.UnigramTokenizer) -> None:
    size = core(path).vocab_size()
    tokens = tokenizer.vocabulary.tokens()
    assert tokens[:4] == ["<s>", "<pad>", "</s>", "<unk>"] and tokens[-1] == "<mask>"
    assert tokens[4:-1] == [core(path).id_to_piece(index) for index in range(3, size)]
    assert (tokenizer.vocab_size, tokenizer.mask_token_id) == (size + 2, size + 1)


def test_made_model_is_the_same(path: Path, tmp_path: Path) -> None:
    """A model from subwords, scores and character map, as in a tokenizer.json, gives the ids of the original."""
    model = sentencepiece_model.read_model(path)
    content = sentencepiece_model.make_model(
        sentencepiece_model.scored_subwords(model, LAYOUTS["xlm_r"]), model.normalizer_spec.precompiled_charsmap
    )
    (tmp_path / "made.model").write_bytes(content.SerializeToString())
    texts = texts_with_nfd(100, seed=3)
    expected = pb.UnigramTokenizer(path).tokenize_with_offsets(texts)
    columns = pb.UnigramTokenizer(tmp_path / "made.model").tokenize_with_offsets(texts)
    assert [column.to_list() for column in columns] == [column.to_list() for column in expected]


def cut(content: bytes, size: int) -> bytes:
    """The subwords only, as after an interrupted download that ended between two of them."""
    model = sentencepiece_model.parse_model(content, "model")
    model.ClearField("trainer_spec")
    model.ClearField("normalizer_spec")
    del model.subwords[size:]
    return model.SerializeToString()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[: len(content) // 2], "complete protocol buffer; received .* bytes"),
        (lambda content: cut(content, 20), "trainer_spec and normalizer_spec; received a file without one"),
        (lambda content: b"not a model at all", "complete protocol buffer; received 18 bytes"),
        (lambda content: b"", "first subwords of XLM-R's models .*received no subwords"),
    ],
)
def test_damaged_files(path: Path, tmp_path: Path, change: Any, message: str) -> None:
    file = tmp_path / "sentencepiece.bpe.model"
    file.write_bytes(change(path.read_bytes()))
    with pytest.raises(pb.UserError, match=message) as caught:
        pb.UnigramTokenizer(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pad_id": 0, "unk_id": 2, "bos_id": 1, "eos_id": 3}, "received '<pad>', '<s>', '<unk>'"),
        ({"model_type": "bpe"}, "trainer_spec.model_type must be 1; received 2"),
        ({"add_dummy_prefix": False}, "normalizer_spec.add_dummy_prefix must be True"),
        ({"user_defined_symbols": ["cat"]}, "type NORMAL; received others: 'cat'"),
    ],
)
def test_foreign_models(tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(pb.UserError, match=message):
        pb.UnigramTokenizer(unigram_file(tmp_path, **options))


def test_absent_file(tmp_path: Path) -> None:
    with pytest.raises(pb.UserError, match="must be a file; received: No such file"):
        pb.UnigramTokenizer(tmp_path / "absent.model")
