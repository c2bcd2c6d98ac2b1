"""Find calibration texts, and check the options before the conversion."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pocketbert.configs import TaskConfig
from pocketbert.data.examples import LabelledData
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.notation import argument
from pocketbert.recipes import Recipe
from pocketbert.tasks.registry import get_task
from pocketbert_export.checks.label_order import examples_for
from pocketbert_export.quantization.calibration import CalibrationTexts, choose_texts, drawn_places
from pocketbert_export.quantization.calibration_options import CalibrationOptions
from pocketbert_export.quantization.mixed_precision import check_limits, check_scorable
from pocketbert_export.quantization.static_quantization import check_options


def calibration_data(
    task: TaskConfig | None,
    recipe: Recipe,
    source: LabelledData | TaskData | str | os.PathLike[str] | None,
    examples: LabelledData | TaskData | str | os.PathLike[str] | None,
    options: CalibrationOptions,
) -> LabelledData | None:
    """Finds the source for calibration texts, and checks the options.

    Args:
      task: the model's task; None for a bare encoder.
      recipe: the export's recipe.
      source: calibration texts, a run's data, a path, or None; see `exporter.export`.
      examples: the verification gate's examples; if from a run, they come with training examples.
      options: calibration options.
    Returns:
      The texts; None for an export without.
    Raises:
      UserError: the recipe lacks texts or has no use for them, an option has no use, or a limit in points lacks labels.
    """
    check_limits(options, recipe)
    if source is not None and recipe.calibration == "none":
        raise UserError(
            f"calibration texts need a recipe that uses them; received {recipe.name}; leave "
            f"{argument('calibration')} out"
        )
    if source is None and isinstance(examples, TaskData) and recipe.calibration != "none":
        source = examples
    if source is None and recipe.calibration == "required":
        raise UserError(
            f"{argument('recipe', recipe.name)} needs calibration texts that the gate does not use; received none; "
            f"pass {argument('calibration')}, such as your training file"
        )
    check_options(options, recipe, has_texts=source is not None)
    if source is None:
        return None
    data = examples_for(task, source, train=True)
    assert data is not None
    check_scorable(options, task, data)
    return data


def calibration_texts(
    model: Model, data: LabelledData, gate: LabelledData, lengths: Sequence[int], options: CalibrationOptions
) -> CalibrationTexts:
    """Draws and tokenizes calibration texts, without the gate's examples; raises a `UserError` for too few."""
    assert model.tokenizer is not None
    most, pairs = options.calibration_examples, None
    read, read_by_gate = (part if model.task is None else get_task(model.task).inputs(part) for part in (data, gate))
    if options.max_points_lost is not None and read is not data:
        # The network reads the texts of a pair one by one; its score needs both.
        pairs = data.select(drawn_places(data, gate, most))
    return choose_texts(read, read_by_gate, model.tokenizer, lengths, most=most, scored=pairs)
