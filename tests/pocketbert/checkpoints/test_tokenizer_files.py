"""tokenizer_config.json and tokenizer.json mean here what they mean to transformers, or are refused by name."""

import json
import shutil

import numpy as np
import pytest
from tiny_models import SENTIMENT, random_tensors, tiny_bert

from pocketbert.checkpoints.directory import read_directory, write_directory
from pocketbert.checkpoints.vocabulary_files import read_vocabulary_files
from pocketbert.configs import TokenizerConfig
from pocketbert.errors import UserError
from pocketbert.model import from_pretrained
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import SPECIAL_TOKENS

_LETTERS = ["e", "é", "E", "É", "n", "中", "文", "a", "i", "İ", "!", "x", "##x"]
_PIECES = [
    *SPECIAL_TOKENS,
    *_LETTERS,
    *(f"##{letter}" for letter in _LETTERS[:9] if letter != "x"),
    "xxx",
    "##\u0301",
    "É中",
]
TEXTS = ["É e É中文 İ", "nexx é! [SEP] \u00c9", "中文 ix", "e\u0301 XXX \x00xxx"]


@pytest.fixture
def directory(tmp_path):
    """A classifier with a vocabulary that shows what happens to letters, accents and ideographs."""
    vocabulary = tmp_path / "pieces.txt"
    vocabulary.write_text("".join(f"{piece}\n" for piece in _PIECES), encoding="utf-8")
    config = tiny_bert(vocab_size=len(_PIECES))
    path = tmp_path / "model"
    write_directory(path, config, (SENTIMENT,), random_tensors(config, (SENTIMENT,)), Vocabulary(path=vocabulary))
    return path


def edit(path, **changes):
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(content | changes), encoding="utf-8")


def theirs(directory, **options):
    from transformers import BertTokenizerFast

    return BertTokenizerFast(str(directory / "vocab.txt"), **options)


@pytest.mark.one_of_each("options0", "options2")
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "options",
    [
        {"do_lower_case": True, "strip_accents": False},
        {"do_lower_case": False, "strip_accents": True},
        {"do_lower_case": False, "tokenize_chinese_chars": False},
    ],
)
def test_options_are_honoured_kept_and_read_from_tokenizer_json(directory, tmp_path, options):
    reference = theirs(directory, **options)
    expected = reference(TEXTS, add_special_tokens=False)["input_ids"]
    assert (
        expected
        != theirs(directory, do_lower_case=options["do_lower_case"])(TEXTS, add_special_tokens=False)["input_ids"]
    )
    edit(directory / "tokenizer_config.json", **options)
    model = from_pretrained(directory)
    assert model.tokenizer.tokenize(TEXTS).to_list() == expected
    model.save_pretrained(tmp_path / "copy")
    assert read_directory(tmp_path / "copy").tokenizer == model.tokenizer.config
    from transformers import AutoTokenizer

    assert AutoTokenizer.from_pretrained(tmp_path / "copy")(TEXTS, add_special_tokens=False)["input_ids"] == expected

    reference.save_pretrained(directory)
    (directory / "vocab.txt").unlink()
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        copy = read_directory(directory)
        assert copy.tokenizer == model.tokenizer.config
        assert copy.vocab_path.read_text("utf-8") == "".join(f"{piece}\n" for piece in _PIECES)
        # tokenizer.json says everything by itself.
        (directory / name).unlink()
    write_directory(tmp_path / "again", copy.config, copy.tasks, copy.tensors, copy.vocabulary)
    assert (tmp_path / "again" / "vocab.txt").read_bytes() == (tmp_path / "copy" / "vocab.txt").read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"do_lower_case": "yes"}, "do_lower_case in tokenizer_config.json must be true or false; received 'yes'"),
        ({"strip_accents": 1}, "strip_accents in tokenizer_config.json must be true or false; received 1"),
        ({"tokenize_chinese_chars": []}, "tokenize_chinese_chars .* must be true or false"),
        ({"do_basic_tokenize": False}, "do_basic_tokenize .* must be True; received False"),
        ({"never_split": ["GmbH"]}, "never_split .* only special tokens; received \\['GmbH'\\]"),
        ({"cls_token": "<s>"}, "cls_token .* must be \\[CLS\\]; received '<s>'"),
        ({"mask_token": {"content": "<mask>"}}, "mask_token .* must be \\[MASK\\]; received '<mask>'"),
        ({"split_special_tokens": True}, "split_special_tokens .* must be False"),
        ({"padding_side": "left"}, "padding_side .* must be 'right'; received 'left'"),
        ({"truncation_side": "up"}, "truncation_side .* must be 'right'; received 'up'"),
        ({"word_tokenizer_type": "mecab"}, "key 'word_tokenizer_type' in tokenizer_config.json is unknown"),
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "tokenizer_class .* received BertJapaneseTokenizer, which may"),
        ({"additional_special_tokens": ["[E1]"]}, "one token per row of the word embedding table"),
        ({"additional_special_tokens": "[E1]"}, "additional_special_tokens .* must be a list of tokens"),
        ({"additional_special_tokens": [7]}, "a token in additional_special_tokens .* must be a string or an object"),
        ({"added_tokens_decoder": {"7": {"content": "[E1]"}}}, "ids of added tokens must follow .*; received 7"),
        (
            {"added_tokens_decoder": {"7": {"content": "e"}}},
            "must have its id there; received other ids for 'e' \\(7\\)",
        ),
        ({"added_tokens_decoder": {"7": {"content": "e", "lstrip": 1}}}, "lstrip of 'e' .* must be true or false"),
        ({"added_tokens_decoder": {"7": {"content": "e", "strip": 1}}}, "key 'strip' in 'e' .* is unknown"),
        ({"added_tokens_decoder": {"x": {"content": "e"}}}, "must have ids as keys; received 'x'"),
        ({"added_tokens_decoder": 3}, "added_tokens_decoder .* must be an object; received int"),
    ],
)
def test_other_options_are_refused_by_name(directory, changes, message):
    edit(directory / "tokenizer_config.json", **changes)
    with pytest.raises(UserError, match=message):
        read_directory(directory)


