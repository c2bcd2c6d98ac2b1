"""Prunes a fine-tuned teacher to a smaller model directory."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pocketbert.checkpoints.directory import DirectoryDescription, describe_directory
from pocketbert.configs import EncoderConfig
from pocketbert.data.batches import EncodedExamples
from pocketbert.data.examples import evenly
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.planning import same_labels
from pocketbert.errors import UserError, raise_if_any
from pocketbert.files import write_text
from pocketbert.model import Model, from_pretrained
from pocketbert.output_folders import check_inputs
from pocketbert.progress import log_info
from pocketbert.pruning.config import PruneConfig, PruneResult, head_problems
from pocketbert.pruning.importance import Importance, kept, measure_importance
from pocketbert.pruning.report import page
from pocketbert.pruning.weights import write_pruned
from pocketbert.tasks.data_checks import cut_warning
from pocketbert.tasks.registry import supervised_kinds, supervised_task
from pocketbert.training.config import RunConfig
from pocketbert.training.initialization import saved_models
from pocketbert.training.run_data import TaskRunData
from pocketbert.training.run_folder import MODEL_FOLDER, REPORT_FILE, begin_run, run_once
from pocketbert.training.state import recorded_model

# In a run's folder, besides the files from training.
IMPORTANCE_FILE = "importance.safetensors"


def prune(
    model: Model | str | os.PathLike[str],
    data: TaskData,
    output: str | os.PathLike[str],
    *,
    config: PruneConfig = PruneConfig(),  # noqa: B008
    overwrite: bool = False,
) -> PruneResult:
    """Prunes a fine-tuned model: fewer layers, heads and neurons, and a factored word embedding (ROSITA).

    One pass over the training examples measures every head's and neuron's importance, unless all stay. The pruned model
    keeps some layers, the most important heads and neurons in each, and the teacher's head. It is an ordinary model
    directory: distil or fine-tune it next.

    Call it again with the same arguments to resume an interrupted run; on the same machine, the result is
    bit-identical. For a finished run, it returns the result.

    Args:
      model: the teacher: a model in memory or a model directory, fine-tuned on the task; BERT, RoBERTa, XLM-R or
        DistilBERT.
      data: the task and its labelled examples.
      output: the run's folder: `model/`, `importance.safetensors`, `report.html`, `result.json`.
      config: sizes and options.
      overwrite: discard a finished run in the output folder, or a run with other options.
    Raises:
      UserError: a size exceeds the teacher's, the teacher has another head or architecture, the examples have no
        labels, or `output` contains a run with other options. Nothing was written.
      TrainingFailed: the gradients or outputs are not finite.
    """
    with saved_models(model, output=output, overwrite=overwrite) as (directory,):
        check_inputs(output, (directory, data.train.source, data.dev.source))
        teacher = describe_directory(directory)
        checked = _checked(teacher, directory, data, config)
        recorded: dict[str, Any] = {"objective": "pruning", **config.recorded(), **checked.recorded()}
        recorded |= recorded_model("teacher", directory)

        def run_in(folder: Path) -> dict[str, Any]:
            return _run(folder, from_pretrained(directory), teacher, checked, config, recorded)

        folder, result = run_once(output, recorded, run_in, overwrite=overwrite, files=(IMPORTANCE_FILE,))
    return PruneResult(model_directory=str(folder / MODEL_FOLDER), **result)


def _checked(
    teacher: DirectoryDescription, directory: str | os.PathLike[str], data: TaskData, config: PruneConfig
) -> TaskRunData:
    """Checks all input and returns the data."""
    if data.task.kind not in supervised_kinds():
        raise UserError(f"prune: the task must be {', '.join(supervised_kinds())}; received {data.task.kind}")
    pairs = next((task.pairs for task in teacher.tasks if task.kind == data.task.kind), None)
    # The head continues, so it reads pairs as before.
    checked = TaskRunData(dataclasses.replace(data, task=dataclasses.replace(data.task, pairs=pairs)))
    problems = checked.problems(supervised_kinds(), labelled=("train", "dev")) + config.problems(teacher.config)
    teacher_tasks = tuple(same_labels(task, data.task) or task for task in teacher.tasks)
    problems += head_problems(teacher_tasks, data.task)
    if teacher.vocabulary is None:
        problems.append(f"the teacher must have a tokenizer; {directory} has none; put its files there")
    raise_if_any(problems, "prune")
    return checked


def _run(
    folder: Path,
    model: Model,
    teacher: DirectoryDescription,
    data: TaskRunData,
    config: PruneConfig,
    recorded: dict[str, Any],
) -> dict[str, Any]:
    """Measures, prunes, scores and writes; returns the result except the model's folder."""
    task, parts = supervised_task(data.task), [data.given.train, data.given.dev]
    if cut := cut_warning(task, parts, model.tokenizer, config.max_length):
        log_info(f"warning: {cut}")
    encoded: EncodedExamples | None = None
    if config.cuts_widths(teacher.config):
        train = data.given.train
        rows = train if config.examples is None else train.select(evenly(len(train), config.examples))
        encoded = task.encode(rows, model.tokenizer, config.max_length)
    # Not earlier, so that bad input leaves no run behind.
    begin_run(folder, recorded)
    importance = Importance.none(teacher.config)
    if encoded is not None:
        importance = measure_importance(
            model,
            encoded,
            folder / IMPORTANCE_FILE,
            batch_size=config.batch_size,
            seed=config.seed,
            checkpoint_seconds=config.checkpoint_seconds,
        )
    # An interrupted attempt may have written it.
    written = folder / MODEL_FOLDER
    whole = {path: variable.numpy() for path, variable in model.weights_by_path().items()}
    energy = write_pruned(whole, teacher, importance, config, written)
    models = [model, from_pretrained(written)]
    metrics = [
        data.evaluator(network, config.max_length, RunConfig(), {}, config.batch_size).metrics("of pruning")
        for network in models
    ]
    for name, scores in zip(("teacher", "pruned model"), metrics, strict=True):
        log_info(f"{name}: " + ", ".join(f"{metric} {value:.4f}" for metric, value in scores.items()))
    sizes = [network.count_params() for network in models]
    pruned, layers = config.pruned(teacher.config), config.kept_layers(teacher.config)
    result = {
        "main_metric": data.main_metric,
        "metrics": metrics[1],
        "teacher_metrics": metrics[0],
        "parameters": sizes,
        "weight_bytes": [4 * size for size in sizes],
        **_kept(importance, teacher.config, pruned, layers),
        "kept_embedding": energy,
        "examples": 0 if encoded is None else len(encoded),
    }
    write_text(folder / REPORT_FILE, page(importance, teacher.config, pruned, layers, result))
    return result


def _kept(
    importance: Importance, teacher: EncoderConfig, pruned: EncoderConfig, layers: Sequence[int]
) -> dict[str, Any]:
    """Returns `PruneResult` fields for the kept parts."""
    heads: list[list[int]] = []
    shares: dict[str, list[float]] = {"heads": [], "neurons": []}
    for stored in (teacher.stored_layer(layer - 1) for layer in layers):
        for name, scores, count in (
            ("heads", importance.heads[stored], pruned.num_attention_heads),
            ("neurons", importance.neurons[stored], pruned.intermediate_size),
        ):
            chosen, total = kept(scores, count), float(scores.sum())
            shares[name].append(float(scores[chosen].sum()) / total if total else 1.0)
            if name == "heads":
                heads.append(chosen.tolist())
    return {"kept_heads": heads, "kept_importance": shares}
