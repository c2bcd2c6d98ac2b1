"""Kills processes with SIGKILL at chosen moments; each attempt is a fork of this process.

`kill_before` counts changes of the file system, as Python's audit events see them: a file opened for writing, a rename,
a removal, a new folder. `kill_at` counts training steps, or files and folders renamed into place.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

_NAMED = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def before_each_change(root: Path, call: Callable[[int], object]) -> None:
    """Makes this process call a function before each of its changes within `root`, with the number, counted from 1."""
    change = 0
    calling = False

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal change, calling
        if calling:
            return
        if event == "open":
            if not isinstance(arguments[2], int) or not arguments[2] & _WRITING:
                return
        elif event not in _NAMED:
            return
        path = arguments[0]
        # Where a folder's descriptor is given the name is relative to it: `shutil.rmtree`, within our folders alone.
        inside = any(isinstance(argument, int) and argument > 2 for argument in arguments[1:]) and event != "open"
        if not inside and not isinstance(path, str | bytes | os.PathLike):
            return
        if not inside and not os.path.abspath(os.fsdecode(path)).startswith(f"{root}/"):
            return
        change += 1
        calling = True
        try:
            call(change)
        finally:
            calling = False

    sys.addaudithook(watch)


def kill_before(change: int, root: Path) -> None:
    """Makes this process kill itself before so many changes within `root`, counted from 1."""
    before_each_change(root, lambda number: os.kill(os.getpid(), signal.SIGKILL) if number == change else None)


def copy_before_changes(root: Path, folder: Path, every: int, first: int) -> None:
    """Makes this process copy `root` before its changes: what a kill would leave, since buffers are not written then.

    Copies are `FOLDER/killed_NUMBER`. A state that equals the last copy's is not copied again.
    """
    last: dict[str, Any] = {}

    def copy(number: int) -> None:
        nonlocal last
        if number < first or (number - first) % every:
            return
        state = tree(root)
        if state != last:
            shutil.copytree(root, folder / f"killed_{number}", symlinks=True)
        last = state

    before_each_change(root, copy)


def kill_at(moment: str, first: Callable[[], object] = lambda: None) -> None:
    """Makes this process kill itself at a moment of a `pocketbert` command.

    Args:
      moment: `step:N`, before the N-th training step; `aside:N`, before the N-th rename of a file or folder into place;
        `placed:N`, after it.
      first: called just before the end.
    """
    from pocketbert import files
    from pocketbert.training.trainer import Trainer

    event, number = moment.split(":")
    left = int(number)

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            first()
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(rename: Callable[..., Any]) -> Callable[..., Any]:
        def counted_rename(*arguments: Any) -> Any:
            if event == "aside":
                count()
            done = rename(*arguments)
            if event == "placed":
                count()
            return done

        return counted_rename

    if event != "step":
        os.replace, files._rename = counted(os.replace), counted(files._rename)
        return
    steps = Trainer.steps

    def counted_steps(self: Any, epoch: int, plan: Any, start: int) -> Iterator[Any]:
        count()
        for losses in steps(self, epoch, plan, start):
            yield losses
            count()

    Trainer.steps = counted_steps  # type: ignore[method-assign]


def attempt(action: Callable[[], int | None], before: Callable[[], object] = lambda: None) -> int:
    """Calls `before` and `action` in a process of its own; returns its exit code, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            before()
            code = action() or 0
        except Exception:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            sys.stdout.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def workers_of(parent: int) -> list[int]:
    """The numbers of a process' workers."""
    children = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, above = path.read_text().rpartition(")")[2].split()[:2]
            is_worker = b"spawn_main" in (path.parent / "cmdline").read_bytes()
            if int(above) == parent and state != "Z" and is_worker:
                children.append(int(path.parent.name))
    return children


def seconds_until(condition: Callable[[], object], timeout: float = 60) -> float:
    """Waits for a condition; how long it took."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + timeout, "waited in vain"
        time.sleep(0.02)
    return time.monotonic() - begun


def is_alive(pid: int) -> bool:
    """Whether a process runs; a dead one that nobody has asked about yet does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def tree(root: Path) -> dict[str, bytes | None]:
    """Everything below a folder: path → content, None for a folder."""
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes() for path in sorted(root.rglob("*"))
    }


@contextlib.contextmanager
def folder_in_memory(otherwise: Path) -> Iterator[Path]:
    """A folder whose files need no disk to be synced: a kill leaves those on a disk as it leaves these."""
    if os.access("/dev/shm", os.W_OK):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            yield Path(folder)
    else:
        yield otherwise


def kill_at_each_change(
    action: Callable[[Path], int | None],
    prepare: Callable[[Path], None],
    folder: Path,
    *,
    every: int = 1,
    first: int = 1,
    copied: bool = False,
    compared: Callable[[Path], Any] = tree,
) -> int:
    """Kills an action before each change that it makes, and calls it again, which must end as if it had not been.

    Args:
      action: works in the folder that it is given; its exit code. The second call may be refused, with 2, if the first
        one had completed the output.
      prepare: puts there what is there before.
      folder: for all attempts.
      every: kill at every so many changes.
      first: the first change to kill at, counted from 1.
      copied: take all states from one call, copied before each change, in place of a kill for each. For actions that
        record no inode.
      compared: what must be the same as after an undisturbed call.

    Returns:
      How many changes there were.
    """
    whole = folder / "whole"
    whole.mkdir()
    prepare(whole)
    changes = folder / "changes"

    def watch() -> None:
        before_each_change(whole, lambda number: changes.write_text(str(number)))
        if copied:
            copy_before_changes(whole, folder, every, first)

    assert attempt(partial(action, whole), watch) == 0
    expected = compared(whole)
    count = int(changes.read_text()) if changes.exists() else 0
    for change in range(first, count + 1, every):
        root = folder / f"killed_{change}"
        if not copied:
            root.mkdir()
            prepare(root)
            assert attempt(partial(action, root), partial(kill_before, change, root)) == -signal.SIGKILL
        elif not root.exists():
            continue
        before = compared(root)
        code = attempt(partial(action, root))
        after = compared(root)
        complete = code == 2 and all(before.get(name) == content for name, content in expected.items())
        assert code == 0 or complete, f"killed at change {change}, the action then ended with {code}: {sorted(before)}"
        different = [name for name in sorted({*after, *expected}) if after.get(name, ...) != expected.get(name, ...)]
        assert not different, f"killed at change {change}: {different} differ"
        shutil.rmtree(root)
    return count
