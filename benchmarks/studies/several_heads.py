"""Does one encoder with two heads answer as well as a network for each answer alone?

The sentences are CoLA's. Their class says whether a sentence is acceptable. Their tags come from capital letters, which
the uncased network does not see: the names of `names_corpus`. For each of three seeds, all-MiniLM is fine-tuned with
both heads, and once for each head alone, with the same options. The mean of both heads selects the weights of the
first network, and the metric of its head those of the others. CoLA's dev sentences give the scores. The target is a
mean score of each head within one standard error of the network for it alone, where the error is that over the dev
sentences. The time to answer with both heads, and with one network after the other, is beside it. The study takes
about 40 minutes on two cores.

    python -m studies several_heads
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import pocketbert as pb
from pocketbert.data.assets import minilm
from pocketbert.data.examples import Examples
from pocketbert.data.readers.tagged_texts import split_words
from pocketbert.data.task_data import TaskData
from pocketbert.progress import log_info
from pocketbert.tasks.predictor import model_predictor
from pocketbert_bench import accuracy, results
from pocketbert_runtime.answers.tags import iob2
from studies.glue_examples import draw, task_examples
from studies.names_corpus import name_spans

SEEDS, SENTENCES, EPOCHS = (0, 1, 2), 4000, 3
KINDS = {"acceptable": "classification", "names": "token_classification"}
METRICS = {"acceptable": "acceptable_accuracy", "names": "names_f1"}
BOTH, ALONE = "one network with both heads", "a network for this head alone"
_LENGTH, _RATE, _QUICK_SENTENCES, _CALLS = 64, 1e-4, 100, 5


def run(quick: bool) -> dict[str, Any]:
    """Scores the networks of each seed, and times their answers."""
    seeds, count = (SEEDS[:1], _QUICK_SENTENCES) if quick else (SEEDS, SENTENCES)
    data, records, notes, networks = _data(count), [], [], {}
    with tempfile.TemporaryDirectory() as name:
        scores: dict[tuple[str, str], list[float]] = {}
        errors: dict[str, list[float]] = {}
        for seed in seeds:
            networks = _networks(data, seed, Path(name, str(seed)))
            for head, metric in METRICS.items():
                for model, (network, dev, own_metric) in _scored(networks, data, head, metric).items():
                    evaluator = model_predictor(network, max_length=_LENGTH).evaluator(dev, metrics=[own_metric])
                    outcome = evaluator.scores(own_metric)
                    scores.setdefault((head, model), []).append(outcome.score)
                    errors.setdefault(head, []).append(outcome.standard_error)
                    records.append(_record(f"seed {seed}, {head}", model, metric, outcome.score, len(dev)))
                    log_info(f"{records[-1].label}: {model}: {100 * outcome.score:.1f}")
        for head in KINDS:
            means = [float(np.mean(scores[head, model])) for model in (BOTH, ALONE)]
            error = float(np.mean(errors[head]))
            met = "met" if means[0] >= means[1] - error else "MISSED"
            notes.append(
                f"{METRICS[head]}: {100 * means[0]:.1f} with both heads, {100 * means[1]:.1f} alone; the target is a "
                f"difference of at most one standard error, {100 * error:.1f} points: {met}"
            )
        ratios = [_time(networks, data.dev.first_texts(200).texts)]
    return results.to_json(
        results.result_file("several heads", quick=quick, accuracies=records, ratios=ratios, notes=notes)
    )


def _data(count: int) -> TaskData:
    """CoLA's sentences with their classes and the names in them."""
    train, dev = task_examples("cola")
    parts = [draw(train, 0, count), dev]
    inside = Counter(word for part in parts for text in part.texts for word in _words(text)[1:])
    tables = [_table(part, inside) for part in parts]
    return pb.data.heads(tables[0], KINDS, dev=tables[1])


def _words(text: str) -> list[str]:
    return [text[start:end] for start, end in split_words(text)]


def _table(examples: Examples, inside: Counter[str]) -> dict[str, list[Any]]:
    assert examples.labels is not None
    rows = [_words(text) for text in examples.texts]
    # Tags are for what white space separates.
    texts = [" ".join(words) for words in rows]
    tags = [" ".join(iob2(name_spans(words, inside), len(words))) for words in rows]
    classes = [("no", "yes")[label] for label in examples.labels]
    return {"text": texts, "acceptable": classes, "names": tags}


def _networks(data: TaskData, seed: int, folder: Path) -> dict[str, pb.Model]:
    """The network with both heads, and one for each head."""
    config = pb.FinetuneConfig(epochs=EPOCHS, learning_rate=_RATE, max_length=_LENGTH, calibrate=False)
    run_options = pb.RunConfig(seed=seed, evaluation_steps=50)
    networks = {BOTH: pb.finetune(minilm(), data, folder / "both", config=config, run=run_options).model}
    train: Any = data.train
    dev: Any = data.dev
    for part in data.task.tasks or ():
        alone = TaskData(
            task=dataclasses.replace(part, weight=None), train=train.parts[part.name], dev=dev.parts[part.name]
        )
        networks[part.name] = pb.finetune(minilm(), alone, folder / part.name, config=config, run=run_options).model
    return networks


def _scored(
    networks: dict[str, pb.Model], data: TaskData, head: str, metric: str
) -> dict[str, tuple[pb.Model, Any, str]]:
    """Kind of network → the network, its dev split and its name of the metric."""
    dev: Any = data.dev
    alone = networks[head], dev.parts[head], metric.partition("_")[2]
    return {BOTH: (networks[BOTH], dev, metric), ALONE: alone}


def _record(label: str, model: str, metric: str, value: float, examples: int) -> results.Accuracy:
    return accuracy.record(
        label=label,
        model=model,
        recipe="float32",
        task="cola and names",
        split="CoLA's dev set",
        metric=metric,
        value=value,
        examples=examples,
    )


def _time(networks: dict[str, pb.Model], texts: list[str]) -> results.Ratio:
    """Seconds to answer with both heads, beside one network after the other."""
    predictors = {name: model_predictor(network, max_length=_LENGTH) for name, network in networks.items()}
    seconds: dict[str, list[float]] = {BOTH: [], ALONE: []}
    for turn in range(_CALLS + 1):
        for kind, names in ((BOTH, [BOTH]), (ALONE, [*KINDS])):
            begin = time.perf_counter()
            for name in names:
                predictors[name].predict(texts)
            # The first turn traces the graphs.
            if turn:
                seconds[kind].append(time.perf_counter() - begin)
    return results.ratio(
        name="answers",
        description="seconds to answer 200 sentences with the float networks",
        ours=BOTH,
        peer="a network for each head",
        unit="s",
        ours_samples=seconds[BOTH],
        peer_samples=seconds[ALONE],
        better="lower",
        target=0.7,
    )
