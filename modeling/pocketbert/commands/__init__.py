"""The command table, one module each. It imports nothing heavy.

A command's module has a docstring with an `Example:`, `OPTIONS` (option dataclasses, see `pocketbert.options`) and
`run(options)`. `chosen_options(arguments)` adds options for a command line; `variants()` lists one for each choice.
"""

from __future__ import annotations

# Name → (module, summary). A command belongs to the highest package it uses.
COMMANDS: dict[str, tuple[str, str]] = {
    "quickstart": ("pocketbert_bench.commands.quickstart", "Run the whole workflow on a real model and real text"),
    "bundle": (
        "pocketbert_export.commands.bundle",
        "Turn a file of labelled texts or questions into a verified bundle",
    ),
    "compress": (
        "pocketbert_bench.commands.compress",
        "Find the best small bundle of your data within limits of latency and size",
    ),
    "presets": ("pocketbert.commands.presets", "List architectures with parameters, size and FLOPs"),
    "fetch": ("pocketbert.commands.fetch", "Download pinned weights and data"),
    "convert": ("pocketbert.commands.convert", "Convert checkpoints from and to other formats"),
    "pretrain-data": ("pocketbert.commands.pretrain_data", "Turn plain text into pretraining examples"),
    "pretrain": ("pocketbert.commands.pretrain", "Pretrain from scratch, or adapt a model to your texts"),
    "finetune": (
        "pocketbert.commands.finetune",
        "Fine-tune a model on a task; --grid searches hyper-parameters",
    ),
    "augment": ("pocketbert.commands.augment", "Augment training data as TinyBERT does"),
    "distill": (
        "pocketbert.commands.distill",
        "Distil a teacher into a student; --compare adds the no-distillation baseline",
    ),
    "cache-teacher": (
        "pocketbert.commands.cache_teacher",
        "Cache the teacher's outputs, so that training runs without the teacher",
    ),
    "search": (
        "pocketbert_bench.commands.search",
        "Search a student's feed-forward networks under a limit of size or latency (EfficientBERT)",
    ),
    "prune": (
        "pocketbert.commands.prune",
        "Prune a fine-tuned model to fewer layers, heads and neurons (ROSITA)",
    ),
    "trim-vocabulary": (
        "pocketbert.commands.trim_vocabulary",
        "Trim a model's vocabulary to the tokens that your texts need",
    ),
    "extend-vocabulary": (
        "pocketbert.commands.extend_vocabulary",
        "Add tokens to a model's vocabulary, and rows to its word embedding",
    ),
    "plot": (
        "pocketbert.commands.plot",
        "Draw attention maps, the share of [SEP] among the most attended tokens, or feed-forward networks",
    ),
    "evaluate": ("pocketbert_export.commands.evaluate", "Score a model directory or a bundle"),
    "predict": ("pocketbert_export.commands.predict", "Predict labels, scores or answers for your texts"),
    "embed": ("pocketbert_export.commands.embed", "Embed texts, compare pairs and search"),
    "compare": (
        "pocketbert_bench.commands.compare",
        "Compare two models or bundles on the same examples, by class and slice",
    ),
    "glue-scores": ("pocketbert_export.commands.glue_scores", "Score models on the GLUE development sets"),
    "glue-submission": ("pocketbert_export.commands.glue_submission", "Write a GLUE submission zip"),
    "export": ("pocketbert_export.commands.export", "Write a verified TFLite bundle"),
    "verify": ("pocketbert_export.commands.verify", "Run the verification gate on a bundle again"),
    "bench": ("pocketbert_bench.commands.bench", "Time bundles on this machine, or on phones with --device"),
    "card": ("pocketbert_bench.commands.card", "Write a bundle's model card again, with latencies"),
    "report": ("pocketbert_bench.commands.report", "Plot result files and write one HTML page"),
    "completion": (
        "pocketbert.commands.completion",
        "Complete commands, options and values in bash, zsh or fish",
    ),
}
