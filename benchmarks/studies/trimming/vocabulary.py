"""Vocabulary trimming on Wikipedia: sentences and tokens that stay the same, by the size of the vocabulary.

    python -m studies trimming/vocabulary [--quick]

all-MiniLM-L6-v2's vocabulary is trimmed to a share of its tokens, the most frequent ones in nine tenths of the
paragraphs. The other tenth is measured.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

from pocketbert.data.assets import minilm
from pocketbert.data.text import read_documents
from pocketbert.pruning.vocabulary import TrimResult, trim_vocabulary
from pocketbert_bench import accuracy, results
from studies.shared_data import shared_data

SHARES = (0.10, 0.25, 0.50, 0.75, 0.90, 0.95)
DOCUMENTS, QUICK_DOCUMENTS = 2000, 100
NETWORK = "all-MiniLM-L6-v2"


def run(quick: bool) -> dict[str, Any]:
    """Trims to each share.

    Args:
      quick: 100 articles instead of 2,000.

    Returns:
      Content of a result file: fraction of sentences and tokens that stay the same.
    """
    created = results.now()
    accuracies, notes = [], []
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "articles.txt"
        documents = read_documents(shared_data("text/enwiki2015-train.txt.xz"))
        count = QUICK_DOCUMENTS if quick else DOCUMENTS
        with text.open("w", encoding="utf-8") as stream:
            for document in itertools.islice(documents, count):
                stream.write("\n".join(document.paragraphs) + "\n\n")
        whole = trim_vocabulary(minilm(), [text], Path(folder) / "all")
        notes.append(f"{count:,} articles use {whole.tokens[1]:,} of {whole.tokens[0]:,} tokens; {_sizes(whole)}")
        for share in SHARES:
            size = round(share * whole.tokens[0])
            found = trim_vocabulary(minilm(), [text], Path(folder) / f"{size}", keep_top=size)
            notes.append(f"{share:.0%} of the vocabulary, {size:,} tokens: {_sizes(found)}")
            for metric, value in (("same_sentences", found.same_sentences), ("same_tokens", found.same_tokens)):
                accuracies.append(
                    accuracy.record(
                        label=f"{share:.0%}",
                        model=NETWORK,
                        recipe="float32",
                        task="vocabulary trimming",
                        split=f"every tenth paragraph of {count:,} Wikipedia articles",
                        metric=metric,
                        value=value,
                        examples=found.sentences,
                        model_file=None,
                    )
                )
    return results.to_json(
        results.result_file("vocabulary trimming", quick=quick, accuracies=accuracies, notes=notes, created=created)
    )


def _sizes(found: TrimResult) -> str:
    before, after = (size / 1e6 for size in found.weight_bytes)
    unknown = " and ".join(f"{100 * each:.3f} %" for each in found.unknown_tokens)
    return (
        f"{before:.1f} MB of weights before, {after:.1f} MB after; {100 * found.same_sentences:.2f} % of the sentences "
        f"and {100 * found.same_tokens:.2f} % of the tokens stay the same; unknown tokens before and after: {unknown}"
    )
