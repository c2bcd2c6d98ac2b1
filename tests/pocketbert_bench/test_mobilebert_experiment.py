from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from pocketbert.distillation.method import PRETRAINING_HEADS, Setting, Steps, check_setting
from pocketbert.distillation.methods.mobilebert import METHOD
from pocketbert.errors import TrainingFailed
from pocketbert_bench import results
from pocketbert_bench.experiments import glue_examples, mobilebert, mobilebert_jobs, mobilebert_rates
from pocketbert_bench.experiments import mobilebert_setting as setting
from pocketbert_bench.experiments.glue_examples import APART_SPLIT, DEVELOPMENT_SPLIT
from pocketbert_bench.experiments.jobs import keep
from pocketbert_bench.experiments.mobilebert import ATTENTION, CHECK_JOB, DATA_JOB, STUDENT_MODEL, TEXT
from pocketbert_bench.experiments.mobilebert_jobs import COMMONEST_WORD_JOB, LIKELIHOOD, NEXT, TEACHER_JOB, WORDS
from pocketbert_bench.experiments.mobilebert_setting import ARMS, SEEDS, STUDENT, TASKS, TEACHER, UPDATES
from pocketbert_bench.experiments.quantized import QUANTIZED
from pocketbert_bench.experiments.table import TRAINED

