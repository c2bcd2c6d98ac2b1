"""Export a model to a verified bundle."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pocketbert import files
from pocketbert import output_folders as outputs
from pocketbert._keras import fresh_layer_names
from pocketbert.checkpoints.vocabulary_files import write_tokenizer_json
from pocketbert.configs import TaskConfig
from pocketbert.data.assets import model_directory
from pocketbert.data.examples import LabelledData
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.model import Model, from_pretrained
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert.recipes import Bounds, Recipe
from pocketbert.tasks.base import SupervisedTask
from pocketbert.tasks.data_checks import cut_warning
from pocketbert.tasks.registry import get_task
from pocketbert_export.bundles import bundle as layout
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.bundles.description import (
    describe,
    file_entries,
    saved_weight_digests,
    task_fields,
    weight_digests,
)
from pocketbert_export.bundles.model_card import CARD_FILE, CardOptions, card_facts, write_card
from pocketbert_export.bundles.pair_head import head_content, head_parameters, text_encoder, unlabelled_texts
from pocketbert_export.checks.label_order import examples_for, named
from pocketbert_export.checks.validation_set import gate_metric
from pocketbert_export.conversion.convert import to_calibrated_tflite, to_tflite
from pocketbert_export.conversion.graph_optimization import decide, optimize_graph
from pocketbert_export.conversion.graph_optimization_options import GraphOptimizations
from pocketbert_export.quantization.calibration_data import calibration_data, calibration_texts
from pocketbert_export.quantization.calibration_options import CalibrationOptions
from pocketbert_export.quantization.integer_outputs import check_output_type, with_int8_outputs
from pocketbert_export.quantization.mixed_precision import FrontPoint
from pocketbert_export.recipes import check_blocks, get_recipe
from pocketbert_export.tflite.graph import one_signature, share_quantization
from pocketbert_export.tflite.length_buckets import bucket_texts
from pocketbert_export.tflite.runtimes import LITERT, RUNTIMES, TFLITE_2_16
from pocketbert_export.tflite.signatures import check_lengths, default_lengths
from pocketbert_export.verification import outcomes
from pocketbert_export.verification.default_texts import DEFAULT_TEXTS, default_examples
from pocketbert_export.verification.golden_texts import write_golden_answers
from pocketbert_export.verification.pair_checks import built_in_pairs
from pocketbert_export.verification.verify import verify_bundle
from pocketbert_runtime.bundles.description import length_file, signature_name
from pocketbert_runtime.bundles.length_buckets import LengthBucket
from pocketbert_runtime.bundles.pair_forward import HEAD_FILE, is_separate
from pocketbert_runtime.tokenizers.framing import INPUT_NAMES
from pocketbert_runtime.tokenizers.truncation import room_problem

# Enough to find a full text for every usual length without encoding a whole data set.
_MOST_CANDIDATES = 512
# Half of the files that a bundle may have.
_MOST_LENGTH_FILES = 16


# The file contains layer names: equal weights must give equal bytes, whatever was built before.
@fresh_layer_names()
def export(
    model: Model | str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    recipe: str = "dynamic_wi8",
    lengths: Sequence[int] | None = None,
    examples: LabelledData | TaskData | str | os.PathLike[str] | None = None,
    graph_optimizations: GraphOptimizations = GraphOptimizations(),  # noqa: B008
    runtime: str = LITERT,
    output_type: Literal["float32", "int8"] = "float32",
    length_files: bool = False,
    overwrite: bool = False,
    bounds: Bounds | None = None,
    metric: str | None = None,
    data_task: str | None = None,
    windows: Mapping[str, Any] = {},
    scored: LabelledData | TaskData | None = None,
    calibration: LabelledData | TaskData | str | os.PathLike[str] | None = None,
    calibration_options: CalibrationOptions = CalibrationOptions(),  # noqa: B008
    card: CardOptions = CardOptions(),  # noqa: B008
    columns: Mapping[str, Any] = {},
    group: outputs.Together | None = None,
    write_more: Callable[[Model], None] | None = None,
) -> Bundle:
    """Converts a model, verifies the file, and writes a bundle, completely or not at all; returns the opened bundle.

    Example:
      ```python
      bundle = pb.export("runs/sst2/model", "bundles/sst2", lengths=(32, 64, 128), examples=data.dev)
      ```

    Args:
      model: a model with a vocabulary, or its model directory.
      output: output folder.
      recipe: a name in `recipes.RECIPES`.
      lengths: sequence lengths in tokens, one signature each; None uses the task's default.
      examples: real texts or questions for the verification gate, preferably with labels in the order of the model's
        logits. Pass a run's data to use its development examples, with labels matched by name; a path to questions or
        to a table with the columns text and label; or None to use `DEFAULT_TEXTS`.
      graph_optimizations: optimizations to apply if they suit the model.
      runtime: oldest runtime to support, a name in `runtimes.RUNTIMES`.
      output_type: the outputs' type in the file; int8, with a scale and a zero point, for static_wi8_ai8_full.
        `Bundle.run` returns float32 in both cases.
      length_files: also write `model_64.tflite` and so on, a file for each length, for clients without signatures.
      overwrite: replace an existing folder.
      bounds: the gate's limits; None uses the recipe's.
      metric: the gate's metric; see `pocketbert_export.verification.verify.verify_bundle`.
      data_task: see `verify_bundle`.
      windows: see `verify_bundle`.
      scored: labelled examples for the score in `bundle.json`, in the order of the model's logits; None uses
        `examples`. Pass it if the gate also runs training examples.
      calibration: texts for recipes that calibrate: examples, a run's data (for its training examples), or a path like
        `examples`. None uses the training examples from a run's data in `examples`. The gate's texts are left out.
      calibration_options: number of calibration texts and method for the ranges.
      card: facts for the model card.
      columns: the training file's columns: `text`, `label` (a list), `separator`, and for pairs `pair`. `evaluate`,
        `predict` and `verify` use them as defaults.
      group: further outputs, see `pocketbert.output_folders.new_directory`; the bundle has its hidden name until all
        have theirs.
      write_more: writes the group's further outputs from the model, after the bundle.
    Raises:
      UserError: bad input; nothing is written.
      GateFailed: the file's outputs differ too much from the model's; nothing is written.
    """
    if runtime not in RUNTIMES:
        raise UserError(f"a runtime must be one of {', '.join(RUNTIMES)}; received {runtime!r}")
    chosen = get_recipe(recipe, runtime)
    check_output_type(output_type, chosen)
    directory = None if isinstance(model, Model) else model_directory(model)
    outputs.check_inputs(output, (directory, examples if isinstance(examples, str | os.PathLike) else None))
    outputs.check_directory(output, outputs.BUNDLE_KIND, overwrite=overwrite)
    model = model if isinstance(model, Model) else from_pretrained(directory or model)
    check_blocks(chosen, model.config)
    if is_separate(model.task):
        if write_more is not None or output_type != "float32":
            raise UserError(
                "a bundle for separate pairs has float32 outputs and no SavedModel; received one of them; leave out "
                f"{argument('output_type')} and {argument('saved_model', python='write_more')}"
            )
        encoder_options = {
            "recipe": recipe,
            "lengths": lengths,
            "graph_optimizations": graph_optimizations,
            "runtime": runtime,
            "length_files": length_files,
            "overwrite": overwrite,
            "bounds": bounds,
            "calibration_options": calibration_options,
            "columns": columns,
        }
        calibration_examples = calibration_data(model.task, chosen, calibration, examples, calibration_options)
        to_score = _to_score(model.task, scored if scored is not None else examples, metric, data_task, windows)
        pairs = examples_for(model.task, examples)
        named_metric = {"metric": metric, "data_task": data_task}
        return _export_pairs(
            model,
            directory,
            output,
            pairs,
            calibration_examples,
            to_score,
            card,
            group,
            encoder_options,
            **named_metric,
        )
    if lengths is None:
        lengths = default_lengths(model.task, model.config.max_position_embeddings)
    lengths = check_lengths(lengths, model.config)
    if length_files and len(lengths) > _MOST_LENGTH_FILES:
        raise UserError(
            f"{argument('length_files', True)} is for at most {_MOST_LENGTH_FILES} lengths; received {len(lengths)}; "
            f"pass fewer {argument('lengths')}"
        )
    _check_exportable(model, directory or "the model")
    assert model.tokenizer is not None
    if problem := room_problem(
        model.tokenizer.vocabulary.truncation, max(lengths), argument("lengths", python="length")
    ):
        raise UserError(f"a bundle must cut texts as its model does: {problem}")
    calibration = calibration_data(model.task, chosen, calibration, examples, calibration_options)
    run_data = examples if isinstance(examples, TaskData) else None
    examples = examples_for(model.task, examples)
    scored_data = scored if scored is not None else run_data or examples
    outputs.check_inputs(output, (examples.source if examples is not None else None,))
    # Fail before the conversion, which takes minutes.
    gate_metric(model.task and named(model.task, data_task), metric, examples)
    to_score = _to_score(model.task, scored_data, metric, data_task, windows)
    if model.task:
        read = {part.source: part for part in (examples, calibration) if part is not None and len(part)}
        warn_of_cuts(model.task, [*read.values()], model.tokenizer, max(lengths))
    examples = examples if examples is not None and len(examples) else default_examples(model.task)
    texts = None
    if calibration is not None:
        # Before the conversion, too.
        texts = calibration_texts(model, calibration, examples, lengths, calibration_options)
    graph_optimizations = graph_optimizations.for_recipe(chosen)
    decided = decide(model, graph_optimizations)
    log_info(f"export {recipe}: converting for {', '.join(map(str, lengths))} tokens")
    optimized = optimize_graph(model, graph_optimizations, lengths)
    record: dict[str, Any] = {"columns": dict(columns)} if columns else {}
    front: Sequence[FrontPoint] = ()
    if texts is None:
        few = _few_texts(model, chosen, lengths)
        content = to_tflite(optimized, lengths, chosen, channelwise=runtime != TFLITE_2_16, texts=few)
    else:
        calibrated = to_calibrated_tflite(optimized, lengths, chosen, texts, calibration_options)
        content, front = calibrated.content, calibrated.front
        record = {"calibration": texts.record(calibrated.method), **record}
        if output_type == "int8":
            content = share_quantization(with_int8_outputs(content))
    with outputs.new_directory(output, outputs.BUNDLE_KIND, overwrite=overwrite, group=group) as folder:
        files.write_bytes(folder / layout.MODEL_FILE, content)
        if front:
            files.write_json(folder / layout.PRECISION_FILE, [point.to_json() for point in front])
        for name, vocabulary in model.tokenizer.vocabulary.contents().items():
            files.write_bytes(folder / name, vocabulary)
        write_tokenizer_json(folder, model.tokenizer.vocabulary)
        if model.task and model.task.labels:
            files.write_text(folder / layout.LABELS_FILE, "".join(f"{label}\n" for label in model.task.labels))
        description: dict[str, Any] = {
            **describe(model, optimized, chosen, lengths, runtime, decided, output_type),
            **record,
            "model_card": card_facts(card, directory),
            "source": saved_weight_digests(model) if directory is None else weight_digests(directory),
        }
        for length in lengths if length_files else ():
            names = [output["name"] for output in description["outputs"]]
            alone = one_signature(content, signature_name(length), INPUT_NAMES, names)
            files.write_bytes(folder / length_file(length), alone)
        texts_of_user = examples.first_texts(_MOST_CANDIDATES)
        description["answers"] = write_golden_answers(folder, description, model, texts_of_user, bounds)
        description["files"] = file_entries(folder)
        files.write_json(folder / layout.BUNDLE_FILE, description)
        log_info(f"export {recipe}: verifying")
        verification = verify_bundle(
            folder,
            reference=model,
            examples=examples,
            bounds=bounds,
            metric=metric,
            data_task=data_task,
            windows=windows,
            records=False,
        )
        verification.require()
        for warning in verification.warnings:
            log_info(f"export {recipe}: warning: {warning}")
        files.write_json(folder / layout.VERIFICATION_FILE, verification.to_json())
        scores = None
        if to_score is not None:
            log_info(f"export {recipe}: scoring on {len(to_score.scored)} examples")
            scores = outcomes.score_both(Bundle.open(folder), model, to_score, directory)
            description["outcome"] = outcomes.to_json(scores.bundle, to_score)
        description["files"] = file_entries(folder)
        files.write_json(folder / layout.BUNDLE_FILE, description)
        write_card(folder, Path(output).resolve().name)
    if write_more is not None:
        write_more(model)
    opened = Bundle.open(folder if group else output)
    opened.scored = scores
    return opened


def _export_pairs(
    model: Model,
    directory: str | os.PathLike[str] | None,
    output: str | os.PathLike[str],
    pairs: LabelledData | None,
    calibration: LabelledData | None,
    to_score: outcomes.ScoringData | None,
    card: CardOptions,
    group: outputs.Together | None,
    encoder_options: Mapping[str, Any],
    *,
    metric: str | None,
    data_task: str | None,
) -> Bundle:
    """Exports the encoder from a model for separate pairs as an embedding bundle, and adds the head; see `export`."""
    _check_exportable(model, directory or "the model")
    gate_metric(model.task and named(model.task, data_task), metric, pairs)
    if encoder_options["lengths"] is None:
        lengths = default_lengths(model.task, model.config.max_position_embeddings)
        encoder_options = {**encoder_options, "lengths": lengths}
    parts = [None if part is None else unlabelled_texts(part) for part in (pairs, calibration)]
    scores = None
    with contextlib.ExitStack() as stack:
        shared = group or stack.enter_context(outputs.together())
        encoder = text_encoder(model)
        folder = export(
            encoder, output, examples=parts[0], calibration=parts[1], group=shared, **encoder_options
        ).directory
        files.write_bytes(folder / HEAD_FILE, head_content(model))
        # These are for the encoder alone.
        for name in (CARD_FILE, layout.VERIFICATION_FILE):
            (folder / name).unlink()
        description = layout.read_description(folder)
        description |= {
            "pairs": {"task": task_fields(model.task)},
            "model_card": card_facts(card, directory),
            "num_parameters": description["num_parameters"] + head_parameters(model),
            "source": saved_weight_digests(model) if directory is None else weight_digests(Path(directory)),
        }
        texts_of_user = (pairs or built_in_pairs()).first_texts(_MOST_CANDIDATES)
        bounds = encoder_options["bounds"]
        description["answers"] = write_golden_answers(folder, description, encoder, texts_of_user, bounds)
        description["files"] = file_entries(folder)
        files.write_json(folder / layout.BUNDLE_FILE, description)
        log_info("verifying the answers for pairs")
        options = {"bounds": bounds, "metric": metric, "data_task": data_task}
        verification = verify_bundle(folder, reference=model, examples=pairs, records=False, **options)
        verification.require()
        files.write_json(folder / layout.VERIFICATION_FILE, verification.to_json())
        if to_score is not None:
            scores = outcomes.score_both(Bundle.open(folder), model, to_score, directory)
            description["outcome"] = outcomes.to_json(scores.bundle, to_score)
        description["files"] = file_entries(folder)
        files.write_json(folder / layout.BUNDLE_FILE, description)
        write_card(folder, Path(output).resolve().name)
    opened = Bundle.open(folder if group else output)
    opened.scored = scores
    return opened


def warn_of_cuts(
    config: TaskConfig, parts: Sequence[LabelledData], tokenizer: Any, length: int, remedy: str = ""
) -> None:
    """Logs a line if the bundle's longest length cuts texts; `remedy` replaces the advice to pass a longer one."""
    task = get_task(config)
    if isinstance(task, SupervisedTask) and parts:
        if line := cut_warning(task, parts, tokenizer, length, remedy or f"pass a longer {argument('lengths')}"):
            log_info(f"warning: {line}")