def _set(*path):
    *parents, last, value = path

    def change(content):
        for key in parents:
            content = content[key]
        content[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("model", "type", "BPE"), "tokenizer_class in tokenizer_config.json must be that of the files"),
        (_set("model", "type", "WordLevel"), "model must be of type WordPiece, BPE or Unigram; received 'WordLevel'"),
        (_set("model", "unk_token", "<unk>"), "model.unk_token must be '\\[UNK\\]'"),
        (_set("model", "max_input_chars_per_word", 200), "max_input_chars_per_word must be 100; received 200"),
        (_set("model", "vocab", "É中", 4), "ids 0, 1, 2…, each used once"),
        (_set("model", "vocab", []), "ids 0, 1, 2…, each used once"),
        (_set("model", None), "model must be of type WordPiece, BPE or Unigram; received None"),
        (_set("normalizer", {"type": "Sequence", "normalizers": []}), "normalizer.type must be 'BertNormalizer'"),
        (_set("normalizer", "clean_text", False), "normalizer.clean_text must be True; received False"),
        (_set("normalizer", "lowercase", 2), "lowercase must be true or false; received 2"),
        (_set("pre_tokenizer", {"type": "Whitespace"}), "pre_tokenizer.type must be 'BertPreTokenizer'"),
        (_set("post_processor", {"type": "RobertaProcessing"}), "post_processor must be of type TemplateProcessing"),
        (_set("post_processor", "single", 3), "post_processor.single must be \\[CLS\\] A \\[SEP\\]; received"),
        (
            _set("post_processor", {"type": "BertProcessing", "sep": 3, "cls": {"a": 1}}),
            "post_processor.sep must be BERT's; received 3; .*post_processor.cls must be BERT's",
        ),
        (_set("post_processor", "single", []), "post_processor.single must be \\[CLS\\] A \\[SEP\\]; received"),
        (
            _set("post_processor", "pair", 3, "Sequence", "type_id", 0),
            "pair must have the segments \\[0, 0, 0, 1, 1\\]",
        ),
        (_set("added_tokens", [{"content": "[E1]"}]), "the id of '\\[E1\\]' .* must be a whole number; received None"),
        (_set("added_tokens", [{"content": "[E1]", "id": 7}]), "ids of added tokens must follow .* received 7"),
        (_set("added_tokens", {}), "added_tokens in tokenizer.json must be a list; received dict"),
        (_set("model", "cache_capacity", 3), "key 'cache_capacity' in model is unknown and may change the tokens"),
        (_set("normalizer", "strip", 3), "key 'strip' in normalizer is unknown"),
        (_set("truncation", {"direction": "Up"}), "truncation.direction must be Right or Left; received 'Up'"),
        (_set("padding", {"pad_token": "x"}), "padding.pad_token must be '\\[PAD\\]'; received 'x'"),
        (_set("post_processors", [1]), "key 'post_processors' in it is unknown"),
    ],
)
def test_tokenizer_json_components_are_refused_by_name(directory, change, message):
    theirs(directory).save_pretrained(directory)
    (directory / "vocab.txt").unlink()
    content = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))
    change(content)
    (directory / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError, match=message) as error:
        read_directory(directory)
    assert "\n" not in str(error.value)


