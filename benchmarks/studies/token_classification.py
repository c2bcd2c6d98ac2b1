"""Span F1 of all-MiniLM-L6-v2, fine-tuned to find names in lower-cased text, and of its int8 bundle.

The sentences come from `names_corpus`. Run it with `python -m studies token_classification`; it takes about ten minutes
on two cores.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from pocketbert import data
from pocketbert.data.assets import minilm
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.finetune import finetune
from pocketbert.training.grids.published import PUBLISHED_HEAD
from pocketbert_bench import accuracy, results
from pocketbert_export.bundles.predictors import open_both
from pocketbert_export.exporter import export
from pocketbert_export.glue.scoring import labelled_evaluator
from studies.names_corpus import write_corpus
from studies.shared_data import shared_data

RECIPE = "dynamic_wi8"
_DOCUMENTS = 12
_QUICK_DOCUMENTS = 2
_NETWORK = "all-MiniLM-L6-v2"


def run(quick: bool) -> dict[str, Any]:
    """Fine-tunes, exports and scores both; returns the metrics."""
    source = shared_data("text/enwiki2015-train.txt.xz")
    documents = _QUICK_DOCUMENTS if quick else _DOCUMENTS
    accuracies: list[results.Accuracy] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train, dev = write_corpus(source, folder, documents)
        task = data.tagged(train, dev=dev)
        config = FinetuneConfig(**PUBLISHED_HEAD, epochs=1 if quick else 2, learning_rate=1e-4, max_length=64)
        trained = finetune(minilm(), task, folder / "run", config=config, run=RunConfig(evaluation_steps=100))
        bundle = export(trained.model_directory, folder / "bundle", recipe=RECIPE, examples=task.dev)
        for recipe, predictor in zip(
            ("float32 model", RECIPE), open_both(trained.model_directory, bundle.directory), strict=True
        ):
            scores = labelled_evaluator(predictor, task.dev).scores()
            accuracies += [
                accuracy.record(
                    label=f"{_NETWORK}, {recipe}",
                    model=_NETWORK,
                    recipe=recipe,
                    task="names",
                    split="dev.conll, a tenth",
                    metric=metric,
                    value=value,
                    examples=len(task.dev),
                    model_file=bundle.model_path if recipe == RECIPE else None,
                )
                for metric, value in scores.metrics.items()
            ]
        spans = (scores.classes or {})["by_label"]
        notes = [
            f"{len(task.train)} training and {len(task.dev)} dev sentences, from {documents} Wikipedia articles",
            "dev spans: " + ", ".join(f"{each['support']} {label}" for label, each in spans.items()),
        ]
    return results.to_json(
        results.result_file("names in lower-cased text", quick=quick, accuracies=accuracies, notes=notes)
    )
