"""Shares of [SEP]: equation 6 and figure 6 of "Marginal Utility Diminishes" in NumPy, on transformers' maps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny_finetuning
from attention_models import Reference

import pocketbert as pb
from pocketbert.errors import UserError
from pocketbert.plots.separator_shares import separator_shares

TEXTS = tiny_finetuning.examples(23, seed=5).texts
PAIRS = tiny_finetuning.examples(23, seed=6).texts


def expected_counts(
    reference: Reference, texts: list[str], pairs: list[str] | None, top: tuple[int, ...], max_length: int
) -> dict[int, list[int]]:
    """One text at a time, without padding."""
    counts = {k: [0, 0, 0] for k in top}
    for row, text in enumerate(texts):
        ids, attentions = reference(text, pairs[row] if pairs else None, max_length)
        for layer, attention in enumerate(attentions):
            # S_l = 1/A Σ_a A_{l,a,1}: the first row of each head, averaged over the heads.
            score = attention[:, 0, :].mean(axis=0)
            ranked = sorted(range(len(ids)), key=lambda index: -score[index])
            for k in top:
                counts[k][layer] += any(ids[index] == reference.tokenizer.sep_token_id for index in ranked[:k])
    return counts


@pytest.mark.one_of_each("roberta-True")
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(("kind", "paired"), [("bert", False), ("bert", True), ("roberta", True)])
def test_counts_equal_the_papers(kind: str, paired: bool, directory: Callable[[str], Path]) -> None:
    pairs = PAIRS if paired else None
    shares = separator_shares(
        pb.from_pretrained(directory(kind)), TEXTS, pairs, max_length=17, batch_size=7, top=(1, 3), show_progress=False
    )
    expected = expected_counts(Reference(directory(kind)), TEXTS, pairs, (1, 3), 17)
    assert {k: list(counts) for k, counts in shares.counts.items()} == expected
    assert any(0 < count < len(TEXTS) for counts in expected.values() for count in counts)
    assert shares.shares(3) == tuple(count / 23 for count in expected[3])


@pytest.mark.usefixtures("eager")
def test_short_texts_always_count(directory: Callable[[str], Path]) -> None:
    # Four tokens with [CLS] and [SEP].
    shares = separator_shares(
        pb.from_pretrained(directory("bert")), ["a film", "the plot"], max_length=13, top=(4, 9), show_progress=False
    )
    assert shares.counts == {4: (2, 2, 2), 9: (2, 2, 2)}


@pytest.mark.usefixtures("eager")
def test_bad_input_is_refused(directory: Callable[[str], Path]) -> None:
    model = pb.from_pretrained(directory("bert"))
    with pytest.raises(UserError, match="separator shares need at least one text; received none"):
        separator_shares(model, [], max_length=29)
    with pytest.raises(UserError, match="max_length must be at most the model's 29 positions; received 30; lower it"):
        separator_shares(model, TEXTS, max_length=30)
    model.weights_by_path()["encoder.layers.2.attention.key.bias"].assign(np.full([30], np.inf, np.float32))
    with pytest.raises(UserError, match="separator shares: the attention must be finite"):
        separator_shares(model, TEXTS[:2], max_length=29, show_progress=False)
