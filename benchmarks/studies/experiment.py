"""An experiment as a command: its jobs, their scores, and the committed result file behind a page's table."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from absl import flags

from pocketbert.errors import UserError
from pocketbert.progress import log_info
from pocketbert_bench import accuracy, results
from pocketbert_bench.claims import claim
from pocketbert_bench.quickstart_training import NETWORK
from studies.jobs import StudyJob, keep, run_jobs

NOBODY, MAJORITY = "none", "most frequent label"
# The recipe of a model directory.
TRAINED = "trained"
# Prefix of the note with failed jobs.
FAILED = "failed: "


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Definition of an experiment.

    Attributes:
      result: path of the committed result file.
      output: default folder for models, logs and scores.
      settings: all settings that determine the table, as JSON values; scores with other settings are ignored.
      jobs: all jobs for the table, given the folder.
      content: scores of the finished jobs.
      scored: job name → result, read back from a result file with these settings.
    """

    result: Path
    output: str
    settings: Callable[[], dict[str, Any]]
    jobs: Callable[[Path], Sequence[StudyJob]]
    content: Callable[[Mapping[str, Any]], results.ResultFile]
    scored: Callable[[results.ResultFile], Mapping[str, Any]]


def main(experiment: Experiment, arguments: list[str]) -> int:
    """Runs missing jobs and writes the result file even if some fail; returns 1 for failed jobs, 2 for bad input.

    Args:
      experiment: the experiment.
      arguments: the command line.
    """
    flag_values = flags.FlagValues()
    flags.DEFINE_string("output", experiment.output, "folder for models, logs and scores", flag_values=flag_values)
    flags.DEFINE_integer("processes", 2, "number of parallel jobs", flag_values=flag_values)
    flags.DEFINE_float("minutes", None, "start no job after this time", flag_values=flag_values)
    try:
        if rest := flag_values(arguments)[1:]:
            raise UserError(f"this experiment takes flags only; received {' '.join(rest)}")
        output = Path(flag_values.output)
        # Ignore jobs that were done with other settings.
        claim(output / "settings.json", experiment.settings())
        if experiment.result.exists():
            keep(output, experiment.scored(results.read(experiment.result)))
        found = run_jobs(
            experiment.jobs(output),
            output,
            processes=flag_values.processes,
            minutes=flag_values.minutes,
        )
    except (UserError, flags.Error) as error:
        print(error, file=sys.stderr)
        return 2
    content = experiment.content(found.done)
    if found.failed:
        content = dataclasses.replace(content, notes=(*content.notes, FAILED + json.dumps(found.failed)))
    results.write(experiment.result, content)
    log_info(f"{experiment.result}: {len(content.accuracies)} scores")
    for name, why in found.failed.items():
        print(f"{name}: {why}; see {output / 'logs' / name}.log", file=sys.stderr)
    return 1 if found.failed else 0


def failures(content: results.ResultFile) -> dict[str, str]:
    """Job name → reason of its failure, in the run that wrote the result file."""
    return noted(content, FAILED)


def noted(content: results.ResultFile, prefix: str) -> dict[str, Any]:
    """The JSON object in the note with a prefix; empty without such a note."""
    notes = [note.removeprefix(prefix) for note in content.notes if note.startswith(prefix)]
    return json.loads(notes[0]) if notes else {}


def add_spared(found: dict[str, Any], jobs: Sequence[StudyJob], kept: Mapping[str, Any]) -> None:
    """Adds the preparations that nothing missing needs, so that they are not repeated.

    Args:
      found: job name → result; receives the preparations.
      jobs: all jobs; each stands behind those that it needs.
      kept: name of a preparation → its result.
    """
    waiting: set[str] = set()
    for job in reversed(jobs):
        if job.name in kept and job.name not in waiting:
            found[job.name] = kept[job.name]
        if job.name not in found:
            waiting.update(job.needs)


def settings_note(settings: Mapping[str, Any]) -> str:
    """The note that records the settings in a result file."""
    return f"settings: {json.dumps(settings)}"


def seeds_label(label: str, seed: int) -> str:
    """Label of one seed's scores."""
    return f"{label}, seed {seed}"


def last_metrics(run: Path, names: Sequence[str]) -> dict[str, float]:
    """Metrics of a run's last evaluation on the development examples, whichever epoch was the best."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    last = [line for line in lines if line["split"] == "dev"][-1]
    return {name: last[name] for name in names}


def records(
    found: Mapping[str, Any], label: str, model: str, task: str, split: str, recipe: str = TRAINED
) -> list[results.Accuracy]:
    """Accuracy records of one job, from its `metrics` and `examples`."""
    return [
        accuracy.record(
            label=label,
            model=model,
            recipe=recipe,
            task=task,
            split=split,
            metric=metric,
            value=value,
            examples=found["examples"],
        )
        for metric, value in found["metrics"].items()
    ]


def records_without_seed(done: Mapping[str, Any], tasks: Sequence[str], split: str) -> list[results.Accuracy]:
    """Accuracy records of the finished jobs `constant/TASK` and `teacher/TASK`; the teacher is the 6x384 network."""
    found = []
    for task in tasks:
        for job, label, model in (("constant", MAJORITY, NOBODY), ("teacher", "teacher", NETWORK)):
            if result := done.get(f"{job}/{task}"):
                found += records(result, label, model, task, split)
    return found


def records_by_seed(
    done: Mapping[str, Any],
    students: Iterable[tuple[str, str]],
    tasks: Sequence[str],
    seeds: Sequence[int],
    split: str,
    job_name: Callable[[str, str, str, int], str],
) -> list[results.Accuracy]:
    """Accuracy records of the finished jobs with seeds.

    Args:
      done: job name → result.
      students: model and label of each student.
      tasks: names of the tasks.
      seeds: all seeds.
      split: the scored examples.
      job_name: function of model, label, task and seed.
    """
    found = []
    for model, label in students:
        for task in tasks:
            for seed in seeds:
                if result := done.get(job_name(model, label, task, seed)):
                    found += records(result, seeds_label(label, seed), model, task, split)
    return found


def folder_name(label: str) -> str:
    """A label as part of a path."""
    return label.replace(" ", "-").replace("'", "").replace(",", "")


def scores_by_job(
    content: results.ResultFile,
    settings: Mapping[str, Any],
    job_name: Callable[[str, str, str, int], str],
) -> dict[str, Any]:
    """Reads the scores of jobs with seeds from a result file: job name → result; empty for other settings.

    Args:
      content: the result file.
      settings: the experiment's settings.
      job_name: function of model, label, task and seed.
    """
    if settings_note(settings) not in content.notes:
        return {}
    found: dict[str, Any] = {}
    for each in content.accuracies:
        label, separator, seed = each.label.rpartition(", seed ")
        if separator:
            name = job_name(each.model, label, each.task, int(seed))
            found.setdefault(name, {"metrics": {}, "examples": each.examples})["metrics"][each.metric] = each.value
    return found
