from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pocketbert.data.readers.tables import read_table
from pocketbert.errors import UserError


def _write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


SAME_TABLE = {
    "t.csv": 'first,ignored,second,mark\nOne,1,"Two, ""quoted""",spam\nThree,2,Four,ham\nFive,3,Six,spam\n',
    "t.tsv": 'first\tignored\tsecond\tmark\nOne\t1\tTwo, "quoted"\tspam\nThree\t2\tFour\tham\nFive\t3\tSix\tspam\n',
    "t.jsonl": '{"first": "One", "second": "Two, \\"quoted\\"", "mark": "spam"}\n'
    '{"mark": "ham", "first": "Three", "second": "Four"}\n\n'
    '{"first": "Five", "second": "Six", "mark": "spam", "ignored": [3]}\n',
}


@pytest.mark.parametrize("name", SAME_TABLE)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_three_formats_give_the_same_examples(tmp_path: Path, name: str, newline: str) -> None:
    path = _write(tmp_path, name, "\ufeff" + SAME_TABLE[name].replace("\n", newline))
    examples, labels = read_table(path, text_column="first", pair_column="second", label_column="mark")
    assert examples.texts == ["One", "Three", "Five"]
    assert examples.pairs == ['Two, "quoted"', "Four", "Six"]
    assert labels == ("ham", "spam")
    assert examples.labels is not None and examples.labels.dtype == np.int32
    assert examples.labels.tolist() == [1, 0, 1]
    assert examples.ids == (["1", "2", "4"] if name == "t.jsonl" else ["2", "3", "4"])
    assert examples.source == str(path)


def test_single_sentences_without_labels(tmp_path: Path) -> None:
    examples, labels = read_table(_write(tmp_path, "t.csv", "text\nhello\n"), text_column="text")
    assert (examples.texts, examples.pairs, examples.labels, labels) == (["hello"], None, None, ())


def test_quoted_cells_may_span_lines(tmp_path: Path) -> None:
    path = _write(tmp_path, "t.csv", 'text,y\n"one\ntwo",a\nthree,b\n')
    examples, _ = read_table(path, text_column="text", label_column="y")
    assert (examples.texts, examples.ids) == (["one\ntwo", "three"], ["2", "4"])


def _labels(tmp_path: Path, cells: list[str], **options: Any) -> tuple[list[float], tuple[str, ...]]:
    rows = "".join(f'{{"t": "x", "y": {cell}}}\n' for cell in cells)
    examples, labels = read_table(_write(tmp_path, "t.jsonl", rows), text_column="t", label_column="y", **options)
    assert examples.labels is not None
    return examples.labels.tolist(), labels


def test_labels_are_sorted(tmp_path: Path) -> None:
    assert _labels(tmp_path, ["10", "9", "-1", "9.0"]) == ([2, 1, 0, 1], ("-1", "9", "10"))
    assert _labels(tmp_path, ['"10"', '"9"', '"x"']) == ([0, 1, 2], ("10", "9", "x"))
    assert _labels(tmp_path, ["true", "false"]) == ([1, 0], ("false", "true"))


def test_labels_given_are_texts_or_indices(tmp_path: Path) -> None:
    labels = ("negative", "positive", "mixed")
    assert _labels(tmp_path, ['"mixed"', "0", '"1"', '" negative "'], labels=labels) == ([2, 0, 1, 0], labels)
    # A whole number that is a label is that label, and no index.
    assert _labels(tmp_path, ["2", "1"], labels=("2", "1")) == ([0, 1], ("2", "1"))
    with pytest.raises(UserError, match="line 2: the label must be one of 2, 1; received '0'"):
        _labels(tmp_path, ["2", "0"], labels=("2", "1"))
    with pytest.raises(UserError, match="line 1: the label must be one of negative, positive, mixed; received '3'"):
        _labels(tmp_path, ["3"], labels=labels)
    with pytest.raises(UserError, match="at least two different labels; received none"):
        _labels(tmp_path, ["3"], labels=())


