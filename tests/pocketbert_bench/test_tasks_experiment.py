from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pocketbert.configs import TaskConfig
from pocketbert.data.glue import GLUE
from pocketbert_bench import results
from pocketbert_bench.experiments import tasks
from pocketbert_bench.experiments.quantized import QUANTIZED
from pocketbert_bench.experiments.table import TRAINED
from pocketbert_bench.experiments.tasks import DEVELOPMENT, SETTINGS, jobs, task_examples

# What the shared folder holds (its README), and of XNLI its 2,490 development pairs.
SIZES = {
    "wnli": (635, 71),
    "rte": (2490, 277),
    "mrpc": (3668, 408),
    "cola": (8551, 1043),
    "stsb": (5749, 1500),
    "squad": (4120, 853),
    "squad2": (3480, 1506),
}


def test_a_task_is_scored_after_it_is_learned() -> None:
    names: list[str] = []
    for job in jobs(Path("out")):
        assert {*job.needs} <= {*names}
        names.append(job.name)
    assert len(names) == 2 * len(SETTINGS)
    for task, setting in SETTINGS.items():
        if task in GLUE:
            assert setting.metric in GLUE[task].metrics


@pytest.mark.data
@pytest.mark.parametrize("task", SETTINGS)
def test_nothing_is_learned_from_and_scored(task: str) -> None:
    _, train, dev = task_examples(task)
    if task in SIZES:
        assert (len(train), len(dev)) == SIZES[task]
    if SETTINGS[task].split != DEVELOPMENT:
        assert 0.15 < len(dev) / (len(train) + len(dev)) < 0.25
        # XNLI has three hypotheses a premise, and a paragraph several questions, which stay together.
        texts = [{each.context for each in part} if task == "tydiqa" else {*part.texts} for part in (train, dev)]
        assert not texts[0] & texts[1]


@pytest.mark.parametrize(
    ("task", "names"),
    [
        ("cola", ["matthews", "accuracy"]),
        ("mrpc", ["accuracy", "f1"]),
        ("stsb", ["pearson", "spearman"]),
        ("squad", ["exact_match", "f1"]),
    ],
)
def test_right_answers_are_always_counted(
    task: str, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = GLUE[task].task if task in GLUE else TaskConfig(kind="span", name=task)
    monkeypatch.setattr(tasks, "task_examples", lambda _: (config, "abc", "de"))
    monkeypatch.setattr(tasks, "export_quantized", lambda *_: None)
    monkeypatch.setattr("pocketbert_export.predictors.open_both", lambda model, bundle: (model, bundle))
    monkeypatch.setattr("pocketbert_export.scoring.score", lambda *given: given)
    assert tasks.score_both(task, tmp_path) == {
        "metrics": {
            TRAINED: (tmp_path / "model" / task / "model", "de", names),
            QUANTIZED: (tmp_path / QUANTIZED / task, "de", names),
        },
        "examples": 2,
        "training examples": 3,
    }


def done() -> dict[str, Any]:
    return {
        "scores/rte": {
            "metrics": {TRAINED: {"accuracy": 0.7}, QUANTIZED: {"accuracy": 0.69}},
            "examples": 277,
            "training examples": 2490,
        },
        "scores/squad": {
            "metrics": {
                TRAINED: {"exact_match": 0.5, "f1": 0.605},
                QUANTIZED: {"exact_match": 0.51, "f1": 0.599},
            },
            "examples": 853,
            "training examples": 4120,
        },
    }


def test_what_was_scored_is_read_back() -> None:
    content = tasks.content(done())
    found = tasks.scored(content)
    assert {name: found[name] for name in done()} == done()
    assert set(found) == {"scores/rte", "model/rte", "scores/squad", "model/squad"}
    assert tasks.scored(results.result_file("other", quick=False, accuracies=content.accuracies, notes=["x"])) == {}
