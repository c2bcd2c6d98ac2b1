"""README's figures are those of the committed result files, to the letter."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("readme_figures", ROOT / "tools" / "readme_figures.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_readme_says_what_the_result_files_say(tool: ModuleType) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = readme.split(tool.BEGIN)[1].split(tool.END)[0]
    assert block == tool.NOTE + tool.figures(), "run: python tools/readme_figures.py"
    # Each comparison of the table was asked for, and is met.
    assert block.count("| ≤") + block.count("| ≥") == len(tool.RATIOS)


def test_seeds_of_two_networks_are_kept_apart(tool: ModuleType) -> None:
    scores = {"big": {"seed 0": 0.75, "seed 4": 0.25}, "small": {"seed 0": 0.125}}
    accuracies = [
        {"model": model, "label": label, "value": value}
        for model, seeds in scores.items()
        for label, value in seeds.items()
    ]
    first, *seeds, other, last = tool._seeds({"accuracies": accuracies}, network="big")
    assert first == "| Rotten Tomatoes, held-out tenth, mean of 2 seeds | 50.00 % |"
    assert seeds == ["| the same, seed 0 | 75.00 % |", "| the same, seed 4 | 25.00 % |"]
    assert other == "| Rotten Tomatoes, held-out tenth, small, mean of 1 seeds | 12.50 % |"
    assert last == "| the same, seed 0 | 12.50 % |"
