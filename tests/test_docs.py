"""The documentation does what it says: its Python runs, its command lines parse, its links lead somewhere.

A fenced `python` block is run as written, blocks of a page one after another in one namespace. A block that cannot run
here says so, with the reason, in its opening fence: ```python norun="needs a phone".
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import forks
import pytest
from command_lines import check_parses, joined_lines

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "android_app/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class MarkedBlock:
    language: str
    options: str
    body: str
    line: int  # of the first line of the body, from 1


def blocks(page: Path) -> list[MarkedBlock]:
    text = page.read_text(encoding="utf-8")
    assert len(re.findall(r"^ *```", text, flags=re.MULTILINE)) % 2 == 0, f"{page}: a fence is left open"
    blocks = []
    for match in _FENCE.finditer(text):
        language, _, options = match["info"].strip().partition(" ")
        body = re.sub(f"^{match['indent']}", "", match["body"], flags=re.MULTILINE)
        blocks.append(MarkedBlock(language, options, body, text.count("\n", 0, match.start("body")) + 1))
    return blocks


def runs(block: MarkedBlock) -> bool:
    return block.language == "python" and not block.options.startswith("norun")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_there_are_pages_and_something_in_them_runs() -> None:
    # A renamed folder must not turn this file into a test of nothing.
    assert len(PAGES) >= 8
    assert sum(runs(block) for page in PAGES for block in blocks(page)) >= 2


# Seconds of these are what other tests take, too: they train and export.
_DEAR = {
    f"docs/{name}.md"
    for name in (
        *("how-to/attention how-to/augmentation how-to/distillation how-to/embeddings how-to/finetuning".split()),
        *("how-to/pretraining how-to/pretraining-data how-to/pruning how-to/search how-to/text".split()),
        *("how-to/token-classification how-to/vocabulary reference/bundles".split()),
    )
}
# Processes for the dear pages: TensorFlow, the tokenizer and the converter start once in each.
_PROCESSES = 3
_RUNNING = [page for page in PAGES if any(map(runs, blocks(page)))]
_LATER = [page for page in _RUNNING if name_of(page) in _DEAR]
_NOW = [page for page in _RUNNING if page not in _LATER]


@pytest.mark.parametrize(
    "pages",
    [_NOW, *(pytest.param(_LATER[first::_PROCESSES], marks=pytest.mark.nightly) for first in range(_PROCESSES))],
    ids=lambda pages: "+".join(page.stem for page in pages),
)
def test_python_runs(pages: list[Path], tmp_path: Path) -> None:
    programs = []
    for page in pages:
        # Blank lines put each block on the line it has in the page, so that a traceback points there.
        program = ""
        for block in filter(runs, blocks(page)):
            program += "\n" * (block.line - 1 - program.count("\n")) + block.body
        folder = tmp_path / "-".join(page.relative_to(ROOT).with_suffix("").parts)
        folder.mkdir()
        programs.append((str(folder), str(folder.with_suffix(".py"))))
        folder.with_suffix(".py").write_text(program, encoding="utf-8")
    # Each page has its own names and folder.
    source = f"import os, runpy\nfor folder, program in {programs!r}:\n"
    source += "    os.chdir(folder)\n    runpy.run_path(program, run_name='__main__')\n"
    answer = forks.run(source, cheap=True)
    assert answer.returncode == 0, answer.stderr[-4000:]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_does_not_run_says_why(page: Path) -> None:
    for block in blocks(page):
        where = f"{name_of(page)}:{block.line}"
        assert block.language, f"{where}: the fence names no language"
        if block.language == "python" and not runs(block):
            assert re.fullmatch(r'norun="[^"]{8,}"', block.options), f"{where}: norun needs its reason"
            compile(block.body, where, "exec")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_command_lines_parse(page: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    for block in blocks(page):
        if block.language not in ("console", "bash", "sh"):
            continue
        for line in joined_lines(block.body):
            line = line.rpartition(" | ")[2].removeprefix(".venv/bin/")
            if line.startswith("pocketbert "):
                check_parses(line)
            if line.startswith("make "):
                target = next(word for word in line.split()[1:] if "=" not in word)
                assert target in targets, f"{name_of(page)}: the Makefile has no target {target!r}"


def test_the_readme_names_every_command() -> None:
    from pocketbert import cli

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    missing = [name for name in cli.COMMANDS if f"`{name}`" not in text]
    assert not missing, f"README.md does not mention {missing}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_that_exist(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        path = Path(os.path.normpath(page.parent / target))
        # `make docs` generates these pages and checks the links to them.
        generated = re.search(r"/docs/(api/.*|reference/(commands|results|bundle))\.md$", str(path))
        if not re.match(r"https?://|mailto:", target) and not generated:
            assert path.exists(), f"{name_of(page)} links to {target}, which does not exist"


@pytest.mark.one_of_each("8")
@pytest.mark.parametrize("distance", [8, 1])
def test_the_site_builds_without_a_warning(distance: int, tmp_path: Path) -> None:
    """With the page of each module, or of one in eight: they take most of the time."""
    site = tmp_path / "site"
    program = f"""
import gc, sys

gc.disable()
# Without Ruff, which mkdocstrings would start for every signature to break its lines.
sys.modules["ruff.__main__"] = None
from mkdocs.commands.build import build
from mkdocs.config import load_config

config = load_config("mkdocs.yml", strict=True, site_dir={str(site)!r})
(hook,) = config.hooks.values()
modules = hook._modules
hook._modules = lambda root: sorted({{*modules(root)[::{distance}], "pocketbert.model"}})
config.plugins.on_startup(command="build", dirty=False)
build(config)
config.plugins.on_shutdown()
"""
    answer = forks.run(program, folder=ROOT, timeout=300)
    assert answer.returncode == 0, answer.stderr[-4000:]
    # What is made from the code is there, with the code's own words.
    assert "how-to/install/" in (site / "index.html").read_text(encoding="utf-8")
    assert "--saved-model" in (site / "reference" / "commands" / "index.html").read_text(encoding="utf-8")
    assert "several of one kind need different names" in (site / "api" / "pocketbert.model" / "index.html").read_text(
        encoding="utf-8"
    )
    assert len(list((site / "api").iterdir())) > 50
