"""Selects a repository's files that a model needs: settings, tokenizer, model card, and safetensors weights.

A file is selected by a name that this module knows, in the repository's folder or in a module's folder beside
modules.json. None of these files contains code.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from pocketbert.errors import UserError
from pocketbert.hub.names import CARD_FILE, HubName
from pocketbert.notation import command
from pocketbert_runtime.json_reading import read_json
from pocketbert_runtime.tokenizers.kinds.registry import TOKENIZER_RULES

MODULES_NAME = "modules.json"
_WEIGHTS, _INDEX, _KERAS = "model.safetensors", "model.safetensors.index.json", "tf_model.h5"
_SETTINGS = {
    *("config.json", MODULES_NAME, "config_sentence_transformers.json", _INDEX, CARD_FILE),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *(name for rules in TOKENIZER_RULES.values() for name in rules.files),
}
# Settings from sentence-transformers, and sentencepiece models, whose names depend on the family.
_SETTING = re.compile(r"sentence_\w+_config\.json|\w[\w.-]*\.model", re.ASCII)
_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors", re.ASCII)
_FOLDER = re.compile(r"\w[\w.-]*", re.ASCII)
# A name that stays inside the snapshot.
_PATH = re.compile(rf"(?:{_FOLDER.pattern}/)?{_FOLDER.pattern}", re.ASCII)
_OTHER_WEIGHTS = (".bin", ".h5", ".msgpack", ".onnx", ".ckpt", ".pt", ".pth")


def select_files(name: HubName, listed: Iterable[str], modules: Path, *, keras: bool) -> list[str]:
    """Returns the files to download, with the model's weights last.

    Args:
      name: the model, for messages.
      listed: the repository's files by path. A path that leaves its folder is never selected.
      modules: the downloaded modules.json, or a missing file.
      keras: whether `tf_model.h5` may replace missing safetensors.
    Raises:
      UserError: the model or a module has no suitable weights.
    """
    files = [file for file in listed if _PATH.fullmatch(file)]
    settings: list[str] = []
    weights: list[str] = []
    refused: set[str] = set()
    for folder in ("", *module_folders(modules)):
        prefix = f"{folder}/" if folder else ""
        names = [file.removeprefix(prefix) for file in files if file.rpartition("/")[0] == folder]
        settings += [f"{prefix}{file}" for file in names if file in _SETTINGS or _SETTING.fullmatch(file)]
        chosen = _weights(names, keras)
        # The encoder's folder comes first; a dense layer's weights are downloaded before the encoder's.
        weights = [*(f"{prefix}{file}" for file in chosen), *weights]
        refused |= set() if chosen else {file for file in names if file.endswith(_OTHER_WEIGHTS)}
    if refused or not weights:
        received = ", ".join(sorted(refused)) or "no weights"
        raise UserError(
            f"{name}: a model on the hub must have safetensors; received {received}; {_remedy(name, refused)}"
        )
    return settings + weights


def has_weights(snapshot: Path, *, keras: bool) -> bool:
    """Whether a snapshot has a model's weights. `download` takes them last, so its own snapshot then is complete."""
    for folder in (snapshot, *(snapshot / name for name in module_folders(snapshot / MODULES_NAME))):
        if (folder / _WEIGHTS).exists() or (keras and (folder / _KERAS).exists()):
            return True
        if (folder / _INDEX).exists():
            content = read_json(folder / _INDEX)
            shards = content.get("weight_map") if isinstance(content, dict) else None
            files = shards.values() if isinstance(shards, dict) else [_WEIGHTS]
            return all((folder / Path(str(file)).name).exists() for file in files)
    return False


def module_folders(modules: Path) -> list[str]:
    """Returns the folders in a modules.json; other paths are left out here, and the reader refuses them."""
    content = read_json(modules) if modules.is_file() else []
    entries = [entry for entry in content if isinstance(entry, dict)] if isinstance(content, list) else []
    names = [str(entry.get("path")).removesuffix("/") for entry in entries]
    return [name for name in dict.fromkeys(names) if _FOLDER.fullmatch(name)]


def _weights(names: Collection[str], keras: bool) -> list[str]:
    """Returns a folder's weight files, in the reader's order of preference."""
    if _WEIGHTS in names:
        return [_WEIGHTS]
    if _INDEX in names:
        return [file for file in names if _SHARD.fullmatch(file)]
    return [_KERAS] if keras and _KERAS in names else []


def _remedy(name: HubName, refused: Collection[str]) -> str:
    if not refused:
        return "choose another model"
    if _KERAS not in refused:
        return "load it with transformers and save it with save_pretrained"
    python = f"pb.from_pretrained(huggingface_hub.snapshot_download({name.repository!r}))"
    folder = f"models/{name.repository.rpartition('/')[2]}"
    return f"run {command('convert', python=python, from_='hf', input=name.repository, output=folder)}"
