"""A search: what it writes, how it resumes, and what it refuses. Most tests replace training by a known score."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import tiny_distillation
from known_scores import Trainings, score

import pocketbert as pb
from pocketbert.checkpoints.supernet import supernet_config
from pocketbert.configs import EncoderConfig
from pocketbert.data.train_dev_split import train_dev_split
from pocketbert.errors import TrainingFailed, UserError
from pocketbert.search import rounds, supernets
from pocketbert.search.config import SearchConfig, SearchResult
from pocketbert.search.constraints import ParameterConstraint
from pocketbert.search.run import search
from pocketbert.search.strategies import StrategyOptions
from pocketbert.search.supernet_tasks import SupernetTask
from pocketbert.training.initialization import make_model, plan_model, plan_slices
from pocketbert.trials import clock, workers
from pocketbert.trials.jobs import Job, Outcome

BASE = tiny.FACTORIZED_WORD.replace(num_layers=2, trigram=True, hidden_size=20, head_size=4, intermediate_size=24)
CONFIG = SearchConfig(candidates=(9, 5), max_length=tiny_distillation.MAX_LENGTH, seed=3)


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> Trainings:
    return Trainings(monkeypatch)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_distillation.write_teacher(tmp_path_factory.mktemp("teacher") / "model")


def start(teacher: Path, output: Path, base: EncoderConfig = BASE, **changes: Any) -> SearchResult:
    arguments: dict[str, Any] = {"config": CONFIG, "strategy": StrategyOptions(strategy="evolution", population=4)}
    return search(base, tiny_distillation.task_data(teacher), output, teacher=teacher, **{**arguments, **changes})


def journal(output: Path) -> list[dict[str, Any]]:
    return journal_lines((output / "journal.jsonl").read_bytes())


def journal_lines(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.splitlines()]


def test_best_and_front_come_from_the_journal(
    teacher: Path, tmp_path: Path, trainings: Trainings, capsys: pytest.CaptureFixture[str]
) -> None:
    result = start(teacher, tmp_path / "out")
    # The supernet starts from random weights, with the search's own rate.
    assert "raise learning_rate" not in capsys.readouterr().err
    lines = [line for line in journal(tmp_path / "out") if "score" in line]
    assert [(line["stage"], line["index"]) for line in lines] == [(1, n) for n in range(9)] + [(2, n) for n in range(5)]
    assert all(line["score"] == score(";".join(line["genotype"])) for line in lines)
    best = max(lines, key=lambda line: line["score"])
    assert result.best["genotype"] == best["genotype"] and result.metrics == {"accuracy": best["score"]}

    def beaten(line: dict[str, Any]) -> bool:
        cost, value = line["costs"]["parameters"], line["score"]
        return any(
            other["costs"]["parameters"] <= cost
            and other["score"] >= value
            and (other["costs"]["parameters"], -other["score"]) != (cost, -value)
            for other in lines
        )

    expected = {(line["costs"]["parameters"], line["score"]) for line in lines if not beaten(line)}
    assert {(row["costs"]["parameters"], row["score"]) for row in result.front} == expected
    student = pb.from_preset(plan_model(result.student_config).config)
    assert list(student.config.feedforward.expressions) == best["genotype"]
    weights = sum(math.prod(weight.shape) for weight in student.weights_by_path().values())
    assert weights == best["costs"]["parameters"]


def test_candidates_train_for_their_epochs(teacher: Path, tmp_path: Path, trainings: Trainings) -> None:
    start(teacher, tmp_path / "out", config=dataclasses.replace(CONFIG, candidates=(2, 1), candidate_epochs=2))
    lines = [line for line in journal(tmp_path / "out") if "score" in line]
    # `Trainings` turns scores around for more than one epoch.
    assert [line["score"] for line in lines] == [-score(";".join(line["genotype"])) for line in lines]


def test_stage_two_keeps_the_winners_shapes(teacher: Path, tmp_path: Path, trainings: Trainings) -> None:
    start(teacher, tmp_path / "out")
    lines = [line for line in journal(tmp_path / "out") if "score" in line]
    shapes = [[text.split("linear")[1][:3] for text in line["genotype"]] for line in lines]
    winner = max((line for line in lines if line["stage"] == 1), key=lambda line: line["score"])
    assert {tuple(shape) for shape, line in zip(shapes, lines, strict=True) if line["stage"] == 2} == {
        tuple(shapes[winner["index"]])
    }


@pytest.mark.one_of_each("4")
@pytest.mark.parametrize("stop_at", [0, 1, 4, 8])
def test_resumed_journal_equals_uninterrupted(
    stop_at: int, teacher: Path, tmp_path: Path, trainings: Trainings
) -> None:
    options = {"config": dataclasses.replace(CONFIG, candidates=(2, 9)), "strategy": StrategyOptions(strategy="random")}
    start(teacher, tmp_path / "whole", **options)
    scores = [line["score"] for line in journal(tmp_path / "whole") if "score" in line]
    # Stage 2 soon finds a better one than stage 1: it must not become its starting point on resuming.
    assert max(scores[3:6]) > max(scores[:2])
    trainings.count, trainings.stop_at = 0, stop_at
    with pytest.raises(KeyboardInterrupt):
        start(teacher, tmp_path / "out", **options)
    trainings.stop_at = -1
    start(teacher, tmp_path / "out", **options)
    assert (tmp_path / "out" / "journal.jsonl").read_bytes() == (tmp_path / "whole" / "journal.jsonl").read_bytes()
    assert trainings.count == 10
    start(teacher, tmp_path / "out", **options)
    assert trainings.count == 10


class TwoAtATime:
    """Workers that finish a round in reverse, and stop after the first candidate of one round."""

    parallel = 2

    def __init__(self, stop: bool) -> None:
        self.stop = stop

    def close(self) -> None: ...

    def outcomes(self, make_run: Callable[..., None], jobs: list[Job]) -> Any:
        for job in reversed(jobs):
            make_run(job.point, job.seed, job.folder)
            yield Outcome(job, 1.0)
            if self.stop and job.folder.name.endswith("00005"):
                raise KeyboardInterrupt


def test_killed_round_keeps_finished_candidates(teacher: Path, tmp_path: Path, trainings: Trainings) -> None:
    start(teacher, tmp_path / "whole", workers=TwoAtATime(False))
    trainings.count = 0
    with pytest.raises(KeyboardInterrupt):
        start(teacher, tmp_path / "out", workers=TwoAtATime(True))
    start(teacher, tmp_path / "out", workers=TwoAtATime(False))
    assert (tmp_path / "out" / "journal.jsonl").read_bytes() == (tmp_path / "whole" / "journal.jsonl").read_bytes()
    assert trainings.count == 13


def test_failed_candidates_are_recorded(teacher: Path, tmp_path: Path, trainings: Trainings) -> None:
    trainings.fail = lambda expressions: "tanh" in expressions
    result = start(teacher, tmp_path / "out")
    failed = [line for line in journal(tmp_path / "out") if line.get("failure")]
    assert result.failed == len(failed) > 0
    assert all("tanh" in ";".join(line["genotype"]) and line["score"] is None for line in failed)
    trainings.fail = lambda expressions: True
    with pytest.raises(TrainingFailed, match="every candidate failed; the first: the loss is not finite"):
        start(teacher, tmp_path / "none")


@pytest.mark.parametrize("second", [2, 3])
def test_time_limit_ends_the_stages(
    second: int, teacher: Path, tmp_path: Path, trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(supernets, "train_supernet")
    config = dataclasses.replace(CONFIG, minutes=1e-9, stages=(1, second))
    result = start(teacher, tmp_path / "out", BASE.replace(intermediate_size=18), config=config)
    assert [line["end"] for line in journal(tmp_path / "out") if "end" in line] == ["minutes", "minutes"]
    # A search without time still scores the base network, and trains no second supernet.
    assert result.candidates == [1, 0] and result.best["stage"] == 1
    assert result.supernet == str(tmp_path / "out" / "supernet" / "model")
    before = (tmp_path / "out" / "journal.jsonl").read_bytes()
    # As if killed before.
    (tmp_path / "out" / "result.json").unlink()
    start(teacher, tmp_path / "out", BASE.replace(intermediate_size=18), config=config)
    assert (tmp_path / "out" / "journal.jsonl").read_bytes() == before


def test_time_left_ends_with_the_minutes(
    teacher: Path,
    tmp_path: Path,
    trainings: Trainings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]

    def minute(training: Any, *arguments: Any) -> None:
        now[0] += 60
        trainings(training, *arguments)

    for module in (clock, workers):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(rounds, "train_candidate", minute)
    # Stage 1 has 9 of the 14 candidates, so 4.5 of the 7 minutes; without a limit, 8 minutes would be left.
    start(teacher, tmp_path / "out", config=dataclasses.replace(CONFIG, minutes=7))
    lines = [line for line in capsys.readouterr().err.splitlines() if "stage-1-0000" in line and " done" in line]
    assert lines[0].startswith("candidates/stage-1-00000: accuracy ") and "(01:00); 1 of 9 done, best " in lines[0]
    assert lines[0].endswith("about 03:30 left") and lines[4].endswith("about 00:00 left") and "5 of 9" in lines[4]


def test_supernets_do_not_use_the_time(
    teacher: Path, tmp_path: Path, trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def hour(*_: Any, **__: Any) -> None:
        now[0] += 3600

    for module in (clock, workers):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(supernets, "train_supernet", hour)
    config = dataclasses.replace(CONFIG, minutes=10, stages=(1, 3))
    result = start(teacher, tmp_path / "out", BASE.replace(intermediate_size=18), config=config)
    assert now == [3600] and result.seconds == 0 and result.candidates == [9, 5]


def test_constraints_hold_for_all_candidates(teacher: Path, tmp_path: Path, trainings: Trainings) -> None:
    limits = ParameterConstraint(minimum=12_000, limit=13_000)
    start(teacher, tmp_path / "out", constraints=[limits])
    costs = [line["costs"]["parameters"] for line in journal(tmp_path / "out") if "costs" in line]
    assert len(costs) == 14 and all(12_000 <= cost <= 13_000 for cost in costs)


@dataclasses.dataclass(frozen=True)
class Milliseconds:
    """A cost that falls with the number of weights."""

    limit: float = 9.0
    minimum: float = 0.0
    name = "latency_ms"

    def cost(self, config: EncoderConfig) -> float:
        return 1e5 / ParameterConstraint(limit=math.inf).cost(config)

    def describe(self, cost: float) -> str:
        return f"{cost} ms"

    def prepare(self, folder: Path, space: Any) -> None: ...


def test_page_shows_latency_and_size(teacher: Path, tmp_path: Path, trainings: Trainings) -> None:
    searched = start(teacher, tmp_path / "out", constraints=[Milliseconds()])
    lines = [line for line in journal(tmp_path / "out") if "costs" in line]
    assert {tuple(line["costs"]) for line in lines} == {("latency_ms", "parameters")} and searched.cost == "latency_ms"
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    charts = {
        re.search(r'aria-label="([^"]*)"', chart)[1]: chart
        for chart in re.findall(r"<figure.*?</figure>", page, re.DOTALL)[:3]
    }
    assert len(charts) == 3 and all(chart.count("<circle") == len(lines) for chart in charts.values())
    for name in ("latency_ms", "parameters"):
        costs = [line["costs"][name] for line in lines]
        (chart,) = (chart for label, chart in charts.items() if name.replace("_ms", " in ms") in label)
        # Lines are listed like the journal; the plot is 292 wide from 56 on.
        xs = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', chart)]
        expected = [56 + 292 * (cost - min(costs)) / (max(costs) - min(costs)) for cost in costs]
        assert xs == pytest.approx(expected, abs=0.06)
        # The front begins at the cheapest candidate.
        assert float(re.search(r'<path d="M([\d.]+)', chart)[1]) == pytest.approx(min(expected), abs=0.06)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"constraints": [ParameterConstraint(limit=2_000)]}, "at most 2,000 parameters"),
        ({"base": BASE.replace(num_attention_heads=2, head_size=10)}, "the teacher has 5 heads, the student 2"),
        ({"config": SearchConfig(stages=(2,), candidates=(3,))}, "stage 2 needs a winner"),
        ({"config": SearchConfig(stages=(1, 3))}, "intermediate_size of at most the hidden size, 20"),
    ],
)
def test_bad_input_leaves_no_folder(
    changes: dict[str, Any], message: str, teacher: Path, tmp_path: Path, trainings: Trainings
) -> None:
    with pytest.raises(UserError, match=message):
        start(teacher, tmp_path / "out", **changes)
    assert not (tmp_path / "out").exists() and trainings.count == 0


def test_other_search_is_refused(teacher: Path, tmp_path: Path, trainings: Trainings) -> None:
    start(teacher, tmp_path / "out")
    before = (tmp_path / "out" / "journal.jsonl").read_bytes()
    other = StrategyOptions(strategy="evolution", population=7)
    with pytest.raises(UserError, match="population=4, received 7"):
        start(teacher, tmp_path / "out", strategy=other)
    assert (tmp_path / "out" / "journal.jsonl").read_bytes() == before
    start(teacher, tmp_path / "other", strategy=other)
    (tmp_path / "other" / "journal.jsonl").write_bytes(before)
    (tmp_path / "other" / "result.json").unlink()
    with pytest.raises(UserError, match=r"journal.jsonl is damaged at line 1; .*its digest must be"):
        start(teacher, tmp_path / "other", strategy=other)


def test_damaged_files_are_named(teacher: Path, tmp_path: Path, trainings: Trainings) -> None:
    trainings.stop_at = 3
    with pytest.raises(KeyboardInterrupt):
        start(teacher, tmp_path / "out")
    path = tmp_path / "out" / "journal.jsonl"
    written = path.read_bytes()
    for damaged in (written.replace(b'"index"', b'"number"', 1), b"\xff" + written):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"journal.jsonl is damaged at line 1"):
            start(teacher, tmp_path / "out")
    first = journal_lines(written)[0]
    path.write_bytes(json.dumps(first | {"score": 99}).encode() + b"\n")
    with pytest.raises(UserError, match=r"journal.jsonl is damaged at line 1; .*score must lie between -1 and 1"):
        start(teacher, tmp_path / "out")
    path.unlink()
    (tmp_path / "out" / "seconds.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match=r"seconds.json is damaged"):
        start(teacher, tmp_path / "out")


def test_killed_search_keeps_a_finished_candidate(
    teacher: Path, tmp_path: Path, trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without `rmtree`, it ends like a killed one.
    monkeypatch.setattr(rounds, "shutil", SimpleNamespace())
    with pytest.raises(AttributeError):
        start(teacher, tmp_path / "out")
    assert len(journal(tmp_path / "out")) == 1


def test_stage_three_decides(teacher: Path, tmp_path: Path, trainings: Trainings) -> None:
    config = dataclasses.replace(CONFIG, stages=(1, 3))
    result = start(teacher, tmp_path / "out", BASE.replace(intermediate_size=18), config=config)
    third = [line for line in journal(tmp_path / "out") if line.get("stage") == 3 and "score" in line]
    assert result.best["score"] == max(line["score"] for line in third) and len(third) == 5
    assert result.supernet == str(tmp_path / "out" / "learning_supernet" / "finetuned" / "model")


def test_retrained_candidates_span_the_ranking(teacher: Path, tmp_path: Path, trainings: Trainings) -> None:
    config = dataclasses.replace(CONFIG, retrained=4)
    trainings.stop_at = 9 + 4 + 1
    with pytest.raises(KeyboardInterrupt):
        start(teacher, tmp_path / "out", config=config)
    trainings.stop_at, before = -1, trainings.count
    result = start(teacher, tmp_path / "out", config=config)
    # The one that was finished is kept.
    assert trainings.count == before + 3
    # The winner of stage 1 is in the journal twice.
    scores = sorted({line["score"] for line in journal(tmp_path / "out") if "score" in line}, reverse=True)
    assert len(scores) == 13
    assert [row["score"] for row in result.retrained] == [scores[rank] for rank in (0, 4, 8, 12)]
    assert [row["retrained"] for row in result.retrained] == [-row["score"] for row in result.retrained]
    assert result.kendall_tau == -1 and "-1.00" in (tmp_path / "out" / "report.html").read_text("utf-8")


def test_other_tasks_reach_the_learning_supernet(
    teacher: Path, tmp_path: Path, trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_of_calls: list[Any] = []
    monkeypatch.setattr(
        supernets, "train_supernet", lambda _, data, *__, **options: data_of_calls.append((data, options))
    )
    data = tiny_distillation.task_data(teacher)
    other = SupernetTask(
        data=dataclasses.replace(data, task=dataclasses.replace(data.task, name="other")), teacher=teacher
    )
    options: dict[str, Any] = {"config": dataclasses.replace(CONFIG, stages=(1, 3)), "tasks": [other]}
    start(teacher, tmp_path / "out", BASE.replace(intermediate_size=18), **options)
    ((tasks, named),) = data_of_calls
    assert [task.data.task.name for task in tasks] == ["mood", "other"] and named["teacher"] is None
    # The searched task keeps its examples for scores.
    assert [len(task.data.train) for task in tasks] == [72, 90]
    with pytest.raises(UserError, match="other options: other_dev_sha256='.*', received None"):
        start(teacher, tmp_path / "out", BASE.replace(intermediate_size=18), **{**options, "tasks": []})
    with pytest.raises(UserError, match="other tasks train the supernet of stage 3"):
        start(teacher, tmp_path / "refused", tasks=[other])
    assert not (tmp_path / "refused").exists()


def test_given_supernet_is_not_trained(
    teacher: Path, tmp_path: Path, trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = pb.from_preset(
        supernet_config(BASE), task=[tiny_distillation.TASK], tokenizer=pb.from_pretrained(teacher).tokenizer
    )
    model.save_pretrained(tmp_path / "supernet")
    used: set[str] = set()

    def train(training: Any, *arguments: Any) -> None:
        used.add(training.supernet)
        trainings(training, *arguments)

    monkeypatch.setattr(rounds, "train_candidate", train)
    monkeypatch.delattr(supernets.Supernets, "_distill")
    result = start(teacher, tmp_path / "out", supernet=tmp_path / "supernet")
    assert used == {result.supernet} == {str(tmp_path / "supernet")}
    with pytest.raises(UserError, match="other options: supernet_sha256='.*', received None"):
        start(teacher, tmp_path / "out")
    with pytest.raises(UserError, match=r"the supernet must have .*; .*supernet differs in intermediate_size; give"):
        start(teacher, tmp_path / "other", BASE.replace(intermediate_size=12), supernet=tmp_path / "supernet")
    assert not (tmp_path / "other").exists()


def test_stage_three_has_its_own_scores(
    teacher: Path, tmp_path: Path, trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: dict[bool, int] = {}

    def train(training: Any, *arguments: Any) -> None:
        scored[training.trains] = len(training.data.dev)
        trainings(training, *arguments)

    monkeypatch.setattr(rounds, "train_candidate", train)
    config = dataclasses.replace(CONFIG, stages=(1, 3), candidates=(2, 2), score_share=0.1, stage3_score_share=0.3)
    start(teacher, tmp_path / "out", BASE.replace(intermediate_size=18), config=config)
    assert scored[True] == pytest.approx(9, abs=1) and scored[False] == pytest.approx(27, abs=1)


@pytest.mark.slow
def test_stage_three_scores_slices(teacher: Path, tmp_path: Path) -> None:
    length = tiny_distillation.MAX_LENGTH
    config = SearchConfig(
        stages=(1, 3), candidates=(1, 3), supernet_epochs=1, batch_size=16, learning_rate=1e-3, max_length=length
    )
    output, data = tmp_path / "out", tiny_distillation.task_data(teacher)
    result = search(BASE.replace(intermediate_size=18), data, output, teacher=teacher, config=config)
    lines = [line for line in journal(output) if "score" in line]
    assert [line["stage"] for line in lines] == [1, 3, 3, 3]
    # Only stage 3 is compared, and its operations are those of stage 1's winner.
    assert result.best["stage"] == 3 and {row["stage"] for row in result.front} == {3}
    assert {re.sub(r"\d_\d", "", text) for line in lines for text in line["genotype"]} == {"linear(gelu(linear(x)))"}
    slices = plan_slices(result.supernet, result.student_config)
    model = make_model(slices, [data.task], pb.from_pretrained(result.supernet).tokenizer)
    scored = train_dev_split(data.train, 0.2, 0, stratify=True)[1]
    answers = model(model.tokenizer(scored.texts, max_length=length))["logits"].numpy().argmax(-1)
    assert result.best["score"] == pytest.approx((answers == scored.labels).mean())
    page = (output / "report.html").read_text("utf-8")
    assert result.best["genotype"][0] in page and "http" not in page
    assert not (output / "candidates").exists()
