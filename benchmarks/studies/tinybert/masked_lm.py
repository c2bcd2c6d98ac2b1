"""Train a masked-LM head for the 6x384 network, which has none, on Wikipedia, and measure its accuracy.

    python -m studies tinybert/masked_lm
    python -m studies.tinybert.masked_lm --minutes=60 --output=runs/longer

Network and new head are trained together on 49 of 50 articles of `enwiki2015-train`, packed to 128 tokens, with BERT's
masking and Keras' `fit`. The other articles form the dev split. They are masked once and scored before and after. The
baseline always predicts the training text's most frequent token. A few steps are timed first, to choose the number of
steps for the given time. The model directory stays in the output folder; if it exists, only its accuracy is computed.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pocketbert import files
from pocketbert.configs import TaskConfig
from pocketbert.data.assets import minilm
from pocketbert.data.batches import EncodedExamples, plan_batches
from pocketbert.data.packing import pack
from pocketbert.data.text import Document, TextCounts, read_documents
from pocketbert.progress import log_info, track
from pocketbert_bench import accuracy, results
from pocketbert_bench.quickstart_training import NETWORK
from studies.shared_data import shared_data

TASK = TaskConfig(kind="masked_lm", name="masked LM on enwiki2015", dropout=0.0)
MINUTES = 25.0
MAX_LENGTH = 128
BATCH_SIZE = 32
LEARNING_RATE = 5e-4
WARMUP_RATIO = 0.06
DEV_EVERY = 50
DEV_EXAMPLES = 2000
# The first step traces, and the next ones still allocate memory.
STEPS_UNTIMED, STEPS_TIMED = 3, 8
STEPS_A_LINE = 50
SEED = 0

QUICK_DOCUMENTS = 150
QUICK_STEPS = 8
QUICK_EXAMPLES = 64


class _Data(NamedTuple):
    train: EncodedExamples
    dev: EncodedExamples
    dev_documents: int


class _Score(NamedTuple):
    correct: int
    counted: int

    @property
    def accuracy(self) -> float:
        return self.correct / self.counted


def run(quick: bool) -> dict[str, Any]:
    """Trains and scores; returns the accuracies before and after, and the baseline's."""
    return run_for(MINUTES, Path("runs", "suite-masked-lm-quick" if quick else "suite-masked-lm"), quick=quick)


def run_for(minutes: float, output: Path, *, quick: bool = False) -> dict[str, Any]:
    """The study with another time limit and folder.

    Args:
      minutes: training time on this machine.
      output: folder for `model/` and `training.json`.
      quick: a few steps on a few articles, only to test the study.
    Returns:
      Content of a result file.
    Raises:
      UserError: the data are missing.
    """
    import pocketbert as pb

    text = shared_data("text/enwiki2015-train.txt.xz")
    start = pb.from_pretrained(minilm(), task=TASK, seed=SEED)
    data = _data(text, start.tokenizer, quick)
    before = _score(start, data, quick)
    if not (output / "model").exists():
        _train(data, output, None if not quick else QUICK_STEPS, minutes)
    training = json.loads((output / "training.json").read_text("utf-8"))
    after = _score(pb.from_pretrained(output / "model"), data, quick)
    token, baseline = _most_frequent(data, start.tokenizer, quick)
    scores = {"before": before, "after": after, "most frequent token": baseline}
    notes = [
        f"masked-LM accuracy on {after.counted} tokens of {data.dev_documents} dev articles: "
        f"{100 * after.accuracy:.2f} % after training, {100 * before.accuracy:.2f} % before (new head), "
        f"{100 * baseline.accuracy:.2f} % for always predicting {token!r}",
        f"{training['steps']} steps of {BATCH_SIZE} examples of at most {MAX_LENGTH} tokens in "
        f"{training['seconds'] / 60:.1f} minutes; loss {training['losses'][0]:.2f} in the first {STEPS_A_LINE} steps, "
        f"{training['losses'][-1]:.2f} in the last",
    ]
    accuracies = [
        accuracy.record(
            label=label,
            model=NETWORK,
            recipe="trained",
            task=TASK.name,
            split=f"every {DEV_EVERY}th article",
            metric="accuracy on masked tokens",
            value=score.accuracy,
            examples=score.counted,
        )
        for label, score in scores.items()
    ]
    return results.to_json(
        results.result_file("masked LM with the 6x384 network", quick=quick, accuracies=accuracies, notes=notes)
    )


def _data(text: Path, tokenizer: Any, quick: bool) -> _Data:
    counts = TextCounts()
    dev: list[Document] = []

    def training_documents() -> Any:
        for number, document in enumerate(read_documents(text, counts=counts)):
            if quick and number >= QUICK_DOCUMENTS:
                return
            if number % DEV_EVERY == 0:
                dev.append(document)
            else:
                yield document

    train = pack(training_documents(), tokenizer, MAX_LENGTH, seed=SEED)
    log_info(f"{text.name}: {counts}")
    packed = pack(dev, tokenizer, MAX_LENGTH, seed=SEED)
    log_info(
        f"packed into {len(train)} examples, {train.lengths.mean():.0f} tokens on average; {len(packed)} dev examples"
    )
    return _Data(train, packed, len(dev))


