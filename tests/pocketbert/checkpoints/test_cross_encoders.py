"""Rerankers of sentence-transformers: score = activation(logit), with transformers' class as the oracle."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_finetuning
from safetensors.numpy import load_file
from scipy.special import expit

import pocketbert as pb
from pocketbert.checkpoints.directory import describe_directory
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError

PAIRS = [("a lovely film", "the plot was great"), ("dull", "a superb story with an actor"), ("warm scene", "cold")]
SIGMOID, IDENTITY = "torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity"
OLD = "sbert_ce_default_activation_function"
TRANSFORMER = "sentence_transformers.base.modules.transformer.Transformer"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Directories by number of labels."""
    folder = tmp_path_factory.mktemp("rerankers")
    return {labels: write_reranker(folder / f"labels-{labels}", labels) for labels in (1, 3)}


@pytest.fixture(scope="module")
def expected(made: dict[int, Path]) -> dict[int, np.ndarray]:
    """Their logits, which no key in config.json changes."""
    return {labels: logits(folder) for labels, folder in made.items()}


def write_reranker(folder: Path, labels: int) -> Path:
    """A BERT with one logit, or one for each label."""
    start = pb.from_pretrained(tiny_finetuning.write_model(folder.with_name(f"{folder.name}-start")))
    names = tuple(f"LABEL_{number}" for number in range(labels))
    task = TaskConfig(kind="regression") if labels == 1 else TaskConfig(kind="classification", labels=names)
    model = pb.from_preset(start.config, task, start.tokenizer, seed=4)
    for path, variable in model.weights_by_path().items():
        if path.startswith("heads."):
            variable.assign(3.0 * np.random.default_rng(2).normal(size=variable.shape))
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def reranker(made: dict[int, Path], tmp_path: Path) -> Callable[..., Path]:
    """Copies a directory to `model`, with further keys in config.json."""

    def copy(labels: int = 1, **keys: Any) -> Path:
        folder = Path(shutil.copytree(made[labels], tmp_path / "model"))
        edit(folder, **keys)
        return folder

    return copy


def edit(folder: Path, **keys: Any) -> None:
    content = json.loads((folder / "config.json").read_text())
    content.pop("pocketbert", None)
    (folder / "config.json").write_text(json.dumps(content | keys))


