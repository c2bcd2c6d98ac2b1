"""Names from capitals: spans of a text written by hand."""

from __future__ import annotations

from pathlib import Path

from pocketbert.data.readers.tagged_texts import read_tagged
from studies.names_corpus import write_corpus

TEXT = """When I met Ada Lovelace there, she was in London.
London is where NATO and the EU met Grace Hopper in May.
The city of London has, as far as I know, no king.
Nobody there knew what McDonald meant by it.
too short.
"""


def test_capitals_become_spans(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    parts = [read_tagged(path) for path in write_corpus(tmp_path / "text.txt", tmp_path) if path.stat().st_size]
    rows = {}
    for part in parts:
        for text, words, tags in zip(part.texts, part.words, part.tags or (), strict=True):
            spans = [(text[start:end], tag) for (start, end), tag in zip(words, tags, strict=True) if tag != "O"]
            rows[text.split()[0]] = spans
    assert rows == {
        # Capitalized words that start a sentence are names if they are names elsewhere; "I" never is.
        "When": [("Ada", "B-NAME"), ("Lovelace", "I-NAME"), ("London", "B-NAME")],
        "London": [
            ("London", "B-NAME"),
            ("NATO", "B-ACRONYM"),
            ("EU", "B-ACRONYM"),
            ("Grace", "B-NAME"),
            ("Hopper", "I-NAME"),
            ("May", "B-NAME"),
        ],
        "The": [("London", "B-NAME")],
        "Nobody": [("McDonald", "B-NAME")],
    }
