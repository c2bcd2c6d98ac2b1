"""Added tokens in the Java tokenizers and the Python ones, token by token and offset by offset."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
from pathlib import Path
from typing import Any

import bundle_folders
import pytest
import roberta_texts
import tiny
from awkward_texts import awkward_texts
from test_java_host import host
from tiny_tokenizers import byte_bpe_files, unigram_file

import pocketbert as pb
from pocketbert.configs import TaskConfig, TokenizerConfig
from pocketbert.presets import preset
from pocketbert.tokenizers.opening import open_tokenizer
from pocketbert_export.verification.verify import verify_bundle
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import SPECIAL_TOKENS

pytestmark = pytest.mark.java

_LETTERS = [*"abcdeéEnix!?.,[]<>1中京あİß½"]
PIECES = [*SPECIAL_TOKENS, "[unused1]", *_LETTERS, *(f"##{letter}" for letter in _LETTERS), "the", "unused", "##ing"]
CONTENTS = [
    "[E1]", "[E2]", "[E1]x", "E1", "a b", "ab", "Ab", "abc", "中", "中a", "京 ", "É", "e\u0301", "<e>", "the", "ing",
    "１", "½", "1", "ﬁ", "x\n", "i\u0307", "<mask>", "[SEP]",
]  # fmt: skip
KINDS = ["wordpiece", "byte_bpe", "unigram"]


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Vocabulary]:
    folder = tmp_path_factory.mktemp("vocabularies")
    for kind in KINDS:
        (folder / kind).mkdir()
    (folder / "wordpiece" / "vocab.txt").write_text(
        "".join(f"{fromkey}\n" for fromkey in dict.fromkeys(PIECES)), "utf-8"
    )
    vocab, merges = byte_bpe_files(folder / "byte_bpe")
    return {
        "wordpiece": Vocabulary(path=folder / "wordpiece" / "vocab.txt"),
        "byte_bpe": Vocabulary(path=vocab, merges=merges, kind="byte_bpe"),
        "unigram": Vocabulary(path=unigram_file(folder / "unigram"), kind="unigram"),
    }


def random_tokens(vocabulary: Vocabulary, draw: random.Random) -> tuple[pb.AddedToken, ...]:
    base_tokens = vocabulary.base_tokens()
    flags = ("lstrip", "rstrip", "single_word", "normalized", "special")
    tokens, size = [], len(base_tokens)
    for content in draw.sample(CONTENTS, draw.randint(1, 5)):
        token_id = base_tokens.index(content) if content in base_tokens else size
        size += token_id == size
        tokens.append(pb.AddedToken(content=content, id=token_id, **{flag: draw.random() < 0.4 for flag in flags}))
    return tuple(tokens)


def random_texts(draw: random.Random, count: int) -> list[str]:
    others = [" ", "  ", "\t", "\u3000", "_", "x", "a", "the", "[e1]", "e1", "\u0301", "\u200d", "</s>", "[SEP]", "É京"]
    texts = ["".join(draw.choice([*CONTENTS, *others]) for _ in range(draw.randint(0, 12))) for _ in range(count)]
    return texts + [
        f"{draw.choice(CONTENTS)}{text[:40]}{draw.choice(CONTENTS)}{text[40:]}"
        for text in awkward_texts(count, ["the", "abc"], draw.randint(0, 999))
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_random_added_tokens_equal_pythons(
    java: Any,
    vocabularies: dict[str, Vocabulary],
    tmp_path: Path,
    kind: str,
) -> None:
    draw = random.Random(len(kind))
    trial = 0
    while trial < 12:
        vocabulary = dataclasses.replace(vocabularies[kind], added=random_tokens(vocabularies[kind], draw))
        special = draw.choice(["token", "token", "text"])
        config = {option: draw.random() < 0.5 for option in ("lowercase", "strip_accents", "tokenize_chinese_chars")}
        if kind == "wordpiece":
            vocabulary = dataclasses.replace(vocabulary, config=TokenizerConfig(**config))
        if kind == "unigram":
            vocabulary = dataclasses.replace(vocabulary, keeps_space=draw.random() < 0.5)
        try:
            tokenizer = open_tokenizer(vocabulary, special)
        except pb.UserError:
            # Tokens that claim one space.
            continue
        trial += 1
        folder = tmp_path / f"{trial}"
        folder.mkdir()
        for name, content in vocabulary.contents().items():
            (folder / name).write_bytes(content)
        (folder / "added.json").write_text(json.dumps([dataclasses.asdict(token) for token in vocabulary.added]))
        if vocabulary.keeps_space:
            (folder / "keeps_space").touch()
        texts = random_texts(draw, 150)
        if kind == "wordpiece":
            inputs, out = folder / "texts.jsonl", folder / "tokens.jsonl"
            inputs.write_text("".join(f"{json.dumps(text)}\n" for text in texts), encoding="ascii")
            options = [folder / "vocab.txt", *config.values(), special]
            java("org.pocketbert.tokenizer.TokenizeMain", *options, inputs, out)
            rows = [json.loads(line) for line in out.read_text("ascii").splitlines()]
        else:
            rows = roberta_texts.run(java, folder, folder, texts, special)
        columns = (tokenize_with_offset.to_list() for tokenize_with_offset in tokenizer.tokenize_with_offsets(texts))
        for text, row, expected in zip(texts, rows, zip(*columns, strict=True), strict=True):
            assert row == list(expected), (ascii(text), vocabulary.added, config, special)


@pytest.fixture(scope="module")
def bundles(vocabularies: dict[str, Vocabulary], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A network with one layer for each kind, with two added tokens."""
    folder = tmp_path_factory.mktemp("bundles")
    mood = TaskConfig(kind="classification", name="mood", labels=("bad", "fair", "good"))
    names = ("hidden_size", "embedding_size", "num_attention_heads", "head_size", "intermediate_size")
    sizes = {name: getattr(tiny.BERT, name) for name in (*names, "max_position_embeddings", "initializer_range")}
    presets = {"wordpiece": "bert_base_uncased", "byte_bpe": "roberta_base", "unigram": "xlm_r_base"}
    for kind, vocabulary in vocabularies.items():
        size = len(vocabulary.base_tokens())
        added = (
            pb.AddedToken(content="[E1]", id=size, normalized=True, lstrip=True),
            pb.AddedToken(content="[E2]", id=size + 1, single_word=True, special=True),
        )
        tokenizer = open_tokenizer(dataclasses.replace(vocabulary, added=added, keeps_space=kind == "unigram"))
        config = preset(presets[kind]).config.replace(vocab_size=tokenizer.vocab_size, num_layers=1, **sizes)
        pb.export(pb.from_preset(config, [mood], tokenizer, seed=5), folder / kind, recipe="float32", lengths=(9, 29))
    return {kind: folder / kind for kind in vocabularies}


