"""File digests."""

from __future__ import annotations

import hashlib
import os

from pocketbert_runtime.errors import UserError


def sha256(path: str | os.PathLike[str]) -> str:
    """Returns a file's SHA-256 in hexadecimal digits; raises a `UserError` if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such file; check the path") from error
    except OSError as error:
        raise UserError(f"{path}: the file cannot be read ({error.strerror}); check the path") from error
