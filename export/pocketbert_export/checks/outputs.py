"""Checks in the verification gate: pure functions on outputs and counts.

**Relative differences.** Each difference is divided by the reference's root mean square. One bound then serves networks
with logits near 0.1 and near 10. A constant in all outputs would inflate this scale and hide errors. If a constant has
no meaning for the task, outputs are therefore compared raw and centred, each on its own scale, and the larger
difference counts. Classification is centred over each text's classes, because softmax ignores a constant; regression
over the texts and spans over the tokens, because only differences matter there. Rounding grows with the sums in a
score, not with the spread between scores (a random network: 0.0033 of the spread in float16). So the scale for centred
scores is at least a quarter of the raw scale; `sensitivity` checks the rest.

**Spans.** The largest of thousands of normal differences is four times their root mean square, and so are the bounds.
A question has a start and an end logit for each token, so a data set has hundreds of thousands, and int8's differences
have heavier tails. With integers, the bound for the largest one is therefore twice as large (`span_factor`).

**Embeddings.** One feature in a vector has no meaning alone, and some have heavy tails. Each text counts with the root
mean square over its features. The mean cosine to the float model's vector has its own bound.

**Lengths.** A text meets the same weights at each length. Only the order of summation differs (`float32` bound). With
int8, a difference in the last bit may move an activation by one step, 1/255 of its range.

**Own outputs.** A file must reproduce its own golden outputs (`own_difference`) on another processor, with sums in
another order: ten times the rounding bound in floats; a tenth with int8, because in every layer some values cross a
rounding boundary, 1/255 of their range.

**Responses.** A regression compares how much the outputs move when the text changes (`sensitivity`) or the segment ids
change (`segments`). With x the float model's changes and y the file's, y = slope·x + rest. The slope is 0 if the file
ignores an input, -1 if it responds with the opposite sign, and 1 under rounding, whose noise goes into the rest. Over n
texts, the slope's standard error is |rest| / (|x|·sqrt(n - 1)). A check fails if the slope differs from 1 by more than
0.5 plus four standard errors. Normal noise exceeds four once in 16,000 times. No recipe needs its own bound, because
the error grows with int8's noise. Changes in the float model below 2.5e-5 of its outputs are float32 rounding and not
compared. Segments change all texts in the same direction. Rounding in this direction goes into the slope, not the rest,
so `segments` also allows the unchanged outputs' root mean square difference.

**Metric.** The metric may drop by some points, or by as many correct predictions as chance explains. Take the n
examples predicted correctly by only one model, original or bundle. An equally good bundle wins and loses equally many,
and the difference has the standard deviation sqrt(n) (McNemar 1947). `dynamic_wi8` may lose 2·sqrt(n); for small n this
is the exact sign test at 5 %: four lost and none won pass, but five lost, or seven lost and one won, fail. With the
6x384 network, n is 1 to 2.5 % of the examples: MRPC lost six of 408 and won two, CoLA lost seven of 1,043 and won four,
SQuAD 1.1 lost thirteen of 853 and won seven; no difference is significant. At the gate's maximum, 3,000 examples, both
bounds agree: 2·sqrt(60) = 15 predictions are half a point. `float32` and `float16` hardly change the outputs, so chance
is no excuse: they may lose one correct prediction, in a small set any number of points.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np

from pocketbert.recipes import RECIPES, Bounds
from pocketbert.tasks.base import Task
from pocketbert.tasks.metrics import root_mean_square
from pocketbert.tasks.registry import TASKS
from pocketbert_runtime.answers.vectors import cosines

Outputs = Mapping[str, np.ndarray]
OWN_OUTPUTS = "goldens: outputs at export"
# Part of the float model's change that may be missing or in excess, on top of four standard errors.
_MOST_MISSING, _STANDARD_ERRORS = 0.5, 4.0


def token_outputs() -> set[str]:
    """Names the outputs whose second axis counts tokens; their values at padding are not compared."""
    # The masked-LM head has the second one; it predicts no answer per token.
    return {"sequence_output", "prediction_logits"} | {
        name for task in TASKS.values() if task.per_token for name in task.output_names
    }


def is_token_output(name: str) -> bool:
    """Whether an output's second axis counts tokens; with several heads, `name` begins with the head's name."""
    return _is_one_of(name, token_outputs())


def _is_one_of(name: str, names: Collection[str]) -> bool:
    return not {name, name.partition("_")[2]}.isdisjoint(names)


class ScoredOutputs(NamedTuple):
    """Scores for a set of outputs.

    Attributes:
      metric: the task's metric, as a fraction.
      right: `[n]`, correctness of each prediction, 0 to 1; None for scores, which are neither right nor wrong.
    """

    metric: float
    right: np.ndarray | None


@dataclass(frozen=True, kw_only=True)
class Check:
    """A check's result.

    Attributes:
      name: the check's name.
      passed: whether `measured` is within `bound`. A metric also passes by its correct predictions; see `reason`.
      measured: the measured value; None if it is not a number.
      bound: the limit for `measured`; None for yes-or-no checks.
      reason: one sentence about the measured value, valid for passed and failed checks.
      runtime: runtime that computed the outputs; None if nothing was executed.
      scores: the float model's and the bundle's metric, as fractions; None for other checks.
    """

    name: str
    passed: bool
    measured: float | None = None
    bound: float | None = None
    reason: str
    runtime: str | None = None
    scores: tuple[float, float] | None = None

    def to_json(self) -> dict[str, object]:
        """Returns the entry for `verification.json`."""
        recorded = asdict(self)
        return {name: value for name, value in recorded.items() if name != "scores" or value is not None}


def count_check(name: str, problems: Sized, reason: str) -> Check:
    """Returns a check, passed if there are no problems."""
    return Check(name=name, passed=not problems, measured=float(len(problems)), bound=0.0, reason=reason)


def check_finite(answers: Outputs) -> Check:
    """Checks for computed outputs: a runtime without support for a file may return zeros or NaN."""
    dead = [name for name, array in answers.items() if not np.isfinite(array).all() or not np.any(array)]
    reason = f"{', '.join(dead)}: all zero or not finite" if dead else "outputs are finite and not all zero"
    return count_check("finite", dead, reason)


def check_difference(
    reference: Outputs, answers: Outputs, bounds: Bounds, name: str = "logits", task: Task | None = None
) -> list[Check]:
    """Compares outputs with the float model's: largest difference and root mean square difference.

    `name` begins the checks' names. The task determines the centring; without one, only raw outputs are compared.
    """
    # The output nearest to its bound, or furthest beyond it.
    largest, most, rms = 0.0, bounds.largest_difference, 0.0
    for output, array in _differences(reference, answers, task):
        factor = bounds.span_factor if _is_one_of(output, TASKS["span"].output_names) else 1.0
        measured, bound = float(array.max(initial=0.0)), bounds.largest_difference * factor
        largest, most = max((largest, most), (measured, bound), key=lambda pair: _nan_last(pair[0] / pair[1]))
        rms = max(rms, float(np.sqrt(np.mean(np.square(array)))), key=_nan_last)
    count = len(next(iter(reference.values()), ()))
    reason = f"difference from the float model on {count:,} inputs, relative to the RMS of its outputs"
    return [
        _bounded(f"{name}: largest difference", largest, most, reason),
        _bounded(f"{name}: RMS difference", rms, bounds.rms_difference, reason),
    ]


def check_own_answers(recorded: Outputs, answers: Outputs, bounds: Bounds, task: Task | None = None) -> Check:
    """Checks that the file reproduces its own golden outputs."""
    reason = "largest difference from the file's own outputs at export, relative to their RMS"
    return _bounded(OWN_OUTPUTS, _largest(_differences(recorded, answers, task)), bounds.own_difference, reason)


def check_response(
    name: str, what: str, reference: Outputs, answers: Outputs, scales: Outputs, rounding: Outputs | None = None
) -> Check:
    """Compares changes in the outputs with the float model's by the regression in the module docstring.

    Args:
      name: the check's name.
      what: the changed input.
      reference: the float model's changes, by output `[n, ...]`.
      answers: the bundle's changes.
      scales: the float model's outputs; tiny changes in comparison are rounding.
      rounding: differences between the unchanged outputs, if one rounding error can change all texts alike, else None.
    """
    worst, slope = 0.0, 1.0
    for output, expected in reference.items():
        x, y = (np.asarray(part[output], np.float64).ravel() for part in (reference, answers))
        energy = float(x @ x)
        float_rounding = RECIPES["float32"].bounds.rms_difference * root_mean_square(scales[output])
        if len(expected) < 2 or math.sqrt(energy / x.size) <= float_rounding:
            continue
        response = float(x @ y) / energy
        rest = y - response * x
        error = math.sqrt(float(rest @ rest) / energy / (len(expected) - 1))
        common = root_mean_square(rounding[output]) / math.sqrt(energy / x.size) if rounding else 0.0
        wrong = max(0.0, abs(1 - response) - _STANDARD_ERRORS * error - common)
        if not wrong <= worst:
            worst, slope = wrong, response
    reason = (
        f"a change of {what} moves the outputs {slope:.3g} times as far as in the float model; "
        "measured: difference from 1, beyond rounding noise"
    )
    return _bounded(name, worst, _MOST_MISSING, reason)


def deviations(outputs: Outputs, task: Task | None) -> dict[str, np.ndarray]:
    """Centres outputs, then subtracts the mean over the texts."""
    return {name: array - array.mean(axis=0) for name, array in centred(outputs, task).items()}


def centred(outputs: Outputs, task: Task | None) -> dict[str, np.ndarray]:
    """Converts outputs to float64 and removes the constant without meaning for the task; see the module docstring."""
    exact = {name: np.asarray(array, np.float64) for name, array in outputs.items()}
    return exact if task is None else {name: task.of_output(name).centred(array) for name, array in exact.items()}


def check_labels(
    task: Task, reference: np.ndarray, answers: np.ndarray, bounds: Bounds, head: str = ""
) -> Check | None:
    """Compares decisions by logits `[n, ...]`, except the float model's near ties; None if the task makes none.

    A change by `bounds.rms_difference` can turn a near tie. `head` names one head among several.
    """
    decisions = task.decisions(reference, answers, bounds.rms_difference)
    if decisions is None:
        return None
    same, near_tie, counted = decisions
    agreement = float(np.mean(same | near_tie))
    reason = (
        f"{int(same.sum()):,} of {same.size:,} {counted} match the float model; "
        f"{int((~same & near_tie).sum()):,} others are near ties"
    )
    least = bounds.label_agreement
    name = f"labels: {head}" if head else "labels"
    return Check(name=name, passed=agreement >= least, measured=agreement, bound=least, reason=reason)


def check_metric(
    name: str, num_examples: int, reference: ScoredOutputs, answers: ScoredOutputs, bounds: Bounds
) -> Check:
    """Checks that the metric drops by at most the bound, or by no more correct predictions than chance explains.

    Correct predictions count as in accuracy, because one may be worth 0.1 points in F1 or 0.4 points in Matthews
    correlation. If none is lost and F1 drops, predictions have moved between classes; `check_labels` bounds their
    number. In a correlation, a mean over the examples, one example's share is worth one prediction. `reference` and
    `answers` score the examples in the same order.
    """
    drop = 100 * (reference.metric - answers.metric)
    reason = (
        f"{name} on {num_examples:,} examples: {100 * reference.metric:.2f} with the float model, "
        f"{100 * answers.metric:.2f} with the bundle; measured: drop in points"
    )
    if reference.right is None or answers.right is None:
        bound, passed = max(bounds.metric_drop_points, 100 / num_examples), False
    else:
        change = reference.right - answers.right
        most = max(1.0, bounds.metric_drop_deviations * float(np.sqrt(np.sum(np.square(change)))))
        bound, passed = bounds.metric_drop_points, bool(change.sum() <= most + 1e-9)
        lost, won = np.maximum(change, 0).sum(), np.maximum(-change, 0).sum()
        reason += f"; correct predictions: {lost:.4g} lost, {won:.4g} won; a net loss of {most:.2g} may be chance"
    return Check(
        name="metric",
        passed=passed or bool(drop <= bound + 1e-9),
        measured=drop,
        bound=bound,
        reason=reason,
        scores=(reference.metric, answers.metric),
    )


def check_angles(reference: Outputs, answers: Outputs, bounds: Bounds) -> Check:
    """Checks the mean cosine between the float model's and the bundle's embeddings `[n, d]`."""
    (name,) = reference
    angles = cosines(reference[name], answers[name])
    degrees = float(np.degrees(np.arccos(np.clip(angles, -1.0, 1.0))).max(initial=0.0))
    mean, least = float(angles.mean()), bounds.mean_cosine
    reason = f"mean cosine to the float model's embedding, {len(angles):,} texts; largest angle {degrees:.2f} degrees"
    return Check(name="angle", passed=mean >= least, measured=mean, bound=least, reason=reason)


def check_padding(answers: Outputs, answers_with_noise: Outputs) -> Check:
    """Checks that the padding's content changes no bit: it is masked before any sum."""
    largest = max(
        (float(np.max(np.abs(array - answers_with_noise[name]), initial=0.0)) for name, array in answers.items()),
        default=0.0,
    )
    return _bounded("padding", largest, 0.0, "largest change with random ids and segments in the padding")


