"""The vocabulary lint finds forbidden words where people read them; the voice counts equal counts by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

import prose_lint

TABLE = """
[prose]
"peer|peers" = "baseline"
"held out" = "dev split"

[names]
"op_census" = "op_histogram"
"""


@pytest.fixture(name="vocabulary")
def _vocabulary(tmp_path: Path) -> prose_lint.Vocabulary:
    path = tmp_path / "vocabulary.toml"
    path.write_text(TABLE, encoding="utf-8")
    return prose_lint.read_vocabulary(path)


@pytest.mark.parametrize(
    ("name", "text", "problems"),
    [
        ("a.md", "one\nPeers, faster.\n", [(2, "Peers", "baseline")]),
        ("a.md", "Compeers and peer-like speeds.\n", []),
        ("a.md", "`peer` is a flag; [text](peer).\n", []),
        ("a.md", "```text\npeer\n```\npeer\n", [(4, "peer", "baseline")]),
        ("a.md", "```python\nop_census()\n```\n", [(2, "op_census", "op_histogram")]),
        ("a.py", '"""Text.\n\nIt is held  out.\n"""\n', [(3, "held  out", "dev split")]),
        ("a.py", "peer = 1  # of a peer\n", [(1, "peer", "baseline")]),
        ("a.py", 'f"{peer} of {op_census}"\n', [(1, "op_census", "op_histogram")]),
        ("a.py", "def test_no_peer_is_faster(): ...\n", [(1, "peer", "baseline")]),
        ("a.py", "def no_peer(): op_census\n", [(1, "op_census", "op_histogram")]),
        ("A.java", "int x; // a peer\n", [(1, "peer", "baseline")]),
    ],
)
def test_forbidden_words_are_found(
    name: str, text: str, problems: list[tuple[int, str, str]], vocabulary: prose_lint.Vocabulary
) -> None:
    assert prose_lint.violations(Path(name), text, vocabulary) == problems


def test_allow_comment_covers_its_word_alone(vocabulary: prose_lint.Vocabulary) -> None:
    text = "# vocabulary: allow peer (a network peer)\nsocket = 1  # peer, held out\n\n# peer\n"
    assert [(line, word) for line, word, _ in prose_lint.violations(Path("a.py"), text, vocabulary)] == [
        (2, "held out"),
        (4, "peer"),
    ]


def test_allow_comment_needs_a_reason(vocabulary: prose_lint.Vocabulary) -> None:
    text = "# vocabulary: allow peer\n"
    assert prose_lint.violations(Path("a.py"), text, vocabulary) == [(1, "peer", "baseline")]


def test_rates_equal_counts_by_hand() -> None:
    page = (
        "# Heads of tasks\n\n"  # 3 words, 1 of
        "You choose which `of` head of [your](of/what.md) model.\n\n"  # 8 words, code is one; 1 of, 1 which, 2 you
        "<!-- TABLE: begin. Written by x. -->\nof of of\n<!-- TABLE: end -->\n"
        "```text\nof what\n```\n<!-- of -->"
    )
    words, rates = prose_lint.rates(page)
    assert words == 11
    assert rates == pytest.approx({"of": 2000 / 11, "what/which/that/whose": 1000 / 11, "you/your": 2000 / 11})


# 5 of 208 words are "of", 1 is "you".
OVER_TWO_LIMITS = "You run it. " + "word " * 200 + "of " * 5


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "android_app/README.md", "docs/how-to/a.md"])
def test_guide_over_a_limit_fails(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prose_lint, "ROOT", tmp_path)
    page = tmp_path / name
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(OVER_TWO_LIMITS, encoding="utf-8")
    assert prose_lint.main([str(page)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{name}: 24.0 'of' per 1,000 words; the limit is at most 18",
        f"{name}: 4.8 'you/your' per 1,000 words; the limit is at least 6",
    ]


@pytest.mark.parametrize("name", ["CHANGELOG.md", "docs/adr/1.md", "tests/README.md"])
def test_other_pages_have_no_limits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prose_lint, "ROOT", tmp_path)
    page = tmp_path / name
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(OVER_TWO_LIMITS, encoding="utf-8")
    assert prose_lint.main([str(page)]) == 0


def test_docstrings_over_a_limit_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = tmp_path / "modeling" / "pocketbert" / "a.py"
    module.parent.mkdir(parents=True)
    # 7 of 203 words are "of", 2 are "which"; strings and comments do not count.
    module.write_text(
        f'"""{"of " * 7}"""\n\n\ndef f():\n    """{"word " * 194}"""\n    # of\n    return "of"\n\n\n'
        'class A:\n    """which which"""\n',
        encoding="utf-8",
    )
    assert prose_lint.docstring_problems(tmp_path) == [
        "docstrings: 34.5 'of' per 1,000 words; the limit is at most 30",
        "docstrings: 9.9 'what/which/that/whose' per 1,000 words; the limit is at most 9",
    ]
    assert capsys.readouterr().out.startswith("docstrings: 34.5 'of', 9.9 'what")
