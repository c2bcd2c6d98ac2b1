from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from pocketbert.augmentation import glove
from pocketbert.augmentation.glove import WordVectors, read_glove
from pocketbert.errors import UserError


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def brute_force(words: list[str], vectors: np.ndarray, word: str, count: int) -> list[str]:
    """Cosine by its definition, one pair after the other, in float64."""
    mine = vectors[words.index(word)]
    cosines = [
        (-(mine @ other) / (np.linalg.norm(mine) * np.linalg.norm(other)), row)
        for row, other in enumerate(vectors)
        if words[row] != word
    ]
    return [words[row] for _, row in sorted(cosines)[:count]]


def test_neighbours_are_those_of_brute_force(monkeypatch: pytest.MonkeyPatch) -> None:
    # Several products, the last of which is not full.
    monkeypatch.setattr(glove, "_QUERIES_A_PRODUCT", 7)
    random = np.random.default_rng(0)
    words = [f"w{number}" for number in range(61)]
    vectors = random.normal(size=[61, 13]) * random.uniform(0.1, 9, size=[61, 1])
    table = WordVectors(words, vectors)
    for count in (1, 5, 60, 99):
        neighbours = table.neighbours(words, count)
        assert {word: list(near) for word, near in neighbours.items()} == {
            word: brute_force(words, vectors, word, count) for word in words
        }


def test_neighbours_do_not_depend_on_batch() -> None:
    random = np.random.default_rng(1)
    words = [f"w{number}" for number in range(997)]
    # Coarse numbers: many cosines are equal.
    table = WordVectors(words, random.integers(-1, 2, size=[997, 5]).astype(float))
    together = table.neighbours(words, 15)
    for word in words[::83]:
        assert table.neighbours([word], 15) == {word: together[word]} if word in together else True
    assert len(together) > 900


def test_ties_are_in_file_order() -> None:
    table = WordVectors(["a", "b", "c", "d"], np.array([[1.0, 0], [0, 2], [0, 3], [0, 1]]))
    assert table.neighbours(["a"], 3) == {"a": ("b", "c", "d")}
    assert table.neighbours(["c"], 2) == {"c": ("b", "d")}


def test_unknown_and_zero_words_have_no_neighbours() -> None:
    table = WordVectors(["a", "zero", "b"], np.array([[1.0, 0], [0, 0], [1, 1]]))
    assert table.neighbours(["a", "a", "zero", "other"], 5) == {"a": ("b",)}
    assert "zero" in table and "other" not in table and len(table) == 3
    assert table.neighbours([], 5) == {}


def test_all_file_formats_are_read(tmp_path: Path) -> None:
    lines = [
        "good 1 0 -2.5e-1",
        "gut\u00a0x 9 9 9",
        "schön 0.5 .5 1",
        "a b@c 1 2 3",
        "good 7 7 7",
        "",
        "s\u0085t 1 1 1",
    ]
    plain = read_glove(write(tmp_path / "plain.txt", *lines))
    # A word with white space within is no word; the first of two equal words counts.
    assert plain.words == ("good", "schön")
    np.testing.assert_allclose(
        plain.unit_vectors, [[0.97014, 0, -0.24254], [0.40825, 0.40825, 0.8165]], atol=1e-5, rtol=0
    )
    headed = read_glove(write(tmp_path / "headed.txt", "7 3", *lines))
    (tmp_path / "packed.txt.gz").write_bytes(gzip.compress((tmp_path / "headed.txt").read_bytes()))
    (tmp_path / "dos.txt").write_bytes((tmp_path / "plain.txt").read_bytes().replace(b"\n", b" \r\n"))
    for other in (headed, read_glove(tmp_path / "packed.txt.gz"), read_glove(tmp_path / "dos.txt")):
        assert other.words == plain.words
        np.testing.assert_array_equal(other.unit_vectors, plain.unit_vectors)


def test_only_the_first_rows_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "v.txt", "9 2", *(f"w{number} {number} 1" for number in range(9)), "broken 1")
    assert read_glove(path, rows=4).words == ("w0", "w1", "w2", "w3")
    assert len(read_glove(path, rows=9)) == 9
    with pytest.raises(UserError, match="line 11: .*a word and 2 numbers"):
        read_glove(path, rows=None)


def test_bad_lines_are_named_together(tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_bytes(b"a 1 2\nb 1\nc 1 2 3\nd 1 x\ne 1 nan\n\xff 1 2\nf 1 1e99\n 1 2\n")
    with pytest.raises(UserError) as error:
        read_glove(path)
    message = str(error.value)
    for text in (
        "line 2: the line must be a word and 2 numbers; received 1",
        "line 3: the line must be a word and 2 numbers, as in the first line; received 3",
        "line 4: 'x' must be a number",
        "line 5: the numbers must be finite",
        "line 6: the word must be UTF-8; received byte 0xff",
        "and 2 more rows",
    ):
        assert text in message
    assert message.count("\n") == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "found no words"),
        (b"12 3\n", "found no words"),
        (b"lonely\n", "line 1: the line must be a word and 1 numbers; received 0 after the word"),
    ],
)
def test_a_file_without_vectors_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "v.txt").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_glove(tmp_path / "v.txt")


def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no.txt: there is no such file"):
        read_glove(tmp_path / "no.txt")
    whole = gzip.compress(b"a 1 2\n" * 999)
    for name, content in (("cut.gz", whole[:-20]), ("not.gz", b"a 1 2\n"), ("wrong.gz", whole[:12] + b"\0" * 40)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=f"{name}: the file cannot be read .*download it again"):
            read_glove(tmp_path / name)
    with pytest.raises(UserError, match="at least 1; received 0"):
        read_glove(tmp_path / "cut.gz", rows=0)


@pytest.mark.data
def test_the_neighbours_in_real_vectors(shared: Path) -> None:
    table = read_glove(shared / "data" / "glove" / "glove.twitter.27B.25d.subset11925.txt")
    assert len(table) == 11925 and table.unit_vectors.shape == (11925, 25)
    near = table.neighbours(["monday", "good"], 15)
    assert {"tuesday", "wednesday", "thursday", "friday"} <= set(near["monday"])
    words = list(table.words)
    for word, near_words in near.items():
        assert list(near_words) == brute_force(words, table.unit_vectors.astype(np.float64), word, 15)
