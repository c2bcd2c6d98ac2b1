"""Search for feed-forward networks: warm up a supernet, then train and score one candidate after another."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from pocketbert.checkpoints.huggingface import write_config
from pocketbert.checkpoints.supernet import supernet_config
from pocketbert.configs import EncoderConfig
from pocketbert.data.task_data import TaskData, TextData
from pocketbert.data.train_dev_split import train_dev_split
from pocketbert.distillation.methods.efficientbert import EfficientBERT
from pocketbert.distillation.plan import plan_distillation
from pocketbert.errors import TrainingFailed, UserError
from pocketbert.files import write_json, write_text
from pocketbert.model import Model
from pocketbert.outputs import check_inputs
from pocketbert.progress import log_info
from pocketbert.search.candidates import CandidateTraining, genotype_point, train_candidate
from pocketbert.search.config import STAGES, SearchConfig, SearchResult
from pocketbert.search.constraints import Constraint, ParameterConstraint
from pocketbert.search.journal import Candidate, Journal, front
from pocketbert.search.report import page
from pocketbert.search.space import SearchSpace
from pocketbert.search.strategies import Scored, Strategy, StrategyOptions, open_strategy
from pocketbert.search.supernets import Supernets
from pocketbert.training.config import RunConfig
from pocketbert.training.grid_workers import InTurn, Job, Workers
from pocketbert.training.initialization import plan_model, saved_models
from pocketbert.training.plan import open_data
from pocketbert.training.run_folder import (
    CANDIDATES_FOLDER,
    JOURNAL_FILE,
    REPORT_FILE,
    RESULT_FILE,
    STUDENT_FOLDER,
    SUPERNET_FOLDER,
    TIME_FILE,
    begin_run,
    clear_run,
    read_record,
    read_result,
)
from pocketbert.training.state import digest_directory
from pocketbert.training.trainer import run_once


def search(
    student: str | os.PathLike[str] | EncoderConfig,
    data: TaskData,
    output: str | os.PathLike[str],
    *,
    teacher: Model | str | os.PathLike[str],
    text: str | os.PathLike[str] | None = None,
    config: SearchConfig = SearchConfig(),  # noqa: B008
    strategy: StrategyOptions = StrategyOptions(),  # noqa: B008
    constraints: Sequence[Constraint] = (),
    workers: Workers | None = None,
    overwrite: bool = False,
) -> SearchResult:
    """Searches the feed-forward networks of a student (EfficientBERT, section 3.2).

    Call it again with the same arguments to resume after a kill. Candidates that were training resume from their last
    checkpoint, all others are kept, and the journal ends as without the kill. For a finished search, it returns the
    result.

    Args:
      student: base architecture: name of a preset, an architecture or a config.json. Its expressions are replaced.
      data: the task and its labelled examples. The dev split selects the checkpoint of the supernets, nothing else.
      output: folder of the search: `student/config.json` (the best architecture), `supernet/model/`, `journal.jsonl`,
        `report.html`, `result.json`.
      teacher: the teacher, fine-tuned on the task: a model in memory or a model directory.
      text: plain text that warms up the supernet; None to warm it up on the task's examples.
      config: options.
      strategy: how candidates are chosen. At most a third of a stage's candidates are chosen without scores.
      constraints: limits of candidates; the first one is the cost of the front (default: parameters).
      workers: where candidates train; None for one after another in this process.
      overwrite: discard a finished search in the output folder, or a search with other options.

    Returns:
      The best architecture and the front.

    Raises:
      UserError: teacher, student and task do not match, no candidate can meet the constraints, or `output` contains
        another search. Nothing was written.
      TrainingFailed: the supernet or all candidates diverged.
    """
    with saved_models(teacher) as (directory,):
        check_inputs(output, (directory, data.train.source, data.dev.source, text))
        made = _Search(student, data, output, directory, text, config, strategy, constraints, workers or InTurn())
        return made.run(overwrite)


class _Search:
    """A search with checked input; the arguments are those of `search`."""

    def __init__(
        self,
        student: str | os.PathLike[str] | EncoderConfig,
        data: TaskData,
        output: str | os.PathLike[str],
        teacher: Any,
        text: str | os.PathLike[str] | None,
        config: SearchConfig,
        strategy: StrategyOptions,
        constraints: Sequence[Constraint],
        workers: Workers,
    ) -> None:
        self._config = config = config.resolved()
        planned = plan_model(student)
        if planned.directory is not None:
            raise UserError(
                "search: the student must be a preset or a config.json, since it starts from the supernet; received "
                f"the model directory {planned.directory}"
            )
        self._base, self._teacher, self._text = planned.config, teacher, text
        size, pads = self._base.block_size, self._base.feedforward and self._base.feedforward.mismatch == "pad"
        if 3 in config.stages and self._base.intermediate_size > size and not pads:
            raise UserError(
                f"search: stage 3 needs intermediate_size of at most the hidden size, {size}, since its supernet has "
                f"the full width; received {self._base.intermediate_size}; reduce it, or leave stage 3 out"
            )
        self._output, self._workers, self._strategy = output, workers, strategy
        self._constraints = tuple(constraints)
        self._costs = self._constraints or (ParameterConstraint(limit=math.inf),)
        supernet = supernet_config(self._base)
        self._given = self._base.feedforward.expressions if self._base.feedforward else ()
        self._first_space = self._space(config.stages[0], self._given)
        # Both parts are fixed for all candidates, and the supernet never trains on the examples for scores.
        part, score_part = config.resolved_shares
        rest, scored = train_dev_split(data.train, score_part, config.seed, stratify=True)
        share = part / (1 - score_part)
        trained = rest if share >= 1 else train_dev_split(rest, share, config.seed, stratify=True)[1]
        self._candidate_data = dataclasses.replace(data, train=trained, dev=scored, augmented=None)
        self._supernet_data = dataclasses.replace(data, train=rest, augmented=None)
        # Checks teacher, student and data before anything is written.
        for given in (TextData(text), self._candidate_data) if text else (self._candidate_data,):
            plan_distillation(
                supernet, given, teacher=teacher, method=EfficientBERT(max_length=config.max_length), run=RunConfig()
            )
        self._recorded: dict[str, Any] = {
            "objective": "search",
            **dataclasses.asdict(config),
            **dataclasses.asdict(strategy),
            **{f"base_{name}": value for name, value in dataclasses.asdict(self._base).items()},
            **open_data(data).recorded(),
            "teacher_sha256": digest_directory(teacher),
            **(open_data(TextData(text)).recorded() if text else {}),
            "constraints": [
                [each.name, each.describe(each.minimum), each.describe(each.limit)] for each in self._constraints
            ],
            "parallel": workers.parallel,
        }

    def run(self, overwrite: bool) -> SearchResult:
        """Runs or resumes the search."""
        folder, result = run_once(self._output, self._recorded, self._run, overwrite=overwrite)
        return SearchResult(
            **{**result, "supernet": str(folder / result["supernet"])},
            student_config=str(folder / STUDENT_FOLDER / "config.json"),
        )

    def _run(self, folder: Path) -> dict[str, Any]:
        begin_run(folder, self._recorded)
        try:
            for constraint in self._constraints:
                constraint.prepare(folder, self._first_space)
            # Finds a candidate, or reports that none can meet the constraints.
            self._first_space.sample(np.random.default_rng(self._config.seed))
        except UserError:
            if not (folder / SUPERNET_FOLDER).exists():
                # Leave no folder behind after bad input.
                clear_run(folder)
            raise
        supernets = Supernets(
            folder=folder,
            base=self._base,
            data=self._supernet_data,
            text=None if self._text is None else str(Path(self._text).absolute()),
            teacher=str(Path(self._teacher).absolute()),
            config=self._config,
        )
        supernet = supernets.frozen()
        journal = Journal(folder / JOURNAL_FILE)
        self._clock = _Clock(folder / TIME_FILE)
        space = self._first_space
        try:
            for number, stage in enumerate(self._config.stages):
                if number:
                    earlier = [candidate for candidate in journal.candidates if candidate.stage < stage]
                    space = self._space(stage, _best(earlier).genotype)
                if stage == 3:
                    supernet = supernets.learning(space.config(space.winner))
                self._stage(folder, journal, self._training(supernets, supernet, space, stage), stage, number)
        finally:
            self._workers.close()
        best = _best(_comparable(journal))
        shutil.rmtree(folder / CANDIDATES_FOLDER, ignore_errors=True)
        return self._write_result(folder, journal, best, str(supernet.relative_to(folder)))

    def _space(self, stage: int, winner: tuple[str, ...]) -> SearchSpace:
        return SearchSpace(
            encoder=self._base, stage=stage, winner=() if stage == 1 else winner, constraints=self._constraints
        )

    def _training(self, supernets: Supernets, supernet: Path, space: SearchSpace, stage: int) -> CandidateTraining:
        steps = self._config.candidate_text_steps
        return CandidateTraining(
            space=space,
            supernet=str(supernet.absolute()),
            data=self._candidate_data,
            text=supernets.text,
            text_method=supernets.method(TextData(""), steps=steps or 1),
            text_steps=steps,
            teacher=supernets.teacher,
            method=supernets.method(self._candidate_data, epochs=self._config.candidate_epochs),
            trains=stage != 3,
        )

    def _stage(self, folder: Path, journal: Journal, training: CandidateTraining, stage: int, number: int) -> None:
        """Suggests, trains and scores the candidates of one stage, in rounds of parallel ones."""
        most = self._config.candidates[number]
        strategy = open_strategy(training.space, self._strategy_options(most), self._config.seed)
        log_info(f"stage {stage} ({STAGES[stage]}): at most {most} candidates, chosen by {self._strategy.strategy}")
        while stage not in journal.ended:
            found = journal.of_stage(stage)
            if len(found) >= most:
                journal.end(stage, "candidates")
            # A search without time still scores the first candidates.
            elif journal.candidates and self._is_late(number):
                journal.end(stage, "minutes")
            else:
                count = min(self._workers.parallel, most - len(found))
                round_ = _suggestions(strategy, [Scored(each.genotype, each.score) for each in found], count)
                if not round_:
                    journal.end(stage, "all candidates are known")
                    continue
                journal.add(self._train(folder, journal, training, stage, round_))
                self._clock.save()
                self._log_progress(journal, stage, most)

    def _is_late(self, number: int) -> bool:
        """Whether a stage's time is over; the stages share it in proportion to their candidates."""
        if self._config.minutes is None:
            return False
        counts = self._config.candidates
        return self._clock.seconds >= 60 * self._config.minutes * sum(counts[: number + 1]) / sum(counts)

    def _strategy_options(self, most: int) -> StrategyOptions:
        """Options for a stage of `most` candidates: at least two thirds of them are chosen by their scores."""
        given, unscored = self._strategy, max(most // 3, 1)
        population = min(given.population, unscored)
        return dataclasses.replace(
            given,
            initial_samples=min(given.initial_samples, unscored),
            population=population,
            tournament=min(given.tournament, max(population // 4, 2)),
        )

    def _train(
        self,
        folder: Path,
        journal: Journal,
        training: CandidateTraining,
        stage: int,
        genotypes: Sequence[tuple[str, ...]],
    ) -> list[Candidate]:
        """Trains one round of candidates and removes their folders."""
        root, first = folder.absolute() / CANDIDATES_FOLDER, len(journal.of_stage(stage))
        root.mkdir(exist_ok=True)
        jobs = [
            Job(genotype_point(genotype), self._config.seed, root / f"stage-{stage}-{first + number:05d}")
            for number, genotype in enumerate(genotypes)
        ]
        # The winner of a stage begins the next one, and would score the same. Finished candidates of a killed round are
        # kept, too.
        known = {each.genotype: each for each in journal.candidates if training.trains}
        waiting = [
            job
            for job, genotype in zip(jobs, genotypes, strict=True)
            if genotype not in known and not (job.folder / RESULT_FILE).exists()
        ]
        failures: dict[Path, str] = {}
        for outcome in self._workers.outcomes(functools.partial(train_candidate, training), waiting):
            if outcome.failure is not None:
                failures[outcome.job.folder] = outcome.failure
        found = []
        for number, (job, genotype) in enumerate(zip(jobs, genotypes, strict=True)):
            if genotype in known:
                found.append(dataclasses.replace(known[genotype], stage=stage, index=first + number))
                continue
            failure = failures.get(job.folder, "")
            metrics = {} if failure else read_result(job.folder / RESULT_FILE)["metrics"]
            encoder = training.space.config(genotype)
            found.append(
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
        for job in jobs:
            for path in (job.folder, job.folder.with_name(f"{job.folder.name}-text")):
                shutil.rmtree(path, ignore_errors=True)
            job.log.unlink(missing_ok=True)
        return found

    @functools.cached_property
    def _main_metric(self) -> str:
        return open_data(self._candidate_data).main_metric

    def _log_progress(self, journal: Journal, stage: int, most: int) -> None:
        done = journal.of_stage(stage)
        line = f"stage {stage}: {len(done)} of {most} candidates"
        if any(candidate.score is not None for candidate in done):
            best = _best(done)
            line += f", best {self._main_metric} {best.score:.4f} (candidate {best.index})"
        left = self._clock.seconds / len(journal.candidates) * (most - len(done))
        log_info(f"{line}, at most about {tqdm.format_interval(left)} left in this stage")

    def _write_result(self, folder: Path, journal: Journal, best: Candidate, supernet: str) -> dict[str, Any]:
        cost = self._costs[0].name
        result = {
            "main_metric": self._main_metric,
            "metrics": best.metrics,
            "best": _summary(best),
            "front": [_summary(each) for each in front(_comparable(journal), cost)],
            "supernet": supernet,
            "cost": cost,
            "candidates": [sum(each.score is not None for each in journal.of_stage(s)) for s in self._config.stages],
            "failed": sum(each.score is None for each in journal.candidates),
            "seconds": self._clock.seconds,
        }
        encoder = self._first_space.config(best.genotype)
        (folder / STUDENT_FOLDER).mkdir(exist_ok=True)
        write_json(folder / STUDENT_FOLDER / "config.json", write_config(encoder, ()))
        write_text(folder / REPORT_FILE, page(journal, result, self._config.stages, self._strategy.strategy))
        return result


class _Clock:
    """Seconds that the candidates took, over all attempts."""

    def __init__(self, path: Path) -> None:
        self._path, self._begun = path, time.monotonic()
        self._before = float(read_record(path)["seconds"]) if path.exists() else 0.0

    @property
    def seconds(self) -> float:
        return self._before + time.monotonic() - self._begun

    def save(self) -> None:
        write_json(self._path, {"seconds": self.seconds})


def _suggestions(strategy: Strategy, history: list[Scored], count: int) -> list[tuple[str, ...]]:
    """Up to `count` new candidates; those of one round do not see each other's scores."""
    found: list[tuple[str, ...]] = []
    for _ in range(count):
        running = [Scored(genotype, None) for genotype in found]
        genotype = strategy.suggest([*history, *running], len(history) + len(found))
        if genotype is None:
            break
        found.append(genotype)
    return found


def _comparable(journal: Journal) -> list[Candidate]:
    """All candidates; those of stage 3 after it, since they are scored without training."""
    return journal.of_stage(3) or journal.candidates


def _best(candidates: Sequence[Candidate]) -> Candidate:
    """The first candidate with the highest score.

    Raises:
      TrainingFailed: no candidate has a score.
    """
    scored = [candidate for candidate in candidates if candidate.score is not None]
    if not scored:
        raise TrainingFailed(f"the training of every candidate failed; the first: {candidates[0].failure}")
    return max(scored, key=lambda each: each.score or 0.0)


def _summary(candidate: Candidate) -> dict[str, Any]:
    return {name: getattr(candidate, name) for name in ("stage", "index", "genotype", "score", "costs")}
