"""Conversion from and to tf-models-official, with its encoders as a second oracle of the mathematics."""

import numpy as np
import pytest
import tensorflow as tf
from official.nlp.modeling import networks
from tiny_models import random_tensors, tiny_bert, tiny_mobilebert, tiny_roberta, tiny_xlm_roberta

from pocketbert._keras import tf_keras
from pocketbert.checkpoints.model_garden import (
    from_model_garden,
    read_model_garden,
    to_model_garden,
    write_model_garden,
)
from pocketbert.checkpoints.name_maps import tensor_specs
from pocketbert.errors import UserError
from pocketbert.model import Model

LENGTHS = (11, 7, 4)


@pytest.fixture(scope="module")
def inputs():
    """B=3, S=11: one row full, two padded, the padding filled with the pad id as their code expects it."""
    generator = np.random.default_rng(5)
    mask = (np.arange(11) < np.array(LENGTHS)[:, None]).astype(np.int32)
    return {
        "input_word_ids": tf.constant(generator.integers(1, 31, [3, 11]) * mask, tf.int32),
        "input_mask": tf.constant(mask),
        "input_type_ids": tf.constant(generator.integers(0, 2, [3, 11]), tf.int32),
    }


def randomize(encoder):
    """Every weight away from its initial value: zero biases and unit scales would hide a swap."""
    generator = np.random.default_rng(9)
    for variable in encoder.variables:
        if variable.dtype == tf.float32:
            variable.assign(generator.normal(0, 0.3, variable.shape))
    return encoder


def ours(config, tensors):
    model = Model(config)
    for path, variable in model.weights_by_path().items():
        variable.assign(tensors[path])
    return model


def assert_equal_at_tokens(model, encoder, inputs, tolerance=2e-5):
    """Feature maps, sequence and pooled output agree at real tokens.

    2e-5 absolute is what two correct float32 implementations reach at these sizes (tests/goldens/huggingface); the
    values' own size is taken out, since NoNorm does not bound it.
    """
    states = model.features(inputs, ["hidden_states"])["hidden_states"]
    outputs = encoder(dict(inputs))
    expected = outputs["encoder_outputs"]
    # BertEncoder leaves the embedding's output out.
    states = states[-len(expected) :]
    for one, other in zip(states, expected, strict=True):
        for row, length in enumerate(LENGTHS):
            scale = max(1.0, float(np.abs(other[row, :length]).max()))
            np.testing.assert_allclose(one[row, :length] / scale, other[row, :length] / scale, atol=tolerance, rtol=0)
    pooled = outputs["pooled_output"].numpy()
    scale = max(1.0, float(np.abs(pooled).max()))
    np.testing.assert_allclose(model(inputs)["pooled_output"] / scale, pooled / scale, atol=tolerance, rtol=0)


def mobilebert_encoder(**changes):
    options = {
        "word_vocab_size": 31,
        "word_embed_size": 6,
        "type_vocab_size": 2,
        "max_sequence_length": 17,
        "num_blocks": 2,
        "hidden_size": 20,
        "num_attention_heads": 4,
        "intermediate_size": 37,
        "intra_bottleneck_size": 12,
        "num_feedforward_networks": 3,
        "key_query_shared_bottleneck": True,
    }
    return randomize(networks.MobileBERTEncoder(**(options | changes)))


MOBILEBERTS = {
    "shared": {},
    "unshared": {"key_query_shared_bottleneck": False},
    "tiny": {"key_query_shared_bottleneck": False, "use_bottleneck_attention": True, "num_feedforward_networks": 2},
    "unshared, layer_norm, gelu": {
        "key_query_shared_bottleneck": False,
        "normalization_type": "layer_norm",
        "intermediate_act_fn": "gelu",
    },
    # IB-BERT: the inside wider than the outside, one network, tanh pooler.
    "ib_bert": {
        "key_query_shared_bottleneck": False,
        "normalization_type": "layer_norm",
        "intermediate_act_fn": lambda x: tf_keras.activations.gelu(x, approximate=True),
        "num_feedforward_networks": 1,
        "intra_bottleneck_size": 28,
        "classifier_activation": True,
    },
}


@pytest.mark.one_of_each("ib_bert")
@pytest.mark.parametrize("name", MOBILEBERTS)
def test_mobilebert_comes_over(name, inputs):
    encoder = mobilebert_encoder(**MOBILEBERTS[name])
    config, tensors = from_model_garden(encoder)
    assert tensors.keys() == tensor_specs(config).keys()
    assert sum(tensor.size for tensor in tensors.values()) == encoder.count_params()
    assert_equal_at_tokens(ours(config, tensors), encoder, inputs)


