"""Text to a folder of pretraining data: shards made in this process, by several, or by an Apache Beam pipeline.

Beside the output a folder keeps the shards that are complete, so that a run that is killed resumes after them and ends
with the same bytes; the output appears when all of it is there. What a shard holds follows from the text, the options
and the number of shards alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pocketbert.data.pretraining_manifest import (
    DEV_FOLDER,
    PretrainingManifest,
    PretrainingOptions,
    ShardEntry,
    VocabularyFacts,
    read_manifest,
    stored_file,
)
from pocketbert.data.pretraining_shards import (
    DATA_FOLDER,
    FINISHED_FOLDER,
    FinishedShard,
    ShardJob,
    divide,
    is_finished,
    write_shard,
)
from pocketbert.data.teacher_cache_layout import VOCABULARY_NAME
from pocketbert.data.text import TextFormat, estimated_text_bytes, text_files
from pocketbert.errors import UserError
from pocketbert.files import named_after, sha256, write_bytes, write_json
from pocketbert.json_reading import parse_json
from pocketbert.outputs import (
    check_directory,
    check_inputs,
    held_directory,
    is_begun,
    place_directory,
    recover,
    remove,
    remove_directory,
)
from pocketbert.processes import end_with_parent
from pocketbert.progress import bar, log_info

if TYPE_CHECKING:
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

# What follows the output's name in that of the folder of an unfinished run.
UNFINISHED = "unfinished"
_KIND, _UNFINISHED_KIND = "folder of pretraining data", "folder of unfinished pretraining data"
# A shard's tokens are in memory while it is made, about as many bytes as its text; a file is read once for each of its
# shards, which costs a fifth of making one of this size.
TEXT_BYTES_A_SHARD = 64 * 2**20
_OPTIONS_FILE = "run.json"
_FOLDERS = (DATA_FOLDER, FINISHED_FOLDER)

# Makes the shards of these numbers.
ShardWriter = Callable[[ShardJob, Sequence[int]], None]


@dataclass(frozen=True)
class PretrainingResult:
    """Result of a finished run.

    Attributes:
      output: the folder.
      shards: how many it has.
      files: read.
      documents_left_out: without text, or without a token.
      paragraphs_left_out: without words.
      train: what is in the folder, by name.
      dev: what is in the dev folder, by name; None without one.
      seconds: of this call.
      tokens_per_second: of the text, of the shards that this call made; None where it made none.
    """

    output: str
    shards: int
    files: int
    documents_left_out: int
    paragraphs_left_out: int
    train: Mapping[str, float]
    dev: Mapping[str, float] | None
    seconds: float
    tokens_per_second: float | None


def write_pretraining_data(
    text: str | os.PathLike[str],
    tokenizer: WordPieceTokenizer,
    output: str | os.PathLike[str],
    options: PretrainingOptions = PretrainingOptions(),  # noqa: B008
    *,
    format: TextFormat | None = None,
    shards: int = 0,
    workers: int = 1,
    writer: ShardWriter | None = None,
    overwrite: bool = False,
) -> PretrainingResult:
    """Makes a folder of pretraining data, complete or not at all.

    Interrupted and called again with the same arguments, it keeps the shards that were finished and ends with the same
    bytes. Until then they are in the folder `OUTPUT.unfinished`.

    Args:
      text: a file or a folder, as `pocketbert.data.text.read_documents` takes them.
      tokenizer: text to ids.
      output: the folder to make.
      options: how the text becomes examples.
      format: of the text; None finds each file's.
      shards: into how many files the examples go, part of what decides them; 0 for one for each
        `TEXT_BYTES_A_SHARD` of text.
      workers: processes, which decide nothing; 1 is this one, 0 as many as there are processors.
      writer: makes the shards instead, for example `pocketbert.data.pretraining_beam.beam_writer(…)`.
      overwrite: replace an existing folder once the new one is complete, and throw away what an unfinished run with
        other options left.
    Raises:
      UserError: the text cannot be read or is too short, the output exists, or it has shards of another run.
    """
    if format is not None and format not in get_args(TextFormat):
        raise UserError(f"the text's format is one of {', '.join(get_args(TextFormat))}; received {format!r}")
    if shards < 0 or workers < 0:
        raise UserError(f"shards and workers must not be negative; received {shards} and {workers}")
    begun = time.perf_counter()
    output = Path(output)
    unfinished = named_after(output, UNFINISHED, hidden=False)
    for place in (output, unfinished):
        check_inputs(place, (text, tokenizer.vocab_path))
    check_directory(output, _KIND, overwrite=overwrite or is_begun(unfinished))
    root = Path(text)
    files = text_files(root)
    size = sum(map(estimated_text_bytes, files))
    job = ShardJob(
        folder=unfinished,
        shards=divide(files, shards or -(-size // TEXT_BYTES_A_SHARD) or 1),
        format=format,
        tokenizer=tokenizer,
        options=options,
    )
    recorded = _recorded(job, root, files)
    with held_directory(unfinished, _UNFINISHED_KIND):
        recover(Path(os.path.realpath(output)))
        try:
            _take(unfinished, recorded, overwrite=overwrite)
            # Killed between the output's rename and the end, a run has only the clearing up left to do.
            placed = _is_placed(job, recorded, output)
            pending = [] if placed else [shard for shard in range(len(job.shards)) if not is_finished(job, shard)]
            if not placed:
                check_directory(output, _KIND, overwrite=overwrite)
            if len(pending) < len(job.shards):
                log_info(
                    f"{unfinished}: {len(job.shards) - len(pending)} of {len(job.shards)} shards are there already"
                )
            made_at = time.perf_counter()
            if pending:
                (writer or _processes(workers))(job, pending)
            seconds = time.perf_counter() - made_at
            finished = [FinishedShard.read(job.finished_file(shard)) for shard in range(len(job.shards))]
            if not placed:
                _place(job, finished, recorded, output, overwrite=overwrite)
        except BaseException:
            # What an error leaves without a single shard is nothing to resume from.
            if not any((unfinished / FINISHED_FOLDER).glob("*.json")):
                _clear(unfinished)
            raise
        remove_directory(unfinished)
    tokens = sum(entry.counts.tokens for shard in pending for entry in _entries(finished[shard]))
    return PretrainingResult(
        output=str(output),
        shards=len(job.shards),
        files=len(files),
        documents_left_out=sum(shard.left_out_documents for shard in finished),
        paragraphs_left_out=sum(shard.left_out_paragraphs for shard in finished),
        train=_report(output),
        dev=_report(output / DEV_FOLDER) if options.dev_every else None,
        seconds=round(time.perf_counter() - begun, 3),
        tokens_per_second=round(tokens / seconds) if pending else None,
    )


def _is_placed(job: ShardJob, recorded: Mapping[str, Any], output: Path) -> bool:
    """Whether the output matches the finished shards."""
    try:
        finished = [FinishedShard.read(job.finished_file(shard)) for shard in range(len(job.shards))]
        return bool(read_manifest(output).identity == _manifests(job, finished, recorded)[0].identity)
    except (FileNotFoundError, UserError):
        return False


def _report(folder: Path) -> dict[str, float]:
    manifest = read_manifest(folder)
    return manifest.counts.report(manifest.options.max_length)


def _entries(shard: FinishedShard) -> list[ShardEntry]:
    return [shard.train] if shard.dev is None else [shard.train, shard.dev]


def _recorded(job: ShardJob, root: Path, files: Sequence[Path]) -> dict[str, Any]:
    """All that decides the output, as JSON values; where the text lies does not."""
    names = [str(file.relative_to(root)) if file != root else "" for file in files]
    lines = "".join(f"{sha256(file)} {name}\n" for name, file in zip(names, files, strict=True))
    return {
        **{f"option_{name}": value for name, value in dataclasses.asdict(job.options).items()},
        "shards": len(job.shards),
        "format": job.format,
        "text_sha256": hashlib.sha256(os.fsencode(lines)).hexdigest(),
        "vocabulary_sha256": sha256(job.tokenizer.vocab_path),
        "lowercase": job.tokenizer.lowercase,
        "special_tokens_in_text": job.tokenizer.special_tokens_in_text,
    }


def _take(folder: Path, recorded: Mapping[str, Any], *, overwrite: bool) -> None:
    """Makes the folder this run's: empty, or with shards of the same one."""
    file = folder / _OPTIONS_FILE
    if file.exists():
        earlier = _read_options(file)
        different = [
            f"{name}={earlier.get(name)!r}, received {recorded.get(name)!r}"
            for name in sorted({*earlier, *recorded})
            if earlier.get(name) != recorded.get(name)
        ]
        if different and not overwrite:
            raise UserError(
                f"{folder} holds an unfinished run with other options: {', '.join(different)}; repeat its options, "
                "choose another output, or pass --overwrite"
            )
        if different:
            _clear(folder)
    else:
        _clear(folder)
    (folder / FINISHED_FOLDER).mkdir(exist_ok=True)
    # What killed processes left of files that have no name yet.
    for aside in (*(folder / DATA_FOLDER).rglob(".*"), *(folder / FINISHED_FOLDER).glob(".*"), *folder.glob(".run*")):
        aside.unlink()
    write_json(file, recorded)


