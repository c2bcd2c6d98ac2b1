"""Strategies by their suggestions: repeatable, new, within constraints, and better than random ones."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from tiny import BERT

from pocketbert.errors import UserError
from pocketbert.presets import preset
from pocketbert.search import strategies
from pocketbert.search.constraints import ParameterConstraint
from pocketbert.search.expressions import Genotype
from pocketbert.search.space import SearchSpace
from pocketbert.search.strategies import STRATEGIES, Scored, StrategyOptions, open_strategy

_SHORT = StrategyOptions(initial_samples=20, refit_every=5, population=12, tournament=4)
_WINNER = ("tanh(linear1_1(gelu(linear1_1(x))))", "linear2_3(relu(linear2_3(x)))", "linear3_1(elu(linear3_1(x)))")
_CONSTRAINT = ParameterConstraint(limit=63e5, minimum=57e5)


def _stacks(text: str) -> int:
    return int(text[text.index("linear") + len("linear")])


def _divisor(text: str) -> int:
    return int(text[text.index("_", text.index("linear")) + 1])


@functools.cache
def _space(stage: int, layers: int = 3, constrained: bool = False) -> SearchSpace:
    winner = () if stage == 1 else _WINNER[:layers]
    encoder = BERT.replace(num_layers=layers)
    if constrained:
        encoder = preset("efficientbert_base").config.replace(num_layers=layers, vocab_size=97, feedforward=None)
    return SearchSpace(encoder=encoder, stage=stage, winner=winner, constraints=(_CONSTRAINT,) if constrained else ())


def _distance(genotype: Genotype) -> float:
    """Higher for stacks and divisors closer to some that the search does not know."""
    targets = ((4, 2), (1, 3), (3, 4))
    return -sum(
        abs(_stacks(text) - stacks) + abs(_divisor(text) - divisor)
        for text, (stacks, divisor) in zip(genotype, targets, strict=False)
    )


@functools.cache
def _search(
    name: str, space: SearchSpace, candidates: int, score: Callable[[Genotype], float], seed: int = 0
) -> tuple[Scored, ...]:
    strategy = open_strategy(space, dataclasses.replace(_SHORT, strategy=name), seed)  # type: ignore[arg-type]
    history: list[Scored] = []
    for index in range(candidates):
        genotype = strategy.suggest(history, index)
        assert genotype is not None
        history.append(Scored(genotype, score(genotype)))
    return tuple(history)


@pytest.mark.parametrize("name", STRATEGIES)
def test_replayed_history_gives_same_suggestions(name: str) -> None:
    space = _space(1, constrained=True)
    history = _search(name, space, 40, _distance, seed=3)
    options = dataclasses.replace(_SHORT, strategy=name)  # type: ignore[arg-type]
    one = open_strategy(space, options, 3)
    for index in (39, 0, 1, 19, 20, 24, 25, 31):
        assert one.suggest(history[:index], index) == history[index].genotype
        # Nothing else was asked before.
        assert open_strategy(space, options, 3).suggest(history[:index], index) == history[index].genotype
    assert open_strategy(space, options, 4).suggest(history[:31], 31) != history[31].genotype
    assert one.suggest(history[:31], 32) != history[31].genotype


@pytest.mark.parametrize("name", STRATEGIES)
def test_suggestions_are_new_and_meet_constraints(name: str) -> None:
    history = _search(name, _space(1, constrained=True), 40, _distance, seed=3)
    assert history[0].genotype == ("linear1_1(gelu(linear1_1(x)))",) * 3
    for candidate in history:
        # A layer has 2·540·d_i + d_i + 540 weights and a norm per stack; embedding, attention and pooler as they are.
        networks = 0
        for text in candidate.genotype:
            inner = 540 // _divisor(text)
            networks += _stacks(text) * (2 * 540 * inner + inner + 3 * 540)
        attention = 3 * (4 * 540 * 541 + 2 * 540)
        embedding = 97 * 128 + 384 * 540 + 540 + (512 + 2 + 2) * 540
        assert 57e5 <= embedding + attention + networks + 540 * 541 <= 63e5
    keys = {_space(1, constrained=True).key(candidate.genotype) for candidate in history}
    assert len(keys) == len(history)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_genotype_is_suggested_once(name: str) -> None:
    space = _space(3, layers=1)
    history = _search(name, space, 16, _distance)
    assert {candidate.genotype[0] for candidate in history} == {
        f"tanh(linear{s}_{r}(gelu(linear{s}_{r}(x))))" for s, r in itertools.product(range(1, 5), repeat=2)
    }
    strategy = open_strategy(space, dataclasses.replace(_SHORT, strategy=name), 0)  # type: ignore[arg-type]
    assert strategy.suggest(history, 16) is None


def test_last_of_4096_is_found() -> None:
    space = _space(3)
    everything = sorted(space.genotypes())
    assert len(everything) == len(set(everything)) == space.size == 4096
    last = everything.pop(1234)
    assert (
        open_strategy(space, StrategyOptions(strategy="random"), 0).suggest(
            [Scored(genotype, 0.0) for genotype in everything], 4095
        )
        == last
    )


@pytest.mark.parametrize("name", STRATEGIES)
def test_equal_values_are_not_suggested_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    space = _space(1, layers=1)
    offered = [("linear1_2(relu(max(linear1_2(x),x)))",), ("linear1_2(tanh(linear1_2(x)))",)]
    monkeypatch.setattr(SearchSpace, "sample", lambda self, random: offered[0] if random.random() < 0.9 else offered[1])
    monkeypatch.setattr(SearchSpace, "mutate", lambda self, genotype, random: offered[0])
    history = [Scored(("linear1_2(relu(max(x,linear1_2(x))))",), 1.0)]
    options = dataclasses.replace(_SHORT, strategy=name)  # type: ignore[arg-type]
    assert open_strategy(space, options, 0).suggest(history, 25) == offered[1]


# Measured with these seeds: random -5.1, LaNAS -4.1, evolution -2.9.
@pytest.mark.parametrize(("name", "margin"), [("evolution", 1.5), ("lanas", 0.5)])
def test_scores_beat_random_search(name: str, margin: float) -> None:
    def best(searched: str) -> float:
        """Mean of the best 40 of 120 candidates, and of two seeds."""
        scores = [
            sorted(candidate.score or 0 for candidate in _search(searched, _space(3), 120, _distance, seed))
            for seed in (1, 2)
        ]
        return float(np.mean([values[-40:] for values in scores]))

    assert best(name) > best("random") + margin


def test_evolution_finds_more_of_an_operation() -> None:
    def swishes(genotype: Genotype) -> float:
        return sum(text.count("swish") for text in genotype)

    best_scores = {
        name: max(candidate.score or 0 for candidate in _search(name, _space(1), 200, swishes))
        for name in ("evolution", "random")
    }
    # Of 30 random operations in a genotype, 3 are a swish; 200 draws seldom have more than 4.
    assert best_scores["evolution"] >= best_scores["random"] + 2


def test_lanas_stays_in_the_better_half() -> None:
    history = _search("lanas", _space(3), 60, lambda genotype: _stacks(genotype[1]))
    # Random candidates are left out once all others are known, which 4,096 candidates are not.
    assert {_stacks(candidate.genotype[1]) for candidate in history[20:]} == {3, 4}
    assert {_stacks(candidate.genotype[1]) for candidate in history[:20]} == {1, 2, 3, 4}


def test_oldest_candidate_is_no_parent() -> None:
    space = _space(3)
    random = np.random.default_rng(6)
    genotypes = [space.sample(random) for _ in range(6)]
    history = [Scored(genotype, score) for genotype, score in zip(genotypes, (9, 1, 3, 2, 0, 1), strict=True)]
    options = StrategyOptions(strategy="evolution", population=5, tournament=60)
    for index in range(6, 16):
        child = open_strategy(space, options, 1).suggest(history, index)
        assert child is not None
        # 60 draws of 5 candidates leave out the best one with a probability of 1e-6.
        assert sum(one != other for one, other in zip(child, genotypes[2], strict=True)) == 1


def test_crossover_takes_layers_of_parents() -> None:
    space = _space(3)
    random = np.random.default_rng(7)
    genotypes = [space.sample(random) for _ in range(5)]
    history = [Scored(genotype, 0.0) for genotype in genotypes]
    options = StrategyOptions(strategy="evolution", population=5, tournament=1, crossover_rate=1.0)
    for index in range(6, 16):
        child = open_strategy(space, options, 1).suggest(history, index)
        assert child is not None
        assert all(text in {genotype[layer] for genotype in genotypes} for layer, text in enumerate(child))


@pytest.mark.parametrize("name", STRATEGIES)
def test_unscored_candidates_only_count_as_seen(name: str) -> None:
    space = _space(3)
    history = _search(name, space, 30, _distance)
    options = dataclasses.replace(_SHORT, strategy=name)  # type: ignore[arg-type]
    suggested = open_strategy(space, options, 0).suggest(history, 30)
    assert suggested is not None
    running = Scored(suggested, None)
    assert open_strategy(space, options, 0).suggest([*history, running], 30) != suggested
    other = next(genotype for genotype in space.genotypes() if genotype != suggested)
    for score in (None, math.nan):
        assert open_strategy(space, options, 0).suggest([*history, Scored(other, score)], 30) == suggested
    nothing_scored = [Scored(candidate.genotype, None) for candidate in history]
    assert open_strategy(space, options, 0).suggest(nothing_scored, 30) is not None


@pytest.mark.parametrize(("refit_every", "fitted"), [(1, range(7, 15)), (3, (7, 10, 13)), (4, (7, 11)), (9, (7,))])
def test_classifiers_are_fitted_again(refit_every: int, fitted: Iterable[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits read the first 7 scores, then `refit_every` more each time; running candidates have none."""
    rows: list[int] = []
    fit = strategies._fit_region

    def counted(features: np.ndarray, scores: np.ndarray, depth: int) -> strategies._Region:
        # Each fit begins with a tree of depth 1.
        if depth == 1:
            rows.append(len(scores))
        return fit(features, scores, depth)

    history = _search("random", _space(3), 14, _distance)
    options = StrategyOptions(initial_samples=7, refit_every=refit_every)
    strategy = open_strategy(_space(3), options, 0)
    monkeypatch.setattr(strategies, "_fit_region", counted)
    for index in range(15):
        strategy.suggest(history[:index], index)
    assert rows == [*fitted]
    rows.clear()
    running = [Scored(candidate.genotype, None) for candidate in history[5:7]]
    open_strategy(_space(3), options, 0).suggest([*history[:5], *running], 7)
    assert rows == [5]


