"""The table of families: model type → family. Each row in `configs.MODEL_TYPES` has a file with its name here."""

from __future__ import annotations

import importlib

from pocketbert.checkpoints.families.family import Family
from pocketbert.configs import MODEL_TYPES
from pocketbert.errors import UserError

FAMILIES: dict[str, Family] = {}


def family_of(model_type: str) -> Family:
    """Returns the family of a configuration's `model_type`."""
    return FAMILIES[model_type]


def register(family: Family) -> Family:
    """Adds a family outside this package to the table.

    Raises:
      UserError: the model type is taken.
    """
    if family.model_type in FAMILIES:
        raise UserError(f"a model_type must be new; received {family.model_type!r}; choose another name")
    MODEL_TYPES.append(family.model_type)
    FAMILIES[family.model_type] = family
    return family


for _model_type in MODEL_TYPES:
    _module = importlib.import_module(f"pocketbert.checkpoints.families.{_model_type.replace('-', '_')}")
    FAMILIES[_model_type] = _module.FAMILY