def _clear(folder: Path) -> None:
    """Removes everything but the marker; what says whose shards they are goes first."""
    for name in (_OPTIONS_FILE, *_FOLDERS):
        remove(folder / name)


def _read_options(file: Path) -> dict[str, Any]:
    """Record of an earlier attempt; empty for a damaged file, so that it differs from any options."""
    try:
        content = parse_json(file.read_bytes(), file)
    except UserError:
        return {}
    return content if isinstance(content, dict) else {}


def _manifests(
    job: ShardJob, finished: Sequence[FinishedShard], recorded: Mapping[str, Any]
) -> list[PretrainingManifest]:
    """Files of the folder and of its dev split, if there is one."""
    text = {
        "sha256": recorded["text_sha256"],
        "documents_left_out": sum(shard.left_out_documents for shard in finished),
        "paragraphs_left_out": sum(shard.left_out_paragraphs for shard in finished),
    }
    vocabulary = dataclasses.replace(stored_file(job.tokenizer.vocab_path), name=VOCABULARY_NAME)
    dev = tuple(shard.dev for shard in finished if shard.dev is not None)
    return [
        PretrainingManifest(
            options=job.options,
            tokenizer=VocabularyFacts.of(job.tokenizer),
            text=text,
            vocabulary=vocabulary,
            shards=shards,
        )
        for shards in (tuple(shard.train for shard in finished), *([dev] if dev else []))
    ]


