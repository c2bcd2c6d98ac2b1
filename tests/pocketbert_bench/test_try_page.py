"""The page to try a bundle, in headless Chromium."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browser_packages
import chromium
import handmade
import numpy as np
import pytest
from bundle_folders import describe_again, description_of

from pocketbert import cli
from pocketbert.errors import UserError
from pocketbert_bench import try_page
from pocketbert_bench.try_page import LITERT, PACKAGES, archive_of
from pocketbert_export.bundles.bundle import Bundle

SPECIAL = ("[CLS]", "[SEP]")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return Bundle.open(handmade.write_bundle(tmp_path_factory.mktemp("handmade") / "bundle", handmade.Bag()))


def test_policy_forbids_other_bases_and_forms() -> None:
    page = try_page.page("Films", with_pairs=False)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["connect-src"] == "'self'" and "unsafe-inline" not in rules["script-src"]


@pytest.fixture(scope="module")
def browser(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    """The loaded page."""
    browser_packages.require()
    folder = tmp_path_factory.mktemp("try")
    assert cli.main(["report", f"--try={bundle.directory}", f"--output={folder / 'page'}"]) == 0
    with chromium.opened(folder / "page-try", folder / "profile") as opened:
        opened.wait_for("document.getElementById('text')?.disabled === false")
        yield opened


def typed(browser: chromium.Browser, text: str) -> dict[str, str]:
    """Types a text and returns what the page shows."""
    browser.evaluate("document.getElementById('time').textContent = ''")
    browser.evaluate("document.getElementById('text').select()")
    browser.call("Input.insertText", text=text)
    browser.wait_for("document.getElementById('time').textContent || document.getElementById('error').textContent")
    names = ("answer", "probabilities", "tokens", "length", "time", "error")
    return {name: browser.evaluate(f"document.getElementById('{name}').textContent") for name in names}


@pytest.mark.parametrize(
    "text, tokens, length",
    [
        ("a1 a2", ["a1", "a2"], 5),
        # Capitals, an accent and a no-break space.
        ("A9 \u00e160\u00a0a33 a20", ["a9", "a60", "a33", "a20"], 9),
        ("a5 a6 a7 a8 a9 a10 a11 a12", ["a5", "a6", "a7", "a8", "a9", "a10", "a11"], 9),
        ("a5!", ["a5", "[UNK]"], 5),
    ],
)
def test_page_answers_typed_texts(
    browser: chromium.Browser, bundle: Bundle, text: str, tokens: list[str], length: int
) -> None:
    shown = typed(browser, text)
    assert shown["error"] == ""
    assert shown["tokens"].split() == [SPECIAL[0], *tokens, SPECIAL[1]]
    assert shown["length"].startswith(f"{length} tokens")
    assert ("truncated" in shown["length"]) == ("a12" in text)
    assert shown["time"].endswith(" ms")
    inputs = handmade.tokenizer()([text], max_length=length, pad_to=length)
    logits = handmade.truth({name: np.asarray(array) for name, array in inputs.items()})[0]
    scores = np.exp(logits - logits.max())
    assert shown["answer"] == ("low", "middle", "high")[logits.argmax()]
    received = [float(part.split()[1]) for part in shown["probabilities"].split(", ")]
    # Shown with four digits.
    assert received == pytest.approx(scores / scores.sum(), abs=1e-3)


def test_page_asks_no_other_host(browser: chromium.Browser) -> None:
    typed(browser, "a1")
    assert browser.requests and all(request.startswith((browser.address, "data:")) for request in browser.requests)
    # LiteRT.js looks for a graphics processor; this browser has none.
    assert [line for line in browser.log if "No available adapters" not in line] == []
    # Not even if a later version tries.
    browser.evaluate("fetch('http://127.0.0.2:9/').catch(() => { document.title = 'refused' })")
    browser.wait_for("document.title === 'refused'")
    assert any("Content Security Policy" in line for line in browser.log)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"task": {"kind": "span", "name": "", "labels": []}}, "the page answers classification, .*; received span"),
        ({"task": None}, "received no task"),
        ({"outputs": [{"name": "logits", "dtype": "int8"}]}, "tells no scale of int8 outputs"),
        ({"truncation": "tail"}, "cuts the ends of long texts; received truncation tail"),
    ],
)
def test_other_bundles_are_refused(bundle: Bundle, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    folder = Path(shutil.copytree(bundle.directory, tmp_path / "copy"))
    description = description_of(folder)
    if "truncation" in changes:
        changes = {"tokenizer": {**description["tokenizer"], **changes}}
    if "task" in changes:
        (folder / "labels.txt").unlink()
    describe_again(folder, **changes)
    with pytest.raises(UserError, match=message):
        try_page.check_tryable(Bundle.open(folder))


def test_bundle_without_tokenizer_json_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bundle.directory, tmp_path / "copy"))
    (folder / "tokenizer.json").unlink()
    describe_again(folder)
    with pytest.raises(UserError, match="reads tokenizer.json; the bundle has none; export it again"):
        try_page.check_tryable(Bundle.open(folder))


def test_report_needs_results_or_a_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", f"--output={tmp_path / 'report'}"]) == 2
    assert "at least one RESULT, or --try; received none" in capsys.readouterr().err


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_other_archive_is_refused(package: try_page.Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm = tmp_path / "npm"
    npm.write_text(f"#!/bin/sh\necho other > {package.archive}\n", encoding="utf-8")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("POCKETBERT_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError, match=f"must have the sha256 {package.sha256}.*npm pack {package.name}"):
        archive_of(package)


def test_missing_npm_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("POCKETBERT_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError, match="needs npm to fetch @litertjs/core@2.5.3; received none"):
        archive_of(LITERT)
