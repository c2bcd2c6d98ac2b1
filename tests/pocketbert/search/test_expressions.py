"""Random expressions: validity, distribution and duplicates, against checks on their texts."""

from __future__ import annotations

import functools
import itertools
from typing import Literal

import numpy as np
import pytest
from oracles.expressions import keeps_rules, numpy_value, subtree_spans, table_1

from pocketbert.feedforward import ACTIVATIONS, AGGREGATIONS, Node, parse
from pocketbert.search import expressions
from pocketbert.search.expressions import (
    BASE,
    crossover,
    genotype_key,
    is_valid,
    mutate,
    random_subtree,
    value_key,
)


def _rule(size: int = 540, intermediate_size: int = 270, mismatch: str = "truncate"):
    return functools.partial(is_valid, size=size, intermediate_size=intermediate_size, mismatch=mismatch)


def _weights(random: np.random.Generator, size: int, inner: int) -> list[tuple[np.ndarray, np.ndarray]]:
    shapes = ((size, inner), (inner, size))
    return [(random.normal(0, 0.5, shape), random.normal(size=shape[1])) for shape in shapes]


@functools.cache
def _family(seed: int, size: int, inner: int, mismatch: str) -> tuple[Node, ...]:
    """Trees of a small evolution: mutations of mutations, and crossed ones."""
    random, rule = np.random.default_rng(seed), _rule(size, inner, mismatch)
    trees = [BASE]
    for _ in range(150):
        one, other = (trees[random.integers(len(trees))] for _ in range(2))
        trees += [mutate(one, random, rule, 1000), crossover(one, other, random, rule, 50)]
    return tuple(trees)


_WIDTHS = [
    pytest.param(5, 3, "truncate", id="truncate"),
    pytest.param(5, 3, "pad", id="pad"),
    pytest.param(3, 7, "truncate", id="truncate, wide inside"),
    pytest.param(3, 7, "pad", id="pad, wide inside"),
    pytest.param(5, 5, "truncate", id="equal widths"),
]


@pytest.mark.parametrize(("size", "inner", "mismatch"), _WIDTHS)
def test_every_tree_is_valid(size: int, inner: int, mismatch: str) -> None:
    random = np.random.default_rng(1)
    x, weights = random.normal(size=[2, size]), _weights(random, size, inner)
    family = _family(2, size, inner, mismatch)
    for tree in family:
        text = tree.text()
        assert keeps_rules(text), text
        # NumPy refuses a product of arrays with other widths.
        assert numpy_value(text, x, weights, mismatch).shape == x.shape, text
    assert len({tree.text() for tree in family}) > 100
    assert {node.operation for tree in family for node in tree} == {*ACTIVATIONS, *AGGREGATIONS, "linear", "x"}


def test_same_seed_gives_same_trees() -> None:
    texts = [tree.text() for tree in _family(2, 5, 3, "truncate")]
    _family.cache_clear()
    assert [tree.text() for tree in _family(2, 5, 3, "truncate")] == texts
    assert [tree.text() for tree in _family(3, 5, 3, "truncate")] != texts


@pytest.mark.parametrize("height", [0, 1, 2, 3])
def test_random_subtree_is_full(height: int) -> None:
    random = np.random.default_rng(height)

    def depths(node: Node) -> set[int]:
        return {1 + depth for argument in node.arguments for depth in depths(argument)} or {0}

    assert all(depths(random_subtree(random, height)) == {height} for _ in range(50))


def test_no_valid_try_gives_the_parent() -> None:
    tried: list[Node] = []
    random = np.random.default_rng(5)
    assert mutate(BASE, random, lambda tree: bool(tried.append(tree)), 400) == BASE
    assert len(tried) == 400
    assert crossover(BASE, BASE, random, lambda tree: bool(tried.append(tree)), 7) == BASE
    assert len(tried) == 407


def test_mutation_adds_four_levels_at_most() -> None:
    tried: list[Node] = []
    mutate(BASE, np.random.default_rng(6), lambda tree: bool(tried.append(tree)), 2000)
    # A subtree of height 0 to 3 below `x` at depth 3, or instead of the root; then one operation.
    heights = [tree.height for tree in tried]
    assert (min(heights), max(heights)) == (1, 7)


