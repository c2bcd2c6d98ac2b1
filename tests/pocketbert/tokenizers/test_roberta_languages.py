"""RoBERTa's and XLM-R's real vocabularies on XNLI's texts in 15 languages, composed and decomposed."""

from __future__ import annotations

import itertools
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from tiny_tokenizers import charsmap, unigram_file

import pocketbert as pb
from pocketbert_runtime.tokenizers.layouts import LAYOUTS
from pocketbert_runtime.tokenizers.sentencepiece_model import layout_tokens, make_model

pytestmark = [pytest.mark.data, pytest.mark.slow]


@pytest.fixture(scope="module")
def texts(shared: Path) -> list[str]:
    lines = (path.read_text("utf-8").splitlines() for path in sorted((shared / "data" / "xnli").glob("dev-*.tsv")))
    texts = sorted({text for line in itertools.chain(*lines) for text in line.split("\t")[:2]})
    assert len(texts) > 40_000
    return texts


@pytest.fixture(scope="module")
def xlm_r(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """XLM-R's subwords and scores with the character map of `nmt_nfkc`; XLM-R's own map differs a little."""
    folder = tmp_path_factory.mktemp("xlm_r")
    lines = (shared / "data" / "vocab" / "xlm_roberta_base.pieces.tsv").read_text("utf-8").split("\n")
    rows = [line.split("\t") for line in lines if line]
    # Ids 0 to 3 and the last one are special.
    model = make_model([(text, float(score)) for _, text, score in rows[4:-1]], charsmap(unigram_file(folder / "toy")))
    assert layout_tokens(model, LAYOUTS["xlm_r"]) == [row[1] for row in rows]
    path = folder / "sentencepiece.bpe.model"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_unigram_equals_sentencepiece(xlm_r: Path, texts: list[str], form: Any) -> None:
    import sentencepiece

    unigram_tokenizer = pb.UnigramTokenizer(xlm_r)
    assert unigram_tokenizer.vocab_size == 250_002
    texts = [unicodedata.normalize(form, text) for text in texts]
    core = sentencepiece.SentencePieceProcessor(model_file=str(xlm_r))
    expected = [[piece + 1 if piece else 3 for piece in row] for row in core.encode(texts)]
    assert unigram_tokenizer.tokenize(texts).to_list() == expected
    ids, starts, ends = (
        tokenize_with_offset.to_list() for tokenize_with_offset in unigram_tokenizer.tokenize_with_offsets(texts)
    )
    assert ids == expected
    for text, begins, stops in zip(texts, starts, ends, strict=True):
        spans = [text[begin:stop] for begin, stop in zip(begins, stops, strict=True)]
        assert all(span == span.strip() for span in spans)


def test_byte_bpe_equals_transformers(shared: Path, texts: list[str]) -> None:
    from transformers import RobertaTokenizerFast

    files = [str(shared / "data" / "vocab" / name) for name in ("roberta.vocab.json", "roberta.merges.txt")]
    expected = RobertaTokenizerFast(*files)(texts, add_special_tokens=False, return_offsets_mapping=True)
    ids, starts, ends = (
        tokenize_with_offset.to_list()
        for tokenize_with_offset in pb.ByteBPETokenizer(*files).tokenize_with_offsets(texts)
    )
    assert ids == expected["input_ids"]
    offsets = [[*zip(*row, strict=True)] for row in zip(starts, ends, strict=True)]
    assert offsets == expected["offset_mapping"]
