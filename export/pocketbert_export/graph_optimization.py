"""Rewrite a model into equivalent forms that run faster on a phone.

Each graph optimization has a switch and skips models that it does not suit; `decide` gives the reason.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from pocketbert.configs import EncoderConfig
from pocketbert.layers.graph_form import GraphForm
from pocketbert.model import Model
from pocketbert.tasks.registry import get_task
from pocketbert_export.graph_optimization_options import GraphOptimizations

APPLIED = "applied"
OFF = "off"

# A feature's folded scale is a product of gammas, and adjacent dense layers are divided by it. Beyond this range
# (a gamma near zero) float32 would still work, but quantized weights of very different sizes would not.
_MAX_SCALE = 1024.0
# GPUs compute float files in half precision, which ends at 65,504: -1e9 becomes minus infinity, and its product with a
# token's 0 is NaN. This value is far enough below logits of thousands; the gate's padding check detects a leak.
_PADDING_BIAS = -6e4

Tensors = dict[str, np.ndarray]


GRAPH_OPTIMIZATIONS: tuple[str, ...] = tuple(field.name for field in dataclasses.fields(GraphOptimizations))


def decide(model: Model, graph_optimizations: GraphOptimizations) -> dict[str, str]:
    """Decides on each graph optimization: `APPLIED`, `OFF`, or the reason why it does not suit the model."""
    unsuited = {
        "fold_no_norm": _why_not_fold(model),
        "fuse_projections": _why_not_fuse(model, graph_optimizations),
        "first_token_only": _why_not_first_token(model),
        "attend_to_inputs": _why_not_attend(model, graph_optimizations),
        "fold_beta": _why_not_fold_beta(model.config),
    }
    return {
        name: OFF if getattr(graph_optimizations, name) is False else unsuited[name] or APPLIED
        for name in GRAPH_OPTIMIZATIONS
    }


def optimize_graph(model: Model, graph_optimizations: GraphOptimizations) -> Model:
    """Creates a model with the same outputs in a form for export.

    Args:
      model: a model in the plain form; unchanged.
      graph_optimizations: optimizations to apply if they suit the model.
    Returns:
      A model with equal outputs up to rounding. `first_token_only` would reduce a bare encoder's `sequence_output` to
      length 1, so it applies only to tasks that read the first token.
    """
    decided = decide(model, graph_optimizations)
    config = model.config
    tensors = {path: variable.numpy() for path, variable in model.weights_by_path().items()}
    if decided["fold_no_norm"] == APPLIED:
        tensors = fold_no_norm(config, tensors)
        config = config.replace(norm="identity")
    if decided["fold_beta"] == APPLIED:
        tensors = fold_beta(config, tensors)
    graph = GraphForm(
        fused_projections=decided["fuse_projections"] == APPLIED,
        first_token_only=decided["first_token_only"] == APPLIED,
        attend_to_inputs=decided["attend_to_inputs"] == APPLIED,
        padding_bias=_PADDING_BIAS,
    )
    optimized = Model(config, model.tasks, model.tokenizer, graph, initialize=False)
    for path, variable in optimized.weights_by_path().items():
        variable.assign(tensors[path])
    return optimized


def fold_no_norm(config: EncoderConfig, tensors: Tensors) -> Tensors:
    """Folds every NoNorm, gamma ∘ h + beta (MobileBERT, eq. 1), into the adjacent dense layers.

    After a dense layer, gamma and beta go into its kernel and bias. After a residual sum they would have to
    multiply the residual as well. Instead, the residual stream is rescaled: x is stored as s ∘ x, with s chosen so
    that the residual's factor becomes 1, and each dense layer that reads the stream divides by s. Between blocks, s
    is 1 after the last one and s[l-1] = gamma[l] · s[l]. The same holds inside a block, where the last s is free and
    chosen to keep the scales near 1.

    Args:
      config: an architecture with `no_norm` and bottlenecks.
      tensors: canonical path → array.
    Returns:
      The weights of the same architecture with `identity` norms, float32.
    """
    wide = {path: array.astype(np.float64) for path, array in tensors.items()}
    outer = _outer_scales(config, wide)
    _fold_embeddings(wide, outer[0])
    for layer in range(config.num_layers):
        _fold_block(config, wide, f"encoder.layers.{layer}.", outer[layer], outer[layer + 1])
    return {path: array.astype(np.float32) for path, array in wide.items() if not _is_no_norm(path)}


def fold_beta(config: EncoderConfig, tensors: Tensors) -> Tensors:
    """Folds the beta of every LayerNorm but the last, gamma ∘ n + beta, into the dense layers behind it.

    The layers that read the norm's output compute (x + beta)·W + b = x·W + (beta·W + b). The residual also has a beta
    less, so the dense layer whose output is added to it has beta in its bias. The converter drops sums with zero.

    Args:
      config: an architecture with `layer_norm`, without bottlenecks and feed-forward expressions.
      tensors: canonical path → array.
    Returns:
      The weights of the same architecture, float32. Only the last norm has a beta.
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
        move(norm, [f"{attention}.{name}" for name in ("query", "key", "value")], f"{attention}.output")
        norm = f"{attention}.norm"
        for j in range(config.num_feedforward_networks):
            feed_forward = f"encoder.layers.{layer}.feed_forwards.{j}"
            move(norm, [f"{feed_forward}.intermediate"], f"{feed_forward}.output")
            norm = f"{feed_forward}.norm"
    return {path: array.astype(np.float32) for path, array in wide.items()}


