"""Weights in tf-models-official's encoders by canonical path.

Most weights have no public name, so this module, and no other, reads private attributes.
"""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig

_Variables = Iterator[tuple[str, tf.Variable]]


def mobilebert_variables(encoder: tf_keras.layers.Layer, config: EncoderConfig) -> _Variables:
    """Yields canonical path and variable for all weights in a built `MobileBERTEncoder`."""
    embedding = encoder.embedding_layer
    yield "encoder.embeddings.word.table", embedding.word_embedding.embeddings
    yield "encoder.embeddings.position.table", embedding.pos_embedding._position_embeddings
    yield "encoder.embeddings.token_type.table", embedding.type_embedding.embeddings
    yield from _linear("encoder.embeddings.projection", embedding.word_embedding_proj)
    yield from _norm("encoder.embeddings.norm", embedding.layer_norm)
    for index, layer in enumerate(encoder.transformer_layers):
        path, parts = f"encoder.layers.{index}", layer.block_layers
        yield from _linear(f"{path}.bottleneck.input", parts["bottleneck_input"][0])
        yield from _norm(f"{path}.bottleneck.input_norm", parts["bottleneck_input"][1])
        if config.bottleneck and config.bottleneck.query_key == "shared":
            yield from _linear(f"{path}.bottleneck.query_key", parts["kq_shared_bottleneck"][0])
            yield from _norm(f"{path}.bottleneck.query_key_norm", parts["kq_shared_bottleneck"][1])
        yield from _attention(f"{path}.attention", parts["attention"][0])
        yield from _norm(f"{path}.attention.norm", parts["attention"][1])
        for number, (intermediate, output, norm) in enumerate(parts["ffn"]):
            yield from _linear(f"{path}.feed_forwards.{number}.intermediate", intermediate)
            yield from _linear(f"{path}.feed_forwards.{number}.output", output)
            yield from _norm(f"{path}.feed_forwards.{number}.norm", norm)
        yield from _linear(f"{path}.bottleneck.output", parts["bottleneck_output"][0])
        yield from _norm(f"{path}.bottleneck.output_norm", parts["bottleneck_output"][2])
    if encoder.pooler_layer is not None:
        yield from _linear("encoder.pooler", encoder.pooler_layer)


def bert_variables(encoder: tf_keras.layers.Layer, config: EncoderConfig) -> _Variables:
    """Yields canonical path and variable for all weights in a built `BertEncoder` or `BertEncoderV2`."""
    yield "encoder.embeddings.word.table", encoder.get_embedding_table()
    yield "encoder.embeddings.position.table", encoder._position_embedding_layer._position_embeddings
    yield "encoder.embeddings.token_type.table", encoder._type_embedding_layer.embeddings
    if config.embedding_projection != "none":
        yield from _linear("encoder.embeddings.projection", encoder._embedding_projection)
    yield from _norm("encoder.embeddings.norm", encoder._embedding_norm_layer)
    for index, layer in enumerate(encoder.transformer_layers):
        path = f"encoder.layers.{index}"
        yield from _attention(f"{path}.attention", layer._attention_layer)
        yield from _norm(f"{path}.attention.norm", layer._attention_layer_norm)
        yield from _linear(f"{path}.feed_forwards.0.intermediate", layer._intermediate_dense)
        yield from _linear(f"{path}.feed_forwards.0.output", layer._output_dense)
        yield from _norm(f"{path}.feed_forwards.0.norm", layer._output_layer_norm)
    yield from _linear("encoder.pooler", encoder.pooler_layer)


def _attention(path: str, layer: tf_keras.layers.Layer) -> _Variables:
    # Keras' [in, heads, size] is our [in, heads * size] in row-major order.
    for name in ("query", "key", "value", "output"):
        yield from _linear(f"{path}.{name}", getattr(layer, f"_{name}_dense"))


def _linear(path: str, layer: tf_keras.layers.Layer) -> _Variables:
    yield f"{path}.kernel", layer.kernel
    yield f"{path}.bias", layer.bias


def _norm(path: str, layer: tf_keras.layers.Layer) -> _Variables:
    no_norm = hasattr(layer, "scale") and isinstance(layer.scale, tf.Variable)
    yield f"{path}.gamma", layer.scale if no_norm else layer.gamma
    yield f"{path}.beta", layer.bias if no_norm else layer.beta
