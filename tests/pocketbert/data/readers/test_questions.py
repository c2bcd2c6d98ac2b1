from __future__ import annotations

import json
import pickle
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from pocketbert.data.readers.question_tasks import is_question_file
from pocketbert.data.readers.questions import QuestionFile
from pocketbert.errors import UserError
from pocketbert_runtime.windows import Question

# The sixth character is one code point, two UTF-16 units and four bytes.
CONTEXT = "Ada 𝒜 wrote the first program in 1843."


def _entry(**changes: Any) -> dict[str, Any]:
    entry = {"id": "a", "question": "When?", "answers": [{"text": "1843", "answer_start": 33}]} | changes
    return {key: value for key, value in entry.items() if value is not ...}


def _file(folder: Path, *entries: Any, context: Any = CONTEXT) -> Path:
    return _write(folder, {"version": 7, "data": [{"paragraphs": [{"context": context, "qas": list(entries)}]}]})


def _write(folder: Path, content: Any) -> Path:
    path = folder / "questions.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content, ensure_ascii=False).encode())
    return path


def test_everything_of_a_question_is_read(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        {
            "data": [
                {
                    "title": "left alone",
                    "paragraphs": [
                        {
                            "context": CONTEXT,
                            "qas": [
                                _entry(
                                    answers=[
                                        {"text": "in 1843", "answer_start": 30},
                                        {"text": "1843", "answer_start": 33, "answer_id": 5},
                                    ]
                                ),
                                _entry(
                                    id=17,
                                    answers=[],
                                    is_impossible=True,
                                    plausible_answers=[{"text": "x", "answer_start": -3}],
                                ),
                            ],
                        },
                        {"context": " second ", "qas": [], "rank": 1.5},
                    ],
                },
                {"paragraphs": [{"context": "third", "qas": [_entry(id="c", answers=..., question=" Who? ")]}]},
                {"paragraphs": []},
            ]
        },
    )
    file = QuestionFile(path)
    expected = [
        Question("a", "When?", CONTEXT, ("in 1843", "1843"), (30, 33), False),
        Question("17", "When?", CONTEXT, (), (), True),
        Question("c", " Who? ", "third", (), (), False),
    ]
    assert list(file) == expected
    # Every iteration begins anew.
    assert list(file) == expected
    assert (len(file), file.count, file.num_impossible, file.num_unlabelled, file.labelled) == (3, 3, 1, 1, False)
    assert file.source == str(path)


def test_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = _file(tmp_path, _entry())
    plain = QuestionFile(path)
    questions = list(plain)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    marked = QuestionFile(path)
    assert list(marked) == questions and len(marked) == 1
    assert marked.sha256 != plain.sha256


@pytest.mark.parametrize(
    "answers", [..., None, [], [{"text": "", "answer_start": 0}], [{"text": " ", "answer_start": 3}]]
)
def test_an_answer_without_text_is_none(tmp_path: Path, answers: Any) -> None:
    file = QuestionFile(_file(tmp_path, _entry(answers=answers), _entry(id="b")))
    assert [question.answers for question in file] == [(), ("1843",)]
    assert (file.num_unlabelled, file.num_impossible, file.labelled) == (1, 0, False)
    assert file.select([1]).labelled


def test_selection_keeps_file_order(tmp_path: Path) -> None:
    entries = [_entry(id=str(n), **({"answers": [], "is_impossible": True} if n % 3 == 0 else {})) for n in range(7)]
    file = QuestionFile(_file(tmp_path, *entries))
    chosen = file.select([5, 0, 6, 3, 5])
    assert [question.id for question in chosen] == ["0", "3", "5", "6"]
    assert (len(chosen), chosen.num_impossible, file.num_impossible) == (4, 3, 3)
    nested = chosen.select([2, 1])
    assert [question.id for question in nested] == ["3", "5"]
    assert (len(nested), nested.num_impossible) == (2, 1)
    assert list(file.select([])) == [] and len(file) == 7
    for wrong in ([7], [-1]):
        with pytest.raises(ValueError, match=r"indices must be in \[0, 7\)"):
            file.select(wrong)


def test_relative_path_survives_directory_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _file(tmp_path, _entry(), _entry(id="b"))
    monkeypatch.chdir(tmp_path)
    file = QuestionFile("questions.json")
    # What a worker of a cluster gets, and where it stands.
    travelled = pickle.loads(pickle.dumps(file.select([1])))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert [question.id for question in travelled] == ["b"]
    assert file.source == travelled.source == "questions.json"


