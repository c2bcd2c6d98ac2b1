"""Spans: an answer's start and end in a paragraph, for a question."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.batches import EncodedExamples
from pocketbert.data.data_warnings import DataWarning
from pocketbert.data.readers.questions import QuestionFile
from pocketbert.data.teacher_rows import TeacherRows
from pocketbert.errors import UserError
from pocketbert.layers.core import Dense
from pocketbert.tasks.base import SupervisedTask
from pocketbert.tasks.interfaces import Rows
from pocketbert.tasks.outputs import CrossEntropy, Labelled, mean_over_examples
from pocketbert.tasks.prediction_layers import PredictionLayers
from pocketbert.tasks.question_answering import QuestionEvaluator, QuestionRows, constant_rule, encode_questions
from pocketbert.tasks.question_partners import teacher_windows
from pocketbert.tasks.scores import Scores
from pocketbert.tasks.text_rows import TextRows
from pocketbert_runtime.answers.span import SPAN_OUTPUTS, SpanAnswers
from pocketbert_runtime.forward import Forward
from pocketbert_runtime.windows import WindowOptions

ANSWER_CLASSES = ("has_answer", "no_answer")
# Far below any logit, and finite, so that differences stay finite.
_IMPOSSIBLE = -1e9


class SpanHead(PredictionLayers):
    """Start and end logits for each token."""

    def __init__(self, config: EncoderConfig, task: TaskConfig) -> None:
        super().__init__(config)
        self.output_projection = Dense(config.hidden_size, 2)

    def call(self, encoded: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """Maps the encoder's outputs to float32 [B, S, 2]."""
        return tf.cast(self.output_projection(self.predicted(encoded["sequence_output"])), tf.float32)

    def outputs(self, encoded: Mapping[str, tf.Tensor], training: bool | None) -> dict[str, tf.Tensor]:
        """`start_logits` and `end_logits`, float32 [B, S]."""
        return dict(zip(SPAN_OUTPUTS, tf.unstack(self(encoded, training=training), axis=-1), strict=True))

    def labels_by_output(self, positions: tf.Tensor) -> dict[str, tf.Tensor]:
        """Splits the answers' first and last tokens, int [B, 2], into labels for the two outputs."""
        return {name: positions[:, column] for column, name in enumerate(SPAN_OUTPUTS)}

    def learned(self, labelled: Mapping[str, Labelled], inputs: Mapping[str, tf.Tensor]) -> dict[str, Labelled]:
        """Masks padding, so that it changes neither loss nor metrics; a departure from BERT's run_squad.py."""
        logits = without_padding({name: output.outputs for name, output in labelled.items()}, inputs["input_mask"])
        return {name: output._replace(outputs=logits[name]) for name, output in labelled.items()}

    def losses_by_output(self) -> dict[str, tf_keras.losses.Loss]:
        """Cross-entropy against token positions [B], in nats."""
        return {name: CrossEntropy("token positions") for name in SPAN_OUTPUTS}


