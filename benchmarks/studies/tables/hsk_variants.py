"""The configurations of HSK's accuracy study: one dimension at a time, three together, and the baselines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TASKS = ("cola", "mrpc", "rte")
# Tasks of joint compression and sweeps.
SWEPT = TASKS[:2]
SEEDS = (0, 1, 2)
GENERAL, PRUNED = "4x312", "pruned 3x384"
STUDENTS = (GENERAL, PRUNED)
TEACHER_LAYERS = 6
# As the paper's 10 of 12.
TOP_LAYER = 5

Tokens = Literal["left", "att", "att-no-sep", "att-last-no-sep"]
Widths = Literal["mag", "uniform", "rand"]


@dataclass(frozen=True, kw_only=True)
class HSKVariant:
    """One amount of knowledge, and how it is chosen.

    Attributes:
      knowledge: N_D,N_L,N_W/d, or a name in table 5; None for the prediction stage only.
      top_layer: L_top.
      tokens: strategy for the tokens.
      widths: strategy for the activations.
    """

    knowledge: str | None
    top_layer: int = TOP_LAYER
    tokens: Tokens = "att-last-no-sep"
    widths: Widths = "mag"

    @property
    def label(self) -> str:
        """Name in result files and folders."""
        if self.knowledge is None:
            return "prediction only"
        parts = [self.knowledge.replace(",", " "), f"layer {self.top_layer}"]
        defaults = HSKVariant(knowledge=self.knowledge)
        parts += [value for value in (self.tokens, self.widths) if value not in (defaults.tokens, defaults.widths)]
        return " ".join(parts)


PREDICTION = HSKVariant(knowledge=None)
# The usual uniform mapping, g(l, L), and the one for the other sweeps.
FULL = HSKVariant(knowledge="all,all,1", top_layer=TEACHER_LAYERS)
WHOLE = HSKVariant(knowledge="all,all,1")
ALL = "all"
# Figure 3: L_top → N_D → variant.
DEPTH = {
    top: {number: HSKVariant(knowledge=f"{number},all,1", top_layer=top) for number in ("1", "2", ALL)}
    for top in (4, TOP_LAYER, TEACHER_LAYERS)
}
_TOKENS: tuple[Tokens, ...] = ("left", "att", "att-no-sep", "att-last-no-sep")
_WIDTHS: tuple[Widths, ...] = ("rand", "uniform", "mag")
# Figures 4 and 5: strategy → N_L → variant.
LENGTH: dict[str, dict[str, HSKVariant]] = {
    tokens: {**{n: HSKVariant(knowledge=f"all,{n},1", tokens=tokens) for n in ("1", "5")}, ALL: WHOLE}
    for tokens in _TOKENS
}
# Figure 7: strategy → N_W/d → variant.
WIDTH: dict[str, dict[str, HSKVariant]] = {
    widths: {**{w: HSKVariant(knowledge=f"all,all,{w}", widths=widths) for w in ("0.1", "0.3")}, "1": WHOLE}
    for widths in _WIDTHS
}
# Figures 8 and 9: A^HSK → three rows of table 5 that fit both students.
JOINT = {
    amount: tuple(HSKVariant(knowledge=f"table5-{amount}-{row}") for row in rows)
    for amount, rows in {1: (3, 10, 6), 3: (4, 17, 18), 10: (32, 31, 3), 50: (18, 21, 3)}.items()
}
# The amount in table 2, with all seeds.
COMPRESSED = 1
TABLE_2 = (PREDICTION, FULL, *JOINT[COMPRESSED])


def tasks_of(student: str, variant: HSKVariant) -> tuple[str, ...]:
    """Tasks of a student's variant.

    The larger student takes more time, so it learns two tasks for table 2 only. On RTE, the students of table 2 answer
    like the majority, so the other variants leave it out.
    """
    if variant in TABLE_2:
        return TASKS if student == PRUNED else SWEPT
    return SWEPT if student == PRUNED else ()
