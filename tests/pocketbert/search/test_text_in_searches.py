"""Plain text in a search: its teacher, the candidates' projections, and the learning supernet. Real, tiny training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cheap_tensorflow
import numpy as np
import pytest
import tiny
import tiny_distillation
from known_scores import Trainings
from safetensors.numpy import load_file

from pocketbert.checkpoints.supernet import supernet_config
from pocketbert.data.task_data import TextData
from pocketbert.distillation.initialization import SupernetSlices
from pocketbert.distillation.methods.efficientbert import EfficientBERT
from pocketbert.distillation.planning import plan_distillation
from pocketbert.distillation.run import distill
from pocketbert.errors import UserError
from pocketbert.search import rounds, supernet_plan
from pocketbert.search.candidates import EXPRESSIONS, CandidateTraining, train_candidate
from pocketbert.search.config import SearchConfig
from pocketbert.search.constraints import ParameterConstraint
from pocketbert.search.run import search
from pocketbert.search.space import SearchSpace
from pocketbert.search.supernet_training import train_supernet
from pocketbert.search.supernets import Supernets
from pocketbert.training.config import RunConfig
from pocketbert.training.distribution import open_distribution
from pocketbert.training.trainer import Trainer

BASE = tiny.EFFICIENTBERT.replace(num_layers=2, intermediate_size=12, feedforward=None)
SUPERNET = supernet_config(BASE)
GENOTYPE = ("linear2_1(gelu(linear2_1(x)))", "linear1_2(gelu(linear1_2(x)))")


@pytest.fixture(autouse=True)
def without_graphs() -> Iterator[None]:
    with cheap_tensorflow.eager():
        yield


def method(steps: int, **changes: Any) -> EfficientBERT:
    return EfficientBERT(steps=steps, batch_size=8, max_length=tiny_distillation.MAX_LENGTH, **changes)


@pytest.fixture(scope="module")
def teachers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A fine-tuned teacher, and another one for plain text."""
    folder = tmp_path_factory.mktemp("teachers")
    task = tiny_distillation.write_teacher(folder / "task")
    import pocketbert as pb

    tokenizer = pb.from_pretrained(task).tokenizer
    pb.from_preset(tiny_distillation.TEACHER, tokenizer=tokenizer, seed=99).save_pretrained(folder / "text")
    return {"task": task, "text": folder / "text"}


