"""`pocketbert pretrain-data`: output, errors, and resuming."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forks
import pretraining_text
import pytest
from pretraining_text import command, tree

import pocketbert as pb
from pocketbert import cli
from pocketbert.data.pretraining import records as pretraining_records
from pocketbert.data.pretraining import run as pretraining_run
from pocketbert.data.pretraining import shards as pretraining_shards
from pocketbert.data.pretraining.next_sentence import SentencePair, next_sentence_pairs
from pocketbert.data.pretraining.reader import PretrainingData
from pocketbert.data.pretraining.shards import TextPart, divide
from pocketbert.data.readers.text import Document, TextCounts, file_documents
from pocketbert.errors import UserError
from pocketbert.files import stamp


def test_result_is_printed_and_written(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "made" / "data"
    assert cli.main(command(folder, output)) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    data, dev = PretrainingData.open(output), PretrainingData.open(output / "dev")
    assert (result["output"], result["shards"], result["files"]) == (str(output), 3, 1)
    assert result["train"]["documents"] + result["dev"]["documents"] == pretraining_text.DOCUMENTS
    assert (result["train"]["examples"], result["dev"]["examples"]) == (len(data), len(dev))
    assert result["train"]["mean_length"] == pytest.approx(data.lengths.mean(), abs=0.01)
    assert 0.4 < result["train"]["random_next_share"] < 0.8 and result["tokens_per_second"] > 0
    assert "pretraining data: 100%" in printed.err and "shard" in printed.err
    files = {f"shard-{shard:05d}-of-00003.{kind}" for shard in range(3) for kind in ("npy", "tfrecord")}
    assert {path.name for path in (output / "dev").iterdir()} == {*files, "manifest.json", "vocab.txt"}
    assert {path.name for path in output.glob("[!.]*")} == {*files, "manifest.json", "vocab.txt", "dev"}
    assert [path.name for path in output.parent.iterdir()] == ["data"]


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_beam_writes_the_same_bytes(folder: Path, tmp_path: Path, expected: dict[str, bytes], workers: int) -> None:
    assert cli.main(command(folder, tmp_path / "data", "--runner=direct", f"--workers={workers}")) == 0
    assert tree(tmp_path / "data") == expected


def test_baked_masks_do_not_depend_on_chunks(folder: Path, tmp_path: Path) -> None:
    arguments = ("--baked-masks", "--whole-words", "--duplicates=2")
    assert cli.main(command(folder, tmp_path / "whole", *arguments)) == 0

    def backwards(job: pretraining_shards.ShardJob, shards: object) -> None:
        for shard in reversed(range(3)):
            pretraining_shards.write_shard(job, shard)

    with pytest.MonkeyPatch.context() as context:
        context.setattr(pretraining_run, "_processes", lambda workers: backwards)
        context.setattr(pretraining_records, "_EXAMPLES_A_CALL", 37)
        assert cli.main(command(folder, tmp_path / "backwards", *arguments)) == 0
    assert tree(tmp_path / "backwards") == tree(tmp_path / "whole")
    masking = PretrainingData.open(tmp_path / "whole").manifest.options.masking
    assert masking is not None and masking.whole_words and masking.max_predictions == 4


# Renames: the first attempt's marker, run.json, five a shard, two a manifest, the output's marker, the output.
# Killed in the second shard, as the output gets its name, and just after it.
@pytest.mark.one_of_each("second shard")
@pytest.mark.parametrize(
    ("moments", "complete"),
    [
        pytest.param("aside:11", ["1"], id="second shard"),
        pytest.param("aside:11,aside:17,placed:7", ["1", "3", "3"], id="every part"),
    ],
)
def test_killed_run_gives_the_same_bytes(
    folder: Path, tmp_path: Path, expected: dict[str, bytes], moments: str, complete: list[str]
) -> None:
    answer = forks.run_killed(moments, command(folder, tmp_path / "data"))
    assert re.findall(r"(\d) of 3 shards are already complete", answer.stderr) == complete
    assert tree(tmp_path / "data") == expected
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert (json.loads(answer.stdout)["tokens_per_second"] is None) == (complete[-1] == "3")


def test_deleted_shards_are_made_again(
    folder: Path, tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(unfinished: Path) -> None:
        raise Interrupted

    with monkeypatch.context() as context, pytest.raises(Interrupted):
        context.setattr(pretraining_run, "remove_directory", interrupted)
        cli.main(command(folder, tmp_path / "data"))
    shutil.rmtree(tmp_path / "data")
    assert cli.main(command(folder, tmp_path / "data")) == 0
    assert tree(tmp_path / "data") == expected


def test_parts_have_different_random_numbers(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[tuple[int, ...]] = []

    def noted(*arguments: Any, key: tuple[int, ...], **options: Any) -> Iterator[SentencePair]:
        keys.append(key)
        return next_sentence_pairs(*arguments, key=key, **options)

    monkeypatch.setattr(pretraining_shards, "next_sentence_pairs", noted)
    assert cli.main(command(folder, tmp_path / "data", "--duplicates=2")) == 0
    # Three shards, training and dev, twice each.
    assert len(keys) == len(set(keys)) == 12


class Interrupted(BaseException):
    """Stands for the end of the process."""


def test_shards_of_other_runs_are_refused(
    folder: Path,
    tmp_path: Path,
    expected: dict[str, bytes],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = tmp_path / "data"
    workers: list[int] = []

    def interrupted(job: pretraining_shards.ShardJob, shard: int) -> None:
        workers.append(shard)
        if len(workers) == 2:
            raise Interrupted
        pretraining_shards.write_shard(job, shard)

    monkeypatch.setattr(pretraining_run, "write_shard", interrupted)
    with pytest.raises(Interrupted):
        cli.main(command(folder, output))
    assert [path.name for path in tmp_path.iterdir()] == ["data.unfinished"]
    assert "option_seed=0, received 3" in one_error(command(folder, output, "--seed=3"), capsys)
    tokenizer = pb.WordPieceTokenizer(folder / "vocab.txt", special_tokens_in_text="token")
    with pytest.raises(UserError, match="special_tokens_in_text='text', received 'token'"):
        pretraining_run.write_pretraining_data(folder / "text.txt", tokenizer, output, shards=3)
    changed = tmp_path / "changed.txt"
    changed.write_text((folder / "text.txt").read_text("utf-8") + "w9\n", encoding="utf-8")
    assert "other options: text_sha256=" in one_error(command(folder, output, f"--text={changed}"), capsys)
    changed.unlink()
    assert cli.main(command(folder, output)) == 0 and workers == [0, 1, 1, 2]
    assert tree(output) == expected
    assert "--overwrite" in one_error(command(folder, output, "--seed=3"), capsys)
    assert tree(output) == expected
    assert cli.main(command(folder, output, "--seed=3", "--overwrite")) == 0
    assert tree(output).keys() == expected.keys() and tree(output) != expected
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    (tmp_path / "other.unfinished").mkdir()
    (tmp_path / "other.unfinished" / "precious").touch()
    assert "holds something else (precious); choose another" in one_error(command(folder, tmp_path / "other"), capsys)


def one_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    message = printed.err.strip().splitlines()[-1]
    assert message.startswith("pocketbert pretrain-data: ")
    return message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text="], "--text is required"),
        (["--model=missing"], "either --vocab or --model is required; received --vocab and --model"),
        (["--vocab="], "received neither"),
        (["--vocab=", "--model=missing"], "or a name for pocketbert fetch (all-minilm); received missing"),
        (["--text=missing"], "missing: there is no such file or folder"),
        (["--vocab=missing"], "missing: a vocabulary must be"),
        (["--whole-words"], "--whole-words needs --baked-masks; received it alone"),
        (["--beam-options=--x=y"], "--beam-options needs --runner"),
        (["--max-length=4", "--dev-every=1"], "received 4; dev_every must be 0 or at least 2; received 1"),
        (["--duplicates=0", "--seed=-1"], "duplicates must be at least 1; received 0; seed must be in [0, 2^31); rec"),
        (["--short-sequence-probability=2"], "must be in [0, 1]; received 2.0"),
        (["--shards=-1", "--workers=-2"], "received -1; --workers must not be negative; received -2"),
        (["--format=jsonl"], "this must be JSON"),
        (["--dev-every=15"], "two dev documents with words; received 1 in shard 0 of 3; pass fewer --shards or pass"),
        (["--shards=40", "--dev-every=0"], "received 1 in shard 21 of 40; pass fewer --shards or add text"),
        (["--shards=40", "--dev-every=0", "--runner=direct"], "received 1 in shard 21 of 40;"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert message in one_error(command(folder, tmp_path / "data", *arguments), capsys)
    # Of 40 shards the first 21 are fine, and stay for a run with the same options.
    assert [path.name for path in tmp_path.iterdir()] == (["data.unfinished"] if "--shards=40" in arguments else [])


# Two documents.
TWO = "w5 w6\n\nw7 w8\n\n"


@pytest.mark.parametrize(
    ("text", "arguments", "remedy", "following"),
    [
        (TWO, ["--shards=2", "--dev-every=0"], "pass fewer --shards or add", ["--shards=1"]),
        (TWO * 2, ["--dev-every=3", "--shards=1"], "pass a smaller --dev-every or add", ["--dev-every=2"]),
        (TWO, ["--dev-every=2", "--shards=1"], "leave --dev-every out or add", ["--dev-every=0"]),
        (TWO * 2, ["--dev-every=2", "--shards=2"], "pass fewer --shards or leave", ["--shards=1"]),
        ("w5 w6\nw7 w8\n", ["--dev-every=0", "--shards=1"], "of 1; add text with more documents", []),
    ],
)
def test_too_few_documents_name_what_helps(
    text: str,
    arguments: list[str],
    remedy: str,
    following: list[str],
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "text.txt"
    path.write_text(text, encoding="utf-8")
    line = command(folder, tmp_path / "data", f"--text={path}", "--overwrite", *arguments)
    message = one_error(line, capsys)
    assert f" {remedy}" in message
    if not following:
        # "in text files, a blank line ends a document".
        path.write_text(text.replace("\n", "\n\n"), encoding="utf-8")
    assert cli.main([*line, *following]) == 0


@pytest.mark.slow
def test_worker_errors_are_reported(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "received 1 in shard 21 of 40;" in one_error(
        command(folder, tmp_path / "data", "--shards=40", "--dev-every=0", "--workers=2"), capsys
    )


def test_without_beam_the_remedy_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    message = one_error(command(folder, tmp_path / "data", "--runner=direct"), capsys)
    assert "pip install 'pocketbert[beam]'" in message and list(tmp_path.iterdir()) == []


def test_every_document_is_in_one_part(tmp_path: Path) -> None:
    names = [f"{number}.txt" for number in range(3)]
    # 1,200 bytes of text, 100 and 2,000; the last one about 30 compressed.
    (tmp_path / names[0]).write_text("a b\n\n" * 240)
    (tmp_path / names[1]).write_text("a b\n\n" * 20)
    with gzip.open(tmp_path / names[2], "wt") as stream:
        stream.write("c d\n\n" * 400)
    files = [tmp_path / name for name in names]
    small = files[2].stat().st_size * 4
    parts = divide(files, 5)
    # By hand: 5 * 1,200 / (1,200 + 100 + small) is between 3 and 4, the others are less than a shard each.
    assert 3 * (1300 + small) < 5 * 1200 <= 4 * (1300 + small)
    assert [len(shard) for shard in parts] == [2, 1, 1, 1, 1]
    assert parts[0] == (TextPart(files[0], 0, 4, stamp(files[0])), TextPart(files[2], 0, 1, stamp(files[2])))
    assert parts[4] == (TextPart(files[1], 0, 1, stamp(files[1])),)
    seen: Counter[Path] = Counter()
    for shard in parts:
        for part in shard:
            counts = TextCounts()
            documents = list(file_documents(part.file, format=None, counts=counts, part=(part.index, part.parts)))
            assert counts.documents == len(documents) and set(documents) <= {
                Document("", (text,)) for text in ("a b", "c d")
            }
            seen[part.file] += len(documents)
    assert seen == {files[0]: 240, files[1]: 20, files[2]: 400}
    assert divide(files[:1], 1) == ((TextPart(files[0], 0, 1, stamp(files[0])),),)


@pytest.mark.parametrize("same_size_and_time", [True, False])
def test_text_edited_between_shards_is_refused(
    folder: Path,
    tmp_path: Path,
    same_size_and_time: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = Path(shutil.copy(folder / "text.txt", tmp_path / "text.txt"))
    content, before = text.read_text("utf-8"), text.stat()

    def editing(job: pretraining_shards.ShardJob, shard: int) -> None:
        pretraining_shards.write_shard(job, shard)
        text.write_text(content.replace("w9 ", "w8 ") if same_size_and_time else content + "w9\n", "utf-8")
        if same_size_and_time:
            os.utime(text, ns=(before.st_atime_ns, before.st_mtime_ns))

    arguments = command(folder, tmp_path / "data", f"--text={text}")
    with monkeypatch.context() as context:
        context.setattr(pretraining_run, "write_shard", editing)
        message = one_error(arguments, capsys)
    assert "the text must not change during the run; received a changed" in message
    assert not (tmp_path / "data").exists()
    # The first shard stays for the text that it was made of, and for no other.
    assert "other options: text_sha256=" in one_error(arguments, capsys)
    text.write_text(content, "utf-8")
    assert cli.main(arguments) == 0
    assert "1 of 3 shards are already complete" in capsys.readouterr().err


@pytest.mark.parametrize("damaged", ["finished/00000.json", "data/shard-00000-of-00003.tfrecord", "run.json"])
def test_damaged_shards_are_made_again(
    folder: Path,
    tmp_path: Path,
    damaged: str,
    expected: dict[str, bytes],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise Interrupted

    with monkeypatch.context() as context, pytest.raises(Interrupted):
        context.setattr(pretraining_run, "_place", interrupted)
        cli.main(command(folder, tmp_path / "data"))
    path = tmp_path / "data.unfinished" / damaged
    content = path.read_bytes()
    path.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    capsys.readouterr()
    if damaged == "run.json":
        assert "use its options, choose another output, or pass --overwrite" in one_error(
            command(folder, tmp_path / "data"), capsys
        )
        assert cli.main(command(folder, tmp_path / "data", "--overwrite")) == 0
    else:
        assert cli.main(command(folder, tmp_path / "data")) == 0
        assert "2 of 3 shards are already complete" in capsys.readouterr().err
    assert tree(tmp_path / "data") == expected
