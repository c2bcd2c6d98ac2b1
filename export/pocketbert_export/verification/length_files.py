"""Check the files with a single length as model.tflite is checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pocketbert.encoder import INPUT_NAMES
from pocketbert.model import Model
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.checks.outputs import Check, Outputs, count_check
from pocketbert_export.recipes import get_recipe
from pocketbert_export.tflite.graph import read_model, tensor_name
from pocketbert_export.tflite.op_histogram import count_ops
from pocketbert_export.tflite.runtimes import Batches, RuntimeAnswers, RuntimeRefused
from pocketbert_export.verification import file_checks
from pocketbert_export.verification.validation_inputs import ValidationInputs
from pocketbert_export.verification.weight_checks import check_weights


def check_files(bundle: Bundle, reference: Model | None) -> Check:
    """Checks each file without executing it: what model.tflite must have, with one signature, and the order.

    Args:
      bundle: a bundle with length files.
      reference: the float model, to compare all weights; None to leave this out.
    """
    problems = []
    for length, name in bundle.length_files.items():
        path = bundle.directory / name
        histogram = count_ops(path)
        checks = [
            file_checks.check_operators(histogram),
            file_checks.check_signatures(
                histogram, {bundle.signature(length): length}, INPUT_NAMES, bundle.output_type
            ),
            file_checks.check_outputs(histogram, bundle.output_names, bundle.task),
            file_checks.check_shapes(histogram),
            file_checks.check_constants(histogram),
            file_checks.check_vocabulary(histogram, bundle.vocab_size, "input_word_ids"),
        ]
        if reference is not None:
            shapes = [tuple(variable.shape) for variable in reference.weights_by_path().values()]
            weights = get_recipe(bundle.recipe).weights
            constants = file_checks.constant_bytes(reference.config, [length], weights)
            checks.append(file_checks.check_size(histogram, shapes, weights, constants))
            checks.append(check_weights(path.read_bytes(), reference))
        problems += [f"{name}: {check.name}: {check.reason}" for check in checks if not check.passed]
        problems += [f"{name}: {problem}" for problem in order_problems(path, INPUT_NAMES, bundle.output_names)]
    sound = f"{len(bundle.length_files)} files with one length, inputs and outputs in the order of bundle.json"
    return count_check("length files", problems, "; ".join(problems) or sound)


def check_answers(
    bundle: Bundle,
    validation_inputs: ValidationInputs,
    run: Callable[[Path, Batches], RuntimeAnswers],
    judged: Callable[[Mapping[int, Outputs]], list[Check]],
) -> Check:
    """Checks the files' outputs within the bounds of model.tflite.

    Args:
      bundle: a bundle with length files.
      validation_inputs: the gate's inputs.
      run: runs signatures of a file on a runtime.
      judged: the checks of model.tflite, for outputs by length.
    """
    batches, answers, problems = validation_inputs.batches(bundle.signature), {}, []
    for length, name in bundle.length_files.items():
        signature = bundle.signature(length)
        try:
            answers[length] = run(bundle.directory / name, {signature: batches[signature]}).answers[signature]
        except RuntimeRefused as refusal:
            problems.append(f"{name}: {refusal}")
    if not problems:
        problems = [f"{check.name}: {check.reason}" for check in judged(answers) if not check.passed]
    sound = "the files with one length pass each check that executes model.tflite"
    return count_check("length files: outputs", problems, "; ".join(problems) or sound)


def order_problems(path: Path, inputs: Sequence[str], outputs: Sequence[str]) -> list[str]:
    """Lists inputs and outputs that a client without signatures would confuse: another name, or another position."""
    model = read_model(path.read_bytes())
    graph, signature = model.subgraphs[0], model.signatureDefs[0]
    problems = []
    for kind, expected, indices, entries in (
        ("inputs", inputs, graph.inputs, signature.inputs),
        ("outputs", outputs, graph.outputs, signature.outputs),
    ):
        by_index = {entry.tensorIndex: entry.name.decode() for entry in entries}
        bound = [by_index.get(index, "") for index in indices]
        named = [tensor_name(graph.tensors[index]) for index in indices]
        if not bound == named == [*expected]:
            problems.append(f"the {kind} must be {', '.join(expected)} in this order; they are {', '.join(bound)}")
    return problems
