"""Which graph optimizations an export applies; nothing here imports TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class GraphOptimizations:
    """Which graph optimizations to apply where they suit the model.

    Attributes:
      fold_no_norm: MobileBERT's NoNorm becomes part of the linear maps around it.
      fuse_projections: linear maps of one input become one (default: in blocks with a bottleneck, which have many small
        maps; in BERT's blocks it cost time where it was measured).
      first_token_only: the last layer is computed for the first token alone, where the task reads no other.
    """

    GROUP: ClassVar = "Graph optimizations"
    COMMON: ClassVar = ()

    fold_no_norm: bool = True
    fuse_projections: bool | None = None
    first_token_only: bool = True
