"""Finds the runtime, and checks its version: the one of the distribution pocketbert-runtime comes first."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

__version__ = "0.1.0"
# This distribution's copy, as setup.py places it. A .pth file adds the folder to the path, but not everywhere: `pip
# install --target` has no such files.
_FOLDER = Path(__file__).parents[1] / "pocketbert_wheel"


def _refuse(message: str) -> NoReturn:
    """Ends a command with one line, and raises an `ImportError` in another program."""
    # "-m" while Python looks for the module of `python -m pocketbert`.
    if Path((sys.argv or [""])[0]).stem in ("pocketbert", "-m"):
        print(message, file=sys.stderr)
        raise SystemExit(2)
    raise ImportError(message)


try:
    try:
        import pocketbert_runtime
    except ModuleNotFoundError as error:
        if error.name != "pocketbert_runtime" or not _FOLDER.is_dir():
            raise
        sys.path.append(str(_FOLDER))
        import pocketbert_runtime
except ModuleNotFoundError as error:
    if error.name != "pocketbert_runtime":
        raise
    _refuse(
        "pocketbert needs the package pocketbert_runtime, which its own wheel contains; it is missing; run: pip "
        "install --force-reinstall --no-deps pocketbert"
    )
if pocketbert_runtime.__version__ != __version__:
    _refuse(
        f"pocketbert {__version__} needs pocketbert_runtime {__version__}; received {pocketbert_runtime.__version__} "
        f"in {Path(pocketbert_runtime.__file__ or '').parent}; install both from one version, or run: pip uninstall "
        "pocketbert-runtime"
    )
