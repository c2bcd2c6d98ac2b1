"""Tables and pictures in README and docs, from the committed result files: `python -m studies.tables` writes them.

`render` has the one table renderer; the other modules say which scores stand in which row.
"""

from __future__ import annotations

from studies.tables import (
    bake_off,
    charts,
    comparisons,
    compression,
    efficientbert,
    hsk,
    measurements,
    mobilebert,
    runtimes,
    small_data,
    sweeps,
)
from studies.tables.render import MarkedBlock

BLOCKS = tuple(
    MarkedBlock(page=page, name=name, result=result, text=text)
    for page, name, result, text in (
        ("docs/results/comparisons.md", "TABLE", "", comparisons.text),
        ("docs/results/comparisons.md", "RUNTIMES", "against_transformers/runtimes", runtimes.text),
        ("docs/results/comparisons.md", "CHECKPOINTING", "gradient_checkpointing", measurements.ratios),
        ("docs/results/comparisons.md", "FROZEN", "frozen_layers", measurements.ratios),
        ("docs/results/comparisons.md", "FAMILIES", "families/latency", measurements.ratios),
        ("docs/results/comparisons.md", "FAMILY_TRAINING", "families/training", measurements.ratios),
        ("docs/results/comparisons.md", "FAMILY_MEMORY", "families/memory", measurements.ratios),
        ("docs/results/comparisons.md", "FAMILY_TEACHERS", "families/teachers", measurements.teachers),
        ("README.md", "RESULTS", "quickstart", measurements.readme),
        ("docs/results/tinybert.md", "TABLE", "tinybert/accuracy", sweeps.tinybert_text),
        ("docs/results/minilmv2.md", "TABLE", "minilmv2/accuracy", sweeps.minilmv2_text),
        ("docs/results/hsk.md", "STORE", "hsk/store", measurements.hsk_store),
        ("docs/results/hsk.md", "SPEED", "hsk/speed", measurements.hsk_speed),
        ("docs/results/hsk.md", "TABLE", "hsk/accuracy", hsk.text),
        ("docs/methods/efficientbert.md", "OPERATIONS", "efficientbert/operations", measurements.operations),
        ("docs/results/efficientbert.md", "TABLE", "efficientbert/accuracy", efficientbert.text),
        ("docs/results/mobilebert.md", "TABLE", "mobilebert/accuracy", mobilebert.text),
        ("docs/results/mobilebert.md", "RECIPES", "mobilebert/recipes", measurements.mobilebert_recipes),
        ("docs/results/mobilebert-variants.md", "TABLE", "mobilebert/variants", measurements.mobilebert_variants),
        ("docs/results/lengths.md", "MEMORY", "ablations/weight_cache", measurements.memory_of_lengths),
        ("docs/results/lengths.md", "SPEED", "ablations/shared_lengths", measurements.speed_of_lengths),
        ("docs/results/vocabulary.md", "VOCABULARY", "trimming/vocabulary", measurements.vocabulary),
        ("docs/results/vocabulary.md", "MULTILINGUAL", "trimming/multilingual", measurements.multilingual),
        ("docs/results/vocabulary.md", "ACCURACY", "trimming/accuracy", sweeps.trimming_text),
        ("docs/results/tasks.md", "TABLE", "tasks/accuracy", sweeps.tasks_text),
        ("docs/results/tasks.md", "HEADS", "several_heads", measurements.heads),
        ("docs/results/qat.md", "TABLE", "tasks/qat", sweeps.qat_text),
        ("docs/results/recipes.md", "ACTIVATIONS", "ablations/activations", measurements.activations),
        ("docs/results/recipes.md", "TABLE", "tasks/recipes", measurements.recipes),
        ("docs/results/small-data.md", "DATA", "small_data", small_data.data_table),
        ("docs/results/small-data.md", "COUNTS", "small_data", small_data.counts_table),
        ("docs/results/small-data.md", "VARIANTS", "small_data", small_data.variants_table),
        ("docs/results/small-data.md", "UNLABELLED", "unlabelled_texts", compression.demo),
        ("docs/results/small-data.md", "TOPICS", "rejected_topics", small_data.topics_table),
        ("docs/results/small-data.md", "PAIRS", "separate_pairs", small_data.pairs_table),
        ("docs/results/small-data.md", "DOMAIN", "domain_adaptation", compression.demo),
        ("docs/results/compression.md", "COSTS", "compression_costs", compression.costs),
        ("docs/results/compression.md", "DEMO", "compression_demo", compression.demo),
        ("docs/results/compression.md", "LIMITS", "compression_limits", compression.limits),
        ("docs/results/compression.md", "HOUR", "compression_hour", compression.hour),
        ("docs/results/bake-off.md", "ROWS", "bake_off", bake_off.rows),
        ("docs/results/bake-off.md", "HALF WIDTH", "bake_off", bake_off.half_width),
        ("docs/results/bake-off.md", "WINNERS", "bake_off", bake_off.winners),
        ("docs/results/embeddings.md", "SCORES", "sentence_embeddings", measurements.embeddings),
        ("docs/results/embeddings.md", "SEARCH", "sentence_embeddings", measurements.embedding_search),
    )
)
PICTURES = (
    charts.Picture(path="docs/results/recipes.svg", result="tasks/recipes", draw=charts.draw_recipes),
    *hsk.PICTURES,
    *efficientbert.PICTURES,
)
