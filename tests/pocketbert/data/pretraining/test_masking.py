from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text as tf_text

from pocketbert.data.batches import EncodedExamples, dataset, plan_batches
from pocketbert.data.pretraining.masking import Masked, MaskingVocabulary, mask_batch, masked_dataset
from pocketbert.data.pretraining.options import MaskingOptions
from pocketbert.errors import UserError

PAD, CLS, SEP, MASK = 3, 1, 2, 4
SIZE = 47
# Every third token from 20 on continues a word.
CONTINUES = np.array([piece >= 20 and piece % 3 == 0 for piece in range(SIZE)])
VOCABULARY = MaskingVocabulary(SIZE, MASK, (CLS, SEP, PAD), CONTINUES)
MAX_LENGTH = 37
FIVE_SIGMA = 5.0


def batch(lengths: list[int], width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Ids and mask of `[CLS] … [SEP] … [SEP]` (one [SEP] under 6 tokens), padded."""
    generator = np.random.default_rng(seed)
    ids = np.full([len(lengths), width], PAD, np.int32)
    mask = np.zeros_like(ids)
    for row, length in enumerate(lengths):
        ids[row, :length] = generator.integers(5, SIZE, length)
        ids[row, 0], ids[row, length - 1] = CLS, SEP
        if length >= 6:
            ids[row, length // 2] = SEP
        mask[row, :length] = 1
    return ids, mask


def masked(ids: np.ndarray, mask: np.ndarray, examples: Any, **changes: Any) -> Masked:
    options = {"seed": 7, "epoch": 2, "max_length": MAX_LENGTH, "vocabulary": VOCABULARY, **changes}

    # In a graph: eagerly every example takes milliseconds.
    @tf.function
    def run(ids: tf.Tensor, mask: tf.Tensor, examples: tf.Tensor) -> Masked:
        return mask_batch(ids, mask, VOCABULARY.special(ids), examples, **options)

    return Masked(*(tensor.numpy() for tensor in run(tf.constant(ids), tf.constant(mask), tf.constant(examples))))


@pytest.mark.one_of_each("0.15", "1.0")
@pytest.mark.parametrize("rate", [0.15, 0.4, 1.0])
def test_number_of_masks_matches_bert(rate: float) -> None:
    lengths = list(range(3, MAX_LENGTH + 1))
    ids, mask = batch(lengths, MAX_LENGTH)
    result = masked(ids, mask, range(len(lengths)), options=MaskingOptions(rate=rate, max_predictions=11))
    for row, length in enumerate(lengths):
        specials = 2 + (length >= 6)
        # create_masked_lm_predictions' own expression; there are no more tokens than are not special.
        expected = min(length - specials, min(11, max(1, int(round(length * rate)))))
        positions, labels = result.positions[row], result.labels[row]
        assert (labels != -1).sum() == expected
        assert (labels[:expected] != -1).all() and (positions[expected:] == 0).all()
        chosen = positions[:expected]
        assert (np.diff(chosen) > 0).all() and (chosen < length).all()
        np.testing.assert_array_equal(ids[row, chosen], labels[:expected])
        assert not np.isin(labels[:expected], [CLS, SEP, PAD]).any()
        others = np.setdiff1d(np.arange(MAX_LENGTH), chosen)
        np.testing.assert_array_equal(result.word_ids[row, others], ids[row, others])
    assert result.positions.shape == result.labels.shape == (len(lengths), 11)
    assert {tensor.dtype for tensor in result} == {np.dtype(np.int32)}


def test_rate_0_and_special_tokens_select_nothing() -> None:
    ids, mask = batch([9, 2], 11)
    for options, row in ((MaskingOptions(rate=0), 0), (MaskingOptions(), 1)):
        result = masked(ids[row : row + 1], mask[row : row + 1], [5], options=options)
        assert (result.labels == -1).all() and (result.positions == 0).all()
        np.testing.assert_array_equal(result.word_ids, ids[row : row + 1])


@pytest.mark.one_of_each("True")
@pytest.mark.parametrize("whole_words", [False, True])
def test_masks_do_not_depend_on_batch(whole_words: bool) -> None:
    options = MaskingOptions(rate=0.3, whole_words=whole_words)
    lengths = [37, 20, 6, 31, 12]
    ids, mask = batch(lengths, MAX_LENGTH)
    numbers = np.array([4, 2**31 - 1, 0, 9, 77], np.int64)
    alone = masked(ids, mask, numbers, options=options)
    # Other companions, another order, a narrower width, eagerly, the epoch as a tensor.
    order = [2, 4, 1]
    narrow = tf.constant(ids[order, :23])
    result = mask_batch(
        narrow,
        tf.constant(mask[order, :23]),
        VOCABULARY.special(narrow),
        tf.constant(numbers[order]),
        seed=7,
        epoch=tf.constant(2),
        max_length=MAX_LENGTH,
        vocabulary=VOCABULARY,
        options=options,
    )
    np.testing.assert_array_equal(result.word_ids, alone.word_ids[order, :23])
    np.testing.assert_array_equal(result.positions, alone.positions[order])
    np.testing.assert_array_equal(result.labels, alone.labels[order])
    for change in ({"epoch": 3}, {"seed": 8}):
        other = masked(ids, mask, numbers, options=options, **change)
        assert (other.word_ids != alone.word_ids).any(axis=1).sum() >= 4
    other = masked(ids, mask, numbers + 1 - 2 * (numbers > 5), options=options)
    assert (other.word_ids != alone.word_ids).any(axis=1).sum() >= 4
    with pytest.raises(ValueError, match=r"wider than max_length=36; received \(5, 37\)"):
        masked(ids, mask, numbers, max_length=36)


def test_rates_are_those_of_tensorflow_text() -> None:
    """Two samples of the same rates differ by less than five standard deviations of their difference."""
    count, width = 4000, 20
    generator = np.random.default_rng(1)
    ids = generator.integers(5, SIZE, [count, width]).astype(np.int32)
    options = MaskingOptions(rate=0.25, max_predictions=8)
    masked_rows = masked(ids, np.ones_like(ids), np.arange(count), options=options)
    tf.random.set_seed(3)
    selector = tf_text.RandomItemSelector(8, 0.25, unselectable_ids=[CLS, SEP])
    chooser = tf_text.MaskValuesChooser(SIZE, MASK)
    their_ids, their_positions, _ = tf.function(
        lambda ids: tf_text.mask_language_model(tf.RaggedTensor.from_tensor(ids), selector, chooser)
    )(tf.constant(ids))
    samples = []
    for masked_ids, positions in (
        (masked_rows.word_ids, masked_rows.positions[:, :5]),
        (their_ids.to_tensor().numpy(), their_positions.to_tensor().numpy()),
    ):
        # 20 tokens at 0.25: both choose 5 of each example.
        assert positions.shape == (count, 5)
        before = np.take_along_axis(ids, positions, 1)
        after = np.take_along_axis(masked_ids, positions, 1)
        random_ids = after[(after != MASK) & (after != before)]
        chosen_at = np.bincount(positions.ravel(), minlength=width) / count
        ids_of_random = np.bincount(random_ids, minlength=SIZE)
        samples.append(((after == MASK).mean(), (after == before).mean(), chosen_at, ids_of_random))
    draws = 5 * count
    for index, expected in ((0, 0.8 + 0.1 / SIZE), (1, 0.1 + 0.1 / SIZE)):
        deviation = math.sqrt(2 * expected * (1 - expected) / draws)
        assert abs(samples[0][index] - samples[1][index]) < FIVE_SIGMA * deviation
        assert abs(samples[0][index] - expected) < FIVE_SIGMA * deviation / math.sqrt(2)
    # A place is chosen in a quarter of the examples.
    deviation = math.sqrt(2 * 0.25 * 0.75 / count)
    assert np.abs(samples[0][2] - samples[1][2]).max() < FIVE_SIGMA * deviation
    # Random tokens: all of the vocabulary (but for [MASK], counted above), Poisson counts with a mean of about 41.
    for _, _, _, counts in samples:
        mean = 0.1 * draws / SIZE
        assert counts[MASK] == 0
        assert np.abs(np.delete(counts, MASK) - mean).max() < FIVE_SIGMA * math.sqrt(mean) + 1


WORDS = [2, 1, 3, 1, 1, 4, 1]


def test_whole_words_match_tf_models_official() -> None:
    """How often each word is chosen, on the same example, for 3 predictions."""
    from official.nlp.data import create_pretraining_data as official

    pieces, tokens = [CLS], ["[CLS]"]
    for length in WORDS:
        pieces += [10] + [21] * (length - 1)
        tokens += ["word"] + ["##piece"] * (length - 1)
    pieces, tokens = [*pieces, SEP], [*tokens, "[SEP]"]
    starts = np.cumsum([1, *WORDS[:-1]])
    count = 4000
    # 15 tokens at 0.2: 3 predictions, so the word of four tokens never fits.
    ids = np.tile(np.array(pieces, np.int32), [count, 1])
    options = MaskingOptions(rate=0.2, whole_words=True)
    masked_rows = masked(ids, np.ones_like(ids), np.arange(count), options=options)
    our_sets = [tuple(row[labels != -1]) for row, labels in zip(masked_rows.positions, masked_rows.labels, strict=True)]
    their_sets = []
    for number in range(count):
        _, positions, _ = official.create_masked_lm_predictions(
            tokens, 0.2, 20, ["x"], random.Random(number), do_whole_word_mask=True
        )
        their_sets.append(tuple(positions))
    assert set(our_sets) == set(their_sets)
    for start in starts:
        frequencies = [np.mean([start in chosen for chosen in sets]) for sets in (our_sets, their_sets)]
        # The difference of two shares has a variance of at most 2 * 0.25 / count.
        assert abs(frequencies[0] - frequencies[1]) < FIVE_SIGMA * math.sqrt(0.5 / count)
    assert np.mean([starts[5] in chosen for chosen in our_sets]) == 0
    # One decision a word: all tokens [MASK], none of them changed, or each a random token. Words with one token [MASK]
    # and one as it was come from random tokens alone, in 0.1 * 6 / 47^2 = 0.03 % of the words of three; decisions
    # token by token would give more than 2 * 0.8 * 0.1 = 16 %.
    mixed = []
    for row, chosen in zip(masked_rows.word_ids, our_sets, strict=True):
        for start, length in zip(starts, WORDS, strict=True):
            inside = [index in chosen for index in range(start, start + length)]
            assert all(inside) or not any(inside)
            if inside[0] and length > 1:
                after = row[start : start + length]
                mixed.append((after == MASK).any() and (after == ids[0, start : start + length]).any())
    assert len(mixed) > 500 and np.mean(mixed) < 0.01


def test_token_after_special_token_starts_word() -> None:
    ids = np.tile(np.array([CLS, 21, 21, 10, SEP, 21, SEP, PAD], np.int32), [60, 1])
    result = masked(ids, (ids != PAD).astype(np.int32), range(60), options=MaskingOptions(whole_words=True))
    # One prediction: of the words [21 21], [10] and [21] only the last two fit.
    assert (np.sum(result.labels != -1, axis=1) == 1).all()
    assert set(result.positions[:, 0]) == {3, 5}


def test_bad_options() -> None:
    with pytest.raises(
        UserError, match=r"rate must be in \[0, 1\]; received 1.5; max_predictions must be at least 1; received 0"
    ):
        MaskingOptions(rate=1.5, max_predictions=0)
    with pytest.raises(UserError, match=r"at most 1; received 0.9 and 0.2"):
        MaskingOptions(mask_token_rate=0.9, random_token_rate=0.2)
    MaskingOptions(mask_token_rate=0.9, random_token_rate=0.1)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    import pocketbert as pb

    pieces = "[PAD] [UNK] [CLS] [SEP] [MASK] a ##b c ##d".split() + [f"e{number}" for number in range(30)]
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    # Windows' line ends: a token still is a line.
    path.write_bytes(("\r\n".join(pieces) + "\r\n").encode())
    return pb.WordPieceTokenizer(path)


def encoded_examples(labels: np.ndarray | None = None) -> EncodedExamples:
    generator = np.random.default_rng(4)
    lengths = generator.integers(4, 30, 53)
    rows = [np.array([2, *generator.integers(5, 39, length - 2), 3], np.int32) for length in lengths]
    words = np.concatenate(rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return EncodedExamples(words, np.zeros_like(words), offsets, 30, 0, labels=labels)


def test_a_vocabularys_facts(tokenizer: Any) -> None:
    facts = MaskingVocabulary.of(tokenizer)
    assert (facts.size, facts.mask_token_id, set(facts.special_ids)) == (39, 4, {0, 2, 3})
    assert np.flatnonzero(facts.continues).tolist() == [6, 8]


def test_masked_batches_resume_at_any_step(tokenizer: Any) -> None:
    encoded = encoded_examples()
    plan = plan_batches(encoded.lengths, batch_size=8, seed=1, epoch=5)
    options = MaskingOptions(max_predictions=6)
    arguments: dict[str, Any] = {"seed": 3, "epoch": 5, "options": options}
    plain = list(dataset(encoded, plan))
    inputs_alone = list(masked_dataset(encoded, plan, tokenizer, **arguments))
    with_labels = list(masked_dataset(encoded, plan, tokenizer, predictions=True, **arguments))
    assert len(plain) == len(inputs_alone) == len(with_labels) == len(plan) == 7
    for before, alone, (inputs, labels) in zip(plain, inputs_alone, with_labels, strict=True):
        assert alone.keys() == before.keys() and inputs.keys() == before.keys() | {"masked_lm_positions"}
        for name in before:
            np.testing.assert_array_equal(alone[name], inputs[name])
            if name != "input_word_ids":
                np.testing.assert_array_equal(alone[name], before[name])
        positions = inputs["masked_lm_positions"].numpy()
        assert positions.shape == labels.shape == (len(before["input_mask"]), 6)
        restored = inputs["input_word_ids"].numpy().copy()
        for row in range(len(restored)):
            counted = labels[row].numpy() != -1
            assert counted.any()
            restored[row, positions[row, counted]] = labels[row].numpy()[counted]
        np.testing.assert_array_equal(restored, before["input_word_ids"])
    later = list(masked_dataset(encoded, plan, tokenizer, start=4, **arguments))
    assert len(later) == 3
    for one, other in zip(inputs_alone[4:], later, strict=True):
        np.testing.assert_array_equal(one["input_word_ids"], other["input_word_ids"])
    with pytest.raises(ValueError, match="must have no labels"):
        masked_dataset(encoded_examples(np.zeros(53, np.int32)), plan, tokenizer, seed=0, epoch=0)


@pytest.mark.nightly
def test_mlm_learns_from_masked_batches(tokenizer: Any, tmp_path: Path) -> None:
    import tiny

    import pocketbert as pb
    from pocketbert.training.optimizers import AdamW

    # Every text is the same run of tokens, so that what is masked can be told from where it is.
    encoded = encoded_examples()
    cycle = np.arange(5, 39, dtype=np.int32)
    for start, end in zip(encoded.offsets, encoded.offsets[1:], strict=False):
        encoded.word_ids[start + 1 : end - 1] = cycle[: end - start - 2]
    config = tiny.BERT.replace(
        vocab_size=39, max_position_embeddings=30, num_layers=1, hidden_dropout=0.0, attention_dropout=0.0
    )
    model = pb.from_preset(config, [pb.TaskConfig(kind="masked_lm")], tokenizer, seed=0)
    model.compile(AdamW(1e-2))
    losses = []
    for epoch in range(6):
        plan = plan_batches(encoded.lengths, batch_size=8, seed=0, epoch=epoch)
        batches = masked_dataset(encoded, plan, tokenizer, seed=0, epoch=epoch, predictions=True)
        losses += model.fit(batches, verbose=0).history["loss"]
    # It starts at or above log(39) = 3.7 nats, what guessing costs.
    assert losses[0] > 3 and losses[-1] < losses[0] / 2
