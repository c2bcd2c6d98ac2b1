import json
import shutil

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import tiny_finetuning
from safetensors.numpy import load_file, save_file
from tiny_models import (
    SENTIMENT,
    edit_config,
    edit_tensors,
    random_tensors,
    tiny_bert,
    tiny_mobilebert,
    tiny_roberta,
    tiny_xlm_roberta,
)

import pocketbert as pb
from pocketbert.checkpoints.directory import read_directory, write_directory
from pocketbert.checkpoints.name_maps import tensor_specs
from pocketbert.configs import TaskConfig, TokenizerConfig
from pocketbert.errors import UserError
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

CASES = "bert_classifier bert_gelu bert_relu bert_span mobilebert mobilebert_layernorm_gelu mobilebert_tiny roberta"


@pytest.mark.parametrize("case", CASES.split())
def test_what_transformers_wrote_comes_back_byte_for_byte(case, reference, tmp_path):
    directory = read_directory(reference / case)
    write_directory(tmp_path / "copy", directory.config, directory.tasks, directory.tensors, None)
    assert (tmp_path / "copy/model.safetensors").read_bytes() == (reference / case / "model.safetensors").read_bytes()
    again = read_directory(tmp_path / "copy")
    assert (again.config, again.tasks) == (directory.config, directory.tasks)
    # What transformers reads of config.json is unchanged too: same keys with the same values, but for its bookkeeping.
    expected = json.loads((reference / case / "config.json").read_text())
    config = json.loads((tmp_path / "copy/config.json").read_text())
    for key in set(expected) - {"transformers_version", "dtype", "use_cache", "bos_token_id", "eos_token_id"}:
        if expected[key] is not None and key != "classifier_dropout":
            assert config[key] == expected[key], key


def test_every_tensor_lands_on_its_path(reference):
    directory = read_directory(reference / "mobilebert")
    stored = load_file(reference / "mobilebert" / "model.safetensors")
    assert len(directory.tensors) == len(stored) == 153
    pairs = {
        "encoder.embeddings.projection.kernel": "mobilebert.embeddings.embedding_transformation.weight",
        "encoder.layers.1.bottleneck.query_key.kernel": "mobilebert.encoder.layer.1.bottleneck.attention.dense.weight",
        "encoder.layers.1.attention.value.kernel": "mobilebert.encoder.layer.1.attention.self.value.weight",
        "encoder.layers.2.feed_forwards.1.output.kernel": "mobilebert.encoder.layer.2.ffn.1.output.dense.weight",
        "encoder.layers.2.feed_forwards.3.output.kernel": "mobilebert.encoder.layer.2.output.dense.weight",
        "encoder.layers.0.bottleneck.output.kernel": "mobilebert.encoder.layer.0.output.bottleneck.dense.weight",
        "heads.masked_lm.extra_table": "cls.predictions.dense.weight",
    }
    for path, name in pairs.items():
        np.testing.assert_array_equal(directory.tensors[path], stored[name].T)
    for path, name in {
        "encoder.embeddings.word.table": "mobilebert.embeddings.word_embeddings.weight",
        "encoder.layers.0.attention.norm.gamma": "mobilebert.encoder.layer.0.attention.output.LayerNorm.weight",
        "encoder.layers.0.bottleneck.output_norm.beta": "mobilebert.encoder.layer.0.output.bottleneck.LayerNorm.bias",
        "heads.masked_lm.norm.gamma": "cls.predictions.transform.LayerNorm.weight",
    }.items():
        np.testing.assert_array_equal(directory.tensors[path], stored[name])


def test_what_config_json_means(reference):
    classifier = read_directory(reference / "bert_classifier")
    assert classifier.tasks == (TaskConfig(kind="classification", labels=("LABEL_0", "LABEL_1", "LABEL_2")),)
    assert classifier.config.pooler == "tanh"
    assert read_directory(reference / "bert_span").config.pooler == "none"
    assert read_directory(reference / "bert_relu").config.activation == "relu"
    roberta = read_directory(reference / "roberta").config
    assert (roberta.max_position_embeddings, roberta.position_offset, roberta.pad_token_id) == (32, 2, 1)
    tiny = read_directory(reference / "mobilebert_tiny").config
    assert tiny.bottleneck is not None and tiny.bottleneck.query_key == "bottleneck"
    assert (tiny.head_size, tiny.attention_size, tiny.block_size, tiny.pooler) == (6, 24, 24, "first_token")
    assert read_directory(reference / "mobilebert_layernorm_gelu").config.embedding_layer_norm_eps == 1e-5


