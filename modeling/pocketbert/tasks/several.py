"""Several heads on one encoder, such as an intent and its slots: each text has one answer per head.

All heads read the same tokens, so longer texts are truncated for all heads. The loss is the weighted sum over the heads
(Caruana 1997, Multitask Learning, section 2, https://doi.org/10.1023/A:1007379606734). A head's loss is the mean over
the batch's texts with a label for it. Without any, loss and gradients are 0; an optimizer with momentum still moves the
head's weights by earlier gradients.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.batches import EncodedExamples, encode
from pocketbert.data.data_warnings import DataWarning, count_truncated
from pocketbert.data.examples import Examples, evenly
from pocketbert.data.head_tables import read_heads
from pocketbert.data.shared_texts import SharedTexts
from pocketbert.errors import UserError
from pocketbert.tasks.base import SupervisedTask
from pocketbert.tasks.decisions import DecisionChoice
from pocketbert.tasks.masked_lm import only_labelled
from pocketbert.tasks.outputs import Labelled, has_label
from pocketbert.tasks.parts import packed_labels, packed_soft_labels, part_labels, weighted_sum
from pocketbert.tasks.scores import Baseline, Scores
from pocketbert.tasks.several_rows import MEAN, SeveralEvaluator, SeveralRows
from pocketbert.tasks.simple_methods import Vectors
from pocketbert_runtime.answers.several import HeadAnswers, output_name, part_of, part_outputs
from pocketbert_runtime.forward import Forward
from pocketbert_runtime.heads_config import described_heads, loss_weight


class SeveralHeads(tf_keras.layers.Layer):
    """The parts' heads, side by side. Each has its own weights and dropout."""

    def __init__(self, config: EncoderConfig, task: Several) -> None:
        super().__init__()
        self.parts = {name: part.head(config) for name, part in task.parts.items()}
        self._task = task

    def call(self, encoded: Mapping[str, tf.Tensor], training: bool | None = None) -> dict[str, tf.Tensor]:
        """Maps the encoder's outputs to the outputs of all heads."""
        return {
            output_name(name, output): logits
            for name, head in self.parts.items()
            for output, logits in head.outputs(encoded, training).items()
        }

    def outputs(self, encoded: Mapping[str, tf.Tensor], training: bool | None) -> dict[str, tf.Tensor]:
        """Returns all heads' outputs; the head's name comes first, as in `intent_logits`."""
        return self(encoded, training=training)

    def losses_by_output(self) -> dict[str, tf_keras.losses.Loss]:
        """The heads' losses."""
        return {
            output_name(name, output): loss
            for name, head in self.parts.items()
            for output, loss in head.losses_by_output().items()
        }

    def weights_by_output(self) -> dict[str, float]:
        """The weight of each loss in the sum."""
        return {name: loss_weight(self._task.of_output(name).config) for name in self._task.output_names}

    def labels_by_output(self, labels: tf.Tensor) -> dict[str, tf.Tensor]:
        """Splits labels as in `tasks.parts` by output."""
        split = part_labels(self._task, labels)
        return {name: split[part_of(name)] for name in self._task.output_names}

    def learned(self, labelled: Mapping[str, Labelled], inputs: Mapping[str, tf.Tensor]) -> dict[str, Labelled]:
        """Each head learns from its labelled tokens (tags) or texts (other answers) only."""
        learned: dict[str, Labelled] = {}
        for name, head in self.parts.items():
            of_head = part_outputs(name, labelled)
            if of_head and hasattr(head, "learned"):
                of_head = head.learned(of_head, inputs)
            elif of_head:
                (output,) = of_head.values()
                of_head = only_labelled(of_head, has_label(output.labels))
            learned |= {output_name(name, output): labels for output, labels in of_head.items()}
        return learned


