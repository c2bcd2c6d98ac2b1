"""README's figures are those of the committed result files, to the letter."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_readme_says_what_the_result_files_say() -> None:
    spec = importlib.util.spec_from_file_location("readme_figures", ROOT / "tools" / "readme_figures.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = readme.split(module.BEGIN)[1].split(module.END)[0]
    assert block == module.NOTE + module.figures(), "run: python tools/readme_figures.py"
    # Each comparison of the table was asked for, and is met.
    assert block.count("| ≤") + block.count("| ≥") == len(module.RATIOS)
