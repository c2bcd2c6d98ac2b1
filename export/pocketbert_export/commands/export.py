r"""Write a verified TFLite bundle.

A bundle is a folder: model.tflite with one signature per length and shared weights, the tokenizer's files, labels.txt,
bundle.json (description, checksums, golden examples), verification.json and a model card, README.md. The gate compares
the file with the model on real texts: --data or --file, best with labels, or a few built-in ones. If they differ too
much, nothing is written and the exit code is 1.

Prints one JSON object: the bundle's path, size, lengths, graph optimizations, the outcome and the gate's figures. The
outcome is the file's score on your labelled examples, beside its float model, baselines and teacher. With
--recipe=float16, the figures include each layer's largest activations, and you get a warning if float16 would overflow.

Example:
  pocketbert export --model=runs/sst2/model --recipe=dynamic_wi8 --lengths=32,64,128 --data=glue --output=bundle
  pocketbert export --model=runs/sst2/model --recipe=dynamic_wi8 --runtime=tflite-2.16 --output=bundle_for_2_16
  pocketbert export --model=runs/sst2/model --recipe=dynamic_wi4 --data=glue --output=small_bundle
  pocketbert export --model=runs/topics/model --recipe=static_wi8_ai8 --file=dev.csv --label-column=topics \
    --calibration-file=train.csv --output=static_bundle
  pocketbert export --model=runs/questions/model --lengths=128,384 --file=dev.json --output=answers
  pocketbert export --model=all-minilm --output=bundles/minilm --mediapipe
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pocketbert.commands.command_line import Options
from pocketbert.commands.task_options import TableOptions
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert.options import DirectoryPath, FilePath, ModelPath
from pocketbert.recipes import RecipeName
from pocketbert_export.bundles.model_card import CardOptions
from pocketbert_export.commands import example_options, stored_columns
from pocketbert_export.commands.example_options import ExampleOptions, GateOptions
from pocketbert_export.conversion.graph_optimization_options import GraphOptimizations
from pocketbert_export.quantization.calibration_options import CalibrationOptions

if TYPE_CHECKING:
    from pocketbert.data.examples import LabelledData
    from pocketbert.model import Model
    from pocketbert_export.bundles.bundle import Bundle


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConversionOptions:
    """Conversion options.

    Attributes:
      recipe: number formats for weights and computation.
      lengths: sequence lengths, one signature each (default: 32,64,128; for questions 128,384).
      length_files: also write model_64.tflite and so on into the bundle: a file for each length, for clients that know
        no signatures, such as Flutter's tflite_flutter. Its inputs are in the order of bundle.json.
    """

    GROUP: ClassVar = "Export"

    recipe: RecipeName = "dynamic_wi8"
    lengths: tuple[int, ...] = ()
    length_files: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class CalibrationFile:
    """Source for calibration texts.

    Attributes:
      calibration_file: texts, formatted like --file, for static recipes and mixed, which need them, for dynamic_wi4,
        which then loses less, and for float16, to scale its channels (default: the training split of --data). The
        gate's texts are left out.
    """

    GROUP: ClassVar = "Calibration"

    calibration_file: FilePath | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Input and output of an export.

    Attributes:
      model: model directory with tokenizer files, or a name that fetch knows.
      output: output folder.
      runtime: oldest runtime to support.
      output_type: type of the outputs; int8 for NPUs that cannot convert to float32, with --recipe=static_wi8_ai8_full.
        Inputs are token ids, int32, in every file.
      saved_model: also write a SavedModel to this folder.
      saved_model_inputs: the SavedModel's inputs: ids, for tflite_convert, or text, for TF Serving; its graph then has
        the tokenizer.
      mediapipe: also write one .tflite file per length for MediaPipe Tasks, into a folder beside the output with the
        name OUTPUT-mediapipe; for questions a file for the TFLite Task Library, with --runtime=tflite-2.16. If there is
        no client for the model, only the bundle is written, and the exit code is 2.
      overwrite: replace the existing output.
    """

    GROUP: ClassVar = "Export"
    COMMON: ClassVar = ("model", "output", "runtime", "overwrite")

    model: ModelPath
    output: DirectoryPath
    runtime: Literal["litert", "tflite-2.16"] = "litert"
    output_type: Literal["float32", "int8"] = "float32"
    saved_model: DirectoryPath | None = None
    saved_model_inputs: Literal["ids", "text"] = "ids"
    mediapipe: bool = False
    overwrite: bool = False


OPTIONS = (
    ConversionOptions,
    ExportOptions,
    CalibrationFile,
    CalibrationOptions,
    CardOptions,
    GraphOptimizations,
    *example_options.OPTIONS,
    GateOptions,
)


