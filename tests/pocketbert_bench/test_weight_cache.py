"""CompiledModel and XNNPACK's weight cache, against the outputs recorded at export by the interpreter."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import bench_subjects
import pytest

from pocketbert import cli
from pocketbert.errors import UserError
from pocketbert_bench import configurations, host, results, weight_cache
from pocketbert_bench.configurations import Configuration
from pocketbert_bench.host import Worker


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Bundles of two networks of other shapes."""
    from pocketbert_export.exporter import export

    folder = tmp_path_factory.mktemp("bundles")
    bundles = []
    for name, size, lengths in (("first", 600, (9, 17)), ("second", 632, (17,))):
        config = bench_subjects.bert_config(num_layers=1, intermediate_size=size)
        network = bench_subjects.write_network(folder / name / "network", config)
        export(network, folder / name / "bundle", recipe="float32", lengths=lengths)
        bundles.append(folder / name / "bundle")
    return bundles


def compiled(bundle: Path) -> Configuration:
    (subject,) = configurations.from_bundle(bundle, [17], [1])
    return dataclasses.replace(subject, runtime="litert-compiled")


def difference(configuration: Configuration, cache: Path | None) -> float:
    """Largest difference from the recorded outputs."""
    with Worker(dataclasses.replace(configuration, weight_cache=cache)) as worker:
        return max(worker.started["golden_differences"])


def prepared(bundle: Path, folder: Path) -> tuple[Path, int]:
    """The cache and how often the model was opened to build it."""
    built: list[Path] = []

    def build(path: Path) -> None:
        built.append(path)
        difference(compiled(bundle), path)

    return weight_cache.prepare(folder, compiled(bundle).model_path, build), len(built)


def test_compiled_model_gives_recorded_outputs(bundles: list[Path]) -> None:
    configuration = compiled(bundles[0])
    assert difference(configuration, None) <= configuration.tolerance()


def test_second_preparation_builds_nothing(bundles: list[Path], tmp_path: Path) -> None:
    cache, built = prepared(bundles[0], tmp_path / "new" / "folder")
    assert built == 1 and cache.stat().st_size > 100_000
    assert prepared(bundles[0], tmp_path / "new" / "folder") == (cache, 0)
    # A cache for each model; two files each, and nothing else.
    other, built = prepared(bundles[1], tmp_path / "new" / "folder")
    assert built == 1 and other != cache and len(list(cache.parent.iterdir())) == 4
    configuration = compiled(bundles[0])
    assert difference(configuration, cache) == difference(configuration, None)


