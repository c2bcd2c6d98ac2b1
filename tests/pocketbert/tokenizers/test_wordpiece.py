"""The tokenizer with a small vocabulary."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import pocketbert as pb
from pocketbert.errors import UserError
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import read_vocabulary

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, "the", "cat", "##s", "sat", "##urn", "on", ".", "一"]
PAD, UNK, CLS, SEP, MASK, THE, CAT, S, SAT, URN, ON, DOT, ONE = range(13)


def write(folder: Path, pieces: list[str]) -> Path:
    path = folder / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> pb.WordPieceTokenizer:
    return pb.WordPieceTokenizer(write(tmp_path_factory.mktemp("vocabulary"), PIECES))


def test_attributes(tokenizer: pb.WordPieceTokenizer) -> None:
    assert tokenizer.vocab_size == 13
    assert tokenizer.vocab_path.name == "vocab.txt"
    assert tokenizer.lowercase
    assert tokenizer.special_tokens_in_text == "token"
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.cls_token_id) == (PAD, UNK, CLS)
    assert (tokenizer.sep_token_id, tokenizer.mask_token_id) == (SEP, MASK)


def test_single_texts(tokenizer: pb.WordPieceTokenizer) -> None:
    inputs = tokenizer(["The CATS sat.", "", "dog saturn"])
    np.testing.assert_array_equal(
        inputs["input_word_ids"],
        [[CLS, THE, CAT, S, SAT, DOT, SEP], [CLS, SEP, *[PAD] * 5], [CLS, UNK, SAT, URN, SEP, PAD, PAD]],
    )
    np.testing.assert_array_equal(inputs["input_mask"], [[1] * 7, [1, 1, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 0, 0]])
    np.testing.assert_array_equal(inputs["input_type_ids"], np.zeros([3, 7]))
    assert {tensor.dtype for tensor in inputs.values()} == {tf.int32}


def test_pairs(tokenizer: pb.WordPieceTokenizer) -> None:
    inputs = tokenizer(["the cat"], ["sat"], max_length=8, pad_to=9)
    np.testing.assert_array_equal(inputs["input_word_ids"], [[CLS, THE, CAT, SEP, SAT, SEP, PAD, PAD, PAD]])
    np.testing.assert_array_equal(inputs["input_mask"], [[1, 1, 1, 1, 1, 1, 0, 0, 0]])
    np.testing.assert_array_equal(inputs["input_type_ids"], [[0, 0, 0, 0, 1, 1, 0, 0, 0]])


def test_offsets_point_into_the_given_text(tokenizer: pb.WordPieceTokenizer) -> None:
    text = "\u200bTHE  çåţš[SEP]一on\u0301."
    ids, starts, ends = tokenizer.tokenize_with_offsets([text])
    assert ids.to_list() == [[THE, CAT, S, SEP, ONE, ON, DOT]]
    spans = [text[start:end] for start, end in zip(starts.values.numpy(), ends.values.numpy(), strict=True)]
    # The accent that stands alone belongs to no token.
    assert spans == ["THE", "çåţ", "š", "[SEP]", "一", "on", "."]
    assert {tensor.dtype for tensor in (ids, starts, ends)} == {tf.int32}


def test_accepted_forms_of_texts(tokenizer: pb.WordPieceTokenizer) -> None:
    expected = [[THE, CAT]]
    for texts in (
        ["the cat"], ("the cat",), "the cat", b"the cat", [b"the cat"], np.array(["the cat"]),
        np.array(["the cat"], object), tf.constant(["the cat"]), tf.constant("the cat"),
    ):  # fmt: skip
        assert tokenizer.tokenize(texts).to_list() == expected


def test_no_texts(tokenizer: pb.WordPieceTokenizer) -> None:
    assert tokenizer([])["input_word_ids"].shape == (0, 0)
    assert tokenizer([], [], max_length=5, pad_to=5)["input_word_ids"].shape == (0, 5)
    assert tokenizer.tokenize([]).to_list() == []
    assert [tokenize_with_offset.to_list() for tokenize_with_offset in tokenizer.tokenize_with_offsets([])] == [
        [],
        [],
        [],
    ]


def test_texts_without_words(tokenizer: pb.WordPieceTokenizer) -> None:
    texts = ["", " ", "\t\r\n", "\x00", "\ufffd\u200b", "\u0301"]
    assert tokenizer.tokenize(texts).to_list() == [[]] * 6
    np.testing.assert_array_equal(tokenizer(texts)["input_word_ids"], [[CLS, SEP]] * 6)


def test_rows_do_not_touch_each_other(tokenizer: pb.WordPieceTokenizer) -> None:
    """A word, a mark or a special token that is cut by the end of a row is not continued in the next one."""
    texts = ["é", "cat", "\u0301s", "é[SE", "P]é", "é[MAS", "é on", ""]
    alone = [tokenizer.tokenize([text]).to_list()[0] for text in texts]
    assert tokenizer.tokenize(texts).to_list() == alone
    assert SEP not in sum(alone, [])


def test_invalid_utf8_counts_as_code_points(tokenizer: pb.WordPieceTokenizer) -> None:
    ids, starts, ends = tokenizer.tokenize_with_offsets([b"\xffcat\xc3", b"ca\xfet", b"\xed\xa0\x80cat", b"\xf0\x9f"])
    assert ids.to_list() == [[CAT], [CAT], [CAT], []]
    assert (starts.to_list()[:2], ends.to_list()[:2]) == ([[1], [0]], [[4], [4]])


def test_lone_surrogates_vanish(tokenizer: pb.WordPieceTokenizer) -> None:
    ids, starts, ends = tokenizer.tokenize_with_offsets(["\ud800cat", "the \udfff"])
    assert (ids.to_list(), starts.to_list(), ends.to_list()) == ([[CAT], [THE]], [[1], [0]], [[4], [3]])


def test_megabyte_word_is_one_unknown_token(tokenizer: pb.WordPieceTokenizer) -> None:
    million = 1_000_000
    ids, starts, ends = tokenizer.tokenize_with_offsets(["s" * million, "é" * million, "the " * million])
    assert ids[0].numpy().tolist() == ids[1].numpy().tolist() == [UNK]
    assert starts[1].numpy().tolist() == [0] and ends[1].numpy().tolist() == [million]
    assert ends[0].numpy().tolist() == [million]
    assert ids[2].shape[0] == million


@pytest.mark.usefixtures("eager")
def test_special_tokens_in_text(tmp_path: Path) -> None:
    path = write(tmp_path, [*PIECES, "[", "]", "sep"])
    assert pb.WordPieceTokenizer(path).tokenize("the[SEP]cat [sep]").to_list() == [[THE, SEP, CAT, 13, 15, 14]]
    plain = pb.WordPieceTokenizer(path, special_tokens_in_text="text")
    assert plain.tokenize("the[SEP]cat é[SEP]").to_list() == [[THE, 13, 15, 14, CAT, UNK, 13, 15, 14]]


@pytest.mark.usefixtures("eager")
def test_cased(tmp_path: Path) -> None:
    tokenizer = pb.WordPieceTokenizer(write(tmp_path, [*SPECIAL, "Cat", "Ça"]), lowercase=False)
    assert tokenizer.tokenize(["Cat cat Ça ça", "Cat"]).to_list() == [[5, 1, 6, 1], [5]]


@pytest.mark.parametrize("token", [None, "a!", "##!", "##", "中国", "a—"])
def test_vocabulary_without_words_is_refused(token: str | None, tmp_path: Path) -> None:
    path = write(tmp_path, [*SPECIAL, *filter(None, [token])])
    with pytest.raises(pb.UserError, match="a vocabulary must have a word without punctuation; received none"):
        pb.WordPieceTokenizer(path)
    for word in ("!", "a", "##s", "中", "a b"):
        assert read_vocabulary(write(tmp_path, [*SPECIAL, word]))[5:] == [word]


@pytest.mark.usefixtures("eager")
def test_marks_are_put_in_canonical_order(tmp_path: Path) -> None:
    """U+302E has combining class 224, U+1B44 has 9; both are spacing marks, which are not dropped."""
    ordered, unordered = "a\u1b44\u302e", "a\u302e\u1b44"
    tokenizer = pb.WordPieceTokenizer(write(tmp_path, [*SPECIAL, ordered]))
    ids, starts, ends = tokenizer.tokenize_with_offsets([unordered, ordered, "a\u302e\u0301\u1b44", "a\u302ex\u1b44"])
    assert ids.to_list() == [[5], [5], [5], [UNK]]
    # As in `tokenizers`: the accent, now last, takes the fourth place and goes with it.
    assert ends.to_list() == [[3], [3], [3], [4]]
    cased = pb.WordPieceTokenizer(write(tmp_path, [*SPECIAL, ordered]), lowercase=False)
    assert cased.tokenize([unordered, ordered]).to_list() == [[UNK], [5]]


@pytest.mark.usefixtures("eager")
def test_private_use_tokens_never_match(tmp_path: Path) -> None:
    """The tokenizer's own stand-ins are private-use characters; a vocabulary may hold such characters too."""
    tokenizer = pb.WordPieceTokenizer(write(tmp_path, [*SPECIAL, "\ue000", "\ue003", "##\ue005", "a"]))
    assert tokenizer.tokenize(["\ue000é a\ue003", "é" + "a" * 200, "é [SEP]"]).to_list() == [[UNK, 8], [UNK], [UNK, 3]]


