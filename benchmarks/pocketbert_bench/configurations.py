"""Configurations to measure: a model file, its inputs and its expected outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pocketbert.errors import UserError, raise_if_any
from pocketbert.recipes import RECIPES
from pocketbert_bench.results import Weights

LiteRT = Literal["litert", "litert-compiled"]
# Recipe for an unreadable bundle.
_UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call to a model.

    Attributes:
      signature: the signature's name; empty if the format has none.
      inputs: input name → one text's ids, padded to the signature's length.
      expected: output name → expected values (any nesting), or None if unknown.
    """

    signature: str
    inputs: Mapping[str, Sequence[int]]
    expected: Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A model file at one length and one number of threads.

    Attributes:
      label: name in tables.
      model: the network's name, shared by all its exports.
      recipe: number formats.
      model_path: the file's path.
      length: tokens per call; None if the bundle could not be read.
      threads: number of runtime threads.
      calls: used in turn; valid token ids.
      is_baseline: whether this is a baseline.
      weights: `trained` or `random`; None if unknown.
      runtime: the runtime's name.
      head_path: the head on separate pairs; a call then runs the encoder on two texts, and the head. None for other
        bundles.
      weight_cache: XNNPACK's weight cache to open; for `litert-compiled` only.
      relative_tolerance: golden check tolerance, relative to the largest expected value; None uses the recipe's.
      problem: sentence why it cannot be measured; None if it can.
    """

    label: str
    model: str
    recipe: str
    model_path: Path
    length: int | None
    threads: int
    calls: tuple[Call, ...]
    is_baseline: bool = False
    weights: Weights | None = None
    runtime: Literal["litert", "litert-compiled", "onnxruntime"] = "litert"
    head_path: Path | None = None
    weight_cache: Path | None = None
    relative_tolerance: float | None = None
    problem: str | None = None

    def tolerance(self) -> float:
        """Largest difference from the expected values that the golden check allows, in their unit."""
        expected = [np.abs(values).max() for call in self.calls for values in (call.expected or {}).values()]
        relative = self.relative_tolerance
        if relative is None:
            relative = RECIPES[self.recipe].bounds.own_difference
        return float(relative * max(expected, default=0.0))


def from_bundles(
    paths: Sequence[Path],
    lengths: Sequence[int] | None,
    threads: Sequence[int],
    *,
    weights: Weights | None = None,
    models: Mapping[Path, str] = {},
    labels: Mapping[Path, str] = {},
) -> list[Configuration]:
    """Returns all requested configurations of several bundles; see `from_bundle`.

    `models` and `labels` name some bundles' networks and rows in tables.

    Raises:
      UserError: there is no such folder, or none of the bundles has one of the lengths.
    """
    bundles = [
        configuration
        for path in paths
        for configuration in from_bundle(
            path, lengths, threads, weights=weights, model=models.get(path), label=labels.get(path)
        )
    ]
    readable = [bundle for bundle in bundles if bundle.recipe != _UNKNOWN]
    for length in lengths or ():
        at_length = [configuration for configuration in readable if configuration.length == length]
        if at_length and all(configuration.problem for configuration in at_length):
            problems = dict.fromkeys(str(configuration.problem) for configuration in at_length)
            raise UserError(f"{'; '.join(problems)}; choose such a length, or export the model with this one")
    return bundles


def from_bundle(
    path: Path,
    lengths: Sequence[int] | None,
    threads: Sequence[int],
    *,
    weights: Weights | None = None,
    model: str | None = None,
    label: str | None = None,
) -> list[Configuration]:
    """Returns all requested configurations of a bundle.

    A damaged bundle, or a missing length, becomes a configuration with a `problem`; the others continue.

    Args:
      path: the bundle's folder.
      lengths: sequence lengths in tokens; None uses all in the bundle.
      threads: numbers of threads.
      weights: whether the weights are trained or random; bundles do not record it.
      model: the network's name; None uses the folder's name.
      label: name in tables; None uses the recipe.
    Raises:
      UserError: there is no such folder.
    """
    # Imports TensorFlow, which takes seconds.
    from pocketbert_export.bundles.bundle import Bundle
    from pocketbert_runtime.bundles.pair_forward import HEAD_FILE

    if not path.is_dir():
        raise UserError(f"a bundle must be a folder written by pocketbert export; received {path}")
    name = model or path.resolve().name
    try:
        bundle = Bundle.open(path)
        _check_goldens(bundle)
        calls_of = {length: golden_calls(bundle, length) for length in bundle.lengths}
    except UserError as error:
        return [
            Configuration(
                label=label or path.resolve().name,
                model=name,
                recipe=_UNKNOWN,
                model_path=path / "model.tflite",
                length=length,
                threads=number,
                calls=(),
                weights=weights,
                problem=str(error),
            )
            for length in lengths or (None,)
            for number in threads
        ]
    configurations = []
    for length in lengths or bundle.lengths:
        problem = None
        if length not in bundle.lengths:
            has = ", ".join(map(str, bundle.lengths))
            problem = f"{path} has no signature for {length} tokens; it has {has}"
        for number in threads:
            configurations.append(
                Configuration(
                    label=label or bundle.recipe,
                    model=name,
                    recipe=bundle.recipe,
                    model_path=Path(bundle.model_path),
                    length=length,
                    threads=number,
                    calls=calls_of.get(length, ()),
                    head_path=bundle.directory / HEAD_FILE if bundle.pair_task else None,
                    weights=weights,
                    problem=problem,
                )
            )
    return configurations


def on_runtimes(configurations: Sequence[Configuration], runtimes: Sequence[LiteRT]) -> list[Configuration]:
    """Returns every configuration on every runtime; with several runtimes, labels name all but `litert`."""
    return [
        dataclasses.replace(
            configuration,
            runtime=runtime,
            label=configuration.label
            if runtime == "litert" or len(runtimes) == 1
            else f"{configuration.label} ({runtime})",
        )
        for configuration in configurations
        for runtime in runtimes
    ]


def pair_notes(configurations: Sequence[Configuration]) -> list[str]:
    """Explains the latencies for each bundle on separate pairs, in a sentence."""
    return [
        f"{label} is for separate pairs: latencies are for a pair, two texts in {model.name} and their vectors in "
        f"{head.name}; the size is for {model.name} alone."
        for label, model, head in dict.fromkeys(
            (configuration.label, configuration.model_path, configuration.head_path) for configuration in configurations
        )
        if head is not None
    ]


def _check_goldens(bundle: Any) -> None:
    """Rejects golden examples with other ids, or if the recorded file outputs are far from the float model's."""
    from pocketbert.tasks.registry import get_task
    from pocketbert_export.bundles.goldens import tokenization_problems
    from pocketbert_export.checks import outputs as checks
    from pocketbert_export.verification import comparisons

    problems = tokenization_problems(
        bundle.golden_lines, bundle.pair_task or bundle.task, bundle.tokenizer, bundle.lengths[-1]
    )
    task = get_task(bundle.task) if bundle.task else None
    both = comparisons.golden_answers(bundle)
    problems += [
        f"the {check.name} of the file's outputs from the float model's must be at most {check.bound}; "
        f"it is {check.measured}"
        for check in checks.check_difference(*both, RECIPES[bundle.recipe].bounds, "goldens", task)
        if not check.passed
    ]
    raise_if_any(problems, f"bundle {bundle.directory}")


def golden_calls(bundle: Any, length: int) -> tuple[Call, ...]:
    """Pads a bundle's golden examples to one length; for outputs per token, only those with this length.

    Args:
      bundle: a `pocketbert_export.bundles.bundle.Bundle`.
      length: sequence length in tokens, one of the bundle's.
    Raises:
      UserError: no example fits.
    """
    from pocketbert_export.checks.outputs import is_token_output
    from pocketbert_runtime.bundles.length_buckets import fit_length

    answers_tokens = any(map(is_token_output, bundle.output_names))
    pad_token_id = bundle.tokenizer.pad_token_id
    calls = []
    for golden in bundle.goldens:
        fits = golden.length == length if answers_tokens else golden.inputs["input_mask"].sum() <= length
        if not fits:
            continue
        inputs = fit_length(golden.inputs, length, pad_token_id)
        rows = {name: array[0].tolist() for name, array in inputs.items()}
        expected = {name: array.tolist() for name, array in golden.exported_outputs.items()}
        calls.append(Call(signature=bundle.signature(length), inputs=rows, expected=expected))
    if not calls:
        raise UserError(f"a bundle needs a golden example of at most {length} tokens; {bundle.directory} has none")
    return tuple(calls)
