"""Model directories with unigram tokenizers in every layout: which one they have, and what is written again."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from layout_texts import PEERS, hard_texts, layouts
from tiny_tokenizers import LAYOUT_FILES, layout_file, unigram_file
from tokenizers import Tokenizer

from pocketbert.checkpoints.vocabulary_files import (
    read_vocabulary_files,
    write_tokenizer_json,
    write_vocabulary_files,
)
from pocketbert_runtime.tokenizers.layouts import LAYOUTS
from pocketbert_runtime.tokenizers.opening import open_tokenizer
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

CLASSES = {layout: f"{LAYOUTS[layout].classes[0]}Tokenizer" for layout in LAYOUTS}


def read(folder: Path) -> tuple[Vocabulary | None, list[str]]:
    problems: list[str] = []
    return read_vocabulary_files(folder, problems), problems


def saved(folder: Path, layout: str, **options: Any) -> Any:
    """A directory that transformers' slow class has written."""
    path = layout_file(folder / "source", layout)
    reference = getattr(transformers, PEERS[layout])(str(path), **options)
    reference.save_pretrained(folder / "saved")
    return reference


@layouts
def test_directories_of_transformers(layout: str, tmp_path: Path) -> None:
    reference = saved(tmp_path, layout)
    vocabulary, problems = read(tmp_path / "saved")
    assert not problems and vocabulary is not None
    assert (vocabulary.layout, vocabulary.path.name, vocabulary.added) == (layout, LAYOUTS[layout].file, ())
    texts = ["the cat in 1990, 9,", "a naïve café"]
    assert open_tokenizer(vocabulary).id_rows(texts) == reference(texts, add_special_tokens=False)["input_ids"]
    # transformers reads what we write.
    copy = tmp_path / "copy"
    copy.mkdir()
    write_vocabulary_files(copy, vocabulary, 512)
    again = getattr(transformers, PEERS[layout]).from_pretrained(copy)
    assert type(again) is type(reference) and again(texts)["input_ids"] == reference(texts)["input_ids"]
    assert read(copy) == (dataclasses.replace(vocabulary, path=copy / vocabulary.path.name), [])


@pytest.mark.parametrize(
    ("config", "model", "layout"),
    [
        ({"tokenizer_class": "CamembertTokenizerFast"}, {"model_type": "bert"}, "camembert"),
        ({}, {"model_type": "camembert"}, "camembert"),
        ({}, {"model_type": "bert", "tokenizer_class": "CamembertTokenizer"}, "camembert"),
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, {"model_type": "camembert"}, "camembert"),
        ({"tokenizer_class": "XLMRobertaTokenizer"}, {"model_type": "camembert"}, "xlm_r"),
        ({}, {"model_type": "bert"}, "xlm_r"),
        ({}, {}, "xlm_r"),
    ],
)
def test_two_layouts_share_a_file_name(
    config: dict[str, Any], model: dict[str, Any], layout: str, tmp_path: Path
) -> None:
    layout_file(tmp_path, "camembert")
    for name, content in (("tokenizer_config.json", config), ("config.json", model)):
        (tmp_path / name).write_text(json.dumps(content), "utf-8")
    vocabulary, problems = read(tmp_path)
    assert not problems and vocabulary is not None and vocabulary.layout == layout


@pytest.mark.parametrize(
    ("layout", "content", "message"),
    [
        ("albert", {"tokenizer_class": "T5Tokenizer"}, "must be one of AlbertTokenizer; received T5Tokenizer"),
        ("xlm_r", {"tokenizer_class": "BarthezTokenizer"}, "one of XLMRobertaTokenizer, CamembertTokenizer; received"),
        ("deberta", {"tokenizer_class": "AlbertTokenizer"}, "of the files, which are of spm.model; received AlbertT"),
        ("albert", {"do_lower_case": False}, "do_lower_case in tokenizer_config.json must be True; received False"),
        ("albert", {"keep_accents": True}, "keep_accents in tokenizer_config.json must be False"),
        ("deberta", {"do_lower_case": True}, "do_lower_case in tokenizer_config.json must be False"),
        ("deberta", {"split_by_punct": True}, "split_by_punct in tokenizer_config.json must be False"),
    ],
)
def test_refusals(layout: str, content: dict[str, Any], message: str, tmp_path: Path) -> None:
    layout_file(tmp_path, layout)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(content), "utf-8")
    _, problems = read(tmp_path)
    assert len(problems) == 1 and message in problems[0]


