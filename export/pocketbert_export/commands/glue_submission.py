r"""Answer GLUE's test sets and write the zip that the GLUE server takes.

Each task's model, a model directory or a bundle, answers that task's test file; MNLI's answers both of its files and
the diagnostic one, AX. Labels are matched by name, whatever their order in the model; STS-B's scores are moved into 0
to 5. The zip is the same, byte by byte, whenever the answers are.

The server refuses a zip in which a file is missing, and so does this command. --constant fills the files of tasks
without a model with one answer each, the most frequent of GLUE's training file. That is also what is commonly submitted
for WNLI: its development set repeats the training sentences with the labels turned round, a trained model scores worse
than the constant.

Prints one JSON object: by file the rows and what answered them, how many scores were clipped, and the seconds.

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
from pocketbert.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueSubmissionOptions:
    """What answers the test sets.

    Attributes:
      data: GLUE's folder, with the test files.
      output: the zip to write.
      model: TASK=PATH, a model directory or a bundle; once for each task.
      constant: tasks to answer with their most frequent label.
      overwrite: replace --output.
    """

    GROUP: ClassVar = "Data"

    data: str
    output: str
    model: tuple[str, ...] = option((), repeated=True)
    constant: tuple[str, ...] = ()
    overwrite: bool = False


OPTIONS = (GlueSubmissionOptions,)


def run(options: Options) -> None:
    """Writes the zip; prints what is in it."""
    own = options[GlueSubmissionOptions]
    from pocketbert_export.glue_models import parse_models
    from pocketbert_export.glue_submission import make_submission

    report = make_submission(
        parse_models(own.model),
        own.constant,
        own.data,
        own.output,
        overwrite=own.overwrite,
    )
    print(json.dumps(report, indent=2))
