"""MobileBERT scaled down, on real text: what each strategy and each loss of knowledge transfer gives.

    python -m pocketbert_bench.experiments.mobilebert --minutes=120
    python tools/result_tables.py

An IB-BERT teacher of 6 layers is pretrained on `enwiki2015`, then MobileBERT students of 6 layers learn by the paper's
strategies (table 8) and with its losses one by one (table 9), each with the same number of updates. They are scored on
held-out articles, by how far their attention is from the teacher's, and fine-tuned on SST-2 (a subset) and MRPC, before
and after quantization (table 6).

Everything is small: the paper's teacher learns from 2 billion examples, this one from some fifty thousand. Two jobs at
a time, each in one thread, what says most first: the students that need no teacher while the teacher is trained, then
one seed of the paper's rows, the other ablations, and the second seed. Stopped at any moment, the same command goes on,
and with `--minutes=0` it writes what is done. What has been scored is also read back from the committed result file, if
it was made with the same settings.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pocketbert.configs import BottleneckConfig, EncoderConfig
from pocketbert.data.assets import minilm
from pocketbert.data.examples import Examples
from pocketbert.data.glue import GLUE, read_glue
from pocketbert.presets import preset
from pocketbert_bench import results
from pocketbert_bench.experiments.jobs import Job
from pocketbert_bench.experiments.quantized import QUANTIZED, quantized_metrics
from pocketbert_bench.experiments.table import (
    RESULTS,
    TRAINED,
    Experiment,
    main,
    records,
    scores_by_job,
    seeds_label,
    settings_note,
)
from pocketbert_bench.suites.shared_data import shared_data

HELD_OUT, DEVELOPMENT = "held-out articles", "development set"
# What models are scored on beside the tasks: masked words, and how near attention is to the teacher's.
TEXT, ATTENTION = "enwiki2015", "attention"
TEACHER_MODEL, STUDENT_MODEL = "IB-BERT 6x256/384", "MobileBERT 6x256/64"

SEEDS = (0, 1)
DEV_EVERY = 50
MAX_LENGTH = 64
BATCH_SIZE = 32
TEACHER_STEPS = 1600
# Of LAMB, by 60 steps of the bare student on other text: 2e-3 leaves 9.5 nats of the 10.3 it starts from, 1e-2 7.2.
RATE = 1e-2
UPDATES = 800
# Of a student's updates those of knowledge transfer, about as in the paper's ablations: 240,000 of 490,000.
TRANSFER_STEPS = 392
# Three times as much in the current layer.
TRANSFER_RATE = 5e-3
EVALUATION_BATCHES = 60
DIVERGENCE_BATCHES = 20

TASKS = ("sst2", "mrpc")
SST2_EXAMPLES = 4000
TASK_PASSES, TASK_RATE, TASK_BATCH_SIZE = 3, 2e-4, 32
TASK_LENGTHS = {"sst2": 64, "mrpc": 64}

# The paper's proportions: the teacher's blocks are wider than the feature maps, the student's four times narrower.
TEACHER = preset("ib_bert_large").config.replace(
    num_layers=6,
    hidden_size=256,
    head_size=96,
    intermediate_size=1152,
    bottleneck=BottleneckConfig(size=384, query_key="raw"),
    max_positions=MAX_LENGTH,
)
STUDENT = preset("mobilebert_paper").config.replace(
    num_layers=6,
    hidden_size=256,
    head_size=16,
    intermediate_size=256,
    bottleneck=BottleneckConfig(size=64, query_key="raw"),
    max_positions=MAX_LENGTH,
)


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One way to make a student.

    Attributes:
      label: in the table.
      strategy: of knowledge transfer.
      without: the losses that are left out.
    """

    label: str
    strategy: Literal["none", "auxiliary", "joint", "progressive"]
    without: tuple[str, ...] = ()


