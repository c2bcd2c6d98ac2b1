"""A journal of trials: one JSON line per record, with a digest over all lines so far."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from pocketbert.errors import UserError
from pocketbert.files import write_text
from pocketbert.notation import argument
from pocketbert_runtime.json_reading import from_json, parse_json, read_bytes

Record = TypeVar("Record")


class Journal(Generic[Record]):
    """Records in a run. Without times in them, a resumed run writes the same journal as an uninterrupted one.

    Args:
      path: the file; it may be missing.
      kinds: dataclasses for the records, with different fields.
      run: everything that determines the scores, as JSON values. The digests tell another run's journal, to refuse it.
    Raises:
      UserError: the file is damaged, belongs to another run, or an earlier version wrote other fields or no digests.
    """

    def __init__(self, path: Path, kinds: Sequence[type[Record]], run: Mapping[str, Any] | None = None) -> None:
        self._path, self._lines = path, list[str]()
        self._digest = "" if run is None else _digest("", run)
        self.records: list[Record] = []
        remedy = f"pass {argument('overwrite', True)} to repeat the run, or choose another output"
        for number, line in enumerate(read_bytes(path).splitlines() if path.exists() else [], 1):
            where = f"{path} is damaged at line {number}; {remedy}"
            content = parse_json(line, where)
            names = set(content) if isinstance(content, dict) else set()
            digest = content.pop("digest", None) if names else None
            kind = next((kind for kind in kinds if names == {"digest", *kind.__dataclass_fields__}), None)  # type: ignore[attr-defined]
            # A damaged line has another digest.
            intact = bool(names) and digest == _digest(self._digest, content)
            if (kind is None and intact) or (number == 1 and names and digest is None):
                others = ", ".join(sorted(names ^ {"digest", *kinds[0].__dataclass_fields__}))  # type: ignore[attr-defined]
                raise UserError(
                    f"the lines of a journal must have the fields of this version; {path} is of an earlier version, "
                    f"which differs in {others}; {remedy}"
                )
            self._append(from_json(kind or kinds[0], content, where))
            if self._digest != digest:
                raise UserError(f"{where}: its digest must be {self._digest}; received {digest}")

    def add(self, *records: Record) -> None:
        """Appends records; written aside and renamed, so a kill never leaves half a line."""
        for record in records:
            self._append(record)
        write_text(self._path, "".join(f"{line}\n" for line in self._lines))

    def _append(self, record: Record) -> None:
        content = dataclasses.asdict(record)  # type: ignore[call-overload]
        self._digest = _digest(self._digest, content)
        self.records.append(record)
        self._lines.append(json.dumps(content | {"digest": self._digest}))


def _digest(earlier: str, content: Mapping[str, Any]) -> str:
    return hashlib.sha256(f"{earlier}{json.dumps(content, sort_keys=True)}".encode()).hexdigest()
