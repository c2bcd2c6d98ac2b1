"""Every documented format of a model directory becomes a bundle."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path

import networks
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny_tokenizers import byte_bpe_files, unigram_file

import pocketbert as pb
from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.files import sha256
from pocketbert.presets import preset
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_runtime.embedding_config import EmbeddingConfig

WEIGHTS, KERAS = "model.safetensors", "tf_model.h5"
TEXTS = ["a film is good", "the dog walks badly , and the story ends !"]
LENGTHS = (13,)
# Google's BERT and Model Garden's have the tanh form of gelu only.
BERT = networks.bert_config(activation="gelu_tanh", pooler="tanh", num_attention_heads=4)
DISTILBERT = BERT.replace(model_type="distilbert", type_vocab_size=0, pooler="none", activation="gelu")
EMBEDDING = TaskConfig(kind="embedding", embedding=EmbeddingConfig(pooling="mean", dimensions=11))
RERANKER = TaskConfig(kind="regression", activation="sigmoid")
MODELS = {
    "classifier": (BERT, (networks.SENTIMENT,)),
    "distilbert": (DISTILBERT, (networks.SENTIMENT,)),
    "encoder": (BERT, ()),
    "embedding": (BERT.replace(pooler="none"), (EMBEDDING,)),
    "reranker": (BERT, (RERANKER,)),
}


def half_precision(folder: Path) -> None:
    stored = load_file(folder / WEIGHTS)
    save_file({name: tensor.astype(np.float16) for name, tensor in stored.items()}, folder / WEIGHTS, {"format": "pt"})


def shards(folder: Path) -> None:
    stored = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    places = {name: f"model-{number % 2 + 1:05}-of-00002.safetensors" for number, name in enumerate(sorted(stored))}
    for file in set(places.values()):
        save_file({name: stored[name] for name in stored if places[name] == file}, folder / file, {"format": "pt"})
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def spare_rows(folder: Path) -> None:
    """A table padded to a multiple of 64 rows."""
    content, stored = json.loads((folder / "config.json").read_text()), load_file(folder / WEIGHTS)
    name = "bert.embeddings.word_embeddings.weight"
    stored[name] = np.pad(stored[name], [(0, 64 - len(stored[name])), (0, 0)], constant_values=7)
    (folder / "config.json").write_text(json.dumps(content | {"vocab_size": 64}))
    save_file(stored, folder / WEIGHTS, {"format": "pt"})


def bare_names(folder: Path) -> None:
    stored = load_file(folder / WEIGHTS)
    save_file(
        {name.removeprefix("bert."): tensor for name, tensor in stored.items()}, folder / WEIGHTS, {"format": "pt"}
    )


def tensorflow(folder: Path, class_name: str, *, safetensors: bool) -> None:
    """The weights as a class of transformers' TensorFlow models saves them."""
    import transformers

    reference_model = getattr(transformers, class_name)(transformers.AutoConfig.from_pretrained(folder))
    load = transformers.modeling_tf_pytorch_utils.load_pytorch_state_dict_in_tf2_model
    reference_model = load(reference_model, load_file(folder / WEIGHTS))
    (folder / WEIGHTS).unlink()
    reference_model.save_pretrained(folder, safe_serialization=safetensors)


def tensorflow_1(folder: Path) -> None:
    """A checkpoint of Google's BERT, converted by the command."""
    import tensorflow as tf

    content = json.loads((folder / "config.json").read_text())
    google_folder = folder.with_name("google")
    google_folder.mkdir()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, array in load_file(folder / WEIGHTS).items():
            is_kernel = name.endswith("weight") and "LayerNorm" not in name and "_embeddings" not in name
            name = re.sub(r"\.layer\.(\d+)\.", r".layer_\1.", name).replace("LayerNorm.weight", "LayerNorm.gamma")
            name = name.replace("LayerNorm.bias", "LayerNorm.beta").replace("_embeddings.weight", "_embeddings")
            name = name.replace(".weight", ".kernel").replace(".", "/")
            tf.compat.v1.get_variable(name, initializer=array.T if is_kernel else array)
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, str(google_folder / "bert_model.ckpt"), write_meta_graph=False)
    config_names = (
        "hidden_size num_hidden_layers num_attention_heads intermediate_size max_position_embeddings type_vocab_size"
    )
    keys = {name: content[name] for name in f"vocab_size {config_names}".split()}
    (google_folder / "bert_config.json").write_text(json.dumps({**keys, "hidden_act": "gelu"}))
    (folder / "vocab.txt").rename(google_folder / "vocab.txt")
    convert(folder, "--from=tf1", f"--input={google_folder}")


