"""Speed of distillation and size of its teacher cache: live teacher, cached teacher and, if installed, PyTorch.

    python -m studies against_transformers/distillation [--quick]

Runs TinyBERT's intermediate stage as `pocketbert distill` does: a teacher with BERT-base's shape, a student with
TinyBERT4's, the embedding, attention logits and hidden states of four layers, AdamW with decay and clipping, dropout in
the student, random weights, two threads. A step has 16 sequences; random ids all have 128 tokens. Timing includes the
run's own input pipeline. PyTorch computes the same (`pytorch_distillation`), eagerly and compiled, in float32 and under
its bfloat16 autocast, which has our bfloat16 as its partner.

On SST-2's real lengths, two plans of the same sentences read the same cache: batches of one length, and batches padded
to 128 tokens. The size of the cache includes every file in its folder.

Each round takes a few steps of each side, in alternating order; a ratio is the median over the rounds. "Reading" is
the cache's pipeline without a consumer, timed after the others.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketbert import progress
from pocketbert_bench import results
from studies.against_transformers import pytorch_process
from studies.against_transformers.pytorch_process import MODES
from studies.shared_data import shared_data

if TYPE_CHECKING:
    import tensorflow as tf

    from pocketbert.data.batches import EncodedExamples
    from pocketbert.data.teacher_cache.reader import TeacherCache
    from pocketbert.distillation.method import DistillationSpec
    from pocketbert.model import Model
    from pocketbert.training.stage import Stage

THREADS = 2
BATCH_SIZE = 16
LENGTH = 128
TEACHER = "bert_base_uncased"
STUDENT = "tinybert_4l_312d"
LABELS = ("negative", "positive")
_MODULE = "studies.against_transformers.pytorch_distillation"
# The live teacher, by the precision of a run.
LIVE = {"float32": "live", "bfloat16": "live, bfloat16"}
# About the same duration on every side of a round.
STEPS_A_ROUND = {**dict.fromkeys(LIVE.values(), 2), "stored": 8, **dict.fromkeys(MODES, 1), "bucketed": 12, "fixed": 3}
TARGETS = {"PyTorch eager": 2.2, "stored": 3.5, "reading": 1.0, "size": 1.03, "lengths": 3.0}
# Batches of random ids in the cache, and sentences of SST-2.
RANDOM_BATCHES = 3
SENTENCES = 1000

DistillationStep = Callable[[], Any]


@dataclass(frozen=True, kw_only=True)
class _Subject:
    """The teacher, loaded and as a folder, and its distillation stage."""

    teacher: Model
    directory: Path
    stage: Stage
    hidden_alone: Stage
    spec: DistillationSpec


def run(quick: bool) -> dict[str, Any]:
    """Times the steps and measures the cache, if `quick` in three rounds; a note tells if PyTorch is missing."""
    os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["TF_NUM_INTEROP_THREADS"] = str(THREADS)
    rounds = 3 if quick else 11
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subject = _subject(folder)
        distiller = _distiller(subject, "float32")
        ratios, notes = _steps(subject, distiller, folder, rounds)
        examples = _sentences(subject, SENTENCES // 5 if quick else SENTENCES)
        ratios.append(_size(subject, examples, folder))
        ratios.append(_lengths(subject, distiller, examples, folder, rounds))
    notes.append(
        f"{len(examples)} sentences of SST-2, {examples.lengths.mean():.2f} tokens in the mean, the longest "
        f"{examples.lengths.max()}"
    )
    return results.to_json(results.result_file("distillation", quick=quick, ratios=ratios, notes=notes))


def _steps(subject: _Subject, distiller: Any, folder: Path, rounds: int) -> tuple[list[Any], list[str]]:
    """Compares live teacher with PyTorch, and cache with live teacher, on sequences of full length."""
    from pocketbert.data.batches import dataset
    from pocketbert.data.teacher_cache.reader import TeacherCache

    examples = _random_examples(subject)
    store = TeacherCache.open(_dump(subject, subject.stage, examples, folder / "random"))
    plan = _plan(examples, epochs=range((rounds + 1) * max(STEPS_A_ROUND.values()) // RANDOM_BATCHES + 1))
    batches = {
        **dict.fromkeys(
            LIVE.values(), dataset(examples, plan).map(lambda inputs, labels: {**inputs, "labels": labels})
        ),
        "stored": store.dataset(examples, plan),
    }
    has_peer = importlib.util.find_spec("torch") is not None
    if not has_peer:
        del batches[LIVE["bfloat16"]]
    distillers = dict.fromkeys(batches, distiller)
    if has_peer:
        distillers[LIVE["bfloat16"]] = _distiller(subject, "bfloat16")
    steps = {name: _stepper(_compiled(distillers[name], part), part) for name, part in batches.items()}
    notes = []
    with contextlib.ExitStack() as stack:
        for mode in MODES if has_peer else ():
            arguments = (TEACHER, STUDENT, mode, BATCH_SIZE, LENGTH, THREADS)
            steps[mode] = stack.enter_context(pytorch_process.steps(_MODULE, *arguments, threads=THREADS))
        if not has_peer:
            notes.append("PyTorch is not installed, so it was not measured")
        rates = _rates(steps, rounds)
    described = (
        f"a step of TinyBERT's intermediate stage, {TEACHER} to {STUDENT}, {BATCH_SIZE} x {LENGTH}, {THREADS} threads"
    )
    rates["reading"] = _reading_rates(store.dataset(examples, plan), rounds)
    compared: list[tuple[str, str, float | None]] = [
        (LIVE[precision], mode, TARGETS.get(mode)) for mode, precision in MODES.items() if mode in rates
    ]
    compared += [("stored", "live", TARGETS["stored"]), ("reading", "stored", TARGETS["reading"])]
    ratios = [
        results.ratio(
            name=f"distillation step, {ours} against {peer}",
            description=described,
            ours=ours,
            peer=peer,
            unit="examples/s",
            ours_samples=rates[ours],
            peer_samples=rates[peer],
            better="higher",
            target=target,
        )
        for ours, peer, target in compared
    ]
    return ratios, notes


def _size(subject: _Subject, examples: EncodedExamples, folder: Path) -> Any:
    """Measures bytes per token of a cache with only the hidden states of four layers."""
    stored = _dump(subject, subject.hidden_alone, examples, folder / "hidden")
    total = sum(file.stat().st_size for file in stored.iterdir())
    layers = len(subject.hidden_alone.teacher_features["hidden_states"])
    width = subject.teacher.config.hidden_size
    return results.ratio(
        name="store, bytes a token",
        description=f"all files of a store of {layers} layers' hidden states, SST-2, against {layers} x {width} x 2",
        ours="store",
        peer="float16 numbers alone",
        unit="bytes/token",
        ours_samples=[total / int(examples.lengths.sum())],
        peer_samples=[layers * width * 2],
        better="lower",
        target=TARGETS["size"],
    )


def _lengths(subject: _Subject, distiller: Any, examples: EncodedExamples, folder: Path, rounds: int) -> Any:
    """Compares batches of one length with batches padded to `LENGTH`, both from one cache."""
    from pocketbert.data.teacher_cache.reader import TeacherCache

    store = TeacherCache.open(_dump(subject, subject.stage, examples, folder / "lengths"))
    # The remainder of an epoch is smaller and would distort a round.
    whole = len(examples) // BATCH_SIZE
    epochs = range((rounds + 1) * STEPS_A_ROUND["bucketed"] // whole + 1)
    batches = {
        "bucketed": store.dataset(examples, _plan(examples, epochs)),
        # One bucket for all lengths: a plain shuffle.
        "fixed": _padded(store, examples, _plan(examples, epochs, bucket_multiple=LENGTH)),
    }
    step = _compiled(distiller, batches["bucketed"])
    # Run every width once, because libraries prepare their kernels by shape.
    widths: set[int] = set()
    for data in batches["bucketed"].take(whole):
        width = data[0]["input_mask"].shape[1]
        if width not in widths:
            widths.add(width)
            step(data)
    rates = _rates({name: _stepper(step, part) for name, part in batches.items()}, rounds)
    return results.ratio(
        name="stored distillation, real lengths",
        description=f"steps from a store on SST-2's real lengths: buckets of 8 against a fixed {LENGTH}, batch "
        f"{BATCH_SIZE}, {THREADS} threads",
        ours="bucketed",
        peer="fixed",
        unit="examples/s",
        ours_samples=rates["bucketed"],
        peer_samples=rates["fixed"],
        better="higher",
        target=TARGETS["lengths"],
    )


def _subject(folder: Path) -> _Subject:
    from pocketbert.configs import TaskConfig
    from pocketbert.distillation.method import DistillationSpec
    from pocketbert.distillation.methods.tinybert import TinyBERT
    from pocketbert.model import from_preset
    from pocketbert.presets import preset
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

    progress.log_info(f"preparing the teacher, {TEACHER}")
    task = TaskConfig(kind="classification", name="sst2", labels=LABELS)
    tokenizer = WordPieceTokenizer(shared_data("vocab/bert-base-uncased.vocab.txt"))
    teacher = from_preset(TEACHER, task=[task], tokenizer=tokenizer, seed=0)
    teacher.save_pretrained(folder / "teacher")
    setting = DistillationSpec(teacher=teacher.config, student=preset(STUDENT).config, task=task, teacher_task=task)
    options = TinyBERT(max_length=LENGTH)
    hidden = TinyBERT(max_length=LENGTH, without=("embedding", "attention"))
    return _Subject(
        teacher=teacher,
        directory=folder / "teacher",
        stage=options.stages(setting)[0],
        hidden_alone=hidden.stages(setting)[0],
        spec=setting,
    )


def _distiller(subject: _Subject, precision: str) -> Any:
    from pocketbert.distillation.distiller import Distiller
    from pocketbert.distillation.initialization import initialize_adapters
    from pocketbert.distillation.methods.tinybert import TinyBERT
    from pocketbert.model import from_preset, from_pretrained
    from pocketbert.training.distribution import precision_policy
    from pocketbert.training.step import make_optimizer

    with precision_policy(precision):
        teacher = subject.teacher if precision == "float32" else from_pretrained(subject.directory)
        student = from_preset(STUDENT, task=teacher.tasks, seed=0)
        adapters = dict(TinyBERT(max_length=LENGTH).adapters(subject.spec))
    initialize_adapters(adapters, student.config.initializer_range, 0)
    distiller = Distiller(student, TinyBERT(), subject.stage, teacher=teacher, adapters=adapters)
    optimizer = make_optimizer(subject.stage, total_steps=10_000)
    distiller.compile(optimizer=optimizer)
    optimizer.build(list(distiller.trained_variables().values()))
    return distiller


def _compiled(distiller: Any, batches: tf.data.Dataset) -> Any:
    """The run's step, traced for any width; batches of the same names share it."""
    import tensorflow as tf

    return tf.function(lambda data: distiller.update(data)["loss"], input_signature=[batches.element_spec])