def test_in_tf_function_and_tf_data(tokenizer: pb.WordPieceTokenizer) -> None:
    texts = ["the cats", "é sat", "[MASK] on."]
    eager = tokenizer(texts, texts, max_length=6, pad_to=6)

    @tf.function
    def graph(batch: tf.Tensor) -> dict[str, tf.Tensor]:
        return tokenizer(batch, batch, max_length=6, pad_to=6)

    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(3).map(graph, num_parallel_calls=2)
    assert dataset.element_spec["input_word_ids"].shape.as_list() == [None, 6]
    for other in (graph(tf.constant(texts)), next(iter(dataset))):
        for name, expected in eager.items():
            np.testing.assert_array_equal(other[name], expected)
    offsets = tf.data.Dataset.from_tensors(texts).map(tokenizer.tokenize_with_offsets)
    for got, expected in zip(next(iter(offsets)), tokenizer.tokenize_with_offsets(texts), strict=True):
        assert got.to_list() == expected.to_list()


def test_tokenizers_of_a_vocabulary_trace_once(tokenizer: pb.WordPieceTokenizer) -> None:
    for length in (4, 8, 16):
        tokenizer(["the"], max_length=length)
        tokenizer(["the", "cat"], ["é", "on"], max_length=length, pad_to=length)
    other = pb.WordPieceTokenizer(tokenizer.vocab_path, lowercase=tokenizer.lowercase)
    other(["the"], max_length=5)
    for graph in (tokenizer._graph, other._graph):
        assert graph.encode.experimental_get_tracing_count() == 1
        assert graph.encode_pairs.experimental_get_tracing_count() == 1


