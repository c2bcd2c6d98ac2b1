"""Truncation in tokenizer_config.json: transformers' key if it has one, otherwise ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pocketbert.checkpoints.tokenizer_keys import CONFIG_NAME, TRUNCATION_KEY
from pocketbert.errors import UserError
from pocketbert_runtime.tokenizers.truncation import HEAD, TAIL, parse_truncation

_SIDE_KEY = "truncation_side"


def read_truncation(content: Mapping[str, Any], parts: Mapping[str, Any] | None, problems: list[str]) -> str:
    """Returns the truncation in a model directory.

    Args:
      content: the parsed tokenizer_config.json; empty if there is none.
      parts: the parsed tokenizer.json, or None. Its side counts if `content` has none, as in transformers.
      problems: list for problems with the keys.
    """
    part = (parts or {}).get("truncation")
    direction = part.get("direction") if isinstance(part, dict) else None
    side = TAIL if (content.get(_SIDE_KEY) or direction) in ("left", "Left") else HEAD
    stored = content.get(TRUNCATION_KEY)
    if stored is None:
        return side
    try:
        return parse_truncation(str(stored))
    except UserError as error:
        problems.append(f"{TRUNCATION_KEY} in {CONFIG_NAME}: {error}")
        return HEAD


def truncation_keys(truncation: str) -> dict[str, str]:
    """Returns keys for a tokenizer_config.json, from which `read_truncation` restores a truncation; none for `head`."""
    if truncation == HEAD:
        return {}
    return {_SIDE_KEY: "left"} if truncation == TAIL else {TRUNCATION_KEY: truncation}