def _train(data: _Data, output: Path, steps: int | None, minutes: float) -> None:
    import pocketbert as pb
    from pocketbert._keras import tf_keras
    from pocketbert.training.optimizers import AdamW
    from pocketbert.training.schedules import LinearSchedule

    class Watch(tf_keras.callbacks.Callback):
        """Time of each step, and mean loss of each group of steps."""

        def __init__(self, total: int, spoken: bool) -> None:
            super().__init__()
            self.total, self.spoken = total, spoken
            self.step = 0
            self.times: list[float] = []
            self.losses: list[float] = []
            self._sum = 0.0

        def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
            assert logs is not None
            self.step += 1
            self.times.append(time.perf_counter())
            if self.step % STEPS_A_LINE == 0 or self.step == self.total:
                # Keras reports the mean since the beginning.
                total = logs["loss"] * self.step
                self.losses.append((total - self._sum) / ((self.step - 1) % STEPS_A_LINE + 1))
                self._sum = total
                if self.spoken:
                    rest = (self.times[-1] - self.times[0]) / max(self.step - 1, 1) * (self.total - self.step)
                    log_info(
                        f"step {self.step} of {self.total}: loss {self.losses[-1]:.3f}, {rest / 60:.1f} minutes left"
                    )

    def fit(total: int, spoken: bool) -> tuple[Any, Watch]:
        model = pb.from_pretrained(minilm(), task=TASK, seed=SEED)
        # The masked LM does not use the pooler: without a gradient Keras would warn.
        model.encoder.pooler.trainable = False
        schedule = LinearSchedule(LEARNING_RATE, total_steps=total + 1, warmup_steps=int(WARMUP_RATIO * total))
        model.compile(AdamW(schedule, weight_decay=0.01, clip_norm=1.0))
        watch = Watch(total, spoken)
        model.fit(_batches(data.train, model.tokenizer, total), verbose=0, callbacks=[watch])
        return model, watch

    if steps is None:
        log_info(f"timing {STEPS_TIMED} steps")
        _, timed = fit(STEPS_UNTIMED + STEPS_TIMED, spoken=False)
        seconds_a_step = (timed.times[-1] - timed.times[STEPS_UNTIMED - 1]) / STEPS_TIMED
        steps = max(1, int(60 * minutes / seconds_a_step))
        log_info(f"{seconds_a_step:.2f} s per step: {steps} steps in {minutes} minutes")
    began = time.perf_counter()
    model, watch = fit(steps, spoken=True)
    output.mkdir(parents=True, exist_ok=True)
    record = {"steps": steps, "seconds": time.perf_counter() - began, "losses": watch.losses}
    files.write_json(output / "training.json", record)
    # Written last: its existence means that training is finished.
    model.save_pretrained(output / "model")


def _batches(train: EncodedExamples, tokenizer: Any, steps: int) -> Any:
    from pocketbert.data.masking import masked_dataset

    batches = None
    epoch = 0
    while steps > 0:
        plan = plan_batches(train.lengths, batch_size=BATCH_SIZE, seed=SEED, epoch=epoch)[:steps]
        part = masked_dataset(train, plan, tokenizer, seed=SEED, epoch=epoch, predictions=True)
        batches = part if batches is None else batches.concatenate(part)
        steps -= len(plan)
        epoch += 1
    return batches


def _dev_batches(data: _Data, tokenizer: Any, quick: bool) -> list[Any]:
    """The same masked batches for every scored model."""
    from pocketbert.data.masking import masked_dataset

    count = min(QUICK_EXAMPLES if quick else DEV_EXAMPLES, len(data.dev))
    chosen = np.random.default_rng(SEED).permutation(len(data.dev))[:count]
    lengths = data.dev.lengths[chosen]
    plan = [chosen[part] for part in plan_batches(lengths, batch_size=BATCH_SIZE, seed=0, epoch=0, shuffle=False)]
    # Another seed than in training: an example's number would otherwise select the same mask.
    return list(masked_dataset(data.dev, plan, tokenizer, seed=SEED + 1, epoch=0, predictions=True))


def _score(model: Any, data: _Data, quick: bool) -> _Score:
    import tensorflow as tf

    from pocketbert.data.masking import NO_LABEL

    @tf.function(reduce_retracing=True)
    def step(inputs: dict[str, tf.Tensor], labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        named = tf.argmax(model(inputs, training=False)["prediction_logits"], axis=-1, output_type=tf.int32)
        counted = labels != NO_LABEL
        return tf.math.count_nonzero((named == labels) & counted), tf.math.count_nonzero(counted)

    correct = counted = 0
    batches = _dev_batches(data, model.tokenizer, quick)
    for inputs, labels in track(batches, "score", "batch"):
        found = step(inputs, labels)
        correct, counted = correct + int(found[0]), counted + int(found[1])
    return _Score(correct, counted)


def _most_frequent(data: _Data, tokenizer: Any, quick: bool) -> tuple[str, _Score]:
    from pocketbert.data.masking import NO_LABEL
    from pocketbert.tokenizers.vocabulary import read_vocabulary

    counts = np.bincount(data.train.word_ids)
    counts[[tokenizer.cls_token_id, tokenizer.sep_token_id]] = 0
    most_frequent = int(counts.argmax())
    labels = np.concatenate([labels.numpy().ravel() for _, labels in _dev_batches(data, tokenizer, quick)])
    labels = labels[labels != NO_LABEL]
    score = _Score(int((labels == most_frequent).sum()), len(labels))
    return read_vocabulary(tokenizer.vocab_path)[most_frequent], score