def test_regression(tmp_path: Path) -> None:
    path = _write(tmp_path, "t.tsv", "t\ty\na\t2.5\nb\t-1e-1\nc\t4\n")
    examples, labels = read_table(path, text_column="t", label_column="y", kind="regression")
    assert labels == () and examples.labels is not None and examples.labels.dtype == np.float32
    np.testing.assert_array_equal(examples.labels, np.asarray([2.5, -0.1, 4], np.float32))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "", "t.csv: the file is empty"),
        ("t.csv", "t,y\n", "line 2: the file has a header and no rows"),
        ("t.xlsx", "t", r"must end in \.csv, \.tsv, \.jsonl; received \.xlsx"),
        ("t.csv", "t,z\na,b\n", "line 1: the header must have the column 'y'; received 't', 'z'"),
        ("t.csv", "t,y\na,b\nc\n", "line 3: the row must have the header's 2 columns; received 1"),
        ("t.csv", "t,y\na,b\nc,d,e\n", "line 3: .* received 3"),
        ("t.csv", "t,y\na,b\n  ,d\n", "line 3: column 't' is empty; every row must have a text"),
        ("t.csv", "t,y\na,b\nc,\n", "line 3: column 'y' is empty; every row must have a label"),
        ("t.csv", 't,y\na,b\n"c"d,e\n', "line 3: the row must be CSV .*double each quote in a cell"),
        ("t.csv", 't,y\na,b\n"c,d\ne,f\n', "line 3: the row must be CSV"),
        ("t.csv", b"t,y\na,b\n\xff,b\n", "line 3: the text must be UTF-8; received byte 0xff"),
        ("t.csv", "t,y\na,b\nc,b\n", "at least two different labels; received b; name the labels"),
        ("t.jsonl", '{"t": "a", "y": 1}\n{"t": "b"\n', "line 2: the line: this must be JSON; .* in column 10"),
        ("t.jsonl", '["a"]\n', "line 1: the line must be one JSON object; received list"),
        ("t.jsonl", '{"t": null, "y": 1}\n', "line 1: column 't' is empty"),
        ("t.jsonl", '{"y": 1}\n', "line 1: the row must have a column 't'; received 'y'"),
    ],
)
def test_bad_files_name_line_and_reason(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_table(_write(tmp_path, name, content), text_column="t", label_column="y")


def test_bad_scores_and_all_rows_together(tmp_path: Path) -> None:
    path = _write(tmp_path, "t.csv", "t,y\n" + "a,1.5\nb,high\nc,inf\n")
    with pytest.raises(UserError, match="line 3: the score .*'high'; line 4: the score .*'inf'$"):
        read_table(path, text_column="t", label_column="y", kind="regression")
    with pytest.raises(UserError, match="there is no such file; check the path"):
        read_table(tmp_path / "none.csv", text_column="t")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(UserError, match="the file cannot be read"):
        read_table(tmp_path / "folder.csv", text_column="t")


@pytest.mark.parametrize("columns", [{"pair_column": "text"}, {"label_column": "text"}])
def test_a_column_named_twice_is_refused(tmp_path: Path, columns: dict[str, str]) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,label\ngood,1\nbad,0\n", "utf-8")
    with pytest.raises(UserError, match="different columns; received text, text"):
        read_table(path, text_column="text", **columns)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.jsonl"])
def test_missing_column_is_reported_once(tmp_path: Path, name: str) -> None:
    rows = {
        "t.csv": "t,z\n" + "a,b\n" * 40,
        "t.tsv": "t\tz\n" + "a\tb\n" * 40,
        "t.jsonl": '{"t": "a", "z": "b"}\n' * 40,
    }
    with pytest.raises(UserError, match=r"the column 'y'; received 't', 'z'; (name|choose)") as raised:
        read_table(_write(tmp_path, name, rows[name]), text_column="t", label_column="y")
    assert "line 2" not in str(raised.value) and "more" not in str(raised.value)


def test_json_row_without_column_is_refused(tmp_path: Path) -> None:
    path = _write(tmp_path, "t.jsonl", '{"t": "a"}\n{"u": "b"}\n')
    with pytest.raises(UserError, match="line 2: the row must have a column 't'; received 'u'$"):
        read_table(path, text_column="t")


def test_repeated_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="line 1: the header must have the column 't' once; received 't', 'y', 't'"):
        read_table(_write(tmp_path, "t.csv", "t,y,t\na,1,b\n"), text_column="t", label_column="y")


@pytest.mark.parametrize("suffix", ["CSV", "Tsv", "JSONL"])
def test_upper_case_extensions_are_read(tmp_path: Path, suffix: str) -> None:
    content = SAME_TABLE[f"t.{suffix.lower()}"]
    examples, _ = read_table(_write(tmp_path, f"T.{suffix}", content), text_column="first")
    assert examples.texts == ["One", "Three", "Five"]


@pytest.mark.parametrize(("separator", "flag"), [(";", ";"), ("|", "|"), ("\t", "tab")])
def test_another_separator_is_suggested_and_read(tmp_path: Path, separator: str, flag: str) -> None:
    rows = [["t", "y"], ["a, b", "1"], [f'"c{separator}d"', "2"]]
    path = _write(tmp_path, "t.csv", "".join(separator.join(row) + "\n" for row in rows))
    with pytest.raises(UserError, match=f"separator='{re.escape(flag)}'"):
        read_table(path, text_column="t", label_column="y")
    examples, _ = read_table(path, text_column="t", label_column="y", separator=flag)
    assert examples.texts == ["a, b", f"c{separator}d"]


@pytest.mark.parametrize("separator", ["", ";;", '"', "\n", "\r", "é"])
def test_separator_is_one_plain_character(tmp_path: Path, separator: str) -> None:
    with pytest.raises(UserError, match="separator= must be one ASCII character .* or tab; received"):
        read_table(_write(tmp_path, "t.csv", "t\na\n"), text_column="t", separator=separator)


