"""Question answering from model directory to bundle: export, gate, evaluate, predict."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import golden_checks
import numpy as np
import pytest
import tiny_finetuning
import tiny_questions
from official.nlp.tools import squad_evaluate_v1_1, squad_evaluate_v2_0

import pocketbert as pb
from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.data.readers.questions import QuestionFile
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.recipes import RECIPES
from pocketbert.tasks.predictor import model_predictor
from pocketbert.training.config import FinetuneConfig
from pocketbert.training.finetune import finetune
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.bundles.predictors import open_both
from pocketbert_export.exporter import export
from pocketbert_export.tflite.signatures import default_lengths
from pocketbert_export.verification.verify import GateFailed, verify_bundle

LENGTHS = (11, tiny_questions.MAX_LENGTH)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model that knows most answers, its bundle, and questions of which some have none."""
    folder = tmp_path_factory.mktemp("spans")
    questions = tiny_questions.write_questions(folder / "dev.json", 37, 1, impossible=0.3)
    train = QuestionFile(tiny_questions.write_questions(folder / "train.json", 200, 0, impossible=0.3))
    bare = tiny_finetuning.write_model(folder / "bare")
    config = FinetuneConfig(learning_rate=3e-3, epochs=1, batch_size=16, max_length=tiny_questions.MAX_LENGTH)
    data = TaskData(task=tiny_questions.TASK, train=train, dev=QuestionFile(questions))
    model = Path(finetune(bare, data, folder / "run", config=config).model_directory)
    export(model, folder / "bundle", recipe="float32", lengths=LENGTHS, examples=QuestionFile(questions))
    return {"model": model, "bundle": folder / "bundle", "questions": questions}


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(arguments) == 0
    return capsys.readouterr().out


def test_gate_scores_questions_and_keeps_threshold(made: dict[str, Path]) -> None:
    verification = json.loads((made["bundle"] / "verification.json").read_text())
    metric = next(check for check in verification["checks"] if check["name"] == "metric")
    assert metric["passed"] and "f1" in metric["reason"] and "37 examples" in metric["reason"]
    assert verification["examples"] == {"count": 37, "source": str(made["questions"]), "labelled": True}
    bundle, model = Bundle.open(made["bundle"]), pb.from_pretrained(made["model"])
    assert bundle.task == model.task.__class__(kind="span", null_threshold=model.task.null_threshold)
    # A golden example is a question with its paragraph, as an app would give it.
    golden = bundle.goldens[0]
    assert golden.text == "the film"
    tokens = bundle.tokenizer([golden.text], [golden.pair], max_length=golden.length, pad_to=golden.length)
    np.testing.assert_array_equal(tokens["input_word_ids"], golden.inputs["input_word_ids"])
    lines = golden_checks.check_golden_answers(made["bundle"], model)
    assert max(len(line["windows"]) for line in lines) > 1


def test_model_and_bundle_predict_same_answers(made: dict[str, Path]) -> None:
    questions = list(QuestionFile(made["questions"]))[:9]
    inputs = [(question.question, question.context) for question in questions]
    model, bundle = pb.from_pretrained(made["model"]), Bundle.open(made["bundle"])
    answers = bundle.predict([{"question": question, "context": context} for question, context in inputs])
    # In the same windows; the model's own are as long as its positions.
    for answer, bundles in zip(model_predictor(model, max_length=LENGTHS[-1]).predict(inputs), answers, strict=True):
        assert {name: answer[name] for name in ("answer", "start", "end")} == {
            name: bundles[name] for name in ("answer", "start", "end")
        }
        assert answer["score"] == pytest.approx(bundles["score"], abs=1e-3)
    assert len(model.predict(inputs, n_best=2)[0]["answers"]) == 2


def with_wrong_ends(model: Path) -> pb.Model:
    """A model whose end is always the first token."""
    wrong = pb.from_pretrained(model)
    for name, variable in wrong.named_variables().items():
        if name == "qa_outputs.weight":
            variable.assign(variable.numpy()[:, ::-1] * [[1.0, -1.0]])
    return wrong


