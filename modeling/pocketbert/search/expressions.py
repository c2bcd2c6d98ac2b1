"""Random, mutated and crossed expressions, and duplicates by value (EfficientBERT, sections 3.1 and 3.2).

The operators come from the authors' code, which takes them from DEAP. There, a linear map is one of 16 primitives with
its weights as a second operand, so most random trees break a rule: two maps with different stacks, or missing weights.
Here a map has one operand; stacks and divisor belong to the layer. You pass in the generator for all random choices.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from pocketbert.feedforward import (
    ACTIVATIONS,
    AGGREGATIONS,
    INPUT,
    LINEAR,
    FeedForwardExpression,
    Node,
    WidthMismatch,
    aggregate,
    evaluate,
    parse,
    violations,
    width_problems,
)

# One canonical expression per layer.
Genotype = tuple[str, ...]
Rule = Callable[[Node], bool]

# The network of the base model; the authors' first stage mutates it.
BASE = parse("linear1_1(gelu(linear1_1(x)))").tree

_X = Node(INPUT)
_UNARY = (LINEAR, *ACTIVATIONS)
_OPERATIONS = (*_UNARY, *AGGREGATIONS)
# Heights of random subtrees, in the authors' code.
_SUBTREE_HEIGHTS = (0, 1, 2, 3)
_LINEAR_MAPS = 2

# Rows and widths for the value test: an inner width below, at and above the outer one.
_ROWS, _SIZE = 16, 6
_INNER_SIZES = {-1: 4, 0: 6, 1: 9}
_DIGITS = 10

T = TypeVar("T")


def is_valid(tree: Node, size: int, intermediate_size: int, mismatch: WidthMismatch) -> bool:
    """Whether a tree keeps the space's rules and its widths match; `intermediate_size` is divided already."""
    # Counting first spares the messages of `violations` for most random trees.
    if _count_linears(tree) != _LINEAR_MAPS or violations(tree):
        return False
    return not width_problems(tree, size, intermediate_size, mismatch)


def random_subtree(random: np.random.Generator, height: int) -> Node:
    """Draws a tree with every `x` at the same depth (DEAP's genFull). It may break rules."""
    if height == 0:
        return _X
    operation = pick(random, _OPERATIONS)
    return Node(operation, tuple(random_subtree(random, height - 1) for _ in range(_arity(operation))))


def mutate(tree: Node, random: np.random.Generator, rule: Rule, tries: int) -> Node:
    """Mutates a valid tree; returns the tree itself if no try is valid, as in the authors' code.

    A try replaces a random subtree with a random one (height 0 to 3), then the operation at a node below the root with
    another one (same number of operands), and then inserts an operation at a random node, with `x` as another operand.

    Args:
      tree: a valid tree.
      random: source of all choices.
      rule: whether a tree is valid, see `is_valid`.
      tries: maximum tries; the authors use 1000 in stage 1 and 400 in stage 2.
    """
    for _ in range(tries):
        subtree = random_subtree(random, pick(random, _SUBTREE_HEIGHTS))
        mutated = _replace(tree, _index(random, tree), _always(subtree))
        if mutated.arguments:
            mutated = _replace(mutated, _index(random, mutated, 1), lambda node: _change_operation(node, random))
        mutated = _replace(mutated, _index(random, mutated), lambda node: _insert_operation(node, random))
        if rule(mutated):
            return mutated
    return tree


def crossover(one: Node, other: Node, random: np.random.Generator, rule: Rule, tries: int) -> Node:
    """Replaces a random subtree in `one` with one from `other` (DEAP's cxOnePoint, first child).

    Returns `one` if no try is valid. The authors' code has no crossover.
    """
    donors = list(other)
    for _ in range(tries):
        donor = pick(random, donors)
        crossed = _replace(one, _index(random, one), _always(donor))
        if rule(crossed):
            return crossed
    return one


@functools.lru_cache(maxsize=1 << 16)
def genotype_key(genotype: Genotype, size: int, intermediate_size: int, mismatch: WidthMismatch) -> Genotype:
    """Key for a network: each layer's stacks, divisor and value key as text, see `value_key`.

    Networks that compute the same function with equal weights have equal keys. The authors hash the output of all
    layers together. A key per layer also shows equal layers.

    Args:
      genotype: one expression per layer.
      size: width of input and output.
      intermediate_size: inner width for divisor 1.
      mismatch: see `pocketbert.feedforward.aggregate`.
    """
    return tuple(_layer_key(text, size, intermediate_size, mismatch) for text in genotype)


