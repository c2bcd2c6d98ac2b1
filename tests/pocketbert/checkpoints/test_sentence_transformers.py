"""Directories of sentence-transformers against the documented arithmetic on transformers' TF classes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_finetuning
from safetensors.numpy import load_file, save_file

import pocketbert as pb
from pocketbert.checkpoints.directory import describe_directory
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert_runtime.embedding_config import EmbeddingConfig

TEXTS = ["a lovely warm film", "the plot and the story of an actor scene", "dull"]
WIDTH, OUTPUTS = tiny_finetuning.CONFIG.hidden_size, 11
FLAGS = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens", "max": "pooling_mode_max_tokens"}


# Documented by torch; its GELU is exact.
ACTIVATIONS: dict[str, Any] = {
    "torch.nn.modules.activation.Tanh": np.tanh,
    "torch.nn.modules.activation.GELU": np.vectorize(lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2),
    "torch.nn.modules.linear.Identity": lambda x: x,
}


def write_sentence_transformer(
    folder: Path, pooling: str, *, dense: bool, normalize: bool, outputs: int = OUTPUTS, **sentence: Any
) -> Path:
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
        content = {"in_features": WIDTH, "out_features": outputs, "bias": True}
        write(folder / "2_Dense/config.json", {**content, "activation_function": "torch.nn.modules.activation.Tanh"})
        random = np.random.default_rng(2)
        weights = {"linear.weight": random.normal(size=(outputs, WIDTH)), "linear.bias": random.normal(size=outputs)}
        save_file(
            {name: weight.astype(np.float32) for name, weight in weights.items()}, folder / "2_Dense/model.safetensors"
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
    encoded = tokenizer(TEXTS, padding=True, truncation=True, max_length=9, return_tensors="np")
    tokens = network(encoded).last_hidden_state.numpy()
    mask = encoded["attention_mask"][:, :, None].astype(np.float32)
    if pooling == "mean":
        vectors = np.sum(tokens * mask, 1) / np.clip(mask.sum(1), 1e-9, None)
    else:
        vectors = tokens[:, 0] if pooling == "cls" else np.where(mask == 0, -1e9, tokens).max(1)
    if dense:
        weights = load_file(folder / "2_Dense/model.safetensors")
        inputs = vectors
        content = json.loads((folder / "2_Dense/config.json").read_text())
        activate = ACTIVATIONS[content["activation_function"]]
        vectors = activate(inputs @ weights["linear.weight"].T + weights["linear.bias"])
        if content.get("use_residual"):
            # sentence-transformers 6.2: another map without a bias, if the widths differ.
            vectors += inputs @ weights["residual.weight"].T if "residual.weight" in weights else inputs
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if normalize else vectors


def embed(model: pb.Model) -> np.ndarray:
    return np.array([answer["embedding"] for answer in model.predict(TEXTS)])


@pytest.mark.one_of_each("mean-False-True", "cls-False-False", "max-True-True")
@pytest.mark.usefixtures("eager")
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


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("activation", ["torch.nn.modules.activation.GELU", "torch.nn.modules.linear.Identity"])
def test_dense_layer_has_its_activation(tmp_path: Path, activation: str) -> None:
    folder = write_sentence_transformer(tmp_path / "model", "mean", dense=True, normalize=False)
    path = folder / "2_Dense/config.json"
    write(path, {**json.loads(path.read_text()), "activation_function": activation})
    expected = documented_vectors(folder, "mean", dense=True, normalize=False)
    model = pb.from_pretrained(folder)
    np.testing.assert_allclose(embed(model), expected, rtol=0, atol=1e-5)
    model.save_pretrained(tmp_path / "saved")
    assert json.loads((tmp_path / "saved/2_Dense/config.json").read_text())["activation_function"] == activation


@pytest.mark.usefixtures("eager")
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
    prompted = np.array([answer["embedding"] for answer in plain.predict([f"story: {text}" for text in TEXTS])])
    np.testing.assert_allclose(embed(again), prompted, atol=1e-6)


@pytest.mark.usefixtures("eager")
def test_sequence_length_truncates(tmp_path: Path) -> None:
    folder = write_sentence_transformer(tmp_path / "model", "mean", dense=False, normalize=True)
    long, cut = ("a film " * 9, "a film a film a film a")
    first, second = (answer["embedding"] for answer in pb.from_pretrained(folder).predict([long, cut]))
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


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("outputs", [WIDTH, OUTPUTS])
def test_dense_layer_adds_its_input(tmp_path: Path, outputs: int) -> None:
    folder = write_sentence_transformer(tmp_path / "model", "cls", dense=True, normalize=False, outputs=outputs)
    content = json.loads((folder / "2_Dense/config.json").read_text())
    names = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}
    write(folder / "2_Dense/config.json", {**content, **names, "use_residual": True})
    if outputs != WIDTH:
        with pytest.raises(UserError, match="2_Dense must have the tensors .*residual.weight"):
            pb.from_pretrained(folder)
        residual = np.random.default_rng(6).normal(size=(outputs, WIDTH)).astype(np.float32)
        weights = load_file(folder / "2_Dense/model.safetensors") | {"residual.weight": residual}
        save_file(weights, folder / "2_Dense/model.safetensors")
    expected = documented_vectors(folder, "cls", dense=True, normalize=False)
    model = pb.from_pretrained(folder)
    np.testing.assert_allclose(embed(model), expected, rtol=0, atol=1e-5)
    model.save_pretrained(tmp_path / "saved")
    np.testing.assert_array_equal(embed(pb.from_pretrained(tmp_path / "saved")), embed(model))
    saved = documented_vectors(tmp_path / "saved", "cls", dense=True, normalize=False)
    np.testing.assert_allclose(saved, expected, rtol=0, atol=1e-6)


LIMITS = pytest.mark.parametrize(
    ("module", "tokenizer", "expected"),
    [
        (None, {"model_max_length": 5}, 5),
        (9, {"model_max_length": 5}, 5),
        (6, {"model_max_length": 11}, 6),
        # transformers 2 wrote max_len; an unlimited tokenizer has 10**30.
        (None, {"max_len": 7}, 7),
        (8, {"model_max_length": 10**30}, 8),
        (8, {}, 8),
        (None, {"model_max_length": 512}, None),
        (None, {"model_max_length": 1e30}, None),
        (300, {"model_max_length": 512}, None),
        (None, {}, None),
    ],
)


def write_limits(folder: Path, module: int | None, tokenizer: dict[str, Any]) -> Path:
    write_sentence_transformer(folder, "mean", dense=False, normalize=True, max_seq_length=module)
    write(folder / "tokenizer_config.json", {"do_lower_case": True, **tokenizer})
    return folder


@LIMITS
def test_smallest_limit_counts(
    tmp_path: Path, module: int | None, tokenizer: dict[str, Any], expected: int | None
) -> None:
    (task,) = describe_directory(write_limits(tmp_path / "model", module, tokenizer)).tasks
    assert task.embedding is not None and task.embedding.max_length == expected


@pytest.mark.one_of_each("9-tokenizer1-5", "None-tokenizer7-None")
@pytest.mark.usefixtures("eager")
@LIMITS
def test_smallest_limit_truncates(
    tmp_path: Path, module: int | None, tokenizer: dict[str, Any], expected: int | None
) -> None:
    model = pb.from_pretrained(write_limits(tmp_path / "model", module, tokenizer))
    assert model.task.embedding.max_length == expected
    # None: all positions of the encoder.
    length = expected or tiny_finetuning.CONFIG.max_position_embeddings
    words = ("a film the plot " * 9).split()
    same, shorter = (" ".join(words[:count]) for count in (length - 2, length - 3))
    whole, cut, other = (np.array(answer["embedding"]) for answer in model.predict([" ".join(words), same, shorter]))
    np.testing.assert_allclose(whole, cut, atol=1e-6)
    assert np.abs(whole - other).max() > 1e-3
    model.save_pretrained(tmp_path / "saved")
    assert pb.from_pretrained(tmp_path / "saved").task == model.task


@pytest.mark.nightly
def test_bundle_records_the_tokenizers_limit(tmp_path: Path) -> None:
    folder = write_sentence_transformer(tmp_path / "model", "mean", dense=False, normalize=True, max_seq_length=None)
    write(folder / "tokenizer_config.json", {"do_lower_case": True, "model_max_length": 5})
    bundle = pb.export(folder, tmp_path / "bundle", recipe="float32", lengths=(5, 11))
    assert json.loads((tmp_path / "bundle/bundle.json").read_text())["task"]["embedding"]["max_length"] == 5
    long, cut = (answer["embedding"] for answer in bundle.predict(["a film the plot a film", "a film the"]))
    np.testing.assert_allclose(long, cut, atol=1e-6)


@pytest.mark.one_of_each("sentence_bert_config.json-0_Transformer", "sentence_distilbert_config.json-0_BERT")
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", ["0_Transformer", "0_BERT"])
@pytest.mark.parametrize("sentence", ["sentence_bert_config.json", "sentence_distilbert_config.json"])
def test_old_layouts_give_equal_vectors(tmp_path: Path, name: str, sentence: str) -> None:
    folder = write_sentence_transformer(tmp_path / "model", "mean", dense=True, normalize=True)
    expected = pb.from_pretrained(folder)
    vectors = embed(expected)
    (folder / name).mkdir()
    for file in ("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json", "sentence_bert_config.json"):
        (folder / file).rename(folder / name / file)
    (folder / name / "sentence_bert_config.json").rename(folder / name / sentence)
    # Version 1 writes its own version there.
    write(folder / "config.json", {"__version__": "1.2.1"})
    modules = json.loads((folder / "modules.json").read_text())
    modules[0] |= {"path": name, "type": f"sentence_transformers.models.{name[2:]}"}
    write(folder / "modules.json", modules)
    model = pb.from_pretrained(folder)
    assert model.task == expected.task
    np.testing.assert_array_equal(embed(model), vectors)
    assert pb.from_pretrained(folder, headless=True).tokenizer is not None


def test_run_from_old_layout_knows_its_files(tmp_path: Path) -> None:
    """Training identifies a model by all its files, wherever they are."""
    from pocketbert.distillation.teacher_cache_identity import teacher_digest
    from pocketbert.training.state import digest_directory

    folder = write_sentence_transformer(tmp_path / "model", "mean", dense=True, normalize=True)
    for digest, file in ((teacher_digest, "2_Dense/model.safetensors"), (digest_directory, "1_Pooling/config.json")):
        before, content = digest(folder), (folder / file).read_bytes()
        (folder / file).write_bytes(content + b" ")
        assert digest(folder) != before
        (folder / file).write_bytes(content)
        assert digest(folder) == before


@pytest.mark.parametrize(
    ("file", "keys", "message"),
    [
        ("modules.json", {"kwargs": ["task"]}, r"kwargs must be \[\]; received \['task'\]"),
        ("modules.json", {"weight": 2}, "key 'weight' is unknown"),
        ("modules.json", {"path": 3}, "path must be of type str; received 3"),
        ("modules.json", {"path": "n" * 300}, "the path of a module must be a folder beside modules.json"),
        (
            "config_sentence_transformers.json",
            {"scale": 2},
            "config_sentence_transformers.json: key 'scale' is unknown",
        ),
        ("config_sentence_transformers.json", {"truncate_dim": 7}, "truncate_dim must be None; received 7"),
        ("config_sentence_transformers.json", {"prompts": ["a"]}, "prompts must be of type dict"),
        (
            "config_sentence_transformers.json",
            {"model_type": "SparseEncoder"},
            "model_type must be SentenceTransformer",
        ),
        ("sentence_bert_config.json", {"stride": 2}, "sentence_bert_config.json: key 'stride' is unknown"),
        ("sentence_bert_config.json", {"do_lower_case": "no"}, "do_lower_case must be of type bool; received 'no'"),
        ("sentence_bert_config.json", {"query_length": 5}, "query_length must be None; received 5"),
        (
            "sentence_bert_config.json",
            {"transformer_task": "fill-mask"},
            "must be 'feature-extraction'; received 'fill",
        ),
        ("sentence_bert_config.json", {"processing_kwargs": {"text": {"max_length": 3}}}, "processing_kwargs must be"),
        ("sentence_bert_config.json", {"config_args": {"hidden_act": "relu"}}, "config_args must be {}; received"),
        (
            "sentence_bert_config.json",
            {"module_output_name": "scores"},
            "module_output_name must be 'token_embeddings'",
        ),
        (
            "sentence_bert_config.json",
            {"modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}}},
            "modality_config.text must be",
        ),
        ("1_Pooling/config.json", {"pooling_mode_sum_tokens": True}, "1_Pooling/config.json: key 'pooling_mode_sum"),
        ("1_Pooling/config.json", {FLAGS["mean"]: 1}, "pooling_mode_mean_tokens must be of type bool; received 1"),
        ("1_Pooling/config.json", {"include_prompt": "no"}, "include_prompt must be of type bool; received 'no'"),
        ("1_Pooling/config.json", {"embedding_dimension": 7}, "must be equal; received 7 and"),
        ("1_Pooling/config.json", {"pooling_mode": ["mean", "cls"]}, "received mean and cls"),
        ("2_Dense/config.json", {"dropout": 0.1}, "2_Dense/config.json: key 'dropout' is unknown"),
        ("2_Dense/config.json", {"bias": "yes"}, "bias must be of type bool; received 'yes'"),
        ("2_Dense/config.json", {"out_features": 11.0}, "out_features must be of type int; received 11.0"),
        ("2_Dense/config.json", {"module_input_name": "token_embeddings"}, "module_input_name must be 'sentence_embed"),
        ("3_Normalize/config.json", {"p": 1}, "3_Normalize/config.json: key 'p' is unknown"),
        (
            "3_Normalize/config.json",
            {"module_input_name": "token_embeddings"},
            "module_input_name must be 'sentence_em",
        ),
        ("tokenizer_config.json", {"model_max_length": "9"}, "model_max_length must be a number; received '9'"),
    ],
)
def test_keys_that_change_vectors_are_named(tmp_path: Path, file: str, keys: dict[str, Any], message: str) -> None:
    folder = write_sentence_transformer(tmp_path / "model", "mean", dense=True, normalize=True)
    path = folder / file
    content = json.loads(path.read_text()) if path.exists() else {}
    write(path, [content[0] | keys, *content[1:]] if isinstance(content, list) else content | keys)
    with pytest.raises(UserError, match=message):
        pb.from_pretrained(folder)


@pytest.mark.usefixtures("eager")
def test_keys_without_effect_are_accepted(tmp_path: Path) -> None:
    folder = write_sentence_transformer(tmp_path / "model", "mean", dense=True, normalize=True)
    vectors = embed(pb.from_pretrained(folder))
    text = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
    added = {
        "config_sentence_transformers.json": {
            "__version__": {"pytorch": "2.6.0"}, "model_type": "SentenceTransformer", "similarity_fn_name": None,
            "truncate_dim": None, "prompts": {"query": "", "document": ""}, "default_prompt_name": None,
        },
        "sentence_bert_config.json": {
            "transformer_task": "feature-extraction", "modality_config": text, "module_output_name": "token_embeddings",
            "unpad_inputs": True, "model_args": {}, "config_args": {"trust_remote_code": True}, "query_length": None,
        },
        "1_Pooling/config.json": {"embedding_dimension": WIDTH, "include_prompt": True, "pooling_mode": "mean"},
        "2_Dense/config.json": {"module_input_name": "sentence_embedding", "use_residual": False},
        "3_Normalize/config.json": {"module_output_name": "sentence_embedding"},
    }  # fmt: skip
    for file, keys in added.items():
        content = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
        write(folder / file, content | keys)
    np.testing.assert_array_equal(embed(pb.from_pretrained(folder)), vectors)


def test_other_similarity_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_sentence_transformer(tmp_path / "model", "mean", dense=False, normalize=False)
    write(folder / "config_sentence_transformers.json", {"similarity_fn_name": "dot"})
    pb.from_pretrained(folder)
    assert "similarity_fn_name is dot; similarities here are cosines" in capsys.readouterr().err


def test_dense_layer_of_torch_names_the_library(tmp_path: Path) -> None:
    folder = write_sentence_transformer(tmp_path / "model", "mean", dense=True, normalize=False)
    (folder / "2_Dense/model.safetensors").rename(folder / "2_Dense/pytorch_model.bin")
    with pytest.raises(UserError, match="it has pytorch_model.bin: load and save it with sentence-transformers"):
        pb.from_pretrained(folder)


@pytest.mark.usefixtures("eager")
@pytest.mark.data
def test_minilm_matches_its_golden(minilm_directory: Path, goldens: Path) -> None:
    golden = np.load(goldens / "all_minilm_l6_v2.npz")
    model = pb.from_pretrained(
        minilm_directory, task=TaskConfig(kind="embedding", embedding=EmbeddingConfig(max_length=64))
    )
    vectors = np.array([answer["embedding"] for answer in model.predict(golden["sentences"].tolist())])
    expected = golden["mean_pooled"] / np.linalg.norm(golden["mean_pooled"], axis=-1, keepdims=True)
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
