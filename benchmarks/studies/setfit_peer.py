"""SetFit (Tunstall et al. 2022) on the texts of a cell, in an environment of its own.

PocketBERT's environments have no torch. Make one with `pip install setfit torch transformers==4.57.6`, and pass its
Python in SETFIT_PYTHON. `python -m studies small_data` then runs this file there. Stdin and stdout are JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PYTHON = "SETFIT_PYTHON"
_PAIRS_PER_STEP = 16


def score(request: dict[str, Any]) -> dict[str, Any]:
    """Trains and tests SetFit in the other environment.

    Args:
      request: `model` (a folder), `texts`, `labels`, `test_texts`, `test_labels`, `steps` and `seed`.

    Returns:
      `score`, the accuracy, and `versions` of the packages.
    """
    environment = os.environ | {"USE_TF": "0", "TOKENIZERS_PARALLELISM": "false"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [os.environ[PYTHON], __file__],
        input=json.dumps(request),
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    """Answers one request."""
    from importlib.metadata import version

    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    request = json.load(sys.stdin)
    model = SetFitModel.from_pretrained(request["model"])
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=str(Path(folder) / "run"),
            batch_size=_PAIRS_PER_STEP,
            num_epochs=1,
            max_steps=request["steps"],
            seed=request["seed"],
            save_strategy="no",
            report_to="none",
        )
        rows = Dataset.from_dict({"text": request["texts"], "label": request["labels"]})
        Trainer(model=model, args=arguments, train_dataset=rows).train()
    predictions = [int(label) for label in model.predict(request["test_texts"])]
    right = sum(one == other for one, other in zip(predictions, request["test_labels"], strict=True))
    versions = {name: version(name) for name in ("setfit", "sentence-transformers", "torch")}
    print(json.dumps({"score": right / len(predictions), "versions": versions}))


if __name__ == "__main__":
    main()
