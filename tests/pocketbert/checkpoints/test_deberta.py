"""Keys in DeBERTa-v3's config.json: honoured, refused by name, or harmless; and what published checkpoints hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import edit_config, edit_tensors, random_tensors, tiny_deberta

from pocketbert.checkpoints.directory import read_directory, write_directory
from pocketbert.checkpoints.huggingface import read_config, write_config
from pocketbert.checkpoints.name_maps import tensor_specs
from pocketbert.configs import RelativeConfig, TaskConfig
from pocketbert.errors import UserError

# microsoft/deberta-v3-small's, with tiny sizes.
PUBLISHED = {
    "model_type": "deberta-v2",
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 20,
    "initializer_range": 0.02,
    "intermediate_size": 37,
    "max_position_embeddings": 17,
    "relative_attention": True,
    "position_buckets": 6,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "layer_norm_eps": 1e-7,
    "max_relative_positions": -1,
    "position_biased_input": False,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "type_vocab_size": 0,
    "vocab_size": 31,
}
CLASSIFIER = {"architectures": ["DebertaV2ForSequenceClassification"]}
MASKED_LM = {"architectures": ["DebertaV2ForMaskedLM"]}


def read(*removed: str, headless: bool = False, **changes: Any) -> Any:
    content = {key: value for key, value in {**PUBLISHED, **changes}.items() if key not in removed}
    return read_config(content, (), headless=headless)


def test_published_keys_are_read() -> None:
    config, tasks = read()
    assert (config, tasks) == (tiny_deberta(), ())


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"pos_att_type": ["c2p", "p2c"]}, {}),
        ({"pos_att_type": " C2P | p2c"}, {}),
        ({"attention_head_size": 3}, {"head_size": 3}),
        ({"max_relative_positions": 9}, {"relative": RelativeConfig(buckets=6, max_distance=9)}),
        ({"type_vocab_size": 2}, {"type_vocab_size": 2}),
        ({"z_steps": 2, "conv_act": "gelu", "conv_groups": 1, "conv_kernel_size": 0, "embedding_size": 20}, {}),
        ({"legacy": False}, {}),
    ],
)
def test_other_keys_are_honoured(changes: dict[str, Any], fields: dict[str, Any]) -> None:
    assert read(**changes)[0] == tiny_deberta(**fields)


@pytest.mark.parametrize(
    ("removed", "changes", "message"),
    [
        ("", {"conv_kernel_size": 3}, "conv_kernel_size must be 0; received 3"),
        ("relative_attention", {}, "relative_attention must be True; received False"),
        ("share_att_key", {}, "share_att_key must be True; received False"),
        ("norm_rel_ebd", {}, "norm_rel_ebd must be 'layer_norm'; received 'none'"),
        ("position_biased_input", {}, "position_biased_input must be False; received True"),
        ("pos_att_type", {}, "pos_att_type must be p2c|c2p; received None"),
        ("", {"pos_att_type": ["c2p"]}, "pos_att_type must be p2c|c2p; received ['c2p']"),
        ("", {"pos_att_type": 3}, "pos_att_type must be p2c|c2p; received 3"),
        ("position_buckets", {}, "position_buckets must be positive; received -1"),
        ("", {"position_buckets": 5}, "buckets must be even and lie between 2 and"),
        ("", {"position_buckets": 64}, "max_distance must be above half of buckets=64 plus 1"),
        ("", {"embedding_size": 10}, "embedding_size must equal hidden_size=20; received 10"),
        ("", {"pooler_hidden_size": 10}, "pooler_hidden_size must equal hidden_size=20; received 10"),
        ("", {"cls_dropout": "a"}, "cls_dropout must be of type float; received 'a'"),
        ("", {**CLASSIFIER, "pooler_dropout": 0.1}, "pooler_dropout must be 0 with a sentence head; received 0.1"),
        ("", {**CLASSIFIER, "pooler_hidden_act": "tanh"}, "pooler_hidden_act must be 'gelu' with a sentence head"),
        ("", {**MASKED_LM, "legacy": False}, "legacy must be True with a masked-LM head; received False"),
        ("", {"num_labels_": 3}, "key 'num_labels_' is unknown"),
    ],
)
def test_keys_that_change_the_outputs_are_refused(removed: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as refusal:
        read(removed, **changes)
    assert message in str(refusal.value)


def test_keys_of_heads_count_with_heads_only() -> None:
    config, tasks = read(**CLASSIFIER, pooler_dropout=0.1, pooler_hidden_act="tanh", headless=True)
    assert config == tiny_deberta()
    # transformers' class for tokens has no pooler.
    _, (task,) = read(architectures=["DebertaV2ForTokenClassification"], pooler_dropout=0.1, tie_word_embeddings=False)
    assert task.kind == "token_classification"


@pytest.mark.parametrize(
    ("key", "dropout"),
    [
        ({}, 0.1),
        ({"cls_dropout": 0.0}, 0.0),
        ({"cls_dropout": None}, 0.1),
        # transformers' class does not read BERT's key.
        ({"cls_dropout": 0.2, "classifier_dropout": 0.3}, 0.2),
        ({"classifier_dropout": 0.3}, 0.1),
    ],
)
def test_head_has_its_own_dropout_or_that_of_the_states(key: dict[str, Any], dropout: float) -> None:
    (task,) = read(**CLASSIFIER, **key)[1]
    assert task.dropout == dropout


def test_head_for_tokens_has_the_dropout_of_the_states() -> None:
    (task,) = read(architectures=["DebertaV2ForTokenClassification"], cls_dropout=0.3)[1]
    assert task.dropout == PUBLISHED["hidden_dropout_prob"]


@pytest.mark.parametrize(
    "config",
    [
        tiny_deberta(),
        tiny_deberta(head_size=3, type_vocab_size=2, relative=RelativeConfig(buckets=4, max_distance=9)),
        tiny_deberta(relative=None),
        tiny_deberta(embedding_size=6, embedding_projection="factors"),
    ],
    ids=["published", "other sizes", "absolute positions", "pruned"],
)
def test_configurations_survive_config_json(config: Any) -> None:
    task = TaskConfig(kind="classification", labels=("a", "b", "c"), dropout=0.0)
    content = write_config(config, (task,))
    names = {spec.name for spec in tensor_specs(config, (task,)).values()}
    assert read_config(content, names) == (config, (task,))
    is_theirs = config.relative is not None and config.embedding_projection == "none"
    assert content["model_type"] == ("deberta-v2" if is_theirs else "pocketbert_deberta-v2")


def test_published_heads_are_left_out(tmp_path: Path) -> None:
    config = tiny_deberta()
    tensors = random_tensors(config)
    write_directory(tmp_path / "model", config, (), tensors, None)
    others = {
        "lm_predictions.lm_head.dense.weight": [20, 20],
        "lm_predictions.lm_head.bias": [31],
        "mask_predictions.classifier.weight": [1, 20],
        "deberta.embeddings.position_embeddings.weight": [17, 20],
    }

    def add(stored: dict[str, np.ndarray]) -> None:
        stored |= {name: np.ones(shape, np.float32) for name, shape in others.items()}

    edit_tensors(tmp_path / "model", add)
    edit_config(tmp_path / "model", architectures=None)
    directory = read_directory(tmp_path / "model")
    assert (directory.config, directory.tasks) == (config, ())
    assert directory.tensors.keys() == tensors.keys()
