"""Quantization-aware training on SST-2: what two recipes lose before and after it, with three seeds.

    python -m studies.tasks.qat
    python -m studies.tables

The 6x384 network is fine-tuned on 2,000 sentences. Quantization-aware training continues from it for one epoch on the
same sentences. As a control, the same epoch runs without rounding. Files are scored on the development set, and
compared with their own float weights: `logit_rms` is the root mean square difference of the logits relative to theirs,
`equal_labels` the share of equal answers.

The gate takes no part, because the study measures what a recipe loses. Two jobs run in parallel, each in one thread.
Rerun the same command to resume; scores in the committed result file are reused if they were made with the same
settings.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pocketbert.data.assets import minilm
from pocketbert.training.published_grids import PUBLISHED_HEAD
from pocketbert_bench.quickstart_training import NETWORK
from pocketbert_export.quantize import INT4_BLOCKS
from studies.glue_examples import task_data, task_examples
from studies.jobs import StudyJob
from studies.sweep import Subject, Sweep, folder_name

TASK = "sst2"
SEEDS = (0, 1, 2)
EXAMPLES = 2000
EPOCHS, RATE = 2, 6e-5
QAT_EPOCHS, QAT_RATE = 1, 2e-5
BATCH_SIZE, LENGTH = 32, 64
CALIBRATION = 128
FULL: Literal["static_wi8_ai8_full"] = "static_wi8_ai8_full"
INT4 = "dynamic_wi4"
# How a file is made: weights rounded one by one, GPTQ, calibrated ranges, or the mean ranges of training batches.
NEAREST, GPTQ, CALIBRATED, BATCHES = "nearest", "GPTQ", "calibrated ranges", "mean ranges of batches"
FLOAT = "float"
# Trained without rounding: as long as the network itself, or as long as with rounding.
PLAIN, LONGER = "no", "one more epoch"
WEIGHTS = (PLAIN, LONGER, FULL, INT4)
# Recipe of the training (or PLAIN, LONGER), recipe of the file, and how it is made.
VARIANTS = (
    (PLAIN, FLOAT, ""),
    (PLAIN, FULL, CALIBRATED),
    (PLAIN, INT4, NEAREST),
    (PLAIN, INT4, GPTQ),
    (LONGER, FLOAT, ""),
    (LONGER, FULL, CALIBRATED),
    (LONGER, INT4, NEAREST),
    (LONGER, INT4, GPTQ),
    (FULL, FLOAT, ""),
    (FULL, FULL, CALIBRATED),
    (FULL, FULL, BATCHES),
    (INT4, FLOAT, ""),
    (INT4, INT4, NEAREST),
    (INT4, INT4, GPTQ),
)


def label_of(variant: tuple[str, str, str]) -> str:
    """Label of a variant's scores."""
    return " / ".join(part for part in variant if part)


def train(weights: str, seed: int, output: Path) -> dict[str, Any]:
    """Fine-tunes the network, or continues with or without quantization-aware training."""
    from pocketbert.training.config import FinetuneConfig, RunConfig
    from pocketbert.training.finetune import finetune

    is_plain = weights == PLAIN
    epochs, rate = (EPOCHS, RATE) if is_plain else (QAT_EPOCHS, QAT_RATE)
    config = FinetuneConfig(
        **PUBLISHED_HEAD, learning_rate=rate, epochs=epochs, batch_size=BATCH_SIZE, max_length=LENGTH
    )
    start = minilm() if is_plain else output / _trained(PLAIN, seed) / "model"
    qat: Any = weights if weights in (FULL, INT4) else "none"
    outcome = finetune(
        start,
        task_data(TASK, EXAMPLES),
        output / _trained(weights, seed),
        config=config,
        run=RunConfig(seed=seed, qat=qat),
    )
    return {"metrics": outcome.metrics, "seconds": outcome.seconds}


