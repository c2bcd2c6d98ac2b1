"""The jobs of EfficientBERT's accuracy study: teachers, searches, students, latencies and surfaces."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.assets import minilm
from pocketbert.data.examples import Examples
from pocketbert.data.readers.glue import GLUE
from pocketbert.training.grids.published import PUBLISHED_HEAD
from pocketbert_bench.quickstart import NETWORK
from studies.efficientbert import networks
from studies.efficientbert.networks import Network, SearchVariant
from studies.glue_examples import draw, task_data
from studies.runs import distil_on_text, last_metrics
from studies.shared_data import shared_data
from studies.sweep import TEACHER, job_name

if TYPE_CHECKING:
    from pocketbert.data.task_data import TaskData

# Inner widths of the base that are timed, and steps and reach of the second search around the nearest one.
INNER_SIZES, INNER_STEP, INNER_REACH = range(120, 601, 60), 12, 48
SURFACE_POINTS = 21


def examples(task: str, count: int) -> TaskData:
    """At most `count` training examples of a task, and the development set."""
    from pocketbert.data.readers.question_tasks import read_questions
    from pocketbert.data.task_data import TaskData
    from pocketbert.data.train_dev_split import train_dev_split

    if task == networks.QUESTIONS:
        train, dev = (read_questions(task, shared_data("squad"), split) for split in ("train", "dev"))
        # Whole paragraphs.
        _, drawn = train_dev_split(train, count / len(train))
        return TaskData(task=TaskConfig(kind="span", name=task, dropout=0.0), train=drawn, dev=dev)
    data = task_data(task, count)
    assert isinstance(data.train, Examples)
    return dataclasses.replace(data, train=draw(data.train, 0, count)) if task != "sst2" else data


def training_examples(task: str) -> TaskData:
    """The examples on which a task's teacher and students train."""
    return examples(task, networks.QUESTION_EXAMPLES if task == networks.QUESTIONS else networks.EXAMPLES)


def train_teacher(task: str, _seed: None, output: Path) -> dict[str, Any]:
    """Fine-tunes the 6x384 network; returns the metrics of the last epoch."""
    from pocketbert.training.config import FinetuneConfig, RunConfig
    from pocketbert.training.finetune import finetune

    questions = task == networks.QUESTIONS
    options = FinetuneConfig(
        **PUBLISHED_HEAD,
        learning_rate=networks.QUESTION_TEACHER_RATE if questions else networks.TEACHER_RATE,
        epochs=networks.EPOCHS if questions else networks.TEACHER_EPOCHS,
        batch_size=networks.BATCH_SIZE,
        max_length=networks.LENGTH,
    )
    data, folder = training_examples(task), _teacher(task, output).parent
    finetune(minilm(), data, folder, config=options, run=RunConfig(seed=networks.SEEDS[0]))
    return _scores(task, data, folder)


def run_search(variant: SearchVariant, output: Path) -> dict[str, Any]:
    """Searches; returns winners and scores of each stage, the retrained candidates and Kendall's rank correlation.

    All searches have the supernet of the first one, which runs before them.
    """
    from pocketbert.search.config import SearchConfig
    from pocketbert.search.constraints import ParameterConstraint
    from pocketbert.search.folder import JOURNAL_FILE
    from pocketbert.search.journal import Journal, best
    from pocketbert.search.run import search
    from pocketbert.search.strategies import StrategyOptions
    from pocketbert.search.supernet_tasks import SupernetTask

    folder, first = output / networks.search_name(variant), variant == networks.THREE_STAGES
    weights = parameters(networks.searched_config((networks.BASE_NETWORK,) * networks.BASE.num_layers))
    limit = ParameterConstraint(minimum=(1 - networks.TOLERANCE) * weights, limit=(1 + networks.TOLERANCE) * weights)
    others = [task for task in networks.TASKS if task != networks.SEARCHED] if first else []
    outcome = search(
        networks.BASE,
        examples(networks.SEARCHED, networks.SEARCH_EXAMPLES),
        folder,
        teacher=_teacher(networks.SEARCHED, output),
        config=SearchConfig(
            stages=variant.stages,
            candidates=variant.candidates,
            supernet_epochs=networks.SUPERNET_EPOCHS,
            candidate_epochs=1,
            candidate_share=networks.CANDIDATE_SHARE,
            score_share=networks.SCORE_SHARE,
            stage3_score_share=networks.SCORE_SHARE,
            retrained=networks.RETRAINED if first else 0,
            max_length=networks.LENGTH,
        ),
        strategy=StrategyOptions(strategy=variant.strategy),
        constraints=[limit],
        tasks=[SupernetTask(data=training_examples(task), teacher=_teacher(task, output)) for task in others],
        supernet=None if first else _frozen_supernet(output),
    )
    journal = Journal(folder / JOURNAL_FILE)
    return {
        "winners": {str(stage): list(best(journal.of_stage(stage)).genotype) for stage in variant.stages},
        "scores": {str(stage): [candidate.score for candidate in journal.of_stage(stage)] for stage in variant.stages},
        "retrained": outcome.retrained,
        "kendall_tau": outcome.kendall_tau,
        "seconds": outcome.seconds,
    }


