"""Ids and answers on the page to try a bundle: those of Python, for all tasks, tokenizers and recipes of the page."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import browser_packages
import chromium
import handmade
import networks
import numpy as np
import pytest
from tiny_tokenizers import SENTENCES, byte_bpe_files, unigram_file

import pocketbert as pb
from pocketbert.checkpoints.vocabulary_files import write_tokenizer_json
from pocketbert.configs import TaskConfig
from pocketbert.presets import preset
from pocketbert.recipes import RECIPES
from pocketbert_bench.try_page import PACKAGES, unpack, write_try_page
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.verification.default_texts import DEFAULT_TEXTS
from pocketbert_runtime.decision_config import DecisionConfig
from pocketbert_runtime.embedding_config import EmbeddingConfig
from pocketbert_runtime.tokenizer_config import TokenizerConfig
from pocketbert_runtime.tokenizers.opening import open_tokenizer
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary
from studies.trimming.xlm_r_tokenizer import toy_model, xlmr_model

PAGE = Path(__file__).parents[2] / "docs/how-to/web.md"
KINDS = ("wordpiece", "byte_bpe", "unigram")
LENGTHS = (9, 21)
LITERALS = "a [SEP] b[MASK] <s> x </s> <mask> y<mask> [CLS]"
TEXTS = (
    *DEFAULT_TEXTS,
    *SENTENCES,
    "",
    " ",
    "\t\n a \u00a0b",
    LITERALS,
    "e\u0301 n\u0303 ÀÉÎ straße",
    "中文の日本語 한국어",
    "🙂 👩\u200d👩\u200d👧 😀😀",
    "Donaudampfschifffahrtsgesellschaft" * 4,
    "ΣΑΣ Σίσυφος ΟΔΥΣΣΕΥΣ",
)


def vocabulary_of(kind: str, folder: Path) -> Vocabulary:
    """A tiny vocabulary; for WordPiece the words of `networks`, without letters."""
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "wordpiece":
        return Vocabulary(path=networks.vocabulary(folder), config=TokenizerConfig())
    if kind == "unigram":
        return Vocabulary(path=unigram_file(folder), kind="unigram")
    vocab, merges = byte_bpe_files(folder)
    return Vocabulary(path=vocab, merges=merges, kind="byte_bpe")


def real_vocabulary(kind: str, shared: Path, folder: Path) -> Vocabulary:
    data = shared / "data/vocab"
    if kind == "wordpiece":
        return Vocabulary(path=data / "bert-base-uncased.vocab.txt", config=TokenizerConfig())
    if kind == "byte_bpe":
        return Vocabulary(path=data / "roberta.vocab.json", merges=data / "roberta.merges.txt", kind="byte_bpe")
    path = folder / "sentencepiece.bpe.model"
    path.write_bytes(xlmr_model(shared, toy_model(200)))
    return Vocabulary(path=path, kind="unigram")


def real_texts(shared: Path) -> list[str]:
    """400 sentences of SST-2, and 40 texts of XNLI in each of 15 languages."""
    lines = (shared / "data/glue/SST-2/dev.tsv").read_text("utf-8").splitlines()[1:401]
    texts = [line.rpartition("\t")[0] for line in lines]
    for path in sorted((shared / "data/xnli").glob("dev-*.tsv")):
        with path.open(encoding="utf-8", newline="") as stream:
            rows = csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
            texts += [text for row in rows for text in row[:2]][:3880:97]
    assert len(texts) == 1000
    return texts


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    browser_packages.require()


@pytest.fixture(scope="module")
def handmade_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("handmade")
    bundle = Bundle.open(handmade.write_bundle(folder / "bundle", handmade.Bag()))
    return write_try_page(bundle, folder / "page", title="Numbers").parent


def called(browser: chromium.Browser, body: str, rows: Sequence[Any]) -> list[Any]:
    """Calls a function of a row and the page's module `bundle.js` for each row."""
    # The page itself may fail: another tokenizer has other ids than the network.
    browser.wait_for("document.getElementById('text') !== null")
    values: list[Any] = browser.evaluate(
        f"import('./bundle.js').then(async (bundle) => {{ const values = [];"
        f"for (const row of {json.dumps(list(rows))}) values.push(await ({body})(row, bundle)); return values; }})"
    )
    return values


