"""Score a model directory or a bundle on a task.

Prints one JSON object: the task's metrics as parts of 1, how many examples, where they come from, how long it
took. A bundle runs on LiteRT and each text goes to the shortest of its lengths that holds it; texts longer than
the longest are cut, in a model directory at its positions.

Of XNLI the accuracy is the mean over the languages, and each has its own beside it.

Example:
  pocketbert evaluate --model=runs/quickstart/bundles/student/dynamic_wi8 --task=sst2 --data=glue
  pocketbert evaluate --model=bundles/xnli --task=xnli --data=xnli --split=test --languages=en,sw
  pocketbert evaluate --model=models/reviews --file=dev.csv --text-column=review --label-column=stars
"""

from __future__ import annotations

import json
import time

from absl import flags

from pocketbert.errors import UserError
from pocketbert_export.commands import example_flags


def define(flag_values: flags.FlagValues) -> None:
    """Defines the command's flags."""
    flags.DEFINE_string("model", None, "a model directory or a bundle", flag_values=flag_values)
    example_flags.define(flag_values)


def run(flag_values: flags.FlagValues) -> None:
    """Prints the metrics."""
    if not flag_values.model:
        raise UserError("evaluate needs --model, a model directory or a bundle; received none")
    if not (flag_values.data or flag_values.file):
        raise UserError("evaluate needs --data, a GLUE folder, or --file, a table of your own; received neither")
    from pocketbert.data.glue import GLUE
    from pocketbert.tasks import metrics
    from pocketbert_export.predictors import open_predictor, predictions_of

    predictor = open_predictor(flag_values.model)
    task = predictor.task
    examples = example_flags.read(flag_values, task)
    assert examples is not None
    if examples.labels is None:
        raise UserError(f"evaluate needs labels; {examples.source} has none; pocketbert predict answers without")
    glue = GLUE.get(flag_values.task or task.name) if flag_values.data else None
    names = glue.metrics if glue else metrics.default_metrics(task)[0]
    start = time.perf_counter()
    logits = predictor.logits(examples.texts, examples.pairs, show_progress=True)
    seconds = time.perf_counter() - start
    scores = metrics.compute(names, examples.labels, predictions_of(task, logits), examples.groups)
    print(
        json.dumps(
            {
                "metrics": scores,
                "examples": len(examples),
                "source": examples.source,
                "model": flag_values.model,
                "seconds": round(seconds, 3),
            }
        )
    )
