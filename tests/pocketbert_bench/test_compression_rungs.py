"""Rungs of `pocketbert compress`: which candidates train, for how long, and what a killed run repeats."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import tiny
import tiny_finetuning

from pocketbert.data.task_data import TaskData
from pocketbert.trials.jobs import Job, Outcome
from pocketbert.trials.journal import Journal
from pocketbert.trials.workers import Workers
from pocketbert_bench.compression import rungs as module
from pocketbert_bench.compression.candidates import StudentCandidate
from pocketbert_bench.compression.constraints import Constraints, Cost
from pocketbert_bench.compression.journal import Trial
from pocketbert_bench.compression.methods import Training, TrialData
from pocketbert_bench.compression.points_limit import PointsLimit
from pocketbert_bench.compression.rungs import Rungs
from pocketbert_bench.compression.structures import Structure

TEACHER = tiny.BERT.replace(num_layers=6)
HEADS, NEURONS = TEACHER.num_attention_heads, TEACHER.intermediate_size
# 70 steps of 32 in an epoch.
COUNT = 70 * 32 - 5
CANDIDATES = [
    StudentCandidate(
        kind=f"{depth} layers",
        structure=Structure(layers=tuple(range(1, depth + 1)), heads=HEADS, intermediate_size=NEURONS),
        training=Training(method=method),
        recipe="dynamic_wi8",
        trimmed=False,
        lengths=(16,),
        cost=Cost(latency_ms=float(depth), size_mb=1.0, memory_mb=1.0),
    )
    for method in ("finetune", "predictions", "tinybert")
    for depth in (6, 5, 4, 3, 2, 1)
]


class Stopwatch(Workers):
    """Trains nothing: a layer takes a second in each epoch, and the score grows with the epochs.

    Attributes:
      seconds: the time that has passed.
      jobs: name, rung and seconds of each trial.
    """

    def __init__(
        self,
        scores: Mapping[int, float],
        parallel: int = 1,
        die_after: int | None = None,
        losses: Mapping[int, float] | None = None,
        error: float = 0.0,
    ) -> None:
        self.seconds, self.jobs, self.parallel = 0.0, list[tuple[str, int, float]](), parallel
        self._error = error
        self._scores, self._die_after, self._losses = scores, die_after, losses or dict.fromkeys(scores, 0.6)

    def outcomes(self, make_run: Any, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Ends each job after its time, or at its deadline."""
        began, ended = self.seconds, [0.0]
        deadline = make_run.args[0].deadline
        for job in jobs:
            if self._die_after is not None and len(self.jobs) == self._die_after:
                raise SystemExit(9)
            options = json.loads(str(job.point["candidate"]))
            name, rung = job.folder.parent.name, int(job.folder.name[-1])
            layers = name.count("-") + 1
            # A step on the teacher's layers has two parts.
            passes = 2 if options["method"] == "tinybert" else 1
            left = float("inf") if deadline is None else max(deadline - time.time(), 0.0)
            seconds = min(passes * layers * options["epochs"], left)
            steps = max(int(70 * seconds / layers), 1)
            score = self._scores[layers] + 0.01 * rung + 0.005 * (options["method"] == "predictions")
            (job.folder / "model").mkdir(parents=True)
            result = {"main_metric": "accuracy", "metrics": {"accuracy": score}, "steps": steps, "seconds": seconds}
            result["outcome"] = {"interval": [score - 1.96 * self._error, score + 1.96 * self._error]}
            (job.folder / "result.json").write_text(json.dumps(result | {"best_step": steps}))
            # The last evaluation is not the best one.
            losses = {steps: self._losses[layers], steps + 1: 0.9 - self._losses[layers]}
            lines = [json.dumps({"step": step, "split": "dev", "loss": loss}) for step, loss in losses.items()]
            (job.folder / "metrics.jsonl").write_text("\n".join(lines))
            self.jobs.append((name, rung, seconds))
            ended.append(seconds + 1)
            self.seconds = began + max(ended)
            yield Outcome(job, seconds + 1)


