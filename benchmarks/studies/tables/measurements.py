"""Tables of latencies, sizes, memory and kernels; most of these measurements are closed."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence

import numpy as np

from pocketbert_bench import comparison, results
from pocketbert_bench.comparison import Row
from pocketbert_bench.results import Ratio
from pocketbert_bench.statistics import pair_ratios
from studies.sentence_embeddings import DIMENSIONS, FLOAT, MODEL, NESTED, RECIPE, STUDENT, TEACHER, WIDTH
from studies.tables import compression
from studies.tables.render import NOTHING, bullets, interval, page, table, target_cells
from studies.tasks import recipe_scores
from studies.tasks.recipes import BASELINE, NAIVE, STATIC

GIB = 2**30
# Lengths in README's table.
_LENGTHS = (32, 128)
_SIDES = (">Ours ÷ baseline (95 % CI)", ">Target", "Met")
# Types of values and encodings of masks in HSK's store, and the limit in GiB.
_STORE_FORMATS = (
    ("float16", "bits", None),
    ("float16", "elias-fano", None),
    ("int8", "bits", 0.6),
    ("int8", "elias-fano", 0.45),
)
_PAPER = "the paper's format"
# HSK's N_D, N_L and N_W/d → values and masks in GiB, as printed in its table 3.
_STORE_PRINTED = {"1,9,0.1": (1.0, 2.5), "5,2,0.3": (3.4, 2.8), "3,8,0.2": (5.4, 6.8), "7,128,1": (1011.0, 0.0)}
# Norm and activation → milliseconds in MobileBERT's table 7.
_VARIANTS_PRINTED = {"LayerNorm & gelu": 192, "LayerNorm & relu": 167, "NoNorm & gelu": 92, "NoNorm & relu": 62}


def readme(content: results.ResultFile) -> str:
    """README: the models of `pocketbert quickstart --full`."""
    rows = comparison.rows([content], {"student": "teacher"})
    heads = ["Model", ">Accuracy", ">Size", *(f">{length} tokens" for length in _LENGTHS), ">Speed-up", "Command"]
    closing = [
        "Accuracy on the dev split of film reviews. Latency per text, one thread, on an "
        f"{content.machine.cpu}; speed-up over TensorFlow's converter (float32) at {_LENGTHS[-1]} tokens.",
        "`pocketbert quickstart --full` runs all of these commands on your machine.",
    ]
    if any(caveat.mark == comparison.BUSY for caveat in comparison.caveats(rows)):
        closing.append("Other programs ran at the same time: these latencies are too high. Compare the speed-ups.")
    return page(table(heads, map(_readme_cells, rows)), closing)


def _readme_cells(row: Row) -> list[str]:
    assert row.size_bytes
    names = {"teacher": "6 layers, fine-tuned", "student": "3 layers, distilled"}
    commands = {"teacher": "finetune", "student": "distill"}
    name = f"{names[row.model]}, {row.recipe}" if row.model in names else f"{row.model}: {row.label}"
    if row.is_baseline:
        name = f"TensorFlow's converter, {row.recipe}"
    command = "bench --baselines" if row.is_baseline else f"{commands[row.model]}`, `export --recipe={row.recipe}"
    return [
        name,
        f"{100 * row.accuracy.value:.1f} %" if row.accuracy else NOTHING,
        f"{row.size_bytes / 1e6:.0f} MB",
        # An export with one length pads shorter texts to it.
        *(f"{(row.effective_latency_us(length, 1) or 0) / 1e3:.1f} ms" for length in _LENGTHS),
        f"{1 / row.faster.value:.1f}×" if row.faster else NOTHING,
        f"`{command}`",
    ]


def recipes(content: results.ResultFile) -> str:
    """Recipes: size, latency and memory of three networks, and scores of the 6x384 network."""

    def name(recipe: str) -> str:
        return "every operator int8, by TensorFlow's converter" if recipe == NAIVE else f"`{recipe}`"

    ratios = {ratio.name: ratio for ratio in content.ratios}
    latencies = []
    for run in content.measurements:
        assert run.summary is not None and run.size_bytes is not None
        ratio, memory = ratios.get(f"{run.model} {run.recipe}"), NOTHING
        if run.peak_memory_bytes is not None and run.base_memory_bytes is not None:
            memory = f"{(run.peak_memory_bytes - run.base_memory_bytes) / 1e6:.0f}"
        cells = [f"`{run.model}`", name(run.recipe), f"{run.size_bytes / 1e6:.1f}"]
        cells += [f"{run.summary.median_us / 1000:.2f}", interval(ratio, to=" to ") if ratio else "1", memory]
        latencies.append(cells)
    naive = [
        (f"`{name.split()[0]}`", interval(ratio, to=" to "), *target_cells(ratio))
        for name, ratio in ratios.items()
        if name.endswith(f" to {NAIVE}")
    ]
    of_model = recipe_scores.MODEL
    trained = {(score.task, score.examples): score.value for score in content.accuracies if score.label == of_model}
    scores = []
    for score in content.accuracies:
        lost = f"{100 * (trained[score.task, score.examples] - score.value) + 0.0:+.2f}"
        recipe, lost = ("float model", NOTHING) if score.label == of_model else (name(score.recipe), lost)
        cells = [f"{score.task} ({score.metric})", recipe, str(score.examples), f"{100 * score.value:.2f}", lost]
        scores.append(cells)
    heads = ["Network", "Recipe", ">MB", ">ms", f">Ratio to `{BASELINE}` (95 % CI)", ">Memory growth, MB"]
    naive_heads = ["Network", _SIDES[0], "Target", "Met"]
    return page(
        table(heads, latencies),
        [f"`{STATIC}` against TensorFlow's converter with every operator in int8:"] if naive else [],
        table(naive_heads, naive) if naive else [],
        ["Dev scores of the 6x384 network (6 layers, width 384), fine-tuned on each task:"],
        table(["Task", "Recipe", ">Examples", ">Score, %", ">Points lost"], scores),
        [f"Measured on {content.machine.cpu}, {content.created[:10]}.{_shortened(content)}"],
        bullets(content.notes),
    )


def _shortened(content: results.ResultFile) -> str:
    return " A shortened run." if content.quick else ""


def activations(content: results.ResultFile) -> str:
    """Forms of GELU and softmax."""
    prefix = "largest error: "
    errors = dict(note.removeprefix(prefix).rsplit(": ", 1) for note in content.notes if note.startswith(prefix))
    rows = []
    for ratio in content.ratios:
        function, rest = ratio.name.split(", ", 1)
        form, kernel = rest.rsplit(", ", 1)
        value = "1 (exported)" if ratio.ours == ratio.peer else interval(ratio, to=" to ")
        rows.append((function, form, kernel, _median(ratio.ours_samples), value, errors[ratio.name]))
    heads = ["Function", "Form", "Kernel", ">µs", ">÷ exported form (95 % CI)", ">Largest error"]
    return page(table(heads, rows), [f"Measured with {content.notes[-1]}."])


def operations(content: results.ResultFile) -> str:
    """Operations of EfficientBERT's networks, in float32 and int8."""
    ratios = {ratio.name: ratio for ratio in content.ratios}
    dynamic = ratios.pop("linear, dynamic_wi8")
    names, formats = dict.fromkeys(name.rpartition(", ")[0] for name in ratios), ("float32", "int8")
    linear = [_median(ratios[f"relu, {form}"].peer_samples) for form in formats]
    rows: list[Sequence[str]] = [("linear map", linear[0], "1", linear[1], "1")]
    for name in names:
        cells = [f"`{name}`"]
        for form in formats:
            ratio = ratios[f"{name}, {form}"]
            cells += [_median(ratio.ours_samples), f"{ratio.value:.3f}"]
        rows.append(cells)
    heads = ["Operation", *(head for form in formats for head in (f">{form}, µs", ">÷ linear map"))]
    notes = [f"Linear map in `dynamic_wi8`: {_median(dynamic.ours_samples)} µs", *content.notes]
    return page(table(heads, rows), bullets(notes, "."))