def test_bundles_open_in_java(bundles: dict[str, Path], tmp_path: Path) -> None:
    for path in bundles.values():
        bundle = pb.Bundle.open(path)
        assert {token.content for token in bundle.vocabulary.added} == {"[E1]", "[E2]"}
        ids = {token.id for token in bundle.vocabulary.added}
        assert any(ids <= set(golden.inputs["input_word_ids"].ravel().tolist()) for golden in bundle.goldens)
    done = host(*bundles.values(), "--lengths=29", f"--output={tmp_path / 'result.json'}")
    assert done.returncode == 0, done.stdout + done.stderr


FAULTS = {
    "no_flag": (lambda tokens: [tokens[0], tokens[1] | {"single_word": False}], "have the tokenizer's ids"),
    "other_case": (lambda tokens: [tokens[0] | {"normalized": False}, tokens[1]], "have the tokenizer's ids"),
    "fewer": (lambda tokens: tokens[:1], "the vocab_size of bundle.json"),
    "empty": (lambda tokens: [tokens[0] | {"content": ""}, tokens[1]], "content must not be empty"),
    "far": (lambda tokens: [tokens[0], tokens[1] | {"id": 9999}], "id must be below"),
    "no_id": (lambda tokens: [{key: tokens[0][key] for key in tokens[0] if key != "id"}], "id must be a whole number"),
    "unknown": (lambda tokens: [tokens[0] | {"strip": True}, tokens[1]], "strip is unknown"),
}


def test_changed_bundles_are_refused(bundles: dict[str, Path], tmp_path: Path) -> None:
    for name, (change, words) in FAULTS.items():
        copy = Path(shutil.copytree(bundles["wordpiece"], tmp_path / name))
        tokenizer = bundle_folders.description_of(copy)["tokenizer"]
        tokens = change(tokenizer["added_tokens"])
        bundle_folders.describe_again(copy, tokenizer=tokenizer | {"added_tokens": tokens})
        if words.endswith("tokenizer's ids"):
            # The gate finds other flags.
            assert [check.name for check in verify_bundle(copy).failures] == ["tokenizer"]
        else:
            with pytest.raises(pb.UserError):
                pb.Bundle.open(copy)
    done = host(*(tmp_path / name for name in FAULTS))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    for name, (_, words) in FAULTS.items():
        sentence = done.stderr.partition(f"{tmp_path / name}")[2].split(str(tmp_path))[0]
        assert words in sentence, (name, sentence)
