"""The page of recipes: each recipe is compared with the float model on the same sentences."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from pocketbert_bench import accuracy, results
from studies.runner import RESULTS
from studies.tables.charts import draw_recipes, recipe_points
from studies.tables.measurements import recipes
from studies.tasks.recipe_scores import INT16
from studies.tasks.recipes import NAIVE, STATIC


@pytest.fixture
def content() -> results.ResultFile:
    """The committed latencies of dynamic_wi8 and one more recipe, and made-up scores."""
    read = results.read(RESULTS / "tasks" / "recipes.json")
    scores = [("model", "trained", 0.9, 800), ("dynamic_wi8", "dynamic_wi8", 0.89, 800)]
    scores += [("model", "trained", 0.8, 100), (INT16, INT16, 0.81, 100)]
    others = [("model", "trained", 0.75, 800), ("dynamic_wi8", "dynamic_wi8", 0.71, 800)]
    rows = [
        accuracy.record(
            label=label, model="m", recipe=recipe, task=task, split="dev", metric=metric, value=value, examples=n
        )
        for task, metric, score in (("sst2", "accuracy", scores), ("mrpc", "f1", others))
        for label, recipe, value, n in score
    ]
    (first, second, *_) = (measurement for measurement in read.measurements if measurement.model == "minilmv2_6l_384d")
    both = [dataclasses.replace(row, recipe=name) for row, name in ((first, "dynamic_wi8"), (second, INT16))]
    ratio = read.ratios[0]
    ratios = [
        dataclasses.replace(ratio, name=f"minilmv2_6l_384d {INT16}", target=None),
        dataclasses.replace(ratio, name=f"minilmv2_6l_384d {STATIC} to {NAIVE}", target=0.1),
    ]
    return dataclasses.replace(read, accuracies=tuple(rows), measurements=tuple(both), ratios=tuple(ratios))


def test_points_lost_count_the_same_sentences(content: results.ResultFile) -> None:
    lines = recipes(content).splitlines()
    assert "| sst2 (accuracy) | `dynamic_wi8` | 800 | 89.00 | +1.00 |" in lines
    assert f"| sst2 (accuracy) | `{INT16}` | 100 | 81.00 | -1.00 |" in lines
    assert "| mrpc (f1) | `dynamic_wi8` | 800 | 71.00 | +4.00 |" in lines
    # Three times as slow as allowed.
    assert any(line.startswith("| `minilmv2_6l_384d` | ") and line.endswith("| ≤ 0.1 | no |") for line in lines)


def test_drawing_names_each_recipe(content: results.ResultFile, tmp_path: Path) -> None:
    points = {point.recipe: point for point in recipe_points(content)}
    assert list(points) == ["dynamic_wi8", INT16]
    assert points["dynamic_wi8"].ratio == 1
    assert points[INT16].points == pytest.approx(-1)
    draw_recipes(content, tmp_path / "recipes.svg")
    drawn = (tmp_path / "recipes.svg").read_text(encoding="utf-8")
    assert all(recipe in drawn for recipe in points)
