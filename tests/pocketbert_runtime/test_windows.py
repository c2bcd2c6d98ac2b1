from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pocketbert.data.readers.questions import QuestionFile
from pocketbert.errors import UserError
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
from pocketbert_runtime.windows import Question, WindowOptions, Windows, make_windows, stream_windows

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##s", "?", "[", "]", "sep", *"abcdefghij"]
CLS, SEP = 2, 3


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tokenizer(vocabulary: Path) -> WordPieceTokenizer:
    return WordPieceTokenizer(vocabulary, special_tokens_in_text="text")


def _question(question: str, context: str, answer: str | None = None, start: int | None = None) -> Question:
    answers = () if answer is None else (answer, "never looked at")
    first = () if answer is None else (context.index(answer) if start is None else start, 0)
    return Question("", question, context, answers, first, False)


def _texts(windows: Windows) -> list[str]:
    return [
        " ".join(PIECES[word_id] for word_id in windows.word_ids[slice(*windows.offsets[w : w + 2])])
        for w in range(len(windows))
    ]


def test_short_paragraph_is_one_window(tokenizer: WordPieceTokenizer) -> None:
    windows = make_windows([_question("A b?", "c  ds é E.", "ds")], tokenizer, WindowOptions())
    # The full stop and the accent: unknown tokens keep their places, marks are dropped.
    assert _texts(windows) == ["[CLS] a b ? [SEP] c d ##s e e [UNK] [SEP]"]
    assert windows.type_ids.tolist() == [0] * 5 + [1] * 7
    assert windows.char_starts.tolist() == [-1] * 5 + [0, 3, 4, 6, 8, 9, -1]
    assert windows.char_ends.tolist() == [-1] * 5 + [1, 4, 5, 7, 9, 10, -1]
    assert windows.most_context.tolist() == [False] * 5 + [True] * 6 + [False]
    assert (windows.context_start.tolist(), windows.question_index.tolist()) == ([5], [0])
    assert windows.positions.tolist() == [[6, 7]]
    assert [getattr(windows, name).dtype for name in ("word_ids", "type_ids", "char_starts", "char_ends")] == ["i4"] * 4
    assert [windows.context_start.dtype, windows.positions.dtype, windows.offsets.dtype] == ["i4", "i4", "i8"]


def test_windows_cover_the_paragraph_by_stride(tokenizer: WordPieceTokenizer) -> None:
    options = WindowOptions(max_length=9, stride=3, max_question_tokens=2)
    questions = [
        _question("a b c d", "a b c d e f g h i j", "d e"),
        _question("?", "a b c d e", "e"),
        _question("? ?", "a b c d e f g", "b c d e f"),
    ]
    windows = make_windows(questions, tokenizer, options)
    assert _texts(windows) == [
        "[CLS] a b [SEP] a b c d [SEP]",
        "[CLS] a b [SEP] d e f g [SEP]",
        "[CLS] a b [SEP] g h i j [SEP]",
        "[CLS] ? [SEP] a b c d e [SEP]",
        "[CLS] ? ? [SEP] a b c d [SEP]",
        "[CLS] ? ? [SEP] d e f g [SEP]",
    ]
    assert windows.question_index.tolist() == [0, 0, 0, 1, 2, 2]
    # "d e" is cut in the first window, and the third question's answer is longer than a window.
    assert windows.positions.tolist() == [[0, 0], [4, 5], [0, 0], [7, 7], [0, 0], [0, 0]]
    # "d" and "g" stand at a border of both windows: the first has it.
    most = [windows.most_context[slice(*windows.offsets[w : w + 2])].astype(int).tolist() for w in range(3)]
    assert most == [[0, 0, 0, 0, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 1, 1, 1, 0], [0, 0, 0, 0, 0, 1, 1, 1, 0]]


@pytest.mark.parametrize(
    ("context", "answer", "start", "expected"),
    [
        # Half a token is the token, also of a word that is all unknown; spaces around it are not.
        ("a bs zq c", "s zq", None, ["##s", "[UNK]"]),
        ("a zqzq c", "qz", None, ["[UNK]"]),
        ("a b  c", " b  ", None, ["b"]),
        ("a b a b", "a", 4, ["a"]),
        # Offsets count code points: this letter is one, of four bytes, and unknown.
        ("𝒜 a b", "b", None, ["b"]),
        ("𝒜 a b", "𝒜", None, ["[UNK]"]),
        ("e\u0301 a b", "a", None, ["a"]),
        # White space alone is no token.
        ("a b", " ", None, None),
    ],
)
def test_answer_tokens_contain_its_characters(
    tokenizer: WordPieceTokenizer, context: str, answer: str, start: int | None, expected: list[str] | None
) -> None:
    windows = make_windows([_question("i j", context, answer, start)], tokenizer, WindowOptions())
    first, last = windows.positions[0]
    if expected is None:
        assert (first, last) == (0, 0)
    else:
        assert [PIECES[word_token_id] for word_token_id in windows.word_ids[first : last + 1]] == expected
        if start is not None:
            assert windows.char_starts[first] == start


