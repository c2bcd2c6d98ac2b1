"""The stages of MobileBERT; see `MobileBERT` for values that the paper does not give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pocketbert.distillation.transfer_rates import TransferRates
from pocketbert.errors import UserError
from pocketbert.training.stage import OptimizerConfig, Stage, Steps

if TYPE_CHECKING:
    from pocketbert.distillation.methods.mobilebert import MobileBERT


def transfer_stages(num_layers: int, method: MobileBERT) -> list[Stage]:
    """Returns one stage per layer from `first_layer` on, or one stage for joint transfer."""
    if method.strategy == "joint":
        return [_transfer_stage("transfer", 1, num_layers, method.transfer_steps, method)]
    if method.transfer_steps < num_layers:
        raise UserError(
            f"mobilebert: progressive transfer needs one step per layer; received "
            f"transfer_steps={method.transfer_steps} for {num_layers} layers"
        )
    # Layer ℓ ends after ℓ/L of the steps, so the sum is exact for every L.
    ends = [layer * method.transfer_steps // num_layers for layer in range(num_layers + 1)]
    digits = max(2, len(str(num_layers)))
    return [
        _transfer_stage(f"transfer_{layer:0{digits}}", layer, layer, ends[layer] - ends[layer - 1], method)
        for layer in range(method.first_layer, num_layers + 1)
    ]


def _transfer_stage(name: str, first: int, last: int, steps: int, method: MobileBERT) -> Stage:
    """Returns a stage in which layers `first` to `last` learn from the same layers of the teacher."""
    rates = TransferRates(first=first, last=last, steps=steps, lower=method.lower_layers == "reduced")
    features = dict.fromkeys(method.transferred, tuple(range(first, last + 1)))
    return Stage(
        name=name,
        teacher_features=features,
        student_features=features,
        weights=_transfer_weights(method),
        duration=Steps(steps),
        batch_size=method.transfer_batch_size,
        optimizer=_optimizer(method, learning_rate=method.transfer_learning_rate, schedule="constant"),
        trainable=rates.trains,
        learning_rate_multiplier=rates,
        **_common_fields(method),
    )


def distillation_stage(name: str, layers: tuple[int, ...], method: MobileBERT) -> Stage:
    """Returns a stage of pretraining distillation, with auxiliary knowledge transfer in `layers`."""
    assert method.distillation_batch_size is not None
    features: dict[str, tuple[int, ...]] = dict.fromkeys(method.transferred if layers else (), layers)
    weights = _transfer_weights(method) if layers else {}
    teaches = "distillation" not in method.without
    weights |= {"masked_lm": method.alpha if teaches else 1.0, "next_sentence": 1.0}
    if teaches:
        weights["distillation"] = 1 - method.alpha
    return Stage(
        name=name,
        teacher_features={**features, "logits": ()} if teaches else features,
        student_features={**features, "logits": ()},
        weights=weights,
        duration=Steps(method.distillation_steps + (method.transfer_steps if layers else 0)),
        batch_size=method.distillation_batch_size,
        optimizer=_optimizer(
            method,
            learning_rate=method.distillation_learning_rate,
            schedule=method.distillation_schedule,
            warmup_steps=method.distillation_warmup_steps,
        ),
        **_common_fields(method),
    )


def _common_fields(method: MobileBERT) -> dict[str, Any]:
    return {
        "data": "pretraining",
        "max_length": method.max_length,
        "micro_batches": method.micro_batches,
        "student_dropout": method.student_dropout,
        "options": method,
    }


def _optimizer(method: MobileBERT, **fields: Any) -> OptimizerConfig:
    return OptimizerConfig(
        algorithm="lamb",
        weight_decay=method.weight_decay,
        clip_norm=method.clip_norm or None,
        bias_correction=method.bias_correction,
        **fields,
    )


def _transfer_weights(method: MobileBERT) -> dict[str, float]:
    weights = {}
    if "hidden_states" in method.transferred:
        decomposed = ("feature_normalized", "feature_mean", "feature_variance")
        terms = decomposed if method.feature_transfer == "decomposed" else ("feature_map",)
        weights = {term: getattr(method, f"{term}_weight") for term in terms}
    if "attention_logits" in method.transferred:
        weights["attention"] = method.attention_weight
    return weights
