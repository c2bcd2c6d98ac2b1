"""Turn result files into rows for tables and plots; rows are compared within a run only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pocketbert_bench.baselines import TFLITE_CONVERTER
from pocketbert_bench.bundle_outcomes import BundleOutcome
from pocketbert_bench.load import busy_signs
from pocketbert_bench.results import Accuracy, Measurement, Ratio, ResultFile, Runtime, latency_ratio

BUSY, UNSTEADY = "*", "†"
# Fewer rounds give no interval.
_FEWEST_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class Row:
    """One export of one network in one run.

    Attributes:
      run: the row's result file.
      model: the network's name.
      label: the export's name.
      recipe: number formats.
      is_baseline: whether this is a baseline.
      size_bytes: model file size; None if the export failed.
      latencies: (length, threads) → successful measurement.
      failures: reasons for failed measurements, one sentence each.
      accuracy: score in this run, if any.
      outcome: the bundle's outcome, if any.
      reference: export to compare `smaller` and `faster` with, if any.
      smaller: the reference's size ÷ own size.
      faster: own latency ÷ the reference's at `faster_at`, or None.
      faster_at: (length, threads) in the comparison.
    """

    run: ResultFile
    model: str
    label: str
    recipe: str
    is_baseline: bool
    size_bytes: int | None
    latencies: Mapping[tuple[int, int], Measurement]
    failures: tuple[str, ...]
    accuracy: Accuracy | None
    outcome: BundleOutcome | None = None
    reference: Row | None = None
    smaller: float | None = None
    faster: Ratio | None = None
    faster_at: tuple[int, int] | None = None

    @property
    def score(self) -> tuple[str, float] | None:
        """Metric and score: this run's, else the bundle outcome's; None without a score."""
        if self.accuracy:
            return self.accuracy.metric, self.accuracy.value
        return (self.outcome.metric, self.outcome.score) if self.outcome else None

    def latency_us(self, length: int, threads: int) -> float | None:
        """Returns the median latency in microseconds; None if it was not measured."""
        measurement = self.latencies.get((length, threads))
        return measurement.summary.median_us if measurement and measurement.summary else None

    def marks(self, length: int, threads: int) -> str:
        """Returns a latency's marks: `BUSY`, `UNSTEADY`, both or none."""
        measurement = self.latencies.get((length, threads))
        if not measurement:
            return ""
        busy = measurement.load and measurement.load.busy_because
        return (BUSY if busy else "") + (UNSTEADY if measurement.warmed_up is False else "")

    def effective_latency_us(self, tokens: int, threads: int) -> float | None:
        """Returns the latency for a number of tokens, at the shortest sufficient length."""
        lengths = [length for length, number in self.latencies if length >= tokens and number == threads]
        return self.latency_us(min(lengths), threads) if lengths else None


@dataclass(frozen=True, kw_only=True)
class Caveat:
    """A reason why some latencies are uncertain.

    Attributes:
      mark: their mark in tables.
      sentence: the reason, for all.
      details: (export, length, threads, reason) for each.
    """

    mark: str
    sentence: str
    details: Sequence[tuple[str, int, int, str]]


def delegate_notes(rows: Sequence[Row]) -> list[str]:
    """Describes the operators on delegates, one sentence for each export with an estimate."""
    notes = []
    for row in rows:
        measured = next((latency for latency in row.latencies.values() if latency.expected_delegates), None)
        if measured:
            shares = ", ".join(map(str, measured.delegates))
            notes.append(f"operators on delegates (GPU, NPU: by documented rules): {name(row, rows)}: {shares}")
    return notes


def memory_notes(rows: Sequence[Row]) -> list[str]:
    """Describes memory growth and opening time, one sentence per export; none without a weight cache in the run."""
    # Each measurement opens all lengths of a file, so the shortest stands for all.
    measured = [(row, row.latencies[min(row.latencies)]) for row in rows if row.latencies]
    if not any(latency.weight_cache_bytes for _, latency in measured):
        return []
    notes = []
    for row, latency in measured:
        if not latency.resident_memory_bytes or not latency.base_memory_bytes:
            continue
        growth = (latency.resident_memory_bytes - latency.base_memory_bytes) / 1e6
        opening = ((latency.init_us or 0) + (latency.first_inference_us or 0)) / 1e3
        cache = f" (weight cache {latency.weight_cache_bytes / 1e6:.1f} MB)" if latency.weight_cache_bytes else ""
        notes.append(
            f"memory: {name(row, rows)}: grew by {growth:.1f} MB, opened and called once in {opening:.0f} ms{cache}"
        )
    return notes


def caveats(rows: Sequence[Row]) -> list[Caveat]:
    """Returns reasons why latencies are uncertain, one sentence for each mark."""
    measured = [(row, *key, measurement) for row in rows for key, measurement in row.latencies.items()]
    busy = [(*entry, entry[3].load) for entry in measured if entry[3].load and entry[3].load.busy_because]
    unsteady = [entry for entry in measured if entry[3].warmed_up is False]
    caveats = []
    if busy:
        sentence = (
            f"The machine was busy in {len(busy)} of {len(measured)} measurements "
            f"({busy_signs([load for *_, load in busy])}). These latencies are too high; compare the ratios."
        )
        details = [(name(row, rows), length, threads, load.busy_because) for row, length, threads, _, load in busy]
        caveats.append(Caveat(mark=BUSY, sentence=sentence, details=details))
    if unsteady:
        sentence = (
            f"{len(unsteady)} of {len(measured)} measurements were not steady when the longest warm-up ended. "
            "Measure them again."
        )
        details = [
            (name(row, rows), length, threads, "not steady after the longest warm-up")
            for row, length, threads, _ in unsteady
        ]
        caveats.append(Caveat(mark=UNSTEADY, sentence=sentence, details=details))
    return caveats


