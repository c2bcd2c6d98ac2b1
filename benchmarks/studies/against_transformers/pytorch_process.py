"""PyTorch as a baseline in its own process: torch and TensorFlow in one process abort if TensorFlow comes first."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from pocketbert.errors import UserError
from pocketbert.presets import preset
from pocketbert_bench.worker_process import WorkerFailed, WorkerProcess

# How PyTorch runs a step → precision of our side. `torch.compile` needs a C++ compiler.
MODES = {
    "PyTorch eager": "float32",
    "PyTorch compiled": "float32",
    "PyTorch eager, bfloat16": "bfloat16",
    "PyTorch compiled, bfloat16": "bfloat16",
}


@contextlib.contextmanager
def steps(module: str, *arguments: object, threads: int) -> Iterator[Callable[[], float]]:
    """Yields a function that runs one step of the baseline and returns its loss; the baseline ends with the context.

    Args:
      module: module to run; it calls `serve`.
      *arguments: arguments of the module.
      threads: number of OpenMP threads, which the module passes to PyTorch.

    Raises:
      UserError: when the function is called after the baseline has failed.
    """
    # transformers imports TensorFlow if it is installed.
    environment = os.environ | {"USE_TF": "0", "USE_TORCH": "1", "OMP_NUM_THREADS": str(threads)}
    with WorkerProcess([sys.executable, "-m", module, *map(str, arguments)], environment) as process:

        def take() -> float:
            try:
                return float(process.ask("step"))
            except WorkerFailed as failure:
                raise UserError(f"the PyTorch baseline must reply to each step with its loss; {failure}") from None

        yield take


def serve(take: Callable[[], float]) -> None:
    """Runs a step for every line on stdin and prints its loss."""
    for _ in sys.stdin:
        print(json.dumps(take()), flush=True)


def prepared(network: Any, mode: str) -> tuple[Any, Any]:
    """A network as a mode of `MODES` calls it, and the context of its forward pass."""
    import torch

    called = torch.compile(network) if "compiled" in mode else network
    return called, torch.autocast("cpu", torch.bfloat16, enabled=MODES[mode] == "bfloat16")


def bert_config(name: str, **others: Any) -> Any:
    """Transformers' `BertConfig` of a preset."""
    from transformers import BertConfig

    config = preset(name).config
    fields = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_attention_heads,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_position_embeddings,
        "hidden_dropout_prob": config.hidden_dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
    }
    return BertConfig(**{**fields, **others})
