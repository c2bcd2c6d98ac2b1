"""Bundles with byte-level BPE and unigram tokenizers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import golden_checks
import networks
import numpy as np
import pytest
from tiny_tokenizers import byte_bpe_files, unigram_file

import pocketbert as pb
from pocketbert.errors import UserError
from pocketbert.files import sha256
from pocketbert.presets import preset
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.verification.verify import verify_bundle

LENGTHS = (9, 21)
TEXTS = ["a charming journey", "cafe\u0301 ½  the cats </s>", "中文 ☃☃ Привет"]
FILES = {"byte_bpe": ("vocab.json", "merges.txt"), "unigram": ("sentencepiece.bpe.model",)}


@pytest.fixture(scope="module", params=["byte_bpe", "unigram"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Kind, and a folder with a model directory and its bundle."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "byte_bpe":
        tokenizer, name = pb.ByteBPETokenizer(*byte_bpe_files(folder)), "roberta_base"
    else:
        tokenizer, name = pb.UnigramTokenizer(unigram_file(folder)), "xlm_r_base"
    sizes = networks.bert_config(vocab_size=tokenizer.vocab_size, num_layers=1)
    names = ("vocab_size", "hidden_size", "embedding_size", "num_layers", "num_attention_heads", "head_size")
    changes = {field: getattr(sizes, field) for field in (*names, "intermediate_size", "max_position_embeddings")}
    config = preset(name).config.replace(**changes)
    networks.network(config, tokenizer=tokenizer).save_pretrained(folder / "model")
    pb.export(folder / "model", folder / "bundle", recipe="float32", lengths=LENGTHS)
    return request.param, folder


def test_bundle_has_the_tokenizer(made: tuple[str, Path]) -> None:
    kind, folder = made
    description = json.loads((folder / "bundle" / "bundle.json").read_text())
    assert description["schema_version"] == 4 and description["tokenizer"]["kind"] == kind
    for name in FILES[kind]:
        assert (folder / "bundle" / name).read_bytes() == (folder / "model" / name).read_bytes()
    bundle, model = Bundle.open(folder / "bundle"), pb.from_pretrained(folder / "model")
    assert type(bundle.tokenizer) is type(model.tokenizer)
    answers, expected = bundle.predict(TEXTS), model.predict(TEXTS)
    for one, other in zip(answers, expected, strict=True):
        assert one["label"] == other["label"]
        # Two float32 implementations of a network with one layer.
        np.testing.assert_allclose([*one["probabilities"].values()], [*other["probabilities"].values()], atol=2e-5)
    lines = golden_checks.check_golden_answers(folder / "bundle", model)
    assert not any("type_ids" in window for line in lines for window in line["windows"])


def test_verification_compares_the_tokens(made: tuple[str, Path], tmp_path: Path) -> None:
    kind, folder = made
    assert verify_bundle(folder / "bundle", reference=pb.from_pretrained(folder / "model")).passed
    other = tmp_path / "model"
    if kind == "byte_bpe":
        # Two merges change places.
        shutil.copytree(folder / "model", other)
        lines = (other / "merges.txt").read_text("utf-8").splitlines()
        lines[1], lines[2] = lines[2], lines[1]
        (other / "merges.txt").write_text("\n".join(lines) + "\n", "utf-8")
        verification = verify_bundle(folder / "bundle", reference=pb.from_pretrained(other))
        failed = [check.name for check in verification.checks if not check.passed]
        assert failed == ["tokenizer"]


def test_modified_files_do_not_open(made: tuple[str, Path], tmp_path: Path) -> None:
    kind, folder = made
    for name in FILES[kind]:
        copy = Path(shutil.copytree(folder / "bundle", tmp_path / name))
        content = bytearray((copy / name).read_bytes())
        content[len(content) // 2] ^= 1
        (copy / name).write_bytes(content)
        with pytest.raises(UserError, match=f"{name} must have the sha256"):
            Bundle.open(copy)
        (copy / name).unlink()
        with pytest.raises(UserError, match=f"{name} must be there; it is missing"):
            Bundle.open(copy)


def test_description_must_match_the_files(made: tuple[str, Path], tmp_path: Path) -> None:
    kind, folder = made
    for change, message in (
        ({"kind": "sentences"}, "'sentences' is not one of"),
        ({"vocab_size": 3}, r"must have 3 tokens, the vocab_size of bundle.json; it has \d+"),
        ({"kind": "unigram" if kind == "byte_bpe" else "byte_bpe"}, "must be listed among the files"),
        ({"lowercase": True}, "'lowercase' was unexpected"),
    ):
        copy = Path(shutil.copytree(folder / "bundle", tmp_path / "copy", dirs_exist_ok=True))
        description = json.loads((copy / "bundle.json").read_text())
        description["tokenizer"] |= change
        (copy / "bundle.json").write_text(json.dumps(description))
        with pytest.raises(UserError, match=message):
            Bundle.open(copy)


def test_broken_file_with_its_digest_does_not_open(made: tuple[str, Path], tmp_path: Path) -> None:
    kind, folder = made
    copy = Path(shutil.copytree(folder / "bundle", tmp_path / "copy"))
    file = copy / FILES[kind][0]
    file.write_bytes(file.read_bytes()[:-20])
    description = json.loads((copy / "bundle.json").read_text())
    description["files"][file.name] = {"sha256": sha256(file), "size_bytes": file.stat().st_size}
    (copy / "bundle.json").write_text(json.dumps(description))
    with pytest.raises(UserError, match="JSON|protocol buffer"):
        Bundle.open(copy)