@pytest.mark.one_of_each("BertEncoder-20", "BertEncoderV2-7")
@pytest.mark.parametrize("width", [20, 7])
@pytest.mark.parametrize("encoder_class", [networks.BertEncoder, networks.BertEncoderV2])
def test_bert_comes_over(encoder_class, width, inputs):
    encoder = encoder_class(
        vocab_size=31,
        hidden_size=20,
        num_layers=2,
        num_attention_heads=4,
        inner_dim=37,
        max_sequence_length=17,
        type_vocab_size=2,
        embedding_width=width,
        dict_outputs=True,
    )
    encoder(dict(inputs))
    config, tensors = from_model_garden(randomize(encoder))
    assert config.activation == "gelu_tanh"
    assert config.embedding_projection == ("none" if width == 20 else "output")
    assert config.initializer_range == 0.02
    assert_equal_at_tokens(ours(config, tensors), encoder, inputs)


OURS = {
    "bert": tiny_bert(),
    "bert, tanh form": tiny_bert(activation="gelu_tanh"),
    "bert, relu, factorized": tiny_bert(activation="relu", embedding_size=7, embedding_projection="output"),
    "mobilebert": tiny_mobilebert(),
    "unshared": tiny_mobilebert("raw", pooler="tanh"),
    "tiny": tiny_mobilebert("bottleneck"),
    "without OPT": tiny_mobilebert("raw", norm="layer_norm", activation="gelu_tanh"),
    "exact gelu": tiny_mobilebert(norm="layer_norm", activation="gelu", hidden_dropout=0.2, attention_dropout=0.3),
}


@pytest.mark.one_of_each("bert", "mobilebert", "without OPT")
@pytest.mark.parametrize("name", OURS)
def test_ours_goes_over_and_comes_back(name, inputs):
    config = OURS[name]
    tensors = {path: 0.3 * tensor for path, tensor in random_tensors(config).items()}
    encoder = to_model_garden(config, tensors)
    assert_equal_at_tokens(ours(config, tensors), encoder, inputs)
    again, tensors_again = from_model_garden(encoder)
    assert again == config
    for path, tensor in tensors.items():
        np.testing.assert_array_equal(tensors_again[path], tensor, err_msg=path)


@pytest.mark.one_of_each("exact gelu")
@pytest.mark.parametrize("name", ["bert, relu, factorized", "unshared", "tiny", "without OPT", "exact gelu"])
def test_folders(name, tmp_path, vocabulary):
    config = OURS[name]
    tensors = random_tensors(config)
    write_model_garden(tmp_path / "garden", config, tensors, vocabulary)
    again, tensors_again = read_model_garden(tmp_path / "garden")
    assert again == config
    for path, tensor in tensors.items():
        np.testing.assert_array_equal(tensors_again[path], tensor, err_msg=path)
    assert (tmp_path / "garden/vocab.txt").read_bytes() == vocabulary.read_bytes()


@pytest.mark.one_of_each("encoder_network")
@pytest.mark.parametrize("root", ["model", "encoder_network"])
def test_checkpoints_of_converters_and_trainers(root, tmp_path):
    config = OURS["bert, tanh form"]
    tensors = random_tensors(config)
    write_model_garden(tmp_path / "garden", config, tensors)
    for item in (tmp_path / "garden").glob("encoder.*"):
        item.unlink()
    # As an experiment's parameters hold them.
    params = (tmp_path / "garden/params.yaml").read_text().replace("\n", "\n      ").rstrip()
    (tmp_path / "garden/params.yaml").write_text(f"task:\n  model:\n    encoder:\n      {params}\n")
    encoder = to_model_garden(config, tensors)
    model = encoder if root == "model" else tf.train.Checkpoint(encoder_network=encoder)
    optimizer = tf_keras.optimizers.Adam()
    optimizer.build(encoder.trainable_variables)
    tf.train.CheckpointManager(
        tf.train.Checkpoint(model=model, optimizer=optimizer), str(tmp_path / "garden"), max_to_keep=1
    ).save()
    again, tensors_again = read_model_garden(tmp_path / "garden")
    assert again == config
    for path, tensor in tensors.items():
        np.testing.assert_array_equal(tensors_again[path], tensor, err_msg=path)


@pytest.mark.parametrize(
    "config, message",
    [
        (tiny_roberta(), r"position_offset must be 0; received 2"),
        (tiny_xlm_roberta(), r"position_offset must be 0; received 2"),
        (tiny_bert(pooler="none"), "pooler must be 'tanh'; received 'none'"),
        (tiny_bert(norm="no_norm"), "norm must be 'layer_norm'; received 'no_norm'"),
        (tiny_bert(head_size=3), "the width of all heads must be that of the block, 20; received 12"),
        (tiny_mobilebert(pooler="none"), "pooler must be tanh or first_token"),
        (tiny_mobilebert(norm="layer_norm", embedding_layer_norm_eps=1e-5), "embedding_layer_norm_eps must be 1e-12"),
    ],
)
def test_what_they_have_no_encoder_for(config, message):
    with pytest.raises(UserError, match=f"Model Garden has no such encoder: .*{message}"):
        to_model_garden(config, random_tensors(config))


