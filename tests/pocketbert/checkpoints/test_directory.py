import json
import shutil

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny_models import random_tensors, tiny_bert, tiny_mobilebert, tiny_roberta

from pocketbert.checkpoints.directory import read_directory, write_directory
from pocketbert.checkpoints.huggingface import read_config, write_config
from pocketbert.checkpoints.name_maps import tensor_specs
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError

CASES = "bert_classifier bert_gelu bert_relu bert_span mobilebert mobilebert_layernorm_gelu mobilebert_tiny roberta"
SENTIMENT = TaskConfig(kind="classification", name="sst2", labels=("bad", "so so", "good"), dropout=0.2)


@pytest.fixture
def written(tmp_path, vocabulary):
    """A classifier's directory, to be damaged."""
    config = tiny_bert()
    path = tmp_path / "model"
    write_directory(path, config, (SENTIMENT,), random_tensors(config, (SENTIMENT,)), vocabulary, True)
    return path


def edit_config(path, **changes):
    content = json.loads((path / "config.json").read_text())
    content.update(changes)
    (path / "config.json").write_text(json.dumps(content))


def edit_tensors(path, change):
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("case", CASES.split())
def test_what_transformers_wrote_comes_back_byte_for_byte(case, reference, tmp_path):
    directory = read_directory(reference / case)
    write_directory(tmp_path / "copy", directory.config, directory.tasks, directory.tensors, None, None)
    assert (tmp_path / "copy/model.safetensors").read_bytes() == (reference / case / "model.safetensors").read_bytes()
    again = read_directory(tmp_path / "copy")
    assert (again.config, again.tasks) == (directory.config, directory.tasks)
    # What transformers reads of config.json is unchanged too: same keys with the same values, but for its bookkeeping.
    theirs = json.loads((reference / case / "config.json").read_text())
    ours = json.loads((tmp_path / "copy/config.json").read_text())
    for key in set(theirs) - {"transformers_version", "dtype", "use_cache", "bos_token_id", "eos_token_id"}:
        if theirs[key] is not None and key != "classifier_dropout":
            assert ours[key] == theirs[key], key


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
    assert (roberta.max_positions, roberta.position_offset, roberta.pad_token_id) == (32, 2, 1)
    tiny = read_directory(reference / "mobilebert_tiny").config
    assert tiny.bottleneck is not None and tiny.bottleneck.query_key == "bottleneck"
    assert (tiny.head_size, tiny.attention_size, tiny.block_size, tiny.pooler) == (6, 24, 24, "first_token")
    assert read_directory(reference / "mobilebert_layernorm_gelu").config.embedding_norm_epsilon == 1e-5


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
    "mobilebert": (tiny_mobilebert(), (SENTIMENT,), "mobilebert"),
    "mobilebert with tanh pooler": (tiny_mobilebert(pooler="tanh"), (SENTIMENT,), "mobilebert"),
    "unshared": (tiny_mobilebert("raw"), (SENTIMENT,), "pocketbert_mobilebert"),
    "tiny": (tiny_mobilebert("bottleneck"), (), "mobilebert"),
    "layer_norm with one epsilon": (tiny_mobilebert(norm="layer_norm"), (), "pocketbert_mobilebert"),
    "layer_norm as PyTorch has it": (
        tiny_mobilebert(norm="layer_norm", embedding_norm_epsilon=1e-5),
        (),
        "mobilebert",
    ),
    "factorized, word": (
        tiny_bert(embedding_size=7, embedding_projection="word"),
        (TaskConfig(kind="masked_lm"),),
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
    write_directory(tmp_path / "model", config, tasks, tensors, vocabulary, False)
    directory = read_directory(tmp_path / "model")
    assert directory.config == config
    assert directory.tasks == tasks
    assert directory.tensors.keys() == tensors.keys()
    for path, tensor in tensors.items():
        np.testing.assert_array_equal(directory.tensors[path], tensor, err_msg=path)
    assert directory.vocab_path == tmp_path / "model" / "vocab.txt"
    assert directory.vocab_path.read_bytes() == vocabulary.read_bytes()
    assert directory.lowercase is False
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
    with pytest.raises(UserError, match=r"model-00002-of-00002\.safetensors must be a whole safetensors file"):
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
    with pytest.raises(UserError, match=rf"{head}\.decoder\.weight must equal {table}, which it is tied to"):
        read_directory(path)
    assert read_directory(path, headless=True).tasks == ()


def test_a_pretraining_file_may_hold_more_heads_than_it_names(reference, tmp_path):
    # bert-base-uncased names BertForMaskedLM and holds the next-sentence head as well.
    shutil.copytree(reference / "bert_gelu", tmp_path / "model")
    edit_config(tmp_path / "model", architectures=["BertForMaskedLM"])
    assert [task.kind for task in read_directory(tmp_path / "model").tasks] == ["masked_lm", "next_sentence"]


def test_xlm_roberta_is_roberta(reference, tmp_path):
    shutil.copytree(reference / "roberta", tmp_path / "model")
    edit_config(tmp_path / "model", model_type="xlm-roberta", architectures=["XLMRobertaForMaskedLM"], output_past=True)
    directory = read_directory(tmp_path / "model")
    assert directory.config == read_directory(reference / "roberta").config
    assert [task.kind for task in directory.tasks] == ["masked_lm"]


def test_everything_wrong_is_listed_at_once(written):
    edit_config(written, use_rotary=True, position_embedding_type="relative_key", layer_norm_eps="small")
    (written / "tokenizer_config.json").write_text('{"do_lower_case": "yes"}')
    (written / "model.safetensors").write_bytes((written / "model.safetensors").read_bytes()[:-8])
    with pytest.raises(UserError) as error:
        read_directory(written)
    for part in (
        "key 'use_rotary' is unknown and may change what the model computes",
        "position_embedding_type must be 'absolute'; received 'relative_key'",
        "layer_norm_eps must be of type float; received 'small'",
        "do_lower_case in tokenizer_config.json must be true or false; received 'yes'",
        "model.safetensors must be a whole safetensors file",
    ):
        assert part in str(error.value)


def test_missing_extra_and_misshapen_tensors_are_listed_together(written):
    def damage(tensors):
        del tensors["bert.encoder.layer.1.attention.self.key.bias"]
        tensors["bert.encoder.layer.2.attention.self.key.bias"] = np.zeros(20, np.float32)
        tensors["classifier.weight"] = np.zeros([4, 20], np.float32)
        tensors["bert.embeddings.LayerNorm.bias"] = np.zeros(20, np.int32)

    edit_tensors(written, damage)
    with pytest.raises(UserError) as error:
        read_directory(written)
    for part in (
        "1 missing tensors: bert.encoder.layer.1.attention.self.key.bias",
        "1 unexpected tensors: bert.encoder.layer.2.attention.self.key.bias",
        "classifier.weight must have shape [3, 20]; received [4, 20]",
        "bert.embeddings.LayerNorm.bias must be of type BF16, F16, F32, F64; received I32",
    ):
        assert part in str(error.value)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"model_type": "albert"}, "model_type must be one of bert, roberta, xlm-roberta, mobilebert"),
        ({"hidden_act": "swish"}, "hidden_act must be one of gelu, .*; received 'swish'"),
        ({"num_attention_heads": 3}, "hidden_size must be a multiple of num_attention_heads; received 20 and 3"),
        ({"is_decoder": True}, "is_decoder must be False; received True"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings must be True; received False"),
        ({"vocab_size": "31"}, "vocab_size must be of type int; received '31'"),
        ({"hidden_dropout_prob": 1.5}, r"hidden_dropout must lie in \[0, 1\); received 1.5"),
        ({"architectures": ["BertForTokenClassification"]}, "received 'BertForTokenClassification'"),
        ({"architectures": ["RobertaForMaskedLM"]}, "architectures must be of BertModel, .*'RobertaForMaskedLM'"),
        ({"problem_type": "multi_label_classification"}, "problem_type must be single_label_classification or"),
        ({"id2label": {"1": "bad", "2": "good"}}, "id2label must map 0, 1, 2"),
        ({"id2label": {"0": "bad", "1": "bad", "2": "x"}}, "labels must differ"),
        ({"pocketbert": {"polar": "bear"}}, "pocketbert must be an object with pooler, tasks"),
    ],
)
def test_configurations_that_are_refused(written, changes, message):
    edit_config(written, **changes)
    with pytest.raises(UserError, match=message):
        read_directory(written)


