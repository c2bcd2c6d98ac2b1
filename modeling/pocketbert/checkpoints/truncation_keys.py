"""How longer texts are cut, in tokenizer_config.json: transformers' key where it has one, otherwise ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pocketbert.checkpoints.tokenizer_keys import CONFIG_NAME, TRUNCATION_KEY
from pocketbert.errors import UserError
from pocketbert.tokenizers.truncation import HEAD, TAIL, parse_truncation

_SIDE_KEY = "truncation_side"


def read_truncation(content: Mapping[str, Any], problems: list[str]) -> str:
    """The truncation in the content of a tokenizer_config.json.

    Args:
      content: the parsed file; empty if there is none.
      problems: list that receives a problem of the keys.
    """
    side = TAIL if content.get(_SIDE_KEY) == "left" else HEAD
    stored = content.get(TRUNCATION_KEY)
    if stored is None:
        return side
    try:
        return parse_truncation(str(stored))
    except UserError as error:
        problems.append(f"{TRUNCATION_KEY} in {CONFIG_NAME}: {error}")
        return HEAD


def truncation_keys(truncation: str) -> dict[str, str]:
    """The keys of a tokenizer_config.json from which `read_truncation` restores a truncation; none for `head`."""
    if truncation == HEAD:
        return {}
    return {_SIDE_KEY: "left"} if truncation == TAIL else {TRUNCATION_KEY: truncation}
