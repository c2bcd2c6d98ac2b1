"""Directories of sentence-transformers against the documented arithmetic on transformers' TF classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_finetuning
from safetensors.numpy import save_file

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.embedding_config import EmbeddingConfig
from pocketbert.errors import UserError

TEXTS = ["a lovely warm film", "the plot and the story of an actor scene", "dull"]
WIDTH, OUTPUTS = tiny_finetuning.CONFIG.hidden_size, 11
FLAGS = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens", "max": "pooling_mode_max_tokens"}


def write_sentence_transformer(folder: Path, pooling: str, *, dense: bool, normalize: bool, **sentence: Any) -> Path:
    """A directory as sentence-transformers 2.0 writes it, around a tiny BERT."""
    tiny_finetuning.write_model(folder)
    kinds = ["Transformer", "Pooling"] + ["Dense"] * dense + ["Normalize"] * normalize
    modules = []
    for index, kind in enumerate(kinds):
        path = f"{index}_{kind}" if index else ""
        (folder / path).mkdir(exist_ok=True)
        modules.append({"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"})
    write(folder / "modules.json", modules)
    flags = {flag: mode == pooling for mode, flag in FLAGS.items()}
    write(folder / "1_Pooling/config.json", {"word_embedding_dimension": WIDTH, **flags})
    write(folder / "sentence_bert_config.json", {"max_seq_length": 9, "do_lower_case": False, **sentence})
    if dense:
        content = {"in_features": WIDTH, "out_features": OUTPUTS, "bias": True}
        write(folder / "2_Dense/config.json", {**content, "activation_function": "torch.nn.modules.activation.Tanh"})
        random = np.random.default_rng(2)
        weights = {"linear.weight": random.normal(size=(OUTPUTS, WIDTH)), "linear.bias": random.normal(size=OUTPUTS)}
        save_file(
            {name: each.astype(np.float32) for name, each in weights.items()}, folder / "2_Dense/model.safetensors"
        )
    return folder


def write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def documented_vectors(folder: Path, pooling: str, *, dense: bool, normalize: bool) -> np.ndarray:
    """The arithmetic in sbert.net's model cards, on transformers' TensorFlow class."""
    import transformers
    from safetensors.numpy import load_file

    # Their `from_pretrained` cannot load a PyTorch-named safetensors file into a TensorFlow class.
    network = transformers.TFBertModel(transformers.AutoConfig.from_pretrained(folder))
    stored = load_file(folder / "model.safetensors")
    load = transformers.modeling_tf_pytorch_utils.load_pytorch_state_dict_in_tf2_model
    network = load(network, stored, tf_inputs=network.dummy_inputs)
    tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    given = tokenizer(TEXTS, padding=True, truncation=True, max_length=9, return_tensors="np")
    tokens = network(given).last_hidden_state.numpy()
    mask = given["attention_mask"][:, :, None].astype(np.float32)
    if pooling == "mean":
        vectors = np.sum(tokens * mask, 1) / np.clip(mask.sum(1), 1e-9, None)
    else:
        vectors = tokens[:, 0] if pooling == "cls" else np.where(mask == 0, -1e9, tokens).max(1)
    if dense:
        weights = load_file(folder / "2_Dense/model.safetensors")
        vectors = np.tanh(vectors @ weights["linear.weight"].T + weights["linear.bias"])
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if normalize else vectors


def embed(model: pb.Model) -> np.ndarray:
    return np.array([each["embedding"] for each in model.predict(TEXTS)])


@pytest.mark.parametrize(
    ("pooling", "dense", "normalize"),
    [("mean", False, True), ("cls", False, False), ("max", False, True), ("mean", True, False), ("max", True, True)],
)
def test_vectors_match_documented_arithmetic(tmp_path: Path, pooling: str, dense: bool, normalize: bool) -> None:
    folder = write_sentence_transformer(tmp_path / "model", pooling, dense=dense, normalize=normalize)
    expected = documented_vectors(folder, pooling, dense=dense, normalize=normalize)
    model = pb.from_pretrained(folder)
    np.testing.assert_allclose(embed(model), expected, rtol=0, atol=1e-5)
    model.save_pretrained(tmp_path / "saved")
    again = pb.from_pretrained(tmp_path / "saved")
    assert again.task == model.task
    np.testing.assert_array_equal(embed(again), embed(model))
    # A saved directory is one of sentence-transformers again.
    saved = documented_vectors(tmp_path / "saved", pooling, dense=dense, normalize=normalize)
    np.testing.assert_allclose(saved, expected, rtol=0, atol=1e-6)


def test_prompts_and_name_survive_saving(tmp_path: Path) -> None:
    prompts = (("query", "story: "), ("passage", "film: "))
    embedding = EmbeddingConfig(pooling="cls", max_length=20, prompts=prompts, default_prompt="query")
    task = TaskConfig(kind="embedding", name="films", embedding=embedding)
    start = tiny_finetuning.write_model(tmp_path / "model")
    model = pb.from_pretrained(start, task=task)
    model.save_pretrained(tmp_path / "saved")
    again = pb.from_pretrained(tmp_path / "saved")
    assert again.task == task
    # The default prompt precedes each text.
    plain = pb.from_pretrained(start, task=TaskConfig(kind="embedding", embedding=EmbeddingConfig(pooling="cls")))
    prompted = np.array([each["embedding"] for each in plain.predict([f"story: {text}" for text in TEXTS])])
    np.testing.assert_allclose(embed(again), prompted, atol=1e-6)


def test_sequence_length_truncates(tmp_path: Path) -> None:
    folder = write_sentence_transformer(tmp_path / "model", "mean", dense=False, normalize=True)
    long, cut = ("a film " * 9, "a film a film a film a")
    first, second = (each["embedding"] for each in pb.from_pretrained(folder).predict([long, cut]))
    np.testing.assert_allclose(first, second, atol=1e-6)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("modules.json", [{"path": "", "type": "sentence_transformers.models.CLIPModel"}], "received .*CLIPModel"),
        ("modules.json", [{"path": "", "type": "sentence_transformers.models.Pooling"}], "must be Transformer, Pool"),
        ("modules.json", [{"path": "../x", "type": "sentence_transformers.models.Dense"}], r"received '\.\./x'"),
        ("modules.json", {}, "must be a list of objects"),
        ("1_Pooling/config.json", {"pooling_mode_weightedmean_tokens": True}, "mean, cls, max; .*weightedmean"),
        ("1_Pooling/config.json", {FLAGS["mean"]: True, FLAGS["max"]: True}, "received mean and max"),
        ("1_Pooling/config.json", {FLAGS["mean"]: True, "word_embedding_dimension": 4}, "pooling's width, 4; received"),
        ("2_Dense/config.json", {"in_features": WIDTH, "activation_function": "torch.Sin"}, "received 'torch.Sin'"),
        ("2_Dense/config.json", {"in_features": WIDTH, "out_features": 7}, "must have the tensors"),
        ("config_sentence_transformers.json", {"default_prompt_name": "q"}, "must be one of no prompts; received 'q'"),
        ("sentence_bert_config.json", {"max_seq_length": "9"}, "max_seq_length must be of type int"),
    ],
)
def test_unknown_parts_are_one_line(tmp_path: Path, file: str, change: Any, message: str) -> None:
    folder = write_sentence_transformer(tmp_path / "model", "mean", dense=True, normalize=True)
    write(folder / file, change)
    with pytest.raises(UserError, match=message) as caught:
        pb.from_pretrained(folder)
    assert "\n" not in str(caught.value) and str(folder) in str(caught.value)


def test_other_task_replaces_the_modules(tmp_path: Path) -> None:
    folder = write_sentence_transformer(tmp_path / "model", "mean", dense=True, normalize=True)
    model = pb.from_pretrained(folder, task=tiny_finetuning.TASK)
    assert set(model(tiny.batch(tiny_finetuning.CONFIG))) == {"logits"}


def test_embedding_ignores_padding(tmp_path: Path) -> None:
    folder = write_sentence_transformer(tmp_path / "model", "max", dense=False, normalize=False)
    model = pb.from_pretrained(folder)
    short, padded = (tiny.batch(tiny_finetuning.CONFIG, length=length) for length in (7, 13))
    np.testing.assert_allclose(model(short)["embedding"], model(padded)["embedding"], atol=2e-6)
    assert model(short)["embedding"].dtype == tf.float32


@pytest.mark.data
def test_minilm_matches_its_golden(minilm_directory: Path, goldens: Path) -> None:
    golden = np.load(goldens / "all_minilm_l6_v2.npz")
    model = pb.from_pretrained(
        minilm_directory, task=TaskConfig(kind="embedding", embedding=EmbeddingConfig(max_length=64))
    )
    found = np.array([each["embedding"] for each in model.predict(golden["sentences"].tolist())])
    expected = golden["mean_pooled"] / np.linalg.norm(golden["mean_pooled"], axis=-1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
