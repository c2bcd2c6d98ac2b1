"""Three splits: for training, for model selection, and for the final score alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pocketbert.data.examples import LabelledData
from pocketbert.data.label_strata import label_folds, rows_by_group
from pocketbert.data.shared_texts import SharedTexts
from pocketbert.data.task_data import TaskData
from pocketbert.data.train_dev_split import train_dev_split
from pocketbert.errors import UserError, raise_if_any
from pocketbert.notation import argument
from pocketbert.progress import log_info

# Share and fewest examples for a drawn dev or final split.
SHARE, LEAST = 0.15, 100
# Below this many examples, each is final in one fold.
FOLDED, FOLDS = 500, 5
# Maximum number of rare labels in a message.
_SHOWN = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThreeSplits:
    """Data for model selection.

    Attributes:
      data: training examples, and the dev split for the selection.
      final: examples for the final score alone; None if folds give it.
    """

    data: TaskData
    final: TaskData | None


def fold_count(data: TaskData, folds: int | None) -> int:
    """Returns the number of folds for the final score; 0 for one final split.

    Args:
      data: the examples.
      folds: your number, or None: five folds below 500 examples without a test split, else none.
    Raises:
      UserError: fewer than 100 examples, folds beside a test split, or a number that is too small or large.
    """
    count = len(_drawn_from(data))
    if count < LEAST:
        raise UserError(
            f"a choice among models needs at least {LEAST} examples; received {count} in {data.train.source}; label "
            "more, or fine-tune and export one model with pocketbert bundle"
        )
    if folds is None:
        return FOLDS if count < FOLDED and data.test is None else 0
    if data.test is not None:
        raise UserError(
            f"{argument('kfold')} scores the training examples; received test examples, too; leave one of them out"
        )
    if not 2 <= folds <= count // 10:
        raise UserError(f"{argument('kfold')} must lie between 2 and a tenth of the {count} examples; received {folds}")
    return folds


def three_splits(data: TaskData, *, seed: int = 0) -> ThreeSplits:
    """Divides labelled data; examples with the same text stay together, and classes and labels keep their shares.

    Args:
      data: the examples. A dev split that you passed stays; a drawn one is drawn again, with 15 % of the examples, at
        least 100. The final split is `test` without texts in other splits; without `test`, it is drawn in the same way,
        without texts in a passed dev split. Augmented examples are left out: they may stem from final ones.
      seed: random seed.
    Raises:
      UserError: fewer than 100 examples can be final.
    """
    rows = _drawn_from(data)
    share = max(SHARE, LEAST / len(rows)) if len(rows) >= FOLDED else SHARE
    final = data.test
    if final is None:
        rows, final = _without_dev_texts(data, rows, share, seed)
        # The same number of examples again.
        share /= 1 - share
    else:
        final = _new_examples(data, final)
    divided = _with_dev(data, rows, share, seed)
    return ThreeSplits(data=divided, final=dataclasses.replace(divided, dev=final))


def folds_of(data: TaskData, count: int, seed: int = 0) -> list[ThreeSplits]:
    """Divides labelled data so that every example is final in one fold; otherwise as `three_splits`.

    Examples with texts in a passed dev split are never final. They are training examples in each fold.

    Raises:
      UserError: there are fewer different texts than folds, or fewer than 100 examples can be final.
    """
    rows = _drawn_from(data)
    new, splits = np.array(_new_rows(data, rows)), []
    for _, fold in fold_indices(rows.select(new), count, seed):
        final = new[fold]
        divided = _with_dev(data, rows.select(np.setdiff1d(np.arange(len(rows)), final)), SHARE, seed)
        splits.append(ThreeSplits(data=divided, final=dataclasses.replace(divided, dev=rows.select(final))))
    return splits


def fold_indices(rows: LabelledData, count: int, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns training indices and final indices for each fold, int64, ascending.

    Examples with the same text are in the same fold. Classes keep their shares (scikit-learn's `StratifiedGroupKFold`),
    and so does each of several labels (`label_folds`); other examples have `GroupKFold`. With several heads, each
    head's texts, classes and labels keep their shares.

    Raises:
      UserError: there are fewer different texts than folds, or a fold lacks labels for a head.
    """
    from sklearn.model_selection import GroupKFold, StratifiedGroupKFold

    groups = _text_numbers(rows)
    texts = len(set(groups.tolist()))
    if texts < count:
        raise UserError(
            f"{count} folds need at least {count} different texts; received {texts} in {rows.source}; "
            f"pass {argument('kfold', 2)}, or more texts"
        )
    label_sets = rows.strata if isinstance(rows, SharedTexts) else rows.label_sets
    if label_sets is not None:
        fold_of = label_folds(label_sets, groups, count, seed)
        if isinstance(rows, SharedTexts):
            _check_heads(rows, fold_of, count)
        return [(np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)) for fold in range(count)]
    if rows.classes is None:
        return list(GroupKFold(count, shuffle=True, random_state=seed).split(groups, groups=groups))
    folds = StratifiedGroupKFold(count, shuffle=True, random_state=seed)
    return list(folds.split(groups, rows.classes, groups))


def examples_to_fold(data: TaskData, count: int) -> LabelledData:
    """Returns all examples for cross-validation, from data without a dev split of its own.

    Args:
      data: the examples.
      count: number of folds.
    Raises:
      UserError: a passed dev or test split, more folds than half the examples, or a class with fewer texts than folds.
    """
    kfold, problems = argument("kfold", count), []
    if data.undivided is None:
        problems.append(
            f"{kfold} draws the splits from the training examples; received a dev split, too; leave out "
            f"{argument('dev')} or {kfold}"
        )
    if data.test is not None:
        problems.append(f"{kfold} scores the training examples; received test examples, too; leave one of them out")
    raise_if_any(problems, "folds")
    rows = _drawn_from(data)
    if not 2 <= count <= len(rows) // 2:
        raise UserError(
            f"{argument('kfold')} must lie between 2 and half of the {len(rows)} examples; received {count}; pass "
            "another number, or more examples"
        )
    for task in data.task.tasks or (data.task,):
        _check_labels(rows.parts[task.name] if isinstance(rows, SharedTexts) else rows, task.labels, count)
    return rows


