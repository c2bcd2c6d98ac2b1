"""How candidates of `pocketbert compress` train: every method, learning rates, plain text, and other students."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny
import tiny_finetuning
from scipy.special import softmax
from sklearn.metrics import log_loss

import pocketbert as pb
from pocketbert.checkpoints.directory import describe_directory, read_directory
from pocketbert.data.examples import Examples
from pocketbert.data.task_data import TaskData, TextData
from pocketbert.pruning.importance import Importance
from pocketbert.trials.jobs import Job, Outcome
from pocketbert_bench.compression import folds, methods
from pocketbert_bench.compression.deadline import Deadline
from pocketbert_bench.compression.journal import Trial
from pocketbert_bench.compression.methods import (
    Training,
    TrialData,
    train_trial,
    trainings,
    trial_point,
)
from pocketbert_bench.compression.structures import Structure, write_student
from pocketbert_bench.compression.trial_examples import planned_epochs, trial_examples
from pocketbert_runtime.tokenizers.kinds import wordpiece

TEACHER = tiny.BERT.replace(num_layers=5, initializer_range=0.1)
HEADS, NEURONS = TEACHER.num_attention_heads, TEACHER.intermediate_size
STAGES = {
    "finetune": [""],
    "predictions": ["prediction"],
    "tinybert": ["intermediate", "prediction"],
    "minilmv2": ["relations", "finetuning"],
    "hsk": ["hidden", "prediction"],
    "text": [""],
}
# Other tests train them, too.
ELSEWHERE = ("finetune", "predictions")
# Of a stage whose time is over.
STEPS = 3
pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "LEAST_STEPS", STEPS)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("methods")
    tokenizer = pb.from_pretrained(tiny_finetuning.write_model(folder / "encoder", TEACHER)).tokenizer
    task = dataclasses.replace(tiny_finetuning.TASK, pooling="mean")
    pb.from_preset(TEACHER, task, tokenizer, seed=4).save_pretrained(folder / "teacher")
    return folder / "teacher"


@pytest.fixture
def shared(teacher: Path, tmp_path: Path) -> TrialData:
    examples = tiny_finetuning.examples(80, seed=4)
    data = TaskData(task=tiny_finetuning.TASK, train=examples.select(range(60)), dev=examples.select(range(60, 80)))
    (tmp_path / "plain.txt").write_text("\n\n".join(30 * ["a good film and a bad one"]))
    # The time is over, but each stage makes a few steps.
    return TrialData(
        data=data, teacher=str(teacher), max_length=19, deadline=0.0, text=TextData(tmp_path / "plain.txt")
    )


def write_pruned(teacher: Path, folder: Path, *, first_token: bool) -> None:
    random = np.random.default_rng(2)
    importance = Importance(random.random([5, HEADS]), random.random([5, NEURONS]), 1)
    structure = Structure(layers=(1, 3, 5), heads=HEADS - 2, intermediate_size=9, first_token=first_token)
    write_student(read_directory(teacher), importance, structure, folder)


@pytest.mark.parametrize(
    ("method", "first_token"),
    [
        *((method, False) for method in STAGES if method not in ELSEWHERE),
        ("finetune", True),
        *(pytest.param(method, False, marks=pytest.mark.nightly) for method in ELSEWHERE),
        *(pytest.param(method, True, marks=pytest.mark.nightly) for method in STAGES if method != "finetune"),
    ],
)
def test_each_method_trains_a_pruned_student(
    method: str, first_token: bool, teacher: Path, shared: TrialData, tmp_path: Path
) -> None:
    write_pruned(teacher, tmp_path / "student", first_token=first_token)
    point = trial_point(Training(method=method), tmp_path / "student", 8, first_token=first_token)
    train_trial(shared, point, 0, tmp_path / "trial")
    result = json.loads((tmp_path / "trial" / "result.json").read_text())
    assert [stage["name"] for stage in result["stages"]] == STAGES[method]
    assert result["steps"] == STEPS * len(STAGES[method])
    start, trained = (read_directory(path) for path in (tmp_path / "student", tmp_path / "trial" / "model"))
    shared_names = start.tensors.keys() & trained.tensors.keys()
    assert any(not np.array_equal(start.tensors[name], trained.tensors[name]) for name in shared_names)
    (task,) = trained.tasks
    assert task.pooling == (None if first_token else "mean")


def test_part_of_an_epoch_has_a_part_of_the_examples(teacher: Path, shared: TrialData, tmp_path: Path) -> None:
    # One pass over 30 examples, in batches of 32.
    write_pruned(teacher, tmp_path / "student", first_token=False)
    point = trial_point(Training(), tmp_path / "student", 0.5)
    train_trial(dataclasses.replace(shared, deadline=None), point, 0, tmp_path / "trial")
    assert json.loads((tmp_path / "trial" / "result.json").read_text())["steps"] == 1


def test_loss_of_a_trial_is_scikit_learns(teacher: Path, shared: TrialData, tmp_path: Path) -> None:
    # Two passes over 60 examples, with an evaluation after each.
    write_pruned(teacher, tmp_path / "student", first_token=False)
    job = Job(trial_point(Training(), tmp_path / "student", 2), 0, tmp_path / "trial")
    train_trial(dataclasses.replace(shared, deadline=None), job.point, job.seed, job.folder)
    trial = Trial.of(Outcome(job, 1.0), candidate="", rung=0, epochs=2, steps=4, before=0)
    assert (trial.epochs, trial.complete) == (2, True)
    model, dev = pb.from_pretrained(job.folder / "model"), shared.data.dev
    assert isinstance(dev, Examples) and model.tokenizer is not None
    logits = model(model.tokenizer(list(dev.texts), max_length=19))["logits"].numpy()
    assert trial.loss == pytest.approx(log_loss(dev.labels, softmax(logits, axis=-1)), rel=1e-4)


def with_texts(data: TaskData, count: int) -> TaskData:
    return pb.data.with_unlabelled(data, [{"text": f"a film of part {number}"} for number in range(count)])


# 60 labelled examples, and texts without labels: examples of a trial, and passes over them.
@pytest.mark.parametrize(
    ("epochs", "count", "labelled", "texts", "passes"),
    [(0.5, 500, 15, 15, 1), (1, 500, 30, 30, 1), (4, 500, 60, 180, 1), (4, 20, 60, 20, 3), (8, 170, 60, 170, 2)],
)
def test_trial_with_unlabelled_texts_has_the_steps_of_one_without(
    epochs: float, count: int, labelled: int, texts: int, passes: int, shared: TrialData
) -> None:
    data, repeated = trial_examples(with_texts(shared.data, count), epochs, unlabelled=True)
    assert data.unlabelled is not None
    assert (len(data.train), len(data.unlabelled), repeated) == (labelled, texts, passes)


def test_candidates_learn_the_teachers_answers_to_unlabelled_texts(
    teacher: Path, shared: TrialData, tmp_path: Path
) -> None:
    described = describe_directory(teacher)
    data = with_texts(shared.data, 90)
    ways = [one.name for one in trainings(data, described, described.config, text=False) if one.unlabelled]
    assert ways[:4] == ["predictions+unlabelled", "tinybert+unlabelled", "hsk+unlabelled", "efficientbert+unlabelled"]
    write_pruned(teacher, tmp_path / "student", first_token=False)
    trained = {}
    for unlabelled in (False, True):
        point = trial_point(Training(method="predictions", unlabelled=unlabelled), tmp_path / "student", 1)
        train_trial(dataclasses.replace(shared, data=data, deadline=None), point, 0, tmp_path / str(unlabelled))
        assert json.loads((tmp_path / str(unlabelled) / "result.json").read_text())["steps"] == 2
        trained[unlabelled] = read_directory(tmp_path / str(unlabelled) / "model").tensors
    assert any(not np.array_equal(trained[False][name], trained[True][name]) for name in trained[False])


def test_planned_epochs_are_whole_or_a_part_of_one() -> None:
    # 500 examples a second at most, and at least 10 steps of 32.
    assert planned_epochs(3, 1_000, 1e9) == 3
    assert planned_epochs(3, 1_000, 5.0) == 2
    assert planned_epochs(3, 100_000, 20.0) == 0.1
    assert planned_epochs(3, 100_000, 0.0) == 0.0032


class Clock:
    """Seconds that pass only if a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "time", lambda: self.now)


