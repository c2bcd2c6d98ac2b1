"""What a task is: a head on an encoder, the data that it learns from, its loss, its scores and its predictions."""

from __future__ import annotations

import abc
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np

from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.batches import EncodedExamples

if TYPE_CHECKING:
    import tensorflow as tf

    from pocketbert.data.examples import LabelledData
    from pocketbert.tasks.metrics import Scores

# Outputs of a head by its own names: [N, ...] or, where a task has one for each token, [T, ...] without padding, the
# tokens of one row after those of the other.
Outputs: TypeAlias = Mapping[str, np.ndarray]


class Forward(Protocol):
    """Runs rows of tokens through a network: a float model (`forward.ModelForward`) or a bundle."""

    def __call__(self, encoded: EncodedExamples, *, show_progress: bool = False) -> Outputs:
        """The outputs of at least one row; `show_progress` on stderr."""


class Rows(Protocol):
    """Data as rows of tokens, with all that is needed to score a network's outputs.

    Attributes:
      encoded: the rows; a question has one for each of its windows.
    """

    encoded: EncodedExamples

    def __len__(self) -> int:
        """How many examples they are."""

    def score(self, outputs: Outputs, metric: str) -> tuple[float, np.ndarray | None]:
        """A metric, and how right each example's answer is; None where answers are not right or wrong."""


class Decisions(NamedTuple):
    """Decisions of two networks, for the verification gate.

    Attributes:
      same: bool, whether both decide alike.
      near_tie: bool, whether the first all but ties.
      counted: what messages call them.
    """

    same: np.ndarray
    near_tie: np.ndarray
    counted: str


class Evaluator(Protocol):
    """Scores a network on labelled data, as often as it is asked to.

    Attributes:
      task: the network's, with what the last evaluation chose (`TaskConfig.null_threshold`).
    """

    task: TaskConfig

    def metrics(self, when: str) -> dict[str, float]:
        """The metrics of the weights as they are; `when` is for an error's message, such as `after step 7`."""

    def scores(self, main_metric: str | None = None, metrics: Mapping[str, float] | None = None) -> Scores:
        """The metrics beside a baseline's.

        Args:
          main_metric: the one that counts most; None for the task's own.
          metrics: what `metrics` gave for the weights as they are, where that is known.
        """


