"""MobileBERT scaled down, on real text: what each strategy and each loss of knowledge transfer gives.

    python -m studies.mobilebert.accuracy --minutes=120
    python -m studies.tables

An IB-BERT teacher of 6 layers is pretrained on `enwiki2015`, then MobileBERT students of 6 layers learn by the paper's
strategies (table 8) and with its losses one by one (table 9), each with the same number of updates. Progressive and
joint transfer copy the teacher's embedding and heads, which is most of a student's weights, so other students get the
same copy and no transfer: what copying gives and what transfer gives are told apart. All are scored on held-out
articles, by how far their attention is from the teacher's, and fine-tuned on SST-2 (a draw) and MRPC, before and after
quantization (table 6), beside a student that was never pretrained and the commonest word and label.

Nothing is learned from a teacher that hardly knows more than how frequent words are (`check_teacher`): its rate is
found by `studies.mobilebert.rates` in a few minutes.

Two jobs at a time, what says most first; the teacher in two threads, so that no core waits for it. Stopped at any
moment, the same command goes on, and with `--minutes=0` it writes what is done. From the committed result file, made
with the same settings, those seeds come back that are complete. A file of scores holds no models: where others are
missing the teacher is trained anew, so students of two teachers may stand in one table, but never in one seed.

How long it takes, as each job's line says when it is done, on the two cores of the result file's machine with nothing
else to do: the teacher, by its steps a second, 46 minutes of both; on one core a student without a teacher 7, one that
distillation alone teaches 12, a progressive one 10; its fine-tuning, exports and scores 3. So two seeds are 3.2 hours;
teacher and the students that need none are done after an hour, a first seed of everything after 2.1.
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
from studies.mobilebert.accuracy_jobs import COMMONEST_WORD_JOB, TEACHER_JOB
from studies.mobilebert.recipe import (
    SEEDS,
    TASKS,
    VARIANTS,
    MobileBERTVariant,
    settings,
    teacher_options,
)
from studies.runner import RESULTS

# What models are scored on beside the tasks: masked words, and how near attention is to the teacher's.
TEXT, ATTENTION = "enwiki2015", "attention"
TEACHER_MODEL, STUDENT_MODEL, NOBODY = "IB-BERT 6x256/384", "MobileBERT 6x256/64", "none"
TEACHER, COMMONEST = "teacher", "commonest word or label"

DATA_JOB, CHECK_JOB = "data", "check/teacher"
# How the note begins that says what the scores came of.
MADE_FROM = "made from: "


def jobs(output: Path) -> list[StudyJob]:
    """Everything that the table needs, what says most first."""
    found = [
        StudyJob(name=DATA_JOB, call=work.make_data, arguments=(output,)),
        StudyJob(
            name=TEACHER_JOB,
            call=work.pretrain_teacher,
            arguments=(TEACHER_JOB, teacher_options(), output),
            needs=(DATA_JOB,),
            threads=2,
        ),
        StudyJob(name=COMMONEST_WORD_JOB, call=work.score_commonest_word, arguments=(output,), needs=(DATA_JOB,)),
        *(StudyJob(name=f"constant/{task}", call=work.score_commonest_label, arguments=(task,)) for task in TASKS),
        StudyJob(
            name=CHECK_JOB,
            call=work.check_teacher,
            arguments=(output,),
            needs=(TEACHER_JOB, COMMONEST_WORD_JOB),
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
    """A student and all that it is scored on."""
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
    """What the job is called that scores a model, made in the way of `label`, on a task or on held-out text."""
    words = label.replace("(", "").replace(")", "").replace(",", "").replace(" ", "-")
    return f"{'teacher' if model == TEACHER_MODEL else 'student'}-{task}/{words}-{seed}"


def start_name(seed: int) -> str:
    """What the job is called that copies the teacher's embedding and heads into a student."""
    return f"copied-start/{seed}"


def scoring_jobs() -> dict[str, tuple[str, str, str, int | None]]:
    """Name of a job that scores → model, label, task and seed; no seed where there is one run."""
    found: dict[str, tuple[str, str, str, int | None]] = {
        COMMONEST_WORD_JOB: (NOBODY, COMMONEST, TEXT, None),
        **{f"constant/{task}": (NOBODY, COMMONEST, task, None) for task in TASKS},
        TEACHER_JOB: (TEACHER_MODEL, TEACHER, TEXT, None),
        **{job_name(TEACHER_MODEL, TEACHER, task, SEEDS[0]): (TEACHER_MODEL, TEACHER, task, None) for task in TASKS},
    }
    for seed in SEEDS:
        for variant in VARIANTS:
            for task in (TEXT, ATTENTION, *TASKS):
                found[job_name(STUDENT_MODEL, variant.label, task, seed)] = (STUDENT_MODEL, variant.label, task, seed)
    return found


def content(done: Mapping[str, Any]) -> results.ResultFile:
    """The scores of the jobs that are done."""
    accuracies = []
    for name, (model, label, task, seed) in scoring_jobs().items():
        for each in done.get(name, {}).get("scores", ()):
            accuracies += records(each, _label(label, seed), model, task, each["split"], each["recipe"])
    made_from = {"data": done.get(DATA_JOB), "teacher's weights": done.get(TEACHER_JOB, {}).get("sha256")}
    notes = [settings_note(settings()), MADE_FROM + json.dumps(made_from)]
    return results.result_file("MobileBERT scaled down", quick=False, accuracies=accuracies, notes=notes)


def scored(read: results.ResultFile) -> dict[str, Any]:
    """Name of a job → its result, from a result file with these settings: of seeds that are complete; else nothing.

    What a missing score needs is missing too, since a file of scores holds no models.
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
    # What gives no score is there for the others.
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
