"""The study of the costs that `pocketbert compress` predicts: its structures, errors and table."""

from __future__ import annotations

import pytest

from pocketbert.configs import TaskConfig
from pocketbert.presets import PRESETS
from pocketbert_bench.compression.costs import fitted_networks
from studies import compression_costs


@pytest.mark.parametrize("preset", ["minilmv2_6l_384d", "tinybert_4l_312d"])
def test_held_out_structures_are_not_fitted(preset: str) -> None:
    teacher = PRESETS[preset].config
    task = TaskConfig(kind="classification", labels=("a", "b"), pooling="mean")
    networks = fitted_networks(teacher, task, small_embedding=True)
    fitted = [network.config for network in networks]
    held_out = compression_costs._held_out(teacher, networks, 12)
    depths = [{config.replace(vocab_size=7) for config in configs} for configs in (fitted, held_out)]
    assert len(set(held_out)) == 12 and not depths[0] & depths[1]
    assert [config.embedding_projection == "factors" for config in held_out] == 11 * [False] + [True]
