"""Write the tables in README and docs/results from the committed result files: `python -m studies.tables`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pocketbert_bench import results
from studies import comparisons_table, readme_table, sentence_embeddings_table, small_data_table
from studies.ablations import activations
from studies.ablations import tables as lengths
from studies.against_transformers import runtimes_table
from studies.efficientbert import operations
from studies.efficientbert import tables as efficientbert
from studies.hsk import speed_table as hsk_speed
from studies.hsk import store_table as hsk_store
from studies.hsk import tables as hsk
from studies.marked_block import MarkedBlock
from studies.minilmv2 import tables as minilmv2
from studies.mobilebert import recipes_table, variants_table
from studies.mobilebert import tables as mobilebert
from studies.runner import RESULTS
from studies.tasks import qat_tables, recipe_tables
from studies.tasks import tables as tasks
from studies.tinybert import tables as tinybert
from studies.trimming import tables as trimming

NOT_RUN = "Not measured yet.\n"
Table = Callable[[results.ResultFile], str]
_EMBEDDINGS = RESULTS / "sentence_embeddings.json"
# Block of a page, result file, and function that writes the text from it.
PAGES: tuple[tuple[MarkedBlock, Path, Table], ...] = (
    (readme_table.BLOCK, RESULTS / "quickstart.json", readme_table.table),
    (runtimes_table.BLOCK, RESULTS / "against_transformers" / "runtimes.json", runtimes_table.table),
    (tinybert.BLOCK, RESULTS / "tinybert" / "accuracy.json", tinybert.table),
    (minilmv2.BLOCK, RESULTS / "minilmv2" / "accuracy.json", minilmv2.table),
    (hsk_store.BLOCK, RESULTS / "hsk" / "store.json", hsk_store.table),
    (hsk_speed.BLOCK, RESULTS / "hsk" / "speed.json", hsk_speed.table),
    (hsk.BLOCK, RESULTS / "hsk" / "accuracy.json", hsk.table),
    (operations.BLOCK, RESULTS / "efficientbert" / "operations.json", operations.table),
    (efficientbert.BLOCK, RESULTS / "efficientbert" / "accuracy.json", efficientbert.table),
    (mobilebert.BLOCK, RESULTS / "mobilebert" / "accuracy.json", mobilebert.table),
    (recipes_table.BLOCK, RESULTS / "mobilebert" / "recipes.json", recipes_table.table),
    (variants_table.BLOCK, RESULTS / "mobilebert" / "variants.json", variants_table.table),
    (lengths.MEMORY_BLOCK, RESULTS / "ablations" / "weight_cache.json", lengths.memory_table),
    (lengths.SPEED_BLOCK, RESULTS / "ablations" / "shared_lengths.json", lengths.speed_table),
    (trimming.VOCABULARY_BLOCK, RESULTS / "trimming" / "vocabulary.json", trimming.vocabulary_table),
    (trimming.MULTILINGUAL_BLOCK, RESULTS / "trimming" / "multilingual.json", trimming.multilingual_table),
    (trimming.ACCURACY_BLOCK, RESULTS / "trimming" / "accuracy.json", trimming.accuracy_table),
    (tasks.BLOCK, RESULTS / "tasks" / "accuracy.json", tasks.table),
    (qat_tables.BLOCK, RESULTS / "tasks" / "qat.json", qat_tables.table),
    (activations.BLOCK, RESULTS / "ablations" / "activations.json", activations.table),
    (recipe_tables.BLOCK, RESULTS / "tasks" / "recipes.json", recipe_tables.table),
    (small_data_table.DATA_BLOCK, RESULTS / "small_data.json", small_data_table.data_table),
    (small_data_table.COUNTS_BLOCK, RESULTS / "small_data.json", small_data_table.counts_table),
    (small_data_table.VARIANTS_BLOCK, RESULTS / "small_data.json", small_data_table.variants_table),
    (sentence_embeddings_table.SCORES_BLOCK, _EMBEDDINGS, sentence_embeddings_table.scores_table),
    (sentence_embeddings_table.SEARCH_BLOCK, _EMBEDDINGS, sentence_embeddings_table.search_table),
)


def text(path: Path, table: Table) -> str:
    """Text of a page's block; states that a study without a result file was not measured."""
    return table(results.read(path)) if path.exists() else NOT_RUN


if __name__ == "__main__":
    comparisons_table.BLOCK.write(comparisons_table.text())
    for block, path, table in PAGES:
        block.write(text(path, table))