def run(options: Options) -> int:
    """Exports; returns 1 if the gate fails."""
    chosen, conversion = options[ExportOptions], options[ConversionOptions]
    graph_optimizations = options[GraphOptimizations]
    from pocketbert.checkpoints.directory import describe_directory
    from pocketbert.data.assets import model_directory, task_of_asset
    from pocketbert.output_folders import (
        BUNDLE_KIND,
        MEDIAPIPE_KIND,
        SAVED_MODEL_KIND,
        beside,
        check_together,
        together,
    )

    if chosen.saved_model_inputs == "text" and not chosen.saved_model:
        raise UserError("--saved-model-inputs=text needs --saved-model, the folder to write; received none")
    mediapipe = beside(chosen.output, "mediapipe")
    kinds = {chosen.output: BUNDLE_KIND}
    kinds |= {chosen.saved_model: SAVED_MODEL_KIND} if chosen.saved_model else {}
    kinds |= {str(mediapipe): MEDIAPIPE_KIND} if chosen.mediapipe else {}
    check_together(kinds, overwrite=chosen.overwrite)
    description = describe_directory(model_directory(chosen.model))
    task = description.tasks[0] if description.tasks else task_of_asset(chosen.model)
    file = options[ExampleOptions].file
    stored_columns.use(options, chosen.model, file)
    # A limit in points is measured on the labels of the calibration texts.
    scores = options[CalibrationOptions].max_points_lost is not None
    stored_columns.check(options, task, file, labelled=None)
    stored_columns.check(options, task, options[CalibrationFile].calibration_file, labelled=scores)

    from pocketbert.progress import log_info
    from pocketbert.report.outcome import no_outcome
    from pocketbert_export.clients.mediapipe_files import check_files, write_task_files
    from pocketbert_export.clients.serving import check_servable, write_serving_model
    from pocketbert_export.conversion.convert import write_saved_model
    from pocketbert_export.conversion.graph_optimization import optimize_graph
    from pocketbert_export.exporter import as_read, export
    from pocketbert_export.tflite.signatures import default_lengths
    from pocketbert_export.verification.default_texts import default_examples
    from pocketbert_export.verification.verify import GateFailed

    lengths = list(conversion.lengths) or default_lengths(task, description.config.max_position_embeddings)
    if chosen.saved_model_inputs == "text":
        check_servable(task, description.vocabulary)
    examples = example_options.read(options[ExampleOptions], options[TableOptions], task, labelled=None)
    skipped = None
    if chosen.mediapipe:
        try:
            check_files(task, description.vocabulary, lengths, has_pairs=examples is not None and examples.has_pairs)
        except UserError as error:
            skipped = error

    def write_saved(model: Model) -> None:
        assert chosen.saved_model is not None
        optimized = optimize_graph(model, graph_optimizations)
        if chosen.saved_model_inputs == "text":
            write_serving_model(optimized, chosen.saved_model, max(lengths), overwrite=chosen.overwrite, group=group)
        else:
            write_saved_model(optimized, chosen.saved_model, lengths, overwrite=chosen.overwrite, group=group)

    try:
        with together() as group:
            bundle = export(
                chosen.model,
                chosen.output,
                recipe=conversion.recipe,
                lengths=lengths,
                examples=examples,
                graph_optimizations=graph_optimizations,
                runtime=chosen.runtime,
                output_type=chosen.output_type,
                length_files=conversion.length_files,
                overwrite=chosen.overwrite,
                metric=options[GateOptions].metric,
                data_task=options[ExampleOptions].task,
                calibration=_calibration(options, task, labelled=scores),
                calibration_options=options[CalibrationOptions],
                card=options[CardOptions],
                columns=stored_columns.stored_columns(chosen.model),
                group=group,
                write_more=write_saved if chosen.saved_model else None,
            )
            summary = _summary(bundle, chosen.output)
            if chosen.mediapipe and not skipped:
                gate_examples = examples or default_examples(task)
                read = as_read(task, gate_examples.first_texts(len(gate_examples)))
                texts = list(dict.fromkeys([*read.texts, *(read.pairs or ())]))
                try:
                    written = write_task_files(bundle, mediapipe, texts, overwrite=chosen.overwrite, group=group)
                    summary["mediapipe"] = written
                except UserError as error:
                    skipped = error
    except GateFailed as error:
        log_info(f"pocketbert export: {error}; nothing was written")
        return 1
    print(json.dumps(summary, indent=2), flush=True)
    if bundle.scored is not None:
        bundle.scored.bundle.log("bundle")
    elif task is not None:
        log_info(f"bundle: {no_outcome().replace('No', 'no', 1)}")
    if skipped:
        older = ", which holds an earlier export; delete it" if mediapipe.exists() else ""
        raise UserError(f"{skipped}; wrote the bundle and skipped {mediapipe}{older}")
    return 0


def _summary(bundle: Bundle, output: str) -> dict[str, Any]:
    """The printed facts about a bundle, which may not have its name, `output`, yet."""
    verification = json.loads((bundle.directory / "verification.json").read_text(encoding="utf-8"))
    if verification["activation_range"]:
        # Hundreds of values.
        del verification["activation_range"]["maxima"]
    return {
        "bundle": str(Path(output)),
        "recipe": bundle.recipe,
        "lengths": bundle.lengths,
        "runtimes": verification["runtimes"],
        "size_bytes": bundle.model_path.stat().st_size,
        "length_files": bundle.length_file_sizes(),
        "graph_optimizations": bundle.graph_optimizations,
        "outcome": bundle.outcome,
        "examples": verification["examples"],
        "checks": {
            "/".join(filter(None, (check["name"], check.get("runtime")))): check["measured"]
            for check in verification["checks"]
        },
        "activation_range": verification["activation_range"],
    }


def _calibration(options: Options, task: TaskConfig | None, *, labelled: bool) -> LabelledData | None:
    """Reads the calibration texts named by the options, if any."""
    from pocketbert_export.recipes import get_recipe

    example, table, file = options[ExampleOptions], options[TableOptions], options[CalibrationFile].calibration_file
    if file is not None:
        calibration_options = dataclasses.replace(example, file=file, data=None, languages=None)
        return example_options.read(calibration_options, table, task, labelled=labelled)
    if example.data and get_recipe(options[ConversionOptions].recipe).calibration != "none":
        return example_options.read(dataclasses.replace(example, split="train"), table, task)
    return None
