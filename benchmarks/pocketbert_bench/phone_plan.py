"""The plan for a run on phones and its progress: one small file per repeat, joined at the end.

A plan's folder has `plan.json` and a folder per phone with a result file for each finished repeat, next to the joined
result file for `pocketbert report`. Rerun the same command to measure the rest.
"""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert import files
from pocketbert.errors import UserError, raise_if_any
from pocketbert.notation import argument
from pocketbert.work_list import WorkList
from pocketbert_bench import machine, results
from pocketbert_bench.configurations import Configuration
from pocketbert_bench.results import DeviceConditions, Measurement, ResultFile
from pocketbert_export.bundles.bundle import read_description
from pocketbert_runtime.json_reading import read_json

PLAN_FILE = "plan.json"
KIND = "phone run"
PHONE_FILE = "phone.json"


@dataclass(frozen=True, kw_only=True)
class PhonePlan:
    """Measurement plan, equal for every phone.

    Attributes:
      configurations: those with a `problem` are reported instead of measured.
      delegate: `cpu` or `gpu`.
      affinity: `any`, `big` or `little` cores.
      weight_cache: whether the phone keeps packed weights in a file.
      repeats: number of processes per configuration.
      seed: seed for the order.
    """

    configurations: tuple[Configuration, ...]
    delegate: str = "cpu"
    affinity: str = "any"
    weight_cache: bool = False
    repeats: int = 5
    seed: int = 0

    def turns(self) -> list[tuple[int, int]]:
        """Returns (configuration, repeat from 1) in measuring order: a shuffled round over all for every repeat."""
        usable = [index for index, configuration in enumerate(self.configurations) if not configuration.problem]
        generator = random.Random(self.seed)
        return [
            (index, repeat) for repeat in range(1, self.repeats + 1) for index in generator.sample(usable, len(usable))
        ]

    def to_json(self) -> dict[str, Any]:
        """All fields that determine the measurements."""
        names = ("model", "label", "recipe", "length", "threads", "problem")
        configurations = [
            {
                **{name: getattr(configuration, name) for name in names},
                "model_sha256": None if configuration.problem else files.sha256(configuration.model_path),
            }
            for configuration in self.configurations
        ]
        return {**vars(self), "configurations": configurations}


def check_delegate(plan: PhonePlan) -> None:
    """Raises `UserError` if a plan for a GPU has several lengths or a weight cache, which the app rejects."""
    if plan.delegate != "gpu":
        return
    if plan.weight_cache:
        weight_cache = argument("phone_weight_cache", python="weight_cache=")
        raise UserError(
            f"{weight_cache} is for the CPU; received it with {argument('delegate', 'gpu')}; leave one of them out"
        )
    bundles = dict.fromkeys(
        configuration.model_path.parent for configuration in plan.configurations if not configuration.problem
    )
    several = [str(bundle) for bundle in bundles if len(read_description(bundle)["signatures"]) > 1]
    if several:
        raise UserError(
            f"with {argument('delegate', 'gpu')} a bundle must have one length, because the GPU prepares all of them "
            f"and the runtime reports its share of the first only; {', '.join(several)} has more; export it with one "
            f"of {argument('lengths', of='export')}"
        )


def open_folder(folder: Path, plan: PhonePlan, *, overwrite: bool) -> None:
    """Creates a plan's folder, or checks that an existing one belongs to this plan.

    Args:
      folder: the value of `--output`.
      plan: the plan.
      overwrite: discard other plans' results in the folder.
    Raises:
      UserError: the folder belongs to another plan.
    """
    path = folder / PLAN_FILE
    if path.exists() and not overwrite:
        if read_json(path) != plan.to_json():
            raise UserError(
                f"a folder holds the results of one plan; {folder} has those of another (bundles, lengths, threads, "
                "delegate, affinity, weight cache, repeats or seed differ); choose another "
                f"{argument('output')} or pass {argument('overwrite', True)}"
            )
        return
    for part_path in folder.glob(f"*/{PHONE_FILE}"):
        part_path.parent.with_name(f"{part_path.parent.name}.json").unlink(missing_ok=True)
        shutil.rmtree(part_path.parent)
    files.write_json(path, plan.to_json())


