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

import json

from absl import flags

from pocketbert.errors import raise_if_any


def define(flag_values: flags.FlagValues) -> None:
    """Defines the command's flags."""
    flags.DEFINE_string("data", None, "GLUE's folder, with the test files", flag_values=flag_values)
    flags.DEFINE_multi_string(
        "model", [], "TASK=PATH, a model directory or a bundle; once for each task", flag_values=flag_values
    )
    flags.DEFINE_list("constant", [], "tasks to answer with their most frequent label", flag_values=flag_values)
    flags.DEFINE_string("output", None, "the zip to write", flag_values=flag_values)
    flags.DEFINE_boolean("overwrite", False, "replace --output", flag_values=flag_values)


def run(flag_values: flags.FlagValues) -> None:
    """Writes the zip; prints what is in it."""
    raise_if_any(
        [f"--{name} is required; received none" for name in ("data", "output") if not flag_values[name].value],
        "glue-submission",
    )
    from pocketbert_export.glue_models import parse_models
    from pocketbert_export.glue_submission import make_submission

    report = make_submission(
        parse_models(flag_values.model),
        flag_values.constant,
        flag_values.data,
        flag_values.output,
        overwrite=flag_values.overwrite,
    )
    print(json.dumps(report, indent=2))
