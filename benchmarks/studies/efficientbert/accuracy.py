"""EfficientBERT with a small teacher: searches, and what the networks that they find score on GLUE tasks.

    python -m studies.efficientbert.accuracy --minutes=120
    python -m studies.tables

The 6x384 network is fine-tuned on each task. Searches choose the feed-forward networks of a student with 3 layers of
240, with SST-2's teacher and `SST2_EXAMPLES` sentences; the paper searches with MNLI. Every candidate has as many
weights as the base, within `TOLERANCE`. The supernets are warmed up on the sentences, and the one of stage 3 learns all
tasks, one candidate per step.

The networks found start from slices of their supernet, or from random weights. They learn from the 6x384 network on
`enwiki2015` and then from each task's teacher, all for the same number of steps. Scores are those of the last epoch on
the development set. The networks of table 5 have three seeds and four tasks, the others one seed and two tasks. Seeds
vary the training on tasks.

Two jobs run in parallel, each in one thread. Rerun the same command to resume; scores in the committed result file are
reused if they were made with the same settings.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pocketbert.configs import EncoderConfig
from pocketbert.data.assets import minilm
from pocketbert.data.glue import GLUE
from pocketbert.feedforward import FeedForwardConfig
from pocketbert.presets import preset
from pocketbert_bench import results
from studies.experiment import (
    Experiment,
    add_spared,
    folder_name,
    last_metrics,
    main,
    noted,
    records_by_seed,
    records_without_seed,
    scores_by_job,
    settings_note,
)
from studies.glue_examples import finetune_to_the_end, score_majority_label, task_data
from studies.jobs import StudyJob, result_of
from studies.runner import RESULTS
from studies.shared_data import shared_data

SPLIT = "development set"
# Prefix of the note with the results of the searches.
SEARCHES_NOTE = "searches: "
SEEDS = (0, 1, 2)
TASKS = ("sst2", "cola", "stsb", "mrpc")
OTHER_TASKS = ("sst2", "mrpc")
SEARCHED = TASKS[0]
SST2_EXAMPLES = 10_000
LENGTHS = {"sst2": 64, "cola": 64, "stsb": 128, "mrpc": 128}
BATCH_SIZE, EPOCHS, RATE = 32, 3, 4e-4
TEACHER_RATE = 5e-5
TEXT_STEPS, TEXT_LENGTH, TEXT_RATE = 300, 64, 4e-4
# Like the text of the other studies.
TEXT_SEGMENTS: Literal[1] = 1
TOLERANCE = 0.03
RETRAINED = 8

SHAPE = "3x240"
BASE: EncoderConfig = preset("efficientbert_tiny").config.replace(
    num_layers=3, hidden_size=240, head_size=20, intermediate_size=240, feedforward=None
)
BASE_NETWORK = "linear1_1(gelu(linear1_1(x)))"


@dataclass(frozen=True, kw_only=True)
class SearchVariant:
    """One search.

    Attributes:
      label: name in the tables.
      strategy: how candidates are chosen.
      stages: stages to run.
      candidates: number of candidates in each stage.
    """

    label: str
    strategy: Literal["lanas", "evolution", "random"] = "lanas"
    stages: tuple[int, ...] = (1,)
    candidates: tuple[int, ...] = (36,)


THREE_STAGES = SearchVariant(label="three stages", stages=(1, 2, 3), candidates=(24, 12, 36))
# The same number of trained candidates in one stage (table 6).
ONE_STAGE = SearchVariant(label="one stage")
EVOLUTION = SearchVariant(label="one stage, evolution", strategy="evolution")
RANDOM = SearchVariant(label="one stage, random", strategy="random")
SEARCHES = (THREE_STAGES, ONE_STAGE, EVOLUTION, RANDOM)


@dataclass(frozen=True, kw_only=True)
class Network:
    """A student.

    Attributes:
      label: name in the tables.
      search: the search that found it; None for a network designed by hand.
      stage: the stage whose winner it is.
      expression: all layers' expression, for a network designed by hand.
      warmed_up: whether it starts from slices of a supernet instead of random weights.
    """

    label: str
    search: SearchVariant | None = None
    stage: int = 1
    expression: str = BASE_NETWORK
    warmed_up: bool = True


WINNERS = {stage: Network(label=f"stage {stage}", search=THREE_STAGES, stage=stage) for stage in (1, 2, 3)}
HAND_DESIGNED = Network(label="base")
# Table 5, with all seeds and tasks.
MAIN = (HAND_DESIGNED, *WINNERS.values())
STACKED = Network(label="two stacks of half the width", expression="linear2_2(gelu(linear2_2(x)))")
COLD = Network(label="stage 3, random weights", search=THREE_STAGES, stage=3, warmed_up=False)
FOUND = {each.label: Network(label=each.label, search=each) for each in (ONE_STAGE, EVOLUTION, RANDOM)}
OTHERS = (STACKED, COLD, *FOUND.values())


def jobs(output: Path) -> list[StudyJob]:
    """All jobs: teachers, searches, the networks with one seed, then the other seeds."""
    found = [
        StudyJob(name=f"constant/{task}", call=score_majority_label, arguments=(task, SST2_EXAMPLES))
        for task in TASKS
        if GLUE[task].task.labels
    ]
    found += [StudyJob(name=_teacher_name(task), call=train_teacher, arguments=(task, output)) for task in TASKS]
    for variant in SEARCHES:
        tasks = TASKS if 3 in variant.stages else (SEARCHED,)
        needs = tuple(_teacher_name(task) for task in tasks)
        found.append(StudyJob(name=_search_name(variant), call=run_search, arguments=(variant, output), needs=needs))
    for network in (*MAIN, *OTHERS):
        needs = (_search_name(network.search or THREE_STAGES),)
        found.append(StudyJob(name=_text_name(network), call=distil_on_text, arguments=(network, output), needs=needs))
    for seed in SEEDS:
        for network in MAIN if seed != SEEDS[0] else (*MAIN, *OTHERS):
            for task in TASKS if network in MAIN else OTHER_TASKS:
                found.append(
                    StudyJob(
                        name=_job_name(SHAPE, network.label, task, seed),
                        call=train_network,
                        arguments=(network, task, seed, output),
                        needs=(_teacher_name(task), _text_name(network)),
                    )
                )
    return found


def train_teacher(task: str, output: Path) -> dict[str, Any]:
    """Fine-tunes the 6x384 network; returns the metrics of the last epoch."""
    from pocketbert.training.config import FinetuneConfig

    options = FinetuneConfig(learning_rate=TEACHER_RATE, epochs=EPOCHS, batch_size=BATCH_SIZE, max_length=LENGTHS[task])
    return finetune_to_the_end(minilm(), task, output / _teacher_name(task), options, SEEDS[0], SST2_EXAMPLES)


def run_search(variant: SearchVariant, output: Path) -> dict[str, Any]:
    """Searches; returns winners and scores of each stage, the retrained candidates and Kendall's rank correlation."""
    from pocketbert.search.config import SearchConfig
    from pocketbert.search.constraints import ParameterConstraint
    from pocketbert.search.journal import Journal, best
    from pocketbert.search.run import search
    from pocketbert.search.strategies import StrategyOptions
    from pocketbert.search.supernet_tasks import SupernetTask
    from pocketbert.training.run_folder import JOURNAL_FILE

    folder = output / _search_name(variant)
    weights = ParameterConstraint(limit=float("inf")).cost(network_config((BASE_NETWORK,) * BASE.num_layers))
    limit = ParameterConstraint(minimum=(1 - TOLERANCE) * weights, limit=(1 + TOLERANCE) * weights)
    others = [task for task in TASKS if task != SEARCHED] if 3 in variant.stages else []
    found = search(
        BASE,
        task_data(SEARCHED, SST2_EXAMPLES),
        folder,
        teacher=_teacher(SEARCHED, output),
        config=SearchConfig(
            stages=variant.stages,
            candidates=variant.candidates,
            supernet_epochs=EPOCHS,
            candidate_epochs=1,
            candidate_share=0.2,
            score_share=0.2,
            retrained=RETRAINED if 3 in variant.stages else 0,
            max_length=LENGTHS[SEARCHED],
        ),
        strategy=StrategyOptions(strategy=variant.strategy),
        constraints=[limit],
        tasks=[SupernetTask(data=task_data(task), teacher=_teacher(task, output)) for task in others],
    )
    journal = Journal(folder / JOURNAL_FILE)
    return {
        "winners": {str(stage): list(best(journal.of_stage(stage)).genotype) for stage in variant.stages},
        "scores": {str(stage): [each.score for each in journal.of_stage(stage)] for stage in variant.stages},
        "retrained": found.retrained,
        "kendall_tau": found.kendall_tau,
        "seconds": found.seconds,
    }