def test_what_a_folder_cannot_say(tmp_path):
    config = tiny_bert()
    with pytest.raises(UserError, match="activation must be gelu_tanh or relu, .*received 'gelu'"):
        write_model_garden(tmp_path / "garden", config, random_tensors(config))
    assert not (tmp_path / "garden").exists()


def test_encoders_that_ours_cannot_be(inputs):
    with pytest.raises(UserError, match="must be a BertEncoder.*; received AlbertEncoder"):
        from_model_garden(networks.AlbertEncoder(vocab_size=31, hidden_size=20, num_layers=1, num_attention_heads=4))
    encoder = networks.BertEncoderV2(
        vocab_size=31, hidden_size=20, num_layers=1, num_attention_heads=4, norm_first=True
    )
    with pytest.raises(UserError, match="norm_first must be False; received True"):
        from_model_garden(encoder)
    with pytest.raises(UserError, match="activation must be one of gelu, gelu_tanh, relu"):
        from_model_garden(mobilebert_encoder(intermediate_act_fn="tanh"))


@pytest.mark.parametrize("part", ["encoder.index", "encoder.data-00000-of-00001"])
def test_cut_checkpoints_are_one_line(part, tmp_path):
    config = OURS["bert, tanh form"]
    write_model_garden(tmp_path / "garden", config, random_tensors(config))
    content = (tmp_path / "garden" / part).read_bytes()
    for size in (0, 40, len(content) // 3, len(content) - 9):
        (tmp_path / "garden" / part).write_bytes(content[:size])
        with pytest.raises(UserError, match="must be a checkpoint of this encoder; ") as raised:
            read_model_garden(tmp_path / "garden")
        assert "\n" not in str(raised.value)


def test_damaged_folders(tmp_path):
    with pytest.raises(UserError, match="must be a folder"):
        read_model_garden(tmp_path / "absent")
    with pytest.raises(UserError, match=r"must hold one file of parameters .*received none"):
        read_model_garden(tmp_path)
    (tmp_path / "params.yaml").write_text("type: albert")
    with pytest.raises(UserError, match="type must be bert, bert_v2 or mobilebert; received 'albert'"):
        read_model_garden(tmp_path)
    (tmp_path / "params.yaml").write_text("type: mobilebert\nmobilebert: {num_heads: 3}")
    with pytest.raises(UserError, match="must be those of EncoderConfig; .*num_heads"):
        read_model_garden(tmp_path)
    (tmp_path / "params.yaml").write_text(
        "type: mobilebert\nmobilebert: {num_blocks: 1, word_vocab_size: 31, hidden_size: 24}"
    )
    with pytest.raises(UserError, match=r"must hold one checkpoint \(\*\.index\); received none"):
        read_model_garden(tmp_path)
    config = tiny_mobilebert()
    write_model_garden(tmp_path / "other", config, random_tensors(config))
    for item in (tmp_path / "other").glob("encoder.*"):
        item.rename(tmp_path / item.name)
    with pytest.raises(UserError, match="must be a checkpoint of this encoder"):
        read_model_garden(tmp_path)
    params = (tmp_path / "other/params.yaml").read_text()
    for old, new in (("num_blocks: 2", "num_blocks: 100000"), ("hidden_size: 20", "hidden_size: 1000000000")):
        assert old in params
        (tmp_path / "params.yaml").write_text(params.replace(old, new, 1))
        with pytest.raises(UserError, match=f"received {new.replace(': ', '=')}, where no dimension is larger than"):
            read_model_garden(tmp_path)
    for old, new in (("num_blocks: 2", "num_blocks: two"), ("hidden_size: 20", "hidden_size: 2.5")):
        (tmp_path / "params.yaml").write_text(params.replace(old, new, 1))
        with pytest.raises(UserError, match=f"{new.split(':')[0]} must be of type int; received"):
            read_model_garden(tmp_path)
    for content in ("type: bert_v2\nbert_v2: null", "type: bert_v2\nbert_v2: 3", "type: bert_v2\nbert_v2: [1]"):
        (tmp_path / "params.yaml").write_text(content)
        with pytest.raises(UserError, match="the encoder's parameters"):
            read_model_garden(tmp_path)
    (tmp_path / "params.yaml").write_text("[" * 5_000)
    with pytest.raises(UserError, match="must be YAML or JSON"):
        read_model_garden(tmp_path)
    # Parameters that name fewer layers than the checkpoint holds must not cut the network short.
    (tmp_path / "params.yaml").write_text(params.replace("num_blocks: 2", "num_blocks: 1"))
    with pytest.raises(UserError, match="must match the parameters, with 47 variables .*; received 87"):
        read_model_garden(tmp_path)
