"""Names for models on Hugging Face's hub, and what a downloaded folder tells about its origin.

The hub's client keeps a model in `models--ORG--NAME/snapshots/COMMIT`, so the folder alone names repository and commit.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketbert.errors import UserError

PREFIX = "hf:"
DEFAULT_REVISION = "main"
CARD_FILE = "README.md"
# Suffix for names in a run's record with `origin`.
HUB_SUFFIX = "_hub"
_PART = r"[A-Za-z0-9][\w.-]*"
# Branches and tags may have slashes, but no empty or hidden part.
_REVISION = rf"{_PART}(?:/{_PART})*"
_NAME = re.compile(rf"{PREFIX}({_PART}/{_PART})(?:@({_REVISION}))?", re.ASCII)
_COMMIT = re.compile("[0-9a-f]{40}")
_SNAPSHOT = re.compile(rf"/models--([\w.-]+?)--([\w.-]+)/snapshots/({_COMMIT.pattern})$", re.ASCII)
_MOST_CARD_CHARACTERS = 1 << 20
_UNCLEAR = "--", ".."


@dataclass(frozen=True)
class HubName:
    """A model on the hub.

    Attributes:
      repository: ORG/NAME.
      revision: branch, tag or commit.
    """

    repository: str
    revision: str = DEFAULT_REVISION

    def __str__(self) -> str:
        end = "" if self.revision == DEFAULT_REVISION else f"@{self.revision}"
        return f"{PREFIX}{self.repository}{end}"


def is_hub_name(model: Any) -> bool:
    """Whether a model is given by a name on the hub rather than a path."""
    return isinstance(model, str | os.PathLike) and os.fspath(model).startswith(PREFIX)


def parse_hub_name(text: str) -> HubName:
    """Reads `hf:ORG/NAME` or `hf:ORG/NAME@REVISION`; raises a `UserError` for other texts."""
    match = _NAME.fullmatch(text)
    if match is None or any(part in text for part in _UNCLEAR):
        raise UserError(f"a name on Hugging Face's hub must be hf:ORG/NAME or hf:ORG/NAME@REVISION; received {text}")
    return HubName(match[1], match[2] or DEFAULT_REVISION)


def is_commit(text: object) -> bool:
    """Whether a text is a full commit hash."""
    return isinstance(text, str) and _COMMIT.fullmatch(text) is not None


def name_of(folder: str | os.PathLike[str]) -> HubName | None:
    """Returns repository and commit for a folder in the hub's cache; None for other folders."""
    match = _SNAPSHOT.search(Path(folder).resolve().as_posix())
    return HubName(f"{match[1]}/{match[2]}", match[3]) if match else None


def shown(path: str | os.PathLike[str]) -> str:
    """Returns a model's name for a message: `hf:ORG/NAME@COMMIT` for a downloaded model, else the path."""
    return str(name_of(path) or path)


def short_name(path: str | os.PathLike[str]) -> str:
    """Returns a model's name for a table: NAME for a downloaded model, else the folder's name."""
    name = name_of(path)
    return name.repository.rpartition("/")[2] if name else Path(path).resolve().name


def license_of(folder: Path) -> str | None:
    """Returns the licence in a model card's metadata; None without one."""
    try:
        facts = card_metadata(folder / CARD_FILE)
    except ValueError:
        return None
    other = facts.get("license_name") if facts.get("license") == "other" else None
    return joined(other or facts.get("license"))


def card_metadata(path: Path) -> dict[str, Any]:
    """Reads the YAML lines at the top of a model card; empty without a card or a mapping.

    Raises:
      ValueError: the lines are not YAML.
    """
    import yaml

    if not path.is_file():
        return {}
    with open(path, encoding="utf-8", errors="replace") as stream:
        text = stream.read(_MOST_CARD_CHARACTERS)
    front = re.match(r"---\s*\n(.*?)\n---\s*(\n|$)", text, re.DOTALL)
    try:
        facts = yaml.safe_load(front[1]) if front else None
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    return facts if isinstance(facts, dict) else {}


def joined(value: Any) -> str | None:
    """Returns a text, or several with commas; None for anything else."""
    texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
    return ", ".join(texts) or None
