"""The files of a model directory select RoBERTa's or XLM-R's tokenizer; contradictions are refused by name."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_models import SENTIMENT, random_tensors, tiny_roberta, tiny_xlm_roberta
from tiny_tokenizers import SENTENCES, byte_bpe_files, byte_bpe_json, unigram_file, unigram_json

import pocketbert as pb
from pocketbert import cli
from pocketbert.checkpoints.directory import read_directory, write_directory
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

TEXTS = [*SENTENCES, "cafe\u0301 ½ <mask> the </s>", "", "\x00 ☃☃"]


def _vocabulary(kind: str, folder: Path) -> Vocabulary:
    if kind == "byte_bpe":
        vocab, merges = byte_bpe_files(folder)
        return Vocabulary(path=vocab, merges=merges, kind="byte_bpe")
    return Vocabulary(path=unigram_file(folder), kind="unigram")


def _write(kind: str, folder: Path) -> Path:
    """A classifier in Hugging Face's layout with the tokenizer's own files."""
    vocabulary = _vocabulary(kind, folder / "files")
    make = tiny_roberta if kind == "byte_bpe" else tiny_xlm_roberta
    config = make(vocab_size=len(vocabulary.tokens()))
    tensors = random_tensors(config, (SENTIMENT,))
    write_directory(folder / "model", config, (SENTIMENT,), tensors, vocabulary)
    return folder / "model"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: _write(kind, tmp_path_factory.mktemp(kind)) for kind in ("byte_bpe", "unigram")}


@pytest.fixture(params=["byte_bpe", "unigram"])
def directory(request: pytest.FixtureRequest, made: dict[str, Path], tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(made[request.param], tmp_path / request.param))


@pytest.fixture
def roberta(made: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(made["byte_bpe"], tmp_path / "byte_bpe"))


@pytest.fixture
def xlm_r(made: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(made["unigram"], tmp_path / "unigram"))


def content_of(directory: Path) -> dict[str, Any]:
    if (directory / "vocab.json").exists():
        return byte_bpe_json(directory / "vocab.json", directory / "merges.txt")
    return unigram_json(directory / "sentencepiece.bpe.model")


def own_files(directory: Path) -> list[Path]:
    return [
        path for path in directory.iterdir() if path.name in ("vocab.json", "merges.txt", "sentencepiece.bpe.model")
    ]


@pytest.mark.usefixtures("eager")
def test_saved_again_byte_by_byte(directory: Path, tmp_path: Path) -> None:
    model = pb.from_pretrained(directory)
    assert type(model.tokenizer) is {"byte_bpe": pb.ByteBPETokenizer, "unigram": pb.UnigramTokenizer}[directory.name]
    model.save_pretrained(tmp_path / "copy")
    for path in (*own_files(directory), directory / "tokenizer_config.json"):
        assert (tmp_path / "copy" / path.name).read_bytes() == path.read_bytes()
    again = pb.from_pretrained(tmp_path / "copy")
    assert again.tokenizer.tokenize(TEXTS).to_list() == model.tokenizer.tokenize(TEXTS).to_list()
    assert model.predict(["the cat"]) == again.predict(["the cat"])


def test_transformers_reads_what_we_write(roberta: Path) -> None:
    from transformers import AutoTokenizer

    expected = AutoTokenizer.from_pretrained(roberta)
    assert type(expected).__name__ == "RobertaTokenizerFast"
    tokenizer = pb.from_pretrained(roberta).tokenizer
    assert tokenizer.tokenize(TEXTS).to_list() == expected(TEXTS, add_special_tokens=False)["input_ids"]


@pytest.mark.usefixtures("eager")
def test_tokenizer_json_alone_gives_the_same(directory: Path, tmp_path: Path) -> None:
    expected = [column.to_list() for column in pb.from_pretrained(directory).tokenizer.tokenize_with_offsets(TEXTS)]
    (directory / "tokenizer.json").write_text(json.dumps(content_of(directory)), "utf-8")
    with_both = pb.from_pretrained(directory)
    for path in own_files(directory):
        path.unlink()
    for config in (True, False):
        if not config:
            (directory / "tokenizer_config.json").unlink()
        model = pb.from_pretrained(directory)
        for tokenizer in (model.tokenizer, with_both.tokenizer):
            assert [column.to_list() for column in tokenizer.tokenize_with_offsets(TEXTS)] == expected
    model.save_pretrained(tmp_path / "copy")
    again = pb.from_pretrained(tmp_path / "copy")
    assert [column.to_list() for column in again.tokenizer.tokenize_with_offsets(TEXTS)] == expected


def test_tokenizer_json_of_transformers(roberta: Path) -> None:
    from transformers import RobertaTokenizerFast

    reference = RobertaTokenizerFast(str(roberta / "vocab.json"), str(roberta / "merges.txt"))
    expected = reference(TEXTS, add_special_tokens=False)["input_ids"]
    reference.save_pretrained(roberta)
    for path in own_files(roberta):
        path.unlink()
    assert pb.from_pretrained(roberta).tokenizer.tokenize(TEXTS).to_list() == expected


def refused(directory: Path, message: str) -> None:
    with pytest.raises(pb.UserError, match=message) as caught:
        read_directory(directory)
    assert "\n" not in str(caught.value)


def _set(*path: Any) -> Callable[[dict[str, Any]], None]:
    *parents, last, value = path

    def change(content: Any) -> None:
        for key in parents:
            content = content[key]
        content[last] = value

    return change


BYTE_BPE = [
    (_set("normalizer", {"type": "NFC"}), "normalizer must be null; received .*NFC"),
    (_set("pre_tokenizer", "add_prefix_space", True), "add_prefix_space must be the same in tokenizer_config.json and"),
    (_set("pre_tokenizer", {"type": "Whitespace"}), "pre_tokenizer must be of type ByteLevel; received 'Whitespace'"),
    (_set("post_processor", "cls", ["<mask>", 9]), "post_processor.cls must be RoBERTa's; received"),
    (_set("post_processor", "cls", True), "post_processor.cls must be RoBERTa's; received True"),
    (_set("post_processor", {"type": "BertProcessing"}), "post_processor must be .* received 'BertProcessing'"),
    (_set("model", "dropout", 0.1), "model.dropout must be None; received 0.1"),
    (_set("model", "byte_fallback", True), "model.byte_fallback must be False; received True"),
    (_set("model", "merges", 0, "a"), "model.merges must be a list of pairs"),
    (_set("model", "merges", 0, "<s> <pad>"), "both parts and the result of each merge; received merge 1 "),
    (_set("model", "vocab", "a", 0), "ids 0, 1, 2…, each used once"),
    (_set("added_tokens", 0, "content", "<e1>"), "ids of added tokens must follow the vocabulary's"),
    (_set("added_tokens", 4, "id", 7), "must have its id there; received other ids for '<mask>' \\(7\\)"),
    (_set("added_tokens", 0, "single_word", "no"), "single_word of '<s>' .* must be true or false"),
    (_set("model", "cache", 1), "key 'cache' in model is unknown and may change the tokens"),
    (_set("pre_tokenizer", "cache", 1), "key 'cache' in pre_tokenizer is unknown"),
    (_set("post_processor", "cache", 1), "key 'cache' in post_processor is unknown"),
    (_set("model", {"type": ["BPE"]}), "model must be of type WordPiece, BPE or Unigram"),
]
UNIGRAM = [
    (_set("normalizer", {"type": "NFKC"}), "normalizer must be Precompiled, .* received 'NFKC'"),
    (_set("normalizer", "normalizers", 1, {"type": "Lowercase"}), "normalizer must be .* received 'Lowercase'"),
    (_set("normalizer", "normalizers", 0, "precompiled_charsmap", "?"), "precompiled_charsmap must be Base64"),
    (_set("post_processor", "pair", 3), "post_processor.pair must be <s> A </s> </s> B </s>; received"),
    (_set("pre_tokenizer", "prepend_scheme", "never"), "pre_tokenizer.prepend_scheme must be 'always'"),
    (_set("pre_tokenizer", {"type": "Sequence", "pretokenizers": []}), "pre_tokenizer must be Metaspace"),
    (_set("post_processor", "pair", []), "post_processor.pair must be <s> A </s> </s> B </s>; received"),
    (_set("model", "unk_id", 0), "model.unk_id must be 3; received 0"),
    (_set("model", "alpha", 0.1), "key 'alpha' in model is unknown and may change the tokens"),
    (_set("model", "byte_fallback", True), "model.byte_fallback must be False; received True"),
    (_set("model", "vocab", 5, ["x"]), "model.vocab must be a list of subwords with their scores"),
    (_set("model", "vocab", 1, ["</s>", 0.0]), "must begin with <s> <pad> </s> <unk> and end with <mask>"),
    (_set("model", "vocab", 5, ["<pad>", 0.0]), "must not be special tokens; received <pad>"),
    (_set("model", "vocab", 5, ["", 0.0]), "must not be empty"),
]


@pytest.mark.parametrize(("change", "message"), BYTE_BPE)
def test_byte_bpe_components_are_refused(roberta: Path, change: Any, message: str) -> None:
    content = content_of(roberta)
    change(content)
    (roberta / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    refused(roberta, f"tokenizer.json: .*{message}|{message}")


@pytest.mark.parametrize(("change", "message"), UNIGRAM)
def test_unigram_components_are_refused(xlm_r: Path, change: Any, message: str) -> None:
    content = content_of(xlm_r)
    change(content)
    (xlm_r / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    refused(xlm_r, f"tokenizer.json: .*{message}")


def test_white_space_that_does_not_split_is_named(xlm_r: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A Unigram that the library `tokenizers` has trained has no normalizer: its tabs split words, ours are unknown."""
    content = content_of(xlm_r)
    splits = [{"type": "WhitespaceSplit"}, content["pre_tokenizer"]]
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": splits}
    (xlm_r / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    (xlm_r / "sentencepiece.bpe.model").unlink()
    pb.from_pretrained(xlm_r)
    assert "only a space splits" not in capfd.readouterr().err
    content["normalizer"] = None
    (xlm_r / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    pb.from_pretrained(xlm_r)
    assert "splits texts at tabs, line ends and other white space" in capfd.readouterr().err


def test_white_space_that_is_dropped_is_named(xlm_r: Path, capfd: pytest.CaptureFixture[str]) -> None:
    content = content_of(xlm_r)
    (xlm_r / "sentencepiece.bpe.model").unlink()
    del content["normalizer"]["normalizers"][2]
    (xlm_r / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    pb.from_pretrained(xlm_r)
    assert "makes white space repeated or at the start of a text a token; here it is dropped" in capfd.readouterr().err


def test_broken_character_map_is_not_converted(xlm_r: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = content_of(xlm_r)
    (xlm_r / "sentencepiece.bpe.model").unlink()
    (xlm_r / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    command = ["convert", "--from=hf", f"--input={xlm_r}"]
    assert cli.main([*command, f"--output={tmp_path / 'whole'}"]) == 0
    pb.from_pretrained(tmp_path / "whole")
    map_ = base64.b64decode(content["normalizer"]["normalizers"][0]["precompiled_charsmap"])
    for broken in (b"abc", map_[: len(map_) // 2], b"\xff" * 8 + map_[8:]):
        content["normalizer"]["normalizers"][0]["precompiled_charsmap"] = base64.b64encode(broken).decode()
        (xlm_r / "tokenizer.json").write_text(json.dumps(content), "utf-8")
        capsys.readouterr()
        assert cli.main([*command, f"--output={tmp_path / 'new'}"]) == 2
        assert "sentencepiece must be able to load a model" in capsys.readouterr().err
        assert not (tmp_path / "new").exists()


def test_other_tokens_in_tokenizer_json(directory: Path) -> None:
    content = content_of(directory)
    if directory.name == "byte_bpe":
        content["model"]["merges"][:2] = reversed(content["model"]["merges"][:2])
    else:
        content["model"]["vocab"][5][1] -= 0.5
    (directory / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    refused(directory, "tokenizer.json and .* must have the same tokens; received different ones")


def test_files_of_two_tokenizers(roberta: Path, xlm_r: Path) -> None:
    (roberta / "vocab.txt").write_text("[PAD]\n")
    refused(roberta, "files of one tokenizer; received vocab.txt, vocab.json, merges.txt; remove the others")
    (xlm_r / "tokenizer.json").write_text(json.dumps(content_of(roberta)), "utf-8")
    refused(xlm_r, "tokenizer.json and sentencepiece.bpe.model must agree; received byte_bpe and unigram")


def test_half_a_tokenizer(roberta: Path) -> None:
    (roberta / "merges.txt").unlink()
    refused(roberta, "vocab.json and merges.txt belong together; received only vocab.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer_class": "BertTokenizer"}, "tokenizer_class .* received BertTokenizer; take all files from one"),
        ({"cls_token": "[CLS]"}, r"cls_token .* must be <s>; received '\[CLS\]'"),
        ({"word_tokenizer_type": "mecab"}, "key 'word_tokenizer_type' in tokenizer_config.json is unknown"),
        ({"padding_side": "left"}, "padding_side .* must be 'right'"),
        ({"added_tokens_decoder": {"7": {"content": "<e1>"}}}, "ids of added tokens must follow .* received 7"),
    ],
)
def test_options_are_refused_by_name(directory: Path, changes: dict[str, Any], message: str) -> None:
    path = directory / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    refused(directory, message)


def test_vocabulary_must_fit_the_encoder(directory: Path) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"pad_token_id": 3}))
    refused(directory, "pad_token_id must be the id of <pad> in .*, 1; received 3")
    if directory.name == "byte_bpe":
        ids = json.loads((directory / "vocab.json").read_text())
        (directory / "vocab.json").write_text(json.dumps(ids | {"more": len(ids)}))
        refused(directory, r"vocab.json must have one token per row .* received \d+ tokens for \d+ rows")
        (directory / "merges.txt").write_text("x y z\n")
        refused(directory, "must have two tokens; received 'x y z' in line 1")
    else:
        content = (directory / "sentencepiece.bpe.model").read_bytes()
        (directory / "sentencepiece.bpe.model").write_bytes(content[:1000])
        refused(directory, "sentencepiece model must .*; received")