@pytest.mark.parametrize("resumed", [0, 6])
def test_deadlines_fit_the_steps_to_the_time(resumed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, planned = Clock(monkeypatch), list[int | None]()
    deadline = Deadline(1020.0)
    deadline.on_stage_begin("")
    for step in range(1, 9):
        # The first step traces the graph.
        clock.now += 4 if step == 1 else 0.5
        planned.append(deadline.steps_of_stage(resumed + step, 99))
    # After 5 seconds 3 steps are taken, and 15 seconds are left for 30.
    assert planned == [None] * 3 + [resumed + 33] * 5
    # A slower machine, from 7.5 to 9.5 seconds: 10.5 seconds are left at 6 steps in 4.5 seconds.
    clock.now += 2
    assert deadline.steps_of_stage(resumed + 9, 99) == resumed + 9 + int(10.5 / (4.5 / 6))
    clock.now = 1021
    assert deadline.steps_of_stage(resumed + 10, 99) == resumed + 10


def test_stages_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    deadline = Deadline(1040.0, least_steps=12, stages=("first", "second"))
    deadline.on_stage_begin("first")
    steps = None
    for step in range(1, 5):
        clock.now += 1
        steps = deadline.steps_of_stage(step, 99)
    assert steps == 20
    clock.now = 1039
    assert deadline.steps_of_stage(5, 99) == 12
    deadline.on_stage_begin("second")
    clock.now = 1041
    assert [deadline.steps_of_stage(step, 99) for step in (1, 12)] == [12, 12]


@pytest.mark.nightly
def test_learning_rates_are_multiples_of_the_default(
    teacher: Path, shared: TrialData, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_pruned(teacher, tmp_path / "student", first_token=False)
    recorded: list[dict[str, Any]] = []
    monkeypatch.setattr(methods, "run_plan", lambda plan, *_: recorded.append(plan.recorded()))
    rates: dict[tuple[str, float], float] = {}
    for method, key in (("finetune", "learning_rate"), ("predictions", "option_prediction_learning_rate")):
        for rate in (1.0, 3.0):
            point = trial_point(Training(method=method, rate=rate), tmp_path / "student", 1)
            train_trial(shared, point, 0, tmp_path / "trial")
            rates[method, rate] = recorded[-1][key]
    for method in ("finetune", "predictions"):
        assert rates[method, 3.0] == pytest.approx(3 * rates[method, 1.0], rel=1e-12)


def test_kinds_have_the_methods_that_accept_them(teacher: Path, shared: TrialData) -> None:
    described, student = describe_directory(teacher), TEACHER.replace(num_layers=2)

    def ways_of(kind: str, *, text: bool = False, **options: Any) -> list[str]:
        task = pb.configs.TaskConfig(kind=kind, **options)  # type: ignore[arg-type]
        data = dataclasses.replace(shared.data, task=task)
        return [training.method for training in trainings(data, described, student, text=text) if training.rate == 1]

    labels = ("low", "high")
    ways = ["finetune", "predictions", "tinybert", "minilmv2", "hsk", "efficientbert"]
    assert ways_of("classification", labels=labels) == ways
    assert ways_of("classification", labels=labels, text=True)[-1] == "text"
    assert ways_of("multi_label", labels=labels) == ways
    assert ways_of("embedding") == ["finetune", "embedding"]
    assert ways_of("token_classification", labels=("O", "B-A", "I-A")) == ways


def test_further_structures_do_not_read_the_vocabulary_again(
    teacher: Path, shared: TrialData, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Any] = []
    read = wordpiece.read_vocabulary
    monkeypatch.setattr(
        wordpiece, "read_vocabulary", lambda path, content: (reads.append(path), read(path, content))[1]
    )
    described = describe_directory(teacher)
    counts = []
    for layers in (1, 2, 4):
        trainings(shared.data, described, TEACHER.replace(num_layers=layers), text=False)
        counts.append(len(reads))
    assert counts[0] == counts[-1] > 0


def test_embeddings_learn_from_the_vectors_of_the_teacher(teacher: Path, tmp_path: Path) -> None:
    texts = tiny_finetuning.examples(160, seed=5).texts
    pairs = enumerate(zip(texts[::2], texts[1::2], strict=True))
    lines = [json.dumps({"text": one, "pair": other, "score": number % 7 / 7}) for number, (one, other) in pairs]
    (tmp_path / "pairs.jsonl").write_text("".join(f"{line}\n" for line in lines))
    data = pb.data.pairs(tmp_path / "pairs.jsonl", score="score")
    tokenizer = pb.from_pretrained(teacher).tokenizer
    for name, layers in (("teacher", 5), ("student", 2)):
        model = pb.from_preset(TEACHER.replace(num_layers=layers), data.task, tokenizer, seed=layers)
        model.save_pretrained(tmp_path / name)
    shared = TrialData(data=data, teacher=str(tmp_path / "teacher"), max_length=19, deadline=0.0)
    train_trial(shared, trial_point(Training(method="embedding"), tmp_path / "student", 8), 0, tmp_path / "trial")
    result = json.loads((tmp_path / "trial" / "result.json").read_text())
    assert [stage["name"] for stage in result["stages"]] == ["embedding"] and result["steps"] == STEPS


@pytest.mark.nightly
def test_folds_are_scored_at_the_length_of_training(tmp_path: Path) -> None:
    encoder = tiny_finetuning.write_model(tmp_path / "encoder", tiny.BERT.replace(num_layers=2, initializer_range=0.1))
    examples = tiny_finetuning.examples(150, 1)
    data = pb.data.from_pairs(examples.texts, [tiny_finetuning.TASK.labels[label] for label in examples.labels])
    config = pb.FinetuneConfig(epochs=1, max_length=9, calibrate=False)
    result = pb.finetune(encoder, data, tmp_path / "run", config=config)
    cut, whole = (
        folds.dev_score(
            SimpleNamespace(splits=SimpleNamespace(data=data), length=length),  # type: ignore[arg-type]
            Path(result.model_directory),
        )
        for length in (9, 64)
    )
    # Texts with up to 19 words.
    assert cut == pytest.approx(result.metrics["accuracy"]) and cut != whole
