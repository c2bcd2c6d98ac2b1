"""Readers of CoNLL and span files. Oracles: files written by hand, BERT's basic tokenizer in transformers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from transformers.models.bert.tokenization_bert import BasicTokenizer

import pocketbert as pb
from pocketbert.data.readers.tagged_texts import plain_texts, read_tagged
from pocketbert.data.train_dev_split import train_dev_split
from pocketbert.errors import UserError
from pocketbert_runtime.answers.tags import WordSpan, iob2, spans_of
from pocketbert_runtime.answers.words import split_words

FOUR = """-DOCSTART- -X- -X- O

EU NNP B-NP {0}
rejects VBZ B-VP {1}
German JJ B-NP {2}
Bank NNP I-NP {3}
Bonn NNP I-NP {4}

U.N. NNP B-NP {5}
. . O O
"""
SPANS = {"ORG": [(0, 0), (2, 3)], "LOC": [(4, 4)]}
SCHEMES = {
    "IOB1": ("I-ORG", "O", "I-ORG", "I-ORG", "I-LOC", "I-LOC"),
    "IOB2": ("B-ORG", "O", "B-ORG", "I-ORG", "B-LOC", "B-LOC"),
    "BIOES": ("S-ORG", "O", "B-ORG", "E-ORG", "S-LOC", "S-LOC"),
}


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", SCHEMES)
def test_schemes_give_the_same_tags(scheme: str, tmp_path: Path) -> None:
    tagged = read_tagged(write(tmp_path / "a.conll", FOUR.format(*SCHEMES[scheme])))
    assert tagged.texts == ["EU rejects German Bank Bonn", "U.N. ."]
    assert tagged.tags == [["B-ORG", "O", "B-ORG", "I-ORG", "B-LOC"], ["B-LOC", "O"]]
    assert tagged.words[0].tolist() == [[0, 2], [3, 10], [11, 17], [18, 22], [23, 27]]
    assert tagged.types == ["LOC", "ORG"] and tagged.labelled and len(tagged) == 2


def test_two_columns_and_windows_line_ends(tmp_path: Path) -> None:
    content = "a b\tB-X\r\nc\tI-X\r\n\r\n\r\nd\tO\r\n"
    tagged = read_tagged(write(tmp_path / "a.conll", content))
    # Columns are separated by tabs where there are tabs.
    assert tagged.texts == ["a b c", "d"] and tagged.tags == [["B-X", "I-X"], ["O"]]


def test_label_column_is_a_number(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", FOUR.format(*SCHEMES["IOB2"]))
    assert read_tagged(path, label="3").tags == [["B-NP", "B-VP", "B-NP", "I-NP", "I-NP"], ["B-NP", "O"]]
    with pytest.raises(UserError, match="must be a column's number from 2, such as 4; received 'ner'"):
        read_tagged(path, label="ner")
    with pytest.raises(UserError, match="line 3: a line must have at least 5 columns"):
        read_tagged(path, label="5")


def test_iob1_separates_adjacent_spans() -> None:
    assert spans_of(["I-A", "I-A", "B-A", "I-B"]) == [WordSpan(0, 1, "A"), WordSpan(2, 2, "A"), WordSpan(3, 3, "B")]


def test_tags_round_trip() -> None:
    generator = np.random.default_rng(3)
    for _ in range(50):
        spans, position = [], 0
        while (position := position + int(generator.integers(0, 3))) < 12:
            last = position + int(generator.integers(0, 4))
            spans.append(WordSpan(position, last, str(generator.choice(["A", "B", "C-D"]))))
            position = last + 1
        assert spans_of(iob2(spans, position + 5)) == spans


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        # IOB1 ends in line 4, where B- follows no span; the others in line 1.
        ("a I-X\nb O\n\nc B-X\n", "line 4: the tags must follow IOB1, IOB2 or BIOES; .*IOB1 forbids B-X after O\\)"),
        ("a B-X\nb B-X\nc I-Y\n", "line 3: .*IOB2 forbids I-Y after B-X"),
        ("a B-X\nb E-X\nc I-X\n", "line 3: .*BIOES forbids I-X after E-X"),
        ("a S-X\nb B-X\n\nc O\n", "line 2: .*BIOES forbids the end of the sentence after B-X"),
        ("a B-X\nb\n", "line 2: a line must have 2 columns, as the first line"),
        ("a B-X\nb O O\n", "line 2: a line must have 2 columns"),
        ("a\nb\n", "line 1: a line must have at least 2 columns: a word first, its tag last; received 'a'"),
        ("a B-X\nb NN\n", "line 2: a tag must be O, or B-, I-, E- or S- and a type, such as B-LOC; received 'NN'"),
        ("a B-\n", "line 1: a tag must be O"),
        ("\tB-X\n", "line 1: a line must start with a word"),
        ("a B-Y\n", "line 1: the type must be one of X; received 'Y'"),
        ("\n\n", "the file is empty"),
        ("-DOCSTART- O\n", "must have at least one sentence"),
    ],
)
def test_bad_conll_names_the_line(content: str, problem: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", content)
    with pytest.raises(UserError, match=problem) as caught:
        read_tagged(path, types=["X"] if "Y" in problem and "type" in problem else None)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


def test_skipped_sentences_leave_the_scheme_check(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", "a B-X\nb O O\n\nc B-X\nd I-X\n")
    tagged = read_tagged(path, skip_bad_rows=True)
    assert (tagged.texts, tagged.skipped_rows) == (["c d"], 1)
    path.write_text(path.read_text(encoding="utf-8") + "\ne I-X\n", encoding="utf-8")
    with pytest.raises(UserError, match="line 7: the tags must follow IOB1, IOB2 or BIOES"):
        read_tagged(path, skip_bad_rows=True)


def test_spans_in_jsonl(tmp_path: Path) -> None:
    rows = [
        {"text": "Ada 🙂 Lovelace, London", "spans": [{"start": 16, "end": 22, "label": "LOC"}, [0, 14, "PER"]]},
        {"text": "no names", "spans": []},
    ]
    tagged = read_tagged(write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))
    assert tagged.tags == [["B-PER", "I-PER", "I-PER", "O", "B-LOC"], ["O", "O"]]
    renamed = [{"body": row["text"], "entities": row["spans"]} for row in rows]
    path = write(tmp_path / "b.jsonl", "".join(json.dumps(row) + "\n" for row in renamed))
    assert read_tagged(path, text="body", label="entities").tags == tagged.tags
    assert not read_tagged(path, text="body").labelled


def test_spans_inside_words_are_extended(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows = [{"text": "Londoners like London", "spans": [[0, 6, "LOC"], [15, 21, "LOC"]]}]
    tagged = read_tagged(write(tmp_path / "a.jsonl", json.dumps(rows[0])))
    assert tagged.tags == [["B-LOC", "O", "B-LOC"]]
    assert "1 of 2 spans start or end inside a word" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("spans", "problem"),
    [
        ([[0, 3, "A"], [2, 4, "A"]], "spans must not overlap"),
        ([[0, 1, "A"], [1, 2, "B"]], "a word must belong to one span"),
        ([[3, 9, "A"]], "a span must lie inside its text, of 6 code points"),
        ([[2, 2, "A"]], "a span must lie inside its text"),
        ([[3, 4, "A"]], "and have a word"),
        ([[0, 2, ""]], "the label of a span must be a name"),
        ([[0, 2]], 'a span must have "start", "end" and "label"'),
        ({"start": 0, "end": 2}, 'a span must have "start", "end" and "label"'),
        ([[0, 2, "C"]], "the label must be one of A, B; received 'C'"),
    ],
)
def test_bad_spans_name_the_line(spans: object, problem: str, tmp_path: Path) -> None:
    good = json.dumps({"text": "one", "spans": []})
    path = write(tmp_path / "a.jsonl", f"{good}\n" + json.dumps({"text": "abc ef", "spans": spans}))
    with pytest.raises(UserError, match=problem) as caught:
        read_tagged(path, types=["A", "B"])
    assert f"{path}: line 2: " in str(caught.value)
    assert len(read_tagged(path, types=["A", "B"], skip_bad_rows=True)) == 1


def test_words_are_those_of_bert() -> None:
    basic_tokenizer = BasicTokenizer(do_lower_case=False)
    for text in ("Hello, U.S.  don't 東京x", "", "a\tb\nc", "naïve façade—(x)", "100,000 €5", "e\u0301e", "a\u00a0b"):
        words = [text[start:end] for start, end in split_words(text)]
        assert [word.replace("e\u0301", "é") for word in words] == basic_tokenizer.tokenize(text)


def test_data_are_split_and_selected(tmp_path: Path) -> None:
    sentences = [f"w{index}\tB-X\nv\tO\n" for index in range(30)]
    data = read_tagged(write(tmp_path / "a.conll", "\n".join(sentences)))
    train, dev = train_dev_split(data)
    assert sorted([*train.texts, *dev.texts]) == sorted(data.texts) and len(dev) == 3
    assert train.identity != data.identity == data.select(range(30)).identity
    assert plain_texts(data.texts, "here").words[7].tolist() == data.words[7].tolist()


def test_dev_types_must_be_known(tmp_path: Path) -> None:
    train = write(tmp_path / "train.conll", "a B-X\nb O\n\nc B-Y\n")
    dev = write(tmp_path / "dev.conll", "a B-X\n\nb O\nc B-Z\n")
    with pytest.raises(UserError, match="dev.conll: line 4: the type must be one of X, Y; received 'Z'"):
        pb.data.tagged(train, dev=dev)
    assert pb.data.tagged(train, dev=train).task.labels == ("O", "B-X", "I-X", "B-Y", "I-Y")
    with pytest.raises(UserError, match="must have spans; received none"):
        pb.data.tagged(write(tmp_path / "none.conll", "a O\n"), dev=dev)