def _median(samples: Sequence[float]) -> str:
    return f"{statistics.median(samples):.1f}"


def memory_of_lengths(content: results.ResultFile) -> str:
    """Lengths: resident growth and opening time."""
    metrics = {"growth": "Resident growth", "opening": "Opening", "latency": "Latency, 128 tokens"}

    def side(name: str, samples: Sequence[float], unit: str) -> str:
        median = statistics.median(samples)
        return f"{name}: {f'{median / 1e6:.1f} MB' if unit == 'bytes' else f'{median / 1e3:.1f} ms'}"

    rows = [
        (
            metrics[ratio.name.split(",")[0]],
            side(ratio.ours, ratio.ours_samples, ratio.unit),
            side(ratio.peer, ratio.peer_samples, ratio.unit),
            interval(ratio),
            *target_cells(ratio),
        )
        for ratio in content.ratios
    ]
    return page(table(["Metric", "Ours", "Baseline", *_SIDES], rows))


def speed_of_lengths(content: results.ResultFile) -> str:
    """Lengths: mean speeds on SST-2's sentences, and latencies by length."""
    rows = [
        (
            *(side.removeprefix("lengths ") for side in (ratio.ours, ratio.peer)),
            interval(ratio),
            *target_cells(ratio),
        )
        for ratio in content.ratios
    ]
    # The last note tells that weights are random.
    return page(table(["Ours", "Baseline", *_SIDES], rows), bullets(content.notes[:-1]))


