from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tiny_distillation
import tiny_finetuning

import pocketbert as pb
from pocketbert import cli
from pocketbert.data.teacher_cache import writer as teacher_cache_writer
from pocketbert.data.teacher_cache.reader import TeacherCache

MAX_LENGTH = 19
# Runs of a few steps: graphs would take longer to trace than to run.
pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("task")
    teacher = tiny_distillation.write_teacher(folder / "teacher")
    pb.from_preset(tiny_distillation.STUDENT).save_pretrained(folder / "student")
    for name, count in (("train", 43), ("dev", 11)):
        tiny_finetuning.write_table(folder / f"{name}.csv", tiny_finetuning.examples(count, seed=count))
    return [
        "cache-teacher",
        "--method=tinybert",
        f"--teacher={teacher}",
        f"--student={folder / 'student' / 'config.json'}",
        f"--train-file={folder / 'train.csv'}",
        f"--dev-file={folder / 'dev.csv'}",
        f"--labels={','.join(tiny_finetuning.TASK.labels)}",
        f"--max-length={MAX_LENGTH}",
    ]


@pytest.fixture(scope="module")
def stored(arguments: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("stores") / "task"
    assert cli.main([*arguments, f"--output={output}"]) == 0
    return output


def test_writes_one_cache_per_stage(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*arguments, f"--output={tmp_path / 'out'}", "--dtype=float32"]) == 0
    printed = capsys.readouterr()
    answer = json.loads(printed.out)
    folders = [path for path in (tmp_path / "out").iterdir() if path.is_dir()]
    sizes = {folder.name: sum(file.stat().st_size for file in folder.glob("[!.]*")) for folder in folders}
    assert answer == {"teacher_cache": str(tmp_path / "out"), "size_bytes": sizes}
    assert set(sizes) == {"intermediate", "prediction"}
    # The student has one layer, which learns from the teacher's last; 5 heads, 30 features, float32.
    assert "240 bytes per token (hidden_states_0, hidden_states_2) x " in printed.err
    assert "20 bytes per pair of tokens (attention_logits_2) x " in printed.err
    assert "8 bytes per example (logits) x 43 = 344 bytes" in printed.err
    for name, size in sizes.items():
        assert f"{name}: {size:,} bytes in 4 files, {size:,} bytes to write" in printed.err


def test_cache_matches_the_teachers_outputs(arguments: list[str], stored: Path) -> None:
    teacher = pb.from_pretrained(arguments[2].removeprefix("--teacher="))
    rows = tiny_finetuning.examples(43, seed=43)
    assert teacher.tokenizer is not None
    inputs = teacher.tokenizer(rows.texts, max_length=MAX_LENGTH)
    live = teacher(inputs)["logits"].numpy()
    prediction = TeacherCache.open(stored / "prediction")
    logits = np.stack([prediction.example(index)["logits"] for index in range(43)])
    # Half of float16's last place, and float32 sums in another order.
    np.testing.assert_allclose(logits, live, rtol=2**-11 + 2e-5, atol=2e-6)
    assert prediction.lengths.max() <= MAX_LENGTH and prediction.teacher_task is not None
    assert prediction.teacher_config == teacher.config


def test_cached_run_has_teacher_metrics(
    arguments: list[str], stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher = pb.from_pretrained(arguments[2].removeprefix("--teacher="))
    dev = tiny_finetuning.examples(11, seed=11)
    assert teacher.tokenizer is not None and dev.labels is not None
    answers = teacher(teacher.tokenizer(dev.texts, max_length=MAX_LENGTH))["logits"].numpy().argmax(-1)
    accuracy = float((answers == dev.labels).mean())
    assert 0 < accuracy < 1
    bare = [argument for argument in arguments[1:] if not argument.startswith("--teacher=")]
    # One step, of the prediction alone.
    line = ["distill", *bare, f"--teacher-cache={stored}", "--without=embedding,transformer", "--prediction-epochs=1"]
    line += ["--prediction-batch-size=43"]
    assert cli.main([*line, f"--output={tmp_path / 'run'}"]) == 0
    assert json.loads(capsys.readouterr().out)["teacher_metrics"]["accuracy"] == accuracy


# The losses of a cache in int8 are in methods/test_hsk.py.
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("method", "stage", "names", "options"),
    [
        ("tinybert", "intermediate", ["hidden_states_0", "hidden_states_2"], []),
        ("minilmv2", "relations", ["keys", "queries", "values"], ["--relation-heads=2"]),
    ],
)
def test_int8_cache_trains_a_student(
    arguments: list[str], tmp_path: Path, method: str, stage: str, names: list[str], options: list[str]
) -> None:
    line = [f"--method={method}", *options, *arguments[3:]]
    assert cli.main(["cache-teacher", arguments[2], *line, "--dtype=int8", f"--output={tmp_path / 'int8'}"]) == 0
    store = TeacherCache.open(tmp_path / "int8" / stage)
    assert {target.name for target in store.targets if target.dtype == "int8"} == set(names)
    teacher = pb.from_pretrained(arguments[2].removeprefix("--teacher="))
    assert teacher.tokenizer is not None
    inputs = teacher.tokenizer(tiny_finetuning.examples(43, seed=43).texts, max_length=MAX_LENGTH)
    live = teacher.features(inputs, store.identity.features, training=False)
    vectors = [value for name in ("hidden_states", "keys", "queries", "values") for value in live.get(name, [])]
    for index, length in enumerate(store.lengths):
        for name, value in zip(names, vectors, strict=True):
            expected = value[index, :length].numpy()
            step = np.abs(expected).max(-1, keepdims=True) / 127
            # Half a step, and the float16 rounding of the scale (2^-11) on 127 steps.
            limit = step * (0.5 + 127 * 2.0**-11) + 1e-5
            assert (np.abs(store.example(index)[name] - expected) <= limit).all()
    run = ["distill", *line, f"--teacher-cache={tmp_path / 'int8'}", "--epochs=1", f"--output={tmp_path / 'run'}"]
    assert cli.main(run) == 0


