"""Checks the project's vocabulary and the voice of its pages: `python tools/prose_lint.py [FILE...]`.

Vocabulary: `tools/vocabulary.toml` lists words that the project does not use, with the words to write instead.
Voice: READMEs, CONTRIBUTING and docs have limits for words that mark indirect prose, per 1,000 words (`LIMITS`). So do
the docstrings in all packages together (`DOCSTRING_LIMITS`); without arguments, the command prints their rates.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_name("vocabulary.toml")
# Pages outside of docs with the same limits.
GUIDES = ("README.md", "CONTRIBUTING.md", "android_app/README.md")
TESTS = ROOT / "tests" / "test_prose_lint.py"
SUFFIXES = (".md", ".py", ".java", ".xml", ".toml")
# Each limit: label, words counted, lowest and highest rate per 1,000 words.
LIMITS = (
    ("of", frozenset({"of"}), 0.0, 18.0),
    ("what/which/that/whose", frozenset({"what", "which", "that", "whose"}), 0.0, 10.0),
    ("you/your", frozenset({"you", "your", "yours"}), 6.0, 1000.0),
)
# Label in `LIMITS` → highest rate in the docstrings of these packages.
DOCSTRING_LIMITS = {"of": 30.0, "what/which/that/whose": 9.0}
PACKAGES = ("modeling/pocketbert", "export/pocketbert_export", "benchmarks/pocketbert_bench")
MIN_WORDS = 150  # a shorter page has no stable rates

_ALLOW = re.compile(r"vocabulary: allow ([^(]+?) \(\S")
_GENERATED = re.compile(r"<!-- (?P<name>\w+): begin.*?<!-- (?P=name): end -->", re.DOTALL)
_FENCED = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
# Inline code, placeholders, link targets, and the name of a docstring's item.
_CODE = re.compile(r"`[^`]*`|^ +\w+: |\{[^{}]*\}|\]\([^)]*\)")
_JAVA_PROSE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_IDENTIFIER = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True)
class Term:
    """A forbidden word: `pattern` matches it, `preferred` says what to write."""

    pattern: re.Pattern[str]
    preferred: str


@dataclass(frozen=True)
class Vocabulary:
    """The table: forbidden prose, and forbidden identifiers → preferred ones."""

    prose: tuple[Term, ...]
    names: dict[str, str]


def read_vocabulary(path: Path = TABLE) -> Vocabulary:
    """Reads the table."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    prose = []
    for entry, preferred in table.get("prose", {}).items():
        spellings = "|".join(_either_case(word) for word in entry.split("|"))
        prose.append(Term(re.compile(rf"(?<![\w-])(?:{spellings})(?![\w-])"), preferred))
    names = {name: preferred for entry, preferred in table.get("names", {}).items() for name in entry.split("|")}
    return Vocabulary(tuple(prose), names)


def violations(path: Path, text: str, vocabulary: Vocabulary) -> list[tuple[int, str, str]]:
    """Line, forbidden word and preferred word of each violation in `text`, in the order of lines."""
    # A generated table quotes its result file.
    text = _GENERATED.sub(lambda match: "\n" * match[0].count("\n"), text)
    lines = text.splitlines()
    problems = set()
    for line, part, is_prose in _parts(path, text):
        allowed = {word for context_line in lines[max(line - 2, 0) : line] for word in _ALLOW.findall(context_line)}
        hits = [(name, vocabulary.names[name]) for name in _IDENTIFIER.findall(part) if name in vocabulary.names]
        if is_prose:
            words = _CODE.sub(" ", part)
            hits += [(match[0], term.preferred) for term in vocabulary.prose for match in term.pattern.finditer(words)]
        problems |= {(line, word, preferred) for word, preferred in hits if word not in allowed}
    return sorted(problems)


def rates(markdown: str) -> tuple[int, dict[str, float]]:
    """The number of words on a page, and for each limit the rate per 1,000; code and generated tables do not count."""
    text = _FENCED.sub("", _GENERATED.sub("", markdown))
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "code", text))
    words = [word.lower() for word in re.findall(r"[A-Za-z][\w'’-]*", text)]
    counts = {label: sum(word in counted for word in words) for label, counted, _, _ in LIMITS}
    return len(words), {label: 1000 * count / max(len(words), 1) for label, count in counts.items()}