@functools.lru_cache(maxsize=1 << 16)
def _layer_key(text: str, size: int, intermediate_size: int, mismatch: WidthMismatch) -> str:
    expression = parse(text)
    key = value_key(expression, size, intermediate_size // expression.divisor, mismatch)
    return f"{expression.stacks}_{expression.divisor}:{key}"


def value_key(expression: FeedForwardExpression, size: int, intermediate_size: int, mismatch: WidthMismatch) -> str:
    """Hashes a network's values: equal for texts with one meaning, such as `add(x,y)` and `add(y,x)`.

    The test is probabilistic. It computes the network in float64 on 16 fixed random inputs with fixed random weights,
    different for the two linear maps, and rounds to 10 digits of the largest result. Equal networks get different keys
    if rounding errors cross a boundary between digits; this is rare and costs one more candidate. Different networks
    get equal keys if no input shows their difference, or if it is below the rounding. Small widths replace `size` and
    `intermediate_size` in the same order, so models of all sizes agree. (The authors' code rounds the sum of a whole
    model's outputs to 2 digits after the point.)
    """
    order = (intermediate_size > size) - (intermediate_size < size)
    x, weights = _fixed_values(_INNER_SIZES[order])
    linears = [functools.partial(_linear, kernel, bias) for kernel, bias in weights]
    result = evaluate(expression.tree, x, linears, _functions(mismatch))
    largest = np.abs(result).max()
    scale = 10.0 ** np.ceil(np.log10(largest)) if largest > 0 else 1.0
    # Adding zero turns -0.0 into 0.0.
    rounded = np.round(result / scale, _DIGITS) + 0.0
    return hashlib.sha256(np.float64(scale).tobytes() + rounded.tobytes()).hexdigest()[:16]


def pick(random: np.random.Generator, options: Sequence[T]) -> T:
    """Picks a uniformly random element, much faster than `Generator.choice`."""
    return options[int(random.random() * len(options))]


def _arity(operation: str) -> int:
    return 2 if operation in AGGREGATIONS else 1


def _count_linears(tree: Node) -> int:
    return (tree.operation == LINEAR) + sum(map(_count_linears, tree.arguments))


def _size(tree: Node) -> int:
    return 1 + sum(map(_size, tree.arguments))


def _index(random: np.random.Generator, tree: Node, first: int = 0) -> int:
    """Draws a node's index in prefix order, from `first`."""
    return first + int(random.random() * (_size(tree) - first))


def _replace(tree: Node, index: int, change: Callable[[Node], Node]) -> Node:
    """Changes the node at an index in prefix order."""
    if index == 0:
        return change(tree)
    index -= 1
    arguments = list(tree.arguments)
    for position, argument in enumerate(arguments):
        if index < (size := _size(argument)):
            arguments[position] = _replace(argument, index, change)
            break
        index -= size
    return Node(tree.operation, tuple(arguments))


def _always(node: Node) -> Callable[[Node], Node]:
    return lambda _: node


def _change_operation(node: Node, random: np.random.Generator) -> Node:
    if not node.arguments:
        return node
    return Node(pick(random, _UNARY if len(node.arguments) == 1 else AGGREGATIONS), node.arguments)


def _insert_operation(node: Node, random: np.random.Generator) -> Node:
    operation = pick(random, _OPERATIONS)
    if _arity(operation) == 1:
        return Node(operation, (node,))
    return Node(operation, (node, _X) if random.random() < 1 / 2 else (_X, node))


@functools.cache
def _fixed_values(inner: int) -> tuple[np.ndarray, tuple[tuple[np.ndarray, np.ndarray], ...]]:
    """Returns inputs [16, 6], and kernel and bias for each linear map in evaluation order."""
    random = np.random.default_rng(20_210_921)
    x = random.normal(size=[_ROWS, _SIZE])
    shapes = ((_SIZE, inner), (inner, _SIZE))
    return x, tuple((random.normal(0, shape[0] ** -0.5, shape), random.normal(size=shape[1])) for shape in shapes)


def _linear(kernel: np.ndarray, bias: np.ndarray, x: np.ndarray) -> np.ndarray:
    return x @ kernel + bias


@functools.cache
def _functions(mismatch: WidthMismatch) -> Mapping[str, Callable[..., Any]]:
    """Returns NumPy operations (paper, table 1), in forms that do not overflow."""
    functions: dict[str, Callable[..., Any]] = {
        "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        "sigmoid": _sigmoid,
        "tanh": np.tanh,
        "relu": lambda x: np.maximum(x, 0),
        "leaky_relu": lambda x: np.maximum(x, 0.01 * x),
        "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
        "swish": lambda x: x * _sigmoid(x),
    }
    for name, operation in (("add", np.add), ("mul", np.multiply), ("max", np.maximum)):
        functions[name] = aggregate(operation, _concat, mismatch)
    return functions


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))


def _concat(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts, axis=-1)
