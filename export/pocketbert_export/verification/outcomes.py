"""Outcome for a bundle: its score beside its float model, teacher and simple baselines on the same examples."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketbert.data.examples import LabelledData, evenly
from pocketbert.tasks.mistakes import Mistake
from pocketbert.tasks.predictor import Predictor, model_predictor
from pocketbert.tasks.registry import supervised_task
from pocketbert.tasks.scores import Baseline, Scores
from pocketbert_export.checks.label_order import named
from pocketbert_export.checks.outputs import Check
from pocketbert_export.glue.scoring import labelled_evaluator
from pocketbert_runtime.json_reading import read_json, read_members

if TYPE_CHECKING:
    from pocketbert.data.task_data import TaskData
    from pocketbert.model import Model
    from pocketbert_export.bundles.bundle import Bundle

# Scoring more one by one, as a phone does, takes longer than all other export steps.
MOST_SCORED = 10_000
_RUN_FILE, _RESULT_FILE = "run.json", "result.json"
# The same arithmetic gives the same numbers, apart from how JSON rounds them.
_SAME = 1e-6
# Predictions that may change on another processor, where near ties fall otherwise.
_NEAR_TIES = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class BundleScores:
    """Scores on the same examples.

    Attributes:
      model: the float model's scores.
      bundle: the bundle's scores, with the float model's and the teacher's score and all baselines.
      mistakes: the bundle's wrong answers, the most certain first.
    """

    model: Scores
    bundle: Scores
    mistakes: tuple[Mistake, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoringData:
    """Labelled examples and how to score a network on them.

    Attributes:
      data: at most `MOST_SCORED` are scored, evenly spaced; labels in the order of the logits.
      metrics: the metrics' names; None for the task's.
      main_metric: the most important metric; None for the task's.
      data_task: the data's task name, if the network's task has no name or another one.
      windows: the task's `window_options`.
    """

    data: LabelledData
    metrics: tuple[str, ...] | None = None
    main_metric: str | None = None
    data_task: str | None = None
    windows: Mapping[str, int | None] = dataclasses.field(default_factory=dict)

    @classmethod
    def of_dev(cls, data: TaskData) -> ScoringData:
        """The dev split, with the data's metrics."""
        return cls(data=data.dev, metrics=tuple(data.metrics) or None, main_metric=data.main_metric or None)

    @property
    def scored(self) -> LabelledData:
        """The scored examples."""
        if len(self.data) <= MOST_SCORED:
            return self.data
        chosen: LabelledData = self.data.select(evenly(len(self.data), MOST_SCORED))
        return chosen

    def score(self, predictor: Predictor) -> tuple[Scores, list[Mistake]]:
        """Scores a network; also returns its wrong answers."""
        config = named(predictor.task.config, self.data_task)
        evaluator = labelled_evaluator(predictor, self.scored, config, metrics=self.metrics)
        return evaluator.scores(self.main_metric), evaluator.mistakes()


def score_both(
    bundle: Bundle, model: Model, examples: ScoringData, directory: str | os.PathLike[str] | None
) -> BundleScores:
    """Scores a bundle and its float model with the same windows; `directory` is the model's, None for one in memory."""
    windows: dict[str, Any] = {"max_length": max(bundle.lengths), **examples.windows}
    of_model, _ = examples.score(model_predictor(model, **windows))
    of_bundle, mistakes = examples.score(bundle.predictor(**windows))
    stored = recorded(_run_folder(directory), examples.data, of_bundle)
    return BundleScores(
        model=dataclasses.replace(of_model, **stored),
        bundle=dataclasses.replace(of_bundle, float_model=of_model.score, **stored),
        mistakes=tuple(mistakes),
    )


def recorded(run_folder: Path | None, data: LabelledData, scores: Scores) -> dict[str, Any]:
    """Reads simple baselines and the teacher's score from a run's record, as fields for `Scores`.

    Empty if the run was scored on other examples than `data`, or by another metric than in `scores`. If `data` are the
    run's training examples, a note says so.
    """
    if run_folder is None or not (run_folder / _RUN_FILE).is_file():
        return {}
    path = run_folder / _RUN_FILE
    digests = {"train_sha256": str | None, "dev_sha256": str | None}
    run = read_members(read_json(path), {**digests, "outcome": dict[str, Any] | None}, str(path))
    if run["train_sha256"] == data.identity != run["dev_sha256"]:
        return {"notes": ("the model was trained on these examples, so the scores are too high; use other examples",)}
    if run["dev_sha256"] != data.identity:
        return {}
    outcome, result_path = run["outcome"], run_folder / _RESULT_FILE
    if result_path.is_file():
        result = read_members(read_json(result_path), {"outcome": dict[str, Any] | None}, str(result_path))
        outcome, path = result["outcome"] or outcome, result_path if result["outcome"] else path
    if not outcome:
        return {}
    kinds = {"metric": str, "baselines": list[_Method], "teacher": float | None}
    stated = read_members(outcome, kinds, f"{path}: outcome")
    if stated["metric"] != scores.main_metric:
        return {}
    return {"baselines": _simple(outcome, scores), "teacher": stated["teacher"]}


@dataclasses.dataclass(frozen=True)
class _Method:
    """A simple method in an outcome."""

    name: str
    score: float


def _run_folder(model_directory: str | os.PathLike[str] | None) -> Path | None:
    """The folder of the run that wrote a model directory; None for a model in memory."""
    return None if model_directory is None else Path(model_directory).resolve().parent