ROUND_TRIPS = {
    "bert": (tiny_bert(), (SENTIMENT,), "bert"),
    "bare": (tiny_bert(), (), "bert"),
    "gelu_tanh": (tiny_bert(activation="gelu_tanh"), (), "bert"),
    "bert without pooler, classifier": (tiny_bert(pooler="none"), (SENTIMENT,), "bert"),
    "span that drops": (tiny_bert(), (TaskConfig(kind="span", name="squad", dropout=0.3),), "bert"),
    "regression": (tiny_bert(), (TaskConfig(kind="regression", name="stsb", dropout=0.0),), "bert"),
    "two heads": (tiny_bert(), (TaskConfig(kind="regression"), SENTIMENT), "bert"),
    "roberta": (tiny_roberta(pooler="none"), (SENTIMENT,), "roberta"),
    "roberta with pooler": (tiny_roberta(), (SENTIMENT,), "roberta"),
    "roberta, relu, masked LM": (
        tiny_roberta(activation="relu"),
        (TaskConfig(kind="masked_lm", dropout=0.0),),
        "pocketbert_roberta",
    ),
    "xlm-roberta": (tiny_xlm_roberta(pooler="none"), (SENTIMENT,), "xlm-roberta"),
    "xlm-roberta with pooler": (tiny_xlm_roberta(), (SENTIMENT,), "xlm-roberta"),
    "xlm-roberta, relu, masked LM": (
        tiny_xlm_roberta(activation="relu"),
        (TaskConfig(kind="masked_lm", dropout=0.0),),
        "pocketbert_xlm-roberta",
    ),
    "xlm-roberta, factorized": (
        tiny_xlm_roberta(embedding_size=7, embedding_projection="word"),
        (),
        "pocketbert_xlm-roberta",
    ),
    "mobilebert": (tiny_mobilebert(), (SENTIMENT,), "mobilebert"),
    "mobilebert with tanh pooler": (tiny_mobilebert(pooler="tanh"), (SENTIMENT,), "mobilebert"),
    "unshared": (tiny_mobilebert("raw"), (SENTIMENT,), "pocketbert_mobilebert"),
    "tiny": (tiny_mobilebert("bottleneck"), (), "mobilebert"),
    "layer_norm with one epsilon": (tiny_mobilebert(norm="layer_norm"), (), "pocketbert_mobilebert"),
    "layer_norm as PyTorch has it": (
        tiny_mobilebert(norm="layer_norm", embedding_layer_norm_eps=1e-5),
        (),
        "mobilebert",
    ),
    "factorized, word": (
        tiny_bert(embedding_size=7, embedding_projection="word"),
        (TaskConfig(kind="masked_lm"),),
        "pocketbert_bert",
    ),
    "factorized, without bias": (
        tiny_bert(embedding_size=7, embedding_projection="factors"),
        (SENTIMENT,),
        "pocketbert_bert",
    ),
    "factorized, output": (tiny_bert(embedding_size=7, embedding_projection="output"), (), "pocketbert_bert"),
    "heads of another size": (tiny_bert(head_size=3), (), "pocketbert_bert"),
    "first token": (tiny_bert(pooler="first_token"), (SENTIMENT,), "pocketbert_bert"),
    "identity": (tiny_mobilebert(norm="identity"), (), "pocketbert_mobilebert"),
}


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_round_trip(name, tmp_path, vocabulary):
    config, tasks, model_type = ROUND_TRIPS[name]
    tensors = random_tensors(config, tasks)
    write_directory(
        tmp_path / "model", config, tasks, tensors, Vocabulary(path=vocabulary, config=TokenizerConfig(lowercase=False))
    )
    directory = read_directory(tmp_path / "model")
    assert directory.config == config
    assert directory.tasks == tasks
    assert directory.tensors.keys() == tensors.keys()
    for path, tensor in tensors.items():
        np.testing.assert_array_equal(directory.tensors[path], tensor, err_msg=path)
    assert directory.vocab_path == tmp_path / "model" / "vocab.txt"
    assert directory.vocab_path.read_bytes() == vocabulary.read_bytes()
    assert directory.tokenizer.lowercase is False
    assert json.loads((tmp_path / "model/config.json").read_text())["model_type"] == model_type
    headless = read_directory(tmp_path / "model", headless=True)
    assert headless.tasks == ()
    assert headless.tensors.keys() == tensor_specs(config).keys()