def test_full_disk_writes_nothing(
    arguments: list[str],
    stored: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    needed = sum(path.stat().st_size for path in stored.glob("*/*") if not path.name.startswith("."))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(teacher_cache_writer.shutil, "disk_usage", lambda _: usage._replace(free=needed - 1))
    assert cli.main([*arguments, f"--output={tmp_path / 'out'}"]) == 2
    assert f"the disk must have {needed:,} free bytes" in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_finished_cache_is_kept(arguments: list[str], stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def times() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in [*stored.glob("*/shard-*.bin"), stored / "teacher.json"]}

    before = times()
    assert cli.main([*arguments, f"--output={stored}"]) == 0
    assert capsys.readouterr().err.count("1 of 1 shards are already complete") == 2
    assert times() == before


def test_other_layers_are_refused_by_name(
    arguments: list[str], stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*arguments, "--mapping=bottom", f"--output={stored}"]) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert "has a cache with other features of the teacher" in message and "--overwrite" in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--teacher=", "--student="], "--teacher is required; received none; --student or"),
        (
            ["--train-file="],
            "data must be --task and --data, or --train-file with or without --dev-file; received --dev-file",
        ),
        (["--without=task_distillation"], "no stage reads the teacher, so there are no targets to cache"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: list[str], message: str
) -> None:
    assert cli.main([*arguments, *changes, f"--output={tmp_path / 'out'}"]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_masked_text_is_refused(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text("the film plot .\n" * 40)
    general = [*arguments[:4], f"--text={tmp_path / 'text.txt'}", f"--output={tmp_path / 'out'}", "--max-length=16"]
    assert cli.main(general) == 2
    assert "stage general masks its text differently in each epoch" in capsys.readouterr().err.splitlines()[-1]
    assert cli.main([*general, "--masked-text=false"]) == 0
    assert TeacherCache.open(tmp_path / "out" / "general").lengths.max() <= 16


@pytest.mark.slow
def test_killed_command_gives_same_bytes(arguments: list[str], stored: Path, tmp_path: Path) -> None:
    output = tmp_path / "killed"
    code = "import sys; from pocketbert.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *arguments, f"--output={output}"]
    for _ in range(3):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        # At whatever moment the folder's content changes next.
        before = sorted(map(str, tmp_path.rglob("*")))
        while process.poll() is None and sorted(map(str, tmp_path.rglob("*"))) == before:
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run(command, check=True)
    for name in ("intermediate", "prediction"):
        contents = [{p.name: p.read_bytes() for p in (top / name).iterdir()} for top in (output, stored)]
        assert contents[0] == contents[1]


def test_cut_texts_are_counted(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = [*arguments[:-1], "--max-length=9", "--truncation=tail", f"--output={tmp_path / 'out'}"]
    assert cli.main(short) == 0
    # A word is a token; [CLS] and [SEP] are around a text.
    texts = [text for count in (43, 11) for text in tiny_finetuning.examples(count, seed=count).texts]
    long = sum(len(text.split()) + 2 > 9 for text in texts)
    assert capsys.readouterr().err.count(f"{long} of 54 texts are longer than 9 tokens and are cut (tail)") == 1
    assert TeacherCache.open(tmp_path / "out" / "prediction").vocabulary.truncation == "tail"
    assert cli.main([*arguments[:-1], "--max-length=9", "--truncation=head-tail:7", f"--output={tmp_path / 'no'}"]) == 2
    assert "received head-tail:7" in capsys.readouterr().err
