"""tf-models-official's MobileBERT with our steps: the baseline of `mobilebert/training` and `mobilebert/text`."""

from __future__ import annotations

import functools
import importlib.util
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from pocketbert.configs import EncoderConfig
from studies.mobilebert import shapes as setting

OfficialStep = Callable[[], Any]
OfficialBatch = Mapping[str, Any]


def training_step(config: EncoderConfig, batch: OfficialBatch) -> OfficialStep:
    """Masked LM: the encoder with its own masked-LM head and LAMB, one update per call.

    Args:
      config: the architecture.
      batch: inputs, `masked_lm_positions` and `masked_lm_labels`, as tensors.

    Returns:
      A step that returns its loss.
    """
    import tensorflow as tf
    from official.nlp.modeling import layers

    network = encoder(config)
    head = layers.MobileBertMaskedLM(
        embedding_table=network.get_embedding_table(), activation="relu", initializer=_initializer(config)
    )
    positions, labels = batch["masked_lm_positions"], batch["masked_lm_labels"]
    inputs = _inputs(batch)
    head(network(inputs)["sequence_output"], positions)
    variables = [*network.trainable_variables, *head.trainable_variables]
    optimizer = _lamb()

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            logits = head(network(inputs, training=True)["sequence_output"], positions)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    return step


def transfer_step(
    teacher: EncoderConfig, student: EncoderConfig, *, teacher_dropout: bool
) -> Callable[[OfficialBatch], Any]:
    """Transfer of feature maps and attention of every layer, with the losses of their distillation task.

    The task compares one layer per stage. Here its loss is computed for each layer in one pass and averaged. Everything
    else is as in `official.projects.mobilebert.distillation`: normalized difference, mean, variance and attention with
    the default factors; a softmax of attention probabilities, which are already a softmax; means that include padding.

    Args:
      teacher: configuration of the teacher.
      student: configuration of the student.
      teacher_dropout: the task calls teacher and student with `training=True`, which leaves the teacher's dropout on;
        False removes it from the teacher.

    Returns:
      A step on a batch of inputs, tensors of a known shape, for `tf.function`; it returns its loss.
    """
    import tensorflow as tf

    from pocketbert._keras import tf_keras

    task, factors = _distillation_task()
    normalize = tf_keras.layers.LayerNormalization(axis=-1, trainable=False)
    networks = [encoder(teacher, dropout=teacher_dropout), encoder(student)]
    networks[0].trainable = False
    variables = networks[1].trainable_variables
    optimizer = _lamb()

    def loss_of_layer(theirs: Any, learns: Any, their_attention: Any, its_attention: Any) -> Any:
        difference = tf_keras.losses.mean_squared_error(normalize(theirs), normalize(learns))
        # Neither method reads an attribute of its task.
        mean, variance = task._get_distribution_losses(None, theirs, learns)
        attention = task._get_attention_loss(None, their_attention, its_attention)
        return (
            factors.hidden_distill_factor * tf.reduce_mean(difference)
            + factors.beta_distill_factor * mean
            + factors.gamma_distill_factor * variance
            + factors.attention_distill_factor * attention
        )

    def step(batch: OfficialBatch) -> Any:
        inputs = _inputs(batch)
        with tf.GradientTape() as tape:
            outputs = [network(inputs, training=True) for network in networks]
            # The embedding's output comes first and is not compared.
            hidden = [each["encoder_outputs"][1:] for each in outputs]
            attention = [each["attention_scores"] for each in outputs]
            losses = [loss_of_layer(*each) for each in zip(*hidden, *attention, strict=True)]
            loss = tf.add_n(losses) / len(losses)
        pairs = zip(tape.gradient(loss, variables), variables, strict=True)
        optimizer.apply_gradients([pair for pair in pairs if pair[0] is not None])
        return loss

    return step


def encoder(config: EncoderConfig, *, dropout: bool = True) -> Any:
    """Their encoder of the same architecture, with new weights.

    Args:
      config: configuration of IB-BERT or MobileBERT.
      dropout: whether to use the configuration's dropout.
    """
    from official.nlp.modeling import networks

    from pocketbert.layers.core import activate

    bottleneck = config.bottleneck
    assert bottleneck is not None and config.trigram
    return networks.MobileBERTEncoder(
        word_vocab_size=config.vocab_size,
        word_embed_size=config.embedding_size,
        type_vocab_size=config.type_vocab_size,
        max_sequence_length=config.max_position_embeddings,
        num_blocks=config.num_layers,
        hidden_size=config.hidden_size,
        num_attention_heads=config.num_attention_heads,
        intermediate_size=config.intermediate_size,
        intermediate_act_fn=lambda x: activate(x, config.activation),
        hidden_dropout_prob=config.hidden_dropout if dropout else 0.0,
        attention_probs_dropout_prob=config.attention_dropout if dropout else 0.0,
        intra_bottleneck_size=bottleneck.size,
        initializer_range=config.initializer_range,
        use_bottleneck_attention=bottleneck.query_key == "bottleneck",
        key_query_shared_bottleneck=bottleneck.query_key == "shared",
        num_feedforward_networks=config.num_feedforward_networks,
        normalization_type=config.norm,
        classifier_activation=config.pooler == "tanh",
    )


@functools.cache
def _distillation_task() -> tuple[Any, Any]:
    """Their task's class, and the default factors of its losses.

    The published package lacks `official.modeling.fast_training`, which has base classes for the stages. This study
    does not use them, so empty classes replace them.
    """
    missing = "official.modeling.fast_training"
    if importlib.util.find_spec(missing) is None:
        policies = types.SimpleNamespace(ProgressiveConfig=object, ProgressivePolicy=type("ProgressivePolicy", (), {}))
        progressive = types.SimpleNamespace(policies=policies)
        # A study has its own process, so the replacements affect nothing else.
        sys.modules.update({missing: progressive, f"{missing}.progressive": progressive})  # type: ignore[dict-item]
    module = importlib.import_module("official.projects.mobilebert.distillation")
    return module.BertDistillationTask, module.LayerWiseDistillConfig()


def _inputs(batch: OfficialBatch) -> list[Any]:
    return [batch[name] for name in ("input_word_ids", "input_mask", "input_type_ids")]


def _lamb() -> Any:
    from official.modeling.optimization import lamb

    excluded = ["LayerNorm", "layer_norm", "norm", "bias"]
    return lamb.LAMB(
        setting.LEARNING_RATE,
        weight_decay_rate=setting.WEIGHT_DECAY,
        exclude_from_weight_decay=excluded,
        exclude_from_layer_adaptation=excluded,
        global_clipnorm=setting.CLIP_NORM,
    )


def _initializer(config: EncoderConfig) -> Any:
    from pocketbert._keras import tf_keras

    return tf_keras.initializers.TruncatedNormal(stddev=config.initializer_range)
