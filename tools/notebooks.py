"""Writes tutorials as notebooks with the output of a real run.

`python tools/notebooks.py [PAGE…]` executes docs/tutorials/python.md, and writes a notebook beside it. A notebook has
the page's text, and its Python blocks as cells.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import v4

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "docs" / "tutorials" / "python.md",)
_BLOCK = re.compile(r"^```python\n(.*?)^```\n?", re.MULTILINE | re.DOTALL)
# TensorFlow's log, with times and temporary folders.
_LOG = re.compile(r"^(INFO:|To enable the following instructions|[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:.]+: [IWE] )")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_SECONDS = 1800


def notebook_of(page: Path) -> nbformat.NotebookNode:
    """Returns a page as a notebook without output."""
    text = page.read_text(encoding="utf-8")
    cells, end = [], 0
    for match in _BLOCK.finditer(text):
        cells += [*_markdown(text[end : match.start()]), v4.new_code_cell(match[1].strip())]
        end = match.end()
    cells += _markdown(text[end:])
    for number, cell in enumerate(cells):
        # Random ids would change with each run.
        cell["id"] = f"cell-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return v4.new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})


def _markdown(text: str) -> list[nbformat.NotebookNode]:
    return [v4.new_markdown_cell(text.strip())] if text.strip() else []


def execute(notebook: nbformat.NotebookNode, folder: Path) -> nbformat.NotebookNode:
    """Executes a notebook in a folder, with this checkout's `pocketbert` and this Python.

    Raises:
      nbclient.exceptions.CellExecutionError: a cell fails.
    """
    packages = [str(ROOT / name) for name in ("runtime", "modeling", "export", "benchmarks")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*packages, os.environ.get("PYTHONPATH", "")]),
        "NO_COLOR": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=_SECONDS, resources=resources, record_timing=False).execute(env=environment)
    for number, cell in enumerate([cell for cell in notebook.cells if cell.cell_type == "code"], 1):
        cell["execution_count"] = number
        cell["outputs"] = _plain(cell["outputs"], folder)
    return notebook


def _plain(outputs: list[nbformat.NotebookNode], folder: Path) -> list[nbformat.NotebookNode]:
    """Joins the streams of a cell as a terminal shows them: without colours and without replaced lines."""
    text = "".join(output["text"] for output in outputs if output["output_type"] == "stream")
    text = _ESCAPE.sub("", text).replace("\r\n", "\n").replace(f"{folder}/", "")
    lines = [line.rpartition("\r")[2].rstrip() for line in text.split("\n")]
    printed = re.sub(r"\n{2,}", "\n", "\n".join(line for line in lines if not _LOG.match(line))).strip("\n")
    return [v4.new_output("stream", name="stdout", text=f"{printed}\n")] if printed else []


def main(arguments: list[str] | None = None) -> None:
    """Executes the pages and writes their notebooks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, default=PAGES, metavar="PAGE")
    for page in parser.parse_args(arguments).pages:
        with tempfile.TemporaryDirectory() as folder:
            notebook = execute(notebook_of(page), Path(folder))
        nbformat.write(notebook, page.with_suffix(".ipynb"))
        print(page.with_suffix(".ipynb"))


if __name__ == "__main__":
    main()
