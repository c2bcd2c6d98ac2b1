"""Compare learning rates for the scaled-down MobileBERT before hours are spent on one.

    python -m studies.mobilebert.rates --steps=300

Runs a few hundred updates, each with its own warm-up and decay to 0, of the teacher and of the no-distillation
baseline. If the experiment's teacher exists, it also runs progressive transfer, and distillation from the teacher's
embedding and heads, which the best rate for new weights damages. It prints masked-LM accuracy on dev articles, best
first, and commits nothing: `mobilebert.recipe` has the experiment's rates. The best rate here need not be the best in
twenty times as many updates, where lower rates catch up. If two are close, take the lower.

300 updates of each take about 35 core-minutes, and as many again with the teacher.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path
from typing import Any

from absl import flags

from pocketbert.distillation.methods.mobilebert import MobileBERT
from pocketbert.errors import UserError
from studies.jobs import StudyJob, run_jobs
from studies.mobilebert import accuracy_jobs as work
from studies.mobilebert.accuracy import DATA_JOB, EXPERIMENT, start_name
from studies.mobilebert.recipe import SEEDS, VARIANTS, student_options, teacher_options

TEACHER_TRIES: tuple[dict[str, Any], ...] = (
    {"optimizer": "adamw", "learning_rate": 3e-4},
    {"optimizer": "adamw", "learning_rate": 5e-4},
    {"optimizer": "adamw", "learning_rate": 1e-3},
    {"optimizer": "lamb", "learning_rate": 1e-2},
)
STUDENT_RATES = (5e-3, 1e-2, 2e-2, 3e-2)
TRANSFER_RATES = (5e-3, 1e-2, 2e-2)
COPIED_RATES = (5e-4, 1e-3, 2e-3, 5e-3, 2e-2)


def jobs(output: Path, steps: int) -> list[StudyJob]:
    """One job per run; progressive transfer only with a teacher.

    Args:
      output: folder of the experiment, with its data and teacher.
      steps: number of updates per run.
    """
    folder = f"rates-{steps}"
    found = [StudyJob(name=DATA_JOB, call=work.make_data, arguments=(output,))]
    for changes in TEACHER_TRIES:
        name = f"{folder}/teacher-{changes['optimizer']}-{changes['learning_rate']:g}"
        teacher = dataclasses.replace(teacher_options(), steps=steps, **changes)
        found.append(
            StudyJob(name=name, call=work.pretrain_teacher, arguments=(name, teacher, output), needs=(DATA_JOB,))
        )
    undistilled = student_options(next(variant for variant in VARIANTS if variant.trained and not variant.taught))
    students: dict[str, tuple[MobileBERT, str | None]] = {
        f"undistilled-{rate:g}": (
            dataclasses.replace(undistilled, distillation_steps=steps, distillation_learning_rate=rate),
            None,
        )
        for rate in STUDENT_RATES
    }
    if (output / work.TEACHER_JOB / "model").exists():
        progressive = student_options(next(variant for variant in VARIANTS if variant.strategy == "progressive"))
        students |= {
            f"progressive-{rate:g}": (
                dataclasses.replace(
                    progressive,
                    transfer_steps=steps // 2,
                    distillation_steps=steps - steps // 2,
                    transfer_learning_rate=rate,
                ),
                None,
            )
            for rate in TRANSFER_RATES
        }
        copied = student_options(next(variant for variant in VARIANTS if variant.copied and variant.strategy == "none"))
        start = start_name(SEEDS[0])
        found.append(StudyJob(name=start, call=work.copy_start, arguments=(start, SEEDS[0], output), needs=(DATA_JOB,)))
        students |= {
            f"copied-{rate:g}": (
                dataclasses.replace(copied, distillation_steps=steps, distillation_learning_rate=rate),
                start,
            )
            for rate in COPIED_RATES
        }
    for ending, (student, start_from) in students.items():
        name = f"{folder}/{ending}"
        arguments = (name, student, start_from, SEEDS[0], output)
        needs = (start_from or DATA_JOB,)
        found.append(StudyJob(name=name, call=work.distil_student, arguments=arguments, needs=needs))
    return found


def report(done: dict[str, Any]) -> list[str]:
    """One line per run, the best first within each kind."""
    runs = {name: result["scores"][0]["metrics"] for name, result in done.items() if "scores" in result}
    order = sorted(runs, key=lambda name: (_kind(name), -runs[name][work.LIKELIHOOD]))
    return [
        f"{name}: {-math.log(runs[name][work.LIKELIHOOD]):.2f} nats, masked-LM accuracy {runs[name][work.WORDS]:.1%}"
        for name in order
    ]


def _kind(name: str) -> str:
    return name.rpartition("/")[2].partition("-")[0]


def main(arguments: list[str]) -> int:
    """Runs what is missing and prints it; returns 1 for failed runs, 2 for bad input."""
    flag_values = flags.FlagValues()
    flags.DEFINE_string("output", EXPERIMENT.output, "folder of the experiment", flag_values=flag_values)
    flags.DEFINE_integer("processes", 2, "number of parallel runs, each in one thread", flag_values=flag_values)
    flags.DEFINE_integer("steps", 300, "updates of each run", lower_bound=60, flag_values=flag_values)
    try:
        if rest := flag_values(arguments)[1:]:
            raise UserError(f"this command takes flags only; received {' '.join(rest)}")
    except (UserError, flags.Error) as error:
        print(error, file=sys.stderr)
        return 2
    output = Path(flag_values.output)
    done, failed = run_jobs(jobs(output, flag_values.steps), output, processes=flag_values.processes)
    print("\n".join([*report(done), *(f"{name}: {why}" for name, why in failed.items())]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
