"""Constraints of a search: a cost of each network that must lie between two bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pocketbert.checkpoints.name_maps import parameter_count
from pocketbert.configs import EncoderConfig
from pocketbert.errors import raise_if_any
from pocketbert.presets import encoder_flops

if TYPE_CHECKING:
    from pocketbert.search.space import SearchSpace


class Constraint(Protocol):
    """A cost that must lie between `minimum` and `limit`.

    Sampling may ask for the cost of some hundred networks per candidate, and repeatedly for the same shapes. A measured
    cost should be predicted or cached.
    """

    @property
    def name(self) -> str:
        """The cost in a journal and on a page, with its unit if it has one: `parameters`, `latency_ms`."""
        ...

    @property
    def minimum(self) -> float:
        """Smallest allowed cost; 0 for none."""
        ...

    @property
    def limit(self) -> float:
        """Largest allowed cost."""
        ...

    def cost(self, config: EncoderConfig) -> float:
        """The cost of a network."""
        ...

    def describe(self, cost: float) -> str:
        """A cost as text with its unit, for example `2.1 ms`."""
        ...

    def prepare(self, folder: Path, space: SearchSpace) -> None:
        """Makes measurements before the first call of `cost`, or reads those of an earlier attempt."""
        ...


@dataclass(frozen=True, kw_only=True)
class ParameterConstraint:
    """A number of weights of the encoder.

    The authors search between 15 and 16 million. They count no pooler but one map to the teacher's width, so their
    numbers are 123,348 higher than these at width 540.

    Attributes:
      limit: largest number of weights, including a pooler and no adapters.
      minimum: smallest number of weights.
    """

    limit: float
    minimum: float = 0.0
    name = "parameters"

    def __post_init__(self) -> None:
        _check_bounds(self)

    def cost(self, config: EncoderConfig) -> float:
        """Number of weights."""
        return parameter_count(config)

    def describe(self, cost: float) -> str:
        """The number as text."""
        return f"{cost:,.0f} parameters"

    def prepare(self, folder: Path, space: SearchSpace) -> None:
        """Measures nothing."""


@dataclass(frozen=True, kw_only=True)
class FlopsConstraint:
    """Floating-point operations of the encoder for one text, see `pocketbert.presets.encoder_flops`.

    Attributes:
      limit: largest number of operations.
      minimum: smallest number of operations.
      length: length of the text in tokens.
    """

    limit: float
    minimum: float = 0.0
    length: int = 128
    name = "flops"

    def __post_init__(self) -> None:
        _check_bounds(self)

    def cost(self, config: EncoderConfig) -> float:
        """Number of operations."""
        return encoder_flops(config, self.length)

    def describe(self, cost: float) -> str:
        """The number in billions as text."""
        return f"{cost / 1e9:.6g} B FLOPs at {self.length} tokens"

    def prepare(self, folder: Path, space: SearchSpace) -> None:
        """Measures nothing."""


def violation(constraints: Sequence[Constraint], config: EncoderConfig) -> float:
    """Distance of a network's costs from their bounds, as fractions of the bounds; 0 if it meets all constraints."""
    distance = 0.0
    for constraint in constraints:
        cost = constraint.cost(config)
        if cost > constraint.limit:
            distance += (cost - constraint.limit) / (constraint.limit or 1)
        elif cost < constraint.minimum:
            distance += (constraint.minimum - cost) / constraint.minimum
    return distance


def describe_constraints(constraints: Sequence[Constraint]) -> str:
    """The bounds as text: `at most 16,000,000 parameters and at least 15,000,000 parameters`."""
    bounds = []
    for constraint in constraints:
        if constraint.limit < math.inf:
            bounds.append(f"at most {constraint.describe(constraint.limit)}")
        if constraint.minimum > 0:
            bounds.append(f"at least {constraint.describe(constraint.minimum)}")
    return " and ".join(bounds)


def limits_of(constraints: Sequence[Constraint]) -> list[list[Any]]:
    """The bounds as JSON values, to compare searches: name, minimum, limit or None, and unit."""
    return [
        [
            constraint.name,
            constraint.minimum,
            constraint.limit if constraint.limit < math.inf else None,
            constraint.describe(0.0),
        ]
        for constraint in constraints
    ]


def _check_bounds(constraint: Constraint) -> None:
    problems = []
    if not constraint.limit > 0:
        problems.append(f"the largest cost must be positive; received {constraint.limit:g}")
    elif not 0 <= constraint.minimum <= constraint.limit:
        problems.append(
            f"the smallest cost must lie between 0 and the largest, {constraint.limit:g}; received "
            f"{constraint.minimum:g}"
        )
    raise_if_any(problems, f"constraint {constraint.name}")
