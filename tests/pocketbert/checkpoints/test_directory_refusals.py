"""Everything that a model directory can have wrong: one error lists it all, and nothing is a crash."""

import json
import time

import h5py
import numpy as np
import pytest
from safetensors.numpy import load_file
from tiny_models import (
    SENTIMENT,
    edit_config,
    edit_tensors,
    random_tensors,
    tiny_albert,
    tiny_bert,
    tiny_deberta,
    tiny_distilbert,
    tiny_mobilebert,
    tiny_modernbert,
    tiny_roberta,
    tiny_xlm_roberta,
)

from pocketbert.checkpoints.directory import read_directory, write_directory
from pocketbert.checkpoints.huggingface import read_config, write_config
from pocketbert.checkpoints.name_maps import tensor_specs
from pocketbert.errors import UserError
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary


def test_everything_wrong_is_listed_at_once(written):
    edit_config(written, use_rotary=True, position_embedding_type="relative_key", layer_norm_eps="small")
    (written / "tokenizer_config.json").write_text('{"do_lower_case": "yes"}')
    (written / "model.safetensors").write_bytes((written / "model.safetensors").read_bytes()[:-8])
    with pytest.raises(UserError) as error:
        read_directory(written)
    for part in (
        "key 'use_rotary' is unknown and may change the outputs of the model",
        "position_embedding_type must be 'absolute'; received 'relative_key'",
        "layer_norm_eps must be of type float; received 'small'",
        "do_lower_case in tokenizer_config.json must be true or false; received 'yes'",
        "model.safetensors must be a complete safetensors file",
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
        ({"model_type": "xlnet"}, "model_type must be one of bert, roberta, xlm-roberta, mobilebert"),
        ({"model_type": "xlm-roberta-xl"}, "model_type must be one of .*; received 'xlm-roberta-xl'"),
        ({"model_type": "destilbert"}, r"received 'destilbert' \(did you mean 'distilbert'\?\)"),
        ({"hidden_act": "swish"}, "hidden_act must be one of gelu, .*; received 'swish'"),
        ({"num_attention_heads": 3}, "hidden_size must be a multiple of num_attention_heads; received 20 and 3"),
        ({"is_decoder": True}, "is_decoder must be False; received True"),
        (
            {"architectures": ["BertForMaskedLM"], "tie_word_embeddings": False},
            "tie_word_embeddings must be True with a ma",
        ),
        ({"vocab_size": "31"}, "vocab_size must be of type int; received '31'"),
        ({"hidden_dropout_prob": 1.5}, r"hidden_dropout must lie in \[0, 1\); received 1.5"),
        ({"architectures": ["BertForMultipleChoice"]}, "received 'BertForMultipleChoice'"),
        ({"architectures": ["RobertaForMaskedLM"]}, "architectures must be one of BertModel, .*'RobertaForMaskedLM'"),
        ({"problem_type": "multi_task"}, "problem_type must be one of single_label_classification, multi_label_"),
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
    "config",
    [
        tiny_bert(),
        tiny_roberta(pooler="none"),
        tiny_xlm_roberta(pooler="none"),
        tiny_mobilebert(),
        tiny_mobilebert("raw"),
        tiny_albert(),
        tiny_deberta(),
        tiny_modernbert(),
    ],
)
def test_no_value_of_any_key_is_a_crash(config):
    content = write_config(config, (SENTIMENT,)) | {"num_labels": 3, "problem_type": None, "pocketbert": {}}
    if config == tiny_mobilebert("raw"):
        content = write_config(config, (SENTIMENT,))
    names = {spec.name for spec in tensor_specs(config, (SENTIMENT,)).values()}
    refused = 0
    for section in (content, content.get("pocketbert", {}), content.get("pocketbert", {}).get("encoder", {})):
        for key, value in list(section.items()):
            for strange in (None, [], [1], {}, {"x": 1}, "x", "", -1, 0, 1.5, True, 10**9):
                section[key] = strange
                try:
                    read_config(content, names)
                except UserError:
                    refused += 1
            section[key] = value
    assert refused > 100


