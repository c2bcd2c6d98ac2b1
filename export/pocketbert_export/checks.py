"""Checks of the verification gate: pure functions of counts and outputs.

Differences between answers are divided by the root mean square of the reference's, so that one bound serves
a network whose logits are near 0.1 and one whose logits are near 10. A constant in all answers would make that scale
large and hide everything else, so answers with a constant that means nothing are compared twice, as they are and
centred, each on its own scale, and the larger difference counts. Softmax ignores a constant in a text's logits:
classification is centred over the classes of each text. A score or a token's logit says something by how it differs
from the others: regression is centred over the texts, spans over the tokens. Rounding follows the size of the sums that
make a score, and not how much scores of a few texts happen to differ (measured with a random network: 0.0033 of the
spread in float16). So the scale of centred scores is at least a quarter of the scores' own; `varies` judges the rest.

Where the bounds come from (u is the relative step of a number format, r the rounding's root mean square):

- `float32`: u = 2^-24. A sum of 1,000 products errs by about sqrt(1000)·u, so a layer by 2e-6 at most, and 24
  layers by less than 1e-4 if their errors all add up.
- `float16`: weights are rounded once, r = 2^-11/sqrt(3) = 2.8e-4 of each; a linear map then errs by r of its
  output, and some 100 maps after one another by sqrt(100)·r = 3e-3. The largest of thousands of answers is about
  4 times the root mean square: 1e-2.
- `dynamic_wi8`: a weight row of normal values whose largest is 4 deviations has steps of 4/127, r = 4/(127·sqrt(12))
  = 0.9 %; an activation row whose largest is 8 deviations 1.8 %: 2 % a linear map together. Residual connections
  halve what the next ones see; 36 of them (six layers) leave 6 %. The bound on the root mean square is 15 %, and on
  the largest answer four times that.

Between the lengths of one bundle the same text meets the same weights: only the order of summation differs
(`float32` bound); with int8, a difference in the last bit may move an activation by one step of 1/255 of its range.

The same file gives its own golden answers again (`own_difference`), on another processor with sums in another order:
ten times the rounding bound in floats; with int8 a tenth, since a value that moves across a rounding boundary of 1/255
of its range does so in every layer.

Changes are compared by regression: how far the answers move when the text changes (`varies`), or when the segment ids
change (`segments`). With x the float model's changes and y the file's, y = slope·x + rest. A file that ignores what it
should read has slope 0 exactly, whatever the scale; one that answers with the opposite sign -1; rounding leaves 1 and
puts its noise into the rest. The standard error of the slope over n texts is |rest| / (|x|·sqrt(n - 1)). A check fails
if the slope lies further than 0.5 from 1 by more than four standard errors, which chance does once in 16,000 for
normal noise, so it needs no bound for each recipe: where int8's noise is as large as the change, the error is too.
Changes of the float model below 2.5e-5 of its answers are float32's rounding, and are not compared.

The metric may drop by a number of points, or by so many right answers that it says nothing yet. Take the n examples
that only one of model and bundle answers rightly: a bundle that is no worse turns as many wrong answers right as
right ones wrong, but for chance, and the difference of the two counts has a standard deviation of sqrt(n) (McNemar
1947). `dynamic_wi8` may lose 2·sqrt(n), which for a few answers is the exact sign test at 5 %: four lost and none won
pass, five do not, nor do seven against one. Measured with the 6x384 network, n is 1 to 2.5 % of the examples: of
MRPC's 408 six lost and two won, of CoLA's 1,043 seven and four, of SQuAD 1.1's 853 thirteen and seven; none of that
tells int8 from float. On the 3,000 examples that the gate takes at most, the two bounds meet: 2·sqrt(60) = 15 answers
are half a point. `float32` and `float16` change next to nothing, so that chance excuses nothing: one right answer,
which in a small set is more than any number of points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np

from pocketbert.tasks.base import Task
from pocketbert.tasks.metrics import root_mean_square

Outputs = Mapping[str, np.ndarray]
# Outputs whose second axis counts tokens; what they hold at padding is nobody's concern.
TOKEN_OUTPUTS = ("sequence_output", "start_logits", "end_logits", "prediction_logits")
# A share of the float model's change that may be missing or too much; four standard errors more may be rounding.
_MOST_MISSING, _STANDARD_ERRORS = 0.5, 4.0


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Bounds on the differences between a bundle and the float model. Differences are relative (see the module).

    Attributes:
      largest_difference: of any one logit.
      rms_difference: root mean square over all logits.
      label_agreement: smallest share of examples with the reference's label; near ties count as agreeing.
      metric_drop_points: largest loss of the task's metric, in hundredths, if more right answers are lost than may be.
      metric_drop_deviations: so many right answers may be lost, as standard deviations of chance; one always.
      length_difference: largest difference between two lengths of the same bundle.
      own_difference: largest difference from the golden answers that the file itself gave at export.
      bytes_per_weight: of a matrix.
    """

    largest_difference: float
    rms_difference: float
    label_agreement: float
    metric_drop_points: float
    metric_drop_deviations: float
    length_difference: float
    own_difference: float
    bytes_per_weight: int