def test_files_of_two_layouts(tmp_path: Path) -> None:
    for layout in ("albert", "deberta"):
        layout_file(tmp_path, layout)
    _, problems = read(tmp_path)
    assert problems == [
        "a model directory must have the files of one tokenizer; received spiece.model, spm.model; remove the others"
    ]


@layouts
def test_tokenizer_json_has_our_ids(layout: str, tmp_path: Path) -> None:
    vocabulary = Vocabulary(path=layout_file(tmp_path, layout), kind="unigram", layout=layout)
    write_tokenizer_json(tmp_path, vocabulary)
    core, tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json")), open_tokenizer(vocabulary)
    texts = [
        "the cat (sat) on - the mat.",
        "in 1990, about 9,123",
        "a naïve café",
        "“Don't” £5–6",
        "  the \u3000cat ",
        "",
    ]
    if layout == "albert":
        # A number with a comma may be split elsewhere; see docs/reference/tokenizer.md.
        texts = [text.replace(",", "") for text in texts]
    special = [f"a {token} b" for token in vocabulary.rules.special_tokens]
    for text, row in zip([*texts, *special], tokenizer.id_rows([*texts, *special]), strict=True):
        assert core.encode(text, add_special_tokens=False).ids == row, ascii(text)
    inputs = tokenizer(["the cat"], ["on mats"], max_length=40)
    encoding = core.encode("the cat", "on mats")
    assert encoding.ids == inputs["input_word_ids"][0].tolist()
    assert encoding.type_ids == inputs["input_type_ids"][0].tolist()


@layouts
@pytest.mark.parametrize("has_config", [True, False])
def test_tokenizer_json_alone(layout: str, has_config: bool, tmp_path: Path) -> None:
    vocabulary = Vocabulary(path=layout_file(tmp_path / "source", layout), kind="unigram", layout=layout)
    write_tokenizer_json(tmp_path, vocabulary)
    if has_config:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": CLASSES[layout]}), "utf-8")
    alone, problems = read(tmp_path)
    assert not problems and alone is not None and alone.layout == layout
    assert list(alone.tokens()) == list(vocabulary.tokens())
    texts = hard_texts(layout, 60, seed=4)
    assert open_tokenizer(alone).id_rows(texts) == open_tokenizer(vocabulary).id_rows(texts)
    # It belongs to the file it comes from, and to no other.
    layout_file(tmp_path, layout)
    assert read(tmp_path)[1] == []
    name, settings = LAYOUT_FILES[layout]
    unigram_file(tmp_path, name=name, **settings)
    assert "must have the same tokens" in read(tmp_path)[1][0]


def test_transformers_form_of_alberts_tokenizer_json(tmp_path: Path) -> None:
    """Their conversion lowers the scores of numbers with a comma, and has its own component for spaces."""
    vocabulary = Vocabulary(path=layout_file(tmp_path, "albert"), kind="unigram", layout="albert")
    write_tokenizer_json(tmp_path, vocabulary)
    content = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    content["normalizer"]["normalizers"][:1] = []
    content["normalizer"]["normalizers"].append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    content["pre_tokenizer"] = content["pre_tokenizer"]["pretokenizers"][1]
    scores = dict(content["model"]["vocab"])
    for entry in content["model"]["vocab"]:
        entry[1] = 0.0 if entry[0] in '()"-.–£€' else entry[1]
    assert min(score for token, score in scores.items() if token.endswith(",")) < -100
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    read_again, problems = read(tmp_path)
    assert not problems and read_again is not None and read_again.segmentation() == vocabulary.segmentation()
    del content["normalizer"]["normalizers"][2]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    assert "ALBERT's Replace, Replace, NFKD, StripAccents, Lowercase" in read(tmp_path)[1][0]
