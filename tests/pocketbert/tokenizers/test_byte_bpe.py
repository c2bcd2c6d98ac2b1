"""RoBERTa's tokenizer: equality with transformers' fast class, and bad files."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from awkward_texts import awkward_texts
from tiny_tokenizers import SENTENCES, byte_bpe_files

import pocketbert as pb
from pocketbert_runtime.tokenizers.byte_bpe_files import byte_characters

NAMES = {"input_ids": "input_word_ids", "attention_mask": "input_mask"}
WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})
LITERALS = {"[SEP]": "</s>", "[CLS]": "<s>", "[MASK]": "<mask>", "[PAD]": "<pad>", "[UNK]": "<unk>"}


def hard_texts(count: int, seed: int) -> list[str]:
    texts = awkward_texts(count, WORDS, seed)
    return [re.sub(r"\[(SEP|CLS|MASK|PAD|UNK)\]", lambda match: LITERALS[match[0]], text) for text in texts]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return byte_bpe_files(tmp_path_factory.mktemp("bpe"))


@pytest.fixture(scope="module")
def tokenizer(files: tuple[Path, Path]) -> pb.ByteBPETokenizer:
    return pb.ByteBPETokenizer(*files)


def peer(files: tuple[Path, Path], **options: Any) -> Any:
    from transformers import RobertaTokenizerFast

    return RobertaTokenizerFast(str(files[0]), str(files[1]), **options)


def assert_equal(byte_bpe: pb.ByteBPETokenizer, reference: Any, texts: list[str]) -> None:
    expected = reference(texts, add_special_tokens=False, return_offsets_mapping=True)
    ids, starts, ends = (
        tokenize_with_offset.to_list() for tokenize_with_offset in byte_bpe.tokenize_with_offsets(texts)
    )
    assert len(ids) == len(texts)
    for row, text in enumerate(texts):
        assert ids[row] == expected["input_ids"][row], ascii(text)
        assert list(zip(starts[row], ends[row], strict=True)) == expected["offset_mapping"][row], ascii(text)
    assert byte_bpe.tokenize(texts).to_list() == ids


@pytest.mark.parametrize("mode", ["token", "text"])
def test_generated_texts(files: tuple[Path, Path], mode: Any) -> None:
    byte_bpetokenizer = pb.ByteBPETokenizer(*files, special_tokens_in_text=mode)
    assert_equal(byte_bpetokenizer, peer(files, split_special_tokens=mode == "text"), hard_texts(400, seed=5))


@pytest.mark.data
def test_real_vocabulary(shared: Path) -> None:
    folder = shared / "data" / "vocab"
    files = folder / "roberta.vocab.json", folder / "roberta.merges.txt"
    byte_bpetokenizer = pb.ByteBPETokenizer(*files)
    assert byte_bpetokenizer.vocab_size == 50265 and byte_bpetokenizer.mask_token_id == 50264
    assert_equal(byte_bpetokenizer, peer(files), [*hard_texts(500, seed=6), *SENTENCES])


def test_pairs_truncation_and_padding(files: tuple[Path, Path], tokenizer: pb.ByteBPETokenizer) -> None:
    reference = peer(files)
    texts, pairs = hard_texts(60, seed=7), hard_texts(60, seed=8)
    for max_length in (4, 5, 11, 24, 63):
        options = {"max_length": max_length, "truncation": "longest_first", "padding": "max_length"}
        for second in (None, pairs):
            expected = reference(texts, second, **options)
            inputs = tokenizer(texts, second, max_length=max_length, pad_to=max_length)
            for reference_name, name in NAMES.items():
                np.testing.assert_array_equal(inputs[name], expected[reference_name])
            assert not np.any(inputs["input_type_ids"])


def test_call_forms_agree(tokenizer: pb.ByteBPETokenizer) -> None:
    texts = ["the cat", "", "a naïve <mask>!"]
    expected = {
        name: tensor.numpy() for name, tensor in tokenizer(texts, texts[::-1], max_length=13, pad_to=17).items()
    }

    @tf.function
    def graph(first: tf.Tensor, second: tf.Tensor) -> dict[str, tf.Tensor]:
        return tokenizer(first, second, max_length=13, pad_to=17)

    rows = tf.data.Dataset.from_tensor_slices((texts, texts[::-1])).batch(2)
    batches = list(rows.map(lambda a, b: tokenizer(a, b, max_length=13, pad_to=17)))
    outputs = {
        "graph": graph(tf.constant(texts), tf.constant(texts[::-1])),
        "data": {name: tf.concat([batch[name] for batch in batches], 0) for name in expected},
        "pickled": pickle.loads(pickle.dumps(tokenizer))(texts, texts[::-1], max_length=13, pad_to=17),
    }
    for form, inputs in outputs.items():
        for name, value in expected.items():
            assert inputs[name].dtype == tf.int32 and inputs[name].shape == (3, 17), form
            np.testing.assert_array_equal(inputs[name], value, form)


def test_spans_exclude_spaces(tokenizer: pb.ByteBPETokenizer) -> None:
    text = "the  cat <mask>\n ½"
    _, starts, ends = (
        tokenize_with_offset.to_list()[0] for tokenize_with_offset in tokenizer.tokenize_with_offsets(text)
    )
    spans = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    assert "".join(spans).replace(" ", "")[:13] == "thecat<mask>\n"
    assert not any(span.startswith(" ") or span.endswith(" ") for span in spans)
    assert spans[-1] == "½"


def test_texts_that_are_not_unicode(tokenizer: pb.ByteBPETokenizer) -> None:
    as_bytes = tokenizer.tokenize_with_offsets([b"cat\xff cat", b"\xc3", b"a\x00b", b""])
    as_text = tokenizer.tokenize_with_offsets(["cat\ud800 cat", "\udfff", "a\x00b", ""])
    expected = tokenizer.tokenize_with_offsets(["cat\ufffd cat", "\ufffd", "a\x00b", ""])
    for columns in (as_bytes, as_text):
        assert [column.to_list() for column in columns] == [column.to_list() for column in expected]
    assert tokenizer([])["input_word_ids"].shape == (0, 0)
    np.testing.assert_array_equal(tokenizer([""])["input_word_ids"], [[0, 2]])
    assert tokenizer.tokenize([]).to_list() == []


def test_byte_characters_are_gpt2s() -> None:
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers.models.roberta.tokenization_roberta import bytes_to_unicode

    assert {*byte_characters()} == {*ByteLevel.alphabet()}
    assert byte_characters() == tuple(bytes_to_unicode()[byte] for byte in range(256))


def without(vocab: Path, token: str) -> None:
    tokens = [load for load in json.loads(vocab.read_text("utf-8")) if load != token]
    vocab.write_text(json.dumps({token: index for index, token in enumerate(tokens)}), "utf-8")


def first_merged(merges: Path) -> str:
    return merges.read_text("utf-8").splitlines()[1].replace(" ", "")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda vocab, merges: without(vocab, first_merged(merges)),
            "both parts and the result of each merge; received merge 1 ",
        ),
        (lambda vocab, merges: without(vocab, "<mask>"), "without <mask>"),
        (lambda vocab, merges: without(vocab, "Ā"), "each of the 256 bytes; received one without 1: Ā"),
        (lambda vocab, merges: merges.write_text("Ġ t h\n", "utf-8"), "must have two tokens; received 'Ġ t h' in line"),
        (lambda vocab, merges: merges.write_text("Ġ t\nĠ t\n", "utf-8"), "must be unique; received 1 repetitions"),
        (lambda vocab, merges: merges.write_bytes(b"\xff"), r"merges.txt must be a UTF-8 text .*byte 0xff"),
        (lambda vocab, merges: merges.unlink(), r"merges.txt must be a UTF-8 text .*No such file"),
        (lambda vocab, merges: vocab.write_text('{"a": 1}'), "ids 0, 1, 2…, each used once"),
        (lambda vocab, merges: vocab.write_text('["a"]'), "ids 0, 1, 2…, each used once"),
        (lambda vocab, merges: vocab.write_text('{"a"'), "JSON"),
    ],
)
def test_bad_files(tmp_path: Path, damage: Any, message: str) -> None:
    vocab, merges = byte_bpe_files(tmp_path)
    damage(vocab, merges)
    with pytest.raises(pb.UserError, match=message) as caught:
        pb.ByteBPETokenizer(vocab, merges)
    assert "\n" not in str(caught.value)


def test_bad_arguments(tokenizer: pb.ByteBPETokenizer, files: tuple[Path, Path]) -> None:
    with pytest.raises(pb.UserError, match="room for 4 special tokens; received 3"):
        tokenizer(["a"], ["b"], max_length=3)
    with pytest.raises(pb.UserError, match="must be 'token' or 'text'; received 'x'"):
        pb.ByteBPETokenizer(*files, special_tokens_in_text="x")  # type: ignore[arg-type]