def test_labels_stand_in_id2label(written):
    content = json.loads((written / "config.json").read_text())
    assert content["id2label"] == {"0": "bad", "1": "so so", "2": "good"}
    assert content["label2id"] == {"bad": 0, "so so": 1, "good": 2}
    assert content["finetuning_task"] == "sst2"
    assert content["classifier_dropout"] == 0.2
    assert "pocketbert" not in content


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_precisions_are_read_to_float32(written, dtype):
    original = read_directory(written).tensors
    edit_tensors(written, lambda tensors: tensors.update({name: a.astype(dtype) for name, a in tensors.items()}))
    for path, tensor in read_directory(written).tensors.items():
        assert tensor.dtype == np.float32
        np.testing.assert_array_equal(tensor, original[path].astype(dtype).astype(np.float32))


def test_shards(written):
    original = read_directory(written).tensors
    tensors = load_file(written / "model.safetensors")
    names = sorted(tensors)
    weight_map = {}
    for number, part in enumerate((names[:7], names[7:])):
        file_name = f"model-{number + 1:05}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, written / file_name, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(part, file_name))
    (written / "model.safetensors").unlink()
    (written / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    again = read_directory(written).tensors
    assert again.keys() == original.keys()
    for path in original:
        np.testing.assert_array_equal(again[path], original[path])
    (written / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(UserError, match=r"model-00002-of-00002\.safetensors must be a complete safetensors file"):
        read_directory(written)


def test_bare_names_old_names_and_buffers(tmp_path, written):
    original = read_directory(written, headless=True).tensors

    def strip(tensors):
        for name in list(tensors):
            tensor = tensors.pop(name)
            name = name.removeprefix("bert.").replace("LayerNorm.weight", "LayerNorm.gamma")
            if not name.startswith("classifier"):
                tensors[name.replace("LayerNorm.bias", "LayerNorm.beta")] = tensor
        tensors["embeddings.position_ids"] = np.arange(17)[None]

    edit_tensors(written, strip)
    edit_config(written, architectures=["BertModel"])
    directory = read_directory(written)
    assert directory.tasks == ()
    assert directory.tensors.keys() == original.keys()
    for path in original:
        np.testing.assert_array_equal(directory.tensors[path], original[path])
    edit_tensors(written, lambda tensors: tensors.update({"embeddings.position_ids": np.arange(17)[None] + 1}))
    with pytest.raises(UserError, match=r"1 unexpected tensors: bert\.embeddings\.position_ids"):
        read_directory(written)


@pytest.mark.parametrize("case, head", [("bert_gelu", "cls.predictions"), ("roberta", "lm_head")])
def test_tied_tensors_may_be_written_twice_and_must_agree(case, head, reference, tmp_path):
    path = tmp_path / case
    shutil.copytree(reference / case, path)
    family = case.split("_")[0]
    table = f"{family}.embeddings.word_embeddings.weight"

    def copy(tensors):
        tensors[f"{head}.decoder.weight"] = tensors[table]
        tensors[f"{head}.decoder.bias"] = tensors[f"{head}.bias"]

    edit_tensors(path, copy)
    directory = read_directory(path)
    assert directory.tensors.keys() == read_directory(reference / case).tensors.keys()

    edit_tensors(path, lambda tensors: tensors.pop(f"{head}.bias"))
    np.testing.assert_array_equal(
        read_directory(path).tensors["heads.masked_lm.bias"], directory.tensors["heads.masked_lm.bias"]
    )
    edit_tensors(path, lambda tensors: tensors.update({f"{head}.decoder.weight": tensors[table] + 1}))
    with pytest.raises(UserError, match=rf"{head}\.decoder\.weight must equal {table}, since they are tied"):
        read_directory(path)
    assert read_directory(path, headless=True).tasks == ()


def test_a_pretraining_file_may_hold_more_heads_than_it_names(reference, tmp_path):
    # bert-base-uncased names BertForMaskedLM and holds the next-sentence head as well.
    shutil.copytree(reference / "bert_gelu", tmp_path / "model")
    edit_config(tmp_path / "model", architectures=["BertForMaskedLM"])
    assert [task.kind for task in read_directory(tmp_path / "model").tasks] == ["masked_lm", "next_sentence"]


def test_xlm_roberta_keeps_its_names(reference, tmp_path):
    # The tensors of transformers' two families have the same names.
    shutil.copytree(reference / "roberta", tmp_path / "model")
    edit_config(tmp_path / "model", model_type="xlm-roberta", architectures=["XLMRobertaForMaskedLM"], output_past=True)
    directory = read_directory(tmp_path / "model")
    assert directory.config == read_directory(reference / "roberta").config.replace(model_type="xlm-roberta")
    assert [task.kind for task in directory.tasks] == ["masked_lm"]
    write_directory(tmp_path / "copy", directory.config, directory.tasks, directory.tensors, None)
    content = json.loads((tmp_path / "copy/config.json").read_text())
    assert (content["model_type"], content["architectures"]) == ("xlm-roberta", ["XLMRobertaForMaskedLM"])
    assert (tmp_path / "copy/model.safetensors").read_bytes() == (tmp_path / "model/model.safetensors").read_bytes()


def test_bare_xlm_roberta_names(tmp_path):
    config = tiny_xlm_roberta()
    tensors = random_tensors(config)
    write_directory(tmp_path / "model", config, (), tensors, None)

    def strip(stored):
        for name in list(stored):
            stored[name.removeprefix("roberta.")] = stored.pop(name)

    edit_tensors(tmp_path / "model", strip)
    assert read_directory(tmp_path / "model").tensors.keys() == tensors.keys()


def test_writing_is_whole_or_not_at_all(tmp_path):
    config = tiny_bert()
    tensors = random_tensors(config)
    tensors["encoder.embeddings.word.table"] = tensors["encoder.embeddings.word.table"].T
    tensors["encoder.extra.kernel"] = tensors.pop("encoder.pooler.kernel")
    with pytest.raises(UserError) as error:
        write_directory(tmp_path / "model", config, (), tensors, None)
    for part in (
        "1 missing weights: encoder.pooler.kernel",
        "1 unexpected weights: encoder.extra.kernel",
        "encoder.embeddings.word.table must have shape [31, 20]; received [20, 31]",
    ):
        assert part in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten_unasked(written):
    config = tiny_bert()
    before = (written / "model.safetensors").read_bytes()
    with pytest.raises(UserError, match="must not exist yet"):
        write_directory(written, config, (), random_tensors(config), None)
    assert (written / "model.safetensors").read_bytes() == before
    write_directory(written, config, (), random_tensors(config), None, overwrite=True)
    assert read_directory(written).tasks == ()


@pytest.mark.data
def test_a_real_bare_encoder_loads(minilm_directory):
    directory = read_directory(minilm_directory)
    assert directory.tasks == ()
    assert directory.tokenizer.lowercase is True
    assert directory.config.hidden_size == 384
    assert sum(tensor.size for tensor in directory.tensors.values()) == 22_713_216


def test_loading_draws_only_new_heads(tmp_path, monkeypatch):
    directory = tiny_finetuning.write_model(tmp_path / "model")
    expected = pb.from_preset(tiny_finetuning.CONFIG, task=tiny_finetuning.TASK, seed=5).heads["classification"]
    drawn = []
    draw = tf.random.stateless_truncated_normal

    def counted(shape, **options):
        drawn.append(list(shape))
        return draw(shape, **options)

    monkeypatch.setattr(tf.random, "stateless_truncated_normal", counted)
    pb.from_pretrained(directory)
    assert drawn == []
    loaded = pb.from_pretrained(directory, task=tiny_finetuning.TASK, seed=5).heads["classification"]
    assert drawn == [[tiny_finetuning.CONFIG.hidden_size, 2]]
    np.testing.assert_array_equal(loaded.output_projection.kernel, expected.output_projection.kernel)
