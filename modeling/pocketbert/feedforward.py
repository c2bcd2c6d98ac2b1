"""Feed-forward networks as expressions (EfficientBERT, section 3.1): parser, rules and canonical text.

`tanh(linear4_2(gelu(linear4_2(x))))` is a network of two linear maps. `4_2` means 4 stacked copies, each with its own
weights, dropout, residual and norm, and an inner width of 1/2 of the intermediate size. The linear map that is computed
first is the intermediate one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_args

from pocketbert.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from pocketbert.configs import EncoderConfig

WidthMismatch = Literal["truncate", "pad"]

ACTIVATIONS = ("gelu", "sigmoid", "tanh", "relu", "leaky_relu", "elu", "swish")
AGGREGATIONS = ("add", "mul", "max")
INPUT, LINEAR = "x", "linear"
# Numbers of stacked networks, and divisors for the intermediate size.
STACKS = DIVISORS = (1, 2, 3, 4)
MIN_HEIGHT, MAX_HEIGHT = 3, 7
# Counts operations, inputs and, as in the authors' code, one for each linear map's weights.
MAX_PRIMITIVES = 20
_LINEAR_MAPS = 2
_TOKEN = re.compile(r"\s*([A-Za-z]\w*|[(),]|$)")
# Inputs are trees of a few nodes; longer ones would exhaust the parser's stack.
_MOST_CHARACTERS = 1000

T = TypeVar("T")


@dataclass(frozen=True)
class Node:
    """A node in an expression's tree.

    Attributes:
      operation: `x`, `linear`, one of `ACTIVATIONS` or one of `AGGREGATIONS`.
      arguments: the operands.
      position: its first character's index in the parsed text.
    """

    operation: str
    arguments: tuple[Node, ...] = ()
    position: int = field(default=0, compare=False)

    def __iter__(self) -> Iterator[Node]:
        """Yields the nodes in evaluation order: operands from left to right, then the node itself."""
        for argument in self.arguments:
            yield from argument
        yield self

    @functools.cached_property
    def height(self) -> int:
        """Operations on the longest path from the input to the node."""
        return 1 + max(argument.height for argument in self.arguments) if self.arguments else 0

    def text(self, linear: str = LINEAR) -> str:
        """The canonical text."""
        if not self.arguments:
            return self.operation
        name = linear if self.operation == LINEAR else self.operation
        return f"{name}({','.join(argument.text(linear) for argument in self.arguments)})"


@dataclass(frozen=True)
class FeedForwardExpression:
    """The feed-forward networks in one layer.

    Attributes:
      tree: operations in one network.
      stacks: number of stacked networks, 1 to 4.
      divisor: inner width as a fraction 1/divisor of the intermediate size, 1 to 4.
    """

    tree: Node
    stacks: int
    divisor: int

    def __str__(self) -> str:
        return self.tree.text(f"{LINEAR}{self.stacks}_{self.divisor}")


def evaluate(tree: Node, x: T, linears: Sequence[Callable[[T], T]], operations: Mapping[str, Callable[..., T]]) -> T:
    """Computes an expression.

    Args:
      tree: a valid expression.
      x: the input.
      linears: the linear maps, in evaluation order.
      operations: name → function, for activations and aggregations.
    """
    unused = iter(linears)

    def value(node: Node) -> T:
        if node.operation == INPUT:
            return x
        operands = [value(argument) for argument in node.arguments]
        if node.operation == LINEAR:
            return next(unused)(operands[0])
        return operations[node.operation](*operands)

    return value(tree)


def aggregate(
    operation: Callable[[T, T], T], concat: Callable[[list[T]], T], mismatch: WidthMismatch
) -> Callable[[Any, Any], T]:
    """Makes an elementwise operation on two arrays [..., width] that may differ in width.

    Args:
      operation: `add`, `mul` or `max` for arrays with equal widths.
      concat: joins arrays along the last axis.
      mismatch: `truncate` cuts the wider array. `pad` keeps its other features: as if the narrower array continued with
        zeros for `add`, ones for `mul` and minus infinity for `max`. The authors' code continues it with -1e-10 for
        `max`, probably for -1e10.
    """

    def compute(one: Any, other: Any) -> T:
        width = min(one.shape[-1], other.shape[-1])
        wider = one if one.shape[-1] > width else other
        common = operation(one[..., :width], other[..., :width])
        if mismatch == "truncate" or wider.shape[-1] == width:
            return common
        return concat([common, wider[..., width:]])

    return compute


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> FeedForwardExpression:
    """Parses an expression and checks the search space's rules.

    Args:
      text: for example `linear1_2(relu(mul(linear1_2(x),x)))`. The authors' second arguments `wb1` and `wb2` also work.
    Raises:
      UserError: the text is not an expression, or breaks a rule; the message names rule and character.
    """
    tree, shapes = _Parser(text).parse()
    linears = [node for node in tree if node.operation == LINEAR]
    problems = [f"{problem.rule} (character {problem.position + 1})" for problem in violations(tree)]
    for node, (stacks, divisor) in zip(linears, shapes, strict=True):
        where = f"(character {node.position + 1})"
        if stacks not in STACKS or divisor not in DIVISORS:
            problems.append(f"a linear map is linearS_R with S and R from 1 to 4, received {stacks}_{divisor} {where}")
        elif (stacks, divisor) != shapes[0]:
            problems.append(f"both linear maps must have the same S and R {where}")
    if problems:
        raise UserError(f"expression {text!r}: " + "; ".join(problems))
    return FeedForwardExpression(tree, *shapes[0])


class Violation(NamedTuple):
    """A broken search space rule.

    Attributes:
      rule: the rule, and what it received.
      position: the character's index in the parsed text.
    """

    rule: str
    position: int


def violations(tree: Node) -> list[Violation]:
    """Returns broken rules of the search space (EfficientBERT, section 3.1, and the authors' code)."""
    violations = []
    nodes = list(tree)
    linears = [node for node in nodes if node.operation == LINEAR]
    if len(linears) != _LINEAR_MAPS:
        position = linears[_LINEAR_MAPS].position if len(linears) > _LINEAR_MAPS else tree.position
        violations.append(
            Violation(f"an expression needs exactly {_LINEAR_MAPS} linear maps; received {len(linears)}", position)
        )
    if not MIN_HEIGHT <= tree.height <= MAX_HEIGHT:
        violations.append(
            Violation(
                f"the height must lie between {MIN_HEIGHT} and {MAX_HEIGHT}; received {tree.height}", tree.position
            )
        )
    if (primitives := len(nodes) + len(linears)) > MAX_PRIMITIVES:
        violations.append(
            Violation(f"an expression has at most {MAX_PRIMITIVES} primitives; received {primitives}", tree.position)
        )
    for node in nodes:
        inner = node.arguments[0].operation if node.arguments else ""
        if node.operation == LINEAR == inner:
            violations.append(Violation("a linear map must not read a linear map", node.position))
        elif node.operation in ACTIVATIONS and inner in ACTIVATIONS:
            violations.append(
                Violation(f"an activation must not read an activation; received {node.text()}", node.position)
            )
        elif node.operation in AGGREGATIONS and node.arguments[0] == node.arguments[1]:
            violations.append(Violation(f"{node.operation} needs two different operands", node.position))
    return violations


def width_problems(tree: Node, size: int, intermediate_size: int, mismatch: WidthMismatch) -> list[Violation]:
    """Returns problems with an expression's widths."""
    problems = []
    shapes = [(size, intermediate_size), (intermediate_size, size)]

    def linear(node: Node, inputs: int, outputs: int) -> Callable[[int], int]:
        def width(received: int) -> int:
            if received != inputs:
                problems.append(Violation(f"a linear map for {inputs} features receives {received}", node.position))
            return outputs

        return width

    nodes = [node for node in tree if node.operation == LINEAR]
    linears = [linear(node, *shape) for node, shape in zip(nodes, shapes, strict=True)]
    narrower: Callable[..., int] = min if mismatch == "truncate" else max
    operations: dict[str, Callable[..., int]] = {name: int for name in ACTIVATIONS}
    operations |= dict.fromkeys(AGGREGATIONS, narrower)
    if (width := evaluate(tree, size, linears, operations)) != size:
        problems.append(Violation(f"the result must have {size} features; received {width}", tree.position))
    return problems


@dataclass(frozen=True, kw_only=True)
class FeedForwardConfig:
    """An EfficientBERT's feed-forward networks.

    Attributes:
      expressions: one expression per layer, see `parse`; stored in canonical form.
      mismatch: `add`, `mul` and `max` with different widths `truncate` the wider operand or `pad` the narrower one.
    """

    expressions: tuple[str, ...]
    mismatch: WidthMismatch = "truncate"

    def __post_init__(self) -> None:
        is_list = isinstance(self.expressions, list | tuple)
        if not is_list or not all(isinstance(expression, str) for expression in self.expressions):
            raise UserError(f"FeedForwardConfig: expressions must be a list of texts; received {self.expressions!r}")
        if self.mismatch not in get_args(WidthMismatch):
            raise UserError(f"FeedForwardConfig: mismatch must be truncate or pad; received {self.mismatch!r}")
        object.__setattr__(self, "expressions", tuple(str(parse(expression)) for expression in self.expressions))

    def expression(self, layer: int) -> FeedForwardExpression:
        """Returns a layer's expression, counted from 0."""
        return parse(self.expressions[layer])

    def problems(self, encoder: EncoderConfig) -> list[str]:
        """Returns these networks' problems in an encoder."""
        problems = []
        if len(self.expressions) != encoder.num_layers:
            problems.append(
                f"there must be one expression per layer, {encoder.num_layers}; received {len(self.expressions)}"
            )
        if encoder.num_feedforward_networks != 1:
            problems.append(
                "expressions give the number of stacked networks, so num_feedforward_networks must be 1; received "
                f"{encoder.num_feedforward_networks}"
            )
        if encoder.norm != "layer_norm":
            problems.append(f"expressions need norm='layer_norm'; received {encoder.norm!r}")
        for number, text in enumerate(self.expressions, 1):
            expression = parse(text)
            inner = encoder.intermediate_size // expression.divisor
            if inner < 1:
                problems.append(f"layer {number}: 1/{expression.divisor} of intermediate_size must be at least 1")
                continue
            problems += [
                f"layer {number}: {text!r}: {problem.rule} (character {problem.position + 1})"
                for problem in width_problems(expression.tree, encoder.block_size, inner, self.mismatch)
            ]
        return problems


class _Parser:
    """A recursive-descent parser for one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.shapes: list[tuple[int, int]] = []
        self._position = 0

    def parse(self) -> tuple[Node, list[tuple[int, int]]]:
        """Returns the tree, and each linear map's stacks and divisor in evaluation order."""
        if len(self.text) > _MOST_CHARACTERS:
            raise UserError(
                f"expression {self.text[:40]!r}…: at most {_MOST_CHARACTERS} characters; received {len(self.text)}"
            )
        tree = self._node()
        self._expect("")
        return tree, self.shapes

    def _node(self) -> Node:
        name, position = self._take()
        if name == INPUT:
            return Node(INPUT, (), position)
        shape = re.fullmatch(rf"{LINEAR}(\d{{1,9}})_(\d{{1,9}})", name)
        if not shape and name not in ACTIVATIONS + AGGREGATIONS:
            names = (INPUT, *ACTIVATIONS, *AGGREGATIONS, f"{LINEAR}1_1")
            raise self._error(
                f"unknown operation {name!r}{did_you_mean(name, names)}" if name else "text ends", position
            )
        self._expect("(")
        arguments = [self._node()]
        if name in AGGREGATIONS:
            self._expect(",")
            arguments.append(self._node())
        elif shape and self._peek()[0] == ",":
            self._take()
            # The authors' second argument of a linear map.
            name, position = self._take()
            expected = f"wb{len(self.shapes) + 1}"
            if name != expected:
                raise self._error(f"this linear map has the weights {expected}; received {name!r}", position)
        self._expect(")")
        if shape:
            self.shapes.append((int(shape[1]), int(shape[2])))
        return Node(LINEAR if shape else name, tuple(arguments), position)

    def _expect(self, token: str) -> None:
        name, position = self._take()
        if name != token:
            raise self._error(f"{repr(token) if token else 'end'} expected; received {name or 'end'!r}", position)

    def _peek(self) -> tuple[str, int]:
        match = _TOKEN.match(self.text, self._position)
        if match is None:
            position = len(self.text) - len(self.text[self._position :].lstrip())
            raise self._error(f"unexpected character {self.text[position]!r}", position)
        return match[1], match.start(1)

    def _take(self) -> tuple[str, int]:
        token, position = self._peek()
        self._position = position + len(token)
        return token, position

    def _error(self, problem: str, position: int) -> UserError:
        return UserError(f"expression {self.text!r}: {problem} at character {position + 1}")
