"""What do 20,000 sentences without labels add to 500 labelled ones?

For each of three seeds, all-MiniLM is fine-tuned on 500 sentences of SST-2; a fifth of them is the dev split, which
selects the weights. A student with three of the teacher's layers learns the teacher's predictions, once on the 400
other sentences alone, and once on 20,000 more without labels; both take the same number of steps of 32 sentences.
SST-2's 872 dev sentences, which no choice reads, give the scores. The study takes about 15 minutes on two cores.

    python -m studies unlabelled_texts
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import pocketbert as pb
from pocketbert.data.assets import minilm
from pocketbert.data.examples import Examples
from pocketbert.data.readers.glue import GLUE
from pocketbert.data.task_data import TaskData
from pocketbert.progress import log_info
from pocketbert.tasks.predictor import model_predictor
from pocketbert_bench import accuracy, results
from studies.glue_examples import task_examples

SEEDS, LABELLED, UNLABELLED, STEPS = (0, 1, 2), 500, 20_000, 600
TEACHER, ALONE, MORE = "the teacher", "labelled texts alone", "with unlabelled texts"
# Points of the student with unlabelled texts above the one without.
LEAST_GAIN = 1.0
_DEV, _LENGTH, _QUICK_STEPS = 100, 64, 20
_LAYERS = (2, 4, 6)
# More passes than either student needs for its steps.
_EPOCHS = 100


def run(quick: bool) -> dict[str, Any]:
    """Scores the teacher and both students for each seed."""
    seeds, steps = (SEEDS[:1], _QUICK_STEPS) if quick else (SEEDS, STEPS)
    records: list[results.Accuracy] = []
    with tempfile.TemporaryDirectory() as name:
        for seed in seeds:
            for model, network in _networks(seed, steps, Path(name, str(seed))).items():
                records.append(_record(f"seed {seed}", model, network))
                log_info(f"{records[-1].label}: {model}: {100 * records[-1].value:.1f}")
    scores = {model: np.array([each.value for each in records if each.model == model]) for model in (ALONE, MORE)}
    gains = 100 * (scores[MORE] - scores[ALONE])
    by_seed = ", ".join(f"{gain:.1f}" for gain in gains)
    note = f"points gained: {gains.mean():.1f} as a mean over seeds ({by_seed}); the target is at least {LEAST_GAIN:g}"
    return results.to_json(results.result_file("texts without labels", quick=quick, accuracies=records, notes=[note]))


def _networks(seed: int, steps: int, folder: Path) -> dict[str, pb.Model]:
    """The teacher and both students of a seed."""
    drawn, _ = task_examples("sst2", LABELLED + UNLABELLED)
    order = np.random.default_rng(seed).permutation(len(drawn))
    dev, train, others = (drawn.select(np.sort(part)) for part in np.split(order, [_DEV, LABELLED]))
    data = TaskData(task=GLUE["sst2"].task, train=train, dev=dev, metrics=("accuracy",), main_metric="accuracy")
    config, run_options = pb.FinetuneConfig(max_length=_LENGTH), pb.RunConfig(seed=seed)
    teacher = pb.finetune(minilm(), data, folder / "teacher", config=config, run=run_options)
    networks = {TEACHER: teacher.model}
    method = pb.TinyBERT(
        max_length=_LENGTH,
        without=("embedding", "transformer"),
        prediction_epochs=_EPOCHS,
        prediction_learning_rate=1e-4,
    )
    shortened = dataclasses.replace(run_options, max_steps=steps, evaluation_steps=steps // 4)
    more = pb.data.with_unlabelled(data, [{"text": text} for text in others.texts])
    for model, examples in ((ALONE, data), (MORE, more)):
        networks[model] = pb.distill(
            pb.TeacherLayers(_LAYERS),
            examples,
            folder / model.replace(" ", "-"),
            teacher=teacher.model_directory,
            method=method,
            run=shortened,
        ).model
    return networks


def _record(label: str, model: str, network: pb.Model) -> results.Accuracy:
    test: Examples = task_examples("sst2")[1]
    metrics = model_predictor(network, max_length=_LENGTH).evaluator(test, metrics=("accuracy",)).metrics("at the end")
    return accuracy.record(
        label=label,
        model=model,
        recipe="float32",
        task="sst2",
        split="SST-2's dev set",
        metric="accuracy",
        value=metrics["accuracy"],
        examples=len(test),
    )
