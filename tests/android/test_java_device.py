"""The app's core writes result files that match the schema."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from pocketbert_bench import results

pytestmark = pytest.mark.java


def test_phone_run_matches_the_schema(java: Any, tmp_path: Path) -> None:
    written = tmp_path / "measurements.json"
    java("org.pocketbert.device.DeviceRunMain", written)
    measurements = json.loads(written.read_text(encoding="ascii"))
    # Three runs of one configuration in one file, for this test only.
    for number, measurement in enumerate(measurements):
        measurement["label"] += f" {number}"
    host = results.to_json(results.result_file("a run", quick=False))
    document = {**host, "measured_on": "device", "measurements": measurements}
    assert results.problems(document) == []
    good, spoiled, gpu = measurements
    assert (good["status"], spoiled["status"], gpu["status"]) == ("ok", "failed", "ok")
    assert gpu["delegate"] == {"name": "GPU", "delegated_ops": 19, "total_ops": 20}
    for measurement in measurements:
        assert set(measurement["device"]) == {field.name for field in dataclasses.fields(results.DeviceConditions)}
        assert measurement["device"]["affinity"] == "big"
    # Other members in the schema would be missing in the app. It measures no load.
    assert {field.name for field in dataclasses.fields(results.Measurement)} == {*good, "load"}
