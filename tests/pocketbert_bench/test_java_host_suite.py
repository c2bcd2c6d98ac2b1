"""Java's core against Python: whose medians are divided by whose, and when it is called a miss."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_subjects import failed, measurement

from pocketbert.errors import UserError
from pocketbert_bench import results
from pocketbert_bench.suites import java_host


@pytest.mark.parametrize(("java_ms", "met"), [(5.4, (True, True)), (5.6, (False, True)), (4.5, (True, False))])
def test_either_median_may_be_a_tenth_longer(
    java_ms: float, met: tuple[bool, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[str] = []

    def measured(label: str, milliseconds: float, bundle: Path) -> results.Measurement:
        turns.append(f"{label} {bundle}")
        return measurement("bundle", 128, milliseconds)

    monkeypatch.setattr(java_host, "_JAR", Path(__file__))
    monkeypatch.setattr(java_host, "make_bundles", lambda _: {"float32": Path("one"), "float16": Path("two")})
    monkeypatch.setattr(java_host, "_java", lambda bundle: measured("Java", java_ms, bundle))
    monkeypatch.setattr(java_host, "_python", lambda bundle: measured("Python", 5.0, bundle))
    content = java_host.run(quick=True)
    assert results.problems(content) == []
    found = {ratio["name"]: (ratio["value"], ratio["met"], len(ratio["ours_samples"])) for ratio in content["ratios"]}
    assert found == {
        f"{sides}, {recipe}": (pytest.approx(value), each, 3)
        for recipe in ("float32", "float16")
        for sides, value, each in (("Java to Python", java_ms / 5, met[0]), ("Python to Java", 5 / java_ms, met[1]))
    }
    # Who comes first takes turns too.
    assert turns[:6] == ["Java one", "Python one", "Java two", "Python two", "Python one", "Java one"]
    labels = [each["label"] for each in content["measurements"]]
    assert labels == ["Java, float32", "Python, float32", "Java, float16", "Python, float16"]


def test_a_wrong_answer_is_no_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_host, "_JAR", Path(__file__))
    monkeypatch.setattr(java_host, "make_bundles", lambda _: {"float32": Path("one")})
    monkeypatch.setattr(java_host, "_java", lambda _: failed("bundle", 128, "it answers otherwise"))
    with pytest.raises(UserError, match="Java must measure float32; it says it answers otherwise"):
        java_host.run(quick=True)


def test_what_was_not_built_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_host, "_JAR", tmp_path / "pocketbert-host.jar")
    with pytest.raises(UserError, match="there is no pocketbert-host.jar; run make android-test"):
        java_host.run(quick=True)
