"""What a user gets from 500 examples with the defaults: `finetune` on ten data sets, beside simple methods.

Each cell trains all-MiniLM-L6-v2 on 500 examples, of which `finetune` keeps a tenth as its dev split, and scores the
result on test texts that no choice has read. The simple methods train on the same examples. Run it with
`python -m studies small_data`. Finished cells stay in `runs/small_data`. SetFit is
compared on the same examples if `SETFIT_PYTHON` names its environment (`studies.setfit_peer`).
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert import data
from pocketbert.configs import TaskConfig
from pocketbert.data.assets import minilm
from pocketbert.data.examples import Examples
from pocketbert.data.readers.questions import QuestionFile
from pocketbert.data.task_data import TaskData
from pocketbert.data.train_dev_split import train_dev_split
from pocketbert.errors import raise_if_any
from pocketbert.model import Model, from_pretrained
from pocketbert.tasks.linear_fits import LinearForm
from pocketbert.tasks.registry import supervised_task
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.finetune import finetune
from pocketbert_bench import accuracy, results
from pocketbert_export.glue.scoring import labelled_evaluator
from studies import setfit_peer
from studies.jobs import StudyJob, run_jobs
from studies.names_corpus import write_corpus
from studies.shared_data import shared_data

EXAMPLES, SEEDS = 500, (0, 1, 2)
_NETWORK = "all-MiniLM-L6-v2"
_MOST_TESTED = 1000
_ARTICLES = 20
_FOLDER = Path("runs/small_data")
_QUESTION_WORDS = ("who", "what", "when", "where", "which", "why", "how")
# The defaults before this study: BERT's for large data.
BEFORE = FinetuneConfig(learning_rate=3e-5, head_pooling="first", head_start="random", calibrate=False)
# Data set and variant → options; the defaults everywhere, others to see what each choice is worth.
_VARIANTS: dict[str, FinetuneConfig] = {
    "defaults": FinetuneConfig(),
    "before": BEFORE,
    "first token, random head, 10 epochs": FinetuneConfig(head_pooling="first", head_start="random", epochs=10),
    "mean, random head": FinetuneConfig(head_pooling="mean", head_start="random"),
    "10 epochs": FinetuneConfig(epochs=10),
    "1 epoch": FinetuneConfig(epochs=1),
    "1e-4": FinetuneConfig(learning_rate=1e-4),
    "3e-4": FinetuneConfig(learning_rate=3e-4),
    "1e-3": FinetuneConfig(learning_rate=1e-3),
}
_VARIED: dict[str, tuple[str, ...]] = {
    name: ("before", "first token, random head, 10 epochs", "mean, random head", "10 epochs", "3e-4")
    for name in ("sst2", "articles")
}
_OTHER_NAMES = "names, other texts"
_VARIED[_OTHER_NAMES] = ("1e-4", "3e-4", "1e-3")
SETFIT = "setfit"
# Number of examples → steps of SetFit.
_FEW = {32: 100, 128: 150, 500: 150}
_MANY = 5000


@dataclasses.dataclass(frozen=True)
class Cell:
    """One training.

    Attributes:
      data: key of `DATA`.
      variant: key of `_VARIANTS`.
      seed: seed of the choice of examples and of the run.
      examples: number of examples, including the dev split; None for all.
    """

    data: str
    variant: str
    seed: int
    examples: int | None = EXAMPLES

    @property
    def name(self) -> str:
        """Name of the result."""
        return f"{self.data}-{self.variant.replace(' ', '_')}-{self.examples or 'all'}-{self.seed}"


def run(quick: bool) -> dict[str, Any]:
    """Runs all cells and returns the content of the result file."""
    cells = [Cell("sst2", "defaults", 0, 64)] if quick else all_cells()
    jobs = [StudyJob(name=cell.name, call=score_cell, arguments=(cell,), threads=os.cpu_count() or 1) for cell in cells]
    with tempfile.TemporaryDirectory() as folder:
        done, failed = run_jobs(jobs, Path(folder) if quick else _FOLDER, processes=1)
    raise_if_any([f"{name}: {reason}" for name, reason in failed.items()], "small data")
    rows = [done[cell.name] for cell in cells]
    records = [record for cell, row in zip(cells, rows, strict=True) for record in _records(cell, row)]
    notes = [
        json.dumps(
            {"data": cell.data, "variant": cell.variant, "seed": cell.seed, "examples_given": cell.examples, **row},
            sort_keys=True,
        )
        for cell, row in zip(cells, rows, strict=True)
    ]
    return results.to_json(results.result_file("small data", quick=quick, accuracies=records, notes=notes))


def all_cells() -> list[Cell]:
    """All cells of the study."""
    cells = [Cell(name, "defaults", seed) for seed in SEEDS for name in DATA if name != _OTHER_NAMES]
    cells += [Cell(name, variant, 0) for name, variants in _VARIED.items() for variant in variants]
    cells += [Cell("sst2", "defaults", seed, count) for count in _FEW if count != EXAMPLES for seed in SEEDS]
    cells += [Cell("sst2", variant, 0, _MANY) for variant in ("defaults", "before")]
    cells += [Cell("sst2", "1 epoch", 0, None)]
    if os.environ.get(setfit_peer.PYTHON):
        cells += [Cell("sst2", SETFIT, seed, count) for count in _FEW for seed in SEEDS]
    return cells


def score_cell(cell: Cell) -> dict[str, Any]:
    """Trains and tests; returns the numbers of a cell."""
    whole, test = DATA[cell.data]()
    train, dev = _chosen(whole, cell.seed, cell.examples)
    if cell.variant == SETFIT:
        return _setfit(train, dev, test, cell)
    return _trained(cell, dataclasses.replace(whole, train=train, dev=dev), test)


def _trained(cell: Cell, task_data: TaskData, test: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        trained = finetune(
            minilm(), task_data, Path(name) / "run", config=_VARIANTS[cell.variant], run=RunConfig(seed=cell.seed)
        )
        row = _tested(trained.model, task_data, test, methods=cell.variant == "defaults")
        row |= {"seconds": trained.seconds, "steps": trained.steps, "head": trained.head, "warnings": trained.warnings}
        row["verdict"] = None if trained.outcome is None else trained.outcome["verdict"]
    return row


def _setfit(train: Examples, dev: Examples, test: Examples, cell: Cell) -> dict[str, Any]:
    """Scores SetFit, which trains on the dev split, too."""
    assert cell.examples is not None
    request = {
        "model": str(minilm()),
        "texts": train.texts + dev.texts,
        "labels": np.concatenate([train.labels, dev.labels]).tolist(),
        "test_texts": test.texts,
        "test_labels": np.asarray(test.labels).tolist(),
        "steps": _FEW[cell.examples],
        "seed": cell.seed,
    }
    answer = setfit_peer.score(request)
    return {"metric": "accuracy", "examples": len(test), **answer}


def _chosen(whole: TaskData, seed: int, count: int | None) -> tuple[Any, Any]:
    chosen = whole.train
    if count is not None and count < len(chosen):
        chosen = chosen.select(np.sort(np.random.default_rng(seed).permutation(len(chosen))[:count]))
    return train_dev_split(chosen, seed=0, stratify=True)


def _tested(model: Model, task_data: TaskData, test: Any, *, methods: bool) -> dict[str, Any]:
    """Scores on the test texts: the model, the best constant answer, and the simple methods."""
    from pocketbert.tasks.predictor import model_predictor

    task = supervised_task(task_data.task)
    metric = task_data.main_metric or task.main_metric
    evaluator: Any = labelled_evaluator(model_predictor(model), test, metrics=(metric,))
    scores = evaluator.scores(metric)
    row = {
        "metric": metric,
        "score": scores.score,
        "standard_error": scores.standard_error,
        "examples": len(test),
        "constant": scores.baseline["metrics"][metric] if scores.baseline else 0.0,
        "top_probability": getattr(evaluator, "top_probability", None),
    }
    if methods:
        encoder = from_pretrained(minilm(), task=TaskConfig(kind="embedding"))

        def vectors(texts: Any) -> np.ndarray:
            return encoder_vectors(encoder, texts)

        simple = task.simple_methods(task_data.train, test, metric, vectors)
        row["methods"] = {method.name: method.score for method in simple}
        frozen = _frozen(model, task, task_data, test, metric, vectors)
        row["methods"] |= {} if frozen is None else {"a linear model on frozen features": frozen}
    return row


def encoder_vectors(encoder: Model, texts: Any) -> np.ndarray:
    """Unit vectors of texts, float32 [N, H]."""
    task: Any = supervised_task(encoder.tasks[0])
    return task.embed(list(texts), encoder.forward, encoder.tokenizer, 128)


def _frozen(model: Model, task: Any, task_data: TaskData, test: Any, metric: str, vectors: Any) -> float | None:
    """Score of a cross-validated linear model on the mean of the tokens of the pretrained encoder; None for others."""
    from pocketbert.tasks.linear_fits import fit_linear

    if task.linear_form is None or not isinstance(test, Examples) or test.pairs is not None:
        return None
    form: LinearForm = task.linear_form
    train: Any = task_data.train
    fit = fit_linear(form, 10 * vectors(train.texts), train.labels, task.num_logits or 1)
    logits = 10 * vectors(test.texts) @ fit.kernel + fit.bias
    return task.compute([metric], test.labels, task.decide(logits if task.num_logits else logits[:, 0]))[metric]


def _records(cell: Cell, row: dict[str, Any]) -> list[results.Accuracy]:
    if cell.variant == SETFIT:
        scored = {"SetFit": row["score"]}
    else:
        scored = {"finetune": row["score"], "constant answer": row["constant"], **row.get("methods", {})}
    return [
        accuracy.record(
            label=f"{cell.data}, {cell.variant}, {cell.examples or 'all'} examples, seed {cell.seed}: {name}",
            model=_NETWORK if name == "finetune" else name,
            recipe="float32",
            task=cell.data,
            split="test",
            metric=row["metric"],
            value=value,
            examples=row["examples"],
        )
        for name, value in scored.items()
    ]


def _glue(name: str) -> tuple[TaskData, Any]:
    whole = data.glue(name, shared_data("glue"))
    return whole, whole.dev


def _xnli() -> tuple[TaskData, Any]:
    lines = shared_data("xnli/dev-en.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    task = data.from_pairs([row[0] for row in rows], [row[2] for row in rows], pairs=[row[1] for row in rows])
    return _with_test(task.task, _joined(task))


def _squad(split: str) -> QuestionFile:
    return QuestionFile(shared_data(f"squad/{split}-v1.1.json"))


def _articles() -> tuple[TaskData, Any]:
    texts, titles = _article_questions()
    task = data.from_pairs(texts, titles)
    return _with_test(task.task, _joined(task))


def _article_labels() -> tuple[TaskData, Any]:
    texts, titles = _article_questions()
    words = [next((word for word in _QUESTION_WORDS if word in text.lower().split()), "other") for text in texts]
    names = tuple(sorted({*titles}) + sorted({*words}))
    labels = np.zeros((len(texts), len(names)), np.int32)
    for row, labelled in enumerate(zip(titles, words, strict=True)):
        labels[row, [names.index(name) for name in labelled]] = 1
    examples = Examples(texts, None, labels, [str(index) for index in range(len(texts))], "SQuAD")
    return _with_test(TaskConfig(kind="multi_label", labels=names), examples)


def _article_questions() -> tuple[list[str], list[str]]:
    """Questions of the largest articles, and the articles' titles."""
    content = json.loads(shared_data("squad/train-v1.1.json").read_text(encoding="utf-8"))
    rows = [
        (question["question"], article["title"].replace("_", " "))
        for article in content["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    largest = {title for title, _ in Counter(title for _, title in rows).most_common(_ARTICLES)}
    rows = [row for row in dict.fromkeys(rows) if row[1] in largest]
    return [text for text, _ in rows], [title for _, title in rows]


def _names() -> tuple[TaskData, Any]:
    with tempfile.TemporaryDirectory() as name:
        train, dev = write_corpus(shared_data("text/enwiki2015-train.txt.xz"), Path(name), 24)
        whole = data.tagged(train, dev=dev)
    return whole, whole.dev.select(range(min(len(whole.dev), _MOST_TESTED)))


def _other_names() -> tuple[TaskData, Any]:
    """The last training texts as the test: they check the default learning rate for names."""
    whole, _ = _names()
    count = len(whole.train)
    test = whole.train.select(range(count - _MOST_TESTED, count))
    return dataclasses.replace(whole, train=whole.train.select(range(count - _MOST_TESTED))), test


def _questions() -> tuple[TaskData, Any]:
    whole = data.questions(shared_data("squad/train-v1.1.json"), dev=shared_data("squad/dev-v1.1.json"))
    return whole, whole.dev


def _joined(task: TaskData) -> Examples:
    """All examples of data that were split."""
    train, dev = task.train, task.dev
    assert isinstance(train, Examples) and isinstance(dev, Examples)
    pairs = None if train.pairs is None or dev.pairs is None else train.pairs + dev.pairs
    labels = np.concatenate([train.labels, dev.labels])
    ids = [str(index) for index in range(len(labels))]
    return Examples(train.texts + dev.texts, pairs, labels, ids, train.source)


def _with_test(task: TaskConfig, examples: Examples) -> tuple[TaskData, Any]:
    """At most half of the examples, and 1,000, for the test."""
    order = np.random.default_rng(0).permutation(len(examples))
    tested = min(_MOST_TESTED, len(examples) // 2)
    test, train = examples.select(order[:tested]), examples.select(order[tested:])
    return TaskData(task=task, train=train, dev=test), test


DATA: dict[str, Callable[[], tuple[TaskData, Any]]] = {
    "sst2": lambda: _glue("sst2"),
    "cola": lambda: _glue("cola"),
    "articles": _articles,
    "several labels": _article_labels,
    "names": _names,
    _OTHER_NAMES: _other_names,
    "questions": _questions,
    "mrpc": lambda: _glue("mrpc"),
    "stsb": lambda: _glue("stsb"),
    "rte": lambda: _glue("rte"),
    "xnli": _xnli,
}
