from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pocketbert.distillation.method import PRETRAINING_HEADS, Setting, Steps, check_setting
from pocketbert.distillation.methods.mobilebert import METHOD
from pocketbert_bench import results
from pocketbert_bench.experiments import mobilebert
from pocketbert_bench.experiments.mobilebert import (
    ARMS,
    ATTENTION,
    SEEDS,
    STUDENT,
    STUDENT_MODEL,
    TASKS,
    TEACHER,
    TEXT,
    UPDATES,
)
from pocketbert_export.predictors import open_predictor, predictions_of

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
    # Data and teacher; of each model the tasks, float and int8; of students words and attention besides.
    assert len(names) == 2 + 2 * len(TASKS) + len(SEEDS) * len(ARMS) * (2 + 2 * len(TASKS))


def test_what_needs_no_teacher_comes_before_what_waits_for_it() -> None:
    """A core would idle while the teacher is trained; and one seed says something before two do."""
    students = [job for job in mobilebert.jobs(Path("out")) if job.call is mobilebert.make_student]
    assert [job.needs for job in students[:2]] == [("data",)] * 2
    assert all("teacher" in job.needs for job in students[2:])
    assert [job.arguments[1] for job in students] == [0, 1, *[0] * 7, *[1] * 7]


def test_scores_come_back_from_a_result_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def named(task: str, quantized: bool = False) -> str:
        name = mobilebert.quantized_name if quantized else mobilebert.job_name
        return name(STUDENT_MODEL, "joint", task, 1)

    made_up = {"metrics": {"accuracy": 0.75, "f1": 0.5}, "examples": 408}
    student = {
        named(TEXT): {"metrics": {"masked_lm_accuracy": 0.125, "exp(-masked-LM loss)": 0.5}, "examples": 11},
        named(ATTENTION): {"metrics": {"exp(-attention divergence)": 0.25}, "examples": 640},
        **{named(task): made_up for task in TASKS},
        **{named(task, quantized=True): {**made_up, "metrics": {"accuracy": 0.625, "f1": 0.5}} for task in TASKS},
    }
    teacher = mobilebert._scored({"masked_lm_loss": 2.0, "masked_lm_accuracy": 0.25}, {"seconds": 5.0})
    content = mobilebert.content({"data": {"examples": 7}, "teacher": teacher, **student})
    assert results.problems(results.to_json(content)) == []
    assert len(content.accuracies) == 2 + 3 + 2 * len(TASKS) * 2
    assert mobilebert.scored(content) == student
    scores = {each.metric: each.value for each in content.accuracies if each.label == "teacher"}
    # e^-2 by hand.
    assert scores == {"masked_lm_accuracy": 0.25, "exp(-masked-LM loss)": pytest.approx(0.1353353)}
    monkeypatch.setattr(mobilebert, "UPDATES", UPDATES + 1)
    assert mobilebert.scored(content) == {}


def test_what_a_missing_score_needs_is_made_again() -> None:
    """A result file holds no models."""
    student, tuned, quantized = (
        name(STUDENT_MODEL, "joint", task, 1)
        for name, task in (
            (mobilebert.job_name, TEXT),
            (mobilebert.job_name, "mrpc"),
            (mobilebert.quantized_name, "mrpc"),
        )
    )
    attention = mobilebert.job_name(STUDENT_MODEL, "joint", ATTENTION, 1)
    made_up = {"metrics": {"accuracy": 0.75}, "examples": 408}
    content = mobilebert.content(dict.fromkeys((student, attention, tuned, quantized), made_up))
    # SST-2 is missing, so the student is; MRPC is not.
    assert set(mobilebert.scored(content)) == {attention, tuned, quantized}
    content = mobilebert.content(dict.fromkeys((student, attention, tuned), made_up))
    assert set(mobilebert.scored(content)) == {attention}


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.usefixtures("minilm_directory", "shared")
def test_every_job_of_a_seed_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, files = mobilebert._examples, mobilebert.shared_data
    monkeypatch.setattr(mobilebert, "_examples", lambda name: tuple(each.select(range(40)) for each in read(name)))
    monkeypatch.setattr(
        mobilebert, "shared_data", lambda name: files("text/valid.txt" if name.startswith("text/") else name)
    )
    changes = {"TEACHER_STEPS": 2, "UPDATES": 9, "TRANSFER_STEPS": 6, "EVALUATION_BATCHES": 1, "TASK_PASSES": 1}
    for name, value in changes.items():
        monkeypatch.setattr(mobilebert, name, value)
    # The other arms differ in their options alone, which the first test looks at.
    arms = (ARMS[0], ARMS[3])
    monkeypatch.setattr(mobilebert, "ARMS", arms)
    done = {}
    for job in mobilebert.jobs(tmp_path):
        if not job.name.endswith("-1"):
            done[job.name] = job.call(*job.arguments)
    content = mobilebert.content(done)
    assert results.problems(results.to_json(content)) == []
    assert {each.task for each in content.accuracies} == {TEXT, ATTENTION, *TASKS}
    divergences = [each for each in content.accuracies if each.task == ATTENTION]
    assert len(divergences) == len(arms) and all(0 < each.value < 1 for each in divergences)
    # The column beside int8: the model directory scores by the predictor what training said of it.
    tuned = mobilebert.job_name(STUDENT_MODEL, arms[1].label, "mrpc", 0)
    predictor = open_predictor(tmp_path / tuned / "model")
    dev = mobilebert._examples("mrpc")[1]
    right = predictions_of(predictor.task, predictor.logits(dev.texts, dev.pairs)) == dev.labels
    assert right.mean() == done[tuned]["metrics"]["accuracy"]
    assert done[f"dynamic_wi8/{tuned}"]["examples"] == len(dev) == 40
