"""Layers that share their weights (ALBERT): one set of variables, and the answers of layers with equal weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny
from tiny_models import edit_config, edit_tensors, random_tensors, tiny_albert, tiny_bert

from pocketbert.checkpoints.directory import read_directory, write_directory
from pocketbert.checkpoints.tf1 import read_tf1
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.distillation.initialization import teacher_arrays
from pocketbert.distillation.method import DistillationSpec
from pocketbert.distillation.methods.mobilebert import MobileBERT
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.pruning.config import PruneConfig
from pocketbert.pruning.importance import Importance
from pocketbert.pruning.weights import prune_weights
from pocketbert.training.weight_patterns import matching_paths, rate_factors_by_name

TASK = TaskConfig(kind="classification", labels=("no", "perhaps", "yes"), dropout=0.0)
TOKENS = TaskConfig(kind="token_classification", labels=("O", "B-PER", "I-PER"), dropout=0.3)
# Two groups of three layers.
CONFIG = tiny_albert(num_layers=6, layer_groups=2, attention_dropout=0.2)


def inputs_of(config: EncoderConfig) -> dict[str, tf.Tensor]:
    """Three texts of 11, 7 and 4 tokens."""
    mask = (np.arange(11) < np.array([[11], [7], [4]])).astype(np.int32)
    ids = np.random.default_rng(5).integers(3, config.vocab_size, mask.shape)
    return {"input_word_ids": tf.constant(ids * mask, tf.int32), "input_mask": tf.constant(mask)}


def with_weights(config: EncoderConfig, tensors: dict[str, np.ndarray]) -> Model:
    model = Model(config, (TASK,), initialize=False)
    for path, variable in model.weights_by_path().items():
        variable.assign(tensors[path])
    return model


def apart(config: EncoderConfig, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Weights of a network with as many layers of its own, in which layers of a group are equal."""
    layers = {}
    for layer in range(config.num_layers):
        # transformers' formula (modeling_albert.py, AlbertTransformer.forward).
        group = int(layer / (config.num_layers / (config.layer_groups or 1)))
        prefix = f"encoder.layers.{group}."
        layers |= {
            f"encoder.layers.{layer}.{path.removeprefix(prefix)}": array
            for path, array in tensors.items()
            if path.startswith(prefix)
        }
    return {path: array for path, array in tensors.items() if not path.startswith("encoder.layers.")} | layers


def test_variables_are_stored_once() -> None:
    model = Model(CONFIG, (TASK,))
    numbers = {path.split(".")[2] for path in model.weights_by_path() if path.startswith("encoder.layers.")}
    assert numbers == {"0", "1"} and len(model.encoder.layers_) == 2
    assert len(model.trainable_variables) == len(model.weights_by_path()) == len(model.named_variables())
    names = [name for name in model.named_variables() if ".ffn.weight" in name]
    assert names == [f"albert.encoder.albert_layer_groups.{group}.albert_layers.0.ffn.weight" for group in (0, 1)]


@pytest.mark.usefixtures("eager")
def test_features_equal_those_of_equal_layers() -> None:
    tensors = {path: 0.2 * array for path, array in random_tensors(CONFIG, (TASK,)).items()}
    shared, separate = (
        with_weights(CONFIG, tensors),
        with_weights(CONFIG.replace(layer_groups=None), apart(CONFIG, tensors)),
    )
    request: dict[str, Any] = {"hidden_states": (0, 3, 4, 6), "attention_logits": (2, 5), "keys": (1, 6)}
    one, other = (model.features(inputs_of(CONFIG), request) for model in (shared, separate))
    for name, values in one.items():
        for value, expected in zip(values, other[name], strict=True):
            np.testing.assert_array_equal(value, expected)
    np.testing.assert_array_equal(shared(inputs_of(CONFIG))["logits"], separate(inputs_of(CONFIG))["logits"])


