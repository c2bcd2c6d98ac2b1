"""Searches and networks of EfficientBERT's accuracy study."""

from __future__ import annotations

from dataclasses import dataclass

from studies.sweep import folder_name

SEEDS = (0, 1, 2)
TASKS = ("sst2", "cola", "stsb", "mrpc")
# Tasks of the networks with one seed; tasks of stages 1 and 2 with three seeds.
OTHER_TASKS = ("sst2", "mrpc")
SEARCHED = TASKS[0]
QUESTIONS = "squad"
SHAPE = "3x240"


@dataclass(frozen=True)
class Network:
    """A student.

    Attributes:
      label: name in the tables.
      learns_text: whether it was distilled on text before the tasks.
    """

    label: str
    learns_text: bool = True


# Labels of searches. The others have the same number of trained candidates in one stage (table 6).
THREE_STAGES = "three stages"
SEARCHES = (THREE_STAGES, "one stage", "one stage, evolution", "one stage, random")

WINNERS = {stage: Network(f"stage {stage}") for stage in (1, 2, 3)}
HAND_DESIGNED = Network("base")
# Table 5, with all seeds.
MAIN = (HAND_DESIGNED, *WINNERS.values())
# Three seeds on all tasks, and table 4.
ENDS = (HAND_DESIGNED, WINNERS[3])
STACKED = Network("two stacks of half the width")
COLD = Network("stage 3, random weights")
# EfficientBERT+ starts from stage 3's supernet, which has seen all tasks.
PLUS = Network("stage 3, weights of all tasks", learns_text=False)
EQUAL_LATENCY = Network("base as slow as stage 3, random weights")
BERT_PLAIN = Network("BERT's layers")
BERT_SEARCHED = Network("BERT's layers, stage 3")
FOUND = {label: Network(label) for label in SEARCHES[1:]}
NETWORKS = (*MAIN, STACKED, COLD, PLUS, EQUAL_LATENCY, BERT_PLAIN, BERT_SEARCHED, *FOUND.values())

LATENCY, SURFACES = "latency", "surfaces"


def tasks_of(network: Network, seed: int) -> tuple[str, ...]:
    """Tasks on which a network is scored with a seed."""
    if network in ENDS:
        return (*TASKS, QUESTIONS) if seed == SEEDS[0] else TASKS
    if network in MAIN:
        return TASKS if seed == SEEDS[0] else OTHER_TASKS
    return OTHER_TASKS if seed == SEEDS[0] else ()


def search_name(label: str) -> str:
    """Name of a search's job."""
    return f"search/{folder_name(label)}"


def text_name(network: Network) -> str:
    """Name of the job that distilled a network on text."""
    return f"text/{folder_name(network.label)}"
