"""Tables of the bake-off: every row of every cell, what each method won, and the regret of `pocketbert compress`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pocketbert_bench import results
from studies.bake_off import rows_of
from studies.bake_off_cells import COMPRESS, FINETUNE, TASKS, all_cells, key_of
from studies.tables.render import NOTHING, bullets, page, table

# Names of methods in tables.
_NAMES = {
    FINETUNE: "fine-tuning",
    "predictions": "the teacher's predictions",
    "predictions+unlabelled": "the teacher's predictions, on unlabelled texts too",
    "tinybert": "TinyBERT",
    "minilmv2": "MiniLMv2",
    "hsk": "HSK",
    "efficientbert": "EfficientBERT",
    "embedding": "the teacher's vectors",
    COMPRESS: "`pocketbert compress`",
}
Row = Mapping[str, Any]
# Task and limit of a cell → method → its rows, one for each seed.
Cells = Mapping[tuple[str, float], Mapping[str, Sequence[Row]]]


def rows(content: results.ResultFile) -> str:
    """Each method of each cell with whole layers, the best first; means over seeds."""
    return page(_table(_cells(_scored(content, half_width=False))), bullets(_failures(content, half_width=False)))


def half_width(content: results.ResultFile) -> str:
    """Each method of each cell with half of the heads and neurons, the best first."""
    return page(_table(_cells(_scored(content, half_width=True))), bullets(_failures(content, half_width=True)))


def _failures(content: results.ResultFile, *, half_width: bool) -> list[str]:
    return [
        f"{row['task']}, {100 * row['share']:.0f} %, seed {row['seed']}, {method_name(row['method'])}: {row['failure']}"
        for row in rows_of(content)
        if "failure" in row and row["half_width"] == half_width
    ]


def _table(cells: Cells) -> list[str]:
    heads = [
        "Task",
        ">Limit",
        "Method",
        ">Score",
        ">Over fine-tuning",
        ">Points lost",
        ">ms",
        "Layers, heads, neurons",
        ">s",
        ">Seeds",
    ]
    lines = []
    for (task, share), methods in cells.items():
        for method in sorted(methods, key=lambda method: -_score(methods[method])):
            of_method = methods[method]
            lines.append(
                [
                    f"{task}, {of_method[0]['metric']}",
                    f"{100 * share:.0f} %",
                    _named(method, of_method),
                    f"{_score(of_method):.1f}",
                    _over_finetuning(of_method),
                    f"{_mean(of_method, lambda row: row['points_lost'][0]):.1f}",
                    f"{_mean(of_method, lambda row: row['latency_ms'][0]):.2f}",
                    "; ".join(dict.fromkeys(sizes(row) for row in of_method)),
                    f"{_mean(of_method, lambda row: row['seconds']):.0f}",
                    str(len(of_method)),
                ]
            )
    return table(heads, lines)


def winners(content: results.ResultFile) -> str:
    """What each method won, or its best row and the distance to the winner; and the regret of `compress`.

    The dev split chooses the structure of a method.
    """
    cells = _cells(_chosen_structures(content))
    best = {cell: max(map(_score, methods.values())) for cell, methods in cells.items()}
    lines = []
    for method, name in _NAMES.items():
        behind = {cell: best[cell] - _score(methods[method]) for cell, methods in cells.items() if method in methods}
        if not behind:
            continue
        won = [_cell_name(cell) for cell, points in behind.items() if points == 0]
        nearest = min(behind, key=lambda cell: behind[cell])
        distance = NOTHING if won else f"{_cell_name(nearest)}: {behind[nearest]:.1f} points behind"
        lines.append([name, f"{len(won)} of {len(behind)}", ", ".join(won) or NOTHING, distance])
    return page(table(["Method", ">Cells won", "Where", "Otherwise its best cell"], lines), bullets(_regrets(content)))


def _regrets(content: results.ResultFile) -> list[str]:
    """How many points `compress` is behind the method and structure that the dev split chooses."""
    scored = [row for row in rows_of(content) if "score" in row]
    by_run: dict[tuple[str, float, int], list[Row]] = {}
    for row in scored:
        by_run.setdefault((row["task"], row["share"], row["seed"]), []).append(row)
    regrets = {}
    for run, of_run in by_run.items():
        compressed = [row for row in of_run if row["method"] == COMPRESS]
        others = [row for row in of_run if row["method"] != COMPRESS]
        if compressed and others:
            best = max(row["dev_score"] for row in others)
            # Of equal ones, the dev split chooses none.
            chosen = [row["score"] for row in others if row["dev_score"] == best]
            regrets[run] = 100 * (float(np.mean(chosen)) - compressed[0]["score"])
    commits = ", ".join(sorted({str(row["commit"]) for row in scored}))
    finished = len({key_of(row) for row in scored})
    runs = [f"{finished} of {len(all_cells(TASKS))} runs of the study have finished, at commits {commits}"]
    if not regrets:
        return runs
    (task, share, seed), worst = max(regrets.items(), key=lambda item: item[1])
    by_limit: dict[float, list[float]] = {}
    for (_, limit, _), points in regrets.items():
        by_limit.setdefault(limit, []).append(points)
    limits = [f"{_ahead(of_limit)} at {100 * limit:.0f} %" for limit, of_limit in by_limit.items()]
    return [
        *runs,
        "compared with the method that the dev split chooses, `pocketbert compress` is "
        f"{_ahead([*regrets.values()])}: {', '.join(limits)}; its worst regret is {worst:+.1f} points: "
        f"{task}, {100 * share:.0f} %, seed {seed}",
    ]


def _ahead(regrets: Sequence[float]) -> str:
    """A mean regret in words."""
    mean = float(np.mean(regrets))
    runs = f"{len(regrets)} run" + "s" * (len(regrets) != 1)
    return f"{abs(mean):.2f} points {'behind' if mean >= 0 else 'ahead'} (mean of {runs})"


def _scored(content: results.ResultFile, *, half_width: bool) -> list[Row]:
    """The rows with a score and this kind of structure."""
    return [row for row in rows_of(content) if "score" in row and row["half_width"] == half_width]


def _chosen_structures(content: results.ResultFile) -> list[Row]:
    """Of each method's rows in a run, which differ in structure, the one with the best dev score."""
    chosen: dict[tuple[str, float, int, str], Row] = {}
    for row in [*_scored(content, half_width=False), *_scored(content, half_width=True)]:
        key = row["task"], row["share"], row["seed"], row["method"]
        if key not in chosen or row["dev_score"] > chosen[key]["dev_score"]:
            chosen[key] = row
    return list(chosen.values())


