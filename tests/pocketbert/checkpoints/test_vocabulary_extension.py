"""`extend-vocabulary` does what add_tokens and resize_token_embeddings do in transformers, for every tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from safetensors.numpy import load_file
from tiny_tokenizers import SENTENCES, byte_bpe_files, unigram_file

import pocketbert as pb
from pocketbert.checkpoints.vocabulary_extension import extend_vocabulary
from pocketbert.cli import main
from pocketbert.configs import TaskConfig
from pocketbert.pruning.vocabulary import trim_vocabulary

TOKENS = ["[E1]", "catmat", "naïve café", "☃"]
# Not the sentence in NFD: see UnigramTokenizer.
TEXTS = [*SENTENCES[:6], SENTENCES[7], "the [E1]cat sat ON[E1] the catmat", "x[e1] a naïve café☃ ", "  [E1]  [E1]"]
WORDS = [*"abcdefghijklmnopqrstuvwxyz[]1", "the", "cat", "mat", "sat"]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *(f"##{word}" for word in WORDS)]


@pytest.fixture(params=["wordpiece", "byte_bpe", "unigram"], scope="module")
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A masked-LM model, whose head has a weight per token."""
    folder = tmp_path_factory.mktemp("files")
    config = tiny.ROBERTA
    tokenizer: Any
    if request.param == "wordpiece":
        (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES), "utf-8")
        tokenizer, config = pb.WordPieceTokenizer(folder / "vocab.txt"), tiny.BERT
    elif request.param == "byte_bpe":
        tokenizer = pb.ByteBPETokenizer(*byte_bpe_files(folder))
    else:
        tokenizer = pb.UnigramTokenizer(unigram_file(folder))
    config = config.replace(vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.pad_token_id)
    network = pb.from_preset(config, TaskConfig(kind="masked_lm"), tokenizer, seed=3)
    for name, variable in network.weights_by_path().items():
        if name.endswith(".bias"):
            variable.assign(np.random.default_rng(len(name)).normal(size=variable.shape))
    whole = tmp_path_factory.mktemp("models") / "whole"
    network.save_pretrained(whole)
    return whole


def tokens_file(folder: Path, content: str = "".join(f"{token}\n" for token in TOKENS)) -> Path:
    (folder / "tokens.txt").write_text(content, "utf-8")
    return folder / "tokens.txt"


