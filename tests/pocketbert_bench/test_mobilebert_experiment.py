from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pocketbert.distillation.method import PRETRAINING_HEADS, Setting, Steps, check_setting
from pocketbert.distillation.methods.mobilebert import METHOD
from pocketbert_bench import results
from pocketbert_bench.experiments import mobilebert
from pocketbert_bench.experiments.mobilebert import ARMS, SEEDS, STUDENT, STUDENT_MODEL, TASKS, TEACHER, TEXT, UPDATES

# Table 9's losses, PD, FMT and AT, of each arm; `labels` are the pretraining tasks' own.
LOSSES = {
    "bare": {"labels"},
    "no transfer (PD)": {"labels", "PD"},
    "auxiliary": {"labels", "PD", "FMT", "AT"},
    "joint": {"labels", "PD", "FMT", "AT"},
    "progressive (PD, FMT, AT)": {"labels", "PD", "FMT", "AT"},
    "progressive without AT": {"labels", "PD", "FMT"},
    "progressive without FMT": {"labels", "PD", "AT"},
    "progressive without PD": {"labels", "FMT", "AT"},
}
TERMS = {
    "masked_lm": "labels",
    "next_sentence": "labels",
    "distillation": "PD",
    "feature_map": "FMT",
    "attention": "AT",
}


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm.label)
def test_every_student_takes_the_same_updates_with_the_losses_of_its_name(
    arm: mobilebert.Arm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    received: dict[str, Any] = {}

    def distill(**arguments: Any) -> Any:
        received.update(arguments)
        raise StopIteration

    monkeypatch.setattr("pocketbert.distillation.run.distill", distill)
    with pytest.raises(StopIteration):
        mobilebert.make_student(arm, 3, tmp_path)
    setting = Setting(teacher=TEACHER, student=STUDENT, task=None, teacher_heads=PRETRAINING_HEADS, start="random")
    stages = check_setting(METHOD, setting, received["options"])
    assert received["run"].seed == 3 and received["student"] == STUDENT
    durations = [stage.duration for stage in stages]
    assert sum(duration.count for duration in durations if isinstance(duration, Steps)) == UPDATES
    assert {TERMS[term] for stage in stages for term in stage.weights} == LOSSES[arm.label]
    assert {stage.batch_size for stage in stages} == {mobilebert.BATCH_SIZE}
    by_layer = arm.strategy == "progressive"
    assert len(stages) == {"joint": 2, "progressive": STUDENT.num_layers + 1}.get(arm.strategy, 1)
    assert by_layer == any(stage.name == "transfer_01" for stage in stages)


def test_jobs_come_after_those_that_they_need() -> None:
    names: list[str] = []
    for job in mobilebert.jobs(Path("out")):
        assert job.name not in names and {*job.needs} <= {*names}
        names.append(job.name)
    assert len(names) == 2 + len(TASKS) + len(SEEDS) * len(ARMS) * (1 + len(TASKS))


def test_scores_come_back_from_a_result_file(monkeypatch: pytest.MonkeyPatch) -> None:
    student = mobilebert.job_name(STUDENT_MODEL, "joint", TEXT, 1)
    tuned = mobilebert.job_name(STUDENT_MODEL, "joint", "mrpc", 1)
    done = {
        "data": {"examples": 7},
        "teacher": mobilebert._scored({"masked_lm_loss": 2.0, "masked_lm_accuracy": 0.25}, {"seconds": 5.0}),
        student: {"metrics": {"masked_lm_accuracy": 0.125, "exp(-masked-LM loss)": 0.5}, "examples": 11},
        tuned: {"metrics": {"accuracy": 0.75, "f1": 0.5}, "examples": 408},
    }
    content = mobilebert.content(done)
    assert results.problems(results.to_json(content)) == []
    assert len(content.accuracies) == 6
    assert mobilebert.scored(content) == {name: done[name] for name in (student, tuned)}
    teacher = {each.metric: each.value for each in content.accuracies if each.label == "teacher"}
    # e^-2 by hand.
    assert teacher == {"masked_lm_accuracy": 0.25, "exp(-masked-LM loss)": pytest.approx(0.1353353)}
    monkeypatch.setattr(mobilebert, "UPDATES", UPDATES + 1)
    assert mobilebert.scored(content) == {}


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.usefixtures("minilm_directory", "shared")
def test_every_job_of_a_seed_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, files = mobilebert._examples, mobilebert.shared_data
    monkeypatch.setattr(mobilebert, "_examples", lambda name: tuple(each.select(range(40)) for each in read(name)))
    monkeypatch.setattr(
        mobilebert, "shared_data", lambda name: files("text/valid.txt" if name.startswith("text/") else name)
    )
    for name, value in {"TEACHER_STEPS": 2, "UPDATES": 9, "TRANSFER_STEPS": 6, "EVALUATION_BATCHES": 1}.items():
        monkeypatch.setattr(mobilebert, name, value)
    done = {}
    for job in mobilebert.jobs(tmp_path):
        if not job.name.endswith("-1"):
            done[job.name] = job.call(*job.arguments)
    content = mobilebert.content(done)
    assert results.problems(results.to_json(content)) == []
    assert {each.task for each in content.accuracies} == {TEXT, *TASKS}
    divergences = [each for each in content.accuracies if each.metric == "exp(-attention divergence)"]
    assert len(divergences) == len(ARMS) and all(0 < each.value < 1 for each in divergences)