def _why_not_fold_beta(config: EncoderConfig) -> str:
    if config.norm != "layer_norm":
        return f"does not suit norm={config.norm!r}"
    if config.bottleneck is not None or config.feedforward is not None or config.embedding_projection == "output":
        return "does not suit bottlenecks, feed-forward expressions and projections behind the embedding's norm"
    return ""


def _why_not_fuse(model: Model, graph_optimizations: GraphOptimizations) -> str:
    if graph_optimizations.fuse_projections or model.config.bottleneck is not None:
        return ""
    return "does not pay in blocks without a bottleneck; applied only when requested"


def _why_not_first_token(model: Model) -> str:
    if not model.tasks:
        return "does not suit a bare encoder: every token's output is read"
    others = [task.kind for task in model.tasks if not get_task(task).first_token_only]
    return f"does not suit {', '.join(others)}: other tokens than the first are read" if others else ""


def _why_not_attend(model: Model, graph_optimizations: GraphOptimizations) -> str:
    if graph_optimizations.first_token_only and not _why_not_first_token(model):
        return ""
    return "needs first_token_only: it pays for a single query only"


def _why_not_fold(model: Model) -> str:
    config = model.config
    if config.norm != "no_norm":
        return f"does not suit norm={config.norm!r}"
    if config.bottleneck is None or config.embedding_projection != "word":
        return "does not suit no_norm without bottleneck and word projection"
    tensors = {path: v.numpy().astype(np.float64) for path, v in model.weights_by_path().items() if _is_no_norm(path)}
    scales = [np.concatenate(_outer_scales(config, tensors))]
    scales += [
        np.concatenate(_inner_scales(config, tensors, f"encoder.layers.{layer}.")) for layer in range(config.num_layers)
    ]
    sizes = np.abs(np.concatenate(scales))
    if np.all(sizes <= _MAX_SCALE) and np.all(sizes >= 1 / _MAX_SCALE):
        return ""
    return (
        f"does not suit these weights: products of gammas must lie in 1/{_MAX_SCALE:.0f} to {_MAX_SCALE:.0f}, "
        f"but range from {sizes.min():.2g} to {sizes.max():.2g}"
    )


def _is_no_norm(path: str) -> bool:
    # The masked-LM head's norm is always a LayerNorm.
    return path.startswith("encoder.") and path.endswith((".gamma", ".beta"))


