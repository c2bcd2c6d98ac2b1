"""Run the verification gate on a bundle again.

Prints a new verification.json. The exit code is 0 if every check passed, else 1 with the reasons on stderr. By
default it compares with the golden examples. With --model (the original model directory), it compares with the model
as export does: on your texts (--data or --file), or on 64 built-in texts. --runtime names other runtimes than those
claimed by the bundle; tflite-2.16 creates its own environment for TFLite 2.16.1 in the cache ($POCKETBERT_CACHE or
~/.cache/pocketbert) on first use.

Example:
  pocketbert verify runs/quickstart/bundle
  pocketbert verify bundles/sst2 --model=runs/sst2/model --task=sst2 --data=glue
  pocketbert verify phone --runtime=litert,tflite-2.16
  pocketbert verify bundles/sst2 --model=runs/sst2/model --task=sst2 --data=glue --mediapipe
"""

from __future__ import annotations

import dataclasses
import json
from typing import ClassVar, Literal

from pocketbert.commands.command_line import Options
from pocketbert.commands.task_options import TableOptions
from pocketbert.errors import UserError
from pocketbert.options import BundlePath, ModelPath, option
from pocketbert_export.commands import example_options, stored_columns
from pocketbert_export.commands.example_options import ExampleOptions, GateOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """Bundle to verify.

    Attributes:
      bundle: the bundle's folder.
      model: the float model directory to compare with.
      runtime: runtimes to check (default: those claimed by the bundle).
      mediapipe: also check the files from `export --mediapipe`, in BUNDLE-mediapipe: run them on LiteRT and in the real
        client, mediapipe 1.2.2, and compare labels and scores with the bundle's. The first use creates an environment
        in the cache.
    """

    GROUP: ClassVar = "Verification"

    bundle: BundlePath = option(positional="BUNDLE")
    model: ModelPath | None = None
    runtime: tuple[Literal["litert", "tflite-2.16"], ...] | None = None
    mediapipe: bool = False


OPTIONS = (VerifyOptions, GateOptions, *example_options.OPTIONS)


def check(options: Options) -> None:
    """Raises a `UserError` if there are examples and no model."""
    examples = options[ExampleOptions]
    if (examples.data or examples.file) and not options[VerifyOptions].model:
        raise UserError("--data and --file need --model, the float model to compare with; received none")


def run(options: Options) -> int:
    """Runs the gate and prints its result."""
    chosen, examples_of = options[VerifyOptions], options[ExampleOptions]
    stored_columns.use(options, chosen.bundle, examples_of.file)
    if examples_of.file:
        task = stored_columns.stored_task(chosen.model or chosen.bundle)
        stored_columns.check(options, task, examples_of.file, labelled=None)
    from pocketbert.model import from_pretrained
    from pocketbert.progress import log_info
    from pocketbert_export.bundles.bundle import Bundle
    from pocketbert_export.bundles.predictors import limit_remedy
    from pocketbert_export.exporter import warn_of_cuts
    from pocketbert_export.verification.file_checks import check_task
    from pocketbert_export.verification.verify import GateFailed, verify_bundle

    bundle = Bundle.open(chosen.bundle)
    if chosen.mediapipe:
        from pocketbert_export.clients.mediapipe_client import check_written
        from pocketbert_export.clients.mediapipe_files import folder_beside

        check_written(bundle, folder_beside(chosen.bundle))
    reference = from_pretrained(chosen.model) if chosen.model else None
    examples = None
    # Labels in the examples are the model's: the bundle's may be wrong. Another task's would only hide this.
    if reference is None or check_task(bundle.pair_task or bundle.task, reference.task).passed:
        task = (bundle.pair_task or bundle.task) if reference is None else reference.task
        examples = example_options.read(examples_of, options[TableOptions], task, labelled=None)
        if examples is not None and bundle.task is not None:
            warn_of_cuts(bundle.task, [examples], bundle.tokenizer, bundle.lengths[-1], limit_remedy(chosen.bundle))
    verification = verify_bundle(
        chosen.bundle,
        reference=reference,
        examples=examples,
        runtimes=chosen.runtime,
        metric=options[GateOptions].metric,
        data_task=examples_of.task,
        model_directory=chosen.model,
    )
    if chosen.mediapipe:
        from pocketbert_export.clients.mediapipe_client import check_answers, check_files
        from pocketbert_export.exporter import as_read

        client_texts = None if examples is None else as_read(bundle.task, examples).texts
        texts, folder = client_texts or [golden.text for golden in bundle.goldens], folder_beside(chosen.bundle)
        client_checks, version = [check_files(bundle, texts, folder)], ""
        # Files that fail here need no client to tell.
        if client_checks[0].passed:
            version, answers = check_answers(bundle, texts, folder)
            client_checks.append(answers)
        verification = dataclasses.replace(
            verification,
            checks=(*verification.checks, *client_checks),
            runtimes={**verification.runtimes, **({"mediapipe": version} if version else {})},
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
