"""Checks the runtime and its version: pip can remove it, or replace it, with `pocketbert-runtime`."""

from __future__ import annotations

__version__ = "0.1.0"

try:
    import pocketbert_runtime
except ModuleNotFoundError as error:
    if error.name != "pocketbert_runtime":
        raise
    raise ImportError(
        "pocketbert needs the package pocketbert_runtime, which its own wheel contains; it is missing, as after pip "
        "uninstall pocketbert-runtime; run: pip install --force-reinstall --no-deps pocketbert"
    ) from None
if pocketbert_runtime.__version__ != __version__:
    raise ImportError(
        f"pocketbert {__version__} needs pocketbert_runtime {__version__}; received {pocketbert_runtime.__version__}; "
        "install both from one version"
    )
