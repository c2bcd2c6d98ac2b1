r"""Run a teacher once over a data set and store what a distillation reads of it.

Takes the flags that say what distill would do: method, teacher, student and data, and those of the method's options
that decide which layers are read. --output gets a folder a stage, which distill takes as --teacher-cache. Only real
tokens are stored, as float16 unless --dtype says otherwise. The size is said before the first byte is written, and
refused if the disk has no room for it. Interrupted, even killed, the same command goes on where it was and ends with
the same bytes.

Example:
  pocketbert cache-teacher --method=tinybert --teacher=runs/sst2/model --student=tinybert_4l_312d --task=sst2 \
    --data=glue --output=stores/sst2
  pocketbert cache-teacher --method=tinybert --teacher=runs/reviews/model --teacher-layers=1,3,5 \
    --train-file=train.csv --dev-file=dev.csv --text-column=review --label-column=stars \
    --augmented-file=augmented.csv --mapping=top --output=stores/reviews
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from pocketbert.commands import distillation_flags, method_flags
from pocketbert.distillation.methods import get_method
from pocketbert.distillation.run_options import RunOptions
from pocketbert.errors import raise_if_any

_DTYPES = ("float16", "float32")


def define(flag_values: flags.FlagValues) -> None:
    """Defines the command's flags, but not those of a method."""
    distillation_flags.define(flag_values)
    flags.DEFINE_integer(
        "seed",
        0,
        "of the order in which plain text is packed; distill --seeds must be the same",
        flag_values=flag_values,
    )
    flags.DEFINE_enum("dtype", _DTYPES[0], list(_DTYPES), "what numbers are stored as", flag_values=flag_values)
    flags.DEFINE_string("output", None, "the folder of stores", flag_values=flag_values)
    flags.DEFINE_boolean(
        "overwrite",
        False,
        "throw away finished stores in --output, or stores made from something else",
        flag_values=flag_values,
    )


def define_chosen(flag_values: flags.FlagValues, arguments: Sequence[str]) -> None:
    """Defines the flags of the method that the command line names."""
    method_flags.define_chosen(flag_values, arguments)


def run(flag_values: flags.FlagValues) -> None:
    """Writes the stores; prints their folders and sizes as JSON."""
    method = get_method(method_flags.required_method(flag_values))
    _check(flag_values)
    options = method_flags.read_options(flag_values, method.options)
    layers = distillation_flags.teacher_layers(flag_values)

    from pocketbert.distillation.cache_teacher import cache_stages
    from pocketbert.distillation.preparation import prepare

    preparation = prepare(
        method=method,
        options=options,
        run=RunOptions(seed=flag_values.seed),
        student=flag_values.student,
        teacher_layers=layers,
        teacher_directory=Path(flag_values.teacher),
        store=None,
        task_data=distillation_flags.task_data(flag_values),
        text=None if flag_values.text is None else Path(flag_values.text),
        **distillation_flags.pretraining(flag_values),
    )
    folders = cache_stages(preparation, flag_values.output, dtype=flag_values.dtype, overwrite=flag_values.overwrite)
    sizes = {folder.name: sum(file.stat().st_size for file in folder.glob("[!.]*")) for folder in folders}
    print(json.dumps({"teacher_cache": str(flag_values.output), "size_bytes": sizes}, indent=2, ensure_ascii=False))


def _check(flag_values: flags.FlagValues) -> None:
    problems = [f"--{name} is required; received none" for name in ("teacher", "output") if not flag_values[name].value]
    raise_if_any([*problems, *distillation_flags.problems(flag_values)], "cache-teacher")
