"""One file a command: its options and a call. The table imports nothing heavy.

A command's module has a docstring with an `Example:`, `OPTIONS` (its dataclasses of options, see `pocketbert.options`)
and `run(options)`. Options that depend on others come from `chosen_options(arguments)`, which sees the command line;
`variants()` gives a command line for each such choice.
"""

from __future__ import annotations

# Name → (module, summary). A command lives in the highest package that it uses.
COMMANDS: dict[str, tuple[str, str]] = {
    "quickstart": ("pocketbert_bench.commands.quickstart", "the whole path on a real network and real text"),
    "bundle": ("pocketbert_export.commands.bundle", "from a file of examples to a verified bundle and its scores"),
    "presets": ("pocketbert.commands.presets", "list the architectures with sizes, parameters and FLOPs"),
    "fetch": ("pocketbert.commands.fetch", "get pinned weights and data"),
    "convert": ("pocketbert.commands.convert", "turn a foreign checkpoint into a model directory, or back"),
    "pretrain": ("pocketbert.commands.pretrain", "pretrain from scratch with MLM and NSP"),
    "finetune": ("pocketbert.commands.finetune", "train a model directory on a task"),
    "augment": ("pocketbert.commands.augment", "multiply training examples by replacing words, as TinyBERT does"),
    "pretrain-data": ("pocketbert.commands.pretrain_data", "turn plain text into pretraining examples"),
    "cache-teacher": ("pocketbert.commands.cache_teacher", "store what a teacher knows of a data set, for distill"),
    "distill": ("pocketbert.commands.distill", "teach a small student what a teacher knows"),
    "evaluate": ("pocketbert_export.commands.evaluate", "score a model directory or a bundle on a task"),
    "predict": ("pocketbert_export.commands.predict", "answer lines of text with a model directory or a bundle"),
    "glue-scores": ("pocketbert_export.commands.glue_scores", "score models of GLUE tasks in the papers' columns"),
    "glue-submission": ("pocketbert_export.commands.glue_submission", "write the zip that the GLUE server takes"),
    "export": ("pocketbert_export.commands.export", "write a verified TFLite bundle"),
    "verify": ("pocketbert_export.commands.verify", "run the gate on a bundle again"),
    "bench": ("pocketbert_bench.commands.bench", "time bundles on this machine, or on phones"),
    "report": ("pocketbert_bench.commands.report", "draw plots and one HTML page from result files"),
    "completion": ("pocketbert.commands.completion", "print a completion script for bash, zsh or fish"),
}
