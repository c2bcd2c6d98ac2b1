"""Training speed on SST-2's real lengths: length-bucketed batches against batches padded to 128 tokens.

    python -m studies ablations/bucketed_training [--quick]

One network (6 layers of 384, a classifier, random weights), one compiled training step (AdamW with clipping and
dropout), and two plans of the same examples in batches of 16. Timing includes `pocketbert.data.batches.dataset`, which
makes the batches of both plans. Rounds alternate, in alternating order. Each takes the next batches of its plan. The
ratio is the median of the rounds' ratios of examples per second.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pocketbert import progress
from pocketbert_bench import results
from studies.shared_data import shared_data

THREADS = 2
BATCH_SIZE = 16
FIXED_LENGTH = 128
# About the same duration on both sides, so that the machine's load is the same.
STEPS_A_ROUND = {"bucketed": 40, "fixed": 6}
TARGET = 3.0


def run(quick: bool) -> dict[str, Any]:
    """Times both plans.

    Args:
      quick: three rounds instead of eleven.

    Returns:
      Content of a result file: examples per second, bucketed against fixed, and the number of computed tokens per real
      token.

    Raises:
      UserError: the data are missing.
    """
    vocabulary = shared_data("vocab/bert-base-uncased.vocab.txt")
    os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["TF_NUM_INTEROP_THREADS"] = str(THREADS)
    import tensorflow as tf

    from pocketbert.data.batches import dataset, encode, plan_batches
    from pocketbert.data.glue import glue_task, read_glue
    from pocketbert.model import from_preset
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
    from pocketbert.training.optimizers import AdamW

    model = from_preset("minilmv2_6l_384d", task=[glue_task("sst2").task], seed=0)
    model.compile(AdamW(learning_rate=3e-5, weight_decay=0.01, clip_norm=1.0))
    train = read_glue("sst2", shared_data("glue"), "train")
    encoded = encode(train, WordPieceTokenizer(vocabulary), FIXED_LENGTH)

    def to_fixed_length(inputs: dict[str, tf.Tensor], labels: tf.Tensor) -> Any:
        rows = tf.size(labels)
        padded = {}
        for name, value in inputs.items():
            value = tf.pad(value, [[0, 0], [0, FIXED_LENGTH - tf.shape(value)[1]]])
            padded[name] = tf.ensure_shape(tf.reshape(value, [rows, FIXED_LENGTH]), [None, FIXED_LENGTH])
        return padded, labels

    plans = {
        "bucketed": plan_batches(encoded.lengths, batch_size=BATCH_SIZE, seed=0, epoch=0),
        # One bucket for all lengths: a plain shuffle.
        "fixed": plan_batches(encoded.lengths, batch_size=BATCH_SIZE, seed=0, epoch=0, bucket_multiple=FIXED_LENGTH),
    }
    batches = {name: dataset(encoded, plan) for name, plan in plans.items()}
    batches["fixed"] = batches["fixed"].map(to_fixed_length, num_parallel_calls=2).prefetch(4)
    steps = {
        name: tf.function(lambda batch: model.train_step(batch)["loss"], input_signature=[part.element_spec])
        for name, part in batches.items()
    }
    # Run every width once, because libraries prepare their kernels by shape.
    widths = set()
    for batch in batches["bucketed"].take(200):
        width = batch[0]["input_mask"].shape[1]
        if width not in widths:
            widths.add(width)
            steps["bucketed"](batch)

    seconds = _rounds(steps, {name: iter(part) for name, part in batches.items()}, rounds=3 if quick else 11)
    rates = {
        name: [BATCH_SIZE * STEPS_A_ROUND[name] / sample for sample in samples] for name, samples in seconds.items()
    }
    real = int(encoded.lengths.sum())
    computed = sum(encoded.batch(indices)[0]["input_mask"].size for indices in plans["bucketed"])
    ratio = results.ratio(
        name="bucketed training",
        description=f"training on SST-2's real lengths: buckets of 8 against a fixed {FIXED_LENGTH}, 6x384 classifier, "
        f"batch {BATCH_SIZE}, {THREADS} threads",
        ours="bucketed",
        peer=f"fixed {FIXED_LENGTH}",
        unit="examples/s",
        ours_samples=rates["bucketed"],
        peer_samples=rates["fixed"],
        better="higher",
        target=TARGET,
    )
    notes = [
        f"mean tokens per sentence: {np.mean(encoded.lengths):.2f}",
        f"computed tokens per real token: {computed / real:.2f} bucketed, {FIXED_LENGTH * len(train) / real:.2f} fixed",
        f"widths of the buckets: {', '.join(map(str, sorted(widths)))}",
    ]
    return results.to_json(results.result_file("bucketed training", quick=quick, ratios=[ratio], notes=notes))


def _rounds(
    steps: dict[str, Callable[[Any], Any]], batches: dict[str, Iterator[Any]], rounds: int
) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in progress.track(range(-1, rounds), "rounds", "round"):
        for name in ("bucketed", "fixed") if turn % 2 else ("fixed", "bucketed"):
            start = time.perf_counter()
            for batch in itertools.islice(batches[name], STEPS_A_ROUND[name]):
                loss = steps[name](batch)
            float(loss)
            # The first turn warms up.
            if turn >= 0:
                seconds[name].append(time.perf_counter() - start)
    return seconds
