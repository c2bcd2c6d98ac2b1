"""XNNPACK's weight cache in the Java host: used, verified, and rebuilt when it is damaged."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny
from test_java_host import host

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert_bench import results
from pocketbert_export.exporter import export
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import SPECIAL_TOKENS

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Bundles of two networks of other shapes."""
    folder = tmp_path_factory.mktemp("bundles")
    words = [f"w{number}" for number in range(tiny.BERT.vocab_size - len(SPECIAL_TOKENS))]
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *words]) + "\n", encoding="utf-8")
    mood = TaskConfig(kind="classification", labels=("bad", "good"))
    bundles = []
    for name, size in (("first", 600), ("second", 632)):
        config = tiny.BERT.replace(intermediate_size=size)
        model = pb.from_preset(config, [mood], pb.WordPieceTokenizer(folder / "vocab.txt"), seed=3)
        model.save_pretrained(folder / f"{name}-model")
        bundles.append(export(folder / f"{name}-model", folder / name, recipe="float32", lengths=(9, 17)).directory)
    return bundles


def flip(cache: Path, other: Path) -> None:
    content = bytearray(cache.read_bytes())
    # The exponents of numbers: four bytes each, from an even start.
    for index in range(len(content) // 256 * 64, 3 * len(content) // 4, 64):
        content[index + 3] ^= 0x40
    cache.write_bytes(content)


def cut(cache: Path, other: Path) -> None:
    cache.write_bytes(cache.read_bytes()[: cache.stat().st_size // 2])


def swap(cache: Path, other: Path) -> None:
    cache.write_bytes(other.read_bytes())


def test_caches_are_built_once_and_used(bundles: list[Path], tmp_path: Path) -> None:
    folder, output = tmp_path / "caches", tmp_path / "result.json"
    sizes = {}
    for repeat in range(2):
        done = host(*bundles, "--lengths=9,17", f"--weight-cache={folder}", f"--output={output}", "--overwrite")
        assert done.returncode == 0, done.stdout
        times = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
        assert len(times) == 4 and (not repeat or times == sizes)
        sizes = times
    caches = {path.stat().st_size for path in folder.glob("*.xnnpack")}
    measured = results.read(output).measurements
    # One cache serves both lengths.
    assert {measurement.weight_cache_bytes for measurement in measured} == caches and len(measured) == 4
    for measurement in measured:
        assert measurement.delegate and measurement.delegate.name == "XNNPACK"
        assert measurement.delegate.delegated_ops > 0.8 * measurement.delegate.total_ops
        assert measurement.base_memory_bytes and measurement.resident_memory_bytes
        assert measurement.base_memory_bytes < measurement.resident_memory_bytes


@pytest.fixture(scope="module")
def caches(bundles: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both bundles' caches."""
    folder = tmp_path_factory.mktemp("caches")
    assert host(*bundles, "--lengths=9", f"--weight-cache={folder}").returncode == 0
    return folder


def cache_of(bundle: Path, folder: Path) -> tuple[Path, Path]:
    """The bundle's cache and the other one."""
    model = hashlib.sha256((bundle / "model.tflite").read_bytes()).hexdigest()
    by_model = sorted(folder.glob("*.xnnpack"), key=lambda cache: model not in cache.with_suffix(".json").read_text())
    return by_model[0], by_model[1]


@pytest.mark.parametrize("damage", [flip, cut, swap])
def test_damaged_caches_are_rebuilt(
    damage: Callable[[Path, Path], None], bundles: list[Path], caches: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(caches, tmp_path / "caches"))
    cache, other = cache_of(bundles[0], folder)
    whole = cache.read_bytes()
    damage(cache, other)
    done = host(bundles[0], "--lengths=9", f"--weight-cache={folder}")
    assert done.returncode == 0, done.stdout
    assert f"weight cache {cache}: its content is not what TensorFlow Lite wrote; it is built again" in done.stderr
    assert cache.read_bytes() == whole


def test_changed_weights_would_be_used(bundles: list[Path], caches: Path, tmp_path: Path) -> None:
    # The reason for the record: with a new digest, XNNPACK takes the changed bytes, and only the outputs show it.
    folder = Path(shutil.copytree(caches, tmp_path / "caches"))
    cache, other = cache_of(bundles[0], folder)
    flip(cache, other)
    record = cache.with_suffix(".json")
    content = json.loads(record.read_text(encoding="utf-8"))
    record.write_text(json.dumps({**content, "sha256": hashlib.sha256(cache.read_bytes()).hexdigest()}))
    done = host(bundles[0], "--lengths=9", f"--weight-cache={folder}")
    assert done.returncode == 1
    assert "its outputs must be those recorded at export" in done.stdout


def test_unwritable_folder_exits_2(bundles: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = host(bundles[0], f"--weight-cache={tmp_path / 'file' / 'caches'}")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "a weight cache needs a folder that you can write to; received" in done.stderr