BAD_ROWS = {
    "t.csv": "t,y\na,1.5\n,2\nb\nc,\nd,2,3\ne,high\nf,-2\n",
    "t.tsv": "t\ty\na\t1.5\n\t2\nb\nc\t\nd\t2\t3\ne\thigh\nf\t-2\n",
    "t.jsonl": '{"t": "a", "y": 1.5}\n{"t": "", "y": 2}\n{"t": "b"}\n{"t": "c", "y": null}\n[1]\n'
    '{"t": "e", "y": "high"}\n{"t": "f", "y": -2}\n',
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_bad_rows_are_skipped_and_counted(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = _write(tmp_path, name, BAD_ROWS[name])
    with pytest.raises(UserError, match="and 0 more rows|line 6|line 5"):
        read_table(path, text_column="t", label_column="y", kind="regression")
    examples, _ = read_table(path, text_column="t", label_column="y", kind="regression", skip_bad_rows=True)
    assert examples.texts == ["a", "f"]
    assert examples.labels is not None and examples.labels.tolist() == [1.5, -2]
    assert examples.ids == (["1", "7"] if name == "t.jsonl" else ["2", "8"])
    assert examples.skipped_rows == 5
    assert "skipped 5 of 7 rows; line " in capsys.readouterr().err


def test_skipping_every_row_is_refused(tmp_path: Path) -> None:
    path = _write(tmp_path, "t.csv", "t,y\na,1\nb,2\n")
    with pytest.raises(UserError, match="line 2: the label must be one of no, yes.*line 3"):
        read_table(path, text_column="t", label_column="y", labels=("no", "yes", "3"), skip_bad_rows=True)


def test_row_with_unknown_label_is_skipped(tmp_path: Path) -> None:
    path = _write(tmp_path, "t.csv", "t,y\na,no\nb,n/a\nc,yes\n")
    examples, _ = read_table(path, text_column="t", label_column="y", labels=("no", "yes"), skip_bad_rows=True)
    assert (examples.texts, examples.skipped_rows) == (["a", "c"], 1)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param("[" * 100_000, id="nesting"),
        pytest.param('{"t": "a", "y": ' + "[" * 5000 + "]" * 5000 + "}", id="nested-cell"),
        pytest.param('{"t": "a", "y": ' + "9" * 5000 + "}", id="digits"),
        pytest.param('{"t": "a", "y": NaN}', id="nan"),
        pytest.param('{"t": "a", "y": 1e999999999}', id="exponent"),
    ],
)
def test_hostile_json_row_is_one_line(tmp_path: Path, row: str) -> None:
    with pytest.raises(UserError, match="t.jsonl: line 2: ") as raised:
        read_table(
            _write(tmp_path, "t.jsonl", '{"t": "a", "y": "2"}\n' + row + "\n"), text_column="t", label_column="y"
        )
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 500


def test_labels_with_thousands_of_digits(tmp_path: Path) -> None:
    long = "1" * 5000
    _, labels = read_table(_write(tmp_path, "t.csv", f"t,y\na,{long}\nb,2\n"), text_column="t", label_column="y")
    assert labels == ("2", long)


def test_remedy_for_quotes_reads_the_row(tmp_path: Path) -> None:
    path = _write(tmp_path, "t.csv", 't,y\na "big" film,1\n"a "big" film",2\n')
    with pytest.raises(UserError, match="line 3: the row must be CSV") as raised:
        read_table(path, text_column="t")
    cell = re.search(r"as in (.*)$", str(raised.value))
    assert cell is not None
    examples, _ = read_table(_write(tmp_path, "t.csv", f"t,y\n{cell[1]},2\n"), text_column="t")
    assert examples.texts == ['a "big" film']


def test_remedy_for_quotes_as_characters_reads_the_row(tmp_path: Path) -> None:
    content = 't\ty\n"a" film\t1\n'
    with pytest.raises(UserError, match="quotes are ordinary characters, name the file t.tsv"):
        read_table(_write(tmp_path, "t.csv", content), text_column="t", separator="tab")
    assert read_table(_write(tmp_path, "t.tsv", content), text_column="t")[0].texts == ['"a" film']


def test_remedy_for_line_breaks_reads_the_rows(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    texts = ["one\ntwo", 'a "b"', "three"]
    frame = pandas.DataFrame({"t": texts, "n": [1, 2, 3], "y": ["a", "b", "a"]})
    frame.to_csv(tmp_path / "x.tsv", sep="\t", index=False)
    with pytest.raises(UserError, match=r"3 columns; received 1 \(.tsv has no quotes; .* file x.csv .*separator='tab'"):
        read_table(tmp_path / "x.tsv", text_column="t", label_column="y")
    (tmp_path / "x.tsv").rename(tmp_path / "x.csv")
    assert read_table(tmp_path / "x.csv", text_column="t", separator="tab")[0].texts == texts


def test_cell_with_a_long_text_is_read(tmp_path: Path) -> None:
    long = "word " * 40_000
    examples, _ = read_table(_write(tmp_path, "t.csv", f't\n"{long}"\n'), text_column="t")
    assert examples.texts == [long]
