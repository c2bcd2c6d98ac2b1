"""Packages that some tokenizers need and the runtime does not require."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pocketbert_runtime.errors import UserError

SENTENCEPIECE = "sentencepiece>=0.2.3,<0.3"


@contextlib.contextmanager
def needed(subject: str, requirement: str) -> Iterator[None]:
    """Turns a failed import inside the block into a `UserError` with the command to install the package.

    Args:
      subject: the part that needs the package.
      requirement: the package with its bounds.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(
            f"{subject} needs the package {error.name}, which is not installed; run: pip install '{requirement}'"
        ) from error
