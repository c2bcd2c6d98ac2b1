"""Latency of ModernBERT and DeBERTa-v3 beside a BERT of the same sizes, 6x384 with 6 heads: dynamic int8, 1 thread.

ModernBERT's gated network has an inner width of 1024, so that its multiply-adds equal the BERT's. All three are
classifiers with random weights and a vocabulary of 30,522. The three files of a length alternate in one run.

    python -m studies families/latency
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from pocketbert.presets import preset
from pocketbert_bench import host, machine, results
from studies.against_transformers.latency import FULL, QUICK, our_export

BERT = preset("minilmv2_6l_384d").config.replace(num_attention_heads=6, head_size=64)
_SIZES: dict[str, Any] = {"num_layers": 6, "vocab_size": BERT.vocab_size, "pad_token_id": BERT.pad_token_id}
DEBERTA = preset("deberta_v3_xsmall").config.replace(**_SIZES)
# 4 · 384² + 3 · 384 · 1024 products a token and layer, as BERT's 12 · 384².
MODERNBERT = preset("modernbert_base").config.replace(
    **_SIZES, hidden_size=384, embedding_size=384, num_attention_heads=6, intermediate_size=1024
)
_NETWORKS = {"ModernBERT": MODERNBERT, "DeBERTa-v3": DEBERTA, "BERT": BERT}
# Length in tokens → largest latency ÷ BERT's, or None.
TARGETS: dict[int, dict[str, float | None]] = {
    32: {"ModernBERT": None, "DeBERTa-v3": None},
    128: {"ModernBERT": 1.05, "DeBERTa-v3": 1.20},
    512: {"ModernBERT": None, "DeBERTa-v3": 1.65},
}


def run(quick: bool) -> dict[str, Any]:
    """Measures every length of `TARGETS`; returns the content of a result file."""
    created, before = results.now(), machine.machine()
    measurements: list[results.Measurement] = []
    ratios = []
    for length, targets in TARGETS.items():
        with tempfile.TemporaryDirectory() as folder:
            files = [
                our_export(f"{name} 6x384", Path(folder), name, config=config, length=length)
                for name, config in _NETWORKS.items()
            ]
            *others, bert = host.measure(files, QUICK if quick else FULL)
        measurements += [*others, bert]
        ratios += [
            results.latency_ratio(
                f"{other.label} at {length} tokens",
                other,
                bert,
                f"latency of {other.label} at {length} tokens",
                targets[other.label],
            )
            for other in others
        ]
    return results.to_json(
        results.result_file(
            "latency of families against BERT",
            quick=quick,
            measurements=measurements,
            ratios=ratios,
            notes=[results.RANDOM_WEIGHTS_NOTE],
            on=before,
            created=created,
        )
    )
