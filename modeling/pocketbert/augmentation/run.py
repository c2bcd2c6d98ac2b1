"""A data set augmented into a file: read, replaced, written.

The file is made in parts, each of some consecutive examples, which are then joined. Beside the output a folder keeps
the finished ones, so that a run that is killed resumes after them and ends with the same bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.augmentation.augmenter import AugmentationJob, Augmenter, Part, Writer, count_chunks, header, write_part
from pocketbert.data.examples import Examples
from pocketbert.errors import UserError
from pocketbert.files import check_absent, named_after, new_file, rename_new, sha256
from pocketbert.outputs import check_inputs, is_begun, remove_directory
from pocketbert.progress import bar, log_info
from pocketbert.training.run_folder import PARTS_FOLDER, begin_run, open_run
from pocketbert.training.state import digest_directory

# What follows the output's name in that of the folder of an unfinished run.
UNFINISHED = "unfinished"
_BLOCK_BYTES = 2**20


@dataclass(frozen=True)
class AugmentResult:
    """Result of a finished run.

    Attributes:
      output: the file.
      examples: originals read.
      rows: rows written, originals among them.
      seconds: of this call, models loaded included.
      sentences_per_second: original sentences (two a pair) a second, loading not counted; None where an earlier
        call had augmented them all.
    """

    output: str
    examples: int
    rows: int
    seconds: float
    sentences_per_second: float | None


def whole(examples: Examples, label_texts: tuple[str, ...]) -> Part:
    """Examples as one part; those with an empty text are left out, since no table may have one.

    Args:
      examples: sentences or pairs.
      label_texts: the classes' texts; empty for scores and for unlabelled text.
    """
    parts = [examples.texts] if examples.pairs is None else [examples.texts, examples.pairs]
    sides: list[tuple[str, ...]] = list(zip(*parts, strict=True))
    kept = [index for index, row in enumerate(sides) if all(text.strip() for text in row)]
    if len(kept) < len(sides):
        log_info(f"{examples.source}: left out {len(sides) - len(kept)} examples with an empty text")
    labels: list[str | float] | None = None
    if examples.labels is not None and label_texts:
        labels = [label_texts[examples.labels[index]] for index in kept]
    elif examples.labels is not None:
        # The shortest decimal number that is the same float32.
        labels = [float(str(np.float32(examples.labels[index]))) for index in kept]
    return Part(0, [sides[index] for index in kept], labels, [examples.ids[index] for index in kept])


def shards_of(part: Part, count: int) -> list[Part]:
    """The part cut into `count` of about the same size; fewer if there are not as many examples."""
    bounds = np.linspace(0, len(part.sides), min(count, len(part.sides)) + 1).astype(int).tolist()
    return [
        Part(
            part.first + low,
            part.sides[low:high],
            None if part.labels is None else part.labels[low:high],
            part.ids[low:high],
        )
        for low, high in itertools.pairwise(bounds)
    ]


def augment(
    job: AugmentationJob,
    examples: Examples,
    label_texts: tuple[str, ...],
    output: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    shards: int = 0,
    beam_options: Any = None,
) -> AugmentResult:
    """Augments a data set into a file that `read_table` reads, complete or not at all.

    Interrupted and called again with the same arguments, it keeps the parts that were finished and ends with the same
    bytes. Until then they are in the folder `OUTPUT.unfinished`.

    Args:
      job: with what and how; its columns and label column must be those of the examples.
      examples: sentences or pairs.
      label_texts: the classes' texts; empty for scores and for unlabelled text.
      output: the `.jsonl` or `.tsv` file to write.
      overwrite: replace an existing one, and throw away what an unfinished run with other options left.
      shards: 0: in this process; else an Apache Beam pipeline over so many shards. The file is the same.
      beam_options: Beam's `PipelineOptions`; None for its `FnApiRunner`, in this process. A runner on other
        machines needs the model, the vectors and the output's folder at the same paths there.
    Raises:
      UserError: the output exists, it has parts of another run, the model or the vectors cannot be used, or Beam is not
        installed.
    """
    output = Path(output)
    unfinished = named_after(output, UNFINISHED, hidden=False)
    for place in (output, unfinished):
        check_inputs(place, (job.masked_lm, job.glove, examples.source))
    check_absent(output, overwrite=overwrite or is_begun(unfinished))
    if (examples.labels is None) != (job.label_column is None) or (examples.pairs is None) != (len(job.columns) == 1):
        raise ValueError("the job's columns must be those of the examples")
    part = whole(examples, label_texts)
    if not part.sides:
        raise UserError(f"{examples.source}: at least one example must have a text; received none")
    begun = time.perf_counter()
    rate = None
    recorded = _recorded(job, part)
    with open_run(unfinished, recorded, overwrite=overwrite) as run:
        folder = run / PARTS_FOLDER
        parts = shards_of(part, shards or count_chunks(len(part.sides)))
        pending = [each for each in parts if not each.file(folder).exists()]
        # Killed between the output's last rename and the removal of its parts, a run has only that left to do.
        is_joined = not pending and _holds(output, _joined(job, parts, folder))
        if not is_joined:
            check_absent(output, overwrite=overwrite)
        if len(pending) < len(parts):
            log_info(f"{run}: {len(parts) - len(pending)} of {len(parts)} parts are there already")
        if pending:
            write = _writer(job, shards, beam_options)
            # Only now: bad input leaves nothing behind.
            begin_run(run, recorded)
            loaded = time.perf_counter()
            write(pending, folder)
            sentences = sum(len(each.sides) for each in pending) * len(job.columns)
            rate = sentences / (time.perf_counter() - loaded)
        if not is_joined:
            # Among the parts, so that what a kill leaves of it goes with them.
            joined = folder / "joined"
            with new_file(joined) as stream:
                stream.writelines(_joined(job, parts, folder))
            if overwrite:
                os.replace(joined, output)
            else:
                rename_new(joined, output)
        rows = sum(block.count(b"\n") for block in _joined(job, parts, folder)) - len(header(job).splitlines())
        remove_directory(run)
    return AugmentResult(str(output), len(part.sides), rows, time.perf_counter() - begun, rate)


def _writer(job: AugmentationJob, shards: int, beam_options: Any) -> Writer:
    if shards:
        from pocketbert.augmentation.beam import beam_writer

        return beam_writer(job, beam_options)
    augmenter = Augmenter(job)

    def write(parts: Sequence[Part], folder: Path) -> None:
        with bar(sum(len(part.sides) for part in parts) * len(job.columns), "augment", "sentence") as progress:
            for part in parts:
                write_part(augmenter, part, folder, progress.update)

    return write


def _joined(job: AugmentationJob, parts: Sequence[Part], folder: Path) -> Iterator[bytes]:
    """The output's bytes, block by block."""
    yield header(job)
    for part in parts:
        with open(part.file(folder), "rb") as stream:
            while block := stream.read(_BLOCK_BYTES):
                yield block


def _holds(path: Path, blocks: Iterator[bytes]) -> bool:
    """Whether there is a file of just these bytes."""
    if not path.is_file():
        return False
    with open(path, "rb") as stream:
        return all(stream.read(len(block)) == block for block in blocks) and not stream.read(1)


def _recorded(job: AugmentationJob, part: Part) -> dict[str, Any]:
    """All that decides the output, as JSON values; where model and vectors lie does not."""
    recorded = dataclasses.asdict(job)
    recorded |= {f"option_{name}": value for name, value in recorded.pop("options").items()}
    recorded["masked_lm_sha256"] = digest_directory(recorded.pop("masked_lm"))
    glove = recorded.pop("glove")
    recorded["glove_sha256"] = None if glove is None else sha256(glove)
    content = json.dumps([part.sides, part.labels, part.ids])
    recorded["examples_sha256"] = hashlib.sha256(content.encode()).hexdigest()
    return recorded


def to_json(result: AugmentResult) -> dict[str, Any]:
    """The result with times in readable precision."""
    rounded = {key: round(value, 3) for key, value in dataclasses.asdict(result).items() if isinstance(value, float)}
    return dataclasses.asdict(result) | rounded
