"""XNLI files in both layouts, and English training examples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from pocketbert.data.readers.glue import read_glue
from pocketbert.data.readers.xnli import LANGUAGES, XNLI, read_xnli, read_xnli_training
from pocketbert.errors import UserError

# The header of XNLI-1.0's files.
OFFICIAL = (
    "language gold_label sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse sentence1 "
    "sentence2 promptID pairID genre label1 label2 label3 label4 label5 sentence1_tokenized sentence2_tokenized match"
).split()
ROWS = [
    ("ar", "neutral", "قال، أنا هنا.", "هو في البيت."),
    ("de", "contradiction", 'Er sagte: "Ich bin da.', "Er sagte nichts."),
    ("de", "entailment", "Es regnet.", "Es ist nass."),
    ("en", "neutral", 'He said: "I am here.', "He is at home."),
    ("en", "entailment", "It rains.", "It is wet."),
    ("en", "contradiction", "It rains.", "It is dry."),
    ("yo", "entailment", "Òjò ń rọ̀.", "Ó tutù."),
]


def official_row(language: str, label: str, premise: str, hypothesis: str) -> str:
    row = {"language": language, "gold_label": label, "sentence1": premise, "sentence2": hypothesis}
    # What is in the other columns looks like what is wanted.
    return "\t".join(row.get(name, "neutral" if "label" in name else f"{name} of {language}") for name in OFFICIAL)


@pytest.fixture
def official(tmp_path: Path) -> Path:
    lines = ["\t".join(OFFICIAL), *(official_row(*row) for row in ROWS)]
    (tmp_path / "xnli.dev.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def write_languages(folder: Path, split: str, rows: Sequence[tuple[str, str, str, str]]) -> Path:
    for language in {row[0] for row in rows}:
        lines = [
            f"{premise}\t{hypothesis}\t{label}\n"
            for row_language, label, premise, hypothesis in rows
            if row_language == language
        ]
        (folder / f"{split}-{language}.tsv").write_text("".join(lines), encoding="utf-8")
    return folder


def test_labels_match_published_models() -> None:
    assert XNLI.labels == ("entailment", "neutral", "contradiction")


def test_the_official_file(official: Path) -> None:
    dev = read_xnli(official, "dev")
    # The literature's order, then languages that it has not.
    assert dev.groups == ["en", "en", "en", "de", "de", "ar", "yo"]
    assert dev.labels is not None and dev.pairs is not None
    assert dev.labels.tolist() == [1, 0, 2, 2, 0, 1, 0] and dev.labels.dtype == np.int32
    assert (dev.texts[3], dev.pairs[3]) == ('Er sagte: "Ich bin da.', "Er sagte nichts.")
    assert dev.source.endswith("xnli.dev.tsv")
    assert dev.ids[2:6] == ["dev-en-2", "dev-de-0", "dev-de-1", "dev-ar-0"]


def test_official_file_is_found_in_zip_folder(official: Path) -> None:
    (official / "XNLI-1.0").mkdir()
    (official / "xnli.dev.tsv").rename(official / "XNLI-1.0" / "xnli.test.tsv")
    assert len(read_xnli(official, "test")) == 7


def test_one_file_per_language_is_equal(official: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    expected = read_xnli(official, "dev")
    xnli = read_xnli(write_languages(tmp_path_factory.mktemp("languages"), "dev", ROWS), "dev")
    assert (xnli.texts, xnli.pairs, xnli.groups, xnli.ids) == (
        expected.texts, expected.pairs, expected.groups, expected.ids
    )  # fmt: skip
    np.testing.assert_array_equal(xnli.labels, expected.labels)


@pytest.mark.parametrize("layout", ["official", "languages"])
def test_chosen_languages(layout: str, official: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = official
    if layout == "languages":
        folder = write_languages(tmp_path_factory.mktemp("languages"), "dev", ROWS)
        # What is not requested is not read.
        (folder / "dev-ar.tsv").write_text("broken", encoding="utf-8")
    chosen = read_xnli(folder, "dev", ["de", "en"])
    assert chosen.groups == ["en", "en", "en", "de", "de"]
    with pytest.raises(UserError, match="no language sw, ur; there are en, de, ar, yo"):
        read_xnli(folder, "dev", ["sw", "en", "ur"])


def test_training_on_the_translation_files_english(tmp_path: Path) -> None:
    content = 'premise\thypo\tlabel\nIt rains .\tIt is dry .\tcontradictory\nA " quote .\tB .\tneutral\n'
    (tmp_path / "XNLI-MT-1.0" / "multinli").mkdir(parents=True)
    path = tmp_path / "XNLI-MT-1.0" / "multinli" / "multinli.train.en.tsv"
    path.write_text(content, encoding="utf-8")
    train = read_xnli_training(tmp_path)
    assert (train.texts, train.pairs) == (["It rains .", 'A " quote .'], ["It is dry .", "B ."])
    assert train.labels is not None and train.labels.tolist() == [2, 1]
    assert train.groups is None
    assert train.source == str(path)


def test_training_on_glues_mnli(fixtures: Path, tmp_path: Path) -> None:
    expected = read_glue("mnli", fixtures / "glue", "train")
    for examples in (
        read_xnli_training(fixtures / "glue"),
        read_xnli_training(fixtures / "glue" / "MNLI"),
        read_xnli_training(tmp_path, fixtures / "glue" / "MNLI" / "train.tsv"),
    ):
        assert (examples.texts, examples.pairs) == (expected.texts, expected.pairs)
        np.testing.assert_array_equal(examples.labels, expected.labels)


def test_missing_files_and_languages_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"xnli needs xnli\.dev\.tsv or a file dev-LANGUAGE\.tsv"):
        read_xnli(tmp_path, "dev")
    with pytest.raises(UserError, match="no split 'train' of xnli; its splits are dev, test"):
        read_xnli(tmp_path, "train")
    with pytest.raises(UserError, match=r"MultiNLI in English; found none of multinli\.train\.en\.tsv.*train="):
        read_xnli_training(tmp_path)
    with pytest.raises(UserError, match="there is no such file"):
        read_xnli_training(tmp_path, tmp_path / "train.tsv")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("dev-en.tsv", "a\tb\tneutral\na\tb\tmaybe\n", "line 2: the label must be one of entailment, .*'maybe'"),
        ("dev-en.tsv", "a\tb\n", "line 1: the row must have 3 columns, premise, hypothesis, label; received 2"),
        ("dev-en.tsv", "\n", "the file is empty"),
        ("xnli.dev.tsv", "\t".join(OFFICIAL) + "\nde\tneutral\n", "line 2: the row must have 19 columns.*received 2"),
        ("xnli.dev.tsv", "\t".join(OFFICIAL) + "\n", "line 2: the file has a header and no rows"),
        ("xnli.dev.tsv", "a\tb\tneutral\n", "line 1: the header must have the columns language, sentence1, sentence2"),
        ("xnli.dev.tsv", "premise\thypo\tlabel\na\tb\tneutral\n", "must have the columns language, .*premise, hypo"),
    ],
)
def test_bad_files_name_line_and_reason(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read_xnli(tmp_path, "dev")


@pytest.mark.data
def test_the_real_development_files(shared: Path) -> None:
    dev = read_xnli(shared / "data" / "xnli", "dev")
    assert dev.groups is not None and dev.labels is not None and dev.pairs is not None
    # Conneau et al.: 2,490 examples a language, the three labels balanced.
    assert list(dict.fromkeys(dev.groups)) == list(LANGUAGES)
    assert len(dev) == 15 * 2490
    labels = dev.labels.reshape(15, 2490)
    assert (labels == labels[0]).all(), "the examples are translations of one another"
    assert np.bincount(labels[0]).tolist() == [830, 830, 830]
    assert dev.texts[0] == "And he said, Mama, I'm home." and dev.pairs[2490 * 3 + 1] == "Er sagte kein Wort."