def test_later_scores_wait_for_the_next_fit() -> None:
    space, options = _space(3), StrategyOptions(initial_samples=20, refit_every=5)
    history = list(_search("random", space, 25, lambda genotype: _stacks(genotype[1])))
    # Worse than all, for the stacks that were the best.
    later = [Scored(candidate.genotype, -(float(_stacks(candidate.genotype[1])) ** 4)) for candidate in history[20:]]
    changed = [*history[:20], *later]

    def suggested(scored: list[Scored], index: int) -> Genotype | None:
        return open_strategy(space, options, 2).suggest(scored, index)

    assert [suggested(changed[:index], index) for index in range(21, 25)] == [
        suggested(history[:index], index) for index in range(21, 25)
    ]
    assert [suggested(changed, index) for index in range(25, 45)] != [suggested(history, i) for i in range(25, 45)]


@dataclasses.dataclass(frozen=True)
class _FirstFeature:
    def predict(self, features: np.ndarray) -> np.ndarray:
        return (features[:, 0] > 0).astype(int)


@pytest.mark.parametrize(
    ("exploration", "good"),
    # Upper confidence bounds: 0.9 + 2c·sqrt(2 ln 100 / 60) and 0.7 + 2c·sqrt(2 ln 100 / 40) are equal at c = 1.136.
    [(0.0, True), (1.13, True), (1.14, False)],
)
def test_exploration_selects_the_rarer_half(exploration: float, good: bool) -> None:
    halves = (strategies._Region(0.7, 38), strategies._Region(0.9, 42))
    tree = strategies._Region(0.8, 80, _FirstFeature(), halves)
    later = np.array([[1.0]] * 18 + [[-1.0]] * 2)
    assert tree.path(later, exploration) == [(tree, good)]


