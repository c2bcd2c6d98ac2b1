"""MobileBERT's transfer on real text: bucketed batches against tf-models-official's padded batches.

    python -m studies mobilebert/text [--quick]

`mobilebert.training` times the same step on full sequences. At the paper's 512 tokens many examples are not full: an
article ends, a second segment is truncated where another article is drawn, and BERT makes some examples short on
purpose. tf-models-official pads each example to 512 tokens; ours are batched with others of similar length. Networks,
losses, optimizers and threads are those of `mobilebert.training`, in float32, with a baseline teacher without dropout.

Both sides get the same examples of Wikipedia with the same masks, one batch at a time. Rounds alternate, in alternating
order; the ratio is the median of the rounds' ratios of examples per second. Batches are made before timing.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pocketbert import progress
from pocketbert_bench import results
from studies.mobilebert import model_garden as model_garden
from studies.mobilebert import shapes as setting
from studies.mobilebert.shapes import Shape
from studies.mobilebert.training import OURS, PEER_WITHOUT, our_transfer_step
from studies.shared_data import shared_data

SHAPE = Shape(batch_size=4, length=512)
DOCUMENTS = 400
STEPS_A_ROUND = 4
ROUNDS, QUICK_ROUNDS = 9, 2
# The first rounds trace and warm up.
WARM_UP_ROUNDS = 1
TARGET = 1.3
_INPUTS = ("input_word_ids", "input_mask", "input_type_ids")

TextBatch = Mapping[str, Any]


def run(quick: bool) -> dict[str, Any]:
    """Times the step on both kinds of batches.

    Args:
      quick: two rounds instead of nine.

    Returns:
      Content of a result file: examples per second, and the number of computed tokens per real token on either side.

    Raises:
      UserError: the data are missing.
    """
    text, vocabulary = shared_data("text/enwiki2015-train.txt.xz"), shared_data("vocab/bert-base-uncased.vocab.txt")
    setting.use_threads()
    import tensorflow as tf

    created = results.now()
    rounds = WARM_UP_ROUNDS + (QUICK_ROUNDS if quick else ROUNDS)
    with tempfile.TemporaryDirectory() as folder:
        batches, padding = batches_of_text(text, vocabulary, Path(folder), rounds * STEPS_A_ROUND)
    teacher, student = (setting.config(name, SHAPE) for name in (setting.TEACHER, setting.STUDENT))
    any_width = {name: tf.TensorSpec([None, None], tf.int32) for name in _INPUTS}
    steps: dict[str, Callable[[TextBatch], Any]] = {
        OURS: tf.function(our_transfer_step(SHAPE), input_signature=[any_width]),
        PEER_WITHOUT: tf.function(model_garden.transfer_step(teacher, student, teacher_dropout=False)),
    }
    rates = _rates(steps, {OURS: batches, PEER_WITHOUT: [padded(batch, SHAPE.length) for batch in batches]})
    ratio = results.ratio(
        name=f"transfer on text, {OURS} against {PEER_WITHOUT}",
        description=f"a step of transfer with its update, {SHAPE} tokens at most, {setting.THREADS} threads",
        ours=OURS,
        peer=PEER_WITHOUT,
        unit="examples/s",
        ours_samples=rates[OURS],
        peer_samples=rates[PEER_WITHOUT],
        better="higher",
        target=TARGET,
    )
    notes = [
        f"computed tokens per real token in these {len(batches)} batches: {padding['bucketed']:.2f} bucketed, "
        f"{padding['padded']:.2f} padded to {SHAPE.length}; {padding['padded, all']:.2f} padded in all examples of "
        f"{DOCUMENTS} articles"
    ]
    return results.to_json(
        results.result_file(
            "MobileBERT's transfer on real text", quick=quick, ratios=[ratio], notes=notes, created=created
        )
    )


def batches_of_text(
    text: Path, vocabulary: Path, folder: Path, count: int
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """The first batches of a run on pretraining examples.

    Args:
      text: articles; `DOCUMENTS` of them are read.
      vocabulary: a file with one token per line.
      folder: folder for the examples.
      count: number of batches.

    Returns:
      Batches, inputs by name, int32 [B, S]; and the number of computed tokens per real token, with and without buckets.
    """
    from pocketbert.data.pretraining_data import PretrainingData
    from pocketbert.data.pretraining_options import PretrainingOptions
    from pocketbert.data.pretraining_run import write_pretraining_data
    from pocketbert.data.text import read_documents
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

    documents = ("\n".join(each.paragraphs) for each in itertools.islice(read_documents(text), DOCUMENTS))
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    options = PretrainingOptions(max_length=SHAPE.length)
    write_pretraining_data(folder / "text.txt", WordPieceTokenizer(vocabulary), folder / "data", options)
    data = PretrainingData.open(folder / "data")
    plan = data.plan(batch_size=SHAPE.batch_size, seed=0, epoch=0)[:count]
    batches = [{name: batch[name] for name in _INPUTS} for batch in data.dataset(plan, seed=0, epoch=0)]
    real = sum(int(data.lengths[row].sum()) for row in plan)
    padding = {
        "bucketed": sum(int(batch["input_mask"].shape.num_elements()) for batch in batches) / real,
        "padded": SHAPE.length * SHAPE.batch_size * len(batches) / real,
        "padded, all": SHAPE.length * len(data) / int(data.lengths.sum()),
    }
    return batches, padding


def padded(batch: TextBatch, length: int) -> TextBatch:
    """The batch in tf-models-official's form: padded with zeros, which is also `[PAD]`, to `length`."""
    import tensorflow as tf

    return {name: tf.pad(value, [[0, 0], [0, length - value.shape[1]]]) for name, value in batch.items()}


def _rates(
    steps: Mapping[str, Callable[[TextBatch], Any]], batches: Mapping[str, Sequence[TextBatch]]
) -> dict[str, list[float]]:
    """Examples per second of each side, by round; all sides take the same examples in a round."""
    rates: dict[str, list[float]] = {name: [] for name in steps}
    firsts = range(0, len(batches[OURS]), STEPS_A_ROUND)
    for turn, first in enumerate(progress.track(firsts, "rounds", "round")):
        for name in list(steps)[:: 1 if turn % 2 else -1]:
            start = time.perf_counter()
            for batch in batches[name][first : first + STEPS_A_ROUND]:
                float(steps[name](batch))
            if turn >= WARM_UP_ROUNDS:
                rates[name].append(STEPS_A_ROUND * SHAPE.batch_size / (time.perf_counter() - start))
    return rates
