"""Augments a data set in an Apache Beam pipeline, one part per task."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pocketbert.augmentation.augmenter import AugmentationJob, Augmenter, Part, Writer, write_part
from pocketbert.errors import UserError
from pocketbert.notation import argument

_lock = threading.Lock()


def beam_writer(job: AugmentationJob, beam_options: Any = None) -> Writer:
    """Returns a writer that augments parts in a pipeline. All workers must see the parts' folder.

    Args:
      job: the job.
      beam_options: Beam's `PipelineOptions`; None for `FnApiRunner` in this process.
    Raises:
      UserError: Beam is not installed, or the model or the vectors cannot be used.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        option = argument("runner", python="shards=")
        raise UserError(
            f"{option} needs Apache Beam; received: {error}; run pip install 'pocketbert[beam]', or leave {option} out"
        ) from error
    # Report errors in model and vectors before the pipeline starts. Workers in this process share them.
    _augmenter(job)

    def write(parts: Sequence[Part], folder: Path) -> None:
        with beam.Pipeline(options=beam_options or PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
            _ = (
                pipeline
                | "parts" >> beam.Create(list(parts))
                # Otherwise one worker would get all parts.
                | "spread" >> beam.Reshuffle()
                | "augment" >> beam.Map(functools.partial(_write_part, job, str(folder)))
            )

    return write


def _write_part(job: AugmentationJob, folder: str, part: Part) -> None:
    # A runner may have several threads in a process, and a model serves only one at a time.
    with _lock:
        write_part(_augmenter(job), part, Path(folder))


@functools.lru_cache(maxsize=1)
def _augmenter(job: AugmentationJob) -> Augmenter:
    return Augmenter(job)
