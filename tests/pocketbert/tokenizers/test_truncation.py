"""How longer texts are cut: equality with transformers' tokenizers, rules by hand, and stored tokenizers."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tiny_tokenizers import SENTENCES, byte_bpe_files, unigram_file

import pocketbert as pb
from pocketbert.checkpoints.vocabulary_files import read_vocabulary_files, write_vocabulary_files
from pocketbert.errors import UserError
from pocketbert.tokenizers.base import Tokenizer
from pocketbert.tokenizers.opening import open_tokenizer
from pocketbert_runtime.tokenizers.truncation import parse_truncation, room_problem

NAMES = {"input_ids": "input_word_ids", "attention_mask": "input_mask"}
KINDS = ("wordpiece", "byte_bpe", "unigram")
WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})


def random_texts(count: int, seed: int, fewest: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(fewest, 13))) for _ in range(count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizers")
    letters = sorted({character for sentence in SENTENCES for character in sentence.lower()} - {" "})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    tokens += ["the", "cat", "##s", "jour", "##neys", "film"]
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in dict.fromkeys(tokens)), encoding="utf-8")
    byte_bpe_files(folder)
    unigram_file(folder)
    return folder


def tokenizer_of(kind: str, folder: Path, truncation: str) -> Tokenizer:
    if kind == "wordpiece":
        return pb.WordPieceTokenizer(folder / "vocab.txt", truncation=truncation)
    if kind == "byte_bpe":
        return pb.ByteBPETokenizer(folder / "vocab.json", folder / "merges.txt", truncation=truncation)
    return pb.UnigramTokenizer(folder / "sentencepiece.bpe.model", truncation=truncation)


def peer(kind: str, folder: Path, **options: Any) -> Any:
    from transformers import BertTokenizerFast, RobertaTokenizerFast, XLMRobertaTokenizer

    if kind == "wordpiece":
        return BertTokenizerFast(str(folder / "vocab.txt"), do_lower_case=True, **options)
    if kind == "byte_bpe":
        return RobertaTokenizerFast(str(folder / "vocab.json"), str(folder / "merges.txt"), **options)
    return XLMRobertaTokenizer(str(folder / "sentencepiece.bpe.model"), **options)


def assert_equal(inputs: dict[str, tf.Tensor], expected: Any) -> None:
    names = NAMES | ({"token_type_ids": "input_type_ids"} if "token_type_ids" in expected else {})
    for peer_name, name in names.items():
        np.testing.assert_array_equal(inputs[name], expected[peer_name])


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("kind", KINDS)
def test_tail_of_single_texts(folder: Path, kind: str) -> None:
    tokenizer, reference = tokenizer_of(kind, folder, "tail"), peer(kind, folder, truncation_side="left")
    texts = random_texts(70, seed=3)
    # transformers' slow class keeps a whole text if there is no room for a token.
    for length in (3, 11, 24) if kind == "unigram" else (2, 3, 11, 24):
        expected = reference(texts, truncation="only_first", max_length=length, padding="max_length")
        assert_equal(tokenizer(texts, max_length=length, pad_to=length), expected)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("kind", KINDS)
def test_tail_of_pairs(folder: Path, kind: str) -> None:
    tokenizer, reference = tokenizer_of(kind, folder, "tail"), peer(kind, folder, truncation_side="left")
    texts, pairs = random_texts(90, seed=5), random_texts(90, seed=7, fewest=1)
    for length in (11, 24, 57):
        if kind == "unigram":
            # transformers' slow class takes the odd token from the other text, so only the sides are compared.
            expected = reference(texts, pairs, max_length=1500, padding="max_length")
            assert_equal(tokenizer(texts, pairs, max_length=1500, pad_to=1500), expected)
            texts_ids, pairs_ids = tokenizer.tokenize(texts).to_list(), tokenizer.tokenize(pairs).to_list()
            rows = tokenizer(texts, pairs, max_length=length)["input_word_ids"].numpy()
            for row, first, second in zip(rows, texts_ids, pairs_ids, strict=True):
                between = row.tolist().index(2)
                kept = row[1:between].tolist(), row[between + 2 : np.flatnonzero(row == 2)[-1]].tolist()
                assert kept[0] == first[len(first) - len(kept[0]) :] and kept[1] == second[len(second) - len(kept[1]) :]
            continue
        expected = reference(texts, pairs, truncation="longest_first", max_length=length, padding="max_length")
        assert_equal(tokenizer(texts, pairs, max_length=length, pad_to=length), expected)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("kind", KINDS)
def test_only_second_of_pairs(folder: Path, kind: str) -> None:
    """Where transformers cuts; it raises an error if the first text leaves no token for the second."""
    tokenizer, reference = tokenizer_of(kind, folder, "only-second"), peer(kind, folder)
    texts, pairs = random_texts(150, seed=11), random_texts(150, seed=13, fewest=1)
    special, cut = tokenizer.frame.num_special_tokens(pairs=True), 0
    for length in (31, 44, 63):
        sizes = [row.row_lengths().numpy() for row in (tokenizer.tokenize(texts), tokenizer.tokenize(pairs))]
        rows = np.flatnonzero((sizes[0] + special < length) & (sizes[1] > 0))
        cut += int((sizes[0] + sizes[1] + special > length)[rows].sum())
        first, second = ([part[row] for row in rows] for part in (texts, pairs))
        expected = reference(first, second, truncation="only_second", max_length=length, padding="max_length")
        assert_equal(tokenizer(first, second, max_length=length, pad_to=length), expected)
    assert cut > 50


def cut_by_hand(ids: Sequence[int], head: int, room: int) -> list[int]:
    if len(ids) <= room:
        return [*ids]
    tail = room - min(head, room)
    return [*ids[: room - tail], *ids[len(ids) - tail :]]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("kind", KINDS)
def test_head_tail_keeps_both_ends(folder: Path, kind: str) -> None:
    texts = [*random_texts(40, seed=17), ""]
    for head, length in ((1, 4), (3, 9), (7, 24), (9, 8)):
        tokenizer = tokenizer_of(kind, folder, f"head-tail:{head}")
        expected = [cut_by_hand(ids, head, length - 2) for ids in tokenizer.tokenize(texts).to_list()]
        inputs = tokenizer(texts, max_length=length)
        rows = [
            row[mask == 1].tolist() for row, mask in zip(*(np.asarray(inputs[n]) for n in NAMES.values()), strict=True)
        ]
        assert [row[1:-1] for row in rows] == expected
        assert {(row[0], row[-1]) for row in rows} == {(tokenizer.cls_token_id, tokenizer.sep_token_id)}


def test_128_first_and_382_last_tokens(folder: Path) -> None:
    """The numbers of Sun et al. 2019 for 512 tokens."""
    tokenizer = tokenizer_of("wordpiece", folder, "head-tail:128")
    letters = "".join(random.Random(19).choices("abcdefgh", k=700))
    ids = tokenizer.tokenize([" ".join(letters)]).to_list()[0]
    row = tokenizer([" ".join(letters)], max_length=512)["input_word_ids"].numpy()[0].tolist()
    assert len(row) == 512 and row[1:129] == ids[:128] and row[129:511] == ids[700 - 382 :]


def test_first_text_gives_way_last(folder: Path) -> None:
    tokenizer = tokenizer_of("wordpiece", folder, "only-second")
    ids = tokenizer.tokenize(["a b c d e", "f g"]).to_list()
    for length, kept in ((10, (5, 2)), (9, (5, 1)), (8, (5, 0)), (6, (3, 0)), (3, (0, 0))):
        row = tokenizer(["a b c d e"], ["f g"], max_length=length)["input_word_ids"].numpy()[0].tolist()
        assert row == [2, *ids[0][: kept[0]], 3, *ids[1][: kept[1]], 3]


@pytest.mark.usefixtures("eager")
def test_pairs_keep_their_starts_with_head_tail(folder: Path) -> None:
    texts, pairs = random_texts(20, seed=23), random_texts(20, seed=29)
    for truncation in ("head-tail:2", "longest_first"):
        inputs = tokenizer_of("wordpiece", folder, truncation)(texts, pairs, max_length=13)
        for name, expected in tokenizer_of("wordpiece", folder, "head")(texts, pairs, max_length=13).items():
            np.testing.assert_array_equal(inputs[name], expected)


@pytest.mark.one_of_each("tail-wordpiece", "head-tail:4-byte_bpe", "only-second-unigram")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("truncation", ["tail", "head-tail:4", "only-second"])
def test_call_forms_and_stored_files_agree(folder: Path, tmp_path: Path, kind: str, truncation: str) -> None:
    tokenizer = tokenizer_of(kind, folder, truncation)
    texts, pairs = random_texts(9, seed=31, fewest=5), random_texts(9, seed=37, fewest=5)
    write_vocabulary_files(tmp_path, tokenizer.vocabulary, 64)
    problems: list[str] = []
    vocabulary = read_vocabulary_files(tmp_path, problems)
    assert vocabulary is not None and not problems and vocabulary.truncation == truncation
    assert (
        vocabulary.digest() == tokenizer.vocabulary.digest() != tokenizer_of(kind, folder, "head").vocabulary.digest()
    )
    graph = tf.function(lambda first, second: tokenizer(first, second, max_length=11, pad_to=13))
    for second in (None, pairs):
        expected = tokenizer(texts, second, max_length=11, pad_to=13)
        head = tokenizer_of(kind, folder, "head")(texts, second, max_length=11, pad_to=13)
        same = all(np.array_equal(head[name], expected[name]) for name in expected)
        assert same == (truncation == ("only-second" if second is None else "head-tail:4"))
        forms = (
            graph(tf.constant(texts), None if second is None else tf.constant(second)),
            pickle.loads(pickle.dumps(tokenizer))(texts, second, max_length=11, pad_to=13),
            open_tokenizer(vocabulary)(texts, second, max_length=11, pad_to=13),
        )
        for form in forms:
            for name, value in expected.items():
                np.testing.assert_array_equal(form[name], value)


def test_transformers_reads_tail(folder: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    write_vocabulary_files(tmp_path, tokenizer_of("wordpiece", folder, "tail").vocabulary, 64)
    reference, texts = AutoTokenizer.from_pretrained(str(tmp_path)), random_texts(30, seed=41)
    expected = reference(texts, truncation=True, max_length=9, padding="max_length")
    assert_equal(tokenizer_of("wordpiece", folder, "tail")(texts, max_length=9, pad_to=9), expected)


@pytest.mark.parametrize("stated", ["both", "tokenizer.json", "neither"])
def test_directory_of_transformers_with_left_side(folder: Path, tmp_path: Path, stated: str) -> None:
    """A tokenizer that transformers saved after it had cut texts at the left."""
    from transformers import AutoTokenizer

    saver = peer("wordpiece", folder, truncation_side="right" if stated == "neither" else "left")
    saver(random_texts(3, seed=43), truncation=True, max_length=7)
    saver.save_pretrained(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    if stated == "tokenizer.json":
        content = json.loads(path.read_text("utf-8"))
        content.pop("truncation_side", None)
        path.write_text(json.dumps(content), encoding="utf-8")
    assert json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))["truncation"]["direction"] in ("Left", "Right")
    problems: list[str] = []
    vocabulary = read_vocabulary_files(tmp_path, problems)
    assert vocabulary is not None and not problems
    reference, texts = AutoTokenizer.from_pretrained(str(tmp_path)), random_texts(30, seed=47)
    expected = reference(texts, truncation=True, max_length=9, padding="max_length")
    assert_equal(open_tokenizer(vocabulary)(texts, max_length=9, pad_to=9), expected)
    assert vocabulary.truncation == ("head" if stated == "neither" else "tail")


def test_default_leaves_no_trace(folder: Path, tmp_path: Path) -> None:
    for truncation in ("head", "longest-first"):
        write_vocabulary_files(tmp_path, tokenizer_of("wordpiece", folder, truncation).vocabulary, 64)
        assert "truncation" not in (tmp_path / "tokenizer_config.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("left", "head, tail, head-tail:N, only-second, longest-first; received 'left'"),
        ("tial", "did you mean 'tail'"),
        ("head-tail", "N is a number of tokens of at least 1; received 'head-tail'"),
        ("head-tail:0", "N is a number of tokens of at least 1; received 'head-tail:0'"),
        ("head-tail:-3", "received 'head-tail:-3'"),
        ("head-tail:7\n", "received 'head-tail:7"),
        ("tail\n", "received 'tail"),
    ],
)
def test_bad_values(folder: Path, value: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        tokenizer_of("wordpiece", folder, value)
    assert message in str(error.value)


def test_bad_value_in_a_directory(folder: Path, tmp_path: Path) -> None:
    write_vocabulary_files(tmp_path, tokenizer_of("wordpiece", folder, "only-second").vocabulary, 64)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pocketbert_truncation": "middle"}))
    problems: list[str] = []
    read_vocabulary_files(tmp_path, problems)
    assert len(problems) == 1 and "pocketbert_truncation in tokenizer_config.json" in problems[0]


def test_room_for_last_tokens() -> None:
    assert [bool(room_problem(f"head-tail:{head}", 11)) for head in (8, 9, 10)] == [False, True, True]
    assert "needs N below 9" in room_problem("head-tail:9", 11) and not room_problem("tail", 2)
    assert [parse_truncation(value) for value in ("only_second", "longest_first")] == ["only-second", "head"]