def test_removed_file_is_one_line(tmp_path: Path) -> None:
    path = _file(tmp_path, _entry())
    file = QuestionFile(path)
    path.unlink()
    with pytest.raises(UserError, match=r"questions.json: the file must remain readable, .*No such file.*restore it"):
        list(file)


def test_repeated_ids_fail_only_as_keys(tmp_path: Path) -> None:
    file = QuestionFile(_file(tmp_path, *(_entry(id=name) for name in "abcbdb")))
    assert len(file) == 6
    with pytest.raises(UserError, match="must be unique .*received 2 repetitions, such as 'b'; give each"):
        file.check_ids()
    file.select([0, 1, 2, 4]).check_ids()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (_entry(id=...), r'paragraph 1 \(.Ada .*question 1: "id" must be a text; received None'),
        (_entry(id=True), '"id" must be a text; received True'),
        (_entry(question=...), r'question 1 \(id a\): "question" must be a text that is not empty; received None'),
        (_entry(question=" \n"), '"question" must be a text that is not empty; received .* add it or remove'),
        (_entry(is_impossible="no"), '"is_impossible" must be true or false; received .no.'),
        (
            _entry(is_impossible=True),
            "a question with is_impossible must have no answers; received .*plausible_answers",
        ),
        (_entry(answers={"text": ["1843"]}), '"answers" must be a list of objects with "text" and "answer_start"'),
        (_entry(answers={"text": ["1843"], "answer_start": [33, 4]}), "or an object with lists of them"),
        (_entry(answers={"text": ["1843"], "answer_start": [32]}), "must be in the context at its answer_start, 32"),
        (_entry(answers=["1843"]), 'an answer must have a "text" and a whole number "answer_start"; received .1843.'),
        (_entry(answers=[{"text": "1843"}]), 'whole number "answer_start"; received'),
        (_entry(answers=[{"text": "1843", "answer_start": "33"}]), 'whole number "answer_start"; received'),
        (_entry(answers=[{"text": "1843", "answer_start": True}]), 'whole number "answer_start"; received'),
        (
            _entry(answers=[{"text": "1843", "answer_start": 32}]),
            "answer '1843' must be in the context at its answer_start, 32; received ' 184' there; the nearest match "
            "is at 33: correct answer_start",
        ),
        (_entry(answers=[{"text": "1843", "answer_start": -5}]), "received '' there; the nearest match is at 33"),
        (_entry(answers=[{"text": "r", "answer_start": 20}]), "received 't' there; the nearest match is at 18"),
        (_entry(answers=[{"text": "1843", "answer_start": 34}]), "counts UTF-16 units: count code points"),
        (_entry(answers=[{"text": "1843", "answer_start": 36}]), "counts bytes: count code points"),
        (
            _entry(answers=[{"text": "1844", "answer_start": 33}]),
            "received '1843' there; the context does not contain it",
        ),
        ("When?", "question 1: a question must be an object"),
    ],
)
def test_bad_question_is_named_with_place(tmp_path: Path, entry: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        QuestionFile(_file(tmp_path, entry))
    assert str(raised.value).startswith(f"{tmp_path / 'questions.json'}: ") and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"data": [{"paragraphs": [{"context": " ", "qas": []}]}]},
            r"at least one question; received only 1 paragraphs without text \(0 questions\)",
        ),
        ({"data": [{"paragraphs": [{"context": "c"}]}]}, r"paragraph 1 \('c'\): \"qas\" must be a list of questions"),
        ({"data": [{"paragraphs": ["c"]}]}, "paragraph 1: a paragraph must be an object"),
        ({"data": [{"paragraphs": []}, {"paragraph": []}]}, 'list "data" of articles; received 2 without paragraphs'),
        ({"data": [{"context": "c", "qas": []}]}, 'list "data" of articles; received 1 without paragraphs'),
        ({"data": [{"paragraphs": [{"qas": []}]}]}, 'paragraph 1: "context" must be a text; received none'),
        ({"data": [{"paragraphs": {}}]}, 'article 1: an article must have a list "paragraphs"'),
        ({"data": []}, "received no article"),
        ([{"paragraphs": []}], 'an object with a list "data" of articles; received no article'),
        ({"data": [{"paragraphs": [{"context": "c", "qas": []}]}]}, "at least one question; received none"),
        (b"", "must be JSON in UTF-8; received: "),
        (b'{"data": [{"paragraphs": [{"context": "c", "qas"', "must be JSON in UTF-8; received: "),
        (b"question,answer\n1,2\n", "must be JSON in UTF-8; received: "),
        (b'{"data": [{"paragraphs": [{"context": "\xff"}]}]}', "must be JSON in UTF-8; received: "),
        (b'{"data": []} {"data": []}', "must be JSON in UTF-8; received: "),
    ],
)
def test_bad_file_is_one_line(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        QuestionFile(_write(tmp_path, content))
    assert "\n" not in str(raised.value)


def test_article_must_be_an_object(tmp_path: Path) -> None:
    good = {"paragraphs": [{"context": CONTEXT, "qas": [_entry()]}]}
    with pytest.raises(UserError, match='article 2: an article must have a list "paragraphs"'):
        QuestionFile(_write(tmp_path, {"data": [good, "text", good]}))


def test_first_problems_are_listed_together(tmp_path: Path) -> None:
    entries = [_entry(question="") for _ in range(4)] + [_entry(id=None, question=1), _entry(), _entry(answers=3)]
    with pytest.raises(UserError) as raised:
        QuestionFile(_file(tmp_path, *entries))
    message = str(raised.value)
    assert [message.count(f"question {number}") for number in range(1, 9)] == [1, 1, 1, 1, 1, 0, 0, 0]
    assert message.endswith("; and 2 more problems")


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="absent.json: there is no such file"):
        QuestionFile(tmp_path / "absent.json")


