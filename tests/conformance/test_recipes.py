"""A recipe is one row and one file: a toy recipe trains, exports, passes the gate and runs, also in Java."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import tiny_finetuning
import toy_runs

from pocketbert.recipes import RECIPES

TOY = "float16_9bits"
python = functools.partial(toy_runs.run, "toy_recipe")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of a network that was trained with the toy's rounding; its gate passed, and it was measured."""
    folder = tmp_path_factory.mktemp("toy")
    tiny_finetuning.write_model(folder / "start")
    train, dev = (
        tiny_finetuning.write_table(folder / f"{name}.csv", tiny_finetuning.examples(60, seed))
        for seed, name in enumerate(("train", "dev"))
    )
    data = [f"--train-file={train}", f"--dev-file={dev}", "--label-column=label"]
    run = ["--epochs=1", "--max-length=19", f"--qat={TOY}", f"--output={folder / 'run'}"]
    options = [f"--recipe={TOY}", "--lengths=19", f"--file={dev}", f"--output={folder / 'bundle'}"]
    toy_runs.commands(
        "toy_recipe",
        ["finetune", f"--model={folder / 'start'}", *data, *run],
        ["export", f"--model={folder / 'run'}", *options],
        ["verify", folder / "bundle"],
        ["bench", folder / "bundle", "--lengths=19", "--quick", f"--output={folder / 'result.json'}"],
    )
    return folder / "bundle"


# So does the toy's file with the toy of a task in test_one_file_tasks.py.
@pytest.mark.nightly
def test_toy_trains_exports_and_passes_the_gate(bundle: Path) -> None:
    assert json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))["recipe"] == TOY
    assert json.loads((bundle.parent / "run" / "run.json").read_text(encoding="utf-8"))["qat"] == TOY


def test_toy_rounds_the_file_and_in_training() -> None:
    lines = python(
        "import numpy as np, tensorflow as tf\n"
        "from pocketbert.layers.fake_quantization import fake_quantization\n"
        "kernel = tf.constant(np.linspace(-1, 1, 77, dtype=np.float32).reshape(7, 11))\n"
        f"print(fake_quantization({TOY!r}).kernel(kernel).numpy().tolist())"
    )
    rounded = np.array(json.loads(lines), np.float32)
    assert not (rounded.view(np.uint32) & 0x7FFF).any()
    exact = np.linspace(-1, 1, 77, dtype=np.float32).reshape(7, 11)
    np.testing.assert_allclose(rounded, exact, rtol=2**-8)
    assert (rounded != exact).any()


def test_toy_is_in_every_list_of_choices() -> None:
    listed = python(
        "from pocketbert.commands.command_line import Command\n"
        "for name in ('export', 'bundle', 'finetune', 'distill'):\n"
        "  print([field.choices for field in Command(name).fields if field.name in ('recipe', 'qat')])"
    )
    assert [TOY in line for line in listed.splitlines()] == [True] * 4
    assert TOY not in RECIPES


@pytest.mark.nightly
def test_toy_is_measured(bundle: Path) -> None:
    result = bundle.parent / "result.json"
    assert json.loads(result.read_text(encoding="utf-8"))["measurements"][0]["recipe"] == TOY


@pytest.mark.java
def test_toy_runs_in_java(bundle: Path, tmp_path: Path) -> None:
    (measurement,), refusal = toy_runs.java_host("toy_recipe", "recipes.txt", bundle, tmp_path)
    assert measurement["recipe"] == TOY and measurement["golden"]["tolerance"] > 0
    assert f"received '{TOY}'" in refusal