def check_lengths(answers_by_length: Mapping[int, Outputs], bounds: Bounds, task: Task | None = None) -> Check:
    """Checks that a text has the same outputs at every length it fits."""
    lengths = sorted(answers_by_length)
    first = answers_by_length[lengths[0]]
    others = (_largest(_differences(first, answers_by_length[length], task)) for length in lengths[1:])
    largest = max(others, default=0.0, key=_nan_last)
    reason = (
        f"largest difference between lengths {', '.join(map(str, lengths))} for the same texts, relative to the RMS"
    )
    return _bounded("lengths", largest, bounds.length_difference, reason)


def real_values(outputs: Outputs, mask: np.ndarray) -> dict[str, np.ndarray]:
    """Removes padding: `[n, s, ...]` per token becomes `[tokens, ...]`; `mask` is `[n, s]`, 1 = token."""
    return {
        name: array[mask == 1] if is_token_output(name) and array.shape[1:2] == mask.shape[1:] else array
        for name, array in outputs.items()
    }


def join(parts: Sequence[Outputs]) -> dict[str, np.ndarray]:
    """Concatenates outputs from several calls."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _differences(reference: Outputs, answers: Outputs, task: Task | None) -> Iterator[tuple[str, np.ndarray]]:
    """Yields each output's relative differences, raw and centred; one NaN if the shapes or names differ."""
    if any(name not in answers or answers[name].shape != expected.shape for name, expected in reference.items()):
        yield "", np.array([math.nan])
        return
    same_names = {name: answers[name] for name in reference}
    views = [(reference, same_names)]
    if task is not None:
        views.append((centred(reference, task), centred(same_names, task)))
    for expected, received in views:
        for name, values in expected.items():
            floor = root_mean_square(reference[name]) * (task.of_output(name).least_centred_scale if task else 0.0)
            difference = np.abs(received[name].astype(np.float64) - values) / max(root_mean_square(values), floor)
            if task is not None and task.has_vectors:
                difference = np.sqrt(np.mean(np.square(difference), axis=-1))
            yield name, difference


def _largest(differences: Iterable[tuple[str, np.ndarray]]) -> float:
    return max((float(array.max(initial=0.0)) for _, array in differences), default=0.0, key=_nan_last)


def _nan_last(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _bounded(name: str, measured: float, bound: float, reason: str) -> Check:
    if not math.isfinite(measured):
        return Check(
            name=name, passed=False, bound=bound, reason=f"{reason}: outputs are not finite or differ in shape"
        )
    return Check(name=name, passed=measured <= bound, measured=measured, bound=bound, reason=reason)
