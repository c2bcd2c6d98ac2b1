"""HSK's accuracy study: the chosen configurations and the page's tables."""

from __future__ import annotations

import json

import pytest

from pocketbert.distillation.methods.hsk_knowledge import Knowledge
from pocketbert_bench import accuracy as bench_accuracy
from pocketbert_bench import results
from studies.tables import hsk
from studies.tables import hsk_variants as variants


@pytest.mark.parametrize(("amount", "chosen"), variants.JOINT.items())
def test_joint_amounts_fit_table_5(amount: int, chosen: tuple[variants.HSKVariant, ...]) -> None:
    assert len(set(chosen)) == 3
    for variant in chosen:
        assert variant.knowledge is not None
        knowledge = Knowledge.parse(variant.knowledge)
        # Table 1: 5 % around each amount, 10 % around 1. The teacher is 384 wide; a width is rounded.
        assert knowledge.units(0, 0, 384) == pytest.approx(amount, rel=0.11 if amount == 1 else 0.06)
        # The pruned student has 3 layers and an embedding.
        assert knowledge.layers is not None and knowledge.layers <= 4


def test_tables_read_scores_by_seed() -> None:
    rows = [("prediction only", 0, 0.2), ("prediction only", 1, 0.3), ("all all 1 layer 6", 0, 0.4)]
    rows += [(variant.label, 0, value) for variant, value in zip(variants.JOINT[1], (0.3, 0.6, 0.45), strict=True)]
    # The mean takes only seeds that all three have.
    rows.append((variants.JOINT[1][0].label, 1, 0.2))
    scored = [
        bench_accuracy.record(
            label=f"{label}, seed {seed}", model="pruned 3x384", recipe="trained", task="cola", split="dev",
            metric="matthews", value=value, examples=7,
        )
        for label, seed, value in rows
    ]  # fmt: skip
    note = "separators: " + json.dumps({"rte": {"texts": 8, "counts": {"1": [2, 8, 0, 0, 0, 1]}}})
    text = hsk.text(results.result_file("made up", quick=False, accuracies=scored, notes=[note]))
    assert "| top 1 | RTE | 25.0 % | 100.0 % | 0.0 % | 0.0 % | 0.0 % | 12.5 % |" in text
    assert "| pruned 3x384 | predictions only | 25.0 ± 7.1 (2 of 3) | – | – |" in text
    assert "| pruned 3x384 | A^HSK = 1, mean | 45.0 (1 of 3) | – | – |" in text
    assert "| pruned 3x384 | A^HSK = 1, best | 60.0 (1 of 3) at 2,5,0.1 | – | – |" in text
    assert "| hidden states help (figures 8 and 9) | pruned 3x384 | CoLA +25.0 |" in text
    assert "| pruned 3x384 | 1 | 45.0 ± 15.0, best 60.0 | – |\n" in text
