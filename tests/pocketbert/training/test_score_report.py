"""The page of a run and its bundle: what it says, in which order, and what it leaves out."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pocketbert.configs import TaskConfig
from pocketbert.report.outcome import data_name, points
from pocketbert.tasks.mistakes import Mistake
from pocketbert.tasks.registry import text_task
from pocketbert.tasks.scores import Baseline, Scores
from pocketbert.training.score_report import page, show_or_hide_texts

NAMES = ("low", "<i>middle</i>", "high")
RANDOM = np.random.default_rng(13)
LABELS = RANDOM.integers(0, 3, 101).astype(np.int32)
CHECKS = [("23.1 MB", "dynamic_wi8", "a detail"), ("21 of 21", "checks passed", "a detail")]


def scores(right: float, **fields: Any) -> Scores:
    """Scores of a network that is right for this share of the examples."""
    predictions = np.where(np.arange(101) < 101 * right, LABELS, (LABELS + 1) % 3).astype(np.int32)
    dev_scores = text_task(TaskConfig(kind="classification", labels=NAMES)).score(LABELS, predictions)
    return dataclasses.replace(dev_scores, **fields)


def mistake(text: str) -> Mistake:
    return Mistake(index=4, text=text, pair=None, label="low", prediction="high", probability=0.876)


def order(text: str, *parts: str) -> bool:
    places = [text.index(part) for part in parts]
    return places == sorted(places)


def test_outcome_stands_above_size_and_checks() -> None:
    bundle = scores(0.8, float_model=0.9, teacher=0.95, baselines=(Baseline(name="TF-IDF", score=0.5),))
    low, high = bundle.interval or (0.0, 0.0)
    both = {"model": scores(0.9), "bundle": bundle}
    text = page(both, 101, "/srv/somebody/reviews.csv", data="/srv/somebody/reviews.csv", tiles=CHECKS)
    assert order(
        text,
        "<h1>reviews</h1>",
        f"<b>{bundle.score:.3f}</b>",
        "accuracy on 101 examples",
        f"95 % interval {low:.3f} to {high:.3f}",
        "Float model",
        points(bundle.score - 0.9),
        "Teacher",
        points(bundle.score - 0.95),
        "Always &#39;",
        "TF-IDF",
        "23.1 MB",
        "21 of 21",
        "Confusion matrix",
    )
    assert "/srv/somebody" not in text and "below the baseline" not in text and 'class="bad' not in text


@pytest.mark.parametrize(
    ("method", "words"), [(0.9, "below the baseline"), (0.3, "not learned from this many examples")]
)
def test_baseline_that_wins_is_red(method: float, words: str) -> None:
    model = scores(0.36, baselines=(Baseline(name="TF-IDF & more", score=method),))
    text = page({"model": model}, 101, "reviews.csv")
    (verdict,) = re.findall('<p class="bad verdict">([^<]*)</p>', text)
    assert verdict == words
    assert re.search('<section class="card outcome lost">', text)
    red = re.findall('<td>TF-IDF &amp; more</td><td class="n">[^<]*</td><td class="n bad">([^<]*)</td>', text)
    assert red == ([points(model.score - method)] if method > model.score else [])


def test_labels_and_texts_are_escaped() -> None:
    text = page({"model": scores(0.7)}, 101, "a<b>.csv", mistakes=[mistake("<script>alert(1)</script> & more")])
    assert "<script>" not in text and "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in text
    assert "<i>middle" not in text and "&lt;i&gt;middle" in text
    assert "<b>.csv" not in text
    assert order(text, "Wrong answers", "alert", 'good">low<', 'bad">high<', "88 %")


def test_difference_column_compares_bundle_with_model() -> None:
    model, bundle = scores(0.9), scores(0.7)
    text = page({"model": model, "bundle": bundle}, 101, "reviews.csv")
    (table,) = re.findall("<h2>Metrics</h2>.*?</table>", text, re.DOTALL)
    cells = re.findall("<t[dh][^>]*>([^<]*)</t[dh]>", table)
    assert cells[:5] == ["Metric", "Model", "Bundle", "Points", "Baseline"]
    assert bundle.baseline is not None
    constant = bundle.baseline["metrics"]["accuracy"]
    expected = [f"{model.score:.4f}", f"{bundle.score:.4f}", points(bundle.score - model.score), f"{constant:.4f}"]
    assert cells[5:10] == ["accuracy", *expected]
    # One table for both, that of the bundle.
    assert text.count("<h2>Confusion matrix</h2>") == 1 == text.count("<h2>Classes</h2>")


def test_many_classes_show_confusions() -> None:
    labels = np.arange(13).repeat(3).astype(np.int32)
    predictions = labels.copy()
    predictions[[0, 1, 30]] = 12, 12, 4
    names = tuple(f"class {index}" for index in range(13))
    dev_scores = text_task(TaskConfig(kind="classification", labels=names)).score(labels, predictions)
    text = page({"model": dev_scores}, 39, "reviews.csv")
    assert "Confusion matrix" not in text
    (table,) = re.findall("<h2>Most frequent confusions</h2>.*?</table>", text, re.DOTALL)
    rows = re.findall("<tr><td>(.*?)</td><td[^>]*>(.*?)</td><td[^>]*>(.*?)</td></tr>", table)
    assert rows == [("class 0", "class 12", "2"), ("class 10", "class 4", "1")]


def test_private_texts_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret, path = mistake("a private text --> <!-- end of texts --> of somebody"), tmp_path / "report.html"
    shown = page({"model": scores(0.7)}, 101, "reviews.csv", mistakes=[secret])
    hidden = page({"model": scores(0.7)}, 101, "reviews.csv", mistakes=None)
    assert "private text" in shown and "somebody" not in hidden and "show_texts=False" in hidden
    # A finished run of an earlier call.
    path.write_text(shown, encoding="utf-8")
    show_or_hide_texts(path, show=True)
    assert path.read_text(encoding="utf-8") == shown and not capsys.readouterr().err
    show_or_hide_texts(path, show=False)
    changed = path.read_text(encoding="utf-8")
    assert "private" not in changed and "somebody" not in changed and changed.rstrip().endswith("</html>")
    assert "because of show_texts=False" in changed
    show_or_hide_texts(path, show=True)
    assert "pass overwrite=True to train again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("data/tickets.csv", "tickets"),
        ("/srv/reviews/train.TSV", "reviews, train"),
        ("train.csv", "train"),
        ("glue/SST-2", "SST-2"),
        ("the DataFrame", "the DataFrame"),
    ],
)
def test_title_names_the_data(source: str, name: str) -> None:
    assert data_name(source) == name


def test_points_have_a_sign() -> None:
    assert [points(value) for value in (0.0123, -0.004, 0.0004, -0.0004)] == ["+1.2", "\N{MINUS SIGN}0.4", "0.0", "0.0"]
