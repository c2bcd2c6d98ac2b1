"""TinyBERT on real tasks with a small teacher: gain of each component, over three seeds.

    python -m studies.tinybert.accuracy --minutes=120
    python -m studies.tables

The 6x384 network is fine-tuned on five GLUE tasks and distilled into 3 and 4 layers of 312 and 384, along the paper's
ablation of procedures (its table 2), with baselines that never see the teacher. Every student takes the same number of
steps on a task: `PASSES` times its examples, halved between the two steps of TinyBERT. With augmented examples, the
number of epochs is divided accordingly. That is much less than in the paper (20 + 3 epochs of 20 times the data, after
3 of Wikipedia), so rates are higher; the students' rates were chosen on SST-2, with one seed. Scores are those of the
last epoch on the development set. No epoch is chosen there, because variants differ in their number of epochs (1, 2 or
4), and the best of more would be better by chance.

Two jobs run in parallel, each in one thread. Rerun the same command to resume; scores in the committed result file are
reused if they were made with the same settings.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.assets import minilm
from pocketbert.data.readers.glue import GLUE
from pocketbert.errors import UserError
from pocketbert.presets import preset
from pocketbert.training.grids.published import PUBLISHED_HEAD
from pocketbert_bench.quickstart import NETWORK
from studies.closed import LAST_COMMIT, command
from studies.glue_examples import SST2_EXAMPLES, task_data, task_examples
from studies.jobs import StudyJob
from studies.runs import distil_on_text, last_metrics, majority_subject
from studies.shared_data import shared_data
from studies.sweep import TEACHER, Runs, Sweep, SweepSubject, job_name

if TYPE_CHECKING:
    from pocketbert.data.task_data import TaskData

# Masked-LM head for augmentation, from the closed measurement tinybert/masked_lm.
MASKED_LM = Path("runs/suite-masked-lm/model")
GLOVE = "glove/glove.twitter.27B.25d.subset11925.txt"
# Number of copies with one augmented side, so that pairs and sentences grow equally.
PAIR_SIDES: Literal["together"] = "together"

SEEDS = (0, 1, 2)
TASKS = ("sst2", "cola", "stsb", "mrpc", "rte")
# Variants for students of other shapes than 4x312, to compare sizes.
FEWER_TASKS = ("sst2", "cola")
LENGTHS = {"sst2": 64, "cola": 64, "stsb": 128, "mrpc": 128, "rte": 128}
BATCH_SIZE = 32
PASSES = 4
COPIES = 1
TIMES_MORE = 1 + COPIES

TEACHER_PASSES, TEACHER_RATE = 3, 1e-4
LEARNING_RATES = {"intermediate": 3e-4, "prediction": 1e-4, "labels": 1e-4}
GENERAL_STEPS, GENERAL_BATCH_SIZE, GENERAL_RATE = 1000, 32, 5e-4
# The paper's text has two segments; the published students have one.
GENERAL_SEGMENTS: Literal[1] = 1

# Shape → preset and layers, and the teacher's layers for students of the teacher's width.
SHAPES: dict[str, tuple[str, int, tuple[int, ...]]] = {
    "4x312": ("tinybert_4l_312d", 4, ()),
    "3x384": ("minilmv2_6l_384d", 3, (1, 3, 5)),
    "4x384": ("minilmv2_6l_384d", 4, (1, 2, 4, 5)),
    "3x312": ("tinybert_4l_312d", 3, ()),
}


@dataclass(frozen=True, kw_only=True)
class TinyBERTVariant:
    """One way to make a student.

    Attributes:
      label: name in the table.
      start: source of the weights: fresh, general distillation, or layers of the fine-tuned teacher.
      learns: the task's `labels`, the teacher's `prediction`, or `both steps` of TinyBERT.
      augmented: whether to use augmented examples.
    """

    label: str
    start: Literal["fresh", "general", "teacher layers"]
    learns: Literal["labels", "prediction", "both steps"]
    augmented: bool = False


VARIANTS = {
    "4x312": (
        TinyBERTVariant(label="fine-tuned, no distillation", start="fresh", learns="labels"),
        TinyBERTVariant(label="two steps, no general distillation", start="fresh", learns="both steps"),
        TinyBERTVariant(label="general distillation, prediction only", start="general", learns="prediction"),
        TinyBERTVariant(label="general distillation, two steps", start="general", learns="both steps"),
        TinyBERTVariant(
            label="general distillation, two steps, augmented", start="general", learns="both steps", augmented=True
        ),
    ),
    "3x384": (
        TinyBERTVariant(label="teacher's layers, fine-tuned", start="teacher layers", learns="labels"),
        TinyBERTVariant(label="teacher's layers, two steps", start="teacher layers", learns="both steps"),
    ),
    "4x384": (TinyBERTVariant(label="teacher's layers, two steps", start="teacher layers", learns="both steps"),),
    "3x312": (TinyBERTVariant(label="two steps, no general distillation", start="fresh", learns="both steps"),),
}


def student_config(shape: str) -> EncoderConfig:
    """Configuration of one of `SHAPES`."""
    name, layers, _ = SHAPES[shape]
    return preset(name).config.replace(num_layers=layers)


def train_teacher(task: str, _seed: None, output: Path) -> dict[str, Any]:
    """Fine-tunes the 6x384 network; returns the metrics of its best epoch."""
    from pocketbert.training.config import FinetuneConfig
    from pocketbert.training.finetune import finetune

    data = task_data(task)
    options = FinetuneConfig(
        **PUBLISHED_HEAD,
        learning_rate=TEACHER_RATE,
        epochs=TEACHER_PASSES,
        batch_size=BATCH_SIZE,
        max_length=LENGTHS[task],
    )
    outcome = finetune(minilm(), data, _teacher(task, output).parent, config=options)
    return {"metrics": outcome.metrics, "examples": len(data.dev)}


def distil_generally(shape: str, output: Path) -> dict[str, Any]:
    """General distillation from the pretrained network (paper, section 4.2)."""
    from pocketbert.distillation.methods.tinybert import TinyBERT

    method = TinyBERT(
        general_steps=GENERAL_STEPS,
        general_batch_size=GENERAL_BATCH_SIZE,
        general_learning_rate=GENERAL_RATE,
        text_segments=GENERAL_SEGMENTS,
    )
    return distil_on_text(student_config(shape), method, output / "general" / shape)


def cache_targets(layers: int, task: str, output: Path) -> dict[str, Any]:
    """Caches a teacher for students with this number of layers, for all seeds and variants with original examples."""
    from pocketbert.distillation.cache_teacher import cache_stages
    from pocketbert.distillation.planning import plan_distillation
    from pocketbert.training.config import RunConfig

    variant = TinyBERTVariant(label="", start="fresh", learns="both steps")
    plan = plan_distillation(
        student_config(f"{layers}x312"),
        _task_data(task),
        teacher=_teacher(task, output),
        method=_options(variant, GLUE[task].task),
        run=RunConfig(),
    )
    folders = cache_stages(plan, _cache_folder(layers, task, output))
    return {"bytes": sum(path.stat().st_size for folder in folders for path in folder.iterdir())}


def augment_task(task: str, output: Path) -> dict[str, Any]:
    """Augments a task's training examples as the paper does, with fewer copies; returns rows and seconds."""
    from pocketbert.augmentation.augmented_rows import AugmentationOptions
    from pocketbert.augmentation.run import AugmentationJob, augment

    if not MASKED_LM.exists():
        raise UserError(
            f"augmentation needs a masked-LM head in {MASKED_LM}; received none; check out commit {LAST_COMMIT}, run: "
            f"{command('tinybert/masked_lm')}; and copy {MASKED_LM} from there"
        )
    train, _ = task_examples(task)
    job = AugmentationJob(
        masked_lm=str(MASKED_LM),
        glove=str(shared_data(GLOVE)),
        options=AugmentationOptions(copies=COPIES, pair_sides=PAIR_SIDES),
        max_length=LENGTHS[task],
        columns=("text",) if train.pairs is None else ("text", "pair"),
    )
    outcome = augment(job, train, GLUE[task].task.labels, _augmented_file(task, output), overwrite=True)
    return {"rows": outcome.rows, "seconds": outcome.seconds}


