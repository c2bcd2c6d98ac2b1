"""What the quickstarts share: a folder with bundles, scores, measurements and a page."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pocketbert as pb
from pocketbert.progress import log_info
from pocketbert_bench import accuracy, host, report, results
from pocketbert_bench.claims import claim
from pocketbert_bench.configurations import Configuration
from pocketbert_bench.results import Accuracy, ResultFile
from pocketbert_export.bundles.bundle import MODEL_FILE, read_verification

TEACHER, STUDENT = "teacher", "student"
MODEL = "model"
_SETTINGS = "quickstart.json"


class QuickstartRun:
    """A quickstart in its folder; what the folder already has is not made again.

    Attributes:
      output: the folder.
      bundles: role and recipe → bundle, in the order of the exports.
      accuracies: scores of models and bundles.
    """

    def __init__(self, output: Path, settings: dict[str, Any], *, steps: int) -> None:
        claim(output / _SETTINGS, settings)
        self.output = output
        self.bundles: dict[tuple[str, str], Path] = {}
        self.accuracies: list[Accuracy] = []
        self._started = time.monotonic()
        self._steps, self._step = steps, 0

    def step(self, description: str) -> None:
        """Logs the next step."""
        self._step += 1
        log_info(f"[{self._step}/{self._steps}] {description}")

    def export(self, role: str, recipe: str, model: Path, path: Path, **options: Any) -> pb.Bundle:
        """Exports a bundle unless `path` has one, and logs it; the options are those of `pb.export`."""
        name = ", ".join(path.relative_to(self.output / "bundles").parts)
        self.bundles[role, recipe] = path
        if path.exists():
            log_info(f"  {name}: already exported")
            return pb.Bundle.open(path)
        bundle = pb.export(model, path, recipe=recipe, **options)
        checks = {check["name"]: check for check in read_verification(path)["checks"]}
        angle = f", mean cosine to the float model {checks['angle']['measured']:.4f}" if "angle" in checks else ""
        log_info(f"  {name}: {bundle.model_path.stat().st_size / 1e6:.1f} MB, {len(checks)} checks passed{angle}")
        return bundle

    def score(self, *, task: str, split: str) -> None:
        """Logs and records the scores of models and bundles, which the exports measured."""
        for (role, recipe), path in self.bundles.items():
            outcome = pb.Bundle.open(path).outcome
            assert outcome is not None
            metric, examples = outcome["metric"], outcome["examples"]
            scored: list[tuple[str, float, Path | None]] = [(recipe, outcome["score"], path / MODEL_FILE)]
            if role not in {record.model for record in self.accuracies}:
                scored.insert(0, (MODEL, outcome["float_model"], None))
            for label, value, file in scored:
                log_info(f"  {role}, {label}: {metric} {value:.4f} on {examples} examples")
                facts = {"task": task, "split": split, "metric": metric, "examples": examples}
                self.accuracies.append(
                    accuracy.record(label=label, model=role, recipe=label, value=value, model_file=file, **facts)
                )
            for warning in outcome["warnings"]:
                log_info(f"  warning: {role}, {recipe}: {warning}")

    def measure(
        self, title: str, *, lengths: tuple[int, ...], full: bool, baselines: Callable[[], list[Configuration]] = list
    ) -> ResultFile:
        """Times all bundles and the baselines in one run, and writes the result file with the scores."""
        path = self.output / "results.json"
        if not path.exists():
            latencies = host.bench_bundles(
                list(self.bundles.values()),
                lengths=lengths,
                quick=not full,
                baselines=baselines(),
                weights="trained",
                names={path: role for (role, _), path in self.bundles.items()},
                title=title,
            )
            results.write(path, dataclasses.replace(latencies, accuracies=tuple(self.accuracies)))
        return results.read(path)

    def report(self, measured: ResultFile, **content: Any) -> Path:
        """Draws the page; the content is that of `report.build_report`."""
        verification = {f"{role}, {recipe}": read_verification(path) for (role, recipe), path in self.bundles.items()}
        folder = self.output / "report"
        page = report.build_report([measured], folder, verification=verification, overwrite=True, **content)
        log_info(f"done in {time.monotonic() - self._started:.0f} s")
        return page