class Kept:
    """One phone's results so far."""

    def __init__(self, folder: Path, plan: PhonePlan) -> None:
        self.folder = folder
        self.plan = plan
        self._problems: dict[tuple[int, int], str] = {}

    def same_phone(self, facts: Mapping[str, str]) -> None:
        """Checks that the results come from the same app and system, or records both; a `UserError` if they differ."""
        path = self.folder / PHONE_FILE
        if not path.exists():
            files.write_json(path, dict(facts))
        elif (before := read_json(path)) != facts:
            changed = [name for name in facts if not isinstance(before, dict) or facts[name] != before.get(name)]
            raise UserError(
                f"the repeats of a run must come from one app on one system; {self.folder.name} has another "
                f"{' and '.join(changed)} than before; choose another {argument('output')} or pass "
                f"{argument('overwrite', True)}"
            )

    def work(self) -> WorkList[tuple[int, int]]:
        """Returns the turns; those with a result file are finished."""
        return WorkList(self.plan.turns(), lambda turn: self._path(turn).exists())

    def keep(self, turn: tuple[int, int], path: Path) -> str | None:
        """Keeps a successful result file, else returns the failure; a `UserError` if it differs from the plan."""
        part, configuration = results.read(path), self.plan.configurations[turn[0]]
        expected = {
            "length": configuration.length,
            "threads": configuration.threads,
            "recipe": configuration.recipe,
            "model_sha256": files.sha256(configuration.model_path),
        }
        measurement = part.measurements[0] if len(part.measurements) == 1 else None
        problems = [] if measurement else [f"it must have one measurement; received {len(part.measurements)}"]
        if part.measured_on != "device":
            problems.append(f"it must be measured on a device; received {part.measured_on}")
        for name, value in expected.items() if measurement else ():
            if getattr(measurement, name) != value:
                problems.append(f"{name} must be {value}; it is {getattr(measurement, name)}")
        if measurement and measurement.status == "ok" and self.plan.delegate == "gpu":
            if not (measurement.delegate and measurement.delegate.is_gpu):
                problems.append("it must be a time of the GPU; the result names none")
        if (
            measurement
            and measurement.status == "ok"
            and (measurement.weight_cache_bytes is not None) != self.plan.weight_cache
        ):
            problems.append(f"its weight cache must be {'on' if self.plan.weight_cache else 'off'}; it is not")
        raise_if_any(problems, "the phone's result file")
        assert measurement
        if measurement.status == "ok":
            results.write(self._path(turn), part)
        return measurement.error

    def note(self, turn: tuple[int, int], problem: str) -> None:
        """Records, for this run's report, why a turn gave no result."""
        self._problems[turn] = problem

    @property
    def first_problem(self) -> str | None:
        """The first recorded reason."""
        return next(iter(self._problems.values()), None)

    def join(self, title: str) -> ResultFile | None:
        """Joins all measurements in one result file; None if there are none."""
        parts = {turn: results.read(self._path(turn)) for turn in self.work().finished}
        if not parts:
            return None
        first = next(iter(parts.values()))
        measurements = []
        for index, configuration in enumerate(self.plan.configurations):
            repeats = [part.measurements[0] for turn, part in sorted(parts.items()) if turn[0] == index]
            measurements.append(self._joined(index, configuration, repeats))
        cores = {"any": "the cores that Android chooses", "big": "the big cores", "little": "the little cores"}
        notes = [f"Requested: {self.plan.delegate.upper()}, {cores[self.plan.affinity]}; one process per repeat."]
        if any(configuration.weights == "random" for configuration in self.plan.configurations):
            notes.append(results.RANDOM_WEIGHTS_NOTE)
        return dataclasses.replace(
            first,
            title=title,
            commit=machine.commit(),
            created=min(part.created for part in parts.values()),
            quick=any(part.quick for part in parts.values()),
            measurements=tuple(measurements),
            notes=tuple(dict.fromkeys([*notes, *(note for part in parts.values() for note in part.notes)])),
        )

    def _joined(self, index: int, configuration: Configuration, repeats: Sequence[Measurement]) -> Measurement:
        problem = configuration.problem
        if not problem and len(repeats) < self.plan.repeats:
            reasons = [reason for (which, _), reason in sorted(self._problems.items()) if which == index]
            problem = f"{len(repeats)} of {self.plan.repeats} repeats are measured"
            problem += f"; {reasons[0]}" if reasons else "; the same command resumes"
        if problem:
            return _failed(configuration, problem)
        alike = {json.dumps(results.to_json(repeat.runtime)) + str(repeat.delegate) for repeat in repeats}
        if len(alike) > 1:
            return _failed(configuration, "its repeats ran on different runtimes or delegates")
        latency_us = tuple(value for repeat in repeats for value in repeat.latency_us)
        warm = [repeat.warmed_up for repeat in repeats]
        return dataclasses.replace(
            repeats[0],
            label=configuration.label,
            model=configuration.model,
            weights=configuration.weights,
            golden=max(
                (repeat.golden for repeat in repeats if repeat.golden),
                key=lambda golden: golden.max_absolute_difference,
                default=None,
            ),
            init_us=_of_known(_median, [repeat.init_us for repeat in repeats]),
            first_inference_us=_of_known(_median, [repeat.first_inference_us for repeat in repeats]),
            warm_up_runs=min(repeat.warm_up_runs for repeat in repeats),
            warmed_up=False if False in warm else None if None in warm else True,
            latency_us=latency_us,
            round_sizes=tuple(size for repeat in repeats for size in repeat.round_sizes),
            peak_memory_bytes=_of_known(max, [repeat.peak_memory_bytes for repeat in repeats]),
            base_memory_bytes=_of_known(max, [repeat.base_memory_bytes for repeat in repeats]),
            resident_memory_bytes=_of_known(max, [repeat.resident_memory_bytes for repeat in repeats]),
            thermal_end=repeats[-1].thermal_end,
            device=_worst_conditions([repeat.device for repeat in repeats if repeat.device]),
        )

    def _path(self, turn: tuple[int, int]) -> Path:
        index, repeat = turn
        return self.folder / f"configuration_{index}_repeat_{repeat}.json"


