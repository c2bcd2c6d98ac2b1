"""`pocketbert compress --supernet`: students that start from slices of a supernet, and parts drawn from it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny
from tiny_compression import COSTS, compress_command, compress_fast
from tiny_models import edit_tensors

import pocketbert as pb
from pocketbert.checkpoints.directory import read_directory
from pocketbert.checkpoints.huggingface import write_config
from pocketbert.checkpoints.supernet import supernet_config
from pocketbert.cli import main
from pocketbert.configs import EncoderConfig
from pocketbert.distillation.initialization import SupernetSlices
from pocketbert.distillation.methods.efficientbert import EfficientBERT
from pocketbert.distillation.planning import plan_distillation
from pocketbert.feedforward import FeedForwardConfig
from pocketbert.files import write_json
from pocketbert.training.config import RunConfig
from pocketbert.training.kept_weights import save_kept
from pocketbert.training.step import adapter_variables
from pocketbert.trials.journal import Journal
from pocketbert_bench.compression import candidates, other_students, run, students
from pocketbert_bench.compression.inputs import Inputs, check
from pocketbert_bench.compression.journal import Trial
from pocketbert_bench.compression.measurements import Measured
from pocketbert_bench.compression.other_students import OtherStudent

BASE = tiny.FACTORIZED_WORD.replace(
    num_layers=2, trigram=True, hidden_size=20, head_size=4, intermediate_size=24, initializer_range=0.1
)
SUPERNET = supernet_config(BASE)
# Narrower, with two networks of 12 neurons, and one of 8.
STUDENT = BASE.replace(
    hidden_size=15,
    head_size=3,
    feedforward=FeedForwardConfig(
        expressions=("tanh(linear2_2(gelu(linear2_2(x))))", "linear1_3(relu(mul(linear1_3(x),x)))")
    ),
)
METHOD = EfficientBERT(max_length=16, epochs=1)


@pytest.fixture(scope="module")
def search(compression_inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a search writes: `supernet/`, a run's folder, and `student/config.json`."""
    folder = tmp_path_factory.mktemp("search")
    model, adapters = first_weights(SUPERNET, compression_inputs, seed=8)
    random = np.random.default_rng(3)
    for variable in model.weights_by_path().values():
        # New biases are zeros, whose slices are equal.
        variable.assign_add(random.normal(0, 0.05, variable.shape).astype(np.float32))
    save_kept(folder / "supernet", model, adapters)
    write_architecture(folder / "student", STUDENT)
    return folder


@pytest.fixture
def compress(
    compression_inputs: Path, search: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eager: None
) -> Callable[..., int]:
    """The command with this supernet, five trials, and costs that depend on no expression."""

    def costs(inputs: Inputs) -> dict[str, Any]:
        return dict.fromkeys(["dynamic_wi8", *(f"dynamic_wi8, {one.name}" for one in inputs.students)], COSTS)

    def measured(*_: Any, **__: Any) -> Measured:
        return Measured(latency_ms=(1.0, 0.99, 1.01), teacher_ms=2.0, size_mb=1.0, memory_mb=9.0)

    compress_fast(compression_inputs, monkeypatch, any_model=True)
    command = compress_command(compression_inputs, tmp_path / "out", monkeypatch)
    monkeypatch.setattr(run, "measured_costs", costs)
    monkeypatch.setattr("pocketbert_bench.compression.measurements.measure", measured)
    # Within 9 ms, two layers of the supernet take 2 · (1 + 5 · 0.1 + 24 · 0.01) ms.
    defaults = [f"--supernet={search / 'supernet'}", "--trials=5", "--max-latency-ms=9"]
    return lambda *options: command(*defaults, *options)


def first_weights(student: Any, inputs: Path, seed: int) -> tuple[pb.Model, Any]:
    """Model and adapters before the first step of `distill --method=efficientbert`."""
    data = pb.data.table(inputs / "train.csv")
    plan = plan_distillation(student, data, teacher=inputs / "teacher", method=METHOD, run=RunConfig(seed=seed))
    unused: Any = None
    model = plan.make_model(unused)
    return model, plan.make_adapters(model)


def write_architecture(folder: Path, config: EncoderConfig) -> Path:
    folder.mkdir()
    write_json(folder / "config.json", write_config(config, ()))
    return folder / "config.json"


def checked(inputs: Path, supernet: Path | None, **options: Any) -> Inputs:
    data, limits = pb.data.table(inputs / "train.csv"), pb.Constraints(length=16)
    return check(inputs / "teacher", data, constraints=limits, trials=1, supernet=supernet, **options)


def tensors(model: Path) -> dict[str, np.ndarray]:
    return {path: np.array(array) for path, array in read_directory(model).tensors.items()}


