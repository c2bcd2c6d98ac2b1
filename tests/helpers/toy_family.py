"""A small family in one file and one row, as CONTRIBUTING describes it: BERT with other names, and a fixed key.

The row is in the table as soon as this module is imported.
"""

from __future__ import annotations

import dataclasses

from pocketbert.checkpoints.families import bert
from pocketbert.checkpoints.families.registry import register

FAMILY = register(
    dataclasses.replace(
        bert.FAMILY,
        model_type="toybert",
        title="ToyBERT",
        class_prefix="ToyBert",
        tensor_prefix="toy",
        keys={{"hidden_size": "width"}.get(key, key): value for key, value in bert.FAMILY.keys.items()},
        renamed={"width": "hidden_size"},
        fixed={"parallel_blocks": False},
        written={"parallel_blocks": False},
        names={
            ".word_embeddings.": ".tokens.",
            ".encoder.layer.": ".blocks.",
            ".attention.self.": ".attention.inputs.",
            ".LayerNorm.": ".norm.",
            "toy.pooler.": "toy.first_token.",
        },
    )
)
