"""A run continues with the head of its model directory, if kind and labels agree."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import tiny
import tiny_finetuning
from safetensors.numpy import load_file

import pocketbert as pb
from pocketbert import cli
from pocketbert.checkpoints.directory import read_directory
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.planning import plan_distillation
from pocketbert.errors import UserError
from pocketbert.training.config import FinetuneConfig
from pocketbert.training.finetune import finetune
from pocketbert.training.initialization import make_model, plan_model
from pocketbert.training.kept_heads import head_arrays
from pocketbert_runtime.embedding_config import EmbeddingConfig

MOODS = TaskConfig(kind="classification", labels=("low", "so so", "high"))


def saved(folder: Path, *tasks: TaskConfig, config: EncoderConfig = tiny.BERT) -> Path:
    """A model directory whose heads have random kernels and biases."""
    model = pb.from_preset(config, tasks, seed=4)
    random = np.random.default_rng(5)
    for path, variable in model.weights_by_path().items():
        if path.startswith("heads."):
            variable.assign(random.normal(size=variable.shape).astype(np.float32))
    model.save_pretrained(folder)
    return folder


def logits(model: pb.Model, name: str = "logits") -> np.ndarray:
    return model(tiny.batch(model.config))[name].numpy()


# A permutation that is not its own inverse.
@pytest.mark.one_of_each(
    "config0-classification-labels0-order0",
    "config0-multi_label-labels1-order1",
    "config1-token_classification-labels0-order0",
)
@pytest.mark.parametrize(
    ("labels", "order"), [(("high", "low", "so so"), [2, 0, 1]), (("LOW", "So  So", "HIGH"), [0, 1, 2])]
)
@pytest.mark.parametrize("kind", ["classification", "multi_label", "token_classification"])
@pytest.mark.parametrize("config", [tiny.BERT, tiny.ROBERTA])
def test_logits_follow_the_labels(
    kind: str, config: EncoderConfig, labels: tuple[str, ...], order: list[int], tmp_path: Path
) -> None:
    held = dataclasses.replace(MOODS, kind=kind)
    folder = saved(tmp_path / "model", held, config=config)
    model = make_model(plan_model(folder), [dataclasses.replace(held, labels=labels, name="other")], None, seed=9)
    name = "token_logits" if kind == "token_classification" else "logits"
    before = logits(pb.from_pretrained(folder), name)
    np.testing.assert_array_equal(logits(model, name), before[..., order])


@pytest.mark.parametrize(
    ("held", "task", "is_kept"),
    [
        (TaskConfig(kind="regression"), TaskConfig(kind="regression", name="stsb"), True),
        (TaskConfig(kind="span"), TaskConfig(kind="span"), True),
        (MOODS, TaskConfig(kind="classification", labels=("low", "so so")), False),
        (MOODS, TaskConfig(kind="classification", labels=("low", "so so", "up")), False),
        (MOODS, TaskConfig(kind="multi_label", labels=MOODS.labels), False),
        (TaskConfig(kind="regression"), TaskConfig(kind="span"), False),
        (
            TaskConfig(kind="embedding", embedding=EmbeddingConfig(dimensions=11)),
            TaskConfig(kind="embedding", embedding=EmbeddingConfig(dimensions=11, max_length=9)),
            True,
        ),
        (
            TaskConfig(kind="embedding", embedding=EmbeddingConfig(dimensions=11)),
            TaskConfig(kind="embedding", embedding=EmbeddingConfig(dimensions=11, pooling="cls")),
            False,
        ),
    ],
)
def test_kind_and_labels_decide(held: TaskConfig, task: TaskConfig, is_kept: bool, tmp_path: Path) -> None:
    config = tiny.BERT.replace(pooler="none") if "span" in (held.kind, task.kind) else tiny.BERT
    folder = saved(tmp_path / "model", held, config=config)
    arrays = head_arrays(read_directory(folder), [task])
    assert bool(arrays) == is_kept
    if is_kept:
        stored = read_directory(folder).tensors
        assert {path for path in stored if path.startswith("heads.")} == set(arrays)
        for path, array in arrays.items():
            np.testing.assert_array_equal(array, stored[path])


def test_head_of_same_name_is_taken(tmp_path: Path) -> None:
    tasks = [dataclasses.replace(MOODS, name=name) for name in ("first", "second")]
    folder = saved(tmp_path / "model", *tasks)
    stored = read_directory(folder).tensors
    arrays = head_arrays(read_directory(folder), [tasks[1]])
    np.testing.assert_array_equal(arrays["heads.classification.output.bias"], stored["heads.second.output.bias"])
    assert head_arrays(read_directory(folder), [dataclasses.replace(MOODS, name="third")]) == {}


def test_lines_name_kept_and_dropped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = saved(tmp_path / "model", MOODS, TaskConfig(kind="masked_lm"))
    plan = plan_model(folder)
    make_model(plan, [MOODS], None)
    err = capsys.readouterr().err
    assert "continuing with the model's head for classification (low, so so, high)\n" in err
    assert "leaving out the model's head for masked_lm\n" in err
    make_model(plan, [MOODS], None, new_head=True)
    assert (
        "leaving out the model's head for classification (low, so so, high) and masked_lm; the head for "
        "classification (low, so so, high) is new\n"
    ) in capsys.readouterr().err
    pb.from_pretrained(folder, task=TaskConfig(kind="regression"))
    assert "a new head for regression replaces the head for classification and masked_lm" in capsys.readouterr().err
    pb.from_pretrained(folder)
    assert capsys.readouterr().err == ""


def test_unreadable_head_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = saved(tmp_path / "model", MOODS)
    content = json.loads((folder / "config.json").read_text("utf-8"))
    content["architectures"] = ["BertForMultipleChoice"]
    content.pop("pocketbert", None)
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    model = make_model(plan_model(folder), [MOODS], None)
    assert model.task == MOODS
    assert "because it cannot be read" in capsys.readouterr().err


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    model = tiny_finetuning.write_model(folder / "start")
    train = tiny_finetuning.write_table(folder / "train.csv", tiny_finetuning.examples(90, seed=1))
    flags = ["finetune", f"--train-file={train}", f"--dev-file={train}", "--max-length=24", "--learning-rate=1e-2"]
    flags.append("--contrastive-steps=0")
    assert cli.main([*flags, f"--model={model}", "--epochs=4", "--batch-size=8", f"--output={folder / 'run'}"]) == 0
    return folder


@pytest.mark.nightly
def test_second_finetuning_keeps_the_score(tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = json.loads((tuned / "run" / "result.json").read_text("utf-8"))["metrics"]["accuracy"]
    flags = ["finetune", f"--train-file={tuned / 'train.csv'}", f"--dev-file={tuned / 'train.csv'}"]
    flags += [f"--model={tuned / 'run' / 'model'}", "--max-length=24", "--learning-rate=1e-9", "--epochs=1"]
    assert cli.main([*flags, f"--output={tmp_path / 'again'}"]) == 0
    captured = capsys.readouterr()
    # 90 examples; the updates are far too small to change a decision.
    assert json.loads(captured.out)["metrics"]["accuracy"] == first > 0.8
    assert "continuing with the model's head for classification (high, low); pass --new-head" in captured.err
    # The remedy of that line, and its record.
    assert cli.main([*flags, "--new-head", f"--output={tmp_path / 'new'}"]) == 0
    assert "the head for classification (high, low) is new" in capsys.readouterr().err
    assert json.loads((tmp_path / "new" / "run.json").read_text("utf-8"))["new_head"] is True
    heads = [
        load_file(folder / "model" / "model.safetensors")["mean_classifier.weight"]
        for folder in (tuned / "run", tmp_path / "new")
    ]
    assert np.abs(heads[0] - heads[1]).max() > 1e-3


@pytest.mark.nightly
@pytest.mark.usefixtures("eager")
def test_permuted_labels_keep_the_score(tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = pb.from_pretrained(tuned / "run" / "model")
    assert model.task is not None and model.task.labels == ("high", "low")
    examples = tiny_finetuning.examples(90, seed=1)
    data = TaskData(task=tiny_finetuning.TASK, train=examples, dev=examples)
    config = FinetuneConfig(learning_rate=1e-9, epochs=1, max_length=24)
    result = finetune(model, data, tmp_path / "run", config=config, run=pb.RunConfig(max_steps=1))
    assert result.metrics["accuracy"] > 0.8
    assert "(low, high), in the order of the data's labels" in capsys.readouterr().err


@pytest.mark.nightly
@pytest.mark.usefixtures("eager")
def test_sigmoid_of_a_reranker_continues(tmp_path: Path) -> None:
    task, plain = TaskConfig(kind="regression", activation="sigmoid"), TaskConfig(kind="regression")
    start = pb.from_pretrained(tiny_finetuning.write_model(tmp_path / "bare"), task=task, seed=4)
    start.heads["regression"].output_projection.bias.assign([0.3])
    start.save_pretrained(tmp_path / "model")
    examples = tiny_finetuning.examples(30, 3)
    scores = np.linspace(0, 1, 30, dtype=np.float32)
    scored = dataclasses.replace(examples, labels=scores)
    data = TaskData(task=plain, train=scored, dev=scored)
    config = FinetuneConfig(learning_rate=1e-9, epochs=1, max_length=23)
    run = pb.RunConfig(max_steps=1)
    trained = finetune(tmp_path / "model", data, tmp_path / "run", config=config, run=run).model
    before, after = ([row["score"] for row in model.predict(examples.texts)] for model in (start, trained))
    assert trained.task.activation == "sigmoid" and np.allclose(before, after, atol=1e-5)
    planned = plan_distillation(
        pb.TeacherLayers((1,)), data, teacher=tmp_path / "model", method=pb.TinyBERT(max_length=23), run=pb.RunConfig()
    )
    assert planned.tasks[0].activation == "sigmoid"
    # Stars from 1 to 5 need a new head.
    stars = dataclasses.replace(data, train=dataclasses.replace(examples, labels=1 + 4 * scores))
    with pytest.raises(UserError, match="between 0 and 1, because .* sigmoid; received 5; .* pass new_head=True"):
        finetune(tmp_path / "model", stars, tmp_path / "stars", config=config)
    config = dataclasses.replace(config, new_head=True)
    trained = finetune(tmp_path / "model", stars, tmp_path / "stars", config=config, run=run).model
    assert trained.task.activation is None
