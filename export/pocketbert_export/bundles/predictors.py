"""Open predictors for model directories and bundles."""

from __future__ import annotations

import os
from pathlib import Path

from pocketbert.data.assets import model_directory
from pocketbert.hub.names import shown
from pocketbert.model import Model, from_pretrained
from pocketbert.notation import argument
from pocketbert.tasks.predictor import Predictor, model_predictor
from pocketbert_export.bundles.bundle import BUNDLE_FILE, Bundle
from pocketbert_export.bundles.pair_head import text_encoder
from pocketbert_runtime.bundles.pair_forward import is_separate

# Remedy for texts longer than a float model's limit.
NO_MORE_POSITIONS = "the network has no more positions: split them"


def open_predictor(path: str | os.PathLike[str], **windows: int | None) -> Predictor:
    """Opens a model directory or a bundle.

    Raises:
      UserError: the folder is neither, is damaged, or its task predicts nothing; or the windows do not fit.
    """
    network = open_network(path)
    if isinstance(network, Bundle):
        return network.predictor(**windows)
    return model_predictor(network, shown(path), **windows)


def open_text_predictor(path: str | os.PathLike[str]) -> Predictor:
    """Opens a model directory or a bundle to read single texts; raises a `UserError` as `open_predictor` does.

    For separate pairs, it predicts the texts' vectors for the head; a head on means multiplies them by 10.
    """
    network = open_network(path)
    if isinstance(network, Bundle):
        return network.text_predictor()
    return model_predictor(text_encoder(network) if is_separate(network.task) else network, shown(path))


def open_network(path: str | os.PathLike[str]) -> Model | Bundle:
    """Opens a model directory or bundle, perhaps downloaded as by `pocketbert fetch`; else raises a `UserError`."""
    folder = model_directory(path, "either")
    return Bundle.open(folder) if (folder / BUNDLE_FILE).exists() else from_pretrained(folder)


def open_both(
    model: str | os.PathLike[str], bundle: str | os.PathLike[str], **windows: int | None
) -> tuple[Predictor, Predictor]:
    """Opens a model directory and its bundle for a comparison, with the same windows for paragraphs.

    Args:
      model: the model directory.
      bundle: the model's bundle; its longest length is the window.
      **windows: as for `open_predictor`, without the length.
    Raises:
      UserError: as for `open_predictor`.
    """
    longest = max(Bundle.open(bundle).lengths)
    first, second = (open_predictor(path, max_length=longest, **windows) for path in (model, bundle))
    return first, second


def limit_remedy(path: str | os.PathLike[str]) -> str:
    """Returns the remedy for texts longer than a bundle's or model directory's limit."""
    if (Path(path) / BUNDLE_FILE).exists():
        return f"export the model with a longer {argument('lengths', of='export')}"
    return NO_MORE_POSITIONS