def docstrings(source: str) -> str:
    """Joins a module's docstrings."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return "\n".join(ast.get_docstring(node) or "" for node in ast.walk(ast.parse(source)) if isinstance(node, kinds))


def docstring_problems(root: Path) -> list[str]:
    """Prints the rates in the packages' docstrings, and lists those above their limit."""
    modules = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    words, measured = rates("\n".join(docstrings(path.read_text(encoding="utf-8")) for path in modules))
    shown = ", ".join(f"{measured[label]:.1f} {label!r}" for label in DOCSTRING_LIMITS)
    print(f"docstrings: {shown} per 1,000 of {words:,} words")
    return [
        f"docstrings: {measured[label]:.1f} {label!r} per 1,000 words; the limit is at most {limit:g}"
        for label, limit in DOCSTRING_LIMITS.items()
        if measured[label] > limit
    ]


def main(arguments: list[str]) -> int:
    """Prints every violation; 1 if there is one."""
    vocabulary = read_vocabulary()
    messages = [] if arguments else docstring_problems(ROOT)
    for path in [Path(name).resolve() for name in arguments] or _tracked():
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        for line, word, preferred in violations(path, text, vocabulary):
            messages.append(f"{name}:{line}: {word!r}: write {preferred}")
        if _is_guide(path):
            messages += [f"{name}: {problem}" for problem in _voice(text)]
    for message in messages:
        print(message)
    if messages:
        print(f"{len(messages)} problems; the table is tools/{TABLE.name}", file=sys.stderr)
    return 1 if messages else 0


def _either_case(word: str) -> str:
    spelling = re.escape(word).replace(r"\ ", r"\s+")
    return f"[{word[0]}{word[0].upper()}]{spelling[1:]}" if word[0].islower() else spelling


def _parts(path: Path, text: str) -> Iterator[tuple[int, str, bool]]:
    """The file in parts of at most one line: line number, content, and whether it is prose (else code)."""
    if path.suffix == ".py":
        yield from _python_parts(text)
        return
    if path.suffix == ".java":
        for match in _JAVA_PROSE.finditer(text):
            first = text.count("\n", 0, match.start()) + 1
            yield from (
                (first + offset, line, True) for offset, line in enumerate(match[0].splitlines()) if " " in match[0]
            )
        yield from ((number, line, False) for number, line in enumerate(text.splitlines(), start=1))
        return
    fenced = False
    for number, line in enumerate(text.splitlines(), start=1):
        if path.suffix == ".md" and line.lstrip().startswith("```"):
            fenced = not fenced
        yield number, line, not fenced


def _python_parts(text: str) -> Iterator[tuple[int, str, bool]]:
    previous = ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)):
            # A string without a space is an identifier, a key or a path.
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, line, " " in token.string
        elif token.type == tokenize.NAME:
            yield token.start[0], token.string, False
            if previous == "def" and token.string.startswith("test_"):
                yield token.start[0], token.string.replace("_", " "), True
            previous = token.string


def _tracked() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in listing.split("\0") if name.endswith(SUFFIXES)]
    paths = [ROOT / name for name in names]
    # The table and its tests are about these words.
    return [path for path in paths if path not in (TABLE, TESTS) and path.exists()]


def _is_guide(path: Path) -> bool:
    docs = ROOT / "docs"
    return path in [ROOT / name for name in GUIDES] or (
        path.suffix == ".md" and path.is_relative_to(docs) and "adr" not in path.relative_to(docs).parts
    )


def _voice(text: str) -> list[str]:
    words, measured = rates(text)
    if words < MIN_WORDS:
        return []
    problems = []
    for label, _, low, high in LIMITS:
        if not low <= measured[label] <= high:
            limit = f"at most {high:g}" if measured[label] > high else f"at least {low:g}"
            problems.append(f"{measured[label]:.1f} {label!r} per 1,000 words; the limit is {limit}")
    return problems


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