def flip(cache: Path) -> None:
    content = bytearray(cache.read_bytes())
    # The exponents of numbers: four bytes each, from an even start.
    for index in range(len(content) // 256 * 64, 3 * len(content) // 4, 64):
        content[index + 3] ^= 0x40
    cache.write_bytes(content)


def cut(cache: Path) -> None:
    cache.write_bytes(cache.read_bytes()[: cache.stat().st_size // 2])


def edit_record(cache: Path) -> None:
    record = cache.with_suffix(".json")
    record.write_text(json.dumps({**json.loads(record.read_text(encoding="utf-8")), "cpu": "another"}))


def cut_record(cache: Path) -> None:
    cache.with_suffix(".json").write_text("{")


def empty_record(cache: Path) -> None:
    cache.with_suffix(".json").write_text("[]")


def drop_record(cache: Path) -> None:
    cache.with_suffix(".json").unlink()


@pytest.mark.one_of_each(
    "flip-its content is not what LiteRT wrote",
    "edit_record-its record names another model, runtime or processor",
    "cut_record-its record cannot be read",
    "drop_record-the cache or its record is missing",
)
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (flip, "its content is not what LiteRT wrote"),
        (cut, "its content is not what LiteRT wrote"),
        (edit_record, "its record names another model, runtime or processor"),
        (cut_record, "its record cannot be read"),
        (empty_record, "its record names another model, runtime or processor"),
        (drop_record, "the cache or its record is missing"),
    ],
)
def test_damaged_caches_are_rebuilt(
    damage: Callable[[Path], None], message: str, bundles: list[Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cache, _ = prepared(bundles[0], tmp_path)
    whole = cache.read_bytes()
    damage(cache)
    assert prepared(bundles[0], tmp_path) == (cache, 1)
    assert message in capfd.readouterr().err
    assert cache.read_bytes() == whole and prepared(bundles[0], tmp_path)[1] == 0


def test_foreign_cache_is_rebuilt(bundles: list[Path], tmp_path: Path) -> None:
    cache, other = prepared(bundles[0], tmp_path)[0], prepared(bundles[1], tmp_path)[0]
    cache.write_bytes(other.read_bytes())
    assert prepared(bundles[0], tmp_path) == (cache, 1)
    configuration = compiled(bundles[0])
    assert difference(configuration, cache) == difference(configuration, None)


def test_xnnpack_accepts_changed_bytes(bundles: list[Path], tmp_path: Path) -> None:
    # The reason for the record: without it, changed weights are used. A version that refuses them needs none.
    cache, _ = prepared(bundles[0], tmp_path)
    flip(cache)
    configuration = compiled(bundles[0])
    assert difference(configuration, cache) > configuration.tolerance()


def test_missing_cache_is_an_error(bundles: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="must write a weight cache .* it wrote none"):
        weight_cache.prepare(tmp_path, compiled(bundles[0]).model_path, lambda path: None)
    assert list(tmp_path.iterdir()) == []


def test_bench_measures_both_runtimes(
    bundles: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench_subjects.measure_briefly(monkeypatch)
    output, folder = tmp_path / "r.json", tmp_path / "caches"
    arguments = ["bench", str(bundles[0]), "--lengths=9", "--quick", f"--output={output}"]
    assert cli.main([*arguments, "--runtime=litert,litert-compiled", f"--weight-cache={folder}"]) == 0
    table = capsys.readouterr().out
    plain, cached = results.read(output).measurements
    assert plain.runtime and cached.runtime
    assert [plain.runtime.name, cached.runtime.name] == ["litert", "litert-compiled"]
    assert [plain.label, cached.label] == ["bundle", "bundle (litert-compiled)"]
    (cache,) = folder.glob("*.xnnpack")
    assert (plain.weight_cache_bytes, cached.weight_cache_bytes) == (None, cache.stat().st_size)
    assert cached.resident_memory_bytes and cached.base_memory_bytes
    assert cached.base_memory_bytes < cached.resident_memory_bytes
    assert "memory: bundle (litert-compiled): grew by" in table


def test_weight_cache_selects_compiled_model(
    bundles: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench_subjects.measure_briefly(monkeypatch)
    output = tmp_path / "r.json"
    arguments = ["bench", str(bundles[0]), "--lengths=9", "--quick", f"--output={output}"]
    assert cli.main([*arguments, f"--weight-cache={tmp_path}"]) == 0
    assert {measurement.runtime.name for measurement in results.read(output).measurements if measurement.runtime} == {
        "litert-compiled"
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--weight-cache=FILE/caches"], "a weight cache needs a folder that you can write to; received .*caches"),
        (["--runtime=litert", "--weight-cache=FOLDER"], "--weight-cache needs --runtime=litert-compiled"),
        (["--runtime=litert,litert"], "--runtime takes different runtimes; received litert,litert"),
        (["--weight-cache=FOLDER", "--device=1", "--output=FOLDER"], "--weight-cache is for this machine"),
    ],
)
def test_bad_options_exit_2(
    arguments: list[str],
    message: str,
    bundles: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "measure", lambda *_, **__: pytest.fail("nothing is measured"))
    (tmp_path / "file").touch()
    names = {"FILE": str(tmp_path / "file"), "FOLDER": str(tmp_path / "folder")}
    command = [arguments_with(argument, names) for argument in arguments]
    assert cli.main(["bench", str(bundles[0]), *command]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(message, error)


def arguments_with(argument: str, names: dict[str, str]) -> str:
    for name, path in names.items():
        argument = argument.replace(name, path)
    return argument
