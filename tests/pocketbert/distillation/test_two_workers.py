"""Distillation over worker processes gives what one process gives."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent


def free_ports(count: int) -> list[str]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("localhost", 0))
    ports = [str(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def distilled(workers: int, output: Path) -> tuple[list[dict[str, float]], dict[str, np.ndarray]]:
    ports = free_ports(workers)
    roots = [str(HERE.parents[2] / part) for part in ("modeling", "tests")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*roots, os.environ.get("PYTHONPATH", "")])}
    processes = [
        subprocess.Popen(
            [sys.executable, str(HERE / "two_workers.py"), str(index), ",".join(ports), str(output)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(workers)
    ]
    try:
        errors = [process.communicate(timeout=180)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * workers, "\n".join(text[-2000:] for text in errors)
    with np.load(output) as stored:
        arrays = dict(stored)
    return json.loads(str(arrays.pop("losses"))), arrays


@pytest.mark.slow
def test_two_workers_give_the_losses_and_weights_of_one(tmp_path: Path) -> None:
    losses, weights = distilled(1, tmp_path / "one.npz")
    other_losses, others = distilled(2, tmp_path / "two.npz")
    assert len(losses) == 3 and [set(each) for each in losses] == [{"loss", "hidden", "labels"}] * 3
    for one, two in zip(losses, other_losses, strict=True):
        # The same terms in other sums: a few units in float32's last place, carried on by later steps.
        assert np.allclose([two[name] for name in one], list(one.values()), rtol=1e-5)
    assert set(weights) == set(others) and any(name.startswith("adapters.") for name in weights)
    for name, expected in weights.items():
        # Adam divides by the gradient's own size: where that is rounding, a step of 3e-3 may differ in a few per cent.
        assert np.abs(others[name] - expected).max() < 3 * 3e-3 * 0.1, name
        assert np.mean(np.abs(others[name] - expected)) < 1e-6, name
