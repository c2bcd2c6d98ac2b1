"""The 6x384 network on tasks of GLUE, XNLI and questions: float model against the int8 bundle.

    python -m studies.tasks.accuracy --minutes=60
    python -m studies.tables

Each task has one run with untuned settings, because the study measures the loss from the export, not the best possible
score. Model and bundle predict the same examples, in windows and lengths of the same size, and are scored as in
`pocketbert evaluate`. QNLI and XNLI (English only) have no training examples here: four fifths of their development
examples are for training, and the rest is scored. TyDi QA has no development answers: a fifth of its training questions
replaces them. SQuAD 2.0's part is too small to learn spans, so its model starts from that of SQuAD 1.1; from the
pretrained network it left every question unanswered.

The baseline is the most frequent label, or no answer to any question. A model with that score has learned nothing, and
its bundle has nothing to lose.

Two jobs run in parallel, each in one thread. Rerun the same command to resume; scores in the committed result file are
reused if they were made with the same settings.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

from pocketbert.configs import TaskConfig
from pocketbert.data.assets import minilm
from pocketbert.data.readers.glue import GLUE, read_glue
from pocketbert.training.grids.published import PUBLISHED_HEAD
from pocketbert_bench.quickstart_training import NETWORK
from studies.glue_examples import majority_label_metrics
from studies.jobs import StudyJob
from studies.quantized import QUANTIZED, export_quantized
from studies.shared_data import shared_data
from studies.sweep import DEVELOPMENT_SET, NOBODY, TRAINED, Subject, Sweep

SEED = 0
MAJORITY = "most frequent label, or no answer"
DEV_FIFTH = "a fifth of the development set"
TRAINING_FIFTH = "a fifth of the training set"
DEV_PART = 0.2
# Limits for int8: points, or correct predictions if that allows more.
MOST_POINTS, MOST_ANSWERS = 0.5, 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskRecipe:
    """Training recipe of a task.

    Attributes:
      title: name in the table.
      metric: the compared metric, the task's first.
      folder: folder in the shared data.
      epochs: number of epochs.
      learning_rate: maximum learning rate.
      lengths: lengths of the bundle; training uses the longest.
      split: the scored examples.
      start: task whose model is the starting point; None for the pretrained network.
    """

    title: str
    metric: str
    folder: str = "glue"
    epochs: int = 3
    learning_rate: float = 1e-4
    lengths: tuple[int, ...] = (128,)
    split: str = DEVELOPMENT_SET
    start: str | None = None


# Short tasks first.
SETTINGS: dict[str, TaskRecipe] = {
    "wnli": TaskRecipe(title="WNLI", metric="accuracy"),
    "rte": TaskRecipe(title="RTE", metric="accuracy"),
    "mrpc": TaskRecipe(title="MRPC", metric="f1"),
    "cola": TaskRecipe(title="CoLA", metric="matthews", lengths=(64,)),
    "xnli": TaskRecipe(title="XNLI, English", metric="accuracy", folder="xnli", split=DEV_FIFTH),
    "stsb": TaskRecipe(title="STS-B", metric="spearman"),
    "qnli": TaskRecipe(title="QNLI", metric="accuracy", split=DEV_FIFTH),
    "squad": TaskRecipe(title="SQuAD 1.1", metric="f1", folder="squad", epochs=2, lengths=(128, 384)),
    "squad2": TaskRecipe(title="SQuAD 2.0", metric="f1", folder="squad", lengths=(128, 384), start="squad"),
    "tydiqa": TaskRecipe(
        title="TyDi QA, English", metric="f1", folder="tydiqa", epochs=2, lengths=(128, 384), split=TRAINING_FIFTH
    ),
}


def score_majority(task: str, _seed: None, _output: Path) -> dict[str, Any]:
    """Scores the most frequent training label, or no answer to any question."""
    from pocketbert.tasks.registry import supervised_task

    setting, (config, train, dev) = SETTINGS[task], task_examples(task)
    if supervised_task(config).needs_pairs:
        metrics = {setting.metric: sum(not question.answers for question in dev) / len(dev)}
    else:
        metrics = majority_label_metrics([setting.metric], train, dev)
    return {"scores": [{"split": setting.split, "metrics": metrics, "examples": len(dev)}]}


def train(task: str, output: Path) -> dict[str, Any]:
    """Fine-tunes the network; returns the metrics of its best epoch."""
    from pocketbert.data.task_data import TaskData
    from pocketbert.training.config import FinetuneConfig, RunConfig
    from pocketbert.training.finetune import finetune

    setting = SETTINGS[task]
    config, train_examples, dev = task_examples(task)
    options = FinetuneConfig(
        **PUBLISHED_HEAD, learning_rate=setting.learning_rate, epochs=setting.epochs, max_length=max(setting.lengths)
    )
    start = output / "model" / setting.start / "model" if setting.start else minilm()
    data = TaskData(task=config, train=train_examples, dev=dev)
    outcome = finetune(start, data, output / "model" / task, config=options, run=RunConfig(seed=SEED))
    return {"metrics": outcome.metrics, "seconds": outcome.seconds}


def score_both(task: str, _seed: int, output: Path) -> dict[str, Any]:
    """Exports the model and scores model and bundle on the same examples.

    Tasks with classes always include accuracy, to count lost predictions.
    """
    from pocketbert.tasks.registry import supervised_task
    from pocketbert_export.bundles.predictors import open_both
    from pocketbert_export.glue.scoring import score

    setting, model, folder = SETTINGS[task], output / "model" / task / "model", output / QUANTIZED / task
    config, train_examples, dev = task_examples(task)
    export_quantized(model, folder, setting.lengths)
    kind = supervised_task(config)
    names = list(dict.fromkeys([*kind.metrics, *(["accuracy"] if kind.has_classes else [])]))
    common = {"label": f"{len(train_examples)} training examples", "split": setting.split, "examples": len(dev)}
    scores = [
        {**common, "recipe": recipe, "metrics": dict(score(predictor, dev, names, names[0]).metrics)}
        for recipe, predictor in zip((TRAINED, QUANTIZED), open_both(model, folder), strict=True)
    ]
    return {"scores": scores}


def task_examples(task: str) -> tuple[TaskConfig, Any, Any]:
    """The task, its training examples and its scored examples."""
    from pocketbert.data.readers.question_tasks import QUESTION_TASKS, read_questions
    from pocketbert.data.readers.xnli import XNLI, read_xnli
    from pocketbert.data.train_dev_split import train_dev_split

    setting = SETTINGS[task]
    folder = shared_data(setting.folder)
    if task in QUESTION_TASKS:
        config = TaskConfig(kind="span", name=task, dropout=0.0)
        questions = read_questions(task, folder, "train")
        if setting.split == TRAINING_FIFTH:
            return config, *train_dev_split(questions, DEV_PART)
        return config, questions, read_questions(task, folder, "dev")
    if task == XNLI.name:
        return XNLI, *train_dev_split(read_xnli(folder, "dev", ["en"]), DEV_PART)
    dev = read_glue(task, folder, "dev")
    if setting.split == DEV_FIFTH:
        return GLUE[task].task, *train_dev_split(dev, DEV_PART)
    return GLUE[task].task, read_glue(task, folder, "train"), dev


def settings() -> dict[str, Any]:
    """All settings that determine the table, as JSON values."""
    names = ("epochs", "learning_rate", "lengths", "split", "start")
    return {
        "seed": SEED,
        "tasks": {task: [_plain(getattr(setting, name)) for name in names] for task, setting in SETTINGS.items()},
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def preparations(output: Path) -> list[StudyJob]:
    """Fine-tuning on each task."""
    return [
        StudyJob(
            name=f"model/{task}",
            call=train,
            arguments=(task, output),
            needs=(f"model/{setting.start}",) if setting.start else (),
        )
        for task, setting in SETTINGS.items()
    ]


# A constant has no correlation.
_COUNTED = tuple(task for task, setting in SETTINGS.items() if setting.metric != "spearman")
SWEEP = Sweep(
    result="tasks/accuracy",
    title="6x384 on every task",
    subjects=(
        Subject(model=NOBODY, label=MAJORITY, call=score_majority, runs={None: _COUNTED}),
        # Labels have the number of training examples.
        Subject(
            model=NETWORK,
            label="",
            call=score_both,
            needs=lambda task, seed: (f"model/{task}",),
        ),
    ),
    tasks=tuple(SETTINGS),
    seeds=(SEED,),
    settings=settings,
    preparations=preparations,
)

if __name__ == "__main__":
    sys.exit(SWEEP.main(sys.argv))
