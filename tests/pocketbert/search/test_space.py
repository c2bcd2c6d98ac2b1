"""Search spaces of the three stages, against enumerations and the authors' code."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from oracles.expressions import keeps_rules
from tiny import BERT

from pocketbert.configs import EncoderConfig
from pocketbert.errors import UserError
from pocketbert.feedforward import FeedForwardConfig
from pocketbert.presets import preset
from pocketbert.search.constraints import FlopsConstraint, ParameterConstraint
from pocketbert.search.expressions import Genotype
from pocketbert.search.space import SearchSpace

_BASE = preset("efficientbert_base").config
# The authors' `init_expr` of stages 2 and 3, without the weights.
_STAGE_1_WINNER = (
    "tanh(linear4_2(gelu(linear4_2(x))))",
    "linear2_1(gelu(linear2_1(x)))",
    "sigmoid(linear1_4(gelu(linear1_4(x))))",
    "linear4_4(gelu(linear4_4(x)))",
    "linear1_3(gelu(linear1_3(x)))",
    "leaky_relu(linear2_4(gelu(linear2_4(x))))",
)
_WITHOUT_OUTER = (
    "linear4_2(gelu(linear4_2(x)))",
    *_STAGE_1_WINNER[1:2],
    "linear1_4(gelu(linear1_4(x)))",
    *_STAGE_1_WINNER[3:5],
    "linear2_4(gelu(linear2_4(x)))",
)
_TWO = ("tanh(linear1_1(gelu(linear1_1(x))))", "linear2_3(relu(mul(linear2_3(x),x)))")


@dataclass(frozen=True)
class _Count:
    """A cost that depends on operations: as measured latency does."""

    pattern: str
    limit: float
    minimum: float = 0.0
    name = "count"

    def cost(self, config: EncoderConfig) -> float:
        assert config.feedforward is not None
        return len(re.findall(self.pattern, " ".join(config.feedforward.expressions)))

    def describe(self, cost: float) -> str:
        return f"{cost:g} of {self.pattern}"


def _encoder(layers: int, mismatch: str = "truncate", **changes: object) -> EncoderConfig:
    feedforward = FeedForwardConfig(expressions=("linear1_1(gelu(linear1_1(x)))",) * layers, mismatch=mismatch)  # type: ignore[arg-type]
    return BERT.replace(num_layers=layers, feedforward=feedforward, **changes)


def _shapes(genotype: Genotype) -> list[tuple[int, int]]:
    operations = []
    for text in genotype:
        first, second = re.findall(r"linear(\d)_(\d)", text)
        assert first == second
        operations.append((int(first[0]), int(first[1])))
    return operations


def _operations(genotype: Genotype) -> list[str]:
    return [re.sub(r"linear\d_\d", "linear", text) for text in genotype]


def _parameters(shapes: list[tuple[int, int]]) -> int:
    """The base model's 15,215,496 weights (paper, with a pooler and without an adapter), with other layers."""
    d = 540

    def layer(stacks: int, divisor: int) -> int:
        width = d // divisor
        return 4 * (d * d + d) + 2 * d + stacks * (d * width + width + width * d + d + 2 * d)

    return 15_215_496 - 6 * layer(1, 1) + sum(layer(*shape) for shape in shapes)


@pytest.mark.one_of_each("pad")
@pytest.mark.parametrize("mismatch", ["truncate", "pad"])
def test_thousand_genotypes_are_valid_configs(mismatch: str) -> None:
    space = SearchSpace(encoder=_encoder(2, mismatch), stage=1)
    random = np.random.default_rng(3)
    genotypes = [space.sample(random) for _ in range(1000)]
    for genotype in genotypes:
        assert all(map(keeps_rules, genotype))
        feedforward = space.config(genotype).feedforward
        assert feedforward == FeedForwardConfig(expressions=genotype, mismatch=mismatch)  # type: ignore[arg-type]
    counts = Counter(shape for genotype in genotypes for shape in _shapes(genotype))
    # 2,000 draws from 16 shapes: 125 each, with a standard deviation of 11.
    assert len(counts) == 16 and all(60 < count < 190 for count in counts.values())
    assert len(set(genotypes)) > 900


