"""The candidates in a search stage: suggests, trains and scores them in parallel rounds."""

from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.progress import log_info
from pocketbert.search.candidates import EXPRESSIONS, CandidateTraining, train_candidate
from pocketbert.search.config import STAGES, SearchConfig
from pocketbert.search.constraints import Constraint
from pocketbert.search.folder import CANDIDATES_FOLDER
from pocketbert.search.journal import Candidate, SearchJournal, StageEnd
from pocketbert.search.strategies import Scored, Strategy, StrategyOptions, open_strategy
from pocketbert.trials.clock import RunClock
from pocketbert.trials.jobs import Job
from pocketbert.trials.missing import Trials
from pocketbert.trials.scores import scores
from pocketbert.trials.workers import Workers


def kendall_tau(retrained: Sequence[Mapping[str, Any]]) -> float | None:
    """Kendall's rank correlation (tau-b) between `score` and `retrained`, from -1 to 1; None if it is not defined."""
    from scipy.stats import kendalltau

    if len(retrained) < 2:
        return None
    scores_and_retrained = zip(*((row["score"], row["retrained"]) for row in retrained), strict=True)
    correlation = kendalltau(*map(list, scores_and_retrained)).statistic
    return None if math.isnan(correlation) else float(correlation)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rounds:
    """Rounds of candidates.

    Attributes:
      folder: the search folder.
      journal: receives the candidates.
      config: search options, resolved.
      strategy: how to choose candidates.
      costs: costs to record.
      workers: where candidates train.
      clock: seconds for candidates, without training supernets.
    """

    folder: Path
    journal: SearchJournal
    config: SearchConfig
    strategy: StrategyOptions
    costs: Sequence[Constraint]
    workers: Workers
    clock: RunClock

    def run(self, training: CandidateTraining, stage: int, number: int) -> None:
        """Suggests, trains and scores one stage's candidates.

        Args:
          training: what the candidates have in common.
          stage: the stage.
          number: its position in the search, from 0.
        """
        journal = self.journal
        most = self.config.candidates[number]
        options = self.strategy.resolved(None if self.config.preset == "paper" else most)
        strategy = open_strategy(training.space, options, self.config.seed)
        log_info(f"stage {stage} ({STAGES[stage]}): at most {most} candidates, chosen by {self.strategy.strategy}")
        trials = Trials(
            self.workers,
            total=most,
            best=max(scores(journal.of_stage(stage)), default=-math.inf),
            seconds_left=lambda: self._seconds_left(number),
        )
        with self.clock as clock:
            clock.start_saving()
            while stage not in journal.ended:
                scored = journal.of_stage(stage)
                if len(scored) >= most:
                    journal.add(StageEnd(stage, "candidates"))
                # A search without time still scores the first candidates.
                elif journal.candidates and not self.has_time(number):
                    journal.add(StageEnd(stage, "minutes"))
                else:
                    count = min(self.workers.parallel, most - len(scored))
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
        """Time until a stage must end; stages share it in proportion to their candidates."""
        if self.config.minutes is None:
            return math.inf
        counts = self.config.candidates
        return 60 * self.config.minutes * sum(counts[: number + 1]) / sum(counts) - self.clock.seconds

    def _train(
        self, training: CandidateTraining, stage: int, genotypes: Sequence[tuple[str, ...]], trials: Trials
    ) -> None:
        """Trains one round, adds its candidates to the journal, and removes their folders."""
        journal = self.journal
        first = len(journal.of_stage(stage))
        jobs = self._jobs([f"stage-{stage}-{first + number:05d}" for number in range(len(genotypes))], genotypes)
        # A stage's winner begins the next one, and would score the same.
        trained = {candidate.genotype: candidate for candidate in journal.candidates if training.trains}
        waiting = [job for job, genotype in zip(jobs, genotypes, strict=True) if genotype not in trained]
        trials.done = first + len(jobs) - len(waiting)
        train = partial(train_candidate, training)
        outcomes = {outcome.job.folder: outcome for outcome in trials.outcomes(train, waiting)}
        candidates = []
        for number, genotype in enumerate(genotypes, first):
            if genotype in trained:
                candidates.append(dataclasses.replace(trained[genotype], stage=stage, index=number))
                continue
            outcome, encoder = outcomes[jobs[number - first].folder], training.space.config(genotype)
            candidates.append(
                Candidate(
                    stage=stage,
                    index=number,
                    genotype=genotype,
                    costs={cost.name: cost.cost(encoder) for cost in self.costs},
                    score=outcome.score,
                    metrics=outcome.result.get("metrics", {}),
                    failure=outcome.failure,
                )
            )
        # First, so that no kill loses a finished candidate.
        journal.add(*candidates)
        for job in jobs:
            for path in (job.folder, job.folder.with_name(f"{job.folder.name}-text")):
                shutil.rmtree(path, ignore_errors=True)
            job.log.unlink(missing_ok=True)

    def retrain(self, training: CandidateTraining, candidates: Sequence[Candidate], count: int) -> list[dict[str, Any]]:
        """Trains some candidates again; omits those that diverge.

        Args:
          training: how to train them.
          candidates: the search's candidates; takes `count`, spread evenly from the best to the worst score.
          count: number of candidates.
        Returns:
          For each, `stage`, `index`, `score` in the search, and `retrained`, its score after the second training.
        """
        # A stage's winner is a candidate in the next one, too.
        different = {candidate.genotype: candidate for candidate in candidates if candidate.score is not None}
        ranked = sorted(different.values(), key=lambda candidate: -(candidate.score or 0.0))
        places = np.unique(np.linspace(0, len(ranked) - 1, min(count, len(ranked))).round().astype(int))
        chosen = [ranked[index] for index in places]
        log_info(f"training {len(chosen)} candidates again, with the duration of the supernet")
        names = [f"again-{candidate.stage}-{candidate.index:05d}" for candidate in chosen]
        jobs = self._jobs(names, [candidate.genotype for candidate in chosen])
        outcomes = Trials(self.workers, total=len(jobs)).outcomes(partial(train_candidate, training), jobs)
        retrained = {outcome.job.folder: outcome.score for outcome in outcomes if outcome.score is not None}
        return [
            {
                **{name: getattr(candidate, name) for name in ("stage", "index", "score")},
                "retrained": retrained[job.folder],
            }
            for candidate, job in zip(chosen, jobs, strict=True)
            if job.folder in retrained
        ]

    def _jobs(self, names: Sequence[str], genotypes: Sequence[tuple[str, ...]]) -> list[Job]:
        root = self.folder.absolute() / CANDIDATES_FOLDER
        root.mkdir(exist_ok=True)
        return [
            Job({EXPRESSIONS: genotype}, self.config.seed, root / name)
            for name, genotype in zip(names, genotypes, strict=True)
        ]


def _suggestions(strategy: Strategy, history: list[Scored], count: int) -> list[tuple[str, ...]]:
    """Suggests up to `count` new candidates; in one round, they do not see each other's scores."""
    suggestions: list[tuple[str, ...]] = []
    for _ in range(count):
        running = [Scored(genotype, None) for genotype in suggestions]
        genotype = strategy.suggest([*history, *running], len(history) + len(suggestions))
        if genotype is None:
            break
        suggestions.append(genotype)
    return suggestions
