"""The tables in docs/results/vocabulary.md, for `studies.tables`."""

from __future__ import annotations

import re
from pathlib import Path

from pocketbert_bench import results
from pocketbert_bench.quickstart_training import NETWORK
from studies.marked_block import MarkedBlock
from studies.score_cells import cell, difference, scores
from studies.trimming.accuracy import SEEDS, TASK, VOCABULARIES, WHOLE

_PAGE = Path(__file__).resolve().parents[3] / "docs" / "results" / "vocabulary.md"
_ORIGIN = "python -m studies.tables from benchmarks/studies/results/trimming/"
VOCABULARY_BLOCK = MarkedBlock(path=_PAGE, name="VOCABULARY", origin=f"{_ORIGIN}vocabulary.json")
MULTILINGUAL_BLOCK = MarkedBlock(path=_PAGE, name="MULTILINGUAL", origin=f"{_ORIGIN}multilingual.json")
ACCURACY_BLOCK = MarkedBlock(path=_PAGE, name="ACCURACY", origin=f"{_ORIGIN}accuracy.json")


def vocabulary_table(content: results.ResultFile) -> str:
    """Writes the table of tokens and sentences that stay the same."""
    found: dict[str, dict[str, float]] = {}
    for each in content.accuracies:
        found.setdefault(each.label, {})[each.metric] = each.value
    lines = ["| Vocabulary kept | Tokens as before | Sentences as before | Weights | Unknown tokens |"]
    lines.append("|---:|---:|---:|---:|---:|")
    for share, metrics in found.items():
        cells = " | ".join(f"{100 * metrics[name]:.2f} %" for name in ("same_tokens", "same_sentences"))
        note = next(each for each in content.notes if each.startswith(f"{share} of the vocabulary"))
        size, unknown = re.search(r"before, (.*) MB after;.* and (.*) %$", note).groups()  # type: ignore[union-attr]
        lines.append(f"| {share} | {cells} | {size} MB | {unknown} % |")
    first = content.accuracies[0]
    lines += [
        "",
        f"Measured on {first.examples:,} sentences: {first.split}.",
        "",
        *(f"- {note}" for note in content.notes),
    ]
    return "\n".join(lines) + "\n"


def multilingual_table(content: results.ResultFile) -> str:
    """Writes the table of languages and the sizes of a multilingual student."""
    found: dict[str, dict[str, float]] = {}
    for each in content.accuracies:
        found.setdefault(each.split, {})[each.metric] = each.value
    lines = ["| Texts | Tokens as before | Sentences as before |", "|---|---:|---:|"]
    for split, metrics in found.items():
        cells = " | ".join(f"{100 * metrics[name]:.2f} %" for name in ("same_tokens", "same_sentences"))
        lines.append(f"| {split} | {cells} |")
    return "\n".join([*lines, "", *(f"- {note}" for note in content.notes)]) + "\n"


def accuracy_table(content: results.ResultFile) -> str:
    """Writes the table of SST-2's accuracy."""
    found = scores(each for each in content.accuracies if each.metric == "accuracy")
    lines = ["| Vocabulary | Accuracy | Difference |", "|---|---:|---:|"]
    whole = found.get((NETWORK, WHOLE, TASK), {})
    for vocabulary in VOCABULARIES:
        values = found.get((NETWORK, vocabulary, TASK), {})
        change = "" if vocabulary == WHOLE else difference(values, whole)
        lines.append(f"| {vocabulary} | {cell(values.values(), len(SEEDS))} | {change} |")
    # The first note has the settings.
    return "\n".join([*lines, "", *(f"- {note}" for note in content.notes[1:])]) + "\n"
