"""Search for feed-forward networks: warm up a supernet, then train and score one candidate after another."""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.checkpoints.huggingface import write_config
from pocketbert.checkpoints.supernet import supernet_config
from pocketbert.configs import EncoderConfig
from pocketbert.data.final_split import recorded_parts
from pocketbert.data.task_data import TaskData, TextData
from pocketbert.errors import UserError
from pocketbert.files import write_json, write_text
from pocketbert.hub.download import local
from pocketbert.model import Model
from pocketbert.output_folders import check_inputs
from pocketbert.search.candidates import CandidateTraining
from pocketbert.search.config import SearchConfig, SearchResult
from pocketbert.search.constraints import Constraint, ParameterConstraint, limits_of
from pocketbert.search.folder import (
    CANDIDATE_TEXT_FILE,
    CANDIDATES_FOLDER,
    JOURNAL_FILE,
    LATENCY_FOLDER,
    SEARCH_FILES,
    STUDENT_FOLDER,
    SUPERNET_FOLDER,
    TIME_FILE,
)
from pocketbert.search.journal import Candidate, SearchJournal, StageEnd, front
from pocketbert.search.parts import divide, draw_text, leave_out
from pocketbert.search.report import page
from pocketbert.search.rounds import Rounds, kendall_tau
from pocketbert.search.space import SearchSpace
from pocketbert.search.strategies import StrategyOptions
from pocketbert.search.supernet_tasks import SupernetTask, plan_tasks
from pocketbert.search.supernets import Supernets, check_supernet
from pocketbert.training.config import RunConfig
from pocketbert.training.initialization import plan_model, saved_models
from pocketbert.training.plan import open_data
from pocketbert.training.run_folder import REPORT_FILE, begin_run, clear_run, pinned_commits, run_once
from pocketbert.training.state import recorded_model
from pocketbert.trials.clock import RunClock
from pocketbert.trials.scores import best, scores
from pocketbert.trials.workers import InTurn, Workers

_SIZE = ParameterConstraint(limit=math.inf)


def search(
    student: str | os.PathLike[str] | EncoderConfig,
    data: TaskData,
    output: str | os.PathLike[str],
    *,
    teacher: Model | str | os.PathLike[str],
    text: str | os.PathLike[str] | None = None,
    text_teacher: str | os.PathLike[str] | None = None,
    config: SearchConfig = SearchConfig(),  # noqa: B008
    strategy: StrategyOptions = StrategyOptions(),  # noqa: B008
    constraints: Sequence[Constraint] = (),
    workers: Workers | None = None,
    tasks: Sequence[SupernetTask] = (),
    supernet: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
) -> SearchResult:
    """Searches a student's feed-forward networks (EfficientBERT, section 3.2).

    Call it again with the same arguments to resume after a kill. Interrupted candidates resume from their last
    checkpoint, all others are kept, and the journal ends as without the kill. A finished search returns its result.

    Args:
      student: base architecture: a preset name, an architecture or a config.json. Its expressions are replaced.
      data: the task and its labelled examples. The dev split selects the supernets' checkpoints, nothing else.
      output: folder for the search: `student/config.json` (the best architecture), `supernet/model/`, `journal.jsonl`,
        `report.html`, `result.json`.
      teacher: the teacher, fine-tuned on the task: a model in memory or a model directory.
      text: plain text for warming up the supernet; None to use the task's examples.
      text_teacher: model directory of a teacher for plain text, not fine-tuned, as in the authors' code; None for
        `teacher`.
      config: options.
      strategy: how to choose candidates.
      constraints: limits for candidates; the first one is the cost in the front (default: parameters). Journal and
        report contain the parameters in any case.
      workers: where candidates train; None for one after another in this process.
      tasks: other tasks, with their teachers, to train the stage 3 supernet; the paper takes all GLUE tasks.
      supernet: model directory of a warmed-up supernet, `supernet/model` from another search; None to train one. Give
        it the same data, seed and `score_share`: otherwise it may have learned from the examples for scores.
      overwrite: discard a finished search in the output folder, or a search with other options.
    Returns:
      The best architecture and the front.
    Raises:
      UserError: teacher, student and task do not match, no candidate can meet the constraints, or `output` contains
        another search. Nothing was written.
      TrainingFailed: the supernet or all candidates diverged.
    """
    pinned = {} if overwrite else pinned_commits(output)
    text_teacher, supernet = local(text_teacher, pinned), local(supernet, pinned)
    tasks = [dataclasses.replace(task, teacher=local(task.teacher, pinned)) for task in tasks]
    with saved_models(teacher, output=output, overwrite=overwrite) as (directory,):
        inputs = [directory, data.train.source, data.dev.source, text, supernet, text_teacher]
        for task in tasks:
            inputs += [task.teacher, task.data.train.source, task.data.dev.source]
        check_inputs(output, inputs)
        if text_teacher is not None and text is None:
            raise UserError("search: a teacher for plain text needs plain text; received none; give text, or omit it")
        search = _Search(
            student=student,
            data=data,
            teacher=directory,
            text=text,
            text_teacher=directory if text_teacher is None else text_teacher,
            config=config.resolved(),
            strategy=strategy,
            constraints=tuple(constraints),
            workers=workers or InTurn(),
            tasks=tasks,
            supernet=None if supernet is None else Path(supernet).absolute(),
        )
        folder, result = run_once(output, search.recorded, search.run, overwrite=overwrite, files=SEARCH_FILES)
        return SearchResult(
            **{**result, "supernet": str(folder / result["supernet"])},
            student_config=str(folder / STUDENT_FOLDER / "config.json"),
        )


