"""Finds the model directory or bundle for an option, without TensorFlow."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from pocketbert.errors import UserError, did_you_mean
from pocketbert.hub.download import download
from pocketbert.hub.names import is_hub_name
from pocketbert.notation import command
from pocketbert.progress import log_info

MODEL_FILE, BUNDLE_FILE = "config.json", "bundle.json"
# From sentence-transformers; its config.json may lie in a folder beside it.
_MODULES_FILE = "modules.json"
# What an option takes: a model directory, a bundle, either of them, or a model directory or an architecture.
ModelForm: TypeAlias = Literal["model", "bundle", "either", "start"]
# Where the commands put models and bundles in their output folder.
_MODELS, _BUNDLES = ("model", "run/model"), ("bundle",)
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
# Old names on the hub without an owner.
_OWNERS = {
    "bert-": "google-bert",
    "mobilebert-": "google",
    "distilbert-": "distilbert",
    "distilroberta-": "distilbert",
    "electra-": "google",
    "roberta-": "FacebookAI",
    "xlm-roberta-": "FacebookAI",
    "all-MiniLM-": "sentence-transformers",
}


def find_model(
    value: str | os.PathLike[str], form: ModelForm, names: tuple[str, ...] = (), pinned: Mapping[str, str] = {}
) -> Path | None:
    """Finds the model directory or bundle for an option, and downloads a model on the hub; None for one of `names`.

    Args:
      value: a model directory or bundle, an output folder with one (from `finetune`, `bundle` and others), or a name.
      form: what the option takes.
      names: model names for `pocketbert fetch`.
      pinned: name on the hub → commit, from a run to resume.
    Raises:
      UserError: there is no such model or bundle. The message has a remedy.
    """
    path, name = Path(value), os.fspath(value)
    if is_hub_name(name) and form != "bundle":
        return download(name, pinned)
    models = (MODEL_FILE, _MODULES_FILE)
    files = {"model": models, "bundle": (BUNDLE_FILE,), "either": (BUNDLE_FILE, *models)}
    if not path.exists():
        if name in names and form != "bundle":
            return None
        raise UserError(_missing(name, form, names))
    if form == "start" or any((path / file).exists() for file in files[form]):
        return path
    for folder, file in [
        *((bundle, BUNDLE_FILE) for bundle in _BUNDLES if form != "model"),
        *((model, MODEL_FILE) for model in _MODELS if form != "bundle"),
    ]:
        if (path / folder / file).exists():
            log_info(f"{path}: using {path / folder}")
            return path / folder
    raise UserError(_unfit(path, form))


def hub_name(name: str) -> str | None:
    """Returns a model's name on Hugging Face's hub, with its owner; None if it does not look like one."""
    if _HUB_NAME.fullmatch(name) and not name.startswith("."):
        return name
    owner = next((owner for prefix, owner in _OWNERS.items() if name.startswith(prefix)), None)
    return f"{owner}/{name}" if owner and "/" not in name else None


def hub_remedy(name: str) -> str:
    """Returns a remedy with a model's name on the hub; empty if the name does not look like one."""
    repository = hub_name(name)
    if repository is None:
        return ""
    return f"; if it is on Hugging Face's hub, pass hf:{repository}"


def _missing(name: str, form: ModelForm, names: tuple[str, ...]) -> str:
    if form == "bundle":
        return f"a bundle must be a folder written by pocketbert export; received {name}; check the path"
    what = {"model": "a model directory must be a folder", "start": "a student must be a preset, a folder"}.get(
        form, f"a model must be a folder with {BUNDLE_FILE} (a bundle) or {MODEL_FILE} (a model directory)"
    )
    return (
        f"{what} or a name for pocketbert fetch ({', '.join(names)}); received {name}{did_you_mean(name, names)}; "
        f"check the path{hub_remedy(name)}"
    )


def _unfit(path: Path, form: ModelForm) -> str:
    if form == "model" and (path / BUNDLE_FILE).exists():
        return (
            f"a model directory must be a folder with {MODEL_FILE}; received the bundle {path}; pass the model that it "
            "was exported from"
        )
    if form == "bundle":
        remedy = ""
        if (path / MODEL_FILE).exists():
            remedy = f"; export it first: {command('export', python=f'pb.export({str(path)!r}, …)', model=str(path))}"
        return f"a bundle must be a folder with {BUNDLE_FILE}, written by pocketbert export; received {path}{remedy}"
    if form == "either":
        return (
            f"a model must be a folder with {BUNDLE_FILE} (a bundle) or {MODEL_FILE} (a model directory); received "
            f"{path}; pocketbert finetune writes a model directory, pocketbert export a bundle"
        )
    return (
        f"a model directory must be a folder with {MODEL_FILE} and weights, or a run that holds one; received {path}; "
        "pocketbert finetune and convert write model directories"
    )
