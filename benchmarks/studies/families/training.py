"""A training step of ModernBERT against transformers' TensorFlow BERT with the same number of multiply-adds.

Both have 6 layers of 384 and a vocabulary of 30,522; the inner width is 1024 and 1536. Both steps are those
of `against_transformers/training`, once without dropout, ModernBERT's default, and once with BERT's rate, 0.1. Steps
alternate.

    python -m studies families/training
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from pocketbert import progress
from pocketbert_bench import results
from studies.against_transformers.training import (
    BATCH_SIZE,
    LABELS,
    LENGTH,
    PRESET,
    THREADS,
    our_step,
    seconds_of_rounds,
    transformers_step,
)
from studies.families.latency import MODERNBERT

MOST_TIME = 1.05
RATES = (0.0, 0.1)


def run(quick: bool) -> dict[str, Any]:
    """Times the steps in turns."""
    os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["TF_NUM_INTEROP_THREADS"] = str(THREADS)
    random = np.random.default_rng(0)
    ids = random.integers(1000, 30000, [BATCH_SIZE, LENGTH]).astype(np.int32)
    labels = random.integers(0, len(LABELS), BATCH_SIZE).astype(np.int32)
    steps = {}
    for rate in RATES:
        rates = {"hidden_dropout": rate, "attention_dropout": rate}
        steps[f"pocketbert's ModernBERT, dropout {rate:g}"] = our_step(
            MODERNBERT.replace(**rates), "float32", ids, labels
        )
        others = {"hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate}
        steps[f"transformers' TF BERT, dropout {rate:g}"] = transformers_step(PRESET, ids, labels, **others)
    progress.log_info("first steps")
    for step in steps.values():
        for _ in range(3):
            step()
    seconds = seconds_of_rounds(steps, rounds=3 if quick else 15)
    names = list(steps)
    ratios = [
        results.ratio(
            name=f"training step, dropout {rate:g}",
            description=f"training step of ModernBERT, {BATCH_SIZE} texts with {LENGTH} tokens, dropout {rate:g}",
            ours=ours,
            peer=peer,
            unit="s",
            ours_samples=seconds[ours],
            peer_samples=seconds[peer],
            better="lower",
            target=MOST_TIME,
        )
        for rate, ours, peer in zip(RATES, names[::2], names[1::2], strict=True)
    ]
    return results.to_json(results.result_file("training step of ModernBERT", quick=quick, ratios=ratios))
