"""Sentence pairs, compared with `create_instances_from_document` in tf-models-official."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from pocketbert.data.pretraining.next_sentence import IS_NEXT, IS_RANDOM, TokenizedText, next_sentence_pairs

# First segment, second segment, label.
Instance = tuple[tuple[int, ...], tuple[int, ...], int]


def made_up(lengths: Sequence[Sequence[int]]) -> tuple[TokenizedText, list[list[list[str]]]]:
    """Documents with sentences of these lengths, all tokens different: for us, and for official's code."""
    flat = [length for document in lengths for length in document]
    sentences = np.cumsum([0, *flat])
    documents = np.cumsum([0, *map(len, lengths)])
    rows = [[str(word) for word in range(begin, end)] for begin, end in zip(sentences, sentences[1:], strict=False)]
    reference_documents = [rows[begin:end] for begin, end in zip(documents, documents[1:], strict=False)]
    return TokenizedText(np.arange(sentences[-1], dtype=np.int32), sentences, documents), reference_documents


def ours(text: TokenizedText, max_length: int, probability: float, seed: int) -> Iterator[tuple[int, Instance]]:
    pairs = next_sentence_pairs(text, max_length=max_length, short_sequence_probability=probability, key=(seed, 5))
    for pair in pairs:
        first = text.word_ids[pair.first_begin : pair.first_end].tolist()
        second = text.word_ids[pair.second_begin : pair.second_end].tolist()
        yield pair.document, (tuple(first), tuple(second), pair.label)


def theirs(
    documents: list[list[list[str]]], max_length: int, probability: float, seed: int
) -> Iterator[tuple[int, Instance]]:
    from official.nlp.data import create_pretraining_data as official

    generator = random.Random(seed)
    for index in range(len(documents)):
        for instance in official.create_instances_from_document(
            documents, index, max_length, probability, 0.15, 2, ["0"], generator
        ):
            labels = dict(zip(instance.masked_lm_positions, instance.masked_lm_labels, strict=True))
            tokens = [labels.get(position, token) for position, token in enumerate(instance.tokens)]
            middle = tokens.index("[SEP]")
            assert (tokens[0], tokens[-1], instance.segment_ids.index(1)) == ("[CLS]", "[SEP]", middle + 1)
            first, second = tuple(map(int, tokens[1:middle])), tuple(map(int, tokens[middle + 1 : -1]))
            yield index, (first, second, int(instance.is_random_next))


@pytest.mark.one_of_each("lengths0-10")
@pytest.mark.parametrize(
    ("lengths", "max_length"),
    [
        # Odd and even room; chunks of one sentence and of several; what is cut is the first, the second or both.
        ([[3, 2, 4], [1, 6], [5]], 10),
        ([[2, 1, 1, 3], [9, 2], [4, 4]], 9),
        ([[8], [7, 1], [1, 1, 1]], 8),
    ],
)
def test_the_same_examples_as_often(lengths: list[list[int]], max_length: int) -> None:
    text, documents = made_up(lengths)
    document_of = {
        int(word): number for number, document in enumerate(documents) for sentence in document for word in sentence
    }
    counts: tuple[Counter[Any], Counter[Any]] = Counter(), Counter()
    runs = 4000
    for seed in range(runs):
        # With what follows in the same document, since an example says what is left for the next one.
        for count, actual in zip(
            counts, (ours(text, max_length, 0.5, seed), theirs(documents, max_length, 0.5, seed)), strict=True
        ):
            before: tuple[int, Any] = (-1, None)
            for document, instance in actual:
                count[document, before[1] if before[0] == document else None, instance] += 1
                before = document, instance
    # BERT's code gives up looking for another document after ten tries: three documents, a few in 100,000 examples.
    for outcome in list(counts[1]):
        instances = [sentence for sentence in outcome[1:] if sentence is not None and sentence[2] == IS_RANDOM]
        if any(document_of[first[0]] == document_of[second[0]] for first, second, _ in instances):
            del counts[1][outcome]
    frequent = [outcome for outcome in {*counts[0], *counts[1]} if counts[0][outcome] + counts[1][outcome] >= 25]
    assert len(frequent) > 60
    # 25 of one and none of the other: 2 * 0.5^25 < 1e-7 if both are equally likely.
    assert all(counts[0][outcome] and counts[1][outcome] for outcome in frequent)
    table = [[count[outcome] for outcome in frequent] for count in counts]
    # Outcomes of one run are not quite independent, so the bound is far below what chance gives in three cases.
    assert stats.chi2_contingency(table).pvalue > 1e-5
    # The rare ones are as many too: of counts near 2,000 the difference has a standard deviation of about 60.
    rare = [sum(count.values()) - sum(row) for count, row in zip(counts, table, strict=True)]
    assert abs(rare[0] - rare[1]) < 5 * np.sqrt(sum(rare) + 1)


