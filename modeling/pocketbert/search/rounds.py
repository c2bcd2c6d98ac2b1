"""The candidates of a search stage: suggest, train and score them in rounds of parallel ones."""

from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from pocketbert.progress import log_info
from pocketbert.search.candidates import EXPRESSIONS, CandidateTraining, train_candidate
from pocketbert.search.config import STAGES, SearchConfig
from pocketbert.search.constraints import Constraint
from pocketbert.search.folder import CANDIDATES_FOLDER, TIME_FILE
from pocketbert.search.journal import Candidate, SearchJournal, StageEnd
from pocketbert.search.strategies import Scored, Strategy, StrategyOptions, open_strategy
from pocketbert.trials.clock import RunClock
from pocketbert.trials.missing import Trials
from pocketbert.trials.scores import scores
from pocketbert.trials.workers import Job, Workers


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retrained:
    """A candidate that was trained again.

    Attributes:
      stage: number of its stage.
      index: number within the stage.
      score: its score in the search.
      retrained: its score after the second training.
    """

    stage: int
    index: int
    score: float
    retrained: float


def kendall_tau(retrained: Sequence[Retrained]) -> float | None:
    """Kendall's rank correlation (tau-b) of the two scores, from -1 to 1; None if it is not defined."""
    from scipy.stats import kendalltau

    if len(retrained) < 2:
        return None
    correlation = kendalltau([item.score for item in retrained], [item.retrained for item in retrained]).statistic
    return None if math.isnan(correlation) else float(correlation)


