"""`kfold` with the other options of a run: the model on all examples is that of an ordinary run, bit for bit."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import forks
import numpy as np
import pytest
import tiny_finetuning
from safetensors.numpy import load_file

import pocketbert as pb
from pocketbert.data.examples import Examples
from pocketbert.data.final_split import folds_of
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.training.config import CrossValidatedResult, FinetuneConfig, RunConfig
from pocketbert.training.finetune import finetune
from pocketbert.training.grids.published import PUBLISHED_HEAD
from pocketbert.training.rounding import round_model

pytestmark = pytest.mark.usefixtures("eager_module", "few_resamples")
FOLDS = 2
CONFIG = FinetuneConfig(**PUBLISHED_HEAD, learning_rate=3e-2, epochs=1, batch_size=8, max_length=11)
RUN = RunConfig(seed=5, evaluation_steps=2)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tiny_finetuning.CONFIG.replace(num_layers=2)
    return tiny_finetuning.write_model(tmp_path_factory.mktemp("models") / "tiny", config)


@pytest.fixture(scope="module")
def train_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = tiny_finetuning.examples(51, seed=7)
    return tiny_finetuning.write_table(tmp_path_factory.mktemp("tables") / "moods.csv", rows)


@pytest.fixture
def data(train_file: Path) -> TaskData:
    return pb.data.table(train_file)


def weights_of(folder: Path) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = load_file(folder / "model.safetensors")
    return arrays


def assert_same_bits(folder: Path, other: Path) -> None:
    weights, others = weights_of(folder), weights_of(other)
    assert set(weights) == set(others)
    assert [name for name, array in weights.items() if array.tobytes() != others[name].tobytes()] == []


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("run_options", "options"),
    [
        pytest.param(
            {
                "freeze": ("embeddings", "layers:1"),
                "layer_decay": 0.8,
                "rate_factors": ("head=2",),
                "truncation": "tail",
                "label_smoothing": 0.1,
                "dropout": 0.2,
                "gradient_checkpointing": True,
            },
            {"micro_batches": 2, "class_weights": "balanced", "schedule": "cosine"},
            id="together",
        ),
        pytest.param({"qat": "dynamic_wi8"}, {}, id="qat"),
        pytest.param({"precision": "bfloat16"}, {}, id="bfloat16"),
        pytest.param({"precision": "float16"}, {}, id="float16"),
    ],
)
def test_model_is_that_of_an_ordinary_run(
    run_options: dict[str, Any], options: dict[str, Any], start: Path, data: TaskData, tmp_path: Path
) -> None:
    run, config = dataclasses.replace(RUN, **run_options), dataclasses.replace(CONFIG, **options)
    result = finetune(start, data, tmp_path / "folds", config=config, run=run, kfold=FOLDS)
    assert isinstance(result, CrossValidatedResult)
    assert data.undivided is not None
    everything = dataclasses.replace(data, train=data.undivided, undivided=None)
    run = dataclasses.replace(run, max_steps=result.steps, keep_checkpoints=1)
    alone = finetune(start, everything, tmp_path / "alone", config=config, run=run)
    last = tmp_path / "alone" / "checkpoints" / f"step-{result.steps:07d}" / "model"
    assert_same_bits(Path(result.model_directory), last)
    assert (result.skipped_steps is None) == (run.precision != "float16")
    assert alone.steps == result.steps
    if "freeze" in run_options:
        before, after = weights_of(start), weights_of(Path(result.model_directory))
        unchanged = {name for name in before if np.array_equal(before[name], after.get(name))}
        frozen = {name for name in before if name.startswith(("bert.embeddings.", "bert.encoder.layer.0."))}
        # Softmax does not read the bias of keys, which has no gradient.
        assert frozen <= unchanged and not any(".layer.1.output." in name for name in unchanged)
        # The end of a long text stays, between two special tokens.
        texts = [" ".join(["the"] * count + ["bad"]) for count in (20, 8)]
        ids = [result.model.tokenizer([text], max_length=11)["input_word_ids"].numpy() for text in texts]
        assert np.array_equal(*ids)
    record = json.loads((tmp_path / "folds" / "run.json").read_text("utf-8"))
    fold_record = json.loads((tmp_path / "folds" / "folds" / "fold-1" / "run.json").read_text("utf-8"))
    for name in run_options:
        expected = json.loads(json.dumps(getattr(run, name)))
        assert record[name] == fold_record[name] == expected


@pytest.mark.nightly
def test_rounding_models_are_scored_rounded(start: Path, data: TaskData, tmp_path: Path) -> None:
    # No text is cut, since predict takes as many tokens as the model.
    run, config = dataclasses.replace(RUN, qat="dynamic_wi4"), dataclasses.replace(CONFIG, max_length=23)
    finetune(start, data, tmp_path / "folds", config=config, run=run, kfold=FOLDS)
    splits = folds_of(data, FOLDS)[0]
    assert splits.final is not None
    alone = finetune(start, splits.data, tmp_path / "alone", config=config, run=run)
    final = splits.final.dev
    plain = [answer["probabilities"] for answer in alone.model.predict(final.texts)]
    # Another model: graphs that were traced before do not round.
    rounded = pb.from_pretrained(alone.model_directory)
    round_model(rounded, "dynamic_wi4", logits_only=True)
    lines = [json.loads(line) for line in (tmp_path / "folds" / "predictions.jsonl").read_text("utf-8").splitlines()]
    received = [line["probabilities"] for line in lines if line["fold"] == 1]
    assert received == [answer["probabilities"] for answer in rounded.predict(final.texts)] != plain


@pytest.mark.nightly
def test_two_replicas_train_folds(start: Path, train_file: Path, tmp_path: Path) -> None:
    command = ["finetune", f"--model={start}", "--learning-rate=3e-2", "--epochs=2", "--batch-size=8"]
    command += ["--max-length=11", "--contrastive-steps=0", "--seeds=5", "--distribution=mirrored"]
    command += ["--evaluation-steps=2", f"--train-file={train_file}"]
    forks.run_killed("", [*command, f"--kfold={FOLDS}", f"--output={tmp_path / 'folds'}"], REPLICAS="2")
    result = json.loads((tmp_path / "folds" / "result.json").read_text("utf-8"))
    more = [f"--dev-file={train_file}", f"--max-steps={result['steps']}", "--keep-checkpoints=1"]
    forks.run_killed("", [*command, *more, f"--output={tmp_path / 'alone'}"], REPLICAS="2")
    last = tmp_path / "alone" / "checkpoints" / f"step-{result['steps']:07d}" / "model"
    assert_same_bits(tmp_path / "folds" / "model", last)
    assert sum(fold["examples"] for fold in result["cross_validation"]["folds"]) == 51


@pytest.mark.nightly
def test_folds_of_several_labels_are_recorded(start: Path, tmp_path: Path) -> None:
    plain: Examples = tiny_finetuning.examples(43, seed=2)
    names = [["odd", "low"] if number % 3 == 1 else ["low"] if number % 2 else [] for number in range(43)]
    data = pb.data.table({"text": plain.texts, "label": names}, kind="multi_label")
    result = finetune(start, data, tmp_path / "run", config=CONFIG, kfold=FOLDS)
    path = tmp_path / "run" / "run.json"
    record = json.loads(path.read_text("utf-8"))
    finals = [splits.final.dev.identity for splits in folds_of(data, FOLDS) if splits.final]
    assert record["parts_sha256"] == finals and len(finals) == FOLDS
    assert finetune(start, data, tmp_path / "run", config=CONFIG, kfold=FOLDS).metrics == result.metrics
    # An earlier commit divided these examples otherwise, and recorded nothing about it.
    path.write_text(json.dumps({name: value for name, value in record.items() if name != "parts_sha256"}), "utf-8")
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(UserError, match="an unfinished run with other options: parts_sha256=None, received"):
        finetune(start, data, tmp_path / "run", config=CONFIG, kfold=FOLDS)
