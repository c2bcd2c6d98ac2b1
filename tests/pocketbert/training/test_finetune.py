"""Fine-tuning runs on a tiny model."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import forks
import numpy as np
import pytest
import tensorflow as tf
import tiny_finetuning

import pocketbert as pb
from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.data.task_data import TaskData
from pocketbert.errors import TrainingFailed, UserError
from pocketbert.tasks.text_evaluator import TextEvaluator
from pocketbert.training import trainer
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.finetune import finetune
from pocketbert.training.run_folder import open_run
from pocketbert.training.stage_log import LossWatch
from pocketbert.training.state import TrainState, read_checkpoint, write_checkpoint
from pocketbert.training.trainer import Trainer, train_seeds

CONFIG = FinetuneConfig(learning_rate=1e-2, epochs=3, batch_size=16, max_length=23, warmup_ratio=0.2)
RUN = RunConfig(seed=5, checkpoint_seconds=0.0)


@pytest.fixture(scope="module")
def model_directory(start: Path) -> Path:
    return start


def arguments(
    model_directory: Path, config: FinetuneConfig = CONFIG, run: RunConfig = RUN, **changes: Any
) -> dict[str, Any]:
    """The keywords of `finetune`; `changes` are fields of its data."""
    data = {
        "task": tiny_finetuning.TASK,
        "train": tiny_finetuning.examples(150, seed=0),
        "dev": tiny_finetuning.examples(43, seed=1),
        "metrics": ("accuracy", "f1"),
        "main_metric": "accuracy",
        **changes,
    }
    return {"model": model_directory, "data": TaskData(**data), "config": config, "run": run}


def log_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def finished(model_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    finetune(output=folder, **arguments(model_directory))
    return folder


def test_run_writes_best_model_and_log(finished: Path) -> None:
    result = json.loads((finished / "result.json").read_text("utf-8"))
    # 150 examples in batches of 16 are 10 steps an epoch.
    assert result["steps"] == 30
    assert result["metrics"]["accuracy"] > 0.9
    lines = log_of(finished)
    assert [line["step"] for line in lines if line["split"] == "dev"] == [20, 30]
    assert [line["step"] for line in lines if line["split"] == "train"] == [20, 30]
    best = max((line for line in lines if line["split"] == "dev"), key=lambda line: (line["accuracy"], -line["loss"]))
    assert (best["step"], best["accuracy"]) == (result["best_step"], result["metrics"]["accuracy"])
    assert not (finished / "checkpoint.safetensors").exists()

    model = pb.from_pretrained(finished / "model")
    assert model.task is not None and model.task.labels == tiny_finetuning.TASK.labels
    assert model.tokenizer is not None
    dev = tiny_finetuning.examples(43, seed=1)
    logits = model(model.tokenizer(dev.texts, max_length=CONFIG.max_length))["logits"].numpy()
    assert (logits.argmax(-1) == dev.labels).mean() == result["metrics"]["accuracy"]


def test_result_and_page_show_baseline(finished: Path) -> None:
    from sklearn.metrics import classification_report, confusion_matrix

    result = json.loads((finished / "result.json").read_text("utf-8"))
    dev = tiny_finetuning.examples(43, seed=1)
    assert dev.labels is not None
    share = max(np.mean(dev.labels == 0), np.mean(dev.labels == 1))
    assert result["baseline"]["metrics"]["accuracy"] == pytest.approx(share)
    assert result["baseline"]["answer"] in ("always 'low'", "always 'high'")
    assert result["positive_label"] == "high"
    # The run is short and its rate high, and a text of two words is in both splits.
    assert [re.split("[,:]", warning)[0] for warning in result["warnings"]] == [
        "below the baseline",
        "the dev loss was still falling",
        "1 of 43 dev texts is among the training texts",
    ]
    # The best checkpoint's, whose metrics the result has.
    model = pb.from_pretrained(finished / "model")
    predictions = model(model.tokenizer(dev.texts, max_length=CONFIG.max_length))["logits"].numpy().argmax(-1)
    report = classification_report(dev.labels, predictions, target_names=["low", "high"], output_dict=True)
    assert result["classes"]["macro_f1"] == pytest.approx(report["macro avg"]["f1-score"])
    assert result["classes"]["by_label"]["low"]["recall"] == pytest.approx(report["low"]["recall"])
    assert result["classes"]["confusion_matrix"] == confusion_matrix(dev.labels, predictions).tolist()
    page = (finished / "report.html").read_text("utf-8")
    for text in (
        f"{result['metrics']['accuracy']:.4f}",
        f"{share:.4f}",
        "always &#39;",
        "Confusion matrix",
        "macro-F1",
    ):
        assert text in page
    # Nothing is fetched from elsewhere.
    assert "http" not in page and "src=" not in page


@pytest.mark.usefixtures("eager")
def test_model_that_learned_nothing_is_named(
    model_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = tiny_finetuning.examples(40, seed=0)
    assert train.labels is not None
    dev = dataclasses.replace(train, labels=np.where(np.arange(40) < 3, 1, 0).astype(np.int32))
    only_low = dataclasses.replace(train, labels=np.zeros(40, np.int32))
    config = dataclasses.replace(CONFIG, epochs=2)
    result = finetune(output=tmp_path / "run", **arguments(model_directory, config, train=only_low, dev=dev))
    assert result.metrics["accuracy"] == pytest.approx(37 / 40)
    (warning,) = [warning for warning in result.warnings if warning.startswith("not learned")]
    assert warning.startswith("not learned from this many examples: accuracy 0.9250; the baseline, always 'low', has")
    assert warning in capsys.readouterr().err
    assert "not learned from this many examples" in (tmp_path / "run" / "report.html").read_text("utf-8")


def test_tensorboard_has_the_same_numbers(finished: Path) -> None:
    events: dict[tuple[str, int], float] = {}
    for path in (finished / "tensorboard").iterdir():
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                events[value.tag, event.step] = float(tf.make_ndarray(value.tensor))
    expected = {
        (f"{line['split']}/{name}", line["step"]): number
        for line in log_of(finished)
        for name, number in line.items()
        if name not in ("step", "split")
    }
    assert set(events) == set(expected)
    # Events are float32.
    assert all(events[key] == np.float32(expected[key]) for key in expected)


def test_finished_run_refuses_other_options(
    finished: Path, model_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (finished / "model" / "model.safetensors").stat().st_mtime_ns
    result = finetune(output=finished, **arguments(model_directory))
    assert "this run is finished" in capsys.readouterr().err
    assert result.model_directory == str(finished / "model") and result.steps == 30
    assert (finished / "model" / "model.safetensors").stat().st_mtime_ns == before
    other = dataclasses.replace(CONFIG, learning_rate=2e-2), dataclasses.replace(RUN, seed=6)
    with pytest.raises(UserError, match="finished run.*learning_rate=0.01, received 0.02, seed=5, received 6.*overwri"):
        finetune(output=finished, **arguments(model_directory, *other))
    with pytest.raises(UserError, match="other options: dev_sha256="):
        finetune(output=finished, **arguments(model_directory, dev=tiny_finetuning.examples(44, seed=1)))


class Interrupted(BaseException):
    """Stands for the end of the process; no handler in the code catches it."""


@pytest.mark.nightly
def test_resumed_run_is_bit_identical(
    finished: Path, model_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    with monkeypatch.context() as patch:
        calls = []

        def interrupting(*arguments: Any) -> None:
            write_checkpoint(*arguments)
            calls.append(arguments)
            if len(calls) == 13:
                raise Interrupted

        patch.setattr(trainer, "write_checkpoint", interrupting)
        with pytest.raises(Interrupted):
            finetune(output=tmp_path / "run", **arguments(model_directory))
    # Lines after the last checkpoint, the last of them torn, as a kill may leave them.
    with open(tmp_path / "run" / "metrics.jsonl", "ab") as stream:
        stream.write(b'{"step": 14, "split": "train", "loss": 0.5, "learning_rate": 0.1}\n{"step": 1')
    with pytest.raises(UserError, match="unfinished run with other options: epochs=3, received 4;"):
        finetune(output=tmp_path / "run", **arguments(model_directory, dataclasses.replace(CONFIG, epochs=4)))
    # How often checkpoints are written may change.
    resumed = dataclasses.replace(RUN, checkpoint_seconds=1e9)
    finetune(output=tmp_path / "run", **arguments(model_directory, run=resumed))
    assert "resuming after step 13 of 30" in capsys.readouterr().err
    assert_same_run(tmp_path / "run", finished)


def assert_same_run(actual: Path, expected: Path) -> None:
    for name in ("model/model.safetensors", "metrics.jsonl"):
        assert (actual / name).read_bytes() == (expected / name).read_bytes(), name
    results = [json.loads((folder / "result.json").read_text("utf-8")) for folder in (actual, expected)]
    assert {**results[0], "seconds": 0} == {**results[1], "seconds": 0}
    assert not list(actual.glob(".*.*")), "something is left of an unfinished writing"


def run_killed(moments: str, command_line: list[str]) -> str:
    return forks.run_killed(moments, ["finetune", *command_line]).stderr


# Renames: 1 run.json; 2, 3, … a checkpoint a step; after step 10 the first model directory and then its checkpoint.
KILLED_ONCE_EACH = "aside:10,placed:4"
KILLED_OFTEN = [
    "step:4,aside:10,placed:4",
    "aside:1,placed:1,aside:2,placed:2,step:1",
    "aside:12,aside:2,placed:11,aside:2",
    "step:11,step:10,step:2,aside:3,placed:4",
    "step:30,placed:1,aside:2",
    ",".join(["step:2"] * 12),
]


@pytest.mark.parametrize(
    "moments",
    [
        "aside:10",
        pytest.param(KILLED_ONCE_EACH, marks=pytest.mark.nightly),
        *(pytest.param(moments, marks=pytest.mark.slow) for moments in KILLED_OFTEN),
    ],
)
def test_killed_runs_resume_exactly(moments: str, finished: Path, model_directory: Path, tmp_path: Path) -> None:
    train = tiny_finetuning.write_table(tmp_path / "train.csv", tiny_finetuning.examples(150, seed=0))
    dev = tiny_finetuning.write_table(tmp_path / "dev.csv", tiny_finetuning.examples(43, seed=1))
    command_line = [
        f"--model={model_directory}", f"--train-file={train}", f"--dev-file={dev}", "--labels=low,high",
        "--epochs=3", "--batch-size=16", "--max-length=23", "--learning-rate=1e-2", "--warmup-ratio=0.2",
        "--checkpoint-seconds=0", "--seeds=5",
    ]  # fmt: skip
    killed_run = run_killed(moments, [*command_line, f"--output={tmp_path / 'killed'}"])
    assert "resuming after step" in killed_run
    assert_same_run(tmp_path / "killed", finished)


@pytest.mark.usefixtures("eager")
def test_infinite_loss_stops_and_names_step(
    model_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = Trainer.steps

    def poisoned(self: Any, *where: Any) -> Any:
        for index, loss in enumerate(steps(self, *where)):
            yield loss * (float("nan") if index == 6 else 1.0)

    monkeypatch.setattr(Trainer, "steps", poisoned)
    train = tiny_finetuning.write_table(tmp_path / "train.csv", tiny_finetuning.examples(60, seed=0))
    code = cli.main(
        ["finetune", f"--model={model_directory}", f"--train-file={train}", f"--dev-file={train}", "--epochs=1",
         "--max-length=23", "--batch-size=8", "--contrastive-steps=0", f"--output={tmp_path / 'run'}"]
    )  # fmt: skip
    assert code == 1
    output = capsys.readouterr()
    assert "pocketbert finetune: the loss must stay finite; it is nan at step 7;" in output.err
    assert not output.out and not (tmp_path / "run" / "result.json").exists()


def test_loss_watch_names_first_bad_step() -> None:
    watch = LossWatch([[0.5]], step=20)
    for value in (0.25, float("inf"), float("nan")):
        watch.add(tf.constant([value]))
    with pytest.raises(TrainingFailed, match="inf at step 22"):
        watch.look()


@pytest.mark.nightly
@pytest.mark.usefixtures("eager")
def test_early_stop_keeps_best_checkpoint(
    model_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([0.5, 0.7, 0.7, 0.6, 0.9])
    saved = []
    monkeypatch.setattr(TextEvaluator, "metrics", lambda *_: {"accuracy": next(scores)})
    save = pb.Model.save_pretrained

    def counted_save(self: pb.Model, path: Path, overwrite: bool) -> None:
        saved.append(path)
        save(self, path, overwrite)

    monkeypatch.setattr(pb.Model, "save_pretrained", counted_save)
    # The shortest texts that there are; windows on paragraphs, which texts do not have, would need 5 tokens.
    config = dataclasses.replace(CONFIG, max_length=3, head_start="random")
    options = config, dataclasses.replace(RUN, evaluation_steps=4, patience=2)
    result = finetune(output=tmp_path / "run", **arguments(model_directory, *options, metrics=("accuracy",)))
    # Evaluations after steps 4 and 8, after the epoch's 10th, and after step 12: the third and fourth are no better.
    assert [line["step"] for line in log_of(tmp_path / "run") if line["split"] == "dev"] == [4, 8, 10, 12]
    assert (result.steps, result.best_step, result.metrics) == (12, 8, {"accuracy": 0.7})
    assert len(saved) == 2


@pytest.mark.nightly
def test_regression_pairs_bfloat16_and_seeds(model_directory: Path, tmp_path: Path) -> None:
    def scored(count: int, seed: int) -> Any:
        plain = tiny_finetuning.examples(count, seed)
        return dataclasses.replace(plain, pairs=plain.texts[::-1], labels=plain.labels.astype(np.float32) * 2.5)

    options = dataclasses.replace(CONFIG, epochs=2), dataclasses.replace(RUN, precision="bfloat16")
    summary = train_seeds(
        finetune,
        (3, 8),
        output=tmp_path / "runs",
        **arguments(
            model_directory,
            *options,
            task=TaskConfig(kind="regression", name="score"),
            train=scored(90, 0),
            dev=scored(37, 1),
            metrics=("pearson", "spearman"),
            main_metric="pearson",
        ),
    )
    runs = summary["runs"]
    values = [run["metrics"]["pearson"] for run in runs]
    assert [run["seed"] for run in runs] == [3, 8]
    assert summary["metrics"]["pearson"]["mean"] == pytest.approx(np.mean(values))
    assert summary["metrics"]["pearson"]["standard_deviation"] == pytest.approx(np.std(values, ddof=1))
    assert summary["best_model"] == runs[int(np.argmax(values))]["model_directory"]
    assert json.loads((tmp_path / "runs" / "result.json").read_text("utf-8")) == summary
    weights = [(tmp_path / "runs" / f"seed-{seed}" / "model" / "model.safetensors").read_bytes() for seed in (3, 8)]
    assert weights[0] != weights[1]
    model = pb.from_pretrained(tmp_path / "runs" / "seed-3" / "model")
    assert all(variable.dtype == tf.float32 for variable in model.named_variables().values())
    with pytest.raises(UserError, match="contain only runs with these seeds"):
        train_seeds(finetune, (9,), output=tmp_path / "runs", **arguments(model_directory))


def test_keras_fit_trains_with_our_optimizer(model_directory: Path) -> None:
    from pocketbert.training.optimizers import AdamW
    from pocketbert.training.schedules import LinearSchedule

    model = pb.from_pretrained(model_directory, task=tiny_finetuning.TASK, seed=1)
    train = tiny_finetuning.examples(150, seed=0)
    assert model.tokenizer is not None
    inputs = {name: value.numpy() for name, value in model.tokenizer(train.texts, max_length=23).items()}
    schedule = LinearSchedule(1e-2, total_steps=60, warmup_steps=12)
    optimizer = AdamW(schedule, clip_norm=1.0, named_variables=model.named_variables())
    model.compile(optimizer=optimizer, metrics=["accuracy"])
    # Keras shuffles without a seed; the batches stay in order so that the test gives the same answer every time.
    history = model.fit(inputs, train.labels, batch_size=16, epochs=6, shuffle=False, verbose=0).history
    # Guessing gives ln 2 = 0.69.
    assert history["loss"][-1] < 0.3


def test_foreign_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    assert read_checkpoint(path, {}) is None
    position = TrainState(epoch=1, step=7, losses=[[0.1], [1 / 3]], best_metrics={"accuracy": 0.5})
    write_checkpoint(path, {"a": tf.Variable([1.0, 2.0]), "s": tf.Variable([3], dtype=tf.int64)}, position)
    restored = {"a": tf.Variable([0.0, 0.0]), "s": tf.Variable([0], dtype=tf.int64)}
    assert read_checkpoint(path, restored) == position
    assert restored["a"].numpy().tolist() == [1, 2] and restored["s"].numpy().tolist() == [3]
    with pytest.raises(UserError, match=r"2 differ \(b, s"):
        read_checkpoint(path, {"a": tf.Variable([0.0, 0.0]), "b": tf.Variable(0.0)})


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    with pytest.raises(UserError, match="holds something else"), open_run(tmp_path, {}, overwrite=True):
        pass
    assert (tmp_path / ".git").is_dir()


def test_second_process_is_refused(tmp_path: Path) -> None:
    with (
        open_run(tmp_path / "run", {}, overwrite=False),
        pytest.raises(UserError, match="one process at a time"),
        open_run(tmp_path / "run", {}, overwrite=False),
    ):
        pass
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--model=no-such-model"], "a model directory must be a folder or a name .*; received no-such-model"),
        (
            ["--task=sst2"],
            "--task and --data, or --train-file with or without --dev-file; received --dev-file and --task",
        ),
        (["--seeds=1,1"], "--seeds must be one or more different numbers; received 1,1"),
        (
            ["--seeds=three"],
            "--seeds=three: must be a list of whole numbers with commas, such as 1,2",
        ),
        (["--learning-rate=0", "--warmup-ratio=1"], "learning_rate must be positive.*warmup_ratio must lie in"),
        (["--label-column=stars"], "must have the column 'stars'"),
        (["--class-weights=lo=2"], "class_weights must name labels of the task, 'high', 'low'; received 'lo'"),
        (["--class-weights=2"], "class_weights must be none, balanced or label=weight,… with positive numbers; .* '2'"),
        (["--max-length=30"], "max_length must be at most the model's 29 positions; received 30"),
    ],
)
def test_bad_input_leaves_nothing(
    changes: list[str], message: str, model_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import re

    table = tiny_finetuning.write_table(tmp_path / "data.csv", tiny_finetuning.examples(20, seed=0))
    base = [f"--model={model_directory}", f"--train-file={table}", f"--dev-file={table}"]
    code = cli.main(["finetune", *base, f"--output={tmp_path / 'run'}", *changes])
    output = capsys.readouterr()
    assert code == 2 and not output.out
    assert re.search(message, output.err.splitlines()[-1])
    assert not (tmp_path / "run").exists()
