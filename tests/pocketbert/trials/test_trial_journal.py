"""The journal of trials refuses lines that no trial of its run wrote."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest

from pocketbert.errors import UserError
from pocketbert.trials.journal import Journal
from pocketbert.trials.scores import TrialScore


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial(TrialScore):
    name: str
    seconds: float = 3.0


@dataclasses.dataclass(frozen=True)
class End:
    reason: str


A = Trial(name="a", score=0.5, metrics={"accuracy": 0.5})
B = Trial(name="b", score=None, metrics={}, failure="not finite")


def written(path: Path, *trials: Trial, run: dict[str, int] | None = None) -> Path:
    Journal(path, (Trial,), run).add(*trials)
    return path


def test_lines_in_parts_equal_lines_at_once(tmp_path: Path) -> None:
    for trial in (A, B):
        journal = Journal(tmp_path / "parts", (Trial,), {"seed": 1})
        journal.add(trial)
    written(tmp_path / "whole", A, B, run={"seed": 1})
    assert (tmp_path / "parts").read_bytes() == (tmp_path / "whole").read_bytes()
    assert Journal(tmp_path / "whole", (Trial,), {"seed": 1}).records == journal.records == [A, B]


def test_records_of_several_kinds_keep_their_order(tmp_path: Path) -> None:
    Journal(tmp_path / "journal", (Trial, End)).add(A, End("minutes"), B)
    assert Journal(tmp_path / "journal", (Trial, End)).records == [A, End("minutes"), B]


def test_digests_are_chained_by_sha256(tmp_path: Path) -> None:
    digest = ""
    for line in written(tmp_path / "journal", A, B).read_text("utf-8").splitlines():
        content = json.loads(line)
        received = content.pop("digest")
        digest = hashlib.sha256(f"{digest}{json.dumps(content, sort_keys=True)}".encode()).hexdigest()
        assert received == digest


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        # A forged score, which is a metric too.
        ("0.5", "0.75", "its digest must be [0-9a-f]{64}; received [0-9a-f]{64}$"),
        ('"score": 0.5', '"score": 0.75', "score must be one of the metrics"),
        ('"seconds": 3.0', '"seconds": "3"', "seconds must be a number"),
        ('"seconds": 3.0', '"seconds": 2.0', "its digest must be"),
        ('"name": "a", ', "", "missing: name"),
        ('"digest": "', '"digest": "0', "its digest must be"),
        ("}\n", "\n", "this must be JSON"),
        ('{"score"', '[{"score"', "this must be JSON"),
    ],
)
def test_changed_lines_are_refused(before: str, after: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path / "journal", A, B)
    content = path.read_text("utf-8")
    assert before in content
    path.write_text(content.replace(before, after), encoding="utf-8")
    with pytest.raises(UserError, match=f"journal is damaged at line 1; pass overwrite=True .*{message}") as raised:
        Journal(path, (Trial,))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("lines", [(1,), (0, 0), (1, 0)])
def test_missing_doubled_and_moved_lines_are_refused(lines: tuple[int, ...], tmp_path: Path) -> None:
    path = written(tmp_path / "journal", A, B)
    content = path.read_text("utf-8").splitlines()
    path.write_text("".join(f"{content[line]}\n" for line in lines), encoding="utf-8")
    with pytest.raises(UserError, match="damaged at line"):
        Journal(path, (Trial,))


def test_lines_of_other_journals_are_refused(tmp_path: Path) -> None:
    one = written(tmp_path / "one", A, B)
    two = written(tmp_path / "two", dataclasses.replace(A, name="c"), B)
    lines = one.read_text("utf-8").splitlines()[0], two.read_text("utf-8").splitlines()[1]
    (tmp_path / "mixed").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    with pytest.raises(UserError, match="damaged at line 2"):
        Journal(tmp_path / "mixed", (Trial,))
    other = written(tmp_path / "other", A, B, run={"seed": 1})
    with pytest.raises(UserError, match="damaged at line 1.*its digest must be"):
        Journal(other, (Trial,), {"seed": 2})


@pytest.mark.parametrize("count", [1, 2])
def test_journals_of_earlier_versions_are_refused(count: int, tmp_path: Path) -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Earlier(TrialScore):
        name: str

    path = tmp_path / "journal"
    trials = [
        Earlier(name=trial.name, score=trial.score, metrics=trial.metrics, failure=trial.failure) for trial in (A, B)
    ]
    Journal(path, (Earlier,)).add(*trials[:count])
    message = "must have the fields of this version; .*journal is of an earlier version, which differs in "
    with pytest.raises(UserError, match=f"{message}seconds; pass overwrite=True"):
        Journal(path, (Trial, End))
    # The first version had no digests.
    path.write_text(json.dumps(dataclasses.asdict(A)) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=f"{message}digest; pass overwrite=True"):
        Journal(path, (Trial,))
    # Other lines without a digest are damaged.
    lines = written(tmp_path / "new", A, B).read_text("utf-8").splitlines()
    content = json.loads(lines[1])
    del content["digest"]
    path.write_text(f"{lines[0]}\n{json.dumps(content)}\n", encoding="utf-8")
    with pytest.raises(UserError, match="damaged at line 2"):
        Journal(path, (Trial,))