def changed_page(page: Path, folder: Path, **changes: Any) -> Path:
    """Copies a page, with changed members of `bundle.json`."""
    copy = folder / "page"
    copy.mkdir()
    for path in page.iterdir():
        (copy / path.name).symlink_to(path)
    (copy / "bundle.json").unlink()
    description = json.loads((page / "bundle.json").read_text("utf-8"))
    (copy / "bundle.json").write_text(json.dumps({**description, **changes}), encoding="utf-8")
    return copy


def ids_in_browser(page: Path, vocabulary: Vocabulary, longest: int, rows: Sequence[Any], folder: Path) -> list[Any]:
    """Ids and segments of texts and pairs, by the page with another tokenizer and length."""
    copy = changed_page(page, folder, signatures=[{"name": f"length_{longest}", "length": longest}])
    (copy / "tokenizer.json").unlink()
    write_tokenizer_json(copy, vocabulary)
    with chromium.opened(copy, folder / "profile") as browser:
        body = "(row, bundle) => { const { ids, types } = bundle.encode(...row); return [ids, types] }"
        return called(browser, body, rows)


def ids_in_python(vocabulary: Vocabulary, longest: int, rows: Sequence[Any]) -> Iterator[list[list[int]]]:
    tokenizer = open_tokenizer(vocabulary)
    for text, *pair in rows:
        inputs = tokenizer([text], pair or None, max_length=longest)
        yield [inputs["input_word_ids"][0].tolist(), inputs["input_type_ids"][0].tolist()]


def assert_same_ids(received: Sequence[Any], vocabulary: Vocabulary, longest: int, rows: Sequence[Any]) -> None:
    assert len(received) == len(rows)
    for row, values, expected in zip(rows, received, ids_in_python(vocabulary, longest, rows), strict=True):
        assert values == expected, ascii(row)


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_pythons(kind: str, handmade_page: Path, tmp_path: Path) -> None:
    vocabulary, longest = vocabulary_of(kind, tmp_path / "files"), 64
    # Of some pairs, one text is too long, of others both.
    pairs = [list(pair) for pair in zip(TEXTS, TEXTS[7:], strict=False)] + [["", ""], ["a", ""], ["", "a"]]
    rows = [*([text] for text in TEXTS), *pairs]
    received = ids_in_browser(handmade_page, vocabulary, longest, rows, tmp_path)
    assert {len(ids) for ids, _ in received} >= {2, longest}
    assert_same_ids(received, vocabulary, longest, rows)


@pytest.mark.nightly
@pytest.mark.data
@pytest.mark.parametrize("kind", KINDS)
def test_ids_of_real_texts_are_pythons(kind: str, handmade_page: Path, shared: Path, tmp_path: Path) -> None:
    vocabulary, longest = real_vocabulary(kind, shared, tmp_path), 128
    texts = real_texts(shared)
    rows = [
        *([text] for text in (*texts, *TEXTS)),
        *([text, other] for text, other in zip(texts[::5], texts[7::5], strict=False)),
    ]
    received = ids_in_browser(handmade_page, vocabulary, longest, rows, tmp_path)
    assert_same_ids(received, vocabulary, longest, rows)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"task": {"kind": "span", "labels": []}}, "answers classification, .*; received span"),
        ({"task": None}, "received no task"),
        ({"outputs": [{"name": "logits", "dtype": "int8"}]}, "tells no scale of int8 outputs"),
        ({"tokenizer": {"truncation": "tail"}}, "received truncation tail"),
    ],
    ids=["task", "none", "outputs", "truncation"],
)
def test_page_names_what_it_cannot_do(
    changes: dict[str, Any], message: str, handmade_page: Path, tmp_path: Path
) -> None:
    copy = changed_page(handmade_page, tmp_path, **changes)
    with chromium.opened(copy, tmp_path / "profile") as browser:
        error = browser.wait_for("document.getElementById('error')?.textContent")
    assert re.search(message, error)