def test_unanswered_questions_point_to_cls(tokenizer: WordPieceTokenizer) -> None:
    questions = [_question("a", "b c"), Question("", "a", "b c", (), (), True)]
    assert make_windows(questions, tokenizer, WindowOptions()).positions.tolist() == [[0, 0], [0, 0]]


def test_paragraph_without_tokens_has_one_window(tokenizer: WordPieceTokenizer) -> None:
    windows = make_windows([_question("a", "\u200b"), _question("b", "c")], tokenizer, WindowOptions())
    assert _texts(windows) == ["[CLS] a [SEP] [SEP]", "[CLS] b [SEP] c [SEP]"]
    assert windows.type_ids[:4].tolist() == [0, 0, 0, 1]
    assert not windows.most_context[:4].any()


def test_no_questions_have_no_windows(tokenizer: WordPieceTokenizer) -> None:
    windows = make_windows([], tokenizer, WindowOptions())
    assert (len(windows), windows.offsets.tolist(), windows.positions.shape) == (0, [0], (0, 2))


def test_tokenizer_decides_about_special_tokens(vocabulary: Path, tokenizer: WordPieceTokenizer) -> None:
    question = _question("[SEP] a", "[SEP]", "SEP")
    windows = make_windows([question], tokenizer, WindowOptions())
    assert _texts(windows) == ["[CLS] [ sep ] a [SEP] [ sep ] [SEP]"]
    assert windows.positions.tolist() == [[7, 7]]
    trusting = make_windows([question], WordPieceTokenizer(vocabulary), WindowOptions())
    assert _texts(trusting) == ["[CLS] [SEP] a [SEP] [SEP] [SEP]"]
    assert trusting.type_ids.tolist() == [0, 0, 0, 0, 1, 1]


def _bert_windows(
    question: list[int], paragraph: list[int], options: WindowOptions
) -> Iterator[tuple[list[int], list[int], set[int], int]]:
    """Ids, segments, places of most context and first paragraph token of each window, as run_squad.py's loops say."""
    question = question[: options.max_question_tokens]
    most = options.max_length - len(question) - 3
    spans = []
    start = 0
    while start < len(paragraph):
        length = min(len(paragraph) - start, most)
        spans.append((start, length))
        if start + length == len(paragraph):
            break
        start += min(length, options.stride)

    def best_span(position: int) -> int | None:
        best, best_score = None, None
        for index, (start, length) in enumerate(spans):
            end = start + length - 1
            if start <= position <= end:
                score = min(position - start, end - position) + 0.01 * length
                if best_score is None or score > best_score:
                    best, best_score = index, score
        return best

    for index, (start, length) in enumerate(spans):
        ids = [CLS, *question, SEP, *paragraph[start : start + length], SEP]
        segments = [0] * (len(question) + 2) + [1] * (length + 1)
        places = {len(question) + 2 + i for i in range(length) if best_span(start + i) == index}
        yield ids, segments, places, start


