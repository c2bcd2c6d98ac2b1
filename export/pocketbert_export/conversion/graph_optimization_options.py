"""Graph optimization options; this module does not import TensorFlow."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from pocketbert.recipes import Recipe


@dataclass(frozen=True, kw_only=True)
class GraphOptimizations:
    """Graph optimizations to apply if they suit the model.

    Attributes:
      fold_no_norm: fold MobileBERT's NoNorm into adjacent dense layers.
      fuse_projections: fuse dense layers with the same input (default: in blocks with a bottleneck only; in BERT's
        blocks it cost time).
      first_token_only: compute the last layer for the first token only, if the task reads no other.
      attend_to_inputs: with first_token_only, map the last layer's query and context instead of every token's key and
        value (default: in recipes for CPUs; NPUs and GPUs take the usual form, because export can scale its ranges).
      fold_beta: fold LayerNorm's beta into the dense layers behind it.
      fold_pre_norm: fold gamma and centring of ModernBERT's norms into the dense layers around them.
    """

    GROUP: ClassVar = "Graph optimizations"
    COMMON: ClassVar = ()

    fold_no_norm: bool = True
    fuse_projections: bool | None = None
    first_token_only: bool = True
    attend_to_inputs: bool | None = None
    fold_beta: bool = True
    fold_pre_norm: bool = True

    def for_recipe(self, recipe: Recipe) -> GraphOptimizations:
        """Resolves the defaults for a recipe."""
        if self.attend_to_inputs is not None:
            return self
        for_cpus = recipe.activations != "static" and recipe.weights != "float16"
        return dataclasses.replace(self, attend_to_inputs=for_cpus)
