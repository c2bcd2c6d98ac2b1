r"""Cache a teacher's outputs on a data set, so that distill runs without the teacher.

Pass the same method, teacher, student and data options as to distill, and the method's options that choose layers.
--output gets one folder per stage; pass it to distill as --teacher-cache. The cache has no padding, and float16
numbers unless you set --dtype. The command reports the exact size first, and stops if the disk is too small. Rerun
the same command to resume; the result is identical.

Example:
  pocketbert cache-teacher --method=tinybert --teacher=runs/sst2/model --student=tinybert_4l_312d --task=sst2 \
    --data=glue --output=caches/sst2
  pocketbert cache-teacher --method=tinybert --teacher=runs/reviews/model --teacher-layers=1,3,5 \
    --train-file=train.csv --dev-file=dev.csv --text-column=review --label-column=stars \
    --augmented-file=augmented.csv --mapping=top --output=caches/reviews
"""

from __future__ import annotations

import dataclasses
import json
from typing import ClassVar, Literal

from pocketbert.commands import distill
from pocketbert.commands.command_line import Options
from pocketbert.commands.distill import DistillationOptions, chosen_options, variants
from pocketbert.errors import raise_if_any
from pocketbert.options import DirectoryPath
from pocketbert.training.config import RunConfig

__all__ = ["OPTIONS", "chosen_options", "run", "variants"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CacheTeacherOptions:
    """Output for the teacher cache.

    Attributes:
      output: output folder.
      overwrite: delete finished caches, or caches with other options, in --output.
      dtype: number format in the cache; int8 has a scale for each vector, and keeps predictions in float16.
      masks: encoding for kept activations in hsk; elias-fano is smaller.
      seed: seed for packing text; pass the same to distill --seeds.
      truncation: how to cut longer texts, as for distill (default: as stored in the teacher).
    """

    GROUP: ClassVar = "Output"

    output: DirectoryPath
    overwrite: bool = False
    dtype: Literal["float16", "float32", "int8"] = "float16"
    masks: Literal["bits", "elias-fano"] = "bits"
    seed: int = 0
    truncation: str | None = None


OPTIONS = (*distill.PLAN_OPTIONS, CacheTeacherOptions)


def check(options: Options) -> None:
    """Raises a `UserError` if the options contradict each other."""
    problems = [] if options[DistillationOptions].teacher else ["--teacher is required; received none"]
    if options[DistillationOptions].more_teachers:
        problems.append("a cache has one teacher; received --more-teachers; leave it out")
    raise_if_any([*problems, *distill.plan_problems(options)], "cache-teacher")


def run(options: Options) -> None:
    """Writes the caches; prints their folders and sizes as JSON."""
    chosen = options[CacheTeacherOptions]
    data = distill.read_data(options)
    from pocketbert.distillation.cache_teacher import cache_stages
    from pocketbert.distillation.planning import plan_distillation, warn_of_few_examples
    from pocketbert.distillation.run import with_data_notes

    plan = plan_distillation(
        distill.chosen_student(options),
        data,
        teacher=options[DistillationOptions].teacher,
        method=distill.chosen_method(options),
        run=RunConfig(seed=chosen.seed, truncation=chosen.truncation),
    )
    warn_of_few_examples(plan)
    plan = with_data_notes(plan)
    folders = cache_stages(plan, chosen.output, dtype=chosen.dtype, masks=chosen.masks, overwrite=chosen.overwrite)
    sizes = {folder.name: sum(file.stat().st_size for file in folder.glob("[!.]*")) for folder in folders}
    print(json.dumps({"teacher_cache": chosen.output, "size_bytes": sizes}, indent=2, ensure_ascii=False))
