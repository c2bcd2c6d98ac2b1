"""Runs and commands read each tensor of a model directory once, and describe a directory without reading any."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_distillation
import tiny_finetuning
import toy_method
from safetensors.numpy import load_file, save_file

import pocketbert as pb
from pocketbert import cli
from pocketbert.checkpoints import stored_tensors
from pocketbert.checkpoints.directory import describe_directory, has_new_biases, read_described, read_directory
from pocketbert.checkpoints.stored_tensors import StoredTensor
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.comparison import distill_and_compare
from pocketbert.errors import UserError
from pocketbert.pruning.config import PruneConfig
from pocketbert.pruning.run import prune
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.stage import Steps

Reads = collections.Counter[tuple[Path, str]]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """How often each tensor of each file is read; a digest opens files in another way."""
    counted: Reads = collections.Counter()
    paths: dict[int, Path] = {}
    opened: list[Any] = []
    open_file, open_tensors, read = stored_tensors.safe_open, stored_tensors._open_safetensors, StoredTensor.read
    names: dict[int, tuple[Path, str]] = {}

    def opening(path: Path, framework: str) -> Any:
        file = open_file(path, framework=framework)
        opened.append(file)
        paths[id(file)] = Path(path)
        return file

    def tensors(file: Any) -> dict[str, StoredTensor]:
        stored = open_tensors(file)
        opened.append(stored)
        names.update({id(tensor.load): (paths[id(file)], name) for name, tensor in stored.items()})
        return stored

    def counting(self: StoredTensor) -> np.ndarray:
        if id(self.load) in names:
            counted[names[id(self.load)]] += 1
        return read(self)

    monkeypatch.setattr(stored_tensors, "safe_open", opening)
    monkeypatch.setattr(stored_tensors, "_open_safetensors", tensors)
    monkeypatch.setattr(StoredTensor, "read", counting)
    return counted


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    tiny_distillation.write_teacher(folder / "teacher")
    tokenizer = pb.from_pretrained(folder / "teacher").tokenizer
    pb.from_preset(tiny_distillation.STUDENT, tokenizer=tokenizer).save_pretrained(folder / "student")
    # float16 has to become float32 once.
    weights = folder / "teacher" / "model.safetensors"
    arrays = {name: array.astype(np.float16) for name, array in load_file(weights).items()}
    save_file(arrays, weights, {"format": "pt"})
    tiny_finetuning.write_table(folder / "dev.csv", tiny_distillation.task_data(folder / "teacher").dev)
    return folder


@pytest.fixture(scope="module")
def data(inputs: Path) -> TaskData:
    data = tiny_distillation.task_data(inputs / "teacher")
    return dataclasses.replace(data, train=data.train.select(range(16)), dev=data.dev.select(range(7)))


def fine_tune(inputs: Path, data: TaskData, output: Path) -> None:
    config = FinetuneConfig(epochs=1, batch_size=16, max_length=23, learning_rate=1e-2)
    pb.finetune(inputs / "teacher", data, output, config=config, run=RunConfig(seed=5))


def distil(inputs: Path, data: TaskData, output: Path) -> None:
    teacher, method = inputs / "teacher", toy_method.toy(only="hidden")
    pb.distill(inputs / "student", data, output, teacher=teacher, method=method, run=RunConfig(seed=4))


def distil_layers(inputs: Path, data: TaskData, output: Path) -> None:
    student, method = pb.TeacherLayers((1,)), toy_method.toy(only="hidden")
    pb.distill(student, data, output, teacher=inputs / "teacher", method=method, run=RunConfig(seed=4))


def compare(inputs: Path, data: TaskData, output: Path) -> None:
    teacher, method = inputs / "teacher", toy_method.toy(duration=Steps(2))
    distill_and_compare([4], inputs / "student", data, output, teacher=teacher, method=method)


def compare_layers(inputs: Path, data: TaskData, output: Path) -> None:
    teacher, method = inputs / "teacher", toy_method.toy(duration=Steps(2))
    distill_and_compare([4], pb.TeacherLayers((1,)), data, output, teacher=teacher, method=method)


def cut(inputs: Path, data: TaskData, output: Path) -> None:
    prune(
        inputs / "teacher",
        data,
        output,
        config=PruneConfig(layers=1, intermediate_size=None, embedding_rank=None, max_length=23),
    )


def export(inputs: Path, data: TaskData, output: Path) -> None:
    # Writes the model card too.
    command = ["export", f"--model={inputs / 'teacher'}", "--lengths=16", "--recipe=float32", f"--output={output}"]
    assert cli.main([*command, f"--file={inputs / 'dev.csv'}"]) == 0


def export_saved_model(inputs: Path, data: TaskData, output: Path) -> None:
    command = ["export", f"--model={inputs / 'teacher'}", "--lengths=16", "--recipe=float32", f"--output={output}"]
    assert cli.main([*command, f"--saved-model={output.with_name('saved')}"]) == 0


def evaluate(inputs: Path, data: TaskData, output: Path) -> None:
    assert cli.main(["evaluate", f"--model={inputs / 'teacher'}", f"--file={inputs / 'dev.csv'}"]) == 0


def check_reads(
    action: Callable[[Path, TaskData, Path], None], inputs: Path, data: TaskData, tmp_path: Path, reads: Reads
) -> None:
    reads.clear()
    action(inputs, data, tmp_path / "output")
    folders = {path.parent for path, _ in reads}
    assert inputs / "teacher" in folders and (action is not distil or inputs / "student" in folders)
    assert (inputs / "teacher" / "model.safetensors", "bert.embeddings.word_embeddings.weight") in reads
    assert {key: count for key, count in reads.items() if count > 1} == {}


@pytest.mark.one_of_each("fine_tune", "distil_layers", "cut", "evaluate")
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("action", [fine_tune, distil, distil_layers, compare, compare_layers, cut, evaluate])
def test_each_tensor_is_read_once(
    action: Callable[[Path, TaskData, Path], None], inputs: Path, data: TaskData, tmp_path: Path, reads: Reads
) -> None:
    check_reads(action, inputs, data, tmp_path, reads)


@pytest.mark.nightly
@pytest.mark.parametrize("action", [export, export_saved_model])
def test_export_reads_each_tensor_once(
    action: Callable[[Path, TaskData, Path], None], inputs: Path, data: TaskData, tmp_path: Path, reads: Reads
) -> None:
    check_reads(action, inputs, data, tmp_path, reads)


def test_description_has_no_tensors(inputs: Path, reads: Reads) -> None:
    description = describe_directory(inputs / "teacher")
    assert not reads
    directory = read_directory(inputs / "teacher")
    assert (description.config, description.tasks, description.vocabulary) == (
        directory.config, directory.tasks, directory.vocabulary
    )  # fmt: skip
    assert reads and set(reads.values()) == {1}


def test_biases_are_kept_for_the_reading(inputs: Path, reads: Reads) -> None:
    description = describe_directory(inputs / "student")
    assert has_new_biases(description, "encoder.")
    assert set(reads.values()) == {1}
    arrays = read_described(description).tensors
    assert set(reads.values()) == {1}
    expected = read_directory(inputs / "student").tensors
    assert arrays.keys() == expected.keys()
    assert all(np.array_equal(arrays[path], expected[path]) for path in expected)


def test_reading_checks_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = pb.from_preset(tiny_finetuning.CONFIG, (pb.TaskConfig(kind="masked_lm"),), seed=3)
    model.save_pretrained(tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    arrays = load_file(weights)
    arrays["cls.predictions.decoder.weight"] = arrays["bert.embeddings.word_embeddings.weight"] + np.float32(1)
    save_file(arrays, weights, {"format": "pt"})
    description = describe_directory(tmp_path / "model")
    assert [task.kind for task in description.tasks] == ["masked_lm"]
    with pytest.raises(UserError, match="decoder.weight must equal bert.embeddings.word_embeddings.weight"):
        read_directory(tmp_path / "model")
    assert read_described(description).tasks == ()
    assert "leaving out the head in" in capsys.readouterr().err
