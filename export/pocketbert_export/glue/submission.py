"""Predict GLUE's test sets and write the submission zip."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from typing import Any

from pocketbert.data.examples import Examples
from pocketbert.data.readers.glue import GLUE, read_glue
from pocketbert.data.readers.submission import CONSTANTS, SubmissionFile, as_texts, files_of, write_submission
from pocketbert.errors import UserError, raise_if_any
from pocketbert.files import check_absent
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert_export.glue.models import GlueModel, check_models


def make_submission(
    models: Mapping[str, str],
    constants: Collection[str],
    data: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Predicts the test files for all tasks and writes the zip.

    Args:
      models: task → model directory or bundle. MNLI's model also predicts AX.
      constants: tasks with the same prediction for all rows (`CONSTANTS`); their test files are not read.
      data: the GLUE folder.
      output: path of the zip.
      overwrite: replace an existing zip.
    Returns:
      `output`, `seconds`, and for each file `rows`, `answered_by` (the model or the constant), and `clipped` for STS-B.
    Raises:
      UserError: unknown tasks, tasks with no or two sources; models or files that cannot be read; `output` exists.
    """
    _check(models, constants)
    check_absent(output, overwrite=overwrite)
    tests = _read_tests(models, data)
    check_models(models)
    start = time.perf_counter()
    answers: dict[str, list[str]] = {}
    report: dict[str, dict[str, Any]] = {}
    for task in GLUE:
        model = GlueModel(task, models[task]) if task in models else None
        for file in files_of(task):
            if model is None:
                log_info(f"{file.name}: no model; {file.rows} times {CONSTANTS[task]}")
                answers[file.name] = [CONSTANTS[task]] * file.rows
                report[file.name] = {"rows": file.rows, "answered_by": f"constant {CONSTANTS[task]}"}
                continue
            examples = tests[file]
            log_info(f"{file.name}: {len(examples)} rows with {models[task]}")
            answers[file.name], clipped = as_texts(task, model.predictions(examples))
            report[file.name] = {"rows": len(examples), "answered_by": models[task]}
            if GLUE[task].has_scores:
                report[file.name]["clipped"] = clipped
    write_submission(output, answers, overwrite=overwrite)
    return {"output": str(output), "files": report, "seconds": round(time.perf_counter() - start, 3)}


def _check(models: Mapping[str, str], constants: Collection[str]) -> None:
    others = [task for task in constants if task not in GLUE]
    problems = [f"no GLUE task {task!r} for a constant; the tasks are {', '.join(GLUE)}" for task in others]
    both = [task for task in models if task in constants]
    if both:
        problems.append(f"a task has a model or a constant, not both; received both for {', '.join(both)}")
    missing = [task for task in GLUE if task not in models and task not in constants]
    if missing:
        problems.append(
            f"the server requires the files of all tasks; received no model for {', '.join(missing)}; give "
            f"{argument('model', 'TASK=PATH', python='models=')} for each, or "
            f"{argument('constant', missing, python=f'constants={missing}')} for files with one prediction"
        )
    raise_if_any(problems, "a submission")


def _read_tests(models: Mapping[str, str], data: str | os.PathLike[str]) -> dict[SubmissionFile, Examples]:
    tests, problems = {}, []
    for file in (file for task in models for file in files_of(task)):
        try:
            tests[file] = read_glue(file.task, data, file.split)
        except UserError as error:
            problems.append(str(error))
            continue
        if len(tests[file]) != file.rows:
            log_info(
                f"{tests[file].source}: {len(tests[file])} rows, but the official file has {file.rows}; the server "
                "will reject any other number"
            )
    raise_if_any(problems, "test files")
    return tests
