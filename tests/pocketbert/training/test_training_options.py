"""Options of every training run: frozen weights, rates, most steps, dropout, smoothing, kept models, memory."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_finetuning

import pocketbert as pb
from pocketbert._keras import tf_keras
from pocketbert.cli import main
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert.tasks.registry import get_task
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.finetune import finetune
from pocketbert.training.grids.published import PUBLISHED_HEAD
from pocketbert.training.label_losses import head_loss
from pocketbert.training.objectives.finetuning import Finetuning, finetuning_stage
from pocketbert.training.step import TrainingModel

CONFIG = FinetuneConfig(learning_rate=1e-2, epochs=1, batch_size=16, max_length=23, **PUBLISHED_HEAD)
RUN = RunConfig(seed=5, checkpoint_seconds=0.0)
LAYERS = 3


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tiny_finetuning.CONFIG.replace(num_layers=LAYERS)
    return tiny_finetuning.write_model(tmp_path_factory.mktemp("models") / "deep", config)


def data(count: int = 50) -> pb.TaskData:
    train, dev = tiny_finetuning.examples(count, seed=0), tiny_finetuning.examples(20, seed=1)
    return pb.TaskData(task=tiny_finetuning.TASK, train=train, dev=dev)


def run_folder(path: Path, **expected: Any) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((path / "run.json").read_text("utf-8"))
    assert {name: record.get(name) for name in expected} == expected
    return record


def changed(before: pb.Model, after: pb.Model) -> set[str]:
    weights = after.weights_by_path()
    return {path for path, value in before.weights_by_path().items() if (value.numpy() != weights[path].numpy()).any()}


@pytest.mark.one_of_each("range", "names")
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("patterns", "kept"),
    [
        (("embeddings", "layers:1-2"), r"encoder\.(embeddings|layers\.[01])\."),
        (("layers:3", "head"), r"encoder\.layers\.2\.|heads\."),
        (
            ("head", "pooler", "*.intermediate.dense.weight"),
            r"encoder\.(pooler\.|layers\.\d\.feed_forwards\.0\.intermediate\.k)|heads\.",
        ),
    ],
    ids=["range", "layer", "names"],
)
def test_frozen_weights_keep_their_bits(patterns: tuple[str, ...], kept: str, deep: Path, tmp_path: Path) -> None:
    run = replace(RUN, freeze=patterns, max_steps=2)
    after = finetune(deep, data(), tmp_path / "run", config=CONFIG, run=run).model
    first, last = (pb.from_pretrained(deep).weights_by_path(), after.weights_by_path())
    unchanged = {path for path in first if (first[path].numpy() == last[path].numpy()).all()}
    assert unchanged == {path for path in first if re.match(kept, path)}
    run_folder(tmp_path / "run", freeze=list(patterns))


def test_wrong_patterns_name_the_weights(deep: Path, tmp_path: Path) -> None:
    for option, value, message in [
        ("freeze", ("embedings",), "freeze must be embeddings, .* received 'embedings'.*did you mean 'embeddings'"),
        ("freeze", ("layers:0-2",), "layers count from 1, and this model has 3; received 'layers:0-2'"),
        ("freeze", ("layers:2-4",), "this model has 3"),
        ("freeze", ("roberta.*",), r"no weight matches 'roberta.\*'; the names are bert.embeddings.word_embeddings"),
        ("freeze", ("*",), "training must have a weight to train"),
        ("rate_factors", ("head=0",), "PATTERN=FACTOR with a positive factor; received 'head=0'"),
        ("rate_factors", ("tail=2",), "rate_factors must be embeddings"),
        ("rate_factors", ("*.nothing=2",), "no weight matches"),
        ("layer_decay", 1.5, r"layer_decay must lie in \(0, 1\]; received 1.5"),
        ("dropout", 1.0, r"dropout must lie in \[0, 1\)"),
        ("label_smoothing", 1.0, r"label_smoothing must lie in \[0, 1\)"),
        ("freeze", "embeddings", r"freeze must be a list; received 'embeddings'; pass \['embeddings'\]"),
        ("max_steps", 0, "max_steps must be positive"),
        ("max_steps", "3", "max_steps must be a whole number; received '3'"),
        ("keep_checkpoints", "every_epoch", "must be a whole number or best or every-epoch; received 'every_epoch'"),
    ]:
        with pytest.raises(UserError, match=message):
            finetune(deep, data(), tmp_path / "run", config=CONFIG, run=replace(RUN, **{option: value}))
        assert not (tmp_path / "run").exists()
    # A list is as good as a tuple.
    lists: dict[str, Any] = {"freeze": ["head"], "rate_factors": []}
    assert RunConfig(**lists) == RunConfig(freeze=("head",))


def test_rates_of_frozen_weights_are_refused(deep: Path, tmp_path: Path) -> None:
    for options, message in [
        (
            {"freeze": ("head", "layers:1"), "rate_factors": ("layers:1-2=2", "head=5")},
            "rate_factors for 'head' has no",
        ),
        ({"freeze": ("embeddings", "layers:1-3"), "layer_decay": 0.9}, "layer_decay has no effect, because all of its"),
    ]:
        with pytest.raises(UserError, match=message):
            finetune(deep, data(), tmp_path / "run", config=CONFIG, run=replace(RUN, **options))
        assert not (tmp_path / "run").exists()


def first_step(start: Path, folder: Path, **options: Any) -> dict[str, np.ndarray]:
    """Change of each weight of the encoder in one step without decay and clipping: the rate, for Adam's first step."""
    config = replace(CONFIG, weight_decay=0.0, clip_norm=None, warmup_ratio=0.0, schedule="constant")
    run = replace(RUN, max_steps=1, dropout=0.0, **options)
    after = finetune(start, data(16), folder, config=config, run=run).model.weights_by_path()
    before = pb.from_pretrained(start).weights_by_path()
    return {path: np.abs(after[path].numpy() - value.numpy()).max() for path, value in before.items() if path in after}


