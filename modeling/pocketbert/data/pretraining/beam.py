"""Makes pretraining data in an Apache Beam pipeline, one shard per task."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from pocketbert.data.pretraining.run import ShardWriter
from pocketbert.data.pretraining.shards import ShardJob, write_shard
from pocketbert.errors import UserError
from pocketbert.files import write_text
from pocketbert.notation import Notation, argument, current_notation, set_notation
from pocketbert.processes import end_with

# Beam's embedded runner.
DIRECT = "direct"


def beam_writer(runner: str = DIRECT, beam_options: str = "", workers: int = 1) -> ShardWriter:
    """Returns a writer that makes shards in a pipeline. All workers must see text, vocabulary and output.

    Args:
      runner: `direct` (embedded) or a Beam runner such as `FlinkRunner`.
      beam_options: Beam's command-line options.
      workers: number of processes for the direct runner; 0 for one per processor.
    Raises:
      UserError: Beam is not installed.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        option = argument("runner", python="writer=")
        raise UserError(
            f"{option} needs Apache Beam; received: {error}; run pip install 'pocketbert[beam]', or leave {option} out"
        ) from error
    arguments = [f"--runner={'FnApiRunner' if runner == DIRECT else runner}", *shlex.split(beam_options)]
    workers = workers or os.cpu_count() or 1
    if runner == DIRECT and workers > 1:
        arguments += ["--direct_running_mode=multi_processing", f"--direct_num_workers={workers}"]
    options = PipelineOptions(arguments)

    # Other runners' workers are on other machines, or in this process.
    local = os.getpid() if runner == DIRECT and workers > 1 else None
    notation = current_notation()

    def write(job: ShardJob, shards: Sequence[int]) -> None:
        with beam.Pipeline(options=options) as pipeline:
            _ = (
                pipeline
                | "shards" >> beam.Create(list(shards))
                # Otherwise one worker would make all shards.
                | "spread" >> beam.Reshuffle()
                | "write" >> beam.Map(functools.partial(_write_or_record, job, runner=local, notation=notation))
            )
        failures = [file for file in (_failure(job, shard) for shard in shards) if file.exists()]
        messages = [file.read_text("utf-8") for file in failures]
        for file in failures:
            file.unlink()
        if messages:
            raise UserError(messages[0])

    return write


def _write_or_record(job: ShardJob, shard: int, *, runner: int | None, notation: Notation) -> None:
    if runner is not None:
        end_with(runner)
    set_notation(notation)
    try:
        write_shard(job, shard)
    except UserError as error:
        # A runner would retry, and hide the message in its own output.
        write_text(_failure(job, shard), str(error))


def _failure(job: ShardJob, shard: int) -> Path:
    # Hidden, so that a later run removes it.
    return job.finished_file(shard).with_name(f".failed-{shard:05d}")
