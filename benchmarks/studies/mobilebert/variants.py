"""Gain of MobileBERT's two operational optimizations: four norms and activations, exported and timed together.

    python -m studies mobilebert/variants [--quick]

Sun et al. 2020 (MobileBERT), table 7: LayerNorm or NoNorm, gelu or relu, in the paper's architecture at 128 tokens.
Each variant is a classifier with random weights, exported as by `pocketbert export`, including the gate, in float32 and
dynamic int8. All files then alternate in one run with 1 thread. The paper's figures are for a Pixel 4 with 4 threads;
compare the ratios to LayerNorm with gelu.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketbert.configs import Activation, EncoderConfig, Norm, TaskConfig
from pocketbert.presets import preset
from pocketbert_bench import configurations, host, machine, results
from pocketbert_bench.configurations import Configuration
from pocketbert_bench.host import Schedule
from studies.against_transformers.latency import move_norms
from studies.shared_data import shared_data

PRESET = "mobilebert_paper"
LENGTH = 128
LAYERS, QUICK_LAYERS = 24, 4
RECIPES = ("float32", "dynamic_wi8")
TASK = TaskConfig(kind="classification", name="random", labels=("negative", "positive"))
FULL = Schedule(rounds=40, runs=200, seconds=0.0, longest_seconds=60.0)
QUICK = Schedule(rounds=6, runs=18, seconds=0.0, longest_seconds=5.0, warm_up_seconds=0.2)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A norm and an activation.

    Attributes:
      name: name in the paper's table.
      norm: the configuration's value.
      activation: the configuration's value; the paper's gelu is the authors' approximation.
      paper_ms: the paper's latency in milliseconds.
    """

    name: str
    norm: Norm
    activation: Activation
    paper_ms: float

    def config(self, layers: int) -> EncoderConfig:
        """The paper's MobileBERT with this norm and activation, and `layers` layers."""
        return preset(PRESET).config.replace(norm=self.norm, activation=self.activation, num_layers=layers)


VARIANTS = (
    Variant(name="LayerNorm & gelu", norm="layer_norm", activation="gelu_tanh", paper_ms=192.0),
    Variant(name="LayerNorm & relu", norm="layer_norm", activation="relu", paper_ms=167.0),
    Variant(name="NoNorm & gelu", norm="no_norm", activation="gelu_tanh", paper_ms=92.0),
    Variant(name="NoNorm & relu", norm="no_norm", activation="relu", paper_ms=62.0),
)


def run(quick: bool) -> dict[str, Any]:
    """Exports, verifies and times every variant in every recipe.

    Args:
      quick: fewer and shorter turns, and `QUICK_LAYERS` layers; the milliseconds are then meaningless.

    Returns:
      Content of a result file; ratios are to the first of `VARIANTS` in the same recipe.

    Raises:
      UserError: the vocabulary is missing.
      GateFailed: a file's outputs differ too much from its model's.
    """
    created, before = results.now(), machine.machine()
    layers = QUICK_LAYERS if quick else LAYERS
    with tempfile.TemporaryDirectory() as folder:
        files = [each for variant in VARIANTS for each in exports(variant, layers, Path(folder))]
        measured = host.measure(files, QUICK if quick else FULL)
    found = {(each.model, each.recipe): each for each in measured}
    slowest, *others = VARIANTS
    ratios = [
        results.latency_ratio(
            f"{variant.name}, {recipe}",
            found[variant.name, recipe],
            found[slowest.name, recipe],
            f"{variant.name} over {slowest.name}, {layers} layers, {LENGTH} tokens, 1 thread, {recipe}; the paper's is "
            f"{variant.paper_ms / slowest.paper_ms:.2f}",
            None,
        )
        for variant in others
        for recipe in RECIPES
    ]
    return results.to_json(
        results.result_file(
            "MobileBERT's operational optimizations",
            quick=quick,
            measurements=measured,
            ratios=ratios,
            notes=[
                results.RANDOM_WEIGHTS_NOTE,
                f"Each of the {len(files)} files, of {layers} layers, passed the gate of its export.",
            ],
            on=before,
            created=created,
        )
    )


def exports(variant: Variant, layers: int, folder: Path) -> list[Configuration]:
    """A variant's verified bundle in each recipe.

    Args:
      variant: the variant.
      layers: number of layers.
      folder: folder for models and bundles.
    """
    import pocketbert as pb
    from pocketbert_export.exporter import export

    tokenizer = pb.WordPieceTokenizer(shared_data("vocab/bert-base-uncased.vocab.txt"))
    model = pb.from_preset(variant.config(layers), [TASK], tokenizer, seed=0)
    move_norms({path: weight for path, weight in model.weights_by_path().items() if path.endswith((".gamma", ".beta"))})
    directory = folder / variant.name
    model.save_pretrained(directory)
    found = []
    for recipe in RECIPES:
        bundle = folder / f"{variant.name}, {recipe}"
        export(directory, bundle, recipe=recipe, lengths=[LENGTH])
        found += configurations.from_bundle(bundle, [LENGTH], [1], weights="random", model=variant.name)
    return found
