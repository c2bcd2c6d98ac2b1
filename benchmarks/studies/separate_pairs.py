"""Which form of pairs suits a sentence encoder: both texts in one row, or one by one?

all-MiniLM is fine-tuned with the defaults in both forms: on 500 pairs of each task with three seeds, and on all pairs
of the task with one. A fifth of the pairs, at most 1,000, is the dev split, which selects the weights. GLUE's dev sets,
which no choice reads, give the scores. The study also says which form a linear fit on frozen features chooses, as
`pairs=auto` does. It takes about 40 minutes on two cores.

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
from pocketbert.training.finetune import plan_finetuning
from pocketbert_bench import accuracy, results
from studies.glue_examples import task_examples

TASKS = ("stsb", "mrpc", "rte")
FORMS: tuple[Literal["joint", "separate"], ...] = ("joint", "separate")
# Number of pairs, None for all → seeds.
_SEEDS: dict[int | None, tuple[int, ...]] = {500: (0, 1, 2), None: (0,)}
_DEV_SHARE, _MOST_DEV, _LENGTH = 5, 1000, 128


def run(quick: bool) -> dict[str, Any]:
    """Scores both forms for each task, number of pairs, and seed."""
    records: list[results.Accuracy] = []
    notes: list[str] = []
    cases = [(count, task, seed) for count, seeds in _SEEDS.items() for task in TASKS for seed in seeds]
    for count, task, seed in cases[:1] if quick else cases:
        data, test = _data(task, count, seed)
        name = f"{len(data.train) + len(data.dev):,} pairs, seed {seed}"
        options = pb.FinetuneConfig(max_length=_LENGTH, pairs="auto")
        plan = plan_finetuning(minilm(), data, options, pb.RunConfig(seed=seed))
        notes.append(f"{task}, {name}: the fit chooses {FORMS[plan.compared.separates_pairs]}")
        for form in FORMS:
            with tempfile.TemporaryDirectory() as folder:
                records.append(_record(task, name, data, test, seed, form, Path(folder)))
            log_info(f"{task}, {name}: {form}: {100 * records[-1].value:.1f}")
    return results.to_json(results.result_file("separate pairs", quick=quick, accuracies=records, notes=notes))


def _data(task: str, count: int | None, seed: int) -> tuple[TaskData, Any]:
    glue, (drawn, test) = GLUE[task], task_examples(task)
    order = np.random.default_rng(seed).permutation(len(drawn))[:count]
    dev, train = (drawn.select(np.sort(part)) for part in np.split(order, [min(len(order) // _DEV_SHARE, _MOST_DEV)]))
    return TaskData(task=glue.task, train=train, dev=dev, metrics=glue.metrics, main_metric=glue.main_metric), test


def _record(
    task: str, name: str, data: TaskData, test: Any, seed: int, form: Literal["joint", "separate"], folder: Path
) -> results.Accuracy:
    config, metric = pb.FinetuneConfig(max_length=_LENGTH, pairs=form), str(data.main_metric)
    network = pb.finetune(minilm(), data, folder / "run", config=config, run=pb.RunConfig(seed=seed)).model
    predictor = model_predictor(network, max_length=_LENGTH)
    return accuracy.record(
        label=name,
        model=form,
        recipe="float32",
        task=task,
        split=f"GLUE's dev set of {task}",
        metric=metric,
        value=predictor.evaluator(test, metrics=(metric,)).metrics("at the end")[metric],
        examples=len(test),
    )
