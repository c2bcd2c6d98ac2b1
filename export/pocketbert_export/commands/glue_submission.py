r"""Write a GLUE submission zip.

Each task's model (model directory or bundle) predicts the task's test file; MNLI's predicts both of its files and the
diagnostic set AX. Labels are matched by name. STS-B's scores are clipped to 0 to 5. Equal predictions give identical
zips.

The server requires all files. --constant fills the files for tasks without a model with the most frequent training
label. Use it for WNLI: its development set repeats training sentences with reversed labels, so a trained model scores
worse than the constant.

Prints one JSON object: rows and model per file, number of clipped scores, and seconds.

Example:
  pocketbert glue-submission --data=glue --model=cola=runs/cola/model --model=sst2=bundles/sst2 \
    --model=mrpc=runs/mrpc/model --model=stsb=runs/stsb/model --model=qqp=runs/qqp/model --model=mnli=runs/mnli/model \
    --model=qnli=runs/qnli/model --model=rte=runs/rte/model --constant=wnli --output=submission.zip
"""

from __future__ import annotations

import dataclasses
import json
from typing import ClassVar

from pocketbert.commands.command_line import Options
from pocketbert.options import DirectoryPath, FilePath, TaskPath, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueSubmissionOptions:
    """Models and output of a submission.

    Attributes:
      data: folder with the GLUE download.
      output: output zip.
      model: TASK=PATH, a model directory or a bundle; repeat it for each task.
      constant: tasks to fill with their most frequent label.
      overwrite: replace --output.
    """

    GROUP: ClassVar = "Data"

    data: DirectoryPath
    output: FilePath
    model: tuple[TaskPath, ...] = option((), repeated=True)
    constant: tuple[str, ...] = ()
    overwrite: bool = False


OPTIONS = (GlueSubmissionOptions,)


def run(options: Options) -> None:
    """Writes the zip and prints its content."""
    chosen = options[GlueSubmissionOptions]
    from pocketbert_export.glue.models import parse_models
    from pocketbert_export.glue.submission import make_submission

    report = make_submission(
        parse_models(chosen.model), chosen.constant, chosen.data, chosen.output, overwrite=chosen.overwrite
    )
    print(json.dumps(report, indent=2))