def _stepper(step: Any, batches: tf.data.Dataset) -> DistillationStep:
    stream = iter(batches)
    return lambda: step(next(stream))


def _rates(steps: dict[str, DistillationStep], rounds: int) -> dict[str, list[float]]:
    """Examples per second of each side, by round; the first round warms up."""
    rates: dict[str, list[float]] = {name: [] for name in steps}
    for turn in progress.track(range(-1, rounds), "rounds", "round"):
        for name in list(steps)[:: 1 if turn % 2 else -1]:
            start = time.perf_counter()
            for _ in range(STEPS_A_ROUND[name]):
                loss = steps[name]()
            float(loss)
            if turn >= 0:
                rates[name].append(BATCH_SIZE * STEPS_A_ROUND[name] / (time.perf_counter() - start))
    return rates


def _reading_rates(batches: tf.data.Dataset, rounds: int) -> list[float]:
    """Examples per second that the cache delivers without a consumer."""
    stream, rates = iter(batches), []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(STEPS_A_ROUND["stored"]):
            next(stream)
        rates.append(BATCH_SIZE * STEPS_A_ROUND["stored"] / (time.perf_counter() - start))
    return rates


def _random_examples(subject: _Subject) -> EncodedExamples:
    from pocketbert.data.batches import EncodedExamples

    random = np.random.default_rng(0)
    count = RANDOM_BATCHES * BATCH_SIZE
    return EncodedExamples(
        word_ids=random.integers(1000, 30_000, count * LENGTH).astype(np.int32),
        type_ids=np.zeros(count * LENGTH, np.int32),
        offsets=np.arange(0, count * LENGTH + 1, LENGTH, dtype=np.int64),
        labels=random.integers(0, len(LABELS), count).astype(np.int32),
        max_length=LENGTH,
        pad_token_id=subject.teacher.config.pad_token_id,
    )