def _cells(scored: Sequence[Row]) -> Cells:
    cells: dict[tuple[str, float], dict[str, list[Row]]] = {}
    for row in scored:
        cells.setdefault((row["task"], row["share"]), {}).setdefault(row["method"], []).append(row)
    for methods in cells.values():
        # Means are over the seeds that all methods have.
        shared = set.intersection(*({row["seed"] for row in of_method} for of_method in methods.values()))
        for method, of_method in methods.items():
            methods[method] = [row for row in of_method if row["seed"] in shared]
    return {cell: methods for cell, methods in cells.items() if all(methods.values())}


def _cell_name(cell: tuple[str, float]) -> str:
    return f"{cell[0]} at {100 * cell[1]:.0f} %"


def _mean(of_method: Sequence[Row], value: Any) -> float:
    return float(np.mean([value(row) for row in of_method]))


def _score(of_method: Sequence[Row]) -> float:
    return 100 * _mean(of_method, lambda row: row["score"])


def _over_finetuning(of_method: Sequence[Row]) -> str:
    """The paired difference with its 95 % interval; over seeds, means of the ends, so it is rather too wide."""
    if any("points_to_finetuning" not in row for row in of_method):
        return NOTHING
    points, low, high = np.mean([row["points_to_finetuning"] for row in of_method], axis=0)
    return f"{points:+.1f} ({low:+.1f} to {high:+.1f})"


def sizes(row: Row) -> str:
    """Layers, heads and neurons of a row's structure."""
    parts = dict(part.split("=") for part in row["structure"].split(",") if "=" in part)
    return f"{len(parts['layers'].split('-'))}, {parts['heads']}, {parts['neurons']}"


def method_name(method: str) -> str:
    """Name of a method in tables."""
    return _NAMES.get(method, method)


def _named(method: str, of_method: Sequence[Row]) -> str:
    """The method; for `compress` also those that it chose."""
    if method != COMPRESS:
        return method_name(method)
    chosen = dict.fromkeys(method_name(row["winner_method"]) for row in of_method)
    return f"{_NAMES[COMPRESS]}: {', '.join(chosen)}"
