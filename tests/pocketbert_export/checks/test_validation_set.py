"""What the gate asks, and by which metric; `evaluate` and `glue-scores` give the same one."""

from __future__ import annotations

import json
from pathlib import Path

import networks
import numpy as np
import pytest
from sklearn.metrics import f1_score

from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.data.readers.questions import QuestionFile
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.tasks.registry import get_task
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
from pocketbert_export.checks import validation_set as gate
from pocketbert_export.checks.validation_set import ValidationSet, gate_metric
from pocketbert_export.exporter import export
from pocketbert_export.verification.verify import verify_bundle

SENTENCES = ["the film is good", "dull", "a cat walks", "very bad", "so bright a story", "rain", "sun", "badly walked"]
# The other way round than GLUE has them.
LABELS = ("equivalent", "not_equivalent")
COLUMNS = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")


@pytest.fixture(scope="module")
def model(small_model: Model) -> Model:
    network = networks.network(
        networks.bert_config(), [TaskConfig(kind="classification", name="mrpc", labels=LABELS)], small_model.tokenizer
    )
    # So that both labels are the answer to some pair.
    bias = network.weights_by_path()["heads.classification.output.bias"]
    bias.assign(bias - logits_of(network).mean(axis=0))
    return network


def logits_of(model: Model) -> np.ndarray:
    inputs = model.tokenizer(SENTENCES, SENTENCES[::-1], max_length=19)
    return model(dict(inputs), training=False)["logits"].numpy()


