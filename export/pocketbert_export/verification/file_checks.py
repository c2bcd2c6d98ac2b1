"""Check the file without executing it: operators, shapes, constants, embeddings and size."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from pocketbert.activation_stats import FLOAT16_MAX
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.layers.relative_attention import num_exported_values
from pocketbert.recipes import WeightType
from pocketbert.tasks.registry import get_task
from pocketbert_export.checks.outputs import Check, count_check
from pocketbert_export.quantization.blockwise import FEWEST_QUANTIZED
from pocketbert_export.recipes import BYTES_PER_WEIGHT
from pocketbert_export.tflite.op_histogram import OpHistogram


def check_operators(histogram: OpHistogram) -> Check:
    """Checks that all operators are TFLite builtins: phones have no custom or TensorFlow (Flex) operators."""
    foreign = sorted(set(histogram.custom))
    what = f"custom or Flex operators: {', '.join(foreign)}" if foreign else "all operators are TFLite builtins"
    return count_check("operators", foreign, what)


def check_signatures(
    histogram: OpHistogram, names: Mapping[str, int], inputs: Sequence[str], output_type: str = "float32"
) -> Check:
    """Checks one signature per length with int32 `[1, length]` inputs and outputs of one type, all bound by name."""
    missing, extra = set(names) - set(histogram.signatures), set(histogram.signatures) - set(names)
    problems = [f"{name} is missing" for name in sorted(missing)]
    problems += [f"{name} is not in bundle.json" for name in sorted(extra)]
    for name in sorted(set(names) & set(histogram.signatures)):
        signature, expected = histogram.signatures[name], ("int32", (1, names[name]))
        if set(signature.inputs) != set(inputs):
            problems.append(f"{name} takes {', '.join(sorted(signature.inputs))}, not {', '.join(sorted(inputs))}")
        for input_name, tensor in signature.inputs.items():
            if (tensor.dtype, tensor.shape) != expected:
                problems.append(f"{name}'s {input_name} is {tensor.dtype} {tensor.shape}, not int32 {expected[1]}")
        for output_name, tensor in signature.outputs.items():
            if tensor.dtype != output_type:
                problems.append(f"{name}'s {output_name} is {tensor.dtype}, not {output_type}")
    outputs = {tuple(sorted(signature.outputs)) for signature in histogram.signatures.values()}
    if len(outputs) > 1:
        problems.append("the signatures' outputs have different names")
    sound = f"{len(names)} signatures with int32 inputs, {output_type} outputs and the names in bundle.json"
    return count_check("signatures", problems, "; ".join(problems) or sound)


def constant_bytes(config: EncoderConfig, lengths: Sequence[int], weights: WeightType) -> float:
    """Counts the bytes of a file's large constants that are no weights, from the lengths of its signatures.

    Rotary tables and masks of local attention are float32. DeBERTa's products by distance have the type `weights`, but
    int8 instead of int4.
    """
    if config.relative is not None:
        return num_exported_values(config, lengths) * BYTES_PER_WEIGHT["int8" if weights == "int4" else weights]
    if config.rotary is None:
        return 0.0
    # Cosines and sines of queries and keys, in global and in local layers.
    tables = sum(8 * length * config.head_size for length in lengths)
    most = 3 * config.rotary.window // 2
    masks = sum(min(length, most) * min(length, config.rotary.window) for length in lengths)
    return 4.0 * (tables + masks)


def check_size(
    histogram: OpHistogram, shapes: Iterable[tuple[int, ...]], weights: WeightType, constants: float = 0.0
) -> Check:
    """Checks the size against the float model's weights: none stored wider than in the recipe, and none twice.

    Matrices have the type `weights`; vectors and small matrices are float32 in every recipe. `constants` are the bytes
    of the graph's large constants (`constant_bytes`).
    """
    expected = constants
    for shape in shapes:
        size = math.prod(shape)
        if len(shape) < 2 or size < FEWEST_QUANTIZED:
            expected += 4 * size
        else:
            # Scale (4 bytes) and zero point (8) for each channel in an int8 matrix.
            expected += BYTES_PER_WEIGHT[weights] * size + (12 * shape[-1] if weights == "int8" else 0)
    # About 300 bytes per operator with its tensors; the graph has few and small constants.
    bound = 1.05 * expected + 512 * histogram.num_operators + 16_384
    reason = (
        f"the file has {histogram.file_bytes:,} bytes, {histogram.weight_bytes:,} of them weights; the model's weights "
        f"take {expected:,.0f} bytes in this recipe, and the bound adds room for {histogram.num_operators} operators"
    )
    size_bytes = float(histogram.file_bytes)
    return Check(name="size", passed=size_bytes <= bound, measured=size_bytes, bound=bound, reason=reason)


def check_shapes(histogram: OpHistogram) -> Check:
    """Checks that every shape is static, as delegates require."""
    shown = ", ".join(histogram.dynamic[:3])
    reason = f"dynamic dimensions: {shown}" if histogram.dynamic else "all dimensions are static"
    return count_check("shapes", histogram.dynamic, reason)


def check_constants(histogram: OpHistogram) -> Check:
    """Checks that no constant overflows float16, as GPUs compute: a mask of -1e9 becomes minus infinity."""
    largest = histogram.largest_constant
    finite = math.isfinite(largest)
    return Check(
        name="constants",
        passed=largest <= FLOAT16_MAX,
        measured=largest if finite else None,
        bound=FLOAT16_MAX,
        reason=f"largest absolute floating-point constant, read by {histogram.largest_constant_reader}; the bound is "
        f"the float16 range{'' if finite else ', and this constant is not a number'}",
    )


def check_outputs(histogram: OpHistogram, names: Sequence[str], task: TaskConfig | None) -> Check:
    """Checks the output names against `bundle.json`, and their sizes against the task's labels."""
    problems = []
    output_task = None if task is None else get_task(task)
    for signature_name, signature in sorted(histogram.signatures.items()):
        if set(signature.outputs) != set(names):
            received = ", ".join(sorted(signature.outputs))
            problems.append(f"{signature_name} gives {received}, not {', '.join(sorted(names))}")
        for name, tensor in signature.outputs.items():
            if output_task is None or (output_task.parts and name not in output_task.output_names):
                continue
            head = output_task.of_output(name)
            if head.num_logits is not None:
                tokens = [next(iter(signature.inputs.values())).shape[1]] if head.per_token else []
                expected = [1, *tokens, head.num_logits]
                if list(tensor.shape) != expected:
                    count = len(head.config.labels)
                    problems.append(
                        f"{signature_name}'s {name} is {list(tensor.shape)}, not {expected} for {count} labels"
                    )
    reason = "; ".join(problems) or "outputs have the names in bundle.json and one logit per label"
    return count_check("outputs", problems, reason)