def ratios(content: results.ResultFile) -> str:
    """Every ratio of a study, with its description."""
    return page(_ratios(content), bullets(content.notes))


def teachers(content: results.ResultFile) -> str:
    """Networks of several families and their students, with their bundles, by label."""
    kinds = list(dict.fromkeys((accuracy.model, accuracy.recipe) for accuracy in content.accuracies))
    scores = {
        (record.label, record.model, record.recipe): f"{100 * record.value:.1f} %" for record in content.accuracies
    }
    labels = dict.fromkeys(record.label for record in content.accuracies)
    rows = [[label, *(scores.get((label, *kind), NOTHING) for kind in kinds)] for label in labels]
    columns = [f">{model}, {recipe}" if recipe else f">{model}" for model, recipe in kinds]
    return page(table(["", *columns], rows), bullets(content.notes))


def heads(content: results.ResultFile) -> str:
    """Scores of two heads on one encoder and of two networks, and the time for their answers."""
    return compression.demo(content) + page(["", *_ratios(content)])


def _ratios(content: results.ResultFile) -> list[str]:
    rows = [(ratio.description, interval(ratio), *target_cells(ratio)) for ratio in content.ratios]
    return table(["Compared", *_SIDES], rows)


def hsk_store(content: results.ResultFile) -> str:
    """HSK's store: sizes for MNLI, the paper's sizes, and the effect on the loss."""
    ratios = {ratio.name: ratio for ratio in content.ratios}
    sizes = []
    for dtype, masks, limit in _STORE_FORMATS:
        planned = ratios[f"MNLI, {dtype}, {masks}"]
        target = NOTHING if limit is None else f"≤ {limit:g} GiB"
        sizes.append((dtype, masks, f"{_gib(planned.ours_samples)} GiB", target, f"{100 * planned.value:.1f} %"))
    paper = next(ratio for ratio in content.ratios if ratio.peer == _PAPER)
    sizes.append(("float32", f"bytes ({_PAPER})", f"{_gib(paper.peer_samples)} GiB", NOTHING, "100 %"))
    printed = []
    for knowledge, both in _STORE_PRINTED.items():
        cells = [knowledge]
        for part, size in zip(("values", "masks"), both, strict=True):
            ratio = ratios.get(f"table 3, {knowledge}, {part}")
            cells.append(f"{_gib(ratio.ours_samples)} / {size:g} GiB" if ratio else NOTHING)
        printed.append(cells)
    losses = []
    for ratio in content.ratios:
        name, *rest = ratio.name.split(", ")
        if name == "hidden loss" and rest[0] in ("float16", "int8"):
            off = np.abs(pair_ratios(ratio.ours_samples, ratio.peer_samples) - 1)
            losses.append((rest[1], rest[0], f"{100 * off.mean():.4f} %", f"{100 * off.max():.4f} %"))
    written = next(ratio for ratio in content.ratios if ratio.ours == "on disk")
    return page(
        table(["MNLI, values", "Masks", ">Size", ">Target", ">Share of the paper's format"], sizes),
        table(["N_D,N_L,N_W/d", ">Values, ours / paper", ">Masks, ours / paper"], printed),
        table(["Student", "Store", ">Mean difference from the live loss", ">Largest"], losses),
        [
            f"SST-2's store, {written.description.partition('store of ')[2]}: planned "
            f"{written.peer_samples[0]:,.0f} bytes, on disk {written.ours_samples[0]:,.0f} bytes."
        ],
        bullets(content.notes, "."),
    )


