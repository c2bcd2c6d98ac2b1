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
    """Masked tokens: the encoder, its own masked-LM head, its own LAMB, one update a call.

    Args:
      config: the architecture.
      batch: inputs, `masked_lm_positions` and `masked_lm_labels`, as tensors.

    Returns:
      A step, which gives its loss.
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
    """Feature maps and attention of every layer, with the losses of their distillation task.

    The task compares one layer a stage; here its loss is taken of each layer, all of one pass, and averaged over them.
    Everything else is as `official.projects.mobilebert.distillation` has it: normalized difference, mean, variance and
    attention at its default factors; attention that is a softmax of what is a softmax already; means over padding too.

    Args:
      teacher: the teacher's architecture.
      student: the student's.
      teacher_dropout: the task calls teacher and student with `training=True`, which leaves the teacher's dropout on;
        False takes it out of the teacher.

    Returns:
      A step on a batch of inputs, tensors of a known shape, for `tf.function`; it gives its loss.
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
        # Neither method reads anything of its task.
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
    """Their encoder of the same architecture, with fresh weights.

    Args:
      config: of IB-BERT or MobileBERT.
      dropout: whether it has the configuration's dropout, or none.
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

    The published package leaves out `official.modeling.fast_training`, from which the task's module takes the base
    classes of what calls it stage by stage. Nothing here reads them, so empty ones stand in.
    """
    missing = "official.modeling.fast_training"
    if importlib.util.find_spec(missing) is None:
        policies = types.SimpleNamespace(ProgressiveConfig=object, ProgressivePolicy=type("ProgressivePolicy", (), {}))
        progressive = types.SimpleNamespace(policies=policies)
        # A study has a process of its own: nobody else meets the stand-ins.
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
