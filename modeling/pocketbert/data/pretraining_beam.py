"""Pretraining data as an Apache Beam pipeline: each shard is made by one worker."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from pocketbert.data.pretraining_run import ShardWriter
from pocketbert.data.pretraining_shards import ShardJob, write_shard
from pocketbert.errors import UserError
from pocketbert.files import write_text

# Beam's runner inside this process.
DIRECT = "direct"


def beam_writer(runner: str = DIRECT, beam_options: str = "", workers: int = 1) -> ShardWriter:
    """Makes shards in a pipeline; every worker must see the text, the vocabulary and the output at their paths.

    Args:
      runner: `direct`, which is embedded, or another of Beam's, such as `FlinkRunner`.
      beam_options: Beam's own options for it, as on a command line.
      workers: processes of the direct runner; 0 for as many as there are processors.
    Raises:
      UserError: Beam is not installed.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        raise UserError(
            f"a runner needs Apache Beam; received: {error}; install it with pip install 'pocketbert[beam]', or leave "
            "--runner out"
        ) from error
    arguments = [f"--runner={'FnApiRunner' if runner == DIRECT else runner}", *shlex.split(beam_options)]
    workers = workers or os.cpu_count() or 1
    if runner == DIRECT and workers > 1:
        arguments += ["--direct_running_mode=multi_processing", f"--direct_num_workers={workers}"]
    options = PipelineOptions(arguments)

    def write(job: ShardJob, shards: Sequence[int]) -> None:
        with beam.Pipeline(options=options) as pipeline:
            _ = (
                pipeline
                | "shards" >> beam.Create(list(shards))
                # Without it one worker would get all of them.
                | "spread" >> beam.Reshuffle()
                | "write" >> beam.Map(functools.partial(_write_or_say, job))
            )
        said = [file for file in (_failure(job, shard) for shard in shards) if file.exists()]
        messages = [file.read_text("utf-8") for file in said]
        for file in said:
            file.unlink()
        if messages:
            raise UserError(messages[0])

    return write


def _write_or_say(job: ShardJob, shard: int) -> None:
    try:
        write_shard(job, shard)
    except UserError as error:
        # A runner would try again, and then drown it in its own words.
        write_text(_failure(job, shard), str(error))


def _failure(job: ShardJob, shard: int) -> Path:
    # Hidden, as all that a later run may throw away.
    return job.finished_file(shard).with_name(f".failed-{shard:05d}")
