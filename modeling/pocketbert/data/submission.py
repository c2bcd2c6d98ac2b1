"""GLUE's submission: a zip with a file of predictions for each test set, as https://gluebenchmark.com takes it.

Each file has the header `index<TAB>prediction` and a row for each row of the test set, numbered from 0: the label as
the training file writes it, or for STS-B a score. All eleven files must be there, or the server refuses the zip.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pocketbert.data.glue import GLUE
from pocketbert.files import new_file

# STS-B's scores.
LOWEST_SCORE, HIGHEST_SCORE = 0.0, 5.0
# The earliest that a zip can say: two zips of the same answers are the same bytes.
_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class SubmissionFile:
    """One file of the zip.

    Attributes:
      name: in the zip.
      task: the GLUE task whose model answers it.
      split: the test file that it answers, as `read_glue` calls it.
      rows: of the official test file; the server counts them.
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

# The answer that is most often right in the training file, and its mean score for STS-B; MNLI's and QNLI's labels are
# equally frequent there.
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
    """The files that one task's model answers: three for MNLI, one for every other."""
    return tuple(file for file in FILES if file.task == task)


def as_texts(task: str, predictions: np.ndarray) -> tuple[list[str], int]:
    """Writes predictions as the server reads them.

    Args:
      task: a GLUE task.
      predictions: `[N]`, class indices in the order of the task's labels, or scores.

    Returns:
      The texts, and how many scores had to be moved into STS-B's range.
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
    """Writes the zip beside `path`, then renames it into place. The same answers give the same bytes.

    Args:
      path: the zip.
      answers: name in the zip → predictions as texts, in the order of the test file's rows.
      overwrite: replace a file that is there.
    """
    with new_file(path, overwrite=overwrite) as stream, zipfile.ZipFile(stream, "w") as archive:
        for name in sorted(answers):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            rows = "".join(f"{index}\t{text}\n" for index, text in enumerate(answers[name]))
            archive.writestr(entry, f"index\tprediction\n{rows}")