def test_same_seed_gives_same_genotypes() -> None:
    space = SearchSpace(encoder=_BASE, stage=1)

    def genotypes(seed: int) -> list[Genotype]:
        random = np.random.default_rng(seed)
        samples = [space.sample(random) for _ in range(3)]
        return [*samples, space.mutate(samples[0], random), space.crossover(samples[1], samples[2], random)]

    assert genotypes(7) == genotypes(7)
    assert genotypes(7) != genotypes(8)


def test_stage_3_of_one_layer_has_16() -> None:
    space = SearchSpace(encoder=_encoder(1), stage=3, winner=("elu(linear2_3(gelu(linear2_3(x))))",))
    random = np.random.default_rng(4)
    counts = Counter(space.sample(random) for _ in range(1600))
    assert set(counts) == {(f"elu(linear{s}_{r}(gelu(linear{s}_{r}(x))))",) for s in range(1, 5) for r in range(1, 5)}
    # 100 each, with a standard deviation of 10.
    assert all(50 < count < 150 for count in counts.values())
    assert [space.features(genotype) for genotype in sorted(counts)] == [[float(number)] for number in range(16)]


def test_stage_3_leaves_out_unequal_widths() -> None:
    # The second map reads x, so it fits at inner width = outer width alone.
    winner = ("add(linear1_1(x),linear1_1(tanh(x)))",)
    space = SearchSpace(encoder=_encoder(1, intermediate_size=30), stage=3, winner=winner)
    random = np.random.default_rng(5)
    assert {_shapes(space.sample(random))[0] for _ in range(100)} == {(s, 1) for s in range(1, 5)}
    thin = SearchSpace(encoder=_encoder(1, intermediate_size=3), stage=1)
    assert {_shapes(thin.sample(random))[0][1] for _ in range(50)} == {1, 2, 3}


def test_stage_2_varies_operations_only() -> None:
    space = SearchSpace(encoder=_BASE, stage=2, winner=_STAGE_1_WINNER)
    random = np.random.default_rng(6)
    genotypes = [space.sample(random) for _ in range(20)]
    genotypes += [space.mutate(genotype, random) for genotype in genotypes]
    genotypes += [space.crossover(*pair, random) for pair in itertools.pairwise(genotypes)]
    assert all(_shapes(genotype) == _shapes(_STAGE_1_WINNER) for genotype in genotypes)
    assert len({tuple(_operations(genotype)) for genotype in genotypes}) > 50


def test_stage_3_varies_shapes_only() -> None:
    space = SearchSpace(encoder=_encoder(2), stage=3, winner=_TWO)
    random = np.random.default_rng(7)
    one, other = space.sample(random), space.sample(random)
    children = [space.crossover(one, other, random) for _ in range(50)] + [space.mutate(one, random) for _ in range(50)]
    assert all(_operations(child) == _operations(_TWO) for child in children)
    assert set(children[:50]) == {(one[0], other[1]), (other[0], one[1]), other}


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_mutation_changes_one_layer(stage: int) -> None:
    space = SearchSpace(encoder=_BASE, stage=stage, winner=() if stage == 1 else _STAGE_1_WINNER)
    random = np.random.default_rng(stage)
    changed = Counter()
    for _ in range(60):
        child = space.mutate(_STAGE_1_WINNER, random)
        differences = [layer for layer in range(6) if child[layer] != _STAGE_1_WINNER[layer]]
        assert len(differences) == 1
        changed[differences[0]] += 1
    assert len(changed) == 6


def test_stage_1_mutates_operations_or_shape() -> None:
    space = SearchSpace(encoder=_BASE, stage=1)
    random = np.random.default_rng(15)
    children = [space.mutate(_STAGE_1_WINNER, random) for _ in range(100)]
    operations = sum(_operations(child) != _operations(_STAGE_1_WINNER) for child in children)
    shapes = sum(_shapes(child) != _shapes(_STAGE_1_WINNER) for child in children)
    # Half of 100, with a standard deviation of 5.
    assert operations + shapes == 100 and 30 < operations < 70