def test_keys_that_leave_the_mathematics_alone(written):
    before = read_directory(written)
    edit_config(written, use_cache=True, tie_word_embeddings=True, pruned_heads={}, transformers_version="4.57.6")
    after = read_directory(written)
    assert (after.config, after.tasks) == (before.config, before.tasks)


@pytest.mark.parametrize(
    "config", [tiny_bert(), tiny_roberta(pooler="none"), tiny_mobilebert(), tiny_mobilebert("raw")]
)
def test_no_value_of_any_key_is_a_crash(config):
    content = write_config(config, (SENTIMENT,)) | {"num_labels": 3, "problem_type": None, "pocketbert": {}}
    if config == tiny_mobilebert("raw"):
        content = write_config(config, (SENTIMENT,))
    names = {spec.name for spec in tensor_specs(config, (SENTIMENT,)).values()}
    refused = 0
    for place in (content, content.get("pocketbert", {}), content.get("pocketbert", {}).get("encoder", {})):
        for key, value in list(place.items()):
            for strange in (None, [], [1], {}, {"x": 1}, "x", "", -1, 0, 1.5, True, 10**9):
                place[key] = strange
                try:
                    read_config(content, names)
                except UserError:
                    refused += 1
            place[key] = value
    assert refused > 100


def test_headless_needs_no_understanding_of_the_head(written):
    edit_config(written, architectures=["BertForTokenClassification"], problem_type="multi_label_classification")
    assert read_directory(written, headless=True).tasks == ()


