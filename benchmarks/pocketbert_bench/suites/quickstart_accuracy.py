"""What the quickstart's fine-tuning gives over three seeds.

Accuracy on the held-out tenth of the Rotten Tomatoes sentences, each seed trained as `pocketbert quickstart` does.
Run it with `python -m pocketbert_bench.suites quickstart_accuracy`; about five minutes on two quiet cores.
"""

from __future__ import annotations

import tempfile
from typing import Any

from pocketbert.data.assets import minilm, rotten_tomatoes
from pocketbert.training.loop import finetune_seeds
from pocketbert_bench import accuracy, results
from pocketbert_bench.quickstart import NETWORK, TASK, quick_part, quickstart_options

SEEDS = (0, 1, 2)
LEAST_ACCURACY = 0.81


def run(quick: bool) -> dict[str, Any]:
    """Trains once a seed and returns the accuracies with their mean."""
    train, dev = quick_part(*rotten_tomatoes()) if quick else rotten_tomatoes()
    with tempfile.TemporaryDirectory() as folder:
        summary = finetune_seeds(
            SEEDS,
            folder,
            quickstart_options(quick, seed=SEEDS[0]),
            model_directory=minilm(),
            task=TASK,
            train=train,
            dev=dev,
            metrics=("accuracy",),
            main_metric="accuracy",
        )
    spread = summary["metrics"]["accuracy"]
    accuracies = [
        accuracy.record(
            label=f"seed {result['seed']}",
            model=NETWORK,
            recipe="trained",
            task=TASK.name,
            split="held-out tenth",
            metric="accuracy",
            value=result["metrics"]["accuracy"],
            examples=len(dev),
            model_file=None,
        )
        for result in summary["runs"]
    ]
    committed = summary["runs"][0]["metrics"]["accuracy"]
    notes = [
        f"mean of {len(SEEDS)} seeds {spread['mean']:.4f}, standard deviation {spread['standard_deviation']:.4f}",
        f"seed {SEEDS[0]}, which the quickstart uses: {committed:.4f}, "
        f"{'at least' if committed >= LEAST_ACCURACY else 'below'} {LEAST_ACCURACY}",
    ]
    return results.to_json(
        results.result_file("quickstart accuracy over seeds", quick=quick, accuracies=accuracies, notes=notes)
    )


if __name__ == "__main__":
    from pocketbert_bench.suites.runner import main

    main(run)
