"""google-research checkpoints, written here with their published variable names.

The names are those that `modeling.py`, `run_pretraining.py`, `run_classifier.py` and `run_squad.py` of
google-research/bert and google-research/google-research/mobilebert make with their variable scopes, written out by
hand. tf-models-official's own converter of these checkpoints, with its table of names, is the second oracle.
"""

import json

import numpy as np
import pytest
import tensorflow as tf
from tiny_models import tiny_bert, tiny_mobilebert

from pocketbert._keras import tf_keras
from pocketbert.checkpoints.model_garden import from_model_garden
from pocketbert.checkpoints.name_maps import parameter_count
from pocketbert.checkpoints.tf1 import read_tf1
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError

BERT_CONFIG = {
    "attention_probs_dropout_prob": 0.1,
    "directionality": "bidi",
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 20,
    "initializer_range": 0.02,
    "intermediate_size": 37,
    "max_position_embeddings": 17,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "pooler_type": "first_token_transform",
    "type_vocab_size": 2,
    "vocab_size": 31,
}
MOBILEBERT_CONFIG = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "relu",
    "hidden_dropout_prob": 0.0,
    "hidden_size": 20,
    "initializer_range": 0.02,
    "intermediate_size": 37,
    "max_position_embeddings": 17,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "type_vocab_size": 2,
    "vocab_size": 31,
    "embedding_size": 6,
    "trigram_input": True,
    "use_bottleneck": True,
    "intra_bottleneck_size": 12,
    "use_bottleneck_attention": False,
    "key_query_shared_bottleneck": True,
    "num_feedforward_networks": 3,
    "normalization_type": "no_norm",
    "classifier_activation": False,
}
PRETRAINING = {
    "cls/predictions/transform/dense/kernel": (20, 20),
    "cls/predictions/transform/dense/bias": (20,),
    "cls/predictions/transform/LayerNorm/gamma": (20,),
    "cls/predictions/transform/LayerNorm/beta": (20,),
    "cls/predictions/output_bias": (31,),
    "cls/seq_relationship/output_weights": (2, 20),
    "cls/seq_relationship/output_bias": (2,),
}


def dense(scope, inputs, outputs):
    return {f"{scope}/dense/kernel": (inputs, outputs), f"{scope}/dense/bias": (outputs,)}


def norm(scope, width, name):
    return {f"{scope}/{name}/gamma": (width,), f"{scope}/{name}/beta": (width,)}


def bert_variables():
    variables = {
        "bert/embeddings/word_embeddings": (31, 20),
        "bert/embeddings/token_type_embeddings": (2, 20),
        "bert/embeddings/position_embeddings": (17, 20),
        **norm("bert/embeddings", 20, "LayerNorm"),
        **dense("bert/pooler", 20, 20),
    }
    for index in range(2):
        scope = f"bert/encoder/layer_{index}"
        for name in ("query", "key", "value"):
            variables[f"{scope}/attention/self/{name}/kernel"] = (20, 20)
            variables[f"{scope}/attention/self/{name}/bias"] = (20,)
        variables |= dense(f"{scope}/attention/output", 20, 20) | norm(f"{scope}/attention/output", 20, "LayerNorm")
        variables |= dense(f"{scope}/intermediate", 20, 37)
        variables |= dense(f"{scope}/output", 37, 20) | norm(f"{scope}/output", 20, "LayerNorm")
    return variables


