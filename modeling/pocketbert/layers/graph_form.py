"""Layouts for an encoder's graph."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GraphForm:
    """Layout of an encoder's graph; the mathematics is the same in every form.

    Training uses the default; export chooses others (`pocketbert_export.conversion.graph_optimization`).

    Attributes:
      fused_projections: compute linear maps with the same input as one matrix product.
      first_token_only: compute the last layer for the first token only, so `sequence_output` has length 1.
      attend_to_inputs: with `first_token_only`: in the last layer, attend to the inputs of keys and values.
      padding_bias: added to padding's attention logits. NoNorm does not bound logits (thousands were observed), so -1e4
        would leak.
      scaled_residuals: sub-layers that multiply their residual by a factor per feature, such as `layers.0.attention`,
        `layers.0.feed_forwards.1` or `layers.0.bottleneck`.
      early_gamma: multiply by gamma before the division in the norm behind each layer. The converter folds a product
        with a constant into the dense layers behind it, so layers that share their weights would differ from the first
        one, which reads no norm, and the file would store queries, keys and values twice.
      in_blocks: compute local attention in blocks for texts above 1.5 windows, and products with distances in blocks
        for even lengths. Without, graphs for all lengths up to 1,024 tokens have the same operators.
    """

    fused_projections: bool = False
    first_token_only: bool = False
    attend_to_inputs: bool = False
    padding_bias: float = -1e9
    scaled_residuals: tuple[str, ...] = ()
    early_gamma: bool = False
    in_blocks: bool = True