def test_headless_needs_no_understanding_of_the_head(written):
    edit_config(written, architectures=["BertForMultipleChoice"], problem_type="ranking")
    assert read_directory(written, headless=True).tasks == ()


def test_missing_key(written):
    content = json.loads((written / "config.json").read_text())
    del content["num_hidden_layers"]
    (written / "config.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="key 'num_hidden_layers' is missing"):
        read_directory(written)


def test_own_configuration_is_read_strictly(tmp_path):
    config = tiny_mobilebert("raw")
    write_directory(tmp_path / "model", config, (), random_tensors(config), None)
    content = json.loads((tmp_path / "model/config.json").read_text())
    del content["pocketbert"]["encoder"]["trigram"]
    content["pocketbert"]["encoder"] |= {"rotations": True, "head_size": 3.5}
    content["hidden_act"] = "relu"
    (tmp_path / "model/config.json").write_text(json.dumps(content))
    with pytest.raises(UserError) as error:
        read_directory(tmp_path / "model")
    for part in (
        "key 'hidden_act' is unknown",
        "EncoderConfig.trigram is missing",
        "EncoderConfig.rotations is unknown",
        "EncoderConfig.head_size must be of type int; received 3.5",
    ):
        assert part in str(error.value)


def test_transformers_cannot_mean_unshared_query_and_key(tmp_path):
    config = tiny_mobilebert("shared")
    write_directory(tmp_path / "model", config, (), random_tensors(config), None)
    edit_config(tmp_path / "model", key_query_shared_bottleneck=False)
    with pytest.raises(UserError, match="MobileBERT has no unshared query and key"):
        read_directory(tmp_path / "model")


def test_vocabulary_must_match_the_word_table(written, tmp_path):
    (written / "vocab.txt").write_text("x\n" * 32)
    message = r"vocab\.txt must have one token per row of the word .*; received 32 tokens for 31 rows; take the"
    with pytest.raises(UserError, match=message):
        read_directory(written)
    config = tiny_bert()
    with pytest.raises(UserError, match="received .* tokens for 31 rows"):
        write_directory(tmp_path / "new", config, (), random_tensors(config), Vocabulary(path=written / "vocab.txt"))
    assert not (tmp_path / "new").exists()


def test_other_formats_are_refused_with_the_remedy(written):
    (written / "model.safetensors").rename(written / "pytorch_model.bin")
    message = (
        r"must hold model\.safetensors or tf_model\.h5; received neither; it has pytorch_model.bin: .*with transformers"
    )
    with pytest.raises(UserError, match=message):
        read_directory(written)


def test_unusable_keras_files_are_refused(written):
    (written / "model.safetensors").rename(written / "tf_model.h5")
    with pytest.raises(UserError, match=r"tf_model\.h5 must be a complete HDF5 file; received .*; copy it again"):
        read_directory(written)
    name = "bert/model/bert/embeddings/word_embeddings/weight:0"
    with h5py.File(written / "tf_model.h5", "w") as file:
        # A terabyte that takes no place on the disk.
        file.create_dataset(name, [10**9, 256], "float32", chunks=(1000, 256))
        file.create_dataset("words/model/classifier/bias:0", data=["good", "bad"])
    with pytest.raises(UserError, match="copy|tensors") as error:
        read_directory(written)
    assert "number of layers must be that of the tensors, 0; received 2" in str(error.value)
    (written / "outside").write_bytes(bytes(31 * 20 * 4))
    with h5py.File(written / "tf_model.h5", "w") as file:
        file.create_dataset(name, [31, 20], "float32", external=[(str(written / "outside"), 0, 31 * 20 * 4)])
    with pytest.raises(UserError, match="must contain all values; received a link to another file, bert/model"):
        read_directory(written)


def test_keras_tensors_of_a_wrong_shape_or_type_are_refused(written):
    tensors = load_file(written / "model.safetensors")
    (written / "model.safetensors").unlink()
    with h5py.File(written / "tf_model.h5", "w") as file:
        for name, tensor in tensors.items():
            file[f"layer/model/{name.replace('.', '/').replace('layer/', 'layer_._')}:0"] = tensor
        del file["layer/model/bert/embeddings/word_embeddings/weight:0"], file["layer/model/classifier/bias:0"]
        file.create_dataset("a/m/bert/embeddings/word_embeddings/weight:0", [10**9, 256], "float32", chunks=(1000, 256))
        file["a/m/classifier/bias:0"] = ["x", "y", "z"]
    with pytest.raises(UserError) as error:
        read_directory(written)
    assert "word_embeddings.weight must have shape [31, 20]; received [1000000000, 256]" in str(error.value)
    assert "classifier.bias must be of type BF16, F16, F32, F64; received object" in str(error.value)


def test_no_folder_and_no_configuration(tmp_path):
    with pytest.raises(UserError, match="must be a folder; received .*absent"):
        read_directory(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"must hold config\.json; .*must hold model\.safetensors"):
        read_directory(tmp_path / "empty")
    (tmp_path / "empty/config.json").write_text("[1]")
    with pytest.raises(UserError, match=r"config\.json must be a JSON object; received list"):
        read_directory(tmp_path / "empty")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 3}, "number of layers must be that of the tensors, 2; received 3"),
        ({"num_hidden_layers": 100_000}, "num_layers must be at most 1024; received 100000"),
        ({"num_hidden_layers": 10**30}, "num_layers must be at most 1024; received 1000"),
        ({"hidden_size": 10**9}, "hidden_size must be at most 1048576; received 1000000000"),
        ({"vocab_size": 10**12}, "vocab_size must be at most 16777216"),
        ({"max_position_embeddings": 2**62}, "max_position_embeddings must be at most 1048576"),
        (
            {"vocab_size": 1 << 24, "hidden_size": 1 << 20},
            r"at most 2\*\*34 weights; received sizes that make 2.6e\+13",
        ),
        ({"initializer_range": 1e300}, "initializer_range must be at most 1; received 1e\\+300"),
        ({"layer_norm_eps": 1e30}, "layer_norm_eps must be at most 1; received 1e\\+30"),
        ({"num_labels": 10**12, "id2label": None}, "num_labels must lie between 1 and 65536"),
        ({"type_vocab_size": 10**6}, "token_type_embeddings.weight must have shape \\[1000000, 20\\]"),
    ],
)
def test_absurd_sizes_are_refused_at_once(written, changes, message):
    edit_config(written, **changes)
    start = time.monotonic()
    with pytest.raises(UserError, match=message) as error:
        read_directory(written)
    assert time.monotonic() - start < 1
    assert "\n" not in str(error.value) and len(str(error.value)) < 1_500


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[" * 100_000, "at most 64 levels"),
        ('{"a": ' * 100_000 + "1" + "}" * 100_000, "at most 64 levels"),
        ('{"vocab_size": ' + "9" * 5_000 + "}", "at most 100 digits"),
        ('{"layer_norm_eps": NaN}', "received NaN"),
        ("[]", "must be a JSON object; received list"),
        ('{"model_type": "b\\ud800"}', "half a surrogate pair"),
    ],
    ids=lambda value: value[:12],
)
def test_hostile_json_is_one_line(written, name, content, message):
    (written / name).write_text(content)
    with pytest.raises(UserError, match=message) as error:
        read_directory(written)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x00", "must not have control characters; received U\\+0000 in line 4"),
        (b"a\x07b", "must not have control characters; received U\\+0007 in line 4"),
        ("a\u0085b".encode(), "must not have control characters; received U\\+0085 in line 4"),
        (b"piece1", "'piece1' in lines 2, 4"),
        (b"", "empty lines 4"),
        (b"\xff", "must be UTF-8; received byte 0xff in line 4"),
        (b"a" * 256, "at most 255 bytes; received longer ones in lines 4"),
    ],
)
def test_unusable_vocabularies_are_refused(written, content, message):
    lines = (written / "vocab.txt").read_bytes().split(b"\n")
    (written / "vocab.txt").write_bytes(b"\n".join([*lines[:3], content, *lines[4:]]))
    with pytest.raises(UserError, match=message) as error:
        read_directory(written)
    assert "\n" not in str(error.value)


