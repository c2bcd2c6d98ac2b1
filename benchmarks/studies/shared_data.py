"""Locate real data for the studies: beside the checkout, never in it."""

from __future__ import annotations

from pathlib import Path

from pocketbert.errors import UserError

_FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data"


def shared_data(name: str) -> Path:
    """Path of a file or folder in the shared data.

    Raises:
      UserError: it is missing.
    """
    path = _FOLDER / name
    if not path.exists():
        raise UserError(
            f"this study reads {name} of the shared data; received nothing beside the checkout; put it there"
        )
    return path
