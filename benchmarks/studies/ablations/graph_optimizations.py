"""Gain of each graph optimization: latency with all of them against all but one, at 128 tokens, 1 thread.

All of them include fused projections in BERT's blocks, which the export applies only on request, due to these results.

The classifiers have random weights in dynamic int8; the two files of a comparison alternate in one run.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

from pocketbert_bench import host, machine, results
from pocketbert_export.conversion.graph_optimization_options import GraphOptimizations
from studies.against_transformers.latency import FULL, LENGTH, QUICK, RECIPE, our_export

EVERY = GraphOptimizations(fuse_projections=True)
# Preset → graph optimizations that apply to it.
OPTIMIZATIONS_OF = {
    "mobilebert": ("fold_no_norm", "fuse_projections", "first_token_only", "attend_to_inputs"),
    "tinybert_4l_312d": ("fuse_projections", "first_token_only", "attend_to_inputs", "fold_beta"),
    "minilmv2_6l_384d": ("fuse_projections", "first_token_only", "attend_to_inputs", "fold_beta"),
}


def run(quick: bool) -> dict[str, Any]:
    """Measures every network of `OPTIMIZATIONS_OF`; returns the content of a result file."""
    created, before = results.now(), machine.machine()
    measurements, ratios = [], []
    for name, graph_optimizations in OPTIMIZATIONS_OF.items():
        with tempfile.TemporaryDirectory() as folder:
            files = [our_export(name, Path(folder), EVERY, "every graph optimization")]
            files += [
                our_export(name, Path(folder), dataclasses.replace(EVERY, **{without: False}), f"without {without}")
                for without in graph_optimizations
            ]
            measured = host.measure(files, QUICK if quick else FULL)
        measurements += measured
        for without, other in zip(graph_optimizations, measured[1:], strict=True):
            description = (
                f"{name}, {LENGTH} tokens, 1 thread, {RECIPE}: every graph optimization against without {without}"
            )
            ratios.append(results.latency_ratio(f"{name}, {without}", measured[0], other, description, None))
    return results.to_json(
        results.result_file(
            "graph_optimizations",
            quick=quick,
            measurements=measurements,
            ratios=ratios,
            notes=[results.RANDOM_WEIGHTS_NOTE],
            on=before,
            created=created,
        )
    )
