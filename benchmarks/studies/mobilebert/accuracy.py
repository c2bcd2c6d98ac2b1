"""MobileBERT scaled down, on real text: gain of each strategy and each loss of knowledge transfer.

    python -m studies.mobilebert.accuracy --minutes=120
    python -m studies.tables

An IB-BERT teacher of 6 layers is pretrained on `enwiki2015`. MobileBERT students of 6 layers then learn with the
paper's strategies (table 8) and losses (table 9), each with the same number of updates. Progressive and joint transfer
copy the teacher's embedding and heads, which are most of a student's weights. Other students therefore get the same
copy without transfer, to separate both effects. All are scored on dev articles, on the distance of their attention from
the teacher's, and after fine-tuning on SST-2 (a sample) and MRPC, before and after quantization (table 6). Baselines
are a student without pretraining and the most frequent token and label.

A teacher must know more than token frequencies before students learn from it (`check_teacher`);
`studies.mobilebert.rates` finds its rate in a few minutes.

Two jobs run in parallel, the most informative first; the teacher uses two threads, so that no core waits for it. Rerun
the same command to resume; `--minutes=0` writes the finished scores. Complete seeds in the committed result file are
reused if they were made with the same settings. A result file has no models: if other scores are missing, the teacher
is trained again. Students of two teachers may then share a table, but never a seed.

Durations on the two otherwise idle cores of the result file's machine: the teacher takes 46 minutes on both; on one
core, a student takes 7 minutes without a teacher, 12 with distillation, and 10 with progressive transfer; its
fine-tuning, exports and scores take 3. Two seeds take 3.2 hours; the teacher and students without it are done after an
hour, and the first seed after 2.1 hours.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pocketbert_bench import results
from studies.experiment import Experiment, main, records, seeds_label, settings_note
from studies.jobs import StudyJob
from studies.mobilebert import accuracy_jobs as work
from studies.mobilebert.accuracy_jobs import MAJORITY_TOKEN_JOB, TEACHER_JOB
from studies.mobilebert.recipe import (
    SEEDS,
    TASKS,
    VARIANTS,
    MobileBERTVariant,
    settings,
    teacher_options,
)
from studies.runner import RESULTS

# Further scores of models: masked LM, and distance of the attention from the teacher's.
TEXT, ATTENTION = "enwiki2015", "attention"
TEACHER_MODEL, STUDENT_MODEL, NOBODY = "IB-BERT 6x256/384", "MobileBERT 6x256/64", "none"
TEACHER, MAJORITY = "teacher", "most frequent token or label"

DATA_JOB, CHECK_JOB = "data", "check/teacher"
# Prefix of the note with the origin of the scores.
MADE_FROM = "made from: "


def jobs(output: Path) -> list[StudyJob]:
    """All jobs of the table, the most informative first."""
    found = [
        StudyJob(name=DATA_JOB, call=work.make_data, arguments=(output,)),
        StudyJob(
            name=TEACHER_JOB,
            call=work.pretrain_teacher,
            arguments=(TEACHER_JOB, teacher_options(), output),
            needs=(DATA_JOB,),
            threads=2,
        ),
        StudyJob(name=MAJORITY_TOKEN_JOB, call=work.score_majority_token, arguments=(output,), needs=(DATA_JOB,)),
        *(StudyJob(name=f"constant/{task}", call=work.score_majority_label, arguments=(task,)) for task in TASKS),
        StudyJob(
            name=CHECK_JOB,
            call=work.check_teacher,
            arguments=(output,),
            needs=(TEACHER_JOB, MAJORITY_TOKEN_JOB),
        ),
    ]
    for seed in SEEDS:
        for variant in VARIANTS:
            if not variant.taught:
                found += _student_jobs(variant, seed, output)
    for seed in SEEDS:
        start = start_name(seed)
        found.append(StudyJob(name=start, call=work.copy_start, arguments=(start, seed, output), needs=(CHECK_JOB,)))
        for variant in VARIANTS:
            if variant.taught:
                found += _student_jobs(variant, seed, output)
        if seed == SEEDS[0]:
            found += _task_jobs(TEACHER_MODEL, TEACHER, TEACHER_JOB, seed, output)
    return found


def _student_jobs(variant: MobileBERTVariant, seed: int, output: Path) -> list[StudyJob]:
    """A student's jobs, with all of its scores."""
    student, attention = (job_name(STUDENT_MODEL, variant.label, task, seed) for task in (TEXT, ATTENTION))
    start = start_name(seed) if variant.copied else None
    needs = (start or CHECK_JOB,) if variant.taught else (DATA_JOB,)
    return [
        StudyJob(name=student, call=work.make_student, arguments=(student, variant, start, seed, output), needs=needs),
        StudyJob(name=attention, call=work.score_attention, arguments=(student, output), needs=(TEACHER_JOB, student)),
        *_task_jobs(STUDENT_MODEL, variant.label, student, seed, output),
    ]