class Several(HeadAnswers, SupervisedTask):
    """One answer per head for a text."""

    scored_by_folds = True
    default_max_length = 128

    def __init__(self, config: TaskConfig) -> None:
        super().__init__(config)
        self.first_token_only = all(part.first_token_only for part in self._parts.values())
        self.centred_by_example = all(part.centred_by_example for part in self._parts.values())

    def _part(self, config: TaskConfig) -> SupervisedTask:
        # The registry imports this file.
        from pocketbert.tasks.registry import supervised_task

        return supervised_task(config)

    @property
    def default_metrics(self) -> tuple[tuple[str, ...], str]:
        """`mean_of_heads`, the mean over their main metrics, and each head's metrics, such as `intent_accuracy`."""
        return self._named({name: part.default_metrics[0] for name, part in self.parts.items()}), MEAN

    def selection_metrics(self, dev: Any) -> tuple[str, ...]:
        """`mean_of_heads` and each head's."""
        of_heads = dev.parts if isinstance(dev, SharedTexts) else dict.fromkeys(self.parts)
        return self._named({name: part.selection_metrics(of_heads[name]) for name, part in self.parts.items()})

    @property
    def gate_metrics(self) -> tuple[str, ...]:
        """`mean_of_heads` and each head's."""
        return self._named({name: part.gate_metrics for name, part in self.parts.items()})

    def encoder_config(self, encoder: EncoderConfig) -> EncoderConfig:
        """Without a pooler if no head reads it."""
        configs = [part.encoder_config(encoder) for part in self.parts.values()]
        return encoder if encoder in configs else configs[0]

    def head(self, encoder: EncoderConfig) -> SeveralHeads:
        """Returns the parts' heads."""
        return SeveralHeads(encoder, self)

    def loss(
        self, outputs: Mapping[str, tf.Tensor], labels: tf.Tensor, mask: tf.Tensor, weights: Any = None
    ) -> tf.Tensor:
        """The weighted sum over heads; labels as in `tasks.parts`, `weights` float32 [B], or as from `loss_factors`."""
        split = part_labels(self, labels)
        terms = {
            name: part.loss(part_outputs(name, outputs), split[name], mask, _of_head(name, weights))
            for name, part in self.parts.items()
        }
        return weighted_sum(self, terms)

    def loss_factors(self, class_weights: Any, labels: tf.Tensor) -> Any:
        """Loss factors by head, from class weights by head; leaves out heads without weights."""
        split = part_labels(self, labels)
        return {name: self.parts[name].loss_factors(weights, split[name]) for name, weights in class_weights.items()}

    def uniform_loss(
        self, outputs: Mapping[str, tf.Tensor], labels: tf.Tensor, mask: tf.Tensor, weights: Any = None
    ) -> tf.Tensor:
        """See `Task.uniform_loss`; a head without labels to smooth keeps its own loss."""
        split, terms = part_labels(self, labels), {}
        for name, part in self.parts.items():
            arguments = part_outputs(name, outputs), split[name], mask, _of_head(name, weights)
            uniform = part.uniform_loss(*arguments)
            terms[name] = part.loss(*arguments) if uniform is None else uniform
        return weighted_sum(self, terms)

    def read(self, path: str | os.PathLike[str] | Mapping[str, Any], **columns: Any) -> SharedTexts:
        """Reads a .csv, .tsv or .jsonl file with a column for each head, or a file for each; see `data.heads`."""
        return read_heads(path, self.config.tasks or (), **columns)

    def file_options(self, table: Any) -> dict[str, Any]:
        return table.of_heads

    def check_data(self, data: Any) -> None:
        """Checks for `SharedTexts` with these heads; each head needs a label in some text."""
        if not isinstance(data, SharedTexts) or {*data.parts} != {*self.parts}:
            raise UserError(
                f"the examples must be those of the heads {described_heads(self.config)}; received {data.source}; read "
                "them with pb.data.heads"
            )
        if not data.labelled:
            raise UserError(f"several heads need {data.missing_labels}; add texts with them")

    def encode(self, data: SharedTexts | Examples, tokenizer: Any, max_length: int, **_: Any) -> EncodedExamples:
        """Encodes one row per text; longer texts are truncated. For the labels, if any, see `tasks.parts`."""
        if isinstance(data, Examples):
            return encode(data, tokenizer, max_length)
        rows = self.rows(data, tokenizer, max_length)
        return rows.encoded.with_labels(packed_labels(self, rows.labels))

    def encode_soft(self, data: SharedTexts, tokenizer: Any, max_length: int, **_: Any) -> EncodedExamples:
        """See `encode`; for the soft labels see `tasks.parts`."""
        rows = self.rows(data, tokenizer, max_length)
        encoded = rows.encoded.with_labels(packed_labels(self, rows.labels))
        return encoded.with_soft_labels(packed_soft_labels(self, rows.soft_labels))

    def rows(self, data: Any, tokenizer: Any, max_length: int, most: int | None = None, **windows: Any) -> SeveralRows:
        """Encodes one row per text; `Examples` without labels are fine."""
        if isinstance(data, Examples) and data.pairs is not None:
            raise UserError(f"several heads read single texts; received pairs of {data.source}")
        taken = data if most is None else data.select(_some_of_each_head(data, most))
        return SeveralRows(self, taken, tokenizer, max_length)

    def evaluator(
        self,
        forward: Forward,
        data: SharedTexts,
        tokenizer: Any,
        max_length: int,
        *,
        metrics: Sequence[str] | None = None,
        choose_threshold: bool = False,
        show_progress: bool = False,
        choice: DecisionChoice | None = None,
        **options: Any,
    ) -> SeveralEvaluator:
        """See `SupervisedTask.evaluator`; each evaluation makes the `choice` for each suitable head."""
        self.check_data(data)
        rows, names = self.rows(data, tokenizer, max_length), metrics or self.metrics
        choices = None if choice is None else self.choices(choice)
        return SeveralEvaluator(self, forward, rows, data, names, show_progress=show_progress, choices=choices)

    def choice_problems(self, choice: DecisionChoice) -> list[str]:
        """All heads' problems, if no head suits the choice; see `SupervisedTask.choice_problems`."""
        if self.choices(choice):
            return []
        return [
            f"head {name}: {problem}"
            for name, of_head in self._choices_by_head(choice).items()
            for problem in self.parts[name].choice_problems(of_head)
        ]

    def choices(self, choice: DecisionChoice) -> dict[str, DecisionChoice]:
        """See `SupervisedTask.choices`; leaves out heads without a suitable choice."""
        by_head = self._choices_by_head(choice).items()
        return {name: of_head for name, of_head in by_head if not self.parts[name].choice_problems(of_head)}

    def _choices_by_head(self, choice: DecisionChoice) -> dict[str, DecisionChoice]:
        """Each head's choice, to maximize the head's part in the metric, else its main metric."""
        if choice.metric is None:
            return dict.fromkeys(self.parts, choice)
        metrics = self.own_metrics([choice.metric])
        return {name: dataclasses.replace(choice, metric=metrics[name][0]) for name in self.parts}

    def with_baseline(
        self,
        data: SharedTexts,
        metrics: Mapping[str, float],
        names: Sequence[str] | None = None,
        main_metric: str | None = None,
    ) -> Scores:
        """See `SupervisedTask.with_baseline`. The baseline is a constant answer per head."""
        names = names or self.metrics
        baselines = {
            name: part.with_baseline(data.parts[name], {}, self.own_metrics(names)[name]).baseline
            for name, part in self.parts.items()
        }
        constant = {name: baseline for name, baseline in baselines.items() if baseline is not None}
        answer = " and ".join(f"{baseline['answer']} ({name})" for name, baseline in constant.items())
        values = {name: baseline["metrics"] for name, baseline in constant.items()}
        return Scores(
            main_metric=main_metric or (self.main_metric if self.main_metric in names else names[0]),
            metrics=metrics,
            baseline={"answer": answer, "metrics": self.joined(names, values)},
            examples=len(data),
        )

    def simple_methods(
        self, train: SharedTexts, dev: SharedTexts, metric: str, vectors: Vectors | None
    ) -> list[Baseline]:
        """See `SupervisedTask.simple_methods`: combines the best method for each head."""
        best: dict[str, Baseline] = {}
        for name, metrics in self.own_metrics([metric]).items():
            if metric != MEAN and name != part_of(metric):
                continue
            methods = self.parts[name].simple_methods(train.parts[name], dev.parts[name], metrics[0], vectors)
            if not methods:
                return []
            best[name] = max(methods, key=lambda method: method.score)
        names = " and ".join(f"{method.name} ({name})" for name, method in best.items())
        score = float(np.mean([method.score for method in best.values()]))
        return [Baseline(name=names, score=score, remedy="use more examples, or these methods")]

    def data_warnings(self, train: SharedTexts, dev: SharedTexts) -> list[DataWarning]:
        """Returns each head's warnings."""
        warnings: dict[str, DataWarning] = {}
        for name, part in self.parts.items():
            for warning in part.data_warnings(train.parts[name], dev.parts[name]):
                shared = warning.kind == "train_in_dev" and train.rows is None and dev.rows is None
                sentence = str(warning) if shared else f"{warning} (head {name})"
                warnings[sentence] = DataWarning(sentence, warning.kind, warning.number)
        return [*warnings.values()]

    def count_truncated(self, data: Any, tokenizer: Any, max_length: int) -> int:
        """Counts truncated texts."""
        return count_truncated(data.texts, None, tokenizer, max_length)

    def own_metrics(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Maps metrics to each head's own names for them, or to its main metric if there are none."""
        needed: dict[str, dict[str, None]] = {name: {} for name in self.parts}
        for metric in names:
            for name, part in self.parts.items():
                if metric == MEAN:
                    needed[name][part.main_metric] = None
                elif part_of(metric) == name:
                    needed[name][metric.partition("_")[2]] = None
        return {name: [*metrics] or [self.parts[name].main_metric] for name, metrics in needed.items()}

    def joined(self, names: Sequence[str], values: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """Maps the heads' metrics, by their own names, to metrics by `names`."""
        mean = [values[name].get(part.main_metric, 0.0) for name, part in self.parts.items()]
        return {
            metric: float(np.mean(mean)) if metric == MEAN else values[part_of(metric)][metric.partition("_")[2]]
            for metric in names
        }

    def _named(self, metrics: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
        return MEAN, *(output_name(name, metric) for name in metrics for metric in metrics[name])


def _of_head(name: str, weights: Any) -> Any:
    """A head's loss factors, from factors by head or for all heads."""
    return weights.get(name) if isinstance(weights, Mapping) else weights


def _some_of_each_head(data: Any, most: int) -> np.ndarray:
    """Up to `most` text indices, ascending: chosen evenly, for each head if their texts differ."""
    rows = data.rows if isinstance(data, SharedTexts) else None
    if rows is None or len(data) <= most:
        return evenly(len(data), most)
    of_heads = [of_head[evenly(len(of_head), max(most // len(rows), 1))] for of_head in rows.values()]
    return np.unique(np.concatenate(of_heads))