@pytest.mark.nightly
def test_lengths_and_shares_in_larger_text() -> None:
    generator = np.random.default_rng(8)
    # About Wikipedia's: sentences of 27 tokens on average, documents of 1 to 80 of them.
    lengths = [generator.geometric(1 / 27, generator.integers(1, 81)).tolist() for _ in range(200)]
    text, documents = made_up(lengths)
    samples: dict[str, list[list[Instance]]] = {
        "ours": [[instance for _, instance in ours(text, 128, 0.1, seed)] for seed in range(6)],
        "theirs": [[instance for _, instance in theirs(documents, 128, 0.1, seed)] for seed in range(6)],
    }
    figures = {
        name: np.array(
            [
                [
                    len(run),
                    np.mean([label for *_, label in run]),
                    np.mean([len(first) + len(second) for first, second, _ in run]),
                    np.mean([len(first) for first, _, _ in run]),
                ]
                for run in runs
            ]
        )
        for name, runs in samples.items()
    }
    # Six runs each: the difference of means, in standard deviations of a difference as the runs themselves show them
    # (ten degrees of freedom: beyond 6 of them is less than 2 in 10,000).
    spread = np.sqrt((figures["ours"].var(axis=0, ddof=1) + figures["theirs"].var(axis=0, ddof=1)) / 6)
    difference = figures["ours"].mean(axis=0) - figures["theirs"].mean(axis=0)
    assert (np.abs(difference) < 6 * spread).all()
    assert (spread < 0.02 * figures["theirs"].mean(axis=0)).all()
    totals = [[len(first) + len(second) for first, second, _ in sum(runs, [])] for runs in samples.values()]
    assert stats.ks_2samp(*totals).pvalue > 1e-5


def test_second_segment_matches_its_label() -> None:
    generator = np.random.default_rng(3)
    lengths = [generator.integers(1, 12, generator.integers(1, 15)).tolist() for _ in range(2)]
    text, _ = made_up(lengths)
    border = sum(lengths[0])
    labels = Counter()
    for seed in range(60):
        for document, (first, second, label) in ours(text, 24, 0.3, seed):
            assert 2 <= len(first) + len(second) <= 21
            assert list(first) == list(range(first[0], first[-1] + 1))
            assert list(second) == list(range(second[0], second[-1] + 1))
            assert all((word >= border) == document for word in first)
            assert all((word >= border) == (document if label == IS_NEXT else not document) for word in second)
            assert label == IS_RANDOM or second[0] > first[-1]
            labels[label] += 1
    assert min(labels.values()) > 100


def test_pairs_depend_on_key_and_document() -> None:
    text, _ = made_up(np.random.default_rng(1).integers(1, 9, [6, 20]).tolist())
    assert list(ours(text, 30, 0.1, 1)) == list(ours(text, 30, 0.1, 1)) != list(ours(text, 30, 0.1, 2))
    with pytest.raises(ValueError, match="at least two documents; received 1"):
        next(next_sentence_pairs(made_up([[3, 4]])[0], max_length=9, short_sequence_probability=0, key=(0,)))


@pytest.mark.nightly
@pytest.mark.data
def test_counts_on_wikipedia(shared: Path) -> None:
    import itertools

    from official.nlp.tools import tokenization

    from pocketbert.data.readers.sentences import split_sentences
    from pocketbert.data.readers.text import read_documents
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

    vocabulary = shared / "data" / "vocab" / "bert-base-uncased.vocab.txt"
    articles = itertools.islice(read_documents(shared / "data" / "text" / "enwiki2015-train.txt.xz"), 12)
    sentences = [
        [split_sentence for part in article.paragraphs for split_sentence in split_sentences(part)]
        for article in articles
    ]
    peer = tokenization.FullTokenizer(str(vocabulary), do_lower_case=True)
    documents = [[tokens for sentence in article if (tokens := peer.tokenize(sentence))] for article in sentences]
    ids = WordPieceTokenizer(vocabulary, special_tokens_in_text="text").tokenize(sum(sentences, []))
    expected = [len(tokens) for document in documents for tokens in document]
    assert [length for length in ids.row_lengths().numpy().tolist() if length] == expected
    assert sum(expected) > 20_000
    text, unique = made_up([[len(tokens) for tokens in document] for document in documents])
    runs = 6
    numbers = [
        [sum(1 for _ in instances) for instances in (ours(text, 128, 0.1, seed), theirs(unique, 128, 0.1, seed))]
        for seed in range(runs)
    ]
    spread = np.std(numbers, axis=0, ddof=1)
    difference = np.mean(numbers, axis=0) @ [1, -1]
    # Ten degrees of freedom: 6 standard deviations are less than 2 in 10,000.
    assert abs(difference) < 6 * np.sqrt((spread**2).sum() / runs)
