"""The search of `pocketbert compress` for the fastest network within `--max-points-lost`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny
import tiny_finetuning
from safetensors.numpy import load_file

import pocketbert as pb
from pocketbert.checkpoints.directory import read_directory
from pocketbert.pruning.importance import Importance
from pocketbert_bench.compression.candidates import StudentCandidate
from pocketbert_bench.compression.constraints import Cost
from pocketbert_bench.compression.inputs import check
from pocketbert_bench.compression.journal import Trial
from pocketbert_bench.compression.methods import Training
from pocketbert_bench.compression.points_limit import PointsLimit, untrained_losses
from pocketbert_bench.compression.structures import Structure, write_student

TEACHER = tiny.BERT.replace(num_layers=6, initializer_range=0.3)
HEADS, NEURONS = TEACHER.num_attention_heads, TEACHER.intermediate_size


def candidate(depth: int, milliseconds: float, neurons: int = NEURONS, method: str = "finetune") -> StudentCandidate:
    return StudentCandidate(
        kind=f"{depth} layers",
        structure=Structure(layers=tuple(range(1, depth + 1)), heads=HEADS, intermediate_size=neurons),
        training=Training(method=method),
        recipe="dynamic_wi8",
        trimmed=False,
        lengths=(16,),
        cost=Cost(latency_ms=milliseconds, size_mb=1.0, memory_mb=1.0),
    )


def trial(of: StudentCandidate, score: float, error: float = 0.01) -> Trial:
    return Trial(
        candidate=of.name,
        rung=0,
        epochs=1.0,
        score=score,
        metrics={"accuracy": score},
        interval=(score - 1.96 * error, score + 1.96 * error),
        loss=None,
        seconds=9.0,
        training_seconds=8.0,
        complete=True,
    )


FIVE, FOUR, THREE, ONE = candidate(5, 5.0), candidate(4, 4.0), candidate(3, 3.0), candidate(1, 1.0)
# Slower than four layers, and it loses more.
NARROW = candidate(6, 4.5, neurons=7)
LOSSES = dict(
    zip((one.structure.name for one in (FIVE, FOUR, THREE, ONE, NARROW)), (0.01, 0.03, 0.08, 0.2, 0.06), strict=True)
)
PREDICTIONS = [dataclasses.replace(one, training=Training(method="predictions")) for one in (FIVE, FOUR, THREE, ONE)]
WAITING = [NARROW, FIVE, FOUR, THREE, ONE, *PREDICTIONS]


def chosen(scores: dict[StudentCandidate, float], losses: dict[str, float] = LOSSES) -> StudentCandidate | None:
    """The candidate after some trials, if the teacher has 0.9 and two points may be lost."""
    trials = {one: trial(one, score) for one, score in scores.items()}
    tried = {one.structure for one in trials}
    return PointsLimit(0.88, losses, 0.02).next([one for one in WAITING if one.structure not in tried], trials)


def test_search_begins_with_the_fastest_that_loses_twice_the_limit_untrained() -> None:
    assert chosen({}) is PREDICTIONS[1]
    # If all lose more, with the one that loses least; on labels, if it is far from the teacher.
    assert chosen({}, {name: loss + 0.04 for name, loss in LOSSES.items()}) is PREDICTIONS[0]
    assert chosen({}, {name: loss + 0.06 for name, loss in LOSSES.items()}) is FIVE
    assert chosen({}, {}) is None


def test_search_halves_the_latencies_between_slow_and_weak_networks() -> None:
    assert chosen({FOUR: 0.89}) is THREE
    assert chosen({FOUR: 0.89, THREE: 0.8}) is None
    assert chosen({FOUR: 0.89, THREE: 0.885}) is ONE
    assert chosen({FOUR: 0.879}) is PREDICTIONS[0]
    assert chosen({FOUR: 0.87, FIVE: 0.9}) is None
    # One that is not on the path counts, too.
    assert chosen({NARROW: 0.89}) is THREE
    assert chosen({FIVE: 0.87}) is None


def test_faster_ones_within_reach_train_further_once_one_is_within_the_limit() -> None:
    limit = PointsLimit(0.88, LOSSES, 0.02)
    trials = {
        one: trial(one, score)
        for one, score in {FIVE: 0.91, FOUR: 0.881, THREE: 0.872, ONE: 0.85, NARROW: 0.87}.items()
    }
    assert limit.by_claim(trials) == [THREE, FOUR, NARROW, FIVE, ONE]
    # Without one within it, the nearest.
    del trials[FIVE], trials[FOUR]
    assert limit.by_claim(trials) == [THREE, NARROW, ONE]
    # Nobody knows how far others may be if scores have no interval.
    unknown = {one: trial(one, score, error=0.0) for one, score in {FIVE: 0.91, THREE: 0.872, ONE: 0.85}.items()}
    assert limit.by_claim(unknown) == [THREE, FIVE, ONE]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("points")
    rows = tiny_finetuning.examples(560, seed=1)
    assert rows.labels is not None
    # With the other labels, the whole network is better than most of its parts.
    tiny_finetuning.write_table(folder / "train.csv", dataclasses.replace(rows, labels=1 - rows.labels))
    encoder = pb.from_pretrained(tiny_finetuning.write_model(folder / "encoder", TEACHER))
    model = pb.from_preset(TEACHER, tiny_finetuning.TASK, encoder.tokenizer, seed=4)
    model.save_pretrained(folder / "teacher")
    return folder / "teacher"


def accuracies(teacher: Path, texts: list[str], labels: np.ndarray) -> dict[int, float]:
    """Accuracy by transformers for each number of first layers."""
    import transformers

    oracle = transformers.TFBertForSequenceClassification(transformers.AutoConfig.from_pretrained(teacher))
    stored = {name: np.asarray(array) for name, array in load_file(teacher / "model.safetensors").items()}
    oracle = transformers.modeling_tf_pytorch_utils.load_pytorch_state_dict_in_tf2_model(oracle, stored)
    tokens = transformers.BertTokenizer(teacher / "vocab.txt")(
        texts, padding=True, truncation=True, max_length=16, return_tensors="np"
    )
    layers, scores = oracle.bert.encoder.layer, {}
    for depth in range(1, TEACHER.num_layers + 1):
        oracle.bert.encoder.layer = layers[:depth]
        scores[depth] = float(np.mean(oracle(dict(tokens)).logits.numpy().argmax(-1) == labels))
    return scores


@pytest.mark.parametrize(("most", "depths"), [(1, [5]), (3, [5, 3, 4]), (100, [5, 3, 2, 1])])
def test_losses_without_training_are_those_of_transformers(
    most: float, depths: list[int], teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = pb.data.table(teacher.parent / "train.csv", text="text", label="label")
    inputs = check(teacher, data, constraints=pb.Constraints(max_points_lost=most, length=16), trials=1)
    written, recorded = list[str](), dict[str, float]()
    random = np.random.default_rng(5)
    importance = Importance(
        heads=random.random((TEACHER.num_layers, HEADS)),
        neurons=random.random((TEACHER.num_layers, NEURONS)),
        batches=1,
    )

    def write(one: StudentCandidate, folder: Path) -> Path:
        assert isinstance(one.structure, Structure)
        assert not folder.exists()
        write_student(read_directory(teacher), importance, one.structure, folder)
        written.append(one.structure.name)
        return folder

    def record(name: str, value: Callable[[], float]) -> float:
        return recorded[name] if name in recorded else recorded.setdefault(name, value())

    def losses(seconds: float, trials: int = 2) -> dict[str, float]:
        networks = [candidate(depth, depth) for depth in (5, 2, 4, 3, 1)] + [candidate(6, 2.5, neurons=7)]
        even = dataclasses.replace(THREE, structure=dataclasses.replace(THREE.structure, layers=(2, 4, 6)))
        factored = dataclasses.replace(FIVE, structure=dataclasses.replace(FIVE.structure, embedding_rank=3))
        networks += [dataclasses.replace(FIVE, training=Training(method="predictions")), even, factored]
        budget = dataclasses.replace(inputs, trials=trials)
        return untrained_losses(budget, teacher, networks, write, tmp_path / "scratch", seconds, record)

    # Without time, none is scored, until the budget is larger.
    assert losses(0.0, trials=1) == {} == losses(float("inf"), trials=1) and not written
    scored = losses(float("inf"))
    assert written == list(scored) and not (tmp_path / "scratch").exists()
    named = {candidate(depth, depth).structure.name: depth for depth in range(1, 6)}
    dev = inputs.splits.data.dev
    expected = accuracies(teacher, list(dev.texts), np.asarray(dev.labels))
    whole = {named[name]: loss for name, loss in scored.items() if name in named}
    assert whole == pytest.approx({depth: expected[6] - expected[depth] for depth in whole}, abs=1.5 / len(dev))
    # Each network halves those that are left, between one near the limit and one that is not.
    assert list(whole) == depths
    assert "neurons=7" in written[-1]
    # A later attempt scores none again.
    assert losses(0.0) == scored and len(written) == len(scored)
    assert f"by the losses of {len(scored)} networks without training" in capsys.readouterr().err