# The paper's rows, then what it does not have.
ARMS = (
    Arm(label="bare", strategy="none", without=("distillation",)),
    Arm(label="no transfer (PD)", strategy="none"),
    Arm(label="progressive (PD, FMT, AT)", strategy="progressive"),
    Arm(label="joint", strategy="joint"),
    Arm(label="auxiliary", strategy="auxiliary"),
    Arm(label="progressive without AT", strategy="progressive", without=("attention",)),
    Arm(label="progressive without FMT", strategy="progressive", without=("feature_map",)),
    Arm(label="progressive without PD", strategy="progressive", without=("distillation",)),
)


def jobs(output: Path) -> list[Job]:
    """Everything that the table needs, what says most first."""
    data, teacher = "data", "teacher"
    found = [
        Job(name=data, call=make_data, arguments=(output,)),
        Job(name=teacher, call=pretrain_teacher, arguments=(output,), needs=(data,)),
    ]
    alone, *taught = ARMS
    for seed in SEEDS:
        found += _student_jobs(alone, seed, (data,), output)
    for seed in SEEDS:
        for arm in taught:
            found += _student_jobs(arm, seed, (data, teacher), output)
        if seed == SEEDS[0]:
            found += _task_jobs(TEACHER_MODEL, "teacher", teacher, 0, output)
    return found


def _student_jobs(arm: Arm, seed: int, needs: tuple[str, ...], output: Path) -> list[Job]:
    """A student and all that it is scored on."""
    student, attention = (job_name(STUDENT_MODEL, arm.label, task, seed) for task in (TEXT, ATTENTION))
    return [
        Job(name=student, call=make_student, arguments=(arm, seed, output), needs=needs),
        Job(name=attention, call=score_attention, arguments=(student, output), needs=("teacher", student)),
        *_task_jobs(STUDENT_MODEL, arm.label, student, seed, output),
    ]


def _task_jobs(model: str, label: str, pretrained: str, seed: int, output: Path) -> list[Job]:
    """Fine-tuning on each task, and the same network quantized."""
    found = []
    for task in TASKS:
        name = job_name(model, label, task, seed)
        found += [
            Job(name=name, call=finetune_on, arguments=(pretrained, name, task, seed, output), needs=(pretrained,)),
            Job(
                name=quantized_name(model, label, task, seed),
                call=quantize,
                arguments=(name, task, output),
                needs=(name,),
            ),
        ]
    return found


def job_name(model: str, label: str, task: str, seed: int) -> str:
    """What the job is called that scores a model, made in the way of `label`, on a task or on held-out text."""
    words = label.replace("(", "").replace(")", "").replace(",", "").replace(" ", "-")
    return f"{'teacher' if model == TEACHER_MODEL else 'student'}-{task}/{words}-{seed}"


def quantized_name(model: str, label: str, task: str, seed: int) -> str:
    """What the job is called that scores the same quantized."""
    return f"{QUANTIZED}/{job_name(model, label, task, seed)}"


def make_data(output: Path) -> dict[str, Any]:
    """Makes pretraining's examples, with held-out articles; counts."""
    from pocketbert.data.pretraining_manifest import PretrainingOptions
    from pocketbert.data.pretraining_run import write_pretraining_data
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

    found = write_pretraining_data(
        shared_data("text/enwiki2015-train.txt.xz"),
        WordPieceTokenizer(minilm() / "vocab.txt", lowercase=True, special_tokens_in_text="text"),
        _data(output),
        PretrainingOptions(max_length=MAX_LENGTH, dev_every=DEV_EVERY),
        shards=1,
        overwrite=True,
    )
    return dict(found.train)


def pretrain_teacher(output: Path) -> dict[str, Any]:
    """Pretrains the IB-BERT teacher; its scores on held-out text."""
    from pocketbert.distillation.pretraining import PretrainOptions, pretrain

    found = pretrain(
        model=TEACHER,
        data=_data(output),
        dev_data=_data(output) / "dev",
        output=output / "teacher",
        options=PretrainOptions(steps=TEACHER_STEPS, batch_size=BATCH_SIZE, learning_rate=RATE, bias_correction=True),
        run=_run_options(0, TEACHER_STEPS),
    )
    return _scored(found.metrics, {"seconds": found.seconds})