def run(
    folder: Path,
    workers: Stopwatch,
    *,
    total: float = float("inf"),
    trials: int | None = None,
    limits: Constraints = Constraints(max_latency_ms=9),  # noqa: B008
    kept: Mapping[str, Path] = {},  # noqa: B006
    candidates: Sequence[StudentCandidate] = CANDIDATES,
    untrained: Mapping[str, float] = {},  # noqa: B006
) -> Rungs:
    folder.mkdir(exist_ok=True)
    recorded: dict[str, float] = {}
    lost = limits.max_points_lost
    path = folder / "recorded.json"
    if path.exists():
        recorded.update(json.loads(path.read_text()))

    def record(name: str, value: Any) -> float:
        if name not in recorded:
            recorded[name] = value()
            path.write_text(json.dumps(recorded))
        return recorded[name]

    examples = tiny_finetuning.examples(COUNT, seed=1)
    data = TaskData(task=tiny_finetuning.TASK, train=examples, dev=examples.select(range(40)))
    rungs = Rungs(
        folder,
        Journal(folder / "journal.jsonl", (Trial,)),
        TrialData(data=data, teacher="teacher", max_length=16),
        teacher=TEACHER,
        workers=workers,
        seed=0,
        start=lambda candidate, path: path,
        record=record,
        budget=f"{total} {trials}",
        kept=kept,
        limits=limits,
        points=None if lost is None else PointsLimit(limits.least_score(0.8), untrained, lost / 100),
    )
    rungs.run(candidates, lambda: total - workers.seconds, total, trials)
    return rungs


# Score that so many layers lose without training.
LOSSES = {
    candidate.structure.name: loss
    for candidate, loss in zip(CANDIDATES[:6], (0.01, 0.05, 0.12, 0.3, 0.5, 0.55), strict=True)
}
SCORES = {6: 0.70, 5: 0.74, 4: 0.72, 3: 0.60, 2: 0.65, 1: 0.5}


def layers(name: str) -> int:
    return name.count("-") + 1


@pytest.mark.parametrize("total", [9.0, 20.0, 60.0])
def test_three_kinds_are_tried_in_a_short_time(total: float, tmp_path: Path) -> None:
    workers = Stopwatch(SCORES)
    run(tmp_path / "run", workers, total=total)
    first = [(layers(name), seconds) for name, rung, seconds in workers.jobs if rung == 0]
    assert [number for number, _ in first[:3]] == [6, 5, 4]
    # First rungs have half of the time, in equal parts.
    assert first[0][1] <= 0.5 * total / 3 + 0.1
    assert workers.seconds <= total + 3
    # A trial whose time was over has a part of its epochs, so that the pace of later ones is known.
    trial = Journal(tmp_path / "run" / "journal.jsonl", (Trial,)).records[0]
    assert trial.epochs == pytest.approx(first[0][1] / 6, abs=2 / 70)


@pytest.mark.parametrize(("total", "trials", "epochs"), [(20.0, None, 20 / 6), (90.0, None, 15), (1e9, 1, 8)])
def test_a_single_candidate_trains_in_one_go(total: float, trials: int | None, epochs: float, tmp_path: Path) -> None:
    run(tmp_path / "run", workers := Stopwatch(SCORES), total=total, trials=trials, candidates=CANDIDATES[:1])
    trial = Journal(tmp_path / "run" / "journal.jsonl", (Trial,)).records[0]
    assert trial.epochs == pytest.approx(epochs, abs=2 / 70)
    assert len(workers.jobs) == 1


def test_two_candidates_share_the_time_of_first_rungs(tmp_path: Path) -> None:
    run(tmp_path / "run", workers := Stopwatch(SCORES), total=24.0, candidates=CANDIDATES[:2])
    assert [seconds for _, rung, seconds in workers.jobs if rung == 0] == pytest.approx([6.0, 5.0], abs=1.1)