def _gib(samples: Sequence[float]) -> str:
    return f"{samples[0] / GIB:,.3g}" if samples[0] < 100 * GIB else f"{samples[0] / GIB:,.0f}"


def hsk_speed(content: results.ResultFile) -> str:
    """HSK's training speed from a store."""

    def metric(ratio: Ratio, kind: str) -> str:
        return {
            "speed": f"speed {ratio.ours}, against {ratio.peer}",
            "bound": "teacher and step from the store, against the step",
            "decoding": "reading and decoding, against the step",
        }.get(kind, f"{ratio.name}, against the store's size")

    rows = []
    for ratio in content.ratios:
        kind, _, where = ratio.name.partition(", ")
        # The strategy is part of the baseline's name.
        where = where.removesuffix(", att-no-sep") or NOTHING
        value = interval(ratio, digits=".2f" if ratio.value >= 0.1 else ".4f")
        rows.append((where, metric(ratio, kind), value, *target_cells(ratio)))
    decoding = [f"{ratio.name}: {ratio.description}." for ratio in content.ratios if ratio.name.startswith("decoding")]
    heads = ["Batch x tokens", "Metric", *_SIDES]
    return page(table(heads, rows), bullets([*decoding, *content.notes]))


def mobilebert_recipes(content: results.ResultFile) -> str:
    """Points lost by each recipe on the scaled-down MobileBERT."""
    scores = {(score.label, score.split): score for score in content.accuracies}
    labels, splits = (list(dict.fromkeys(keys)) for keys in zip(*scores, strict=True))
    counts = [scores["model", split].examples for split in splits]
    rows = []
    for label in labels:
        cells = ["float model" if label == "model" else f"`{label}`"]
        for split in splits:
            score, trained = scores[label, split].value, scores["model", split].value
            lost = NOTHING if label == "model" else f"{100 * (trained - score) + 0.0:+.2f}"
            cells += [f"{100 * score:.2f}", lost]
        rows.append(cells)
    heads = ["Recipe", *(head for count in counts for head in (f">{count:,} sentences, %", ">Points lost"))]
    shown = ", ".join(f"{count:,} sentences: {split}" for count, split in zip(counts, splits, strict=True))
    return page(
        table(heads, rows),
        [f"{shown}. Measured on {content.machine.cpu}, {content.created[:10]}.{_shortened(content)}"],
        bullets(content.notes),
    )


def mobilebert_variants(content: results.ResultFile) -> str:
    """MobileBERT's normalizations and activations."""
    measured = {(run.model, run.recipe): run for run in content.measurements}
    ratios, names = {ratio.name: ratio for ratio in content.ratios}, ("float32", "dynamic_wi8")
    slowest, rows = max(_VARIANTS_PRINTED.values()), []
    for variant, printed in _VARIANTS_PRINTED.items():
        cells = [variant]
        for recipe in names:
            summary, ratio = measured[variant, recipe].summary, ratios.get(f"{variant}, {recipe}")
            assert summary is not None
            cells += [f"{summary.median_us / 1000:.1f}", interval(ratio, to=" to ") if ratio else "1"]
        rows.append([*cells, str(printed), f"{printed / slowest:.2f}"])
    heads = ["Norm & activation", *(head for name in (*names, "Paper") for head in (f">{name}, ms", ">Ratio"))]
    closing = f"Measured on {content.machine.cpu}, 1 thread, {content.created[:10]}."
    return page(table(heads, rows), [closing], list(content.notes))


