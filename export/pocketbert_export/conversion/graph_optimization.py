"""Rewrite a model into equivalent forms for speed on a phone.

Each graph optimization has a switch and skips unsuitable models; `decide` gives the reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pocketbert.configs import BlockKind, EncoderConfig
from pocketbert.layers.graph_form import GraphForm
from pocketbert.layers.relative_attention import suits_blocks
from pocketbert.model import Model
from pocketbert.tasks.registry import get_task
from pocketbert_export.conversion.graph_optimization_options import GraphOptimizations
from pocketbert_export.conversion.pre_norm import fold_pre_norm

# Blocks whose keys and values are linear maps of their inputs alone.
_WITHOUT_POSITIONS: tuple[BlockKind, ...] = ("plain", "bottleneck")
APPLIED = "applied"
OFF = "off"

# A feature's folded scale is a product of gammas, and adjacent dense layers are divided by it. Beyond this range
# (a gamma near zero) float32 would still work, but quantized weights of very different sizes would not.
_MAX_SCALE = 1024.0
# GPUs compute float files in half precision, which ends at 65,504: -1e9 becomes minus infinity, and its product with a
# token's 0 is NaN. This value is far enough below logits of thousands; the gate's padding check detects a leak.
_PADDING_BIAS = -6e4

_FACTOR = ".residual_scale.factor"

Tensors = dict[str, np.ndarray]


GRAPH_OPTIMIZATIONS: tuple[str, ...] = tuple(field.name for field in dataclasses.fields(GraphOptimizations))


def decide(model: Model, graph_optimizations: GraphOptimizations) -> dict[str, str]:
    """Decides on each optimization: applied (`is_applied`), `OFF`, or the reason why it does not suit the model."""
    others = [task.kind for task in model.tasks if not get_task(task).first_token_only]
    first_token = f"does not suit {', '.join(others)}: other tokens than the first are read" if others else ""
    if not model.tasks:
        first_token = "does not suit a bare encoder: every token's output is read"
    fuses = graph_optimizations.fuse_projections or model.config.bottleneck is not None
    attends = graph_optimizations.first_token_only and not first_token
    attention = "" if attends else "needs first_token_only: it pays for a single query only"
    if model.config.block not in _WITHOUT_POSITIONS:
        attention = f"does not suit {model.config.block} blocks: their attention also depends on positions"
    unsuited = {
        "fold_no_norm": _why_not_fold(model),
        "fuse_projections": "" if fuses else "does not pay in blocks without a bottleneck; applied only when requested",
        "first_token_only": first_token,
        "attend_to_inputs": attention,
        "fold_beta": _why_not_fold_beta(model.config),
        "fold_pre_norm": "" if model.config.block == "rotary" else f"does not suit {model.config.block} blocks",
    }
    decided = {
        name: OFF if getattr(graph_optimizations, name) is False else unsuited[name] or APPLIED
        for name in GRAPH_OPTIMIZATIONS
    }
    if decided["fold_no_norm"] == APPLIED:
        decided["fold_no_norm"] += _count_folded(model)
    return decided


def is_applied(decision: str) -> bool:
    """Whether a decision from `decide` says that the graph optimization was applied."""
    return decision.startswith(APPLIED)


def optimize_graph(model: Model, graph_optimizations: GraphOptimizations, lengths: Sequence[int] = ()) -> Model:
    """Creates a model in a form for export, with equal outputs up to rounding.

    `first_token_only` applies only to tasks on the first token: it would reduce a bare encoder's `sequence_output` to
    length 1.

    Args:
      model: a model in the plain form; unchanged.
      graph_optimizations: optimizations to apply if they suit the model.
      lengths: the file's sequence lengths, whose graphs should have the same operators.
    """
    decided = decide(model, graph_optimizations)
    config = model.config
    tensors = {path: variable.numpy() for path, variable in model.weights_by_path().items()}
    scaled_residuals: tuple[str, ...] = ()
    if is_applied(decided["fold_no_norm"]):
        tensors = fold_no_norm(config, tensors)
        config = config.replace(norm="identity")
        paths = (path.removeprefix("encoder.") for path in tensors if path.endswith(_FACTOR))
        scaled_residuals = tuple(path.removesuffix(_FACTOR) for path in paths)
    if is_applied(decided["fold_beta"]):
        tensors = fold_beta(config, tensors)
    if is_applied(decided["fold_pre_norm"]):
        tensors = fold_pre_norm(config, tensors)
        config = config.replace(norm="rms")
    graph = GraphForm(
        fused_projections=is_applied(decided["fuse_projections"]),
        first_token_only=is_applied(decided["first_token_only"]),
        attend_to_inputs=is_applied(decided["attend_to_inputs"]),
        padding_bias=_PADDING_BIAS,
        scaled_residuals=scaled_residuals,
        early_gamma=config.layer_groups is not None,
        in_blocks=suits_blocks(lengths)
        if config.rotary is None
        else all(2 * length > 3 * config.rotary.window for length in lengths),
    )
    optimized = Model(config, model.tasks, model.tokenizer, graph, initialize=False)
    for path, variable in optimized.weights_by_path().items():
        variable.assign(tensors[path])
    return optimized


def fold_no_norm(config: EncoderConfig, tensors: Tensors) -> Tensors:
    """Folds every NoNorm, gamma ∘ h + beta (MobileBERT, eq. 1), into the adjacent dense layers.

    After a dense layer, gamma and beta go into its kernel and bias. After a residual sum they would have to multiply
    the residual as well. Instead, the residual stream is rescaled: x is stored as s ∘ x, with s chosen to make the
    residual's factor 1, and each dense layer that reads the stream divides by s. Between blocks, s is 1 after the last
    one and s[l-1] = gamma[l] · s[l]. The same holds inside a block, where the last s is free and chosen to keep the
    scales near 1.

    If a product of gammas leaves 1/1024 to 1024, or is zero, s starts anew before that norm, and one multiplication of
    the residual makes up for it. Norms without a residual fold with any gamma. So does a block's first residual, unless
    queries and keys also read it.

    Args:
      config: an architecture with `no_norm` and bottlenecks.
      tensors: canonical path → array.
    Returns:
      Weights for the architecture with `identity` norms, float32. Factors for `GraphForm.scaled_residuals` have the
      path `encoder.SUB-LAYER.residual_scale.factor`.
    """
    wide = {path: array.astype(np.float64) for path, array in tensors.items()}
    outer = _outer_stream(config, wide)
    gain, offset = (wide[f"encoder.embeddings.norm.{name}"] * outer.scales[0] for name in ("gamma", "beta"))
    for name in ("position", "token_type"):
        wide[f"encoder.embeddings.{name}.table"] *= gain
    _after(wide, "encoder.embeddings.projection", gain, offset)
    for layer in range(config.num_layers):
        block = f"encoder.layers.{layer}."
        _fold_block(config, wide, block, outer.scales[layer], outer.scales[layer + 1])
        if layer in outer.factors:
            wide[f"{block}bottleneck{_FACTOR}"] = outer.factors[layer]
    return {path: array.astype(np.float32) for path, array in wide.items() if not _is_no_norm(path)}


def fold_beta(config: EncoderConfig, tensors: Tensors) -> Tensors:
    """Folds the beta in each LayerNorm but the last, gamma ∘ n + beta, into the dense layers behind it.

    The layers that read the norm's output compute (x + beta)·W + b = x·W + (beta·W + b). The residual also loses beta,
    so the dense layer added to it has beta in its bias. The converter drops sums with zero. In DeBERTa, the maps for
    queries and keys also read the vectors of distances, so only norms before feed-forward networks fold.

    Args:
      config: an architecture with `layer_norm`, without bottlenecks and feed-forward expressions.
      tensors: canonical path → array.
    Returns:
      Weights for the same architecture, float32.
    """
    wide = {path: array.astype(np.float64) for path, array in tensors.items()}

    def move(norm: str, readers: list[str], added: str) -> None:
        beta = wide[f"{norm}.beta"]
        for reader in readers:
            wide[f"{reader}.bias"] = wide[f"{reader}.bias"] + beta @ wide[f"{reader}.kernel"]
        wide[f"{added}.bias"] = wide[f"{added}.bias"] + beta
        wide[f"{norm}.beta"] = np.zeros_like(beta)

    norm = "encoder.embeddings.norm"
    for layer in range(config.num_layers):
        attention = f"encoder.layers.{layer}.attention"
        if not config.relative:
            move(norm, [f"{attention}.{name}" for name in ("query", "key", "value")], f"{attention}.output")
        norm = f"{attention}.norm"
        for j in range(config.num_feedforward_networks):
            feed_forward = f"encoder.layers.{layer}.feed_forwards.{j}"
            move(norm, [f"{feed_forward}.intermediate"], f"{feed_forward}.output")
            norm = f"{feed_forward}.norm"
    return {path: array.astype(np.float32) for path, array in wide.items()}


def _why_not_fold_beta(config: EncoderConfig) -> str:
    if config.block == "rotary":
        return "does not suit rotary blocks: their norms have no beta"
    if config.norm != "layer_norm":
        return f"does not suit norm={config.norm!r}"
    if config.layer_groups is not None:
        return "does not suit layers that share their weights: the first one reads no norm"
    if config.bottleneck is not None or config.feedforward is not None or config.embedding_projection == "output":
        return "does not suit bottlenecks, feed-forward expressions and projections behind the embedding's norm"
    return ""


def _why_not_fold(model: Model) -> str:
    config = model.config
    if config.norm != "no_norm":
        return f"does not suit norm={config.norm!r}"
    if config.bottleneck is None or config.embedding_projection != "word":
        return "does not suit no_norm without bottleneck and word projection"
    return ""


def _count_folded(model: Model) -> str:
    """How many norms fold, such as `, 15 of 17 norms`."""
    config = model.config
    gammas = {path: v.numpy().astype(np.float64) for path, v in model.weights_by_path().items() if _is_no_norm(path)}
    streams = [_outer_stream(config, gammas)]
    streams += [_inner_stream(config, gammas, f"encoder.layers.{layer}.") for layer in range(config.num_layers)]
    total, partly = len(gammas) // 2, sum(len(stream.factors) for stream in streams)
    rest = f"; {partly} keep a product on their residual" if partly else ""
    return f", {total - partly} of {total} norms{rest}"


def _is_no_norm(path: str) -> bool:
    # The masked-LM head's norm is always a LayerNorm.
    return path.startswith("encoder.") and path.endswith((".gamma", ".beta"))


class _Stream(NamedTuple):
    """Residual stream: scales at its start and after each norm, `[features]`; norm number → factor for a new start."""

    scales: list[np.ndarray]
    factors: dict[int, np.ndarray]


def _outer_stream(config: EncoderConfig, tensors: Tensors) -> _Stream:
    """The feature map; its scale is 1 after the last layer."""
    names = [f"encoder.layers.{layer}.bottleneck.output_norm.gamma" for layer in range(config.num_layers)]
    return _stream([tensors[name] for name in names], is_free=False)


def _inner_stream(config: EncoderConfig, tensors: Tensors, block: str) -> _Stream:
    """The stream in a block: at its start, after attention, and after each feed-forward network."""
    assert config.bottleneck is not None
    attention = tensors[f"{block}attention.norm.gamma"]
    gammas = [tensors[f"{block}feed_forwards.{j}.norm.gamma"] for j in range(config.num_feedforward_networks)]
    if config.bottleneck.query_key == "bottleneck":
        return _stream([attention, *gammas], is_free=True)
    # Only the first residual reads the start, so any scale suits it.
    scales, factors = _stream(gammas, is_free=True)
    return _Stream([scales[0] * attention, *scales], {number + 1: factor for number, factor in factors.items()})


def _stream(gammas: Sequence[np.ndarray], *, is_free: bool) -> _Stream:
    """Scales for residual factors of 1, in parts within 1/1024 to 1024; the last is 1 unless it is free."""
    parts = [[np.ones_like(gammas[-1])]]
    restarts = []
    for number in reversed(range(len(gammas))):
        part = parts[-1]
        grown = [part[0] * gammas[number], *part]
        low, high = np.abs(grown).min(axis=0), np.abs(grown).max(axis=0)
        if is_free or len(parts) > 1:
            is_in_range = np.all(low > 0) and np.all(high <= low * _MAX_SCALE**2)
        else:
            is_in_range = np.all(low >= 1 / _MAX_SCALE) and np.all(high <= _MAX_SCALE)
        if is_in_range:
            parts[-1] = grown
        else:
            restarts.append(number)
            parts.append([np.ones_like(gammas[number])])
    scales: list[np.ndarray] = []
    for number, part in reversed([*enumerate(parts)]):
        # A part's scales are divided by the middle of each feature's range.
        middle = np.sqrt(np.abs(part).min(axis=0) * np.abs(part).max(axis=0))
        scales += [scale / middle for scale in part] if is_free or number else part
    return _Stream(scales, {number: scales[number + 1] * gammas[number] / scales[number] for number in restarts})


def _fold_block(
    config: EncoderConfig, tensors: Tensors, block: str, scale_before: np.ndarray, scale_after: np.ndarray
) -> None:
    assert config.bottleneck is not None
    source = config.bottleneck.query_key
    inner, factors = _inner_stream(config, tensors, block)
    sub_layers = ["attention", *(f"feed_forwards.{j}" for j in range(config.num_feedforward_networks))]
    for number, factor in factors.items():
        tensors[f"{block}{sub_layers[number]}{_FACTOR}"] = factor

    def before(name: str, scale: np.ndarray) -> None:
        """Adapts a dense layer to an input multiplied by `scale`."""
        tensors[f"{block}{name}.kernel"] /= scale[:, None]

    def after(name: str, norm: str, scale: np.ndarray | float) -> None:
        gamma, beta = tensors[f"{block}{norm}.gamma"], tensors[f"{block}{norm}.beta"]
        _after(tensors, f"{block}{name}", gamma * scale, beta * scale)

    before("bottleneck.input", scale_before)
    after("bottleneck.input", "bottleneck.input_norm", inner[0])
    if source == "shared":
        before("bottleneck.query_key", scale_before)
        after("bottleneck.query_key", "bottleneck.query_key_norm", 1.0)
    if source == "raw":
        before("attention.query", scale_before)
        before("attention.key", scale_before)
    if source == "bottleneck":
        for name in ("query", "key", "value"):
            before(f"attention.{name}", inner[0])
    else:
        before("attention.value", scale_before)
    after("attention.output", "attention.norm", inner[1])
    for j in range(config.num_feedforward_networks):
        before(f"feed_forwards.{j}.intermediate", inner[j + 1])
        after(f"feed_forwards.{j}.output", f"feed_forwards.{j}.norm", inner[j + 2])
    before("bottleneck.output", inner[-1])
    after("bottleneck.output", "bottleneck.output_norm", scale_after)


def _after(tensors: Tensors, linear: str, gain: np.ndarray, offset: np.ndarray) -> None:
    """Makes a dense layer output gain ∘ y + offset instead of y."""
    tensors[f"{linear}.kernel"] *= gain
    tensors[f"{linear}.bias"] = tensors[f"{linear}.bias"] * gain + offset