def _check_labels(rows: LabelledData, labels: Sequence[str], count: int) -> None:
    """Raises `UserError` if a class has fewer different texts than folds; for label sets, only logs such labels."""
    groups = _text_numbers(rows)
    if rows.classes is not None:
        by_class = {label: len(set(groups[rows.classes == label].tolist())) for label in set(rows.classes.tolist())}
        label = min(by_class, key=lambda index: (by_class[index], index))
        if by_class[label] < count:
            remedy = f"pass {argument('kfold', by_class[label])}, or more" if by_class[label] > 1 else "pass more"
            raise UserError(
                f"{count} folds need at least {count} different texts of each label; received {by_class[label]} of "
                f"{labels[label]!r} in {rows.source}; {remedy} texts with this label"
            )
    if rows.label_sets is not None:
        texts = (rows_by_group(rows.label_sets, groups) > 0).sum(axis=0).tolist()
        rare = [f"{label!r} ({number})" for label, number in zip(labels, texts, strict=True) if number < count]
        if rare:
            more = "" if len(rare) <= _SHOWN else f" and {len(rare) - _SHOWN} more"
            log_info(f"some of the {count} folds lack labels with fewer texts: {', '.join(rare[:_SHOWN])}{more}")


def _check_heads(rows: SharedTexts, fold_of: np.ndarray, count: int) -> None:
    """Raises a `UserError` if a fold lacks labels for a head."""
    missing = [name for name in rows.parts if len(set(fold_of[rows.rows_of(name)].tolist())) < count]
    if missing:
        raise UserError(
            f"{count} folds need texts with labels for each head in every fold; received too few for "
            f"{', '.join(missing)} in {rows.source}; pass {argument('kfold', 2)}, or more texts"
        )


def all_examples(data: TaskData, seed: int = 0) -> ThreeSplits:
    """Uses all examples for training and selection, where folds give the final score."""
    return ThreeSplits(data=_with_dev(data, _drawn_from(data), SHARE, seed), final=None)


def _drawn_from(data: TaskData) -> LabelledData:
    """Returns the examples from which splits are drawn."""
    undivided = data.undivided
    whole = undivided is not None and len(undivided) == len(data.train) + len(data.dev)
    return undivided if undivided is not None and whole else data.train


def _text_numbers(rows: LabelledData) -> np.ndarray:
    """Numbers the texts, int64 [N]; equal texts have the same number."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(text, len(numbers)) for text in rows.split_keys], np.int64)


def _with_dev(data: TaskData, rows: LabelledData, share: float, seed: int) -> TaskData:
    """Replaces the training rows; draws the dev split from them if the data's was drawn."""
    dev = data.dev
    if _drawn_from(data) is data.undivided:
        rows, dev = train_dev_split(rows, share, seed, stratify=True)
    return dataclasses.replace(data, train=rows, dev=dev, augmented=None, undivided=None, test=None)


def _without_dev_texts(
    data: TaskData, rows: LabelledData, share: float, seed: int
) -> tuple[LabelledData, LabelledData]:
    """Returns training rows and a final split; see `_new_rows`."""
    new = _new_rows(data, rows)
    if len(new) == len(rows):
        return train_dev_split(rows, share, seed, stratify=True)
    _, final = train_dev_split(rows.select(new), min(share * len(rows) / len(new), 0.5), seed, stratify=True)
    chosen = set(final.split_keys)
    return rows.select([index for index, text in enumerate(rows.split_keys) if text not in chosen]), final


def _new_rows(data: TaskData, rows: LabelledData) -> list[int]:
    """Returns rows that may be final: their texts are not in a passed dev split. Raises `UserError` if too few stay."""
    known = set() if _drawn_from(data) is data.undivided else set(data.dev.split_keys)
    new = [index for index, text in enumerate(rows.split_keys) if text not in known]
    if len(new) == len(rows):
        return new
    if len(new) < LEAST:
        raise UserError(
            f"final scores need at least {LEAST} examples whose texts are not in the dev split; received {len(new)} in "
            f"{rows.source}; pass {argument('test_file', python='test=')}"
        )
    log_info(f"{len(rows) - len(new)} training examples have texts of the dev split, so they are not final")
    return new


def _new_examples(data: TaskData, final: LabelledData) -> LabelledData:
    """Returns the final examples with texts in no other split."""
    texts = {text for part in (data.train, data.dev) for text in part.split_keys}
    new = [index for index, text in enumerate(final.split_keys) if text not in texts]
    if len(new) < len(final):
        log_info(f"{len(final) - len(new)} of {len(final)} final examples have texts of the others: left out")
    if len(new) < LEAST:
        raise UserError(f"final scores need at least {LEAST} new examples; received {len(new)} in {final.source}")
    selected: LabelledData = final.select(new)
    return selected


def recorded_parts(whole: LabelledData, parts: Iterable[LabelledData]) -> dict[str, Any]:
    """Returns the record for parts drawn from examples: digests for several labels, nothing for others.

    Earlier commits drew without label strata. The digests keep a run with their parts from continuing with others.
    """
    return {} if whole.label_sets is None else {"parts_sha256": [part.identity for part in parts]}
