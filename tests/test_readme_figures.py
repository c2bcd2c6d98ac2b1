"""README's figures are those of the committed result files, to the letter."""

from __future__ import annotations

import json
import re

import readme_figures


def test_readme_says_what_the_result_files_say() -> None:
    assert readme_figures.BLOCK.read() == readme_figures.figures(), "run: python tools/readme_figures.py"


def test_readme_says_which_targets_are_missed() -> None:
    rows = re.findall(r"^\| .* \| [\d.]+ \([\d.]+ to [\d.]+\) \| .*$", readme_figures.BLOCK.read(), re.MULTILINE)
    assert len(rows) == len(readme_figures.RATIOS)
    for (suite, name), row in zip(readme_figures.RATIOS, rows, strict=True):
        content = json.loads((readme_figures.RESULTS / f"{suite}.json").read_text(encoding="utf-8"))
        ratio = next(each for each in content["ratios"] if each["name"] == name)
        target, lower = ratio["target"], ratio["better"] == "lower"
        if target is None:
            assert row.endswith("| nothing |")
            continue
        median_misses, end_misses = (
            found > target if lower else found < target for found in (ratio["value"], ratio["interval"][lower])
        )
        assert row.endswith(", missed |") is median_misses, name
        assert row.endswith("worse end misses |") is (end_misses and not median_misses), name


def test_seeds_of_two_networks_are_kept_apart() -> None:
    scores = {"big": {"seed 0": 0.75, "seed 4": 0.25}, "small": {"seed 0": 0.125}}
    accuracies = [
        {"model": model, "label": label, "value": value}
        for model, seeds in scores.items()
        for label, value in seeds.items()
    ]
    first, *seeds, other, last = readme_figures._seeds({"accuracies": accuracies}, network="big")
    assert first == "| Rotten Tomatoes, held-out tenth, mean of 2 seeds | 50.00 % |"
    assert seeds == ["| the same, seed 0 | 75.00 % |", "| the same, seed 4 | 25.00 % |"]
    assert other == "| Rotten Tomatoes, held-out tenth, small, mean of 1 seeds | 12.50 % |"
    assert last == "| the same, seed 0 | 12.50 % |"
