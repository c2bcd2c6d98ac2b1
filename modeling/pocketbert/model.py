"""A model: encoder, heads and tokenizer."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.checkpoints.directory import read_directory, read_with_heads, write_directory
from pocketbert.checkpoints.name_maps import tensor_specs
from pocketbert.configs import EncoderConfig, TaskConfig, head_names
from pocketbert.data.assets import model_directory, task_of_asset
from pocketbert.data.task_data import described_network
from pocketbert.encoder import Encoder, FeatureRequest, Inputs, complete_inputs
from pocketbert.errors import UserError
from pocketbert.layers.checks import user_errors
from pocketbert.layers.core import initialize_weights, weights_by_path
from pocketbert.layers.dropout import dropout_generators
from pocketbert.layers.graph_form import GraphForm
from pocketbert.presets import preset
from pocketbert.tasks.outputs import ModelForward, labelled_outputs, output_names
from pocketbert.tasks.predictor import model_predictor
from pocketbert.tasks.registry import check_tasks, get_task
from pocketbert.tokenizers.opening import open_tokenizer
from pocketbert_runtime.answers.inputs import as_inputs

if TYPE_CHECKING:
    from pocketbert.tokenizers.base import Tokenizer


@tf_keras.utils.register_keras_serializable(package="pocketbert")
class Model(tf_keras.Model):
    """An encoder with one head per task.

    A call returns the encoder's outputs if there is no task, else the logits by name, float32: `logits` [B, labels] for
    classification and multi_label, [B] for regression (two equal rows for a separate pair); `start_logits` and
    `end_logits` [B, S] for spans; `token_logits` [B, S, labels] for token_classification; `prediction_logits` [B, S, V]
    for masked LM ([B, P, V] with an input `masked_lm_positions` [B, P]); `seq_relationship_logits` [B, 2] for next
    sentence; `embedding` [B, D] for embeddings; for several heads, each head's logits with its name in front.

    `heads` maps kinds (`classification`) to heads; several heads of one kind are named after their tasks. If several
    heads share an output name, the head's name comes first: `sst2_logits` and `cola_logits`.

    Train it with Keras' `compile` and `fit`, on labels by output name or, with one head, plain labels: [B], or for
    spans the answers' first and last tokens [B, 2]. Without a `loss`, `compile` uses the tasks' losses; a head with
    several outputs averages theirs. A batch can have labels for some outputs only. Each loss that Keras reports is the
    mean over its own labels for every batch size.

    Keras' `save` and `load_model` take `.keras` files, without the tokenizer; `save_pretrained` keeps it. A deep copy
    shares the tokenizer; a clone (`clone_model`) has none.

    Args:
      config: encoder's architecture.
      tasks: the heads' tasks, empty for a bare encoder; several of one kind need different names.
      tokenizer: converts text to inputs; saved with the model.
      graph: layout of the encoder's graph; only export changes it.
      seed: seed for initial weights and dropout.
      initialize: draw the encoder's initial weights; False leaves zeros, to save time before you load weights.
    Raises:
      UserError: the encoder cannot carry a task.
    """

    def __init__(
        self,
        config: EncoderConfig,
        tasks: Sequence[TaskConfig] = (),
        tokenizer: Tokenizer | None = None,
        graph: GraphForm = GraphForm(),  # noqa: B008
        seed: int = 0,
        initialize: bool = True,
    ) -> None:
        super().__init__()
        check_tasks(config, tasks)
        self.config = config
        self.tasks = tuple(tasks)
        self.tokenizer = tokenizer
        self.encoder = Encoder(config, graph, seed, initialize)
        self.heads = {name: get_task(task).head(config) for name, task in zip(head_names(tasks), tasks, strict=True)}
        for head in self.heads.values():
            initialize_weights(head, config.initializer_range, seed)
        self.reset_dropout(seed)

    def __repr__(self) -> str:
        return f"<Model {described_network(self.config, self.tasks, [each.shape for each in self.variables])}>"

    @property
    def task(self) -> TaskConfig | None:
        """The first task; None for a bare encoder."""
        return self.tasks[0] if self.tasks else None

    # No layer has control flow that depends on tensors. AutoGraph would take a third of the tracing time.
    @tf.autograph.experimental.do_not_convert
    def call(self, inputs: Inputs, training: bool | None = None) -> dict[str, tf.Tensor]:
        """Runs encoder and heads; for inputs and outputs see the class."""
        inputs = complete_inputs(inputs)
        encoded = self.encoder(inputs, training=training)
        return self.head_outputs(encoded, inputs, training) if self.heads else encoded

    @tf.autograph.experimental.do_not_convert
    def features(
        self, inputs: Inputs, request: FeatureRequest, training: bool | None = None
    ) -> dict[str, list[tf.Tensor]]:
        """Computes the encoder's features (see `Encoder.features`) and, if requested, the heads' `logits`.

        Args:
          inputs: int32 [B, S] by name.
          request: see `Encoder.features`; `logits` has no layers.
          training: whether dropout is active.
        Returns:
          Name → list of tensors; `logits` lists every head's outputs in the model's order.
        """
        if "logits" not in request:
            return self.encoder.features(inputs, request, training=training)
        if not self.heads:
            raise UserError("features: only a model with a task has logits; this one is a bare encoder")
        inputs = complete_inputs(inputs)
        top = self.config.num_layers
        names = {name: None if not isinstance(request, Mapping) else tuple(request[name]) for name in request}
        del names["logits"]
        requested = {name: layers or tuple(range(name != "hidden_states", top + 1)) for name, layers in names.items()}
        # The heads read the last feature map, whether or not it was requested.
        hidden = requested.get("hidden_states", ())
        computed = {**requested, "hidden_states": (*hidden, top)}
        features = self.encoder.features(inputs, computed, training=training)
        encoded = self.encoder.pooled(features["hidden_states"].pop())
        logits = list(self.head_outputs(encoded, inputs, training).values())
        return {name: logits if name == "logits" else features[name] for name in request}

    def compile(self, *arguments: Any, **options: Any) -> None:
        """Keras' `compile`; without a `loss`, uses the tasks' losses.

        Passes the weights' names to an optimizer with a `bind` method (`pocketbert.training.optimizers`).
        """
        optimizer = arguments[0] if arguments else options.get("optimizer")
        if optimizer is not None and hasattr(optimizer, "bind"):
            optimizer.bind(self.named_variables())
        if not arguments[1:] and options.get("loss") is None and self.heads:
            names = output_names(self.heads)
            losses = {head: layer.losses_by_output() for head, layer in self.heads.items()}
            options["loss"] = {names[head][own]: loss for head in losses for own, loss in losses[head].items()}
            weights: dict[str, float] = {}
            for head, layer in self.heads.items():
                of_head = dict.fromkeys(losses[head], 1 / len(losses[head]))
                of_head |= layer.weights_by_output() if hasattr(layer, "weights_by_output") else {}
                weights |= {names[head][own]: weight for own, weight in of_head.items()}
            options.setdefault("loss_weights", weights)
        self._loss_weights = arguments[3] if len(arguments) > 3 else options.get("loss_weights")
        super().compile(*arguments, **options)

    def fit(self, *arguments: Any, **options: Any) -> tf_keras.callbacks.History:
        """Keras' `fit`; bad labels and masks raise a `UserError`."""
        with user_errors():
            return super().fit(*arguments, **options)

    def evaluate(self, *arguments: Any, **options: Any) -> Any:
        """Keras' `evaluate`; bad labels and masks raise a `UserError`."""
        with user_errors():
            return super().evaluate(*arguments, **options)

    def predict(self, x: Any, *arguments: Any, **options: Any) -> Any:
        """Predicts for texts; other inputs go to Keras' `predict`.

        Example:
          ```python
          model.predict(["a charming journey"])  # [{"label": "positive", "probabilities": {…}}]
          ```

        Args:
          x: a list of texts, text pairs, or pairs of question and paragraph. A pair is a tuple or a dict with `text`
            and `pair`, or `question` and `context`. Long texts are truncated; paragraphs are split into windows.
          *arguments: arguments for Keras' `predict`.
          **options: options for the first task's `predict` (`top_k` for classes, `n_best` for questions, `soft_labels`
            for probabilities with all digits) or for Keras.
        Returns:
          A dict for each text, as `Bundle.predict` returns it: `label` (None for a rejected text) and `probabilities`
          for classification, `labels` and `probabilities` for multi_label, `score` for regression, `answer` with its
          `start`, `end`, `score` and `probability` for spans; or the result from Keras' `predict`.
        Raises:
          UserError: the model has no supervised task or no vocabulary, the inputs are neither all texts nor all pairs,
            or an output is not finite.
        """
        inputs = as_inputs(x)
        if inputs is None:
            return super().predict(x, *arguments, **options)
        return model_predictor(self).predict(inputs, *arguments, **options)

    @functools.cached_property
    def forward(self) -> ModelForward:
        """Runs token rows through the first head; traced once."""
        assert self.task is not None
        return ModelForward(self, get_task(self.task))

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
    ) -> tf.Tensor:
        """Keras' hook: accepts plain labels for one head, and lets a head select its labels."""
        if y is None or not self.heads:
            return super().compute_loss(x, y, y_pred, sample_weight)
        # One by one: Keras weights all reported means by the first output's number of labels.
        labelled = labelled_outputs(self.heads, x, y, y_pred, sample_weight)
        return tf.add_n(
            [
                super(Model, self).compute_loss(x, {name: labels}, {**y_pred, name: outputs}, {name: weights})
                for name, (outputs, labels, weights) in labelled.items()
            ]
        )

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> dict[str, Any]:
        """Keras' hook: computes metrics on the same labels as the losses."""
        if y is None or not self.heads:
            return super().compute_metrics(x, y, y_pred, sample_weight)
        labelled = labelled_outputs(self.heads, x, y, y_pred, sample_weight)
        outputs, labels, weights = ({name: each[part] for name, each in labelled.items()} for part in range(3))
        return super().compute_metrics(x, labels, {**y_pred, **outputs}, weights)

    def get_metrics_result(self) -> dict[str, Any]:
        """Keras' hook: `loss` sums the outputs' mean losses."""
        results = super().get_metrics_result()
        weights = self._loss_weights
        names = [name for of_head in output_names(self.heads).values() for name in of_head.values()]
        means = {name: results[f"{name}_loss"] for name in names if f"{name}_loss" in results}
        if means and (weights is None or isinstance(weights, Mapping)):
            results["loss"] = tf.add_n([mean * (weights or {}).get(name, 1.0) for name, mean in means.items()])
        return results

    def weights_by_path(self) -> dict[str, tf.Variable]:
        """All weights by attribute path, for example `encoder.layers.0.attention.query.kernel`."""
        parts = {"encoder": self.encoder, **{f"heads.{name}": head for name, head in self.heads.items()}}
        return {
            f"{prefix}.{path}": variable
            for prefix, part in parts.items()
            for path, variable in weights_by_path(part).items()
        }

    def named_variables(self) -> dict[str, tf.Variable]:
        """All weights by their names in model directories, the keys for checkpoints, filters and multipliers."""
        specs = tensor_specs(self.config, self.tasks)
        return {specs[path].weight_name: variable for path, variable in self.weights_by_path().items()}

    def get_config(self) -> dict[str, Any]:
        """Keras' hook: the constructor's arguments as JSON values, without the tokenizer."""
        tasks = [dataclasses.asdict(task) | {"labels": list(task.labels)} for task in self.tasks]
        return {**self.encoder.get_config(), "tasks": tasks}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> Model:
        """Keras' hook: makes a model with initial weights and no tokenizer from `get_config`'s result."""
        encoder, graph = EncoderConfig.from_dict(config["config"]), GraphForm(**config["graph"])
        tasks = [TaskConfig(**{**task, "labels": tuple(task["labels"])}) for task in config["tasks"]]
        return _called_once(cls(encoder, tasks, graph=graph, seed=config["seed"]))

    def build_from_config(self, config: Any) -> None:
        """Keras' hook: does nothing, since `from_config` creates the weights."""

    def compile_from_config(self, config: Mapping[str, Any]) -> None:
        """Keras' hook: compiles the model like the saved one."""
        self.compile(**tf_keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def save(self, filepath: str | os.PathLike[str], *arguments: Any, **options: Any) -> None:
        """Keras' `save`, for `.keras` files; raises a `UserError` for another format."""
        if Path(filepath).suffix != ".keras" or options.get("save_format", "keras") != "keras":
            raise UserError(
                f"Keras saves this model as .keras files; received {filepath}; use save_pretrained for a model "
                "directory, or tf.saved_model.save for a SavedModel"
            )
        super().save(filepath, *arguments, **options)

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        copied = super().__deepcopy__(memo)
        copied.tokenizer = self.tokenizer
        return copied

    def dropout_generators(self) -> list[tf.random.Generator]:
        """All dropout layers' random states. Checkpoints include them, so resumed runs are bit-identical."""
        return dropout_generators(self)

    def reset_dropout(self, seed: int) -> None:
        """Resets each dropout layer to its own random state from one seed."""
        for index, generator in enumerate(self.dropout_generators()):
            generator.reset_from_key_counter(key=seed, counter=[index, 0])

    def save_pretrained(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Writes a model directory in Hugging Face's layout, completely or not at all.

        Args:
          path: the folder to create.
          overwrite: replace an existing model directory.
        Raises:
          UserError: `path` exists.
        """
        tokenizer = self.tokenizer
        write_directory(
            path,
            self.config,
            self.tasks,
            {name: variable.numpy() for name, variable in self.weights_by_path().items()},
            vocabulary=tokenizer.vocabulary if tokenizer else None,
            overwrite=overwrite,
        )

    def head_outputs(
        self, encoded: Mapping[str, tf.Tensor], inputs: Inputs, training: bool | None, heads: Collection[str] = ()
    ) -> dict[str, tf.Tensor]:
        """Runs some heads (none given: all) on the encoder's outputs."""
        word_table = self.encoder.embeddings.output_table()
        readable = {**encoded, "word_table": word_table, "input_mask": inputs["input_mask"]}
        if "masked_lm_positions" in inputs:
            readable["masked_lm_positions"] = inputs["masked_lm_positions"]
        outputs: dict[str, tf.Tensor] = {}
        names = output_names(self.heads)
        for head, layer in self.heads.items():
            if not heads or head in heads:
                outputs.update({names[head][own]: each for own, each in layer.outputs(readable, training).items()})
        return outputs


def from_preset(
    name_or_config: str | EncoderConfig,
    task: TaskConfig | Sequence[TaskConfig] | None = None,
    tokenizer: Tokenizer | None = None,
    seed: int = 0,
) -> Model:
    """Returns a model with random weights.

    Example:
      ```python
      model = pb.from_preset("tinybert_4l_312d", seed=1)
      ```

    Args:
      name_or_config: a preset's name (`pb.presets()`), or an architecture.
      task: the head's task; several tasks for several heads, None for a bare encoder.
      tokenizer: converts text to inputs; saved with the model. Presets have none.
      seed: the same seed gives the same weights.
    Raises:
      UserError: there is no such preset, or the encoder cannot carry a task.
    """
    config = preset(name_or_config).config if isinstance(name_or_config, str) else name_or_config
    tasks = (task,) if isinstance(task, TaskConfig) else tuple(task or ())
    return _called_once(Model(config, tasks, tokenizer, seed=seed))


def from_pretrained(
    directory_or_name: str | os.PathLike[str], task: TaskConfig | None = None, seed: int = 0, *, headless: bool = False
) -> Model:
    """Loads a model directory in our or Hugging Face's format, or downloads one by name.

    Example:
      ```python
      model = pb.from_pretrained("all-minilm")
      model = pb.from_pretrained("hf:google-bert/bert-base-uncased")
      ```

    Args:
      directory_or_name: the folder; a name that `pocketbert fetch` knows, such as `all-minilm`; or `hf:ORG/NAME` or
        `hf:ORG/NAME@REVISION` for a model on Hugging Face's hub. A folder takes precedence over a name for fetch.
        Downloads stay in `$POCKETBERT_CACHE` or `~/.cache/pocketbert`; those from the hub in its client's cache.
      task: replace the directory's heads by a new head for this task; for spans, also remove a tanh pooler.
      seed: seed for the new head and dropout.
      headless: load the encoder alone, for example from a model with a head that PocketBERT lacks.
    Returns:
      The model with its heads, and a tokenizer if the folder has its files.
    Raises:
      UserError: there is no such folder or name, the download failed, or the folder has problems; lists all of them.
    """
    if headless and task is not None:
        raise UserError(f"headless loads no head; received True and a {task.kind} task; pass one of them")
    found = model_directory(directory_or_name)
    directory = read_directory(found, headless=headless) if task is None else read_with_heads(found, task.kind)
    own = None if headless else task_of_asset(directory_or_name)
    tasks = (task,) if task else directory.tasks or ((own,) if own else ())
    tokenizer = open_tokenizer(directory.vocabulary) if directory.vocabulary else None
    config = directory.config if task is None else get_task(task).encoder_config(directory.config)
    model = Model(config, tasks, tokenizer, seed=seed, initialize=False)
    for name, variable in model.weights_by_path().items():
        if task is None or name.startswith("encoder."):
            variable.assign(directory.tensors[name])
    return _called_once(model)


def _called_once(model: Model) -> Model:
    rows = 1 + any(task.pairs for task in model.tasks)
    ids = tf.zeros([rows, min(3, model.config.max_position_embeddings)], tf.int32)
    model({name: ids for name in ("input_word_ids", "input_mask", "input_type_ids")})
    return model
