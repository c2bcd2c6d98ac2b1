"""Speed of a training step against transformers' TensorFlow class and, if installed, PyTorch's.

    python -m studies against_transformers/training [--quick]

All have the same architecture (6 layers of 384, vocabulary 30,522, a two-class head, random weights), the same 16
sequences of 128 tokens, dropout of 0.1 and two threads. Ours is the step of `pocketbert finetune`: AdamW with decay,
clipping and a schedule, traced for any shape; with `bfloat16`, as with `--precision=bfloat16`. The baselines do less:
plain Adam, no decay, no clipping; TensorFlow's step is traced for this one shape, and so is that of PyTorch if
`torch.compile` compiles it. PyTorch's bfloat16 is its autocast. Each round takes a few steps of each, in alternating
order; a ratio is the median over the rounds of the baseline's seconds ÷ ours.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from pocketbert import progress
from pocketbert.configs import EncoderConfig
from pocketbert_bench import results
from studies.against_transformers import pytorch_process
from studies.against_transformers.pytorch_process import MODES, bert_config

THREADS = 2
BATCH_SIZE = 16
LENGTH = 128
STEPS_A_ROUND = 3
PRESET = "minilmv2_6l_384d"
LABELS = ("negative", "positive")

OURS = {"float32": "pocketbert", "bfloat16": "pocketbert, bfloat16"}
# Baseline → precision of ours, and target of our speed ÷ the baseline's.
PEERS = {"transformers TF": "float32"} | MODES
TARGETS = {"transformers TF": 1.0, "PyTorch eager": 2.0}

_MODULE = "studies.against_transformers.pytorch_training"

FinetuningStep = Callable[[], float]


def run(quick: bool) -> dict[str, Any]:
    """Times the steps in examples per second, if `quick` in three rounds; a note names a missing baseline."""
    os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["TF_NUM_INTEROP_THREADS"] = str(THREADS)
    random = np.random.default_rng(0)
    ids = random.integers(1000, 30000, [BATCH_SIZE, LENGTH]).astype(np.int32)
    labels = random.integers(0, len(LABELS), BATCH_SIZE).astype(np.int32)
    makers: dict[str, Callable[[np.ndarray, np.ndarray], FinetuningStep]] = {
        **{name: functools.partial(our_step, PRESET, precision) for precision, name in OURS.items()},
        "transformers TF": functools.partial(transformers_step, PRESET),
    }
    notes = []
    with contextlib.ExitStack() as stack:
        steps = {}
        for name, make in makers.items():
            progress.log_info(f"preparing {name}")
            steps[name] = make(ids, labels)
        if importlib.util.find_spec("torch"):
            for mode in MODES:
                arguments = (PRESET, mode, BATCH_SIZE, LENGTH, len(LABELS), THREADS)
                steps[mode] = stack.enter_context(pytorch_process.steps(_MODULE, *arguments, threads=THREADS))
        else:
            notes.append("PyTorch is not installed, so it was not measured")
        for name, step in steps.items():
            progress.log_info(f"first steps of {name}")
            for _ in range(3):
                step()
        seconds = seconds_of_rounds(steps, rounds=3 if quick else 30)
    rates = {name: [BATCH_SIZE / sample for sample in samples] for name, samples in seconds.items()}
    ratios = [
        results.ratio(
            name=f"training step, {peer}",
            description=f"a step with its update, 6x384 classifier, batch {BATCH_SIZE} x {LENGTH}, {THREADS} threads",
            ours=OURS[precision],
            peer=peer,
            unit="examples/s",
            ours_samples=rates[OURS[precision]],
            peer_samples=rates[peer],
            better="higher",
            target=TARGETS.get(peer),
        )
        for peer, precision in PEERS.items()
        if peer in rates
    ]
    return results.to_json(results.result_file("training step", quick=quick, ratios=ratios, notes=notes))


def seconds_of_rounds(steps: dict[str, FinetuningStep], rounds: int) -> dict[str, list[float]]:
    """Seconds of a step in each round, by name; the order alternates."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in progress.track(range(rounds), "rounds", "round"):
        for name in list(steps)[:: 1 if turn % 2 else -1]:
            start = time.perf_counter()
            for _ in range(STEPS_A_ROUND):
                steps[name]()
            seconds[name].append((time.perf_counter() - start) / STEPS_A_ROUND)
    return seconds


def our_step(network: str | EncoderConfig, precision: str, ids: np.ndarray, labels: np.ndarray) -> FinetuningStep:
    """A step of `pocketbert finetune` with a preset or an architecture, which returns the loss."""
    import tensorflow as tf

    from pocketbert.configs import TaskConfig
    from pocketbert.model import from_preset
    from pocketbert.training.distribution import precision_policy
    from pocketbert.training.optimizers import AdamW
    from pocketbert.training.schedules import LinearSchedule

    with precision_policy(precision):
        model = from_preset(network, task=[TaskConfig(kind="classification", labels=LABELS)], seed=0)
        schedule = LinearSchedule(3e-5, total_steps=10_000, warmup_steps=100)
        model.compile(AdamW(schedule, clip_norm=1.0))
    inputs = {
        "input_word_ids": tf.constant(ids),
        "input_mask": tf.ones_like(ids),
        "input_type_ids": tf.zeros_like(ids),
    }
    batch = (inputs, tf.constant(labels))
    any_shape = ({name: tf.TensorSpec([None, None], tf.int32) for name in inputs}, tf.TensorSpec([None], tf.int32))
    step = tf.function(lambda batch: model.train_step(batch)["loss"], input_signature=[any_shape])
    return lambda: float(step(batch))


def transformers_step(preset: str, ids: np.ndarray, labels: np.ndarray, **fields: Any) -> FinetuningStep:
    """A step of transformers' TensorFlow class with a preset's architecture; `fields` replaces values of its config."""
    import tensorflow as tf
    from transformers import TFBertForSequenceClassification

    from pocketbert._keras import tf_keras

    model = TFBertForSequenceClassification(bert_config(preset, num_labels=len(LABELS), **fields))
    optimizer = tf_keras.optimizers.Adam(3e-5)
    inputs = {
        "input_ids": tf.constant(ids),
        "attention_mask": tf.ones_like(ids),
        "token_type_ids": tf.zeros_like(ids),
        "labels": tf.constant(labels),
    }
    model(inputs, training=False)

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(inputs, training=True).loss)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    return lambda: float(step())
