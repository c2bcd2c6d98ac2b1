"""Outcomes for measured bundles: the files' scores, beside their speed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketbert import files
from pocketbert.errors import UserError
from pocketbert.report.outcome import no_outcome
from pocketbert.tasks.scores import Verdict
from pocketbert_bench.schema import note
from pocketbert_export.bundles.bundle import read_description

if TYPE_CHECKING:
    from pocketbert_bench.configurations import Configuration
    from pocketbert_bench.results import ResultFile


@dataclass(frozen=True, kw_only=True)
class BaselineScore:
    """A simple method on the same examples."""

    name: str = note("name of the method; the constant answer stands first")
    score: float = note("its main metric", minimum=-1, maximum=1)


@dataclass(frozen=True, kw_only=True)
class BundleOutcome:
    """Score of a bundle on labelled examples, as bundle.json recorded it when the bundle was measured."""

    model: str = note("name of the network")
    label: str = note("label of the bundle's measurements")
    model_sha256: str = note("digest of the model file", pattern="^[0-9a-f]{64}$")
    metric: str = note("for example accuracy or f1")
    score: float = note("the score; 1 is perfect", minimum=-1, maximum=1)
    examples: int = note("number of scored examples", minimum=1)
    interval: tuple[float, ...] | None = note("lower and upper end of the 95 % interval; null if unknown")
    baselines: tuple[BaselineScore, ...] = note("simple methods on the same examples")
    teacher: float | None = note("score of the teacher; null without one")
    float_model: float | None = note("score of the float model; null if unknown")
    verdict: Verdict = note("comparison with the baselines")
    headline: str = note("the outcome in one line")
    warnings: tuple[str, ...] = note("warnings about the outcome, one sentence each")


def outcomes_of(configurations: Iterable[Configuration]) -> tuple[BundleOutcome, ...]:
    """Reads the outcomes in `bundle.json` for the bundles among some configurations; those without one are left out."""
    outcomes: dict[tuple[str, str], BundleOutcome] = {}
    for configuration in configurations:
        content = (
            None if configuration.is_baseline or configuration.problem else recorded(configuration.model_path.parent)
        )
        if content is not None and (configuration.model, configuration.label) not in outcomes:
            digest = files.sha256(configuration.model_path)
            outcomes[configuration.model, configuration.label] = _outcome(
                content, configuration.model, configuration.label, digest
            )
    return tuple(outcomes.values())


def recorded(bundle: Path) -> dict[str, Any] | None:
    """Reads the outcome in `bundle.json`; None for a damaged bundle, or one exported without labelled examples."""
    try:
        outcome: dict[str, Any] | None = read_description(bundle).get("outcome")
    except UserError:
        return None
    return outcome


def completed(run: ResultFile, bundles: Sequence[Path]) -> ResultFile:
    """Adds outcomes to a run that measured bundles without recording them, matched by the file's SHA-256."""
    measured = {measurement.model_sha256: measurement for measurement in run.measurements if not measurement.peer}
    digests = {outcome.model_sha256 for outcome in run.outcomes or ()}
    more = []
    for bundle in bundles:
        content = recorded(bundle)
        digest = None if content is None else files.sha256(bundle / "model.tflite")
        if content is not None and digest is not None and digest in measured and digest not in digests:
            more.append(_outcome(content, measured[digest].model, measured[digest].label, digest))
    return dataclasses.replace(run, outcomes=(*(run.outcomes or ()), *more)) if more else run


def line(name: str, outcome: BundleOutcome | None) -> str:
    """Describes a bundle's outcome in one line for a terminal."""
    return f"{name}: {no_outcome().replace('No', 'no', 1)}" if outcome is None else f"{name}: {outcome.headline}"


def _outcome(content: Mapping[str, Any], model: str, label: str, digest: str) -> BundleOutcome:
    shared = {field.name for field in dataclasses.fields(BundleOutcome)} & content.keys()
    return BundleOutcome(
        **{name: content[name] for name in shared}
        | {
            "model": model,
            "label": label,
            "model_sha256": digest,
            "interval": None if content["interval"] is None else tuple(content["interval"]),
            "baselines": tuple(BaselineScore(**baseline) for baseline in content["baselines"]),
            "warnings": tuple(content["warnings"]),
        }
    )
