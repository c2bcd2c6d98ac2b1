"""Time of a training step with frozen lowest layers, beside the same step that trains all weights.

The networks have 6 layers of 384, as all-MiniLM-L6-v2, or of 768, as DistilBERT. A batch has 32 texts of 64 tokens,
with dropout. The steps of both kinds alternate in one process. The target is for the time on the clock. The time that
the processors spend on a step, which other programs hardly change, is beside it. Close other programs first.

    python -m studies frozen_layers
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pocketbert.configs import EncoderConfig
from pocketbert_bench import results

BATCH, LENGTH = 32, 64
# Pairs of steps for each network.
PAIRS = {"minilmv2_6l_384d": 9, "minilmv2_6l_768d": 5}
FREEZE = ("embeddings", "layers:1-3")
MOST_TIME = 0.7
_QUICK_BATCH, _QUICK_PAIRS = 2, 3
_FROZEN, _WHOLE = f"--freeze={','.join(FREEZE)}", "all weights trained"


def run(quick: bool) -> dict[str, Any]:
    """Measures the ratios of both steps for each network."""
    ratios = []
    for network, pairs in PAIRS.items():
        ratios += _ratios(network, *((_QUICK_BATCH, _QUICK_PAIRS) if quick else (BATCH, pairs)))
    return results.to_json(results.result_file("frozen layers", quick=quick, ratios=ratios))


def _ratios(network: str, batch: int, pairs: int) -> list[results.Ratio]:
    from pocketbert.presets import preset

    config = preset(network).config
    size = f"{config.num_layers} layers of {config.hidden_size}"
    processor, clock = _seconds(config, batch, pairs)
    kinds: list[tuple[str, str, dict[str, list[float]], float | None]] = [
        ("step", "seconds of a training step", clock, MOST_TIME),
        ("processor", "processor seconds of a training step", processor, None),
    ]
    return [
        results.ratio(
            name=f"{name}_{network}",
            description=f"{description}, {size}",
            ours=_FROZEN,
            peer=_WHOLE,
            unit="s",
            ours_samples=seconds[_FROZEN],
            peer_samples=seconds[_WHOLE],
            better="lower",
            target=target,
        )
        for name, description, seconds, target in kinds
    ]


def _seconds(config: EncoderConfig, batch: int, pairs: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of all threads and of the clock, for steps in turns; two steps of each kind warm up."""
    steps = {name: _step(config, patterns, batch) for name, patterns in ((_FROZEN, FREEZE), (_WHOLE, ()))}
    processor: dict[str, list[float]] = {name: [] for name in steps}
    clock: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(2 + pairs):
        for name in list(steps) if turn % 2 else reversed(steps):
            begin = time.process_time(), time.perf_counter()
            steps[name]()
            if turn > 1:
                processor[name].append(time.process_time() - begin[0])
                clock[name].append(time.perf_counter() - begin[1])
    return processor, clock


def _step(config: EncoderConfig, patterns: tuple[str, ...], batch: int) -> Callable[[], float]:
    """A training step of a classifier on random tokens, with these weights frozen."""
    import numpy as np
    import tensorflow as tf

    import pocketbert as pb
    from pocketbert.training.frozen_weights import FrozenWeights, freeze, frozen_paths
    from pocketbert.training.objectives.finetuning import Finetuning, finetuning_stage
    from pocketbert.training.step import TrainingModel

    task = pb.TaskConfig(kind="classification", labels=("a", "b"))
    model = pb.from_preset(config, task)
    paths = frozen_paths(FrozenWeights(), patterns, config, (task,), new_head=None)
    (stage,) = freeze((finetuning_stage(pb.FinetuneConfig(learning_rate=1e-5), task),), paths, config, (task,))
    training = TrainingModel(model, Finetuning(), stage)
    training.compile(training.make_optimizer(100))
    function = tf.function(training.update, autograph=False, reduce_retracing=True)
    ids = np.random.default_rng(0).integers(1000, 20_000, [batch, LENGTH]).astype(np.int32)
    elements = {
        "input_word_ids": tf.constant(ids),
        "input_mask": tf.ones_like(ids),
        "input_type_ids": tf.zeros_like(ids),
        "labels": tf.constant(ids[:, 0] % 2),
    }
    return lambda: float(function(elements)["loss"])
