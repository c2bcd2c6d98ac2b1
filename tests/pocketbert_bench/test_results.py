from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bench_subjects
import jsonschema
import numpy as np
import pytest

from pocketbert import cli
from pocketbert.errors import UserError
from pocketbert_bench import accuracy, machine, report, results, statistics
from pocketbert_export.bundles.bundle import read_verification

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def content() -> results.ResultFile:
    ratio = results.ratio(
        name="a",
        description="a over b",
        ours="a",
        peer="b",
        unit="us",
        ours_samples=[2.0, 3.0, 4.0],
        peer_samples=[4.0, 4.0, 5.0],
        better="lower",
        target=0.9,
    )
    score = accuracy.record(
        label="float32",
        model="net",
        recipe="float32",
        task="mood",
        split="dev",
        metric="accuracy",
        value=0.5,
        examples=8,
    )
    return bench_subjects.result(
        bench_subjects.measurement("float32", 32, 3.0),
        bench_subjects.failed("broken", 32, "it broke"),
        accuracies=(score,),
        ratios=(ratio,),
        notes=("a note",),
    )


def test_what_is_written_is_read_again(content: results.ResultFile, tmp_path: Path) -> None:
    results.write(tmp_path / "r.json", content)
    assert results.read(tmp_path / "r.json") == content


def test_committed_schema_is_current() -> None:
    jsonschema.Draft202012Validator.check_schema(results.json_schema())
    committed = ROOT / "benchmarks" / "pocketbert_bench" / "results.schema.json"
    assert json.loads(committed.read_text(encoding="utf-8")) == results.json_schema(), (
        "run python -m pocketbert_bench.schema"
    )


def test_page_explains_every_field() -> None:
    page = results.page()
    for part in (results.ResultFile, results.Measurement, results.Ratio, results.Machine):
        assert f"## {part.__name__}\n" in page
        for field in dataclasses.fields(part):
            assert f"| `{field.name}` |" in page and field.metadata["description"] in page


