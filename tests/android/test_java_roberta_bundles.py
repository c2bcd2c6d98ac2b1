"""Bundles with byte-level BPE and unigram tokenizers, exported by Python and read by the Java core."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bundle_folders
import pytest
import roberta_texts
import tiny
from test_java_host import host
from tiny_tokenizers import byte_bpe_files, unigram_file

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.presets import preset
from pocketbert_bench import configurations, results

pytestmark = pytest.mark.java

MODEL = "sentencepiece.bpe.model"
SIZES = (
    "hidden_size",
    "embedding_size",
    "num_attention_heads",
    "head_size",
    "intermediate_size",
    "max_position_embeddings",
    "initializer_range",
)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("tokenizers")
    return {
        "byte_bpe": pb.ByteBPETokenizer(*byte_bpe_files(folder)),
        "unigram": pb.UnigramTokenizer(unigram_file(folder)),
    }


@pytest.fixture(scope="module")
def bundles(tokenizers: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A RoBERTa and an XLM-R with one layer; among the golden examples is a pair with literal special tokens."""
    folder = tmp_path_factory.mktemp("bundles")
    mood = TaskConfig(kind="classification", name="mood", labels=("bad", "fair", "good"))
    sizes = {name: getattr(tiny.BERT, name) for name in SIZES}
    texts, pairs = ["the cats <mask> </s>"], ["I've seen ½ <s>"]
    examples = Examples(texts=texts, pairs=pairs, labels=None, ids=["0"], source="texts")
    for kind, name in (("byte_bpe", "roberta_base"), ("unigram", "xlm_r_base")):
        tokenizer = tokenizers[kind]
        config = preset(name).config.replace(vocab_size=tokenizer.vocab_size, num_layers=1, **sizes)
        model = pb.from_preset(config, [mood], tokenizer, seed=5)
        bundle = pb.export(model, folder / kind, recipe="float32", lengths=(9, 21), examples=examples)
        assert any((golden.text, golden.pair) == (texts[0], pairs[0]) for golden in bundle.goldens)
    return {kind: folder / kind for kind in tokenizers}


def test_answers_are_pythons(bundles: dict[str, Path], tmp_path: Path) -> None:
    output = tmp_path / "result.json"
    done = host(*bundles.values(), "--lengths=21", f"--output={output}")
    assert done.returncode == 0, done.stdout + done.stderr
    measured = results.read(output).measurements
    for measurement, path in zip(measured, bundles.values(), strict=True):
        (subject,) = configurations.from_bundle(path, (21,), (1,), label=path.name)
        assert (measurement.label, measurement.signature, measurement.status) == (subject.label, "length_21", "ok")
        assert measurement.golden and measurement.golden.examples == len(subject.calls) > 1
        assert measurement.golden.tolerance == pytest.approx(subject.tolerance(), rel=1e-12)
        assert measurement.golden.max_absolute_difference <= subject.tolerance()
        assert len(measurement.latency_us) >= 50


@pytest.mark.parametrize("kind", ["byte_bpe", "unigram"])
def test_tokens_and_spans_are_pythons(
    java: Any,
    tokenizers: dict[str, Any],
    bundles: dict[str, Path],
    tmp_path: Path,
    kind: str,
) -> None:
    texts = roberta_texts.hard_texts(["cat", "journey", "Привет", "слова", "中文"], 600, seed=103)
    rows = roberta_texts.run(java, bundles[kind], tmp_path, texts)
    columns = (tokenize_with_offset.to_list() for tokenize_with_offset in tokenizers[kind].tokenize_with_offsets(texts))
    for text, row, expected in zip(texts, rows, zip(*columns, strict=True), strict=True):
        assert row == list(expected), ascii(text)


def flipped(name: str) -> Callable[[Path], object]:
    def change(bundle: Path) -> None:
        content = bytearray((bundle / name).read_bytes())
        content[len(content) // 2] ^= 1
        (bundle / name).write_bytes(content)

    return change


def rewritten(name: str, edit: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    """Changes a file and records its new digest."""

    def change(bundle: Path) -> None:
        (bundle / name).write_bytes(edit((bundle / name).read_bytes()))
        bundle_folders.describe_again(bundle)

    return change


def tokenizer(**members: object) -> Callable[[Path], object]:
    return lambda bundle: bundle_folders.describe_again(
        bundle, tokenizer=bundle_folders.description_of(bundle)["tokenizer"] | members
    )


def reversed_ids(content: bytes) -> bytes:
    ids = json.loads(content)
    plain = [token for token in ids if token not in roberta_texts.SPECIAL]
    return json.dumps(ids | dict(zip(plain, [ids[token] for token in reversed(plain)], strict=True))).encode()


# Name → kind, change of a valid bundle, and part of Java's message.
FAULTS: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "merges": ("byte_bpe", flipped("merges.txt"), "merges.txt must have the sha256"),
    "tokens": ("byte_bpe", flipped("vocab.json"), "vocab.json must have the sha256"),
    "model": ("unigram", flipped(MODEL), f"{MODEL} must have the sha256"),
    "no_merges": ("byte_bpe", lambda it: (it / "merges.txt").unlink(), "merges.txt must be there; it is missing"),
    "other_kind": ("unigram", tokenizer(kind="byte_bpe"), "vocab.json must be listed"),
    "no_kind": ("unigram", tokenizer(kind="words"), "must be one of byte_bpe, unigram; received 'words'"),
    "version_3": (
        "unigram",
        lambda it: bundle_folders.describe_again(it, schema_version=3),
        "schema_version must be 4 for this version; received 3",
    ),
    "larger": ("byte_bpe", tokenizer(vocab_size=999), "vocab.json must have 999 tokens, the vocab_size"),
    "larger_model": ("unigram", tokenizer(vocab_size=999), f"{MODEL} must have 999 tokens, the vocab_size"),
    "no_pair": ("byte_bpe", rewritten("merges.txt", lambda it: it + b"x\n"), "'x' in line"),
    "cut": ("unigram", rewritten(MODEL, lambda it: it[:-20]), f"{MODEL}: sentencepiece model: it must"),
    "other_ids": ("byte_bpe", rewritten("vocab.json", reversed_ids), "must have the tokenizer's ids"),
    "no_merging": (
        "byte_bpe",
        rewritten("merges.txt", lambda it: it.splitlines(keepends=True)[0]),
        "must have the tokenizer's ids",
    ),
    "other_tokens": (
        "unigram",
        rewritten(MODEL, lambda it: it.replace("▁c".encode(), "▁q".encode())),
        "must have the tokenizer's ids",
    ),
}


def test_changed_bundles_are_refused(bundles: dict[str, Path], tmp_path: Path) -> None:
    for name, (kind, change, _) in FAULTS.items():
        change(Path(shutil.copytree(bundles[kind], tmp_path / name)))
    done = host(*(tmp_path / name for name in FAULTS))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    for name, (_, _, words) in FAULTS.items():
        # The message about a bundle ends before the next bundle.
        sentence = done.stderr.partition(f"{tmp_path / name}")[2].split(str(tmp_path))[0]
        assert words in sentence, (name, sentence)