def distil_on_text(network: Network, output: Path) -> dict[str, Any]:
    """Distils a network on text; returns its expressions, its number of weights and the seconds."""
    from pocketbert.data.task_data import TextData
    from pocketbert.distillation.initialization import SupernetSlices
    from pocketbert.distillation.methods.efficientbert import EfficientBERT
    from pocketbert.distillation.run import distill
    from pocketbert.search.constraints import ParameterConstraint

    genotype = (network.expression,) * BASE.num_layers
    search = network.search or THREE_STAGES
    if network.search is not None:
        genotype = tuple(result_of(output, _search_name(search))["winners"][str(network.stage)])
    config = network_config(genotype)
    folder = "learning_supernet/finetuned/model" if network.stage == 3 else "supernet/model"
    supernet = output / _search_name(search) / folder
    found = distill(
        SupernetSlices(supernet, config) if network.warmed_up else config,
        TextData(shared_data("text/enwiki2015-train.txt.xz")),
        output / _text_name(network),
        teacher=minilm(),
        method=EfficientBERT(
            steps=TEXT_STEPS,
            batch_size=BATCH_SIZE,
            learning_rate=TEXT_RATE,
            max_length=TEXT_LENGTH,
            text_segments=TEXT_SEGMENTS,
        ),
    )
    weights = ParameterConstraint(limit=float("inf")).cost(config)
    return {"genotype": list(genotype), "parameters": weights, "seconds": found.seconds}


