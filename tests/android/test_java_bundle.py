"""The Java reader refuses the same changes of a valid bundle.json as the JSON schema, at every place."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pocketbert_export.bundles.schema import SCHEMA
from pocketbert_runtime.tokenizers.kinds.registry import TOKENIZER_RULES

pytestmark = pytest.mark.java

CORE = Path(__file__).parents[2] / "android_app/core/src"
BUNDLE = CORE / "test/resources/bundles/dynamic_wi8/bundle.json"
# One value of each kind. The schema decides which are valid at a place.
OTHERS = (None, True, 0, -1, 1.5, "", "x", [], [1], {}, {"x": 1})


def places(value: Any) -> Iterator[list[Any]]:
    """Paths of all members, and of first and last elements in lists except lists of numbers."""
    keys: list[Any] = list(value) if isinstance(value, dict) else []
    if isinstance(value, list) and value and not isinstance(value[0], int | float):
        keys = sorted({0, len(value) - 1})
    for key in keys:
        yield [key]
        yield from ([key, *rest] for rest in places(value[key]))


def spoiled(description: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields each change and the changed description."""
    for path in places(description):
        changes = [("removed", None), *((f"now {other!r}", other) for other in OTHERS)]
        for what, other in changes:
            changed = copy.deepcopy(description)
            parent = changed
            for key in path[:-1]:
                parent = parent[key]
            if what == "removed":
                del parent[path[-1]]
            else:
                parent[path[-1]] = other
            yield f"{path} {what}", changed
            if what == "removed" and isinstance(parent, dict):
                extra = copy.deepcopy(description)
                parent = extra
                for key in path[:-1]:
                    parent = parent[key]
                parent["surplus"] = 1
                yield f"{path[:-1]} with a surplus member", extra


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe"])
def test_reader_is_strict_as_the_schema(java: Any, tmp_path: Path, kind: str) -> None:
    description = json.loads(BUNDLE.read_text(encoding="utf-8"))
    if kind != "wordpiece":
        description["tokenizer"] = {"kind": kind, "vocab_size": description["tokenizer"]["vocab_size"]}
    description["calibration"] = {"texts": 256, "sha256": "0" * 64, "method": "mse"}
    texts = ("license", "base_model", "base_model_license", "dataset", "dataset_license")
    description["model_card"] = {**dict.fromkeys(texts, "x"), "limits": ["short texts"], "run_sha256": "1" * 64}
    description["outcome"] = {
        "metric": "accuracy",
        "score": 0.75,
        "examples": 12,
        "examples_sha256": "2" * 64,
        "interval": [0.5, 0.875],
        "baselines": [{"name": "always 'a'", "score": 0.5}],
        "teacher": 0.9,
        "float_model": 0.8,
        "verdict": "good",
        "headline": "accuracy 0.750",
        "warnings": ["a warning"],
        "windows": {"stride": 6},
    }
    latency = {"length": 19, "threads": 2, "median_ms": 1.25, "runtime": "litert 2.3.0", "machine": "a phone"}
    description["model_card"] |= {"latencies": [latency]}
    description["columns"] = {"text": "review", "pair": "reply", "label": ["mood"], "separator": ","}
    validator = jsonschema.Draft202012Validator(SCHEMA)
    assert validator.is_valid(description)
    refused = {what: changed for what, changed in spoiled(description) if not validator.is_valid(changed)}
    assert len(refused) > 500
    inputs, outputs = tmp_path / "descriptions.jsonl", tmp_path / "answers.txt"
    lines = [json.dumps(content) for content in (description, *refused.values())]
    inputs.write_text("\n".join(lines) + "\n", encoding="utf-8")
    java("org.pocketbert.bundle.DescribeMain", inputs, outputs)
    good, *bad = outputs.read_text(encoding="utf-8").splitlines()
    assert good == "ok"
    assert [what for what, answer in zip(refused, bad, strict=True) if answer == "ok"] == []


def test_tokenizers_and_files_match_exporter() -> None:
    source = (CORE / "main/java/org/pocketbert/bundle/TokenizerKind.java").read_text(encoding="utf-8")
    constants = {
        kind.lower(): tuple(re.findall(r'"([^"]+)"', files))
        for kind, files in re.findall(r"^  ([A-Z_]+)\(([^)]*)\) \{$", source, re.M)
    }
    assert constants == {kind: rules.files for kind, rules in TOKENIZER_RULES.items()}
