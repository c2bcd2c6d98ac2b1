"""Trimmed byte-level BPE and unigram vocabularies: kept tokens segment as before, says transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from tiny_tokenizers import SENTENCES, byte_bpe_files, unigram_file

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert.pruning.vocabulary import trim_vocabulary
from pocketbert_runtime.tokenizers.byte_bpe_files import byte_characters

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
TASK = TaskConfig(kind="masked_lm")
# Every fourth sentence is not counted.
COUNTED = [sentence for number, sentence in enumerate(SENTENCES) if number % 4]


def reference(folder: Path) -> Any:
    """The tokenizer that transformers makes from a model directory."""
    from transformers import RobertaTokenizer, XLMRobertaTokenizer

    if (folder / "merges.txt").exists():
        return RobertaTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    return XLMRobertaTokenizer(str(folder / "sentencepiece.bpe.model"))


@pytest.fixture(params=["byte_bpe", "unigram"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    tokenizer = (
        pb.ByteBPETokenizer(*byte_bpe_files(folder))
        if request.param == "byte_bpe"
        else pb.UnigramTokenizer(unigram_file(folder))
    )
    config = tiny.ROBERTA.replace(vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.pad_token_id)
    pb.from_preset(config, TASK, tokenizer, seed=3).save_pretrained(tmp_path / "whole")
    return tmp_path / "whole"


def trim(model: Path, **options: Any) -> Path:
    text, output = model.parent / "text.txt", model.parent / "trimmed"
    text.write_text("\n".join(COUNTED) + "\n", encoding="utf-8")
    trim_vocabulary(model, [text], output, dev_text=[text], overwrite=True, **options)
    return output


def test_counted_texts_stay_equal(model: Path) -> None:
    trimmed = trim(model)
    before, after = (reference(network) for network in (model, trimmed))
    assert len(SPECIAL) < len(after) < len(before)
    for text in COUNTED:
        assert after.tokenize(text) == before.tokenize(text), ascii(text)
    whole, part = (pb.from_pretrained(folder) for folder in (model, trimmed))
    assert part.config.vocab_size == len(after) and part.config.pad_token_id == after.pad_token_id
    inputs = [network.tokenizer(COUNTED[:7], max_length=21) for network in (whole, part)]
    logits = [next(iter(network(input).values())).numpy() for network, input in zip((whole, part), inputs, strict=True)]
    remaining = before.convert_tokens_to_ids(after.convert_ids_to_tokens(range(len(after))))
    for path, weight in whole.weights_by_path().items():
        rows = weight.numpy()
        rows = rows[remaining] if rows.shape[0] == len(before) else rows
        np.testing.assert_array_equal(part.weights_by_path()[path].numpy(), rows, err_msg=path)
    # Some processors sum a product's last columns in another order: up to 64 terms of order 1 in float32.
    np.testing.assert_allclose(logits[1], logits[0][..., remaining], rtol=0, atol=64 * 2**-24)


def test_texts_of_kept_tokens_stay_equal(model: Path) -> None:
    before, checked = reference(model), 0
    whole = len(before)
    for size in (whole - 3, whole - 20, whole * 9 // 10):
        after = reference(trim(model, keep_top=size))
        assert size - 3 <= len(after) <= size
        remaining = {*after.convert_ids_to_tokens(range(len(after)))}
        for text in [*SENTENCES, *(word for sentence in SENTENCES for word in sentence.split())]:
            expected = before.tokenize(text)
            if {*expected} <= remaining - {"<unk>"}:
                checked += 1
                assert after.tokenize(text) == expected, ascii(text)
    assert checked > 100


@pytest.mark.parametrize("limit", [{"min_count": 1_000_000}, {"keep_top": None}])
def test_listed_tokens_are_still_made(model: Path, limit: dict[str, Any]) -> None:
    """A token of byte-level BPE is made of its parts, so these are kept with it."""
    before = reference(model)
    tokens = [token for token in before.get_vocab() if token not in SPECIAL]
    texts = {token: before.convert_tokens_to_string([token]) for token in tokens}
    whole = [token for token in tokens if before.tokenize(texts[token]) == [token]]
    listed = sorted(whole, key=lambda token: (-len(token), token))[:3]
    assert min(map(len, listed)) > 2
    keep = model.parent / "keep.txt"
    keep.write_text("\n".join(listed) + "\n", encoding="utf-8")
    required = reference(trim(model, min_count=1_000_000))
    if "keep_top" in limit:
        least = len(reference(trim(model, min_count=1_000_000, keep=keep)))
        limit = {"keep_top": least}
        with pytest.raises(UserError, match=f"keep_top must be {least} "):
            trim(model, keep_top=least - 1, keep=keep)
    after = reference(trim(model, keep=keep, **limit))
    assert [after.tokenize(texts[token]) for token in listed] == [[token] for token in listed]
    remaining = {*after.convert_ids_to_tokens(range(len(after)))}
    if (model / "merges.txt").exists():
        merges = [line.split() for line in (model / "merges.txt").read_text("utf-8").splitlines()[1:]]
        expected, todo = {*listed}, list(listed)
        while todo:
            token = todo.pop()
            parts = {part for left, right in merges if left + right == token for part in (left, right)} - expected
            expected |= parts
            todo += parts
    else:
        expected = {*listed}
    assert remaining - {*required.convert_ids_to_tokens(range(len(required)))} == {
        token for token in expected if len(token) > 1
    }


def test_characters_are_kept(model: Path) -> None:
    after = trim(model, min_count=1_000_000)
    if (after / "vocab.json").exists():
        tokens = json.loads((after / "vocab.json").read_text("utf-8"))
        assert {*tokens} == {*SPECIAL, *byte_characters()}
        assert [line for line in (after / "merges.txt").read_text("utf-8").splitlines() if line[0] != "#"] == []
    else:
        tokens = reference(after).convert_ids_to_tokens(range(len(reference(after))))
        whole = reference(model).convert_ids_to_tokens(range(len(reference(model))))
        assert tokens == [token for token in whole if token in SPECIAL or len(token) == 1]