@pytest.mark.parametrize(("total", "tried"), [(7.5, 1), (9.0, 3)])
def test_rungs_of_a_few_steps_compare_nothing(
    total: float, tried: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A sixth of the time is for 14.6 of the 70 steps in an epoch with six layers, or for 17.5.
    workers = Stopwatch(SCORES)
    run(tmp_path / "run", workers, total=total)
    assert len({name for name, _, _ in workers.jobs}) == tried
    # The first candidate then has the rest of the time.
    name, rung, seconds = workers.jobs[-1]
    assert rung == 2 and (tried > 1 or (layers(name) == 6 and seconds > 0.6 * total))
    message = f"the time is too short to compare candidates: only {CANDIDATES[0].name} trains"
    assert (message in capsys.readouterr().err) == (tried == 1)


@pytest.mark.parametrize("total", [12.0, 24.0])
def test_time_without_an_epoch_is_used_with_a_part_of_the_examples(total: float, tmp_path: Path) -> None:
    workers = Stopwatch(SCORES)
    run(tmp_path / "run", workers, total=total)
    # A second for each trial that is over at its deadline.
    assert 0.9 * total <= workers.seconds <= total + 2
    trials = Journal(tmp_path / "run" / "journal.jsonl", (Trial,)).records
    assert all(trial.epochs < 1 for trial in trials if trial.rung == 0)
    last = next(trial for trial in trials if trial.rung == 2)
    assert layers(last.candidate) == 5 and last.epochs > 2 * trials[0].epochs


def test_the_best_structure_tries_other_methods(tmp_path: Path) -> None:
    workers = Stopwatch(SCORES)
    run(tmp_path / "run", workers, trials=7)
    first = [(layers(name), name.rpartition(",")[2]) for name, rung, _ in workers.jobs if rung == 0]
    assert first == [
        (6, "finetune"),
        (5, "finetune"),
        (4, "finetune"),
        (5, "predictions"),
        (3, "finetune"),
        (5, "tinybert"),
        (2, "finetune"),
    ]


def test_the_most_promising_ones_train_further(tmp_path: Path) -> None:
    workers = Stopwatch(SCORES)
    rungs = run(tmp_path / "run", workers, trials=6)
    later = [(layers(name), name.rpartition(",")[2], rung) for name, rung, _ in workers.jobs if rung]
    assert later == [(5, "predictions", 1), (5, "finetune", 1), (5, "predictions", 2)]
    assert rungs.preferred(CANDIDATES)[0].name == workers.jobs[-1][0]
    _, row = rungs.leaderboard(rungs.preferred(CANDIDATES)[0])[0]
    assert row["epochs"] == 2 * (1 + 2 + 4) and row["rungs"] == 3 and row["stopped"] == "it had all of its time"


def test_equal_scores_go_to_the_lower_loss(tmp_path: Path) -> None:
    workers = Stopwatch(dict.fromkeys(SCORES, 0.7), losses={6: 0.4, 5: 0.3, 4: 0.5})
    rungs = run(tmp_path / "run", workers, trials=3)
    (promoted,) = [layers(name) for name, rung, _ in workers.jobs if rung]
    # The one with 4 layers is the fastest.
    assert promoted == 5
    first = [len(candidate.structure.layers) for candidate in rungs.ranked(CANDIDATES, 1)]
    board = [len(candidate.structure.layers) for candidate, _ in rungs.leaderboard(CANDIDATES[1])]
    assert first == board == [5, 6, 4]


@pytest.mark.parametrize(("losses", "best"), [((0.5, 0.4), 2), ((0.4, 0.5), 0), ((0.4, 0.4), 0), ((None, 0.9), 2)])
def test_equal_rungs_go_to_the_lower_loss(losses: tuple[float | None, float], best: int, tmp_path: Path) -> None:
    rungs = run(tmp_path / "run", Stopwatch(SCORES), trials=1)
    journal = Journal(tmp_path / "equal.jsonl", (Trial,))
    (first,) = [trial for trial in rungs._journal.records if trial.rung == 0]
    journal.add(dataclasses.replace(first, loss=losses[0]), dataclasses.replace(first, rung=2, loss=losses[1]))
    rungs._journal = journal
    assert rungs.best_rung(CANDIDATES[0]) == best


def test_the_best_candidates_use_the_whole_time(tmp_path: Path) -> None:
    workers = Stopwatch(SCORES)
    run(tmp_path / "run", workers, total=300.0)
    assert 290 <= workers.seconds <= 300.1
    assert layers(next(name for name, rung, _ in workers.jobs if rung == 2)) == 5


def test_few_candidates_keep_their_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run(tmp_path / "all", everything := Stopwatch(SCORES), trials=9)
    monkeypatch.setattr(module, "KEPT", 7)
    rungs = run(tmp_path / "few", few := Stopwatch(SCORES), trials=9)
    assert few.jobs == everything.jobs
    tried = [candidate for candidate in CANDIDATES if candidate.name in {name for name, _, _ in few.jobs}]
    gone = [len(candidate.structure.layers) for candidate in tried if not rungs.has_weights(candidate)]
    # One with 1 layer is worse than both, but no faster one beats it.
    assert len(tried) == 9 and gone == [6, 3]


def test_refused_weights_leave_those_of_earlier_rungs(tmp_path: Path) -> None:
    rungs = run(tmp_path / "run", Stopwatch(SCORES), trials=6)
    best = rungs.preferred(CANDIDATES)[0]
    for rung in (2, 1, 0):
        assert best in rungs.preferred(CANDIDATES) and rungs.model(best).parent.name == f"rung-{rung}"
        rungs.refuse(best)
    assert best not in rungs.preferred(CANDIDATES) and not rungs.has_weights(best)
    (row,) = [row for candidate, row in rungs.leaderboard(rungs.preferred(CANDIDATES)[0]) if candidate is best]
    assert row["stopped"] == "its file differs from the model"


def test_limit_of_points_promotes_candidates_near_it(tmp_path: Path) -> None:
    # The teacher has 0.8, so 0.66 is needed.
    workers = Stopwatch(SCORES)
    limits = Constraints(max_points_lost=14)
    rungs = run(tmp_path / "run", workers, trials=9, limits=limits)
    promoted = [layers(name) for name, rung, _ in workers.jobs if rung]
    assert promoted[0] == 2
    fastest = rungs.preferred(CANDIDATES)[0]
    assert fastest.structure == CANDIDATES[4].structure and rungs.score(fastest) >= 0.66


@pytest.mark.parametrize(("error", "tried"), [(0.0, 6), (0.011, 4), (0.009, 1)])
def test_parts_of_a_network_with_too_low_a_score_are_left_out(
    error: float, tried: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # 0.71 is needed; six layers have 0.70, and three have 0.60. Without an interval, nobody knows how far that is.
    workers = Stopwatch(SCORES, error=error)
    run(tmp_path / "run", workers, trials=6, limits=Constraints(max_points_lost=9), candidates=CANDIDATES[:6])
    assert sum(not rung for _, rung, _ in workers.jobs) == tried
    # The only one trains further.
    assert any(rung for _, rung, _ in workers.jobs)
    message = f"5 smaller candidates are left out: the score of {CANDIDATES[0].name} is too low"
    named = message in capsys.readouterr().err
    assert named == (tried == 1)


def test_losses_without_training_choose_what_trains(tmp_path: Path) -> None:
    # 0.71 is needed. Four layers have 0.72, and two are too weak, and then three.
    workers = Stopwatch(SCORES, error=0.02)
    run(tmp_path / "run", workers, total=150.0, limits=Constraints(max_points_lost=9), untrained=LOSSES)
    first = [(layers(name), name.rpartition(",")[2]) for name, rung, _ in workers.jobs if not rung]
    # Other methods follow, but no slower networks.
    assert first[:4] == [(4, "predictions"), (2, "finetune"), (3, "finetune"), (4, "finetune")]
    assert {number for number, _ in first} == {2, 3, 4}
    # No faster one is within reach of the score, so the fastest with it trains further.
    name, _, seconds = next(job for job in workers.jobs if job[1] == 2)
    assert layers(name) == 4 and seconds > 30


def test_other_layers_or_more_heads_are_no_part(tmp_path: Path) -> None:
    four = dataclasses.replace(CANDIDATES[2], structure=dataclasses.replace(CANDIDATES[2].structure, heads=1))
    others = [
        dataclasses.replace(four, structure=dataclasses.replace(four.structure, **sizes))
        for sizes in ({"layers": (1, 2, 5)}, {"heads": 2, "layers": (1, 2)}, {"layers": (2, 3)})
    ]
    workers = Stopwatch(SCORES, error=0.001)
    limits = Constraints(max_points_lost=1)
    run(tmp_path / "run", workers, trials=4, limits=limits, candidates=[four, *others])
    tried = {name for name, rung, _ in workers.jobs if not rung}
    assert tried == {candidate.name for candidate in [four, *others[:2]]}


def test_workers_train_several_at_a_time(tmp_path: Path) -> None:
    one, two = Stopwatch(SCORES), Stopwatch(SCORES, parallel=2)
    run(tmp_path / "one", one, total=200.0)
    run(tmp_path / "two", two, total=200.0)
    trained, trained_by_two = (sum(seconds for *_, seconds in workers.jobs) for workers in (one, two))
    assert trained_by_two > 1.5 * trained and two.seconds <= 203


@pytest.mark.one_of_each("budget0", "budget1")
@pytest.mark.parametrize(
    "budget",
    [
        {"trials": 6},
        {"total": 150.0},
        {"trials": 12, "limits": Constraints(max_points_lost=14.5)},
        {"total": 150.0, "limits": Constraints(max_points_lost=9), "untrained": LOSSES},
    ],
)
def test_killed_run_repeats_the_same_trials(budget: dict[str, Any], tmp_path: Path) -> None:
    whole = Stopwatch(SCORES)
    run(tmp_path / "whole", whole, **budget)
    for count in range(1, len(whole.jobs)):
        folder = tmp_path / f"killed-{count}"
        killed = Stopwatch(SCORES, die_after=count)
        with pytest.raises(SystemExit):
            run(folder, killed, **budget)
        resumed = Stopwatch(SCORES)
        resumed.seconds = killed.seconds
        run(folder, resumed, **budget)
        names = [(name, rung) for name, rung, _ in [*killed.jobs, *resumed.jobs]]
        assert names == [(name, rung) for name, rung, _ in whole.jobs]
    records = Journal(tmp_path / "killed-2" / "journal.jsonl", (Trial,)).records
    expected = Journal(tmp_path / "whole" / "journal.jsonl", (Trial,)).records
    assert [dataclasses.replace(one, seconds=99.0) for one in records if budget.get("trials")] == [
        dataclasses.replace(one, seconds=99.0) for one in expected if budget.get("trials")
    ]


def test_a_larger_number_of_trials_continues(tmp_path: Path) -> None:
    whole = Stopwatch(SCORES)
    run(tmp_path / "whole", whole, trials=6)
    first, second = Stopwatch(SCORES), Stopwatch(SCORES)
    run(tmp_path / "run", first, trials=4)
    run(tmp_path / "run", second, trials=6)
    # The best third of four is two, of which one trains to the end; the best third of six has one more new trial.
    names = [(name, rung) for name, rung, _ in [*first.jobs, *second.jobs]]
    assert len(names) == len({*names}) and {*names} == {(name, rung) for name, rung, _ in whole.jobs}
    assert [(name, rung) for name, rung, _ in second.jobs] == [
        (name, rung) for name, rung, _ in whole.jobs if (name, rung) in names[len(first.jobs) :]
    ]


def test_a_larger_time_trains_the_best_candidate_further(tmp_path: Path) -> None:
    first, second = Stopwatch(SCORES), Stopwatch(SCORES)
    run(tmp_path / "run", first, total=150.0)
    second.seconds = first.seconds
    rungs = run(tmp_path / "run", second, total=600.0)
    best = rungs.ranked(CANDIDATES)[0]
    numbers = [rung for name, rung, _ in [*first.jobs, *second.jobs] if name == best.name]
    assert numbers == [*range(len(numbers))] and numbers[-1] == 3
    (row,) = [row for candidate, row in rungs.leaderboard(best) if candidate is best]
    assert row["rungs"] == 4 and row["stopped"] == "it had all of its time"
    # The same command again trains nothing.
    run(tmp_path / "run", third := Stopwatch(SCORES), total=600.0)
    assert third.jobs == []


def test_candidates_without_weights_do_not_continue(tmp_path: Path) -> None:
    first, second = Stopwatch(SCORES), Stopwatch(SCORES)
    rungs = run(tmp_path / "run", first, trials=3)
    best = rungs.ranked(CANDIDATES)[0]
    kept = {best.name: tmp_path / "kept"}
    kept[best.name].mkdir()
    shutil.rmtree(tmp_path / "run" / "trials")
    rungs = run(tmp_path / "run", second, trials=5, kept=kept)
    # The fourth tries another method on the best structure.
    assert rungs.model(best) == kept[best.name] and len(second.jobs) > 2
    gone = {name for name, _, _ in first.jobs} - {best.name}
    assert gone and not gone & {name for name, _, _ in second.jobs}
    assert not gone & {candidate.name for candidate in rungs.preferred(CANDIDATES)}


def test_whole_epochs_after_a_part_of_one_stay_whole(tmp_path: Path) -> None:
    part, best = 3 / 70, CANDIDATES[1]
    assert part + 2 - part != 2
    rungs = run(tmp_path / "run", Stopwatch(SCORES), trials=1)
    journal = Journal(tmp_path / "part.jsonl", (Trial,))
    (first,) = [trial for trial in rungs._journal.records if trial.rung == 0]
    for rung, epochs, score in ((0, part, 0.1), (2, part + 2, 0.4)):
        fields = {"candidate": best.name, "rung": rung, "epochs": epochs}
        journal.add(dataclasses.replace(first, **fields, score=score, metrics={"accuracy": score}))
    rungs._journal = journal
    assert [epochs for _, epochs in rungs.training(best)] == [pytest.approx(part, abs=1e-6), 2]
