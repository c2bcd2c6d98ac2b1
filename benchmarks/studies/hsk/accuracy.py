"""HSK with a small teacher: sweeps of each dimension, joint compression and baselines on GLUE tasks.

    python -m studies.hsk.accuracy --minutes=120
    python -m studies.tables

The 6x384 network is fine-tuned on CoLA, MRPC and RTE. Two students learn from each teacher: 4x312 after general
distillation on text, and the teacher itself pruned as ROSITA does, to 3 layers, 2 heads of 32, 384 neurons and rank 64.

Every student takes `PASSES` epochs: half in stage `hidden`, half in `prediction`; without hidden states, all in
`prediction`. The paper takes 20 or 30 plus 5, so rates are higher here. Scores are those of the last epoch on the
development set; no epoch is chosen there. One seed, and three for table 2's variants. Seeds vary the students'
training; teacher, general distillation and pruning are shared.

Students read teacher caches in float16. The predictions of a teacher are cached once for a task. Hidden states are
cached by the job of the student; seeds share a cache, other caches are deleted after the score.

Two jobs run in parallel, each in one thread. Rerun the same command to resume; scores in the committed result file are
reused if they were made with the same settings.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pocketbert import files
from pocketbert.data.assets import minilm
from pocketbert.presets import preset
from pocketbert.training.published_grids import PUBLISHED_HEAD
from pocketbert_bench import results
from studies.experiment import (
    Experiment,
    add_spared,
    folder_name,
    last_metrics,
    main,
    noted,
    records_by_seed,
    records_without_seed,
    scores_by_job,
    settings_note,
)
from studies.glue_examples import finetune_to_the_end, score_majority_label, task_data, task_examples
from studies.hsk.variants import GENERAL, MAIN, PRUNED, SEEDS, STUDENTS, SWEEPS, TABLE_2, TASKS, HSKVariant, tasks_of
from studies.jobs import StudyJob
from studies.runner import RESULTS
from studies.shared_data import shared_data

SPLIT = "development set"
# Prefix of the note with the counts of separators.
SEPARATORS = "separators: "
LENGTHS = {"cola": 64, "mrpc": 128, "rte": 128}
BATCH_SIZE, PASSES = 32, 4
TEACHER_EPOCHS, TEACHER_RATE = 3, 1e-4
RATES = {"hidden": 3e-4, "prediction": 1e-4}
TEXT_STEPS, TEXT_BATCH_SIZE, TEXT_LENGTH, TEXT_RATE = 1000, 32, 64, 5e-4
# Like the text of the other studies.
TEXT_SEGMENTS: Literal[1] = 1
PRUNED_SIZES: dict[str, Any] = {"layers": 3, "heads": 2, "intermediate_size": 384, "embedding_rank": 64}


def jobs(output: Path) -> list[StudyJob]:
    """All jobs: preparations, table 2, then joint compression and sweeps."""
    found = [StudyJob(name=f"constant/{task}", call=score_majority_label, arguments=(task,)) for task in TASKS]
    for task in TASKS:
        teacher = StudyJob(name=_teacher_name(task), call=train_teacher, arguments=(task, output))
        needs = (teacher.name,)
        found += [
            teacher,
            StudyJob(name=_pruned_name(task), call=prune_teacher, arguments=(task, output), needs=needs),
            StudyJob(
                name=_predictions_name(task),
                call=cache_predictions,
                arguments=(task, output),
                needs=(_pruned_name(task),),
            ),
            StudyJob(name=_separators_name(task), call=count_separators, arguments=(task, output), needs=needs),
        ]
    found.append(StudyJob(name=f"text/{GENERAL}", call=distil_on_text, arguments=(output,)))
    others = tuple(variant for variant in (*MAIN, *SWEEPS) if variant not in TABLE_2)
    order = [*((student, seed, TABLE_2) for student in STUDENTS for seed in SEEDS), (PRUNED, SEEDS[0], others)]
    for student, seed, variants in order:
        for variant in variants:
            for task in tasks_of(student, variant):
                found.append(_student(student, variant, task, seed, output))
    return found


def _student(student: str, variant: HSKVariant, task: str, seed: int, output: Path) -> StudyJob:
    start = f"text/{GENERAL}" if student == GENERAL else _pruned_name(task)
    needs = (_teacher_name(task), start, *([] if variant.knowledge is None else [_predictions_name(task)]))
    return StudyJob(
        name=_job_name(student, variant.label, task, seed),
        call=train_student,
        arguments=(student, variant, task, seed, output),
        needs=needs,
    )


def train_teacher(task: str, output: Path) -> dict[str, Any]:
    """Fine-tunes the 6x384 network; returns the metrics of the last epoch."""
    from pocketbert.training.config import FinetuneConfig

    options = FinetuneConfig(
        **PUBLISHED_HEAD,
        learning_rate=TEACHER_RATE,
        epochs=TEACHER_EPOCHS,
        batch_size=BATCH_SIZE,
        max_length=LENGTHS[task],
    )
    return finetune_to_the_end(minilm(), task, output / _teacher_name(task), options, SEEDS[0])


def prune_teacher(task: str, output: Path) -> dict[str, Any]:
    """Prunes a teacher; returns its numbers of weights and its scores before any training."""
    from pocketbert.pruning.config import PruneConfig
    from pocketbert.pruning.run import prune

    config = PruneConfig(max_length=LENGTHS[task], batch_size=BATCH_SIZE, **PRUNED_SIZES)
    found = prune(_teacher(task, output), task_data(task), output / _pruned_name(task), config=config)
    return {"parameters": list(found.parameters), "metrics": found.metrics}


def count_separators(task: str, output: Path) -> dict[str, Any]:
    """Counts the dev examples with [SEP] among a teacher's 1 and 3 most attended tokens, in each layer."""
    from pocketbert.model import from_pretrained
    from pocketbert.plots.separator_shares import separator_shares

    _, dev = task_examples(task)
    model = from_pretrained(_teacher(task, output))
    found = separator_shares(model, dev.texts, dev.pairs, max_length=LENGTHS[task], show_progress=False)
    return {"texts": found.texts, "counts": {str(k): list(counts) for k, counts in found.counts.items()}}