def _failed(configuration: Configuration, problem: str) -> Measurement:
    path, readable = configuration.model_path, configuration.model_path.is_file()
    return Measurement(
        label=configuration.label,
        model=configuration.model,
        recipe=configuration.recipe,
        peer=False,
        weights=configuration.weights,
        model_file=path.name,
        model_sha256=files.sha256(path) if readable else None,
        size_bytes=path.stat().st_size if readable else None,
        signature=None,
        length=configuration.length,
        threads=configuration.threads,
        runtime=None,
        delegate=None,
        status="failed",
        error=problem,
        golden=None,
        init_us=None,
        first_inference_us=None,
        warm_up_runs=0,
        latency_us=(),
        round_sizes=(),
        peak_memory_bytes=None,
        base_memory_bytes=None,
        thermal_start=None,
        thermal_end=None,
    )


def _worst_conditions(repeats: Sequence[DeviceConditions]) -> DeviceConditions | None:
    if not repeats:
        return None
    allowed = {repeat.processors_allowed: None for repeat in repeats}
    return dataclasses.replace(
        repeats[0],
        processors_allowed=None if None in allowed else "; ".join(str(processor_count) for processor_count in allowed),
        processors_khz=_slowest([repeat.processors_khz for repeat in repeats]),
        processors_highest_khz=_slowest([repeat.processors_highest_khz for repeat in repeats]),
        battery_percent=_of_known(min, [repeat.battery_percent for repeat in repeats]),
        charging=_of_known(max, [repeat.charging for repeat in repeats]),
        power_save=any(repeat.power_save for repeat in repeats),
        thermal_headroom=_of_known(max, [repeat.thermal_headroom for repeat in repeats]),
        repeat=max(repeat.repeat for repeat in repeats),
    )


def _slowest(repeats: Sequence[Mapping[str, int] | None]) -> dict[str, int] | None:
    """Processor → its lowest frequency; None if no repeat has frequencies."""
    speeds = [repeat for repeat in repeats if repeat is not None]
    names = dict.fromkeys(name for speed in speeds for name in speed)
    return {name: min(speed[name] for speed in speeds if name in speed) for name in names} if speeds else None


def _of_known(choose: Callable[[list[Any]], Any], values: Sequence[Any]) -> Any:
    """Applies `choose` to the known values; None if there are none."""
    numbers = [value for value in values if value is not None]
    return choose(numbers) if numbers else None


def _median(values: Sequence[float]) -> float:
    return round(float(np.median(values)), 1)
