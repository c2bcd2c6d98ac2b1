"""The harness of all sweeps: subjects on tasks with seeds, resumable, with one result file behind a page's tables."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from absl import flags

from pocketbert.errors import UserError
from pocketbert.progress import log_info
from pocketbert_bench import accuracy, results
from pocketbert_bench.claims import claim
from studies.jobs import StudyJob, keep, run_jobs
from studies.runner import RESULTS

NOBODY, MAJORITY, TEACHER = "none", "most frequent label", "teacher"
# The recipe of a model directory.
TRAINED = "trained"
DEVELOPMENT_SET = "development set"
# Prefix of the note with failed jobs.
FAILED = "failed"
# Seed of a run, None for a single run → its tasks.
Runs = Mapping[int | None, Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class SweepSubject:
    """One model, made in one way.

    Attributes:
      model: name of the network.
      label: how it was made.
      call: function of a module, so that other processes can import it. It receives `arguments`, task, seed (None for a
        single run) and folder of the sweep, and returns `metrics` and `examples`, or `scores`: a list of both with
        `split` or `recipe` where they differ from `DEVELOPMENT_SET` and `TRAINED`.
      arguments: first arguments of `call`.
      runs: tasks of each seed; None for all tasks of the sweep with all seeds.
      needs: names of the jobs that must finish before a task and seed.
      threads: number of compute threads of each job.
    """

    model: str
    label: str
    call: Callable[..., dict[str, Any]]
    arguments: tuple[Any, ...] = ()
    runs: Runs | None = None
    needs: Callable[[str, int | None], tuple[str, ...]] = lambda task, seed: ()
    threads: int = 1


@dataclass(frozen=True, kw_only=True)
class Run:
    """One job with scores: a subject on a task with a seed."""

    subject: SweepSubject
    task: str
    seed: int | None

    @property
    def name(self) -> str:
        """Name of the job, which is also its folder."""
        return job_name(self.subject.model, self.subject.label, self.task, self.seed)

    def job(self, output: Path) -> StudyJob:
        """The job in the folder of the sweep."""
        subject = self.subject
        arguments = (*subject.arguments, self.task, self.seed, output)
        needs = subject.needs(self.task, self.seed)
        return StudyJob(name=self.name, call=subject.call, arguments=arguments, needs=needs, threads=subject.threads)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Subjects on tasks with seeds.

    Attributes:
      result: name of the committed result file.
      title: its title.
      subjects: the subjects, in the order of the result file.
      tasks: all tasks, for subjects without their own.
      seeds: all seeds; jobs of the first one start first.
      settings: all settings that determine the tables, as JSON values; scores with other settings are ignored.
      preparations: jobs without scores, given the folder; those that nothing needs are left out.
    """

    result: str
    title: str
    subjects: Sequence[SweepSubject]
    tasks: Sequence[str]
    seeds: Sequence[int]
    settings: Callable[[], dict[str, Any]]
    preparations: Callable[[Path], Sequence[StudyJob]] = lambda output: ()

    def runs(self) -> dict[str, Run]:
        """Name of a job with scores → its run; single runs first, then seed by seed."""
        runs: dict[str, Run] = {}
        for seed in (None, *self.seeds):
            for subject in self.subjects:
                default = () if seed is None else self.tasks
                for task in default if subject.runs is None else subject.runs.get(seed, ()):
                    run = Run(subject=subject, task=task, seed=seed)
                    runs[run.name] = run
        return runs

    def jobs(self, output: Path) -> list[StudyJob]:
        """All jobs in the order of `runs`; what a job needs stands right before it."""
        jobs = {name: run.job(output) for name, run in self.runs().items()}
        every = jobs | {job.name: job for job in self.preparations(output)}
        ordered: dict[str, StudyJob] = {}

        def add(name: str) -> None:
            if name not in ordered:
                for need in every[name].needs:
                    add(need)
                ordered[name] = every[name]

        for name in jobs:
            add(name)
        return list(ordered.values())

    def content(self, done: Mapping[str, Any]) -> results.ResultFile:
        """Collects the scores and notes of finished jobs (name → result)."""
        order = {id(subject): number for number, subject in enumerate(self.subjects)}
        accuracies: list[results.Accuracy] = []
        for name, run in sorted(self.runs().items(), key=lambda item: order[id(item[1].subject)]):
            if name in done:
                accuracies += self._records(run, done[name])
        notes = [settings_note(self.settings())]
        return results.result_file(self.title, quick=False, accuracies=accuracies, notes=notes)

    def finished(self, content: results.ResultFile) -> dict[str, Any]:
        """Reads job name → result from a result file with these settings; otherwise returns nothing.

        A result file has no models. Preparations count as finished if no missing job needs them; other jobs that a
        missing job needs are missing too, and single runs with a missing preparation.
        """
        if settings_note(self.settings()) not in content.notes:
            return {}
        runs, done = self.runs(), self._scores(content)
        jobs = self.jobs(Path())
        done |= {job.name: {} for job in jobs if job.name not in runs}
        for job in reversed(jobs):
            if job.name not in done:
                for need in job.needs:
                    done.pop(need, None)
        for job in jobs:
            if job.name in runs and runs[job.name].seed is None and not done.keys() >= set(job.needs):
                done.pop(job.name, None)
        return done

    def main(self, arguments: list[str]) -> int:
        """Runs missing jobs; writes the result file even if some fail. Returns 1 for failed jobs, 2 for bad input."""
        flag_values = flags.FlagValues()
        folder = f"runs/sweeps/{self.result}"
        flags.DEFINE_string("output", folder, "folder for models, logs and scores", flag_values=flag_values)
        flags.DEFINE_integer("processes", 2, "number of parallel jobs", flag_values=flag_values)
        flags.DEFINE_float("minutes", None, "start no job after this time", flag_values=flag_values)
        path = RESULTS / f"{self.result}.json"
        try:
            if rest := flag_values(arguments)[1:]:
                raise UserError(f"a sweep takes flags only; received {' '.join(rest)}")
            output = Path(flag_values.output)
            # Ignore jobs that were done with other settings.
            claim(output / "settings.json", self.settings())
            if path.exists():
                keep(output, self.finished(results.read(path)))
            done, failed = run_jobs(
                self.jobs(output), output, processes=flag_values.processes, minutes=flag_values.minutes
            )
        except (UserError, flags.Error) as error:
            print(error, file=sys.stderr)
            return 2
        content = self.content(done)
        if failed:
            content = dataclasses.replace(content, notes=(*content.notes, f"{FAILED}: {json.dumps(failed)}"))
        results.write(path, content)
        log_info(f"{path}: {len(content.accuracies)} scores")
        for name, reason in failed.items():
            print(f"{name}: {reason}; see {output / 'logs' / name}.log", file=sys.stderr)
        return 1 if failed else 0

    def _records(self, run: Run, result: Mapping[str, Any]) -> Iterator[results.Accuracy]:
        for scores in result.get("scores", [result]):
            label = run.subject.label if run.seed is None else f"{run.subject.label}, seed {run.seed}"
            for metric, value in scores["metrics"].items():
                yield accuracy.record(
                    label=label,
                    model=run.subject.model,
                    recipe=scores.get("recipe", TRAINED),
                    task=run.task,
                    split=scores.get("split", DEVELOPMENT_SET),
                    metric=metric,
                    value=value,
                    examples=scores["examples"],
                )

    def _scores(self, content: results.ResultFile) -> dict[str, Any]:
        """Reads job name → `scores`."""
        names = {(run.subject.model, run.subject.label, run.task, run.seed): name for name, run in self.runs().items()}
        scores: dict[str, dict[tuple[str, ...], dict[str, Any]]] = {}
        for record in content.accuracies:
            label, seed = split_label(record.label)
            if job := names.get((record.model, label, record.task, int(seed) if seed else None)):
                fields = {"split": record.split, "recipe": record.recipe}
                first = {**fields, "metrics": {}, "examples": record.examples}
                entry = scores.setdefault(job, {}).setdefault(tuple(fields.values()), first)
                entry["metrics"][record.metric] = record.value
        return {name: {"scores": list(entries.values())} for name, entries in scores.items()}


def split_label(label: str) -> tuple[str, str]:
    """Label without seed, and the seed; empty for a single run."""
    start, separator, seed = label.rpartition(", seed ")
    return (start, seed) if separator else (label, "")


def job_name(model: str, label: str, task: str, seed: int | None = None) -> str:
    """Name of the job that scores a subject, which is also its folder."""
    return f"{folder_name(model)}/{folder_name(label)}/{task}{'' if seed is None else f'-{seed}'}"


def folder_name(label: str) -> str:
    """A label as part of a path."""
    return "".join(letter for letter in label if letter not in "',()").replace(" ", "-")


def settings_note(settings: Mapping[str, Any]) -> str:
    """The note that records the settings in a result file."""
    return f"settings: {json.dumps(settings)}"


def noted(content: results.ResultFile, prefix: str) -> dict[str, Any]:
    """The JSON object in the note with a prefix; empty without such a note."""
    notes = [note.removeprefix(f"{prefix}: ") for note in content.notes if note.startswith(f"{prefix}: ")]
    return json.loads(notes[0]) if notes else {}
