"""The README's Java examples are the tested ones."""

from __future__ import annotations

import re
from pathlib import Path

APP = Path(__file__).parents[2] / "android_app"


def test_the_examples_are_the_tested_ones() -> None:
    tested = {
        line.strip()
        for line in (APP / "core/src/test/java/org/pocketbert/ReadmeTest.java").read_text(encoding="utf-8").splitlines()
    }
    examples = re.findall(r"^```java\n(.*?)^```$", (APP / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    lines = [line.strip() for example in examples for line in example.splitlines()]
    assert len(lines) >= 12
    assert not [line for line in lines if line not in tested]
