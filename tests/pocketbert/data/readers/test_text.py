from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from pocketbert.data.readers.text import Document, TextCounts, read_documents
from pocketbert.errors import UserError

WIKI = """<doc id="12" url="http://x/?curid=12" title="Ants &amp; "Bees"">
Ants & "Bees"

Ants are &lt;small&gt;.
Uses.
#if: |x
{{cite
***
Bees fly. They hum.

</doc>
<doc id="13" url="http://x/?curid=13" title="Empty">
Empty

</doc>
<doc id="14" url="http://x/?curid=14" title="Last">
No title line here.
</doc>
"""
WIKI_DOCUMENTS = [
    Document('Ants & "Bees"', ("Ants are <small>.", "Uses.", "Bees fly. They hum.")),
    Document("Last", ("No title line here.",)),
]
PLAIN = "\n\nOne.\n  Two. \n \nThree.\n---\n\n\n***\n"
PLAIN_DOCUMENTS = [Document("", ("One.", "Two.")), Document("", ("Three.",))]
JSONL = '{"text": "One.\\n\\nTwo &amp; <b>"}\n\n{"title": "T", "text": "T\\n<p"}\n{"title": null, "text": " "}\n'
JSONL_DOCUMENTS = [Document("", ("One.", "Two &amp; <b>")), Document("T", ("T", "<p"))]

CASES = {
    "wikiextractor": (WIKI, WIKI_DOCUMENTS, TextCounts(1, 2, 4, 1, 3)),
    "plain": (PLAIN, PLAIN_DOCUMENTS, TextCounts(1, 2, 3, 1, 2)),
    "jsonl": (JSONL, JSONL_DOCUMENTS, TextCounts(1, 2, 4, 1, 0)),
}


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("kind", CASES)
def test_each_format_is_found_and_read(tmp_path: Path, kind: str, newline: str) -> None:
    content, expected, expected_counts = CASES[kind]
    path = tmp_path / "text"
    path.write_bytes(("\ufeff" + content.replace("\n", newline)).encode())
    counts = TextCounts()
    assert list(read_documents(path, counts=counts)) == expected
    assert counts == expected_counts
    assert list(read_documents(path, format=kind)) == expected


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, bz2.compress])
def test_compression_is_detected_by_content(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "text.of.any.name"
    path.write_bytes(compress(WIKI.encode()))
    assert list(read_documents(path)) == WIKI_DOCUMENTS
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match="text.of.any.name: the file cannot be read"):
        list(read_documents(path))


def test_folder_is_read_in_path_order(tmp_path: Path) -> None:
    (tmp_path / "AB").mkdir()
    (tmp_path / "AA").mkdir()
    (tmp_path / "AB" / "wiki_00").write_text(WIKI, encoding="utf-8")
    (tmp_path / "AA" / "wiki_01.gz").write_bytes(gzip.compress(JSONL.encode()))
    (tmp_path / "AA" / "wiki_00").write_text(PLAIN, encoding="utf-8")
    (tmp_path / ".hidden").write_bytes(b"\xff")
    counts = TextCounts()
    assert list(read_documents(tmp_path, counts=counts)) == PLAIN_DOCUMENTS + JSONL_DOCUMENTS + WIKI_DOCUMENTS
    assert counts.files == 3
    assert str(counts) == (
        "6 documents with 11 paragraphs in 3 files; skipped: 3 documents without text, 5 paragraphs without words"
    )


def test_wikiextractor_json_is_cleaned(tmp_path: Path) -> None:
    row = {"id": "1", "url": "u", "title": "A &amp; B", "text": "A &amp; B\n&lt;br /&gt;\n__NOTOC__\nOne &amp; two."}
    path = tmp_path / "text"
    path.write_text(json.dumps(row), encoding="utf-8")
    assert list(read_documents(path)) == [Document("A & B", ("One & two.",))]


def test_it_is_a_stream(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"One.\n\nTwo.\n\n\xff\n")
    documents = read_documents(path, format="plain")
    assert next(documents).paragraphs == ("One.",)
    assert next(documents).paragraphs == ("Two.",)
    with pytest.raises(UserError, match="line 5: the text must be UTF-8; received byte 0xff"):
        next(documents)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('<doc title="a">\nx\n', "line 2: the <doc> in line 1 must end with </doc>; received the end of the file"),
        (
            '<doc title="a">\nx\n<doc title="b">\ny\n</doc>\n',
            "line 3: a <doc> must follow </doc>; the one in line 1",
        ),
        (
            '<doc title="a">\n</doc>\nx\n</doc>\n',
            "line 3: text must be between .* 'x'; line 4: </doc> must follow",
        ),
        ('<doc id="1">\nx\n</doc>\n<doc title="a\nb">\nx\n</doc>', "line 4: <doc …> must have its title on one line"),
        ('{"text": "x"}\n{"text": 1}\n', "line 2: .* a string 'text'; received int"),
        ('{"text": "x"}\n{"body": "x"}\n', "line 2: .* a string 'text'; received 'body'"),
        ('{"text": "x"}\n[1]\n', "line 2: the line must be one JSON object; received list"),
        ('{"text": "x"\n', "line 1: the line: this must be JSON; received a syntax error in column 13"),
        ('{"text": "x", "title": 3}\n', "line 1: 'title' must be a string; received int"),
        ('{"text": "x"}\n' + "{}\n" * 9, "line 2: .*line 6: [^;]*; received none$"),
        ("", "the text must have at least one paragraph with words; received 0 documents"),
        ("***\n", "received 0 documents with 0 paragraphs in 1 files; skipped: 1 documents"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "text"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message) as caught:
        list(read_documents(path))
    assert str(caught.value).startswith(str(path))


def test_bad_paths_and_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such file or folder"):
        read_documents(tmp_path / "absent")
    with pytest.raises(UserError, match="the folder must have text files; received none"):
        read_documents(tmp_path)
    with pytest.raises(UserError, match="one of wikiextractor, plain, jsonl; received 'csv'"):
        read_documents(tmp_path, format="csv")  # type: ignore[arg-type]


@pytest.mark.data
def test_real_text(shared: Path) -> None:
    counts = TextCounts()
    stream = read_documents(shared / "data/text/enwiki2015-train.txt.xz", counts=counts)
    first = [next(stream) for _ in range(50)]
    assert first[0].title == "Anarchism" and first[0].paragraphs[0].startswith("Anarchism is a political philosophy")
    assert not any(line.startswith(("<", "#if")) for document in first for line in document.paragraphs)
    news = next(read_documents(shared / "data/text/enwikinews2022.jsonl.xz"))
    assert news.title == "President of China lunches with Brazilian President"
