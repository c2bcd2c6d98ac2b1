"""How well `pocketbert compress` predicts costs: its model against structures that it was not fitted to.

    python -m studies compression_costs

The model is fitted to the networks that `compress` measures. Other structures that it may train, drawn with a seed, are
measured in the same rounds; one of them has a factored embedding, and one a part of the vocabulary. If the head reads
the mean of all tokens, some have a head on the first token, too. All networks have random weights.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.presets import PRESETS
from pocketbert.progress import log_info
from pocketbert_bench import host, results
from pocketbert_bench.compression.costs import SCHEDULE, fit, fitted_networks
from pocketbert_bench.compression.structures import structures
from pocketbert_bench.network_latency import Host, RandomNetwork, Setting

LENGTHS = (64, 128)
# Percent.
MEDIAN_TARGET, LARGEST_TARGET = 2.0, 5.0
_COMPARED, _QUICK_COMPARED = 12, 3
_FIRST_TOKEN, _QUICK_FIRST_TOKEN = 4, 1
_PREDICTED, _MEASURED = "predicted", "measured"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A teacher and how its networks are exported.

    Attributes:
      preset: architecture of the teacher.
      recipe: recipe of the files.
      pooling: pooling of the head; with the first token alone, the last layer is cheaper.
    """

    preset: str
    recipe: str
    pooling: Any

    @property
    def name(self) -> str:
        """Name in the result."""
        return f"{self.preset}, {self.recipe}, {self.pooling or 'first token'}"


CASES = (
    Case(preset="minilmv2_6l_384d", recipe="dynamic_wi8", pooling="mean"),
    Case(preset="minilmv2_6l_384d", recipe="dynamic_wi4", pooling="mean"),
    Case(preset="tinybert_4l_312d", recipe="dynamic_wi8", pooling=None),
)


def run(quick: bool) -> dict[str, Any]:
    """Measures all networks; returns the content of a result file."""
    created, ratios, notes = results.now(), [], []
    for case in CASES:
        of_case, note = _measure(case, quick)
        ratios += of_case
        notes.append(note)
    content = results.result_file(
        "predicted and measured costs of structures", quick=quick, ratios=ratios, notes=notes, created=created
    )
    return results.to_json(content)


def errors(ratio: results.Ratio) -> np.ndarray:
    """Absolute errors of the predictions, in percent."""
    return 100 * np.abs(np.array(ratio.ours_samples) / np.array(ratio.peer_samples) - 1)


def _measure(case: Case, quick: bool) -> tuple[list[results.Ratio], str]:
    """Predicted and measured latency at each length, predicted and true size; and the load of the machine."""
    teacher = PRESETS[case.preset].config
    task = TaskConfig(kind="classification", labels=("a", "b"), pooling=case.pooling)
    setting = Setting(task=task, recipe=case.recipe, lengths=LENGTHS)
    fitted = fitted_networks(teacher, task, small_embedding=True)
    compared = _other_structures(teacher, fitted, _QUICK_COMPARED if quick else _COMPARED)
    firsts = compared[: (_QUICK_FIRST_TOKEN if quick else _FIRST_TOKEN) if case.pooling else 0]
    first_token = dataclasses.replace(task, pooling=None)
    networks = [*fitted, *(RandomNetwork(config, task) for config in compared)]
    networks += [RandomNetwork(config, first_token) for config in firsts]
    before = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        costs = Host(host.QUICK if quick else SCHEDULE).measure(networks, setting, Path(folder))
    model, others = fit(fitted, costs[: len(fitted)], setting), costs[len(fitted) :]
    groups = [*((config, False) for config in compared), *((config, True) for config in firsts)]
    pairs = {
        f"{length} tokens": (
            [1e3 * model.predict(config, _only(length), first_token=first).latency_ms for config, first in groups],
            [cost.latency_us[number] for cost in others],
        )
        for number, length in enumerate(LENGTHS)
    }
    pairs["size"] = (
        [1e6 * model.predict(config, _only(LENGTHS[0])).size_mb for config, _ in groups],
        [float(cost.file_bytes) for cost in others],
    )
    ratios = [
        results.ratio(
            name=f"{case.name}, {what}",
            description=f"{what} of structures that the model was not fitted to, predicted and measured",
            ours=_PREDICTED,
            peer=_MEASURED,
            unit="bytes" if what == "size" else "us",
            ours_samples=predicted,
            peer_samples=measured,
            better="lower",
        )
        for what, (predicted, measured) in pairs.items()
    ]
    for ratio in ratios:
        log_info(f"{ratio.name}: median error {np.median(errors(ratio)):.2f} %, largest {errors(ratio).max():.2f} %")
    load = ", ".join(f"{value:.1f}" for value in (before[0], os.getloadavg()[0]))
    return ratios, f"{case.name}: load average before and after {load}"


def _only(length: int) -> dict[int, float]:
    """Shares of the lengths for the latency at one of them."""
    return {other: float(other == length) for other in LENGTHS}


def _other_structures(teacher: EncoderConfig, fitted: Sequence[RandomNetwork], count: int) -> list[EncoderConfig]:
    """Architectures that `compress` may train, without those of the fit.

    The last one has a factored embedding, the first one a part of the vocabulary.
    """
    # Latency does not depend on the vocabulary.
    measured = [network.config.replace(vocab_size=teacher.vocab_size) for network in fitted]
    whole: list[EncoderConfig] = []
    factored: list[EncoderConfig] = []
    for _, structure in structures(teacher, small_embedding=True):
        config = structure.config(teacher)
        group = whole if structure.embedding_rank is None else factored
        if config not in group and config not in measured:
            group.append(config)
    random = np.random.default_rng(0)
    chosen = [whole[index] for index in sorted(random.choice(len(whole), count - 1, replace=False))]
    chosen[0] = chosen[0].replace(vocab_size=teacher.vocab_size // 7)
    return [*chosen, factored[int(random.integers(len(factored)))]]