def train_student(shape: str, variant: TinyBERTVariant, task: str, seed: int, output: Path) -> dict[str, Any]:
    """Trains one student; returns the metrics of its last epoch."""
    from pocketbert.distillation.initialization import TeacherLayers
    from pocketbert.distillation.run import distill
    from pocketbert.distillation.teacher import CachedTeacher
    from pocketbert.training.config import RunConfig

    # Training on labels needs the teacher's folder for the vocabulary only, or for the student's first layers.
    taught = variant.learns != "labels"
    data = _task_data(task, _augmented_file(task, output) if variant.augmented else None)
    folder = output / job_name(shape, variant.label, task, seed)
    student: Any = output / "general" / shape / "model" if variant.start == "general" else student_config(shape)
    if variant.start == "teacher layers":
        student = TeacherLayers(SHAPES[shape][2], student)
    teacher: Any = _teacher(task, output) if taught or variant.start == "teacher layers" else minilm()
    if taught and not variant.augmented:
        teacher = CachedTeacher(_cache_folder(SHAPES[shape][1], task, output), teacher)
    method, run = _options(variant, data.task), RunConfig(seed=seed)
    distill(student, data, folder, teacher=teacher, method=method, run=run)
    return {"metrics": last_metrics(folder, data.metrics), "examples": len(data.dev)}


