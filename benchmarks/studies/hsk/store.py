"""Size of HSK's store, and the difference that its int8 values make to the loss.

    python -m studies hsk/store [--quick]

MNLI's store is planned, not written: BERT-base teaches TinyBERT4 with (1, 9, 0.1), and 392,702 examples repeat the
lengths of XNLI's English dev pairs, which are from the same sources. The paper's format, float32 values and one byte
per mask bit, is arithmetic, and compared with its table 3.

SST-2's store is written from all training sentences: the 6x384 network with a new head teaches a 4x312 student, in int8
with Elias-Fano masks. Its size on disk is compared with the planned size.

The loss of `hidden` is computed without dropout on batches of SST-2 from a live teacher, from a float16 store and from
an int8 store, for a student with random weights and after a few hundred steps. Every sample is one batch.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketbert import progress
from pocketbert.data.assets import minilm
from pocketbert.data.examples import Examples
from pocketbert.data.glue import GLUE, read_glue
from pocketbert.outputs import MARKER
from pocketbert_bench import results
from studies.hsk.subjects import KNOWLEDGE, LENGTH, STUDENT, StoreTeacher, distiller, subject, use_threads
from studies.shared_data import shared_data

if TYPE_CHECKING:
    from pocketbert.data.batches import EncodedExamples
    from pocketbert.model import Model

GIB = 2**30
MNLI_EXAMPLES = 392_702
TEACHER, WIDTH = "bert_base_uncased", 768
PAPER, PREDICTED = "the paper's format", "predicted"
# Types of values, encodings of masks, and the limit in GiB.
FORMATS = (
    ("float16", "bits", None),
    ("float16", "elias-fano", None),
    ("int8", "bits", 0.6),
    ("int8", "elias-fano", 0.45),
)
# N_D, N_L and N_W/d → values and masks in GiB, as printed.
TABLE_3 = {"1,9,0.1": (1.0, 2.5), "5,2,0.3": (3.4, 2.8), "3,8,0.2": (5.4, 6.8), "7,128,1": (1011.0, 0.0)}
BATCH_SIZE, BATCHES, STEPS = 32, 64, 300
# Above the paper's, because the student takes few steps.
RATE = 3e-4
DTYPES = ("float16", "int8")


def run(quick: bool) -> dict[str, Any]:
    """Plans and writes stores, and compares losses.

    Args:
      quick: 2,000 sentences instead of 67,349, and fewer batches and steps.

    Returns:
      Content of a result file.

    Raises:
      UserError: the data are missing.
    """
    use_threads()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ratios = _table_3()
        found, notes = _mnli(folder)
        ratios += found
        sentences = read_glue("sst2", shared_data("glue"), "train")
        if quick:
            sentences = sentences.select(np.arange(2000))
        teacher = subject(_small_teacher(), folder / "sst2", GLUE["sst2"].task, hidden_learning_rate=RATE)
        ratios.append(_written(teacher, sentences, folder))
        batches, steps = (8, 20) if quick else (BATCHES, STEPS)
        ratios += _losses(teacher, sentences, folder, batches, steps)
    notes.append(f"losses: {batches} batches of {BATCH_SIZE} sentences; the trained student took {steps} steps")
    return results.to_json(results.result_file("HSK's store", quick=quick, ratios=ratios, notes=notes))


def paper_bytes(knowledge: str, examples: int = MNLI_EXAMPLES, width: int = WIDTH) -> tuple[int, int]:
    """Bytes of values (float32) and masks (one byte per activation) in the paper's format."""
    from pocketbert.distillation.methods.hsk_knowledge import Knowledge

    amounts = Knowledge.parse(knowledge)
    assert amounts.layers is not None and amounts.tokens is not None
    vectors, kept = examples * amounts.layers * amounts.tokens, amounts.kept(width)
    return 4 * vectors * kept, vectors * width if kept < width else 0


def _table_3() -> list[Any]:
    """The paper's format by arithmetic ÷ table 3."""
    found = []
    for knowledge, printed in TABLE_3.items():
        for part, ours, theirs in zip(("values", "masks"), paper_bytes(knowledge), printed, strict=True):
            if theirs:
                found.append(
                    results.ratio(
                        name=f"table 3, {knowledge}, {part}",
                        description=f"{MNLI_EXAMPLES:,} examples; table 3 is rounded, in GiB",
                        ours="arithmetic",
                        peer="table 3",
                        unit="bytes",
                        ours_samples=[ours],
                        peer_samples=[theirs * GIB],
                        better="lower",
                    )
                )
    return found


def _mnli(folder: Path) -> tuple[list[Any], list[str]]:
    """Planned sizes of MNLI's store ÷ the paper's format, and the lengths behind them."""
    from pocketbert.data.batches import encode
    from pocketbert.data.xnli import read_xnli
    from pocketbert.model import from_preset
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

    tokenizer = WordPieceTokenizer(shared_data("vocab/bert-base-uncased.vocab.txt"))
    task = GLUE["mnli"].task
    planned = subject(from_preset(TEACHER, [task], tokenizer=tokenizer, seed=0), folder / "mnli", task)
    pairs = encode(read_xnli(shared_data("xnli"), "dev", ["en"]), tokenizer, LENGTH)
    selectable = np.add.reduceat(pairs.word_ids != planned.stages[0].options.separator_id, pairs.offsets[:-1])
    examples = repeated(pairs, MNLI_EXAMPLES)
    paper = sum(paper_bytes(KNOWLEDGE))
    found = []
    for dtype, masks, limit in FORMATS:
        plans = [planned.plan(stage, examples, folder / "planned", dtype, masks) for stage in planned.stages]
        found.append(
            results.ratio(
                name=f"MNLI, {dtype}, {masks}",
                description=f"planned store with predictions, {MNLI_EXAMPLES:,} examples at ({KNOWLEDGE})",
                ours=f"{dtype}, {masks}",
                peer=PAPER,
                unit="bytes",
                ours_samples=[sum(plan.manifest().size_bytes for plan in plans)],
                peer_samples=[paper],
                better="lower",
                target=None if limit is None else limit * GIB / paper,
            )
        )
    notes = [
        f"XNLI's English dev pairs: {len(pairs):,}, {pairs.lengths.mean():.2f} tokens in the mean, "
        f"{int((selectable < 9).sum()):,} with fewer than 9 tokens to select from"
    ]
    return found, notes


