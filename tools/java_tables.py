"""Writes the tables of recipes and tasks for the Java core, so that Python and Java know the same.

Usage: PYTHONPATH=runtime:modeling:export python tools/java_tables.py
"""

from __future__ import annotations

from pathlib import Path

from pocketbert.configs import TASK_RULES
from pocketbert.recipes import RECIPES
from pocketbert.tasks.base import Task
from pocketbert.tasks.registry import TASKS
from pocketbert_export.checks.outputs import token_outputs

FOLDER = Path(__file__).parents[1] / "android_app/core/src/main/resources/org/pocketbert/bundle"
_RECIPES = """\
# Recipe, largest and root mean square difference from the float model, and largest difference from the outputs at
# export. Written by tools/java_tables.py; do not edit.
"""
_TASKS = """\
# Task, least number of labels, the constant that it ignores, the least scale of centred outputs, the meaning of an
# output, and the outputs per token. Written by tools/java_tables.py; do not edit.
"""


def tables() -> dict[str, str]:
    """Returns file name → content."""
    recipes = [(recipe.name, recipe.bounds) for recipe in RECIPES.values()]
    return {
        "recipes.txt": _RECIPES
        + "".join(
            f"{name} {bounds.largest_difference} {bounds.rms_difference} {bounds.own_difference}\n"
            for name, bounds in recipes
        ),
        "tasks.txt": _TASKS + "".join(f"{' '.join([kind, *_words(kind, task)])}\n" for kind, task in TASKS.items()),
    }


def _words(kind: str, task: type[Task]) -> list[str]:
    constant = "EACH_ROW" if task.centred_by_example else "NONE" if task.centred is Task.centred else "ALL"
    outputs = [name for name in task.output_names if name in token_outputs()]
    least_labels = str(TASK_RULES[kind].min_labels)
    return [
        least_labels,
        constant,
        str(task.least_centred_scale),
        "vectors" if task.has_vectors else "values",
        *outputs,
    ]


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, content in tables().items():
        (FOLDER / name).write_text(content, encoding="utf-8")
