"""GLUE submission: a zip for https://gluebenchmark.com with a prediction file for each test set.

Each file has the header `index<TAB>prediction` and one row per test row, numbered from 0. A prediction is a label as in
the training file, or a score for STS-B. The server requires all eleven files.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pocketbert.data.readers.glue import GLUE
from pocketbert.files import new_file

# STS-B's scores.
LOWEST_SCORE, HIGHEST_SCORE = 0.0, 5.0
# The earliest date in a zip. A constant, so that the same predictions give the same bytes.
_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class SubmissionFile:
    """A file in the zip.

    Attributes:
      name: name in the zip.
      task: GLUE task; its model makes the predictions.
      split: test split, as in `read_glue`.
      rows: number of rows in the official test file, checked by the server.
    """

    name: str
    task: str
    split: str
    rows: int


FILES = (
    SubmissionFile("CoLA.tsv", "cola", "test", 1_063),
    SubmissionFile("SST-2.tsv", "sst2", "test", 1_821),
    SubmissionFile("MRPC.tsv", "mrpc", "test", 1_725),
    SubmissionFile("STS-B.tsv", "stsb", "test", 1_379),
    SubmissionFile("QQP.tsv", "qqp", "test", 390_965),
    SubmissionFile("MNLI-m.tsv", "mnli", "test_matched", 9_796),
    SubmissionFile("MNLI-mm.tsv", "mnli", "test_mismatched", 9_847),
    SubmissionFile("AX.tsv", "mnli", "diagnostic", 1_104),
    SubmissionFile("QNLI.tsv", "qnli", "test", 5_463),
    SubmissionFile("RTE.tsv", "rte", "test", 3_000),
    SubmissionFile("WNLI.tsv", "wnli", "test", 146),
)

# The most frequent training label, and STS-B's mean score. MNLI and QNLI have equally frequent labels.
CONSTANTS = {
    "cola": "1",
    "sst2": "1",
    "mrpc": "1",
    "stsb": "2.701",
    "qqp": "0",
    "mnli": "entailment",
    "qnli": "entailment",
    "rte": "entailment",
    "wnli": "0",
}


def files_of(task: str) -> tuple[SubmissionFile, ...]:
    """Returns the prediction files for one task: three for MNLI, one for any other."""
    return tuple(file for file in FILES if file.task == task)


def as_texts(task: str, predictions: np.ndarray) -> tuple[list[str], int]:
    """Formats predictions for the server.

    Args:
      task: a GLUE task.
      predictions: `[N]`, class indices in the task's label order, or scores.
    Returns:
      The texts, and the number of scores clipped to STS-B's range.
    """
    glue = GLUE[task]
    if glue.has_scores:
        within = np.clip(predictions, LOWEST_SCORE, HIGHEST_SCORE)
        return [f"{score:.3f}" for score in within], int((within != predictions).sum())
    written = {label: text for text, label in glue.label_texts.items()}
    texts = [written.get(label, label) for label in glue.task.labels]
    return [texts[index] for index in predictions], 0


def write_submission(
    path: str | os.PathLike[str], answers: Mapping[str, Sequence[str]], *, overwrite: bool = False
) -> None:
    """Writes the zip, and renames it into place once complete. The same predictions give the same bytes.

    Args:
      path: zip path.
      answers: name in the zip → predictions as texts, in test file order.
      overwrite: replace an existing file.
    """
    with new_file(path, overwrite=overwrite) as stream, zipfile.ZipFile(stream, "w") as archive:
        for name in sorted(answers):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            rows = "".join(f"{index}\t{text}\n" for index, text in enumerate(answers[name]))
            archive.writestr(entry, f"index\tprediction\n{rows}")
