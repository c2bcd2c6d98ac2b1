"""Question answering: learning, the no-answer threshold, and scores compared with SQuAD's scripts."""

from __future__ import annotations

import dataclasses
import json
import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny_finetuning
import tiny_questions
from official.nlp.tools import squad_evaluate_v2_0

import pocketbert as pb
from pocketbert import cli
from pocketbert.commands import task_options
from pocketbert.commands.task_options import TableOptions, TaskOptions
from pocketbert.data.batches import EncodedExamples
from pocketbert.data.readers.questions import QuestionFile
from pocketbert.data.task_data import TaskData
from pocketbert.errors import TrainingFailed
from pocketbert.tasks.answer_scores import squad_2_score
from pocketbert.tasks.interfaces import Evaluator
from pocketbert.tasks.outputs import ModelForward
from pocketbert.tasks.question_answering import QuestionScores, encode_questions
from pocketbert.tasks.registry import supervised_task
from pocketbert.training import trainer
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.finetune import finetune
from pocketbert_runtime.answers.best_spans import Answer, Answered
from pocketbert_runtime.answers.span import read_answers
from pocketbert_runtime.windows import Question, WindowOptions, make_windows

CONFIG = FinetuneConfig(learning_rate=3e-3, epochs=2, batch_size=16, max_length=tiny_questions.MAX_LENGTH)
RUN = RunConfig()
WINDOWS = WindowOptions(max_length=tiny_questions.MAX_LENGTH)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, QuestionFile]:
    folder = tmp_path_factory.mktemp("questions")
    return {
        "train": QuestionFile(tiny_questions.write_questions(folder / "train.json", 300, 0, impossible=0.3)),
        "dev": QuestionFile(tiny_questions.write_questions(folder / "dev.json", 41, 1, impossible=0.3)),
    }


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_finetuning.write_model(tmp_path_factory.mktemp("bare") / "model")


def tune(bare: Path, files: dict[str, QuestionFile], output: Path, run: RunConfig = RUN, **changes: Any) -> Any:
    data = TaskData(task=tiny_questions.TASK, **files, metrics=("exact_match", "f1"), main_metric="f1")
    return finetune(bare, data, output, config=dataclasses.replace(CONFIG, **changes), run=run)