def mobilebert_variables(query_key="shared", name="FakeLayerNorm"):
    variables = {
        "bert/embeddings/word_embeddings": (31, 6),
        "bert/embeddings/embedding_transformation/kernel": (18, 20),
        "bert/embeddings/embedding_transformation/bias": (20,),
        "bert/embeddings/token_type_embeddings": (2, 20),
        "bert/embeddings/position_embeddings": (17, 20),
        **norm("bert/embeddings", 20, name),
    }
    inputs = {"shared": (12, 12, 20), "raw": (20, 20, 20), "bottleneck": (12, 12, 12)}[query_key]
    for index in range(2):
        scope = f"bert/encoder/layer_{index}"
        variables |= dense(f"{scope}/bottleneck/input", 20, 12) | norm(f"{scope}/bottleneck/input", 12, name)
        if query_key == "shared":
            variables |= dense(f"{scope}/bottleneck/attention", 20, 12)
            variables |= norm(f"{scope}/bottleneck/attention", 12, name)
        for part, width in zip(("query", "key", "value"), inputs, strict=True):
            variables[f"{scope}/attention/self/{part}/kernel"] = (width, 12)
            variables[f"{scope}/attention/self/{part}/bias"] = (12,)
        variables |= dense(f"{scope}/attention/output", 12, 12) | norm(f"{scope}/attention/output", 12, name)
        for network_scope in (f"{scope}/ffn_layer_0", f"{scope}/ffn_layer_1", scope):
            variables |= dense(f"{network_scope}/intermediate", 12, 37)
            variables |= dense(f"{network_scope}/output", 37, 12) | norm(f"{network_scope}/output", 12, name)
        variables |= dense(f"{scope}/output/bottleneck", 12, 20) | norm(f"{scope}/output/bottleneck", 20, name)
    return variables


