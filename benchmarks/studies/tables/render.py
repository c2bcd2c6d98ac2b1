"""The table renderer: Markdown tables, cells of scores and ratios, and the generated blocks of pages."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pocketbert.data.readers.glue import GLUE
from pocketbert_bench import results
from pocketbert_bench.results import Accuracy, Ratio
from studies.closed import CLOSED, measured_at, reproduction
from studies.runner import RESULTS
from studies.sweep import split_label

ROOT = Path(__file__).resolve().parents[3]
NOTHING = "–"
NOT_RUN = "Not measured yet.\n"
# Result files whose page tells that their cells ran at several commits.
_SEVERAL_COMMITS = ("bake_off", "compression_hour", "small_data")
# Seed (empty for a single run) → value.
Values = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class MarkedBlock:
    """Generated part of a page, between two marks; the first mark names its source.

    Attributes:
      page: path of the page in the checkout.
      name: name in the marks.
      result: name of the result file; empty for several.
      text: function that writes the text from the result file, or without it from several.
    """

    page: str
    name: str
    result: str
    text: Callable[..., str]

    def render(self) -> str:
        """The text; pages of results end with the commit, and closed measurements with the way to repeat them."""
        if not self.result:
            return self.text()
        path = RESULTS / f"{self.result}.json"
        if not path.exists():
            return NOT_RUN
        content = results.read(path)
        closing = ""
        if self.result in CLOSED:
            closing = f"\n{reproduction(self.result, content)}\n"
        elif self.page.startswith("docs/results/") and self.result not in _SEVERAL_COMMITS:
            closing = f"\nMeasured at commit {measured_at(content)}.\n"
        return self.text(content) + closing

    def read(self) -> str:
        """Returns the text between the marks."""
        return self._parts()[1]

    def write(self) -> None:
        """Replaces the text between the marks."""
        before, _, after = self._parts()
        (ROOT / self.page).write_text(f"{before}{self._begin}{self.render()}{self._end}{after}", encoding="utf-8")

    @property
    def _begin(self) -> str:
        source = f"benchmarks/studies/results{f'/{self.result}.json' if self.result else ''}"
        return f"<!-- {self.name}: begin. Written by python -m studies.tables from {source}. -->\n"

    @property
    def _end(self) -> str:
        return f"<!-- {self.name}: end -->"

    def _parts(self) -> tuple[str, str, str]:
        before, rest = (ROOT / self.page).read_text(encoding="utf-8").split(self._begin)
        text, after = rest.split(self._end)
        return before, text, after


def page(*parts: Sequence[str]) -> str:
    """Joins parts, each a list of lines, with an empty line between them; empty parts are left out."""
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Writes a table; `>` in front of a header aligns its column to the right."""
    lines = [_row([head.removeprefix(">") for head in heads])]
    lines.append("|" + "|".join("---:" if head.startswith(">") else "---" for head in heads) + "|")
    return lines + [_row(row) for row in rows]


def bullets(notes: Iterable[str], end: str = "") -> list[str]:
    """Writes a list."""
    return [f"- {note}{end}" for note in notes]


class ScoreTable:
    """Scores of a result file by model, label without seed, task and further fields."""

    def __init__(self, accuracies: Iterable[Accuracy]) -> None:
        self._values: dict[tuple[str, ...], dict[str, float]] = {}
        for record in accuracies:
            label, seed = split_label(record.label)
            key = (record.model, label, record.task)
            for fields in ((), (record.metric,), (record.metric, record.split, record.recipe)):
                self._values.setdefault((*key, *fields), {})[seed] = record.value

    @classmethod
    def of_main_metrics(cls, content: results.ResultFile) -> ScoreTable:
        """The scores in each GLUE task's main metric."""
        return cls(record for record in content.accuracies if record.metric == GLUE[record.task].main_metric)

    def values(self, model: str, label: str, task: str, *fields: str) -> Values:
        """Seed → value; `fields` are the metric, or metric, split and recipe, where the file has several."""
        return self._values.get((model, label, task, *fields), {})


def cell(values: Iterable[float], seeds: int, *, unit: float = 100.0, digits: str = ".1f", failed: int = 0) -> str:
    """Formats mean and standard deviation of `unit` times the values, and the number of seeds if some are missing."""
    scaled = [unit * value for value in values]
    if not scaled:
        return f"{failed} failed" if failed else NOTHING
    text = f"{statistics.fmean(scaled):{digits}}"
    if len(scaled) > 1:
        text += f" ± {statistics.stdev(scaled):{digits}}"
    if len(scaled) == seeds:
        return text
    return f"{text} ({len(scaled)} of {seeds}{f', {failed} failed' if failed else ''})"


def difference(first: Values, second: Values) -> str:
    """Formats mean and standard deviation of the differences over the common seeds in percent; empty without any."""
    differences = [100 * (first[seed] - second[seed]) for seed in first if seed in second]
    if not differences:
        return ""
    spread = f" ± {statistics.stdev(differences):.1f}" if len(differences) > 1 else ""
    return f"{statistics.fmean(differences):+.1f}{spread}"


def finding(values: Callable[[str], tuple[Values, Values]], titles: Mapping[str, str]) -> str:
    """Formats the differences of two variants on all tasks (with their titles) where both were measured."""
    changes = {title: difference(*values(task)) for task, title in titles.items()}
    return ", ".join(f"{title} {change}" for title, change in changes.items() if change) or "not measured"


def interval(ratio: Ratio, *, digits: str = ".2f", to: str = "–") -> str:
    """Formats a ratio with its 95 % interval."""
    low, high = ratio.interval
    return f"{ratio.value:{digits}} ({low:{digits}}{to}{high:{digits}})"


def target_cells(ratio: Ratio) -> tuple[str, str]:
    """Formats the target and whether it was met."""
    if ratio.target is None:
        return NOTHING, NOTHING
    lower = ratio.better == "lower"
    at_median = ratio.value <= ratio.target if lower else ratio.value >= ratio.target
    met = "yes" if ratio.met else "at the median, not at the 95 % bound" if at_median else "no"
    return f"{'≤' if lower else '≥'} {ratio.target:g}", met


def scored_heads(tasks: Iterable[str]) -> list[str]:
    """Headers of GLUE tasks with their metrics."""
    return [f">{GLUE[task].folder} ({GLUE[task].main_metric})" for task in tasks]


def task_titles(tasks: Iterable[str]) -> dict[str, str]:
    """GLUE task → its name."""
    return {task: GLUE[task].folder for task in tasks}


def counted_examples(content: results.ResultFile, titles: Mapping[str, str]) -> str:
    """Names the number of scored examples of each task."""
    examples = {record.task: record.examples for record in content.accuracies}
    counts = ", ".join(f"{title} {examples[task]:,}" for task, title in titles.items() if task in examples)
    return f"Dev examples: {counts}."


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