@pytest.fixture(scope="module")
def finished(bare: Path, files: dict[str, QuestionFile], tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tune(bare, files, tmp_path_factory.mktemp("run") / "run")


def test_run_keeps_best_checkpoints_threshold(finished: Any, files: dict[str, QuestionFile]) -> None:
    # Saying that nothing has an answer gives about 0.3, the first word of each paragraph less than 0.1.
    assert finished.metrics["f1"] > 0.9
    model = pb.from_pretrained(finished.model_directory)
    assert model.task.kind == "span"
    assert np.isfinite(model.task.null_threshold)
    # SQuAD's own script, given the answers at that threshold and the leads, finds no better threshold.
    answers = list(
        read_answers(
            files["dev"], model.tokenizer, WINDOWS, ModelForward(model, supervised_task(model.task), 7), with_null=True
        )
    )
    data = json.loads(files["dev"].path.read_text())["data"]
    leads = {question.id: answered.null_difference for question, answered in answers}
    best = squad_evaluate_v2_0.evaluate(
        data, {question.id: answered.text(None) for question, answered in answers}, na_probs=leads
    )
    at_threshold = squad_evaluate_v2_0.evaluate(
        data, {question.id: answered.text(model.task.null_threshold) for question, answered in answers}
    )
    assert at_threshold["f1"] == pytest.approx(best["final_f1"])
    assert finished.metrics["f1"] == pytest.approx(at_threshold["f1"] / 100)
    assert finished.metrics["exact_match"] == pytest.approx(at_threshold["exact"] / 100)
    assert finished.metrics["no_answer_f1"] == pytest.approx(at_threshold["NoAns_f1"] / 100)
    assert finished.metrics["has_answer_exact_match"] == pytest.approx(at_threshold["HasAns_exact"] / 100)


@pytest.mark.nightly
def test_resumed_run_gives_same_model(
    bare: Path,
    files: dict[str, QuestionFile],
    finished: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = 0
    write = trainer.write_checkpoint

    def interrupting(*arguments: Any) -> None:
        nonlocal written
        write(*arguments)
        written += 1
        if written == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "write_checkpoint", interrupting)
        with pytest.raises(KeyboardInterrupt):
            tune(bare, files, tmp_path / "run", RunConfig(checkpoint_seconds=0.0))
    again = tune(bare, files, tmp_path / "run")
    for name in ("model.safetensors", "config.json"):
        assert (Path(again.model_directory) / name).read_bytes() == (Path(finished.model_directory) / name).read_bytes()


def evaluator_of(model: pb.Model, questions: QuestionFile) -> Evaluator:
    task = supervised_task(model.task)
    forward = ModelForward(model, task, batch_size=5)
    return task.evaluator(forward, questions, model.tokenizer, WINDOWS.max_length, choose_threshold=True)


def test_answerable_questions_need_no_threshold(bare: Path, tmp_path: Path) -> None:
    train = QuestionFile(tiny_questions.write_questions(tmp_path / "train.json", 20, 2))
    model = pb.from_pretrained(bare, task=tiny_questions.TASK)
    evaluator = evaluator_of(model, train)
    assert set(evaluator.metrics("now")) == {"exact_match", "f1"}
    assert evaluator.task.null_threshold is None


def span_loss(logits: dict[str, np.ndarray], mask: np.ndarray, positions: np.ndarray) -> float:
    """Cross-entropy of start and end over real tokens, their mean, over the batch."""
    losses = []
    for row in range(len(mask)):
        for column, name in enumerate(("start_logits", "end_logits")):
            real = logits[name][row, mask[row] == 1].astype(np.float64)
            losses.append(np.log(np.exp(real).sum()) - real[positions[row, column]])
    return float(np.mean(losses))


@pytest.mark.parametrize("padding", [0, 5])
def test_loss_ignores_padding(bare: Path, files: dict[str, QuestionFile], padding: int) -> None:
    model = pb.from_pretrained(bare, task=tiny_questions.TASK)
    encoded = encode_questions(files["dev"].select(range(6)), model.tokenizer, WINDOWS)
    inputs, positions = encoded.batch(np.arange(len(encoded)))
    inputs = {name: np.pad(array, ((0, 0), (0, padding))) for name, array in inputs.items()}
    outputs = {name: value.numpy() for name, value in model(inputs).items()}
    expected = span_loss(outputs, inputs["input_mask"], positions)
    model.compile(optimizer="sgd")
    # float32 sums of some 20 terms.
    loss, *_ = model.evaluate(inputs, positions, batch_size=len(encoded), verbose=0)
    assert loss == pytest.approx(expected, rel=1e-5)
    weights = tf.constant(np.where(np.arange(len(encoded)) == 1, 1.0, 0.0).astype(np.float32))
    one = {name: value[1:2] for name, value in outputs.items()}
    weighted, *_ = model.test_on_batch(inputs, positions, sample_weight=weights)
    assert weighted * len(encoded) == pytest.approx(span_loss(one, inputs["input_mask"][1:2], positions[1:2]), rel=1e-5)


def test_fit_takes_plain_positions(bare: Path, files: dict[str, QuestionFile]) -> None:
    model = pb.from_pretrained(bare, task=tiny_questions.TASK)
    encoded = encode_questions(files["train"].select(range(40)), model.tokenizer, WINDOWS)
    inputs, positions = encoded.batch(np.arange(len(encoded)))
    model.compile(optimizer="adam")
    history = model.fit(inputs, positions, epochs=3, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0]


def test_threshold_scores_match_hand_count() -> None:
    class Fixed:
        def __init__(self, text: str, lead: float) -> None:
            self._text, self.null_difference = text, lead

        def text(self, _: object) -> str:
            return self._text

    rows = [
        # Right, and sure; right, but less sure than no answer; wrong where there is none; no answer, and sure of it.
        (("a b",), Fixed("a b", -3.0)),
        (("c",), Fixed("c", 1.5)),
        ((), Fixed("d", -1.0)),
        ((), Fixed("e", 2.0)),
    ]
    scores = QuestionScores(squad_2_score)
    for index, (answers, answered) in enumerate(rows):
        text = " ".join(answers)
        scores.add(
            Question(str(index), "q", f"{text} x", answers, tuple(0 for _ in answers), impossible=not answers), answered
        )
    # Behind 1.5 three are right, the first two and the last, and behind -3 all but the second: of equals it is the
    # least, and the middle between -3 and -1.
    assert scores.best_threshold() == -2.0
    assert scores.scores(1.5)["f1"] == 0.75
    assert scores.scores(None)["exact_match"] == 0.5
    assert scores.scores(-2.0) == {
        "exact_match": 0.75,
        "f1": 0.75,
        "has_answer_exact_match": 0.5,
        "has_answer_f1": 0.5,
        "no_answer_exact_match": 1.0,
        "no_answer_f1": 1.0,
    }


def fixed(text: str, lead: float) -> Answered:
    return Answered(answers=(Answer(text=text, start=0, end=len(text), score=0.0, probability=1.0),), null_score=lead)


def test_threshold_scores_match_official_script() -> None:
    # Answers of which the script leaves nothing are right where none is given, and where another such one is.
    rows = [(("A", "!"), "b", 2.0), (("A",), "the", -1.0), (("a b",), "b", -2.0), ((), "an", -3.0), ((), "c", 1.0)]
    scores, data, answered = QuestionScores(squad_2_score), [], {}
    for index, (right, text, lead) in enumerate(rows):
        starts = tuple(0 for _ in right)
        scores.add(Question(str(index), "q", "a b", right, starts, impossible=not right), fixed(text, lead))
        data.append(
            {"paragraphs": [{"qas": [{"id": str(index), "answers": [{"text": answer_text} for answer_text in right]}]}]}
        )
        answered[str(index)] = fixed(text, lead)
    for threshold in (None, -9.0, -2.5, -1.5, 0.0, 1.5, 9.0):
        official = squad_evaluate_v2_0.evaluate(
            data, {name: answer.text(threshold) for name, answer in answered.items()}
        )
        assert scores.scores(threshold) == pytest.approx(
            {
                f"{prefix}{name}": official[f"{official_prefix}{kind}"] / 100
                for prefix, official_prefix in (("", ""), ("has_answer_", "HasAns_"), ("no_answer_", "NoAns_"))
                for name, kind in (("exact_match", "exact"), ("f1", "f1"))
            }
        )
    # Nothing but the third question, which an answer wins, prefers one: 1, 1, 1/2 and 1 twice.
    assert -2.0 < scores.best_threshold() < -1.0


def test_scores_take_little_memory() -> None:
    scores = QuestionScores(lambda prediction, right: (1.0, 0.5))
    question, count = Question("1", "q", "a", ("a",), (0,), impossible=False), 20_000
    leads = np.random.default_rng(1).normal(size=count).tolist()
    tracemalloc.start()
    try:
        for lead in leads:
            scores.add(question, fixed("a", lead))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    # Six float64, and what an array keeps free to grow, a sixteenth.
    assert held < 60 * count
    assert scores.scores(None)["f1"] == 0.5


def test_answers_keep_accents(bare: Path) -> None:
    model = pb.from_pretrained(bare, task=tiny_questions.TASK)
    context = "the GO\u0308OD\u0301 film"
    question = Question("1", "the film", context, (), (), impossible=False)

    (start,) = np.flatnonzero(make_windows([question], model.tokenizer, WINDOWS).char_starts == 4)

    def second_word(encoded: EncodedExamples) -> dict[str, np.ndarray]:
        logits = np.where(np.arange(len(encoded.word_ids)) == start, 9.0, 0.0).astype(np.float32)
        return {"start_logits": logits, "end_logits": logits}

    ((_, answered),) = read_answers([question], model.tokenizer, WINDOWS, second_word, with_null=False)
    assert answered.text(None) == "GO\u0308OD\u0301"


def test_broken_model_is_named(bare: Path, files: dict[str, QuestionFile]) -> None:
    model = pb.from_pretrained(bare, task=tiny_questions.TASK)
    for name, variable in model.named_variables().items():
        if name.startswith("qa_outputs"):
            variable.assign(tf.fill(variable.shape, np.float32("nan")))
    with pytest.raises(TrainingFailed, match="after step 7 some are not"):
        evaluator_of(model, files["dev"]).metrics("after step 7")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": "missing.json"}, "there is no such file"),
        ({"max_length": 4}, "max_length must be at least 5; received 4"),
        ({"stride": 0}, "stride must be positive"),
        ({"unlabelled": True}, "need labels"),
        # All that is wrong with a grid's points, each once, before the first run.
        ({"max_length": None, "grid": "max_length=19,4,2000"}, "positions; received 2000"),
        ({"max_length": None, "grid": "max_length=19,4,2000"}, "max_length must be at least 5; received 4"),
        ({"stride": None, "grid": "stride=7,0,none"}, "stride must be positive; received 0"),
        (
            {"max_length": None, "grid": "minilmv2"},
            "minilmv2 is a grid for classification and regression; received a span task; "
            "choose one of bert, mobilebert, minilmv2-squad2, minilmv2-mlqa, or give options",
        ),
    ],
)
def test_bad_input_is_one_line(
    change: dict[str, Any], message: str, bare: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = tiny_questions.write_questions(tmp_path / "train.json", 5, 0)
    if change.get("unlabelled"):
        data = json.loads(train.read_text())
        for paragraph in data["data"][0]["paragraphs"]:
            paragraph["qas"][0]["answers"] = []
        train.write_text(json.dumps(data))
    fields = {"train": train, "max_length": 19, "stride": 7, **change}
    arguments = [
        f"--model={bare}",
        f"--train-file={fields['train']}",
        f"--dev-file={tiny_questions.write_questions(tmp_path / 'dev.json', 5, 1)}",
        f"--output={tmp_path / 'run'}",
        *(
            f"--{name.replace('_', '-')}={fields[name]}"
            for name in ("max_length", "stride")
            if fields[name] is not None
        ),
        *([f"--grid={fields['grid']}", "--seeds=3"] if "grid" in fields else []),
    ]
    assert cli.main(["finetune", *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert error.splitlines()[-1].count(message) == 1
    assert "tokenizing" not in error or "grid" not in fields
    assert not (tmp_path / "run").exists()


def test_warns_if_model_always_answers(bare: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = QuestionFile(tiny_questions.write_questions(tmp_path / "train.json", 10, 3, impossible=0.3))
    answered = QuestionFile(tiny_questions.write_questions(tmp_path / "dev.json", 7, 4))
    warnings = supervised_task(tiny_questions.TASK).data_warnings
    assert not warnings(answered, both)
    # A file that is both splits has all its questions in both.
    assert [(warning.kind, warning.number) for warning in warnings(both, both)] == [("train_in_dev", 10)]
    tune(bare, {"train": both, "dev": answered}, tmp_path / "run", epochs=1)
    message = f"{both.num_impossible} of 10 training questions have no answer, but none of the 7 development questions"
    assert both.num_impossible > 0 and capsys.readouterr().err.count(message) == 1


def test_tydiqa_dev_split_names_no_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_questions.write_questions(tmp_path / "tydiqa.goldp.en.train.json", 30, 0)
    dev = tiny_questions.write_questions(tmp_path / "tydiqa.goldp.en.dev.json", 5, 1)
    dev.write_text(re.sub(r'"text": "\w+"', '"text": ""', dev.read_text("utf-8")), encoding="utf-8")
    options = TaskOptions(task="tydiqa", data=str(tmp_path))
    assert len(task_options.read_examples(options, TableOptions()).dev) == 3
    stderr = capsys.readouterr().err
    assert "3 of 30 examples are the dev split" in stderr and "dev=" not in stderr

    options = TaskOptions(train_file=str(tmp_path / "tydiqa.goldp.en.train.json"))
    task_options.read_examples(options, TableOptions())
    assert "pass dev= to choose them" in capsys.readouterr().err
