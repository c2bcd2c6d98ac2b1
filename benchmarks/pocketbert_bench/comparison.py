"""From result files to the rows that tables and plots show; comparisons stay inside one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pocketbert_bench.results import Accuracy, Measurement, Ratio, ResultFile, latency_ratio


@dataclass(frozen=True, kw_only=True)
class Row:
    """One export of one network in one run.

    Attributes:
      run: the result file that it comes from.
      model: the network's name.
      label: the export's name.
      recipe: number formats.
      peer: somebody else's export.
      size_bytes: of the model file; None if it failed.
      latencies: (length, threads) → measurement, those that succeeded.
      failures: a sentence each.
      accuracy: its score, if there is one in the run.
      reference: the label of the export that `smaller` and `faster` compare with; empty if there is none.
      smaller: the reference's size over this one's.
      faster: the reference's latency over this one's at `faster_at`, or None; the value is ours over reference.
      faster_at: (length, threads) of the comparison.
    """

    run: ResultFile
    model: str
    label: str
    recipe: str
    peer: bool
    size_bytes: int | None
    latencies: Mapping[tuple[int, int], Measurement]
    failures: tuple[str, ...]
    accuracy: Accuracy | None
    reference: str = ""
    smaller: float | None = None
    faster: Ratio | None = None
    faster_at: tuple[int, int] | None = None

    def latency_us(self, length: int, threads: int) -> float | None:
        """Median latency, or None where it was not measured."""
        measurement = self.latencies.get((length, threads))
        return measurement.summary.median_us if measurement and measurement.summary else None

    def effective_latency_us(self, tokens: int, threads: int) -> float | None:
        """What a text of so many tokens costs: the shortest measured length that holds it."""
        lengths = [length for length, number in self.latencies if length >= tokens and number == threads]
        return self.latency_us(min(lengths), threads) if lengths else None


def rows(results: Sequence[ResultFile]) -> list[Row]:
    """Every export of every run; in each run peers first, then ours, larger files first."""
    found = []
    for result in results:
        exports: dict[tuple[str, str], list[Measurement]] = {}
        for measurement in result.measurements:
            exports.setdefault((measurement.model, measurement.label), []).append(measurement)
        group = [_row(result, model, label, parts) for (model, label), parts in exports.items()]
        found += sorted(
            (_compared(row, group) for row in group), key=lambda row: (row.model, not row.peer, -(row.size_bytes or 0))
        )
    return found


def lengths(found: Sequence[Row]) -> list[int]:
    """All measured lengths, ascending."""
    return sorted({length for row in found for length, _ in row.latencies})


def threads(found: Sequence[Row]) -> list[int]:
    """All measured numbers of threads, ascending."""
    return sorted({number for row in found for _, number in row.latencies})


def _row(result: ResultFile, model: str, label: str, parts: Sequence[Measurement]) -> Row:
    scores = [score for score in result.accuracies if (score.model, score.label) == (model, label)]
    good = [part for part in parts if part.status == "ok"]
    return Row(
        run=result,
        model=model,
        label=label,
        recipe=parts[0].recipe,
        peer=parts[0].peer,
        size_bytes=good[0].size_bytes if good else None,
        latencies={(part.length, part.threads): part for part in good if part.length},
        failures=tuple(dict.fromkeys(part.error for part in parts if part.error)),
        accuracy=scores[0] if scores else None,
    )


def _compared(row: Row, group: Sequence[Row]) -> Row:
    """The row with its comparison: with the peer's float32 export, failing that with our own float32."""
    candidates = [
        other for other in group if other.model == row.model and other.recipe == "float32" and other.latencies
    ]
    candidates.sort(key=lambda other: (not other.peer, other.label != "plain converter float32"))
    if not candidates or not row.latencies:
        return row
    reference = candidates[0]
    shared = sorted(set(row.latencies) & set(reference.latencies), key=lambda key: (-key[0], key[1]))
    smaller = reference.size_bytes / row.size_bytes if row.size_bytes and reference.size_bytes else None
    faster = None
    if shared:
        ours, theirs = row.latencies[shared[0]], reference.latencies[shared[0]]
        if len(ours.round_sizes) == len(theirs.round_sizes):
            faster = latency_ratio(row.label, ours, theirs, f"{row.label} over {reference.label}", None)
    return Row(
        **{
            **{name: getattr(row, name) for name in Row.__dataclass_fields__},
            "reference": reference.label,
            "smaller": smaller,
            "faster": faster,
            "faster_at": shared[0] if faster else None,
        }
    )
