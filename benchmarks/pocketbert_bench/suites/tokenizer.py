"""Tokenizer speed beside transformers' fast tokenizer, on one machine in one run.

    python -m pocketbert_bench.suites.tokenizer [--quick]

Both get the same Python lists of strings, 1,024 at a time, both have two threads. Two results are timed: `ids`, the
ids alone, without special tokens and not cut (a ragged tensor here, a list of lists there), and `inputs`, ready for
a model: special tokens, mask and segments, cut to 128 and padded to the batch's longest (int32 tensors here, int64
NumPy arrays there). Rounds alternate, in an order that alternates too; the ratio is the median of the rounds' ratios.
Before anything is timed, the ids of all texts are compared.
"""

from __future__ import annotations

import itertools
import json
import lzma
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pocketbert import progress
from pocketbert.errors import UserError

THREADS = 2
BATCH_SIZE = 1024
MAX_LENGTH = 128
# The shared data lie beside the checkout.
_SHARED = Path(__file__).resolve().parents[4] / "shared"


def run(quick: bool) -> dict[str, Any]:
    """Times both tokenizers.

    Args:
      quick: a tenth of the texts and three rounds instead of nine.

    Returns:
      For each workload (`sst2`, `wikipedia_paragraphs`) and result (`ids`, `inputs`): medians in texts a second, the
      median ratio with the lowest and highest of the rounds, and every sample in seconds.

    Raises:
      UserError: the data or transformers are not there.
    """
    vocabulary = _file("data/vocab/bert-base-uncased.vocab.txt")
    texts = {
        "sst2": _sst2(4_096 if quick else 40_960),
        "wikipedia_paragraphs": _paragraphs(512 if quick else 5_120),
    }
    # Both libraries read these when they are first used.
    os.environ["RAYON_NUM_THREADS"] = str(THREADS)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    try:
        from transformers import BertTokenizerFast
    except ImportError as error:
        raise UserError(
            f"the peer is transformers' fast tokenizer; received: {error}; install the test extra"
        ) from error
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

    ours = WordPieceTokenizer(vocabulary)
    peer = BertTokenizerFast(str(vocabulary), do_lower_case=True)
    ids_only = {"add_special_tokens": False, "return_attention_mask": False, "return_token_type_ids": False}
    padded = {"truncation": True, "max_length": MAX_LENGTH, "padding": "longest", "return_tensors": "np"}
    calls: dict[str, tuple[Callable[[list[str]], Any], Callable[[list[str]], Any]]] = {
        "ids": (ours.tokenize, lambda batch: peer(batch, **ids_only)["input_ids"]),
        "inputs": (lambda batch: ours(batch, max_length=MAX_LENGTH), lambda batch: peer(batch, **padded)),
    }
    workloads = {}
    for name, all_texts in texts.items():
        batches = [all_texts[start : start + BATCH_SIZE] for start in range(0, len(all_texts), BATCH_SIZE)]
        for batch in batches:
            if ours.tokenize(batch).to_list() != peer(batch, **ids_only)["input_ids"]:
                raise AssertionError(f"{name}: the two tokenizers differ; a comparison of speed would mean nothing")
        workloads[name] = {
            "texts": len(all_texts),
            "characters_per_text": round(statistics.mean(map(len, all_texts)), 1),
            "ascii_share": round(sum(map(str.isascii, all_texts)) / len(all_texts), 4),
            "results": {
                result: _compare(pair, batches, len(all_texts), rounds=3 if quick else 9, label=f"{name} {result}")
                for result, pair in calls.items()
            },
        }
    return {"suite": "tokenizer", "quick": quick, "threads": THREADS, "batch_size": BATCH_SIZE, "workloads": workloads}


def _compare(
    calls: tuple[Callable[[list[str]], Any], Callable[[list[str]], Any]],
    batches: Sequence[list[str]],
    texts: int,
    rounds: int,
    label: str,
) -> dict[str, Any]:
    samples: tuple[list[float], list[float]] = ([], [])
    for turn in range(-1, rounds):
        for side in (0, 1) if turn % 2 else (1, 0):
            start = time.perf_counter()
            for batch in batches:
                calls[side](batch)
            elapsed = time.perf_counter() - start
            # The first turn warms up.
            if turn >= 0:
                samples[side].append(elapsed)
    ours, peer = samples
    ratios = [theirs / mine for mine, theirs in zip(ours, peer, strict=True)]
    result = {
        "pocketbert_texts_per_s": round(texts / statistics.median(ours)),
        "transformers_texts_per_s": round(texts / statistics.median(peer)),
        "ratio": round(statistics.median(ratios), 2),
        "ratio_lowest": round(min(ratios), 2),
        "ratio_highest": round(max(ratios), 2),
        "pocketbert_s": [round(sample, 5) for sample in ours],
        "transformers_s": [round(sample, 5) for sample in peer],
    }
    progress.say(
        f"{label}: {result['pocketbert_texts_per_s']} texts/s, transformers {result['transformers_texts_per_s']}, "
        f"ratio {result['ratio']}"
    )
    return result


def _sst2(count: int) -> list[str]:
    lines = _file("data/glue/SST-2/train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return [line.split("\t")[0] for line in lines[:count]]


def _paragraphs(count: int) -> list[str]:
    """Paragraphs of at least 200 characters, as they come."""

    def lines() -> Iterator[str]:
        with lzma.open(_file("data/text/enwiki2015-train.txt.xz"), "rt", encoding="utf-8") as stream:
            for line in stream:
                if len(line) >= 200:
                    yield line.strip()

    return list(itertools.islice(lines(), count))


def _file(name: str) -> Path:
    path = _SHARED / name
    if not path.is_file():
        raise UserError(f"this suite reads {name} of the shared data; received nothing at {path}; put the data there")
    return path


def main(arguments: Sequence[str]) -> None:
    """Prints the result as JSON."""
    print(json.dumps(run(quick="--quick" in arguments), indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
