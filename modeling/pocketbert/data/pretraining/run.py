"""Makes a pretraining data folder from text, in this process, in several, or in an Apache Beam pipeline.

Complete shards are kept in `OUTPUT.unfinished`, so a killed run resumes and gives the same bytes. The output appears
once it is complete. A shard's content depends only on the text, the options and the number of shards.
"""

from __future__ import annotations

import dataclasses
import hashlib
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pocketbert.data.manifests import VOCABULARY_NAME
from pocketbert.data.pretraining.manifest import (
    DEV_FOLDER,
    PretrainingManifest,
    PretrainingOptions,
    VocabularyFacts,
    read_manifest,
    stored_file,
)
from pocketbert.data.pretraining.shards import (
    DATA_FOLDER,
    FINISHED_FOLDER,
    FinishedShard,
    ShardJob,
    divide,
    is_finished,
    write_shard,
)
from pocketbert.data.readers.text import TextFormat, estimated_text_bytes, text_files
from pocketbert.errors import UserError, describe_differences
from pocketbert.files import named_after, sha256, write_bytes, write_json
from pocketbert.notation import argument
from pocketbert.output_folders import (
    check_directory,
    check_inputs,
    held_directory,
    is_begun,
    place_directory,
    recover,
    remove,
    remove_directory,
)
from pocketbert.processes import Parent, begin_worker
from pocketbert.progress import bar
from pocketbert.work_list import WorkList
from pocketbert_runtime.json_reading import parse_json

if TYPE_CHECKING:
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

# Folder suffix for an unfinished run.
UNFINISHED = "unfinished"
_KIND, _UNFINISHED_KIND = "folder of pretraining data", "folder of unfinished pretraining data"
# A shard's tokens are in memory while it is made, about as many bytes as its text. A file is read once per shard, which
# takes a fifth of the time for this size.
TEXT_BYTES_A_SHARD = 64 * 2**20
_OPTIONS_FILE = "run.json"
_FOLDERS = (DATA_FOLDER, FINISHED_FOLDER)

# Makes the shards with these numbers.
ShardWriter = Callable[[ShardJob, Sequence[int]], None]


@dataclass(frozen=True)
class PretrainingResult:
    """Result of a finished run.

    Attributes:
      output: output folder.
      shards: number of shards.
      files: number of text files.
      documents_left_out: skipped documents, without text or tokens.
      paragraphs_left_out: skipped paragraphs, without words.
      train: output folder counts.
      dev: dev split counts, or None.
      seconds: this call's duration.
      tokens_per_second: text tokens per second for the shards made by this call; None if it made none.
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
    """Makes a pretraining data folder.

    After an interruption, call it again with the same arguments to resume; the result has the same bytes.

    Args:
      text: a file or folder, see `pocketbert.data.readers.text.read_documents`.
      tokenizer: the tokenizer.
      output: output folder.
      options: example options.
      format: text format; None detects it for each file.
      shards: number of output files, which affects the result; 0 for one per `TEXT_BYTES_A_SHARD` bytes of text.
      workers: number of processes, which does not affect the result; 0 for one per processor.
      writer: makes the shards instead, for example `pocketbert.data.pretraining.beam.beam_writer(…)`.
      overwrite: replace an existing folder once the new one is complete; delete an unfinished run with other options.
    Raises:
      UserError: the text is unreadable or too short, the output exists, or it has another run's shards.
    """
    if format is not None and format not in get_args(TextFormat):
        raise UserError(f"the text format must be one of {', '.join(get_args(TextFormat))}; received {format!r}")
    if shards < 0 or workers < 0:
        raise UserError(f"shards and workers must not be negative; received {shards} and {workers}")
    begun = time.perf_counter()
    output = Path(output)
    unfinished = named_after(output, UNFINISHED, hidden=False)
    for folder in (output, unfinished):
        check_inputs(folder, (text, tokenizer.vocab_path))
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
            # A run killed after the output was renamed only needs to clean up.
            placed = _is_placed(job, recorded, output)
            work = WorkList(range(len(job.shards)), lambda shard: placed or is_finished(job, shard))
            if not placed:
                check_directory(output, _KIND, overwrite=overwrite)
            work.log(unfinished, "shards")
            made_at = time.perf_counter()
            if work.pending:
                (writer or _processes(workers))(job, work.pending)
            seconds = time.perf_counter() - made_at
            finished = [FinishedShard.read(job.finished_file(shard)) for shard in range(len(job.shards))]
            if not placed:
                _place(job, finished, recorded, output, overwrite=overwrite)
        except BaseException:
            # Without a complete shard there is nothing to resume.
            if not any((unfinished / FINISHED_FOLDER).glob("*.json")):
                _clear(unfinished)
            raise
        remove_directory(unfinished)
    done = [finished[shard] for shard in work.pending]
    tokens = sum(entry.counts.tokens for shard in done for entry in (shard.train, shard.dev) if entry is not None)
    return PretrainingResult(
        output=str(output),
        shards=len(job.shards),
        files=len(files),
        documents_left_out=sum(shard.left_out_documents for shard in finished),
        paragraphs_left_out=sum(shard.left_out_paragraphs for shard in finished),
        train=_report(output),
        dev=_report(output / DEV_FOLDER) if options.dev_every else None,
        seconds=round(time.perf_counter() - begun, 3),
        tokens_per_second=round(tokens / seconds) if work.pending else None,
    )


def _is_placed(job: ShardJob, recorded: Mapping[str, Any], output: Path) -> bool:
    """Returns whether the output matches the finished shards."""
    try:
        finished = [FinishedShard.read(job.finished_file(shard)) for shard in range(len(job.shards))]
        return bool(read_manifest(output).identity == _manifests(job, finished, recorded)[0].identity)
    except (FileNotFoundError, UserError):
        return False


def _report(folder: Path) -> dict[str, float]:
    manifest = read_manifest(folder)
    return manifest.counts.report(manifest.options.max_length)


def _recorded(job: ShardJob, root: Path, files: Sequence[Path]) -> dict[str, Any]:
    """Returns everything that affects the output, as JSON values; the text's path does not."""
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
    """Prepares the folder: empty, or with the same run's shards."""
    file = folder / _OPTIONS_FILE
    if file.exists():
        earlier = _read_options(file)
        different = describe_differences(earlier, recorded)
        if different and not overwrite:
            raise UserError(
                f"{folder} has an unfinished run with other options: {different}; use its options, choose "
                f"another output, or pass {argument('overwrite', True)}"
            )
        if different:
            _clear(folder)
    else:
        _clear(folder)
    (folder / FINISHED_FOLDER).mkdir(exist_ok=True)
    # Remove killed processes' temporary files.
    for aside in (*(folder / DATA_FOLDER).rglob(".*"), *(folder / FINISHED_FOLDER).glob(".*"), *folder.glob(".run*")):
        aside.unlink()
    write_json(file, recorded)


