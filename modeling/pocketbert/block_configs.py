"""Kinds of encoder blocks, as parts of `EncoderConfig`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pocketbert.errors import raise_if_any
from pocketbert_runtime.errors import literal_problems

QueryKeySource = Literal["shared", "raw", "bottleneck"]
BlockKind = Literal["plain", "bottleneck", "rotary", "relative"]
# Far above all published encoders, and far below sizes that hang or exhaust a machine.
MOST_SIZE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class BottleneckConfig:
    """The linear maps around a MobileBERT or IB-BERT block (MobileBERT, section 3.1).

    Attributes:
      size: width inside the block (h_intra): 128 for MobileBERT, 1024 for IB-BERT.
      query_key: input to query and key. `raw`: the block's input, as in the paper. `shared`: a second bottleneck, as in
        the released weights. `bottleneck`: the first bottleneck, which then also feeds the values (TINY).
    """

    size: int
    query_key: QueryKeySource

    def __post_init__(self) -> None:
        problems = []
        if not 0 < self.size <= MOST_SIZE:
            problems.append(f"size must lie between 1 and {MOST_SIZE}; received {self.size}")
        problems += literal_problems("query_key", self.query_key, QueryKeySource)
        raise_if_any(problems, "BottleneckConfig")


@dataclass(frozen=True, kw_only=True)
class RotaryConfig:
    """ModernBERT's block (Warner et al. 2024): norm before each sub-layer, rotary positions, gated networks, no biases.

    Attributes:
      theta: base of the rotary angles in layers with global attention.
      local_theta: the same in layers with local attention.
      window: a token in a local layer attends to tokens that are at most window / 2 away.
      global_every: layers 0, `global_every`, 2 · `global_every`, … attend globally.
    """

    theta: float
    local_theta: float
    window: int
    global_every: int

    def __post_init__(self) -> None:
        problems = []
        for name in ("theta", "local_theta"):
            if not 1 < getattr(self, name) <= 1e9:
                problems.append(f"{name} must lie between 1 and 1e9; received {getattr(self, name)}")
        if not 0 < self.window <= MOST_SIZE or self.window % 2:
            problems.append(f"window must be even and lie between 2 and {MOST_SIZE}; received {self.window}")
        if not 0 < self.global_every <= MOST_SIZE:
            problems.append(f"global_every must lie between 1 and {MOST_SIZE}; received {self.global_every}")
        raise_if_any(problems, "RotaryConfig")

    def window_of(self, layer: int) -> int | None:
        """Returns a layer's window, or None for global attention. Layers count from 0."""
        return self.window if layer % self.global_every else None

    def unlike_layers(self, layers: Sequence[int]) -> list[str]:
        """Lists why layers of a network cannot become the first, second, … layer of another one.

        A layer stays local or global, and the first layer, which has no norm before attention, stays first.

        Args:
          layers: their numbers in the network, counted from 1.
        """
        kinds = ["local" if layer % self.global_every else "global" for layer in range(max(0, *layers, len(layers)))]
        wrong = [
            f"{layer} ({kinds[layer - 1]}) as layer {position} ({kinds[position - 1]})"
            for position, layer in enumerate(layers, 1)
            if kinds[layer - 1] != kinds[position - 1] or (layer == 1) != (position == 1)
        ]
        if not wrong:
            return []
        first = ",".join(map(str, range(1, len(layers) + 1)))
        return [
            "with rotary blocks, layer 1 stays first, and local and global layers keep their kind; received layer "
            f"{', '.join(wrong)}; take layers {first}, or others of these kinds"
        ]


@dataclass(frozen=True, kw_only=True)
class RelativeConfig:
    """DeBERTa's disentangled attention (He et al. 2021, section 3; DeBERTaV3, 2023).

    Queries and keys of distances use the maps of tokens, and a norm comes before these maps.

    Attributes:
      buckets: rows for the distances on each side (`position_buckets`). Half of them hold one distance each; farther
        distances share the others.
      max_distance: distances from this one on share the last row (`max_relative_positions`).
    """

    buckets: int
    max_distance: int

    def __post_init__(self) -> None:
        problems = []
        if not 2 <= self.buckets <= MOST_SIZE or self.buckets % 2:
            problems.append(f"buckets must be even and lie between 2 and {MOST_SIZE}; received {self.buckets}")
        if not self.buckets // 2 + 1 < self.max_distance <= MOST_SIZE:
            problems.append(
                f"max_distance must be above half of buckets={self.buckets} plus 1 and at most {MOST_SIZE}; received "
                f"{self.max_distance}"
            )
        raise_if_any(problems, "RelativeConfig")
