"""Distils embedding, attention and hidden states over mapped layers (TinyBERT, EfficientBERT).

The terms are `embedding`, `attention` and `hidden`, each a sum over the student's layers. Functions import TensorFlow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from pocketbert.distillation import layer_maps
from pocketbert.distillation.method import DistillationSpec
from pocketbert.distillation.predictions import logits_by_name, prediction_terms
from pocketbert.errors import UserError
from pocketbert.training.objective import Adapters, Batch, Features, Targets
from pocketbert.training.stage import Stage

if TYPE_CHECKING:
    import tensorflow as tf

TERMS = ("embedding", "attention", "hidden")
_SHARED = "shared_projection"


def mapping_problems(spec: DistillationSpec, mapping: str) -> list[str]:
    """Returns the problem with a layer map for the teacher's and the student's layers."""
    try:
        layer_maps.named(mapping, spec.student.num_layers, spec.teacher.num_layers)
    except UserError as error:
        return [str(error)]
    return []


def layer_features(spec: DistillationSpec, mapping: str, terms: Collection[str]) -> dict[str, Any]:
    """Returns a stage's weights, all 1, and both models' features; raises a `UserError` if the map does not fit."""
    # Runs without losses on Transformer layers need no layer map, so they allow any depth.
    mapped: layer_maps.LayerMap = ()
    if {"attention", "hidden"} & {*terms}:
        mapped = layer_maps.named(mapping, spec.student.num_layers, spec.teacher.num_layers)
    student_layers = tuple(range(1, len(mapped) + 1))
    requests: list[dict[str, tuple[int, ...]]] = []
    for layers in (mapped, student_layers):
        hidden = ((0,) if "embedding" in terms else ()) + (layers if "hidden" in terms else ())
        request = {"hidden_states": hidden, "attention_logits": layers if "attention" in terms else ()}
        requests.append({name: requested for name, requested in request.items() if requested})
    return {
        "teacher_features": requests[0],
        "student_features": requests[1],
        "weights": dict.fromkeys((term for term in TERMS if term in terms), 1.0),
    }


def projections(spec: DistillationSpec, terms: Collection[str], *, shared: bool) -> Adapters:
    """Returns W_h (`hidden_projection`) and W_e (`embedding_projection`), or `shared_projection`, if terms read them.

    Each projects the student's width to the teacher's.
    """
    from pocketbert.layers.core import Dense

    names = [_SHARED if shared else f"{term}_projection" for term in ("hidden", "embedding") if term in terms]
    return {name: Dense(spec.student.hidden_size, spec.teacher.hidden_size) for name in dict.fromkeys(names)}


def all_targets(stage: Stage, teacher: Features) -> Targets:
    """Returns the teacher's features by name and layer, and its logits if the stage reads them.

    Examples: `hidden_states_3` [B, S, H], `attention_logits_3` [B, N, S, S]. Logits are `logits` [B, C] or [B]; for
    spans `start_logits` and `end_logits` [B, S]; for tags `token_logits` [B, S, C].
    """
    targets = layer_maps.layer_targets(stage, teacher, ("hidden_states", "attention_logits"))
    if "logits" in stage.teacher_features:
        targets |= logits_by_name(teacher["logits"], stage.task)
    return targets


def all_losses(
    stage: Stage, targets: Targets, student: Features, adapters: Adapters, batch: Batch
) -> Mapping[str, tf.Tensor]:
    """Returns the stage's terms: those in `TERMS`, each a sum over layers, `prediction` and `labels`.

    The stage's options have `temperature` and `mean_over_classes`.
    """
    from pocketbert.distillation.losses import tinybert_attention, tinybert_hidden

    mask, options = batch["input_mask"], stage.options
    layers: dict[str, list[tf.Tensor]] = {term: [] for term in TERMS if term in stage.weights}
    for layer, learned, target in layer_maps.layer_pairs("hidden_states", stage, student, targets):
        term = "hidden" if layer else "embedding"
        projection = adapters[_SHARED if _SHARED in adapters else f"{term}_projection"]
        layers[term].append(tinybert_hidden(target, projection(learned), mask))
    for _, learned, target in layer_maps.layer_pairs("attention_logits", stage, student, targets):
        layers["attention"].append(tinybert_attention(target, learned, mask))
    losses = {term: sum(values[1:], values[0]) for term, values in layers.items()}
    if stage.task is None:
        return losses
    scale = {"temperature": options.temperature, "mean_over_classes": options.mean_over_classes}
    return losses | prediction_terms(stage, targets, student, batch, **scale)
