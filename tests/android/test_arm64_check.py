"""Checks of outputs on ARM64 kernels; with -m arm64, the kernels themselves under QEMU."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any

import bundle_folders
import numpy as np
import pytest

import apk_artifacts
import arm64_check
from arm64_check import Checked, KernelAnswer
from pocketbert_bench.configurations import Call, Configuration, from_bundle

CHECKED = Checked(
    name="mine", recipe="float32", length=9, difference=0.01, tolerance=0.01, instructions=1000, vector_share=0.5
)


def configuration(*expected: dict[str, Any]) -> Configuration:
    calls = tuple(Call(signature="", inputs={"input_ids": [1]}, expected=values) for values in expected)
    return Configuration(
        label="mine",
        model="network",
        recipe="float32",
        model_path=Path("model.tflite"),
        length=9,
        threads=1,
        calls=calls,
        weights="random",
    )


def test_a_line_of_answers_is_read() -> None:
    assert arm64_check.values_of("2 start 3 1 -2.5 1e-3 end 1 nan")["start"] == [1, -2.5, 0.001]
    assert math.isnan(arm64_check.values_of("1 end 1 nan")["end"][0])


def test_largest_difference_of_all_calls_counts() -> None:
    # The tolerance is a thousandth of the largest value, 4.
    subject = configuration({"a": [[1.0, -4.0]], "b": [[2.0]]}, {"a": [[0.0, 0.0]], "b": [[0.0]]})
    answers = [
        KernelAnswer({"a": [1.0, -4.003], "b": [2.0]}, 10, 5),
        KernelAnswer({"a": [0.0, 0.0], "b": [-0.002]}, 40, 30),
    ]
    checked = arm64_check.checked(subject, 9, answers)
    assert checked.difference == pytest.approx(0.003) and checked.tolerance == pytest.approx(0.004)
    assert (checked.instructions, checked.vector_share) == (40, 0.75)
    assert arm64_check.answer_problems([checked]) == []


def test_difference_from_the_runtime_counts() -> None:
    subject, answers = configuration({"a": [[1.0, -4.0]]}), [KernelAnswer({"a": [1.0, -4.0]}, 10, 5)]
    checked = arm64_check.checked(subject, 9, answers, [{"a": np.array([[1.0, -4.25]])}])
    assert checked.difference == 0.25


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_off(value: float) -> None:
    subject = configuration({"a": [[1.0]]}, {"a": [[2.0]]})
    checked = arm64_check.checked(subject, 9, [KernelAnswer({"a": [value]}, 1, 1), KernelAnswer({"a": [2.0]}, 1, 1)])
    (problem,) = arm64_check.answer_problems([checked])
    assert problem == (
        "mine at 9 tokens must reproduce its golden examples and the runtime's outputs within 0.002; it is off by inf"
    )


def test_difference_at_the_tolerance_passes() -> None:
    (problem,) = arm64_check.answer_problems([CHECKED, dataclasses.replace(CHECKED, name="off", difference=0.0101)])
    assert problem.startswith("off at 9 tokens")


def test_other_outputs_are_refused() -> None:
    with pytest.raises(apk_artifacts.BuildError, match="mine must have the outputs a; received .'b'"):
        arm64_check.checked(configuration({"a": [[1.0]]}), 9, [KernelAnswer({"b": [1.0]}, 1, 1)])


def test_count_two_percent_larger_passes() -> None:
    expected = {"a": 1000, "b": 1000}
    assert arm64_check.count_problems({"a": 1020, "b": 10}, expected) == []
    (more,) = arm64_check.count_problems({"a": 1021}, expected)
    assert "a must need at most 2% more than 1,000 instructions; it needs 1,021" in more
    (unknown,) = arm64_check.count_problems({"c": 1}, expected)
    assert "c has no recorded count; run with --record" in unknown


def test_the_runtime_is_the_apps() -> None:
    (recorded,) = apk_artifacts.recorded(arm64_check.ARM64 / "artifacts.sha256")
    (apps,) = (name for name in apk_artifacts.recorded() if name.startswith("tensorflow-lite-") and "android" in name)
    assert recorded.replace("linux-", "android-") == apps


def test_what_is_missing_is_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(arm64_check, "PACKAGES", {"no-such-emulator": "its-package", "no-such-library": "its-package"})
    assert arm64_check.main([]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("the check on ARM64 needs no-such-emulator, no-such-library, which this machine lacks;")
    assert line.endswith("--no-install-recommends its-package")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Returns the built program and a bundle with int8 weights."""
    folder = tmp_path_factory.mktemp("arm64")
    arm64_check.build(folder)
    bundles = arm64_check.reference_bundles(folder)
    return folder, next(bundle for bundle in bundles if bundle.name == "dynamic_wi8")


@pytest.mark.arm64
def test_bundle_with_wrong_outputs_fails(
    built: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, good = built
    wrong = tmp_path / "wrong"
    shutil.copytree(good, wrong)
    # Both recorded outputs, so that they still agree.
    bundle_folders.change_answers(wrong, {"outputs/logits": lambda logits: logits + 1})
    # The fixture has already built both.
    monkeypatch.setattr(arm64_check, "build", lambda into: shutil.copytree(folder, into, dirs_exist_ok=True))
    monkeypatch.setattr(arm64_check, "reference_bundles", lambda _: [good])
    output = tmp_path / "found.json"
    assert arm64_check.main([str(wrong), f"--output={output}"]) == 1
    printed = capsys.readouterr()
    problems = [line for line in printed.err.splitlines() if "must reproduce its golden examples" in line]
    assert [line.split(" tokens")[0] for line in problems] == ["wrong at 32", "wrong at 64"]
    content = json.loads(output.read_text(encoding="utf-8"))
    assert content["measured_on"] == "qemu" and len(content["bundles"]) == 4
    # TensorFlow Lite's own kernels, without XNNPACK, need several times as many.
    assert all(0.6 < bundle["vector_share"] < 0.9 for bundle in content["bundles"])
    assert not any(line.startswith("dynamic_wi8") for line in printed.err.splitlines())


@pytest.mark.arm64
def test_weight_cache_of_the_app_is_written_once_and_read(built: tuple[Path, Path], tmp_path: Path) -> None:
    folder, bundle = built
    cache = tmp_path / "weights.xnnpack"
    configuration = from_bundle(bundle, None, (1,), label=bundle.name)[0]
    _, without = arm64_check.ask(folder, configuration.model_path, configuration.calls)
    _, writing = arm64_check.ask(folder, configuration.model_path, configuration.calls, cache)
    content = cache.read_bytes()
    assert len(content) > 500_000
    _, reading = arm64_check.ask(folder, configuration.model_path, configuration.calls, cache)
    assert cache.read_bytes() == content
    for answers in (writing, reading):
        assert [answer.values for answer in answers] == [call.values for call in without]
    # Without its weights, the outputs would change.
    cache.write_bytes(content[: len(content) // 4] + bytes(len(content) // 2) + content[3 * len(content) // 4 :])
    _, damaged = arm64_check.ask(folder, configuration.model_path, configuration.calls, cache)
    assert [call.values for call in damaged] != [call.values for call in without]