def test_mutated_directories_load_or_are_refused(written):
    """One error class for whatever a damaged file says."""
    generator = np.random.default_rng(5)
    for name in ("config.json", "tokenizer_config.json", "vocab.txt", "model.safetensors"):
        whole = (written / name).read_bytes()
        for _ in range(50):
            content = bytearray(whole)
            for _ in range(generator.integers(1, 4)):
                offset = int(generator.integers(min(len(content), 1_500)))
                content[offset : offset + int(generator.integers(0, 3))] = generator.bytes(
                    int(generator.integers(0, 3))
                )
            (written / name).write_bytes(bytes(content))
            try:
                read_directory(written)
            except UserError as error:
                assert "\n" not in str(error), str(error)
        (written / name).write_bytes(whole)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_layers": 100_000}, "num_layers must be at most 1024; received 100000"),
        ({"dim": 21}, "dim must be a multiple of n_heads; received 21 and 4"),
        ({"dim": "20"}, "dim must be of type int; received '20'"),
        ({"hidden_size": 20}, "key 'hidden_size' is unknown"),
        (
            {"tie_weights_": False, "architectures": ["DistilBertForMaskedLM"]},
            "tie_weights_ must be True with a masked",
        ),
        ({"activation": "swish"}, "activation must be one of gelu"),
        ({"architectures": ["DistilBertForMultipleChoice"]}, "received 'DistilBertForMultipleChoice'"),
        ({"architectures": ["DistilBertForNextSentencePrediction"]}, "architectures must be one of DistilBertModel"),
    ],
)
def test_distilbert_configurations_that_are_refused(tmp_path, changes, message):
    config = tiny_distilbert()
    write_directory(tmp_path / "model", config, (SENTIMENT,), random_tensors(config, (SENTIMENT,)), None)
    edit_config(tmp_path / "model", sinusoidal_pos_embds=True)
    assert read_directory(tmp_path / "model").config == config
    edit_config(tmp_path / "model", **changes)
    with pytest.raises(UserError, match=message):
        read_directory(tmp_path / "model")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_position_embeddings": None}, "max_position_embeddings must be of type int"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type must be 'absolute'"),
        ({"adapter_reduction_factor": 2}, "key 'adapter_reduction_factor' is unknown"),
        ({"type_vocab_size": 2}, r"token_type_embeddings.weight must have shape \[2, 20\]; received \[1, 20\]"),
        (
            {"architectures": ["RobertaForMaskedLM"]},
            "architectures must be one of XLMRobertaModel, .*'RobertaForMaskedLM'",
        ),
        ({"architectures": ["XLMRobertaForPreTraining"]}, "received 'XLMRobertaForPreTraining'"),
        (
            {"architectures": ["XLMRobertaForMaskedLM"], "hidden_act": "relu"},
            "XLMRoberta's masked-LM head always uses gelu, so hidden_act must be gelu; received 'relu'",
        ),
    ],
)
def test_xlm_roberta_configurations_that_are_refused(tmp_path, changes, message):
    config = tiny_xlm_roberta()
    write_directory(tmp_path / "model", config, (), random_tensors(config), None, None)
    edit_config(tmp_path / "model", **changes)
    with pytest.raises(UserError, match=message):
        read_directory(tmp_path / "model")
