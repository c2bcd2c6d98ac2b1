"""A text in training documents and a dev part."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from pocketbert.data.text_split import TextSplit
from pocketbert.errors import UserError


def write(path: Path, documents: list[list[str]]) -> Path:
    path.write_text("\n\n".join("\n".join(lines) for lines in documents) + "\n", "utf-8")
    return path


def texts(split: TextSplit) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    return [document.paragraphs for document in split.training()], [document.paragraphs for document in split.dev]


def test_every_fifth_document_is_dev(tmp_path: Path) -> None:
    documents = [[f"title {number}", f"body {number}"] for number in range(13)]
    train, dev = texts(TextSplit(write(tmp_path / "text.txt", documents), None, 5))
    assert dev == [("title 4", "body 4"), ("title 9", "body 9")]
    assert train == [tuple(lines) for number, lines in enumerate(documents) if number not in (4, 9)]


def test_equal_documents_leave_the_training(tmp_path: Path) -> None:
    documents = [["same", "text"], ["other"], ["same", "text"], ["same"], ["last"]]
    train, dev = texts(TextSplit(write(tmp_path / "text.txt", documents), None, 3))
    assert (train, dev) == ([("other",), ("same",), ("last",)], [("same", "text")])


@pytest.mark.parametrize("sizes", [(17,), (4, 1, 9, 3)])
def test_few_documents_are_split_by_line(sizes: tuple[int, ...], tmp_path: Path) -> None:
    numbers = itertools.count()
    documents = [[f"line {next(numbers)}" for _ in range(size)] for size in sizes]
    train, dev = texts(TextSplit(write(tmp_path / "text.txt", documents), None, 5))
    assert sum(dev, ()) == ("line 4", "line 9", "line 14")
    assert sum(train, ()) == tuple(f"line {number}" for number in range(17) if number not in (4, 9, 14))
    # Lines of one document stay one document.
    assert len(dev) == len({number for number, lines in enumerate(documents) for line in lines if line in sum(dev, ())})


def test_dev_texts_leave_the_training(tmp_path: Path) -> None:
    path = write(tmp_path / "text.txt", [["one"], ["two"], ["three"]])
    train, dev = texts(TextSplit(path, write(tmp_path / "dev.txt", [["two"], ["four"]]), 2))
    assert (train, dev) == ([("one",), ("three",)], [("two",), ("four",)])
    assert texts(TextSplit(path, None, 0)) == ([("one",), ("two",), ("three",)], [])


def test_texts_without_a_rest_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "text.txt", [["one", "two"], ["three"]])
    with pytest.raises(UserError, match="one in 4 lines needs at least 4 lines with words; received 3; lower Pretra"):
        TextSplit(path, None, 4)
    with pytest.raises(UserError, match="the dev part has every text; none is left for training"):
        list(TextSplit(path, path, 0).training())
