"""How many questions about unknown topics does a rejection threshold keep out?

SQuAD 1.1's training file here has questions about 20 Wikipedia articles. The article is the topic of a question. For
each of three seeds, 5 topics are strangers, and all-MiniLM is fine-tuned to tell the other 15 apart, with reject=0.95.
Questions about one paragraph stay together: a fifth of the paragraphs is the dev split, which chooses checkpoint and
threshold, and a fifth tests. The AUROC is that of the highest probability, for known topics against strangers. The
study takes about 10 minutes on two cores.

    python -m studies rejected_topics
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.data.assets import minilm
from pocketbert.data.examples import Examples
from pocketbert.data.task_data import TaskData
from pocketbert.progress import log_info
from pocketbert_bench import accuracy, results
from studies.shared_data import shared_data

SEEDS, STRANGERS, KEEP = (0, 1, 2), 5, 0.95
_PARTS, _LENGTH, _QUICK_STEPS = 5, 48, 20
# Measured value → what it is for readers.
MEASURES = {
    "accuracy": "accuracy on known topics",
    "coverage": "known topics answered",
    "accuracy of answers": "accuracy of these answers",
    "right answers kept": "right answers kept",
    "strangers rejected": "strangers rejected",
    "auroc": "AUROC",
}

Question = tuple[str, int, str]


def run(quick: bool) -> dict[str, Any]:
    """Trains and measures for each seed."""
    records: list[results.Accuracy] = []
    with tempfile.TemporaryDirectory() as name:
        for seed in SEEDS[:1] if quick else SEEDS:
            records += _measured(seed, Path(name, str(seed)), _QUICK_STEPS if quick else None)
            log_info(f"seed {seed}: " + ", ".join(f"{each.metric} {each.value:.3f}" for each in records[-6:]))
    mean = np.mean([each.value for each in records if each.metric == "auroc"])
    note = f"AUROC of known topics against strangers: {mean:.3f} as a mean over seeds"
    return results.to_json(results.result_file("rejected topics", quick=quick, accuracies=records, notes=[note]))


def _measured(seed: int, folder: Path, steps: int | None) -> list[results.Accuracy]:
    """Values of a seed, for 15 known topics and 5 strangers."""
    topics = _topics()
    random = np.random.default_rng(seed)
    strange = {*random.choice(sorted(topics), STRANGERS, replace=False)}
    known = tuple(title for title in sorted(topics) if title not in strange)
    parts: list[list[Question]] = [[], [], []]
    for title in known:
        questions = topics[title]
        paragraphs = 1 + max(paragraph for _, paragraph, _ in questions)
        # The first fifth tests, the second is the dev split.
        places = random.permutation(paragraphs) * _PARTS // paragraphs
        for question in questions:
            parts[min(int(places[question[1]]), 2)].append(question)
    test, dev, train = parts
    task = TaskConfig(kind="classification", name="topics", labels=known)
    data = TaskData(task=task, train=_examples(train, known), dev=_examples(dev, known))
    run_options = pb.RunConfig(seed=seed, reject=KEEP, max_steps=steps)
    model = pb.finetune(minilm(), data, folder, config=pb.FinetuneConfig(max_length=_LENGTH), run=run_options).model
    strangers = [question for title in sorted(strange) for question in topics[title]]
    answers, of_strangers = (model.predict([text for text, *_ in part]) for part in (test, strangers))
    top, strange_top = (
        np.array([max(each["probabilities"].values()) for each in part]) for part in (answers, of_strangers)
    )
    best = [max(each["probabilities"], key=each["probabilities"].get) for each in answers]
    right = np.array([one == title for one, (*_, title) in zip(best, test, strict=True)])
    answered = np.array([each["label"] is not None for each in answers])
    is_known = np.concatenate([np.ones(len(top)), np.zeros(len(strange_top))])
    values = {
        "accuracy": right.mean(),
        "coverage": answered.mean(),
        "accuracy of answers": right[answered].mean(),
        "right answers kept": answered[right].mean(),
        "strangers rejected": np.mean([each["label"] is None for each in of_strangers]),
        "auroc": roc_auc_score(is_known, np.concatenate([top, strange_top])),
    }
    both = ("strangers rejected", "auroc")
    return [
        accuracy.record(
            label=f"seed {seed}",
            model="all-minilm",
            recipe="float32",
            task="topics of questions",
            split="other paragraphs" + (" and strangers" if metric in both else ""),
            metric=metric,
            value=float(value),
            examples=len(test) + (len(strangers) if metric in both else 0),
        )
        for metric, value in values.items()
    ]


def _topics() -> dict[str, list[Question]]:
    """Title of the article → its questions, each with the number of its paragraph and the title."""
    content = json.loads(shared_data("squad/train-v1.1.json").read_text(encoding="utf-8"))
    return {
        article["title"]: [
            (question["question"], number, article["title"])
            for number, paragraph in enumerate(article["paragraphs"])
            for question in paragraph["qas"]
        ]
        for article in content["data"]
    }


def _examples(questions: Sequence[Question], known: Sequence[str]) -> Examples:
    labels = np.array([known.index(title) for *_, title in questions], np.int32)
    ids = [str(number) for number in range(len(questions))]
    return Examples([text for text, *_ in questions], None, labels, ids, "SQuAD 1.1's training file")