@pytest.mark.usefixtures("eager")
def test_layer_decay_and_rate_factors(deep: Path, tmp_path: Path) -> None:
    plain = first_step(deep, tmp_path / "plain")
    decayed = first_step(deep, tmp_path / "decayed", layer_decay=0.5, rate_factors=("*.key.weight=3",))
    for path, step in plain.items():
        if step == 0:  # Softmax does not read the bias of keys.
            continue
        number = re.match(r"encoder\.layers\.(\d)", path)
        expected = 0.5 ** (LAYERS - 1 - int(number[1])) if number else 1.0
        expected = 0.5 ** (LAYERS + 1) if path.startswith("encoder.embeddings") else expected
        expected = 3.0 if path.endswith("attention.key.kernel") else expected
        # A float32 weight of order 0.1 has steps of 2^-27; the smallest rate is 1e-2 / 16.
        assert decayed[path] / step == pytest.approx(expected, rel=1e-4), path


@pytest.mark.nightly
@pytest.mark.usefixtures("eager")
def test_head_on_the_mean_is_frozen_and_scaled(start: Path, tmp_path: Path) -> None:
    config = replace(
        CONFIG, head_start="fit", head_pooling="mean", weight_decay=0.0, clip_norm=None, warmup_ratio=0.0,
        schedule="constant",
    )  # fmt: skip

    def head(folder: str, **options: Any) -> np.ndarray:
        run = replace(RUN, **{"dropout": 0.0, "max_steps": 1, **options})
        model = finetune(start, data(16), tmp_path / folder, config=config, run=run).model
        assert model.task is not None and model.task.pooling == "mean"
        kernel: np.ndarray = model.weights_by_path()["heads.classification.output.kernel"].numpy()
        return kernel

    fitted = head("frozen", freeze=("head",))
    np.testing.assert_array_equal(head("longer", freeze=("mean_classifier.*",), max_steps=2), fitted)
    plain, scaled = head("plain") - fitted, head("scaled", rate_factors=("head=3",)) - fitted
    # Adam's first step is the rate for each weight; a float32 weight of order 1 has steps of 2^-24.
    assert np.abs(plain).min() > 5e-3
    np.testing.assert_allclose(scaled, 3 * plain, atol=1e-6)


@pytest.mark.usefixtures("eager")
def test_most_steps_end_the_schedule(start: Path, tmp_path: Path) -> None:
    config = replace(CONFIG, epochs=2)
    result = finetune(start, data(), tmp_path / "short", config=config, run=replace(RUN, max_steps=3))
    # 50 examples give 4 steps an epoch.
    assert result.steps == 3
    lines = [json.loads(line) for line in (tmp_path / "short" / "metrics.jsonl").read_text("utf-8").splitlines()]
    rates = [line["learning_rate"] for line in lines if "learning_rate" in line]
    assert rates[-1] < 1e-2 / 2
    assert finetune(start, data(), tmp_path / "long", config=config, run=replace(RUN, max_steps=99)).steps == 8


