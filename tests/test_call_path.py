"""The tools that count call paths, modules and imports, on code with counts known by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import call_path
import module_counts

SOURCE = """
def before():
    pass

class Step:
    def run(self):
        return [inner() for _ in range(3)]

def inner():
    return 1

def last():
    return inner()

def first():
    Step().run()
    last()
    before()
"""


def test_recorder_counts_calls_between_ends(tmp_path: Path) -> None:
    path = tmp_path / "modeling" / "pocketbert" / "steps.py"
    names = {"__name__": "pocketbert.steps"}
    exec(compile(SOURCE, str(path), "exec"), names)
    log = tmp_path / "log"
    recorder = call_path.Recorder(tmp_path, log, ("steps.py", "first"), ("steps.py", "last"))
    before, first = names["before"], names["first"]
    with pytest.raises(call_path._Finished):
        sys.setprofile(recorder)
        try:
            before()
            first()
        finally:
            sys.setprofile(None)
    entries = log.read_text(encoding="utf-8").splitlines()
    assert [entry.split()[-1] for entry in entries] == ["first", "Step.run", "Step", "inner", "last"]
    assert call_path.figures(entries) == {"files": 1, "functions": 4, "classes": 1}


def test_imports_count_inside_and_outgoing(tmp_path: Path) -> None:
    modules = {
        "modeling/pocketbert/__init__.py": "",
        "modeling/pocketbert/top.py": "import json\nfrom pocketbert.part import low\nfrom pocketbert import other\n",
        "modeling/pocketbert/other.py": "import typing\nif typing.TYPE_CHECKING:\n    import pocketbert.top\n",
        "modeling/pocketbert/part/__init__.py": "",
        "modeling/pocketbert/part/low.py": "def late():\n    from pocketbert.part import lower\n",
        "modeling/pocketbert/part/lower.py": "",
        "export/pocketbert_export/__init__.py": "import pocketbert.top\nimport pocketbert.part.low\n",
    }
    for name, content in modules.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    # In a process of its own: this one has imported the real packages.
    code = "import json, module_counts, pathlib, sys; print(json.dumps(module_counts.count(pathlib.Path(sys.argv[1]))))"
    tools = str(Path(module_counts.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env={"PYTHONPATH": tools},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == {
        "pocketbert": {"modules": 3, "inside": 1, "outgoing": 1},
        "pocketbert.part": {"modules": 3, "inside": 1, "outgoing": 0},
        "pocketbert_export": {"modules": 1, "inside": 0, "outgoing": 2},
        "all": {"modules": 7, "inside": 2, "outgoing": 3},
    }


def test_committed_tables_match_results() -> None:
    results = json.loads(call_path.RESULTS.read_text(encoding="utf-8"))
    assert call_path.tables(results) in call_path.ADR.read_text(encoding="utf-8"), "run: tools/call_path.py --save=NAME"


# It takes minutes, because the interpreter follows every call.
@pytest.mark.nightly
def test_path_to_the_loss_does_not_grow(tmp_path: Path) -> None:
    bound = json.loads(call_path.RESULTS.read_text(encoding="utf-8"))["after"]["paths"]["loss"]
    call_path._in_process(call_path.write_inputs, tmp_path)
    measured = call_path.figures(call_path.walk("loss", call_path.ROOT, tmp_path))
    longer = {kind: count for kind, count in measured.items() if count > bound[kind]}
    assert not longer, (
        f"shorten the path, or save it with tools/call_path.py and tell the reason in ADR 8; bound: {bound}"
    )