def test_crossover_exchanges_subtrees() -> None:
    space = SearchSpace(encoder=_encoder(2), stage=1)
    random = np.random.default_rng(9)
    other = ("linear4_4(swish(linear4_4(elu(x))))", "linear3_1(tanh(max(linear3_1(x),x)))")
    children = {space.crossover(_TWO, other, random) for _ in range(300)}
    assert all(any(child[layer] in (_TWO[layer], other[layer]) for layer in range(2)) for child in children)
    assert _TWO not in children and other in children
    new = {text for child in children for text in child} - {*_TWO, *other}
    assert len(new) > 10 and any("4_4" in text for text in new)


def test_initial_genotypes_are_the_authors() -> None:
    assert SearchSpace(encoder=_BASE, stage=1).initial() == (("linear1_1(gelu(linear1_1(x)))",) * 6,)
    winners = SearchSpace(encoder=_BASE, stage=2, winner=_STAGE_1_WINNER).initial()
    assert winners == (_STAGE_1_WINNER, _WITHOUT_OUTER)
    assert SearchSpace(encoder=_BASE, stage=3, winner=_STAGE_1_WINNER).initial() == (_STAGE_1_WINNER,)
    small = ParameterConstraint(limit=14e6)
    assert SearchSpace(encoder=_BASE, stage=1, constraints=(small,)).initial() == ()


def test_features_are_ids_in_prefix_order() -> None:
    genotype = ("tanh(linear2_3(gelu(linear2_3(max(x,tanh(x))))))", "linear1_1(relu(mul(linear1_1(x),x)))")
    # The authors' primitives by hand: 16 or 1 linear maps, then add, mul, max, gelu, sigmoid, tanh, relu, leaky_relu,
    # elu, swish, and the operands x, wb1 and wb2. The intermediate map has wb1.
    stage_1 = [[21, 6, 19, 6, 18, 26, 21, 26, 27, 28], [0, 22, 17, 0, 26, 27, 26, 28]]
    stage_2 = [[6, 0, 4, 0, 3, 11, 6, 11, 12, 13], [0, 7, 2, 0, 11, 12, 11, 13]]
    encoder = _encoder(2, intermediate_size=30)
    for stage, ids in ((1, stage_1), (2, stage_2)):
        space = SearchSpace(encoder=encoder, stage=stage, winner=genotype if stage == 2 else ())
        expected = [number for layer in ids for number in layer + [-1] * (20 - len(layer))]
        assert space.features(genotype) == expected
    assert SearchSpace(encoder=encoder, stage=3, winner=genotype).features(genotype) == [6, 0]


def test_parameters_lie_between_the_bounds() -> None:
    constraint = ParameterConstraint(minimum=15e6, limit=16e6)
    for stage in (1, 3):
        winner = () if stage == 1 else _STAGE_1_WINNER
        space = SearchSpace(encoder=_BASE, stage=stage, winner=winner, constraints=(constraint,))
        random = np.random.default_rng(10)
        genotypes = [space.sample(random) for _ in range(50)]
        genotypes += [space.mutate(genotype, random) for genotype in genotypes]
        genotypes += [space.crossover(*pair, random) for pair in itertools.pairwise(genotypes)]
        assert all(15e6 <= _parameters(_shapes(genotype)) <= 16e6 for genotype in genotypes)


def test_every_genotype_in_the_window_appears() -> None:
    encoder = _BASE.replace(num_layers=3, feedforward=None)
    # The smallest network, and those with one step more: 4 of 4,096.
    smallest, limit = _parameters([(1, 4)] * 3), _parameters([(1, 3), (1, 4), (1, 4)])

    def space(most: int) -> SearchSpace:
        return SearchSpace(
            encoder=encoder, stage=3, winner=_STAGE_1_WINNER[:3], constraints=(ParameterConstraint(limit=most),)
        )

    random = np.random.default_rng(11)
    shapes = {tuple(_shapes(space(limit).sample(random))) for _ in range(25)}
    assert shapes == {tuple((1, 3) if layer == odd else (1, 4) for layer in range(3)) for odd in range(4)}
    message = rf"at most {smallest - 1:,} param.* has {smallest:,} param.*: (\S*1_4\S*[ ;]){{3}}"
    with pytest.raises(UserError, match=message):
        space(smallest - 1).sample(random)