def rows(results: Sequence[ResultFile], teachers: Mapping[str, str] | None = None) -> list[Row]:
    """Returns all exports from all runs: by network, baselines first, then ours by descending size.

    Args:
      results: the runs.
      teachers: student network → its teacher, whose exports are the reference.
    """
    rows = []
    for result in results:
        exports: dict[tuple[str, str], list[Measurement]] = {}
        for measurement in result.measurements:
            exports.setdefault((measurement.model, measurement.label), []).append(measurement)
        group = [_row(result, model, label, parts) for (model, label), parts in exports.items()]
        networks = list(dict.fromkeys(row.model for row in group))
        rows += sorted(
            (_compared(row, group, (teachers or {}).get(row.model, row.model)) for row in group),
            key=lambda row: (networks.index(row.model), not row.is_baseline, -(row.size_bytes or 0)),
        )
    return rows


def rankings(run: ResultFile) -> list[ResultFile]:
    """Splits a run into comparable parts: our exports on one runtime, with the baselines timed with them.

    A run on one runtime is its only part. GPU and CPU count as different runtimes. Baselines have their own runtimes;
    they go with our exports on the same runtime, otherwise with the first part.
    """
    grounds = list(
        dict.fromkeys(
            _ground(measurement) for measurement in run.measurements if measurement.runtime and not measurement.peer
        )
    )
    if len(grounds) < 2:
        return [run]
    parts: list[list[Measurement]] = [[] for _ in grounds]
    for measurement in run.measurements:
        parts[grounds.index(_ground(measurement)) if _ground(measurement) in grounds else 0].append(measurement)
    return [dataclasses.replace(run, measurements=tuple(part)) for part in parts]


def _ground(measurement: Measurement) -> tuple[Runtime | None, bool]:
    return measurement.runtime, bool(measurement.delegate and measurement.delegate.is_gpu)


def name(row: Row, rows: Sequence[Row]) -> str:
    """Names an export: its label, with the network's name if another in `rows` has the same label."""
    shared = any(other.label == row.label and other.model != row.model for other in rows)
    return f"{row.model}, {row.label}" if shared else row.label


def faster(row: Row, baseline: Row, at: tuple[int, int]) -> Ratio | None:
    """Returns latency of `row` ÷ latency of `baseline` at (length, threads); None without enough paired rounds.

    One or two rounds give no interval. Measurements in one round per process did not alternate.
    """
    mine, other = row.latencies.get(at), baseline.latencies.get(at)
    if not mine or not other or not len(mine.round_sizes) == len(other.round_sizes) >= _FEWEST_ROUNDS:
        return None
    return latency_ratio(row.label, mine, other, f"{row.label} over {baseline.label}", None)


def lengths(rows: Sequence[Row]) -> list[int]:
    """Returns all measured lengths, ascending."""
    return sorted({length for row in rows for length, _ in row.latencies})


def threads(rows: Sequence[Row]) -> list[int]:
    """Returns all measured numbers of threads, ascending."""
    return sorted({number for row in rows for _, number in row.latencies})


def _row(result: ResultFile, model: str, label: str, parts: Sequence[Measurement]) -> Row:
    scores = [score for score in result.accuracies if (score.model, score.label) == (model, label)]
    good = [part for part in parts if part.status == "ok"]
    digests = {part.model_sha256 for part in parts}
    return Row(
        run=result,
        model=model,
        label=label,
        recipe=parts[0].recipe,
        is_baseline=parts[0].peer,
        size_bytes=good[0].size_bytes if good else None,
        latencies={(part.length, part.threads): part for part in good if part.length},
        failures=tuple(dict.fromkeys(part.error for part in parts if part.error)),
        accuracy=scores[0] if scores else None,
        outcome=next((outcome for outcome in result.outcomes or () if outcome.model_sha256 in digests), None),
    )


def _compared(row: Row, group: Sequence[Row], model: str) -> Row:
    """The row compared with a baseline's float32 export of the network `model`, otherwise with ours."""
    candidates = [other for other in group if other.model == model and other.recipe == "float32" and other.latencies]
    candidates.sort(key=lambda other: (not other.is_baseline, other.label != f"{TFLITE_CONVERTER} float32"))
    if not candidates or not row.latencies:
        return row
    reference = candidates[0]
    shared = sorted(set(row.latencies) & set(reference.latencies), key=lambda key: (-key[0], key[1]))
    ratio = faster(row, reference, shared[0]) if shared else None
    return dataclasses.replace(
        row,
        reference=reference,
        smaller=reference.size_bytes / row.size_bytes if row.size_bytes and reference.size_bytes else None,
        faster=ratio,
        faster_at=shared[0] if ratio else None,
    )
