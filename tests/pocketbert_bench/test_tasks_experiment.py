from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
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
        if job.name == "model/squad2":
            assert job.needs == ("model/squad",)
    assert {f"{what}/{task}" for what in ("model", "scores") for task in SETTINGS} < {*names}
    assert {*SETTINGS} - {name[9:] for name in names if name.startswith("constant/")} == {"stsb"}
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


@pytest.mark.data
def test_what_reads_nothing_scores_what_counting_gives() -> None:
    # Of MRPC's 408 pairs 279 are paraphrases, and of SQuAD 2.0's part 770 questions have no answer.
    assert tasks.score_commonest("mrpc") == {
        "metrics": {"f1": pytest.approx(2 * 279 / (408 + 279))},
        "examples": 408,
    }
    assert tasks.score_commonest("squad2") == {"metrics": {"f1": 770 / 1506}, "examples": 1506}
    assert tasks.score_commonest("tydiqa")["metrics"] == {"f1": 0.0}


@pytest.mark.parametrize("task", ["squad", "squad2"])
def test_a_model_starts_from_another_tasks_or_from_the_network(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[Path] = []
    monkeypatch.setattr(tasks, "task_examples", lambda _: (TaskConfig(kind="span", name=task), "abc", "de"))
    monkeypatch.setattr(tasks, "minilm", lambda: tmp_path / "network")
    monkeypatch.setattr(
        "pocketbert.training.loop.finetune",
        lambda start, *_: starts.append(start) or SimpleNamespace(metrics={}, seconds=1.0),
    )
    tasks.train(task, tmp_path)
    assert starts == [tmp_path / "model" / "squad" / "model" if task == "squad2" else tmp_path / "network"]


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
    monkeypatch.setattr("pocketbert_export.scoring.score", lambda *given: SimpleNamespace(metrics={"given": given}))
    assert tasks.score_both(task, tmp_path) == {
        "metrics": {
            TRAINED: {"given": (tmp_path / "model" / task / "model", "de", names, names[0])},
            QUANTIZED: {"given": (tmp_path / QUANTIZED / task, "de", names, names[0])},
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
        "constant/rte": {"metrics": {"accuracy": 0.52}, "examples": 277},
        "constant/wnli": {"metrics": {"accuracy": 0.51}, "examples": 71},
    }


def test_what_was_scored_is_read_back() -> None:
    content = tasks.content(done())
    found = tasks.scored(content)
    assert {name: found[name] for name in done()} == done()
    assert set(found) == {*done(), "model/rte", "model/squad"}
    assert tasks.scored(results.result_file("other", quick=False, accuracies=content.accuracies, notes=["x"])) == {}
