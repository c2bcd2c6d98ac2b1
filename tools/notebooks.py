"""Writes tutorials as notebooks with the output of a real run.

`python tools/notebooks.py [PAGE…]` executes the tutorials, and writes a notebook beside each. A notebook has the
page's text, its Python blocks, and its command lines in `%%bash` cells.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import v4

ROOT = Path(__file__).resolve().parents[1]
PAGES = tuple(ROOT / "docs" / "tutorials" / f"{name}.md" for name in ("command-line", "python"))
_FENCE = re.compile(r"^```(?P<language>\w+)[^\n]*\n(?P<body>.*?)^```\n?", re.MULTILINE | re.DOTALL)
# TensorFlow's log, with times and temporary folders.
_LOG = re.compile(r"^(INFO:|To enable the following instructions|[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:.]+: [IWE] )")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_SECONDS = 1800


def notebook_of(page: Path) -> nbformat.NotebookNode:
    """Returns a page as a notebook without output."""
    text = page.read_text(encoding="utf-8")
    cells, end = [], 0
    for match in _FENCE.finditer(text):
        if match["language"] not in ("python", "console", "text"):
            continue
        cells += _markdown(text[end : match.start()])
        end = match.end()
        if match["language"] == "python":
            cells.append(v4.new_code_cell(match["body"].strip()))
        elif match["language"] == "console":
            commands = re.sub(r"^\$ ", "", match["body"].strip(), flags=re.MULTILINE)
            # The cell fails if a command fails.
            cells.append(v4.new_code_cell(f"%%bash -e\n{commands}"))
    cells += _markdown(text[end:])
    for number, cell in enumerate(cells):
        # Random ids would change with each run.
        cell["id"] = f"cell-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return v4.new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})


def _markdown(text: str) -> list[nbformat.NotebookNode]:
    return [v4.new_markdown_cell(text.strip())] if text.strip() else []


def environment() -> dict[str, str]:
    """Returns the variables for commands of this checkout: its packages, and the programs beside this Python."""
    packages = [str(ROOT / name) for name in ("runtime", "modeling", "export", "benchmarks")]
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join([*packages, os.environ.get("PYTHONPATH", "")]),
        "NO_COLOR": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def terminal_text(text: str, folder: Path) -> str:
    """Returns text as a terminal shows it: without colours, replaced lines, TensorFlow's log and the folder's path."""
    text = _ESCAPE.sub("", text).replace("\r\n", "\n").replace(f"{folder}/", "")
    lines = [line.rpartition("\r")[2].rstrip() for line in text.split("\n")]
    return re.sub(r"\n{2,}", "\n", "\n".join(line for line in lines if not _LOG.match(line))).strip("\n")


def execute(notebook: nbformat.NotebookNode, folder: Path) -> nbformat.NotebookNode:
    """Executes a notebook in a folder, with this checkout's `pocketbert` and this Python.

    Raises:
      nbclient.exceptions.CellExecutionError: a cell fails, or one of its commands.
    """
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=_SECONDS, resources=resources, record_timing=False).execute(env=environment())
    for number, cell in enumerate([cell for cell in notebook.cells if cell.cell_type == "code"], 1):
        streams = "".join(output["text"] for output in cell["outputs"] if output["output_type"] == "stream")
        text = terminal_text(streams, folder)
        cell["execution_count"] = number
        cell["outputs"] = [v4.new_output("stream", name="stdout", text=f"{text}\n")] if text else []
    return notebook


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
