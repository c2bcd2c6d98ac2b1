"""Gain of several signatures: SST-2's dev sentences, each at the shortest sufficient length.

A 6x384 classifier in dynamic int8, 1 thread, exported at 32, 64 and 128 tokens, at six lengths, and at 128 only. All
three have the same network and graph optimizations, so the lengths are the only difference. Weights are random. The
files alternate on the same few sentences; one pass over all sentences, in a new order each time, is one pair.
"""

from __future__ import annotations

import itertools
import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert import progress
from pocketbert.configs import TaskConfig
from pocketbert_bench import machine, results
from pocketbert_bench.configurations import Call, Configuration
from pocketbert_bench.host import Worker
from studies.shared_data import shared_data

PRESET = "minilmv2_6l_384d"
RECIPE = "dynamic_wi8"
TASK = TaskConfig(kind="classification", name="sst2", labels=("negative", "positive"))
FIXED, USUAL, MORE = (128,), (32, 64, 128), (16, 24, 32, 48, 64, 128)
TARGET = 3.2
TURNS, QUICK_TURNS = 12, 4
# Number of sentences before the files alternate, a few tens of milliseconds.
CHUNK = 12
# Calls of different lengths are not paired, so take their latencies at the least disturbed times.
UNDISTURBED = 10
# --quick takes every nth sentence.
QUICK_STEP = 8


def run(quick: bool) -> dict[str, Any]:
    """Measures the three files; returns the content of a result file."""
    created, before = results.now(), machine.machine()
    with tempfile.TemporaryDirectory() as folder:
        inputs, files = sentences(quick), export_lengths(Path(folder), (FIXED, USUAL, MORE))
        sizes = {lengths: path.stat().st_size for lengths, path in files.items()}
        turns = QUICK_TURNS if quick else TURNS
        seconds, by_length = measure({lengths: (path, None) for lengths, path in files.items()}, inputs, turns, MORE)
    count = len(inputs["input_mask"])
    rates = {lengths: [count / value for value in values] for lengths, values in seconds.items()}
    ratios = [
        results.ratio(
            name=name,
            description=f"mean over {count} SST-2 dev sentences, {PRESET}, {RECIPE}, 1 thread",
            ours=f"lengths {_words(ours)}",
            peer=f"lengths {_words(peer)}",
            unit="sentences/s",
            ours_samples=rates[ours],
            peer_samples=rates[peer],
            better="higher",
            target=target,
        )
        for name, ours, peer, target in (
            ("three lengths against fixed 128", USUAL, FIXED, TARGET),
            ("six lengths against fixed 128", MORE, FIXED, None),
            ("six lengths against three", MORE, USUAL, None),
        )
    ]
    tokens = inputs["input_mask"].sum(axis=1)
    notes = [_size_note(sizes), *_subset_notes(tokens, by_length, sizes), tokens_note(tokens, MORE)]
    notes.append(results.RANDOM_WEIGHTS_NOTE)
    return results.to_json(
        results.result_file(
            "several lengths against one, on SST-2's sentences",
            quick=quick,
            ratios=ratios,
            notes=notes,
            on=before,
            created=created,
        )
    )


def call_of(row: dict[str, np.ndarray], lengths: Sequence[int]) -> Call:
    """A sentence's call at the shortest sufficient length.

    Args:
      row: int32 `[n]` by input name, padded.
      lengths: lengths of the file, ascending.
    """
    from pocketbert_export.signatures import signature_name

    length = shortest(row, lengths)
    cut = {name: values[:length].tolist() for name, values in row.items()}
    return Call(signature=signature_name(length), inputs=cut, expected=None)


def shortest(row: dict[str, np.ndarray], lengths: Sequence[int]) -> int:
    """The first of `lengths`, ascending, that fits all tokens of `row`."""
    return next(each for each in lengths if each >= row["input_mask"].sum())


def mean_latency_us(tokens: np.ndarray, latency_us: dict[int, float], lengths: Sequence[int]) -> float:
    """Mean latency over sentences, each at the shortest sufficient length.

    Args:
      tokens: `[n]`, number of tokens of each sentence.
      latency_us: length → latency.
      lengths: available lengths; the longest fits every sentence.
    """
    ordered = sorted(lengths)
    return float(np.mean([latency_us[ordered[slot]] for slot in np.searchsorted(ordered, tokens)]))


def sentences(quick: bool) -> dict[str, np.ndarray]:
    """SST-2's dev sentences: int32 `[n, 128]` by input name; with `quick`, every `QUICK_STEP`th."""
    import pocketbert as pb
    from pocketbert.data.glue import read_glue
    from pocketbert.encoder import INPUT_NAMES

    texts = read_glue("sst2", shared_data("glue"), "dev").texts
    tokenizer = pb.WordPieceTokenizer(shared_data("vocab/bert-base-uncased.vocab.txt"))
    encoded = tokenizer(texts[::QUICK_STEP] if quick else texts, max_length=FIXED[-1], pad_to=FIXED[-1])
    return {name: np.asarray(encoded[name]) for name in INPUT_NAMES}


