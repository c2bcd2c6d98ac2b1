"""The Java statistics and those of pocketbert_bench, to the last digit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pocketbert_bench import results

pytestmark = pytest.mark.java


def test_summaries(java: Any, tmp_path: Path) -> None:
    generator = np.random.default_rng(5)
    samples = [np.round(generator.lognormal(8, 1.5, count), 1) for count in (1, 2, 3, 4, 7, 50, 67, 256, 257, 1000)]
    # Many ties, halves that rounding sees, no spread, huge and tiny values.
    samples += [generator.integers(0, 4, 61) / 4, np.full(5, 7.25), generator.lognormal(0, 20, 33), np.arange(40) / 20]
    given, found = tmp_path / "samples.json", tmp_path / "summaries.json"
    given.write_text(json.dumps([each.tolist() for each in samples]), encoding="utf-8")
    java("org.pocketbert.benchmark.SummaryMain", given, found)
    expected = [results.to_json(results.summarize(each.tolist())) for each in samples]
    assert json.loads(found.read_text(encoding="utf-8")) == expected
