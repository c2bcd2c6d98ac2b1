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

import shutil
import sys
from pathlib import Path
from typing import Any, Literal

from pocketbert import files
from pocketbert.data.assets import minilm
from pocketbert.presets import preset
from pocketbert.training.grids.published import PUBLISHED_HEAD
from pocketbert_bench import results
from pocketbert_bench.quickstart import NETWORK
from studies.glue_examples import task_data, task_examples
from studies.hsk.variants import GENERAL, MAIN, PRUNED, SEEDS, STUDENTS, SWEEPS, TABLE_2, TASKS, HSKVariant, tasks_of
from studies.jobs import StudyJob
from studies.runs import distil_on_text, finetune_to_the_end, last_metrics, majority_subject
from studies.sweep import TEACHER, Sweep, SweepSubject, folder_name, job_name, noted

# Prefix of the note with the counts of separators.
SEPARATORS = "separators"
LENGTHS = {"cola": 64, "mrpc": 128, "rte": 128}
BATCH_SIZE, PASSES = 32, 4
TEACHER_EPOCHS, TEACHER_RATE = 3, 1e-4
RATES = {"hidden": 3e-4, "prediction": 1e-4}
TEXT_STEPS, TEXT_BATCH_SIZE, TEXT_LENGTH, TEXT_RATE = 1000, 32, 64, 5e-4
# Like the text of the other studies.
TEXT_SEGMENTS: Literal[1] = 1
_TEXT_JOB = f"text/{GENERAL}"
PRUNED_SIZES: dict[str, Any] = {"layers": 3, "heads": 2, "intermediate_size": 384, "embedding_rank": 64}


def train_teacher(task: str, _seed: None, output: Path) -> dict[str, Any]:
    """Fine-tunes the 6x384 network; returns the metrics of the last epoch."""
    from pocketbert.training.config import FinetuneConfig

    options = FinetuneConfig(
        **PUBLISHED_HEAD,
        learning_rate=TEACHER_RATE,
        epochs=TEACHER_EPOCHS,
        batch_size=BATCH_SIZE,
        max_length=LENGTHS[task],
    )
    return finetune_to_the_end(minilm(), task, output / job_name(NETWORK, TEACHER, task), options, SEEDS[0])


def prune_teacher(task: str, output: Path) -> dict[str, Any]:
    """Prunes a teacher; returns its numbers of weights and its scores before any training."""
    from pocketbert.pruning.config import PruneConfig
    from pocketbert.pruning.run import prune

    config = PruneConfig(max_length=LENGTHS[task], batch_size=BATCH_SIZE, **PRUNED_SIZES)
    pruned = prune(_teacher(task, output), task_data(task), output / _start_name(PRUNED, task), config=config)
    return {"parameters": list(pruned.parameters), "metrics": pruned.metrics}


def count_separators(task: str, output: Path) -> dict[str, Any]:
    """Counts the dev examples with [SEP] among a teacher's 1 and 3 most attended tokens, in each layer."""
    from pocketbert.model import from_pretrained
    from pocketbert.plots.separator_shares import separator_shares

    _, dev = task_examples(task)
    model = from_pretrained(_teacher(task, output))
    shares = separator_shares(model, dev.texts, dev.pairs, max_length=LENGTHS[task], show_progress=False)
    return {"texts": shares.texts, "counts": {str(k): list(counts) for k, counts in shares.counts.items()}}


def distil_student_on_text(output: Path) -> dict[str, Any]:
    """General distillation of the 4x312 student from the network before fine-tuning; returns steps and seconds."""
    from pocketbert.distillation.methods.tinybert import TinyBERT

    general = TinyBERT(
        max_length=TEXT_LENGTH,
        general_steps=TEXT_STEPS,
        general_batch_size=TEXT_BATCH_SIZE,
        general_learning_rate=TEXT_RATE,
        text_segments=TEXT_SEGMENTS,
    )
    return distil_on_text(preset("tinybert_4l_312d").config, general, output / _TEXT_JOB)


def cache_predictions(task: str, output: Path) -> dict[str, Any]:
    """Caches a teacher's predictions for all students; returns the size."""
    return {"bytes": _cache(PRUNED, MAIN[-1], task, "prediction", output / _predictions_name(task), output)}


