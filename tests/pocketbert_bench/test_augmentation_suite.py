from __future__ import annotations

from pathlib import Path

import pytest
import tiny_masked_lm

import pocketbert as pb
from pocketbert.data.glove import read_glove
from pocketbert_bench.suites import augmentation


@pytest.mark.parametrize("mode", ["alone", "with-original"])
def test_both_ways_find_the_same_candidates(tmp_path: Path, mode: str) -> None:
    model = pb.load(tiny_masked_lm.write_model(tmp_path / "model"))
    vectors = read_glove(tiny_masked_lm.write_glove(tmp_path / "glove.txt"))
    # The peer does not cut what is too long for the model.
    pieces = model.tokenizer.tokenize(tiny_masked_lm.sentences(40)).row_lengths().numpy()
    texts = [text for text, count in zip(tiny_masked_lm.sentences(40), pieces, strict=True) if count <= 13][:14]
    ours = augmentation.batched(model, vectors, mode)(texts)
    assert ours == augmentation.one_call_a_word(model, vectors, mode)(texts)
    assert sum(len(sentence.slots) for sentence in ours) > 25