def distil_on_text(output: Path) -> dict[str, Any]:
    """General distillation of the 4x312 student from the network before fine-tuning; returns steps and seconds."""
    from pocketbert.data.task_data import TextData
    from pocketbert.distillation.methods.tinybert import TinyBERT
    from pocketbert.distillation.run import distill
    from pocketbert.training.config import RunConfig

    found = distill(
        preset("tinybert_4l_312d").config,
        TextData(shared_data("text/enwiki2015-train.txt.xz")),
        output / "text" / GENERAL,
        teacher=minilm(),
        method=TinyBERT(
            max_length=TEXT_LENGTH,
            general_steps=TEXT_STEPS,
            general_batch_size=TEXT_BATCH_SIZE,
            general_learning_rate=TEXT_RATE,
            text_segments=TEXT_SEGMENTS,
        ),
        run=RunConfig(checkpoint_seconds=300),
    )
    return {"steps": found.steps, "seconds": found.seconds}


def cache_predictions(task: str, output: Path) -> dict[str, Any]:
    """Caches a teacher's predictions for all students; returns the size."""
    variant = MAIN[-1]
    return {"bytes": _cache(PRUNED, variant, task, "prediction", output / _predictions_name(task), output)}


def train_student(student: str, variant: HSKVariant, task: str, seed: int, output: Path) -> dict[str, Any]:
    """Trains one student; returns the metrics of its last epoch and the size of its cached hidden states."""
    from pocketbert.distillation.run import distill
    from pocketbert.distillation.teacher import CachedTeacher
    from pocketbert.training.config import RunConfig

    folder = output / _job_name(student, variant.label, task, seed)
    start, data = _start(student, task, output), task_data(task)
    # Seeds share a cache.
    cache = folder / "cache"
    if variant in TABLE_2:
        cache = output / "caches" / folder_name(student) / folder_name(variant.label) / task
    written = cache.with_name(f"{cache.name}.json")
    if not written.exists():
        if variant.knowledge is None:
            size = _cache(student, variant, task, "prediction", cache, output)
        else:
            size = _cache(student, variant, task, "hidden", cache, output)
            shutil.copytree(output / _predictions_name(task), cache, dirs_exist_ok=True)
        files.write_json(written, size)
    size = json.loads(written.read_text(encoding="utf-8")) if variant.knowledge else 0
    teacher, run = CachedTeacher(cache, _teacher(task, output)), folder / "run"
    found = distill(start, data, run, teacher=teacher, method=method(variant), run=RunConfig(seed=seed))
    metrics = last_metrics(run, data.metrics)
    shutil.rmtree(folder)
    return {"metrics": metrics, "examples": len(data.dev), "bytes": size, "seconds": found.seconds}


