"""Layers of a model in memory with `trainable = False` keep their weights in every run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import tiny_distillation
import tiny_finetuning

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.comparison import distill_and_compare
from pocketbert.errors import UserError
from pocketbert.training import trainer
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.finetune import finetune, finetune_grid
from pocketbert.training.frozen_weights import FrozenWeights, in_words, outline
from pocketbert.training.grids.points import Grid
from pocketbert.training.grids.published import PUBLISHED_HEAD

# The rate and the decay would move every weight by more than a rounding error.
CONFIG = FinetuneConfig(learning_rate=1e-2, weight_decay=0.5, epochs=1, batch_size=16, max_length=23)
RUN = RunConfig(seed=5, checkpoint_seconds=0.0)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tiny_finetuning.CONFIG.replace(num_layers=2)
    return tiny_finetuning.write_model(tmp_path_factory.mktemp("models") / "tiny", config)


def data(**changes: Any) -> TaskData:
    fields: dict[str, Any] = {
        "task": tiny_finetuning.TASK,
        "train": tiny_finetuning.examples(50, seed=0),
        "dev": tiny_finetuning.examples(20, seed=1),
    }
    return TaskData(**{**fields, **changes})


def changed(before: pb.Model, after: pb.Model) -> set[str]:
    """Paths of the weights that differ in a bit."""
    weights = after.weights_by_path()
    return {
        path
        for path, variable in before.weights_by_path().items()
        if path in weights and variable.numpy().tobytes() != weights[path].numpy().tobytes()
    }


def test_default_model_has_none(start: Path) -> None:
    for config in tiny.FAMILIES.values():
        pooled = [TaskConfig(kind="next_sentence")] if config.pooler != "none" else []
        tasks = [TaskConfig(kind="classification", labels=("a", "b")), TaskConfig(kind="masked_lm"), *pooled]
        assert FrozenWeights.of(pb.from_preset(config, tasks)).paths == ()
    assert FrozenWeights.of(start).paths == FrozenWeights.of(tiny.BERT).paths == ()


@pytest.mark.usefixtures("eager")
def test_frozen_layers_keep_their_bits(start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = pb.from_pretrained(start)
    model.encoder.embeddings.trainable = False
    model.encoder.layers_[1].attention.trainable = False
    result = finetune(model, data(), tmp_path / "run", config=replace(CONFIG, **PUBLISHED_HEAD), run=RUN)
    every = set(model.weights_by_path())
    frozen = {path for path in every if path.startswith(("encoder.embeddings.", "encoder.layers.1.attention."))}
    assert changed(model, result.model) == every - frozen
    assert json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))["frozen"] == [
        "encoder.embeddings",
        "encoder.layers.1.attention",
    ]
    assert (
        f"keeping {len(frozen)} weights as they are: encoder.embeddings, layer 2 (attention)\n"
    ) in capsys.readouterr().err


@pytest.mark.nightly
def test_new_head_of_frozen_model_is_trained(start: Path, tmp_path: Path) -> None:
    tuned = finetune(pb.from_pretrained(start), data(), tmp_path / "tuned", config=CONFIG, run=RUN).model
    tuned.trainable = False
    other = TaskConfig(kind="classification", labels=("low", "up"))
    result = finetune(tuned, data(task=other), tmp_path / "other", config=CONFIG, run=RUN)
    # The head is new, so it differs from that of the model.
    heads = {path for path in tuned.weights_by_path() if path.startswith("heads.")}
    assert heads and changed(tuned, result.model) == heads
    with pytest.raises(UserError, match="training must have a weight to train; .* set trainable=True for some"):
        finetune(tuned, data(), tmp_path / "none", config=CONFIG, run=RUN)
    assert not (tmp_path / "none").exists()
    # The remedy.
    tuned.trainable = True
    tuned.encoder.trainable = False
    assert changed(tuned, finetune(tuned, data(), tmp_path / "none", config=CONFIG, run=RUN).model) == heads


@pytest.mark.nightly
def test_interrupted_run_resumes_with_frozen_weights(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def frozen() -> pb.Model:
        model = pb.from_pretrained(start)
        model.encoder.layers_[0].trainable = False
        return model

    whole = finetune(frozen(), data(), tmp_path / "whole", config=CONFIG, run=RUN).model
    steps = trainer.Trainer.steps

    def interrupted(self: Any, *where: Any) -> Any:
        for index, losses in enumerate(steps(self, *where)):
            if index == 2:
                raise KeyboardInterrupt
            yield losses

    monkeypatch.setattr(trainer.Trainer, "steps", interrupted)
    with pytest.raises(KeyboardInterrupt):
        finetune(frozen(), data(), tmp_path / "run", config=CONFIG, run=RUN)
    monkeypatch.undo()
    with pytest.raises(UserError, match=r"other options: frozen=\['encoder.layers.0'\], received None"):
        finetune(pb.from_pretrained(start), data(), tmp_path / "run", config=CONFIG, run=RUN)
    resumed = finetune(frozen(), data(), tmp_path / "run", config=CONFIG, run=RUN).model
    assert changed(whole, resumed) == set()
    assert not any(path.startswith("encoder.layers.0.") for path in changed(frozen(), resumed))


@pytest.mark.nightly
@pytest.mark.usefixtures("eager")
def test_grid_keeps_frozen_weights(start: Path, tmp_path: Path) -> None:
    model = pb.from_pretrained(start)
    model.encoder.trainable = False
    finetune_grid(Grid({"learning_rate": [1e-2]}), [0], model, data(), tmp_path, config=CONFIG, run=RUN)
    trained = pb.from_pretrained(tmp_path / "runs" / "learning_rate=0.01" / "seed-0" / "model")
    assert changed(model, trained) == set()


@pytest.mark.nightly
@pytest.mark.usefixtures("eager")
def test_distillation_and_baseline_keep_frozen_weights(tmp_path: Path) -> None:
    teacher = tiny_distillation.write_teacher(tmp_path / "teacher")
    task = tiny_distillation.task_data(teacher)
    read = pb.from_pretrained(teacher)
    read.trainable = False
    student = pb.from_preset(tiny_distillation.STUDENT, tokenizer=read.tokenizer, seed=3)
    student.encoder.layers_[0].feed_forwards[0].trainable = False
    method = pb.TinyBERT(max_length=tiny_distillation.MAX_LENGTH, intermediate_epochs=1, prediction_epochs=1)
    distill_and_compare([0], student, task, tmp_path / "run", teacher=read, method=method)
    every = set(student.weights_by_path())
    frozen = {path for path in every if path.startswith("encoder.layers.0.feed_forwards.0.")}
    assert frozen
    for folder in ("model", "fine_tuned/model"):
        assert changed(student, pb.from_pretrained(tmp_path / "run" / folder)) == every - frozen


def test_whole_prefixes_replace_weights() -> None:
    model = pb.from_preset(tiny.BERT, TaskConfig(kind="regression"))
    every = list(model.weights_by_path())
    assert outline(every, tiny.BERT, model.tasks) == ["encoder", "heads"]
    chosen = [path for path in every if not path.startswith("encoder.layers.1.")]
    outlined = outline(chosen, tiny.BERT, model.tasks)
    assert outlined == ["encoder.embeddings", "encoder.layers.0", "encoder.layers.2", "encoder.pooler", "heads"]
    assert outline(["encoder.pooler.kernel"], tiny.BERT, model.tasks) == ["encoder.pooler.kernel"]
    parts = [in_words(part, tiny.BERT) for part in outlined]
    assert parts == ["encoder.embeddings", "layer 1", "layer 3", "encoder.pooler", "heads"]
    deep = tiny.BERT.replace(num_layers=12)
    assert in_words("encoder.layers.10.feed_forwards.1", deep) == "layer 11 (feed_forwards.1)"
    assert in_words("encoder.layers.1.attention", deep.replace(layer_groups=3)) == "layers 5 to 8 (attention)"
    assert np.all([any(path.startswith(part) for part in outlined) for path in chosen])