def test_gate_rejects_bundle_with_worse_answers(made: dict[str, Path]) -> None:
    questions = QuestionFile(made["questions"])
    verification = verify_bundle(made["bundle"], reference=pb.from_pretrained(made["model"]), examples=questions)
    assert verification.passed
    # Its float answers are others than the bundle's.
    wrong = with_wrong_ends(made["model"])
    with pytest.raises(GateFailed, match="logits: largest difference"):
        verify_bundle(made["bundle"], reference=wrong, examples=questions).require()


@pytest.mark.nightly
def test_gate_rejects_bundle_with_worse_scores(made: dict[str, Path], tmp_path: Path) -> None:
    """A bundle that is right where the float model is wrong passes, the other way round it does not."""
    with_wrong_ends(made["model"]).save_pretrained(tmp_path / "worse")
    export(tmp_path / "worse", tmp_path / "bundle", recipe="float32", lengths=LENGTHS)
    bounds = dataclasses.replace(RECIPES["float32"].bounds, largest_difference=1e9, rms_difference=1e9)
    gate = verify_bundle(
        tmp_path / "bundle",
        reference=pb.from_pretrained(made["model"]),
        examples=QuestionFile(made["questions"]),
        bounds=bounds,
        metric="exact_match",
    )
    (metric,) = [check for check in gate.checks if check.name == "metric"]
    assert not metric.passed and metric.measured > 20


