"""`pocketbert compress` with a teacher whose tokenizer the students do not have."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
import tiny_finetuning
import tiny_tokenizers
from tiny_compression import train_briefly

import pocketbert as pb
from pocketbert.checkpoints.directory import read_directory
from pocketbert.cli import main
from pocketbert_bench.compression import candidates, choice, final_scores, other_students, run
from pocketbert_bench.compression import inputs as compression_inputs
from pocketbert_bench.compression.costs import CostModel, LengthModel
from pocketbert_bench.compression.inputs import check
from pocketbert_bench.compression.measurements import Measured

ENCODER = tiny.BERT.replace(initializer_range=0.1)
PARTS = {"student-1=encoder": 3, "student-1=encoder,layers=2-3": 2, "student-1=encoder,layers=3": 1}


def model_of(milliseconds: float) -> CostModel:
    latency = [LengthModel(length=16, coefficients=[milliseconds, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])]
    return CostModel(first_token=False, latency=latency, size=5 * [0.0], memory=[9.0] + 4 * [0.0])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        # Words are tokens, and so are the texts as long as the student's.
        patch.setattr(tiny_tokenizers, "SENTENCES", tiny_finetuning.examples(60, seed=3).texts)
        tokenizer = pb.ByteBPETokenizer(*tiny_tokenizers.byte_bpe_files(folder / "files"))
    config = tiny.ROBERTA.replace(vocab_size=tokenizer.vocab_size, num_layers=2, initializer_range=0.1)
    pb.from_preset(config, tiny_finetuning.TASK, tokenizer, seed=4).save_pretrained(folder / "teacher")
    tiny_finetuning.write_model(folder / "encoder", ENCODER)
    tiny_finetuning.write_table(folder / "train.csv", tiny_finetuning.examples(560, seed=1))
    return folder


@pytest.fixture
def compress(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    costs = {"dynamic_wi8": model_of(9.0)} | {f"dynamic_wi8, {name}": model_of(n) for name, n in PARTS.items()}
    monkeypatch.setattr(run, "measured_costs", lambda _: costs)
    measured = Measured(latency_ms=(1.0, 0.99, 1.01), teacher_ms=2.0, size_mb=0.0, memory_mb=9.0)
    monkeypatch.setattr("pocketbert_bench.compression.measurements.measure", lambda *_, **__: measured)
    train_briefly(monkeypatch)
    for module in (choice, final_scores):
        monkeypatch.setattr(module, "simple_methods", lambda *_: [])

    def command(*options: str) -> int:
        start = ["compress", f"--model={models / 'teacher'}", f"--train-file={models / 'train.csv'}", "--length=16"]
        return main([*start, f"--students={models / 'encoder'}", *options, f"--output={tmp_path / 'out'}"])

    return command


def test_teacher_with_other_tokens_teaches_layers_of_a_student(
    compress: Callable[..., int], models: Path, tmp_path: Path
) -> None:
    name = "student-1=encoder,layers=2-3"
    assert compress("--trials=1", f"--like={name},predictions") == 0
    (row,) = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    assert (row["structure"], row["method"]) == (name, "predictions")
    assert any(f"starts/{name}/model" in line and "--teacher=" in line for line in row["commands"])
    start, whole = (read_directory(path) for path in (tmp_path / "out/starts" / name / "model", models / "encoder"))
    for layer, source in ((0, 1), (1, 2)):
        path = "encoder.layers.{}.intermediate.kernel"
        names = [tensor for tensor in start.tensors if tensor.startswith(f"encoder.layers.{layer}.")]
        assert names, path
        for tensor in names:
            other = tensor.replace(f"layers.{layer}.", f"layers.{source}.", 1)
            assert (start.tensors[tensor] == whole.tensors[other]).all(), tensor
    student = pb.from_pretrained(tmp_path / "out" / "model")
    assert student.config.num_layers == 2 and student.tokenizer is not None
    assert student.tokenizer.vocabulary.kind == "wordpiece" and (tmp_path / "out" / "bundle" / "vocab.txt").exists()


def test_students_with_other_tokens_learn_predictions_alone(
    compress: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "plain.txt").write_text("a film with a plot\n\nthe scene of a story\n")
    assert compress("--trials=1", "--max-latency-ms=8.5", f"--text={tmp_path / 'plain.txt'}", "--dry-run") == 0
    output = capsys.readouterr()
    rows = [json.loads(line) for line in output.out.splitlines()]
    ways = {(row["structure"], row["method"].partition(",")[0]) for row in rows}
    assert ways == {(name, method) for name in PARTS for method in ("finetune", "predictions")}


def test_teacher_that_cannot_be_cut_has_students_of_minilm(
    models: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (compression_inputs, candidates):
        monkeypatch.setattr(module, "can_be_cut", lambda _: False)
    monkeypatch.setattr(other_students, "model_or_start", {"all-minilm": models / "encoder"}.__getitem__)
    architectures: list[Any] = []

    def measured(config: Any, *_: Any, **__: Any) -> CostModel:
        architectures.append(config)
        return model_of(float(config.num_layers))

    monkeypatch.setattr(candidates, "measured_model", measured)
    data = pb.data.table(models / "train.csv", text="text", label="label")
    checked = check(models / "teacher", data, constraints=pb.Constraints(length=16), trials=1)
    assert "no network can be cut out of this model, so they are cut out of all-minilm" in capsys.readouterr().err
    names = [name.replace("encoder", "all-minilm") for name in PARTS]
    assert [student.name for student in checked.students] == names
    listed = run.planned_candidates(checked)
    assert {candidate.structure.name for candidate in listed} <= {*names} and listed
    assert [config.num_layers for config in architectures] == [2, 3, 2, 1]


def test_preset_with_other_tokens_is_refused(
    compress: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert compress("--trials=1", "--students=tinybert_4l_312d") == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "both models need the same vocabulary" in line and "or a model directory with its own tokenizer" in line
    assert not (tmp_path / "out").exists()
