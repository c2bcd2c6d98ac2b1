"""Activations that a training step saves from its forward pass for the backward pass, read from its graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf

# Prefix of the operations that `GradientTape.gradient` adds to a graph.
_BACKWARD = "gradient_tape/"
# Operations whose result is a variable, an argument, or another operation's memory in another shape.
_SOURCES = ("Placeholder", "ReadVariableOp", "Const", "ResourceGather", "VarHandleOp")
_VIEWS = ("Reshape", "Identity", "Squeeze", "ExpandDims")


@dataclass(frozen=True, kw_only=True)
class Array:
    """An array computed in the forward pass and read in the backward pass.

    Attributes:
      name: name of its operation.
      shape: its shape.
      size_bytes: its size.
    """

    name: str
    shape: tuple[int, ...]
    size_bytes: int


def live_operations(step: tf.types.experimental.ConcreteFunction) -> list[Any]:
    """Operations that the step's results and its effects on variables depend on, in the order of the graph."""
    graph = step.graph
    pending = [tensor.op for tensor in step.outputs] + list(graph.control_outputs)
    seen: set[str] = set()
    while pending:
        operation = pending.pop()
        if operation.name in seen:
            continue
        seen.add(operation.name)
        pending += [tensor.op for tensor in operation.inputs] + list(operation.control_inputs)
    return [operation for operation in graph.get_operations() if operation.name in seen]


def saved_activations(step: tf.types.experimental.ConcreteFunction) -> list[Array]:
    """Arrays that are saved from the forward to the backward pass of a step.

    Args:
      step: a step with a `GradientTape`, traced for fixed shapes.

    Returns:
      Each array once, in the order of computation. Weights and arguments do not count, nor do arrays for operations
      without effect, which TensorFlow prunes.
    """
    backward: set[str] = set()
    found: dict[str, Any] = {}
    for operation in live_operations(step):
        # Sums of gradients and the results of custom gradients have other names, but come later in the graph.
        if _BACKWARD not in operation.name and not any(tensor.op.name in backward for tensor in operation.inputs):
            continue
        backward.add(operation.name)
        for tensor in operation.inputs:
            origin = _origin(tensor)
            if origin.op.name not in backward and origin.op.type not in _SOURCES and not tensor.dtype.is_integer:
                found[origin.name] = origin
    return [
        Array(
            name=tensor.op.name,
            shape=tuple(tensor.shape.as_list()),
            size_bytes=tensor.shape.num_elements() * tensor.dtype.size,
        )
        for tensor in found.values()
    ]


def _origin(tensor: Any) -> Any:
    while tensor.op.type in _VIEWS:
        tensor = tensor.op.inputs[0]
    return tensor
