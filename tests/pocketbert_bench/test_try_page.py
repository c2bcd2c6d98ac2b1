"""The page to try a bundle, in headless Chromium."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import chromium
import handmade
import numpy as np
import pytest

from pocketbert import cli
from pocketbert.errors import UserError
from pocketbert.report import render
from pocketbert_bench import try_page
from pocketbert_bench.try_page import tasks_text
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.clients.mediapipe_files import prepare


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return Bundle.open(handmade.write_bundle(tmp_path_factory.mktemp("handmade") / "bundle", handmade.Bag()))


def test_policy_forbids_other_bases_and_forms() -> None:
    page = render("try.html", package="pocketbert_bench", title="Films")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"


def _unavailable(reason: str) -> None:
    """Skips, or fails where `.ci/run` has installed a browser and npm."""
    if os.environ.get("POCKETBERT_BROWSER_TEST") == "required":
        pytest.fail(f"POCKETBERT_BROWSER_TEST=required and {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    """The loaded page. Not every machine can install a browser, or reach npm's packages."""
    if chromium.PROGRAM is None:
        _unavailable("Chromium is not installed")
    try:
        tasks_text()
    except UserError as error:
        _unavailable(str(error))
    folder = tmp_path_factory.mktemp("try")
    assert cli.main(["report", f"--try={bundle.directory}", f"--output={folder / 'page'}"]) == 0
    with chromium.served(folder / "page-try") as address:
        opened = chromium.Browser(folder / "profile")
        try:
            opened.call("Page.navigate", url=f"{address}/index.html")
            opened.wait_for("document.getElementById('text')?.disabled === false")
            opened.address = address
            yield opened
        finally:
            opened.close()


def typed(browser: chromium.Browser, text: str) -> dict[str, str]:
    """Types a text and returns what the page shows."""
    browser.evaluate("document.getElementById('time').textContent = ''")
    browser.evaluate("document.getElementById('text').select()")
    browser.call("Input.insertText", text=text)
    browser.wait_for("document.getElementById('time').textContent || document.getElementById('error').textContent")
    names = ("label", "score", "tokens", "length", "time", "error")
    return {name: browser.evaluate(f"document.getElementById('{name}').textContent") for name in names}


@pytest.mark.parametrize(
    "text, tokens, length",
    [
        ("a1 a2", ["a1", "a2"], 5),
        # Capitals, an accent and a no-break space, which MediaPipe alone would read as another word.
        ("A9 á60\u00a0a33 a20", ["a9", "a60", "a33", "a20"], 9),
        ("a5 a6 a7 a8 a9 a10 a11 a12", ["a5", "a6", "a7", "a8", "a9", "a10", "a11"], 9),
        ("a5!", ["a5", "[UNK]"], 5),
    ],
)
def test_page_answers_typed_texts(
    browser: chromium.Browser, bundle: Bundle, text: str, tokens: list[str], length: int
) -> None:
    shown = typed(browser, text)
    assert shown["error"] == ""
    assert shown["tokens"].split() == tokens
    assert shown["length"].startswith(f"{length} tokens")
    assert shown["time"].endswith(" ms")
    inputs = handmade.tokenizer()([text], max_length=length, pad_to=length)
    logits = handmade.truth({name: np.asarray(array) for name, array in inputs.items()})[0]
    scores = np.exp(logits - logits.max())
    assert shown["label"] == ("low", "middle", "high")[logits.argmax()]
    # Shown with four digits.
    assert float(shown["score"]) == pytest.approx(scores.max() / scores.sum(), abs=1e-3)


def test_page_asks_no_other_host(browser: chromium.Browser) -> None:
    typed(browser, "a1")
    assert browser.requests and all(request.startswith((browser.address, "data:")) for request in browser.requests)
    assert not browser.log
    # Not even if a later version tries.
    browser.evaluate("fetch('http://127.0.0.2:9/').catch(() => { document.title = 'refused' })")
    browser.wait_for("document.title === 'refused'")
    assert any("Content Security Policy" in line for line in browser.log)


def test_page_prepares_texts_as_python_does(browser: chromium.Browser) -> None:
    # Control characters go, lines end words; not typed, because the keyboard would not send them.
    text = "\u00c1\x0b1\u2028a\x85\x1f2\ta\u200b\u00ad\ue0005 a6\u0378"
    browser.evaluate("document.getElementById('time').textContent = ''")
    browser.evaluate(f"document.getElementById('text').value = {json.dumps(text)}")
    browser.evaluate("document.getElementById('text').dispatchEvent(new Event('input'))")
    browser.wait_for("document.getElementById('time').textContent")
    assert prepare(text) == "a1 a2 a5 a6\u0378"
    assert browser.evaluate("document.getElementById('tokens').textContent") == "a1 a2 a5 [UNK]"


def test_report_needs_results_or_a_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", f"--output={tmp_path / 'report'}"]) == 2
    assert "at least one RESULT, or --try; received none" in capsys.readouterr().err


def test_other_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm = tmp_path / "npm"
    npm.write_text(f"#!/bin/sh\necho other > {try_page.ARCHIVE}\n", encoding="utf-8")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("POCKETBERT_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError, match=f"must have the sha256 {try_page.SHA256}.*npm pack"):
        tasks_text()


def test_missing_npm_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("POCKETBERT_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError, match="needs npm to fetch @mediapipe/tasks-text 0.10.35; received none"):
        tasks_text()