def train_student(student: str, variant: HSKVariant, task: str, seed: int, output: Path) -> dict[str, Any]:
    """Trains one student; returns the metrics of its last epoch."""
    from pocketbert.distillation.run import distill
    from pocketbert.distillation.teacher import CachedTeacher
    from pocketbert.training.config import RunConfig

    folder = output / job_name(student, variant.label, task, seed)
    start, data = _start(student, task, output), task_data(task)
    # Seeds share a cache.
    cache = folder / "cache"
    if variant in TABLE_2:
        cache = output / "caches" / folder_name(student) / folder_name(variant.label) / task
    finished = cache.with_name(f"{cache.name}.json")
    if not finished.exists():
        stage = "prediction" if variant.knowledge is None else "hidden"
        size = _cache(student, variant, task, stage, cache, output)
        if variant.knowledge is not None:
            shutil.copytree(output / _predictions_name(task), cache, dirs_exist_ok=True)
        files.write_json(finished, size)
    teacher, run = CachedTeacher(cache, _teacher(task, output)), folder / "run"
    distill(start, data, run, teacher=teacher, method=method(variant), run=RunConfig(seed=seed))
    metrics = last_metrics(run, data.metrics)
    shutil.rmtree(folder)
    return {"metrics": metrics, "examples": len(data.dev)}


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
    from pocketbert.distillation.planning import plan_distillation
    from pocketbert.model import from_pretrained
    from pocketbert.training.config import RunConfig

    start, teacher = _start(student, task, output), _teacher(task, output)
    plan = plan_distillation(start, task_data(task), teacher=teacher, method=method(variant), run=RunConfig())
    stage = next(stage for stage in plan.stages if stage.name == stage_name)
    encoded = plan.encoded(stage)
    assert encoded is not None
    written = cache_targets(from_pretrained(teacher), teacher, plan.objective, stage, encoded, folder)
    return sum(path.stat().st_size for path in written.iterdir())


def _start(student: str, task: str, output: Path) -> Path:
    """The model directory that a student starts from."""
    return output / _start_name(student, task) / "model"


def _teacher(task: str, output: Path) -> Path:
    return output / job_name(NETWORK, TEACHER, task) / "model"


def _start_name(student: str, task: str) -> str:
    return _TEXT_JOB if student == GENERAL else f"pruned/{task}"


def _predictions_name(task: str) -> str:
    return f"predictions/{task}"


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


def separators(content: results.ResultFile) -> dict[str, Any]:
    """Task → counts of `count_separators`, from a result file."""
    return noted(content, SEPARATORS)


def preparations(output: Path) -> list[StudyJob]:
    """General distillation; pruning, cached predictions and counts of separators of each task's teacher."""
    jobs = [StudyJob(name=_TEXT_JOB, call=distil_student_on_text, arguments=(output,))]
    for task in TASKS:
        teacher, pruned = (job_name(NETWORK, TEACHER, task),), _start_name(PRUNED, task)
        for name, call, needs in (
            (pruned, prune_teacher, teacher),
            (_predictions_name(task), cache_predictions, (pruned,)),
            (f"{SEPARATORS}/{task}", count_separators, teacher),
        ):
            jobs.append(StudyJob(name=name, call=call, arguments=(task, output), needs=needs))
    return jobs


def _subject(student: str, variant: HSKVariant) -> SweepSubject:
    def needs(task: str, _seed: int | None) -> tuple[str, ...]:
        predictions = () if variant.knowledge is None else (_predictions_name(task),)
        return (job_name(NETWORK, TEACHER, task), _start_name(student, task), *predictions)

    seeds = SEEDS if variant in TABLE_2 else SEEDS[:1]
    return SweepSubject(
        model=student,
        label=variant.label,
        call=train_student,
        arguments=(student, variant),
        needs=needs,
        runs=dict.fromkeys(seeds, tasks_of(student, variant)),
    )


SWEEP = Sweep(
    result="hsk/accuracy",
    title="HSK on GLUE tasks",
    subjects=(
        majority_subject(TASKS),
        SweepSubject(model=NETWORK, label=TEACHER, call=train_teacher, runs={None: TASKS}),
        *(_subject(student, variant) for student in STUDENTS for variant in (*MAIN, *SWEEPS)),
    ),
    tasks=TASKS,
    seeds=SEEDS,
    settings=settings,
    preparations=preparations,
    recorded={SEPARATORS: {task: f"{SEPARATORS}/{task}" for task in TASKS}},
)

if __name__ == "__main__":
    sys.exit(SWEEP.main(sys.argv))