BOUNDS: dict[str, Bounds] = {
    "float32": Bounds(
        largest_difference=1e-4,
        rms_difference=2.5e-5,
        label_agreement=1.0,
        metric_drop_points=0.0,
        metric_drop_deviations=0.0,
        length_difference=1e-4,
        own_difference=1e-3,
        bytes_per_weight=4,
    ),
    "float16": Bounds(
        largest_difference=1e-2,
        rms_difference=3e-3,
        label_agreement=0.995,
        metric_drop_points=0.1,
        metric_drop_deviations=0.0,
        length_difference=1e-4,
        own_difference=1e-3,
        bytes_per_weight=2,
    ),
    "dynamic_wi8": Bounds(
        largest_difference=0.6,
        rms_difference=0.15,
        label_agreement=0.97,
        metric_drop_points=0.5,
        metric_drop_deviations=2.0,
        length_difference=0.05,
        own_difference=0.1,
        bytes_per_weight=1,
    ),
}


class Scored(NamedTuple):
    """Scores of some outputs.

    Attributes:
      metric: the task's, as a part of 1.
      right: `[n]`, how right each answer is, 0 to 1; None where answers are neither right nor wrong (scores).
    """

    metric: float
    right: np.ndarray | None


@dataclass(frozen=True, kw_only=True)
class Check:
    """One question and its answer.

    Attributes:
      name: what was asked.
      passed: whether `measured` is within `bound`; a metric passes, too, by its right answers, which `reason` counts.
      measured: the figure; None where it is not a number.
      bound: what it is held against; None for yes and no.
      reason: one sentence, true whether it passed or not.
      runtime: where the answers came from; None if nothing was executed.
    """

    name: str
    passed: bool
    measured: float | None
    bound: float | None
    reason: str
    runtime: str | None = None

    def to_json(self) -> dict[str, object]:
        """For `verification.json`."""
        return asdict(self)


def check_alive(answers: Outputs) -> Check:
    """A runtime that does not understand a file may answer nothing but zeros, or no numbers."""
    dead = [name for name, array in answers.items() if not np.isfinite(array).all() or not np.any(array)]
    reason = f"{', '.join(dead)}: all zero or not finite" if dead else "all answers are finite and not all are zero"
    return Check(name="alive", passed=not dead, measured=float(len(dead)), bound=0.0, reason=reason)


def check_difference(
    reference: Outputs, answers: Outputs, bounds: Bounds, name: str = "logits", task: Task | None = None
) -> list[Check]:
    """The answers are the float model's: the largest difference and the root mean square of all.

    Args:
      reference: the float model's answers.
      answers: the bundle's.
      bounds: the largest and the root mean square difference.
      name: what is compared.
      task: says what is centred.
    """
    largest, rms = _differences(reference, answers, task)
    count = len(next(iter(reference.values()), ()))
    reason = f"from the float model's, over {count:,} rows, as a part of their root mean square"
    return [
        _bounded(f"{name}: largest difference", largest, bounds.largest_difference, reason),
        _bounded(f"{name}: root mean square difference", rms, bounds.rms_difference, reason),
    ]


