from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pocketbert.data import packing
from pocketbert.data.batches import dataset
from pocketbert.data.packing import pack
from pocketbert.data.readers.text import Document
from pocketbert.errors import UserError

CLS, SEP, PAD = 101, 102, 3


class Numbers:
    """A tokenizer of texts such as "12 13 14!", whose ids are the numbers; "X!" has no token."""

    cls_token_id, sep_token_id, pad_token_id = CLS, SEP, PAD

    def __init__(self) -> None:
        self.calls = 0

    def tokenize(self, texts: Sequence[str]) -> Any:
        self.calls += 1
        rows = [[int(word) for word in text.strip("!").split() if word != "X"] for text in texts]
        splits = np.cumsum([0, *map(len, rows)])
        return SimpleNamespace(values=np.array(sum(rows, []), np.int32), row_splits=splits)


def made_up(lengths: Sequence[Sequence[int]]) -> tuple[list[Document], list[list[list[int]]]]:
    """Documents with sentences of these lengths, all tokens different, and the tokens."""
    number = 1000
    documents, tokens = [], []
    for sentences in lengths:
        rows = []
        for length in sentences:
            rows.append(list(range(number, number + length)))
            number += length
        # The splitter ends a sentence behind every exclamation mark.
        texts = [" ".join(map(str, row)) + "!" if row else "X!" for row in rows]
        halves = (" ".join(texts[: len(texts) // 2]), " ".join(texts[len(texts) // 2 :]))
        documents.append(Document("", tuple(half for half in halves if half)))
        tokens.append(rows)
    return documents, tokens


def examples(encoded: Any) -> Iterator[tuple[list[int], list[int]]]:
    for index in range(len(encoded)):
        part = slice(encoded.offsets[index], encoded.offsets[index + 1])
        yield encoded.word_ids[part].tolist(), encoded.type_ids[part].tolist()


def oracle(tokens: list[list[list[int]]], room: int) -> list[list[int]]:
    """The rule in words: take sentences while they fit; what is longer than the room is cut first."""
    sentences = []
    for document in tokens:
        current: list[int] = []
        for sentence in document:
            for start in range(0, len(sentence), room):
                part = sentence[start : start + room]
                if len(current) + len(part) > room:
                    sentences.append(current)
                    current = []
                current = current + part
        if current:
            sentences.append(current)
    return sentences


LENGTHS = [[3, 4, 1, 9, 30, 2, 2], [11], [], [0, 5, 0], [9, 2, 1, 11, 11, 1], [25]]


def test_one_segment_matches_the_rule() -> None:
    documents, tokens = made_up(LENGTHS)
    encoded = pack(documents, Numbers(), 13, short_sequence_probability=0)
    expected = oracle(tokens, 11)
    assert [len(row) for row in expected] == [8, 9, 11, 11, 8 + 2, 2, 11, 5, 11, 1, 11, 11, 1, 11, 11, 3]
    assert list(examples(encoded)) == [([CLS, *row, SEP], [0] * (len(row) + 2)) for row in expected]
    dtypes = [array.dtype for array in (encoded.word_ids, encoded.type_ids, encoded.offsets)]
    assert dtypes == [np.int32, np.int8, np.int64]
    assert (encoded.labels, encoded.max_length, encoded.pad_token_id) == (None, 13, PAD)


def test_two_segments_are_divided_between_sentences() -> None:
    documents, tokens = made_up(LENGTHS * 5)
    encoded = pack(documents, Numbers(), 14, segments=2, short_sequence_probability=0, seed=4)
    begins = {sentence[0] for document in tokens for sentence in document if sentence}
    divisions = set()
    for (words, types), expected in zip(examples(encoded), oracle(tokens, 11), strict=True):
        inside = [word for word in words if word not in (CLS, SEP)]
        assert inside == expected
        if words.count(SEP) == 1:
            assert (words, types) == ([CLS, *expected, SEP], [0] * len(words))
            # Only one sentence, or a part of one.
            assert not begins & set(expected[1:])
        else:
            middle = words.index(SEP)
            assert words[0] == CLS and words[-1] == SEP and words[middle + 1] in begins
            assert types == [0] * (middle + 1) + [1] * (len(words) - middle - 1)
            divisions.add((tuple(len(str(word)) for word in expected), middle))
    assert len(divisions) > 3


def test_chunks_match_bert_without_truncation() -> None:
    from official.nlp.data import create_pretraining_data as official

    class NeverRandomNext(random.Random):
        def random(self) -> float:
            return 0.9

    # 21 tokens fill an example of 24 with three special ones exactly.
    lengths = [[7] * 14, [3, 18, 4, 17, 10, 11, 1, 20], [5, 8]]
    documents, tokens = made_up(lengths)
    packed = [
        [word for word in words if word not in (CLS, SEP)]
        for words, _ in examples(pack(documents, Numbers(), 24, segments=2, short_sequence_probability=0))
    ]
    reference_documents = []
    words = [[[str(token) for token in sentence] for sentence in document] for document in tokens]
    for index in range(len(words)):
        for instance in official.create_instances_from_document(
            words, index, 24, 0.0, 0.15, 5, ["1"], NeverRandomNext(3)
        ):
            chosen = dict(zip(instance.masked_lm_positions, instance.masked_lm_labels, strict=True))
            whole = [chosen.get(index, token) for index, token in enumerate(instance.tokens)]
            reference_documents.append([int(token) for token in whole if token not in ("[CLS]", "[SEP]")])
    assert packed == reference_documents


def test_documents_have_one_short_target() -> None:
    lengths = np.random.default_rng(2).integers(1, 6, [400, 30]).tolist()
    documents, tokens = made_up(lengths)
    room = 40
    sentence_of = {word: sentence[0] for document in tokens for sentence in document for word in sentence}
    document_of = {word: index for index, document in enumerate(tokens) for sentence in document for word in sentence}
    encoded = pack(documents, Numbers(), room + 2, short_sequence_probability=0.3, seed=1)
    by_document: dict[int, list[tuple[int, int]]] = {}
    for words, _ in examples(encoded):
        inside = words[1:-1]
        assert len({document_of[word] for word in inside}) == 1
        last = sum(sentence_of[word] == sentence_of[inside[-1]] for word in inside)
        by_document.setdefault(document_of[inside[0]], []).append((len(inside) - last, len(inside)))
    short = targets = 0
    for cuts in by_document.values():
        full = cuts[:-1]
        # Sentences have at most 5 tokens: examples of fewer than room - 4 are a short target's.
        if full and min(size for _, size in full) < room - 4:
            short += 1
            assert max(without_last for without_last, _ in full) < min(size for _, size in full)
            targets += min(size for _, size in full)
    # Targets are uniform on 2…40; of those below 36, 34 of 39, we see that they are short: 400 * 0.3 * 34 / 39 = 104.6,
    # standard deviation sqrt(400 * 0.262 * 0.738) = 8.8; five of them.
    assert abs(short - 104.6) < 44
    # The smallest size is the target or up to 4 more: mean between 18.5 and 22.5, standard deviation of the mean of
    # 60 or more such targets at most 10 / sqrt(60) = 1.3; five of them.
    assert 12 < targets / short < 29


def test_result_depends_on_arguments_only(monkeypatch: pytest.MonkeyPatch) -> None:
    documents, _ = made_up(np.random.default_rng(6).integers(0, 9, [60, 12]).tolist())
    options: dict[str, Any] = {"segments": 2, "short_sequence_probability": 0.5}
    tokenizer = Numbers()
    first = pack(documents, tokenizer, 20, seed=3, **options)
    assert tokenizer.calls == 1
    monkeypatch.setattr(packing, "_SENTENCES_A_CALL", 50)
    tokenizer = Numbers()
    second = pack(iter(documents), tokenizer, 20, seed=3, **options)
    assert tokenizer.calls > 10
    for name in ("word_ids", "type_ids", "offsets"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    other = pack(documents, Numbers(), 20, seed=4, **options)
    assert len(other) != len(first) or other.word_ids.tolist() != first.word_ids.tolist()


def test_bad_options_and_empty_text() -> None:
    documents, _ = made_up([[3]])
    with pytest.raises(
        UserError, match="segments must be 1 or 2; received 3; short_.* received 1.5; seed .* received -1"
    ):
        pack(documents, Numbers(), segments=3, short_sequence_probability=1.5, seed=-1)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="max_length must have room for special tokens and two others; received 4"):
        pack(documents, Numbers(), 4, segments=2)
    for nothing in ([], made_up([[0]])[0]):
        with pytest.raises(UserError, match="at least one token; received documents without tokens"):
            pack(nothing, Numbers())


def test_with_the_real_tokenizer(tmp_path: Path) -> None:
    import pocketbert as pb

    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join("[PAD] [UNK] [CLS] [SEP] [MASK] one two ##s . three".split()) + "\n")
    documents = [Document("Not in it", ("One twos. Three.", "Two three one.")), Document("", ("Four.",))]
    encoded = pack(documents, pb.WordPieceTokenizer(vocabulary), 8, short_sequence_probability=0)
    # [CLS] one two ##s . three . [SEP]: exactly 8.
    assert [words for words, _ in examples(encoded)] == [[2, 5, 6, 7, 8, 9, 8, 3], [2, 6, 9, 5, 8, 3], [2, 1, 8, 3]]


def test_batches_of_two_segments() -> None:
    documents, _ = made_up([[2, 3], [4], [1, 1, 1]])
    encoded = pack(documents, Numbers(), 9, segments=2, short_sequence_probability=0)
    indices = np.array([2, 0, 1])
    ((words, mask, types),) = (
        [batch[f"input_{name}"].numpy() for name in ("word_ids", "mask", "type_ids")]
        for batch in dataset(encoded, [indices])
    )
    inputs, _ = encoded.batch(indices)
    assert all(array.dtype == np.int32 for array in (words, mask, types, *inputs.values()))
    np.testing.assert_array_equal(types, inputs["input_type_ids"])
    assert mask.sum(1).tolist() == [6, 8, 6]
    for row, segments in zip(words, types, strict=True):
        separators = np.flatnonzero(row == SEP)
        first, last = separators[0], separators[-1]
        assert segments.tolist() == [int(first < position <= last) for position in range(len(row))]
