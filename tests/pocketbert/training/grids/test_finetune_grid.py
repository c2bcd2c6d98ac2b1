"""Grids of fine-tuning runs on tiny models from the command line; MobileBERT's recipe."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
from pathlib import Path

import forks
import numpy as np
import pytest
import tiny
import tiny_finetuning
from safetensors.numpy import load_file

import pocketbert as pb
from pocketbert import cli
from pocketbert.errors import UserError
from pocketbert.training.finetune import finetune_grid
from pocketbert.training.grids.points import Grid

DEV = tiny_finetuning.examples(29, seed=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds a model directory and tables."""
    folder = tmp_path_factory.mktemp("inputs")
    tiny_finetuning.write_model(folder / "tiny")
    tiny_finetuning.write_model(folder / "mobilebert", tiny.MOBILEBERT)
    tiny_finetuning.write_table(folder / "train.csv", tiny_finetuning.examples(61, seed=0))
    tiny_finetuning.write_table(folder / "dev.csv", DEV)
    return folder


def command_line(folder: Path, output: Path, *more: str, model: str = "tiny") -> list[str]:
    return [
        f"--model={folder / model}", f"--train-file={folder / 'train.csv'}", f"--dev-file={folder / 'dev.csv'}",
        "--labels=low,high", "--batch-size=16", "--max-length=23", "--checkpoint-seconds=0", f"--output={output}",
        *more,
    ]  # fmt: skip


