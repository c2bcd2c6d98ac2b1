"""Augmentation as an Apache Beam pipeline: parts of a data set, each augmented and written by one worker."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pocketbert.augmentation.augmenter import AugmentationJob, Augmenter, Part, Writer, write_part
from pocketbert.errors import UserError

_lock = threading.Lock()


def beam_writer(job: AugmentationJob, beam_options: Any = None) -> Writer:
    """What writes parts by a pipeline, each in one worker; every worker must see their folder.

    Args:
      job: with what and how.
      beam_options: Beam's `PipelineOptions`; None for its `FnApiRunner`, in this process.
    Raises:
      UserError: Beam is not installed, or the model or the vectors cannot be used.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        raise UserError(
            f"a runner needs Apache Beam; received: {error}; install it with pip install 'pocketbert[beam]', or leave "
            "--runner out to augment in this process"
        ) from error
    # What is wrong with the model or the vectors is said before the pipeline starts; workers here share them.
    _augmenter(job)

    def write(parts: Sequence[Part], folder: Path) -> None:
        with beam.Pipeline(options=beam_options or PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
            _ = (
                pipeline
                | "parts" >> beam.Create(list(parts))
                # Without it one worker would get all parts.
                | "spread" >> beam.Reshuffle()
                | "augment" >> beam.Map(functools.partial(_write_part, job, str(folder)))
            )

    return write


def _write_part(job: AugmentationJob, folder: str, part: Part) -> None:
    # A model serves one thread at a time; a runner may have several in a process.
    with _lock:
        write_part(_augmenter(job), part, Path(folder))


@functools.lru_cache(maxsize=1)
def _augmenter(job: AugmentationJob) -> Augmenter:
    return Augmenter(job)