def _clear(folder: Path) -> None:
    """Removes everything but the marker, the options first."""
    for name in (_OPTIONS_FILE, *_FOLDERS):
        remove(folder / name)


def _read_options(file: Path) -> dict[str, Any]:
    """Reads an earlier run's options; empty for a damaged file, so that they differ from all options."""
    try:
        content = parse_json(file.read_bytes(), file)
    except UserError:
        return {}
    return content if isinstance(content, dict) else {}


def _manifests(
    job: ShardJob, finished: Sequence[FinishedShard], recorded: Mapping[str, Any]
) -> list[PretrainingManifest]:
    """Returns the manifests for the folder and its dev split, if there is one."""
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
    """Writes the other files, and renames the folder to its final name."""
    data = job.folder / DATA_FOLDER
    for manifest, folder in zip(_manifests(job, finished, recorded), (data, data / DEV_FOLDER), strict=False):
        write_bytes(folder / VOCABULARY_NAME, job.tokenizer.vocab_path.read_bytes())
        manifest.write(folder)
    place_directory(data, Path(os.path.realpath(output)), _KIND, overwrite=overwrite)


def _processes(workers: int) -> ShardWriter:
    """Returns a writer that makes shards in this process or in several."""

    def write(job: ShardJob, shards: Sequence[int]) -> None:
        count = min(workers or os.cpu_count() or 1, len(shards))
        with bar(len(job.shards), "pretraining data", "shard", initial=len(job.shards) - len(shards)) as progress:
            if count == 1:
                for shard in shards:
                    write_shard(job, shard)
                    progress.update()
                return
            # Spawn: a forked process with TensorFlow may hang. There is one process per processor, so one thread each.
            context = multiprocessing.get_context("spawn")
            pool = ProcessPoolExecutor(count, context, initializer=begin_worker, initargs=(Parent.here(), 1))
            try:
                for future in as_completed([pool.submit(write_shard, job, shard) for shard in shards]):
                    future.result()
                    progress.update()
            except BrokenProcessPool:
                raise UserError(
                    f"each process that makes shards must have enough memory; the system ended one of {count}; run the "
                    f"same command with fewer {argument('workers')} to resume"
                ) from None
            except KeyboardInterrupt:
                # They would complete their shards first, which takes minutes.
                for process in multiprocessing.active_children():
                    process.terminate()
                raise
            finally:
                pool.shutdown(cancel_futures=True)

    return write


def to_json(result: PretrainingResult) -> dict[str, Any]:
    """Returns the result as JSON values."""
    return dataclasses.asdict(result)
