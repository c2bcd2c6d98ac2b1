"""Writes the tables of experiments' pages from their committed result files: `python tools/result_tables.py`.

A test holds the pages to what this prints.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mobilebert_tables
import tasks_tables
import tinybert_tables
from marked_block import Block
from pocketbert_bench import results
from pocketbert_bench.experiments import mobilebert, tasks, tinybert

NOT_RUN = "This has not been run yet.\n"
Table = Callable[[results.ResultFile], str]
# A page's block, the result file, and what makes the text from it.
PAGES: tuple[tuple[Block, Path, Table], ...] = (
    (tinybert_tables.BLOCK, tinybert.EXPERIMENT.result, tinybert_tables.table),
    (mobilebert_tables.BLOCK, mobilebert.EXPERIMENT.result, mobilebert_tables.table),
    (tasks_tables.BLOCK, tasks.EXPERIMENT.result, tasks_tables.table),
)


def text(path: Path, table: Table) -> str:
    """What stands on a page: of an experiment without a result file, that it has not been run."""
    return table(results.read(path)) if path.exists() else NOT_RUN


if __name__ == "__main__":
    for block, path, table in PAGES:
        block.write(text(path, table))
