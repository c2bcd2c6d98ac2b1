"""Measurements that are closed: their result files and tables stay, their code is in history.

A page shows when each was measured, and how to repeat it.
"""

from __future__ import annotations

from pocketbert_bench import results

# The last commit that has the code of all of them.
LAST_COMMIT = "2d1075a6"
CLOSED = (
    "ablations/activations", "ablations/bucketed_training", "ablations/graph_optimizations", "ablations/lengths",
    "ablations/shared_lengths", "ablations/weight_cache", "against_tf_models/pretraining_data",
    "efficientbert/accuracy", "efficientbert/operations", "efficientbert/supernet_step", "hsk/accuracy", "hsk/speed",
    "hsk/store", "minilmv2/relations", "mobilebert/accuracy", "mobilebert/memory", "mobilebert/recipes",
    "mobilebert/text", "mobilebert/training", "mobilebert/variants", "tasks/accuracy", "tasks/qat",
    "tinybert/augmentation", "tinybert/masked_lm", "trimming/accuracy", "trimming/multilingual", "trimming/vocabulary",
)  # fmt: skip
_MODULES = {
    "efficientbert/accuracy": "studies.efficientbert.accuracy",
    "hsk/accuracy": "studies.hsk.accuracy",
    "hsk/speed": "studies.hsk.speed --pairs=12",
    "mobilebert/accuracy": "studies.mobilebert.accuracy",
    "tasks/accuracy": "studies.tasks.accuracy",
    "tasks/qat": "studies.tasks.qat",
    "trimming/accuracy": "studies.trimming.accuracy",
}


def command(name: str) -> str:
    """Command that repeats a closed measurement in a checkout of `LAST_COMMIT`."""
    return f"PYTHONPATH=benchmarks python -m {_MODULES.get(name, f'studies {name}')}"


def measured_at(content: results.ResultFile) -> str:
    """Commit and day of a measurement."""
    commit, _, changed = (content.commit or "unknown").partition("-")
    return f"`{commit[:8]}`{' with changes' if changed else ''}, {content.created[:10]}"


def reproduction(name: str, content: results.ResultFile) -> str:
    """Sentences for a page: commit and command of a closed measurement."""
    return (
        f"Measured at commit {measured_at(content)}. The measurement is closed: to repeat it, check out commit "
        f"`{LAST_COMMIT}` and run `{command(name)}`."
    )
