"""Write a verified TFLite bundle.

A bundle is a folder: model.tflite with one signature a length and shared weights, vocab.txt, labels.txt,
bundle.json (what the file is, checksums, golden examples) and verification.json. The gate compares the file with
the model on real texts: those of --data or --file, best with labels, or a few built-in ones. If they
differ too much nothing is written and the exit code is 1.

Prints one JSON object: the bundle's path, size, lengths, graph optimizations and the gate's figures. With
--recipe=float16 they include each layer's largest activations, and a warning says where float16 arithmetic would
overflow.

Example:
  pocketbert export --model=runs/sst2/model --recipe=dynamic_wi8 --lengths=32,64,128 --data=glue --output=bundle
  pocketbert export --model=runs/sst2/model --recipe=dynamic_wi8 --runtime=tflite-2.16 --output=bundle_for_2_16
  pocketbert export --model=runs/questions/model --lengths=128,384 --file=held-out.json --output=answers
"""

from __future__ import annotations

import json
import sys

from absl import flags

from pocketbert.errors import UserError
from pocketbert_export.commands import example_flags


def define(flag_values: flags.FlagValues) -> None:
    """Defines the command's flags."""
    flags.DEFINE_string("model", None, "model directory with a vocab.txt", flag_values=flag_values)
    flags.DEFINE_string("output", None, "folder to make", flag_values=flag_values)
    flags.DEFINE_string("recipe", "dynamic_wi8", "float32, float16 or dynamic_wi8", flag_values=flag_values)
    flags.DEFINE_list(
        "lengths",
        None,
        "numbers of tokens, one signature each (default: 32,64,128; for questions 128,384)",
        flag_values=flag_values,
    )
    flags.DEFINE_string("runtime", "litert", "oldest runtime to serve: litert or tflite-2.16", flag_values=flag_values)
    flags.DEFINE_bool("fold-no-norm", True, "graph optimization: NoNorm into the linear maps", flag_values=flag_values)
    flags.DEFINE_bool(
        "fuse-projections",
        None,
        "graph optimization: maps of one input as one; by default where blocks have a bottleneck",
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "first-token-only", True, "graph optimization: last layer for the first token alone", flag_values=flag_values
    )
    flags.DEFINE_string(
        "metric",
        None,
        example_flags.METRIC_HELP,
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "saved-model", None, "folder to write the model to as a SavedModel, too", flag_values=flag_values
    )
    flags.DEFINE_bool("overwrite", False, "replace what is there", flag_values=flag_values)
    example_flags.define(flag_values)


def run(flag_values: flags.FlagValues) -> int:
    """Exports; returns 1 if the gate refuses."""
    for name in ("model", "output"):
        if not getattr(flag_values, name):
            raise UserError(f"export needs --model, a model directory, and --output, a folder; received no --{name}")
    lengths = [whole_number(text) for text in flag_values.lengths or ()]
    from pocketbert.checkpoints.directory import read_directory
    from pocketbert.model import from_pretrained
    from pocketbert.outputs import SAVED_MODEL_KIND, check_directory
    from pocketbert_export.convert import write_saved_model
    from pocketbert_export.exporter import export
    from pocketbert_export.graph_optimization import GRAPH_OPTIMIZATIONS, GraphOptimizations, optimize_graph
    from pocketbert_export.signatures import default_lengths
    from pocketbert_export.verify import GateFailed

    graph_optimizations = GraphOptimizations(
        **{name: flag_values[name.replace("_", "-")].value for name in GRAPH_OPTIMIZATIONS}
    )
    saved_model = flag_values["saved-model"].value
    if saved_model:
        check_directory(saved_model, SAVED_MODEL_KIND, overwrite=flag_values.overwrite)
    found = read_directory(flag_values.model)
    task = found.tasks[0] if found.tasks else None
    lengths = lengths or default_lengths(task, found.config.max_position_embeddings)
    try:
        bundle = export(
            flag_values.model,
            flag_values.output,
            recipe=flag_values.recipe,
            lengths=lengths,
            examples=example_flags.read(flag_values, task),
            graph_optimizations=graph_optimizations,
            runtime=flag_values.runtime,
            overwrite=flag_values.overwrite,
            metric=flag_values.metric,
            data_task=flag_values.task,
        )
    except GateFailed as error:
        print(f"pocketbert export: {error}; nothing was written", file=sys.stderr)
        return 1
    if saved_model:
        optimized = optimize_graph(from_pretrained(flag_values.model), graph_optimizations)
        write_saved_model(optimized, saved_model, lengths, overwrite=flag_values.overwrite)
    verification = json.loads((bundle.directory / "verification.json").read_text(encoding="utf-8"))
    summary = {
        "bundle": str(bundle.directory),
        "recipe": bundle.recipe,
        "lengths": bundle.lengths,
        "runtimes": verification["runtimes"],
        "size_bytes": bundle.model_path.stat().st_size,
        "graph_optimizations": bundle.graph_optimizations,
        "examples": verification["examples"],
        "checks": {
            "/".join(filter(None, (check["name"], check.get("runtime")))): check["measured"]
            for check in verification["checks"]
        },
        "activation_range": verification["activation_range"],
    }
    print(json.dumps(summary, indent=2))
    return 0


def whole_number(text: str) -> int:
    """One of the numbers of `--lengths`."""
    try:
        return int(text)
    except ValueError:
        raise UserError(f"--lengths must be whole numbers with commas between; received {text!r}") from None
