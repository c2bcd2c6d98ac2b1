"""Pretraining examples as run data, and MLM and NSP metrics on their dev split."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from pocketbert.configs import PRETRAINING_HEADS, EncoderConfig, TaskConfig, TokenizerConfig
from pocketbert.data.pretraining.reader import PretrainingData
from pocketbert.model import Model
from pocketbert.notation import argument, command
from pocketbert.tasks.masked_lm import is_labelled
from pocketbert.tasks.outputs import check_finite
from pocketbert.training.config import RunConfig
from pocketbert.training.initialization import tokenizer_problems
from pocketbert.training.run_data import RunData, StageEvaluator
from pocketbert.training.stage import Stage
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

# Examples per model call.
BATCH_SIZE = 32
# Seed and epoch for order and masks, so that every evaluation uses the same.
_SEED = _EPOCH = 0


class PretrainingRunData(RunData):
    """Examples from `pocketbert pretrain-data`.

    Attributes:
      given: the examples.
    """

    served = ("pretraining",)
    vocabulary: Vocabulary
    # As in BERT, no dropout between encoder outputs and these heads.
    tasks = tuple(TaskConfig(kind=kind, dropout=0.0) for kind in PRETRAINING_HEADS)

    def __init__(self, data: PretrainingData) -> None:
        self.given = data
        self.main_metric = "" if data.dev is None else "masked_lm_accuracy"
        self.vocabulary = _vocabulary(data)

    def paths(self) -> list[str | os.PathLike[str] | None]:
        return [self.given.folder, None if self.given.dev is None else self.given.dev.folder]

    def recorded(self) -> dict[str, Any]:
        dev = self.given.dev
        return {
            "pretraining_sha256": self.given.identity,
            "dev_pretraining_sha256": None if dev is None else dev.identity,
        }

    def stage_problems(self, stages: Sequence[Stage]) -> list[str]:
        """See `RunData`; also reports batches larger than the data."""
        problems = super().stage_problems(stages)
        for stage in stages:
            if stage.keep == "best" and not self.main_metric:
                problems.append(
                    f"stage {stage.name} keeps its best weights and needs a dev split; received pretraining "
                    f"examples without one; pass {argument('dev_data', python='PretrainingData.open(…, dev)')}"
                )
        if problems:
            return problems
        largest = max(stages, key=lambda stage: stage.batch_size)
        if len(self.given) < largest.batch_size:
            duplicates = argument("duplicates", of="pretrain-data")
            problems.append(
                f"stage {largest.name} needs {largest.batch_size} examples per step; {self.given.folder} has "
                f"{len(self.given)}; lower the batch size, or make more examples (from more text, or with "
                f"{duplicates})"
            )
        return problems

    def model_problems(
        self,
        stages: Sequence[Stage],
        role: str,
        config: EncoderConfig,
        vocabularies: Mapping[str, Vocabulary | None],
    ) -> list[str]:
        """See `RunData`; checks pooler, segments, length and vocabulary."""
        from pocketbert_runtime.tokenizers.wordpiece_vocabulary import read_vocabulary

        problems = []
        if config.pooler == "none":
            problems.append(
                f"next-sentence prediction reads the pooled output; the {role} has pooler='none'; give one with a "
                "pooler"
            )
        if config.type_vocab_size < 2:
            problems.append(
                f"pairs of texts need 2 segments; the {role} has {config.type_vocab_size}; raise its type_vocab_size"
            )
        longest = min(stage.max_length for stage in stages)
        remedy = "make the examples with this model's vocab.txt, or give a model with the examples' vocabulary"
        python = f"write_pretraining_data(…, PretrainingOptions(max_length={longest}))"
        for data in (self.given, self.given.dev):
            if data is None:
                continue
            if data.max_length > longest:
                problems.append(
                    f"examples must have at most {longest} tokens; {data.folder} has up to {data.max_length}; make "
                    f"examples with {command('pretrain-data', python=python, max_length=longest)}, or raise the length "
                    "of the stages"
                )
            tokens = len(read_vocabulary(data.vocab_path))
            if tokens != config.vocab_size:
                problems.append(
                    f"model and examples need the same vocabulary; {data.folder} has {tokens} tokens, the {role} "
                    f"{config.vocab_size}; {remedy}"
                )
            if data.pad_token_id != config.pad_token_id:
                problems.append(
                    f"model and examples need the same padding id; {data.folder} has {data.pad_token_id}, the {role} "
                    f"{config.pad_token_id}; {remedy}"
                )
            for whose, vocabulary in vocabularies.items():
                if vocabulary is not None:
                    problems += tokenizer_problems(_vocabulary(data), vocabulary, str(data.folder), whose, remedy)
        return list(dict.fromkeys(problems))

    def option_problems(self, run: RunConfig) -> list[str]:
        if not (run.whole_words and self.given.masked):
            return []
        masking = "write_pretraining_data(…, PretrainingOptions(masking=MaskingOptions(whole_words=True)))"
        again = command("pretrain-data", python=masking, baked_masks=True, whole_words=True)
        return [
            f"whole_words needs dynamic masks; {self.given.folder} has baked-in masks; leave it out, or make the "
            f"examples with {again}"
        ]

    def uncacheable(self, stage: Stage) -> str:
        return (
            f"stage {stage.name} uses pretraining examples; their targets cannot be cached, because masks change every "
            "epoch and logits over the vocabulary are too large; give a live teacher"
        )

    def evaluated_length(self, stage: Stage) -> int | None:
        """See `RunData`; every stage is evaluated on the dev split, if any."""
        return None if self.given.dev is None else self.given.dev.max_length

    def evaluator(
        self, model: Model, max_length: int, run: RunConfig, windows: Mapping[str, Any], batch_size: int
    ) -> StageEvaluator:
        if self.given.dev is None:
            return super().evaluator(model, max_length, run, windows, batch_size)
        return PretrainingEvaluator(model, self.given.dev, run.evaluation_batches)

    def _unused(self, used: Collection[str]) -> list[str]:
        if "pretraining" in used:
            return []
        option = argument("pretraining_data", python="pb.PretrainingData(…)")
        return [f"no stage uses pretraining examples; received some; leave out {option}"]


class PretrainingEvaluator:
    """Scores a model with a masked-LM and a next-sentence head.

    `masked_lm_loss` and `next_sentence_loss` are means in nats over masked tokens and over examples.
    `masked_lm_accuracy` and `next_sentence_accuracy` are fractions from 0 to 1.

    Args:
      model: the model; its weights may change between calls.
      data: the dev split.
      max_batches: most batches with `BATCH_SIZE` examples, a fixed random sample.
    Attributes:
      loss: sum of both losses in the last call of `metrics`.
    """

    loss: float | None

    def __init__(self, model: Model, data: PretrainingData, max_batches: int) -> None:
        self._model, self.loss = model, None
        plan = data.plan(batch_size=min(BATCH_SIZE, len(data)), seed=_SEED, epoch=_EPOCH)[:max_batches]
        self._batches = data.dataset(plan, seed=_SEED, epoch=_EPOCH)
        self._count = tf.function(self._counts, input_signature=[self._batches.element_spec], autograph=False)

    def metrics(self, when: str) -> dict[str, float]:
        """Returns metrics for the current weights.

        Args:
          when: completes an error message, for example `after step 7`.
        Raises:
          TrainingFailed: an output is not finite.
        """
        # Summed in float64: the last batches count as much as the first.
        rows = [self._count(batch).numpy().astype("float64") for batch in self._batches]
        words, word_loss, words_right, examples, example_loss, examples_right = sum(rows)
        check_finite(when, {"masked_lm": word_loss, "next_sentence": example_loss})
        self.loss = float(word_loss / words + example_loss / examples)
        return {
            "masked_lm_loss": float(word_loss / words),
            "masked_lm_accuracy": float(words_right / words),
            "next_sentence_loss": float(example_loss / examples),
            "next_sentence_accuracy": float(examples_right / examples),
        }

    def _counts(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """Float32 [6]: count, summed loss and correct answers for masked tokens, then for examples."""
        inputs = {name: value for name, value in batch.items() if not name.endswith("_labels")}
        outputs = self._model(inputs, training=False)
        words, sentences = batch["masked_lm_labels"], batch["next_sentence_labels"]
        return tf.stack(
            [
                *answer_sums(words, outputs["prediction_logits"], is_labelled(words)),
                *answer_sums(sentences, outputs["seq_relationship_logits"], tf.ones_like(sentences, tf.bool)),
            ]
        )


def _vocabulary(data: PretrainingData) -> Vocabulary:
    return Vocabulary(path=Path(data.vocab_path), config=TokenizerConfig(lowercase=data.lowercase))


def answer_sums(labels: tf.Tensor, logits: tf.Tensor, counted: tf.Tensor) -> list[tf.Tensor]:
    """Float32 scalars for the counted labels: count, summed loss in nats and correct answers."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(labels, 0), logits)
    right = tf.equal(tf.argmax(logits, axis=-1, output_type=labels.dtype), labels)
    weights = tf.cast(counted, tf.float32)
    return [tf.reduce_sum(values * weights) for values in (tf.ones_like(losses), losses, tf.cast(right, tf.float32))]
