"""MiniLMv2 with a small teacher: relations, relation heads, teacher layers and baselines on GLUE tasks.

    python -m studies.minilmv2.accuracy --minutes=120
    python -m studies.tables

The pretrained 6x384 network teaches students of 3x384, 4x312 and 6x192 on `enwiki2015`. Each student is then fine-tuned
on the labels of a task. All students read the same text for the same number of steps, and are fine-tuned with the same
settings: the paper's grid (appendix C) with its largest rate and fewest epochs. Scores are those of the last epoch on
the development set; no epoch is chosen there.

The paper's own runs read 256 times 400,000 texts of 512 tokens. The ablations have one seed and two tasks, the students
of `SHAPES` and the baselines of 3x384 three seeds and four tasks. Seeds vary fine-tuning, and the first weights of
students without distillation; distillation on text is done once per student.

Two jobs run in parallel, each in one thread. Rerun the same command to resume; scores in the committed result file are
reused if they were made with the same settings.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pocketbert.configs import EncoderConfig
from pocketbert.data.assets import minilm
from pocketbert.presets import preset
from pocketbert.training.grids.published import PUBLISHED_HEAD
from pocketbert_bench.quickstart import NETWORK
from studies.jobs import StudyJob
from studies.runs import distil_on_text, finetune_to_the_end, majority_subject
from studies.sweep import TEACHER, Sweep, SweepSubject, folder_name, job_name

SEEDS = (0, 1, 2)
TASKS = ("sst2", "cola", "stsb", "mrpc")
ABLATION_TASKS = ("sst2", "mrpc")
SST2_EXAMPLES = 10_000

TEXT_STEPS, TEXT_BATCH_SIZE, TEXT_LENGTH, TEXT_RATE = 300, 32, 64, 6e-4
# Like the text of the studies of TinyBERT.
TEXT_SEGMENTS: Literal[1] = 1
BATCH_SIZE, EPOCHS, RATE = 32, 3, 5e-5
LENGTHS = {"sst2": 64, "cola": 64, "stsb": 128, "mrpc": 128}

ABLATED = "3x384"
SHAPES: dict[str, EncoderConfig] = {
    ABLATED: preset("minilmv2_6l_384d").config.replace(num_layers=3),
    "4x312": preset("tinybert_4l_312d").config,
    "6x192": preset("minilmv2_6l_384d").config.replace(hidden_size=192, embedding_size=192, intermediate_size=768),
}
# 48 relation heads do not divide a width of 312.
RELATION_HEADS = {ABLATED: 48, "4x312": 24, "6x192": 48}
TEACHER_LAYERS = 6


@dataclass(frozen=True, kw_only=True)
class MiniLMv2Variant:
    """One way to make a student's first weights for fine-tuning.

    Attributes:
      label: name in the tables.
      start: source of the weights: distillation on text with a method, the teacher's first layers, or random weights.
      options: options of the method.
    """

    label: str
    start: Literal["minilmv2", "tinybert", "teacher layers", "random"] = "minilmv2"
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def distilled(self) -> bool:
        """Whether it learns from text first."""
        return self.start in ("minilmv2", "tinybert")


MINILMV2 = MiniLMv2Variant(label="MiniLMv2")
TINYBERT = MiniLMv2Variant(label="TinyBERT's general distillation", start="tinybert")
RANDOM = MiniLMv2Variant(label="no distillation", start="random")
TRUNCATED = MiniLMv2Variant(label="teacher's first layers", start="teacher layers")
# Student → its variants with all seeds and tasks.
MAIN: dict[str, tuple[MiniLMv2Variant, ...]] = {
    shape: (MINILMV2, TINYBERT, RANDOM, TRUNCATED) if shape == ABLATED else (MINILMV2,) for shape in SHAPES
}


def _relations(*names: str) -> MiniLMv2Variant:
    return MiniLMv2Variant(label=" + ".join("-".join(name.upper()) for name in names), options={"relations": names})


WITHOUT = {name: _relations(*(other for other in ("qq", "kk", "vv") if other != name)) for name in ("qq", "kk", "vv")}
QK_VV = _relations("qk", "vv")
FEWER_HEADS = {n: MiniLMv2Variant(label=f"{n} relation heads", options={"relation_heads": n}) for n in (6, 12, 24)}
ALL_PAIRS = MiniLMv2Variant(
    label="all nine pairs", options={"relations": tuple(one + other for one in "qkv" for other in "qkv")}
)
MINILM = MiniLMv2Variant(label="MiniLM v1", options={"preset": "minilm", "relation_heads": None})
UPPER_MIDDLE = 4
MINILM_UPPER = dataclasses.replace(
    MINILM, label="MiniLM v1, upper middle layer", options={**MINILM.options, "teacher_layer": UPPER_MIDDLE}
)
LAYERS = {n: MiniLMv2Variant(label=f"layer {n}", options={"teacher_layer": n}) for n in range(1, TEACHER_LAYERS)}
# Variants of `ABLATED` with one seed, next to `MINILMV2`.
ABLATIONS = (*WITHOUT.values(), QK_VV, *FEWER_HEADS.values(), ALL_PAIRS, MINILM, MINILM_UPPER, *LAYERS.values())


def train_teacher(task: str, _seed: None, output: Path) -> dict[str, Any]:
    """Fine-tunes the teacher, as students are; returns the metrics of the last epoch."""
    return _finetuned(minilm(), task, SEEDS[0], output / job_name(NETWORK, TEACHER, task))


def distil_student(shape: str, variant: MiniLMv2Variant, output: Path) -> dict[str, Any]:
    """Distils a student on text; returns steps and seconds."""
    return distil_on_text(SHAPES[shape], _method(shape, variant), output / _text_name(shape, variant))


def finetune_student(shape: str, variant: MiniLMv2Variant, task: str, seed: int, output: Path) -> dict[str, Any]:
    """Fine-tunes one student; returns the metrics of the last epoch."""
    if variant.distilled:
        student: Any = output / _text_name(shape, variant) / "model"
    else:
        student = _undistilled(shape, variant, seed)
    return _finetuned(student, task, seed, output / job_name(shape, variant.label, task, seed))


def _finetuned(start: Any, task: str, seed: int, folder: Path) -> dict[str, Any]:
    from pocketbert.training.config import FinetuneConfig

    options = FinetuneConfig(
        **PUBLISHED_HEAD, learning_rate=RATE, epochs=EPOCHS, batch_size=BATCH_SIZE, max_length=LENGTHS[task]
    )
    return finetune_to_the_end(start, task, folder, options, seed, SST2_EXAMPLES)


def _undistilled(shape: str, variant: MiniLMv2Variant, seed: int) -> Any:
    """The student with random weights or the teacher's first layers."""
    import pocketbert as pb

    teacher = pb.from_pretrained(minilm())
    student = pb.from_preset(SHAPES[shape], tokenizer=teacher.tokenizer, seed=seed)
    if variant.start == "teacher layers":
        weights = teacher.weights_by_path()
        for path, variable in student.weights_by_path().items():
            variable.assign(weights[path])
    return student