def modules(folder: Path, model: dict[str, Any], **sentence: Any) -> None:
    """The files of version 6 beside config.json."""
    (folder / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": TRANSFORMER}]))
    text = {"text": {"method": "forward", "method_output_name": "logits"}}
    options = {"transformer_task": "sequence-classification", "modality_config": text, "module_output_name": "scores"}
    (folder / "sentence_bert_config.json").write_text(json.dumps(options | sentence))
    versions = {"__version__": {"sentence_transformers": "6.2.0"}, "prompts": {}, "default_prompt_name": None}
    (folder / "config_sentence_transformers.json").write_text(json.dumps({**versions, **model}))


def logits(folder: Path) -> np.ndarray:
    """What transformers' class gives for the pairs."""
    import transformers

    config = transformers.BertConfig.from_pretrained(folder)
    network = transformers.TFBertForSequenceClassification(config)
    load = transformers.modeling_tf_pytorch_utils.load_pytorch_state_dict_in_tf2_model
    network = load(network, load_file(folder / "model.safetensors"), allow_missing_keys=False)
    tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    return network(tokenizer(*map(list, zip(*PAIRS, strict=True)), padding=True, return_tensors="np")).logits.numpy()


def scores(model: Any) -> np.ndarray:
    return np.array([answer["score"] for answer in model.predict(PAIRS)])


KEYS = pytest.mark.parametrize(
    ("keys", "has_sigmoid"),
    [
        ({OLD: SIGMOID}, True),
        ({OLD: IDENTITY}, False),
        ({"sentence_transformers": {"activation_fn": SIGMOID, "version": "4.1.0"}}, True),
        ({"sentence_transformers": {"activation_fn": IDENTITY, "version": "4.1.0"}, OLD: SIGMOID}, False),
        ({"sentence_transformers": {"activation_fn": "torch.nn.Sigmoid"}}, True),
        # The default of sentence-transformers for one label.
        ({"sentence_transformers": {"version": "4.1.0"}}, True),
        ({OLD: None}, False),
    ],
)


@KEYS
def test_keys_name_the_activation(reranker: Callable[..., Path], keys: dict[str, Any], has_sigmoid: bool) -> None:
    (task,) = describe_directory(reranker(**keys)).tasks
    assert task.activation in (("sigmoid",) if has_sigmoid else ("identity", None))


@pytest.mark.one_of_each("keys0-True", "keys3-False")
@pytest.mark.usefixtures("eager")
@KEYS
def test_score_is_the_activated_logit(
    reranker: Callable[..., Path],
    expected: dict[int, np.ndarray],
    tmp_path: Path,
    keys: dict[str, Any],
    has_sigmoid: bool,
) -> None:
    one = expected[1][:, 0]
    assert np.abs(one).max() > 1
    model = pb.from_pretrained(reranker(**keys))
    np.testing.assert_allclose(scores(model), expit(one) if has_sigmoid else one, atol=2e-5)
    model.save_pretrained(tmp_path / "saved")
    again = pb.from_pretrained(tmp_path / "saved")
    assert again.task == model.task
    np.testing.assert_array_equal(scores(again), scores(model))


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("has_sigmoid", [True, False])
def test_modules_name_the_activation(
    reranker: Callable[..., Path], expected: dict[int, np.ndarray], tmp_path: Path, has_sigmoid: bool
) -> None:
    folder, one = reranker(), expected[1][:, 0]
    modules(folder, {"model_type": "CrossEncoder", "activation_fn": SIGMOID if has_sigmoid else IDENTITY})
    model = pb.from_pretrained(folder)
    np.testing.assert_allclose(scores(model), expit(one) if has_sigmoid else one, atol=2e-5)
    model.save_pretrained(tmp_path / "saved")
    np.testing.assert_array_equal(scores(pb.from_pretrained(tmp_path / "saved")), scores(model))


@pytest.mark.nightly
def test_exported_graph_has_the_sigmoid(
    reranker: Callable[..., Path], expected: dict[int, np.ndarray], tmp_path: Path
) -> None:
    bundle = pb.export(reranker(**{OLD: SIGMOID}), tmp_path / "bundle", recipe="float32", lengths=(17,))
    np.testing.assert_allclose(scores(bundle), expit(expected[1][:, 0]), atol=2e-5)
    assert bundle.task is not None and bundle.task.activation == "sigmoid"


@pytest.mark.usefixtures("eager")
def test_labels_keep_their_probabilities(reranker: Callable[..., Path], expected: dict[int, np.ndarray]) -> None:
    """NLI cross-encoders have three labels and the identity: a softmax of the logits, as without the key."""
    folder = reranker(labels=3, **{OLD: IDENTITY})
    exponents = np.exp(expected[3])
    probabilities = [[*answer["probabilities"].values()] for answer in pb.from_pretrained(folder).predict(PAIRS)]
    np.testing.assert_allclose(probabilities, exponents / exponents.sum(axis=1, keepdims=True), atol=2e-5)


@pytest.mark.usefixtures("eager")
def test_sigmoid_of_labels_follows_the_remedy(reranker: Callable[..., Path], expected: dict[int, np.ndarray]) -> None:
    folder = reranker(labels=3, **{OLD: SIGMOID})
    with pytest.raises(UserError, match="for a probability of its own for each label, set problem_type to multi_label"):
        pb.from_pretrained(folder)
    content = json.loads((folder / "config.json").read_text()) | {"problem_type": "multi_label_classification"}
    (folder / "config.json").write_text(json.dumps(content))
    probabilities = [[*answer["probabilities"].values()] for answer in pb.from_pretrained(folder).predict(PAIRS)]
    np.testing.assert_allclose(probabilities, expit(expected[3]), atol=2e-5)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {OLD: "torch.nn.modules.activation.Tanh"},
            rf"{OLD} must be one of {IDENTITY}, .*; received 'torch.*Tanh",
        ),
        ({OLD: "mine.Sigmoid"}, "received 'mine.Sigmoid'"),
        ({OLD: 3}, f"{OLD} must be of type str; received 3"),
        (
            {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Softmax"}},
            "received .*Softmax",
        ),
        (
            {"sentence_transformers": {"activation_fn": SIGMOID, "scale": 2}},
            "key 'scale' of sentence_transformers",
        ),
        ({"sentence_transformers": SIGMOID}, "sentence_transformers must be of type dict"),
    ],
)
def test_other_activations_are_refused(reranker: Callable[..., Path], keys: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        pb.from_pretrained(reranker(**keys))


@pytest.mark.parametrize(
    ("model", "sentence", "message"),
    [
        ({"activation_fn": "torch.nn.Tanh"}, {}, "activation_fn must be one of .*; received 'torch.nn.Tanh'"),
        (
            {"model_type": "SparseEncoder"},
            {},
            "must be a CrossEncoder; received SparseEncoder",
        ),
        ({"temperature": 2.0}, {}, "config_sentence_transformers.json: key 'temperature' is unknown"),
        (
            {"prompts": {"q": "find: "}, "default_prompt_name": "q"},
            {},
            "of a cross-encoder must be null; received 'q'",
        ),
        (
            {},
            {"transformer_task": "feature-extraction"},
            "transformer_task must be 'sequence-class",
        ),
        ({}, {"modality_config": {"text": {"method": "forward"}}}, "modality_config.text must be"),
    ],
)
def test_other_modules_are_refused(
    reranker: Callable[..., Path], model: dict[str, Any], sentence: dict[str, Any], message: str
) -> None:
    folder = reranker()
    modules(folder, model, **sentence)
    with pytest.raises(UserError, match=message):
        pb.from_pretrained(folder)


def test_encoder_alone_is_no_reranker(tmp_path: Path) -> None:
    folder = tiny_finetuning.write_model(tmp_path / "model")
    modules(folder, {"model_type": "CrossEncoder"})
    with pytest.raises(UserError, match="must have a classifier; received an encoder alone; load it headless"):
        pb.from_pretrained(folder)
    assert pb.from_pretrained(folder, headless=True).tasks == ()


def test_activation_counts_beside_our_own_key(reranker: Callable[..., Path]) -> None:
    """A directory of ours that a CrossEncoder loaded and saved again keeps our key."""
    folder = reranker(**{OLD: SIGMOID})
    content = json.loads((folder / "config.json").read_text())
    section = {"tasks": [{"kind": "regression", "name": "mine", "labels": [], "dropout": 0.3}]}
    (folder / "config.json").write_text(json.dumps(content | {"pocketbert": section}))
    model = pb.from_pretrained(folder)
    assert model.task == TaskConfig(kind="regression", name="mine", dropout=0.3, activation="sigmoid")


def test_only_scores_have_an_activation() -> None:
    with pytest.raises(UserError, match="activation is for regression; received 'sigmoid' for 'classification'"):
        TaskConfig(kind="classification", labels=("a", "b"), activation="sigmoid")
    with pytest.raises(UserError, match="activation must be one of identity, sigmoid; received 'tanh'"):
        TaskConfig(kind="regression", activation="tanh")  # type: ignore[arg-type]
