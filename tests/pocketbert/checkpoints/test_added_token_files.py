"""Added tokens mean here what they mean to transformers' fast tokenizers, in every file that states them."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny_models import SENTIMENT, random_tensors, tiny_bert
from tiny_tokenizers import byte_bpe_files, unigram_file, unigram_json

import pocketbert as pb
from pocketbert.checkpoints.directory import write_directory
from pocketbert.checkpoints.vocabulary_files import read_vocabulary_files, write_vocabulary_files
from pocketbert.tokenizers.opening import open_tokenizer
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import SPECIAL_TOKENS

_LETTERS = [*"abcdeéEnix!?.,[]<>1中京あİß½"]
_PIECES = [*SPECIAL_TOKENS, "[unused1]", *_LETTERS, *(f"##{letter}" for letter in _LETTERS), "the", "unused"]
CONTENTS = [
    "[E1]",
    "[E2]",
    "E1",
    "a b",
    "ab",
    "Ab",
    "中",
    "中a",
    "É",
    "<e>",
    "[unused1]",
    "the",
    "abc",
    "[E1]x",
    "１",
    "ing",
]
_BETWEEN = ["a", "b ", " ", "x", "é", "[SEP]", "<mask>", "</s>", "\t", "_", "E", "e1", "ﬁ", "café", "\u3000", "abcd"]
# Of these, sentencepiece and the fast class of XLM-R make different characters, as ours and theirs do in plain text.
_MARKS = ["\u0301", "\u200d", "İ", "e\u0301", "½"]
_TYPES = {"wordpiece": "bert", "byte_bpe": "roberta", "unigram": "xlm-roberta"}
# The name of a file, or of a key of tokenizer_config.json: what older versions and conversions leave out.
LAYOUTS = [
    (),
    ("tokenizer.json",),
    ("special_tokens_map.json",),
    ("added_tokens.json",),
    ("vocab.txt", "vocab.json", "merges.txt", "sentencepiece.bpe.model"),
    ("tokenizer.json", "tokenizer_config.json"),
    ("tokenizer.json", "added_tokens_decoder"),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, ...]]:
    folder = tmp_path_factory.mktemp("files")
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in dict.fromkeys(_PIECES)), "utf-8")
    return {
        "wordpiece": (folder / "vocab.txt",),
        "byte_bpe": byte_bpe_files(folder / "byte_bpe"),
        "unigram": (unigram_file(folder / "unigram"),),
    }


def theirs(kind: str, files: tuple[Path, ...], draw: random.Random, folder: Path) -> Any:
    import transformers

    if kind == "wordpiece":
        options = {"do_lower_case": draw.random() < 0.5, "strip_accents": draw.choice([None, True, False])}
        make = draw.choice([transformers.BertTokenizerFast, transformers.BertTokenizer])
        return make(str(files[0]), tokenize_chinese_chars=draw.random() < 0.7, **options)
    if kind == "byte_bpe":
        make = draw.choice([transformers.RobertaTokenizerFast, transformers.RobertaTokenizer])
        return make(str(files[0]), str(files[1]))
    content = unigram_json(files[0])
    if draw.random() < 0.5:
        # As in xlm-roberta-base.
        content["normalizer"] = content["normalizer"]["normalizers"][0]
        splits = [{"type": "WhitespaceSplit"}, content["pre_tokenizer"]]
        content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": splits}
    (folder / "unigram.json").write_text(json.dumps(content), "utf-8")
    return transformers.XLMRobertaTokenizerFast(tokenizer_file=str(folder / "unigram.json"))


def random_token(draw: random.Random) -> Any:
    from transformers import AddedToken

    content = draw.choice(CONTENTS)
    flags = {flag: draw.random() < 0.4 for flag in ("lstrip", "rstrip", "single_word", "normalized", "special")}
    return content if draw.random() < 0.3 else AddedToken(content, **flags)


def random_text(draw: random.Random, kind: str) -> str:
    choices = [*CONTENTS, *_BETWEEN, *([] if kind == "unigram" else _MARKS)]
    text = "".join(draw.choice(choices) for _ in range(draw.randint(0, 9)))
    # Two spaces before a token are a case of their own in the newer conversion of XLM-R.
    return " ".join(text.split()) if kind == "unigram" else text


def rows(tokenizer: Any, texts: list[str], kind: str) -> list[Any]:
    """Ids and offsets; the offsets of unigram exclude white space, which those of transformers include."""
    if isinstance(tokenizer, pb.WordPieceTokenizer | pb.ByteBPETokenizer | pb.UnigramTokenizer):
        ids, starts, ends = (column.to_list() for column in tokenizer.tokenize_with_offsets(texts))
        assert ids == tokenizer.tokenize(texts).to_list()
    else:
        encoded = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True)
        ids = encoded["input_ids"]
        starts, ends = ([[span[side] for span in row] for row in encoded["offset_mapping"]] for side in (0, 1))
    return [ids] if kind == "unigram" else [ids, starts, ends]


@pytest.mark.one_of_each("0-wordpiece", "0-byte_bpe", "0-unigram")
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "unigram"])
@pytest.mark.parametrize("seed", range(3))
def test_all_layouts_equal_transformers(files: Any, tmp_path: Path, kind: str, seed: int) -> None:
    from transformers import AutoTokenizer

    draw = random.Random(10 * len(kind) + seed)
    for trial in range(len(LAYOUTS)):
        tokenizer = theirs(kind, files[kind], draw, tmp_path)
        tokens = [random_token(draw) for _ in range(draw.randint(1, 4))]
        how = draw.choice(["added", "special", "both"])
        if how != "special":
            tokenizer.add_tokens(tokens[:2])
        if how != "added":
            tokenizer.add_special_tokens({"additional_special_tokens": tokens[2:] or tokens})
        folder = tmp_path / f"{trial}"
        tokenizer.save_pretrained(folder)
        if kind == "unigram":
            shutil.copy(files[kind][0], folder)
        (folder / "config.json").write_text(json.dumps({"model_type": _TYPES[kind]}))
        for name in LAYOUTS[trial]:
            if name == "added_tokens_decoder":
                content = json.loads((folder / "tokenizer_config.json").read_text())
                content.pop(name)
                (folder / "tokenizer_config.json").write_text(json.dumps(content))
            elif name == "tokenizer.json":
                if kind != "unigram":
                    (folder / name).unlink(missing_ok=True)
            elif (folder / "tokenizer.json").exists() or "vocab" not in name and "merges" not in name:
                (folder / name).unlink(missing_ok=True)
        texts = [random_text(draw, kind) for _ in range(40)]
        context = f"trial {trial}: {how} {tokens}"
        problems: list[str] = []
        vocabulary = read_vocabulary_files(folder, problems)
        assert vocabulary is not None and not problems, (context, problems)
        bert_tokenizer, expected = open_tokenizer(vocabulary), AutoTokenizer.from_pretrained(folder)
        assert bert_tokenizer.vocab_size == len(expected), context
        assert rows(bert_tokenizer, texts, kind) == rows(expected, texts, kind), context
        copy = tmp_path / f"{trial} copy"
        copy.mkdir()
        shutil.copy(folder / "config.json", copy)
        write_vocabulary_files(copy, vocabulary, 64)
        assert rows(AutoTokenizer.from_pretrained(copy), texts, kind) == rows(expected, texts, kind), context
        again = read_vocabulary_files(copy, problems)
        assert again is not None and (again.added, again.keeps_space) == (vocabulary.added, vocabulary.keeps_space)


def _directory(files: Any, folder: Path) -> Path:
    vocabulary = Vocabulary(path=files["wordpiece"][0])
    config = tiny_bert(vocab_size=len(vocabulary.tokens()))
    write_directory(folder / "model", config, (SENTIMENT,), random_tensors(config, (SENTIMENT,)), vocabulary)
    return folder / "model"


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("special_tokens_map.json", {"additional_special_tokens": ["[unused1]"]}),
        ("tokenizer_config.json", {"extra_special_tokens": ["[unused1]"]}),
        ("tokenizer_config.json", {"additional_special_tokens": ["[unused1]"]}),
        ("tokenizer_config.json", {"extra_special_tokens": {"marker": "[unused1]"}}),
    ],
)
def test_listed_special_token_stays_whole(files: Any, tmp_path: Path, name: str, content: Any) -> None:
    """C2 of the users' reports."""
    directory = _directory(files, tmp_path)
    (directory / name).write_text(json.dumps(content))
    model = pb.from_pretrained(directory)
    assert model.tokenizer.tokenize(["[unused1] a"]).to_list() == [[5, _PIECES.index("a")]]
    text = pb.WordPieceTokenizer(
        directory / "vocab.txt", special_tokens_in_text="text", added_tokens=model.tokenizer.vocabulary.added
    )
    assert len(text.tokenize(["[unused1] a"]).to_list()[0]) == 5
    model.save_pretrained(tmp_path / "copy")
    assert pb.from_pretrained(tmp_path / "copy").tokenizer.vocabulary.added == model.tokenizer.vocabulary.added


