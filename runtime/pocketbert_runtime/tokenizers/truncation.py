"""Truncation of texts longer than the maximum sequence length.

- `head` keeps a text's first tokens; for two texts, it cuts the longer one first (transformers' `longest_first`).
- `tail` keeps the last tokens (transformers' `truncation_side="left"`); for two texts, with the lengths as in `head`.
- `head-tail:N` keeps the first N tokens of one text, and fills the rest with its last ones (Sun et al. 2019, section
  5.3.1, https://arxiv.org/abs/1905.05583: 128 first and 382 last among 510). Special tokens do not count. Without room
  for more than N tokens, it keeps the first ones.
- `only-second` cuts only the second text's end (transformers' `only_second`). transformers raises an error if the first
  text leaves no token for the second; here the second text is then empty, and the first text's end is cut.
"""

from __future__ import annotations

import re

from pocketbert_runtime.errors import UserError, did_you_mean

HEAD, TAIL, ONLY_SECOND = "head", "tail", "only-second"
# The name for `HEAD` with two texts.
LONGEST_FIRST = "longest-first"
_HEAD_TAIL = "head-tail:"
# For stored values other than `HEAD`. The last part rejects a trailing line break, which Python's `$` would match.
PATTERN = rf"^({TAIL}|{ONLY_SECOND}|{_HEAD_TAIL}[1-9][0-9]{{0,5}})$(?!\n)"
_NAMES = (HEAD, TAIL, f"{_HEAD_TAIL}N", ONLY_SECOND, LONGEST_FIRST)


def parse_truncation(value: str) -> str:
    """Returns a value's stored form: `longest-first` is `head`.

    Raises:
      UserError: the value is unknown, or N in `head-tail:N` is not a positive number.
    """
    name = value.replace("_", "-")
    if name in (HEAD, LONGEST_FIRST):
        return HEAD
    if re.search(PATTERN, name):
        return name
    rule = f"truncation must be one of {', '.join(_NAMES)}"
    if name.startswith(_HEAD_TAIL.rstrip(":")):
        raise UserError(f"{rule}, where N is a number of tokens of at least 1; received {value!r}; pass head-tail:128")
    raise UserError(f"{rule}; received {value!r}{did_you_mean(name, _NAMES)}")


def head_tokens(truncation: str) -> int | None:
    """N in `head-tail:N`; None for the others."""
    return int(truncation.removeprefix(_HEAD_TAIL)) if truncation.startswith(_HEAD_TAIL) else None


def room_problem(truncation: str, max_length: int, option: str = "max_length") -> str:
    """Explains why `head-tail:N` leaves no last tokens at a length; empty if it does, and for other values.

    Args:
      truncation: a stored value.
      max_length: maximum sequence length, with the two special tokens around a text.
      option: the length's name in the message.
    """
    count, room = head_tokens(truncation), max_length - 2
    if count is None or count < room:
        return ""
    return (
        f"truncation=head-tail:N needs N below {room}, the tokens of a text in {option}={max_length} without special "
        f"tokens; received {truncation}; pass a smaller N or a larger {option}"
    )
