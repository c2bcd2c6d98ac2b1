"""Attention maps: a model's attention probabilities for one text, by layer and head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pocketbert.distillation.layer_maps import LayerMap, uniform
from pocketbert.errors import UserError, raise_if_any
from pocketbert.model import Model
from pocketbert.tokenizers.base import Tokenizer

# XLM-R's sign for a space before a subword.
_SPACE = "▁"


@dataclass(frozen=True, kw_only=True)
class AttentionMaps:
    """Attention probabilities for one text. L layers, N heads, S tokens.

    Attributes:
      tokens: the tokens as shown, special tokens included.
      layers: the L layers, counted from 1.
      probs: float32 [L, N, S, S]; each row (query) is a distribution over the keys.
      truncated: whether the text has more tokens than the model read.
    """

    tokens: tuple[str, ...]
    layers: LayerMap
    probs: np.ndarray
    truncated: bool


def attention_maps(
    model: Model, text: str, text_pair: str | None = None, *, layers: Sequence[int] = (), max_tokens: int = 32
) -> AttentionMaps:
    """Computes the attention probabilities for a text or a pair, without dropout.

    Args:
      model: a model with a tokenizer.
      text: the text.
      text_pair: a pair's second text.
      layers: layers, counted from 1; none for all.
      max_tokens: maximum number of tokens, including special tokens; longer texts are truncated.
    Raises:
      UserError: the text has no tokens, the model has no tokenizer or too few positions, it lacks a layer, or its
        attention is not finite.
    """
    tokenizer = checked_tokenizer(model, max_tokens, "max_tokens")
    chosen = tuple(layers) or all_layers(model)
    pairs = None if text_pair is None else [text_pair]
    counts = [int(tokenizer.tokenize([array]).row_lengths()[0]) for array in (text, *(pairs or []))]
    problems = _outside("layers", chosen, model)
    for name, count, text_given in zip(("text", "text_pair"), counts, (text, text_pair), strict=False):
        if not count:
            problems.append(f"{name} must have at least one token; received {text_given!r}; pass other text")
    special = tokenizer.frame.num_special_tokens(pairs=pairs is not None)
    if max_tokens <= special:
        problems.append(f"max_tokens must be more than the {special} special tokens; received {max_tokens}; raise it")
    raise_if_any(problems, "attention maps")
    inputs = tokenizer([text], pairs, max_length=max_tokens)
    layers_probs = model.features(inputs, {"attention_probs": chosen}, training=False)["attention_probs"]
    probs = np.stack([np.asarray(array[0], np.float32) for array in layers_probs])
    if not np.isfinite(probs).all():
        raise UserError("attention maps: the attention must be finite; received NaN or infinity; check the weights")
    return AttentionMaps(
        tokens=shown_tokens(tokenizer, inputs["input_word_ids"][0].numpy().tolist()),
        layers=chosen,
        probs=probs,
        truncated=sum(counts) + special > max_tokens,
    )


def all_layers(model: Model) -> LayerMap:
    """Returns all layers, counted from 1."""
    return tuple(range(1, model.config.num_layers + 1))


def paired_layers(
    model: Model, student: Model, layers: Sequence[int] = (), student_layers: Sequence[int] = ()
) -> tuple[LayerMap, LayerMap]:
    """Pairs a model's layers with a student's, and returns both.

    Args:
      model: the model, usually the teacher.
      student: the other model, of any depth.
      layers: the model's layers. Without `student_layers`, only layers in the uniform map.
      student_layers: the student's layers. Without `layers`, the uniform map gives the model's; without either, all
        layers in the shallower model are paired.
    Raises:
      UserError: a model lacks a layer, the numbers of layers differ, or the map does not have a layer.
    """
    problems = _outside("layers", layers, model) + _outside("student_layers", student_layers, student)
    if layers and student_layers and len(layers) != len(student_layers):
        problems.append(
            f"give one student layer for each layer; received {_listed(layers)} and {_listed(student_layers)}; pass "
            "lists with the same length"
        )
    raise_if_any(problems, "layers")
    if layers and student_layers:
        return tuple(layers), tuple(student_layers)
    depth, student_depth = model.config.num_layers, student.config.num_layers
    if student_depth <= depth:
        pairs = list(zip(uniform(student_depth, depth), all_layers(student), strict=True))
    else:
        pairs = list(zip(all_layers(model), uniform(depth, student_depth), strict=True))
    for name, chosen, side in (("layers", layers, 0), ("student_layers", student_layers, 1)):
        mapped = [pair[side] for pair in pairs]
        missing = [layer for layer in chosen if layer not in mapped]
        if missing:
            raise UserError(
                f"{name} must be in the uniform map ({_listed(mapped)}); received {_listed(missing)}; pass the layers "
                "of both models"
            )
        if chosen:
            pairs = [pairs[mapped.index(layer)] for layer in chosen]
    return tuple(first for first, _ in pairs), tuple(second for _, second in pairs)


def checked_tokenizer(model: Model, tokens: int, name: str) -> Tokenizer:
    """Returns the model's tokenizer; raises a `UserError` if it has none, or too few positions."""
    most = model.config.max_position_embeddings
    if model.tokenizer is None:
        raise UserError("the model must have a tokenizer; its directory has no vocabulary files; put them there")
    if tokens > most:
        raise UserError(f"{name} must be at most the model's {most} positions; received {tokens}; lower it")
    return model.tokenizer


def shown_tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, ...]:
    """Returns tokens as a reader knows them: byte-level BPE decoded, with XLM-R's sign for a space in front."""
    tokens = tokenizer.vocabulary.tokens()
    texts = [tokens[index] for index in ids]
    if tokenizer.vocabulary.rules.tokens_are_bytes:
        from tokenizers.decoders import ByteLevel

        decode = ByteLevel().decode
        texts = [decode([token]).replace(" ", _SPACE) for token in texts]
    return tuple("".join(letter if letter.isprintable() else "·" for letter in token) for token in texts)


def _outside(name: str, layers: Sequence[int], model: Model) -> list[str]:
    depth = model.config.num_layers
    outside = [layer for layer in layers if not 1 <= layer <= depth]
    return [f"{name} must be 1 to {depth}; received {_listed(outside)}; choose others"] if outside else []


def _listed(layers: Sequence[int]) -> str:
    return ",".join(map(str, layers))
