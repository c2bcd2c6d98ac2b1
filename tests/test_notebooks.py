"""The tutorials' notebooks have their pages' text and code, and the output of a run."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from notebooks import PAGES, execute, notebook_of

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
_SAMPLE = re.compile(
    r"^```console\n(?P<commands>(?:(?!```).*\n)+)```\n\n```text\n(?P<sample>(?:(?!```).*\n)+)```$", re.MULTILINE
)


def code(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(cell: nbformat.NotebookNode) -> str:
    return "".join(output["text"] for output in cell["outputs"])


@pages
def test_notebook_has_the_pages_cells(page: Path) -> None:
    written = nbformat.read(page.with_suffix(".ipynb"), as_version=4)
    nbformat.validate(written)
    expected = notebook_of(page)
    cells = [(cell.cell_type, cell.source) for cell in written.cells]
    assert cells == [(cell.cell_type, cell.source) for cell in expected.cells], "run: python tools/notebooks.py"
    assert [cell.execution_count for cell in code(written)] == [*range(1, len(code(written)) + 1)]


def test_samples_are_lines_of_the_run() -> None:
    """Each line of a `text` block is in the output of the commands before it; `…` stands for other characters."""
    (page,) = (page for page in PAGES if page.stem == "command-line")
    written = nbformat.read(page.with_suffix(".ipynb"), as_version=4)
    samples = list(_SAMPLE.finditer(page.read_text(encoding="utf-8")))
    assert len(samples) >= 6
    for match in samples:
        source = "%%bash -e\n" + re.sub(r"^\$ ", "", match["commands"].strip(), flags=re.MULTILINE)
        (cell,) = (cell for cell in code(written) if cell.source == source)
        for line in filter(str.strip, match["sample"].splitlines()):
            pattern = ".*".join(map(re.escape, line.strip().split("…")))
            assert re.search(pattern, printed(cell)), f"{line!r} is not in the notebook; run: python tools/notebooks.py"


@pytest.mark.nightly
@pages
def test_notebook_runs(page: Path, tmp_path: Path) -> None:
    notebook = execute(notebook_of(page), tmp_path)
    for cell, expected in zip(
        code(notebook), code(nbformat.read(page.with_suffix(".ipynb"), as_version=4)), strict=True
    ):
        assert bool(printed(cell)) == bool(printed(expected)), cell.source