@pytest.mark.usefixtures("eager")
def test_different_tokenizers_have_different_graphs(tokenizer: pb.WordPieceTokenizer, tmp_path: Path) -> None:
    changed = tmp_path / "vocab.txt"
    changed.write_text(tokenizer.vocab_path.read_text("utf-8") + "zebra\n", "utf-8")
    text = ["The zebra [SEP]"]
    expected = tokenizer.tokenize(text).to_list()
    for other in (
        pb.WordPieceTokenizer(changed, lowercase=tokenizer.lowercase),
        pb.WordPieceTokenizer(tokenizer.vocab_path, lowercase=not tokenizer.lowercase),
        pb.WordPieceTokenizer(tokenizer.vocab_path, tokenizer.lowercase, special_tokens_in_text="text"),
    ):
        assert other.tokenize(text).to_list() != expected
    assert tokenizer.tokenize(text).to_list() == expected


def test_tokenizer_outlives_enclosing_graph(tokenizer: pb.WordPieceTokenizer, tmp_path: Path) -> None:
    fresh = tmp_path / "vocab.txt"
    fresh.write_text(tokenizer.vocab_path.read_text("utf-8") + "graphborn\n", "utf-8")

    @tf.function
    def inside() -> tf.Tensor:
        return pb.WordPieceTokenizer(fresh).tokenize(["graphborn"]).values

    (identifier,) = inside().numpy()
    assert pb.WordPieceTokenizer(fresh).tokenize(["graphborn"]).to_list() == [[identifier]]