class Rounds:
    """Rounds of candidates.

    Args:
      folder: folder of the search.
      journal: receives the candidates.
      config: options of the search, resolved.
      strategy: how candidates are chosen.
      costs: costs to record.
      workers: where candidates train.
    """

    def __init__(
        self,
        folder: Path,
        journal: SearchJournal,
        *,
        config: SearchConfig,
        strategy: StrategyOptions,
        costs: Sequence[Constraint],
        workers: Workers,
    ) -> None:
        self._folder, self._journal, self._clock = folder, journal, RunClock(folder / TIME_FILE)
        self._config, self._strategy, self._costs, self._workers = config, strategy, costs, workers

    @property
    def seconds(self) -> float:
        """Seconds that the candidates took, over all attempts; the supernets' training does not count."""
        return self._clock.seconds

    def run(self, training: CandidateTraining, stage: int, number: int) -> None:
        """Suggests, trains and scores the candidates of one stage.

        Args:
          training: what the candidates have in common.
          stage: the stage.
          number: its position among the stages of the search, from 0.
        """
        journal = self._journal
        most = self._config.candidates[number]
        options = self._strategy.resolved(None if self._config.preset == "paper" else most)
        strategy = open_strategy(training.space, options, self._config.seed)
        log_info(f"stage {stage} ({STAGES[stage]}): at most {most} candidates, chosen by {self._strategy.strategy}")
        trials = Trials(
            self._workers,
            total=most,
            best=max(scores(journal.of_stage(stage)), default=-math.inf),
            seconds_left=lambda: self._seconds_left(number),
        )
        with self._clock as clock:
            clock.start_saving()
            while stage not in journal.ended:
                scored = journal.of_stage(stage)
                if len(scored) >= most:
                    journal.add(StageEnd(stage, "candidates"))
                # A search without time still scores the first candidates.
                elif journal.candidates and not self.has_time(number):
                    journal.add(StageEnd(stage, "minutes"))
                else:
                    count = min(self._workers.parallel, most - len(scored))
                    round_ = _suggestions(
                        strategy, [Scored(candidate.genotype, candidate.score) for candidate in scored], count
                    )
                    if round_:
                        self._train(training, stage, round_, trials)
                    else:
                        journal.add(StageEnd(stage, "all candidates are known"))

    def has_time(self, number: int) -> bool:
        """Whether the stage at a position may start a candidate."""
        return self._seconds_left(number) > 0

    def _seconds_left(self, number: int) -> float:
        """Time until a stage must end; the stages share it in proportion to their candidates."""
        if self._config.minutes is None:
            return math.inf
        counts = self._config.candidates
        return 60 * self._config.minutes * sum(counts[: number + 1]) / sum(counts) - self._clock.seconds

    def _train(
        self, training: CandidateTraining, stage: int, genotypes: Sequence[tuple[str, ...]], trials: Trials
    ) -> None:
        """Trains one round of candidates, adds them to the journal, and removes their folders."""
        journal = self._journal
        first = len(journal.of_stage(stage))
        jobs = self._jobs([f"stage-{stage}-{first + number:05d}" for number in range(len(genotypes))], genotypes)
        # The winner of a stage begins the next one, and would score the same.
        trained = {candidate.genotype: candidate for candidate in journal.candidates if training.trains}
        waiting = [job for job, genotype in zip(jobs, genotypes, strict=True) if genotype not in trained]
        trials.done = first + len(jobs) - len(waiting)
        results = {result.job.folder: result for result in trials.results(partial(train_candidate, training), waiting)}
        candidates = []
        for number, genotype in enumerate(genotypes, first):
            if genotype in trained:
                candidates.append(dataclasses.replace(trained[genotype], stage=stage, index=number))
                continue
            result, encoder = results[jobs[number - first].folder], training.space.config(genotype)
            candidates.append(
                Candidate(
                    stage=stage,
                    index=number,
                    genotype=genotype,
                    costs={cost.name: cost.cost(encoder) for cost in self._costs},
                    score=result.score,
                    metrics=result.metrics,
                    failure=result.failure,
                )
            )
        # First, so that no kill loses a finished candidate.
        journal.add(*candidates)
        for job in jobs:
            for path in (job.folder, job.folder.with_name(f"{job.folder.name}-text")):
                shutil.rmtree(path, ignore_errors=True)
            job.log.unlink(missing_ok=True)

    def retrain(self, training: CandidateTraining, candidates: Sequence[Candidate], count: int) -> list[Retrained]:
        """Trains some candidates again; those that diverge are left out.

        Args:
          training: how they are trained.
          candidates: candidates of the search; `count` of them are taken, evenly from the best to the worst score.
          count: number of candidates.
        """
        # The winner of a stage is a candidate of the next one, too.
        different = {candidate.genotype: candidate for candidate in candidates if candidate.score is not None}
        ranked = sorted(different.values(), key=lambda candidate: -(candidate.score or 0.0))
        places = np.unique(np.linspace(0, len(ranked) - 1, min(count, len(ranked))).round().astype(int))
        chosen = [ranked[index] for index in places]
        log_info(f"training {len(chosen)} candidates again, with the duration of the supernet")
        names = [f"again-{candidate.stage}-{candidate.index:05d}" for candidate in chosen]
        jobs = self._jobs(names, [candidate.genotype for candidate in chosen])
        trials = Trials(self._workers, total=len(jobs)).results(partial(train_candidate, training), jobs)
        retrained = {result.job.folder: result.score for result in trials if result.score is not None}
        return [
            Retrained(
                stage=candidate.stage,
                index=candidate.index,
                score=candidate.score or 0.0,
                retrained=retrained[job.folder],
            )
            for candidate, job in zip(chosen, jobs, strict=True)
            if job.folder in retrained
        ]

    def _jobs(self, names: Sequence[str], genotypes: Sequence[tuple[str, ...]]) -> list[Job]:
        root = self._folder.absolute() / CANDIDATES_FOLDER
        root.mkdir(exist_ok=True)
        return [
            Job({EXPRESSIONS: genotype}, self._config.seed, root / name)
            for name, genotype in zip(names, genotypes, strict=True)
        ]


def _suggestions(strategy: Strategy, history: list[Scored], count: int) -> list[tuple[str, ...]]:
    """Up to `count` new candidates; those of one round do not see each other's scores."""
    suggestions: list[tuple[str, ...]] = []
    for _ in range(count):
        running = [Scored(genotype, None) for genotype in suggestions]
        genotype = strategy.suggest([*history, *running], len(history) + len(suggestions))
        if genotype is None:
            break
        suggestions.append(genotype)
    return suggestions