def _outer_scales(config: EncoderConfig, tensors: Tensors) -> list[np.ndarray]:
    """Scale of the feature map before each layer, and 1 after the last; `[hidden_size]` each."""
    scales = [np.ones(config.hidden_size)]
    for layer in reversed(range(config.num_layers)):
        scales.insert(0, scales[0] * tensors[f"encoder.layers.{layer}.bottleneck.output_norm.gamma"])
    return scales


def _inner_scales(config: EncoderConfig, tensors: Tensors, block: str) -> list[np.ndarray]:
    """Scale of the stream in a block: at its start, after attention, and after each feed-forward network."""
    gammas = [tensors[f"{block}attention.norm.gamma"]]
    gammas += [tensors[f"{block}feed_forwards.{j}.norm.gamma"] for j in range(config.num_feedforward_networks)]
    scales = [np.ones(config.block_size)]
    for gamma in reversed(gammas):
        scales.insert(0, scales[0] * gamma)
    with np.errstate(divide="ignore", invalid="ignore"):
        middle = np.exp(np.mean([np.log(np.abs(scale)) for scale in scales], axis=0))
        return [scale / middle for scale in scales]


def _fold_embeddings(tensors: Tensors, scale: np.ndarray) -> None:
    gamma, beta = tensors["encoder.embeddings.norm.gamma"], tensors["encoder.embeddings.norm.beta"]
    for name in ("position.table", "token_type.table"):
        tensors[f"encoder.embeddings.{name}"] *= gamma * scale
    _after(tensors, "encoder.embeddings.projection", gamma * scale, beta * scale)


def _fold_block(
    config: EncoderConfig, tensors: Tensors, block: str, scale_before: np.ndarray, scale_after: np.ndarray
) -> None:
    assert config.bottleneck is not None
    source = config.bottleneck.query_key
    inner = _inner_scales(config, tensors, block)

    def norm(name: str) -> tuple[np.ndarray, np.ndarray]:
        return tensors[f"{block}{name}.gamma"], tensors[f"{block}{name}.beta"]

    _before(tensors, f"{block}bottleneck.input", scale_before)
    gamma, beta = norm("bottleneck.input_norm")
    _after(tensors, f"{block}bottleneck.input", gamma * inner[0], beta * inner[0])
    if source == "shared":
        _before(tensors, f"{block}bottleneck.query_key", scale_before)
        _after(tensors, f"{block}bottleneck.query_key", *norm("bottleneck.query_key_norm"))
    if source == "raw":
        _before(tensors, f"{block}attention.query", scale_before)
        _before(tensors, f"{block}attention.key", scale_before)
    if source == "bottleneck":
        for name in ("query", "key", "value"):
            _before(tensors, f"{block}attention.{name}", inner[0])
    else:
        _before(tensors, f"{block}attention.value", scale_before)
    gamma, beta = norm("attention.norm")
    _after(tensors, f"{block}attention.output", gamma * inner[1], beta * inner[1])
    for j in range(config.num_feedforward_networks):
        _before(tensors, f"{block}feed_forwards.{j}.intermediate", inner[j + 1])
        gamma, beta = norm(f"feed_forwards.{j}.norm")
        _after(tensors, f"{block}feed_forwards.{j}.output", gamma * inner[j + 2], beta * inner[j + 2])
    _before(tensors, f"{block}bottleneck.output", inner[-1])
    gamma, beta = norm("bottleneck.output_norm")
    _after(tensors, f"{block}bottleneck.output", gamma * scale_after, beta * scale_after)


def _before(tensors: Tensors, linear: str, scale: np.ndarray) -> None:
    """Adapts a dense layer to an input that is multiplied by `scale`."""
    tensors[f"{linear}.kernel"] /= scale[:, None]


def _after(tensors: Tensors, linear: str, gain: np.ndarray, offset: np.ndarray) -> None:
    """Makes a dense layer output gain ∘ y + offset instead of y."""
    tensors[f"{linear}.kernel"] *= gain
    tensors[f"{linear}.bias"] = tensors[f"{linear}.bias"] * gain + offset
