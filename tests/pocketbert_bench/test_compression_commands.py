"""The commands of each row of `pocketbert compress` make the same weights by hand."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.special
import tiny
import tiny_finetuning
import tiny_questions
from sklearn.metrics import log_loss
from tiny_compression import measure_nothing, train_briefly

import pocketbert as pb
from pocketbert.checkpoints.directory import read_directory
from pocketbert.cli import main
from pocketbert.commands import command_line, task_options
from pocketbert.commands.runs import RunFolderOptions
from pocketbert.commands.task_options import TableOptions, TaskOptions
from pocketbert.data.final_split import three_splits
from pocketbert.data.readers.questions import QuestionFile
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.methods.tinybert import TinyBERT
from pocketbert.pruning.config import PruneConfig
from pocketbert.tasks.registry import supervised_task
from pocketbert.training.config import FinetuneConfig
from pocketbert_bench.compression import rungs
from pocketbert_bench.compression.candidates import StudentCandidate
from pocketbert_bench.compression.command_lines import CommandLines
from pocketbert_bench.compression.constraints import Cost
from pocketbert_bench.compression.methods import Training
from pocketbert_bench.compression.structures import Structure
from pocketbert_export.bundles.model_card import CardOptions
from pocketbert_export.commands import example_options
from pocketbert_export.commands.example_options import ExampleOptions
from pocketbert_runtime.embedding_config import EmbeddingConfig

ENCODER = tiny.BERT.replace(num_layers=3, initializer_range=0.1)
pytestmark = pytest.mark.usefixtures("own_cache")


def weights(model: Path) -> dict[str, np.ndarray]:
    return {path: np.array(array) for path, array in read_directory(model).tensors.items()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, np.ndarray]]]:
    """The folder of a finished compression, and the weights of each trial by its folder."""
    folder, trained, train_trial = tmp_path_factory.mktemp("commands"), {}, rungs.train_trial
    tiny_finetuning.write_model(folder / "encoder", ENCODER)
    tiny_finetuning.write_table(folder / "texts.csv", tiny_finetuning.examples(523, seed=1))

    def train(shared: Any, point: Any, seed: int, path: Path) -> None:
        train_trial(shared, point, seed, path)
        trained[str(path.relative_to(path.parents[1]))] = weights(path / "model")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rungs, "train_trial", train)
        measure_nothing(patched)
        train_briefly(patched)
        command = ["compress", f"--model={folder / 'encoder'}", f"--train-file={folder / 'texts.csv'}", "--trials=6"]
        assert main([*command, "--length=16", "--max-latency-ms=9", f"--output={folder / 'out'}"]) == 0
    return folder / "out", trained


@pytest.mark.nightly
def test_loss_of_a_candidate_is_scikit_learns(finished: tuple[Path, Any]) -> None:
    folder, _ = finished
    dev = three_splits(pb.data.table(folder.parent / "texts.csv")).data.dev
    for row in (row for row in json.loads((folder / "leaderboard.json").read_text()) if row["model"]):
        model = pb.from_pretrained(folder / row["model"])
        logits = model(model.tokenizer(list(dev.texts), max_length=16))["logits"].numpy()
        expected = log_loss(dev.labels, scipy.special.softmax(logits, axis=-1))
        assert row["dev_loss"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize("method", ["finetune", "predictions", "tinybert"])
def test_commands_make_the_same_weights(
    method: str, finished: tuple[Path, dict[str, dict[str, np.ndarray]]], tmp_path: Path
) -> None:
    folder, trained = finished
    rows = [row for row in json.loads((folder / "leaderboard.json").read_text()) if row["method"] == method]
    # The one with most rungs; else the narrowest one.
    row = max(rows, key=lambda row: (len(row["commands"]), -row["latency_ms"]))
    by_hand = str(folder.with_name("out-by-hand"))
    commands = [shlex.split(line.replace(by_hand, str(tmp_path))) for line in row["commands"]]
    for program, *arguments in commands:
        assert program == "pocketbert" and main(arguments) == 0
    (model,) = [argument.removeprefix("--model=") for argument in commands[-1] if argument.startswith("--model=")]
    expected = trained[str(Path(model).parent.relative_to(tmp_path))]
    received = weights(Path(model))
    assert expected.keys() == received.keys()
    assert all(np.array_equal(expected[path], received[path]) for path in expected)
    if row["chosen"]:
        bundle = Path(commands[-1][-1].removeprefix("--output="))
        assert (bundle / "model.tflite").read_bytes() == (folder / "bundle" / "model.tflite").read_bytes()


def spans(folder: Path) -> TaskData:
    sentences = [f"U.S.\tB-LOC\nx{number}\tO\n\nAnn\tB-PER\n,{number}\tO\n\n" for number in range(60)]
    (folder / "own.conll").write_text("".join(sentences))
    return pb.data.tagged(folder / "own.conll", label_names=["PER", "LOC"])


def pairs(folder: Path) -> TaskData:
    rows = [{"text": f"text {number}", "pair": f"pair {number}"} for number in range(120)]
    return pb.data.pairs(_lines(folder / "own.jsonl", rows), embedding=EmbeddingConfig(pooling="max"))


def sets(folder: Path) -> TaskData:
    rows = [{"text": f"text {number}", "label": [["b"], ["b", "a, c"]][number % 2]} for number in range(120)]
    return pb.data.table(rows, kind="multi_label", label_names=["b", "a, c"])


def scores(folder: Path) -> TaskData:
    rows = [{"one": f"text {number}", "two": "other", "score": number / 7} for number in range(120)]
    data = pb.data.table(rows, text="one", pair="two", label="score", kind="regression")
    return dataclasses.replace(data, main_metric="pearson")


def questions(folder: Path) -> TaskData:
    return pb.data.questions(tiny_questions.write_questions(folder / "own.json", 120, seed=1))


def _lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _content(examples: Any) -> Any:
    return [*examples] if isinstance(examples, QuestionFile) else examples.identity


@pytest.mark.parametrize("make", [spans, pairs, sets, scores, questions])
def test_commands_read_the_same_examples(make: Callable[[Path], TaskData], tmp_path: Path) -> None:
    splits = three_splits(make(tmp_path))
    data, final = splits.data, splits.final
    assert final is not None
    inputs: Any = SimpleNamespace(
        described=SimpleNamespace(config=tiny.BERT),
        splits=splits,
        directory=Path("encoder"),
        seed=3,
        length=24,
        is_teacher=False,
        head_examples=700,
        bundle_card=CardOptions(license="mit", limits=("It knows films only.",)),
    )
    commands = CommandLines(
        inputs, tmp_path / "out", teacher=FinetuneConfig(), teacher_complete=True, importance={"max_length": 24}
    )
    structure = Structure(layers=(2,), heads=2, intermediate_size=7)
    candidate = StudentCandidate(
        kind="",
        structure=structure,
        training=Training(method="tinybert"),
        recipe="dynamic_wi4",
        trimmed=False,
        lengths=(12, 24),
        cost=Cost(latency_ms=1, size_mb=1, memory_mb=1),
    )
    trial: Any = SimpleNamespace(rung=0, complete=True)
    assert commands.difference(candidate, [(trial, 5)]) == ""
    for complete, epochs in ((False, 5), (True, 0.5)):
        trial.complete = complete
        assert commands.difference(candidate, [(trial, epochs)]).startswith("its time was too short")
    lines = [shlex.split(line)[1:] for line in commands.of(candidate, [(trial, 5)])]
    parsed = {name: command_line.parse(name, arguments) for name, *arguments in lines}
    for name in ("finetune", "prune", "distill"):
        options = parsed[name]
        read = task_options.read_examples(options[TaskOptions], options[TableOptions])
        assert _content(read.train) == _content(data.train) and _content(read.dev) == _content(data.dev)
        assert read.task.labels == data.task.labels and read.task.embedding == data.task.embedding
        assert read.main_metric == (data.main_metric or supervised_task(data.task).main_metric)
    assert parsed["finetune"].given("max_length") and parsed["finetune"][RunFolderOptions].seeds == (3,)
    method = parsed["distill"][TinyBERT]
    assert (method.without, method.intermediate_epochs, method.max_length) == (("attention",), 5, 24)
    sizes = dataclasses.replace(structure.sizes, max_length=24, seed=3)
    assert parsed["prune"][PruneConfig] == sizes
    examples, table = parsed["export"][ExampleOptions], parsed["export"][TableOptions]
    gate = example_options.read(examples, table, data.task, labelled=None)
    assert _content(gate) == _content(data.dev)
    assert parsed["export"][CardOptions] == inputs.bundle_card
    assert "--lengths=12,24" in lines[-1]