@pytest.mark.one_of_each("True")
@pytest.mark.parametrize("one_article", [False, True])
def test_memory_is_independent_of_file_size(tmp_path: Path, one_article: bool) -> None:
    def peak(paragraphs: int) -> tuple[int, int]:
        value = (
            {
                "context": f"{n} {'word ' * 150}end",
                "qas": [_entry(answers=[{"text": "end", "answer_start": len(str(n)) + 751}], id=str(n))] * 3,
            }
            for n in range(paragraphs)
        )
        if one_article:
            articles = [{"paragraphs": list(value)}]
        else:
            articles = [{"paragraphs": list(pair)} for pair in zip(value, value, strict=True)]
        path = _write(tmp_path, {"data": articles})
        del articles
        tracemalloc.start()
        file = QuestionFile(path)
        assert sum(1 for _ in file) == 3 * paragraphs
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most, path.stat().st_size

    _, (small, small_size), (large, large_size) = peak(20), peak(200), peak(2000)
    growth = large_size - small_size
    assert growth > 1_500_000
    # One byte a question is kept, for its label.
    assert large - small < 3 * 1800 + growth // 50


def _rows(*answers: Any) -> list[dict[str, Any]]:
    """Rows as `datasets` writes them."""
    numbered = enumerate(answers)
    return [
        {"id": str(n), "title": "t", "context": CONTEXT, "question": "Q?", "answers": answer_list}
        for n, answer_list in numbered
    ]


@pytest.mark.parametrize("layout", ["lines", "list", "data", "nested"])
def test_hugging_face_answers_are_read(tmp_path: Path, layout: str) -> None:
    rows = _rows(
        {"text": ["in 1843", "1843"], "answer_start": [30, 33]},
        {"text": [], "answer_start": []},
        {"text": ["Ada"], "answer_start": [0]},
    )
    path = tmp_path / ("rows.jsonl" if layout == "lines" else "rows.json")
    content: Any = {"list": rows, "data": {"version": 1, "data": rows}}.get(layout)
    if layout == "nested":
        content = {"data": [{"paragraphs": [{"context": CONTEXT, "qas": rows}]}]}
    path.write_text("\n".join(map(json.dumps, rows)) if layout == "lines" else json.dumps(content), "utf-8")
    file = QuestionFile(path)
    assert [
        (question.id, question.context, question.answers, question.starts, question.impossible) for question in file
    ] == [
        ("0", CONTEXT, ("in 1843", "1843"), (30, 33), False),
        ("1", CONTEXT, (), (), True),
        ("2", CONTEXT, ("Ada",), (0,), False),
    ]
    assert (file.num_impossible, file.labelled) == (1, True)


def test_empty_lists_alone_are_no_labels(tmp_path: Path) -> None:
    file = QuestionFile(_write(tmp_path, _rows(*[{"text": [], "answer_start": []}] * 3)))
    assert (file.num_unlabelled, file.num_impossible) == (3, 0)
    assert [question.impossible for question in file] == [False] * 3


