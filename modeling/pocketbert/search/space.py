"""The search space in a stage: its genotypes, how to draw and change them, and their encoding for classifiers.

Source: EfficientBERT, section 3.2, and the authors' `action_space.py` for values missing in the paper.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pocketbert.configs import EncoderConfig
from pocketbert.errors import UserError, raise_if_any
from pocketbert.feedforward import (
    ACTIVATIONS,
    AGGREGATIONS,
    DIVISORS,
    INPUT,
    LINEAR,
    MAX_PRIMITIVES,
    STACKS,
    FeedForwardConfig,
    FeedForwardExpression,
    Node,
    WidthMismatch,
    parse,
)
from pocketbert.search import expressions
from pocketbert.search.constraints import Constraint, describe_constraints, violation
from pocketbert.search.expressions import BASE, Genotype, Rule, pick

# Stacks and divisor, in the order of the authors' ids 0 to 15.
Shape = tuple[int, int]
SHAPES: tuple[Shape, ...] = tuple(itertools.product(STACKS, DIVISORS))
STAGES = (1, 2, 3)

# Mutation tries before the expression stays as it is, in the authors' code; stage 3 mutates none.
_MUTATION_TRIES = {1: 1000, 2: 400}
_CROSSOVER_TRIES = 100
# Candidates that break a constraint before a search for the nearest allowed one, and starts for that search.
_DRAWS, _STARTS = 100, 5
# Most time goes to mutations, so several shapes are drawn for the same operations.
_SHAPES_PER_DRAW = 10
# Primitive ids, in the order of the authors' primitive sets.
_NAMES = (*AGGREGATIONS, *ACTIVATIONS, INPUT, "wb1", "wb2")
_PRIMITIVE_IDS = {
    1: {name: number for number, name in enumerate([*(f"linear{s}_{r}" for s, r in SHAPES), *_NAMES])},
    2: {name: number for number, name in enumerate([LINEAR, *_NAMES])},
}


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """The genotypes in one stage. A genotype is one canonical expression per layer.

    Stage 1 searches operations, stacks and divisors; alone it is a single-stage search. Stage 2 searches operations
    around a winner with fixed stacks and divisors; stage 3 searches stacks and divisors with fixed operations.

    Departure from the authors' code: stacks and divisors are drawn uniformly from those with matching widths. Their
    stage 3 draws the winner's own twice as often as the others; the paper says uniformly.

    Attributes:
      encoder: sizes, layers, and `mismatch` of its expressions; without any, `add`, `mul` and `max` truncate operands.
      stage: 1, 2 or 3.
      winner: in stages 2 and 3, the previous stage's genotype.
      constraints: costs that every genotype must meet.
    Raises:
      UserError: stage, winner and encoder do not match.
    """

    encoder: EncoderConfig
    stage: int
    winner: Genotype = ()
    constraints: tuple[Constraint, ...] = ()

    def __post_init__(self) -> None:
        problems = []
        layers = self.encoder.num_layers
        if self.stage not in STAGES:
            problems.append(f"stage must be 1, 2 or 3; received {self.stage}")
        elif self.stage == 1 and self.winner:
            problems.append("stage 1 starts from the base network; omit the winner")
        elif self.stage > 1 and len(self.winner) != layers:
            problems.append(
                f"stage {self.stage} needs a winner with one expression per layer, {layers}; received "
                f"{len(self.winner)}"
            )
        raise_if_any(problems, "search space")
        object.__setattr__(self, "winner", tuple(str(parse(text)) for text in self.winner))
        object.__setattr__(self, "constraints", tuple(self.constraints))
        # Rejects an encoder that cannot have expressions, and a winner that does not fit it.
        self.config(self.winner or self._base)

    @property
    def num_layers(self) -> int:
        """Expressions in a genotype."""
        return self.encoder.num_layers

    @property
    def size(self) -> float:
        """Number of genotypes before constraints in stage 3; infinity in stages 1 and 2."""
        if self.stage != 3:
            return math.inf
        return math.prod(len(self._shapes(parse(text).tree)) for text in self.winner)

    def genotypes(self) -> Iterator[Genotype]:
        """Yields all stage 3 genotypes that meet the constraints."""
        trees = [parse(text).tree for text in self.winner]
        for shapes in itertools.product(*map(self._shapes, trees)):
            genotype = tuple(_text(tree, *shape) for tree, shape in zip(trees, shapes, strict=True))
            if self.meets(genotype):
                yield genotype

    def initial(self) -> tuple[Genotype, ...]:
        """Genotypes to evaluate first, as in the authors' code, if they meet the constraints.

        Stage 1: the base network in all layers. Stages 2 and 3: the winner; in stage 2 also without outer activations.
        """
        if self.stage == 1:
            first = [self._base]
        else:
            first = [tuple(layer[-1 if plain else 0] for layer in self._pool) for plain in (False, self.stage == 2)]
        return tuple(genotype for genotype in dict.fromkeys(first) if self.meets(genotype))

    def sample(self, random: np.random.Generator) -> Genotype:
        """Draws a random genotype that meets the constraints.

        Stages 1 and 2 mutate a random start in each layer: in stage 1 the base network with random stacks and divisor,
        in stage 2 the winner's expression, or the same without its outer activation. Stage 3 draws stacks and divisors.

        Raises:
          UserError: no genotype meets the constraints; the message has the nearest one found.
        """
        genotype, nearest = self._base, (np.inf, self._base)
        for _ in range(_STARTS):
            for draw in range(_DRAWS):
                if self.stage != 2 and draw % _SHAPES_PER_DRAW:
                    genotype = self._reshape(genotype, random)
                elif self.stage == 3:
                    genotype = self._reshape(self.winner, random)
                else:
                    genotype = tuple(self._change_operations(pick(random, starts), random) for starts in self._pool)
                distance = self._violation(genotype)
                if not distance:
                    return genotype
            distance, genotype = self._approach(genotype, random)
            if not distance:
                return genotype
            if distance < nearest[0]:
                nearest = distance, genotype
        raise self._unmet(nearest[1])

    def mutate(self, genotype: Genotype, random: np.random.Generator) -> Genotype:
        """Changes one layer: other operations, or in stages 1 and 3 other stacks and divisor.

        The result meets the constraints; it is the parent if 100 tries give none.
        """
        return self._try(genotype, lambda: self._change_layer(genotype, random))

    def crossover(self, one: Genotype, other: Genotype, random: np.random.Generator) -> Genotype:
        """Takes layers from either parent; one layer exchanges a subtree if the operations vary.

        The result meets the constraints and differs from `one`; it is `one` if 100 tries give none.
        """

        def child() -> Genotype:
            layers = [pick(random, pair) for pair in zip(one, other, strict=True)]
            if self.stage != 3:
                layer = int(random.random() * len(layers))
                expression, donor = parse(layers[layer]), parse(pick(random, (one, other))[layer])
                tree = expressions.crossover(
                    expression.tree, donor.tree, random, self._rule(expression.divisor), _CROSSOVER_TRIES
                )
                layers[layer] = _text(tree, expression.stacks, expression.divisor)
            return tuple(layers)

        return self._try(one, child)

    def meets(self, genotype: Genotype) -> bool:
        """Whether a genotype meets all constraints."""
        return not self._violation(genotype)

    def shapes(self, genotype: Genotype) -> tuple[Shape, ...]:
        """Returns each layer's stacks and divisor."""
        parsed = [parse(text) for text in genotype]
        return tuple((expression.stacks, expression.divisor) for expression in parsed)

    def config(self, genotype: Genotype) -> EncoderConfig:
        """Returns the architecture with a genotype's feed-forward networks."""
        return self.encoder.replace(
            feedforward=FeedForwardConfig(expressions=genotype, mismatch=self._mismatch), num_feedforward_networks=1
        )

    def key(self, genotype: Genotype) -> Genotype:
        """Returns a key, equal for genotypes with equal stacks, divisors and values, see `expressions.genotype_key`."""
        return expressions.genotype_key(
            genotype, self.encoder.block_size, self.encoder.intermediate_size, self._mismatch
        )

    def features(self, genotype: Genotype) -> list[float]:
        """Encodes a genotype for classifiers, as in the authors' code.

        Returns:
          In stages 1 and 2, 20 numbers per layer: its primitives' ids in prefix order, then -1; a linear map has its
          weights as a second operand. In stage 3 one number per layer: 4 times (stacks - 1), plus divisor - 1.
        """
        if self.stage == 3:
            return [float(SHAPES.index(shape)) for shape in self.shapes(genotype)]
        return [number for text in genotype for number in self._primitives(parse(text))]

    @property
    def _base(self) -> Genotype:
        return (_text(BASE, 1, 1),) * self.num_layers

    @functools.cached_property
    def _mismatch(self) -> WidthMismatch:
        return self.encoder.feedforward.mismatch if self.encoder.feedforward else "truncate"

    @functools.cached_property
    def _pool(self) -> tuple[tuple[str, ...], ...]:
        """Starts for each layer; in stage 2 the last one has no outer activation."""
        if self.stage == 1:
            return (tuple(_text(BASE, *shape) for shape in self._shapes(BASE)),) * self.num_layers
        pool = []
        for text in self.winner:
            expression = parse(text)
            starts = [expression.tree]
            inner = expression.tree.arguments[0]
            if self.stage == 2 and expression.tree.operation in ACTIVATIONS and self._rule(expression.divisor)(inner):
                starts.append(inner)
            pool.append(tuple(_text(tree, expression.stacks, expression.divisor) for tree in starts))
        return tuple(pool)

    def _change_operations(self, text: str, random: np.random.Generator) -> str:
        expression = parse(text)
        rule, tries = self._rule(expression.divisor), _MUTATION_TRIES[self.stage]
        return _text(expressions.mutate(expression.tree, random, rule, tries), expression.stacks, expression.divisor)

    def _reshape(self, genotype: Genotype, random: np.random.Generator) -> Genotype:
        trees = [parse(text).tree for text in genotype]
        return tuple(_text(tree, *pick(random, self._shapes(tree))) for tree in trees)

    def _change_layer(self, genotype: Genotype, random: np.random.Generator) -> Genotype:
        layer = int(random.random() * len(genotype))
        if self.stage == 2 or (self.stage == 1 and random.random() < 1 / 2):
            changed = self._change_operations(genotype[layer], random)
        else:
            tree = parse(genotype[layer]).tree
            changed = _text(tree, *pick(random, self._shapes(tree)))
        return _put(genotype, layer, changed)

    def _try(self, parent: Genotype, change: Callable[[], Genotype]) -> Genotype:
        for _ in range(_DRAWS):
            genotype = change()
            if genotype != parent and self.meets(genotype):
                return genotype
        return parent

    def _approach(self, genotype: Genotype, random: np.random.Generator) -> tuple[float, Genotype]:
        """Changes one layer after another, each time closer to the constraints; returns the distance left."""
        distance = self._violation(genotype)
        while distance:
            for changed in self._neighbours(genotype, random):
                if (closer := self._violation(changed)) < distance:
                    distance, genotype = closer, changed
                    break
            else:
                break
        return distance, genotype

    def _neighbours(self, genotype: Genotype, random: np.random.Generator) -> Iterator[Genotype]:
        """Yields genotypes with another shape or a start's operations in one layer, in random order."""
        changes: list[tuple[int, str]] = []
        for layer, (text, starts) in enumerate(zip(genotype, self._pool, strict=True)):
            tree = parse(text).tree
            if self.stage != 2:
                changes += [(layer, _text(tree, *shape)) for shape in self._shapes(tree)]
            # In stages 1 and 2 also the starts, which may cost less.
            if self.stage != 3:
                changes += [(layer, start) for start in starts]
        for number in random.permutation(len(changes)):
            yield _put(genotype, *changes[number])

    def _shapes(self, tree: Node) -> tuple[Shape, ...]:
        return _fitting_shapes(tree, self.encoder.block_size, self.encoder.intermediate_size, self._mismatch)

    def _rule(self, divisor: int) -> Rule:
        return _rule(self.encoder.block_size, self.encoder.intermediate_size // divisor, self._mismatch)

    def _violation(self, genotype: Genotype) -> float:
        return violation(self.constraints, self.config(genotype)) if self.constraints else 0.0

    def _unmet(self, nearest: Genotype) -> UserError:
        config = self.config(nearest)
        costs = " and ".join(constraint.describe(constraint.cost(config)) for constraint in self.constraints)
        return UserError(
            f"a network must have {describe_constraints(self.constraints)}, and none in the search space has; the "
            f"nearest has {costs}: {' '.join(nearest)}; change the bounds or the student's sizes"
        )

    def _primitives(self, expression: FeedForwardExpression) -> Sequence[float]:
        # The k-th evaluated linear map has the weights wbk.
        maps = iter(node for node in expression.tree if node.operation == LINEAR)
        numbers = {id(node): number for number, node in enumerate(maps, 1)}
        ids, linear = _PRIMITIVE_IDS[self.stage], LINEAR
        if self.stage == 1:
            linear += f"{expression.stacks}_{expression.divisor}"

        def names(node: Node) -> Iterator[str]:
            yield linear if node.operation == LINEAR else node.operation
            for argument in node.arguments:
                yield from names(argument)
            if node.operation == LINEAR:
                yield f"wb{numbers[id(node)]}"

        features = [float(ids[name]) for name in names(expression.tree)]
        return features + [-1.0] * (MAX_PRIMITIVES - len(features))


def _rule(size: int, intermediate_size: int, mismatch: WidthMismatch) -> Rule:
    return functools.partial(expressions.is_valid, size=size, intermediate_size=intermediate_size, mismatch=mismatch)


@functools.lru_cache(maxsize=1 << 14)
def _fitting_shapes(tree: Node, size: int, intermediate_size: int, mismatch: WidthMismatch) -> tuple[Shape, ...]:
    """Shapes with matching widths."""
    inner_sizes = {divisor: intermediate_size // divisor for divisor in DIVISORS}
    divisors = [divisor for divisor, inner in inner_sizes.items() if inner and _rule(size, inner, mismatch)(tree)]
    return tuple(shape for shape in SHAPES if shape[1] in divisors)


def _text(tree: Node, stacks: int, divisor: int) -> str:
    return str(FeedForwardExpression(tree, stacks, divisor))


def _put(genotype: Genotype, layer: int, text: str) -> Genotype:
    return (*genotype[:layer], text, *genotype[layer + 1 :])