def method(variant: HSKVariant) -> Any:
    """The method with a variant's options."""
    from pocketbert.distillation.methods.hsk import HSK
    from pocketbert.distillation.methods.tinybert import TinyBERT

    if variant.knowledge is None:
        return TinyBERT(
            without=("augmentation", "embedding", "transformer"),
            prediction_epochs=PASSES,
            prediction_batch_size=BATCH_SIZE,
            prediction_learning_rate=RATES["prediction"],
        )
    return HSK(
        knowledge=variant.knowledge,
        top_layer=variant.top_layer,
        tokens=variant.tokens,
        widths=variant.widths,
        epochs=PASSES // 2,
        batch_size=BATCH_SIZE,
        hidden_learning_rate=RATES["hidden"],
        prediction_learning_rate=RATES["prediction"],
    )


def _cache(student: str, variant: HSKVariant, task: str, stage_name: str, folder: Path, output: Path) -> int:
    """Caches the targets of one stage in a subfolder of `folder`, or completes it; returns the size in bytes."""
    from pocketbert.distillation.cache_teacher import cache_targets
    from pocketbert.distillation.plan import plan_distillation
    from pocketbert.model import from_pretrained
    from pocketbert.training.config import RunConfig

    start, teacher = _start(student, task, output), _teacher(task, output)
    plan = plan_distillation(start, task_data(task), teacher=teacher, method=method(variant), run=RunConfig())
    stage = next(each for each in plan.stages if each.name == stage_name)
    encoded = plan.encoded(stage)
    assert encoded is not None
    written = cache_targets(from_pretrained(teacher), teacher, plan.objective, stage, encoded, folder)
    return sum(path.stat().st_size for path in written.iterdir())


def _start(student: str, task: str, output: Path) -> Path:
    """The model directory that a student starts from."""
    return output / (f"text/{GENERAL}" if student == GENERAL else _pruned_name(task)) / "model"


def _teacher(task: str, output: Path) -> Path:
    return output / _teacher_name(task) / "model"


def _teacher_name(task: str) -> str:
    return f"teacher/{task}"


def _pruned_name(task: str) -> str:
    return f"pruned/{task}"


def _predictions_name(task: str) -> str:
    return f"predictions/{task}"


def _separators_name(task: str) -> str:
    return f"separators/{task}"


def _job_name(student: str, label: str, task: str, seed: int) -> str:
    return f"student/{folder_name(student)}/{folder_name(label)}/{task}-{seed}"


def settings() -> dict[str, Any]:
    """All settings that determine the tables, as JSON values."""
    return {
        "passes": PASSES,
        "batch size": BATCH_SIZE,
        "rates": RATES,
        "teacher": [TEACHER_EPOCHS, TEACHER_RATE],
        "lengths": LENGTHS,
        "general distillation": {
            "steps": TEXT_STEPS,
            "batch size": TEXT_BATCH_SIZE,
            "length": TEXT_LENGTH,
            "rate": TEXT_RATE,
            "segments": TEXT_SEGMENTS,
        },
        "pruned": PRUNED_SIZES,
        "scored": "last epoch",
    }


def result(done: Mapping[str, Any]) -> results.ResultFile:
    """Collects the scores of the finished jobs."""
    accuracies = records_without_seed(done, TASKS, SPLIT)
    students = [(student, variant.label) for student in STUDENTS for variant in (*MAIN, *SWEEPS)]
    accuracies += records_by_seed(done, students, TASKS, SEEDS, SPLIT, _job_name)
    notes = [settings_note(settings())]
    if counted := {task: done[_separators_name(task)] for task in TASKS if _separators_name(task) in done}:
        notes.append(SEPARATORS + json.dumps(counted))
    return results.result_file("HSK on GLUE tasks", quick=False, accuracies=accuracies, notes=notes)


def separators(content: results.ResultFile) -> dict[str, Any]:
    """Task → counts of `count_separators`, from a result file."""
    return noted(content, SEPARATORS)


def scored(content: results.ResultFile) -> dict[str, Any]:
    """Reads the results of students' jobs from a result file with these settings; otherwise returns nothing."""
    found = scores_by_job(content, settings(), _job_name)
    if not found:
        return {}
    found |= {_separators_name(task): counts for task, counts in separators(content).items()}
    every = jobs(Path())
    add_spared(found, every, {job.name: {} for job in every if job.call in _PREPARATIONS})
    return found


_PREPARATIONS = (prune_teacher, cache_predictions, distil_on_text)


EXPERIMENT = Experiment(
    result=RESULTS / "hsk" / "accuracy.json",
    output="runs/experiment-hsk",
    settings=settings,
    jobs=jobs,
    content=result,
    scored=scored,
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT, sys.argv))