class Task(abc.ABC):
    """A kind of task, with the configuration of one: everything that depends on `TaskConfig.kind`.

    `registry.get_task` makes it. A new kind is a subclass of this or of `SupervisedTask` in a file of its own and a row
    in `registry.TASKS`.

    Args:
      config: the head's configuration.

    Attributes:
      kind: its name in `TaskConfig.kind`.
      output_names: the head's outputs by its own names, in their order.
      needs_pooler: whether the head reads the encoder's pooled output.
      first_token_only: whether the head reads the first token's features alone, so that export may leave out the others
        in the last layer.
      per_token: whether each token has an output of its own.
      exportable: whether a bundle may have such a head.
      default_lengths: an exported bundle's sequence lengths.
      default_max_length: the most tokens of an example where a command is not told; None for the command's own.
      window_options: fields of `WindowOptions` that cut the task's inputs.
      distillable: whether the distillation methods know its loss.
      has_classes: whether an example has one class of several, which may be weighed in the loss.
      needs_pairs: whether every input is two texts.
      centred_by_example: whether `centred` needs no other examples.
      least_centred_scale: of centred outputs, as a share of that of the outputs themselves.
    """

    kind: ClassVar[str]
    output_names: ClassVar[tuple[str, ...]] = ("logits",)
    needs_pooler: ClassVar[bool] = False
    first_token_only: ClassVar[bool] = False
    per_token: ClassVar[bool] = False
    exportable: ClassVar[bool] = True
    default_lengths: ClassVar[tuple[int, ...]] = (32, 64, 128)
    default_max_length: ClassVar[int | None] = None
    window_options: ClassVar[tuple[str, ...]] = ()
    distillable: ClassVar[bool] = False
    has_classes: ClassVar[bool] = False
    needs_pairs: ClassVar[bool] = False
    centred_by_example: ClassVar[bool] = False
    least_centred_scale: ClassVar[float] = 0.0

    def __init__(self, config: TaskConfig) -> None:
        self.config = config

    @abc.abstractmethod
    def head(self, encoder: EncoderConfig) -> Any:
        """A head with fresh weights: a Keras layer with `outputs` and `losses_by_output`.

        Args:
          encoder: the architecture that it is put on.
        """

    @abc.abstractmethod
    def loss(
        self,
        outputs: Mapping[str, tf.Tensor],
        labels: tf.Tensor,
        mask: tf.Tensor,
        weights: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """What training on labels minimizes.

        Args:
          outputs: the head's, by its own names.
          labels: as `EncodedExamples.labels` has them.
          mask: int32 [B, S], 1 = token.
          weights: float32 [B], factors of the examples' losses; None for 1. They do not enter the divisor.

        Returns:
          float32 scalar: a `masked_mean`, so that replicas and micro-batches may share its divisor.
        """

    @property
    def num_logits(self) -> int | None:
        """How many logits an example has; None where that is not fixed by the labels."""
        return None

    def encoder_config(self, encoder: EncoderConfig) -> EncoderConfig:
        """The architecture that a fresh head of this kind is put on, from that of a checkpoint."""
        return encoder

    def centred(self, output: np.ndarray) -> np.ndarray:
        """An output, float64, without the constant that means nothing to this task; see `pocketbert_export.checks`."""
        return output

    def decisions(self, reference: np.ndarray, answers: np.ndarray, tolerance: float) -> Decisions | None:
        """What two networks decide by their logits.

        Args:
          reference: the float model's logits [N, ...].
          answers: the bundle's.
          tolerance: by how much, as a share of the reference's scale, a logit of the answers may differ.

        Returns:
          The decisions; None where nothing is decided.
        """
        return None


class SupervisedTask(Task):
    """A task that learns from labelled examples, and that predicts."""

    distillable = True

    @property
    @abc.abstractmethod
    def default_metrics(self) -> tuple[tuple[str, ...], str]:
        """The metrics of a user's own data, and the one that chooses the best checkpoint."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """The task's metrics, GLUE's for a task of GLUE."""
        return self.default_metrics[0]

    @property
    def main_metric(self) -> str:
        """The one of `metrics` that chooses the best checkpoint."""
        return self.default_metrics[1]

    @property
    def gate_metrics(self) -> tuple[str, ...]:
        """What the verification gate may be asked to compare."""
        return self.default_metrics[0]

    @abc.abstractmethod
    def read(self, path: str | os.PathLike[str], **columns: Any) -> LabelledData:
        """Reads a file of one's own.

        Raises:
          UserError: everything that is wrong with the file, with rule, received value and remedy.
        """

    @abc.abstractmethod
    def check_data(self, data: Any) -> None:
        """That data are of the form that this task reads.

        Raises:
          UserError: they are not.
        """

    @abc.abstractmethod
    def encode(self, data: Any, tokenizer: Any, max_length: int, **windows: Any) -> EncodedExamples:
        """Tokenizes data once, with labels, to train on.

        Args:
          data: what `read` gives.
          tokenizer: the model's.
          max_length: the most tokens of an example, or of a window.
          **windows: those of `window_options`.
        """

    @abc.abstractmethod
    def rows(self, data: Any, tokenizer: Any, max_length: int, most: int | None = None, **windows: Any) -> Rows:
        """Data as rows of tokens to be run and scored.

        Args:
          data: labelled or not.
          tokenizer: as for `encode`, and the two others.
          max_length: see there.
          most: about so many rows at most, taken evenly; None for all.
          **windows: see there.
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
        """What scores a network: in training, in `evaluate` and `bundle`.

        Args:
          forward: runs the network; its weights may change between evaluations.
          data: labelled.
          tokenizer: as for `encode`, and the two others.
          max_length: see there.
          metrics: names of metrics; None for the task's own.
          choose_threshold: whether what turns outputs into answers is chosen by these data, too.
          show_progress: on stderr.
          **options: the task's `window_options`, and further ones of its own.
        """

    @abc.abstractmethod
    def beside_baseline(
        self,
        data: Any,
        metrics: Mapping[str, float],
        names: Sequence[str] | None = None,
        main_metric: str | None = None,
    ) -> Scores:
        """Metrics that are known already beside a baseline's, without the results of each class."""

    @abc.abstractmethod
    def predict(
        self, inputs: Sequence[Any], forward: Forward, tokenizer: Any, max_length: int, **options: Any
    ) -> list[dict[str, Any]]:
        """Answers inputs, in their order.

        Args:
          inputs: texts, or pairs of texts; of a task that answers questions pairs of question and paragraph.
          forward: runs the network.
          tokenizer: its own.
          max_length: the most tokens of an input, or of a window.
          **options: the task's own.

        Returns:
          A dictionary for each, with JSON values.

        Raises:
          UserError: an answer is not finite.
        """

    def data_warnings(self, train: Any, dev: Any) -> list[str]:
        """What a user should know before training on such data."""
        return []
