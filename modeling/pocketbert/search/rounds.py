"""The candidates of a search stage: suggest, train and score them in rounds of parallel ones."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from pocketbert.files import write_json
from pocketbert.progress import log_info
from pocketbert.search.candidates import CandidateTraining, genotype_point, train_candidate
from pocketbert.search.config import STAGES, SearchConfig
from pocketbert.search.constraints import Constraint
from pocketbert.search.folder import CANDIDATES_FOLDER, TIME_FILE
from pocketbert.search.journal import Candidate, Journal, best
from pocketbert.search.strategies import Scored, Strategy, StrategyOptions, open_strategy
from pocketbert.trials.results import RESULT_FILE, read_record, read_result
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
      main_metric: metric of the scores.
    """

    def __init__(
        self,
        folder: Path,
        journal: Journal,
        *,
        config: SearchConfig,
        strategy: StrategyOptions,
        costs: Sequence[Constraint],
        workers: Workers,
        main_metric: str,
    ) -> None:
        self._folder, self._journal, self._clock = folder, journal, _Clock(folder / TIME_FILE)
        self._config, self._strategy, self._costs, self._workers = config, strategy, costs, workers
        self._main_metric = main_metric

    @property
    def seconds(self) -> float:
        """Seconds that the candidates took, over all attempts."""
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
        before, seconds = len(journal.of_stage(stage)), self._clock.seconds
        with self._clock.running():
            while stage not in journal.ended:
                scored = journal.of_stage(stage)
                if len(scored) >= most:
                    journal.end(stage, "candidates")
                # A search without time still scores the first candidates.
                elif journal.candidates and self._seconds_left(number) <= 0:
                    journal.end(stage, "minutes")
                else:
                    count = min(self._workers.parallel, most - len(scored))
                    round_ = _suggestions(
                        strategy, [Scored(candidate.genotype, candidate.score) for candidate in scored], count
                    )
                    if not round_:
                        journal.end(stage, "all candidates are known")
                        continue
                    self._train(training, stage, round_)
                    self._clock.save()
                    done = len(journal.of_stage(stage))
                    seconds_each = (self._clock.seconds - seconds) / (done - before)
                    self._log_progress(
                        stage, most, min(seconds_each * (most - done), max(self._seconds_left(number), 0))
                    )

    def has_time(self, number: int) -> bool:
        """Whether the stage at a position may start a candidate."""
        return self._seconds_left(number) > 0

    def _seconds_left(self, number: int) -> float:
        """Time until a stage must end; the stages share it in proportion to their candidates."""
        if self._config.minutes is None:
            return math.inf
        counts = self._config.candidates
        return 60 * self._config.minutes * sum(counts[: number + 1]) / sum(counts) - self._clock.seconds

    def _train(self, training: CandidateTraining, stage: int, genotypes: Sequence[tuple[str, ...]]) -> None:
        """Trains one round of candidates, adds them to the journal, and removes their folders."""
        journal = self._journal
        first = len(journal.of_stage(stage))
        names = [f"stage-{stage}-{first + number:05d}" for number in range(len(genotypes))]
        jobs = self._jobs(names, genotypes)
        # The winner of a stage begins the next one, and would score the same. Finished candidates of a killed round are
        # kept, too.
        trained = {candidate.genotype: candidate for candidate in journal.candidates if training.trains}
        failures = self._outcomes(
            training, [job for job, genotype in zip(jobs, genotypes, strict=True) if genotype not in trained]
        )
        outcomes = []
        for number, (job, genotype) in enumerate(zip(jobs, genotypes, strict=True)):
            if genotype in trained:
                outcomes.append(dataclasses.replace(trained[genotype], stage=stage, index=first + number))
                continue
            failure = failures.get(job.folder, "")
            metrics = {} if failure else read_result(job.folder / RESULT_FILE)["metrics"]
            encoder = training.space.config(genotype)
            outcomes.append(
                Candidate(
                    stage=stage,
                    index=first + number,
                    genotype=genotype,
                    costs={cost.name: cost.cost(encoder) for cost in self._costs},
                    score=metrics.get(self._main_metric),
                    metrics=metrics,
                    failure=failure,
                )
            )
        # First, so that no kill loses a finished candidate.
        journal.add(outcomes)
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
        failures = self._outcomes(training, jobs)
        return [
            Retrained(
                stage=candidate.stage,
                index=candidate.index,
                score=candidate.score or 0.0,
                retrained=read_result(job.folder / RESULT_FILE)["metrics"][self._main_metric],
            )
            for candidate, job in zip(chosen, jobs, strict=True)
            if job.folder not in failures
        ]

    def _jobs(self, names: Sequence[str], genotypes: Sequence[tuple[str, ...]]) -> list[Job]:
        root = self._folder.absolute() / CANDIDATES_FOLDER
        root.mkdir(exist_ok=True)
        return [
            Job(genotype_point(genotype), self._config.seed, root / name)
            for name, genotype in zip(names, genotypes, strict=True)
        ]

    def _outcomes(self, training: CandidateTraining, jobs: Sequence[Job]) -> dict[Path, str]:
        """Runs unfinished jobs; returns the folders of failed ones with the error messages."""
        waiting = [job for job in jobs if not (job.folder / RESULT_FILE).exists()]
        outcomes = self._workers.outcomes(functools.partial(train_candidate, training), waiting)
        return {outcome.job.folder: outcome.failure for outcome in outcomes if outcome.failure is not None}

    def _log_progress(self, stage: int, most: int, seconds: float) -> None:
        """Logs the best score; `seconds` is the time left."""
        done = self._journal.of_stage(stage)
        line = f"stage {stage}: {len(done)} of {most} candidates"
        if any(candidate.score is not None for candidate in done):
            top = best(done)
            line += f", best {self._main_metric} {top.score:.4f} (candidate {top.index})"
        left = tqdm.format_interval(seconds)
        log_info(f"{line}, at most about {left} left in this stage")


class _Clock:
    """Seconds that the candidates took, over all attempts; the supernets' training does not count."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before = float(read_record(path, ("seconds",))["seconds"]) if path.exists() else 0.0
        self._begun: float | None = None

    @property
    def seconds(self) -> float:
        return self._before + (0.0 if self._begun is None else time.monotonic() - self._begun)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Counts the time inside the block."""
        self._begun = time.monotonic()
        try:
            yield
        finally:
            self._before, self._begun = self.seconds, None

    def save(self) -> None:
        write_json(self._path, {"seconds": self.seconds})


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