def test_missing_key(written):
    content = json.loads((written / "config.json").read_text())
    del content["num_hidden_layers"]
    (written / "config.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="key 'num_hidden_layers' is missing"):
        read_directory(written)


def test_own_configuration_is_read_strictly(tmp_path):
    config = tiny_mobilebert("raw")
    write_directory(tmp_path / "model", config, (), random_tensors(config), None, None)
    content = json.loads((tmp_path / "model/config.json").read_text())
    del content["pocketbert"]["encoder"]["trigram"]
    content["pocketbert"]["encoder"] |= {"rotary": True, "head_size": 3.5}
    content["hidden_act"] = "relu"
    (tmp_path / "model/config.json").write_text(json.dumps(content))
    with pytest.raises(UserError) as error:
        read_directory(tmp_path / "model")
    for part in (
        "key 'hidden_act' is unknown",
        "EncoderConfig.trigram is missing",
        "EncoderConfig.rotary is unknown",
        "EncoderConfig.head_size must be of type int; received 3.5",
    ):
        assert part in str(error.value)


def test_transformers_cannot_mean_unshared_query_and_key(tmp_path):
    config = tiny_mobilebert("shared")
    write_directory(tmp_path / "model", config, (), random_tensors(config), None, None)
    edit_config(tmp_path / "model", key_query_shared_bottleneck=False)
    with pytest.raises(UserError, match="MobileBERT has no unshared query and key"):
        read_directory(tmp_path / "model")


@pytest.mark.parametrize("pieces", [30, 32])
def test_vocabulary_must_match_the_word_table(written, pieces, tmp_path):
    (written / "vocab.txt").write_text("x\n" * pieces)
    message = rf"vocab\.txt must have a piece for each row of the word table; received {pieces} pieces for 31 rows"
    with pytest.raises(UserError, match=message):
        read_directory(written)
    config = tiny_bert()
    with pytest.raises(UserError, match="received .* pieces for 31 rows"):
        write_directory(tmp_path / "new", config, (), random_tensors(config), written / "vocab.txt", True)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name, remedy", [("tf_model.h5", "from_tf=True"), ("pytorch_model.bin", "with transformers")])
def test_other_formats_are_refused_with_the_remedy(written, name, remedy):
    (written / "model.safetensors").rename(written / name)
    with pytest.raises(UserError, match=rf"must hold model\.safetensors; there is none; it has {name}: .*{remedy}"):
        read_directory(written)


def test_tensorflow_names_are_refused_with_the_remedy(written):
    tensors = load_file(written / "model.safetensors")
    save_file(tensors, written / "model.safetensors", metadata={"format": "tf"})
    with pytest.raises(UserError, match="must have PyTorch tensor names .* received format 'tf'; load it with"):
        read_directory(written)
    renamed = {f"tf_bert/{name}:0": tensor for name, tensor in tensors.items()}
    save_file(renamed, written / "model.safetensors")
    with pytest.raises(UserError, match="must have PyTorch tensor names"):
        read_directory(written)


def test_no_folder_and_no_configuration(tmp_path):
    with pytest.raises(UserError, match="must be a folder; received .*absent"):
        read_directory(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"must hold config\.json; .*must hold model\.safetensors"):
        read_directory(tmp_path / "empty")
    (tmp_path / "empty/config.json").write_text("[1]")
    with pytest.raises(UserError, match=r"config\.json must be a JSON object; received list"):
        read_directory(tmp_path / "empty")


def test_writing_is_whole_or_not_at_all(tmp_path):
    config = tiny_bert()
    tensors = random_tensors(config)
    tensors["encoder.embeddings.word.table"] = tensors["encoder.embeddings.word.table"].T
    tensors["encoder.extra.kernel"] = tensors.pop("encoder.pooler.kernel")
    with pytest.raises(UserError) as error:
        write_directory(tmp_path / "model", config, (), tensors, None, None)
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
        write_directory(written, config, (), random_tensors(config), None, None)
    assert (written / "model.safetensors").read_bytes() == before
    write_directory(written, config, (), random_tensors(config), None, None, overwrite=True)
    assert read_directory(written).tasks == ()


@pytest.mark.data
def test_a_real_bare_encoder_loads(minilm_directory):
    directory = read_directory(minilm_directory)
    assert directory.tasks == ()
    assert directory.lowercase is True
    assert directory.config.hidden_size == 384
    assert sum(tensor.size for tensor in directory.tensors.values()) == 22_713_216
