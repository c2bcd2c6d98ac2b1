from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pocketbert.tasks.answer_scores import mean_scores, squad_1_score, squad_2_score, squad_scorer

BOTH = [squad_1_score, squad_2_score]


@pytest.mark.parametrize("score", BOTH)
@pytest.mark.parametrize(
    ("prediction", "right", "exact", "f1"),
    [
        ("The Broncos!", ["broncos"], 1.0, 1.0),
        ("an  apple\ta day", ["Apple day."], 1.0, 1.0),
        # "a" goes as a word only.
        ("banana", ["bnn"], 0.0, 0.0),
        ("U.S.", ["US"], 1.0, 1.0),
        ("state-of-the-art", ["stateoftheart"], 1.0, 1.0),
        # ASCII's punctuation alone: this dash stays, a word of its own.
        ("1990 – 1995", ["1990 1995"], 0.0, 0.8),
        # Two of three words are right, and two of four found: 2·(2/3)·(2/4) / (2/3 + 2/4) = 4/7.
        ("big red dog", ["red dog or cat"], 0.0, 4 / 7),
        # Words count as often as they stand on both sides: one of three, one of one.
        ("no no no", ["no"], 0.0, 0.5),
        # The best of several answers, for each score by itself.
        ("Denver Broncos", ["Broncos", "Denver Broncos", "the team"], 1.0, 1.0),
        ("Denver Broncos team", ["Panthers", "Broncos"], 0.0, 0.5),
        ("Café", ["cafe"], 0.0, 0.0),
        ("", ["red"], 0.0, 0.0),
    ],
)
def test_scores_counted_by_hand(score, prediction: str, right: list[str], exact: float, f1: float) -> None:
    assert score(prediction, right) == pytest.approx((exact, f1), rel=1e-14)


@pytest.mark.parametrize(
    ("prediction", "right", "expected"),
    [
        ("", [], (1.0, 1.0)),
        ("the", [], (1.0, 1.0)),
        ("red", [], (0.0, 0.0)),
        # Answers of which nothing is left are none.
        ("red", ["the", "red"], (1.0, 1.0)),
        ("red", ["the", "!"], (0.0, 0.0)),
        ("!", ["the", "!"], (1.0, 1.0)),
    ],
)
def test_without_an_answer_nothing_is_right(prediction: str, right: list[str], expected: tuple[float, float]) -> None:
    assert squad_2_score(prediction, right) == expected


def test_to_1_1_an_answer_of_which_nothing_is_left_has_no_f1() -> None:
    assert squad_1_score("the", ["A", "red"]) == (1.0, 0.0)
    assert squad_2_score("the", ["A", "red"]) == (0.0, 0.0)
    assert squad_scorer(any_impossible=False) is squad_1_score
    assert squad_scorer(any_impossible=True) is squad_2_score


def test_means_are_taken_over_questions_of_each_kind() -> None:
    exact, f1 = [1.0, 0.0, 1.0, 0.0, 0.0], [1.0, 0.25, 1.0, 0.0, 0.5]
    assert mean_scores(exact, f1, [False] * 5) == {"exact_match": 0.4, "f1": 0.55}
    assert mean_scores(exact, f1, [False, False, True, True, False]) == {
        "exact_match": 0.4,
        "f1": 0.55,
        "has_answer_exact_match": pytest.approx(1 / 3),
        "has_answer_f1": pytest.approx(1.75 / 3),
        "no_answer_exact_match": 0.5,
        "no_answer_f1": 0.5,
    }
    only = mean_scores([1.0, 0.0], [1.0, 0.0], [True, True])
    assert list(only) == ["exact_match", "f1", "no_answer_exact_match", "no_answer_f1"]


def _predictions(data: list[dict], random: np.random.Generator) -> dict[str, str]:
    """Right answers, parts of them with and without punctuation, other words of the paragraph, and nothing."""
    predictions = {}
    for article in data:
        for paragraph in article["paragraphs"]:
            words = paragraph["context"].split(" ")
            for entry in paragraph["qas"]:
                first = int(random.integers(len(words)))
                guess = " ".join(words[first : first + int(random.integers(1, 6))])
                texts = [answer["text"] for answer in entry["answers"]] or [guess]
                text = texts[int(random.integers(len(texts)))]
                choices = [text, f"The {text}, ", text[: len(text) // 2 + 1], text + " " + guess, guess, "", "the"]
                predictions[entry["id"]] = choices[int(random.integers(len(choices)))]
    return predictions


@pytest.mark.data
@pytest.mark.parametrize("version", ["1.1", "2.0"])
@pytest.mark.parametrize("split", ["train", "dev"])
def test_files_have_the_scores_of_squads_scripts(shared: Path, version: str, split: str) -> None:
    from official.nlp.tools import squad_evaluate_v1_1, squad_evaluate_v2_0

    path = shared / f"data/squad/{split}-v{version}.json"
    data = json.loads(path.read_text(encoding="utf-8"))["data"]
    predictions = _predictions(data, np.random.default_rng(13))
    entries = [entry for article in data for paragraph in article["paragraphs"] for entry in paragraph["qas"]]
    impossible = [entry.get("is_impossible", False) for entry in entries]
    score = squad_scorer(any(impossible))
    pairs = [score(predictions[entry["id"]], [answer["text"] for answer in entry["answers"]]) for entry in entries]
    scores = mean_scores(*zip(*pairs, strict=True), impossible)
    if version == "1.1":
        official = squad_evaluate_v1_1.evaluate(data, predictions)
        expected = {"exact_match": official["exact_match"], "f1": official["final_f1"]}
    else:
        official = squad_evaluate_v2_0.evaluate(data, predictions)
        names = {"": "", "has_answer_": "HasAns_", "no_answer_": "NoAns_"}
        expected = {
            f"{kind}{name}": official[f"{their_kind}{their_name}"] / 100
            for kind, their_kind in names.items()
            for name, their_name in (("exact_match", "exact"), ("f1", "f1"))
        }
    # Sums of some thousand doubles, in another order and with another factor.
    assert scores == pytest.approx(expected, rel=1e-12)
    assert 0.1 < scores["exact_match"] < scores["f1"] < 0.9