def check_vocabulary(histogram: OpHistogram, vocab_size: int, ids: str) -> Check:
    """Checks that every graph's embedding, read by the input `ids`, has a row for each token in the vocabulary."""
    rows = [table.rows for table in histogram.tables.get(ids, ())]
    passed = len(rows) == len(histogram.signatures) and set(rows) == {vocab_size}
    row_counts = ", ".join(f"{row:,}" for row in sorted(set(rows))) or "no"
    reason = f"the vocabulary has {vocab_size:,} tokens, the embedding table {row_counts} rows"
    return Check(name="vocabulary", passed=passed, reason=reason)


def _as_exported(task: TaskConfig) -> TaskConfig:
    """A task without fields for training alone, or shown by the graph."""
    parts = None if task.tasks is None else tuple(map(_as_exported, task.tasks))
    return dataclasses.replace(task, dropout=0.0, pooling=None, tasks=parts, weight=None)


def check_task(task: TaskConfig | None, model_task: TaskConfig | None) -> Check:
    """Checks that the bundle has the model's task, with its labels in its order; None is a bare encoder."""
    # Dropout is for training only. The graph's outputs show its pooling.
    bundle_fields, models = (
        {} if each is None else dataclasses.asdict(_as_exported(each)) for each in (task, model_task)
    )
    reason = "task, labels and label order match the model"
    if bundle_fields != models:
        names = [name for name in {**bundle_fields, **models} if bundle_fields.get(name) != models.get(name)]
        has, wants = (
            ", ".join(f"{name} {each[name]!r}" for name in names) if each else "no task"
            for each in (bundle_fields, models)
        )
        reason = (
            f"the tasks differ: the bundle has {has}; the model has {wants}; pass the model that the bundle was "
            "exported from, or export it again"
        )
    return Check(name="task", passed=bundle_fields == models, reason=reason)
