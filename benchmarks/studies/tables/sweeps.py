"""Tables of the sweeps of TinyBERT, MiniLMv2, vocabulary trimming, tasks and quantization-aware training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pocketbert_bench import results
from pocketbert_bench.quickstart import NETWORK
from studies.closed import reproduction
from studies.minilmv2 import accuracy as minilmv2
from studies.quantized import QUANTIZED
from studies.runner import RESULTS
from studies.sweep import MAJORITY, NOBODY, TEACHER, TRAINED, split_label
from studies.tables.render import (
    NOTHING,
    ScoreTable,
    Values,
    bullets,
    cell,
    counted_examples,
    difference,
    finding,
    page,
    scored_heads,
    table,
    task_titles,
)
from studies.tinybert import accuracy as tinybert

# Model and label of the rows without seeds.
ONCE = ((NOBODY, MAJORITY), (NETWORK, TEACHER))

_GENERAL, _FRESH = "general distillation, two steps", "two steps, no general distillation"
# The paper's findings, and two variants of 4x312; the first must be better to confirm.
_TINYBERT_FINDINGS = {
    "TinyBERT beats a student without distillation (table 1)": (_GENERAL, "fine-tuned, no distillation"),
    "intermediate layers improve on prediction alone (table 3)": (_GENERAL, "general distillation, prediction only"),
    "general distillation helps (table 2: MRPC +1.7, CoLA +10.0)": (_GENERAL, _FRESH),
    "augmentation helps (table 2: MRPC +3.4, CoLA +21.0)": (f"{_GENERAL}, augmented", _GENERAL),
}

# Table of the paper → its rows, by label of this table; `MINILMV2` is the reference.
_ABLATIONS: dict[str, dict[str, minilmv2.MiniLMv2Variant]] = {
    "Relations (table 7)": {
        "Q-Q + K-K + V-V": minilmv2.MINILMV2,
        **{variant.label: variant for variant in (*minilmv2.WITHOUT.values(), minilmv2.QK_VV)},
    },
    "More relations (table 10)": {minilmv2.ALL_PAIRS.label: minilmv2.ALL_PAIRS},
    "Relation heads (table 8)": {
        "48": minilmv2.MINILMV2,
        **{str(heads): variant for heads, variant in minilmv2.FEWER_HEADS.items()},
    },
    "Teacher's layer (figure 2)": {
        f"{minilmv2.TEACHER_LAYERS}, the last one": minilmv2.MINILMV2,
        **{str(layer): variant for layer, variant in minilmv2.LAYERS.items()},
    },
    "MiniLM v1 (table 4)": {"last layer": minilmv2.MINILM, "upper middle layer": minilmv2.MINILM_UPPER},
}
_MINILMV2_FINDINGS = {
    "MiniLMv2 beats a truncated teacher (table 1)": (minilmv2.MINILMV2, minilmv2.TRUNCATED),
    "MiniLMv2 beats TinyBERT's general distillation (table 1)": (minilmv2.MINILMV2, minilmv2.TINYBERT),
    "distillation helps": (minilmv2.MINILMV2, minilmv2.RANDOM),
    "MiniLMv2 beats MiniLM v1 (table 4)": (minilmv2.MINILMV2, minilmv2.MINILM),
    "Q-Q, K-K and V-V beat Q-K and V-V (table 7)": (minilmv2.MINILMV2, minilmv2.QK_VV),
    "48 relation heads beat 6 (table 8)": (minilmv2.MINILMV2, minilmv2.FEWER_HEADS[6]),
    "nine pairs beat three (table 10)": (minilmv2.ALL_PAIRS, minilmv2.MINILMV2),
}

# Recipes with quantization-aware training, and how their files were made.
_RECOVERED = (
    ("static_wi8_ai8_full", "calibrated ranges"),
    ("dynamic_wi4", "nearest"),
    ("dynamic_wi4", "GPTQ"),
)
# Task → title and metric.
_TASKS = {
    "wnli": ("WNLI", "accuracy"),
    "rte": ("RTE", "accuracy"),
    "mrpc": ("MRPC", "f1"),
    "cola": ("CoLA", "matthews"),
    "xnli": ("XNLI, English", "accuracy"),
    "stsb": ("STS-B", "spearman"),
    "qnli": ("QNLI", "accuracy"),
    "squad": ("SQuAD 1.1", "f1"),
    "squad2": ("SQuAD 2.0", "f1"),
    "tydiqa": ("TyDi QA, English", "f1"),
}
# Limits for int8: points, or correct predictions if that allows more.
_MOST_POINTS, _MOST_ANSWERS = 0.5, 3
# Metrics that are a fraction of the examples.
_COUNTED = ("accuracy", "exact_match")


def main_table(
    heads: Sequence[str], rows: Sequence[tuple[str, str]], tasks_scored: Sequence[str], seeds: int, scores: ScoreTable
) -> list[str]:
    """A row for each model and label, with mean and standard deviation on each GLUE task; `ONCE` has no seeds."""
    return table(
        [*heads, *scored_heads(tasks_scored)],
        [
            (*row, *(cell(scores.values(*row, task).values(), 1 if row in ONCE else seeds) for task in tasks_scored))
            for row in rows
        ],
    )


def findings_table(
    heads: Sequence[str],
    findings: Mapping[str, tuple[str, str]],
    model: str,
    titles: Mapping[str, str],
    scores: ScoreTable,
) -> list[str]:
    """A row for each finding, with the differences of two labels of a model: the better one, and the other one."""
    rows = []
    for name, (first, second) in findings.items():
        change = finding(lambda task: (scores.values(model, first, task), scores.values(model, second, task)), titles)  # noqa: B023
        rows.append((name, change))
    return table(heads, rows)


def tinybert_text(content: results.ResultFile) -> str:
    """TinyBERT: students, and findings."""
    scores, titles = ScoreTable.of_main_metrics(content), task_titles(tinybert.TASKS)
    rows = [*ONCE, *((shape, variant.label) for shape, variants in tinybert.VARIANTS.items() for variant in variants)]
    head = results.read(RESULTS / "tinybert" / "masked_lm.json")
    again = reproduction("tinybert/masked_lm", head)
    heads = ["Finding of the paper", "Difference with 4x312"]
    return page(
        main_table(["Student", "Variant"], rows, tinybert.TASKS, len(tinybert.SEEDS), scores),
        findings_table(heads, _TINYBERT_FINDINGS, "4x312", titles, scores),
        [f"{counted_examples(content, titles)} Head for augmentation: {head.notes[0]}. {again}"],
    )


def minilmv2_text(content: results.ResultFile) -> str:
    """MiniLMv2: students, ablations with one seed, and findings."""
    scores, titles = ScoreTable.of_main_metrics(content), task_titles(minilmv2.TASKS)
    shape, first_seed = minilmv2.ABLATED, str(minilmv2.SEEDS[0])
    rows = [*ONCE, *((model, variant.label) for model, variants in minilmv2.MAIN.items() for variant in variants)]
    ablations = []
    for title, variants in _ABLATIONS.items():
        for label, variant in variants.items():
            # One seed, also where the reference has more.
            values = [scores.values(shape, variant.label, task).get(first_seed) for task in minilmv2.ABLATION_TASKS]
            ablations.append((title, label, *(percent(value) for value in values)))
    findings = {name: (first.label, second.label) for name, (first, second) in _MINILMV2_FINDINGS.items()}
    return page(
        main_table(["Student", "Start"], rows, minilmv2.TASKS, len(minilmv2.SEEDS), scores),
        table([f"Ablation, {shape}", "Variant", *scored_heads(minilmv2.ABLATION_TASKS)], ablations),
        findings_table(["Finding of the paper", f"Difference with {shape}"], findings, shape, titles, scores),
        [counted_examples(content, titles)],
    )


def percent(value: float | None) -> str:
    """Formats one score."""
    return NOTHING if value is None else f"{100 * value:.1f}"


def trimming_text(content: results.ResultFile) -> str:
    """Vocabulary trimming: SST-2's accuracy, and the difference to the whole vocabulary."""
    scores = ScoreTable(record for record in content.accuracies if record.metric == "accuracy")
    whole, *halves = dict.fromkeys(split_label(record.label)[0] for record in content.accuracies)
    values = {label: scores.values(NETWORK, label, "sst2") for label in (whole, *halves)}
    rows = [(whole, cell(values[whole].values(), 3), "")]
    rows += [(label, cell(values[label].values(), 3), difference(values[label], values[whole])) for label in halves]
    # The first note has the settings.
    return page(table(["Vocabulary", ">Accuracy", ">Difference"], rows), bullets(content.notes[1:]))


