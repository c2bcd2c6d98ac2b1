"""After a kill at any change of the file system, the same command ends as if nothing had happened."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
NAMES = (
    "convert", "convert_overwrite", "export", "export_overwrite", "finetune", "finetune_overwrite", "augment",
    "augment_overwrite", "pretrain_data", "pretrain_data_overwrite", "distill", "cache_teacher", "bundle",
)  # fmt: skip


def kill(names: str, folder: Path, every: int) -> str:
    done = subprocess.run(
        [sys.executable, str(TESTS / "killed_commands.py"), names, str(folder), str(every)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_killed_at_each_change(name: str, tmp_path: Path) -> None:
    assert f"{name}: " in kill(name, tmp_path, 1)