def make_student(arm: Arm, seed: int, output: Path) -> dict[str, Any]:
    """Makes one student; its scores on held-out text."""
    from pocketbert.distillation.methods.mobilebert import MobileBERTOptions
    from pocketbert.distillation.run import distill

    transfers = arm.strategy != "none"
    taught = transfers or "distillation" not in arm.without
    found = distill(
        method="mobilebert",
        student=STUDENT,
        output=output / job_name(STUDENT_MODEL, arm.label, TEXT, seed),
        teacher_directory=output / "teacher" / "model" if taught else None,
        pretraining=_data(output),
        dev_pretraining=_data(output) / "dev",
        options=MobileBERTOptions(
            strategy=arm.strategy,
            without=arm.without,
            max_length=MAX_LENGTH,
            transfer_steps=TRANSFER_STEPS,
            distillation_steps=UPDATES - TRANSFER_STEPS if transfers else UPDATES,
            transfer_batch_size=BATCH_SIZE,
            distillation_batch_size=BATCH_SIZE,
            transfer_learning_rate=TRANSFER_RATE,
            distillation_learning_rate=RATE,
            bias_correction=True,
        ),
        run=_run_options(seed, UPDATES),
    )
    return _scored(found.metrics, {"seconds": found.seconds})


def score_attention(student: str, output: Path) -> dict[str, Any]:
    """How near a student's attention is to the teacher's on held-out text: 1 where it is the same."""
    divergence = attention_divergence(output / "teacher" / "model", output / student / "model", _data(output) / "dev")
    return {
        "metrics": {"exp(-attention divergence)": math.exp(-divergence)},
        "examples": DIVERGENCE_BATCHES * TASK_BATCH_SIZE,
    }