def write(folder, config, shapes, name="bert_model.ckpt"):
    """A TensorFlow 1 checkpoint with random values, their configuration and a vocabulary; returns the values."""
    generator = np.random.default_rng(11)
    values = {variable: generator.normal(0, 0.3, shape).astype(np.float32) for variable, shape in shapes.items()}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for variable, value in values.items():
            tf.compat.v1.get_variable(variable, initializer=value)
            tf.compat.v1.get_variable(f"{variable}/adam_m", initializer=np.zeros_like(value))
            tf.compat.v1.get_variable(f"{variable}/adam_v", initializer=np.zeros_like(value))
        tf.compat.v1.train.get_or_create_global_step()
        session.run(tf.compat.v1.global_variables_initializer())
        folder.mkdir(exist_ok=True)
        tf.compat.v1.train.Saver().save(session, str(folder / name), write_meta_graph=False, write_state=False)
    (folder / "bert_config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("".join(f"piece{index}\n" for index in range(31)))
    return values


def test_bert_pretraining_checkpoint(tmp_path):
    values = write(tmp_path / "bert", BERT_CONFIG, bert_variables() | PRETRAINING)
    model = read_tf1(tmp_path / "bert")
    # Their gelu is the tanh form.
    assert model.config == tiny_bert(activation="gelu_tanh")
    assert [task.kind for task in model.tasks] == ["masked_lm", "next_sentence"]
    assert sum(tensor.size for tensor in model.tensors.values()) == parameter_count(model.config, model.tasks)
    for path, name in {
        "encoder.layers.1.attention.query.kernel": "bert/encoder/layer_1/attention/self/query/kernel",
        "encoder.layers.0.feed_forwards.0.intermediate.kernel": "bert/encoder/layer_0/intermediate/dense/kernel",
        "encoder.layers.0.feed_forwards.0.norm.gamma": "bert/encoder/layer_0/output/LayerNorm/gamma",
        "encoder.embeddings.token_type.table": "bert/embeddings/token_type_embeddings",
        "encoder.pooler.kernel": "bert/pooler/dense/kernel",
        "heads.masked_lm.transform.kernel": "cls/predictions/transform/dense/kernel",
        "heads.masked_lm.bias": "cls/predictions/output_bias",
    }.items():
        np.testing.assert_array_equal(model.tensors[path], values[name])
    np.testing.assert_array_equal(
        model.tensors["heads.next_sentence.output.kernel"], values["cls/seq_relationship/output_weights"].T
    )
    assert model.vocab_path == tmp_path / "bert/vocab.txt"
    by_prefix = read_tf1(tmp_path / "bert/bert_model.ckpt")
    assert by_prefix.config == model.config


@pytest.mark.one_of_each("no_norm-FakeLayerNorm-shared")
@pytest.mark.parametrize("query_key", ["shared", "raw", "bottleneck"])
@pytest.mark.parametrize("norm_type, name", [("no_norm", "FakeLayerNorm"), ("layer_norm", "LayerNorm")])
def test_mobilebert_is_what_their_own_converter_makes_of_it(query_key, norm_type, name, tmp_path):
    from official.nlp.modeling import networks
    from official.projects.mobilebert import tf2_model_checkpoint_converter as converter

    config = MOBILEBERT_CONFIG | {
        "key_query_shared_bottleneck": query_key == "shared",
        "use_bottleneck_attention": query_key == "bottleneck",
        "normalization_type": norm_type,
    }
    extra = {"cls/predictions/extra_output_weights": (31, 14)}
    values = write(tmp_path / "tf1", config, mobilebert_variables(query_key, name) | PRETRAINING | extra)
    model = read_tf1(tmp_path / "tf1")
    assert model.config == tiny_mobilebert(query_key, norm=norm_type)
    np.testing.assert_array_equal(
        model.tensors["heads.masked_lm.extra_table"], values["cls/predictions/extra_output_weights"]
    )

    # Keras numbers the second layer of a kind; their table knows the first one's name.
    tf_keras.backend.clear_session()
    # Their table turns the names into those of the encoder's variables: each must hold what its path here holds.
    encoder = networks.MobileBERTEncoder(
        word_vocab_size=31,
        word_embed_size=6,
        max_sequence_length=17,
        num_blocks=2,
        hidden_size=20,
        intermediate_size=37,
        intra_bottleneck_size=12,
        num_feedforward_networks=3,
        normalization_type=norm_type,
        use_bottleneck_attention=query_key == "bottleneck",
        key_query_shared_bottleneck=query_key == "shared",
        hidden_dropout_prob=0.0,
    )
    replacements = [("bert/", ""), *converter._NAME_REPLACEMENT[1:]]
    replacements = [(old, new.replace("LAST_FFN_LAYER_ID", "2")) for old, new in replacements]
    converted = {
        converter._bert_name_replacement(variable, replacements): value
        for variable, value in values.items()
        if variable.startswith("bert/")
    }
    for variable in encoder.variables:
        variable.assign(converted.pop(variable.name.removesuffix(":0")).reshape(variable.shape))
    assert not converted
    official_config, official_tensors = from_model_garden(encoder)
    assert official_config == model.config
    for path, tensor in official_tensors.items():
        np.testing.assert_array_equal(model.tensors[path], tensor, err_msg=path)


def test_ib_bert_configuration(tmp_path):
    config = {key: value for key, value in MOBILEBERT_CONFIG.items() if key in BERT_CONFIG}
    config |= {"hidden_act": "gelu", "embedding_size": 6, "trigram_input": True, "use_bottleneck": True}
    config |= {"intra_bottleneck_size": 12, "hidden_dropout_prob": 0.1}
    variables = {
        name: shape for name, shape in mobilebert_variables("raw", "LayerNorm").items() if "ffn_layer" not in name
    }
    write(tmp_path / "ib", config, variables | dense("bert/pooler", 20, 20))
    expected = tiny_mobilebert(
        "raw", norm="layer_norm", activation="gelu_tanh", num_feedforward_networks=1, pooler="tanh", hidden_dropout=0.1
    )
    assert read_tf1(tmp_path / "ib").config == expected


@pytest.mark.parametrize(
    "shapes, task",
    [
        (
            {"output_weights": (3, 20), "output_bias": (3,)},
            TaskConfig(kind="classification", labels=("LABEL_0", "LABEL_1", "LABEL_2")),
        ),
        ({"output_weights": (1, 20), "output_bias": (1,)}, TaskConfig(kind="regression")),
        ({"cls/squad/output_weights": (2, 20), "cls/squad/output_bias": (2,)}, TaskConfig(kind="span", dropout=0.0)),
    ],
)
def test_fine_tuned_heads(shapes, task, tmp_path):
    values = write(tmp_path / "bert", BERT_CONFIG, bert_variables() | shapes)
    model = read_tf1(tmp_path / "bert")
    assert model.tasks == (task,)
    weights = next(name for name in shapes if name.endswith("weights"))
    np.testing.assert_array_equal(model.tensors[f"heads.{task.kind}.output.kernel"], values[weights].T)


def test_everything_wrong_is_listed_at_once(tmp_path):
    variables = bert_variables()
    del variables["bert/pooler/dense/bias"]
    variables["bert/encoder/layer_0/attention/self/query_norm/kernel"] = (20, 20)
    variables["bert/embeddings/word_embeddings"] = (30, 20)
    write(tmp_path / "bert", BERT_CONFIG, variables)
    (tmp_path / "bert/vocab.txt").write_text("one\n")
    with pytest.raises(UserError) as error:
        read_tf1(tmp_path / "bert")
    for part in (
        "1 missing variables: bert/pooler/dense/bias",
        "1 unexpected variables: bert/encoder/layer_0/attention/self/query_norm/kernel",
        "bert/embeddings/word_embeddings must have shape [31, 20]; received [30, 20]",
        "received 1 tokens for 31 rows",
    ):
        assert part in str(error.value)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"hidden_act": "relu6"}, "hidden_act must be one of gelu, relu; received 'relu6'"),
        ({"normalization_type": "manual_layer_norm"}, "normalization_type must be layer_norm or no_norm"),
        ({"use_rotary": 1}, "key 'use_rotary' is unknown"),
        ({"num_attention_heads": 3}, "must be a multiple of num_attention_heads; received 20, 3"),
        ({"vocab_size": None}, "vocab_size must be of type int; received None"),
    ],
)
def test_configurations_that_are_refused(changes, message, tmp_path):
    write(tmp_path / "bert", BERT_CONFIG | changes, {"bert/embeddings/word_embeddings": (31, 20)})
    with pytest.raises(UserError, match=message):
        read_tf1(tmp_path / "bert")


