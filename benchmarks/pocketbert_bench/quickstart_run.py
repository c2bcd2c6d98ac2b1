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
from pocketbert_export.bundles.bundle import read_verification

TEACHER, STUDENT = "teacher", "student"
MODEL = "model"


class QuickstartRun:
    """A quickstart in its folder; what the folder already has is not made again.

    Attributes:
      output: the folder.
      bundles: role and recipe → bundle, in the order of the exports.
      accuracies: scores of models and bundles.
    """

    def __init__(self, output: Path, settings: dict[str, Any], *, steps: int) -> None:
        claim(output / "quickstart.json", settings)
        self.output = output
        self.bundles: dict[tuple[str, str], pb.Bundle] = {}
        self.accuracies: list[Accuracy] = []
        self._started = time.monotonic()
        self._steps, self._step = steps, 0

    @property
    def named(self) -> dict[str, pb.Bundle]:
        """The bundles by their names on the page."""
        return {f"{role}, {recipe}": bundle for (role, recipe), bundle in self.bundles.items()}

    def step(self, description: str) -> None:
        """Logs the next step."""
        self._step += 1
        log_info(f"[{self._step}/{self._steps}] {description}")

    def export(self, role: str, recipe: str, model: Path, folder: str, **options: Any) -> pb.Bundle:
        """Exports a bundle unless there is one in `folder` of `bundles`; the options are those of `pb.export`."""
        path, name = self.output / "bundles" / folder, folder.replace("/", ", ")
        if path.exists():
            log_info(f"  {name}: already exported")
            bundle = pb.Bundle.open(path)
        else:
            bundle = pb.export(model, path, recipe=recipe, **options)
            checks = {check["name"]: check for check in read_verification(path)["checks"]}
            angle = f", mean cosine to the float model {checks['angle']['measured']:.4f}" if "angle" in checks else ""
            log_info(f"  {name}: {bundle.model_path.stat().st_size / 1e6:.1f} MB, {len(checks)} checks passed{angle}")
        self.bundles[role, recipe] = bundle
        return bundle

    def score(self, *, task: str, split: str) -> None:
        """Logs and records the scores of models and bundles, which the exports measured."""
        for (role, recipe), bundle in self.bundles.items():
            outcome = bundle.outcome
            assert outcome is not None
            metric, examples = outcome["metric"], outcome["examples"]
            scores: dict[str, tuple[float, Path | None]] = {recipe: (outcome["score"], bundle.model_path)}
            if role not in {record.model for record in self.accuracies}:
                scores = {MODEL: (outcome["float_model"], None), **scores}
            for label, (value, file) in scores.items():
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
            names = {bundle.directory: role for (role, _), bundle in self.bundles.items()}
            latencies = host.bench_bundles(
                list(names),
                lengths=lengths,
                quick=not full,
                baselines=baselines(),
                weights="trained",
                names=names,
                title=title,
            )
            results.write(path, dataclasses.replace(latencies, accuracies=tuple(self.accuracies)))
        return results.read(path)

    def report(self, measured: ResultFile, **content: Any) -> Path:
        """Draws the page; the content is that of `report.build_report`."""
        verification = {name: read_verification(bundle.directory) for name, bundle in self.named.items()}
        folder = self.output / "report"
        page = report.build_report([measured], folder, verification=verification, overwrite=True, **content)
        log_info(f"done in {time.monotonic() - self._started:.0f} s")
        return page
