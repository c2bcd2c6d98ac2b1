"""Tokenizer files as transformers 4.30 to 5 and sentence-transformers wrote them give the ids that those gave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pocketbert.checkpoints.vocabulary_files import read_vocabulary_files
from pocketbert.tokenizers.opening import open_tokenizer

SAVERS = Path(__file__).parents[2] / "goldens" / "savers"
# test_prefix_space.py has the case with add_prefix_space. Slow classes, which differ from fast ones in NFD text and
# added tokens, wrote no tokenizer.json.
CASES = sorted(
    path.parent
    for path in SAVERS.glob("*/*/expected.json")
    if (path.parent / "tokenizer.json").exists() and path.parent.name != "roberta_prefix_space"
)
REFUSED = {"bert_uncased_options": "padding_side in tokenizer_config.json must be 'right'; received 'left'"}


def name_of(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"


@pytest.mark.parametrize("folder", [pytest.param(case, id=name_of(case)) for case in CASES])
def test_ids_and_offsets_are_theirs(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    expected = json.loads((folder / "expected.json").read_text("utf-8"))
    problems: list[str] = []
    vocabulary = read_vocabulary_files(folder, problems)
    if folder.name in REFUSED:
        assert REFUSED[folder.name] in problems
        return
    assert vocabulary is not None and not problems
    tokenizer = open_tokenizer(vocabulary)
    assert tokenizer.vocab_size == expected["tokens"]
    rows = expected["texts"]
    if name_of(folder) == "transformers-4.30.2/xlmr_flags":
        # There, white space before an added token is a token, which a line names.
        assert "makes white space at the end of a text a token" in capfd.readouterr().err
        rows = [row for row in rows if " [E" not in row["text"]]
    columns = tokenizer.tokenize_with_offsets([row["text"] for row in rows])
    for row, ids, starts, ends in zip(rows, *(column.to_list() for column in columns), strict=True):
        assert ids == row["ids"], row["text"]
        # The offsets of unigram exclude white space.
        if vocabulary.kind != "unigram" and row.get("offsets"):
            assert [[*pair] for pair in zip(starts, ends, strict=True)] == row["offsets"], row["text"]
    pair = tokenizer(*([text] for text in expected["pair"]["texts"]))
    assert pair["input_word_ids"].numpy().tolist() == [expected["pair"]["input_ids"]]