def _place(
    job: ShardJob,
    finished: Sequence[FinishedShard],
    recorded: Mapping[str, Any],
    output: Path,
    *,
    overwrite: bool,
) -> None:
    """Writes what stands beside the shards, and gives the folder its name."""
    data = job.folder / DATA_FOLDER
    for manifest, folder in zip(_manifests(job, finished, recorded), (data, data / DEV_FOLDER), strict=False):
        write_bytes(folder / VOCABULARY_NAME, job.tokenizer.vocab_path.read_bytes())
        manifest.write(folder)
    place_directory(data, Path(os.path.realpath(output)), _KIND, overwrite=overwrite)


def _processes(workers: int) -> ShardWriter:
    """Makes shards in this process or in several."""

    def write(job: ShardJob, shards: Sequence[int]) -> None:
        count = min(workers or os.cpu_count() or 1, len(shards))
        with bar(len(job.shards), "pretraining data", "shard", initial=len(job.shards) - len(shards)) as progress:
            if count == 1:
                for shard in shards:
                    write_shard(job, shard)
                    progress.update()
                return
            # Fresh processes: a fork of one in which TensorFlow runs may hang.
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(count, context, initializer=_begin_worker) as pool:
                futures = [pool.submit(write_shard, job, shard) for shard in shards]
                try:
                    for future in as_completed(futures):
                        future.result()
                        progress.update()
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise

    return write


def _begin_worker() -> None:
    end_with_parent()
    import tensorflow as tf

    # As many processes as processors: more threads would be in each other's way.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def to_json(result: PretrainingResult) -> dict[str, Any]:
    """The result as JSON values."""
    return dataclasses.asdict(result)