def test_students_start_from_slices(compression_inputs: Path, search: Path, tmp_path: Path) -> None:
    architecture, supernet = search / "student" / "config.json", search / "supernet" / "model"
    inputs = checked(compression_inputs, search / "supernet", students=[architecture, compression_inputs / "encoder"])
    sliced, encoder = inputs.students[:2]
    assert encoder.directory(tmp_path) == compression_inputs / "encoder"

    def start() -> Path:
        candidate: Any = SimpleNamespace(structure=sliced)
        teacher, record = compression_inputs / "teacher", lambda name, value: value()
        return students.student(inputs, tmp_path, teacher, candidate, tmp_path / "unused", record)

    path = start()
    assert path == tmp_path / "starts" / "student-1=config.json,slices" / "model"
    whole, part = tensors(supernet), tensors(path)
    # The first two networks, the first 12 columns and rows, and the first 15 features.
    first = "encoder.layers.0"
    for number in range(2):
        networks = f"{first}.feed_forwards.{number}"
        for name, slices in (
            ("intermediate.kernel", np.s_[:15, :12]),
            ("intermediate.bias", np.s_[:12]),
            ("output.kernel", np.s_[:12, :15]),
            ("output.bias", np.s_[:15]),
        ):
            expected = whole[f"{networks}.{name}"][slices]
            assert np.array_equal(part[f"{networks}.{name}"], expected) and expected.any()
    assert f"{first}.feed_forwards.2.output.bias" in whole and f"{first}.feed_forwards.2.output.bias" not in part
    kernel = f"{first}.attention.query.kernel"
    assert np.array_equal(part[kernel], whole[kernel][:15, :15])
    heads = [name for name in part if name.startswith("heads.")]
    assert heads and all(np.array_equal(part[name], whole[name][: len(part[name])]) for name in heads)
    # Both begin with the same weights and adapters.
    of_compress, of_distill = (
        {name: value.numpy() for name, value in (model.weights_by_path() | adapter_variables(adapters)).items()}
        for model, adapters in (
            first_weights(path, compression_inputs, seed=5),
            first_weights(SupernetSlices(supernet, architecture), compression_inputs, seed=5),
        )
    )
    assert of_compress.keys() == of_distill.keys()
    assert any("projection" in name for name in of_compress.keys() - part.keys())
    assert all(np.array_equal(of_compress[name], of_distill[name]) for name in of_compress)
    # A resumed run takes them as they are.
    (path / "model.safetensors").write_bytes(b"")
    assert start() == path and (path / "model.safetensors").read_bytes() == b""