def break_measurement(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["measurements"][0].update({key: value})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda document: document.pop("machine"), "'machine' is a required property"),
        (lambda document: document.update(unknown=1), "'unknown' was unexpected"),
        (lambda document: document.update(schema_version=2), "2 is not one of [1]"),
        (lambda document: document.update(measured_on="simulator"), "'simulator' is not one of"),
        (break_measurement("latency_us", "fast"), "measurements/0/latency_us"),
        (break_measurement("threads", 0), "measurements/0/threads"),
        (break_measurement("threads", 1.5), "measurements/0/threads"),
        (break_measurement("model_sha256", "abc"), "measurements/0/model_sha256"),
        (break_measurement("round_sizes", [3, 3]), "round_sizes must add up"),
        (break_measurement("runtime", None), "a measured one has runtime"),
        (break_measurement("error", "x"), "a measured one has no error"),
        (break_measurement("summary", {"median_us": 1.0}), "'summary' was unexpected"),
        (lambda document: document["measurements"][1].update(error=None), "a failed one has an error"),
        (lambda document: document["ratios"][0]["ours_samples"].append(1.0), "as many values"),
        (lambda document: document.update(measured_on="qemu"), "an emulator's time is no latency"),
        (
            lambda document: document["measurements"].append(document["measurements"][0]),
            "another one of this network has that name",
        ),
    ],
)
def test_damaged_file_error_names_the_place(
    content: results.ResultFile, tmp_path: Path, damage: Callable[[dict[str, Any]], None], message: str
) -> None:
    document = copy.deepcopy(results.to_json(content))
    damage(document)
    path = tmp_path / "r.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(UserError, match="r.json") as caught:
        results.read(path)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (b'{"a": ', "must be JSON"),
        (b"[" * 5000, "nests at most 64 levels deep"),
        (b'{"title": ' + b"9" * 5000 + b"}", "a number has at most 100 digits"),
        (b"[" + b"1.25,\n" * 2_500_000 + b"1]", "at most 8,388,608 bytes"),
        (b"\xff{}", "must be UTF-8"),
    ],
    ids=["half", "deep", "digits", "15 MB", "bytes"],
)
def test_unreadable_result_fails_in_one_line(
    written: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(written)
    assert cli.main(["report", str(path), f"--output={tmp_path / 'page'}"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line and "r.json" in line
    assert not (tmp_path / "page").exists()


def test_absent_result_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.json: the file cannot be read"):
        results.read(tmp_path / "none.json")


@pytest.mark.parametrize("verification", ["[", "[]", '{"checks": 3}', '{"checks": [3]}', '{"checks": [{"name": "a"}]}'])
def test_damaged_verification_is_refused(verification: str, content: results.ResultFile, tmp_path: Path) -> None:
    results.write(tmp_path / "r.json", content)
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "verification.json").write_text(verification, encoding="utf-8")
    with pytest.raises(UserError, match=r"verification\.json: .* must be .*; export the bundle again$"):
        read_verification(tmp_path / "bundle")


def test_mutated_results_are_read_or_refused(content: results.ResultFile, tmp_path: Path) -> None:
    generator, read = random.Random(0), 0
    document, path = results.to_json(content), tmp_path / "r.json"
    places = list(_places(document))
    values = [None, True, 0, -1, 1e300, 10**99, "", "\0\n" * 99, [], {}, [[]], 0.5, 3]
    for _ in range(200):
        mutated = copy.deepcopy(document)
        *parents, last = generator.choice(places)
        part = functools.reduce(lambda value, key: value[key], parents, mutated)
        match generator.choice("change remove repeat cut".split()):
            case "change":
                part[last] = generator.choice(values)
            case "remove":
                del part[last]
            case "repeat" if isinstance(part, list):
                part.append(part[last])
        written = json.dumps(mutated).encode()
        path.write_bytes(written[: generator.choice([len(written), generator.randrange(len(written))])])
        with contextlib.suppress(UserError):
            report.table(results.read(path))
            read += 1
    assert 20 < read < 120


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys that lead to each part of a JSON value."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield (*path, key)
        yield from _places(value[key], (*path, key))


def test_a_wrong_file_is_not_written(content: results.ResultFile, tmp_path: Path) -> None:
    wrong = dataclasses.replace(content, title=3)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="title"):
        results.write(tmp_path / "r.json", wrong)
    assert not list(tmp_path.iterdir())


def test_a_summary_is_numpys() -> None:
    samples = np.random.default_rng(0).gamma(3, 1000, 83).round(1)
    summary = statistics.summarize(samples.tolist())
    percentiles = (summary.median_us, summary.p90_us, summary.p99_us)
    assert percentiles == tuple(np.percentile(samples, [50, 90, 99]))
    assert summary.median_interval_us[0] < summary.median_us < summary.median_interval_us[1]


@pytest.mark.parametrize(
    ("better", "target", "met"),
    [
        ("lower", 0.76, True),
        ("lower", 0.75, False),
        ("higher", 0.74, True),
        ("higher", 0.75, False),
        ("lower", None, None),
    ],
)
def test_target_uses_the_intervals_worse_end(better: Any, target: float | None, met: bool | None) -> None:
    peer = np.linspace(3, 5, 21)
    samples = peer * np.linspace(0.745, 0.755, 21)
    ratio = results.ratio(
        name="a", description="", ours="a", peer="b", unit="us", ours_samples=samples.tolist(),
        peer_samples=peer.tolist(), better=better, target=target,
    )  # fmt: skip
    assert ratio.value == pytest.approx(0.75)
    assert ratio.interval[0] < 0.75 < ratio.interval[1]
    assert ratio.met is met


def test_ratio_of_failed_measurement_is_refused() -> None:
    good, bad = bench_subjects.measurement("a", 32, 3.0), bench_subjects.failed("b", 32, "it broke")
    with pytest.raises(UserError, match="b: it broke"):
        results.latency_ratio("a", good, bad, "", None)


def test_this_machine_is_described() -> None:
    host = machine.machine()
    assert host.cores >= 1 and host.memory_bytes > 1e8 and host.cpu and len(host.load_average) == 3
    assert {"ai-edge-litert", "numpy", "tensorflow"} <= set(host.packages)
