"""Where the studies find real data: beside the checkout, never in it."""

from __future__ import annotations

from pathlib import Path

from pocketbert.errors import UserError

_FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data"


def shared_data(name: str) -> Path:
    """The path of a file or folder of the shared data.

    Raises:
      UserError: it is not there.
    """
    path = _FOLDER / name
    if not path.exists():
        raise UserError(
            f"this study reads {name} of the shared data; received nothing beside the checkout; put it there"
        )
    return path
