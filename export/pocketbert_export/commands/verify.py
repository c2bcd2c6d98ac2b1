"""Run the gate on a bundle again.

Prints verification.json's content anew and ends with 0 if every check passed, else with 1 and the reasons on
stderr. Alone, it judges a bundle by its golden examples, which hold the float model's answers. With --model, the
model directory it was made from, and --data or --file, it compares on real texts as the export did.
--runtime names other runtimes than those the bundle claims; tflite-2.16 makes an environment of its own for
TFLite 2.16.1 in the cache ($POCKETBERT_CACHE or ~/.cache/pocketbert) on first use.

Example:
  pocketbert verify runs/quickstart/bundles/student/dynamic_wi8
  pocketbert verify bundles/sst2 --model=runs/sst2/model --task=sst2 --data=glue
  pocketbert verify phone --runtime=litert,tflite-2.16
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from absl import flags

from pocketbert.errors import UserError
from pocketbert_export.commands import example_flags

POSITIONAL = "BUNDLE"


def define(flag_values: flags.FlagValues) -> None:
    """Defines the command's flags."""
    flags.DEFINE_string("model", None, "the float model directory to compare with", flag_values=flag_values)
    flags.DEFINE_list("runtime", None, "litert, tflite-2.16 or both, with a comma", flag_values=flag_values)
    flags.DEFINE_string("metric", None, example_flags.METRIC_HELP, flag_values=flag_values)
    example_flags.define(flag_values)


def run(flag_values: flags.FlagValues, positional: Sequence[str]) -> int:
    """Prints what the gate found."""
    if len(positional) != 1:
        raise UserError(f"verify takes one BUNDLE; received {' '.join(positional) or 'none'}")
    if (flag_values.data or flag_values.file) and not flag_values.model:
        raise UserError("--data and --file need --model, the float model to compare with; received none")
    from pocketbert.model import from_pretrained
    from pocketbert.progress import log_info
    from pocketbert_export.bundle import Bundle
    from pocketbert_export.verify import GateFailed, verify_bundle

    bundle = Bundle.open(positional[0])
    reference = from_pretrained(flag_values.model) if flag_values.model else None
    # Labels in the examples are the model's: the bundle's may be wrong.
    examples = example_flags.read(flag_values, bundle.task if reference is None else reference.task)
    verification = verify_bundle(
        positional[0],
        reference=reference,
        examples=examples,
        runtimes=flag_values.runtime,
        metric=flag_values.metric,
        data_task=flag_values.task,
    )
    print(json.dumps(verification.to_json(), indent=2, allow_nan=False))
    for warning in verification.warnings:
        log_info(f"pocketbert verify: warning: {warning}")
    try:
        verification.require()
    except GateFailed as failure:
        log_info(f"pocketbert verify: {failure}")
        return 1
    return 0