def distil_network_on_text(network: Network, output: Path) -> dict[str, Any]:
    """Distils a network on text; returns its expressions, its number of weights, and the losses by step (figure 4)."""
    from pocketbert.distillation.initialization import SupernetSlices
    from pocketbert.distillation.methods.efficientbert import EfficientBERT
    from pocketbert.training.config import RunConfig

    config, folder = networks.network_config(network, output), output / networks.text_name(network)
    method = EfficientBERT(
        steps=networks.TEXT_STEPS,
        batch_size=networks.BATCH_SIZE,
        learning_rate=networks.TEXT_RATE,
        max_length=networks.TEXT_LENGTH,
        text_segments=networks.TEXT_SEGMENTS,
    )
    student = SupernetSlices(_frozen_supernet(output), config) if network.start == "supernet" else config
    outcome = distil_on_text(student, method, folder, RunConfig(evaluation_steps=networks.STEPS_PER_LOSS))
    return {
        "genotype": list(config.feedforward.expressions) if config.feedforward else [],
        "parameters": parameters(config),
        "losses": _losses(folder),
        "seconds": outcome["seconds"],
    }


def train_network(network: Network, task: str, seed: int, output: Path) -> dict[str, Any]:
    """Distils a network on a task; returns the metrics of the last epoch."""
    from pocketbert.distillation.initialization import SupernetSlices
    from pocketbert.distillation.methods.efficientbert import EfficientBERT
    from pocketbert.distillation.run import distill
    from pocketbert.training.config import RunConfig

    folder, data = output / job_name(networks.SHAPE, network.label, task, seed), training_examples(task)
    method = EfficientBERT(
        epochs=networks.EPOCHS,
        batch_size=networks.BATCH_SIZE,
        learning_rate=networks.RATE,
        max_length=networks.LENGTH,
    )
    start: Any = output / networks.text_name(network) / "model"
    if network.start == "tasks":
        supernet = output / networks.search_name(networks.THREE_STAGES) / "learning_supernet/finetuned/model"
        start = SupernetSlices(supernet, networks.network_config(network, output))
    distill(start, data, folder, teacher=_teacher(task, output), method=method, run=RunConfig(seed=seed))
    return _scores(task, data, folder)


def measure_latency(output: Path) -> dict[str, Any]:
    """Times all networks with random weights; returns milliseconds by label, and an inner width (figure 1).

    This is the base's inner width, a multiple of 12, whose latency is nearest to that of stage 3's winner.
    """
    winner = networks.network_config(networks.WINNERS[3], output)
    sizes = list(INNER_SIZES)
    for _ in range(2):
        configs = [_base(size) for size in sizes]
        target, *others = _milliseconds([winner, *configs])
        nearest = min(zip(others, sizes, strict=True), key=lambda pair: abs(pair[0] - target))[1]
        low = max(nearest - INNER_REACH, INNER_STEP)
        sizes = list(range(low, nearest + INNER_REACH + 1, INNER_STEP))
    named = [network for network in networks.NETWORKS if network is not networks.EQUAL_LATENCY]
    configs = [networks.network_config(network, output) for network in named]
    milliseconds = _milliseconds([*configs, _base(nearest)])
    labels = [network.label for network in (*named, networks.EQUAL_LATENCY)]
    return {"inner size": nearest, "ms": dict(zip(labels, milliseconds, strict=True))}


def draw_surfaces(output: Path) -> dict[str, Any]:
    """Mean output of the last layer for two equal features, without attention, and the share that no plane explains.

    See `pocketbert.plots.ffn.ffn_surface` (figure 5). Values are divided by the largest absolute one.
    """
    import numpy as np

    from pocketbert.plots.ffn import ffn_surface
    from pocketbert.training.initialization import plan_model

    configs = {"teacher": plan_model(minilm()).config}
    for network in networks.ENDS:
        configs[network.label] = networks.network_config(network, output)
    axis = np.linspace(-1, 1, SURFACE_POINTS)
    plane = np.stack(
        [np.ones(SURFACE_POINTS**2), *(axis_values.ravel() for axis_values in np.meshgrid(axis, axis))], axis=1
    )
    surfaces = {}
    for label, config in configs.items():
        surface = ffn_surface(config, SURFACE_POINTS)
        values = surface.ravel() / np.abs(surface).max()
        rest = values - plane @ np.linalg.lstsq(plane, values, rcond=None)[0]
        share = float(rest.var() / values.var()) if values.var() else 0.0
        surfaces[label] = {
            "diagonal": [round(float(value), 4) for value in np.diag(values.reshape(surface.shape))],
            "curved share": round(share, 4),
        }
    return surfaces


def parameters(config: EncoderConfig) -> float:
    """Number of weights of an encoder, including a pooler."""
    from pocketbert.search.constraints import ParameterConstraint

    return ParameterConstraint(limit=float("inf")).cost(config)


def _base(inner_size: int) -> EncoderConfig:
    config = networks.searched_config((networks.BASE_NETWORK,) * networks.BASE.num_layers)
    return config.replace(intermediate_size=inner_size)


def _milliseconds(configs: Sequence[EncoderConfig]) -> list[float]:
    from pocketbert_bench.network_latency import Host, Setting

    task = GLUE[networks.SEARCHED].task
    setting = Setting(task=task, recipe=networks.RECIPE, length=networks.EXPORT_LENGTH)
    return [round(value / 1e3, 4) for value in Host().measure(configs, setting, Path()).tolist()]


def _scores(task: str, data: TaskData, folder: Path) -> dict[str, Any]:
    names = ("f1", "exact_match") if task == networks.QUESTIONS else data.metrics
    return {"metrics": last_metrics(folder, names), "examples": len(data.dev)}


def _losses(folder: Path) -> list[list[float]]:
    """Pairs of a step and the mean loss since the pair before."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [[line["step"], round(line["loss"], 4)] for line in lines if line["split"] == "train"]


def _frozen_supernet(output: Path) -> Path:
    return output / networks.search_name(networks.THREE_STAGES) / "supernet/model"


def _teacher(task: str, output: Path) -> Path:
    return output / job_name(NETWORK, TEACHER, task) / "model"