def neurons(part: OtherStudent) -> int:
    """Neurons of all networks in all layers."""
    assert part.architecture.feedforward is not None
    shapes = [re.findall(r"linear(\d)_(\d)", text)[0] for text in part.architecture.feedforward.expressions]
    return sum(int(stacks) * (24 // int(divisor)) for stacks, divisor in shapes)


def test_the_seed_draws_parts(compression_inputs: Path, search: Path) -> None:
    drawn, again, others = (
        checked(compression_inputs, search / "supernet" / "model", seed=seed).students for seed in (0, 0, 3)
    )
    assert drawn == again and not {part.name for part in drawn} & {part.name for part in others}
    for parts in (drawn, others):
        assert [part.name[:13] for part in parts] == [f"expression-{number}=" for number in range(1, 5)]
        # Operations grow with the neurons: 2 layers have 1 · 24 / 4 to 4 · 24 each, here in quarters of this range.
        assert all(12 + 45 * number <= neurons(part) <= 57 + 45 * number for number, part in enumerate(parts))
        assert {part.architecture.replace(feedforward=None) for part in parts} == {SUPERNET.replace(feedforward=None)}


def test_learned_operations_stay() -> None:
    operations = ("tanh(linear(gelu(linear(x))))", "linear(swish(linear(x)))")
    winner = FeedForwardConfig(expressions=tuple(text.replace("linear", "linear3_2") for text in operations))
    supernet = supernet_config(BASE.replace(feedforward=winner), keep_operations=True)
    parts = other_students._drawn(supernet, seed=1)
    drawn = [part.feedforward.expressions for part in parts if part.feedforward]
    assert len({*drawn}) == 4
    assert {tuple(re.sub(r"\d_\d", "", text) for text in expressions) for expressions in drawn} == {operations}


def test_the_record_has_the_supernet(compression_inputs: Path, search: Path, tmp_path: Path) -> None:
    shutil.copytree(search / "supernet", tmp_path / "other")
    edit_tensors(
        tmp_path / "other" / "model", lambda arrays: arrays.update({name: arrays[name] + 1 for name in arrays})
    )
    without, first, second = (
        checked(compression_inputs, supernet).recorded for supernet in (None, search / "supernet", tmp_path / "other")
    )
    assert first.keys() - without.keys() == {"supernet_sha256"} and without.keys() <= first.keys()
    assert {name for name in first if first[name] != second[name]} == {"supernet_sha256"}
    assert first["students"] == without["students"] == []


def test_parts_are_candidates_that_resume(
    compress: Callable[..., int], search: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(candidates, "structures", lambda *_, **__: [])
    add, out = Journal.add, tmp_path / "out"

    def add_and_die(self: Journal[Trial], one: Trial) -> None:
        add(self, one)
        raise SystemExit(9)

    # The second attempt discards the first one, whose seed draws other parts.
    for options in (["--seed=3"], ["--overwrite"]):
        with monkeypatch.context() as patched, pytest.raises(SystemExit):
            patched.setattr(Journal, "add", add_and_die)
            compress(*options)
    (first_start,) = (out / "starts").iterdir()
    before = (first_start / "model" / "model.safetensors").stat().st_mtime_ns
    assert compress() == 0
    assert (first_start / "model" / "model.safetensors").stat().st_mtime_ns == before
    rows = json.loads((out / "leaderboard.json").read_text())
    assert len(rows) == 5 and {row["structure"][:13] for row in rows} == {f"expression-{n}=" for n in range(1, 5)}
    page = (out / "report.html").read_text()
    assert f'supernet = "{search / "supernet"}' in (out / "run.toml").read_text()
    for row in rows:
        start = out / "starts" / row["structure"] / "model"
        (trains, *_), first = row["commands"], read_directory(start)
        arguments = shlex.split(trains)
        assert f"--{'model' if arguments[1] == 'finetune' else 'student'}={start}" in arguments
        assert row["structure"] in page and not row["difference"] and first.config.feedforward is not None
        assert (start.parent / "adapters.safetensors").exists()
        if row["chosen"]:
            # `compress_fast` trains nothing.
            written = tensors(out / "model")
            assert all(np.array_equal(written[name], array) for name, array in first.tensors.items())
    # The finished result, by the file of its options.
    assert main(["compress", f"--config={out / 'run.toml'}"]) == 0


def test_parts_have_all_methods_and_names(
    compress: Callable[..., int], search: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compress("--dry-run") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    name = next(row["structure"] for row in rows if row["structure"].startswith("expression-1="))
    methods = {row["method"] for row in rows if row["structure"] == name}
    assert {"finetune", "predictions", "efficientbert"} <= methods
    assert compress("--dry-run", f"--like={name},finetune") == 0
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert row["structure"] == name
    # Without its supernet, a student would start from random weights.
    student = f"--students={search / 'student' / 'config.json'}"
    assert compress("--dry-run", student, "--like=student-1=config.json,slices,finetune") == 0
    assert compress("--dry-run", student, "--like=student-1=config.json,finetune") == 2
    # Another seed draws another expression-1.
    assert compress("--dry-run", f"--like={name},finetune", "--seed=3") == 2
    assert "--supernet, --seed, " in capsys.readouterr().err.splitlines()[-1]


def test_a_supernet_beyond_the_limits_is_named(
    compress: Callable[..., int], search: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"no candidate within the limits reads {search / 'supernet' / 'model'}"
    for limit, is_named in (("9", False), ("3", True)):
        assert compress("--dry-run", f"--max-latency-ms={limit}") == 0
        assert (line in capsys.readouterr().err) == is_named


def test_bad_supernets_are_refused(
    compress: Callable[..., int],
    compression_inputs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other, part = tmp_path / "other", tmp_path / "part"
    pb.from_preset(SUPERNET.replace(vocab_size=31)).save_pretrained(other)
    pb.from_preset(STUDENT).save_pretrained(part)
    wide = write_architecture(tmp_path / "wide", STUDENT.replace(hidden_size=25, head_size=5))
    rule = "must be a supernet of pocketbert search, with 4 stacked feed-forward networks of width"
    for option, message in (
        (f"--supernet={compression_inputs / 'teacher'}", f"{rule} 41 in each layer; received a network without"),
        (
            f"--supernet={part}",
            f"{rule} 24 in each layer; received 1 of width 8 and 2 of width 12; pass supernet/model",
        ),
        (f"--supernet={other}", f"--supernet: {other}: both models need the same vocabulary; the teacher's has 97"),
        ("--supernet=nowhere", "received nowhere"),
        (f"--students={wide}", "hidden_size must be at most the supernet's 20; received 25; pass the supernet of a"),
    ):
        assert compress(option) == 2
        assert message in capsys.readouterr().err.splitlines()[-1]
        assert not (tmp_path / "out").exists()
