"""ALBERT's rules around sentencepiece, as in transformers' `AlbertTokenizer`.

Source: ALBERT (Lan et al. 2020), `preprocess_text` and `encode_pieces` in the authors' tokenization.py. Before
sentencepiece, white space is joined to one space and dropped at both ends; two backticks or apostrophes become a
quotation mark; letters are decomposed (NFKD), lose their accents and become small. After it, a subword with a digit and
a comma at its end is split again without the comma.

Departure from transformers' slow class, as in its fast class: a sigma from a mathematical letter is `σ` also at the end
of a word, and a special token is found only as it is written (`<PAD>` is text).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

from pocketbert_runtime.tokenizers.added_token_search import Normalized

_SPACE = "\u2581"
_CHARACTER = re.compile("``|''|.", re.DOTALL)


class _Characters(dict[str, str]):
    """Character → its small letters without accents, determined when a text first contains it."""

    def __missing__(self, character: str) -> str:
        letters = unicodedata.normalize("NFKD", character.lower())
        result = "".join(letter.lower() for letter in letters if not unicodedata.combining(letter))
        self[character] = result
        return result


_CHARACTERS = _Characters({"``": '"', "''": '"'})


def cleaned(text: str, *, joins_spaces: bool = True) -> Normalized:
    """Cleans a text.

    An accent belongs to the character before it; white space at the ends to none.

    Args:
      text: the text.
      joins_spaces: whether to join white space, and to drop it at the ends.
    """
    characters: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    space: tuple[int, int] | None = None
    for match in _CHARACTER.finditer(text):
        start, end = match.span()
        if joins_spaces and match[0].isspace():
            space = (start if space is None else space[0], end)
            continue
        if space is not None and characters:
            characters.append(" ")
            starts.append(space[0])
            ends.append(space[1])
        space = None
        result = _CHARACTERS[match[0]]
        characters += result
        starts += [start] * len(result)
        ends += [end] * len(result)
        position = len(starts) - 1
        while not result and position >= 0 and starts[position] == starts[-1]:
            ends[position] = end
            position -= 1
    return Normalized("".join(characters), starts, ends)


def is_split_again(subword: str) -> bool:
    """Whether a subword has a digit and a comma at its end."""
    return len(subword) > 1 and subword[-1] == "," and subword[-2].isdigit()


def split_numbers(subwords: Sequence[str], encode: Callable[[str], list[str]]) -> list[tuple[str, str]]:
    """Splits numbers with a comma again.

    Args:
      subwords: a text's subwords.
      encode: splits a text into subwords.
    Returns:
      Subwords, each with its part of the text; these parts joined are `subwords` joined.
    """
    results: list[tuple[str, str]] = []
    for subword in subwords:
        if not is_split_again(subword):
            results.append((subword, subword))
            continue
        parts = encode(subword[:-1].replace(_SPACE, ""))
        if not subword.startswith(_SPACE) and parts[0].startswith(_SPACE):
            parts = parts[1:] if len(parts[0]) == 1 else [parts[0][1:], *parts[1:]]
        parts.append(",")
        if "".join(parts) == subword:
            results += zip(parts, parts, strict=True)
        else:
            # The normalizer has changed the number: all of it belongs to the first subword.
            results += zip(parts, [subword, *[""] * (len(parts) - 1)], strict=True)
    return results
