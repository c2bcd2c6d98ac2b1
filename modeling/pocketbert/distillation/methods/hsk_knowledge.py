"""The hidden-state knowledge that HSK distils: layers, tokens and widths. Plain arithmetic, no TensorFlow."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from pocketbert.errors import UserError

WidthStrategy: TypeAlias = Literal["mag", "uniform", "rand"]

# Table 5: column (A^HSK in units) → rows of N_D, N_L and N_W/d, from top to bottom.
TABLE_5 = {
    "1": (
        "2,1,0.5 5,2,0.1 1,9,0.1 1,2,0.5 1,5,0.2 1,1,1 3,3,0.1 3,1,0.3 1,10,0.1 2,5,0.1 1,1,0.9 5,1,0.2 1,3,0.3"
    ).split(),
    "3": (
        "6,1,0.5 6,5,0.1 1,29,0.1 1,10,0.3 1,5,0.6 2,15,0.1 5,2,0.3 5,1,0.6 5,6,0.1 3,5,0.2 1,30,0.1 5,3,0.2 1,6,0.5 "
        "1,15,0.2 2,3,0.5 1,3,1 2,5,0.3 3,10,0.1 3,2,0.5 3,1,1"
    ).split(),
    "5": (
        "1,13,0.4 6,2,0.4 5,5,0.2 2,24,0.1 1,25,0.2 1,6,0.8 7,7,0.1 6,8,0.1 4,4,0.3 2,6,0.4 2,3,0.8 3,8,0.2 4,12,0.1 "
        "1,7,0.7 1,49,0.1 2,4,0.6 5,10,0.1 1,5,1 3,4,0.4 1,10,0.5 2,13,0.2 3,2,0.8 4,3,0.4 1,8,0.6 5,2,0.5 2,5,0.5 "
        "6,1,0.8 4,6,0.2 1,16,0.3 4,13,0.1 6,4,0.2"
    ).split(),
    "10": (
        "7,3,0.5 1,49,0.2 3,8,0.4 3,5,0.7 1,25,0.4 2,7,0.7 3,16,0.2 7,14,0.1 2,8,0.6 5,3,0.7 3,7,0.5 4,8,0.3 5,7,0.3 "
        "6,8,0.2 5,5,0.4 6,2,0.8 5,4,0.5 4,5,0.5 1,13,0.8 1,32,0.3 3,33,0.1 3,34,0.1 4,25,0.1 6,4,0.4 5,10,0.2 "
        "2,26,0.2 7,15,0.1 1,11,0.9 4,6,0.4 2,6,0.8 2,10,0.5 1,10,1 4,26,0.1 5,2,1 3,4,0.8 4,3,0.8"
    ).split(),
    "50": (
        "6,10,0.8 2,36,0.7 3,25,0.7 2,27,0.9 6,9,0.9 6,12,0.7 6,27,0.3 7,24,0.3 4,18,0.7 3,21,0.8 5,10,1 7,23,0.3 "
        "5,25,0.4 4,26,0.5 6,17,0.5 2,26,1 6,8,1 4,12,1 2,43,0.6 5,16,0.6 4,25,0.5"
    ).split(),
}
_NAME = re.compile(r"table5-(\d+)-(\d+)")
_ALL = "all"


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """Amounts in the three dimensions (section 5.1).

    Attributes:
      layers: N_D, number of layer pairs; None for all, L' + 1.
      tokens: N_L, number of tokens per example; None for all.
      width: N_W/d, share of the teacher's width, in (0, 1].
    """

    layers: int | None
    tokens: int | None
    width: Fraction

    @classmethod
    def parse(cls, text: str) -> Knowledge:
        """Parses `N_D,N_L,N_W/d`, such as `1,9,0.1` or `all,all,1`, or a name in table 5, such as `table5-10-3`.

        Raises:
          UserError: the text has another form, a number below 1, or a width outside (0, 1].
        """
        named = _NAME.fullmatch(text)
        if named and 1 <= int(named[2]) <= len(TABLE_5.get(named[1], ())):
            text = TABLE_5[named[1]][int(named[2]) - 1]
        try:
            layers, tokens, width = (part.strip() for part in text.split(","))
            knowledge = cls(
                layers=None if layers == _ALL else int(layers),
                tokens=None if tokens == _ALL else int(tokens),
                width=Fraction(width),
            )
        except (ValueError, ZeroDivisionError):
            columns = ", ".join(f"table5-{column}-1 to -{len(rows)}" for column, rows in TABLE_5.items())
            raise UserError(
                "knowledge must be N_D,N_L,N_W/d such as 1,9,0.1, with all for every layer or token, or one of "
                f"{columns}; received {text!r}"
            ) from None
        if min(knowledge.layers or 1, knowledge.tokens or 1) < 1 or 0 in (knowledge.layers, knowledge.tokens):
            raise UserError(f"knowledge needs at least 1 layer and 1 token; received {text!r}; give 1 or more")
        if not 0 < knowledge.width <= 1:
            raise UserError(f"knowledge needs a width in (0, 1]; received {text!r}; give 1 for the full width")
        return knowledge

    def __str__(self) -> str:
        return f"{self.layers or _ALL},{self.tokens or _ALL},{float(self.width):g}"

    def kept(self, width: int) -> int:
        """N_W = round(ratio·d), the number of activations kept from `width`."""
        return round(self.width * width)

    def units(self, pairs: int, tokens: int, width: int) -> float:
        """A^HSK = N_D · N_L · N_W/d (section 5.1).

        Args:
          pairs: L' + 1, for all layers.
          tokens: |x|, for all tokens.
          width: d.
        """
        return (self.layers or pairs) * (self.tokens or tokens) * self.kept(width) / width


def layer_map(student_layers: int, top_layer: int) -> tuple[int, ...]:
    """Returns g(0), …, g(L'): g(l, L_top) = round(l·L_top/L'), halves to even.

    Departure: eq. 5 as printed, l·round(L_top/L'), maps a student with 6 layers to 0, 2, …, 12 for L_top = 10, against
    the text around it. The authors' code is as here.
    """
    return tuple(round(Fraction(layer * top_layer, student_layers)) for layer in range(student_layers + 1))


def static_mask(strategy: WidthStrategy, count: int, width: int, seed: int) -> tuple[int, ...]:
    """Returns sorted indices, from 0, for a static mask's kept activations (section 4.3.1).

    `uniform` is eq. 7 with indices round(i·d/N_W), i = 1…N_W, counted from 1; halves to even. `rand` orders the indices
    by a digest, so a seed's mask never changes.
    """
    if strategy == "uniform":
        return tuple(round(Fraction(index * width, count)) - 1 for index in range(1, count + 1))
    digests = {index: hashlib.sha256(f"{seed} {index}".encode()).digest() for index in range(width)}
    return tuple(sorted(sorted(digests, key=digests.__getitem__)[:count]))