def tasks_text(content: results.ResultFile) -> str:
    """Tasks: float model against int8 bundle."""
    scores = {
        (record.task, record.metric, record.recipe): record for record in content.accuracies if record.model != NOBODY
    }
    constants = {record.task: record.value for record in content.accuracies if record.model == NOBODY}
    rows = []
    for task, (title, metric) in _TASKS.items():
        model, bundle = (scores[task, metric, recipe] for recipe in (TRAINED, QUANTIZED))
        points, answers = 100 * (model.value - bundle.value), answers_lost(scores, task)
        within = points <= _MOST_POINTS + 1e-9 or (answers is not None and answers <= _MOST_ANSWERS)
        # A model without skill has nothing to lose.
        learned = model.value > constants.get(task, -1)
        rows.append(
            (
                title,
                f"{int(model.label.split()[0]):,}",
                f"{model.examples:,}",
                metric,
                f"{100 * constants[task]:.2f}" if task in constants else NOTHING,
                f"{100 * model.value:.2f}",
                f"{100 * bundle.value:.2f}",
                f"{round(points, 2) + 0.0:+.2f}",
                NOTHING if answers is None else f"{answers:+d}",
                ("within" if within else "**beyond**") if learned else "**nothing learned**",
            )
        )
    heads = ["Task", ">Training examples", ">Dev examples", "Metric", ">Baseline", ">Float", f">`{QUANTIZED}`"]
    return page(table([*heads, ">Points lost", ">Correct predictions lost", "Verdict"], rows))


