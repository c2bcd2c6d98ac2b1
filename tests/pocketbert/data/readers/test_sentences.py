from __future__ import annotations

import numpy as np
import pytest

from pocketbert.data.readers.sentences import split_sentences


@pytest.mark.parametrize(
    "marked",
    [
        # A bar stands where a sentence ends.
        "One.|Two!|Three?|Four…|Five?!|Six",
        "It cost $3.50.|In 1990, 2.5 % of it.|1991 was better.",
        "Dr. Smith met Mr. and Mrs. Jones at St. Mary's.|They left.",
        "J. R. R. Tolkien wrote it.|C. S. Lewis did not.",
        "He was born in Washington, D.C. in 1920.|It was cold at 5 a.m. there.",
        "He lived in the U.S.|The others did not.|The U.S. Senate met.|At 5 p.m.|It rained.",
        "Acme Inc.|The firm closed.|Acme Inc. Shares fell.|Cats, dogs, etc.|But no birds.",
        "See No. 5 and p. 12 of vol. 3.|He said no.|Nobody came.|It came in Jan. 1920.",
        "Fig. 3 shows it (cf. Fig. 4).|(It is small.)|So is this.",
        "He said “Stop!”|“Why?” she asked.|'Because.'|Then he left.",
        '"Is it?" he asked.|"It is."|He nodded.',
        "Yahoo! is a firm.|Use e.g. this, i.e. That one.|Version 2.0.1 is out... wait.",
        "1. First of all.|2. Then this.",
        "Wait...|No.|¿Por qué?|¡Ay!|«Non.»|Élan vital.",
        "これは文です。|次の文！|「はい。」|終わり",
        "他说。|她笑了？|好",
        "यह एक वाक्य है।|यह दूसरा है।|هل هذا؟|نعم.|لا",
        "formula_1.|Next one.",
        "a.b.c",
    ],
)
def test_where_sentences_end(marked: str) -> None:
    expected = marked.split("|")
    # CJK needs no space.
    joined = "".join(expected) if "。" in marked else " ".join(expected)
    assert split_sentences(joined) == expected


def test_only_space_is_dropped() -> None:
    random = np.random.default_rng(5)
    parts = ["A", "b", "7", ".", "!", "。", "...", "”", '"', "(", ")", " ", "\n", "\u00a0", "Dr.", "U.S.", "é", "語"]
    for _ in range(2000):
        text = "".join(random.choice(parts, random.integers(0, 15)))
        sentences = split_sentences(text)
        assert "".join("".join(sentences).split()) == "".join(text.split())
        assert all(sentence and sentence == sentence.strip() for sentence in sentences)


def test_time_is_linear_in_awkward_texts() -> None:
    # A quadratic rule would take minutes here.
    for text in ("a" * 200_000 + ".", "." * 200_000 + "A", "A. " * 60_000, "“" * 200_000, "x.\u00a0" * 60_000):
        assert split_sentences(text)
