"""Augmentation as an Apache Beam pipeline: shards of a data set, each augmented and written by one worker."""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import Any

from pocketbert.distillation.augment_run import AugmentationJob, Augmenter, Part, write_rows
from pocketbert.errors import UserError

_lock = threading.Lock()


def write_shards(
    job: AugmentationJob, shards: list[Part], folder: Path, beam_options: Any = None
) -> list[tuple[Path, int]]:
    """Augments every shard into a file of its own.

    Args:
      job: with what and how.
      shards: the parts of the data set.
      folder: where the files go; every worker must see it.
      beam_options: Beam's `PipelineOptions`; None for its DirectRunner.
    Returns:
      Each shard's file and the number of its rows, in the order of `shards`.
    Raises:
      UserError: Beam is not installed, or a worker could not use the model or the vectors.
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
    with beam.Pipeline(options=beam_options or PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        _ = (
            pipeline
            | "shards" >> beam.Create(list(enumerate(shards)))
            # Without it one worker would get all shards.
            | "spread" >> beam.Reshuffle()
            | "augment" >> beam.Map(functools.partial(_write_shard, job, str(folder)))
        )
    written = []
    for index in range(len(shards)):
        (path,) = folder.glob(f"shard-{index:05}-*")
        written.append((path, int(path.name.rpartition("-")[2])))
    return written


def _write_shard(job: AugmentationJob, folder: str, shard: tuple[int, Part]) -> str:
    """Writes one shard beside its place, then renames it to `shard-INDEX-ROWS`."""
    index, part = shard
    unfinished = Path(folder) / f".shard-{index:05}"
    # A model serves one thread at a time; a runner may have several in a process.
    with _lock, open(unfinished, "wb") as stream:
        rows = write_rows(_augmenter(job).rows(part), stream)
    finished = unfinished.with_name(f"shard-{index:05}-{rows}")
    unfinished.replace(finished)
    return finished.name


@functools.lru_cache(maxsize=1)
def _augmenter(job: AugmentationJob) -> Augmenter:
    return Augmenter(job)
