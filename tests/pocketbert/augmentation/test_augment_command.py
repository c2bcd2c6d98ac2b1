"""`pocketbert augment` with a tiny masked-LM model."""

from __future__ import annotations

import functools
import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forks
import pytest
import tiny_masked_lm

from pocketbert import cli
from pocketbert.augmentation import augmenter
from pocketbert.augmentation.augmented_rows import AugmentationOptions
from pocketbert.augmentation.augmenter import AugmentationJob, Augmenter
from pocketbert.augmentation.run import shards_of, whole
from pocketbert.data.readers.tables import read_table
from pocketbert.errors import UserError

# Runs of a few steps: graphs would take longer to trace than to run.
pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, vectors and a table of pairs with scores and with classes."""
    root = tmp_path_factory.mktemp("augment")
    tiny_masked_lm.write_model(root / "model")
    tiny_masked_lm.write_glove(root / "glove.txt")
    sentences = tiny_masked_lm.sentences(46, seed=5)
    with open(root / "pairs.jsonl", "w", encoding="utf-8") as stream:
        for number in range(23):
            row = {"first": sentences[2 * number], "second": sentences[2 * number + 1]}
            row |= {"mood": ("low", "high")[number % 2], "score": number / 10}
            stream.write(json.dumps(row) + "\n")
    return root


@pytest.fixture(autouse=True)
def load_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augmenter, "from_pretrained", _load)


_load = functools.cache(augmenter.from_pretrained)


def command(folder: Path, output: Path, *arguments: str) -> list[str]:
    pair_options = ("--train-file=" + str(folder / "pairs.jsonl"), "--text-column=first", "--label-column=mood")
    network = (f"--masked-lm={folder / 'model'}", f"--glove={folder / 'glove.txt'}")
    return ["augment", *network, *pair_options, f"--output={output}", "--copies=3", "--num-candidates=4", *arguments]


def test_a_table_of_sentences(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "made" / "augmented.jsonl"
    assert cli.main(command(folder, output)) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert (result["examples"], result["rows"], result["output"]) == (23, 23 * 4, str(output))
    assert result["sentences_per_second"] > 0 and "augment: 100%" in printed.err and "sentence/s" in printed.err
    examples, labels = read_table(output, text_column="first", label_column="mood", labels=("low", "high"))
    originals, _ = read_table(folder / "pairs.jsonl", text_column="first", label_column="mood", labels=("low", "high"))
    assert len(examples) == 92 and labels == ("low", "high")
    assert examples.texts[::4] == originals.texts
    assert originals.labels is not None and examples.labels is not None
    assert examples.labels.tolist() == [label for label in originals.labels.tolist() for _ in range(4)]
    assert sum(copy != originals.texts[row // 4] for row, copy in enumerate(examples.texts)) > 40
    rows = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
    assert list(rows[0]) == ["first", "mood", "example", "copy"]
    assert [(row["example"], row["copy"]) for row in rows[:5]] == [("1", 0), ("1", 1), ("1", 2), ("1", 3), ("2", 0)]
    assert [path.name for path in output.parent.iterdir()] == ["augmented.jsonl"]


def test_pairs_scores_and_tsv(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "pairs.tsv"
    assert cli.main(command(folder, output, "--pair-column=second", "--label-column=score", "--kind=regression")) == 0
    columns = {"text_column": "first", "pair_column": "second", "label_column": "score"}
    examples, _ = read_table(output, kind="regression", **columns)  # type: ignore[arg-type]
    originals, _ = read_table(folder / "pairs.jsonl", kind="regression", **columns)  # type: ignore[arg-type]
    assert examples.pairs is not None and originals.pairs is not None
    assert examples.labels is not None and originals.labels is not None
    assert len(examples) == 23 * 7
    # The same float32, through a file.
    assert examples.labels.tolist() == [label for label in originals.labels.tolist() for _ in range(7)]
    for row, (first, second) in enumerate(zip(examples.texts, examples.pairs, strict=True)):
        original = originals.texts[row // 7], originals.pairs[row // 7]
        if row % 7 == 0:
            assert (first, second) == original
        # Copies 1 to 3 have the second side of the original, 4 to 6 the first.
        assert second == original[1] if row % 7 < 4 else first == original[0]
    assert sum(text != originals.texts[row // 7] for row, text in enumerate(examples.texts)) > 30
    assert sum(text != originals.pairs[row // 7] for row, text in enumerate(examples.pairs)) > 30


def test_glue_task_with_authors_options(folder: Path, tmp_path: Path, shared_glue: Path) -> None:
    output = tmp_path / "sst2.jsonl"
    arguments = ["augment", f"--masked-lm={folder / 'model'}", "--task=sst2", f"--data={shared_glue}"]
    assert cli.main([*arguments, f"--output={output}", "--preset=authors-code", "--num-candidates=9"]) == 0
    rows = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
    assert list(rows[0]) == ["text", "label", "example", "copy"]
    assert {row["label"] for row in rows} == {"negative", "positive"}
    assert rows[0] == {"text": "a dull film", "label": "negative", "example": "train-0", "copy": 0}
    # Function words stay, equal copies are left out, and 20 are drawn.
    assert all(row["text"].startswith("a ") for row in rows if row["example"] == "train-0")
    assert max(Counter((row["example"], row["text"]) for row in rows).values()) == 1
    assert max(row["copy"] for row in rows) <= 20
    # "the" and "it" alone: nothing to replace, so no copy differs.
    assert [row["copy"] for row in rows if row["example"] == "train-1"] == [0]


@pytest.fixture
def shared_glue(tmp_path: Path) -> Path:
    glue = tmp_path / "glue" / "SST-2"
    glue.mkdir(parents=True)
    (glue / "train.tsv").write_text("sentence\tlabel\na dull film \t0\nthe it\t1\n\t1\n".replace("film ", "film"))
    return glue.parent


def test_unlabelled_text(folder: Path, tmp_path: Path) -> None:
    assert cli.main(command(folder, tmp_path / "a.jsonl", "--label-column=", "--nokeep-original")) == 0
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text("utf-8").splitlines()]
    assert list(rows[0]) == ["first", "example", "copy"]
    assert [row["copy"] for row in rows] == [1, 2, 3] * 23


def test_same_seed_gives_the_same_bytes(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / f"{number}.jsonl" for number in range(3)]
    assert cli.main(command(folder, paths[0])) == 0
    # Other chunks, so other batches.
    monkeypatch.setattr(augmenter, "EXAMPLES_A_CHUNK", 5)
    assert cli.main(command(folder, paths[1])) == 0
    assert cli.main(command(folder, paths[2], "--seed=1")) == 0
    first, second, third = (path.read_bytes() for path in paths)
    assert first == second != third


def test_shards_together_are_the_whole(folder: Path) -> None:
    columns = {"text_column": "first", "pair_column": "second", "label_column": "mood"}
    examples, labels = read_table(folder / "pairs.jsonl", **columns)  # type: ignore[arg-type]
    job = AugmentationJob(
        masked_lm=str(folder / "model"),
        glove=None,
        options=AugmentationOptions(copies=2, num_candidates=3),
        columns=("first", "second"),
        label_column="mood",
    )
    augmenter = Augmenter(job)
    part = whole(examples, labels)
    expected = list(augmenter.rows(part))
    assert len(expected) == 23 * 5
    for count in (1, 4, 23, 99):
        shards = shards_of(part, count)
        assert len(shards) == min(count, 23) and all(shard.sides for shard in shards)
        assert [line for shard in reversed(shards) for line in list(augmenter.rows(shard))[::-1]] == expected[::-1]


def test_beam_writes_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    assert cli.main(command(folder, tmp_path / "here.tsv")) == 0
    assert cli.main(command(folder, tmp_path / "beam.tsv", "--runner=direct", "--shards=4")) == 0
    assert (tmp_path / "beam.tsv").read_bytes() == (tmp_path / "here.tsv").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["beam.tsv", "here.tsv"]


def one_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    message = printed.err.strip().splitlines()[-1]
    assert printed.out == "" and message.startswith("pocketbert augment: ")
    return message


def test_without_beam_the_remedy_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    message = one_error(command(folder, tmp_path / "a.tsv", "--runner=direct"), capsys)
    assert "pip install 'pocketbert[beam]'" in message and "leave --runner out" in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--masked-lm="], "--masked-lm is required"),
        (["--task=sst2"], "--task and --data, or --train-file; received --task and --train-file"),
        (["--output=a.csv"], "--output must end in .jsonl or .tsv; received a.csv"),
        (["--probability=1.2"], "[0, 1]; received 1.2"),
        (["--copies=0"], "copies must be at least 1; received 0"),
        (["--shards=0"], "--shards must be at least 1"),
        (["--text-column=missing"], "must have the column 'missing'"),
        (["--train-file=missing.csv"], "missing.csv: there is no such file"),
        (["--glove=missing.txt"], "missing.txt: there is no such file"),
        (["--masked-lm=missing"], "missing"),
        (["--num-candidates=999"], "for this vocabulary; received 999"),
        (["--words=some"], "some"),
    ],
)
def test_bad_input_is_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert message in one_error(command(folder, tmp_path / "a.jsonl", *arguments), capsys)
    assert list(tmp_path.iterdir()) == []


def test_existing_output_needs_overwrite(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "a.jsonl"
    output.write_text("precious", encoding="utf-8")
    assert "--overwrite" in one_error(command(folder, output), capsys)

    def broken(self: Augmenter, *arguments: object) -> Iterator[bytes]:
        yield b"half\n"
        raise UserError("no more")

    with monkeypatch.context() as context:
        context.setattr(Augmenter, "rows", broken)
        assert "no more" in one_error(command(folder, output, "--overwrite"), capsys)
    # What is unfinished beside it does not make it less precious.
    assert "--overwrite" in one_error(command(folder, output), capsys)
    assert output.read_text("utf-8") == "precious"
    assert cli.main(command(folder, output, "--overwrite")) == 0
    capsys.readouterr()
    assert len(output.read_bytes().splitlines()) == 92 and list(tmp_path.iterdir()) == [output]
    pairs = folder / "pairs.jsonl"
    assert "an input must not be in the output" in one_error(command(folder, pairs, "--overwrite"), capsys)
    taken = command(folder, tmp_path / "b.jsonl", "--label-column=first")
    assert "must be different, and not example or copy" in one_error(taken, capsys)
    assert "received copy, mood" in one_error(command(folder, tmp_path / "b.jsonl", "--text-column=copy"), capsys)


class Interrupted(BaseException):
    """Stands for the end of the process."""


def test_finished_parts_are_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(augmenter, "EXAMPLES_A_CHUNK", 5)
    whole_file, output = tmp_path / "whole.tsv", tmp_path / "a.tsv"
    assert cli.main(command(folder, whole_file)) == 0
    rows = Augmenter.rows
    batches: list[int] = []

    def interrupted(self: Augmenter, part: augmenter.Part, *arguments: Any) -> Iterator[bytes]:
        batches.append(part.first)
        for number, line in enumerate(rows(self, part, *arguments)):
            if len(batches) == 3 and number == 4:
                raise Interrupted
            yield line

    monkeypatch.setattr(Augmenter, "rows", interrupted)
    with pytest.raises(Interrupted):
        cli.main(command(folder, output))
    unfinished = tmp_path / "a.tsv.unfinished"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tsv.unfinished", "whole.tsv"]
    first, second = sorted((unfinished / "parts").iterdir())
    content = first.read_bytes()
    capsys.readouterr()
    # Whoever makes it again does not know of this.
    first.write_bytes(content.replace(b"film", b"kept"))
    message = one_error(command(folder, output, "--seed=7"), capsys)
    assert f"{unfinished} holds an unfinished run with other options: option_seed=0, received 7;" in message
    assert "repeat its options" in message and "--overwrite" in message
    assert cli.main(command(folder, output)) == 0
    assert "2 of 5 parts are already complete" in capsys.readouterr().err
    assert batches == [0, 4, 9, 9, 13, 18]
    expected = whole_file.read_bytes()
    assert content in expected and output.read_bytes() == expected.replace(content, content.replace(b"film", b"kept"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tsv", "whole.tsv"]


@pytest.mark.parametrize("changed", ["model/config.json", "glove.txt", "pairs.jsonl"])
def test_parts_of_other_runs_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    def interrupted(self: Augmenter, *arguments: object) -> Iterator[bytes]:
        raise Interrupted

    path = Path(shutil.copytree(folder, tmp_path / "own"))
    (tmp_path / "out").mkdir()
    output = tmp_path / "out" / "a.jsonl"
    with monkeypatch.context() as context, pytest.raises(Interrupted):
        context.setattr(Augmenter, "rows", interrupted)
        cli.main(command(path, output))
    # The same in another place is the same.
    moved = path.rename(tmp_path / "moved")
    text = (moved / changed).read_text("utf-8")
    (moved / changed).write_text(text.replace("film", "play", 1) if "film" in text else text + " ", encoding="utf-8")
    name = {"model/config.json": "masked_lm", "glove.txt": "glove", "pairs.jsonl": "examples"}[changed]
    message = one_error(command(moved, output), capsys)
    assert f"other options: {name}_sha256=" in message and message.count("received") == 1
    assert cli.main(command(moved, output, "--overwrite")) == 0
    assert list(output.parent.iterdir()) == [output]


# Resuming from finished parts is tested above; this one takes seconds for each attempt.
# Renames: the first attempt's marker, run.json, three parts, the joined file aside and in its place. Killed before
# the second part has a name, as all are joined aside, and after the output has its name.
@pytest.mark.nightly
def test_killed_run_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    # Three parts, the last one of one row; a few sentences again and again cost nothing.
    rows = 2 * augmenter.EXAMPLES_A_CHUNK + 1
    lines = (folder / "pairs.jsonl").read_text("utf-8").splitlines(keepends=True)
    table = tmp_path / "many.jsonl"
    table.write_text("".join(lines[number * number % 23] for number in range(rows)), encoding="utf-8")
    arguments = [f"--train-file={table}", "--copies=1"]
    expected, killed = tmp_path / "expected.jsonl", tmp_path / "killed.jsonl"
    assert cli.main(command(folder, expected, *arguments)) == 0
    answer = forks.run_killed("aside:4,aside:4,placed:2", command(folder, killed, *arguments))
    assert re.findall(r"(\d) of 3 parts are already complete", answer.stderr) == ["1", "3", "3"]
    assert killed.read_bytes() == expected.read_bytes()
    assert json.loads(answer.stdout)["rows"] == rows * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["expected.jsonl", "killed.jsonl", "many.jsonl"]


def test_special_characters_are_written_safely(tmp_path: Path) -> None:
    job = AugmentationJob(masked_lm="", glove=None, options=AugmentationOptions(), suffix=".tsv")
    line = augmenter.line_of(job, ("a\tb\r\nc\u2028d", "low", "7", 0))
    assert line.decode() == "a b c\u2028d\tlow\t7\t0\n"
    job = AugmentationJob(masked_lm="", glove=None, options=AugmentationOptions())
    text = 'a\tb\r\n"é'
    (tmp_path / "a.jsonl").write_bytes(augmenter.line_of(job, (text, "low", "7", 0)))
    examples, _ = read_table(tmp_path / "a.jsonl", text_column="text")
    assert examples.texts == [text]


def test_help_lists_only_accepted_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["augment", "--help-all"]) == 0
    printed = capsys.readouterr().out
    assert "--kind=classification|regression" in printed and "--train-file=FILE" in printed
    assert not re.search("multi_label|questions|xnli|squad|tydiqa", printed)
    assert cli.main(["augment", "--masked-lm=m", "--output=o.tsv", "--kind=multi_label"]) == 2
    assert "--kind=multi_label: must be one of classification, regression" in capsys.readouterr().err


@pytest.mark.parametrize(("form", "most"), [("alone", 8), ("with-original", 3)])
def test_texts_that_are_read_in_parts_are_counted(
    form: str, most: int, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--max-length=10", f"--masked-input={form}", "--pair-column=second"]
    assert cli.main(command(folder, tmp_path / "augmented.jsonl", *options)) == 0
    rows = [json.loads(line) for line in (folder / "pairs.jsonl").read_text("utf-8").splitlines()]
    tokenizer = _load(str(folder / "model")).tokenizer
    lengths = tokenizer.tokenize([row[name] for row in rows for name in ("first", "second")]).row_lengths().numpy()
    assert 0 < (lengths > most).sum() < 46
    line = f"{(lengths > most).sum()} of 46 texts are longer than {most} tokens"
    assert capsys.readouterr().err.count(line) == 1