def test_empty_paragraphs_are_skipped_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = {"context": CONTEXT, "qas": [_entry()]}
    articles = [
        {"title": "none"},
        {"paragraphs": []},
        {"paragraphs": None},
        {"paragraphs": [{"context": " ", "qas": [_entry(), _entry(id="b")]}, good, {"context": None, "qas": []}]},
    ]
    file = QuestionFile(_write(tmp_path, {"data": articles}))
    assert [question.id for question in file] == ["a"]
    assert file.skipped_rows == 2
    message = "skipped 3 articles without paragraphs, 2 paragraphs without text (2 questions)"
    assert message in capsys.readouterr().err


def test_bad_questions_are_skipped_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _file(tmp_path, _entry(question=""), _entry(id="b"), _entry(answers=[{"text": "1843", "answer_start": 1}]))
    file = QuestionFile(path, skip_bad=True)
    assert ([question.id for question in file], file.skipped_rows) == (["b"], 2)
    assert "skipped 2 questions that cannot be read (paragraph 1 (" in capsys.readouterr().err
    with pytest.raises(UserError, match="must be a text that is not empty"):
        QuestionFile(_file(tmp_path, _entry(question="")), skip_bad=True)


def test_changed_file_is_refused(tmp_path: Path) -> None:
    path = _file(tmp_path, _entry())
    file = QuestionFile(path)
    path.write_bytes(path.read_bytes().replace(b"When?", b"Whom?"))
    with pytest.raises(UserError, match="the file must not change, .*received other content than before"):
        list(file)


_DEEP, _LONG = 200_000, 4_400


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"[" * _DEEP, "nest at most 64 deep", id="lists"),
        pytest.param(b'{"a":' * _DEEP, "nest at most 64 deep", id="objects"),
        pytest.param(b'{"data": ' + b"9" * _LONG + b"}", "a number must have at most 100 digits", id="digits"),
        pytest.param(
            b'{"data": -' + b"9" * 101 + b".5}", "a number must have at most 100 digits in a row", id="fraction"
        ),
        pytest.param(b'{"data": 1' + b" " * 70_000 + b"9" * _LONG + b"}", "at most 100 digits", id="second-chunk"),
        pytest.param(b'{"a": "' + b'\\"' * 40_000 + b'", "b": ' + b"9" * _LONG, "at most 100 digits", id="escapes"),
        pytest.param(b" " * 65_500 + b"9" * _LONG, "at most 100 digits", id="across-chunks"),
        pytest.param(b'{"data": 1e999999999}', "overflow", id="exponent"),
        pytest.param(b'{"data": NaN}', "invalid char", id="nan"),
    ],
)
def test_hostile_json_is_refused_at_once(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "questions.json"
    path.write_bytes(content)
    started = time.monotonic()
    with pytest.raises(
        UserError, match=f"questions.json: the file must be JSON in UTF-8; received: .*{message}"
    ) as raised:
        QuestionFile(path)
    assert time.monotonic() - started < 2 and "\n" not in str(raised.value)


def test_brackets_in_strings_are_text(tmp_path: Path) -> None:
    context = CONTEXT + ' \\" [[[' + "[" * 70_000 + "9" * 70_000 + '"\\'
    path = _file(tmp_path, *[_entry(id=str(n), question="{" * 100 + '\\"' * 50) for n in range(400)], context=context)
    assert [question.context for question in QuestionFile(path)] == [context] * 400


@pytest.mark.parametrize(
    ("name", "row", "expected"),
    [
        ("q.json", {}, True),
        ("Q.JSON", {}, True),
        ("q.jsonl", {"id": "a", "question": "Q?", "context": "c", "answers": {"text": [], "answer_start": []}}, True),
        ("q.jsonl", {"question": "Q?", "context": "c", "label": 1}, False),
        ("q.jsonl", [1], False),
        ("q.csv", {"question": "Q?", "context": "c", "answers": []}, False),
    ],
)
def test_question_files_are_told_from_tables(tmp_path: Path, name: str, row: Any, expected: bool) -> None:
    path = tmp_path / name
    path.write_text(json.dumps(row) + "\n", "utf-8")
    assert is_question_file(str(path)) == expected
    assert not is_question_file(str(tmp_path / "absent.jsonl")) and not is_question_file(None)
