"""The `distill` command: flags, own files, kills, and one-line errors."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cheap_tensorflow
import forks
import pytest
import tiny_distillation
import tiny_finetuning

import pocketbert as pb
from pocketbert import cli
from pocketbert.checkpoints.huggingface import write_config
from pocketbert.commands.command_line import last_value, parse
from pocketbert.commands.distill import read_data
from pocketbert.distillation.methods import get_method
from pocketbert.errors import UserError


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_distillation.write_teacher(tmp_path_factory.mktemp("models") / "teacher")


@pytest.fixture(scope="module")
def command_line(teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """40 examples in batches of 16 are 3 steps an epoch, two epochs a stage."""
    folder = tmp_path_factory.mktemp("data")
    train = tiny_finetuning.write_table(folder / "train.csv", tiny_distillation.labelled_by(teacher, 40, seed=0))
    dev = tiny_finetuning.write_table(folder / "dev.csv", tiny_distillation.labelled_by(teacher, 19, seed=1))
    student = folder / "config.json"
    student.write_text(json.dumps(write_config(tiny_distillation.STUDENT, ())), encoding="utf-8")
    return [
        "distill", "--method", "tinybert", f"--teacher={teacher}", f"--student={student}", f"--train-file={train}",
        f"--dev-file={dev}", "--labels=low,high", "--max-length=23", "--intermediate-epochs=2",
        "--prediction-epochs=2", "--intermediate-batch-size=16", "--prediction-batch-size=16",
        "--intermediate-learning-rate=1e-2", "--prediction-learning-rate=1e-2", "--seeds=5", "--checkpoint-seconds=0",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def finished(command_line: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    stderr = io.StringIO()
    # A few steps in each of several attempts: graphs would take longer to trace than to run.
    with contextlib.redirect_stderr(stderr), cheap_tensorflow.eager():
        assert cli.main([*command_line, f"--output={folder}"]) == 0
    (folder.parent / "stderr.txt").write_text(stderr.getvalue(), encoding="utf-8")
    return folder


def test_own_files_give_a_student(finished: Path) -> None:
    result = json.loads((finished / "result.json").read_text("utf-8"))
    assert [(stage["name"], stage["steps"]) for stage in result["stages"]] == [("intermediate", 6), ("prediction", 6)]
    assert result["teacher_metrics"]["accuracy"] == 1.0 and set(result["metrics"]) == {"accuracy", "f1"}
    model = pb.from_pretrained(finished / "model")
    assert model.task is not None and model.task.labels == ("low", "high")


def test_last_lines_name_page_and_model(finished: Path) -> None:
    outcome = json.loads((finished / "result.json").read_text("utf-8"))["outcome"]
    lines = (finished.parent / "stderr.txt").read_text("utf-8").splitlines()
    assert lines[-2:] == [f"page: {finished / 'report.html'}", f"model: {finished / 'model'}"]
    assert outcome["headline"] in lines[-4 - len(outcome["warnings"]) :]
    text = (finished / "report.html").read_text("utf-8")
    places = [text.index(part) for part in (f"<b>{outcome['score']:.3f}</b>", "Teacher", "1.000", "<h2>Metrics</h2>")]
    assert places == sorted(places)


def test_result_and_log_have_the_baseline(finished: Path, command_line: list[str]) -> None:
    dev = next(flag.partition("=")[2] for flag in command_line if flag.startswith("--dev-file="))
    with open(dev, encoding="utf-8", newline="") as stream:
        ((label, count),) = Counter(row["label"] for row in csv.DictReader(stream)).most_common(1)
    result = json.loads((finished / "result.json").read_text("utf-8"))
    assert result["baseline"]["answer"] == f"always '{label}'"
    assert result["baseline"]["metrics"]["accuracy"] == pytest.approx(count / 19)
    headline = result["outcome"]["headline"]
    assert f"accuracy {result['metrics']['accuracy']:.3f} on 19 examples" in headline
    assert f"always '{label}' has {count / 19:.3f}" in headline
    # The teacher of this test has random weights. Its flat probabilities explain the weak student.
    (warning,) = result["warnings"]
    assert warning.startswith("the teacher's probabilities are flat: the best of 2 classes has 0.5")
    assert result["outcome"]["warnings"] == [warning]
    stderr = (finished.parent / "stderr.txt").read_text("utf-8")
    assert f"student, after step {result['best_step']}: {headline}" in stderr


# Renames of an attempt from the start: 1 run.json, 2 the teacher's metrics, 3 to 7 a checkpoint a step; after step 6
# the two JSON files of the model, 10 its folder, 11 the adapters and 12 the checkpoint that ends the stage.
KILLED_ONCE_IN_EACH_STAGE = "placed:10,step:3"
# Each attempt begins anew, which takes longer than its steps.
KILLED_ONCE = "step:9"
KILLED_OFTEN = [
    "aside:1,placed:1,aside:2,placed:2,step:1",
    "step:4,aside:4,aside:5,placed:5,placed:6",
    "step:6,aside:7,placed:7,aside:8",
    "step:12,aside:4,placed:4,aside:5,placed:5,aside:6,placed:6,aside:7",
    ",".join(["step:2"] * 11),
]


@pytest.mark.parametrize(
    "moments",
    [
        KILLED_ONCE,
        pytest.param(KILLED_ONCE_IN_EACH_STAGE, marks=pytest.mark.nightly),
        *(pytest.param(moments, marks=pytest.mark.slow) for moments in KILLED_OFTEN),
    ],
)
def test_killed_runs_resume_exactly(moments: str, finished: Path, command_line: list[str], tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    answer = forks.run_killed(moments, [*command_line, f"--output={killed}"], EAGER="1")
    assert "resuming after step" in answer.stderr
    files = [path.relative_to(finished) for path in finished.rglob("*.safetensors")]
    assert len(files) == 4
    for name in [*files, Path("metrics.jsonl"), Path("teacher.json")]:
        assert (killed / name).read_bytes() == (finished / name).read_bytes(), name
    results = [json.loads((folder / "result.json").read_text("utf-8")) for folder in (killed, finished)]
    assert {**results[0], "seconds": 0} == {**results[1], "seconds": 0}
    left = [path for path in killed.rglob(".*") if path.name != ".pocketbert"]
    assert not left, "something is left of an unfinished writing"


def remedy_of(finished: Path) -> str:
    """The flag that the warning of random weights names."""
    stderr = (finished.parent / "stderr.txt").read_text("utf-8")
    (line,) = [line for line in stderr.splitlines() if "starts from random weights" in line]
    assert "40 examples are too few" in line and stderr.index(line) < stderr.index("loading the teacher")
    match = re.search(r"pass (--teacher-layers=\S+) instead of --student$", line)
    assert match is not None
    return match[1]


def test_random_student_names_teacher_layers(finished: Path) -> None:
    assert remedy_of(finished) == "--teacher-layers=2"


@pytest.mark.nightly
def test_students_of_teacher_layers_are_not_warned_of(
    finished: Path, command_line: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    followed = [part for part in command_line if not part.startswith("--student=")]
    with cheap_tensorflow.eager():
        few = ["--without=embedding,transformer", "--prediction-epochs=1"]
        assert cli.main([*followed, remedy_of(finished), *few, f"--output={tmp_path / 'run'}"]) == 0
    assert "random weights" not in capsys.readouterr().err
    record = json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))
    assert "teacher-layers" in json.dumps(record)


@pytest.mark.usefixtures("eager")
def test_augmented_examples_join_the_original_ones(
    command_line: list[str], teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    augmented = tiny_finetuning.write_table(
        tmp_path / "augmented.csv", tiny_distillation.labelled_by(teacher, 70, seed=3)
    )
    code = cli.main(
        [*command_line, f"--augmented-file={augmented}", "--without=embedding,transformer", "--prediction-epochs=1",
         f"--output={tmp_path / 'run'}"]
    )  # fmt: skip
    assert code == 0
    output = capsys.readouterr()
    assert "none are given" not in output.err
    # 70 examples in batches of 16 are 5 steps.
    assert [stage["steps"] for stage in json.loads(output.out)["stages"]] == [5]


def test_flags_of_every_kind_arrive() -> None:
    line = (
        "--output=o --method tinybert --preset=authors-code --without=attention,hidden --noshared-projection "
        "--general-steps=7 --temperature=2 --mapping=3,6"
    ).split()
    options = parse("distill", line)[get_method("tinybert")]
    assert (options.preset, options.without, options.shared_projection) == (
        "authors-code", ("attention", "hidden"), False
    )  # fmt: skip
    assert (options.general_steps, options.temperature, options.mapping) == (7, 2.0, "3,6")


@pytest.mark.parametrize(
    ("line", "method"),
    [
        (["--method=a"], "a"), (["--method", "b", "--x"], "b"), (["-method=a", "--method=c"], "c"),
        (["--method"], None), (["--methods=a"], None), ([], None),
    ],
)  # fmt: skip
def test_method_is_found_before_parsing(line: list[str], method: str | None) -> None:
    assert last_value("method", line) == method


def test_method_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from pocketbert import cli; code = cli.main(['distill', '--method=tinybert', '--help']);"
        "sys.exit(code or ', '.join({'tensorflow', 'tf_keras', 'numpy', 'safetensors'} & set(sys.modules)) or 0)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert "--intermediate-epochs" in answer.stdout and "--teacher-layers" in answer.stdout


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--teacher=no-such-folder"], "a model directory must be a folder or a name .*; received no-such-folder"),
        (["--student="], "--student or --teacher-layers is required; received neither"),
        (
            ["--task=sst2"],
            "--task and --data, or --train-file with or without --dev-file; received --dev-file and --task",
        ),
        (["--labels=low,high,top"], r"the labels of the task, low, high, top; received low, high"),
        (["--metric=spearman"], "must be one of accuracy, f1, macro_f1, matthews, auroc, f1:LABEL; received spearman"),
        (["--max-length=30"], "texts of 30 tokens; the student has 29 positions"),
        (["--teacher-layers=1,x"], "--teacher-layers=1,x: must be a list of whole numbers"),
        (["--mapping=1,2"], "tinybert: teacher and student do not match"),
        (["--method=tiny"], "no distillation method 'tiny' .did you mean 'tinybert'"),
        (["--compare-learning-rate=1e-4"], "--compare-learning-rate needs --compare; received it alone"),
        (["--compare-with=run"], "--compare-with needs --compare; received it alone"),
        (["--compare", "--compare-learning-rate=0"], "--compare-learning-rate must be positive; received 0"),
        (["--intermediate-epochs=0"], "intermediate_epochs must be positive; received 0"),
    ],
)
def test_bad_input_leaves_nothing(
    changes: list[str], message: str, command_line: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.main([*command_line, f"--output={tmp_path / 'run'}", *changes])
    output = capsys.readouterr()
    assert code == 2 and not output.out
    assert re.search(message, output.err.splitlines()[-1])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["minilmv2"], "relation_heads must divide .* width 30 and .* 20; received 48; give one of 1, 2, 5, 10"),
        (["minilmv2", "--relation-heads=5", "--teacher-layer=9"], "has queries for layers 1 to .*; stages request 9"),
        (["minilmv2", "--relations=qq,qw"], "relations accepts qq, .*, vv; received 'qw'"),
        (["hsk", "--knowledge=9,9,0.1"], "knowledge allows at most 2 pairs of layers .*; received 9; give 1 to 2"),
        (["hsk", "--knowledge=1,0,0.1"], "knowledge needs at least 1 layer and 1 token; received '1,0,0.1'"),
        (["hsk", "--knowledge=1,9,1.5"], r"knowledge needs a width in \(0, 1\]; received '1,9,1.5'"),
    ],
)
def test_unfit_methods_leave_nothing(
    changes: list[str], message: str, command_line: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    method_flags = ("--intermediate", "--prediction", "--method", "tinybert")
    common = [flag for flag in command_line if not flag.startswith(method_flags)]
    code = cli.main([*common, f"--method={changes[0]}", *changes[1:], f"--output={tmp_path / 'run'}"])
    output = capsys.readouterr()
    assert code == 2 and not output.out
    assert re.search(message, output.err.splitlines()[-1])
    assert not (tmp_path / "run").exists()


def test_missing_flags_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, missing in (
        ([], ("one of efficientbert, embedding, hsk, minilmv2, mobilebert, tinybert;", "--output is required")),
        (
            ["--method=tinybert", "--output=o"],
            ("--student or --teacher-layers is required", "--text or --pretraining-data"),
        ),
    ):
        assert cli.main(["distill", *arguments]) == 2
        stderr = capsys.readouterr().err
        assert all(flag in stderr for flag in missing), stderr


@pytest.mark.usefixtures("eager")
def test_unused_teacher_may_be_missing(
    command_line: list[str], teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [*command_line, "--teacher=", f"--output={tmp_path / 'run'}"]
    assert cli.main([*line, f"--student={teacher}", "--without=prediction"]) == 2
    assert "from a teacher; received neither a model directory nor a teacher cache" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert cli.main([*line, f"--student={teacher}", "--without=task_distillation", "--prediction-epochs=1"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [(stage["name"], stage["steps"]) for stage in result["stages"]] == [("finetuning", 3)]
    # Fine-tuning beside itself would say nothing.
    alone = ["--without=task_distillation", "--compare", f"--output={tmp_path / 'other'}"]
    assert cli.main([*line, f"--student={teacher}", *alone]) == 2
    assert "needs a stage that reads the teacher; tinybert has none in finetuning" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_compare_adds_a_fine_tuned_student(
    finished: Path, command_line: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = Path(shutil.copytree(finished, tmp_path / "whole"))
    before = (whole / "model" / "model.safetensors").stat().st_mtime_ns
    line = [*command_line, "--compare", "--compare-learning-rate=5e-3"]
    assert cli.main([*line, f"--output={whole}"]) == 0
    output = capsys.readouterr()
    # What was finished is not made again.
    assert (whole / "model" / "model.safetensors").stat().st_mtime_ns == before
    answer = json.loads(output.out)
    comparison = answer.pop("comparison")
    result = json.loads((whole / "result.json").read_text("utf-8"))
    assert result == json.loads((finished / "result.json").read_text("utf-8"))
    # What the run has nothing of is null in the answer.
    assert answer == {"model_directory": str(whole / "model"), "decisions": None, "skipped_steps": None, **result}
    assert json.loads((whole / "comparison.json").read_text("utf-8")) == comparison
    alone = json.loads((whole / "fine_tuned" / "result.json").read_text("utf-8"))
    teacher, distilled, fine_tuned = comparison["rows"]
    assert [row["name"] for row in comparison["rows"]] == ["teacher", "distilled", "fine_tuned"]
    assert teacher["metrics"]["accuracy"]["mean"] == 1.0
    for row, result_of_run in ((distilled, result), (fine_tuned, alone)):
        assert {name: statistics["mean"] for name, statistics in row["metrics"].items()} == result_of_run["metrics"]
        assert (row["steps"], row["seconds"]) == (12, result_of_run["seconds"])
    # The distilled student had an evaluation after each of two epochs of its second stage.
    lines = [json.loads(line) for line in (whole / "fine_tuned" / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert [line["step"] for line in lines if line["split"] == "dev"] == [6, 12]
    run = json.loads((whole / "fine_tuned" / "run.json").read_text("utf-8"))
    stage = run["stage"]
    assert stage["optimizer"]["learning_rate"] == 5e-3 and stage["optimizer"]["warmup_ratio"] == 0.1
    assert (stage["batch_size"], stage["max_length"], run["seed"]) == (16, 23, 5)
    table = re.sub(" +", " ", output.err)
    assert "fine-tuned alone" in table and "give several --seeds" in table
    baseline = result["baseline"]
    assert comparison["baseline"] == baseline
    shown = [f"{baseline['metrics'][name]:.4f}" for name in ("accuracy", "f1")]
    assert f"baseline {' '.join(shown)}\n" in table
    assert f"the baseline, {baseline['answer']}, has {shown[0]}" in table


def test_copies_of_dev_examples_are_dropped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tiny_finetuning.examples(40, seed=4)
    train = tiny_finetuning.write_table(tmp_path / "train.csv", rows)

    def read(name: str, first_line: int, copies: Sequence[int] = (0, 1), **more: str) -> Any:
        lines = [
            {"text": f"{text} again" * copy or text, "label": tiny_finetuning.TASK.labels[label], "copy": copy,
             "example": first_line + index} | more
            for index, (text, label) in enumerate(zip(rows.texts, rows.labels, strict=True))
            for copy in copies
        ]  # fmt: skip
        path = tmp_path / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        arguments = [f"--train-file={train}", f"--augmented-file={path}"]
        return read_data(parse("distill", ["--method=tinybert", "--output=o", *arguments]))

    # As `augment` numbers them, by lines of the file; and as of another file with the same texts.
    for name, first_line in (("same.jsonl", 2), ("other.jsonl", 1002)):
        data = read(name, first_line)
        aside = {*data.dev.texts, *(f"{text} again" for text in data.dev.texts)}
        assert len(data.dev) and not aside & {*data.augmented.texts}
        assert {*data.augmented.texts} == {*data.train.texts, *(f"{text} again" for text in data.train.texts)}
        assert f"{name}: skipped {2 * len(data.dev)} rows" in capsys.readouterr().err
    # Without the originals their numbers alone say it.
    data = read("copies.jsonl", 2, copies=(1,))
    assert {*data.augmented.texts} == {f"{text} again" for text in data.train.texts}
    with pytest.raises(UserError, match="plain.jsonl: without dev=, each row must have .* pass dev="):
        read("plain.jsonl", 2, example="")