def model_garden(folder: Path) -> None:
    """A checkpoint of tf-models-official, converted by the command."""
    name = folder.with_name("garden")
    assert cli.main(["convert", "--to=model-garden", f"--input={folder}", f"--output={name}"]) == 0
    convert(folder, "--from=model-garden", f"--input={name}")


def convert(folder: Path, *arguments: str) -> None:
    assert cli.main(["convert", *arguments, f"--output={folder}", "--overwrite"]) == 0


def own_folder(folder: Path, name: str, class_name: str) -> None:
    """The transformer's files in a folder, as sentence-transformers 0.2 and 1 saved them."""
    (folder / name).mkdir()
    for file in ("config.json", WEIGHTS, "vocab.txt", "tokenizer_config.json", "sentence_bert_config.json"):
        (folder / file).rename(folder / name / file)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0] |= {"path": name, "type": f"sentence_transformers.models.{class_name}"}
    (folder / "modules.json").write_text(json.dumps(modules))


def reranker_modules(folder: Path) -> None:
    """The files of a CrossEncoder of sentence-transformers 6."""
    content = json.loads((folder / "config.json").read_text())
    del content["sentence_transformers"]
    (folder / "config.json").write_text(json.dumps(content))
    kind = "sentence_transformers.base.modules.transformer.Transformer"
    (folder / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": kind}]))
    activation = {"activation_fn": "torch.nn.modules.activation.Sigmoid"}
    model = {"model_type": "CrossEncoder", "prompts": {}, "default_prompt_name": None, "__version__": {}, **activation}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(model))
    text = {"text": {"method": "forward", "method_output_name": "logits"}}
    sentence = {"transformer_task": "sequence-classification", "modality_config": text, "module_output_name": "scores"}
    (folder / "sentence_bert_config.json").write_text(json.dumps(sentence))


# Format → model, what makes its files from ours, and the weight files that the bundle names.
FORMATS: dict[str, tuple[str, Callable[[Path], None], set[str]]] = {
    "safetensors": ("classifier", lambda folder: None, {WEIGHTS}),
    "float16": ("classifier", half_precision, {WEIGHTS}),
    "shards": ("classifier", shards, {f"model-0000{number}-of-00002.safetensors" for number in (1, 2)}),
    "spare rows": ("classifier", spare_rows, {WEIGHTS}),
    "bare names": ("encoder", bare_names, {WEIGHTS}),
    "TensorFlow safetensors": (
        "classifier",
        functools.partial(tensorflow, class_name="TFBertForSequenceClassification", safetensors=True),
        {WEIGHTS},
    ),
    "tf_model.h5": (
        "classifier",
        functools.partial(tensorflow, class_name="TFBertForSequenceClassification", safetensors=False),
        {KERAS},
    ),
    "tf_model.h5 of DistilBERT": (
        "distilbert",
        functools.partial(tensorflow, class_name="TFDistilBertForSequenceClassification", safetensors=False),
        {KERAS},
    ),
    "TensorFlow 1": ("encoder", tensorflow_1, {WEIGHTS}),
    "Model Garden": ("encoder", model_garden, {WEIGHTS}),
    "sentence-transformers": ("embedding", lambda folder: None, {WEIGHTS, f"2_Dense/{WEIGHTS}"}),
    "0_Transformer": (
        "embedding",
        functools.partial(own_folder, name="0_Transformer", class_name="Transformer"),
        {f"0_Transformer/{WEIGHTS}", f"2_Dense/{WEIGHTS}"},
    ),
    "0_BERT": (
        "embedding",
        functools.partial(own_folder, name="0_BERT", class_name="BERT"),
        {f"0_BERT/{WEIGHTS}", f"2_Dense/{WEIGHTS}"},
    ),
    "reranker": ("reranker", lambda folder: None, {WEIGHTS}),
    "reranker with modules.json": ("reranker", reranker_modules, {WEIGHTS}),
}


