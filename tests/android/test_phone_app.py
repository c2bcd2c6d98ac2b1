"""Compares the protocol between phone and command with the app's Java sources."""

from __future__ import annotations

import json
import re
import typing
from pathlib import Path

import pytest

from pocketbert_bench import phone_app

ROOT = Path(__file__).parents[2]
APP = ROOT / "android_app"
DEVICE = APP / "core/src/main/java/org/pocketbert/device"


def java(name: str) -> str:
    return (DEVICE / name).read_text(encoding="utf-8")


def test_states_and_members_of_the_line() -> None:
    text = java("StateLine.java")
    body = re.search(r"enum State \{(.*?)\}", text, re.DOTALL)
    assert body and [word.strip().lower() for word in body[1].split(",")] == list(typing.get_args(phone_app.State))
    members = re.findall(r'members\.put\("(\w+)"', text)
    assert members == ["run", *phone_app.Progress.__dataclass_fields__]
    assert f'TAG = "{phone_app.LOG[-1].partition(":")[0]}"' in text


LINE = {"run": "r", "state": "done", "done": 1, "of": 2, "reason": None, "result": "r.json"}


def test_line_about_the_run_is_parsed() -> None:
    expected = phone_app.Progress(state="done", done=1, of=2, reason=None, result="r.json")
    assert phone_app.parse(json.dumps(LINE), "r") == expected
    refusal = {**LINE, "state": "refused", "reason": "length must be 128", "result": None}
    answers = phone_app.parse(json.dumps(refusal), "r")
    assert answers and (answers.state, answers.reason) == ("refused", "length must be 128")


def test_foreign_lines_are_passed_over() -> None:
    lines = [
        "",
        "--------- beginning of main",
        "[" * 100_000,
        '{"run":' * 100_000,
        "1" * 5000,
        "NaN",
        '["r"]',
        '{"run": "r"',
    ]
    lines += [json.dumps({**LINE, "run": other}) for other in ("s", None, ["r"])]
    assert [phone_app.parse(line, "r") for line in lines] == [None] * len(lines)


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "flying"}, {"state": None}, {"state": ["done"]}, {"done": "1"}, {"done": -1}, {"done": True},
        {"of": None}, {"reason": 5}, {"result": ["r.json"]}, {"result": "../r.json"}, {"more": 1},
    ],
)  # fmt: skip
def test_malformed_lines_raise_an_error(changes: dict[str, object]) -> None:
    with pytest.raises(phone_app.AppError, match="must have the form of this version of PocketBERT"):
        phone_app.parse(json.dumps({**LINE, **changes}), "r")


def test_request_keys_and_choices_match_java() -> None:
    text = java("RunRequest.java")
    options = {"length": 9, "threads": 1, "delegate": "cpu", "affinity": "any", "weight_cache": "off", "repeat": 1}
    words = phone_app.start_command("run", "bundle", options)
    keys = [words[index + 1] for index, word in enumerate(words) if word in ("--es", "--ei")]
    assert f"a key must be one of {', '.join(keys)};" in text
    for key, choices in (("delegate", phone_app.DELEGATES), ("affinity", phone_app.AFFINITIES)):
        listed = ", ".join(f'"{choice}"' for choice in choices)
        assert f'"{key}", Arrays.asList({listed})' in text
    assert f"MOST_REPEATS = {phone_app.MOST_REPEATS};" in text


def test_time_limits_exceed_the_app() -> None:
    text = java("DeviceRun.java")
    limit = {name: int(value) for name, value in re.findall(r"int (\w+_SECONDS) = (\d+);", text)}
    assert limit["COOL_DOWN_STEP_SECONDS"] < phone_app.SILENCE_SECONDS / 5
    assert limit["COOL_DOWN_SECONDS"] < phone_app.RUN_SECONDS / 2


def test_folders_match_the_app() -> None:
    text = (APP / "app/src/main/java/org/pocketbert/app/AppFolders.java").read_text(encoding="utf-8")
    # The path of getExternalFilesDir, as adb's shell sees it.
    assert phone_app.FILES == f"/sdcard/Android/data/{phone_app.APPLICATION}/files" and "getExternalFilesDir" in text
    assert '"bundles"' in text and '"results"' in text
    driver = (ROOT / "benchmarks/pocketbert_bench/device.py").read_text(encoding="utf-8")
    assert "{phone_app.FILES}/bundles/" in driver and "{phone_app.FILES}/results/" in driver