def as_read(task: TaskConfig | None, data: Any) -> Any:
    """Returns the examples as the network reads them."""
    return data if task is None else get_task(task).inputs(data)


def _to_score(
    task: TaskConfig | None,
    data: LabelledData | TaskData | str | os.PathLike[str] | None,
    metric: str | None,
    data_task: str | None,
    windows: Mapping[str, Any],
) -> outcomes.ScoringData | None:
    """The labelled examples behind the outcome; None without labels or without a task that has them."""
    metrics: tuple[str, ...] | None = (metric,) if metric else None
    main = metric
    if isinstance(data, TaskData) and not metric:
        metrics, main = tuple(data.metrics) or None, data.main_metric or None
    labelled = examples_for(task, data)
    if task is None or not isinstance(get_task(task), SupervisedTask) or labelled is None:
        return None
    if not labelled.labelled or not len(labelled):
        return None
    return outcomes.ScoringData(
        data=labelled, metrics=metrics, main_metric=main, data_task=data_task, windows=dict(windows)
    )


def _few_texts(model: Model, recipe: Recipe, lengths: Sequence[int]) -> list[LengthBucket]:
    """Built-in texts for `to_tflite`, if the recipe needs some and there are no calibration texts."""
    tokenizer = model.tokenizer
    assert tokenizer is not None
    if recipe.weights == "float16":
        built_in = as_read(model.task, default_examples(model.task))
        return bucket_texts(tokenizer, built_in.texts, built_in.pairs, lengths)
    # Nothing else rounds off the angles of embeddings.
    has_vectors = model.task is not None and get_task(model.task).has_vectors
    needs_texts = has_vectors and (recipe.weights, recipe.activations) == ("int8", "dynamic")
    return bucket_texts(tokenizer, DEFAULT_TEXTS, None, lengths) if needs_texts else []


def _check_exportable(model: Model, source: str | os.PathLike[str]) -> None:
    if model.tokenizer is None:
        raise UserError(
            f"a bundle needs a vocabulary; {source} has none; add the tokenizer files that the model was trained with"
        )
    kinds = [task.kind for task in model.tasks]
    if len(kinds) > 1 or not all(get_task(task).exportable for task in model.tasks):
        raise UserError(
            "export takes an encoder with one head or none, and no masked-LM head, which scores the whole vocabulary "
            f"at every token; {source} has {', '.join(kinds)}; finetune it on a task first"
        )