@pytest.mark.parametrize("recomputes", [False, True])
def test_gradients_add_up_over_layers(recomputes: bool) -> None:
    """With gradient checkpointing, too."""
    config = CONFIG.replace(attention_dropout=0.0)
    tensors = {path: 0.2 * array for path, array in random_tensors(config, (TASK,)).items()}
    path = "feed_forwards.0.intermediate.kernel"
    gradients: list[list[np.ndarray]] = []
    for model in (
        with_weights(config, tensors),
        with_weights(config.replace(layer_groups=None), apart(config, tensors)),
    ):
        model.encoder.recomputes = recomputes
        weights = model.weights_by_path()
        kernels = [weights[f"encoder.layers.{layer}.{path}"] for layer in range(len(model.encoder.layers_))]

        @tf.function(autograph=False)
        def compute(model: Model = model, kernels: list[tf.Variable] = kernels) -> list[tf.Tensor]:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.square(model(inputs_of(config), training=True)["logits"]))
            return tape.gradient(loss, kernels)

        gradients.append([gradient.numpy() for gradient in compute()])
    shared, separate = gradients
    for group, gradient in enumerate(shared):
        expected = np.sum(separate[3 * group : 3 * group + 3], axis=0)
        # 2e-5 is what two correct float32 evaluations reach at these sizes.
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


@pytest.mark.usefixtures("eager")
def test_students_take_layers_of_a_shared_teacher() -> None:
    teacher = tiny_albert(num_layers=4)
    tensors = random_tensors(teacher, (TASK,))
    model = with_weights(teacher, tensors)
    student = Model(teacher.replace(num_layers=2), (TASK,))
    arrays = teacher_arrays(student, model, TASK, (2, 4))
    np.testing.assert_array_equal(
        arrays["encoder.layers.0.attention.key.kernel"], tensors["encoder.layers.0.attention.key.kernel"]
    )
    assert arrays.keys() == student.weights_by_path().keys()
    # Two of three layers in each group; layers 4 to 6 read group 1.
    assert CONFIG.sources((1, 3, 4, 6)) == [0, 1] and tiny_bert().sources((2,)) == [1]
    with pytest.raises(UserError, match=r"must come from one group; received layers 1,2,3,6 with layer_groups=2"):
        CONFIG.sources((1, 2, 3, 6))


def test_pruning_cuts_the_shared_weights_once() -> None:
    config = PruneConfig(heads=2, intermediate_size=7, embedding_rank=None, layers=3, max_length=11)
    teacher = tiny_albert(num_layers=4)
    assert not config.problems(teacher)
    pruned, tensors = config.pruned(teacher), random_tensors(teacher)
    importance = Importance.none(teacher)
    assert importance.heads.shape == (1, 4)
    importance.heads[0] = (1, 4, 2, 3)
    cut, _ = prune_weights(tensors, teacher, pruned, importance, config.kept_layers(teacher))
    query = "encoder.layers.0.attention.query.kernel"
    np.testing.assert_array_equal(cut[query], tensors[query][:, [5, 6, 7, 8, 9, 15, 16, 17, 18, 19]])
    assert cut.keys() == tensors.keys() == Model(pruned).weights_by_path().keys()
    problems = PruneConfig(teacher_layers=(1, 2, 3, 6), heads=None, intermediate_size=None, embedding_rank=None)
    assert "must come from one group" in " ".join(problems.problems(CONFIG))


