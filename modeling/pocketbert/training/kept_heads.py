"""Model directory heads to continue with: the kinds and labels must match the tasks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pocketbert.checkpoints.directory import DirectoryDescription, ModelDirectory, has_new_biases
from pocketbert.checkpoints.name_maps import tensor_specs
from pocketbert.configs import EncoderConfig, TaskConfig, head_names
from pocketbert.heads_config import has_decisions, poolings, same_heads, with_poolings_of
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert_runtime.heads_config import described_heads
from pocketbert_runtime.label_names import label_positions

if TYPE_CHECKING:
    from pocketbert.model import Model


def head_arrays(directory: ModelDirectory, tasks: Sequence[TaskConfig]) -> dict[str, np.ndarray]:
    """Returns weights for heads with the tasks' kinds and labels: path in the new model -> array.

    Labels are compared by name, without case. If their order differs, the weights take the task's order. If several
    heads have these labels, the task's name decides.
    """
    arrays = {}
    for name, task in zip(head_names(tasks), tasks, strict=True):
        source = source_of(directory.tasks, task)
        if source is None or poolings(source) != poolings(task):
            continue
        positions = label_positions(task.labels, source.labels) or []
        axes = _label_axes(directory.config, source)
        prefix = f"heads.{head_names(directory.tasks)[directory.tasks.index(source)]}."
        for path, array in directory.tensors.items():
            if path.startswith(prefix):
                rest = path.removeprefix(prefix)
                axis = axes.get(rest)
                arrays[f"heads.{name}.{rest}"] = array if axis is None else np.take(array, positions, axis)
    return arrays


def reorder_head(model: Model, labels: Sequence[str]) -> None:
    """Reorders the logits in a model's first head: `labels` are its labels in any order or case."""
    task = model.tasks[0]
    positions = label_positions(labels, task.labels)
    assert positions is not None
    if positions != list(range(len(labels))):
        prefix = f"heads.{head_names(model.tasks)[0]}."
        weights = model.weights_by_path()
        for rest, axis in _label_axes(model.config, task).items():
            weight = weights[prefix + rest]
            weight.assign(np.take(weight.numpy(), positions, axis))
    decisions = None if task.decisions is None else task.decisions.in_order(positions)
    model.tasks = (dataclasses.replace(task, labels=tuple(labels), decisions=decisions), *model.tasks[1:])


def source_of(held: Sequence[TaskConfig], task: TaskConfig) -> TaskConfig | None:
    """Returns the task of the head to continue for `task`; None for a new head."""
    sources = [other for other in held if _is_same(other, task)]
    if len(sources) > 1:
        sources = [other for other in sources if other.name == task.name]
    return sources[0] if sources else None


def continued_task(directory: DirectoryDescription, task: TaskConfig) -> TaskConfig | None:
    """Returns `task` with pooling and activation from the head that continues; None for a new or an untrained head."""
    source = source_of(directory.tasks, task)
    if source is None:
        return None
    poolings: TaskConfig = with_poolings_of(task, source)
    continued = dataclasses.replace(poolings, activation=task.activation or source.activation)
    if has_new_biases(directory, f"heads.{head_names(directory.tasks)[directory.tasks.index(source)]}."):
        return None
    return continued


def log_heads(held: Sequence[TaskConfig], tasks: Sequence[TaskConfig], *, new_head: bool | None = None) -> None:
    """Logs which model directory heads a run keeps and leaves out.

    Args:
      held: tasks of the directory's heads.
      tasks: the run's tasks.
      new_head: whether the user wants a new head; None if the run has no such option.
    """
    sources = [None if new_head else source_of(held, task) for task in tasks]
    for task, source in zip(tasks, sources, strict=True):
        if source is not None:
            order = ", in the order of the data's labels" if source.labels != task.labels else ""
            remedy = "" if new_head is None else f"; pass {argument('new_head', True)} to start with a new one"
            log_info(f"continuing with the model's head for {_described(task)}{order}{remedy}")
    left_out = " and ".join(_described(task) for task in held if task not in sources)
    new = " and ".join(_described(task) for task, source in zip(tasks, sources, strict=True) if source is None)
    lines = [f"leaving out the model's head for {left_out}"] if left_out else []
    lines += [f"the head for {new} is new"] if new else []
    if any(source is not None and has_decisions(source) for source in sources):
        remedy = f"{argument('decision_thresholds', True)} or {argument('reject')}"
        lines.append(f"the thresholds of its answers do not continue; {remedy} chooses new ones")
    if lines:
        log_info("; ".join(lines))


def _is_same(one: TaskConfig, other: TaskConfig) -> bool:
    """Whether two heads have the same kind, labels in any order, layers and form of pairs."""
    layers = [
        head.embedding and dataclasses.replace(head.embedding, max_length=None, prompts=(), default_prompt=None)
        for head in (one, other)
    ]
    same_labels = label_positions(one.labels, other.labels) is not None
    same_layers = layers[0] == layers[1] and one.pairs == other.pairs
    return one.kind == other.kind and same_labels and same_layers and same_heads(one, other)


def _described(task: TaskConfig) -> str:
    parts = ", ".join(task.labels) or described_heads(task)
    return f"{task.kind} ({parts})" if parts else task.kind


def _label_axes(config: EncoderConfig, task: TaskConfig) -> dict[str, int]:
    """Finds the label axis of each head weight with one, by path in the head. A head with one more label reveals it."""
    if not task.labels:
        return {}
    larger = dataclasses.replace(task, labels=(*task.labels, "".join(task.labels) + "+"), decisions=None)
    prefix = f"heads.{task.kind}."
    axes_by_path = {}
    others = tensor_specs(config, [larger])
    for path, spec in tensor_specs(config, [task]).items():
        sizes = zip(spec.canonical_shape, others[path].canonical_shape, strict=True)
        axes = [axis for axis, (size, other) in enumerate(sizes) if size != other]
        if axes:
            axes_by_path[path.removeprefix(prefix)] = axes[0]
    return axes_by_path
