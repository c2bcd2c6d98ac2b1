"""The verification gate: a bundle must reproduce the float model's outputs on every runtime it claims.

Verification executes the file; it trusts no metadata. It counts the file's operators, and runs real texts, texts with
noise in the padding, the same texts at every length, and the golden examples.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pocketbert.data.examples import LabelledData
from pocketbert.encoder import INPUT_NAMES
from pocketbert.model import Model
from pocketbert.notation import argument
from pocketbert.recipes import RECIPES, Bounds
from pocketbert.tasks.registry import get_task
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.bundles.pair_head import text_encoder, unlabelled_texts
from pocketbert_export.checks.label_order import named
from pocketbert_export.checks.outputs import OWN_OUTPUTS, Check, Outputs
from pocketbert_export.checks.validation_set import ValidationSet, gate_metric
from pocketbert_export.quantization.float16_range import Float16Range, float16_range
from pocketbert_export.recipes import get_recipe
from pocketbert_export.tflite.delegates import DelegateShare, documented_shares
from pocketbert_export.tflite.op_histogram import OpHistogram, count_ops
from pocketbert_export.tflite.runtimes import LITERT, RuntimeRefused
from pocketbert_export.tflite.runtimes import run as run_on
from pocketbert_export.verification import (
    file_checks,
    golden_checks,
    length_files,
    outcomes,
    pair_checks,
    record_checks,
)
from pocketbert_export.verification.comparisons import check_segments_are_read, compare, judge, reference_outputs
from pocketbert_export.verification.default_texts import default_examples
from pocketbert_export.verification.validation_inputs import ValidationInputs
from pocketbert_export.verification.weight_checks import check_weights

SCHEMA_VERSION = 1
# A recipe with less rounding helps with these checks.
_ROUNDING = ("logits", "goldens", "labels", "metric", "lengths", "pairs")


class GateFailed(Exception):
    """A bundle failed the gate; the message lists every reason.

    Attributes:
      verification: all checks.
    """

    def __init__(self, verification: Verification) -> None:
        self.verification = verification
        reasons = []
        for check in verification.failures:
            reason, where = check.reason, f" on {check.runtime}" if check.runtime else ""
            if check.measured is not None and check.bound is not None:
                reason = f"{check.measured:.4g} against a bound of {check.bound:.4g} ({reason})"
            reasons.append(f"{check.name}{where}: {reason}")
        super().__init__(f"the bundle does not pass its gate: {'; '.join(reasons)}{_remedy(verification)}")


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The verification gate's result.

    Attributes:
      recipe: the bundle's recipe.
      checks: all checks, in order.
      runtimes: runtime → version, for those that ran the bundle.
      num_examples: number of real texts in the run.
      source: where the texts come from.
      examples_sha256: digest of the texts, with their labels and windows.
      labelled: whether the task's metric was computed.
      metric: the metric's name; None if the task has none.
      weights_need: operator → version required by its weights, whatever version the file records.
      graph_optimizations: the bundle's (`Bundle.graph_optimizations`).
      operators: builtin operator → number of uses in all signatures.
      delegates: operators on delegates: XNNPACK as each runtime counts them, GPU and NPU by documented rules.
      output_type: the outputs' type in the file.
      activation_range: the file's largest activations, for float16 recipes; None for other recipes, or if no runtime
        ran the file.
    """

    recipe: str
    checks: tuple[Check, ...]
    runtimes: Mapping[str, str]
    num_examples: int
    source: str
    examples_sha256: str
    labelled: bool
    metric: str | None
    weights_need: Mapping[str, int]
    graph_optimizations: Mapping[str, str]
    operators: Mapping[str, int]
    delegates: tuple[DelegateShare, ...]
    output_type: str = "float32"
    activation_range: Float16Range | None = None

    @property
    def failures(self) -> tuple[Check, ...]:
        """The failed checks."""
        return tuple(check for check in self.checks if not check.passed)

    @property
    def passed(self) -> bool:
        """Whether all checks passed."""
        return not self.failures

    def require(self) -> None:
        """Raises `GateFailed` unless every check passed."""
        if not self.passed:
            raise GateFailed(self)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Activations that overflow in float16, or nearly do; other texts may have larger ones."""
        if self.activation_range is None:
            return ()
        where = "the CPU computes this file in float32; a GPU that computes in float16 may give wrong outputs"
        return tuple(f"{warning}; {where}" for warning in self.activation_range.warnings)

    def to_json(self) -> dict[str, Any]:
        """Returns the content for `verification.json`."""
        maxima = self.activation_range
        return {
            "schema_version": SCHEMA_VERSION,
            "passed": self.passed,
            "recipe": self.recipe,
            "runtimes": dict(self.runtimes),
            "examples": {"count": self.num_examples, "source": self.source, "labelled": self.labelled},
            "examples_sha256": self.examples_sha256,
            "metric": self.metric,
            "weights_need": dict(self.weights_need),
            "graph_optimizations": dict(self.graph_optimizations),
            "operators": dict(self.operators),
            "delegates": [dataclasses.asdict(share) for share in self.delegates],
            "checks": [check.to_json() for check in self.checks],
            "activation_range": None if maxima is None else maxima.to_json(),
        }


def verify_bundle(
    bundle_directory: str | os.PathLike[str],
    *,
    reference: Model | None = None,
    examples: LabelledData | None = None,
    bounds: Bounds | None = None,
    runtimes: Sequence[str] | None = None,
    metric: str | None = None,
    data_task: str | None = None,
    windows: Mapping[str, Any] = {},
    model_directory: str | os.PathLike[str] | None = None,
    records: bool = True,
) -> Verification:
    """Runs the gate; returns all checks. Call `require()` on the result to raise an error for failed ones.

    Args:
      bundle_directory: the bundle.
      reference: the exported float model, in its plain form, to check the graph optimization, too. Without it, outputs
        are only compared with the golden examples, which contain the float model's outputs.
      examples: real texts or questions, preferably with labels; `MOST_EXAMPLES` evenly spaced ones are run. None uses
        the built-in texts, or the golden examples if there is no model.
      bounds: limits on the differences; None for the recipe's.
      runtimes: names in `runtimes.RUNTIMES`; None for the bundle's.
      metric: a name in `pocketbert.tasks.metrics`, or a metric for questions; None for the task's
        (`SupervisedTask.main_metric`).
      data_task: the examples' task name, if the bundle's task has no name or another one.
      windows: windows for questions' paragraphs: fields of `WindowOptions` without the length, which is the bundle's.
      model_directory: the model's folder or name; its run's record has the baselines and the teacher's score, and
        `source` is compared with its files.
      records: compare `source`, `verification.json` and the card with this run, if there is a `reference`; False before
        they are written.
    Raises:
      UserError: the bundle is damaged, or its task has no such metric.
    """
    bundle = Bundle.open(bundle_directory)
    if bundle.pair_task is None:
        return _verify(
            bundle, reference, examples, bounds, runtimes, metric, data_task, windows, model_directory, records=records
        )
    same_task = file_checks.check_task(bundle.pair_task, bundle.pair_task if reference is None else reference.task)
    reference = reference if same_task.passed else None
    encoder = None if reference is None else text_encoder(reference)
    texts = None if examples is None else unlabelled_texts(examples)
    verification = _verify(bundle, encoder, texts, bounds, runtimes, None, None, {}, None, records=False)
    checks = (*verification.checks, dataclasses.replace(same_task, name="pair task"))
    metric = gate_metric(named(bundle.pair_task, data_task), metric, examples)
    # The golden answers are those of the head, which these checks compare.
    encoder_passed = all(check.passed or check.name == golden_checks.ANSWERS for check in verification.checks)
    if reference is not None and encoder_passed:
        names = {"metric": metric, "data_task": data_task}
        checks += tuple(pair_checks.check_pairs(bundle, reference, examples, bounds, verification.runtimes, **names))
        if bundle.outcome is not None and examples is not None and examples.labelled:
            exact = all(check.measured == 0 for check in checks if check.name == OWN_OUTPUTS)
            checks += (
                outcomes.check(
                    bundle, reference, examples, data_task=data_task, directory=model_directory, exact=exact
                ),
            )
    verification = dataclasses.replace(verification, checks=checks, metric=metric)
    if examples is not None:
        count, digest = min(len(examples), pair_checks.MOST_PAIRS), record_checks.examples_digest(examples, {})
        verification = dataclasses.replace(
            verification, num_examples=count, labelled=examples.labelled, examples_sha256=digest
        )
    if records and reference is not None:
        more = record_checks.check_records(bundle, verification.to_json(), reference, model_directory)
        verification = dataclasses.replace(verification, checks=(*checks, *more))
    return verification


def _verify(
    bundle: Bundle,
    reference: Model | None,
    examples: LabelledData | None,
    bounds: Bounds | None,
    runtimes: Sequence[str] | None,
    metric: str | None,
    data_task: str | None,
    windows: Mapping[str, Any],
    model_directory: str | os.PathLike[str] | None,
    *,
    records: bool,
) -> Verification:
    """See `verify_bundle`; for separate pairs, the encoder alone."""
    bounds = bounds or RECIPES[bundle.recipe].bounds
    # The model defines the outputs' meaning, not the bundle.
    task = bundle.task if reference is None else reference.task
    built_in = golden_checks.golden_examples(bundle) if reference is None else default_examples(task)
    gate_examples = built_in if examples is None else examples
    task = task and named(task, data_task)
    metric = gate_metric(task, metric, examples)
    made_task = get_task(task) if task else None
    validation_set = ValidationSet(made_task, gate_examples, bundle.tokenizer, max(bundle.lengths), windows)
    histogram = count_ops(bundle.model_path)
    names = {bundle.signature(length): length for length in bundle.lengths}
    checks = [
        file_checks.check_operators(histogram),
        file_checks.check_signatures(histogram, names, INPUT_NAMES, bundle.output_type),
        file_checks.check_outputs(histogram, bundle.output_names, bundle.task),
    ]
    # A file with foreign operators or other inputs cannot be called: more reasons would hide the first.
    callable_by_name = all(check.passed for check in checks)
    checks += [
        file_checks.check_shapes(histogram),
        file_checks.check_constants(histogram),
        file_checks.check_vocabulary(histogram, bundle.vocab_size, "input_word_ids"),
    ]
    tokenizer = golden_checks.check_tokenizer(bundle, reference, gate_examples)
    checks.append(tokenizer)
    if reference is not None:
        same_task = file_checks.check_task(bundle.task, reference.task)
        checks.append(same_task)
        shapes = [tuple(variable.shape) for variable in reference.weights_by_path().values()]
        weights = get_recipe(bundle.recipe).weights
        constants = file_checks.constant_bytes(reference.config, bundle.lengths, weights)
        checks.append(file_checks.check_size(histogram, shapes, weights, constants))
        checks.append(check_weights(bundle.model_path.read_bytes(), reference))
        # Outputs for other ids or another task cannot be compared.
        reference = reference if tokenizer.passed and same_task.passed else None
    checks_of_files = [length_files.check_files(bundle, reference)] if bundle.length_files else []
    checks += checks_of_files
    versions: dict[str, str] = {}
    shares: list[DelegateShare] = []
    maxima = None
    if callable_by_name:
        validation_inputs = _probes(bundle, validation_set, histogram)
        expected = None if reference is None else reference_outputs(reference, validation_inputs)

        def judged(answers: Mapping[int, Outputs]) -> list[Check]:
            new_checks = judge(bundle, validation_inputs, answers, bounds)
            if expected is not None:
                new_checks += compare(made_task, validation_inputs, expected, answers, validation_set, bounds, metric)
            elif any(table.first_two_differ for table in histogram.tables.get("input_type_ids", ())):
                new_checks.append(check_segments_are_read(validation_inputs, answers))
            return new_checks

        for runtime in runtimes or bundle.runtimes:
            try:
                ran = run_on(runtime, bundle.model_path, validation_inputs.batches(bundle.signature))
            except RuntimeRefused as refusal:
                checks.append(Check(name="runs", passed=False, reason=str(refusal), runtime=runtime))
                continue
            versions[runtime] = ran.version
            shares += [ran.xnnpack] if ran.xnnpack else []
            answers = {length: ran.answers[name] for name, length in names.items()}
            new_checks = judged(answers)
            if bundle.length_files and checks_of_files[0].passed:
                run = functools.partial(run_on, runtime)
                new_checks.append(length_files.check_answers(bundle, validation_inputs, run, judged))
            checks += [dataclasses.replace(check, runtime=runtime) for check in new_checks]
        # A file that crashes a runtime would crash this process too.
        if versions and get_recipe(bundle.recipe).weights == "float16":
            maxima = float16_range(bundle.model_path.read_bytes(), validation_inputs.examples)
            checks.append(maxima.check())
        # After a failed check, more reasons would hide the first; outputs may not even be finite.
        if LITERT in versions and all(check.passed for check in checks):
            checks.append(golden_checks.check_answers(bundle))
        scorable = versions and examples is not None and examples.labelled and all(check.passed for check in checks)
        if scorable and bundle.outcome is not None and examples is not None:
            exact = all(check.measured == 0 for check in checks if check.name == OWN_OUTPUTS)
            checks.append(
                outcomes.check(bundle, reference, examples, data_task=data_task, directory=model_directory, exact=exact)
            )
    verification = Verification(
        recipe=bundle.recipe,
        checks=tuple(checks),
        runtimes=versions,
        num_examples=validation_set.count,
        source=validation_set.source,
        examples_sha256=record_checks.examples_digest(gate_examples, windows),
        labelled=validation_set.labelled,
        metric=metric,
        weights_need=histogram.needed_versions,
        graph_optimizations=bundle.graph_optimizations,
        operators=histogram.operators,
        delegates=(*shares, *documented_shares(bundle.model_path)),
        output_type=bundle.output_type,
        activation_range=maxima,
    )
    if records and reference is not None:
        new_checks = record_checks.check_records(bundle, verification.to_json(), reference, model_directory)
        verification = dataclasses.replace(verification, checks=(*verification.checks, *new_checks))
    return verification


def _probes(bundle: Bundle, examples: ValidationSet, histogram: OpHistogram) -> ValidationInputs:
    tokenizer = bundle.tokenizer
    types = [table.rows for table in histogram.tables.get("input_type_ids", ())]
    return ValidationInputs(
        examples.encoded,
        bundle.lengths,
        pad_token_id=tokenizer.pad_token_id,
        vocab_size=tokenizer.vocab_size,
        type_vocab_size=min(types, default=1),
        goldens=[golden.inputs for golden in bundle.goldens],
        fixed_ranges=get_recipe(bundle.recipe).activations == "static",
    )


def _remedy(verification: Verification) -> str:
    """Remedy if the number format is too coarse; empty if the file cannot run."""
    wider = RECIPES[verification.recipe].wider
    failures = [check.name for check in verification.failures]
    rounding = "task" not in failures and any(name.startswith(_ROUNDING) for name in failures)
    if not wider or not rounding:
        return ""
    alone = f" (with {argument('output_type', 'float32', of='export')})" if verification.output_type == "int8" else ""
    return f"; {argument('recipe', wider, of='export')}{alone} rounds less"
