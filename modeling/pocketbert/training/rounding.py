"""Makes a model round like an exported file, for quantization-aware training."""

from __future__ import annotations

from collections.abc import Iterator

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig
from pocketbert.layers.block import Block
from pocketbert.layers.core import Dense, RoundingLayer
from pocketbert.layers.fake_quantization import DynamicInt4, fake_quantization
from pocketbert.model import Model
from pocketbert.tasks.registry import get_task


def round_model(model: Model, recipe: str, *, logits_only: bool = False) -> None:
    """Rounds weights and activations from now on, in training and evaluation.

    Args:
      model: changed in place. Graphs traced before do not round.
      recipe: recipe for the exported file.
      logits_only: let the last layer compute only the first token if the heads read no other, as in the file; its
        ranges then contain no other token.
    """
    config, encoder = model.config, model.encoder
    rounding = fake_quantization(recipe, has_layer_norm=config.norm == "layer_norm")
    for layer in model.submodules:
        if isinstance(layer, RoundingLayer):
            layer.round_like(rounding)
    if isinstance(rounding, DynamicInt4):
        first = {config.stored_layer(layer) for layer in range(config.num_layers // 3)}
        early = [layer for stored in first for layer in encoder.layers_[stored].submodules]
        for layer in early:
            if isinstance(layer, RoundingLayer):
                layer.round_like(DynamicInt4(small_blocks=True))
    for norm, dense in _readers(model):
        dense.reads(norm)
    for block in encoder.layers_:
        block.attention.query.is_read_by("int8")
        block.attention.key.is_read_by("second factor")
        block.attention.value.is_read_by("second factor")
        if config.feedforward is None:
            for feed_forward in block.feed_forwards:
                feed_forward.intermediate.is_read_by("relu" if config.activation == "relu" else "int8")
    if config.pooler == "tanh":
        encoder.pooler.is_read_by("int8")
    if logits_only and _reads_first_token(model):
        encoder.layers_[-1].compute_first_token_only()


def _readers(model: Model) -> Iterator[tuple[tf_keras.layers.Layer, Dense]]:
    """Yields pairs: a norm, and a dense layer to fold it into at export."""
    config, encoder = model.config, model.encoder
    before = encoder.embeddings.norm
    if config.embedding_projection == "output":
        yield before, encoder.embeddings.projection
        before = None
    first_only = _reads_first_token(model)
    for block in encoder.layers_:
        attention = block.attention
        # Where layers share their weights, the file keeps gamma out of them (`GraphForm.early_gamma`).
        if before is not None and config.layer_groups is None:
            # In the file, the last layer takes the first token's row behind the norm, where gamma is already applied.
            takes_rows = first_only and block is encoder.layers_[-1] and config.norm == "layer_norm"
            of_rows, of_all = _entrance(block, config)
            yield from ((before, dense) for dense in (of_all if takes_rows else [*of_rows, *of_all]))
        if config.bottleneck is not None and config.bottleneck.query_key != "raw":
            shared = config.bottleneck.query_key == "shared"
            norm = block.bottleneck.query_key_norm if shared else block.bottleneck.input_norm
            yield from ((norm, dense) for dense in (attention.query, attention.key))
            if not shared:
                yield norm, attention.value
        before = attention.norm
        for feed_forward in block.feed_forwards:
            # Other operations of an expression may come before the dense layer.
            if config.feedforward is None:
                yield before, feed_forward.intermediate
            before = feed_forward.norm
        if config.bottleneck is not None:
            yield before, block.bottleneck.output_projection
            before = block.bottleneck.output_norm


def _reads_first_token(model: Model) -> bool:
    return bool(model.tasks) and all(get_task(task).first_token_only for task in model.tasks)


def _entrance(block: Block, config: EncoderConfig) -> tuple[list[Dense], list[Dense]]:
    """Dense layers on a block's input: those for the rows of its output, and those for all rows."""
    attention = block.attention
    if config.bottleneck is None:
        return [attention.query], [attention.key, attention.value]
    projection, source = block.bottleneck.input_projection, config.bottleneck.query_key
    if source == "raw":
        return [projection, attention.query], [attention.key, attention.value]
    return ([projection], [block.bottleneck.query_key, attention.value]) if source == "shared" else ([], [projection])