def to_json(scores: Scores, examples: ScoringData) -> dict[str, Any]:
    """Returns the field `outcome` for `bundle.json`."""
    windows = {name: value for name, value in examples.windows.items() if value is not None}
    outcome = {**scores.outcome(), "examples_sha256": examples.data.identity}
    return outcome | {"windows": windows} if windows else outcome


def check(
    bundle: Bundle,
    reference: Model | None,
    examples: LabelledData,
    *,
    data_task: str | None = None,
    directory: str | os.PathLike[str] | None = None,
    exact: bool = True,
) -> Check:
    """Computes the recorded outcome again and compares all of it.

    Args:
      bundle: a bundle with an outcome.
      reference: its float model, or None.
      examples: labelled examples. Others than those of the outcome are not compared.
      data_task: name of the data's task, if the bundle's task has no name or another one.
      directory: folder of the model in its run, which has the baselines and the teacher's score; None if unknown.
      exact: whether this machine gives bit-identical outputs to the golden ones.
    """
    outcome = bundle.outcome
    assert outcome is not None
    metric, source = outcome["metric"], f"on the {outcome['examples']} examples of bundle.json's outcome"
    if examples.identity != outcome["examples_sha256"]:
        reason = f"{metric} {outcome['score']:.4f} {source} is not compared, since these are other examples"
        return Check(name="outcome", passed=True, reason=reason)
    scoring_data = ScoringData(
        data=examples, metrics=(metric,), main_metric=metric, data_task=data_task, windows=outcome.get("windows", {})
    )
    windows: dict[str, Any] = {"max_length": max(bundle.lengths), **scoring_data.windows}
    scores, _ = scoring_data.score(bundle.predictor(**windows))
    stored = {"baselines": _simple(outcome, scores), "teacher": outcome["teacher"]}
    stored |= recorded(_run_folder(directory), examples, scores)
    float_model = outcome["float_model"]
    if reference is not None:
        float_model = scoring_data.score(model_predictor(reference, **windows))[0].score
        recorded_model = outcome["float_model"]
        cuts = reference.task is not None and not supervised_task(reference.task).window_options
        if cuts and recorded_model is not None and abs(float_model - recorded_model) > _NEAR_TIES / scores.examples:
            # Earlier commits scored the float model on whole texts.
            whole = scoring_data.score(model_predictor(reference, "the model", **scoring_data.windows))[0].score
            float_model = min(whole, float_model, key=lambda score: abs(score - recorded_model))
    scores = dataclasses.replace(scores, float_model=float_model, **stored)
    tolerance = _SAME if exact else _NEAR_TIES / scores.examples
    problems = _differences(outcome, scores, tolerance, _NEAR_TIES / scores.examples)
    reason = f"{metric} {scores.score:.4f} {source}"
    if problems:
        reason += f", but bundle.json says otherwise: {'; '.join(problems)}"
    difference = abs(outcome["score"] - scores.score)
    return Check(name="outcome", passed=not problems, measured=difference, bound=tolerance, reason=reason)


def _differences(outcome: Mapping[str, Any], scores: Scores, tolerance: float, tolerance_of_model: float) -> list[str]:
    """Lists an outcome's fields that differ from scores on the same examples."""
    expected = scores.outcome()
    problems = []

    def compare(name: str, left: float | None, right: float | None, most: float) -> None:
        known = left is not None and right is not None
        if (abs(left - right) > most) if known else (left is not right):  # type: ignore[operator]
            problems.append(f"{name} must be {_number(right)}; it is {_number(left)}")

    if outcome["examples"] != scores.examples:
        problems.append(f"examples must be {scores.examples}; received {outcome['examples']}")
    compare("score", outcome["score"], scores.score, tolerance)
    compare("float_model", outcome["float_model"], scores.float_model, tolerance_of_model)
    compare("teacher", outcome["teacher"], scores.teacher, _SAME)
    for index, side in enumerate(("lower", "upper")):
        ends = [None if each is None else each[index] for each in (outcome["interval"], scores.interval)]
        compare(f"{side} end of the interval", ends[0], ends[1], tolerance)
    names = [each["name"] for each in outcome["baselines"]]
    if names != [each["name"] for each in expected["baselines"]]:
        right = ", ".join(each["name"] for each in expected["baselines"])
        problems.append(f"baselines must be {right or 'none'}; received {', '.join(names) or 'none'}")
    else:
        for given, each in zip(outcome["baselines"], expected["baselines"], strict=True):
            compare(each["name"], given["score"], each["score"], _SAME)
    if problems:
        return problems
    # With the recorded numbers, which may differ by near ties, words must follow exactly.
    interval = None if outcome["interval"] is None else tuple(outcome["interval"])
    numbers = {"interval": interval, "float_model": outcome["float_model"]}
    words = dataclasses.replace(scores, metrics={scores.main_metric: outcome["score"]}, **numbers).outcome()
    return [f"{name} must be {words[name]!r}" for name in ("verdict", "headline") if outcome[name] != words[name]]


def _simple(outcome: Mapping[str, Any], scores: Scores) -> tuple[Baseline, ...]:
    """An outcome's baselines without the constant answer, which stands first if the task has one."""
    simple = outcome["baselines"][1 if scores.baseline else 0 :]
    return tuple(Baseline(name=baseline["name"], score=baseline["score"]) for baseline in simple)


def _number(value: float | None) -> str:
    return "null" if value is None else f"{value:.4f}"
