"""Write a finished compression's files aside, and exchange them for those from an earlier, smaller budget."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pocketbert.output_folders import remove
from pocketbert.training.run_folder import MODEL_FOLDER, REPORT_FILE, record_outcome
from pocketbert.trials.jobs import RESULT_FILE, read_result
from pocketbert.trials.scores import front
from pocketbert_bench.compression.candidates import StudentCandidate
from pocketbert_bench.compression.outcome import LEADERBOARD_FILE

# New files until all are there.
ASIDE_FOLDER = "next"
BUNDLE_FOLDER, MODELS_FOLDER = "bundle", "models"
# The result comes last: with it, the new files are complete.
PUBLISHED = (BUNDLE_FOLDER, MODEL_FOLDER, MODELS_FOLDER, REPORT_FILE, LEADERBOARD_FILE)


def publish(folder: Path, temporary: tuple[str, ...]) -> None:
    """Puts the complete files from `ASIDE_FOLDER` in place, even if a killed attempt began; removes incomplete ones.

    Args:
      folder: the compression's folder.
      temporary: names in it that nothing reads after the result.
    """
    aside = folder / ASIDE_FOLDER
    if (aside / RESULT_FILE).exists():
        for name in (name for name in PUBLISHED if (aside / name).exists()):
            remove(folder / name)
            os.replace(aside / name, folder / name)
        for name in temporary:
            shutil.rmtree(folder / name, ignore_errors=True)
        record_outcome(folder, read_result(aside / RESULT_FILE)["outcome"])
        os.replace(aside / RESULT_FILE, folder / RESULT_FILE)
    shutil.rmtree(aside, ignore_errors=True)


def kept_models(folder: Path) -> dict[str, Path]:
    """Candidate's name → model directory kept by the finished compression in `folder`; empty without one."""
    path = folder / RESULT_FILE
    rows = read_result(path)["leaderboard"] if path.exists() else ()
    return {row["name"]: (folder / row["model"]).absolute() for row in rows if row["model"]}


def link(source: Path, target: Path) -> None:
    """Copies a folder by links, if the file system has them; only for files that are always replaced as a whole."""
    shutil.copytree(source, target, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def kept_folders(board: Sequence[tuple[StudentCandidate, dict[str, Any]]]) -> dict[StudentCandidate, str]:
    """The winner and the other candidates on the front → their folders in the run."""
    best = front(board, lambda pair: pair[1]["latency_ms"], lambda pair: pair[1]["score"])
    return {
        # The winner's model has its bundle's vocabulary; the whole one can train further.
        candidate: MODEL_FOLDER if row["chosen"] and not candidate.trimmed else f"{MODELS_FOLDER}/{candidate.name}"
        for candidate, row in board
        if row["chosen"] or (candidate, row) in best
    }
