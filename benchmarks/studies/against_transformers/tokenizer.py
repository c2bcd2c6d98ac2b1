"""Tokenizer speed against transformers' fast tokenizer, on one machine in one run.

    python -m studies against_transformers/tokenizer [--quick]

Both get the same Python lists of 1,024 strings and two threads. Two results are timed: `ids`, the ids alone, without
special tokens and untruncated (our ragged tensor, their list of lists), and `inputs`, complete model inputs with
special tokens, mask and segments, truncated to 128 and padded to the batch's longest (our int32 tensors, their int64
NumPy arrays). Rounds alternate, in alternating order; the ratio is the median of the rounds' ratios. The ids of all
texts are compared before timing.
"""

from __future__ import annotations

import itertools
import lzma
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pocketbert.errors import UserError
from pocketbert_bench import results
from studies.shared_data import shared_data

THREADS = 2
BATCH_SIZE = 1024
MAX_LENGTH = 128
# For ids; model inputs are measured too.
TARGETS = {("SST-2", "ids"): 10.0, ("Wikipedia paragraphs", "ids"): 4.0}


def run(quick: bool) -> dict[str, Any]:
    """Times both tokenizers in texts per second, if `quick` with a tenth of the texts in three rounds.

    Raises:
      UserError: the data or transformers are missing.
    """
    vocabulary = shared_data("vocab/bert-base-uncased.vocab.txt")
    texts = {
        "SST-2": _sst2(4_096 if quick else 40_960),
        "Wikipedia paragraphs": _paragraphs(512 if quick else 5_120),
    }
    # Both libraries read these on first use.
    os.environ["RAYON_NUM_THREADS"] = str(THREADS)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    try:
        from transformers import BertTokenizerFast
    except ImportError as error:
        raise UserError(
            f"the baseline is transformers' fast tokenizer; received: {error}; install the test extra"
        ) from error
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

    word_piece_tokenizer = WordPieceTokenizer(vocabulary)
    peer = BertTokenizerFast(str(vocabulary), do_lower_case=True)
    ids_only = {"add_special_tokens": False, "return_attention_mask": False, "return_token_type_ids": False}
    padded = {"truncation": True, "max_length": MAX_LENGTH, "padding": "longest", "return_tensors": "np"}
    calls: dict[str, tuple[Callable[[list[str]], Any], Callable[[list[str]], Any]]] = {
        "ids": (word_piece_tokenizer.tokenize, lambda batch: peer(batch, **ids_only)["input_ids"]),
        "inputs": (
            lambda batch: word_piece_tokenizer(batch, max_length=MAX_LENGTH),
            lambda batch: peer(batch, **padded),
        ),
    }
    ratios, notes = [], []
    for name, all_texts in texts.items():
        batches = [all_texts[start : start + BATCH_SIZE] for start in range(0, len(all_texts), BATCH_SIZE)]
        for batch in batches:
            if word_piece_tokenizer.tokenize(batch).to_list() != peer(batch, **ids_only)["input_ids"]:
                raise AssertionError(f"{name}: the ids of both tokenizers must be equal for a comparison; they differ")
        for result, pair in calls.items():
            ratios.append(_compare(pair, batches, len(all_texts), 3 if quick else 9, name, result))
        characters = statistics.mean(map(len, all_texts))
        ascii_share = sum(map(str.isascii, all_texts)) / len(all_texts)
        notes.append(
            f"{name}: {len(all_texts)} texts of {characters:.0f} characters on average, {100 * ascii_share:.1f} % of "
            f"them ASCII, in batches of {BATCH_SIZE} on {THREADS} threads; both give the same ids for every text"
        )
    return results.to_json(results.result_file("tokenizer", quick=quick, ratios=ratios, notes=notes))


def _compare(
    calls: tuple[Callable[[list[str]], Any], Callable[[list[str]], Any]],
    batches: Sequence[list[str]],
    texts: int,
    rounds: int,
    workload: str,
    result: str,
) -> results.Ratio:
    rates: tuple[list[float], list[float]] = ([], [])
    for turn in range(-1, rounds):
        for side in (0, 1) if turn % 2 else (1, 0):
            start = time.perf_counter()
            for batch in batches:
                calls[side](batch)
            elapsed = time.perf_counter() - start
            # The first turn warms up.
            if turn >= 0:
                rates[side].append(texts / elapsed)
    return results.ratio(
        name=f"tokenizer {result}, {workload}",
        description=f"texts a second, {'ids without special tokens' if result == 'ids' else 'padded model inputs'}",
        ours="pocketbert",
        peer="transformers BertTokenizerFast",
        unit="texts/s",
        ours_samples=rates[0],
        peer_samples=rates[1],
        better="higher",
        target=TARGETS.get((workload, result)),
    )


def _sst2(count: int) -> list[str]:
    lines = shared_data("glue/SST-2/train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return [line.split("\t")[0] for line in lines[:count]]


def _paragraphs(count: int) -> list[str]:
    """Paragraphs of at least 200 characters, in order."""

    def lines() -> Iterator[str]:
        with lzma.open(shared_data("text/enwiki2015-train.txt.xz"), "rt", encoding="utf-8") as stream:
            for line in stream:
                if len(line) >= 200:
                    yield line.strip()

    return list(itertools.islice(lines(), count))
