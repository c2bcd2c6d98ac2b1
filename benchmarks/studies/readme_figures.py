"""Writes README's figures from the committed result files: `python -m studies.tables`.

A test holds README to what this prints, so that no figure there is older than its file or without one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from studies.marked_block import MarkedBlock

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "studies" / "results"
BLOCK = MarkedBlock(
    path=ROOT / "README.md", name="FIGURES", origin="python -m studies.tables from benchmarks/studies/results"
)

# Result file, ratio → what a reader is told.
RATIOS = {
    (
        "against_transformers/latency",
        "latency mobilebert",
    ): "latency of MobileBERT, int8, 128 tokens, against transformers' TF class",
    ("against_transformers/latency", "latency tinybert_4l_312d"): "the same of TinyBERT, 4 layers",
    ("against_transformers/latency", "latency minilmv2_6l_384d"): "the same of the 6x384 network",
    (
        "ablations/lengths",
        "three lengths against fixed 128",
    ): "mean speed on SST-2's sentences, lengths 32/64/128 against fixed 128",
    (
        "against_transformers/training",
        "training step, transformers TF",
    ): "speed of a training step against transformers' TF class",
    ("against_transformers/training", "training step, PyTorch eager"): "the same against PyTorch, step by step",
    ("ablations/bucketed_training", "bucketed training"): "training examples a second, bucketed against fixed 128",
    (
        "against_transformers/tokenizer",
        "tokenizer ids, SST-2",
    ): "tokenizer speed on SST-2 against transformers' fast tokenizer",
    ("against_transformers/tokenizer", "tokenizer ids, Wikipedia paragraphs"): "the same on Wikipedia paragraphs",
    (
        "against_transformers/distillation",
        "distillation step, live against PyTorch eager",
    ): "speed of a distillation step against PyTorch, step by step",
    (
        "against_transformers/distillation",
        "distillation step, stored against live",
    ): "the same from a store against a live teacher",
    (
        "against_transformers/distillation",
        "store, bytes a token",
    ): "size of a store of hidden states against the bare numbers",
    (
        "against_transformers/distillation",
        "stored distillation, real lengths",
    ): "distillation steps from a store, bucketed against fixed 128",
    (
        "tinybert/augmentation",
        "augmentation, default, against the authors' way",
    ): "sentences augmented a second against one network call a word, as the authors do it",
    (
        "tinybert/augmentation",
        "augmentation, the same input pair, against the authors' way",
    ): "the same with the authors' longer input on our side too: batching alone",
    (
        "tinybert/augmentation",
        "augmentation, the same input, one call a word with one position's logits",
    ): "the same with our shorter input and one position's logits on theirs too",
    (
        "against_tf_models/pretraining_data",
        "pretraining data against tf-models-official",
    ): "pretraining's examples from text, 2 processes, against tf-models-official",
    (
        "against_transformers/question_windows",
        "question windows, tf-models-official",
    ): "SQuAD to windows, one thread, against tf-models-official",
    (
        "against_transformers/question_windows",
        "question windows, transformers, Python",
    ): "the same against transformers' Python featurizer",
    (
        "against_transformers/question_windows",
        "question windows, transformers, fast recipe",
    ): "the same against its fast recipe",
    (
        "mobilebert/training",
        "masked words, pocketbert against tf-models-official",
    ): "speed of MobileBERT's training step against tf-models-official's",
    (
        "mobilebert/training",
        "transfer, pocketbert against tf-models-official",
    ): "speed of a transfer step, IB-BERT to MobileBERT, full sequences of 128, against tf-models-official's",
    (
        "mobilebert/training",
        "transfer, pocketbert, teacher in bfloat16 against tf-models-official, teacher without dropout",
    ): "the same with our teacher in bfloat16 (`--teacher-precision`) and theirs in float32",
    (
        "mobilebert/text",
        "transfer on text, pocketbert against tf-models-official, teacher without dropout",
    ): "the same on examples of Wikipedia of at most 512 tokens, bucketed against padded, both in float32",
    (
        "mobilebert/memory",
        "peak memory, length 128",
    ): "peak memory with transfer of all 24 layers against both networks' passes alone, 8 x 128 tokens",
    ("mobilebert/memory", "peak memory, length 512"): "the same, 2 x 512 tokens",
}


def figures() -> str:
    """The text between README's marks."""
    contents = {
        str(path.relative_to(RESULTS).with_suffix("")): json.loads(path.read_text(encoding="utf-8"))
        for path in RESULTS.rglob("*.json")
    }
    lines = [
        "## Figures",
        "",
        *_machine(contents["against_transformers/latency"]),
        "",
        "| what | ratio (95 % interval) | asked for |",
    ]
    lines.append("|---|---|---|")
    for (suite, name), words in RATIOS.items():
        ratio = next(each for each in contents[suite]["ratios"] if each["name"] == name)
        low, high = ratio["interval"]
        lines.append(f"| {words} | {ratio['value']:.2f} ({low:.2f} to {high:.2f}) | {_asked(ratio)} |")
    lines += ["", "Accuracy of the 6x384 network, fine-tuned here:", "", "| what | accuracy |", "|---|---|"]
    for each in contents["tasks/sst2"]["accuracies"]:
        label = "float model" if each["label"] == "model" else f"`{each['label']}`"
        lines.append(f"| SST-2 development set, {label} | {100 * each['value']:.2f} % |")
    lines += _seeds(contents["quickstart_accuracy"], network=contents["tasks/sst2"]["accuracies"][0]["model"])
    return "\n".join(lines) + "\n"


def _asked(ratio: dict[str, Any]) -> str:
    """The target, and whether it was reached."""
    if ratio["target"] is None:
        return "nothing"
    lower = ratio["better"] == "lower"
    text = f"{'≤' if lower else '≥'} {ratio['target']:g}"
    if ratio["met"]:
        return text
    reached = ratio["value"] <= ratio["target"] if lower else ratio["value"] >= ratio["target"]
    return text + (", which the interval's worse end misses" if reached else ", missed")


def _seeds(content: dict[str, Any], network: str) -> list[str]:
    """Rows of every network's seeds; `network` is the one that the table is about."""
    lines = []
    for model in dict.fromkeys(each["model"] for each in content["accuracies"]):
        seeds = [each for each in content["accuracies"] if each["model"] == model]
        mean = sum(each["value"] for each in seeds) / len(seeds)
        words = "Rotten Tomatoes, held-out tenth" + ("" if model == network else f", {model}")
        lines.append(f"| {words}, mean of {len(seeds)} seeds | {100 * mean:.2f} % |")
        lines += [f"| the same, {each['label']} | {100 * each['value']:.2f} % |" for each in seeds]
    return lines


def _machine(content: dict[str, Any]) -> list[str]:
    machine = content["machine"]
    return [
        f"Ratios of one run each on {machine['cores']} cores of an {machine['cpu']}. "
        "Latency: below 1 is faster; speed: above 1 is.",
        "`make bench` measures them again; samples, machine and versions are in `benchmarks/studies/results`.",
    ]
