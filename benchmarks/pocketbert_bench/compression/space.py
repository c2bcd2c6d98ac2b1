"""Predict disk space for a compression from its networks' sizes."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from pocketbert.checkpoints.name_maps import parameter_count
from pocketbert.configs import EncoderConfig
from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert_bench.compression.candidates import StudentCandidate
from pocketbert_bench.compression.costs import CostModel
from pocketbert_bench.compression.inputs import Inputs
from pocketbert_bench.compression.published import PUBLISHED
from pocketbert_bench.compression.rungs import KEPT, PROMOTED

# While a network trains: the best weights, and two checkpoints of weights and two moments.
_COPIES = 7
# Longer trainings for the best third, which keep their weights, too.
_LONGER = 2
# A folder's tokenizer, logs and pages.
_SMALL_FILES = 1_000_000


def space_needed(
    inputs: Inputs, costs: Mapping[str, CostModel], candidates: Sequence[StudentCandidate], parallel: int
) -> int:
    """Predicts the most bytes on the disk at a time.

    Args:
      inputs: the compression's input.
      costs: each recipe's model.
      candidates: candidates in the order of trials.
      parallel: number of trials at a time.
    """
    config, trials = inputs.described.config, min(inputs.trials or len(candidates), len(candidates))
    teacher = 0 if inputs.is_teacher else _bytes(config)
    # The largest ones, since nobody knows which keep their weights.
    kept = min(trials, KEPT)
    sizes = sorted(_bytes(candidate.structure.config(config)) + _SMALL_FILES for candidate in candidates)[-kept:]
    files = sorted(1e6 * candidate.cost.size_mb + _SMALL_FILES for candidate in candidates)[-kept:]
    stored = teacher + 1e6 * costs[inputs.recipe].predict(config, inputs.shares).size_mb + sum(sizes)
    stored += _LONGER * math.ceil(kept / PROMOTED) * sizes[-1]
    stored += sum(_bytes(student.architecture) + _SMALL_FILES for student in inputs.students if student.is_part)
    # Beside its copies, each has its initial weights.
    training = min(parallel, trials) * (_COPIES + 1) * sizes[-1]
    # Exports begin when training has ended.
    return int(max(_COPIES * teacher, stored + max(training, sum(files) + sizes[-1] + files[-1])))


def check_space(needed: int, folder: Path) -> None:
    """Logs the space that a compression needs beyond its present files; raises a `UserError` if the disk has less."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    # A finished result stays until a larger budget's result replaces it.
    names = [path for path in folder.glob("*") if path.name not in PUBLISHED]
    files = [path for name in names for path in (name, *name.rglob("*")) if path.is_file()]
    there = sum(path.stat().st_size for path in files)
    free, more = shutil.disk_usage(existing).free, max(needed - there, 0)
    log_info(f"up to {more / 1e6:,.0f} MB of disk space are needed; {free / 1e6:,.0f} MB are free")
    if more > free:
        raise UserError(
            f"the disk of {folder} must have {more:,} free bytes; received {free:,}; free some space, choose another "
            f"{argument('output')}, or pass a smaller {argument('trials')} or {argument('minutes')}"
        )


def _bytes(config: EncoderConfig) -> int:
    """Bytes for the weights in float32."""
    return 4 * parameter_count(config)
