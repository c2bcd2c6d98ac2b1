"""EfficientBERT with a small teacher: searches, and what the networks that they find score on tasks.

    python -m studies.efficientbert.accuracy --minutes=120
    python -m studies.tables

The 6x384 network is fine-tuned on each task. Searches choose the feed-forward networks of a student with 3 layers of
240, with SST-2's teacher; the paper searches with MNLI. Every candidate has as many weights as the base, within
`TOLERANCE`. All searches share one frozen supernet, which was warmed up on the sentences. Another one, for stage 3,
learns all tasks, one candidate per step.

The networks found start from slices of the frozen supernet, or from random weights. They learn from the 6x384 network
on `enwiki2015` and then from each task's teacher, all for the same number of steps. One network starts from stage 3's
supernet instead, which has seen all tasks, and learns from no text (EfficientBERT+). Scores are those of the last epoch
on the development set. `networks.tasks_of` lists tasks and seeds; seeds vary the training on tasks.

Two jobs run in parallel, each in one thread. Rerun the same command to resume; scores in the committed result file are
reused if they were made with the same settings.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pocketbert.data.glue import GLUE
from pocketbert_bench import results
from studies.efficientbert import networks
from studies.efficientbert.networks import (
    EQUAL_LATENCY,
    LATENCY,
    NETWORKS,
    QUESTIONS,
    SEARCHES,
    SEEDS,
    SHAPE,
    SURFACES,
    TASKS,
    THREE_STAGES,
    Network,
    search_name,
    student_name,
    tasks_of,
    teacher_name,
    text_name,
)
from studies.efficientbert.training import (
    distil_on_text,
    draw_surfaces,
    measure_latency,
    run_search,
    train_network,
    train_teacher,
)
from studies.experiment import (
    Experiment,
    add_spared,
    main,
    noted,
    records_by_seed,
    records_without_seed,
    scores_by_job,
    settings_note,
)
from studies.glue_examples import score_majority_label
from studies.jobs import StudyJob
from studies.runner import RESULTS

SPLIT = "development set"
# Prefix of the note with the results of searches, text, latency and surfaces.
SEARCHES_NOTE = "searches: "
STUDENT_TASKS = (*TASKS, QUESTIONS)


def jobs(output: Path) -> list[StudyJob]:
    """All jobs: teachers, searches, the networks with one seed, then the other seeds."""
    found = [
        StudyJob(name=f"constant/{task}", call=score_majority_label, arguments=(task, networks.EXAMPLES))
        for task in TASKS
        if GLUE[task].task.labels
    ]
    found += [StudyJob(name=teacher_name(task), call=train_teacher, arguments=(task, output)) for task in STUDENT_TASKS]
    for variant in SEARCHES:
        needs = (search_name(THREE_STAGES),) if variant != THREE_STAGES else tuple(map(teacher_name, TASKS))
        found.append(StudyJob(name=search_name(variant), call=run_search, arguments=(variant, output), needs=needs))
    every_search = tuple(map(search_name, SEARCHES))
    found.append(StudyJob(name=LATENCY, call=measure_latency, arguments=(output,), needs=every_search))
    found.append(StudyJob(name=SURFACES, call=draw_surfaces, arguments=(output,), needs=(search_name(THREE_STAGES),)))
    for network in NETWORKS:
        if network.start != "tasks":
            found.append(
                StudyJob(
                    name=text_name(network), call=distil_on_text, arguments=(network, output), needs=_needs(network)
                )
            )
    for seed in SEEDS:
        for network in NETWORKS:
            for task in tasks_of(network, seed):
                start = (search_name(THREE_STAGES),) if network.start == "tasks" else (text_name(network),)
                found.append(
                    StudyJob(
                        name=student_name(SHAPE, network.label, task, seed),
                        call=train_network,
                        arguments=(network, task, seed, output),
                        needs=(teacher_name(task), *start),
                    )
                )
    return found


def _needs(network: Network) -> tuple[str, ...]:
    """Jobs that determine the architecture and the first weights of a network before text."""
    if network == EQUAL_LATENCY:
        return (LATENCY,)
    return tuple(dict.fromkeys([search_name(THREE_STAGES), search_name(network.search or THREE_STAGES)]))


def settings() -> dict[str, Any]:
    """All settings that determine the tables, as JSON values."""
    return {
        "training": {"batch size": networks.BATCH_SIZE, "epochs": networks.EPOCHS, "rate": networks.RATE},
        "length": networks.LENGTH,
        "teacher": [networks.TEACHER_RATE, networks.TEACHER_EPOCHS, networks.QUESTION_TEACHER_RATE],
        "text": [networks.TEXT_STEPS, networks.TEXT_LENGTH, networks.TEXT_RATE, networks.TEXT_SEGMENTS],
        "examples": [networks.EXAMPLES, networks.QUESTION_EXAMPLES, networks.SEARCH_EXAMPLES],
        "searches": {each.label: [each.strategy, list(each.stages), list(each.candidates)] for each in SEARCHES},
        "candidates": [networks.SUPERNET_EPOCHS, networks.CANDIDATE_SHARE, networks.SCORE_SHARE, networks.TOLERANCE],
        "retrained": networks.RETRAINED,
        "latency": [networks.RECIPE, networks.EXPORT_LENGTH],
        "scored": "last epoch",
    }


def result(done: Mapping[str, Any]) -> results.ResultFile:
    """Collects the scores of the finished jobs."""
    accuracies = records_without_seed(done, STUDENT_TASKS, SPLIT)
    students = [(SHAPE, network.label) for network in NETWORKS]
    accuracies += records_by_seed(done, students, STUDENT_TASKS, SEEDS, SPLIT, student_name)
    notes = [settings_note(settings())]
    names = [*map(search_name, SEARCHES), LATENCY, SURFACES, *map(text_name, NETWORKS)]
    if kept := {name: done[name] for name in names if name in done}:
        notes.append(SEARCHES_NOTE + json.dumps(kept))
    return results.result_file("EfficientBERT on GLUE tasks", quick=False, accuracies=accuracies, notes=notes)


def searched(content: results.ResultFile) -> dict[str, Any]:
    """Job name → result of searches, text, latency and surfaces, from a result file."""
    return noted(content, SEARCHES_NOTE)


def scored(content: results.ResultFile) -> dict[str, Any]:
    """Reads the results of students' jobs from a result file with these settings; otherwise returns nothing."""
    found = scores_by_job(content, settings(), student_name)
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