def check_own_answers(recorded: Outputs, answers: Outputs, bounds: Bounds, task: Task | None = None) -> Check:
    """The file answers its golden examples as it did at export."""
    largest, _ = _differences(recorded, answers, task)
    reason = "the largest difference from the file's own golden answers, as a part of their root mean square"
    return _bounded("goldens: own answers", largest, bounds.own_difference, reason)


def check_response(name: str, what: str, reference: Outputs, answers: Outputs, scales: Outputs) -> Check:
    """The answers change as the float model's do; see the module for the regression.

    Args:
      name: the check's.
      what: what changes them.
      reference: the float model's changes, by output `[n, ...]`.
      answers: the bundle's.
      scales: answers of the float model: changes that are tiny beside them are rounding.
    """
    worst, slope = 0.0, 1.0
    for output, expected in reference.items():
        x, y = (np.asarray(part[output], np.float64).ravel() for part in (reference, answers))
        energy = float(x @ x)
        if len(expected) < 2 or math.sqrt(energy / x.size) <= BOUNDS["float32"].rms_difference * root_mean_square(
            scales[output]
        ):
            continue
        found = float(x @ y) / energy
        rest = y - found * x
        error = math.sqrt(float(rest @ rest) / energy / (len(expected) - 1))
        wrong = max(0.0, abs(1 - found) - _STANDARD_ERRORS * error)
        if not wrong <= worst:
            worst, slope = wrong, found
    reason = f"{what} moves the bundle's answers {slope:.3g} times as far as the float model's: the share that is wrong"
    return _bounded(name, worst, _MOST_MISSING, reason)


def deviations(outputs: Outputs, task: Task | None) -> dict[str, np.ndarray]:
    """Variation of outputs over texts: centred, and without their mean over the texts."""
    return {name: array - array.mean(axis=0) for name, array in centred(outputs, task).items()}


def centred(outputs: Outputs, task: Task | None) -> dict[str, np.ndarray]:
    """Answers without the constant that means nothing to the task, in float64; see the module."""
    exact = {name: np.asarray(array, np.float64) for name, array in outputs.items()}
    return exact if task is None else {name: task.centred(array) for name, array in exact.items()}


def check_labels(task: Task, reference: np.ndarray, answers: np.ndarray, bounds: Bounds) -> Check | None:
    """Compares decisions, except near ties of the float model; None if the task makes no decisions.

    Args:
      task: what the logits mean.
      reference: the float model's logits `[n, ...]`.
      answers: the bundle's.
      bounds: a near tie is one that a change by the allowed `rms_difference` turns.
    """
    decisions = task.decisions(reference, answers, bounds.rms_difference)
    if decisions is None:
        return None
    same, near_tie, counted = decisions
    agreement = float(np.mean(same | near_tie))
    reason = (
        f"of {same.size:,} {counted} {int(same.sum()):,} agree with the float model, "
        f"{int((~same & near_tie).sum()):,} others are near ties"
    )
    return Check(
        name="labels",
        passed=agreement >= bounds.label_agreement,
        measured=agreement,
        bound=bounds.label_agreement,
        reason=reason,
    )


