"""Do sentence encoders learn more from 500 pairs if they read the two texts one by one?

For each of three seeds, all-MiniLM is fine-tuned on 500 pairs of STS-B with the defaults, jointly and separately; a
fifth of the pairs is the dev split, which selects the weights. GLUE's dev set, which no choice reads, gives the scores.
The study takes about five minutes on two cores.

    python -m studies separate_pairs
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Literal

import numpy as np

import pocketbert as pb
from pocketbert.data.assets import minilm
from pocketbert.data.readers.glue import GLUE
from pocketbert.data.task_data import TaskData
from pocketbert.progress import log_info
from pocketbert.tasks.predictor import model_predictor
from pocketbert_bench import accuracy, results
from studies.glue_examples import task_examples

TASK, SEEDS, LABELLED = "stsb", (0, 1, 2), 500
FORMS: tuple[Literal["joint", "separate"], ...] = ("joint", "separate")
_DEV, _LENGTH = 100, 128


def run(quick: bool) -> dict[str, Any]:
    """Scores both forms for each seed."""
    records: list[results.Accuracy] = []
    for seed in SEEDS[:1] if quick else SEEDS:
        for form in FORMS:
            with tempfile.TemporaryDirectory() as folder:
                records.append(_record(TASK, seed, form, Path(folder)))
            log_info(f"{records[-1].label}: {form}: {100 * records[-1].value:.1f}")
    return results.to_json(results.result_file("separate pairs", quick=quick, accuracies=records))


def _record(task: str, seed: int, form: Literal["joint", "separate"], folder: Path) -> results.Accuracy:
    glue, (drawn, test) = GLUE[task], task_examples(task)
    order = np.random.default_rng(seed).permutation(len(drawn))[:LABELLED]
    dev, train = (drawn.select(np.sort(part)) for part in np.split(order, [_DEV]))
    metric = glue.main_metric
    data = TaskData(task=glue.task, train=train, dev=dev, metrics=glue.metrics, main_metric=metric)
    config = pb.FinetuneConfig(max_length=_LENGTH, pairs=form)
    network = pb.finetune(minilm(), data, folder / "run", config=config, run=pb.RunConfig(seed=seed)).model
    predictor = model_predictor(network, max_length=_LENGTH)
    return accuracy.record(
        label=f"seed {seed}",
        model=form,
        recipe="float32",
        task=task,
        split=f"GLUE's dev set of {task}",
        metric=metric,
        value=predictor.evaluator(test, metrics=(metric,)).metrics("at the end")[metric],
        examples=len(test),
    )