def _task_jobs(model: str, label: str, pretrained: str, seed: int, output: Path) -> list[StudyJob]:
    names = {job_name(model, label, task, seed): task for task in TASKS}
    return [
        StudyJob(
            name=name, call=work.finetune_on, arguments=(name, pretrained, task, seed, output), needs=(pretrained,)
        )
        for name, task in names.items()
    ]


def job_name(model: str, label: str, task: str, seed: int) -> str:
    """Name of the job that scores a model, made as `label`, on a task or on dev text."""
    words = label.replace("(", "").replace(")", "").replace(",", "").replace(" ", "-")
    return f"{'teacher' if model == TEACHER_MODEL else 'student'}-{task}/{words}-{seed}"


def start_name(seed: int) -> str:
    """Name of the job that copies the teacher's embedding and heads into a student."""
    return f"copied-start/{seed}"


def scoring_jobs() -> dict[str, tuple[str, str, str, int | None]]:
    """Name of a scoring job → model, label, task and seed; the seed is None for single runs."""
    found: dict[str, tuple[str, str, str, int | None]] = {
        MAJORITY_TOKEN_JOB: (NOBODY, MAJORITY, TEXT, None),
        **{f"constant/{task}": (NOBODY, MAJORITY, task, None) for task in TASKS},
        TEACHER_JOB: (TEACHER_MODEL, TEACHER, TEXT, None),
        **{job_name(TEACHER_MODEL, TEACHER, task, SEEDS[0]): (TEACHER_MODEL, TEACHER, task, None) for task in TASKS},
    }
    for seed in SEEDS:
        for variant in VARIANTS:
            for task in (TEXT, ATTENTION, *TASKS):
                found[job_name(STUDENT_MODEL, variant.label, task, seed)] = (STUDENT_MODEL, variant.label, task, seed)
    return found


def content(done: Mapping[str, Any]) -> results.ResultFile:
    """Collects the scores of the finished jobs."""
    accuracies = []
    for name, (model, label, task, seed) in scoring_jobs().items():
        for each in done.get(name, {}).get("scores", ()):
            accuracies += records(each, _label(label, seed), model, task, each["split"], each["recipe"])
    made_from = {"data": done.get(DATA_JOB), "teacher's weights": done.get(TEACHER_JOB, {}).get("sha256")}
    notes = [settings_note(settings()), MADE_FROM + json.dumps(made_from)]
    return results.result_file("MobileBERT scaled down", quick=False, accuracies=accuracies, notes=notes)


def scored(read: results.ResultFile) -> dict[str, Any]:
    """Reads job name → result for complete seeds from a result file with these settings; otherwise returns nothing.

    Dependencies of missing scores count as missing too, because a result file has no models.
    """
    if settings_note(settings()) not in read.notes:
        return {}
    scoring = scoring_jobs()
    names = {(model, _label(label, seed), task): name for name, (model, label, task, seed) in scoring.items()}
    found: dict[str, Any] = {}
    for each in read.accuracies:
        scores = found.setdefault(names[each.model, each.label, each.task], {"scores": []})["scores"]
        place = {"split": each.split, "recipe": each.recipe}
        if not scores or any(scores[-1][key] != value for key, value in place.items()):
            scores.append({**place, "metrics": {}, "examples": each.examples})
        scores[-1]["metrics"][each.metric] = each.value
    incomplete = {seed for name, (*_, seed) in scoring.items() if seed is not None and name not in found}
    found = {name: result for name, result in found.items() if scoring[name][-1] not in incomplete}
    made_from = json.loads(next(note.removeprefix(MADE_FROM) for note in read.notes if note.startswith(MADE_FROM)))
    every = jobs(Path())
    # Jobs without scores are complete if the others are.
    found |= {job.name: {} for job in every if job.name not in scoring}
    found[DATA_JOB] = made_from["data"]
    if TEACHER_JOB in found:
        found[TEACHER_JOB]["sha256"] = made_from["teacher's weights"]
    for job in reversed(every):
        if job.name not in found:
            for name in job.needs:
                found.pop(name, None)
    if TEACHER_JOB not in found:
        found = {name: each for name, each in found.items() if scoring.get(name, ("",))[0] != TEACHER_MODEL}
    return found


def _label(label: str, seed: int | None) -> str:
    return label if seed is None else seeds_label(label, seed)


EXPERIMENT = Experiment(
    result=RESULTS / "mobilebert" / "accuracy.json",
    output="runs/experiment-mobilebert",
    settings=settings,
    jobs=jobs,
    content=content,
    scored=scored,
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT, sys.argv))