def vocabulary(content: results.ResultFile) -> str:
    """Vocabulary trimming: tokens and sentences that stay the same, by the kept share."""
    rows = []
    for share, cells in _same_by(content, "label").items():
        note = next(note for note in content.notes if note.startswith(f"{share} of the vocabulary"))
        size, unknown = re.search(r"before, (.*) MB after;.* and (.*) %$", note).groups()  # type: ignore[union-attr]
        rows.append((share, *cells, f"{size} MB", f"{unknown} %"))
    heads = [">Vocabulary kept", ">Tokens as before", ">Sentences as before", ">Weights", ">Unknown tokens"]
    first = content.accuracies[0]
    measured = [f"Measured on {first.examples:,} sentences: {first.split}."]
    return page(table(heads, rows), measured, bullets(content.notes))


def multilingual(content: results.ResultFile) -> str:
    """Vocabulary trimming: languages of a multilingual student."""
    rows = [(split, *cells) for split, cells in _same_by(content, "split").items()]
    return page(table(["Texts", ">Tokens as before", ">Sentences as before"], rows), bullets(content.notes))


def _same_by(content: results.ResultFile, field: str) -> dict[str, list[str]]:
    """Value of a field → cells of the tokens and sentences that stay the same."""
    shares: dict[str, dict[str, float]] = {}
    for score in content.accuracies:
        shares.setdefault(getattr(score, field), {})[score.metric] = score.value
    names = ("same_tokens", "same_sentences")
    return {key: [f"{100 * metrics[name]:.2f} %" for name in names] for key, metrics in shares.items()}


def embeddings(content: results.ResultFile) -> str:
    """Sentence embeddings: scores, sizes and latencies."""
    scores = {(score.model, score.recipe, score.metric): score.value for score in content.accuracies}
    measured = {(run.model, run.recipe): run for run in content.measurements}
    slowest, narrow = min(measured[TEACHER, FLOAT].latency_us), DIMENSIONS[::-1]
    models = [*((model, WIDTH) for model in (TEACHER, STUDENT, NESTED))]
    models += [(model, width) for model in (NESTED, TEACHER, STUDENT) for width in narrow]
    rows = []
    for model, width in models:
        cells = [f"{100 * scores[model, recipe, f'spearman_at_{width}']:.2f}" for recipe in (MODEL, RECIPE)]
        name, rest = f"{model}, first features", ["", "", ""]
        if width == WIDTH:
            run, name = measured[model, RECIPE], model
            rest = [f"{scores[model, RECIPE, 'mean_cosine']:.4f}", f"{(run.size_bytes or 0) / 1e6:.1f} MB"]
            rest.append(f"{slowest / min(run.latency_us):.1f}×")
        rows.append((name, str(width), *cells, *rest))
    heads = ["Model", ">Features", ">Float", f">`{RECIPE}`", ">Mean cosine", ">Size", ">Speed-up"]
    return page(table(heads, rows))


def embedding_search(content: results.ResultFile) -> str:
    """Sentence embeddings: the search by MediaPipe's client."""
    scores = {(score.recipe, score.metric): score.value for score in content.accuracies if score.task == "search"}
    metrics = ("nearest_at_10", "overlap_at_10")
    rows = [
        (f"`{recipe}`", *(f"{100 * scores[recipe, metric]:.2f} %" for metric in metrics)) for recipe in (FLOAT, RECIPE)
    ]
    return page(table(["File", ">Nearest sentence found", ">Overlap of both top tens"], rows), bullets(content.notes))
