"""Latency at 128 tokens, 1 thread, int8: our export against the exports of other tools on their own runtimes.

Both sides are classifiers of the same shapes with random weights. Each tool has an environment of its own: make one
with the packages of `ENVIRONMENTS`, and pass its Python in the variable. Tools without a variable are left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from pocketbert.errors import UserError
from pocketbert.presets import preset
from pocketbert.progress import log_info
from pocketbert_bench import baseline_calls, host, machine, results
from pocketbert_bench.worker_process import WorkerFailed, WorkerProcess
from studies.against_transformers.latency import LENGTH, RECIPE, TARGETS, our_export, transformers_config

# Variable with the Python of an environment → packages to install there.
ENVIRONMENTS = {
    "LITERT_TORCH_PYTHON": "litert-torch ai-edge-quantizer 'transformers<5'",
    "OPENVINO_PYTHON": "openvino nncf torch 'transformers<5'",
    "ONNXRUNTIME_PYTHON": "onnxruntime onnx onnxscript sympy torch 'transformers<5'",
    "EXECUTORCH_PYTHON": "executorch torch 'transformers<5'",
}
# Exports of other tools → variable of their environment.
PEERS = {
    "litert-torch": "LITERT_TORCH_PYTHON",
    "openvino, static int8": "OPENVINO_PYTHON",
    "openvino, int8 weights": "OPENVINO_PYTHON",
    "onnxruntime": "ONNXRUNTIME_PYTHON",
    "onnxruntime, optimized": "ONNXRUNTIME_PYTHON",
    "executorch": "EXECUTORCH_PYTHON",
}
_ROUNDS, _CALLS_A_ROUND, _WARM_UP_CALLS = 40, 8, 20
_PROCESS = Path(__file__).with_name("runtime_peer.py")


class Peer(WorkerProcess):
    """A process with another tool's export.

    Raises:
      WorkerFailed: the tool cannot convert or run the network.
    """

    def __init__(self, name: str, network: str, folder: Path) -> None:
        config = preset(network).config
        job = {
            "peer": name,
            "folder": str(folder),
            "mobile": config.bottleneck is not None,
            "config": transformers_config(config),
            # ONNX Runtime's optimizer knows this form of attention, and MobileBERT has no other.
            "attention": "eager" if config.bottleneck or name == "onnxruntime, optimized" else "sdpa",
            "inputs": [
                {"input_ids": row["input_word_ids"], "attention_mask": row["input_mask"]}
                | {"token_type_ids": row["input_type_ids"]}
                for row in baseline_calls.legal_inputs(config, LENGTH)
            ],
        }
        environment = os.environ | {
            "USE_TF": "0",
            "USE_TORCH": "1",
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        environment.pop("PYTHONPATH", None)
        super().__init__([os.environ[PEERS[name]], str(_PROCESS)], environment)
        try:
            self.started: dict[str, Any] = self.ask(job)
        except WorkerFailed:
            self.close()
            raise


def run(quick: bool) -> dict[str, Any]:
    """Measures every network of `TARGETS` on every runtime; returns the content of a result file.

    Raises:
      UserError: no environment is given.
    """
    created, before = results.now(), machine.machine()
    peers = [name for name, variable in PEERS.items() if os.environ.get(variable)]
    if not peers:
        raise UserError(f"this study needs the Python of a tool's environment in one of {', '.join(ENVIRONMENTS)}")
    ratios: list[results.Ratio] = []
    notes = [results.RANDOM_WEIGHTS_NOTE]
    for network in TARGETS:
        with tempfile.TemporaryDirectory() as folder:
            for name, value in _measured(network, peers, Path(folder), quick=quick):
                ratios += [value] if isinstance(value, results.Ratio) else []
                notes += [json.dumps({"network": network, "export": name, **value})] if isinstance(value, dict) else []
    return results.to_json(
        results.result_file(
            "latency against other runtimes", quick=quick, ratios=ratios, notes=notes, on=before, created=created
        )
    )


def _measured(
    network: str, peers: list[str], folder: Path, *, quick: bool
) -> Iterator[tuple[str, results.Ratio | dict[str, Any]]]:
    """Yields a ratio and a description for every export that ran, and the reason for one that did not."""
    configuration = our_export(network, folder)
    with contextlib.ExitStack() as stack:
        worker = stack.enter_context(host.Worker(configuration))
        yield (
            "pocketbert",
            {
                "size_bytes": configuration.model_path.stat().st_size,
                "first_call_us": worker.started["init_us"] + worker.started["first_inference_us"],
            },
        )
        sides: dict[str, Any] = {
            "pocketbert": lambda count: worker.run([number % len(configuration.calls) for number in range(count)])
        }
        for name in peers:
            log_info(f"{network}: {name}")
            (peer_folder := folder / name.replace(", ", "-").replace(" ", "-")).mkdir()
            try:
                peer = Peer(name, network, peer_folder)
            except WorkerFailed as failure:
                yield name, {"problem": str(failure)}
                continue
            # Latencies of so many calls, in microseconds.
            sides[name] = stack.enter_context(peer).ask
            yield name, peer.started
        rounds: dict[str, list[float]] = {name: [] for name in sides}
        for call in sides.values():
            call(_WARM_UP_CALLS)
        generator = random.Random(0)
        for _ in range(4 if quick else _ROUNDS):
            for name in generator.sample(list(sides), len(sides)):
                # The first calls of a turn refill the caches.
                latency_us = sides[name](host.CALLS_BEFORE_A_ROUND + _CALLS_A_ROUND)
                rounds[name].append(median(latency_us[host.CALLS_BEFORE_A_ROUND :]))
    for name in rounds:
        if name != "pocketbert":
            yield (
                name,
                results.ratio(
                    name=f"{network}, {name}",
                    description=f"{network}, {LENGTH} tokens, 1 thread, {RECIPE}",
                    ours="PocketBERT",
                    peer=name,
                    unit="us",
                    ours_samples=rounds["pocketbert"],
                    peer_samples=rounds[name],
                    better="lower",
                ),
            )