def test_depth_grows_with_scores() -> None:
    counts = (1, 400, 401, 800, 801, 1600, 1601, 3200, 3201)
    assert [strategies._depth(count) for count in counts] == [1, 1, 2, 2, 3, 3, 4, 4, 5]
    features = np.arange(24.0)[:, None]
    path = strategies._fit_region(features, features[:, 0], 2).path(features[:0], 0.0)
    assert [region.value for region, _ in path] == [11.5, 17.5] and all(good for _, good in path)


def test_equal_scores_split_nothing() -> None:
    history = _search("lanas", _space(3), 30, lambda genotype: 0.5)
    assert len({candidate.genotype for candidate in history}) == 30


def test_defaults_are_the_published_ones() -> None:
    # The authors' arguments, and Real et al., section 3.
    expected = StrategyOptions(initial_samples=80, refit_every=10, exploration=0, population=100, tournament=25)
    assert StrategyOptions().resolved() == expected == dataclasses.replace(expected, crossover_rate=0)
    short = dataclasses.replace(expected, initial_samples=10, population=10, tournament=2)
    assert StrategyOptions().resolved(30) == short
    assert expected.resolved(30) == expected


def test_space_without_other_candidates_ends_the_search() -> None:
    most = ParameterConstraint(limit=1.0)
    space = dataclasses.replace(_space(2, layers=1), constraints=(most,))
    strategy = open_strategy(space, StrategyOptions(), 0)
    with pytest.raises(UserError, match="none in the search space has"):
        strategy.suggest([], 0)
    assert strategy.suggest([Scored(_WINNER[:1], 0.5)], 1) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "grid"}, "strategy must be one of lanas, evolution, random; received 'grid'"),
        ({"population": 0}, "population must be positive; received 0"),
        ({"crossover_rate": 1.5}, "crossover_rate must lie in [0, 1]; received 1.5"),
    ],
)
def test_invalid_options_are_rejected(options: dict, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        StrategyOptions(**options)