def documented() -> list[Any]:
    """The rows of the documentation: tokenizer, and a text whose ids differ."""
    rows = re.findall(r"^\| (\S.*\S) \| ((?:U\+[0-9A-F]{4,5} ?)+) \| [^|]* \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    kinds = {"WordPiece": "wordpiece", "byte-level BPE": "byte_bpe", "unigram": "unigram"}
    assert rows
    return [(kinds[name], "".join(chr(int(code[2:], 16)) for code in text.split())) for name, text in rows]


@pytest.mark.nightly
@pytest.mark.data
@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe"])
def test_ids_of_documented_texts_differ(kind: str, handmade_page: Path, shared: Path, tmp_path: Path) -> None:
    rows = [[text] for name, text in documented() if name == kind]
    vocabulary = real_vocabulary(kind, shared, tmp_path)
    assert rows
    received = ids_in_browser(handmade_page, vocabulary, 64, rows, tmp_path)
    for row, values, expected in zip(rows, received, ids_in_python(vocabulary, 64, rows), strict=True):
        assert values != expected, ascii(row)


MOODS = ("bad", "fair", "good")
TASKS: Mapping[str, TaskConfig] = {
    "classes": networks.SENTIMENT,
    "thresholds": TaskConfig(kind="classification", labels=MOODS[:2], decisions=DecisionConfig(thresholds=(0.4, 0.6))),
    "rejected": TaskConfig(kind="classification", labels=MOODS, decisions=DecisionConfig(reject_below=0.7)),
    "labels": TaskConfig(kind="multi_label", labels=MOODS, decisions=DecisionConfig(thresholds=(0.2, 0.5, 0.8))),
    "score": TaskConfig(kind="regression"),
    "embedding": TaskConfig(
        kind="embedding", embedding=EmbeddingConfig(prompts=(("query", "a film "),), default_prompt="query")
    ),
    "apart": TaskConfig(kind="classification", labels=MOODS, pairs="separate", pooling="mean"),
    "heads": TaskConfig(
        kind="several",
        tasks=(
            TaskConfig(kind="classification", name="mood", labels=MOODS),
            TaskConfig(kind="regression", name="stars"),
        ),
    ),
}
PAIRS_ONLY, TEXTS_ONLY = ("apart",), ("heads",)


def assert_close(received: Any, expected: Any, tolerance: float) -> None:
    """Compares answers: numbers within the tolerance, all else exactly."""
    if isinstance(expected, dict):
        assert received.keys() == expected.keys()
        for name, value in expected.items():
            assert_close(received[name], value, tolerance)
    elif isinstance(expected, float) or (isinstance(expected, list) and expected and isinstance(expected[0], float)):
        np.testing.assert_allclose(received, expected, rtol=0, atol=tolerance)
    else:
        assert received == expected


def exported(name: str, folder: Path) -> Bundle:
    tokenizer = pb.WordPieceTokenizer(networks.vocabulary(folder))
    model = networks.network(networks.bert_config(), (TASKS[name],), tokenizer)
    return pb.export(model, folder / "bundle", recipe="float32", lengths=LENGTHS)


def generated_texts(count: int) -> list[str]:
    """Texts of the vocabulary's words, some longer than the longest length."""
    words = networks.WORDS.split()[:25]
    generator = np.random.default_rng(3)
    return [" ".join(generator.choice(words, length)) for length in generator.integers(0, 30, count)]


def test_page_of_the_documentation_answers(tmp_path: Path) -> None:
    (source,) = re.findall(r"^```html\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert 20 <= source.count("\n") <= 40
    bundle = exported("classes", tmp_path)
    page = tmp_path / "page"
    shutil.copytree(bundle.directory, page / "films")
    for package in PACKAGES:
        unpack(package, page / "node_modules")
    (page / "index.html").write_text(source, encoding="utf-8")
    texts = generated_texts(12)
    answers = bundle.predict(texts)
    # A page that always shows the same fails.
    assert len({round(max(answer["probabilities"].values()), 3) for answer in answers}) > 3
    with chromium.opened(page, tmp_path / "profile") as browser:
        browser.wait_for("document.getElementById('text')?.disabled === false")
        for text, answer in zip(texts, answers, strict=True):
            browser.evaluate("document.getElementById('answer').textContent = ''")
            browser.evaluate(f"document.getElementById('text').value = {json.dumps(text)}")
            browser.evaluate("document.getElementById('text').dispatchEvent(new Event('input'))")
            label, _, probability = browser.wait_for("document.getElementById('answer').textContent").partition(" ")
            assert label == answer["label"], text
            # Shown with four digits.
            assert float(probability) == pytest.approx(answer["probabilities"][label], abs=1e-4)


@pytest.mark.one_of_each("embedding")
@pytest.mark.parametrize("name", TASKS)
def test_answers_of_each_task_are_pythons(name: str, tmp_path: Path) -> None:
    bundle, texts = exported(name, tmp_path), generated_texts(24)
    rows: list[list[str]] = [] if name in PAIRS_ONLY else [[text] for text in texts]
    if name not in TEXTS_ONLY:
        rows += [list(pair) for pair in zip(texts, texts[::-1], strict=True)]
    page = write_try_page(bundle, tmp_path / "page", title="Moods").parent
    with chromium.opened(page, tmp_path / "profile") as browser:
        received = called(browser, "async (row, bundle) => (await bundle.predict(...row)).answer", rows)
    texts_alone = [row[0] for row in rows if len(row) == 1]
    pairs = [tuple(row) for row in rows if len(row) == 2]
    expected = [*(bundle.predict(texts_alone) if texts_alone else []), *(bundle.predict(pairs) if pairs else [])]
    # Scores of random weights reach 10; vectors and probabilities are at most 1.
    for values, answer in zip(received, expected, strict=True):
        inputs = ("text", "pair")
        assert_close(values, {key: value for key, value in answer.items() if key not in inputs}, 2e-5)


def tokenizer_of(kind: str, vocabulary: Vocabulary) -> Any:
    if kind == "wordpiece":
        return pb.WordPieceTokenizer(vocabulary.path)
    return pb.ByteBPETokenizer(*vocabulary.files) if kind == "byte_bpe" else pb.UnigramTokenizer(vocabulary.path)


@pytest.mark.nightly
@pytest.mark.data
@pytest.mark.parametrize("recipe", ["float32", "dynamic_wi8"])
@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_real_texts_are_pythons(kind: str, recipe: str, shared: Path, tmp_path: Path) -> None:
    vocabulary = real_vocabulary(kind, shared, tmp_path)
    tokenizer = tokenizer_of(kind, vocabulary)
    names = ("hidden_size", "embedding_size", "num_layers", "num_attention_heads", "head_size", "intermediate_size")
    small = networks.bert_config()
    family = {"wordpiece": "bert_base_uncased", "byte_bpe": "roberta_base", "unigram": "xlm_r_base"}[kind]
    config = preset(family).config.replace(
        **{name: getattr(small, name) for name in names}, vocab_size=tokenizer.vocab_size, max_position_embeddings=140
    )
    model = networks.network(config, tokenizer=tokenizer)
    texts = real_texts(shared)
    bundle = pb.export(model, tmp_path / "bundle", recipe=recipe, lengths=(32, 128))
    page = write_try_page(bundle, tmp_path / "page", title="Moods").parent
    with chromium.opened(page, tmp_path / "profile") as browser:
        body = "async (row, bundle) => (await bundle.run(bundle.encode(...row))).outputs.logits"
        received = np.asarray(called(browser, body, [[text] for text in texts]))
    expected = bundle.predictor().logits(texts)
    bound = RECIPES[recipe].bounds.own_difference * np.abs(expected).max()
    assert np.abs(received - expected).max() <= bound
    best = np.sort(expected, axis=1)
    is_clear = best[:, -1] - best[:, -2] > 2 * bound
    assert (received.argmax(axis=1) == expected.argmax(axis=1))[is_clear].all()
    # Random weights leave many texts near a tie.
    assert is_clear.sum() >= 300