def _method(shape: str, variant: MiniLMv2Variant) -> Any:
    from pocketbert.distillation.methods.minilmv2 import MiniLMv2
    from pocketbert.distillation.methods.tinybert import TinyBERT

    if variant.start == "tinybert":
        return TinyBERT(
            max_length=TEXT_LENGTH,
            general_steps=TEXT_STEPS,
            general_batch_size=TEXT_BATCH_SIZE,
            general_learning_rate=TEXT_RATE,
            text_segments=TEXT_SEGMENTS,
        )
    options = {
        "max_length": TEXT_LENGTH,
        "steps": TEXT_STEPS,
        "batch_size": TEXT_BATCH_SIZE,
        "learning_rate": TEXT_RATE,
        "text_segments": TEXT_SEGMENTS,
        "relation_heads": RELATION_HEADS[shape],
    }
    return MiniLMv2(**{**options, **variant.options})


def _text_name(shape: str, variant: MiniLMv2Variant) -> str:
    return f"text/{shape}/{folder_name(variant.label)}"


def settings() -> dict[str, Any]:
    """All settings that determine the tables, as JSON values."""
    return {
        "text": {
            "steps": TEXT_STEPS,
            "batch size": TEXT_BATCH_SIZE,
            "length": TEXT_LENGTH,
            "rate": TEXT_RATE,
            "segments": TEXT_SEGMENTS,
        },
        "fine-tuning": {"batch size": BATCH_SIZE, "epochs": EPOCHS, "rate": RATE, "lengths": LENGTHS},
        "examples of SST-2": SST2_EXAMPLES,
        "relation heads": RELATION_HEADS,
        "upper middle layer": UPPER_MIDDLE,
        "scored": "last epoch",
    }


def _student(shape: str, variant: MiniLMv2Variant) -> SweepSubject:
    needs = (_text_name(shape, variant),) if variant.distilled else ()
    return SweepSubject(
        model=shape,
        label=variant.label,
        call=finetune_student,
        arguments=(shape, variant),
        needs=lambda task, seed: needs,
        runs={SEEDS[0]: ABLATION_TASKS} if variant in ABLATIONS else None,
    )


_STUDENTS = (
    *((shape, variant) for shape, variants in MAIN.items() for variant in variants),
    *((ABLATED, variant) for variant in ABLATIONS),
)
SWEEP = Sweep(
    result="minilmv2/accuracy",
    title="MiniLMv2 on GLUE tasks",
    subjects=(
        majority_subject(TASKS, SST2_EXAMPLES),
        SweepSubject(model=NETWORK, label=TEACHER, call=train_teacher, runs={None: TASKS}),
        *(_student(*student) for student in _STUDENTS),
    ),
    tasks=TASKS,
    seeds=SEEDS,
    settings=settings,
    preparations=lambda output: [
        StudyJob(name=_text_name(*student), call=distil_student, arguments=(*student, output)) for student in _STUDENTS
    ],
)

if __name__ == "__main__":
    sys.exit(SWEEP.main(sys.argv))
