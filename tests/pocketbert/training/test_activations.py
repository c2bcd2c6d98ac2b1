"""Activation ranges in runs, compared with a second measurement per operation."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_finetuning
import tiny_pretraining

import pocketbert as pb
from pocketbert.activation_stats import ActivationRange, ActivationWatch
from pocketbert.data.batches import encode, plan_batches
from pocketbert.data.pretraining.reader import PretrainingData
from pocketbert.data.task_data import TaskData
from pocketbert.errors import TrainingFailed
from pocketbert.files import write_json
from pocketbert.tasks.text_evaluator import TextEvaluator
from pocketbert.training import run_folder, trainer
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.finetune import finetune
from pocketbert.training.pretrain import pretrain
from pocketbert.training.pretrain_config import PretrainConfig
from pocketbert.training.stage_log import NoLog, StageLog

# Weights of order 1 would let NoNorm's values grow with depth.
CONFIG = tiny.MOBILEBERT.replace(num_layers=2)
FINETUNE_CONFIG = FinetuneConfig(learning_rate=3e-3, epochs=2, batch_size=16, max_length=23, contrastive_steps=0)
FEATURES = ("hidden_states", "attention_logits")


def log_of(folder: Path, split: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text("utf-8").splitlines())
    return [line for line in lines if line["split"] == split]


def measured(model_directory: str, batches: Iterable[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Feature → the largest absolute value of each layer."""
    model = pb.from_pretrained(model_directory)
    batch_features = [model.features(batch, list(FEATURES)) for batch in batches]
    return {
        name: np.max([[np.abs(layer.numpy()).max() for layer in features[name]] for features in batch_features], axis=0)
        for name in FEATURES
    }


def assert_measured(maxima: dict[str, Any], expected: dict[str, np.ndarray]) -> None:
    assert len(maxima["hidden_states"]) == 1 + len(maxima["attention_logits"]) > 1
    for name in FEATURES:
        # A graph sums in another order than single operations do.
        np.testing.assert_allclose(maxima[name], expected[name], rtol=1e-5)


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_finetuning.write_model(tmp_path_factory.mktemp("models") / "start", CONFIG)


@pytest.mark.nightly
@pytest.mark.usefixtures("eager")
def test_kept_model_reports_its_activations(
    model_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The linear model on frozen features is scored first; then the first epoch's weights are kept.
    scores = iter([0.6, 0.7, 0.5])
    monkeypatch.setattr(TextEvaluator, "metrics", lambda *_: {"accuracy": next(scores)})
    train = tiny_finetuning.examples(50, seed=0)
    result = finetune(
        model_directory,
        TaskData(
            task=tiny_finetuning.TASK,
            train=train,
            dev=tiny_finetuning.examples(21, seed=1),
            metrics=("accuracy",),
            main_metric="accuracy",
        ),
        tmp_path / "run",
        config=FINETUNE_CONFIG,
        run=RunConfig(seed=5, checkpoint_seconds=0.0, evaluation_steps=4),
    )
    assert result.best_step == 4 and result.steps == 8
    encoded = encode(train, pb.from_pretrained(model_directory).tokenizer, FINETUNE_CONFIG.max_length)
    rows = plan_batches(encoded.lengths, batch_size=8, seed=5, epoch=0)[:4]
    reported = result.activation_range
    assert_measured(reported, measured(result.model_directory, (encoded.batch(row)[0] for row in rows)))
    assert json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))["activation_range"] == reported
    first, last = log_of(tmp_path / "run", "activations")
    assert (first["step"], last["step"]) == (4, 8) and "stage" not in first
    assert {name: first[name] for name in FEATURES} == {name: max(reported[name]) for name in FEATURES}
    assert last["hidden_states"] != first["hidden_states"]
    (message,) = [line for line in capsys.readouterr().err.splitlines() if "activations reach" in line]
    assert f"activations reach {max(map(max, (reported[name] for name in FEATURES))):,.4g} in " in message
    assert "warning" not in message


def test_float16_overflow_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    model = pb.from_preset(CONFIG, seed=4)
    gamma = model.weights_by_path()["encoder.layers.1.bottleneck.output_norm.gamma"]
    gamma.assign(gamma * 1e6)
    report = ActivationWatch(model, [tiny.batch(CONFIG)]).report()
    warnings = report["float16"]["warnings"]
    assert len(warnings) == 1 and "layer 2's hidden state: " in warnings[0]
    stderr = capsys.readouterr().err
    assert "in layer 2's hidden state; warning: layer 2's hidden state: " in stderr and "overflows in float16" in stderr


def test_infinite_activation_ends_the_run(tmp_path: Path) -> None:
    maxima = ActivationRange(hidden_states=(1.0, 2.0, math.inf), attention_logits=(3.0, 4.0))
    lines = StageLog(NoLog(), "transfer", ["loss"], [], 4)
    message = "stay finite; layer 2's hidden state is not after step 4 of stage transfer; try a lower"
    with pytest.raises(TrainingFailed, match=message):
        lines.write_activations(4, maxima)


def test_layer_norm_models_are_not_watched() -> None:
    owner: Any = SimpleNamespace(model=pb.from_preset(CONFIG.replace(norm="layer_norm")))
    assert trainer.Trainer.activation_watch.func(owner) is None


class Interrupted(BaseException):
    """Stands for the end of the process; no handler in the code catches it."""


def interrupting(write: Callable[..., None], times: int) -> Callable[..., None]:
    """The process ends before a result is written, or after so many checkpoints."""
    left = [times]

    def writing(*arguments: Any) -> None:
        left[0] -= 1
        if left[0] == 0 and write is write_json:
            raise Interrupted
        write(*arguments)
        if left[0] == 0:
            raise Interrupted

    return writing


@pytest.mark.nightly
@pytest.mark.usefixtures("eager")
def test_interrupted_pretraining_reports_the_same_activations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = PretrainingData.open(tiny_pretraining.write_data(tmp_path / "data"))

    def run(output: Path) -> Any:
        return pretrain(
            CONFIG.replace(num_layers=1),
            data,
            output,
            config=PretrainConfig(steps=5, batch_size=32, learning_rate=1e-2, warmup_steps=1),
            run=RunConfig(seed=3, evaluation_steps=2, checkpoint_seconds=0.0),
        )

    result = run(tmp_path / "whole")
    rows = data.plan(batch_size=8, seed=3, epoch=0)[:4]
    batches = list(data.dataset(rows, seed=3, epoch=0))
    inputs = [{name: batch[name] for name in ("input_word_ids", "input_mask", "input_type_ids")} for batch in batches]
    assert_measured(result.activation_range, measured(result.model_directory, inputs))
    # Without dev text too: every second step, and after an epoch of four and at the end.
    assert len(data) // 32 == 4
    lines = log_of(tmp_path / "whole", "activations")
    assert [(line["step"], line["stage"]) for line in lines] == [(step, "pretraining") for step in (2, 4, 5)]
    assert log_of(tmp_path / "whole", "dev") == []
    assert tf.io.gfile.glob(str(tmp_path / "whole" / "tensorboard" / "*"))

    # After its third step, and after its last, when the student of the next attempt is a fresh one.
    for module, name, times in ((trainer, "write_checkpoint", 3), (run_folder, "write_json", 2)):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, interrupting(getattr(module, name), times))
            with pytest.raises(Interrupted):
                run(tmp_path / "parts")
    assert run(tmp_path / "parts").activation_range == result.activation_range
    tiny_pretraining.assert_same_run(tmp_path / "parts", tmp_path / "whole")
