"""Augments a data set and writes a file.

The file is made in parts with consecutive examples each. Finished parts stay in `OUTPUT.unfinished`, so that a killed
run resumes and gives the same bytes.
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
from pocketbert.augmentation.mlm_candidates import text_room
from pocketbert.checkpoints.directory import describe_directory
from pocketbert.data.data_warnings import count_truncated
from pocketbert.data.examples import Examples
from pocketbert.errors import UserError
from pocketbert.files import check_absent, named_after, new_file, rename_new, sha256
from pocketbert.output_folders import check_inputs, is_begun, remove_directory
from pocketbert.progress import bar, log_info
from pocketbert.tokenizers.opening import open_tokenizer
from pocketbert.training.run_folder import begin_run, open_run
from pocketbert.training.state import recorded_model
from pocketbert.work_list import WorkList

UNFINISHED = "unfinished"
PARTS_FOLDER = "parts"
_BLOCK_BYTES = 2**20


@dataclass(frozen=True)
class AugmentResult:
    """Result of a finished run.

    Attributes:
      output: the file's path.
      examples: number of original examples.
      rows: number of rows, including originals.
      seconds: duration of this call, including loading models.
      sentences_per_second: original sentences (two per pair) per second; None if earlier calls augmented all of them.
    """

    output: str
    examples: int
    rows: int
    seconds: float
    sentences_per_second: float | None


def whole(examples: Examples, label_texts: tuple[str, ...]) -> Part:
    """Converts examples to one part. Skips examples with an empty text, which tables cannot have.

    Args:
      examples: sentences or pairs.
      label_texts: labels by index; empty for scores and for unlabelled text.
    """
    parts = [examples.texts] if examples.pairs is None else [examples.texts, examples.pairs]
    sides: list[tuple[str, ...]] = list(zip(*parts, strict=True))
    complete = [index for index, row in enumerate(sides) if all(text.strip() for text in row)]
    if len(complete) < len(sides):
        log_info(f"{examples.source}: skipped {len(sides) - len(complete)} examples with an empty text")
    labels: list[str | float] | None = None
    if examples.labels is not None and label_texts:
        labels = [label_texts[examples.labels[index]] for index in complete]
    elif examples.labels is not None:
        # The shortest decimal number with the same float32.
        labels = [float(str(np.float32(examples.labels[index]))) for index in complete]
    return Part(0, [sides[index] for index in complete], labels, [examples.ids[index] for index in complete])


def shards_of(part: Part, count: int) -> list[Part]:
    """Divides a part into `count` parts with similar sizes; fewer if there are fewer examples."""
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
    """Augments a data set and writes a file for `read_table`.

    After an interruption, call it again with the same arguments to resume; the result has the same bytes.

    Args:
      job: the job; its columns must match the examples.
      examples: sentences or pairs.
      label_texts: labels by index; empty for scores and for unlabelled text.
      output: output file, `.jsonl` or `.tsv`.
      overwrite: replace an existing file, and delete an unfinished run with other options.
      shards: 0 to run in this process; else the number of shards for an Apache Beam pipeline. The result is the same.
      beam_options: Beam's `PipelineOptions`; None for `FnApiRunner` in this process. Other machines need the model, the
        vectors and the output folder at the same paths.
    Raises:
      UserError: the output exists or has another run's parts, model or vectors are unusable, or Beam is not installed.
    """
    output = Path(output)
    unfinished = named_after(output, UNFINISHED, hidden=False)
    for target in (output, unfinished):
        check_inputs(target, (job.masked_lm, job.glove, examples.source))
    check_absent(output, overwrite=overwrite or is_begun(unfinished))
    if (examples.labels is None) != (job.label_column is None) or (examples.pairs is None) != (len(job.columns) == 1):
        raise ValueError("the columns of the job must match the examples; received others")
    part = whole(examples, label_texts)
    if not part.sides:
        raise UserError(f"{examples.source}: at least one example must have a text; received none")
    begun = time.perf_counter()
    rate = None
    recorded = _recorded(job, part)
    with open_run(unfinished, recorded, overwrite=overwrite, files=(PARTS_FOLDER,)) as run:
        folder = run / PARTS_FOLDER
        parts = shards_of(part, shards or count_chunks(len(part.sides)))
        work = WorkList(parts, lambda part: part.file(folder).exists())
        # A run killed after the output was renamed only needs to clean up.
        is_joined = not work.pending and _holds(output, _joined(job, parts, folder))
        if not is_joined:
            check_absent(output, overwrite=overwrite)
        work.log(run, "parts")
        if work.pending:
            write = _writer(job, shards, beam_options)
            _log_long_texts(job, part, examples.source)
            # Only now, so that bad input leaves no files.
            begin_run(run, recorded)
            loaded = time.perf_counter()
            write(work.pending, folder)
            sentences = sum(len(pending_part.sides) for pending_part in work.pending) * len(job.columns)
            rate = sentences / (time.perf_counter() - loaded)
        if not is_joined:
            # In the parts' folder, so that it is removed with them.
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


def _log_long_texts(job: AugmentationJob, part: Part, source: str) -> None:
    """Logs the number of texts longer than the masked-LM model reads at once, if any."""
    described = describe_directory(job.masked_lm)
    if described.vocabulary is None:
        return
    room = text_room(job.max_length, described.config.max_position_embeddings, job.options.masked_input)
    texts = [text for row in part.sides for text in row]
    if long := count_truncated(texts, None, open_tokenizer(described.vocabulary), room + 2):
        log_info(
            f"{source}: {long} of {len(texts)} texts are longer than {room} tokens; the masked-LM model reads the part "
            "around each word, and no text is cut"
        )


def _joined(job: AugmentationJob, parts: Sequence[Part], folder: Path) -> Iterator[bytes]:
    """Yields the output's content in blocks."""
    yield header(job)
    for part in parts:
        with open(part.file(folder), "rb") as stream:
            while block := stream.read(_BLOCK_BYTES):
                yield block


def _holds(path: Path, blocks: Iterator[bytes]) -> bool:
    """Whether a file has exactly this content."""
    if not path.is_file():
        return False
    with open(path, "rb") as stream:
        return all(stream.read(len(block)) == block for block in blocks) and not stream.read(1)


def _recorded(job: AugmentationJob, part: Part) -> dict[str, Any]:
    """Everything that affects the output, as JSON values; the paths of model and vectors do not."""
    recorded = dataclasses.asdict(job)
    recorded |= {f"option_{name}": value for name, value in recorded.pop("options").items()}
    recorded |= recorded_model("masked_lm", recorded.pop("masked_lm"))
    glove = recorded.pop("glove")
    recorded["glove_sha256"] = None if glove is None else sha256(glove)
    content = json.dumps([part.sides, part.labels, part.ids])
    recorded["examples_sha256"] = hashlib.sha256(content.encode()).hexdigest()
    return recorded


def to_json(result: AugmentResult) -> dict[str, Any]:
    """Returns the result as JSON values, with rounded times."""
    rounded = {key: round(value, 3) for key, value in dataclasses.asdict(result).items() if isinstance(value, float)}
    return dataclasses.asdict(result) | rounded
