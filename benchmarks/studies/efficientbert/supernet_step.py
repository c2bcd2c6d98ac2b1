"""A step of stage 3's learning supernet against a traced step of the standalone candidate.

    python -m studies efficientbert/supernet_step [--quick]

EfficientBERT's sizes (6 layers of 540) with random weights: losses on all hidden states and pre-softmax attention, with
dropout, clipping and AdamW, one thread. Both sides take the same candidates, drawn uniformly, in turn; a pair is a step
of each, in alternating order. Samples are seconds of processor time, which other programs on the machine hardly change.
Graphs exist before the first pair.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from pocketbert import progress
from pocketbert_bench import results

THREADS = 1
CANDIDATES = 2
# Batch size, length → target.
TARGETS = {(32, 128): 1.2, (16, 64): 1.4}
# Candidates that mix the layers of the others.
NEW_CANDIDATES, NEW_TARGET = 15, 5.0
PAIRS, QUICK_PAIRS = 8, 4
SUPERNET, STANDALONE = "supernet step", "standalone step"


def run(quick: bool) -> dict[str, Any]:
    """Times both steps.

    Args:
      quick: two layers of 60 and fewer pairs.

    Returns:
      Content of a result file.
    """
    pairs = QUICK_PAIRS if quick else PAIRS
    os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["TF_NUM_INTEROP_THREADS"] = str(THREADS)
    from pocketbert.checkpoints.supernet import supernet_config
    from pocketbert.feedforward import FeedForwardConfig
    from pocketbert.model import from_preset
    from pocketbert.presets import preset
    from pocketbert.search.sliced_adamw import SlicedAdamW
    from pocketbert.search.supernet_step import SupernetStep, draw_shapes, sliced_axes

    base = preset("efficientbert_stage2").config
    if quick:
        assert base.feedforward is not None
        feedforward = FeedForwardConfig(expressions=base.feedforward.expressions[:2])
        base = base.replace(
            num_layers=2, hidden_size=60, head_size=5, intermediate_size=60, vocab_size=97, feedforward=feedforward
        )
    config = supernet_config(base, keep_operations=True)
    candidates = [draw_shapes(config, seed=0, step=step) for step in range(CANDIDATES)]
    request = {"hidden_states": tuple(range(config.num_layers + 1))}
    request["attention_logits"] = request["hidden_states"][1:]
    model = from_preset(config, seed=0)
    optimizer = SlicedAdamW(1e-4, sliced_axes=sliced_axes(model), clip_norm=1.0)
    supernet = SupernetStep(model, optimizer, {"": _losses}, request)
    alone = [_standalone(config, shapes, request) for shapes in candidates]
    ratios = []
    for (batch_size, length), target in TARGETS.items():
        batch = _batch(batch_size, length, config.vocab_size)
        calls = [
            (functools.partial(supernet, shapes, batch), functools.partial(step, batch))
            for shapes, step in zip(candidates, alone, strict=True)
        ]
        ours, theirs = _seconds(calls, pairs)
        ratios.append(
            results.ratio(
                name=f"supernet step, {batch_size} x {length}",
                description=f"a step of the learning supernet ÷ a traced step of the same candidate alone, batch "
                f"{batch_size}, length {length}, {THREADS} thread, processor time",
                ours=SUPERNET,
                peer=STANDALONE,
                unit="s",
                ours_samples=ours,
                peer_samples=theirs,
                better="lower",
                target=target,
            )
        )
    # On the last, shortest batch.
    mixed = [tuple(pair[number >> layer & 1] for layer, pair in enumerate(zip(*candidates, strict=True)))
             for number in range(1, 1 + (2 if quick else NEW_CANDIDATES))]  # fmt: skip
    hourly = [
        (3600 / _processor_seconds(functools.partial(supernet, shapes, batch)), 3600 / _processor_seconds(alone_once))
        for shapes in mixed
        for alone_once in [functools.partial(_once, config, shapes, request, batch)]
    ]
    ratios.append(
        results.ratio(
            name="new candidates per hour",
            description=f"one step of a new candidate in the learning supernet, whose layers have graphs ÷ building, "
            f"tracing and one step of the candidate alone, batch {batch_size}, length {length}, processor time",
            ours=SUPERNET,
            peer="candidates alone",
            unit="candidates/h",
            ours_samples=[one for one, _ in hourly],
            peer_samples=[other for _, other in hourly],
            better="higher",
            target=NEW_TARGET,
        )
    )
    notes = [f"{pairs} pairs, {CANDIDATES} candidates in turn: {candidates}", results.RANDOM_WEIGHTS_NOTE]
    return results.to_json(
        results.result_file("EfficientBERT's supernet step", quick=quick, ratios=ratios, notes=notes)
    )


def _losses(features: Any, batch: Any, targets: Any) -> Any:
    """Mean squares of all features, as in general distillation with zeros for a teacher."""
    import tensorflow as tf

    del batch, targets
    terms = [tf.reduce_mean(tf.square(each)) for name in features for each in features[name]]
    return tf.stack([tf.add_n(terms)])


def _standalone(config: Any, shapes: Any, request: Any) -> Any:
    """The traced step of a candidate's own model."""
    import tensorflow as tf

    from pocketbert.feedforward import FeedForwardConfig, FeedForwardExpression, parse
    from pocketbert.model import from_preset
    from pocketbert.training.optimizers import AdamW

    trees = [parse(each).tree for each in config.feedforward.expressions]
    texts = [str(FeedForwardExpression(tree, *shape)) for tree, shape in zip(trees, shapes, strict=True)]
    model = from_preset(config.replace(feedforward=FeedForwardConfig(expressions=tuple(texts))), seed=0)
    # The pooler has no gradient.
    named = {name: each for name, each in model.named_variables().items() if "pooler" not in name}
    variables = list(named.values())
    optimizer = AdamW(1e-4, clip_norm=1.0, named_variables=named)
    optimizer.build(variables)

    @tf.function(autograph=False, reduce_retracing=True)
    def step(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = _losses(model.features(batch, request, training=True), batch, {})
            loss = losses[0]
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return losses

    return step


def _once(config: Any, shapes: Any, request: Any, batch: Any) -> Any:
    """Builds, traces and trains a candidate for one step."""
    return _standalone(config, shapes, request)(batch)


def _batch(batch_size: int, length: int, vocab_size: int) -> dict[str, Any]:
    import tensorflow as tf

    ids = np.random.default_rng(0).integers(1, vocab_size, [batch_size, length])
    return {
        "input_word_ids": tf.constant(ids, tf.int32),
        "input_mask": tf.ones([batch_size, length], tf.int32),
        "input_type_ids": tf.zeros([batch_size, length], tf.int32),
    }


def _seconds(calls: list[Any], pairs: int) -> tuple[list[float], list[float]]:
    seconds: tuple[list[float], list[float]] = ([], [])
    warm_up = 2 * len(calls)
    for turn in progress.track(range(-warm_up, pairs), "pairs", "pair"):
        for side in (0, 1) if turn % 2 else (1, 0):
            taken = _processor_seconds(calls[turn % len(calls)][side])
            if turn >= 0:
                seconds[side].append(taken)
    return seconds


def _processor_seconds(step: Callable[[], Any]) -> float:
    """Processor time of a step until its loss is known."""
    start = time.process_time()
    float(step()[0])
    return time.process_time() - start