@pytest.mark.one_of_each("shards", "0_Transformer")
@pytest.mark.parametrize("name", FORMATS)
def test_format_becomes_a_bundle(name: str, tmp_path: Path) -> None:
    kind, change, sources = FORMATS[name]
    folder = tmp_path / "model"
    model = networks.network(*MODELS[kind], pb.WordPieceTokenizer(networks.vocabulary(tmp_path)))
    expected = model(model.tokenizer(TEXTS, max_length=13, pad_to=13))
    model.save_pretrained(folder)
    change(folder)
    bundle = pb.export(folder, tmp_path / "bundle", recipe="float32", lengths=LENGTHS)
    assert bundle.source == {name: sha256(folder / name) for name in sources}
    one = {name: tensor[:1].numpy() for name, tensor in model.tokenizer(TEXTS, max_length=13, pad_to=13).items()}
    for output, values in bundle.run(one).items():
        # Two float32 implementations of one layer, and float16's rounding of weights.
        tolerance = 2e-2 if name == "float16" else 2e-5
        np.testing.assert_allclose(values, expected[output][:1], rtol=0, atol=tolerance, err_msg=output)


@pytest.mark.nightly
def test_bert_with_unigram_becomes_a_bundle(tmp_path: Path) -> None:
    """Multilingual MiniLM and E5: XLM-R's tokenizer, and 0 for the padding id."""
    tokenizer = pb.UnigramTokenizer(unigram_file(tmp_path))
    config = BERT.replace(vocab_size=tokenizer.vocab_size, pad_token_id=0)
    networks.network(config, (networks.SENTIMENT,), tokenizer).save_pretrained(tmp_path / "model")
    bundle = pb.export(tmp_path / "model", tmp_path / "bundle", recipe="float32", lengths=LENGTHS)
    texts = ["the cat sat", "中文 Привет"]
    model = pb.from_pretrained(tmp_path / "model")
    for one, other in zip(bundle.predict(texts), model.predict(texts), strict=True):
        np.testing.assert_allclose([*one["probabilities"].values()], [*other["probabilities"].values()], atol=2e-5)


@pytest.mark.nightly
def test_prefix_space_is_in_the_bundle(tmp_path: Path) -> None:
    """RoBERTa for NER: a space in front of the first word."""
    tokenizer = pb.ByteBPETokenizer(*byte_bpe_files(tmp_path), add_prefix_space=True)
    config = preset("roberta_base").config
    names = ("hidden_size", "embedding_size", "num_layers", "num_attention_heads", "head_size", "intermediate_size")
    changes = {name: getattr(BERT, name) for name in (*names, "max_position_embeddings")}
    task = TaskConfig(kind="token_classification", labels=("O", "B-X", "I-X"))
    network = networks.network(config.replace(vocab_size=tokenizer.vocab_size, **changes), (task,), tokenizer)
    network.save_pretrained(tmp_path / "model")
    bundle = pb.export(tmp_path / "model", tmp_path / "bundle", recipe="float32", lengths=LENGTHS)
    assert json.loads((tmp_path / "bundle/bundle.json").read_text())["tokenizer"]["add_prefix_space"] is True
    texts = ["the cat sat", " the cat"]
    rows = Bundle.open(tmp_path / "bundle").tokenizer.tokenize(texts).to_list()
    without = pb.ByteBPETokenizer(*tokenizer.vocabulary.files)
    assert rows == tokenizer.tokenize(texts).to_list() != without.tokenize(texts).to_list()
    model = pb.from_pretrained(tmp_path / "model")
    places = [
        [[(span["label"], span["start"], span["end"]) for span in answer["spans"]] for answer in opened.predict(texts)]
        for opened in (bundle, model)
    ]
    assert places[0] == places[1] and any(places[0])
