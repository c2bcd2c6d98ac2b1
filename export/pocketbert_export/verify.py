"""The acceptance gate: a bundle answers as the float model does, on every runtime that it claims.

Nothing that a file says about itself is believed. Operators are counted in the file, and everything else is
executed: real texts, texts with noise in the padding, the same texts at every length, and the golden examples.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.encoder import INPUT_NAMES
from pocketbert.health import ActivationMaxima, activation_maxima
from pocketbert.model import Model
from pocketbert.progress import track
from pocketbert_export import checks
from pocketbert_export.bundle import Bundle
from pocketbert_export.checks import BOUNDS, Bounds, Check, Outputs
from pocketbert_export.gate_examples import GateExamples, GivenExamples, gate_examples, gate_metric
from pocketbert_export.label_order import named
from pocketbert_export.lowering import APPLIED, LOWERINGS, Lowerings, lower
from pocketbert_export.op_census import take_census
from pocketbert_export.placement import Placed
from pocketbert_export.probes import Probes
from pocketbert_export.recipes import get_recipe
from pocketbert_export.runtimes import RuntimeRefused
from pocketbert_export.runtimes import run as run_on

SCHEMA_VERSION = 1
_ROWS_A_CALL = 32
# Recipe → the next one that rounds less, and the checks that it helps with.
_WIDER = {"dynamic_wi8": "float16", "float16": "float32"}
_ROUNDING = ("logits", "goldens", "labels", "metric", "lengths")
# A quarter of the texts' activations would say the same: the largest are the network's, not the text's.
_MOST_HEALTH_BATCHES = 8


class GateFailed(Exception):
    """A bundle did not pass; the message gives every reason.

    Attributes:
      verification: all checks.
    """

    def __init__(self, verification: Verification) -> None:
        self.verification = verification
        reasons = "; ".join(_describe(check) for check in verification.failures)
        super().__init__(f"the bundle does not pass its gate: {reasons}{_remedy(verification)}")


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What the gate found.

    Attributes:
      recipe: how the bundle stores its numbers.
      checks: in the order in which they were made.
      runtimes: runtime → version, of those that ran the bundle.
      num_examples: real texts that were run.
      source: where they came from.
      labelled: whether the task's metric could be taken.
      weights_need: operator → the version that the weights need, whatever the file records.
      operators: builtin operator → how often, over all signatures.
      activation_maxima: of the network that the file computes, for recipes in float16; None for others, or where the
        float model was not there.
    """

    recipe: str
    checks: tuple[Check, ...]
    runtimes: Mapping[str, str]
    num_examples: int
    source: str
    labelled: bool
    weights_need: Mapping[str, int]
    operators: Mapping[str, int]
    activation_maxima: ActivationMaxima | None = None

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that did not pass."""
        return tuple(check for check in self.checks if not check.passed)

    @property
    def passed(self) -> bool:
        """Whether every check did."""
        return not self.failures

    def require(self) -> None:
        """Raises `GateFailed` unless every check passed."""
        if not self.passed:
            raise GateFailed(self)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know of a bundle that passes: where a runtime that computes in float16 would overflow, or nearly."""
        if self.activation_maxima is None:
            return ()
        where = "the CPU computes this file in float32; a GPU that computes in float16 may answer wrongly"
        return tuple(f"{warning}; {where}" for warning in self.activation_maxima.float16_warnings())

    def to_json(self) -> dict[str, Any]:
        """The content of `verification.json`."""
        maxima = self.activation_maxima
        return {
            "schema_version": SCHEMA_VERSION,
            "passed": self.passed,
            "recipe": self.recipe,
            "runtimes": dict(self.runtimes),
            "examples": {"count": self.num_examples, "source": self.source, "labelled": self.labelled},
            "weights_need": dict(self.weights_need),
            "operators": dict(self.operators),
            "checks": [check.to_json() for check in self.checks],
            "activation_maxima": None if maxima is None else maxima.to_json(),
        }


