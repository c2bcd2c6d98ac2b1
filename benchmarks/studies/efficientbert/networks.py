"""Searches and networks of EfficientBERT's accuracy study, and the sizes of its runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pocketbert.configs import EncoderConfig
from pocketbert.feedforward import FeedForwardConfig
from pocketbert.presets import preset
from studies.jobs import result_of
from studies.sweep import folder_name

SEEDS = (0, 1, 2)
TASKS = ("sst2", "cola", "stsb", "mrpc")
# Tasks of the networks with one seed; tasks of stages 1 and 2 with three seeds.
OTHER_TASKS = ("sst2", "mrpc")
SEARCHED = TASKS[0]
QUESTIONS = "squad"
# Training examples of each task, questions, and sentences of the searches.
EXAMPLES, QUESTION_EXAMPLES, SEARCH_EXAMPLES = 3_600, 1_600, 6_000
LENGTH = 128
BATCH_SIZE, RATE = 32, 4e-4
TEACHER_EPOCHS, EPOCHS = 3, 2
TEACHER_RATE, QUESTION_TEACHER_RATE = 5e-5, 1e-4
TEXT_STEPS, TEXT_LENGTH, TEXT_RATE, STEPS_PER_LOSS = 200, 64, 4e-4, 20
# Like the text of the other studies.
TEXT_SEGMENTS: Literal[1] = 1
SUPERNET_EPOCHS, CANDIDATE_SHARE, SCORE_SHARE = 2, 0.2, 0.33
TOLERANCE = 0.03
RETRAINED = 8
# Exported files whose latency is measured.
RECIPE, EXPORT_LENGTH = "dynamic_wi8", 64

SHAPE = "3x240"
BASE: EncoderConfig = preset("efficientbert_tiny").config.replace(
    num_layers=3, hidden_size=240, head_size=20, intermediate_size=240, feedforward=None
)
BASE_NETWORK = "linear1_1(gelu(linear1_1(x)))"
# TinyBERT's layers: an inner width of four times the hidden size, and no factorized embedding (table 7).
BERT: EncoderConfig = preset("bert_base_uncased").config.replace(
    num_layers=3, hidden_size=240, embedding_size=240, head_size=20, intermediate_size=960, activation="gelu_tanh"
)


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
    candidates: tuple[int, ...] = (20,)


THREE_STAGES = SearchVariant(label="three stages", stages=(1, 2, 3), candidates=(14, 6, 24))
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
      expression: all layers' expression, for a network designed by hand; None for BERT's feed-forward network.
      base: its other sizes: those of the searches, of BERT, or those of the searches with the inner width whose latency
        is nearest to that of stage 3's winner.
      start: its first weights: slices of the frozen supernet, before text; slices of stage 3's supernet, fine-tuned on
        all tasks, without text (EfficientBERT+); or random ones, before text.
    """

    label: str
    search: SearchVariant | None = None
    stage: int = 1
    expression: str | None = BASE_NETWORK
    base: Literal["searched", "bert", "equal latency"] = "searched"
    start: Literal["supernet", "tasks", "random"] = "supernet"


WINNERS = {stage: Network(label=f"stage {stage}", search=THREE_STAGES, stage=stage) for stage in (1, 2, 3)}
HAND_DESIGNED = Network(label="base")
# Table 5, with all seeds.
MAIN = (HAND_DESIGNED, *WINNERS.values())
# Three seeds on all tasks, and table 4.
ENDS = (HAND_DESIGNED, WINNERS[3])
STACKED = Network(label="two stacks of half the width", expression="linear2_2(gelu(linear2_2(x)))")
COLD = Network(label="stage 3, random weights", search=THREE_STAGES, stage=3, start="random")
PLUS = Network(label="stage 3, weights of all tasks", search=THREE_STAGES, stage=3, start="tasks")
EQUAL_LATENCY = Network(label="base as slow as stage 3, random weights", base="equal latency", start="random")
BERT_PLAIN = Network(label="BERT's layers", expression=None, base="bert", start="random")
BERT_SEARCHED = Network(label="BERT's layers, stage 3", search=THREE_STAGES, stage=3, base="bert", start="random")
FOUND = {search.label: Network(label=search.label, search=search) for search in (ONE_STAGE, EVOLUTION, RANDOM)}
OTHERS = (STACKED, COLD, PLUS, EQUAL_LATENCY, BERT_PLAIN, BERT_SEARCHED, *FOUND.values())
NETWORKS = (*MAIN, *OTHERS)

LATENCY, SURFACES = "latency", "surfaces"


def tasks_of(network: Network, seed: int) -> tuple[str, ...]:
    """Tasks on which a network is scored with a seed."""
    if network in ENDS:
        return (*TASKS, QUESTIONS) if seed == SEEDS[0] else TASKS
    if network in MAIN:
        return TASKS if seed == SEEDS[0] else OTHER_TASKS
    return OTHER_TASKS if seed == SEEDS[0] else ()


def searched_config(genotype: tuple[str, ...]) -> EncoderConfig:
    """The searches' student with one expression per layer."""
    return BASE.replace(feedforward=FeedForwardConfig(expressions=genotype))


def network_config(network: Network, output: Path) -> EncoderConfig:
    """Architecture of a network; reads the results of its search, and of the latency.

    Args:
      network: the network.
      output: folder of the experiment.
    """
    if network.search is not None:
        genotype = tuple(result_of(output, search_name(network.search))["winners"][str(network.stage)])
    elif network.expression is not None:
        genotype = (network.expression,) * BASE.num_layers
    else:
        return BERT
    if network.base == "bert":
        return BERT.replace(feedforward=FeedForwardConfig(expressions=genotype, mismatch="pad"))
    config = searched_config(genotype)
    if network.base == "equal latency":
        config = config.replace(intermediate_size=result_of(output, LATENCY)["inner size"])
    return config


def search_name(variant: SearchVariant) -> str:
    """Name of a search's job."""
    return f"search/{folder_name(variant.label)}"


def text_name(network: Network) -> str:
    """Name of the job that distils a network on text."""
    return f"text/{folder_name(network.label)}"
