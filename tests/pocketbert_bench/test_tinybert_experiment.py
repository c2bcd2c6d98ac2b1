from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pocketbert.distillation.method import Setting
from pocketbert.distillation.methods.tinybert import METHOD
from pocketbert.presets import preset
from pocketbert_bench import results
from pocketbert_bench.experiments import tinybert
from pocketbert_bench.experiments.tinybert import ARMS, PASSES, TASKS, TIMES_MORE, Arm


def every_arm() -> list[tuple[str, Arm]]:
    return [(shape, arm) for shape, arms in ARMS.items() for arm in arms]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(("shape", "arm"), every_arm(), ids=lambda value: getattr(value, "label", value))
def test_every_student_of_a_task_takes_the_same_steps(shape: str, arm: Arm, task: str) -> None:
    config = tinybert.GLUE[task].task
    teacher = preset("minilmv2_6l_384d").config
    setting = Setting(
        teacher=teacher,
        student=tinybert.student_config(shape),
        task=config,
        pairs=task not in ("sst2", "cola"),
        teacher_task=config,
        teacher_vocabulary=None,
        student_vocabulary=None,
        start="random",
    )
    stages = METHOD.stages(setting, tinybert._options(arm, config))
    steps = sum(stage.duration.count * (TIMES_MORE if stage.data == "augmented" else 1) for stage in stages)
    assert steps == PASSES
    assert {stage.data for stage in stages} <= ({"augmented", "task"} if arm.augmented else {"task"})
    learned = {"labels": {"labels"}, "prediction": {"prediction"}}.get(
        arm.learns, {"embedding", "attention", "hidden", "prediction"}
    )
    assert {term for stage in stages for term in stage.weights} == learned


def test_jobs_come_after_those_that_they_need() -> None:
    names: list[str] = []
    for job in tinybert.jobs(Path("out"), Path("masked-lm")):
        assert job.name not in names and {*job.needs} <= {*names}
        names.append(job.name)
    assert len(names) == 1 + 2 * len(TASKS) + len(every_arm()) * len(TASKS) * 3


def made_up(metrics: dict[str, float]) -> dict[str, Any]:
    return {"metrics": metrics, "examples": 277}


def test_scores_come_back_from_a_result_file(monkeypatch: pytest.MonkeyPatch) -> None:
    job = next(job for job in tinybert.jobs(Path("out"), Path("m")) if job.name.endswith("mrpc-2"))
    done = {
        "general/4x312": {"steps": 7},
        "teacher/mrpc": made_up({"accuracy": 0.75, "f1": 0.5}),
        job.name: made_up({"accuracy": 0.625, "f1": 0.375}),
    }
    content = tinybert.result(done)
    assert results.problems(results.to_json(content)) == []
    assert len(content.accuracies) == 4
    assert tinybert.scored(content) == {job.name: done[job.name]}
    monkeypatch.setattr(tinybert, "PASSES", PASSES + 1)
    assert tinybert.scored(content) == {}
