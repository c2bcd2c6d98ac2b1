from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pocketbert.data import batches
from pocketbert.data.batches import EncodedExamples, dataset, encode, plan_batches
from pocketbert.data.examples import Examples
from pocketbert_runtime.rows import bucketed


class LetterTokenizer:
    """A tokenizer's interface: one token a letter, in brackets."""

    pad_token_id = 3

    def __init__(self) -> None:
        self.calls: list[int] = []

    def __call__(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, max_length: int = 128
    ) -> dict[str, np.ndarray]:
        self.calls.append(len(texts))
        rows, types = [], []
        for index, text in enumerate(texts):
            first = [1, *map(ord, text)]
            second = [] if pairs is None else [2, *map(ord, pairs[index])]
            rows.append((first + second)[:max_length])
            types.append(([0] * len(first) + [1] * len(second))[:max_length])
        width = max(map(len, rows))
        return {
            "input_word_ids": np.asarray([row + [3] * (width - len(row)) for row in rows], np.int32),
            "input_mask": np.asarray([[1] * len(row) + [0] * (width - len(row)) for row in rows], np.int32),
            "input_type_ids": np.asarray([row + [0] * (width - len(row)) for row in types], np.int32),
        }


def _examples(count: int, pairs: bool = True, seed: int = 0) -> Examples:
    generator = np.random.default_rng(seed)
    return Examples(
        texts=["x" * int(length) for length in generator.integers(1, 30, count)],
        pairs=["y" * int(length) for length in generator.integers(0, 30, count)] if pairs else None,
        labels=np.arange(count, dtype=np.int32),
        ids=[str(number) for number in range(count)],
        source="made up",
    )


LENGTHS = np.random.default_rng(7).integers(3, 57, 1003)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("batch_size", [1, 7, 16, 1003, 2000])
def test_plan_contains_each_example_once(batch_size: int, shuffle: bool) -> None:
    plan = plan_batches(LENGTHS, batch_size=batch_size, seed=1, epoch=2, shuffle=shuffle)
    assert sorted(np.concatenate(plan).tolist()) == list(range(1003))
    assert [len(indices) for indices in plan[:-1]] == [batch_size] * (len(plan) - 1)
    assert len(plan) == -(-1003 // batch_size)


def test_plan_depends_on_seed_and_epoch() -> None:
    def flat(seed: int, epoch: int) -> list[int]:
        return np.concatenate(plan_batches(LENGTHS, batch_size=16, seed=seed, epoch=epoch)).tolist()

    assert flat(1, 0) == flat(1, 0)
    different = [flat(1, 0), flat(1, 1), flat(0, 1), flat(2, 0)]
    assert len(set(map(tuple, different))) == len(different)


def test_random_numbers_are_unchanged() -> None:
    # A resumed run must meet the plan that it was stopped in, whatever NumPy is installed then.
    plan = plan_batches(np.asarray([4, 30, 5, 6, 31, 7, 29]), batch_size=2, seed=5, epoch=3)
    assert [indices.tolist() for indices in plan] == [[0, 3], [1, 4], [2, 6], [5]]


def test_batches_have_one_length_in_random_order() -> None:
    plan = plan_batches(LENGTHS, batch_size=16, seed=1, epoch=0)[:-1]
    buckets = bucketed(LENGTHS, 128)
    mixed = sum(len(set(buckets[indices].tolist())) > 1 for indices in plan)
    # Seven buckets have six borders, and a border falls into at most one batch.
    assert len(set(buckets.tolist())) == 7 and mixed <= 6
    widths = np.asarray([buckets[indices].max() for indices in plan])
    assert abs(np.corrcoef(widths, np.arange(len(widths)))[0, 1]) < 0.4
    # Companions change from epoch to epoch: same bucket, new order inside it.
    again = plan_batches(LENGTHS, batch_size=16, seed=1, epoch=1)
    assert not {tuple(sorted(p.tolist())) for p in plan} & {tuple(sorted(p.tolist())) for p in again}


def test_leftover_batch_has_all_lengths() -> None:
    lengths = np.repeat([5, 50], 50)
    last = [plan_batches(lengths, batch_size=33, seed=0, epoch=epoch)[-1] for epoch in range(200)]
    long = np.mean([lengths[indices[0]] == 50 for indices in last])
    # A fair coin thrown 200 times: five standard deviations of 0.035.
    assert abs(long - 0.5) < 0.18


def test_windows_bound_the_sorting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "WINDOW_BATCHES", 3)
    plan = plan_batches(LENGTHS, batch_size=16, seed=1, epoch=0)
    assert sorted(np.concatenate(plan).tolist()) == list(range(1003))
    spread = np.mean([np.ptp(LENGTHS[indices]) for indices in plan])
    assert 8 < spread < np.ptp(LENGTHS) / 2


def test_evaluation_order_is_invertible() -> None:
    plan = plan_batches(LENGTHS, batch_size=16, seed=9, epoch=9, shuffle=False)
    buckets = bucketed(LENGTHS[np.concatenate(plan)], 128)
    assert (np.diff(buckets) >= 0).all()
    results = np.empty_like(LENGTHS)
    results[np.concatenate(plan)] = LENGTHS[np.concatenate(plan)]
    np.testing.assert_array_equal(results, LENGTHS)