def score(weights: str, task: str, seed: int, output: Path) -> dict[str, Any]:
    """Scores all files of one network."""
    from pocketbert.encoder import INPUT_NAMES
    from pocketbert.model import from_pretrained
    from pocketbert_export.calibration import choose_texts, outputs_of
    from pocketbert_export.convert import to_tflite
    from pocketbert_export.graph_optimization import optimize_graph
    from pocketbert_export.graph_optimization_options import GraphOptimizations
    from pocketbert_export.length_buckets import bucket_by_length
    from pocketbert_export.recipes import get_recipe

    model = from_pretrained(output / _trained(weights, seed) / "model")
    train_examples, dev = task_examples(task, EXAMPLES)
    tokenizer = model.tokenizer
    assert tokenizer is not None
    floats = to_tflite(optimize_graph(model, GraphOptimizations()), [LENGTH], get_recipe("float32"))
    texts = choose_texts(train_examples, dev, tokenizer, [LENGTH], most=CALIBRATION)
    encoded = tokenizer(list(dev.texts), max_length=LENGTH)
    rows = {name: np.asarray(encoded[name]) for name in INPUT_NAMES}
    # One length, so the order stays.
    buckets = bucket_by_length(rows, [LENGTH], tokenizer.pad_token_id)
    expected = np.concatenate([rows["logits"] for rows in outputs_of(floats, buckets)])
    scores = []
    for variant in _variants(weights):
        received = expected
        if variant[1] != FLOAT:
            content = _quantized(floats, *variant[1:], texts)
            received = np.concatenate([rows["logits"] for rows in outputs_of(content, buckets)])
        answers = received.argmax(axis=-1)
        difference = np.sqrt(np.mean(np.square(received - expected)) / np.mean(np.square(expected)))
        metrics = {
            "accuracy": float(np.mean(answers == dev.labels)),
            "logit_rms": float(difference),
            "equal_labels": float(np.mean(answers == expected.argmax(axis=-1))),
        }
        scores.append({"label": label_of(variant), "metrics": metrics, "examples": len(dev)})
    return {"scores": scores}


def _quantized(floats: bytes, recipe: str, way: str, texts: Any) -> bytes:
    from pocketbert_export.int4_quantization import quantize_int4
    from pocketbert_export.static_quantization import quantize_static

    if recipe == INT4:
        return quantize_int4(floats, texts if way == GPTQ else None)
    if way == CALIBRATED:
        return quantize_static(floats, texts, recipe=FULL).content
    return _with_mean_ranges(floats, texts)


def _with_mean_ranges(content: bytes, texts: Any) -> bytes:
    """A static file with ranges as in training: minimum and maximum of each batch, averaged over the batches."""
    from pocketbert_export.calibration import ActivationHistograms, largest_per_channel
    from pocketbert_export.equalization import equalize, unequal
    from pocketbert_export.length_buckets import LengthBucket
    from pocketbert_export.quantize import layers, quantize
    from pocketbert_export.static_operators import every_operator, integer_operators

    dense = [position for position, name in layers(content).items() if name == "FULLY_CONNECTED"]
    content = equalize(content, unequal(largest_per_channel(content, texts.measured, dense)))
    chosen = integer_operators(content, dict.fromkeys(every_operator(content), "static_wi8_ai8"))
    (bucket,) = texts.measured
    batches = []
    for start in range(0, len(bucket.indices) - BATCH_SIZE + 1, BATCH_SIZE):
        part = slice(start, start + BATCH_SIZE)
        inputs = {name: rows[part] for name, rows in bucket.inputs.items()}
        batch = LengthBucket(length=bucket.length, indices=bucket.indices[part], inputs=inputs)
        batches.append(ActivationHistograms(content, [batch], chosen.measured).ranges("min_max"))
    means = {}
    for position in chosen.measured:
        low, high = np.mean([ranges[position] for ranges in batches], axis=0)
        means[position] = float(low), float(high)
    return quantize(content, chosen.formats, chosen.ranges(means))


def _trained(weights: str, seed: int) -> str:
    return f"trained/{folder_name(weights)}-{seed}"


def _variants(weights: str) -> list[tuple[str, str, str]]:
    return [variant for variant in VARIANTS if variant[0] == weights]


def settings() -> dict[str, Any]:
    """All settings that determine the scores, as JSON values."""
    return {
        "examples": EXAMPLES,
        "epochs": [EPOCHS, QAT_EPOCHS],
        "rates": [RATE, QAT_RATE],
        "batch size": BATCH_SIZE,
        "length": LENGTH,
        "calibration texts": CALIBRATION,
        "int4 blocks": sorted(set(INT4_BLOCKS.values())),
    }


def preparations(output: Path) -> list[StudyJob]:
    """Fine-tuning, and training with and without rounding that starts from it."""
    return [
        StudyJob(
            name=_trained(weights, seed),
            call=train,
            arguments=(weights, seed, output),
            needs=() if weights == PLAIN else (_trained(PLAIN, seed),),
        )
        for weights in WEIGHTS
        for seed in SEEDS
    ]


def _subject(weights: str) -> Subject:
    return Subject(
        model=NETWORK,
        label=weights,
        call=score,
        arguments=(weights,),
        needs=lambda task, seed: (_trained(weights, seed or 0),),
        labels=tuple(map(label_of, _variants(weights))),
    )


SWEEP = Sweep(
    result="tasks/qat",
    title="Quantization-aware training on SST-2",
    subjects=tuple(map(_subject, WEIGHTS)),
    tasks=(TASK,),
    seeds=SEEDS,
    settings=settings,
    preparations=preparations,
)

if __name__ == "__main__":
    sys.exit(SWEEP.main(sys.argv))