def verify_bundle(
    bundle_directory: str | os.PathLike[str],
    *,
    reference: Model | None = None,
    examples: GivenExamples | None = None,
    bounds: Bounds | None = None,
    runtimes: Sequence[str] | None = None,
    metric: str | None = None,
    data_task: str | None = None,
    windows: Mapping[str, Any] = {},
) -> Verification:
    """Runs the gate.

    Args:
      bundle_directory: the bundle.
      reference: the float model that it was made from, in its plain form, so that lowering is judged too. Without
        it the golden examples, which hold the float model's answers, are all there is to compare with.
      examples: real texts or questions, best with labels; `MOST_EXAMPLES` of them are run, taken evenly. None takes
        the golden examples'.
      bounds: what to hold the answers against; None takes those of the bundle's recipe.
      runtimes: names of `runtimes.RUNTIMES`; None takes those that the bundle claims.
      metric: a name of `pocketbert.tasks.metrics`, or of questions' scores; None takes the task's own
        (`pocketbert.training.task_examples.task_metrics`).
      data_task: the name of the examples' task where the bundle has none, or another's.
      windows: how questions' paragraphs are cut: fields of `WindowOptions` but for the length, which is the bundle's.

    Returns:
      All checks, failed ones too: `require()` raises for them.

    Raises:
      UserError: the bundle is damaged, or its task has no such metric.
    """
    bundle = Bundle.open(bundle_directory)
    bounds = bounds or BOUNDS[bundle.recipe]
    given = _golden_examples(bundle) if examples is None else examples
    task = bundle.task and named(bundle.task, data_task)
    metric = gate_metric(task, metric, examples)
    asked = gate_examples(given, bundle.tokenizer(), max(bundle.lengths), windows)
    census = take_census(bundle.model_path)
    names = {bundle.signature(length): length for length in bundle.lengths}
    found = [checks.check_operators(census), checks.check_signatures(census, names, INPUT_NAMES)]
    # A file with foreign operators or other inputs cannot be called: more reasons would hide the first.
    callable_by_name = all(check.passed for check in found)
    if reference is not None:
        shapes = [tuple(variable.shape) for variable in reference.weights_by_path().values()]
        found.append(checks.check_size(census, shapes, bounds.bytes_per_weight))
    versions: dict[str, str] = {}
    maxima = None
    if callable_by_name:
        probes = _probes(bundle, asked, reference)
        if reference is not None and get_recipe(bundle.recipe).weights == "float16":
            maxima = _activation_maxima(bundle, reference, probes.examples)
        expected = None if reference is None else _reference_outputs(reference, probes.examples)
        for runtime in runtimes or bundle.runtimes:
            try:
                ran = run_on(runtime, bundle.model_path, probes.batches(bundle.signature))
            except RuntimeRefused as refusal:
                reason = str(refusal)
                found.append(
                    Check(name="runs", passed=False, measured=None, bound=None, reason=reason, runtime=runtime)
                )
                continue
            versions[runtime] = ran.version
            answers = {length: ran.answers[name] for name, length in names.items()}
            made = _judge(bundle, probes, answers, bounds)
            if expected is not None:
                made += _compare(task, probes, expected, answers, asked, bounds, metric)
            found += [dataclasses.replace(check, runtime=runtime) for check in made]
    return Verification(
        recipe=bundle.recipe,
        checks=tuple(found),
        runtimes=versions,
        num_examples=asked.count,
        source=asked.source,
        labelled=asked.labelled,
        weights_need=census.needed_versions,
        operators=census.operators,
        activation_maxima=maxima,
    )


def _golden_examples(bundle: Bundle) -> Examples:
    pairs = [golden.pair for golden in bundle.goldens]
    return Examples(
        texts=[golden.text for golden in bundle.goldens],
        pairs=[pair or "" for pair in pairs] if any(pairs) else None,
        labels=None,
        ids=[str(index) for index in range(len(pairs))],
        source="the bundle's golden examples",
    )


def _probes(bundle: Bundle, examples: GateExamples, reference: Model | None) -> Probes:
    tokenizer = bundle.tokenizer()
    return Probes(
        examples.encoded,
        bundle.lengths,
        pad_token_id=tokenizer.pad_token_id,
        vocab_size=tokenizer.vocab_size,
        # Without the model there is no telling how many segments the table has; 0 is always one.
        type_vocab_size=reference.config.type_vocab_size if reference is not None else 1,
        goldens=[golden.inputs for golden in bundle.goldens],
    )


def _batches(examples: Sequence[Placed]) -> list[dict[str, np.ndarray]]:
    return [
        {name: array[first : first + _ROWS_A_CALL] for name, array in placed.inputs.items()}
        for placed in examples
        for first in range(0, len(placed.indices), _ROWS_A_CALL)
    ]