@pytest.fixture(scope="module")
def paths(model: Model, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The model's directory and bundle, and MRPC's development file."""
    folder = tmp_path_factory.mktemp("mrpc")
    model.save_pretrained(folder / "model")
    export(folder / "model", folder / "bundle", recipe="float32", lengths=(19,))
    (folder / "glue" / "MRPC").mkdir(parents=True)
    rows = zip(quality(model), SENTENCES, SENTENCES[::-1], strict=True)
    lines = ["\t".join(COLUMNS), *(f"{label}\t1\t2\t{text}\t{pair}" for label, text, pair in rows)]
    (folder / "glue" / "MRPC" / "dev.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {name: folder / name for name in ("model", "bundle", "glue")}


def quality(model: Model) -> list[int]:
    """GLUE's 1 = equivalent: the model's answers, but for three."""
    answers = (logits_of(model).argmax(axis=1) == 0).astype(int)
    answers[[1, 2, 6]] ^= 1
    return answers.tolist()


def f1(model: Model, label: str) -> float:
    """By scikit-learn, from texts."""
    labels = [LABELS[index] for index in logits_of(model).argmax(axis=1)]
    right = [("not_equivalent", "equivalent")[number] for number in quality(model)]
    return float(f1_score(right, labels, pos_label=label))


@pytest.mark.one_of_each("bundle")
@pytest.mark.parametrize("form", ["model", "bundle"])
def test_f1_is_that_of_glues_class(
    form: str, model: Model, paths: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert abs(f1(model, "equivalent") - f1(model, "not_equivalent")) > 0.01
    assert cli.main(["evaluate", f"--model={paths[form]}", "--task=mrpc", f"--data={paths['glue']}"]) == 0
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    assert metrics == {"accuracy": pytest.approx(5 / 8), "f1": pytest.approx(f1(model, "equivalent"))}
    assert cli.main(["glue-scores", f"--model=mrpc={paths[form]}", f"--data={paths['glue']}"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["mrpc"]["dev"] == metrics


@pytest.mark.parametrize(("options", "name"), [([], "f1"), (["--metric=matthews"], "matthews")])
def test_gate_uses_the_tasks_metric(
    options: list[str], name: str, model: Model, paths: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    data = [f"--model={paths['model']}", f"--data={paths['glue']}", *options]
    assert cli.main(["verify", str(paths["bundle"]), *data]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    (reason,) = (check["reason"] for check in checks if check["name"] == "metric")
    assert reason.startswith(f"{name} ")
    if name == "f1":
        assert f": {100 * f1(model, 'equivalent'):.2f} with the float model" in reason


def test_the_data_may_say_the_task(model: Model, paths: dict[str, Path]) -> None:
    examples = Examples(SENTENCES, None, np.arange(8, dtype=np.int32) % 2, [*map(str, range(8))], "here")
    verification = verify_bundle(paths["bundle"], reference=model, examples=examples, data_task="cola")
    (metric,) = (check for check in verification.checks if check.name == "metric")
    assert metric.reason.startswith("matthews ")


TASKS = {
    "two": TaskConfig(kind="classification", labels=LABELS),
    "three": TaskConfig(kind="classification", name="mnli", labels=("a", "b", "c")),
    "score": TaskConfig(kind="regression"),
    "span": TaskConfig(kind="span"),
    "none": None,
}
TEXTS = Examples(["a"], None, np.array([1], np.int32), ["0"], "here")


@pytest.mark.parametrize(
    ("task", "metric", "message"),
    [
        (
            "two",
            "acc",
            "f1, macro_f1, matthews, auroc, f1:LABEL for classification with 2 labels; received 'acc'",
        ),
        (
            "three",
            "f1",
            "accuracy, macro_f1, matthews, auroc, f1:LABEL for classification with 3 labels; received 'f1'",
        ),
        ("score", "accuracy", "must be one of pearson, spearman for regression"),
        ("span", "accuracy", "must be one of exact_match, f1 for span"),
        ("none", "accuracy", "must be one of none for a model without a task"),
    ],
)
def test_metric_of_another_task_is_refused(task: str, metric: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        gate_metric(TASKS[task], metric, TEXTS)


def test_a_metric_needs_labels() -> None:
    unlabelled = Examples(["a"], None, None, ["0"], "test.tsv")
    for examples, message in ((None, "no examples"), (unlabelled, "test.tsv, which has none")):
        with pytest.raises(UserError, match=f"needs labelled examples; received f1 with {message}"):
            gate_metric(TASKS["two"], "f1", examples)
        assert gate_metric(TASKS["two"], None, examples) == "accuracy"


def test_wrong_metric_fails_before_conversion(
    paths: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pocketbert_export.exporter.to_tflite", lambda *_, **__: pytest.fail("it converted"))
    arguments = ["export", f"--model={paths['model']}", f"--output={tmp_path / 'bundle'}"]
    assert cli.main([*arguments, f"--data={paths['glue']}", "--metric=acc"]) == 2
    assert "received 'acc'" in capsys.readouterr().err
    assert cli.main([*arguments, "--metric=f1"]) == 2
    assert "needs labelled examples" in capsys.readouterr().err


def test_texts_are_taken_evenly(small_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "MOST_EXAMPLES", 11)
    words = ["cat", "dog", "sun", "rain"]
    texts = [word for word in words for _ in range(25)]
    small_task = get_task(small_model.task)
    examples = Examples(texts, None, None, [*map(str, range(100))], "language after language")
    validation_set = ValidationSet(small_task, examples, tokenizer_of(small_model), 7)
    vocabulary = tokenizer_of(small_model)(words)["input_word_ids"].numpy()[:, 1]
    counts = [int((validation_set.encoded["input_word_ids"][:, 1] == word_id).sum()) for word_id in vocabulary]
    assert sum(counts) == validation_set.count == 11
    assert min(counts) >= 2
    few = ValidationSet(small_task, examples.select(range(9)), tokenizer_of(small_model), 7)
    assert few.count == 9


SPAN = get_task(TaskConfig(kind="span"))


def tokenizer_of(model: Model) -> WordPieceTokenizer:
    assert model.tokenizer is not None
    return model.tokenizer


def write_paragraphs(path: Path, words: list[str], answers_per_paragraph: int) -> QuestionFile:
    paragraphs = [
        {"context": f"{word} " * 40, "qas": [{"id": f"{word}{n}", "question": "the", "answers": []}]}
        for word in words
        for n in range(answers_per_paragraph)
    ]
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    return QuestionFile(path)


def test_questions_are_taken_evenly_too(small_model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "MOST_EXAMPLES", 60)
    words = ["cat", "dog", "sun", "rain"]
    questions = write_paragraphs(tmp_path / "questions.json", words, 30)
    validation_set = ValidationSet(SPAN, questions, tokenizer_of(small_model), 19)
    # [CLS] the [SEP] and so on leave 15 of 19 tokens, and a stride of a third: more than three windows each.
    windows = len(validation_set.encoded["input_word_ids"]) // validation_set.count
    assert windows > 3
    assert 60 - windows <= len(validation_set.encoded["input_word_ids"]) <= 60
    vocabulary = tokenizer_of(small_model)(words)["input_word_ids"].numpy()[:, 1]
    for word_id in vocabulary:
        assert (validation_set.encoded["input_word_ids"] == word_id).any(axis=1).sum() >= 2 * windows
    # Closer together they are more, and a question is cut where the caller cuts it.
    closer = ValidationSet(SPAN, questions, tokenizer_of(small_model), 19, {"stride": 2})
    assert len(closer.encoded["input_word_ids"]) // closer.count > 2 * windows
