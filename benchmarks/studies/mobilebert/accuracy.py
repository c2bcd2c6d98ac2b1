"""MobileBERT scaled down, on real text: gain of each strategy and each loss of knowledge transfer.

    python -m studies.mobilebert.accuracy --minutes=120
    python -m studies.tables

An IB-BERT teacher of 6 layers is pretrained on `enwiki2015`. MobileBERT students of 6 layers then learn with the
paper's strategies (table 8) and losses (table 9), each with the same number of updates. Progressive and joint transfer
copy the teacher's embedding and heads, which are most of a student's weights. Other students therefore get the same
copy without transfer, to separate both effects. All are scored on dev articles, on the distance of their attention from
the teacher's, and after fine-tuning on SST-2 (a sample) and MRPC, before and after quantization (table 6). Baselines
are a student without pretraining and the most frequent token and label.

A teacher must know more than token frequencies before students learn from it (`check_teacher`).

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

import sys
from pathlib import Path

from studies.jobs import StudyJob
from studies.mobilebert import accuracy_jobs as work
from studies.mobilebert.accuracy_jobs import (
    ATTENTION,
    CHECK_JOB,
    DATA_JOB,
    MAJORITY,
    STUDENT_MODEL,
    TEACHER_JOB,
    TEXT,
    start_name,
)
from studies.mobilebert.recipe import SEEDS, TASKS, VARIANTS, MobileBERTVariant, settings
from studies.sweep import NOBODY, TEACHER, Sweep, SweepSubject, job_name

TEACHER_MODEL = "IB-BERT 6x256/384"


def preparations(output: Path) -> list[StudyJob]:
    """Data, the teacher, its check, and the copies of its embedding and heads."""
    teacher = StudyJob(name=TEACHER_JOB, call=work.pretrain_teacher, arguments=(output,), needs=(DATA_JOB,), threads=2)
    counting = job_name(NOBODY, MAJORITY, TEXT)
    return [
        StudyJob(name=DATA_JOB, call=work.make_data, arguments=(output,)),
        teacher,
        StudyJob(name=CHECK_JOB, call=work.check_teacher, arguments=(output,), needs=(TEACHER_JOB, counting)),
        *(
            StudyJob(name=start_name(seed), call=work.copy_start, arguments=(seed, output), needs=(CHECK_JOB,))
            for seed in SEEDS
        ),
    ]


def _student(variant: MobileBERTVariant) -> SweepSubject:
    def needs(task: str, seed: int | None) -> tuple[str, ...]:
        if task == TEXT and not variant.taught:
            return (DATA_JOB,)
        if task == TEXT:
            return (start_name(seed) if variant.copied else CHECK_JOB,)
        student = job_name(STUDENT_MODEL, variant.label, TEXT, seed)
        return (TEACHER_JOB, student) if task == ATTENTION else (student,)

    return SweepSubject(
        model=STUDENT_MODEL, label=variant.label, call=work.score_student, arguments=(variant,), needs=needs
    )


SWEEP = Sweep(
    result="mobilebert/accuracy",
    title="MobileBERT scaled down",
    subjects=(
        SweepSubject(
            model=NOBODY,
            label=MAJORITY,
            call=work.score_majority,
            needs=lambda task, seed: (DATA_JOB,) if task == TEXT else (),
            runs={None: (TEXT, *TASKS)},
        ),
        SweepSubject(
            model=TEACHER_MODEL,
            label=TEACHER,
            call=work.score_teacher,
            needs=lambda task, seed: (TEACHER_JOB,),
            runs={None: (TEXT, *TASKS)},
        ),
        # Those without a teacher come first, so they train while it does.
        *map(_student, VARIANTS),
    ),
    tasks=(TEXT, ATTENTION, *TASKS),
    seeds=SEEDS,
    settings=settings,
    preparations=preparations,
    recorded={"made from": {"data": DATA_JOB, "teacher's weights": TEACHER_JOB}},
    whole_seeds=True,
)

if __name__ == "__main__":
    sys.exit(SWEEP.main(sys.argv))