@pytest.mark.parametrize(
    "options",
    [
        WindowOptions(max_length=17, stride=5, max_question_tokens=4),
        # A stride that would skip tokens is cut to the window.
        WindowOptions(max_length=11, stride=29, max_question_tokens=5),
        WindowOptions(max_length=23, stride=1, max_question_tokens=3),
        # A last window may be more than 100 tokens shorter: then its length outweighs a token of context.
        WindowOptions(max_length=263, stride=127, max_question_tokens=6),
    ],
    ids=["overlapping", "touching", "dense", "long"],
)
def test_random_windows_match_bert(tokenizer: WordPieceTokenizer, options: WindowOptions) -> None:
    random = np.random.default_rng(3)

    def text(most: int) -> str:
        return " ".join(random.choice(PIECES[-10:], random.integers(1, most)))

    contexts = [text(4 * options.max_length) for _ in range(13)]
    questions = []
    for row in random.integers(0, len(contexts), 41):
        context = contexts[row]
        start = 2 * int(random.integers(0, (len(context) + 1) // 2))
        end = min(start + 2 * int(random.integers(1, 5)) - 1, len(context))
        questions.append(_question(text(9), context, context[start:end], start))
    windows = make_windows(questions, tokenizer, options)

    expected = []
    for index, question in enumerate(questions):
        ids = [[PIECES.index(piece) for piece in text.split()] for text in (question.question, question.context)]
        # One letter and one space a token.
        first, last = question.starts[0] // 2, (question.starts[0] + len(question.answers[0]) - 1) // 2
        for word_ids, segments, places, start in _bert_windows(*ids, options):
            context_start = segments.index(1)
            inside = start <= first and last < start + segments.count(1) - 1
            positions = [first - start + context_start, last - start + context_start] if inside else [0, 0]
            expected.append((index, word_ids, segments, places, context_start, positions))
    assert len(windows) == len(expected) > 50
    assert sum(positions == [0, 0] for *_, positions in expected) > 5
    for w, (index, word_ids, segments, places, context_start, positions) in enumerate(expected):
        tokens = slice(*windows.offsets[w : w + 2])
        assert windows.word_ids[tokens].tolist() == word_ids
        assert windows.type_ids[tokens].tolist() == segments
        assert set(np.flatnonzero(windows.most_context[tokens]).tolist()) == places
        assert windows.context_start[w] == context_start
        assert windows.positions[w].tolist() == positions
        assert windows.question_index[w] == index


def test_stream_has_the_same_windows(tokenizer: WordPieceTokenizer) -> None:
    questions = [_question("a b", "c d e f g h " * (1 + n % 3), "e") for n in range(23)]
    options = WindowOptions(max_length=13, stride=3, max_question_tokens=5)
    whole = make_windows(questions, tokenizer, options)
    chunks = list(stream_windows(iter(questions), tokenizer, options, questions_a_chunk=7))
    assert [len(chunk) for chunk, _ in chunks] == [7, 7, 7, 2]
    assert [question for chunk, _ in chunks for question in chunk] == questions
    for name in ("word_ids", "type_ids", "char_starts", "char_ends", "most_context", "context_start", "positions"):
        parts = [getattr(windows, name) for _, windows in chunks]
        np.testing.assert_array_equal(np.concatenate(parts), getattr(whole, name), err_msg=name)
    assert all(windows.question_index[0] == 0 for _, windows in chunks)


def test_long_paragraphs_make_small_chunks(tokenizer: WordPieceTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pocketbert_runtime.windows._CHARACTERS_A_CHUNK", 10)
    questions = [_question("a", "b" * length) for length in (4, 6, 1, 10, 11, 3, 3)]
    chunks = stream_windows(questions, tokenizer, WindowOptions())
    assert [[len(question.context) for question in chunk] for chunk, _ in chunks] == [[4, 6], [1], [10], [11], [3, 3]]


def test_stream_shows_progress_on_request(tokenizer: WordPieceTokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    questions = [_question("a", "b")] * 3
    list(stream_windows(questions, tokenizer, WindowOptions()))
    assert capsys.readouterr().err == ""
    list(stream_windows(questions, tokenizer, WindowOptions(), progress_total=3))
    assert "cut windows" in (stderr := capsys.readouterr().err) and "3/3" in stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stride": 0}, "stride must be positive; received 0"),
        ({"max_question_tokens": 0}, "max_question_tokens must be positive; received 0"),
        (
            {"max_length": 4, "stride": -2},
            "stride must be positive; received -2; max_length must be at least 5; received 4",
        ),
    ],
)
def test_impossible_options_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        WindowOptions(**options)
    assert WindowOptions(max_length=68).max_length == 68


def test_memory_is_independent_of_file_size(tmp_path: Path, tokenizer: WordPieceTokenizer) -> None:
    def peak(articles: int) -> int:
        content = [
            {"paragraphs": [{"context": f"a b {'c d ' * 60}", "qas": [{"id": f"{n}", "question": "a?"}] * 8}]}
            for n in range(articles)
        ]
        path = tmp_path / f"{articles}.json"
        path.write_text(json.dumps({"data": content}), encoding="utf-8")
        file = QuestionFile(path)
        options = WindowOptions(max_length=64, stride=16, max_question_tokens=8)
        tracemalloc.start()
        count = sum(len(windows) for _, windows in stream_windows(file, tokenizer, options, questions_a_chunk=64))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert count > 4 * 8 * articles
        return most

    _, small, large = peak(16), peak(16), peak(160)
    # Ten times the windows; what is held is one chunk, give or take what the allocators keep.
    assert large < 2 * small


def test_short_windows_overlap(tokenizer: WordPieceTokenizer) -> None:
    assert WindowOptions().question_room() == WindowOptions(max_length=128).question_room() == 64
    short = WindowOptions(max_length=12)
    assert short.question_room() == 5
    windows = make_windows([_question("a b c d e f g", "a b c d " * 5)], tokenizer, short)
    assert windows.context_start.tolist() == [7] * len(windows)
    # 4 tokens of the paragraph a window, and 4 (a third of 12) from one to the next, each with its space.
    assert np.diff(windows.char_starts[windows.offsets[:-1] + 7]).tolist() == [8] * 4
