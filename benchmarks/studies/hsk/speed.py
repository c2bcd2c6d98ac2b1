"""Speed of HSK from its store against a live teacher, and the memory of reading a store.

    python -m studies hsk/speed [--quick]
    python -m studies.hsk.speed --pairs=500

BERT-base teaches TinyBERT4 with (1, 9, 0.1), both with random weights: stage `hidden`, with dropout and AdamW, as
`pocketbert distill` runs it, two threads. The store has int8 values and Elias-Fano masks. Random ids all have 128
tokens. The paper times 500 steps of each side one after the other (appendix D); here a pair has one step with the live
teacher and some from the store, in alternating order, so that load slows both. The input pipeline is included.

The default selects tokens by the attention of the teacher's last layer, so the teacher computes all 12 layers. With
att-no-sep it stops at layer 10. "Bound" is the time of teacher and step from the store ÷ the step alone.

Real lengths are those of XNLI's English dev pairs, in buckets of 8; both sides take the same batches. "Decoding" is
reading and decoding a batch, without TensorFlow, ÷ a step from the store.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import flags

from pocketbert import files, progress
from pocketbert.data.glue import GLUE
from pocketbert.errors import UserError
from pocketbert_bench import results
from studies.hsk.subjects import KNOWLEDGE, LENGTH, STUDENT, THREADS, StoreTeacher, distiller, subject, use_threads
from studies.runner import RESULTS
from studies.shared_data import shared_data

if TYPE_CHECKING:
    from pocketbert.data.batches import EncodedExamples
    from pocketbert.data.teacher_cache import TeacherCache

TEACHER = "bert_base_uncased"
DTYPE, MASKS = "int8", "elias-fano"
BATCH_SIZES = (16, 64)
PAIRS, QUICK_PAIRS = 12, 2
# About the duration of one step with the live teacher.
STORED_STEPS = 3
# In the store of random ids; and of pairs with real lengths.
BATCHES, REAL_BATCHES = 2, 10
ONLINE, STORED, TEACHER_ALONE, OTHER_TOKENS = "online", "from the store", "teacher alone", "online, att-no-sep"
SPEED_TARGET, DECODING_TARGET, MEMORY_TARGET = 2.7, 0.01, 0.1
# Examples in the store for the memory, of a tiny teacher.
LARGE, LARGE_LENGTH, LARGE_KNOWLEDGE, LARGE_WIDTH = 50_000, 64, "2,64,0.5", 64

Step = Callable[[], Any]


def run(quick: bool) -> dict[str, Any]:
    """Times the steps and measures the memory.

    Args:
      quick: two pairs of batches of 2 and 3, with 32 tokens, and a small store.

    Returns:
      Content of a result file.

    Raises:
      UserError: the data are missing.
    """
    return measure(QUICK_PAIRS if quick else PAIRS, quick=quick)


def measure(pairs: int, *, quick: bool = False) -> dict[str, Any]:
    """As `run`, with a number of pairs."""
    from pocketbert.model import from_preset
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

    use_threads()
    tokenizer = WordPieceTokenizer(shared_data("vocab/bert-base-uncased.vocab.txt"))
    task = GLUE["mnli"].task
    ratios = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = from_preset(TEACHER, [task], tokenizer=tokenizer, seed=0)
        given = subject(model, folder / "teacher", task)
        shorter = subject(model, folder / "teacher", task, tokens="att-no-sep")
        for number, batch_size in enumerate((2, 3) if quick else BATCH_SIZES):
            ratios += _full_length(
                given, None if number else shorter, batch_size, 32 if quick else LENGTH, pairs, folder / str(batch_size)
            )
            ratios += _real_lengths(given, batch_size, pairs, folder / f"real-{batch_size}")
        memory, note = _memory(folder / "large", 2000 if quick else LARGE)
    notes = [
        f"{pairs} pairs; a pair has 1 step online and {STORED_STEPS} from the store, for real lengths 1 and 1",
        note,
        results.RANDOM_WEIGHTS_NOTE,
    ]
    content = results.result_file("HSK from its store", quick=quick, ratios=[*ratios, memory], notes=notes)
    return results.to_json(content)


def _full_length(
    given: StoreTeacher, shorter: StoreTeacher | None, batch_size: int, length: int, pairs: int, folder: Path
) -> list[Any]:
    """Ratios for random ids of one length; `shorter` is the subject with a teacher that stops earlier."""
    examples = _random_examples(given, BATCHES * batch_size, length)
    store = _store(given, examples, folder)
    plan = [np.arange(first, first + batch_size) for first in range(0, len(examples), batch_size)]
    steps = {STORED: _stored(given, store, examples, plan), ONLINE: _online(given, examples, plan)}
    steps[TEACHER_ALONE] = _teacher_alone(given, examples, plan)
    if shorter is not None:
        steps[OTHER_TOKENS] = _online(shorter, examples, plan)
    counts = {STORED: STORED_STEPS}
    reads: list[float] = []
    seconds = _seconds(steps, counts, pairs, lambda: reads.append(_read_seconds(store, plan, length)))
    where = f"{batch_size} x {length}"
    found = [_speed(f"speed, {where}", given, seconds[STORED], seconds[ONLINE], batch_size, SPEED_TARGET)]
    if shorter is not None:
        name = f"speed, {where}, att-no-sep"
        found.append(_speed(name, shorter, seconds[STORED], seconds[OTHER_TOKENS], batch_size, None))
    together = [one + other for one, other in zip(seconds[STORED], seconds[TEACHER_ALONE], strict=True)]
    found.append(
        results.ratio(
            name=f"bound, {where}",
            description="teacher alone plus a step from the store, against the step",
            ours="teacher + step",
            peer=STORED,
            unit="s",
            ours_samples=together,
            peer_samples=seconds[STORED],
            better="higher",
        )
    )
    return [*found, _decoding(where, reads, seconds[STORED], batch_size)]


def _real_lengths(given: StoreTeacher, batch_size: int, pairs: int, folder: Path) -> list[Any]:
    """Ratios for real lengths in buckets."""
    from pocketbert.data.batches import encode, plan_batches
    from pocketbert.data.xnli import read_xnli

    count = REAL_BATCHES * batch_size
    texts = read_xnli(shared_data("xnli"), "dev", ["en"])
    texts = texts.select(np.random.default_rng(0).permutation(len(texts))[:count])
    assert given.teacher.tokenizer is not None
    examples = encode(texts, given.teacher.tokenizer, LENGTH).unlabelled()
    store = _store(given, examples, folder)
    plan = plan_batches(examples.lengths, batch_size=batch_size, seed=0, epoch=0)
    steps = {STORED: _stored(given, store, examples, plan), ONLINE: _online(given, examples, plan)}
    reads: list[float] = []
    widths = [int(examples.batch(indices)[0]["input_mask"].shape[1]) for indices in plan]

    def read() -> None:
        reads.append(_read_seconds(store, plan, max(widths)))

    # Once through the plan, because libraries prepare their kernels by shape.
    seconds = _seconds(steps, {}, pairs, read, warm_up=len(plan))
    where = f"{batch_size}, real lengths"
    return [
        _speed(f"speed, {where}", given, seconds[STORED], seconds[ONLINE], batch_size, SPEED_TARGET),
        _decoding(where, reads, seconds[STORED], batch_size),
    ]


def _speed(
    name: str, given: StoreTeacher, ours: list[float], baseline: list[float], batch_size: int, target: float | None
) -> Any:
    request = given.stages[0].teacher_features
    layers = ", ".join(f"{kind} of layer {', '.join(map(str, each))}" for kind, each in request.items())
    return results.ratio(
        name=name,
        description=f"a step of hidden at ({KNOWLEDGE}), {TEACHER} to {STUDENT}, {THREADS} threads; the live teacher "
        f"computes {layers}",
        ours=STORED,
        peer=OTHER_TOKENS if name.endswith("att-no-sep") else ONLINE,
        unit="examples/s",
        ours_samples=[batch_size / each for each in ours],
        peer_samples=[batch_size / each for each in baseline],
        better="higher",
        target=target,
    )


def _decoding(where: str, reads: list[float], steps: list[float], batch_size: int) -> Any:
    per_example = 1e6 * float(np.median(reads)) / batch_size
    return results.ratio(
        name=f"decoding, {where}",
        description=f"reading and decoding, {per_example:.1f} us per example, against a step from the store",
        ours="decoding",
        peer=STORED,
        unit="s",
        ours_samples=reads,
        peer_samples=steps,
        better="lower",
        target=DECODING_TARGET,
    )


def _seconds(
    steps: dict[str, Step], counts: dict[str, int], pairs: int, after: Callable[[], None], warm_up: int = 2
) -> dict[str, list[float]]:
    """Seconds of a step of each side, by pair, in alternating order; `after` runs after each pair.

    Args:
      steps: side → step.
      counts: side → steps in a pair; 1 for the others.
      pairs: number of pairs.
      after: called after each pair.
      warm_up: steps of each side before the first pair.
    """
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        for _ in range(warm_up):
            float(step())
    for turn in progress.track(range(pairs), "pairs", "pair"):
        for name in list(steps)[:: 1 if turn % 2 else -1]:
            start = time.perf_counter()
            for _ in range(counts.get(name, 1)):
                value = steps[name]()
            float(value)
            seconds[name].append((time.perf_counter() - start) / counts.get(name, 1))
        after()
    return seconds


def _read_seconds(store: TeacherCache, plan: list[np.ndarray], width: int) -> float:
    """Seconds to read and decode a batch, the mean over the plan."""
    # Let the pipeline finish its next batch.
    time.sleep(0.2)
    start = time.perf_counter()
    for indices in plan:
        store.read(indices, width)
    return (time.perf_counter() - start) / len(plan)


def _stored(given: StoreTeacher, store: TeacherCache, examples: EncodedExamples, plan: list[np.ndarray]) -> Step:
    import tensorflow as tf

    trainer = distiller(given, live=False)
    batches = store.dataset(examples, plan)
    step = tf.function(lambda data: trainer.update(data)["loss"], input_signature=[batches.element_spec])
    stream = iter(batches.repeat())
    return lambda: step(next(stream))


def _online(given: StoreTeacher, examples: EncodedExamples, plan: list[np.ndarray]) -> Step:
    import tensorflow as tf

    from pocketbert.data.batches import dataset

    trainer = distiller(given, live=True)
    batches = dataset(examples, plan)
    step = tf.function(lambda data: trainer.update(data)["loss"], input_signature=[batches.element_spec])
    stream = iter(batches.repeat())
    return lambda: step(next(stream))


def _teacher_alone(given: StoreTeacher, examples: EncodedExamples, plan: list[np.ndarray]) -> Step:
    import tensorflow as tf

    from pocketbert.data.batches import dataset

    batches = dataset(examples, plan)
    stage = given.stages[0]

    def forward(inputs: Any) -> tf.Tensor:
        features = given.teacher.features(inputs, stage.teacher_features, training=False)
        targets = given.method.targets(stage, features, inputs)
        return tf.add_n([tf.reduce_sum(tf.cast(each, tf.float32)) for each in targets.values()])

    step = tf.function(forward, input_signature=[batches.element_spec])
    stream = iter(batches.repeat())
    return lambda: step(next(stream))


def _store(given: StoreTeacher, examples: EncodedExamples, folder: Path) -> TeacherCache:
    from pocketbert.data.teacher_cache import TeacherCache

    return TeacherCache.open(given.write(given.stages[0], examples, folder, DTYPE, MASKS))


def _random_examples(given: StoreTeacher, count: int, length: int, lowest: int = 1000) -> EncodedExamples:
    from pocketbert.data.batches import EncodedExamples

    config = given.teacher.config
    ids = np.random.default_rng(0).integers(lowest, config.vocab_size, count * length).astype(np.int32)
    return EncodedExamples(
        word_ids=ids,
        type_ids=np.zeros(count * length, np.int32),
        offsets=np.arange(0, count * length + 1, length, dtype=np.int64),
        labels=None,
        max_length=length,
        pad_token_id=config.pad_token_id,
    )


def _memory(folder: Path, count: int) -> tuple[Any, str]:
    """Growth of the private memory of a process that reads a store ÷ the size of the store."""
    from pocketbert.model import from_preset
    from pocketbert.presets import preset
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

    tokenizer = WordPieceTokenizer(shared_data("vocab/bert-base-uncased.vocab.txt"))
    tiny = preset(TEACHER).config.replace(
        hidden_size=LARGE_WIDTH,
        embedding_size=LARGE_WIDTH,
        num_layers=1,
        num_attention_heads=2,
        intermediate_size=LARGE_WIDTH,
    )
    task = GLUE["mnli"].task
    teacher = from_preset(tiny, [task], tokenizer=tokenizer, seed=0)
    given = subject(teacher, folder / "teacher", task, knowledge=LARGE_KNOWLEDGE, max_length=LARGE_LENGTH, top_layer=1)
    examples = _random_examples(given, count, LARGE_LENGTH)
    store = given.write(given.stages[0], examples, folder, DTYPE, MASKS)
    size = sum(file.stat().st_size for file in store.iterdir())
    command = [sys.executable, "-m", "studies.hsk.reading", str(store), str(BATCH_SIZES[-1]), str(LARGE_LENGTH)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        last = (answer.stderr.strip().splitlines() or ["nothing on stderr"])[-1]
        raise UserError(f"the process that reads the store must end well; it ended with: {last}")
    found = json.loads(answer.stdout)
    growth = found["peak"] - found["before"]
    ratio = results.ratio(
        name="memory growth while reading",
        description=f"private memory of a process that reads a store of {count:,} examples in random batches of "
        f"{BATCH_SIZES[-1]}, after the first batches, against the size of the store",
        ours="growth",
        peer="store",
        unit="bytes",
        # A ratio needs a positive value; a page is the smallest growth.
        ours_samples=[max(growth, 4096)],
        peer_samples=[size],
        better="lower",
        target=MEMORY_TARGET,
    )
    return ratio, f"reading a store of {size / 2**20:,.1f} MiB: private memory grew by {growth / 2**20:.1f} MiB"


def main(arguments: list[str]) -> int:
    """Measures a number of pairs and writes the result file; returns 2 for bad input."""
    flag_values = flags.FlagValues()
    flags.DEFINE_integer("pairs", PAIRS, "pairs of steps, at least 1", lower_bound=1, flag_values=flag_values)
    flags.DEFINE_string("output", str(RESULTS / "hsk" / "speed.json"), "result file", flag_values=flag_values)
    try:
        flag_values(arguments)
        content = measure(flag_values.pairs)
    except (UserError, flags.Error) as error:
        print(error, file=sys.stderr)
        return 2
    path = Path(flag_values.output)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(path, content)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
