r"""Score models on the GLUE development sets, in the papers' columns.

Scores each task's model (model directory or bundle) with GLUE's metrics; MNLI on the matched and the mismatched
set. Stderr shows the line of the papers' tables in percent: accuracy, F1 for QQP and MRPC, Matthews correlation for
CoLA, Spearman correlation for STS-B. Below it is a baseline: the most frequent label, or the mean score. You get a
warning for each model that does not beat it. Stdout has one JSON object with all metrics as fractions and both
published averages without WNLI: papers_average is the mean of the nine columns (BERT, TinyBERT, EfficientBERT),
glue_average is the leaderboard's mean over tasks. They are null unless all eight tasks have a model.

Example:
  pocketbert glue-scores --data=glue --model=mnli=runs/mnli/model --model=sst2=bundles/sst2 > scores.json
"""

from __future__ import annotations

import dataclasses
import json
from typing import ClassVar

from pocketbert.commands.command_line import Options
from pocketbert.options import DirectoryPath, TaskPath, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueScoresOptions:
    """Model to score.

    Attributes:
      data: folder with the GLUE download.
      model: TASK=PATH, a model directory or a bundle; repeat it for each task.
    """

    GROUP: ClassVar = "Data"

    data: DirectoryPath
    model: tuple[TaskPath, ...] = option(repeated=True)


OPTIONS = (GlueScoresOptions,)


def run(options: Options) -> None:
    """Prints the scores."""
    chosen = options[GlueScoresOptions]
    from pocketbert.progress import log_info
    from pocketbert_export.glue.models import parse_models
    from pocketbert_export.glue.scores import measure, table

    scores = measure(parse_models(chosen.model), chosen.data)
    for line in table(scores):
        log_info(line)
    for warning in scores["warnings"]:
        log_info(f"warning: {warning}")
    print(json.dumps(scores, indent=2))
