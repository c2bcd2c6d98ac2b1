"""After a kill at any change of the file system, the same command ends as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import forks
import killed_commands
import pytest


@pytest.mark.slow
@pytest.mark.parametrize("name", killed_commands.commands(Path()))
def test_killed_at_each_change(name: str, tmp_path: Path) -> None:
    done = forks.run(Path(killed_commands.__file__), [name, str(tmp_path)], paths=[forks.HELPERS], timeout=3600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"{name}: " in done.stdout