def _activation_maxima(bundle: Bundle, model: Model, examples: Sequence[Placed]) -> ActivationMaxima:
    # Folding NoNorm changes the unit of the residual stream, so the network is asked in the form that the file has.
    applied = Lowerings(**{name: bundle.lowerings[name] == APPLIED for name in LOWERINGS})
    batches = _batches(examples)
    # Evenly over all lengths.
    chosen = batches[:: -(-len(batches) // _MOST_HEALTH_BATCHES)]
    return activation_maxima(lower(model, applied), chosen)


def _reference_outputs(model: Model, examples: Sequence[Placed]) -> list[dict[str, np.ndarray]]:
    batches = _batches(examples)
    # In a graph TensorFlow fuses what follows a product; one graph serves every shape.
    specs = {name: tf.TensorSpec([None, None], tf.int32, name=name) for name in INPUT_NAMES}
    answer = tf.function(lambda batch: model(batch, training=False), input_signature=[specs])
    outputs = [
        {name: output.numpy() for name, output in answer(batch).items()}
        for batch in track(batches, "float model's answers", "batch")
    ]
    return [checks.real_values(output, batch["input_mask"]) for output, batch in zip(outputs, batches, strict=True)]


def _judge(bundle: Bundle, probes: Probes, answers: Mapping[int, Outputs], bounds: Bounds) -> list[Check]:
    """What needs no float model beside the golden examples."""
    goldens = checks.join(
        [
            checks.real_values(output, mask)
            for output, mask in zip(probes.answers("goldens", answers), probes.masks("goldens"), strict=True)
        ]
    )
    golden_truth = checks.join(
        [checks.real_values(golden.outputs, golden.inputs["input_mask"]) for golden in bundle.goldens]
    )
    quiet, noisy = probes.answers("padding", answers), probes.answers("noise", answers)
    masks = probes.masks("padding")
    same_texts = {
        length: checks.real_values(output, mask)
        for length, output, mask in zip(
            bundle.lengths, probes.answers("lengths", answers), probes.masks("lengths"), strict=True
        )
    }
    return [
        checks.check_alive(goldens),
        *checks.check_difference(golden_truth, goldens, bounds, "goldens"),
        checks.check_padding(
            checks.join([checks.real_values(output, mask) for output, mask in zip(quiet, masks, strict=True)]),
            checks.join([checks.real_values(output, mask) for output, mask in zip(noisy, masks, strict=True)]),
        ),
        checks.check_lengths(same_texts, bounds),
    ]


def _compare(
    task: TaskConfig | None,
    probes: Probes,
    expected: Sequence[Outputs],
    answers: Mapping[int, Outputs],
    examples: GateExamples,
    bounds: Bounds,
    metric: str | None,
) -> list[Check]:
    """What compares with the float model on real texts."""
    reference = checks.join(expected)
    received = checks.join(
        [
            checks.real_values(output, mask)
            for output, mask in zip(probes.answers("examples", answers), probes.masks("examples"), strict=True)
        ]
    )
    made = checks.check_difference(reference, received, bounds)
    if task is None or task.kind not in ("classification", "multi_label", "regression", "span"):
        return made
    if task.kind == "classification":
        made.append(checks.check_labels(reference["logits"], received["logits"], bounds))
    if task.kind == "multi_label":
        made.append(checks.check_label_decisions(reference["logits"], received["logits"], bounds))
    if examples.labelled and metric is not None:
        order = np.concatenate([placed.indices for placed in probes.examples])
        expected_score, score = (examples.score(task, metric, outputs, order) for outputs in (reference, received))
        made.append(checks.check_metric(metric, examples.count, expected_score, score, bounds))
    return made


def _remedy(verification: Verification) -> str:
    """What to do where the numbers are too coarse; nothing helps a file that cannot be called."""
    wider = _WIDER.get(verification.recipe)
    rounding = any(check.name.startswith(_ROUNDING) for check in verification.failures)
    return f"; --recipe={wider} rounds less" if wider and rounding else ""


def _describe(check: Check) -> str:
    where = f" on {check.runtime}" if check.runtime else ""
    if check.measured is None or check.bound is None:
        return f"{check.name}{where}: {check.reason}"
    return f"{check.name}{where}: {check.measured:.4g} against a bound of {check.bound:.4g} ({check.reason})"