def run(arguments: list[str], killed_at: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """`pocketbert finetune` in a process of its own, killed at the moments and begun again."""
    return forks.run_killed(killed_at, ["finetune", *arguments], **environment)


@pytest.mark.nightly
def test_killed_grid_ends_with_same_runs(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # 61 examples in batches of 16 are 4 steps: the sixth is in the second run.
    arguments = command_line(folder, tmp_path / "grid", "--epochs=1", "--grid=learning-rate=1e-3,1e-2", "--seeds=5")
    answer = run(arguments, killed_at="step:6")
    assert "2 runs, 1 finished" in answer.stderr
    assert answer.stderr.count("resuming after step 1 of 4") == 1
    assert "one run per point, with seed 5; pass --seeds=0,1,2 for three" in answer.stderr
    grid = tmp_path / "grid" / "runs"
    assert {path.name for path in grid.iterdir()} == {"learning_rate=0.001", "learning_rate=0.01"}

    alone = command_line(folder, tmp_path / "alone", "--epochs=1", "--learning-rate=1e-2", "--seeds=5")
    assert cli.main(["finetune", *alone]) == 0
    for name in ("model/model.safetensors", "metrics.jsonl"):
        assert (grid / "learning_rate=0.01" / "seed-5" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    answered = capsys.readouterr().out
    assert cli.main(["finetune", f"--config={tmp_path / 'alone' / 'run.toml'}", f"--output={tmp_path / 'again'}"]) == 0
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("alone", "again")]
    assert weights[0] == weights[1]
    summary = json.loads(answer.stdout)
    first, second = (point["runs"][0]["metrics"] for point in summary["points"])
    assert second == json.loads(answered)["metrics"]
    assert summary["best"]["options"] == {"learning_rate": 1e-2 if second["accuracy"] > first["accuracy"] else 1e-3}
    assert pb.from_pretrained(summary["best_model"]).task is not None
    assert (tmp_path / "grid" / "report.html").is_file()


@pytest.mark.slow
def test_parallel_runs_give_same_results(folder: Path, tmp_path: Path) -> None:
    options = ["--epochs=2", "--grid=learning_rate=1e-2,1e-3", "--seeds=0,3"]
    # The number of threads decides the order of sums.
    threads = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
    run(command_line(folder, tmp_path / "in turn", *options), **threads)
    answer = run(command_line(folder, tmp_path / "in processes", *options, "--parallel=2"), **threads)
    assert "2 at a time" in answer.stderr and "training: " not in answer.stderr
    models = sorted((tmp_path / "in turn").rglob("model.safetensors"))
    assert len(models) == 4
    for model in models:
        other = tmp_path / "in processes" / model.relative_to(tmp_path / "in turn")
        assert model.read_bytes() == other.read_bytes(), model


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--grid=rate=1"], "a grid may vary learning_rate.*; received rate"),
        (["--grid=learning_rate=0,1"], "grid: .*learning_rate must be positive; received 0.0"),
        (["--grid=bert", "--epochs=3"], "an option in --grid must not be a flag too; received --epochs"),
        (["--grid=epochs=1", "--parallel=0"], "--parallel must be positive; received 0"),
        (["--parallel=2", "--choose=mean"], "--choose, --parallel must be used with --grid; received no grid"),
        (["--grid=epochs=1", "--ray=auto"], r"several machines need Ray;.*pip install 'pocketbert\[ray\]'"),
        (["--grid=max_length=23,30,31"], "the model's 29 positions; received 30; .* 29 positions; received 31"),
        (["--grid=minilmv2-squad2"], "minilmv2-squad2 is a grid for span; received a classification task;"),
        # Texts have no windows.
        (["--grid=stride=3,4"], "a grid may vary learning_rate, .*patience, .*; received stride"),
    ],
)
def test_bad_input_leaves_nothing(
    changes: list[str], message: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = [
        argument
        for argument in command_line(folder, tmp_path / "run")
        if not argument.startswith(("--max-length", "--batch"))
    ]
    assert cli.main(["finetune", *base, *changes]) == 2
    output = capsys.readouterr()
    assert not output.out
    assert re.search(message, output.err.splitlines()[-1])
    assert not (tmp_path / "run").exists()


def test_all_points_are_checked_before_the_first_run(folder: Path, tmp_path: Path) -> None:
    examples = dataclasses.replace(DEV, labels=np.arange(len(DEV), dtype=np.float32))
    data = pb.TaskData(task=pb.TaskConfig(kind="regression"), train=examples, dev=examples)
    config, grid = pb.FinetuneConfig(epochs=1, batch_size=16, max_length=23), Grid({"label_smoothing": (0.0, 0.1)})
    with pytest.raises(UserError, match="label_smoothing needs labels with classes; regression has none"):
        finetune_grid(grid, (0,), folder / "tiny", data, tmp_path / "grid", config=config)
    assert not (tmp_path / "grid").exists()


@pytest.mark.nightly
def test_mobilebert_classifies_raw_first_token(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transformers = pytest.importorskip("transformers")
    more = ["--epochs=2", "--learning-rate=1e-2", "--head-pooling=first", "--head-start=random"]
    arguments = command_line(folder, tmp_path / "run", *more, "--nocalibrate", model="mobilebert")
    assert cli.main(["finetune", *arguments]) == 0
    directory = Path(json.loads(capsys.readouterr().out)["model_directory"])
    # The authors' `classifier_activation: false`: no tanh layer between the first token and the classifier.
    assert json.loads((directory / "config.json").read_text("utf-8"))["classifier_activation"] is False
    stored = load_file(directory / "model.safetensors")
    assert not [name for name in stored if "pooler" in name]
    before = load_file(folder / "mobilebert" / "model.safetensors")
    assert not np.array_equal(stored[name := "mobilebert.encoder.layer.0.output.dense.weight"], before[name])

    reference_model, loading = transformers.modeling_tf_pytorch_utils.load_pytorch_state_dict_in_tf2_model(
        transformers.TFMobileBertForSequenceClassification(transformers.AutoConfig.from_pretrained(directory)),
        stored,
        allow_missing_keys=False,
        output_loading_info=True,
    )
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    model = pb.from_pretrained(directory)
    assert model.tokenizer is not None
    inputs = model.tokenizer(DEV.texts, max_length=23)
    logits = model(inputs)["logits"].numpy()
    expected = reference_model(
        input_ids=inputs["input_word_ids"],
        attention_mask=inputs["input_mask"],
        token_type_ids=inputs["input_type_ids"],
    ).logits.numpy()
    # 2e-5 of the values' size is what two correct float32 implementations reach (tests/goldens/huggingface/README.md).
    np.testing.assert_allclose(logits, expected, atol=2e-5 * max(1.0, float(np.abs(expected).max())), rtol=0)
    # The logits are a linear map of the last layer's first token, and of nothing else.
    first = model.features(inputs, ["hidden_states"])["hidden_states"][-1][:, 0].numpy()
    mapped = first @ stored["classifier.weight"].T + stored["classifier.bias"]
    np.testing.assert_allclose(logits, mapped, atol=2e-5 * max(1.0, float(np.abs(expected).max())), rtol=0)