def check_metric(name: str, num_examples: int, reference: Scored, answers: Scored, bounds: Bounds) -> Check:
    """The task's metric loses no more points than the bound, or no more right answers than chance would take.

    Right answers are those that accuracy counts, whatever the metric: one may be worth 0.1 points of F1 or 0.4 of
    Matthews correlation. Where none is lost and F1 drops, answers have moved between classes: `check_labels` bounds how
    many. A correlation of scores is a mean over the examples: one example's share of it is an answer's worth.

    Args:
      name: the metric's.
      num_examples: how many were scored.
      reference: the float model's answers.
      answers: the bundle's, in the same order.
      bounds: points and deviations.
    """
    drop = 100 * (reference.metric - answers.metric)
    reason = (
        f"{name} {100 * reference.metric:.2f} with the float model and {100 * answers.metric:.2f} with the bundle "
        f"on {num_examples:,} examples: a drop in points"
    )
    if reference.right is None or answers.right is None:
        bound, passed = max(bounds.metric_drop_points, 100 / num_examples), False
    else:
        change = reference.right - answers.right
        most = max(1.0, bounds.metric_drop_deviations * float(np.sqrt(np.sum(np.square(change)))))
        bound, passed = bounds.metric_drop_points, bool(change.sum() <= most + 1e-9)
        lost, won = np.maximum(change, 0).sum(), np.maximum(-change, 0).sum()
        reason += f"; right answers: {lost:.4g} lost and {won:.4g} won, and {most:.2g} more lost than won may be chance"
    return Check(name="metric", passed=passed or bool(drop <= bound + 1e-9), measured=drop, bound=bound, reason=reason)


def check_padding(answers: Outputs, answers_with_noise: Outputs) -> Check:
    """The padding's content changes no bit: it is masked before any sum."""
    largest = max(
        (float(np.max(np.abs(array - answers_with_noise[name]), initial=0.0)) for name, array in answers.items()),
        default=0.0,
    )
    return _bounded("padding", largest, 0.0, "the largest change when the padding holds random ids and segments")


def check_lengths(answers_by_length: Mapping[int, Outputs], bounds: Bounds, task: Task | None = None) -> Check:
    """A text has the same outputs at every sufficient length."""
    lengths = sorted(answers_by_length)
    first = answers_by_length[lengths[0]]
    largest = max(
        (_differences(first, answers_by_length[length], task)[0] for length in lengths[1:]), default=0.0, key=_nan_last
    )
    reason = f"the largest difference between the lengths {', '.join(map(str, lengths))} for the same texts"
    return _bounded("lengths", largest, bounds.length_difference, reason)


def real_values(outputs: Outputs, mask: np.ndarray) -> dict[str, np.ndarray]:
    """Outputs with the rows of padding taken out: `[n, s, ...]` a token becomes `[tokens, ...]`.

    Args:
      outputs: by name, the first axis counting texts.
      mask: `[n, s]`, 1 = token.
    """
    return {
        name: array[mask == 1] if name in TOKEN_OUTPUTS and array.shape[1:2] == mask.shape[1:] else array
        for name, array in outputs.items()
    }


def join(parts: Sequence[Outputs]) -> dict[str, np.ndarray]:
    """Outputs of several calls one after the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _differences(reference: Outputs, answers: Outputs, task: Task | None) -> tuple[float, float]:
    """Largest and root mean square difference, relative, of the worst output; NaN if they cannot be compared."""
    if any(name not in answers or answers[name].shape != expected.shape for name, expected in reference.items()):
        return math.nan, math.nan
    same_names = {name: answers[name] for name in reference}
    views = [(reference, same_names)]
    if task is not None:
        views.append((centred(reference, task), centred(same_names, task)))
    largest = rms = 0.0
    for expected, received in views:
        for name, values in expected.items():
            floor = root_mean_square(reference[name]) * (task.least_centred_scale if task else 0.0)
            difference = np.abs(received[name].astype(np.float64) - values) / max(root_mean_square(values), floor)
            largest = max(largest, float(difference.max(initial=0.0)), key=_nan_last)
            rms = max(rms, float(np.sqrt(np.mean(np.square(difference)))), key=_nan_last)
    return largest, rms


def _nan_last(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _bounded(name: str, measured: float, bound: float, reason: str) -> Check:
    if not math.isfinite(measured):
        return Check(
            name=name, passed=False, measured=None, bound=bound, reason=f"{reason}: no finite number of the same shape"
        )
    return Check(name=name, passed=measured <= bound, measured=measured, bound=bound, reason=reason)