@pytest.fixture(scope="module")
def supernet(teachers: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a supernet with projections."""
    folder, data = tmp_path_factory.mktemp("runs") / "supernet", tiny_distillation.task_data(teachers["task"])
    with cheap_tensorflow.eager():
        distill(SUPERNET, data, folder, teacher=teachers["task"], method=method(1))
    return folder


def test_text_has_its_batch_size_and_rate(teachers: dict[str, Path]) -> None:
    config = SearchConfig(batch_size=7, learning_rate=3e-3, text_batch_size=11, text_learning_rate=2e-3).resolved()
    data = tiny_distillation.task_data(teachers["task"])
    models = {"teacher": str(teachers["task"]), "text_teacher": str(teachers["text"])}
    supernets = Supernets(base=BASE, data=data, text="text.txt", config=config, **models)
    for source, expected in ((TextData("text.txt"), (11, 2e-3)), (data, (7, 3e-3))):
        options = supernets.method(source)
        assert (options.batch_size, options.learning_rate) == expected


def test_candidate_learns_text_first_and_keeps_its_projections(
    teachers: dict[str, Path], supernet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, text = tiny_distillation.task_data(teachers["task"]), tiny_distillation.write_text(tmp_path / "text.txt")
    training = CandidateTraining(
        space=SearchSpace(encoder=BASE, stage=1),
        supernet=str(supernet / "model"),
        data=data,
        text=str(text),
        text_method=method(2),
        teacher=str(teachers["task"]),
        text_teacher=str(teachers["text"]),
        method=method(1, learning_rate=1e-12),
        trains=True,
    )
    begun: dict[str, dict[str, np.ndarray]] = {}
    read: list[str] = []
    run = Trainer.run

    def noting(self: Trainer) -> Any:
        assert self.plan.teacher_directory is not None
        read.append(self.plan.teacher_directory.name)
        begun[self.folder.name] = {
            f"adapters.{name}.kernel": layer.kernel.numpy() for name, layer in self.adapters.items()
        }
        return run(self)

    monkeypatch.setattr(Trainer, "run", noting)
    train_candidate(training, {EXPRESSIONS: GENOTYPE}, 5, tmp_path / "candidate")
    assert read == ["text", "task"]
    for folder, earlier in (("candidate-text", supernet), ("candidate", tmp_path / "candidate-text")):
        adapters = load_file(earlier / "adapters.safetensors")
        assert begun[folder]
        for name, kernel in begun[folder].items():
            np.testing.assert_array_equal(kernel, adapters[name], err_msg=f"{folder} {name}")


def test_narrower_students_take_rows_of_the_projections(
    teachers: dict[str, Path], supernet: Path, tmp_path: Path
) -> None:
    data = tiny_distillation.task_data(teachers["task"])
    narrow = BASE.replace(hidden_size=BASE.hidden_size - 4, head_size=BASE.head_size - 1)
    start = SupernetSlices(supernet / "model", narrow)
    plan = plan_distillation(start, data, teacher=teachers["task"], method=method(1), run=RunConfig())
    assert "adapters_sha256" in plan.recorded()
    trainer = Trainer(plan, tmp_path / "run", open_distribution())
    adapters = load_file(supernet / "adapters.safetensors")
    assert trainer.adapters
    for name, layer in trainer.adapters.items():
        whole = adapters[f"adapters.{name}.kernel"]
        assert 0 < layer.kernel.shape[0] <= whole.shape[0]
        np.testing.assert_array_equal(layer.kernel, whole[: layer.kernel.shape[0]])


def test_learning_supernet_reads_text_and_draws_within_limits(
    teachers: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = ParameterConstraint(limit=1e9)
    sizes = sorted(
        cost.cost(BASE.replace(feedforward=SearchSpace(encoder=BASE, stage=1).config(genotype).feedforward))
        for genotype in (GENOTYPE, tuple(text.replace("2_1", "1_1") for text in GENOTYPE))
    )
    limit = ParameterConstraint(minimum=sizes[0], limit=sizes[1])
    space = SearchSpace(encoder=BASE, stage=3, winner=GENOTYPE, constraints=(limit,))
    drawn: list[Any] = []
    step = supernet_plan.SupernetStep.__call__

    def noting(self: Any, shapes: Any, *arguments: Any) -> Any:
        drawn.append(shapes)
        return step(self, shapes, *arguments)

    monkeypatch.setattr(supernet_plan.SupernetStep, "__call__", noting)
    text = TextData(tiny_distillation.write_text(tmp_path / "text.txt"))
    arguments: dict[str, Any] = {"teacher": teachers["text"], "method": method(6), "space": space}
    result = train_supernet(SUPERNET, text, tmp_path / "run", **arguments)
    assert result.steps == len(drawn) == 6 and len(set(drawn)) > 1
    for shapes in drawn:
        genotype = tuple(f"linear{s}_{d}(gelu(linear{s}_{d}(x)))" for s, d in shapes)
        assert sizes[0] <= cost.cost(space.config(genotype)) <= sizes[1]


def test_limits_that_only_the_winner_meets_draw_the_winner(monkeypatch: pytest.MonkeyPatch) -> None:
    space = SearchSpace(encoder=BASE, stage=3, winner=GENOTYPE)

    def unmet(*_: Any) -> Any:
        raise UserError("none in the search space has")

    monkeypatch.setattr(SearchSpace, "sample", unmet)
    assert supernet_plan._shapes_within_limits(space, 0, 3) == ((2, 1), (1, 2))


def test_teacher_for_text_needs_text(teachers: dict[str, Path], tmp_path: Path) -> None:
    data = tiny_distillation.task_data(teachers["task"])
    with pytest.raises(UserError, match="a teacher for plain text needs plain text; received none"):
        search(BASE, data, tmp_path / "out", teacher=teachers["task"], text_teacher=teachers["text"])
    assert not (tmp_path / "out").exists()


def test_candidates_read_a_share_of_the_text(
    teachers: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings, configs = Trainings(monkeypatch), set[Any]()

    def train(training: Any, *arguments: Any) -> None:
        configs.add((training.text, training.text_method.epochs, training.text_method.steps))
        trainings(training, *arguments)

    monkeypatch.setattr(rounds, "train_candidate", train)
    data, text = tiny_distillation.task_data(teachers["task"]), tiny_distillation.write_text(tmp_path / "text.txt")
    for name, share in (("out", 0.1), ("none", None)):
        config = SearchConfig(
            candidates=(3, 2), max_length=tiny_distillation.MAX_LENGTH, seed=3, candidate_text_share=share
        )
        search(BASE, data, tmp_path / name, teacher=teachers["task"], text=text, config=config)
    drawn = tmp_path / "out" / "candidate_text.jsonl"
    assert configs == {(str(drawn), 1, None), (None, 1, None)} and drawn.exists()