@pytest.mark.parametrize("form", ["model", "bundle"])
def test_evaluate_matches_squads_script(
    form: str, made: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    window = f"--max-length={tiny_questions.MAX_LENGTH}"
    answers = tmp_path / "answers.json"
    common = ["evaluate", f"--model={made[form]}", f"--file={made['questions']}", window, f"--predictions={answers}"]
    result = json.loads(run(common, capsys))
    data = json.loads(made["questions"].read_text())["data"]
    official = squad_evaluate_v2_0.evaluate(data, json.loads(answers.read_text()))
    assert result["metrics"]["f1"] == pytest.approx(official["f1"] / 100)
    assert result["metrics"]["no_answer_exact_match"] == pytest.approx(official["NoAns_exact"] / 100)
    assert 0.5 < result["metrics"]["f1"]
    assert result["examples"] == 37
    assert result["null_threshold"] == pb.from_pretrained(made["model"]).task.null_threshold
    # Nothing is overwritten unasked.
    assert cli.main(common) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_predict_answers_paragraphs_of_any_length(
    made: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    neutral = " ".join(tiny_finetuning.NEUTRAL * 5)
    rows = [
        {"question": "the film", "context": f"{neutral} Superb, {neutral}", "id": "long"},
        {"question": "the film", "context": neutral},
        {"question": "the film", "context": "a warm plot"},
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    answers_by_id: dict[str, list[dict[str, Any]]] = {}
    for form in ("model", "bundle"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode()), encoding="utf-8"))
        window = f"--max-length={tiny_questions.MAX_LENGTH}"
        out = run(["predict", f"--model={made[form]}", window, "--n-best=2"], capsys)
        answers_by_id[form] = [json.loads(line) for line in out.splitlines()]
    for one, other in zip(answers_by_id["model"], answers_by_id["bundle"], strict=True):
        assert [one[name] for name in ("answer", "start", "end")] == [
            other[name] for name in ("answer", "start", "end")
        ]
        assert one["score"] == pytest.approx(other["score"], abs=1e-3)
    long, none, short = answers_by_id["bundle"]
    assert (long["id"], long["answer"], long["start"]) == ("long", "Superb", len(neutral) + 1)
    assert rows[0]["context"][long["start"] : long["end"]] == "Superb"
    assert (none["answer"], none["start"], none["end"]) == ("", None, None)
    assert none["probability"] > 0.5
    assert short["answer"] == "warm"
    assert len(short["answers"]) == 2 and short["answers"][0]["answer"] == "warm"
    total = sum(answer["probability"] for answer in short["answers"])
    assert 0 < total <= 1


def test_predict_reads_a_file_of_questions(made: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    window = f"--max-length={tiny_questions.MAX_LENGTH}"
    out = run(["predict", f"--model={made['bundle']}", f"--input={made['questions']}", window], capsys)
    answers = {row["id"]: row["answer"] for row in map(json.loads, out.splitlines())}
    data = json.loads(made["questions"].read_text())["data"]
    assert squad_evaluate_v2_0.evaluate(data, answers)["f1"] > 50
    again = ["predict", f"--model={made['bundle']}", f"--input={made['questions']}", window, "--output-format=csv"]
    rows = list(csv.DictReader(io.StringIO(run(again, capsys), newline="")))
    assert list(rows[0]) == ["id", "question", "answer", "start", "end", "score", "probability"]
    assert {row["id"]: row["answer"] for row in rows} == answers
    for flag, message in (
        ("--n-best=2", "--n-best needs JSON"),
        ("--top-k=2", "--top-k is for texts; received it for"),
    ):
        assert cli.main([*again, flag]) == 2
        assert message in capsys.readouterr().err


def test_languages_are_scored_separately_and_together(
    made: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, seed in (("dev-context-en-question-en", 5), ("dev-context-de-question-en", 6)):
        tiny_questions.write_questions(tmp_path / f"{name}.json", 11, seed)
    window, answers = f"--max-length={tiny_questions.MAX_LENGTH}", tmp_path / "answers.json"
    arguments = [f"--model={made['bundle']}", "--task=mlqa", f"--data={tmp_path}", window, f"--predictions={answers}"]
    result = json.loads(run(["evaluate", *arguments], capsys))
    assert set(result["parts"]) == {"de-en", "en-en"}
    assert result["examples"] == 22
    for name in ("exact_match", "f1"):
        values = [part["metrics"][name] for part in result["parts"].values()]
        assert result["metrics"][name] == pytest.approx(sum(values) / 2)
    # MLQA's languages ask the same questions under the same ids, and these files do.
    content = json.loads(answers.read_text())
    assert set(content) == {"de-en", "en-en"}
    assert content["de-en"] != content["en-en"]
    for part, answers_of_part in content.items():
        file = tmp_path / f"dev-context-{part[:2]}-question-en.json"
        official = squad_evaluate_v1_1.evaluate(json.loads(file.read_text())["data"], answers_of_part)
        assert result["parts"][part]["metrics"]["exact_match"] == pytest.approx(official["exact_match"])


def test_all_ids_are_checked_before_predicting(
    made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_questions.write_questions(tmp_path / "dev-context-de-question-en.json", 11, 5)
    second = tiny_questions.write_questions(tmp_path / "dev-context-en-question-en.json", 11, 6)
    second.write_text(second.read_text().replace('"q7"', '"q3"'))
    monkeypatch.setattr(
        "pocketbert_export.glue.scoring.labelled_evaluator", lambda *_, **__: pytest.fail("it answered")
    )
    arguments = [
        f"--model={made['bundle']}",
        "--task=mlqa",
        f"--data={tmp_path}",
        f"--predictions={tmp_path / 'answers'}",
    ]
    assert cli.main(["evaluate", *arguments]) == 2
    assert "ids of questions must be unique" in capsys.readouterr().err


def test_model_and_bundle_use_same_windows(made: dict[str, Path]) -> None:
    both = open_both(made["model"], made["bundle"], stride=3)
    for predictor in both:
        assert (predictor.max_length, predictor.windows) == (tiny_questions.MAX_LENGTH, {"stride": 3})


def test_export_takes_the_lengths_of_questions(
    made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any, lengths: list[int], **__: Any) -> None:
        raise UserError(f"lengths {lengths}")

    monkeypatch.setattr("pocketbert_export.exporter.export", refuse)
    positions = pb.from_pretrained(made["model"]).config.max_position_embeddings
    assert 19 < positions < 128
    call = ["export", f"--model={made['model']}", f"--output={tmp_path / 'bundle'}"]
    assert cli.main(call) == 2
    assert f"lengths [{positions}]" in capsys.readouterr().err
    assert cli.main([*call, "--lengths=9,11"]) == 2
    assert "lengths [9, 11]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "positions", "longest", "lengths"),
    [
        ("span", 512, None, [128, 384]),
        ("span", 384, None, [128, 384]),
        ("span", 300, None, [128, 300]),
        ("regression", 512, None, [32, 64, 128]),
        ("regression", 100, None, [32, 64, 100]),
        ("regression", 512, 200, [32, 64, 128, 200]),
        ("regression", 512, 64, [32, 64]),
        ("span", 512, 100, [100]),
    ],
)
def test_lengths_where_none_are_given(kind: Any, positions: int, longest: int | None, lengths: list[int]) -> None:
    assert default_lengths(TaskConfig(kind=kind), positions, longest) == lengths
    if kind != "span":
        assert default_lengths(None, positions, longest) == lengths


def test_squad_1_uses_its_own_rules(made: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions = tiny_questions.write_questions(tmp_path / "dev-v1.1.json", 13, 7)
    answers = tmp_path / "answers.json"
    window = f"--max-length={tiny_questions.MAX_LENGTH}"
    data = [f"--data={tmp_path}", "--task=squad", f"--predictions={answers}"]
    result = json.loads(run(["evaluate", f"--model={made['model']}", window, *data], capsys))
    official = squad_evaluate_v1_1.evaluate(json.loads(questions.read_text())["data"], json.loads(answers.read_text()))
    assert result["metrics"] == {
        "exact_match": pytest.approx(official["exact_match"]),
        "f1": pytest.approx(official["final_f1"]),
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data={folder}"], "needs --task, for a model that answers questions one of squad, squad2, tydiqa, mlqa"),
        (["--data={folder}", "--task=mlqa", "--split=train"], "mlqa has the splits dev, test"),
        (["--data={folder}", "--task=squad"], "squad needs the file dev-v1.1.json"),
        (["--file={questions}", "--max-length=99"], "windows must fit into the bundle's longest length, 19"),
        (["--file={questions}", "--answer-language=xx"], "xx"),
        (
            ["--file={questions}", "--languages=en"],
            "--languages needs --task=xnli and --data; received it with {questions}",
        ),
        (
            ["--data={folder}", "--task=mlqa", "--languages=en"],
            "--languages needs --task=xnli and --data; received it with mlqa",
        ),
        (
            ["--data={mlqa}", "--task=mlqa", "--answer-language=de"],
            "--answer-language is for a file of your own; received it with --data",
        ),
    ],
)
def test_bad_input(
    arguments: list[str], message: str, made: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mlqa").mkdir()
    tiny_questions.write_questions(tmp_path / "mlqa" / "dev-context-en-question-en.json", 3, 5)
    names = {"folder": tmp_path, "questions": made["questions"], "mlqa": tmp_path / "mlqa"}
    command = [argument.format(**names) for argument in arguments]
    assert cli.main(["evaluate", f"--model={made['bundle']}", *command]) == 2
    assert message.format(**names) in capsys.readouterr().err


def test_predict_rejects_plain_lines_as_questions(
    made: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.csv").write_text("question,context\nwho,she\n")
    assert cli.main(["predict", f"--model={made['bundle']}", f"--input={tmp_path / 'x.csv'}"]) == 2
    assert "reads .json or .jsonl files, or lines of JSON; received" in capsys.readouterr().err
    arguments = [f"--model={made['bundle']}", f"--input={made['questions']}", "--format=lines"]
    assert cli.main(["predict", *arguments]) == 2
    assert "reads JSON objects; received --format=lines" in capsys.readouterr().err