def export_lengths(folder: Path, sets: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], Path]:
    """Exports the network once for each set of lengths; returns the files."""
    import pocketbert as pb
    from pocketbert_export.convert import to_tflite
    from pocketbert_export.graph_optimization import optimize_graph
    from pocketbert_export.graph_optimization_options import GraphOptimizations
    from pocketbert_export.recipes import get_recipe

    optimized = optimize_graph(pb.from_preset(PRESET, [TASK], seed=0), GraphOptimizations())
    paths: dict[tuple[int, ...], Path] = {}
    for lengths in sets:
        paths[lengths] = folder / f"{'_'.join(map(str, lengths))}.tflite"
        paths[lengths].write_bytes(to_tflite(optimized, lengths, get_recipe(RECIPE)))
    return paths


def measure(
    files: Mapping[tuple[int, ...], tuple[Path, Path | None]],
    inputs: dict[str, np.ndarray],
    turns: int,
    most: tuple[int, ...],
) -> tuple[dict[tuple[int, ...], list[float]], dict[int, float]]:
    """Runs all sentences on all files.

    Args:
      files: lengths → file, and the weight cache to open it with on CompiledModel; None uses the interpreter.
      inputs: the sentences.
      turns: number of passes over all sentences, after one that warms up.
      most: lengths of the file whose latencies by length are returned.
    Returns:
      Seconds of every turn by file, and microseconds by length.
    """
    count = len(inputs["input_mask"])
    rows = [{name: values[index] for name, values in inputs.items()} for index in range(count)]
    workers: dict[tuple[int, ...], Worker] = {}
    seconds: dict[tuple[int, ...], list[float]] = {lengths: [] for lengths in files}
    by_length: dict[int, list[float]] = {}
    generator = random.Random(0)
    try:
        for lengths, (path, cache) in files.items():
            workers[lengths] = Worker(
                Configuration(
                    label=_words(lengths),
                    model=PRESET,
                    recipe=RECIPE,
                    model_path=path,
                    length=lengths[-1],
                    threads=1,
                    calls=tuple(call_of(row, lengths) for row in rows),
                    weights="random",
                    runtime="litert-compiled" if cache else "litert",
                    weight_cache=cache,
                )
            )
        order = list(range(count))
        for turn in progress.track(range(turns + 1), "turns through all sentences", "turn"):
            generator.shuffle(order)
            spent = dict.fromkeys(files, 0.0)
            for start in range(0, count, CHUNK):
                chunk = order[start : start + CHUNK]
                for lengths in generator.sample(list(files), len(files)):
                    latencies = workers[lengths].run(chunk)
                    spent[lengths] += sum(latencies) / 1e6
                    # The first turn warms up.
                    if turn and lengths == most:
                        for index, latency in zip(chunk, latencies, strict=True):
                            by_length.setdefault(shortest(rows[index], most), []).append(latency)
            if turn:
                for lengths, value in spent.items():
                    seconds[lengths].append(value)
    finally:
        for worker in workers.values():
            worker.close()
    return seconds, {length: float(np.percentile(values, UNDISTURBED)) for length, values in sorted(by_length.items())}


def _size_note(sizes: dict[tuple[int, ...], int]) -> str:
    return "size: " + "; ".join(f"{_words(lengths)}: {size / 1e6:.2f} MB" for lengths, size in sizes.items())


def _subset_notes(tokens: np.ndarray, by_length: dict[int, float], sizes: dict[tuple[int, ...], int]) -> list[str]:
    """Estimated speed with other sets of lengths, from the latencies of the file with all lengths."""
    if not set(MORE[:-1]) <= set(by_length):
        return []
    # No sentence of SST-2 needs the longest signature, so its latency does not matter here.
    latencies = {**dict.fromkeys(MORE, 0.0), **by_length}
    more = sorted(set(MORE) - set(USUAL))
    usual = mean_latency_us(tokens, latencies, USUAL)
    each = (sizes[MORE] - sizes[USUAL]) / len(more)
    undisturbed = ", ".join(f"{length}: {value / 1e3:.2f}" for length, value in by_length.items())
    lines = [
        f"{UNDISTURBED}th percentile, ms, by length: {undisturbed}",
        f"by these, the mean of {_words(USUAL)} is {usual / 1e3:.2f} ms",
    ]
    for number in range(1, len(more) + 1):
        for added in itertools.combinations(more, number):
            mean = mean_latency_us(tokens, latencies, (*USUAL, *added))
            lines.append(
                f"adding {_words(added)}: {usual / mean:.2f}x faster than {_words(USUAL)}, "
                f"{each * number / 1e6:.2f} MB ({100 * each * number / sizes[USUAL]:.1f} %) larger"
            )
    return lines


def tokens_note(tokens: np.ndarray, lengths: Sequence[int]) -> str:
    """Describes how many sentences fit each length."""
    shares = ", ".join(f"{100 * np.mean(tokens <= length):.0f} % fit {length}" for length in lengths)
    return f"tokens per sentence: mean {tokens.mean():.1f}, longest {tokens.max()}; {shares}"


def _words(lengths: Sequence[int]) -> str:
    return "/".join(map(str, lengths))