@pytest.mark.parametrize(
    ("lengths", "options", "message"),
    [
        ([], {}, "N > 0"),
        ([[1, 2]], {}, r"received \(1, 2\)"),
        ([1], {"batch_size": 0}, "must be positive; received 0, 8"),
    ],
)
def test_invalid_plans_are_refused(lengths: list, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan_batches(np.asarray(lengths), **{"batch_size": 2, "seed": 0, "epoch": 0, **options})


def test_bucketed() -> None:
    np.testing.assert_array_equal(bucketed([1, 8, 9, 43, 45, 46], 46), [8, 8, 16, 46, 46, 46])


@pytest.fixture
def encoded() -> EncodedExamples:
    return encode(_examples(101), LetterTokenizer(), max_length=45)


def test_encode_in_chunks_equals_at_once(monkeypatch: pytest.MonkeyPatch, encoded: EncodedExamples) -> None:
    monkeypatch.setattr("pocketbert_runtime.rows._TEXTS_A_CALL", 13)
    tokenizer = LetterTokenizer()
    chunked = encode(_examples(101), tokenizer, max_length=45)
    assert tokenizer.calls == [13] * 7 + [10]
    for name in ("word_ids", "type_ids", "offsets", "labels"):
        np.testing.assert_array_equal(getattr(chunked, name), getattr(encoded, name))


def test_batch_equals_tokenized_rows(encoded: EncodedExamples) -> None:
    examples = _examples(101)
    assert examples.pairs is not None and examples.labels is not None
    indices = np.asarray([5, 100, 0])
    chosen = examples.select(indices)
    expected = LetterTokenizer()(chosen.texts, chosen.pairs, max_length=45)
    inputs, labels = encoded.batch(indices)
    real = expected["input_word_ids"].shape[1]
    width = min(-(-real // 8) * 8, 45)
    for name, padding in (("input_word_ids", 3), ("input_mask", 0), ("input_type_ids", 0)):
        assert inputs[name].shape == (3, width) and inputs[name].dtype == np.int32
        np.testing.assert_array_equal(inputs[name][:, :real], expected[name])
        assert (inputs[name][:, real:] == padding).all()
    assert labels is not None and labels.tolist() == [5, 100, 0]


@pytest.mark.parametrize("pairs", [True, False])
def test_dataset_starts_at_any_step(pairs: bool) -> None:
    encoded = encode(_examples(101, pairs), LetterTokenizer(), max_length=45)
    plan = plan_batches(encoded.lengths, batch_size=9, seed=4, epoch=1)
    for start in (0, 5, len(plan) - 1):
        got = list(dataset(encoded, plan, start))
        assert len(got) == len(plan) - start
        for (inputs, labels), indices in zip(got, plan[start:], strict=True):
            expected, expected_labels = encoded.batch(indices)
            assert set(inputs) == set(expected)
            for name, array in expected.items():
                np.testing.assert_array_equal(inputs[name].numpy(), array, strict=True)
            np.testing.assert_array_equal(labels.numpy(), expected_labels, strict=True)
    assert list(dataset(encoded, plan, len(plan))) == []


def test_few_widths_and_one_trace(encoded: EncodedExamples) -> None:
    import tensorflow as tf

    batches_of_epoch = dataset(encoded, plan_batches(encoded.lengths, batch_size=9, seed=4, epoch=1))
    traces = []

    @tf.function(input_signature=batches_of_epoch.element_spec)
    def step(inputs: dict[str, tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
        traces.append(1)
        return tf.reduce_sum(inputs["input_mask"])

    widths = {inputs["input_mask"].shape[1] for inputs, _ in batches_of_epoch}
    assert sum(int(step(*batch)) for batch in batches_of_epoch) == len(encoded.word_ids)
    assert len(traces) == 1
    assert widths <= {8, 16, 24, 32, 40, 45} and len(widths) > 2


def test_unlabelled_examples_give_inputs_alone() -> None:
    examples = _examples(5)
    bare = Examples(texts=examples.texts, pairs=None, labels=None, ids=examples.ids, source="made up")
    encoded = encode(bare, LetterTokenizer(), max_length=45)
    plan = plan_batches(encoded.lengths, batch_size=5, seed=0, epoch=0, shuffle=False)
    (inputs,) = dataset(encoded, plan)
    assert inputs["input_word_ids"].shape[0] == 5 and encoded.batch(plan[0])[1] is None


def test_bucketing_saves_two_thirds_of_tokens() -> None:
    # Lengths as SST-2's, mean 13 tokens: what the speed of bucketed training rests on.
    lengths = np.minimum(2 + np.random.default_rng(0).geometric(1 / 11, 5000), 66)
    plan = plan_batches(lengths, batch_size=16, seed=0, epoch=0)
    padded = sum(len(indices) * int(bucketed(lengths[indices].max(), 128)) for indices in plan)
    assert padded * 3 < 128 * len(lengths)
    assert padded < 1.5 * lengths.sum()


def test_no_tuner_that_the_end_of_an_epoch_waits_for(encoded: EncodedExamples) -> None:
    plan = plan_batches(encoded.lengths, batch_size=7, seed=0, epoch=0)
    assert dataset(encoded, plan).options().autotune.enabled is False