def test_crossover_reaches_every_exchange() -> None:
    one, other = "linear(relu(mul(linear(x),x)))", "tanh(linear(gelu(linear(max(x,tanh(x))))))"
    exchanged = {
        one[:start] + other[first:last] + one[end:]
        for (start, end), (first, last) in itertools.product(subtree_spans(one), subtree_spans(other))
    }
    # The whole of `other`, the rules of texts, and no width below 270 behind the second map: `mul` truncates.
    expected = {text for text in exchanged if keeps_rules(text)}
    random = np.random.default_rng(8)
    trees = [parse(text.replace("linear", "linear1_2")).tree for text in (one, other)]
    children = {crossover(*trees, random, _rule(), 1000).text() for _ in range(1500)}
    assert children == expected
    assert len(expected) > 5


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("linear1_2(relu(mul(linear1_2(x),x)))", "linear1_2(relu(mul(x,linear1_2(x))))"),
        ("linear1_2(gelu(linear1_2(add(x,tanh(x)))))", "linear1_2(gelu(linear1_2(add(tanh(x),x))))"),
        # Rounding differs in the last bits.
        (
            "linear1_2(relu(linear1_2(add(add(x,tanh(x)),sigmoid(x)))))",
            "linear1_2(relu(linear1_2(add(x,add(tanh(x),sigmoid(x))))))",
        ),
        # The largest of x and sigmoid(x) is positive.
        ("linear1_2(relu(max(sigmoid(linear1_2(x)),x)))", "linear1_2(elu(max(x,sigmoid(linear1_2(x)))))"),
        ("linear1_2(tanh(linear1_2(max(x,relu(x)))))", "linear1_2(tanh(linear1_2(relu(x))))"),
    ],
)
def test_equal_values_have_equal_keys(one: str, other: str) -> None:
    assert _key(one) == _key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("linear1_2(relu(linear1_2(x)))", "linear1_2(leaky_relu(linear1_2(x)))"),
        ("linear1_2(swish(linear1_2(x)))", "linear1_2(gelu(linear1_2(x)))"),
        ("add(linear1_1(x),linear1_1(tanh(x)))", "add(linear1_1(tanh(x)),linear1_1(x))"),
        ("linear1_2(relu(add(linear1_2(x),x)))", "linear1_2(relu(max(linear1_2(x),x)))"),
    ],
)
def test_different_values_have_different_keys(one: str, other: str) -> None:
    assert _key(one) != _key(other)


def _key(text: str) -> str:
    expression = parse(text)
    return value_key(expression, 540, 540 // expression.divisor, "truncate")


@pytest.mark.one_of_each("pad", "truncate, wide inside", "equal widths")
@pytest.mark.parametrize(("size", "inner", "mismatch"), _WIDTHS)
def test_keys_group_like_other_inputs(size: int, inner: int, mismatch: str) -> None:
    texts = sorted({tree.text("linear1_1") for tree in _family(2, size, inner, mismatch)})
    keys = {text: value_key(parse(text), size, inner, mismatch) for text in texts}
    random = np.random.default_rng(17)
    x, weights = random.normal(size=[300, size]), _weights(random, size, inner)
    values = {text: numpy_value(text, x, weights, mismatch) for text in texts}
    for one, other in itertools.combinations(texts, 2):
        # Equal functions differ by rounding, some 1e-15; others by more than 1e-6 for one input at least.
        equal = np.allclose(values[one], values[other], rtol=1e-9, atol=1e-9)
        assert equal == (keys[one] == keys[other]), (one, other)
    assert len(set(keys.values())) < len(texts)


@pytest.mark.parametrize("mismatch", ["truncate", "pad"])
@pytest.mark.parametrize("name", [*ACTIVATIONS, *AGGREGATIONS])
def test_operations_are_those_of_table_1(name: str, mismatch: Literal["truncate", "pad"]) -> None:
    one, other = np.random.default_rng(31).normal(0, 2, [2, 7, 5])
    operands = [one] if name in ACTIVATIONS else [one, other[:, :3]]
    for pair in (operands, operands[::-1]):
        value = expressions._functions(mismatch)[name](*pair)
        np.testing.assert_allclose(value, table_1(name, mismatch)(*pair), rtol=1e-12, atol=1e-12)


def test_input_is_either_operand_of_a_new_operation() -> None:
    tried: list[Node] = []
    mutate(BASE, np.random.default_rng(23), lambda tree: bool(tried.append(tree)), 3000)
    firsts = [
        node.arguments[0].operation == "x"
        for tree in tried
        for node in tree
        if node.operation in AGGREGATIONS and [argument.operation for argument in node.arguments].count("x") == 1
    ]
    # Some 700, half of them, with a standard deviation of 0.02.
    assert len(firsts) > 500 and 0.42 < np.mean(firsts) < 0.58


def test_other_operation_keeps_its_operands() -> None:
    random, node = np.random.default_rng(29), parse("linear1_1(mul(linear1_1(x),tanh(x)))").tree.arguments[0]
    changed = [expressions._change_operation(node, random).text() for _ in range(60)]
    assert {*changed} == {f"{name}(linear(x),tanh(x))" for name in ("add", "mul", "max")}


def test_genotype_key_has_the_shape() -> None:
    one = ("linear2_3(relu(mul(linear2_3(x),x)))", "linear1_1(gelu(linear1_1(x)))")
    same = ("linear2_3(relu(mul(x,linear2_3(x))))", one[1])
    other = ("linear2_4(relu(mul(linear2_4(x),x)))", one[1])
    keys = [genotype_key(genotype, 540, 540, "truncate") for genotype in (one, same, other)]
    assert keys[0] == keys[1]
    assert keys[0][1] == keys[2][1]
    assert [key[0].partition(":")[0] for key in keys] == ["2_3", "2_3", "2_4"]
