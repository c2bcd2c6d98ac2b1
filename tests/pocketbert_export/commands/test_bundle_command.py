"""`pocketbert bundle`: from a file of examples to a verified bundle and its scores."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import tiny_finetuning
import tiny_questions

import pocketbert as pb
from pocketbert import cli
from pocketbert.commands import task_options
from pocketbert.commands.task_options import TableOptions, TaskOptions
from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.data.readers.questions import QuestionFile
from pocketbert.data.train_dev_split import train_dev_split
from pocketbert.tasks import question_answering
from pocketbert.tasks.predictor import Predictor
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.commands.last_lines import predict_line
from pocketbert_runtime.windows import WindowOptions, Windows


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_finetuning.write_model(tmp_path_factory.mktemp("bare") / "model")


def arguments(bare: Path, output: Path, *more: str, max_length: int = tiny_questions.MAX_LENGTH) -> list[str]:
    trained = ["--learning-rate=3e-3", "--epochs=1", "--batch-size=16", f"--max-length={max_length}"]
    return ["bundle", f"--model={bare}", *trained, "--recipe=float32", f"--output={output}", *more]


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> list[WindowOptions]:
    """How paragraphs were cut: by the gate, and then by what scores the model and the bundle."""
    seen: list[WindowOptions] = []
    make, original_init = question_answering.make_windows, Predictor.__init__

    def make_windows(questions: Any, tokenizer: Any, options: WindowOptions) -> Windows:
        seen.append(options)
        return make(questions, tokenizer, options)

    def initialize(predictor: Predictor, task: Any, forward: Any, tokenizer: Any, max_length: int, **cut: Any) -> None:
        seen.append(WindowOptions(max_length=max_length, **cut))
        original_init(predictor, task, forward, tokenizer, max_length, **cut)

    monkeypatch.setattr(question_answering, "make_windows", make_windows)
    monkeypatch.setattr(Predictor, "__init__", initialize)
    return seen


def predicted_by_last_line(progress: str, capsys: pytest.CaptureFixture[str]) -> int:
    """Runs the last line on stderr as it stands; returns the number of predictions."""
    program, *call = shlex.split(progress.splitlines()[-1])
    assert program == "pocketbert" and cli.main(call) in (None, 0)
    lines = capsys.readouterr().out.splitlines()
    assert all({"label", "answer", "labels", "spans", "score"} & json.loads(line).keys() for line in lines)
    return len(lines)


@pytest.mark.nightly
def test_questions_train_and_export_a_bundle(
    bare: Path, windows: list[WindowOptions], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = tiny_questions.write_questions(tmp_path / "questions.json", 240, 0, impossible=0.3)
    call = arguments(bare, tmp_path / "out", f"--train-file={questions}", "--stride=6", "--max-question-tokens=2")
    assert cli.main(call) == 0
    output = capsys.readouterr()
    result = json.loads(output.out)
    assert json.loads((tmp_path / "out" / "scores.json").read_text()) == result
    # As in training.
    assert windows == 3 * [WindowOptions(max_length=tiny_questions.MAX_LENGTH, stride=6, max_question_tokens=2)]
    assert predicted_by_last_line(output.err, capsys) == 240
    # About a tenth of 240, by paragraph.
    assert 20 <= result["examples"] <= 28
    assert f"{result['examples']} of 240 examples are the dev split" in output.err
    # Saying that there is no answer gives about 0.3. In float32 model and bundle answer alike.
    assert result["metrics"]["model"]["f1"] > 0.8
    assert result["metrics"]["bundle"] == result["metrics"]["model"]
    bundle = Bundle.open(tmp_path / "out" / "bundle")
    assert bundle.lengths == (tiny_questions.MAX_LENGTH,)
    assert bundle.task == pb.from_pretrained(tmp_path / "out" / "run" / "model").task.__class__(
        kind="span", null_threshold=bundle.task.null_threshold
    )
    # Again: nothing is made anew.
    written = (tmp_path / "out" / "bundle" / "bundle.json").stat().st_mtime_ns
    assert cli.main(call) == 0
    output = capsys.readouterr()
    assert json.loads(output.out) == result
    assert "this run is finished" in output.err and "this bundle is finished" in output.err
    assert (tmp_path / "out" / "bundle" / "bundle.json").stat().st_mtime_ns == written
    # Another recipe would replace it, which is requested first.
    assert cli.main([*call, "--recipe=float16"]) == 2
    assert "--overwrite" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.nightly
def test_a_table_to_a_bundle(bare: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = tiny_finetuning.write_table(tmp_path / "train.csv", tiny_finetuning.examples(200, 0))
    dev = tiny_finetuning.write_table(tmp_path / "dev.csv", tiny_finetuning.examples(31, 1))
    # The longest text has 21 tokens: neither model nor bundle cuts one.
    files = [f"--train-file={train}", f"--dev-file={dev}", "--lengths=11,21", "--epochs=5", "--head-start=random"]
    assert cli.main(arguments(bare, tmp_path / "out", *files, max_length=21)) == 0
    output = capsys.readouterr()
    result = json.loads(output.out)
    opened, outcome = Bundle.open(tmp_path / "out" / "bundle"), result["outcome"]
    assert opened.outcome is not None and outcome.items() <= opened.outcome.items()
    assert outcome["score"] == result["metrics"]["bundle"]["accuracy"] and outcome["examples"] == 31
    assert output.err.splitlines()[-4:-1] == [
        f"bundle: {outcome['headline']}",
        f"page: {tmp_path / 'out' / 'report.html'}",
        f"bundle: {opened.directory}",
    ]
    assert predicted_by_last_line(output.err, capsys) == 31
    assert result["examples"] == 31
    assert result["metrics"]["model"]["accuracy"] > 0.8
    assert result["metrics"]["bundle"] == result["metrics"]["model"]
    assert Bundle.open(tmp_path / "out" / "bundle").lengths == (11, 21)
    dev_labels = tiny_finetuning.examples(31, 1).labels
    assert dev_labels is not None
    share = max((dev_labels == 0).mean(), (dev_labels == 1).mean())
    assert result["baseline"]["metrics"]["accuracy"] == pytest.approx(share)
    assert result["positive_label"] == "low" and result["warnings"] == []
    assert sum(map(sum, result["classes"]["bundle"]["confusion_matrix"])) == 31
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert f"{share:.4f}" in page and "bundle" in page and "Confusion matrix" in page
    assert page.index(f"<b>{outcome['score']:.3f}</b>") < page.index("checks passed") < page.index("Confusion matrix")
    assert "Always &#39;" in page[: page.index("checks passed")]


@pytest.mark.nightly
def test_last_line_is_quoted_for_shells(bare: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tiny_finetuning.examples(41, 0)
    assert rows.labels is not None
    train = tmp_path / "my rows' & more.csv"
    lines = [f"{rows.texts[row]};the film;{'xy'[label]}\n" for row, label in enumerate(rows.labels)]
    train.write_text("the text;second $one;label\n" + "".join(lines), encoding="utf-8")
    columns = ["--text-column=the text", "--pair-column=second $one", "--separator=;", "--noshow-texts"]
    call = arguments(bare, tmp_path / "my output", f"--train-file={train}", "--lengths=19", *columns)
    assert cli.main(call) == 0
    output = capsys.readouterr()
    assert predicted_by_last_line(output.err, capsys) == 41
    # Private texts are on neither page.
    pages = [tmp_path / "my output" / "report.html", tmp_path / "my output" / "run" / "report.html"]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert "because of --noshow-texts" in text and not any(
            content in text for content in rows.texts if len(content) > 20
        )


@pytest.mark.parametrize(
    ("name", "kind", "table", "columns"),
    [
        ("a.jsonl", "token_classification", {}, []),
        ("a.conll", "token_classification", {}, []),
        # Lines of JSON have no separator.
        ("a.jsonl", "classification", {"text_column": "review", "separator": ";"}, ["--text-column=review"]),
        ("a.TSV", "classification", {"skip_bad_rows": True, "label_column": "stars"}, ["--skip-bad-rows"]),
        ("a.json", "span", {"text_column": "review"}, []),
    ],
)
def test_last_line_has_the_columns(name: str, kind: Any, table: dict[str, Any], columns: list[str]) -> None:
    config = TaskConfig(
        kind=kind, labels={"classification": ("a", "b"), "token_classification": ("O", "B-X")}.get(kind, ())
    )
    options = TaskOptions(train_file="train.csv", dev_file=name)
    line = predict_line(Path("b"), config, options, TableOptions(**table), has_pairs=False)
    assert shlex.split(line) == ["pocketbert", "predict", "--model=b", f"--input={name}", *columns]


@pytest.mark.parametrize("kind", ["classification", "span"])
def test_last_line_without_file_has_a_text(kind: str) -> None:
    line = predict_line(
        Path("out/bundle"),
        TaskConfig(kind=kind, labels=("a", "b") if kind != "span" else ()),
        TaskOptions(task="sst2", data="glue"),
        TableOptions(),
        has_pairs=kind == "span",
    )
    shell = subprocess.run(["bash", "-c", line.replace("| pocketbert", "| cat; echo")], capture_output=True, text=True)
    text, command = shell.stdout.splitlines()
    assert command == "predict --model=out/bundle"
    assert (text[:1] == "{" and {"question", "context"} == json.loads(text).keys()) == (kind == "span")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--recipe=mixed"], "pass one, such as --max-mb=15"),
        (["--recipe=static_wi8_ai8"], "at least 32 different texts"),
        (["--recipe=dynamic_wi4", "--calibration-examples=31"], "--calibration-examples must be at least 32"),
    ],
)
def test_bad_calibration_is_reported_before_training(
    flags: list[str], message: str, bare: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = tiny_finetuning.write_table(tmp_path / "train.csv", tiny_finetuning.examples(31, 0))
    dev = tiny_finetuning.write_table(tmp_path / "dev.csv", tiny_finetuning.examples(20, 1))
    call = arguments(bare, tmp_path / "out", f"--train-file={train}", f"--dev-file={dev}", "--lengths=11", *flags)
    assert cli.main(call) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_tables_dev_split_is_stratified(tmp_path: Path) -> None:
    # Two rows of one class that a draw without classes would put both into the dev split.
    texts = [f"text {row}" for row in range(100)]
    rare = {*train_dev_split(Examples(texts, None, None, texts, "here"))[1].texts[:2]}
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + "".join(f"{text},{'rare' if text in rare else 'common'}\n" for text in texts))
    data = task_options.read_examples(TaskOptions(train_file=str(path)), TableOptions())
    assert isinstance(data.train, Examples) and data.train.labels is not None
    assert set(data.train.labels.tolist()) == {0, 1} and len(data.dev) == 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--recipe": "int9"}, "int9"),
        ({"--lengths": "12,x"}, "--lengths=12,x: must be a list of whole numbers"),
        ({"--lengths": "9,9999"}, "a length must lie in 3 to"),
        ({"--train-file": "nothing.json"}, "there is no such file"),
        ({"--output": ""}, "--output is required"),
        ({"--train-file": ""}, "data must be"),
    ],
)
def test_bad_input_fails_in_one_line(
    change: dict[str, str], message: str, bare: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = tiny_questions.write_questions(tmp_path / "questions.json", 9, 0)
    options: dict[str, Any] = {"--train-file": questions, "--lengths": "11", "--recipe": "float32"}
    options |= {"--model": bare, "--output": tmp_path / "out", **change}
    assert cli.main(["bundle", *(f"{name}={value}" for name, value in options.items())]) == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_dev_split_is_by_text() -> None:
    texts = [f"text {index // 3}" for index in range(90)]
    examples = Examples(texts, None, None, [str(index) for index in range(90)], "here")
    train, aside = train_dev_split(examples)
    assert not {*train.texts} & {*aside.texts}
    assert len(train) + len(aside) == 90
    assert len(aside) == 9
    # The same at every call, and of another seed another.
    assert train_dev_split(examples)[1].ids == aside.ids
    assert train_dev_split(examples, seed=1)[1].ids != aside.ids
    with pytest.raises(Exception, match="at least two different texts; received 1 in here"):
        train_dev_split(examples.select([0, 1, 2]))


def test_no_paragraph_is_on_both_sides(tmp_path: Path) -> None:
    content = {
        "data": [
            {
                "paragraphs": [
                    {
                        "context": f"words of {number}",
                        "qas": [{"id": f"{number}-{index}", "question": "what?", "answers": []} for index in range(4)],
                    }
                    for number in range(20)
                ]
            }
        ]
    }
    path = tmp_path / "questions.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    train, aside = train_dev_split(QuestionFile(path), part=0.2)
    assert {question.context for question in train} | {question.context for question in aside} == {
        f"words of {n}" for n in range(20)
    }
    assert not {question.context for question in train} & {question.context for question in aside}
    assert len(aside) == 16
    assert train.identity != aside.identity != QuestionFile(path).identity
