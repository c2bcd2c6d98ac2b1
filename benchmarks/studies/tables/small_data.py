"""Tables of small data."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pocketbert_bench import results
from studies.rejected_topics import MEASURES
from studies.separate_pairs import FORMS
from studies.tables.render import NOTHING, bullets, page, table

_DEFAULTS, _EXAMPLES = "defaults", 500
# Columns of the counts, and those of all examples, with which three epochs take hours.
_COUNTED, _COUNTED_OF_ALL = (_DEFAULTS, "before", "setfit"), ("1 epoch", "before", "setfit")


def topics_table(content: results.ResultFile) -> str:
    """Writes a row for each seed of the study with unknown topics, with its values in percent."""
    by_seed: dict[str, dict[str, float]] = {}
    for accuracy in content.accuracies:
        by_seed.setdefault(accuracy.label, {})[accuracy.metric] = accuracy.value
    rows = [[seed, *(f"{100 * values[metric]:.1f} %" for metric in MEASURES)] for seed, values in by_seed.items()]
    return page(table(["Seed", *(f">{measure}" for measure in MEASURES.values())], rows), bullets(content.notes))


def pairs_table(content: results.ResultFile) -> str:
    """Writes a row for each task and number of pairs, with the mean and spread of each form over the seeds."""
    scores: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    choices: dict[tuple[str, str], list[str]] = {}
    for accuracy in content.accuracies:
        count = accuracy.label.partition(" pairs")[0]
        key = accuracy.task, count, accuracy.metric.replace("_", " ")
        scores.setdefault(key, {}).setdefault(accuracy.model, []).append(accuracy.value)
    for note in content.notes:
        (task, name), (_, choice) = note.split(", ", 1), note.rsplit(" ", 1)
        choices.setdefault((task, name.partition(" pairs")[0]), []).append(choice)
    rows = [
        [task, count, metric, *(_spread(of_case[form]) for form in FORMS), _most(choices[task, count])]
        for (task, count, metric), of_case in scores.items()
    ]
    return page(table(["Task", ">Pairs", "Metric", *(f">{form}" for form in FORMS), "The fit chooses"], rows))


def _most(choices: list[str]) -> str:
    """The choices of all seeds, in words."""
    (choice, times), *others = Counter(choices).most_common()
    return f"{choice}, {times} of {len(choices)} times" if others else choice


def data_table(content: results.ResultFile) -> str:
    """Writes a row for each data set and number of examples."""
    heads = ["Data", ">Examples", "Metric", ">`finetune`", ">Constant answer", "Best simple method"]
    heads += [">Standard error of the test", ">Mean top probability"]
    lines = []
    cells = [cell for cell in _cells(content) if cell["variant"] == _DEFAULTS and cell["examples_given"] == _EXAMPLES]
    for name, count in dict.fromkeys((cell["data"], cell["examples_given"]) for cell in cells):
        rows = [cell for cell in cells if (cell["data"], cell["examples_given"]) == (name, count)]
        methods = {
            method: _mean([row["methods"][method] for row in rows])
            for method in rows[0].get("methods", {})
            if all(method in row["methods"] for row in rows)
        }
        best = max(methods, key=lambda method: methods[method], default=None)
        top = [row["top_probability"] for row in rows if row["top_probability"] is not None]
        columns = [
            name,
            "all" if count is None else str(count),
            rows[0]["metric"].replace("_", " "),
            _spread([row["score"] for row in rows]),
            f"{100 * _mean([row['constant'] for row in rows]):.1f}",
            NOTHING if best is None else f"{best}: {100 * methods[best]:.1f}",
            f"{100 * _mean([row['standard_error'] for row in rows]):.1f}",
            f"{100 * _mean(top):.1f}" if top else NOTHING,
        ]
        lines.append(columns)
    return page(table(heads, lines))


def counts_table(content: results.ResultFile) -> str:
    """Writes a row for each number of examples of SST-2: the defaults, the options before them, and SetFit."""
    cells = [cell for cell in _cells(content) if cell["data"] == "sst2"]
    heads = [">Examples", ">`finetune`", ">before", ">SetFit", ">Standard error of the test"]
    lines = []
    for count in sorted({cell["examples_given"] for cell in cells}, key=lambda count: count or math.inf):
        rows = [cell for cell in cells if cell["examples_given"] == count]
        variants = _COUNTED if count else _COUNTED_OF_ALL
        columns = [str(count) if count else "all, 1 epoch"]
        for variant in variants:
            scores = [cell["score"] for cell in rows if cell["variant"] == variant]
            columns.append(_spread(scores) if scores else NOTHING)
        errors = [cell["standard_error"] for cell in rows if cell["variant"] == variants[0]]
        lines.append([*columns, f"{100 * _mean(errors):.1f}"])
    return page(table(heads, lines))


def variants_table(content: results.ResultFile) -> str:
    """Writes a row for each variant, for seed 0."""
    cells = [
        cell
        for cell in _cells(content)
        if cell["seed"] == 0 and cell["examples_given"] == _EXAMPLES and cell["variant"] != "setfit"
    ]
    varied = list(dict.fromkeys(cell["data"] for cell in cells if cell["variant"] != _DEFAULTS))
    lines = []
    for variant in dict.fromkeys(cell["variant"] for cell in cells):
        scores = {cell["data"]: cell["score"] for cell in cells if cell["variant"] == variant}
        row = [f"{100 * scores[name]:.1f}" if name in scores else NOTHING for name in varied]
        lines.append([variant, *row])
    return page(table(["Options", *(f">{name}" for name in varied)], lines))


def _cells(content: results.ResultFile) -> list[dict[str, Any]]:
    return [json.loads(note) for note in content.notes if note.startswith("{")]


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values)


def _spread(values: Sequence[float]) -> str:
    deviation = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * _mean(values):.1f}{deviation}"