# Table 9's losses, PD, FMT and AT, of each arm; `labels` are the pretraining tasks' own.
LOSSES = {
    "bare": {"labels"},
    "PD": {"labels", "PD"},
    "PD, copied embedding and heads": {"labels", "PD"},
    "auxiliary": {"labels", "PD", "FMT", "AT"},
    "auxiliary, copied embedding and heads": {"labels", "PD", "FMT", "AT"},
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
TRAINED_ARMS = [arm for arm in ARMS if arm.trained]


@pytest.mark.parametrize("arm", TRAINED_ARMS, ids=lambda arm: arm.label)
def test_every_student_takes_the_same_updates_with_the_losses_of_its_name(
    arm: setting.Arm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    received: dict[str, Any] = {}

    def distill(**arguments: Any) -> Any:
        received.update(arguments)
        raise StopIteration

    monkeypatch.setattr("pocketbert.distillation.run.distill", distill)
    (job,) = (
        job
        for job in mobilebert.jobs(tmp_path)
        if job.name == mobilebert.job_name(STUDENT_MODEL, arm.label, TEXT, SEEDS[1])
    )
    with pytest.raises(StopIteration):
        job.call(*job.arguments)
    start = "directory" if arm.copied else "random"
    checked = Setting(teacher=TEACHER, student=STUDENT, task=None, teacher_heads=PRETRAINING_HEADS, start=start)
    stages = check_setting(METHOD, checked, received["options"])
    assert received["run"].seed == SEEDS[1]
    assert received["student"] == (tmp_path / "copied-start" / "1" / "model" if arm.copied else STUDENT)
    assert (received["teacher_directory"] is not None) == ("PD" in LOSSES[arm.label] or arm.strategy != "none")
    durations = [stage.duration for stage in stages]
    assert sum(duration.count for duration in durations if isinstance(duration, Steps)) == UPDATES
    assert {TERMS[term] for stage in stages for term in stage.weights} == LOSSES[arm.label]
    assert {stage.batch_size for stage in stages} == {setting.BATCH_SIZE}
    by_layer = arm.strategy == "progressive"
    assert len(stages) == {"joint": 2, "progressive": STUDENT.num_layers + 1}.get(arm.strategy, 1)
    assert by_layer == any(stage.name == "transfer_01" for stage in stages)


def test_jobs_come_after_those_that_they_need() -> None:
    names: list[str] = []
    for job in mobilebert.jobs(Path("out")):
        assert job.name not in names and {*job.needs} <= {*names}
        names.append(job.name)
    students = len(SEEDS) * len(ARMS) * (2 + len(TASKS))
    # Data, teacher, its check and its tasks; the commonest word and labels; what copied students start from.
    assert len(names) == 3 + len(TASKS) + 1 + len(TASKS) + len(SEEDS) + students
    assert {*mobilebert.scoring_jobs()} == {*names} - {DATA_JOB, CHECK_JOB, "copied-start/0", "copied-start/1"}


def test_no_core_waits_for_the_teacher_and_nothing_is_learned_from_it_unchecked() -> None:
    jobs = {job.name: job for job in mobilebert.jobs(Path("out"))}
    assert [job.name for job in jobs.values() if job.threads > 1] == [TEACHER_JOB]
    students = [job for job in jobs.values() if job.call is mobilebert_jobs.make_student]
    assert [job.needs for job in students[:4]] == [(DATA_JOB,)] * 4
    for job in students[4:]:
        (need,) = job.needs
        assert CHECK_JOB in (need, *jobs[need].needs)
    # One seed says something before two do.
    taught = len(ARMS) - 2
    assert [job.arguments[3] for job in students] == [0, 0, 1, 1, *[0] * taught, *[1] * taught]


def held_out(accuracy: float, likelihood: float) -> dict[str, Any]:
    metrics = {WORDS: accuracy, NEXT: 0.625, LIKELIHOOD: likelihood}
    return {"scores": [{"split": "held-out articles", "recipe": TRAINED, "metrics": metrics, "examples": 1920}]}


def everything() -> dict[str, Any]:
    """A result of every job, as the jobs give them, with the same values."""
    splits = {"sst2": [DEVELOPMENT_SPLIT, APART_SPLIT], "mrpc": [DEVELOPMENT_SPLIT]}
    done: dict[str, Any] = {job.name: {} for job in mobilebert.jobs(Path())}
    for name, (*_, task, _) in mobilebert.scoring_jobs().items():
        done[name] = held_out(0.25, 0.125)
        if task in TASKS:
            recipes = [TRAINED] if name.startswith("constant/") else [TRAINED, QUANTIZED]
            metrics = {"accuracy": 0.75, "f1": 0.5}
            done[name]["scores"] = [
                {"split": split, "recipe": recipe, "metrics": metrics, "examples": 408}
                for recipe in recipes
                for split in splits[task]
            ]
    done[DATA_JOB] = {"examples": 7, "identity": "00ff"}
    done[TEACHER_JOB]["sha256"] = "ee"
    return done


def test_scores_come_back_from_a_result_file(monkeypatch: pytest.MonkeyPatch) -> None:
    content = mobilebert.content(everything())
    assert results.problems(results.to_json(content)) == []
    # Nothing is left to be run, not even the teacher.
    assert mobilebert.scored(content) == everything()
    monkeypatch.setattr(setting, "UPDATES", UPDATES + 1)
    assert mobilebert.scored(content) == {}


def test_of_a_seed_that_is_not_complete_nothing_comes_back() -> None:
    """A result file holds no models: what is made again has another teacher."""
    done = everything()
    missing = mobilebert.job_name(STUDENT_MODEL, "joint", "mrpc", 1)
    del done[missing]
    found = mobilebert.scored(mobilebert.content(done))
    first = {name for name, (*_, seed) in mobilebert.scoring_jobs().items() if seed == 0}
    # The copied start of the first seed is needed no more; the commonest word is, by the new teacher's check.
    assert {*found} == {*first, "constant/sst2", "constant/mrpc", "copied-start/0"}
    assert {name: found[name] for name in first} == {name: done[name] for name in first}
    assert mobilebert.scored(mobilebert.content({"constant/mrpc": done["constant/mrpc"]})).keys() == {"constant/mrpc"}


@pytest.mark.parametrize(
    ("accuracy", "likelihood", "passes"),
    # The commonest word is right in 1 of 16, the frequencies give e^-2: twice that, and e^0.5 more, at least.
    [(0.126, 0.224, True), (0.124, 0.224, False), (0.126, 0.223, False)],
)
def test_a_teacher_must_know_more_than_how_frequent_words_are(
    accuracy: float, likelihood: float, passes: bool, tmp_path: Path
) -> None:
    keep(tmp_path, {COMMONEST_WORD_JOB: held_out(1 / 16, 0.1353353), TEACHER_JOB: held_out(accuracy, likelihood)})
    if passes:
        assert mobilebert_jobs.check_teacher(tmp_path)["masked words"] == accuracy
        return
    with pytest.raises(TrainingFailed, match=r"must name 12\.5% of masked words.*with 1\.50 nats at most.*names 12\."):
        mobilebert_jobs.check_teacher(tmp_path)


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (setting, "DEV_EVERY", 49),
        (setting, "EVALUATION_BATCHES", 61),
        (setting, "TASK_LENGTH", 127),
        (setting, "TEACHER_RATE", 1e-3),
        (setting, "TRANSFER_STEPS", 491),
        (setting, "TEACHER_SEED", 1),
        (setting, "ARMS", ARMS[:-1]),
        (setting, "STUDENT", STUDENT.replace(norm="layer_norm")),
    ],
)
def test_settings_know_of_everything_that_decides_the_table(
    module: Any, name: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = setting.settings()
    assert json.loads(json.dumps(before)) == before
    monkeypatch.setattr(module, name, value)
    assert setting.settings() != before


@pytest.mark.data
@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("task", TASKS)
def test_no_example_teaches_chooses_and_is_scored(task: str) -> None:
    train, choosing, scored = glue_examples.task_parts(task)
    parts = [train, choosing, *scored.values()]
    sizes = {"sst2": [4000, 1000, 872, 4000], "mrpc": [3668 - len(choosing), len(choosing), 408]}[task]
    assert [len(part) for part in parts] == sizes
    assert task == "sst2" or 300 < len(choosing) < 430
    # Of the training set's, by their names there; those of the development set have others.
    ids = [
        id_
        for part in (train, choosing, *(scored[split] for split in scored if split == APART_SPLIT))
        for id_ in part.ids
    ]
    assert len({*ids}) == len(ids)
    labels = scored[DEVELOPMENT_SPLIT].labels
    assert labels is not None
    # Counted in the files: SST-2's draw has more positive sentences, as the whole has; MRPC has 279 paraphrases.
    right = {"sst2": 444 / 872, "mrpc": 279 / 408}[task]
    found = mobilebert_jobs.score_commonest_label(task)["scores"]
    assert found[0]["metrics"]["accuracy"] == right and [each["split"] for each in found] == [*scored]


def test_rates_are_tried_with_a_few_updates_each(tmp_path: Path) -> None:
    (tmp_path / "teacher" / "model").mkdir(parents=True)
    jobs = {job.name: job for job in mobilebert_rates.jobs(tmp_path, 90)}
    (data, *names) = jobs
    assert data == DATA_JOB and len(names) == 4 + 4 + 3 + 1 + 5
    for name in names:
        job = jobs[name]
        if job.call is mobilebert_jobs.copy_start:
            assert name == "copied-start/0"
            continue
        if "copied" in name:
            assert "copied-start/0" in job.arguments and job.needs == ("copied-start/0",)
        options = next(value for value in job.arguments if dataclasses.is_dataclass(value))
        if job.call is mobilebert_jobs.pretrain_teacher:
            assert name == f"rates-90/teacher-{options.optimizer}-{options.learning_rate:g}" and options.steps == 90
        else:
            transferred = options.transfer_steps if options.strategy == "progressive" else 0
            assert transferred + options.distillation_steps == 90
    done = {
        "data": {},
        "rates-90/bare-0.01": held_out(0.25, 0.125),
        "rates-90/bare-0.03": held_out(0.1, 0.25),
        "rates-90/teacher-lamb-0.01": held_out(0.05, 0.5),
    }
    assert mobilebert_rates.report(done) == [
        "rates-90/bare-0.03: 1.39 nats, 10.0% of masked words",
        "rates-90/bare-0.01: 2.08 nats, 25.0% of masked words",
        "rates-90/teacher-lamb-0.01: 0.69 nats, 5.0% of masked words",
    ]


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.usefixtures("minilm_directory", "shared")
def test_every_job_of_a_seed_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    import pocketbert as pb
    from pocketbert.data.pretraining import PretrainingData

    files, parts = mobilebert_jobs.shared_data, mobilebert_jobs.task_parts

    def few(task: str) -> Any:
        train, choosing, scored = parts(task)
        return (
            train.select(range(40)),
            choosing.select(range(20)),
            {split: examples.select(range(30)) for split, examples in scored.items()},
        )

    monkeypatch.setattr(mobilebert_jobs, "task_parts", few)
    monkeypatch.setattr(
        mobilebert_jobs, "shared_data", lambda name: files("text/valid.txt" if name.startswith("text/") else name)
    )
    changes = {"TEACHER_STEPS": 2, "UPDATES": 9, "TRANSFER_STEPS": 6, "EVALUATION_BATCHES": 1, "TASK_PASSES": 1}
    for name, value in changes.items():
        monkeypatch.setattr(setting, name, value)
    monkeypatch.setattr(mobilebert_jobs, "LEAST_TIMES", 0.0)
    monkeypatch.setattr(mobilebert_jobs, "LEAST_NATS", -20.0)
    # The other arms differ in their options alone, which the first test looks at.
    arms = (ARMS[0], ARMS[3], ARMS[5])
    monkeypatch.setattr(mobilebert, "ARMS", arms)
    done = {}
    for job in mobilebert.jobs(tmp_path):
        if not job.name.endswith(("-1", "/1")):
            done[job.name] = job.call(*job.arguments)
            keep(tmp_path, {job.name: done[job.name]})
    content = mobilebert.content(done)
    assert results.problems(results.to_json(content)) == []
    assert {each.task for each in content.accuracies} == {TEXT, ATTENTION, *TASKS}
    divergences = [each for each in content.accuracies if each.task == ATTENTION]
    assert len(divergences) == len(arms) and all(0 < each.value < 1 for each in divergences)
    # The copied student starts with the teacher's table and with the layers of the student that was never trained.
    teacher, untrained, copied = (
        pb.load(tmp_path / name / "model").named_variables()
        for name in (TEACHER_JOB, mobilebert.job_name(STUDENT_MODEL, ARMS[0].label, TEXT, 0), "copied-start/0")
    )
    tables = [name for name in copied if "word_embeddings" in name]
    layers = [name for name in copied if ".layer.0." in name]
    assert tables and layers
    for names, other in ((tables, teacher), (layers, untrained)):
        assert all(np.array_equal(copied[name].numpy(), other[name].numpy()) for name in names)
    # Counted once more, from the masked words themselves.
    data = [PretrainingData.open(tmp_path / "pretraining-data" / folder) for folder in ("", "dev")]
    words = [
        [int(word) for batch in part.dataset(part.plan(batch_size=32, seed=0, epoch=0)[:most], seed=0, epoch=0)
         for word in batch["masked_lm_labels"].numpy().ravel() if word != -1]
        for part, most in zip(data, (None, 1), strict=True)
    ]  # fmt: skip
    the = max({*words[0]}, key=words[0].count)
    metrics = done[COMMONEST_WORD_JOB]["scores"][0]["metrics"]
    assert metrics[WORDS] == pytest.approx(words[1].count(the) / len(words[1]))
    total = len(words[0]) + STUDENT.vocab_size
    nats = -np.mean([np.log((words[0].count(word) + 1) / total) for word in words[1]])
    assert metrics[LIKELIHOOD] == pytest.approx(np.exp(-nats))
