from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from pocketbert.distillation.method import Setting
from pocketbert.distillation.methods.tinybert import METHOD
from pocketbert.presets import preset
from pocketbert_bench import results
from pocketbert_bench.experiments import tinybert
from pocketbert_bench.experiments.table import last_metrics, main
from pocketbert_bench.experiments.tinybert import ARMS, FEWER_TASKS, PASSES, TASKS, TIMES_MORE, Arm


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
    students = [name for name in names if name.startswith("student/")]
    assert len(students) == 3 * sum(
        len(arms) * len(TASKS if shape == "4x312" else FEWER_TASKS) for shape, arms in ARMS.items()
    )
    # Targets for 4 layers everywhere, for 3 where there are such students; the commonest label of all but STS-B.
    assert len(names) - len(students) == len(TASKS) - 1 + 1 + 3 * len(TASKS) + len(FEWER_TASKS)


@pytest.mark.data
@pytest.mark.usefixtures("shared")
def test_the_commonest_label_scores_what_counting_gives() -> None:
    # Of MRPC's 408 pairs 279 are paraphrases, of RTE's 277 there are 146 of the label that training has most of.
    assert tinybert.score_commonest_label("mrpc") == {
        "metrics": {"accuracy": 279 / 408, "f1": pytest.approx(2 * 279 / (408 + 279))},
        "examples": 408,
    }
    assert tinybert.score_commonest_label("rte")["metrics"]["accuracy"] == 146 / 277
    assert tinybert.score_commonest_label("cola")["metrics"] == {"matthews": 0.0}


def test_the_last_pass_is_scored_whichever_was_best(tmp_path: Path) -> None:
    lines = [("dev", 0.75, 0.5), ("dev", 0.625, 0.25), ("train", 0.875, 0.125)]
    written = [json.dumps({"split": split, "accuracy": one, "f1": two, "step": 3}) for split, one, two in lines]
    (tmp_path / "metrics.jsonl").write_text("\n".join(written) + "\n", encoding="utf-8")
    assert last_metrics(tmp_path, ("f1", "accuracy")) == {"f1": 0.25, "accuracy": 0.625}


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


def test_a_folder_with_jobs_of_other_settings_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = dataclasses.replace(tinybert.EXPERIMENT, result=tmp_path / "tinybert.json")
    command = ["tinybert", f"--output={tmp_path / 'run'}", "--minutes=0"]
    assert main(experiment, command) == 0
    assert results.read(tmp_path / "tinybert.json").accuracies == ()
    (tmp_path / "tinybert.json").unlink()
    monkeypatch.setattr(tinybert, "PASSES", PASSES + 1)
    capsys.readouterr()
    assert main(experiment, command) == 2
    error = capsys.readouterr().err
    assert f"'passes': {PASSES}," in error and f"'passes': {PASSES + 1}," in error and "another --output" in error
    assert not (tmp_path / "tinybert.json").exists()


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.usefixtures("minilm_directory", "shared")
@pytest.mark.parametrize("task", ["cola", "stsb"])
def test_every_job_of_a_task_runs(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pocketbert as pb

    read = tinybert.task_examples
    monkeypatch.setattr(tinybert, "task_examples", lambda name: tuple(each.select(range(40)) for each in read(name)))
    monkeypatch.setattr(tinybert, "GENERAL_STEPS", 2)
    monkeypatch.setattr(tinybert, "GENERAL_BATCH_SIZE", 4)
    masked_lm = tmp_path / "masked-lm"
    tokenizer = pb.load(tinybert.minilm()).tokenizer
    shape = preset("minilmv2_6l_384d").config.replace(num_layers=1)
    pb.build(shape, [pb.TaskConfig(kind="masked_lm")], tokenizer, seed=0).save_pretrained(masked_lm)
    done = {}
    for job in tinybert.jobs(tmp_path, masked_lm):
        if job.name.endswith((f"/{task}", f"/{task}-0")) or job.name.startswith("general/"):
            done[job.name] = job.call(*job.arguments)
    content = tinybert.result(done)
    assert results.problems(results.to_json(content)) == []
    metrics = tinybert.GLUE[task].metrics
    constant = task != "stsb"
    assert len(content.accuracies) == (constant + 1 + len(every_arm())) * len(metrics)
    assert done[f"augmented/{task}"]["rows"] == 40 * TIMES_MORE