def _sentences(subject: _Subject, count: int) -> EncodedExamples:
    from pocketbert.data.batches import encode
    from pocketbert.data.readers.glue import read_glue

    train = read_glue("sst2", shared_data("glue"), "train")
    chosen = np.random.default_rng(0).permutation(len(train))[:count]
    assert subject.teacher.tokenizer is not None
    return encode(train.select(chosen), subject.teacher.tokenizer, LENGTH)


def _dump(subject: _Subject, stage: Stage, examples: EncodedExamples, output: Path) -> Path:
    from pocketbert.distillation.cache_teacher import cache_targets
    from pocketbert.distillation.methods.tinybert import TinyBERT

    return cache_targets(subject.teacher, subject.directory, TinyBERT(), stage, examples, output)


def _plan(examples: EncodedExamples, epochs: Iterable[int], bucket_multiple: int = 8) -> list[np.ndarray]:
    """The full batches of some epochs, concatenated."""
    from pocketbert.data.batches import plan_batches

    plans = (
        plan_batches(examples.lengths, batch_size=BATCH_SIZE, seed=0, epoch=epoch, bucket_multiple=bucket_multiple)
        for epoch in epochs
    )
    return [indices for plan in plans for indices in plan if len(indices) == BATCH_SIZE]


def _padded(store: TeacherCache, examples: EncodedExamples, plan: list[np.ndarray]) -> tf.data.Dataset:
    """`store.dataset` with every batch padded to `LENGTH`."""
    import tensorflow as tf

    from pocketbert.data.batches import dataset

    like = store.dataset(examples, plan).element_spec
    types = [tf.float16] * len(store.targets)

    def join(data: Any, indices: tf.Tensor) -> Any:
        inputs = {name: tf.pad(value, [[0, 0], [0, LENGTH - tf.shape(value)[1]]]) for name, value in data[0].items()}
        arrays = tf.numpy_function(lambda rows: store.read(rows, LENGTH), [indices], types, stateful=False)
        stored = (tf.cast(array, tf.float32) for array in arrays)
        targets = {target.name: array for target, array in zip(store.targets, stored, strict=True)}
        return tf.nest.map_structure(
            lambda value, spec: tf.ensure_shape(value, spec.shape), ({**inputs, "labels": data[1]}, targets), like
        )

    pairs = tf.data.Dataset.zip((dataset(examples, plan), tf.data.Dataset.from_tensor_slices(np.stack(plan))))
    return pairs.map(join, num_parallel_calls=2, deterministic=True).prefetch(2)