@pytest.mark.usefixtures("eager")
def test_dropout_of_encoder_and_head(start: Path, tmp_path: Path) -> None:
    result = finetune(start, data(), tmp_path / "run", config=CONFIG, run=replace(RUN, dropout=0.3, max_steps=1))
    model = result.model
    assert (model.config.hidden_dropout, model.config.attention_dropout, model.task.dropout) == (0.3, 0.3, 0.3)
    with pytest.raises(UserError, match="other options: dropout=0.3, received"):
        finetune(start, data(), tmp_path / "run", config=CONFIG, run=replace(RUN, dropout=0.2, max_steps=1))


def test_smoothed_losses_are_those_of_keras() -> None:
    random, smoothing = np.random.default_rng(3), 0.2
    logits = tf.constant(random.normal(size=[5, 3]), tf.float32)
    labels = tf.constant([2, 0, 1, 1, 2])
    keras = tf_keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=smoothing)
    expected = float(keras(tf.one_hot(labels, 3), logits))
    task = TaskConfig(kind="classification", labels=("a", "b", "c"))
    stage = replace(finetuning_stage(CONFIG, task), label_smoothing=smoothing)
    batch = {"labels": labels, "input_mask": tf.ones([5, 4], tf.int32)}
    loss = Finetuning().loss(stage, {}, {"logits": [logits]}, {}, batch)["labels"]
    assert float(loss) == pytest.approx(expected, rel=1e-6)
    # Tags and masked tokens: the labelled positions alone.
    tags = np.array([[2, -1, 0, 1], [-1, 1, 1, 2]], np.int32)
    token_logits = tf.constant(random.normal(size=[2, 4, 3]), tf.float32)
    kept = tags >= 0
    expected = float(keras(tf.one_hot(tags[kept], 3), token_logits[kept]))
    task = TaskConfig(kind="token_classification", labels=("O", "B-x", "I-x"))
    stage = replace(finetuning_stage(CONFIG, task), label_smoothing=smoothing)
    batch = {"labels": tf.constant(tags), "input_mask": tf.ones([2, 4], tf.int32)}
    loss = Finetuning().loss(stage, {}, {"logits": [token_logits]}, {}, batch)["labels"]
    assert float(loss) == pytest.approx(expected, rel=1e-6)
    assert float(head_loss("masked_lm", token_logits, tf.constant(tags), smoothing)) == pytest.approx(
        expected, rel=1e-6
    )
    several = TaskConfig(kind="multi_label", labels=("a", "b", "c"))
    given = tf.constant(random.integers(0, 2, [5, 3]), tf.int32)
    binary = tf_keras.losses.BinaryCrossentropy(from_logits=True, label_smoothing=smoothing)
    stage = replace(finetuning_stage(CONFIG, several), label_smoothing=smoothing)
    batch = {"labels": given, "input_mask": tf.ones([5, 4], tf.int32)}
    loss = Finetuning().loss(stage, {}, {"logits": [logits]}, {}, batch)["labels"]
    assert float(loss) == pytest.approx(float(binary(given, logits)), rel=1e-6)
    assert not get_task(TaskConfig(kind="regression")).smooths_labels


def test_smoothing_needs_classes(start: Path, tmp_path: Path) -> None:
    scores = tiny_finetuning.examples(50, seed=0)
    scored = replace(scores, labels=scores.labels.astype(np.float32))
    given = pb.TaskData(task=TaskConfig(kind="regression"), train=scored, dev=scored)
    with pytest.raises(UserError, match="label_smoothing needs labels with classes; regression has none"):
        finetune(start, given, tmp_path / "run", config=CONFIG, run=replace(RUN, label_smoothing=0.1))


@pytest.mark.nightly
@pytest.mark.usefixtures("eager")
def test_kept_checkpoints(start: Path, tmp_path: Path) -> None:
    config = replace(CONFIG, epochs=2)

    def train(folder: str, **options: Any) -> list[str]:
        result = finetune(start, data(32), tmp_path / folder, config=config, run=replace(RUN, **options))
        assert result.steps == 4
        return sorted(path.name for path in (tmp_path / folder / "checkpoints").glob("*"))

    assert train("best") == []
    assert train("epochs", keep_checkpoints="every-epoch") == ["step-0000002", "step-0000004"]
    assert train("two", keep_checkpoints=2, evaluation_steps=3) == ["step-0000003", "step-0000004"]
    # The last model is that of a run of as many steps, whose best model may be an earlier one.
    models = [pb.from_pretrained(tmp_path / name / "checkpoints" / "step-0000004") for name in ("epochs", "two")]
    assert changed(*models) == set()
    result = finetune(
        start, data(32), tmp_path / "epochs", config=config, run=replace(RUN, keep_checkpoints="every-epoch")
    )
    best = pb.from_pretrained(tmp_path / "epochs" / "checkpoints" / f"step-{result.best_step:07d}")
    # The temperature divides the weights of the kept head.
    assert changed(best, result.model) <= {"heads.classification.output.kernel", "heads.classification.output.bias"}


