"""An experiment as a command: its jobs, what they scored, and the committed result file that a page's table is from."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from absl import flags

from pocketbert.errors import UserError
from pocketbert.progress import log_info
from pocketbert_bench import accuracy, results
from pocketbert_bench.claims import claim
from studies.jobs import StudyJob, keep, run_jobs

# The recipe of a model directory.
TRAINED = "trained"
# How the note begins that says which jobs failed.
FAILED = "failed: "


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What differs between experiments.

    Attributes:
      result: the committed result file.
      output: the default folder of everything that is made.
      settings: all that decides the table, as JSON values; what was scored with others is no part of it.
      jobs: everything that the table needs, from the folder.
      content: the scores of the jobs that are done.
      scored: name of a job → its result, of those that can be read back from a result file with these settings.
    """

    result: Path
    output: str
    settings: Callable[[], dict[str, Any]]
    jobs: Callable[[Path], Sequence[StudyJob]]
    content: Callable[[Mapping[str, Any]], results.ResultFile]
    scored: Callable[[results.ResultFile], Mapping[str, Any]]


def main(experiment: Experiment, arguments: list[str]) -> int:
    """Runs what is missing and writes the result file, whatever failed; 1 if a job failed, 2 for bad input.

    Args:
      experiment: which.
      arguments: the command line.
    """
    flag_values = flags.FlagValues()
    flags.DEFINE_string("output", experiment.output, "folder of everything that is made", flag_values=flag_values)
    flags.DEFINE_integer("processes", 2, "jobs at a time", flag_values=flag_values)
    flags.DEFINE_float("minutes", None, "start no job later than this", flag_values=flag_values)
    try:
        if rest := flag_values(arguments)[1:]:
            raise UserError(f"this experiment takes flags alone; received {' '.join(rest)}")
        output = Path(flag_values.output)
        # Jobs that were done with other settings are no part of this table.
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
    """Name of a job → why it failed, in the run that wrote the result file."""
    notes = [note.removeprefix(FAILED) for note in content.notes if note.startswith(FAILED)]
    return json.loads(notes[0]) if notes else {}


def settings_note(settings: Mapping[str, Any]) -> str:
    """The note by which a result file says its settings."""
    return f"settings: {json.dumps(settings)}"


def seeds_label(label: str, seed: int) -> str:
    """The label of one seed's scores."""
    return f"{label}, seed {seed}"


def last_metrics(run: Path, names: Sequence[str]) -> dict[str, float]:
    """The metrics of a run's last evaluation on the development examples, whichever was its best."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    last = [line for line in lines if line["split"] == "dev"][-1]
    return {name: last[name] for name in names}


def records(
    found: Mapping[str, Any], label: str, model: str, task: str, split: str, recipe: str = TRAINED
) -> list[results.Accuracy]:
    """What one job scored, from its `metrics` and `examples`."""
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


def scores_by_job(
    content: results.ResultFile,
    settings: Mapping[str, Any],
    job_name: Callable[[str, str, str, int], str],
) -> dict[str, Any]:
    """Name of a job → what it scored, of those with seeds, from a result file with these settings; else nothing.

    Args:
      content: the result file.
      settings: the experiment's.
      job_name: of model, label, task and seed.
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