def answers_lost(scores: Mapping[tuple[str, str, str], results.Accuracy], task: str) -> int | None:
    """Number of correct predictions that the bundle loses; None if no score counts them."""
    for metric in _COUNTED:
        model, bundle = (scores.get((task, metric, recipe)) for recipe in (TRAINED, QUANTIZED))
        if model is not None and bundle is not None:
            return round((model.value - bundle.value) * model.examples)
    return None


def qat_text(content: results.ResultFile) -> str:
    """Quantization-aware training: files of each network, and the share of the loss that training recovers.

    Labels are the recipe of the training, the file's recipe and how it was made.
    """
    scores = ScoreTable(content.accuracies)

    def values(metric: str, *label: str) -> Values:
        return scores.values(NETWORK, " / ".join(label), "sst2", metric)

    start = values("accuracy", "no", "float")
    names = {"no": NOTHING, "one more epoch": f"{NOTHING} (one more epoch)"}
    rows: list[Sequence[str]] = []
    for label in dict.fromkeys(split_label(record.label)[0] for record in content.accuracies):
        parts = label.split(" / ")
        weights, recipe = parts[:2]
        accuracy, differences = values("accuracy", label), [NOTHING, NOTHING]
        if recipe != "float":
            differences = [cell(values("logit_rms", label).values(), 3, unit=1, digits=".3f")]
            differences.append(cell(values("equal_labels", label).values(), 3))
        lost = difference(start, accuracy) if rows else NOTHING
        file = f"`{recipe}`, {parts[2]}" if len(parts) > 2 else "float32"
        rows.append((names.get(weights, f"`{weights}`"), file, cell(accuracy.values(), 3), lost, *differences))
    recoveries = []
    for recipe, way in _RECOVERED:
        losses = [
            [
                {seed: start[seed] - value for seed, value in values("accuracy", weights, recipe, way).items()},
                values("logit_rms", weights, recipe, way),
                {seed: 1 - value for seed, value in values("equal_labels", weights, recipe, way).items()},
            ]
            for weights in ("no", recipe)
        ]
        shares = [_recovered(before, after) for before, after in zip(*losses, strict=True)]
        controls = [values("accuracy", weights, recipe, way) for weights in ("one more epoch", recipe)]
        recoveries.append((f"`{recipe}`, {way}", *shares, difference(*controls)))
    heads = ["Trained with `--qat`", "File", ">Accuracy, %", ">Points lost", ">RMS difference", ">Equal labels, %"]
    recovery_heads = [">Points lost", ">RMS difference", ">Different labels", ">Points lost against the control"]
    return page(
        table(heads, rows),
        ["Share of the loss that training recovers, over all seeds. The last column compares with the control:"],
        table(["File", *recovery_heads], recoveries),
        [f"Measured on {content.accuracies[0].examples} sentences: SST-2's dev set."],
    )


def _recovered(before: Values, after: Values) -> str:
    """Formats 1 - after ÷ before over the common seeds; "–" if nothing was lost before."""
    seeds = before.keys() & after.keys()
    lost, left = (sum(values[seed] for seed in seeds) for values in (before, after))
    # Less than one answer of all.
    return f"{round(100 * (1 - left / lost))} %" if lost > 1e-3 else NOTHING