# The encoder computes every kind of block again.
@pytest.mark.one_of_each("bert")
@pytest.mark.parametrize("family", ["bert", "mobilebert", "efficientbert"])
def test_gradient_checkpointing_keeps_losses_and_gradients(family: str) -> None:
    # EfficientBERT has an expression for each of its 3 layers.
    layers = {} if family == "efficientbert" else {"num_layers": 2}
    config = tiny.FAMILIES[family].replace(hidden_dropout=0.2, attention_dropout=0.1, **layers)
    task = TaskConfig(kind="classification", labels=("a", "b"))
    model = pb.from_preset(config, task, seed=3)
    batch = {**tiny.batch(config), "labels": tf.constant([1, 0, 1])}
    states = [generator.state.numpy() for generator in model.dropout_generators()]

    def step(recomputes: bool, parts: int) -> tuple[np.ndarray, list[Any]]:
        for generator, state in zip(model.dropout_generators(), states, strict=True):
            generator.state.assign(state)
        model.encoder.recomputes = recomputes
        stage = replace(finetuning_stage(CONFIG, task), batch_size=3, micro_batches=parts)
        training = TrainingModel(model, Finetuning(), stage)
        variables = list(training.trained_variables().values())

        def compute() -> Any:
            if parts == 1:
                return training._losses_and_gradients(batch, None, variables)
            return training._accumulated(batch, None, variables)

        # A graph takes long to make, and runs make one.
        losses, gradients = tf.function(compute, autograph=False)() if recomputes else compute()
        return losses.numpy(), [
            tf.convert_to_tensor(gradient).numpy() for gradient in gradients if gradient is not None
        ]

    for parts in (1, 3):
        (losses, gradients), (other_losses, others) = step(False, parts), step(True, parts)
        np.testing.assert_allclose(other_losses, losses, rtol=1e-6)
        assert len(others) == len(gradients) > 20
        for gradient, other in zip(gradients, others, strict=True):
            np.testing.assert_allclose(other, gradient, rtol=1e-5, atol=1e-6 * np.abs(gradient).max() + 1e-9)


@pytest.mark.usefixtures("eager")
def test_micro_batches_give_the_same_update(start: Path, tmp_path: Path) -> None:
    run = replace(RUN, dropout=0.0, max_steps=2)
    models = [
        finetune(start, data(), tmp_path / str(parts), config=replace(CONFIG, micro_batches=parts), run=run).model
        for parts in (1, 4)
    ]
    weights, others = (model.weights_by_path() for model in models)
    for path, value in weights.items():
        # Adam turns rounding errors of tiny gradients into steps of the rate; most weights agree.
        assert np.mean(np.abs(value.numpy() - others[path].numpy()) < 1e-4) > 0.95, path
    with pytest.raises(UserError, match="batch_size must divide into micro_batches; received 16 and 3"):
        replace(CONFIG, micro_batches=3)


@pytest.mark.usefixtures("eager")
def test_options_of_the_command_line(deep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tiny_finetuning.write_table(tmp_path / "train.csv", tiny_finetuning.examples(60, seed=2))
    command = [
        "finetune",
        f"--model={deep}",
        f"--train-file={table}",
        f"--output={tmp_path / 'run'}",
        "--max-length=23",
        "--contrastive-steps=0",
    ]
    options = ["--freeze=embeddings,layers:1", "--layer-decay=0.9", "--rate-factors=head=4,layers:3=2", "--max-steps=2"]
    options += ["--schedule=cosine", "--dropout=0.05", "--label-smoothing=0.1", "--keep-checkpoints=1"]
    options += ["--gradient-checkpointing", "--micro-batches=2", "--distribution=one"]
    assert main([*command, *options]) == 0
    assert "keeping " in capsys.readouterr().err
    record = run_folder(tmp_path / "run", schedule="cosine", micro_batches=2, max_steps=2, layer_decay=0.9)
    assert record["rate_factors"] == ["head=4", "layers:3=2"]
    assert main([*command, *options[1:]]) == 2
    assert "freeze=['embeddings', 'layers:1'], received" in capsys.readouterr().err
    several = ["--grid=epochs=1,2", "--distribution=multi-worker", f"--output={tmp_path / 'grid'}"]
    assert main([*command[:3], *several]) == 2
    assert "received it with --distribution=multi-worker; use --ray instead" in capsys.readouterr().err