def test_files_that_disagree_are_refused(directory):
    theirs(directory, do_lower_case=True).save_pretrained(directory)
    shutil.move(directory / "vocab.txt", directory / "old.txt")
    edit(directory / "tokenizer_config.json", do_lower_case=False)
    with pytest.raises(UserError, match="tokenizer_config.json and tokenizer.json must agree"):
        read_directory(directory)


def test_damaged_tokenizer_json_is_one_line(directory):
    (directory / "vocab.txt").unlink()
    for content in ("[" * 10_000, "9" * 5_000, "[]", '{"model": {"vocab": {"a": "b"}}}', "null"):
        (directory / "tokenizer.json").write_text(content)
        with pytest.raises(UserError) as error:
            read_directory(directory)
        assert "\n" not in str(error.value)


def test_mutated_tokenizer_json_loads_or_is_refused(directory):
    theirs(directory).save_pretrained(directory)
    (directory / "vocab.txt").unlink()
    whole = (directory / "tokenizer.json").read_bytes()
    generator = np.random.default_rng(7)
    for _ in range(200):
        content = bytearray(whole)
        for _ in range(generator.integers(1, 4)):
            offset = int(generator.integers(len(content)))
            content[offset : offset + int(generator.integers(0, 3))] = generator.bytes(int(generator.integers(0, 3)))
        (directory / "tokenizer.json").write_bytes(bytes(content))
        problems: list[str] = []
        read_vocabulary_files(directory, problems)
        assert all("\n" not in problem for problem in problems)


def test_other_options_are_refused_where_only_lowercase_is_recorded():
    TokenizerConfig(lowercase=False).require_default("a store", "distil live")
    for options in ({"strip_accents": False}, {"tokenize_chinese_chars": False}):
        with pytest.raises(UserError, match="a store needs a tokenizer with strip_accents=True .*; distil live"):
            TokenizerConfig(**options).require_default("a store", "distil live")


def test_options_follow_lowercase_where_nothing_is_said():
    assert TokenizerConfig().strip_accents is True
    assert TokenizerConfig(lowercase=False).strip_accents is False


@pytest.mark.parametrize("name", ["special_tokens_map.json", "added_tokens.json"])
def test_older_files_are_read_strictly(directory, name):
    (directory / name).write_text('{"[E1]": "x"}')
    wrong = "key '\\[E1\\]' in special_tokens_map.json is unknown|added_tokens.json must map tokens to ids"
    with pytest.raises(UserError, match=wrong):
        read_directory(directory)


@pytest.mark.usefixtures("eager")
def test_cased_tokenizer_json_keeps_case(directory, capfd):
    """C3 of the users' reports: PreTrainedTokenizerFast does what tokenizer.json says."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    backend = theirs(directory, do_lower_case=False).backend_tokenizer
    PreTrainedTokenizerFast(tokenizer_object=backend).save_pretrained(directory)
    expected = AutoTokenizer.from_pretrained(directory)(TEXTS, add_special_tokens=False)["input_ids"]
    assert from_pretrained(directory).tokenizer.tokenize(TEXTS).to_list() == expected
    edit(directory / "tokenizer_config.json", do_lower_case=True)
    assert AutoTokenizer.from_pretrained(directory)(TEXTS, add_special_tokens=False)["input_ids"] == expected
    assert from_pretrained(directory).tokenizer.tokenize(TEXTS).to_list() == expected
    assert "tokenizer.json decides on lowercase" in capfd.readouterr().err


def test_two_vocabularies_must_agree(directory):
    theirs(directory).save_pretrained(directory)
    lines = (directory / "vocab.txt").read_text("utf-8").split("\n")
    (directory / "vocab.txt").write_text("\n".join([*lines[:6], lines[7], lines[6], *lines[8:]]), "utf-8")
    with pytest.raises(UserError, match="tokenizer.json and vocab.txt must have the same tokens"):
        read_directory(directory)
    # The remedy: one file less.
    (directory / "tokenizer.json").unlink()
    assert read_directory(directory).vocabulary is not None
