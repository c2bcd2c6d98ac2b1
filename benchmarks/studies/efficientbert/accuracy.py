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

import sys
from pathlib import Path
from typing import Any

from pocketbert_bench import results
from pocketbert_bench.quickstart import NETWORK
from studies.efficientbert import networks
from studies.efficientbert.networks import NETWORKS, SEARCHES, Network, search_name, text_name
from studies.efficientbert.training import (
    distil_network_on_text,
    draw_surfaces,
    measure_latency,
    run_search,
    train_network,
    train_teacher,
)
from studies.jobs import StudyJob
from studies.runs import majority_subject
from studies.sweep import TEACHER, Sweep, SweepSubject, job_name, noted

# Prefix of the note with the results of searches, text, latency and surfaces.
SEARCHES_NOTE = "searches"
STUDENT_TASKS = (*networks.TASKS, networks.QUESTIONS)


def preparations(output: Path) -> list[StudyJob]:
    """Searches, latencies, surfaces, and distillation on text."""
    first = (search_name(networks.THREE_STAGES),)
    jobs = []
    for variant in SEARCHES:
        teachers = tuple(job_name(NETWORK, TEACHER, task) for task in networks.TASKS)
        needs = teachers if variant == networks.THREE_STAGES else first
        jobs.append(StudyJob(name=search_name(variant), call=run_search, arguments=(variant, output), needs=needs))
    every_search = tuple(map(search_name, SEARCHES))
    jobs.append(StudyJob(name=networks.LATENCY, call=measure_latency, arguments=(output,), needs=every_search))
    jobs.append(StudyJob(name=networks.SURFACES, call=draw_surfaces, arguments=(output,), needs=first))
    for network in NETWORKS:
        if network.start != "tasks":
            # Its architecture and first weights.
            needs = tuple(dict.fromkeys([*first, search_name(network.search or networks.THREE_STAGES)]))
            needs = (networks.LATENCY,) if network == networks.EQUAL_LATENCY else needs
            arguments = (network, output)
            jobs.append(
                StudyJob(name=text_name(network), call=distil_network_on_text, arguments=arguments, needs=needs)
            )
    return jobs


def _subject(network: Network) -> SweepSubject:
    start = search_name(networks.THREE_STAGES) if network.start == "tasks" else text_name(network)
    return SweepSubject(
        model=networks.SHAPE,
        label=network.label,
        call=train_network,
        arguments=(network,),
        needs=lambda task, seed: (job_name(NETWORK, TEACHER, task), start),
        runs={seed: networks.tasks_of(network, seed) for seed in networks.SEEDS},
    )


def settings() -> dict[str, Any]:
    """All settings that determine the tables, as JSON values."""
    return {
        "training": {"batch size": networks.BATCH_SIZE, "epochs": networks.EPOCHS, "rate": networks.RATE},
        "length": networks.LENGTH,
        "teacher": [networks.TEACHER_RATE, networks.TEACHER_EPOCHS, networks.QUESTION_TEACHER_RATE],
        "text": [networks.TEXT_STEPS, networks.TEXT_LENGTH, networks.TEXT_RATE, networks.TEXT_SEGMENTS],
        "examples": [networks.EXAMPLES, networks.QUESTION_EXAMPLES, networks.SEARCH_EXAMPLES],
        "searches": {
            search.label: [search.strategy, list(search.stages), list(search.candidates)] for search in SEARCHES
        },
        "candidates": [networks.SUPERNET_EPOCHS, networks.CANDIDATE_SHARE, networks.SCORE_SHARE, networks.TOLERANCE],
        "retrained": networks.RETRAINED,
        "latency": [networks.RECIPE, networks.EXPORT_LENGTH],
        "scored": "last epoch",
    }


def searched(content: results.ResultFile) -> dict[str, Any]:
    """Job name → result of searches, text, latency and surfaces, from a result file."""
    return noted(content, SEARCHES_NOTE)


SWEEP = Sweep(
    result="efficientbert/accuracy",
    title="EfficientBERT on GLUE tasks",
    subjects=(
        majority_subject(networks.TASKS, networks.EXAMPLES),
        SweepSubject(model=NETWORK, label=TEACHER, call=train_teacher, runs={None: STUDENT_TASKS}),
        *map(_subject, NETWORKS),
    ),
    tasks=STUDENT_TASKS,
    seeds=networks.SEEDS,
    settings=settings,
    preparations=preparations,
    recorded={
        SEARCHES_NOTE: {
            name: name
            for name in (*map(search_name, SEARCHES), networks.LATENCY, networks.SURFACES, *map(text_name, NETWORKS))
        }
    },
)

if __name__ == "__main__":
    sys.exit(SWEEP.main(sys.argv))
