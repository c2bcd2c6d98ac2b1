"""Strategies suggest the next genotype from the scores so far.

A suggestion is a pure function of space, options, seed, history and index. So a killed search makes the same
suggestions when its journal is replayed, without a saved state.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from pocketbert.errors import UserError, raise_if_any
from pocketbert.options import option_problems
from pocketbert.search.expressions import Genotype, pick
from pocketbert.search.space import SearchSpace

# Duplicates before a space counts as exhausted, unless it is small enough to enumerate.
_TRIES = 1000
_MOST_ENUMERATED = 1 << 14
# Duplicate children in one generation before a random candidate replaces them.
_CHILDREN = 100
# Candidates outside LaNAS's region before any will do; 20,000 in the authors' code.
_REGION_TRIES = 2000
# LaNAS in EfficientBERT's code; regularized evolution (Real et al. 2019).
_AUTHORS_SAMPLES, _PAPER_POPULATION, _PAPER_TOURNAMENT = 80, 100, 25
# LaNAS's tree has depth 1, plus 1 from each number of scores on (authors' code).
_DEPTH_LEVELS = (400, 800, 1600, 3200)
# Rows per leaf in a classifier: its default, 1, would fit noise in the scores.
_LEAF_SAMPLES = 5


@dataclass(frozen=True)
class Scored:
    """A candidate in a search.

    Attributes:
      genotype: its expressions.
      score: its score, higher is better; None while it trains or after it failed. Such a candidate is not suggested
        again; otherwise it does not influence suggestions.
    """

    genotype: Genotype
    score: float | None


@dataclass(frozen=True, kw_only=True)
class StrategyOptions:
    """How to choose candidates.

    Attributes:
      strategy: `lanas` samples from the region where classifiers expect scores above the median (Wang et al. 2019;
        EfficientBERT's choice). `evolution` mutates good recent candidates (regularized evolution, Real et al. 2019).
        `random` samples from the whole space.
      initial_samples: random candidates before the first classifier for `lanas` (default: authors' code 80; with the
        preset quick at most a third of a stage's candidates).
      refit_every: candidates between two classifier fits for `lanas`.
      exploration: weight for rarely visited regions in `lanas`, relative to scores; 0 always takes the best region, as
        EfficientBERT's authors do.
      population: recent candidates as possible parents for `evolution`, and random ones at its start (default: paper
        100; with the preset quick at most a third of a stage's candidates).
      tournament: candidates drawn from the population; the best one becomes the parent (default: paper 25; with the
        preset quick at most a quarter of the population, but 2).
      crossover_rate: fraction of `evolution` candidates with two parents, crossed instead of mutated; 0 in the paper.
    """

    strategy: Literal["lanas", "evolution", "random"] = "lanas"
    initial_samples: int | None = None
    refit_every: int = 10
    exploration: float = 0.0
    population: int | None = None
    tournament: int | None = None
    crossover_rate: float = 0.0

    GROUP: ClassVar[str] = "Strategy"

    def __post_init__(self) -> None:
        problems = option_problems(self, may_be_zero=("exploration", "crossover_rate"))
        if self.crossover_rate > 1:
            problems.append(f"crossover_rate must lie in [0, 1]; received {self.crossover_rate}")
        raise_if_any(problems, "strategy")

    def resolved(self, most: int | None = None) -> StrategyOptions:
        """Returns a copy with numbers for missing options.

        Args:
          most: candidates in the stage; scores choose at least two thirds of them. None for the paper's values.
        """
        unscored = _PAPER_POPULATION if most is None else max(most // 3, 1)
        population = self.population or min(_PAPER_POPULATION, unscored)
        tournament = _PAPER_TOURNAMENT if most is None else min(_PAPER_TOURNAMENT, max(population // 4, 2))
        return dataclasses.replace(
            self,
            initial_samples=self.initial_samples or min(_AUTHORS_SAMPLES, unscored),
            population=population,
            tournament=self.tournament or tournament,
        )


class Strategy(Protocol):
    """Chooses candidates."""

    def suggest(self, history: Sequence[Scored], index: int) -> Genotype | None:
        """Returns the next candidate; it meets the space's constraints.

        Args:
          history: all earlier candidates in suggestion order, also running and failed ones.
          index: this candidate's number, from 0. With the seed, it selects the random numbers, so several candidates
            can start with one history.
        Returns:
          A genotype that differs in text and values from all of `history`, see `SearchSpace.key`. None if 1,000 random
          ones are in `history` or break the constraints; in a stage 3 with at most 16,384 genotypes, if all do.
        Raises:
          UserError: no genotype meets the constraints, and there is no earlier candidate.
        """
        ...


class RandomSearch:
    """Random candidates from the space.

    Args:
      space: the search space.
      options: see `StrategyOptions`.
      seed: selects all random numbers together with the index; not negative.
    """

    def __init__(self, space: SearchSpace, options: StrategyOptions, seed: int) -> None:
        self._space, self._options, self._seed = space, options.resolved(), seed

    def suggest(self, history: Sequence[Scored], index: int) -> Genotype | None:
        """See `Strategy.suggest`."""
        seen = {self._space.key(candidate.genotype) for candidate in history}
        random = np.random.default_rng([self._seed, index])
        scored = [candidate for candidate in history if candidate.score is not None and math.isfinite(candidate.score)]
        try:
            for genotype in self._candidates(scored, index, random):
                if self._space.key(genotype) not in seen:
                    return genotype
        except UserError:
            # Few genotypes meet the constraints, and all found ones are known.
            if not history:
                raise
        return None

    def _candidates(self, scored: list[Scored], index: int, random: np.random.Generator) -> Iterator[Genotype]:
        """Yields candidates, preferred ones first."""
        yield from self._space.initial()[index : index + 1]
        yield from self._chosen(scored, index, random)
        for _ in range(_TRIES):
            yield self._space.sample(random)
        if self._space.size <= _MOST_ENUMERATED:
            yield from self._space.genotypes()

    def _chosen(self, scored: list[Scored], index: int, random: np.random.Generator) -> Iterator[Genotype]:
        """Yields candidates suggested by the scores."""
        yield from ()


class Evolution(RandomSearch):
    """Regularized evolution (Real et al. 2019, algorithm 1).

    The population is the latest candidates: each new one replaces the oldest. A tournament draws with replacement, as
    in the paper. The space's initial genotypes belong to the first population.
    """

    def _chosen(self, scored: list[Scored], index: int, random: np.random.Generator) -> Iterator[Genotype]:
        assert self._options.population is not None
        population = scored[-self._options.population :]
        if index < self._options.population or not population:
            return
        for _ in range(_CHILDREN):
            parent = self._parent(population, random)
            if random.random() < self._options.crossover_rate:
                yield self._space.crossover(parent, self._parent(population, random), random)
            else:
                yield self._space.mutate(parent, random)

    def _parent(self, population: list[Scored], random: np.random.Generator) -> Genotype:
        assert self._options.tournament is not None
        drawn = [pick(random, population) for _ in range(self._options.tournament)]
        return max(drawn, key=_score).genotype


class LaNAS(RandomSearch):
    """A tree of median splits that learns where good candidates are (Wang et al. 2019, as in EfficientBERT's code).

    Each node splits its scored candidates at their median and trains a classifier for the two halves. Random candidates
    are rejected until the classifiers place one in the selected leaf. The tree's depth is 1; from 400, 800, 1600 and
    3200 scores on, it grows by one.

    A node's value is its median, as in EfficientBERT's code. Departures from that code: scikit-learn's
    GradientBoostingClassifier with fixed hyper-parameters replaces LightGBM tuned with hyperopt, see ADR 11; after
    2,000 rejected candidates instead of 20,000, any new one is taken. The code selects the child with the higher value.
    `exploration` c selects by an upper confidence bound, value + 2c·sqrt(2 ln(n) / n_child), where n counts candidates,
    including those tried since the last fit.
    """

    def __init__(self, space: SearchSpace, options: StrategyOptions, seed: int) -> None:
        super().__init__(space, options, seed)
        # The last tree: ten suggestions use it.
        self._fitted: tuple[list[Scored], _Region] | None = None

    def _chosen(self, scored: list[Scored], index: int, random: np.random.Generator) -> Iterator[Genotype]:
        initial = self._options.initial_samples
        assert initial is not None
        if index < initial or not scored:
            return
        # Parallel candidates may still run, so there can be fewer scores than initial samples.
        later = max(len(scored) - initial, 0) % self._options.refit_every
        split = len(scored) - later
        if self._fitted is None or self._fitted[0] != scored[:split]:
            scores = np.array([_score(candidate) for candidate in scored[:split]])
            self._fitted = scored[:split], _fit_region(self._encode(scored[:split]), scores, _depth(split))
        path = self._fitted[1].path(self._encode(scored[split:]), self._options.exploration)
        for _ in range(_REGION_TRIES):
            genotype = self._space.sample(random)
            features = np.array([self._space.features(genotype)])
            if all(region.is_good(features)[0] == good for region, good in path):
                yield genotype

    def _encode(self, scored: list[Scored]) -> np.ndarray:
        return np.array([self._space.features(candidate.genotype) for candidate in scored])


@dataclass(frozen=True)
class _Region:
    """A node in LaNAS's tree.

    Attributes:
      value: median score.
      count: scored candidates in it at the fit.
      classifier: predicts 1 for the good half; None for a leaf.
      children: bad and good half; empty for a leaf.
    """

    value: float
    count: int
    classifier: Any = None
    children: tuple[_Region, ...] = ()

    def is_good(self, features: np.ndarray) -> np.ndarray:
        """Predicts the rows in the good half."""
        return self.classifier.predict(features) == 1

    def path(self, later: np.ndarray, exploration: float) -> list[tuple[_Region, bool]]:
        """Returns the regions down to the selected leaf, and for each whether the good half is next."""
        path, region = [], self
        while region.children:
            good = region.is_good(later) if len(later) else np.zeros(0, bool)
            counts = [child.count + int(np.sum(good == side)) for side, child in enumerate(region.children)]
            bounds = [
                child.value + 2 * exploration * math.sqrt(2 * math.log(sum(counts)) / count)
                for child, count in zip(region.children, counts, strict=True)
            ]
            selected = bounds[1] >= bounds[0]
            path.append((region, selected))
            region, later = region.children[selected], later[good == selected]
        return path


def _depth(count: int) -> int:
    return 1 + int(np.searchsorted(_DEPTH_LEVELS, count))


def _fit_region(features: np.ndarray, scores: np.ndarray, depth: int) -> _Region:
    value = float(np.median(scores))
    good = scores >= value
    if depth == 0 or good.all():
        return _Region(value, len(scores))
    from sklearn.ensemble import GradientBoostingClassifier

    # 100 trees, as in the authors' code.
    classifier = GradientBoostingClassifier(n_estimators=100, min_samples_leaf=_LEAF_SAMPLES, random_state=0)
    classifier.fit(features, good.astype(int))
    children = tuple(_fit_region(features[side], scores[side], depth - 1) for side in (~good, good))
    return _Region(value, len(scores), classifier, children)


def _score(candidate: Scored) -> float:
    return -math.inf if candidate.score is None else candidate.score


# Name → class with the arguments of `RandomSearch`. A new strategy is a row here and a choice for `strategy`.
STRATEGIES: Mapping[str, type[RandomSearch]] = {"lanas": LaNAS, "evolution": Evolution, "random": RandomSearch}


def open_strategy(space: SearchSpace, options: StrategyOptions, seed: int) -> Strategy:
    """Opens the strategy in the options.

    Args:
      space: the search space.
      options: see `StrategyOptions`.
      seed: selects all random numbers together with the index; not negative.
    """
    return STRATEGIES[options.strategy](space, options, seed)