def _options(variant: TinyBERTVariant, task: TaskConfig) -> Any:
    from pocketbert.distillation.methods.tinybert import TinyBERT

    without: tuple[str, ...] = () if variant.augmented else ("augmentation",)
    passes = PASSES
    if variant.learns == "labels":
        without += ("task_distillation",)
    elif variant.learns == "prediction":
        without += ("embedding", "transformer")
    else:
        passes //= 2
    fewer = TIMES_MORE if variant.augmented else 1
    return TinyBERT(
        without=without,
        intermediate_epochs=passes // fewer,
        # For scores, prediction distillation uses the original examples (paper, footnote 5).
        prediction_epochs=passes // fewer if task.labels else passes,
        intermediate_batch_size=BATCH_SIZE,
        prediction_batch_size=BATCH_SIZE,
        intermediate_learning_rate=LEARNING_RATES["intermediate"],
        prediction_learning_rate=LEARNING_RATES["labels" if variant.learns == "labels" else "prediction"],
    )


def _task_data(task: str, augmented_file: Path | None = None) -> TaskData:
    from pocketbert.data.readers.tables import read_table

    data = task_data(task)
    if augmented_file is None:
        return data
    pair_column = None if getattr(data.train, "pairs", None) is None else "pair"
    augmented, _ = read_table(
        augmented_file,
        text_column="text",
        pair_column=pair_column,
        label_column="label",
        labels=data.task.labels or None,
        kind=data.task.rules.label_form,
    )
    return dataclasses.replace(data, augmented=augmented)


def _teacher(task: str, output: Path) -> Path:
    return output / job_name(NETWORK, TEACHER, task) / "model"


def _cache_folder(layers: int, task: str, output: Path) -> Path:
    return output / "targets" / f"{layers}-layers" / task


def _augmented_file(task: str, output: Path) -> Path:
    return output / "augmented" / f"{task}.jsonl"


def settings() -> dict[str, Any]:
    """All settings that determine the table, as JSON values."""
    return {
        "passes": PASSES,
        "batch size": BATCH_SIZE,
        "rates": LEARNING_RATES,
        "teacher": [TEACHER_PASSES, TEACHER_RATE],
        "general distillation": {
            "steps": GENERAL_STEPS,
            "batch size": GENERAL_BATCH_SIZE,
            "rate": GENERAL_RATE,
            "segments": GENERAL_SEGMENTS,
        },
        "examples of SST-2": SST2_EXAMPLES,
        "augmentation": {"copies": COPIES, "pair sides": PAIR_SIDES, "GloVe": GLOVE, "masked LM": str(MASKED_LM)},
        "lengths": LENGTHS,
        "scored": "last pass",
        "started from the teacher's layers": {
            shape: list(layers) for shape, (_, _, layers) in SHAPES.items() if layers
        },
    }


def preparations(output: Path) -> list[StudyJob]:
    """General distillation, cached teachers, and augmented examples."""
    jobs = [StudyJob(name="general/4x312", call=distil_generally, arguments=("4x312", output))]
    for task in TASKS:
        teacher = (job_name(NETWORK, TEACHER, task),)
        for layers in (3, 4):
            name = f"targets/{layers}-layers/{task}"
            jobs.append(StudyJob(name=name, call=cache_targets, arguments=(layers, task, output), needs=teacher))
        jobs.append(StudyJob(name=f"augmented/{task}", call=augment_task, arguments=(task, output)))
    return jobs


def _student(shape: str, variant: TinyBERTVariant) -> SweepSubject:
    def needs(task: str, _seed: int | None) -> tuple[str, ...]:
        names = []
        if variant.learns != "labels" or variant.start == "teacher layers":
            names.append(job_name(NETWORK, TEACHER, task))
        if variant.start == "general":
            names.append(f"general/{shape}")
        if variant.augmented:
            names.append(f"augmented/{task}")
        elif variant.learns != "labels":
            names.append(f"targets/{SHAPES[shape][1]}-layers/{task}")
        return tuple(names)

    runs: Runs | None = None if shape == "4x312" else dict.fromkeys(SEEDS, FEWER_TASKS)
    return SweepSubject(
        model=shape, label=variant.label, call=train_student, arguments=(shape, variant), needs=needs, runs=runs
    )


SWEEP = Sweep(
    result="tinybert/accuracy",
    title="TinyBERT on GLUE tasks",
    subjects=(
        majority_subject(TASKS),
        SweepSubject(model=NETWORK, label=TEACHER, call=train_teacher, runs={None: TASKS}),
        *(_student(shape, variant) for shape, variants in VARIANTS.items() for variant in variants),
    ),
    tasks=TASKS,
    seeds=SEEDS,
    settings=settings,
    preparations=preparations,
)

if __name__ == "__main__":
    sys.exit(SWEEP.main(sys.argv))
