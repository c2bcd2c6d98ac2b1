"""GLUE submission zip."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from pocketbert.data.readers.glue import GLUE, read_glue
from pocketbert.data.readers.submission import CONSTANTS, FILES, as_texts, files_of, write_submission

# What GLUE's baselines (nyu-mll/jiant) and transformers' examples write, file by file.
LABELS = {
    "cola": ["0", "1"],
    "sst2": ["0", "1"],
    "mrpc": ["0", "1"],
    "qqp": ["0", "1"],
    "wnli": ["0", "1"],
    "mnli": ["entailment", "neutral", "contradiction"],
    "qnli": ["entailment", "not_entailment"],
    "rte": ["entailment", "not_entailment"],
}


def test_the_servers_files() -> None:
    names = "AX CoLA MNLI-m MNLI-mm MRPC QNLI QQP RTE SST-2 STS-B WNLI"
    assert sorted(file.name for file in FILES) == [f"{name}.tsv" for name in names.split()]
    assert {file.task for file in FILES} == set(GLUE) == set(CONSTANTS)
    assert all(file.split in GLUE[file.task].test_splits for file in FILES)
    assert {file.name: file.split for file in files_of("mnli")} == {
        "MNLI-m.tsv": "test_matched", "MNLI-mm.tsv": "test_mismatched", "AX.tsv": "diagnostic"
    }  # fmt: skip


@pytest.mark.parametrize("task", LABELS)
def test_labels_have_the_servers_spelling(task: str) -> None:
    indices = np.array([1, 0, len(LABELS[task]) - 1, 0], np.int64)
    assert as_texts(task, indices) == ([LABELS[task][index] for index in indices], 0)
    assert CONSTANTS[task] in LABELS[task]


def test_scores_are_moved_into_their_range() -> None:
    scores = np.array([-0.2, 0.0, 2.34567, 5.0, 5.001, 7], np.float32)
    assert as_texts("stsb", scores) == (["0.000", "0.000", "2.346", "5.000", "5.000", "5.000"], 3)


def test_equal_predictions_give_equal_zips(tmp_path: Path) -> None:
    answers = {"SST-2.tsv": ["1", "0", "1"], "AX.tsv": ["neutral", "entailment"]}
    write_submission(tmp_path / "one.zip", answers)
    write_submission(tmp_path / "two.zip", dict(reversed(answers.items())))
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["AX.tsv", "SST-2.tsv"]
        assert archive.read("SST-2.tsv") == b"index\tprediction\n0\t1\n1\t0\n2\t1\n"
        assert archive.read("AX.tsv") == b"index\tprediction\n0\tneutral\n1\tentailment\n"
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert [path.name for path in tmp_path.glob(".*")] == []


@pytest.mark.data
@pytest.mark.parametrize("task", ["cola", "sst2", "mrpc", "rte", "wnli"])
def test_constants_are_most_frequent_labels(shared: Path, task: str) -> None:
    labels = read_glue(task, shared / "data" / "glue", "train").labels
    assert labels is not None
    assert as_texts(task, np.array([np.bincount(labels).argmax()]))[0] == [CONSTANTS[task]]


@pytest.mark.data
def test_wnli_dev_reverses_training_labels(shared: Path) -> None:
    """What docs/how-to/glue.md says of it."""
    train, dev = (read_glue("wnli", shared / "data" / "glue", split) for split in ("train", "dev"))
    assert train.pairs is not None and dev.pairs is not None and train.labels is not None and dev.labels is not None
    assert len(dev) == 71 and sum(text in train.texts for text in dev.texts) == 65

    def words(text: str, pair: str) -> set[str]:
        return set(f"{text} {pair}".lower().split())

    training_words = [words(*row) for row in zip(train.texts, train.pairs, strict=True)]
    right = 0
    for text, pair, label in zip(dev.texts, dev.pairs, dev.labels, strict=True):
        test_words = words(text, pair)
        nearest = max(
            range(len(training_words)),
            key=lambda row: len(training_words[row] & test_words) / len(training_words[row] | test_words),
        )
        right += train.labels[nearest] == label
    # The label of the most similar training pair (Jaccard of words) is wrong 7 times of 8.
    assert right == 9
    assert (dev.labels == 0).sum() == 40
