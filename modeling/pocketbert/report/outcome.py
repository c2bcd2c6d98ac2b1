"""The outcome of a model or bundle for a page: score, interval, baselines, and the loss against others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from pocketbert.notation import argument

Verdict = Literal["good", "no better than the baseline", "below the baseline", "not learned"]
# Verdicts as readers see them.
VERDICT_WORDS: Mapping[Verdict, str] = {
    **{verdict: verdict for verdict in get_args(Verdict)},
    "not learned": "not learned from this many examples",
}
# File names that say nothing about their content.
_GENERIC = ("train", "training", "dev", "valid", "validation", "test", "data", "examples", "questions")


class Compared(NamedTuple):
    """Another method on the same examples.

    Attributes:
      name: the method's name.
      score: its main metric, as a fraction of one.
      points: the model's advantage, in points.
      better: whether the method is better than the model.
    """

    name: str
    score: float
    points: str
    better: bool


def no_outcome(quote: str = "") -> str:
    """Replaces an unknown score; `quote` stands around the option."""
    option = f"{quote}{argument('examples', ..., of='export')}{quote}"
    return f"No score: export with {option}, your labelled examples, to see it."


def view(name: str, outcome: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns values for the macro `outcome` in `parts.html`."""
    if outcome is None:
        return {"name": name, "hint": no_outcome()}
    score = outcome["score"]
    others = [("float model", outcome.get("float_model")), ("teacher", outcome["teacher"])]
    others += [(baseline["name"], baseline["score"]) for baseline in outcome["baselines"]]
    return {
        "name": name,
        "hint": "",
        "metric": metric_name(outcome["metric"]),
        "score": score,
        "examples": outcome["examples"],
        "interval": outcome["interval"],
        "folds": outcome.get("folds", ()),
        "verdict": outcome["verdict"],
        "verdict_words": VERDICT_WORDS[outcome["verdict"]],
        "compared": [
            Compared(other[:1].upper() + other[1:], value, points(score - value), value > score)
            for other, value in others
            if value is not None
        ],
        "warnings": outcome["warnings"],
    }


def metric_name(metric: str) -> str:
    """Names a metric for readers: macro-F1, exact match."""
    return metric.replace("_f1", "-f1").replace("f1", "F1").replace("_", " ")


def points(difference: float) -> str:
    """Formats a difference between two scores in points: +1.2, −0.4, 0.0."""
    rounded = f"{100 * difference:+.1f}"
    return "0.0" if float(rounded) == 0 else rounded.replace("-", "\N{MINUS SIGN}")


def data_name(source: str) -> str:
    """Names a data set for a title: its file without extension, after the folder's name if it says nothing."""
    path = Path(source)
    if not path.suffix:
        return path.name or source
    generic = path.stem.lower() in _GENERIC and path.parent.name
    return f"{path.parent.name}, {path.stem}" if generic else path.stem
