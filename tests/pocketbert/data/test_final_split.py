"""Splits for choices among models: nothing that chooses reads the final examples."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tiny_finetuning

import pocketbert as pb
from pocketbert.data.examples import Examples
from pocketbert.data.final_split import all_examples, fold_count, folds_of, three_splits
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError


def given_dev(train: Examples, dev: Examples) -> TaskData:
    return TaskData(task=tiny_finetuning.TASK, train=train, dev=dev)


def drawn_dev(count: int) -> TaskData:
    examples = tiny_finetuning.examples(count, seed=5)
    labels = [tiny_finetuning.TASK.labels[number] for number in examples.labels]
    return pb.data.table({"text": list(examples.texts), "label": labels})


def texts_of(*parts: Examples) -> list[set[str]]:
    return [set(part.texts) for part in parts]


def test_a_given_dev_split_stays_and_the_final_one_is_drawn() -> None:
    examples = tiny_finetuning.examples(700, seed=5)
    data = given_dev(examples.select(range(600)), examples.select(range(600, 700)))
    splits = three_splits(data, seed=2)
    assert splits.final is not None
    train, final = texts_of(splits.data.train, splits.final.dev)
    assert not train & final and len(splits.final.dev) >= 100
    assert len(splits.data.train) + len(splits.final.dev) == 600
    assert splits.data.dev.texts == data.dev.texts


def test_texts_of_a_given_dev_split_are_not_final() -> None:
    examples = tiny_finetuning.examples(700, seed=5)
    data = given_dev(examples, examples.select(range(0, 700, 3)))
    splits = three_splits(data, seed=2)
    assert splits.final is not None
    train, dev, final = texts_of(splits.data.train, splits.data.dev, splits.final.dev)
    assert not dev & final and not train & final and dev <= train
    assert 100 <= len(splits.final.dev) <= 120 and len(splits.data.train) + len(splits.final.dev) == 700
    with pytest.raises(UserError, match="not in the dev split; received 0 in made for the test; pass test="):
        three_splits(given_dev(examples, examples), seed=2)


@pytest.mark.parametrize(("count", "least"), [(500, 100), (1400, 200)])
def test_drawn_splits_have_a_sixth_and_no_common_text(count: int, least: int) -> None:
    splits = three_splits(drawn_dev(count), seed=3)
    assert splits.final is not None
    parts = splits.data.train, splits.data.dev, splits.final.dev
    train, dev, final = texts_of(*parts)
    assert not train & dev and not train & final and not dev & final
    assert sum(map(len, parts)) == count
    assert all(least <= len(part) <= 1.2 * max(least, 0.15 * count) for part in parts[1:])


def test_texts_of_other_splits_are_left_out_of_test_examples() -> None:
    examples, more = tiny_finetuning.examples(600, seed=5), tiny_finetuning.examples(300, seed=6)
    data = given_dev(examples, examples.select(range(100)))
    splits = three_splits(dataclasses.replace(data, test=more))
    assert splits.final is not None
    assert set(splits.final.dev.texts) == set(more.texts) - set(examples.texts)
    with pytest.raises(UserError, match="at least 100 new examples; received 0"):
        three_splits(dataclasses.replace(data, test=examples))


def test_every_example_is_final_once() -> None:
    data = drawn_dev(207)
    folds = folds_of(data, 4, seed=1)
    finals = [text for fold in folds if fold.final for text in fold.final.dev.texts]
    whole = all_examples(data, seed=1)
    assert whole.final is None
    assert sorted(finals) == sorted([*whole.data.train.texts, *whole.data.dev.texts]) and len(finals) == 207
    for fold in folds:
        assert fold.final is not None
        train, dev, final = texts_of(fold.data.train, fold.data.dev, fold.final.dev)
        assert not train & dev and not train & final and not dev & final
        shares = np.bincount(fold.final.dev.labels) / len(fold.final.dev)
        np.testing.assert_allclose(shares, np.bincount(whole.data.train.labels) / len(whole.data.train), atol=0.12)


def test_texts_of_a_given_dev_split_are_final_in_no_fold(capsys: pytest.CaptureFixture[str]) -> None:
    examples = tiny_finetuning.examples(317, seed=5)
    data = given_dev(examples, examples.select(range(0, 317, 3)))
    folds = folds_of(data, 4, seed=1)
    chosen = set(data.dev.texts)
    assert sum(text in chosen for text in examples.texts) >= 106
    finals = [text for fold in folds if fold.final for text in fold.final.dev.texts]
    assert sorted(finals) == sorted(text for text in examples.texts if text not in chosen)
    for fold in folds:
        assert fold.final is not None and fold.data.dev.texts == data.dev.texts
        train, final = texts_of(fold.data.train, fold.final.dev)
        assert chosen <= train and not train & final
        assert len(fold.data.train) + len(fold.final.dev) == 317
    assert "training examples have texts of the dev split, so they are not final" in capsys.readouterr().err
    with pytest.raises(UserError, match="not in the dev split; received 0 in made for the test; pass test="):
        folds_of(given_dev(examples, examples), 4)


def test_few_examples_get_five_folds_and_very_few_are_refused() -> None:
    assert fold_count(drawn_dev(499), None) == 5
    assert fold_count(drawn_dev(500), None) == 0
    assert fold_count(drawn_dev(500), 3) == 3
    with_test = dataclasses.replace(drawn_dev(300), test=tiny_finetuning.examples(120, seed=9))
    assert fold_count(with_test, None) == 0
    with pytest.raises(UserError, match="at least 100 examples; received 99"):
        fold_count(drawn_dev(99), None)
    with pytest.raises(UserError, match="must lie between 2 and a tenth of the 300 examples; received 31"):
        fold_count(drawn_dev(300), 31)
    with pytest.raises(UserError, match="received test examples, too"):
        fold_count(with_test, 5)


def test_folds_need_as_many_different_texts() -> None:
    examples = tiny_finetuning.examples(120, seed=5)
    same = dataclasses.replace(examples, texts=tuple(examples.texts[number % 3] for number in range(120)))
    dev = dataclasses.replace(examples, texts=[f"dev {number}" for number in range(120)])
    with pytest.raises(UserError, match="4 folds need at least 4 different texts; received 3"):
        folds_of(given_dev(same, dev), 4)