@dataclasses.dataclass(kw_only=True)
class _Search:
    """A search with checked input; the fields are arguments of `search`."""

    student: str | os.PathLike[str] | EncoderConfig
    data: TaskData
    teacher: Any
    text: str | os.PathLike[str] | None
    text_teacher: Any
    config: SearchConfig
    strategy: StrategyOptions
    constraints: tuple[Constraint, ...]
    workers: Workers
    tasks: Sequence[SupernetTask]
    supernet: Path | None

    def __post_init__(self) -> None:
        config = self.config
        planned = plan_model(self.student)
        if planned.directory is not None:
            raise UserError(
                "search: the student must be a preset or a config.json, since it starts from the supernet; received "
                f"the model directory {planned.directory}"
            )
        self._base = planned.config
        size, pads = self._base.block_size, self._base.feedforward and self._base.feedforward.mismatch == "pad"
        if 3 in config.stages and self._base.intermediate_size > size and not pads:
            raise UserError(
                f"search: stage 3 needs intermediate_size of at most the hidden size, {size}, since its supernet has "
                f"the full width; received {self._base.intermediate_size}; reduce it, or leave stage 3 out"
            )
        # The report shows the size of every candidate.
        has_size = any(constraint.name == ParameterConstraint.name for constraint in self.constraints)
        self._costs = self.constraints if has_size else (*self.constraints, _SIZE)
        supernet = supernet_config(self._base)
        if self.supernet is not None:
            check_supernet(self.supernet, supernet)
        expressions = self._base.feedforward.expressions if self._base.feedforward else ()
        self._first_space = self._space(config.stages[0], expressions)
        self._parts = divide(self.data, config)
        if self.tasks and 3 not in config.stages:
            raise UserError(
                f"search: other tasks train the supernet of stage 3; received {len(self.tasks)} with stages "
                f"{', '.join(map(str, config.stages))}; add stage 3, or leave the tasks out"
            )
        self._tasks = [
            SupernetTask(data=leave_out(task.data, config), teacher=Path(task.teacher).absolute())
            for task in self.tasks
        ]
        self._supernets = Supernets(
            base=self._base,
            data=self._parts.supernets,
            text=None if self.text is None else str(Path(self.text).absolute()),
            teacher=str(Path(self.teacher).absolute()),
            text_teacher=str(Path(self.text_teacher).absolute()),
            config=config,
            tasks=self._tasks,
            supernet=self.supernet,
        )
        # Checks teacher, student and data before anything is written.
        for part in (TextData(self.text), self._parts.candidates) if self.text else (self._parts.candidates,):
            self._supernets.plan(supernet, part)
        if self.tasks:
            together = [SupernetTask(data=self._parts.supernets, teacher=self.teacher), *self._tasks]
            plan_tasks(supernet, together, method=self._supernets.method(self.data), run=RunConfig())
        opened = open_data(self.data)
        self._main_metric = opened.main_metric
        self.recorded: dict[str, Any] = {
            "objective": "search",
            **dataclasses.asdict(config),
            **dataclasses.asdict(self.strategy),
            **{f"base_{name}": value for name, value in dataclasses.asdict(self._base).items()},
            **opened.recorded(),
            **recorded_model("teacher", self.teacher),
            **(open_data(TextData(self.text)).recorded() if self.text else {}),
            **(recorded_model("text_teacher", self.text_teacher) if self.text else {}),
            "constraints": limits_of(self.constraints),
            "parallel": self.workers.parallel,
            **(recorded_model("supernet", self.supernet) if self.supernet else {}),
            "supernet_tasks": [task.data.task.name for task in self.tasks],
            **recorded_parts(self.data.train, self._parts.examples),
        }
        for task, divided in zip(self.tasks, self._tasks, strict=True):
            recorded = {**open_data(task.data).recorded(), **recorded_model("teacher", task.teacher)}
            recorded |= recorded_parts(task.data.train, [divided.data.train])
            self.recorded |= {f"{task.data.task.name}_{field}": value for field, value in recorded.items()}

    def run(self, folder: Path) -> dict[str, Any]:
        """Runs or resumes the search; returns the `SearchResult` fields except paths."""
        begin_run(folder, self.recorded)
        try:
            for constraint in self.constraints:
                constraint.prepare(folder, self._first_space)
            # Finds a candidate, or reports that none can meet the constraints.
            self._first_space.sample(np.random.default_rng(self.config.seed))
        except UserError:
            # Leave no folder behind after bad input, but keep measurements that the next call completes.
            if not any((folder / name).exists() for name in (SUPERNET_FOLDER, LATENCY_FOLDER)):
                clear_run(folder, SEARCH_FILES)
            raise
        supernet = self._supernets.frozen(folder)
        self._candidate_text: str | None = None
        if self.text is not None and (share := self.config.candidate_text_share):
            drawn = folder.absolute() / CANDIDATE_TEXT_FILE
            draw_text(Path(self.text), share, self.config.seed, drawn)
            self._candidate_text = str(drawn)
        journal = SearchJournal(folder / JOURNAL_FILE, self.recorded)
        rounds = Rounds(
            folder=folder,
            journal=journal,
            config=self.config,
            strategy=self.strategy,
            costs=self._costs,
            workers=self.workers,
            clock=RunClock(folder / TIME_FILE),
        )
        space = self._first_space
        try:
            for number, stage in enumerate(self.config.stages):
                if number:
                    earlier = [candidate for candidate in journal.candidates if candidate.stage < stage]
                    space = self._space(stage, best(earlier).genotype)
                if stage == 3:
                    if not journal.of_stage(3) and not rounds.has_time(number):
                        if 3 not in journal.ended:
                            journal.add(StageEnd(3, "minutes"))
                        continue
                    supernet = self._supernets.learning(folder, space)
                training = self._training(supernet, space, stage)
                rounds.run(training, stage, number)
            count = self.config.retrained
            retrained = rounds.retrain(self._again(training), journal.comparable, count) if count else []
        finally:
            self.workers.close()
        shutil.rmtree(folder / CANDIDATES_FOLDER, ignore_errors=True)
        cost, winner = self._costs[0].name, best(journal.comparable)
        result = {
            "main_metric": self._main_metric,
            "metrics": winner.metrics,
            "best": _summary(winner),
            "front": [_summary(candidate) for candidate in front(journal.comparable, cost)],
            "supernet": str(supernet.relative_to(folder) if supernet.is_relative_to(folder) else supernet),
            "cost": cost,
            "candidates": [len(scores(journal.of_stage(stage))) for stage in self.config.stages],
            "failed": sum(candidate.score is None for candidate in journal.candidates),
            "retrained": retrained,
            "kendall_tau": kendall_tau(retrained),
            "seconds": rounds.clock.seconds,
        }
        (folder / STUDENT_FOLDER).mkdir(exist_ok=True)
        encoder = self._first_space.config(winner.genotype)
        write_json(folder / STUDENT_FOLDER / "config.json", write_config(encoder, ()))
        write_text(folder / REPORT_FILE, page(journal, result, self.config.stages, self.strategy.strategy))
        return result

    def _space(self, stage: int, winner: tuple[str, ...]) -> SearchSpace:
        return SearchSpace(
            encoder=self._base, stage=stage, winner=() if stage == 1 else winner, constraints=self.constraints
        )

    def _training(self, supernet: Path, space: SearchSpace, stage: int) -> CandidateTraining:
        supernets, data = self._supernets, self._parts.stage_3 if stage == 3 else self._parts.candidates
        return CandidateTraining(
            space=space,
            supernet=str(supernet.absolute()),
            data=data,
            text=self._candidate_text,
            text_method=supernets.method(TextData(""), epochs=1),
            teacher=supernets.teacher,
            text_teacher=supernets.text_teacher,
            method=supernets.method(data, epochs=self.config.candidate_epochs),
            trains=stage != 3,
        )

    def _again(self, training: CandidateTraining) -> CandidateTraining:
        """Trains a second time: on all examples but those for scores, as long as a supernet."""
        data = dataclasses.replace(training.data, train=self._parts.supernets.train)
        return dataclasses.replace(training, data=data, method=self._supernets.method(data), trains=True)


def _summary(candidate: Candidate) -> dict[str, Any]:
    return {name: getattr(candidate, name) for name in ("stage", "index", "genotype", "score", "costs")}