def train_network(network: Network, task: str, seed: int, output: Path) -> dict[str, Any]:
    """Distils a network on a task; returns the metrics of the last epoch."""
    from pocketbert.distillation.methods.efficientbert import EfficientBERT
    from pocketbert.distillation.run import distill
    from pocketbert.training.config import RunConfig

    folder, data = output / _job_name(SHAPE, network.label, task, seed), task_data(task, SST2_EXAMPLES)
    method = EfficientBERT(epochs=EPOCHS, batch_size=BATCH_SIZE, learning_rate=RATE, max_length=LENGTHS[task])
    start = output / _text_name(network) / "model"
    distill(start, data, folder, teacher=_teacher(task, output), method=method, run=RunConfig(seed=seed))
    return {"metrics": last_metrics(folder, data.metrics), "examples": len(data.dev)}


def network_config(genotype: tuple[str, ...]) -> EncoderConfig:
    """The student with one expression per layer."""
    return BASE.replace(feedforward=FeedForwardConfig(expressions=genotype))


def _teacher(task: str, output: Path) -> Path:
    return output / _teacher_name(task) / "model"


def _teacher_name(task: str) -> str:
    return f"teacher/{task}"


def _search_name(variant: SearchVariant) -> str:
    return f"search/{folder_name(variant.label)}"


def _text_name(network: Network) -> str:
    return f"text/{folder_name(network.label)}"


def _job_name(model: str, label: str, task: str, seed: int) -> str:
    return f"student/{model}/{folder_name(label)}/{task}-{seed}"


def settings() -> dict[str, Any]:
    """All settings that determine the tables, as JSON values."""
    return {
        "training": {"batch size": BATCH_SIZE, "epochs": EPOCHS, "rate": RATE, "lengths": LENGTHS},
        "teacher rate": TEACHER_RATE,
        "text": {"steps": TEXT_STEPS, "length": TEXT_LENGTH, "rate": TEXT_RATE, "segments": TEXT_SEGMENTS},
        "examples of SST-2": SST2_EXAMPLES,
        "searches": {each.label: [each.strategy, list(each.stages), list(each.candidates)] for each in SEARCHES},
        "tolerance": TOLERANCE,
        "retrained": RETRAINED,
        "scored": "last epoch",
    }


def result(done: Mapping[str, Any]) -> results.ResultFile:
    """Collects the scores of the finished jobs."""
    accuracies = records_without_seed(done, TASKS, SPLIT)
    students = [(SHAPE, network.label) for network in (*MAIN, *OTHERS)]
    accuracies += records_by_seed(done, students, TASKS, SEEDS, SPLIT, _job_name)
    notes = [settings_note(settings())]
    names = [_search_name(each) for each in SEARCHES] + [_text_name(each) for each in (*MAIN, *OTHERS)]
    if kept := {name: done[name] for name in names if name in done}:
        notes.append(SEARCHES_NOTE + json.dumps(kept))
    return results.result_file("EfficientBERT on GLUE tasks", quick=False, accuracies=accuracies, notes=notes)


def searched(content: results.ResultFile) -> dict[str, Any]:
    """Job name → result of the searches and of distillation on text, from a result file."""
    return noted(content, SEARCHES_NOTE)


def scored(content: results.ResultFile) -> dict[str, Any]:
    """Reads the results of students' jobs from a result file with these settings; otherwise returns nothing."""
    found = scores_by_job(content, settings(), _job_name)
    if not found:
        return {}
    add_spared(found, jobs(Path()), searched(content))
    return found


EXPERIMENT = Experiment(
    result=RESULTS / "efficientbert" / "accuracy.json",
    output="runs/experiment-efficientbert",
    settings=settings,
    jobs=jobs,
    content=result,
    scored=scored,
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT, sys.argv))
