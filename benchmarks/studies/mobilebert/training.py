"""MobileBERT's training steps against tf-models-official's: masked LM, and transfer from IB-BERT.

    python -m studies mobilebert/training [--quick]

Both sides have the same architectures (MobileBERT as released, IB-BERT large as teacher, new weights), the same 8
sequences of 128 tokens, two threads, the dropout of each model's configuration, and LAMB with decay and a global norm
of 1. All compute in float32 in a graph, except for a row with our teacher's forward pass in bfloat16.

- *masked LM*: MobileBERT with its masked-LM head at 15 % of the positions, forward, backward, update.
- *transfer*: teacher forward, student forward and backward, update; the loss is feature maps in the authors' decomposed
  form and attention, of every layer. tf-models-official's task calls both models with `training=True`, so its teacher
  uses dropout: it is timed with and without. Its loss takes a softmax of the attention probabilities; ours takes that
  of the logits.

Each round takes a step of each side, in alternating order; a ratio is the median over the rounds.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

from pocketbert import progress
from pocketbert_bench import results
from studies.mobilebert import model_garden as model_garden
from studies.mobilebert import shapes as setting
from studies.mobilebert.shapes import Shape

SHAPE = Shape()
OURS, OURS_BFLOAT16 = "pocketbert", "pocketbert, teacher in bfloat16"
PEER, PEER_WITHOUT = "tf-models-official", "tf-models-official, teacher without dropout"
# Step → (ours, baseline) → target of our speed ÷ the baseline's; None if the formats differ.
TARGETS: dict[str, dict[tuple[str, str], float | None]] = {
    "masked LM": {(OURS, PEER): 1.0},
    "transfer": {(OURS, PEER): 1.3, (OURS, PEER_WITHOUT): 1.3, (OURS_BFLOAT16, PEER_WITHOUT): None},
}

Step = Callable[[], Any]


def run(quick: bool) -> dict[str, Any]:
    """Times the steps.

    Args:
      quick: three rounds instead of fifteen.

    Returns:
      Content of a result file.
    """
    setting.use_threads()
    created = results.now()
    batch = setting.batch(SHAPE)
    ratios = []
    for name, make in (("masked LM", _masked_lm), ("transfer", _transfer)):
        progress.log_info(f"preparing the steps of {name}, {SHAPE}")
        rates = _rates(make(batch), rounds=3 if quick else 15)
        ratios += [
            results.ratio(
                name=f"{name}, {ours} against {peer}",
                description=f"a step of {name} with its update, {SHAPE}, {setting.THREADS} threads",
                ours=ours,
                peer=peer,
                unit="examples/s",
                ours_samples=rates[ours],
                peer_samples=rates[peer],
                better="higher",
                target=target,
            )
            for (ours, peer), target in TARGETS[name].items()
        ]
    return results.to_json(
        results.result_file("MobileBERT's training steps", quick=quick, ratios=ratios, created=created)
    )


def _masked_lm(batch: dict[str, Any]) -> dict[str, Step]:
    student = setting.config(setting.STUDENT, SHAPE)
    return {OURS: _our_training_step(batch), PEER: model_garden.training_step(student, batch)}


def _transfer(batch: dict[str, Any]) -> dict[str, Step]:
    import tensorflow as tf

    teacher, student = (setting.config(name, SHAPE) for name in (setting.TEACHER, setting.STUDENT))
    steps = {
        OURS: our_transfer_step(SHAPE),
        OURS_BFLOAT16: our_transfer_step(SHAPE, teacher_precision="bfloat16"),
        PEER: model_garden.transfer_step(teacher, student, teacher_dropout=True),
        PEER_WITHOUT: model_garden.transfer_step(teacher, student, teacher_dropout=False),
    }
    return {name: tf.function(functools.partial(step, batch)) for name, step in steps.items()}


def _our_training_step(batch: dict[str, Any]) -> Step:
    import tensorflow as tf

    from pocketbert.configs import TaskConfig
    from pocketbert.model import from_preset
    from pocketbert.training.optimizers import LAMB

    model = from_preset(setting.config(setting.STUDENT, SHAPE), task=[TaskConfig(kind="masked_lm")], seed=0)
    optimizer = LAMB(setting.LEARNING_RATE, weight_decay=setting.WEIGHT_DECAY, clip_norm=setting.CLIP_NORM)
    model.compile(optimizer)
    optimizer.build(model.trainable_variables)
    data = ({name: value for name, value in batch.items() if name != "masked_lm_labels"}, batch["masked_lm_labels"])
    return tf.function(lambda: model.train_step(data)["loss"])


def our_transfer_step(shape: Shape, *, teacher_precision: str = "float32") -> Callable[[Mapping[str, Any]], Any]:
    """Our step of transfer, with new weights.

    Args:
      shape: layers of both networks, and the maximum number of tokens.
      teacher_precision: number format of the teacher's forward pass.

    Returns:
      A step on a batch of inputs, for `tf.function`; it returns its loss.
    """
    from pocketbert.distillation.distiller import Distiller
    from pocketbert.model import from_preset
    from pocketbert.training.distribution import precision_policy
    from pocketbert.training.step import make_optimizer

    method, stage = setting.transfer(shape)
    with precision_policy(teacher_precision):
        teacher = from_preset(setting.config(setting.TEACHER, shape), seed=1)
    student = from_preset(setting.config(setting.STUDENT, shape), seed=0)
    distiller = Distiller(student, method, stage, teacher=teacher)
    distiller.compile(optimizer=make_optimizer(stage, total_steps=10_000))
    return lambda batch: distiller.update(batch)["loss"]


def _rates(steps: dict[str, Step], rounds: int) -> dict[str, list[float]]:
    """Examples per second of each side, by round; the first rounds trace and warm up."""
    rates: dict[str, list[float]] = {name: [] for name in steps}
    for turn in progress.track(range(-2, rounds), "rounds", "round"):
        for name in list(steps)[:: 1 if turn % 2 else -1]:
            start = time.perf_counter()
            float(steps[name]())
            if turn >= 0:
                rates[name].append(SHAPE.batch_size / (time.perf_counter() - start))
    return rates
