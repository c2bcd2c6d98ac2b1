r"""Score models of GLUE tasks on the development sets, in the papers' columns.

Each task's model, a model directory or a bundle, is scored with GLUE's metrics, MNLI's on the matched and the
mismatched set. On stderr comes the line of the papers' tables, in hundredths: accuracy, F1 for QQP and MRPC, Matthews
correlation for CoLA, Spearman's for STS-B. Below it is the line of a baseline: always the most frequent label, or the
mean score. You get a warning for each model that does not beat it. On stdout comes one JSON object with all metrics, as
parts of 1, and both averages that are published, without WNLI: papers_average is the mean of the nine columns (BERT,
TinyBERT, EfficientBERT), glue_average the leaderboard's, the mean over tasks of the mean of each task's metrics. They
are null unless all eight tasks have a model.

Example:
  pocketbert glue-scores --data=glue --model=mnli=runs/mnli/model --model=sst2=bundles/sst2 > scores.json
"""

from __future__ import annotations

import dataclasses
import json
from typing import ClassVar

from pocketbert.commands.command_line import Options
from pocketbert.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueScoresOptions:
    """What is scored.

    Attributes:
      data: GLUE's folder, with the development files.
      model: TASK=PATH, a model directory or a bundle; once for each task.
    """

    GROUP: ClassVar = "Data"

    data: str
    model: tuple[str, ...] = option(repeated=True)


OPTIONS = (GlueScoresOptions,)


def run(options: Options) -> None:
    """Prints the scores."""
    own = options[GlueScoresOptions]
    from pocketbert.progress import log_info
    from pocketbert_export.glue_models import parse_models
    from pocketbert_export.glue_scores import measure, table

    scores = measure(parse_models(own.model), own.data)
    for line in table(scores):
        log_info(line)
    for warning in scores["warnings"]:
        log_info(f"warning: {warning}")
    print(json.dumps(scores, indent=2))