@pytest.mark.parametrize("has_config", [False, True])
def test_electra_is_refused_by_name(has_config, tmp_path):
    variables = {name.replace("bert/", "electra/"): shape for name, shape in bert_variables().items()}
    write(tmp_path / "electra", BERT_CONFIG, variables)
    if not has_config:
        # As published.
        (tmp_path / "electra/bert_config.json").unlink()
    with pytest.raises(UserError, match="must be a BERT's or a MobileBERT's; received an ELECTRA .*; convert it with"):
        read_tf1(tmp_path / "electra")


@pytest.mark.parametrize("config", [BERT_CONFIG, MOBILEBERT_CONFIG])
def test_no_value_of_any_key_is_a_crash(config, tmp_path):
    (tmp_path / "model.ckpt.index").write_bytes(b"none")
    for key in config:
        for strange in (None, [], {}, "x", -1, 0, 1.5, True):
            (tmp_path / "bert_config.json").write_text(json.dumps(config | {key: strange}))
            with pytest.raises(UserError):
                read_tf1(tmp_path)


def test_missing_and_damaged_files(tmp_path):
    with pytest.raises(UserError, match=r"must be a folder or a prefix with an \.index file"):
        read_tf1(tmp_path / "bert/absent.ckpt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"must hold one checkpoint \(\*\.index\); received none"):
        read_tf1(tmp_path / "empty")
    write(tmp_path / "bert", BERT_CONFIG, bert_variables())
    (tmp_path / "bert/bert_config.json").rename(tmp_path / "config.json")
    with pytest.raises(UserError, match=r"must hold bert_config\.json; received a folder without it"):
        read_tf1(tmp_path / "bert")
    assert read_tf1(tmp_path / "bert", tmp_path / "config.json").config.model_type == "bert"
    index = tmp_path / "bert/bert_model.ckpt.index"
    content = index.read_bytes()
    for size in (0, 40, len(content) // 3, len(content) - 9):
        index.write_bytes(content[:size])
        with pytest.raises(UserError, match="must be a complete TensorFlow checkpoint; received .*; copy it again"):
            read_tf1(tmp_path / "bert", tmp_path / "config.json")
    index.write_bytes(content)
    data = tmp_path / "bert/bert_model.ckpt.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:1000])
    with pytest.raises(UserError, match="must be a complete TensorFlow checkpoint"):
        read_tf1(tmp_path / "bert", tmp_path / "config.json")