def test_older_files_beside_decoder_are_named(files: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Transformers ignores them, too."""
    from transformers import AutoTokenizer

    directory = _directory(files, tmp_path)
    (directory / "tokenizer_config.json").write_text('{"added_tokens_decoder": {}}')
    (directory / "special_tokens_map.json").write_text('{"additional_special_tokens": ["[unused1]"]}')
    expected = AutoTokenizer.from_pretrained(directory)(["[unused1]"], add_special_tokens=False)["input_ids"]
    assert pb.from_pretrained(directory).tokenizer.tokenize(["[unused1]"]).to_list() == expected
    assert (
        "do not count beside added_tokens_decoder in tokenizer_config.json: without '[unused1]'"
        in capfd.readouterr().err
    )


def test_files_with_other_ids_are_refused(files: Any, tmp_path: Path) -> None:
    from transformers import BertTokenizerFast

    directory = _directory(files, tmp_path)
    tokenizer = BertTokenizerFast(str(files["wordpiece"][0]))
    tokenizer.add_tokens(["[E1]", "[E2]"])
    tokenizer.save_pretrained(directory)
    content = json.loads((directory / "tokenizer_config.json").read_text())
    decoder = content["added_tokens_decoder"]
    one, two = list(decoder)[-2:]
    decoder[one], decoder[two] = decoder[two], decoder[one]
    (directory / "tokenizer_config.json").write_text(json.dumps(content))
    problems: list[str] = []
    read_vocabulary_files(directory, problems)
    assert any("must give a token the same id; received" in problem for problem in problems)


def test_tokens_that_claim_one_space_are_refused(files: Any) -> None:
    size = len(Vocabulary(path=files["wordpiece"][0]).tokens())
    tokens = [pb.AddedToken(content="[E1]", id=size, rstrip=True), pb.AddedToken(content=" x", id=size + 1)]
    with pytest.raises(pb.UserError, match="one that starts with white space must not be in one tokenizer"):
        pb.WordPieceTokenizer(files["wordpiece"][0], added_tokens=tokens)
