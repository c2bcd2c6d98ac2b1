"""Writes the table of recipes for the Java core, so that Python and Java allow the same differences.

Usage: PYTHONPATH=modeling python tools/java_recipes.py
"""

from __future__ import annotations

from pathlib import Path

from pocketbert.recipes import RECIPES

TABLE = Path(__file__).parents[1] / "android_app/core/src/main/resources/org/pocketbert/bundle/recipes.txt"
_HEADER = """\
# Recipe, largest and root mean square difference from the float model, and largest difference from the outputs at
# export. Written by tools/java_recipes.py; do not edit.
"""


def table() -> str:
    """Returns the table."""
    rows = [(recipe.name, recipe.bounds) for recipe in RECIPES.values()]
    return _HEADER + "".join(
        f"{name} {bounds.largest_difference} {bounds.rms_difference} {bounds.own_difference}\n" for name, bounds in rows
    )


if __name__ == "__main__":
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text(table(), encoding="utf-8")
