"""Search constraints: a network's cost must lie between two bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pocketbert.checkpoints.name_maps import parameter_count
from pocketbert.configs import EncoderConfig
from pocketbert.errors import raise_if_any
from pocketbert.flops import encoder_flops

if TYPE_CHECKING:
    from pocketbert.search.space import SearchSpace


class Constraint(Protocol):
    """A cost between `minimum` and `limit`.

    Sampling may request costs for some hundred networks per candidate, often with the same shapes: predict or cache.
    """

    @property
    def name(self) -> str:
        """The cost's name in a journal and on a page, with its unit if any: `parameters`, `latency_ms`."""
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
        """Returns a network's cost."""
        ...

    def describe(self, cost: float) -> str:
        """Formats a cost with its unit, for example `2.1 ms`."""
        ...

    def prepare(self, folder: Path, space: SearchSpace) -> None:
        """Measures before the first call of `cost`, or reads measurements from an earlier attempt."""
        ...


@dataclass(frozen=True, kw_only=True)
class ParameterConstraint:
    """Number of encoder weights.

    The authors search between 15 and 16 million. They count no pooler but one map to the teacher's width, so their
    numbers are 123,348 higher than these at width 540.

    Attributes:
      limit: most weights, including a pooler but no adapters.
      minimum: fewest weights.
    """

    limit: float
    minimum: float = 0.0
    name = "parameters"

    def __post_init__(self) -> None:
        _check_bounds(self)

    def cost(self, config: EncoderConfig) -> float:
        """Returns the number of weights."""
        return parameter_count(config)

    def describe(self, cost: float) -> str:
        """Formats the number."""
        return f"{cost:,.0f} parameters"

    def prepare(self, folder: Path, space: SearchSpace) -> None:
        """Measures nothing."""


@dataclass(frozen=True, kw_only=True)
class FlopsConstraint:
    """Floating-point operations in the encoder for one text, see `pocketbert.flops.encoder_flops`.

    Attributes:
      limit: most operations.
      minimum: fewest operations.
      length: text length in tokens.
    """

    limit: float
    minimum: float = 0.0
    length: int = 128
    name = "flops"

    def __post_init__(self) -> None:
        _check_bounds(self)

    def cost(self, config: EncoderConfig) -> float:
        """Returns the number of operations."""
        return encoder_flops(config, self.length)

    def describe(self, cost: float) -> str:
        """Formats the number in billions."""
        return f"{cost / 1e9:.6g} B FLOPs at {self.length} tokens"

    def prepare(self, folder: Path, space: SearchSpace) -> None:
        """Measures nothing."""


def violation(constraints: Sequence[Constraint], config: EncoderConfig) -> float:
    """Sums the distances between a network's costs and their bounds, as fractions of the bounds; 0 if it meets all."""
    distance = 0.0
    for constraint in constraints:
        cost = constraint.cost(config)
        if cost > constraint.limit:
            distance += (cost - constraint.limit) / (constraint.limit or 1)
        elif cost < constraint.minimum:
            distance += (constraint.minimum - cost) / constraint.minimum
    return distance


def describe_constraints(constraints: Sequence[Constraint]) -> str:
    """Formats the bounds: `at most 16,000,000 parameters and at least 15,000,000 parameters`."""
    bounds = []
    for constraint in constraints:
        if constraint.limit < math.inf:
            bounds.append(f"at most {constraint.describe(constraint.limit)}")
        if constraint.minimum > 0:
            bounds.append(f"at least {constraint.describe(constraint.minimum)}")
    return " and ".join(bounds)


def limits_of(constraints: Sequence[Constraint]) -> list[list[Any]]:
    """Returns the bounds as JSON values, to compare searches: name, minimum, limit or None, and unit."""
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
