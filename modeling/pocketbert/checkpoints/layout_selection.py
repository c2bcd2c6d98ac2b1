"""Which tokenizer a model directory has: classes in transformers, and the layout of a unigram tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pocketbert.checkpoints.families.registry import FAMILIES
from pocketbert.checkpoints.tokenizer_keys import CONFIG_NAME
from pocketbert.configs import TokenizerKind
from pocketbert.json_reading import read_json_object
from pocketbert_runtime.tokenizers.kinds.registry import ALL_RULES
from pocketbert_runtime.tokenizers.kinds.rules import TokenizerRules
from pocketbert_runtime.tokenizers.layouts import LAYOUTS, XLM_R

# Classes that follow tokenizer.json, whatever tokenizer_config.json says: in transformers 4 and 5.
BARE_CLASSES = ("PreTrained", "TokenizersBackend")


def class_name(config: Mapping[str, Any]) -> str:
    """The class in transformers, without "Tokenizer" and "Fast"; empty if the file states none."""
    return str(config.get("tokenizer_class") or "").removesuffix("Fast").removesuffix("Tokenizer")


def class_problems(config: Mapping[str, Any], kind: TokenizerKind, rules: TokenizerRules) -> list[str]:
    """Lists a class in tokenizer_config.json that is not one of a tokenizer's."""
    name = class_name(config)
    if not name or name in BARE_CLASSES or name in rules.classes:
        return []
    declared = [other for other, row in ALL_RULES if name in row.classes]
    if declared:
        described = kind if declared[0] != kind else rules.files[0]
        return [
            f"tokenizer_class in {CONFIG_NAME} must be that of the files, which are of {described}; received "
            f"{config['tokenizer_class']}; take all files from one model"
        ]
    classes = ", ".join(f"{name}Tokenizer" for _, row in ALL_RULES if row.files == rules.files for name in row.classes)
    return [
        f"tokenizer_class in {CONFIG_NAME} must be one of {classes}; received {str(config['tokenizer_class'])[:60]}, "
        "which may split texts in another way"
    ]


def layout_of(path: Path, file: str, config: Mapping[str, Any], parts: Mapping[str, Any] | None) -> str:
    """Returns the layout of a unigram tokenizer, a name in `LAYOUTS`.

    As in transformers, the class in tokenizer_config.json decides, then that in config.json, then `model_type`; a
    tokenizer.json shows it before config.json.

    Args:
      path: the model directory.
      file: its sentencepiece model; empty for none.
      config: tokenizer_config.json.
      parts: tokenizer.json, or None.
    """
    rows = [layout for layout in LAYOUTS.values() if not file or layout.file == file]
    by_class = {name: layout.name for layout in rows for name in layout.classes}
    if (name := class_name(config)) in by_class:
        return by_class[name]
    if (stored := _stored_layout(parts)) in by_class.values():
        return stored
    # `huggingface` reports problems with this file.
    model = read_json_object(path / "config.json", [], required=False) or {}
    if (name := class_name(model)) in by_class:
        return by_class[name]
    family = FAMILIES.get(str(model.get("model_type")))
    layout = family.tokenizer_layout if family is not None else XLM_R
    return layout if layout in by_class.values() else rows[0].name


def _stored_layout(parts: Mapping[str, Any] | None) -> str:
    """The layout with the first tokens of a tokenizer.json; empty for none."""
    model = (parts or {}).get("model")
    entries = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(entries, list):
        return ""
    longest = max(len(layout.leading) for layout in LAYOUTS.values())
    tokens = tuple(entry[0] for entry in entries[:longest] if isinstance(entry, list) and entry)
    return next((name for name, layout in LAYOUTS.items() if tokens[: len(layout.leading)] == layout.leading), "")
