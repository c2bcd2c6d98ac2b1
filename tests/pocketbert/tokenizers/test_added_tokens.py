"""Tokenizers with added tokens: the call, graphs, copies, and what cannot have such tokens."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tiny_tokenizers import byte_bpe_files, unigram_file

import pocketbert as pb
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import SPECIAL_TOKENS

PIECES = [*SPECIAL_TOKENS, "the", "cat", "##s", "e", "1", "[", "]", "ing"]


@pytest.fixture(params=["wordpiece", "byte_bpe", "unigram"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Makes a tokenizer with two added tokens."""
    if request.param == "wordpiece":
        (tmp_path / "vocab.txt").write_text("\n".join(PIECES), "utf-8")
        arguments, kind = (tmp_path / "vocab.txt",), pb.WordPieceTokenizer
    elif request.param == "byte_bpe":
        arguments, kind = byte_bpe_files(tmp_path), pb.ByteBPETokenizer
    else:
        arguments, kind = (unigram_file(tmp_path),), pb.UnigramTokenizer
    size = kind(*arguments).vocab_size
    tokens = (
        pb.AddedToken(content="[E1]", id=size, special=True, rstrip=True),
        pb.AddedToken(content="cats", id=size + 1, single_word=True),
    )
    return lambda **options: kind(*arguments, **{"added_tokens": tokens} | options)


def test_graphs_pairs_and_copies(make: Any) -> None:
    tokenizer = make()
    size = tokenizer.vocab_size
    assert size == make(added_tokens=()).vocab_size + 2
    texts = ["the [E1]  cats thecats", "", "cats[E1]"]
    rows = tokenizer.tokenize(texts).to_list()
    assert [token for token in rows[0] if token >= size - 2] == [size - 2, size - 1] and rows[2][-2:] == [
        size - 1,
        size - 2,
    ]
    inputs = tokenizer(texts, ["the", "[E1]", "cats"], max_length=12, pad_to=12)
    data = tf.data.Dataset.from_tensor_slices((texts, ["the", "[E1]", "cats"])).batch(3)
    (encoded,) = data.map(lambda text, pair: tokenizer(text, pair, max_length=12, pad_to=12))
    copy = pickle.loads(pickle.dumps(tokenizer))
    for name, expected in inputs.items():
        assert expected.shape == (3, 12)
        tf.debugging.assert_equal(encoded[name], expected)
        tf.debugging.assert_equal(copy(texts, ["the", "[E1]", "cats"], max_length=12, pad_to=12)[name], expected)
    ids, starts, ends = (
        tokenize_with_offset.to_list()[0] for tokenize_with_offset in tokenizer.tokenize_with_offsets(texts[:1])
    )
    position = ids.index(size - 1)
    assert texts[0][starts[position] : ends[position]] == "cats"


def test_text_mode_splits_special_ones(make: Any) -> None:
    tokenizer = make(special_tokens_in_text="text")
    size = tokenizer.vocab_size
    (ids,) = tokenizer.tokenize(["[E1] cats"]).to_list()
    assert size - 2 not in ids and size - 1 in ids


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": 3}, "ids of added tokens must follow the vocabulary's"),
        ({"content": ""}, "added tokens must not be empty"),
        ({"content": "[E1]", "id": 99999}, "must be unique; received again: \\[E1\\]|must follow"),
    ],
)
def test_bad_added_tokens_are_refused(make: Any, changes: Any, message: str) -> None:
    size = make(added_tokens=()).vocab_size
    token = pb.AddedToken(**({"content": "x y", "id": size} | changes))
    with pytest.raises(pb.UserError, match=message):
        make(added_tokens=(token,))


def test_tokens_without_characters_are_refused(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES), "utf-8")
    token = pb.AddedToken(content="\u200b", id=len(PIECES), normalized=True)
    with pytest.raises(
        pb.UserError, match="must not be normalized away; received .*; set its flag normalized to false"
    ):
        pb.WordPieceTokenizer(tmp_path / "vocab.txt", added_tokens=[token])
    # The remedy.
    token = pb.AddedToken(content="\u200b", id=len(PIECES))
    tokenizer = pb.WordPieceTokenizer(tmp_path / "vocab.txt", added_tokens=[token])
    assert tokenizer.tokenize(["the\u200bcat"]).to_list() == [[5, len(PIECES), 6]]


def test_digests_tell_added_tokens_apart(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES), "utf-8")
    plain = Vocabulary(path=tmp_path / "vocab.txt")
    variants = [
        plain,
        *(
            Vocabulary(path=tmp_path / "vocab.txt", added=(pb.AddedToken(content="x", id=len(PIECES), **flags),))
            for flags in ({}, {"lstrip": True}, {"normalized": True})
        ),
    ]
    assert len({variant.digest() for variant in variants}) == len({variant.segmentation() for variant in variants}) == 4
    plain.require_no_added("a store", "distil live")
    with pytest.raises(pb.UserError, match="a store cannot have added tokens; received 'x'; distil live"):
        variants[1].require_no_added("a store", "distil live")
