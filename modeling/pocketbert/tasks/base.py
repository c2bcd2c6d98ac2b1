"""The task interface: head, data, loss, evaluation and predictions."""

from __future__ import annotations

import abc
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pocketbert.configs import EncoderConfig
from pocketbert.data.batches import EncodedExamples
from pocketbert.data.data_warnings import DataWarning, label_warnings
from pocketbert.data.teacher_rows import TeacherRows
from pocketbert.tasks.interfaces import Decisions, Evaluator, Rows
from pocketbert_runtime.answers.base import Answers
from pocketbert_runtime.forward import Forward
from pocketbert_runtime.task_form import TaskForm

if TYPE_CHECKING:
    import tensorflow as tf

    from pocketbert.data.examples import LabelledData
    from pocketbert.tasks.decisions import DecisionChoice
    from pocketbert.tasks.linear_fits import LinearForm
    from pocketbert.tasks.scores import Baseline, Scores
    from pocketbert.tasks.simple_methods import Vectors


class Task(TaskForm):
    """A task kind with its configuration. All behaviour specific to a `TaskConfig.kind` is here.

    `registry.get_task` creates tasks. To add a kind, add the file `KIND.py` with a subclass, usually from
    `SupervisedTask`, and a row in `task_config.TASK_RULES`.

    Attributes:
      needs_pooler: whether the head reads the encoder's pooled output.
      first_token_only: whether the head reads only the first token, so that export can skip others in the last layer.
      exportable: whether a bundle can have such a head.
      default_lengths: sequence lengths in an exported bundle.
      pipeline_tag: task name on Hugging Face's hub, for model cards.
      default_max_length: default maximum sequence length in commands; None for the command's own default.
      distillable: whether the distillation methods know the loss.
      needs_pairs: whether each input is a text pair.
      centred_by_example: whether `centred` works on each example alone.
      has_vectors: whether only the direction of the output [N, D] counts.
      scored_by_folds: whether folds can score the examples; the rows then have `answers`, as in `TextRows`.
      data_kinds: further data set kinds with suitable labels, such as pair scores.
      least_centred_scale: minimum scale for centred outputs, as a fraction of the outputs' scale.
    """

    needs_pooler: ClassVar[bool] = False
    first_token_only: bool = False
    exportable: ClassVar[bool] = True
    default_lengths: ClassVar[tuple[int, ...]] = (32, 64, 128)
    pipeline_tag: ClassVar[str] = "text-classification"
    default_max_length: ClassVar[int | None] = None
    distillable: ClassVar[bool] = False
    needs_pairs: ClassVar[bool] = False
    centred_by_example: bool = False
    has_vectors: ClassVar[bool] = False
    scored_by_folds: ClassVar[bool] = False
    data_kinds: ClassVar[tuple[str, ...]] = ()
    least_centred_scale: ClassVar[float] = 0.0

    @property
    def parts(self) -> Mapping[str, Task]:
        """Tasks by head name, for several heads; empty for one head. `tasks.parts` has their outputs and labels."""
        return {}

    def of_output(self, name: str) -> Task:
        """Returns the task for an output."""
        return self

    @abc.abstractmethod
    def head(self, encoder: EncoderConfig) -> Any:
        """Returns a head with initial weights: a Keras layer with `outputs` and `losses_by_output`."""

    def uniform_loss(
        self, outputs: Mapping[str, tf.Tensor], labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor | None = None
    ) -> tf.Tensor | None:
        """Like `loss`, against equal probabilities for all labels (label smoothing); None for tasks without labels."""
        return None

    @property
    def smooths_labels(self) -> bool:
        """Whether the task has a `uniform_loss`."""
        return type(self).uniform_loss is not Task.uniform_loss

    @abc.abstractmethod
    def loss(
        self, outputs: Mapping[str, tf.Tensor], labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Computes the training loss on labels.

        Args:
          outputs: the head's outputs by name.
          labels: as in `EncodedExamples.labels`.
          mask: int32 [B, S], 1 = token.
          weights: loss factors, float32 [B] or as from `loss_factors`; None for 1. The divisor excludes them.
        Returns:
          float32 scalar: a `masked_mean`, so replicas and micro-batches can share its divisor.
        """

    @property
    def weighted_classes(self) -> tuple[str, ...]:
        """Names of the classes that can have loss weights; none for tasks without classes."""
        return self.config.labels if self.has_classes else ()

    def class_targets(self, data: Any) -> np.ndarray:
        """Classes in labelled data: int [N], indices into `weighted_classes`, or 0 and 1, [N, labels]."""
        return np.asarray(data.labels)

    def loss_factors(self, class_weights: np.ndarray, labels: tf.Tensor) -> tf.Tensor:
        """Converts a weight per class to loss factors, float32 [B] or in the labels' shape."""
        import tensorflow as tf

        return tf.gather(tf.constant(class_weights), tf.maximum(labels, 0))

    @property
    def num_logits(self) -> int | None:
        """Number of logits per example; None if the labels do not determine it."""
        return None

    def encoder_config(self, encoder: EncoderConfig) -> EncoderConfig:
        """Returns the architecture for a new head, from the checkpoint's."""
        return encoder

    def inputs(self, data: Any) -> Any:
        """Returns the examples as the network reads them: an encoder for single texts splits pairs into texts."""
        return data

    def centred(self, output: np.ndarray) -> np.ndarray:
        """Subtracts the constant that the task ignores from float64 output; see `pocketbert_export.checks.outputs`."""
        return output

    def decisions(self, reference: np.ndarray, answers: np.ndarray, tolerance: float) -> Decisions | None:
        """Compares the decisions by two networks; None for tasks without decisions.

        Args:
          reference: the float model's logits [N, ...].
          answers: the bundle's logits.
          tolerance: tolerated difference in a logit, as a fraction of the reference's scale.
        """
        return None


class SupervisedTask(Answers, Task):
    """A task with labelled training examples and predictions."""

    distillable = True
    # Labels as a linear model fits them to encoder features; None if no such model is a head.
    linear_form: ClassVar[LinearForm | None] = None

    @property
    @abc.abstractmethod
    def default_metrics(self) -> tuple[tuple[str, ...], str]:
        """The default metrics, and the one for selecting the best checkpoint."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """The task's metrics; GLUE's for a GLUE task."""
        return self.default_metrics[0]

    @property
    def main_metric(self) -> str:
        """The one among `metrics` for selecting the best checkpoint."""
        return self.default_metrics[1]

    def selection_metrics(self, dev: Any) -> tuple[str, ...]:
        """The possible metrics for selecting the best checkpoint on a dev split."""
        return self.default_metrics[0]

    @property
    def gate_metrics(self) -> tuple[str, ...]:
        """The possible metrics for the verification gate."""
        return self.default_metrics[0]

    @abc.abstractmethod
    def read(self, path: str | os.PathLike[str], **columns: Any) -> LabelledData:
        """Reads a labelled file; raises `UserError` with all problems in the file."""

    def file_options(self, table: Any) -> dict[str, Any] | None:
        """Returns arguments of `read` for the task's own file format; None for tasks with tables or questions.

        Args:
          table: `commands.task_options.TableOptions`.
        """
        return None

    @abc.abstractmethod
    def check_data(self, data: Any) -> None:
        """Raises `UserError` unless the data have this task's type."""

    @abc.abstractmethod
    def encode(self, data: Any, tokenizer: Any, max_length: int, **windows: Any) -> EncodedExamples:
        """Tokenizes labelled data for training.

        Args:
          data: data from `read`.
          tokenizer: the model's tokenizer.
          max_length: maximum tokens per example or window.
          **windows: options in `window_options`.
        """

    @property
    def crosses_tokenizers(self) -> bool:
        """Whether a teacher with another tokenizer can teach it: with outputs per text, or its own `teacher_rows`."""
        return not (self.per_token or any(part.per_token for part in self.parts.values()))

    def teacher_rows(
        self, data: Any, tokenizer: Any, teacher_tokenizer: Any, max_length: int, positions: int, **windows: Any
    ) -> TeacherRows:
        """Tokenizes the data in `encode` for a teacher with another tokenizer, row by row.

        Args:
          data: see `encode`.
          tokenizer: the student's tokenizer.
          teacher_tokenizer: the teacher's tokenizer.
          max_length: see `encode`.
          positions: the teacher's longest row.
          **windows: see `encode`.
        """
        return TeacherRows.of(self.encode(data, teacher_tokenizer, max_length, **windows))

    def encode_soft(self, data: Any, tokenizer: Any, max_length: int, **windows: Any) -> EncodedExamples:
        """Tokenizes data with soft labels for training; see `encode`."""
        encoded = self.encode(data, tokenizer, max_length, **windows)
        return encoded.with_soft_labels(np.repeat(data.soft_labels, encoded.rows_per_example, axis=0))

    @abc.abstractmethod
    def rows(self, data: Any, tokenizer: Any, max_length: int, most: int | None = None, **windows: Any) -> Rows:
        """Tokenizes labelled or unlabelled data to run and score; see `encode`.

        `most` is the approximate maximum number of rows, taken evenly; None for all.
        """

    @abc.abstractmethod
    def evaluator(
        self,
        forward: Forward,
        data: Any,
        tokenizer: Any,
        max_length: int,
        *,
        metrics: Sequence[str] | None = None,
        choose_threshold: bool = False,
        show_progress: bool = False,
        **options: Any,
    ) -> Evaluator:
        """Returns the evaluator for training, `evaluate` and `bundle`.

        Args:
          forward: runs the network; its weights may change between evaluations.
          data: labelled data.
          tokenizer: see `encode`.
          max_length: see `encode`.
          metrics: metric names; None for the task's metrics.
          choose_threshold: also choose `TaskConfig.null_threshold` on these data.
          show_progress: print progress to stderr.
          **options: options in `window_options` and further task options, such as the `choice` for decisions.
        """

    @abc.abstractmethod
    def with_baseline(
        self,
        data: Any,
        metrics: Mapping[str, float],
        names: Sequence[str] | None = None,
        main_metric: str | None = None,
    ) -> Scores:
        """Adds a baseline to known metrics, without scores per class."""

    def simple_methods(self, train: Any, dev: Any, metric: str, vectors: Vectors | None) -> list[Baseline]:
        """Scores simple methods, trained on the same examples; see `tasks.simple_methods`.

        Args:
          train: labelled training examples.
          dev: labelled dev split.
          metric: the metric to compute.
          vectors: maps texts to unit vectors; None without a pretrained encoder.
        """
        return []

    def choice_problems(self, choice: DecisionChoice) -> list[str]:
        """Reasons why this task cannot choose these thresholds."""
        given = "decision_thresholds" if choice.metric is not None else "reject"
        return [f"{given} is for one of several classes or several labels; received it for {self.kind}; leave it out"]

    def choices(self, choice: DecisionChoice) -> Mapping[str, DecisionChoice]:
        """The choice for each head, for several heads; empty for one head."""
        return {}

    def data_warnings(self, train: Any, dev: Any) -> list[DataWarning]:
        """Warnings to show before training on these data; `training_warnings` adds the tokenizer's."""
        return label_warnings(train, dev, self.config.labels)

    def count_truncated(self, data: Any, tokenizer: Any, max_length: int) -> int:
        """Counts examples cut at `max_length` tokens; 0 for tasks with windows."""
        return 0