def attention_divergence(teacher_directory: Path, student_directory: Path, data: Path) -> float:
    """KL of the student's attention from the teacher's in nats, mean over layers, heads and held-out tokens."""
    import tensorflow as tf

    import pocketbert as pb
    from pocketbert.data.pretraining import PretrainingData
    from pocketbert.distillation.losses import attention_transfer

    teacher, student = pb.load(teacher_directory), pb.load(student_directory)
    examples = PretrainingData.open(data)
    plan = examples.plan(batch_size=TASK_BATCH_SIZE, seed=0, epoch=0)[:DIVERGENCE_BATCHES]

    @tf.function(autograph=False, reduce_retracing=True)
    def divergence(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        inputs = {name: batch[name] for name in ("input_word_ids", "input_mask", "input_type_ids")}
        theirs, ours = (
            model.features(inputs, ["attention_logits"])["attention_logits"] for model in (teacher, student)
        )
        layers = [attention_transfer(*pair, inputs["input_mask"]) for pair in zip(theirs, ours, strict=True)]
        tokens = tf.cast(tf.reduce_sum(inputs["input_mask"]), tf.float32)
        return tf.stack([tf.add_n(layers) / len(layers) * tokens, tokens])

    batches = examples.dataset(plan, seed=0, epoch=0)
    total, tokens = sum(divergence(batch).numpy().astype(np.float64) for batch in batches)
    return float(total / tokens)


def finetune_on(pretrained: str, name: str, task: str, seed: int, output: Path) -> dict[str, Any]:
    """Fine-tunes a pretrained model; its metrics on the development set."""
    from pocketbert.training.loop import finetune
    from pocketbert.training.options import FinetuneOptions

    train, dev = _examples(task)
    options = FinetuneOptions(
        learning_rate=TASK_RATE,
        epochs=TASK_PASSES,
        batch_size=TASK_BATCH_SIZE,
        max_length=TASK_LENGTHS[task],
        seed=seed,
    )
    glue = GLUE[task]
    model = output / pretrained / "model"
    found = finetune(model, glue.task, train, dev, output / name, options, glue.metrics, glue.main_metric)
    return {"metrics": found.metrics, "examples": len(dev)}


def quantize(tuned: str, task: str, output: Path) -> dict[str, Any]:
    """Exports a fine-tuned model with int8 weights; the file's metrics on the development set."""
    _, dev = _examples(task)
    model, bundle = output / tuned / "model", output / QUANTIZED / tuned
    metrics = quantized_metrics(model, bundle, dev, GLUE[task].metrics, length=TASK_LENGTHS[task])
    return {"metrics": metrics, "examples": len(dev)}


def _run_options(seed: int, steps: int) -> Any:
    from pocketbert.distillation.run_options import RunOptions

    return RunOptions(seed=seed, evaluation_steps=steps, evaluation_batches=EVALUATION_BATCHES, checkpoint_seconds=300)


def _scored(metrics: Mapping[str, float], others: dict[str, Any]) -> dict[str, Any]:
    """Scores that are 1 at best: of a loss, what the right answer's probability is on the geometric mean."""
    kept = {name: value for name, value in metrics.items() if not name.endswith("_loss")}
    kept["exp(-masked-LM loss)"] = math.exp(-metrics["masked_lm_loss"])
    return {"metrics": kept, "examples": EVALUATION_BATCHES * 32, **others}


def _examples(task: str) -> tuple[Examples, Examples]:
    train, dev = (read_glue(task, shared_data("glue"), split) for split in ("train", "dev"))
    if task == "sst2":
        train = train.select(np.sort(np.random.default_rng(0).permutation(len(train))[:SST2_EXAMPLES]))
    return train, dev


def _data(output: Path) -> Path:
    return output / "pretraining-data"


def _shape(config: EncoderConfig) -> dict[str, Any]:
    names = ("num_layers", "hidden_size", "num_attention_heads", "head_size", "intermediate_size", "num_feed_forwards")
    return {name: getattr(config, name) for name in names} | {"block_size": config.block_size}


def settings() -> dict[str, Any]:
    """All that decides the table, as JSON values."""
    return {
        "teacher": _shape(TEACHER),
        "student": _shape(STUDENT),
        "tokens": MAX_LENGTH,
        "batch size": BATCH_SIZE,
        "teacher's updates": TEACHER_STEPS,
        "updates of a student": UPDATES,
        "of them transfer": TRANSFER_STEPS,
        "rates": {"pretraining and distillation": RATE, "transfer": TRANSFER_RATE},
        "examples of SST-2": SST2_EXAMPLES,
        "fine-tuning": [TASK_PASSES, TASK_RATE, TASK_BATCH_SIZE],
    }


def content(done: Mapping[str, Any]) -> results.ResultFile:
    """The scores of the jobs that are done."""
    accuracies = []
    if found := done.get("teacher"):
        accuracies += records(found, "teacher", TEACHER_MODEL, TEXT, HELD_OUT)
    rows: list[tuple[str, str, int, tuple[str, ...]]] = [(TEACHER_MODEL, "teacher", 0, TASKS)]
    rows += [(STUDENT_MODEL, arm.label, seed, (TEXT, ATTENTION, *TASKS)) for arm in ARMS for seed in SEEDS]
    for model, label, seed, tasks in rows:
        for task in tasks:
            split = DEVELOPMENT if task in TASKS else HELD_OUT
            for recipe, name in {TRAINED: job_name, QUANTIZED: quantized_name}.items():
                if found := done.get(name(model, label, task, seed)):
                    accuracies += records(found, seeds_label(label, seed), model, task, split, recipe)
    notes = [settings_note(settings())]
    return results.result_file("MobileBERT scaled down", quick=False, accuracies=accuracies, notes=notes)


def scored(read: results.ResultFile) -> dict[str, Any]:
    """Name of a job → its result, from a result file with these settings; else nothing.

    A file of scores holds no models: what a job that is missing needs is missing too.
    """
    found = scores_by_job(read, settings(), job_name) | scores_by_job(read, settings(), quantized_name, QUANTIZED)
    for job in reversed(jobs(Path())):
        if job.name not in found:
            for name in job.needs:
                found.pop(name, None)
    return found


EXPERIMENT = Experiment(
    result=RESULTS / "mobilebert.json",
    output="runs/experiment-mobilebert",
    settings=settings,
    jobs=jobs,
    content=content,
    scored=scored,
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT, sys.argv))
