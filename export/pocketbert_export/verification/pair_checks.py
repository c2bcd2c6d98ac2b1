"""Check bundles for separate pairs: the answers for real pairs, and the head's file on every runtime."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from pocketbert.data.examples import Examples, LabelledData
from pocketbert.model import Model
from pocketbert.recipes import RECIPES, Bounds
from pocketbert.tasks.base import SupervisedTask
from pocketbert.tasks.registry import supervised_task
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.bundles.pair_head import text_encoder
from pocketbert_export.checks import outputs as checks
from pocketbert_export.checks.label_order import named
from pocketbert_export.checks.outputs import Check, ScoredOutputs
from pocketbert_export.tflite.runtimes import RuntimeRefused
from pocketbert_export.tflite.runtimes import run as run_on
from pocketbert_export.verification.default_texts import DEFAULT_TEXTS
from pocketbert_runtime.answers.embedding import OUTPUT
from pocketbert_runtime.bundles.pair_forward import FIRST, HEAD_FILE, HEAD_SIGNATURE, SECOND

# Each pair runs the file twice; so many pairs find a drop of half a point.
MOST_PAIRS = 1000


def check_pairs(
    bundle: Bundle,
    model: Model,
    examples: LabelledData | None,
    bounds: Bounds | None,
    runtimes: Iterable[str],
    *,
    metric: str | None,
    data_task: str | None,
) -> list[Check]:
    """Compares a bundle's answers for pairs with the float model's: differences, decisions and metric.

    Args:
      bundle: the bundle.
      model: the float model.
      examples: pairs; `MOST_PAIRS` evenly spaced ones run on LiteRT. None for pairs of built-in texts.
      bounds: limits on the differences; None for the recipe's.
      runtimes: runtimes for the head's file.
      metric: the metric's name; None for a task without one.
      data_task: the data's task name, if the bundle's task has no name or another one.
    """
    assert bundle.pair_task is not None
    bounds = bounds or RECIPES[bundle.recipe].bounds
    task = supervised_task(named(bundle.pair_task, data_task))
    rows = task.rows(examples or built_in_pairs(), bundle.tokenizer, max(bundle.lengths), MOST_PAIRS)
    reference, answers = model.forward(rows.encoded), bundle.predictor().forward(rows.encoded)
    results = checks.check_difference(reference, answers, bounds, "pairs", task)
    labels = checks.check_labels(task, reference["logits"], answers["logits"], bounds)
    results += [labels] if labels is not None else []
    if metric is not None and examples is not None and examples.labelled:
        model_score, bundle_score = (ScoredOutputs(*rows.score(outputs, metric)) for outputs in (reference, answers))
        results.append(checks.check_metric(metric, len(rows), model_score, bundle_score, bounds))
    return results + _check_head(bundle, model, task, runtimes)


def _check_head(bundle: Bundle, model: Model, task: SupervisedTask, runtimes: Iterable[str]) -> list[Check]:
    """Compares the head's file with the float model on vectors for built-in texts, on each runtime."""
    encoded = task.encode(built_in_pairs(), bundle.tokenizer, max(bundle.lengths), show_progress=False)
    vectors = text_encoder(model).forward(dataclasses.replace(encoded, rows_per_example=1))[OUTPUT]
    expected = model.forward(encoded)
    inputs = {HEAD_SIGNATURE: {FIRST: vectors[0::2], SECOND: vectors[1::2]}}
    reason = f"difference of {HEAD_FILE} from the float model's head on {len(encoded)} pairs, relative to the RMS"
    results = []
    for runtime in runtimes:
        try:
            answers = run_on(runtime, bundle.directory / HEAD_FILE, inputs).answers[HEAD_SIGNATURE]
        except RuntimeRefused as refusal:
            results.append(Check(name="head", passed=False, reason=str(refusal), runtime=runtime))
            continue
        largest, _ = checks.check_difference(expected, answers, RECIPES["float32"].bounds, "head", task)
        results.append(dataclasses.replace(largest, name="head", reason=reason, runtime=runtime))
    return results


def built_in_pairs() -> Examples:
    """Pairs each built-in text with the next one."""
    texts = list(DEFAULT_TEXTS)
    ids = [str(index) for index in range(len(texts) - 1)]
    return Examples(texts=texts[:-1], pairs=texts[1:], labels=None, ids=ids, source="pairs of built-in texts")