class Span(SpanAnswers, SupervisedTask):
    """Finds the answer to a question in a paragraph. With a null threshold, the answer may be empty."""

    needs_pairs = True
    default_lengths = (128, 384)
    pipeline_tag = "question-answering"
    default_max_length = WindowOptions.max_length

    @property
    def default_metrics(self) -> tuple[tuple[str, ...], str]:
        """Exact match and F1, as in SQuAD."""
        return ("exact_match", "f1"), "f1"

    def encoder_config(self, encoder: EncoderConfig) -> EncoderConfig:
        """Removes a tanh pooler: this head would neither read nor train it. transformers' span models have none."""
        return encoder.replace(pooler="none") if encoder.pooler == "tanh" else encoder

    @property
    def weighted_classes(self) -> tuple[str, ...]:
        """Questions with and without an answer."""
        return ANSWER_CLASSES

    def class_targets(self, data: QuestionFile) -> np.ndarray:
        """0 for each question with an answer, then 1 for each without, int64 [questions]."""
        return np.repeat([0, 1], (len(data) - data.num_impossible, data.num_impossible))

    def loss_factors(self, class_weights: np.ndarray, labels: tf.Tensor) -> tf.Tensor:
        """Each window's weight, [B]; a window without the answer has the positions (0, 0)."""
        return tf.gather(tf.constant(class_weights), tf.cast(tf.reduce_all(labels == 0, axis=1), tf.int32))

    def head(self, encoder: EncoderConfig) -> SpanHead:
        """Returns a head with start and end logits for each token."""
        return SpanHead(encoder, self.config)

    def loss(
        self, outputs: Mapping[str, tf.Tensor], labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Mean cross-entropy on the answer's first and last token (Devlin et al. 2019, section 4.2), in nats.

        Labels are token positions, int32 [B, 2]. A departure from BERT's run_squad.py: padding is masked.
        """
        logits = without_padding({name: tf.cast(value, tf.float32) for name, value in outputs.items()}, mask)
        losses = [
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels[:, column], logits[name])
            for column, name in enumerate(SPAN_OUTPUTS)
        ]
        return mean_over_examples(tf.add_n(losses) / len(losses), labels[:, 0], weights)

    def read(self, path: str | os.PathLike[str], **columns: Any) -> QuestionFile:
        """Reads questions in SQuAD's format; the only option is `skip_bad`."""
        return QuestionFile(path, **columns)

    def check_data(self, data: Any) -> None:
        """Checks for a `QuestionFile`."""
        if not isinstance(data, QuestionFile):
            raise UserError(f"the examples must be the task's; received {data.source} for {self.kind}")

    def encode(self, data: QuestionFile, tokenizer: Any, max_length: int, **windows: Any) -> EncodedExamples:
        """Encodes one row per window. Labels: the answer's first and last token, (0, 0) for windows without it."""
        return encode_questions(data, tokenizer, WindowOptions(max_length=max_length, **windows))

    @property
    def crosses_tokenizers(self) -> bool:
        """Characters match the tokens; see `question_partners`."""
        return True

    def teacher_rows(
        self, data: Any, tokenizer: Any, teacher_tokenizer: Any, max_length: int, positions: int, **windows: Any
    ) -> TeacherRows:
        """See `SupervisedTask.teacher_rows`; one row per window of the student."""
        options = WindowOptions(max_length=max_length, **windows)
        return teacher_windows(data, tokenizer, teacher_tokenizer, options, positions)

    def rows(self, data: Any, tokenizer: Any, max_length: int, most: int | None = None, **windows: Any) -> Rows:
        """Encodes one row per paragraph window, or one row per pair for unlabelled text pairs."""
        if isinstance(data, QuestionFile):
            options = WindowOptions(max_length=max_length, **windows)
            return QuestionRows(self.config, data, tokenizer, options, most)
        return TextRows(None, data, tokenizer, max_length, most)

    def evaluator(
        self,
        forward: Forward,
        data: QuestionFile,
        tokenizer: Any,
        max_length: int,
        *,
        metrics: Sequence[str] | None = None,
        **options: Any,
    ) -> QuestionEvaluator:
        """See `SupervisedTask.evaluator`; for the other options see `QuestionEvaluator`. `metrics` is ignored."""
        self.check_data(data)
        windows = {name: options.pop(name) for name in set(self.window_options) & options.keys()}
        options_of_windows = WindowOptions(max_length=max_length, **windows)
        return QuestionEvaluator(self.config, forward, data, tokenizer, options_of_windows, **options)

    def with_baseline(
        self,
        data: QuestionFile,
        metrics: Mapping[str, float],
        names: Sequence[str] | None = None,
        main_metric: str | None = None,
    ) -> Scores:
        """See `SupervisedTask.with_baseline`. The baseline does not read the question."""
        return Scores(main_metric=main_metric or self.main_metric, metrics=metrics, baseline=constant_rule(data))

    def data_warnings(self, train: QuestionFile, dev: QuestionFile) -> list[DataWarning]:
        """Also warns about unanswerable training questions if no dev question is unanswerable."""
        warnings = super().data_warnings(train, dev)
        if not train.num_impossible or dev.num_impossible:
            return warnings
        sentence = (
            f"{train.num_impossible} of {len(train)} training questions have no answer, but none of the {len(dev)} "
            "development questions: they give no threshold, and the model will always answer; to leave questions "
            "unanswered, choose by development questions of both kinds"
        )
        return [*warnings, DataWarning(sentence, "no_unanswerable_dev", train.num_impossible)]

    def centred(self, output: np.ndarray) -> np.ndarray:
        """Subtracts the mean over tokens: only differences between logits matter."""
        return output - output.mean()


def without_padding(outputs: Mapping[str, tf.Tensor], mask: tf.Tensor) -> dict[str, tf.Tensor]:
    """Replaces logits [B, S] where `mask` is 0 by a value ignored by softmax."""
    return {name: tf.where(tf.equal(mask, 1), logits, _IMPOSSIBLE) for name, logits in outputs.items()}