def test_rates_belong_to_whole_groups() -> None:
    with pytest.raises(UserError, match=r"layer_decay needs layers with weights of their own; received layer_groups=2"):
        rate_factors_by_name(0.9, {}, CONFIG, ())
    with pytest.raises(UserError, match=r"go together \(layer_groups=2\); received 'layers:1-2' without layer 3"):
        matching_paths("freeze", "layers:1-2", CONFIG, ())
    paths = matching_paths("freeze", "layers:4-6", CONFIG, ())
    assert paths and all(path.startswith("encoder.layers.1.") for path in paths)
    assert len(matching_paths("freeze", "layers:1-6", CONFIG, ())) == 2 * len(paths)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inner_group_num": 2}, "inner_group_num must be 1; received 2"),
        ({"num_hidden_groups": 3}, "num_hidden_groups must divide num_hidden_layers=4; received 3"),
        ({"num_hidden_groups": 0}, "num_hidden_groups must divide num_hidden_layers=4; received 0"),
        ({"num_hidden_groups": 2}, "the number of layers must be that of the tensors, 1; received 2"),
        ({"net_structure_type": 1}, "net_structure_type must be 0; received 1"),
        ({"down_scale_factor": 2}, "down_scale_factor must be 1; received 2"),
        ({"gap_size": 1}, "gap_size must be 0; received 1"),
        ({"num_memory_blocks": 4}, "num_memory_blocks must be 0; received 4"),
        ({"layers_to_keep": [1]}, "layers_to_keep must be []; received [1]"),
        ({"embedding_sizes": 6}, "key 'embedding_sizes' is unknown"),
    ],
)
def test_other_networks_are_refused(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    write_directory(tmp_path / "model", tiny_albert(), (), random_tensors(tiny_albert()), None)
    edit_config(tmp_path / "model", **changes)
    with pytest.raises(UserError) as refusal:
        read_directory(tmp_path / "model")
    assert message in str(refusal.value)


def test_published_keys_are_read(tmp_path: Path) -> None:
    """The keys of the released configurations; the dropout of the head is `classifier_dropout_prob`."""
    config = tiny_albert(pooler="none")
    write_directory(tmp_path / "model", config, (TOKENS,), random_tensors(config, (TOKENS,)), None)
    content = json.loads((tmp_path / "model/config.json").read_text())
    assert (content["classifier_dropout_prob"], content["num_hidden_groups"]) == (0.3, 1)
    released = {"down_scale_factor": 1, "gap_size": 0, "net_structure_type": 0, "num_memory_blocks": 0}
    edit_config(tmp_path / "model", **released, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    edit_tensors(
        tmp_path / "model",
        lambda tensors: tensors.update({"sop_classifier.classifier.weight": np.ones((2, 20), np.float32)}),
    )
    directory = read_directory(tmp_path / "model")
    assert directory.config == config and directory.tasks == (TOKENS,)


def test_tied_bias_must_be_equal(tmp_path: Path) -> None:
    masked_lm = TaskConfig(kind="masked_lm", dropout=0.0)
    config = tiny_albert(pooler="none")
    write_directory(tmp_path / "model", config, (masked_lm,), random_tensors(config, (masked_lm,)), None)
    edit_tensors(
        tmp_path / "model",
        lambda tensors: tensors.update({"predictions.decoder.bias": tensors["predictions.bias"] + 1}),
    )
    with pytest.raises(UserError, match=r"predictions\.decoder\.bias must equal predictions\.bias"):
        read_directory(tmp_path / "model")


def test_tf1_checkpoints_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.ckpt-best.index").write_bytes(b"")
    (tmp_path / "albert_config.json").write_text(json.dumps({"num_hidden_groups": 1, "hidden_size": 20}))
    with pytest.raises(UserError, match="must be a BERT's or a MobileBERT's; received an ALBERT"):
        read_tf1(tmp_path)


@pytest.mark.parametrize("field", ["bottleneck", "feedforward"])
def test_blocks_of_other_families_share_nothing(field: str) -> None:
    config = {"bottleneck": tiny.MOBILEBERT, "feedforward": tiny.EFFICIENTBERT}[field]
    with pytest.raises(UserError, match=f"{field} does not go together with layer_groups"):
        config.replace(layer_groups=1)


def test_progressive_transfer_refuses_shared_students() -> None:
    student = tiny_albert(num_layers=2)
    spec = DistillationSpec(teacher=student.replace(layer_groups=None), student=student, task=None)
    problems = MobileBERT(strategy="progressive", transfer_steps=20, distillation_steps=10).validate(spec)
    assert any("must not share their weights; received layer_groups=1; use strategy=joint" in text for text in problems)
    joint = MobileBERT(strategy="joint", transfer_steps=20, distillation_steps=10).validate(spec)
    assert not any("share" in text for text in joint)