@pytest.mark.usefixtures("eager")
def test_transformers_reads_equal_ids(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import AutoTokenizer

    arguments = [f"--model={model}", f"--tokens={tokens_file(tmp_path)}", f"--output={tmp_path / 'more'}"]
    assert main(["extend-vocabulary", *arguments]) == 0
    done = json.loads(capsys.readouterr().out)
    size = done["tokens"][0]
    assert done["tokens"] == [size, size + 4] and list(done["ids"].values()) == [*range(size, size + 4)]
    extended = pb.from_pretrained(tmp_path / "more")
    reference_tokenizer = AutoTokenizer.from_pretrained(tmp_path / "more")
    assert [reference_tokenizer.convert_tokens_to_ids(token) for token in TOKENS] == [*done["ids"].values()]
    expected = reference_tokenizer(TEXTS, add_special_tokens=False)["input_ids"]
    assert extended.tokenizer.tokenize(TEXTS).to_list() == expected
    used = {token_id for row in expected for token_id in row}
    assert used >= {*done["ids"].values()}


@pytest.mark.one_of_each("wordpiece")
@pytest.mark.usefixtures("eager")
def test_rows_are_means_of_tokens(model: Path, tmp_path: Path) -> None:
    extend_vocabulary(model, TOKENS, tmp_path / "more")
    before, after = (load_file(path / "model.safetensors") for path in (model, tmp_path / "more"))
    tokenizer = pb.from_pretrained(model).tokenizer
    before_ids = tokenizer.tokenize(TOKENS).to_list()
    assert max(map(len, before_ids)) > 2
    changed = [name for name in before if before[name].shape != after[name].shape]
    # The word table and the head's bias; the head's other table is tied.
    assert len(changed) == 2 and before.keys() == after.keys()
    for name, array in before.items():
        count = len(array)
        np.testing.assert_array_equal(after[name][:count], array)
        if name in changed:
            means = [np.mean([array[token] for token in ids], axis=0) for ids in before_ids]
            # Means of a few float32 numbers near 0.02 or 1.
            np.testing.assert_allclose(after[name][count:], means, rtol=1e-5, atol=1e-7)


@pytest.mark.one_of_each("unigram")
@pytest.mark.usefixtures("eager")
def test_trimming_keeps_added_tokens(model: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    extend_vocabulary(model, TOKENS, tmp_path / "more", special=True)
    text = tmp_path / "text.txt"
    text.write_text("\n".join(["the cat [E1] sat", "on the mat", *SENTENCES[:2]]), "utf-8")
    result = trim_vocabulary(tmp_path / "more", [text], tmp_path / "trimmed", dev_text=[text])
    assert result.tokens[1] < result.tokens[0]
    trimmed = pb.from_pretrained(tmp_path / "trimmed")
    size = trimmed.tokenizer.vocab_size
    assert [token.id for token in trimmed.tokenizer.vocabulary.added] == [*range(size - 4, size)]
    reference = AutoTokenizer.from_pretrained(tmp_path / "trimmed")
    expected = reference(["the [E1] cat☃ sat"], add_special_tokens=False)["input_ids"]
    assert trimmed.tokenizer.tokenize(["the [E1] cat☃ sat"]).to_list() == expected
    table = pb.from_pretrained(tmp_path / "more").weights_by_path()["encoder.embeddings.word.table"].numpy()
    rows = trimmed.weights_by_path()["encoder.embeddings.word.table"].numpy()
    np.testing.assert_array_equal(rows[-4:], table[-4:])


@pytest.mark.one_of_each
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[E1]\n\n[E2]\n", "tokens must not be empty; received empty lines 2; remove them"),
        ("[E1]\n[E1]\n", "tokens must be unique; received again: '\\[E1\\]'"),
        ("[E1] \n", "must not begin or end with white space; received '\\[E1\\] '"),
        ("a\n", "tokens must be new; received 'a', which the vocabulary has"),
        ("", "must have at least one token; received none"),
    ],
)
def test_bad_lists_are_refused(model: Path, tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(pb.UserError, match=message):
        extend_vocabulary(model, tokens_file(tmp_path, content), tmp_path / "more")
    assert not (tmp_path / "more").exists()


@pytest.mark.parametrize("model", ["wordpiece"], indirect=True)
def test_tokens_with_one_form_are_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(pb.UserError, match="must find each token as itself; received '\\[e1\\]', which it reads as"):
        extend_vocabulary(model, ["[E1]", "[e1]"], tmp_path / "more")
    # Special tokens are found as written.
    extend_vocabulary(model, ["[E1]", "[e1]"], tmp_path / "more", special=True)
    with pytest.raises(pb.UserError, match="tokens must be new; received '\\[e1\\]'"):
        extend_vocabulary(tmp_path / "more", ["[e1]"], tmp_path / "again")


@pytest.mark.parametrize("model", ["wordpiece"], indirect=True)
def test_what_cannot_hold_added_tokens(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pocketbert.configs import TaskConfig
    from pocketbert_export.clients.mediapipe_files import check_client
    from pocketbert_export.clients.serving import check_servable

    extend_vocabulary(model, ["[E1]"], tmp_path / "more")
    vocabulary = pb.from_pretrained(tmp_path / "more").tokenizer.vocabulary
    mood = TaskConfig(kind="classification", name="mood", labels=("bad", "good"))
    with pytest.raises(pb.UserError, match="cannot have added tokens; received '\\[E1\\]'; use write_saved_model"):
        check_servable(mood, vocabulary)
    with pytest.raises(
        pb.UserError, match="splits added tokens; received a model with '\\[E1\\]'; leave MediaPipe out"
    ):
        check_client(mood, vocabulary, has_pairs=False)
    (tmp_path / "text.txt").write_text("the cat\n\nthe mat\n" * 9, "utf-8")
    arguments = ["pretrain-data", f"--text={tmp_path / 'text.txt'}", f"--output={tmp_path / 'shards'}"]
    assert main([*arguments, f"--model={tmp_path / 'more'}"]) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 and "pretraining data cannot have added tokens" in printed
    # The remedy in the message.
    assert main([*arguments, f"--vocab={tmp_path / 'more' / 'vocab.txt'}", "--lowercase"]) == 0, capsys.readouterr().err