@pytest.mark.nightly
def test_saved_model(tokenizer: pb.WordPieceTokenizer, tmp_path: Path) -> None:
    module = tf.Module()
    module.tokenizer = tokenizer
    module.serve = tf.function(
        lambda texts: tokenizer(texts, max_length=16), input_signature=[tf.TensorSpec([None], tf.string)]
    )
    tf.saved_model.save(module, str(tmp_path / "saved"))
    texts = tf.constant(["The cats é", "[SEP]on"])
    loaded = tf.saved_model.load(str(tmp_path / "saved")).serve(texts)
    for name, expected in tokenizer(texts, max_length=16).items():
        np.testing.assert_array_equal(loaded[name], expected)


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([], r"without \[PAD\] \[UNK\] \[CLS\] \[SEP\] \[MASK\]"),
        (["[PAD]", "a"], r"received 2 tokens without \[UNK\] \[CLS\] \[SEP\] \[MASK\]"),
        ([*SPECIAL, "a", "b", "a"], r"'a' in lines 6, 8"),
        ([*SPECIAL, "", "b"], r"empty lines 6"),
        ([*SPECIAL, "x" * 256], r"at most 255 bytes; received longer ones in lines 6"),
    ],
)
def test_unusable_vocabulary(tmp_path: Path, pieces: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        pb.WordPieceTokenizer(write(tmp_path, pieces))


def test_all_vocabulary_problems_are_listed(tmp_path: Path) -> None:
    path = write(tmp_path, ["[PAD]", "a", "a", "", "b"])
    with pytest.raises(UserError, match=r"(?s)vocab.txt: .*without \[UNK\].*'a' in lines 2, 3.*empty lines 4"):
        pb.WordPieceTokenizer(path)


def test_unreadable_vocabulary(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing.txt: .*No such file"):
        pb.WordPieceTokenizer(tmp_path / "nothing.txt")
    with pytest.raises(UserError, match=r"Is a directory"):
        pb.WordPieceTokenizer(tmp_path)
    path = tmp_path / "latin1.txt"
    path.write_bytes(b"[PAD]\ncaf\xe9\n")
    with pytest.raises(UserError, match=r"UTF-8; received byte 0xe9 in line 2"):
        pb.WordPieceTokenizer(path)


@pytest.mark.usefixtures("eager")
def test_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes("\r\n".join([*SPECIAL, "a\u2028b", "c"]).encode())
    tokenizer = pb.WordPieceTokenizer(path)
    assert tokenizer.vocab_size == 7
    assert tokenizer.tokenize(["c"]).to_list() == [[6]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t(["a"], max_length=1), "at least 2"),
        (lambda t: t(["a"], ["b"], max_length=2), "at least 3"),
        (lambda t: t(["a"], pad_to=64), "pad_to must be at least max_length; received pad_to=64, max_length=128"),
        (lambda t: t(["a", "b"], ["c"]), "2 texts and 1 pairs"),
        (lambda t: t(["a", None]), "texts must be a list of strings; received None at index 1"),
        (lambda t: t(["a"], [3]), "pairs must be a list of strings; received 3 at index 0"),
        (lambda t: t.tokenize(tf.constant([["a"]])), r"string tensor of rank 1; received string with shape \(1, 1\)"),
        (lambda t: t.tokenize(tf.constant([1])), "received int32"),
        (lambda t: pb.WordPieceTokenizer(t.vocab_path, True, "both"), "'token' or 'text'; received 'both'"),
    ],
)  # fmt: skip
def test_bad_calls(tokenizer: pb.WordPieceTokenizer, call, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call(tokenizer)
