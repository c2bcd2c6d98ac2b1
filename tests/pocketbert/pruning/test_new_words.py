"""`extend-vocabulary --text`: the words that save the most tokens, for every tokenizer."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_adaptation
from safetensors.numpy import load_file
from tiny_tokenizers import unigram_json

import pocketbert as pb
from pocketbert.cli import main
from pocketbert.data.pretraining.masking import MaskingVocabulary

COUNT, EVERY = 4, 10
# Words inside longer ones, beside punctuation, with accents and in other case, and one that no tokenizer has.
EXTRA = [
    "A Café, the cafés (café) CAFÉ charmingly.",
    "Journeyman's journey: journeys; charming-journey.",
    "straßenmat ☃",
]


@pytest.fixture(params=["bert", "roberta", "xlm_roberta"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tiny_adaptation.write_encoder(tmp_path / request.param, request.param)


def paragraphs() -> list[str]:
    return [line for number, line in enumerate(tiny_adaptation.lines(57)) for line in (line, *EXTRA[number % 9 : 3])][
        :80
    ]


def text_file(folder: Path) -> Path:
    path = folder / "text.txt"
    path.write_text("\n".join(paragraphs()) + "\n", "utf-8")
    return path


def saved_tokens(model: Path, lines: list[str]) -> tuple[Counter[str], Counter[str]]:
    """Occurrences of each word, and its tokens minus one in all of them, by the library `tokenizers`."""
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    if model.name == "xlm_roberta":
        core = Tokenizer.from_str(json.dumps(unigram_json(model / "sentencepiece.bpe.model")))
    else:
        core = AutoTokenizer.from_pretrained(model).backend_tokenizer
    counts: Counter[str] = Counter()
    saved: Counter[str] = Counter()
    for line in lines:
        encoded = core.encode(line, add_special_tokens=False)
        for match in re.finditer(r"\w+", line):
            inside = [
                token
                for token, (start, end) in zip(encoded.tokens, encoded.offsets, strict=True)
                if start < match.end() and end > match.start()
            ]
            word = match[0].lower() if model.name == "bert" else match[0]
            counts[word] += 1
            # An unknown token counts as two.
            saved[word] += max(len(inside) - 1, int(bool({"[UNK]", "<unk>"} & {*inside})))
    return counts, saved


def test_words_save_the_most_tokens(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import AutoTokenizer

    arguments = [
        f"--model={model}",
        f"--text={text_file(tmp_path)}",
        f"--count={COUNT}",
        f"--output={tmp_path / 'more'}",
    ]
    assert main(["extend-vocabulary", *arguments]) == 0
    done = json.loads(capsys.readouterr().out)
    counted = [line for number, line in enumerate(paragraphs()) if number % EVERY != EVERY - 1]
    counts, saved = saved_tokens(model, counted)
    assert len(done["ids"]) == COUNT and done["tokens"][1] - done["tokens"][0] == COUNT
    best = sorted((value for word, value in saved.items() if counts[word] >= 3), reverse=True)[:COUNT]
    assert [saved[word] for word in done["ids"]] == best and best[-1] > 0

    # transformers' tokenizer has the same ids, and counts the tokens per word.
    extended = pb.from_pretrained(tmp_path / "more").tokenizer
    reference = AutoTokenizer.from_pretrained(tmp_path / "more")
    expected = reference(paragraphs(), add_special_tokens=False)["input_ids"]
    assert extended.tokenize(paragraphs()).to_list() == expected
    measured = [number for number in range(len(paragraphs())) if number % EVERY == EVERY - 1]
    assert done["words"] == sum(len(paragraphs()[number].split()) for number in measured)
    before = pb.from_pretrained(model).tokenizer.tokenize([paragraphs()[number] for number in measured]).to_list()
    rates = [sum(map(len, rows)) / done["words"] for rows in (before, [expected[number] for number in measured])]
    assert done["tokens_per_word"] == pytest.approx(rates, rel=1e-12) and rates[1] < rates[0]
    # A new word is one token, and no part of a longer one.
    (word, token), *_ = done["ids"].items()
    assert extended.tokenize([f"the {word}, {word}xx"]).to_list()[0].count(token) == 1


@pytest.mark.one_of_each("bert")
def test_rows_are_means_of_the_parts(model: Path, tmp_path: Path) -> None:
    result = pb.extend_vocabulary_from_text(model, [text_file(tmp_path)], tmp_path / "more", count=COUNT)
    before, after = (load_file(path / "model.safetensors") for path in (model, tmp_path / "more"))
    tokenizer = pb.from_pretrained(model).tokenizer
    parts = tokenizer.tokenize([f" {word}" for word in result.ids]).to_list()
    assert max(map(len, parts)) > 1
    changed = [name for name in before if before[name].shape != after[name].shape]
    assert changed and before.keys() == after.keys()
    for name in changed:
        means = [np.mean([before[name][token] for token in ids], axis=0) for ids in parts]
        # Means of a few float32 numbers near 0.2.
        np.testing.assert_allclose(after[name][-COUNT:], means, rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(after[name][:-COUNT], before[name])


@pytest.mark.one_of_each("roberta")
def test_new_words_begin_a_word_in_masking(model: Path, tmp_path: Path) -> None:
    result = pb.extend_vocabulary_from_text(model, [text_file(tmp_path)], tmp_path / "more", count=COUNT)
    vocabulary = MaskingVocabulary.of(pb.from_pretrained(tmp_path / "more").tokenizer)
    assert not vocabulary.continues[[*result.ids.values()]].any() and vocabulary.continues.any()


@pytest.mark.parametrize("model", ["bert"], indirect=True)
def test_fewer_words_are_reported(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dev = tmp_path / "dev.txt"
    dev.write_text("charming cats\n", "utf-8")
    options: dict[str, Any] = {"count": 999, "min_count": 20, "dev_text": [dev]}
    result = pb.extend_vocabulary_from_text(model, [text_file(tmp_path)], tmp_path / "more", **options)
    assert 0 < len(result.ids) < 9 and result.words == 2
    message = f"only {len(result.ids)} words occur 20 times and have several tokens"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("model", ["bert"], indirect=True)
def test_unknown_words_are_chosen(model: Path, tmp_path: Path) -> None:
    text = tmp_path / "unknown.txt"
    text.write_text("the żółw sat on ŻÓŁW\n" * 20, "utf-8")
    unknown = pb.from_pretrained(model).tokenizer
    assert unknown.tokenize(["żółw"]).to_list() == [[unknown.unk_token_id]]
    result = pb.extend_vocabulary_from_text(model, [text], tmp_path / "more", count=1)
    assert list(result.ids) == ["żółw"]


@pytest.mark.parametrize("model", ["bert"], indirect=True)
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "either --tokens or --text is required; received neither"),
        (["--text=T", "--tokens=T"], "either --tokens or --text is required; received both"),
        (["--text=T"], "--text needs --count, the number of words to choose; received none"),
        (["--text=T", "--count=3", "--special"], "--special is for --tokens; received it with --text"),
        (["--tokens=T", "--count=3"], "--count is for --text; received it with --tokens"),
        (["--tokens=T", "--count=0"], "--count is for --text; received it with --tokens"),
        (["--text=T", "--count=0"], "count must be at least 1; received 0"),
        (["--text=T", "--count=3", "--min-count=999"], "no word occurs 999 times and has several tokens; received T"),
        (["--text=EMPTY", "--count=3"], "the text must have at least one paragraph with words"),
        (["--text=SHORT", "--count=3"], "the measurement needs at least 10 paragraphs; received fewer; give"),
    ],
)
def test_bad_choices_are_refused(
    model: Path, flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "short.txt").write_text("cats and cats and cats\n", "utf-8")
    places = {"T": text_file(tmp_path), "EMPTY": tmp_path / "empty.txt", "SHORT": tmp_path / "short.txt"}
    given = [re.sub(r"(?<==)[A-Z]+$", lambda match: str(places[match[0]]), flag) for flag in flags]
    assert main(["extend-vocabulary", f"--model={model}", f"--output={tmp_path / 'more'}", *given]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert message.replace("received T", f"received {places['T']}") in error and not (tmp_path / "more").exists()