def test_constraint_on_operations_holds() -> None:
    constraint = _Count("gelu", 0)
    for stage in (1, 2):
        winner = () if stage == 1 else _STAGE_1_WINNER[:2]
        encoder = _encoder(2)
        space = SearchSpace(encoder=encoder, stage=stage, winner=winner, constraints=(constraint,))
        assert space.initial() == ()
        random = np.random.default_rng(12)
        genotypes = [space.sample(random) for _ in range(10)]
        assert not any("gelu" in text.replace("leaky_relu", "") for genotype in genotypes for text in genotype)


@pytest.mark.one_of_each("12")
@pytest.mark.parametrize("limit", [9, 10, 12])
def test_limit_leaves_stage_2_its_shapes(limit: int) -> None:
    """Random operations seldom meet these limits, so most genotypes come from the search for the nearest one."""
    winner = (
        "tanh(linear4_2(gelu(linear4_2(x))))",
        "linear2_3(relu(linear2_3(x)))",
        "elu(linear1_4(gelu(linear1_4(x))))",
    )
    space = SearchSpace(encoder=_encoder(3), stage=2, winner=winner, constraints=(_Count(r"\w+\(", limit),))
    random = np.random.default_rng(limit)
    genotypes = [space.sample(random) for _ in range(25)]
    genotypes += [space.mutate(genotype, random) for genotype in genotypes]
    genotypes += [space.crossover(*pair, random) for pair in itertools.pairwise(genotypes)]
    for genotype in genotypes:
        assert _shapes(genotype) == [(4, 2), (2, 3), (1, 4)]
        assert sum(text.count("(") for text in genotype) <= limit


@pytest.mark.parametrize(("stage", "winner"), [(1, ()), (2, ("linear2_3(relu(linear2_3(x)))",) * 3)])
def test_tightest_constraint_is_met(stage: int, winner: Genotype) -> None:
    """Only layers with three operations meet it, as the base network's and the winner's; most mutations have more."""
    constraint = _Count(r"\w+\(", 9)
    space = SearchSpace(encoder=_encoder(3), stage=stage, winner=winner, constraints=(constraint,))
    random = np.random.default_rng(14)
    for _ in range(12):
        assert space.meets(space.sample(random))


def test_least_number_of_weights_has_no_upper_bound() -> None:
    constraint = ParameterConstraint(minimum=1e9, limit=np.inf)
    space = SearchSpace(encoder=_encoder(2), stage=1, constraints=(constraint,))
    with pytest.raises(UserError, match="a network must have at least 1,000,000,000 parameters, and none"):
        space.sample(np.random.default_rng(15))


def test_fixed_shapes_name_the_nearest() -> None:
    constraint = FlopsConstraint(limit=1e4, length=7)
    space = SearchSpace(encoder=_encoder(2), stage=2, winner=_TWO, constraints=(constraint,))
    with pytest.raises(UserError, match=r"at most 1e-05 B FLOPs at 7 tokens.*nearest has 0\.000\d+ B FLOPs"):
        space.sample(np.random.default_rng(13))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stage": 4}, "stage must be 1, 2 or 3; received 4"),
        ({"stage": 1, "winner": _TWO}, "stage 1 starts from the base network"),
        ({"stage": 3, "winner": _TWO[:1]}, "one expression per layer, 2; received 1"),
        ({"stage": 2, "winner": (_TWO[0], "relu(x)")}, "exactly 2 linear maps; received 0"),
        ({"stage": 1, "encoder": _encoder(2).replace(feedforward=None, norm="no_norm")}, "norm='layer_norm'"),
    ],
)
def test_unfit_stage_and_winner_are_rejected(changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        SearchSpace(**{"encoder": _encoder(2), **changes})


def test_bounds_must_be_ordered() -> None:
    with pytest.raises(UserError, match="constraint parameters: the smallest cost must lie between 0 and .* 3"):
        ParameterConstraint(minimum=4, limit=3)
    with pytest.raises(UserError, match="constraint flops: the largest cost must be positive; received 0"):
        FlopsConstraint(limit=0)
