"""Options of the graph optimizations; this module does not import TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class GraphOptimizations:
    """Graph optimizations to apply if they suit the model.

    Attributes:
      fold_no_norm: fold MobileBERT's NoNorm into adjacent dense layers.
      fuse_projections: fuse dense layers with the same input (default: in blocks with a bottleneck only; in BERT's
        blocks it cost time).
      first_token_only: compute the last layer for the first token only, if the task reads no other.
    """

    GROUP: ClassVar = "Graph optimizations"
    COMMON: ClassVar = ()

    fold_no_norm: bool = True
    fuse_projections: bool | None = None
    first_token_only: bool = True