def repeated(examples: EncodedExamples, count: int) -> EncodedExamples:
    """Repeats examples, in order, up to a number of them; without labels."""
    from pocketbert.data.batches import EncodedExamples

    indices = np.arange(count) % len(examples)
    times, rest = divmod(count, len(examples))
    end = examples.offsets[rest]
    return EncodedExamples(
        word_ids=np.concatenate([*[examples.word_ids] * times, examples.word_ids[:end]]),
        type_ids=np.concatenate([*[examples.type_ids] * times, examples.type_ids[:end]]),
        offsets=np.concatenate([[0], np.cumsum(examples.lengths[indices])]),
        labels=None,
        max_length=examples.max_length,
        pad_token_id=examples.pad_token_id,
    )


def _small_teacher() -> Model:
    """The 6x384 network with a new head for SST-2."""
    from pocketbert.model import from_preset, from_pretrained

    encoder = from_pretrained(minilm())
    teacher = from_preset(encoder.config, [GLUE["sst2"].task], tokenizer=encoder.tokenizer, seed=0)
    found = teacher.weights_by_path()
    for path, variable in encoder.weights_by_path().items():
        found[path].assign(variable)
    return teacher


def _encoded(given: StoreTeacher, sentences: Examples) -> EncodedExamples:
    from pocketbert.data.batches import encode

    assert given.teacher.tokenizer is not None
    return encode(sentences, given.teacher.tokenizer, LENGTH)


def _written(given: StoreTeacher, sentences: Examples, folder: Path) -> Any:
    """Size of SST-2's store on disk ÷ the size that was planned first."""
    examples = _encoded(given, sentences)
    dtype, masks = "int8", "elias-fano"
    output = folder / "store"
    plans = [given.plan(stage, examples, output, dtype, masks) for stage in given.stages]
    planned = sum(plan.manifest().size_bytes for plan in plans)
    progress.log_info(f"SST-2's store, planned: {planned:,} bytes")
    written = [given.write(stage, examples, output, dtype, masks) for stage in given.stages]
    # Every output folder also has a small marker, which belongs to no store.
    size = sum(file.stat().st_size for stage in written for file in stage.iterdir() if file.name != MARKER)
    progress.log_info(f"SST-2's store, on disk: {size:,} bytes")
    return results.ratio(
        name="SST-2, int8, elias-fano, on disk",
        description=f"all files of the written store of {len(examples):,} training sentences at ({KNOWLEDGE}), 6x384",
        ours="on disk",
        peer="planned",
        unit="bytes",
        ours_samples=[size],
        peer_samples=[planned],
        better="lower",
        target=1.0,
    )


def _losses(given: StoreTeacher, sentences: Examples, folder: Path, batches: int, steps: int) -> list[Any]:
    """Losses from stores ÷ those of the live teacher, batch by batch, before and after training."""
    import tensorflow as tf

    from pocketbert.data.batches import plan_batches
    from pocketbert.data.teacher_cache import TeacherCache

    hidden = given.stages[0]
    chosen = np.random.default_rng(0).permutation(len(sentences))[: batches * BATCH_SIZE]
    examples = _encoded(given, sentences.select(chosen))
    plan = plan_batches(examples.lengths, batch_size=BATCH_SIZE, seed=0, epoch=0)
    parts = {}
    for dtype in DTYPES:
        store = TeacherCache.open(given.write(hidden, examples, folder / dtype, dtype, "elias-fano"))
        parts[dtype] = store.dataset(examples, plan)
    trainer = distiller(given, live=True)
    signature = parts["int8"].element_spec
    losses = {
        "online": tf.function(lambda data: trainer.losses(data[0], training=False)[0], input_signature=[signature]),
        "stored": tf.function(lambda data: trainer.losses(*data, training=False)[0], input_signature=[signature]),
    }
    update = tf.function(lambda data: trainer.update(data)["loss"], input_signature=[signature])
    found = []
    for when, more in (("random student", 0), (f"after {steps} steps", steps)):
        for data in parts["int8"].repeat().take(more):
            update(data)
        online = [float(losses["online"](data)) for data in parts["int8"]]
        for dtype in DTYPES:
            found.append(
                results.ratio(
                    name=f"hidden loss, {dtype}, {when}",
                    description=f"eq. 3 without dropout, {STUDENT}, ({KNOWLEDGE}), batches of {BATCH_SIZE}",
                    ours=f"{dtype} store",
                    peer="live teacher",
                    unit="loss",
                    ours_samples=[float(losses["stored"](data)) for data in parts[dtype]],
                    peer_samples=online,
                    better="lower",
                )
            )
    return found
