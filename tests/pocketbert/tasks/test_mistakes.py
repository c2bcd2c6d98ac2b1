"""Wrong answers in reports, compared with `predict` on the same outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_finetuning
import tiny_questions
from scipy.special import expit, softmax

from pocketbert.configs import TaskConfig
from pocketbert.data.batches import EncodedExamples
from pocketbert.data.examples import Examples
from pocketbert.data.readers.questions import QuestionFile
from pocketbert.data.readers.tagged_texts import read_tagged
from pocketbert.tasks.mistakes import excerpt, most_certain
from pocketbert.tasks.registry import supervised_task, text_task
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

RANDOM = np.random.default_rng(11)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> WordPieceTokenizer:
    path = tmp_path_factory.mktemp("mistakes") / "vocab.txt"
    words = [*tiny_finetuning.SPECIAL, *tiny_finetuning.GOOD, *tiny_finetuning.BAD, *tiny_finetuning.NEUTRAL]
    path.write_text("\n".join(words) + "\n", encoding="utf-8")
    return WordPieceTokenizer(path)


def answers(**sizes: int) -> Any:
    """A network whose outputs per token depend on the word ids only."""

    def forward(encoded: EncodedExamples, *, show_progress: bool = False) -> dict[str, np.ndarray]:
        table = np.random.default_rng(3).normal(0, 2, (64, 8)).astype(np.float32)
        rows = table[encoded.word_ids]
        outputs, column = {}, 0
        for name, size in sizes.items():
            outputs[name] = rows[:, column] if size == 1 else rows[:, column : column + size]
            column += size
        return outputs

    return forward


def examples(labels: np.ndarray, *, pairs: bool = False) -> Examples:
    texts = [f"text {index}" for index in range(len(labels))]
    return Examples(texts, [f"pair {text}" for text in texts] if pairs else None, labels, texts, "here")


def test_most_certain_wrong_class_comes_first() -> None:
    task = text_task(TaskConfig(kind="classification", labels=("low", "middle", "high")))
    logits = RANDOM.normal(0, 2, (97, 3)).astype(np.float32)
    data = examples(RANDOM.integers(0, 3, 97).astype(np.int32), pairs=True)
    actual = task.mistakes(data, logits)
    probabilities, labels = softmax(logits.astype(np.float64), axis=1), data.labels
    assert labels is not None
    wrong = [index for index in range(97) if probabilities[index].argmax() != labels[index]]
    assert len(wrong) > 21
    expected = sorted(wrong, key=lambda index: -probabilities[index].max())[:20]
    assert [mistake.text for mistake in actual] == [f"text {index}" for index in expected]
    assert [mistake.index for mistake in actual] == expected
    assert {mistake.index for mistake in task.mistakes(data, logits, None)} == {*wrong}
    assert [value.pair for value in actual] == [f"pair text {index}" for index in expected]
    for mistake, index in zip(actual, expected, strict=True):
        assert mistake.label == task.config.labels[labels[index]]
        assert mistake.prediction == task.config.labels[int(probabilities[index].argmax())] != mistake.label
        assert mistake.probability == pytest.approx(probabilities[index].max())


def test_one_wrong_label_makes_a_mistake() -> None:
    task = text_task(TaskConfig(kind="multi_label", labels=("rude", "loud", "short")))
    data = examples(np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]], np.int32))
    logits = np.array([[2.0, -1.0, 3.0], [-4.0, 1.5, -9.0], [0.5, 2.5, -0.25]], np.float32)
    mistakes = task.mistakes(data, logits)
    # A right decision of 9 is more certain, but not wrong.
    assert [(mistake.text, mistake.label, mistake.prediction) for mistake in mistakes] == [
        ("text 1", "no label", "loud"),
        ("text 2", "loud", "rude, loud"),
    ]
    assert [mistake.probability for mistake in mistakes] == pytest.approx([expit(1.5), expit(0.5)])


def test_largest_error_comes_first_for_scores() -> None:
    labels = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    actual = text_task(TaskConfig(kind="regression")).mistakes(examples(labels), labels + [0.5, -2, 0, 1])
    assert [(mistake.text, mistake.label, mistake.prediction) for mistake in actual] == [
        ("text 1", "2", "0"), ("text 3", "4", "5"), ("text 0", "1", "1.5"),
    ]  # fmt: skip
    assert {mistake.probability for mistake in actual} == {None}


def test_wrong_spans_are_named(tmp_path: Path, tokenizer: WordPieceTokenizer) -> None:
    tags = {"good": "B-MOOD", "superb": "B-MOOD", "bad": "B-FLAW"}
    lines = []
    for _ in range(31):
        words = RANDOM.choice([*tags, "the", "film", "plot"], RANDOM.integers(2, 9)).tolist()
        lines.append("".join(f"{word} {tags.get(word, 'O')}\n" for word in words))
    (tmp_path / "dev.conll").write_text("\n".join(lines), encoding="utf-8")
    data = read_tagged(tmp_path / "dev.conll")
    task = supervised_task(
        TaskConfig(kind="token_classification", labels=("O", "B-FLAW", "I-FLAW", "B-MOOD", "I-MOOD"))
    )
    evaluator = task.evaluator(answers(token_logits=5), data, tokenizer, 24)
    evaluator.scores()
    mistakes = evaluator.mistakes()
    predicted = task.predict(data.texts, answers(token_logits=5), tokenizer, 24)
    shown = {
        text: ", ".join(f"{span['text']} ({span['label']})" for span in answer["spans"]) or "no span"
        for text, answer in zip(data.texts, predicted, strict=True)
    }
    assert mistakes and all(mistake.prediction == shown[mistake.text] for mistake in mistakes)
    assert all(data.texts[mistake.index] == mistake.text for mistake in mistakes)
    assert all(mistake.label != mistake.prediction for mistake in mistakes)
    certainties = [mistake.probability for mistake in mistakes if mistake.probability is not None]
    assert certainties == sorted(certainties, reverse=True) and len(certainties) == len(mistakes) <= 20


def test_wrong_answers_to_questions(tmp_path: Path, tokenizer: WordPieceTokenizer) -> None:
    questions = QuestionFile(tiny_questions.write_questions(tmp_path / "q.json", 61, 5, impossible=0.3))
    task = supervised_task(TaskConfig(kind="span", null_threshold=0.5))
    forward = answers(start_logits=1, end_logits=1)
    windows = {"max_length": tiny_questions.MAX_LENGTH}
    evaluator = task.evaluator(forward, questions, tokenizer, **windows)
    evaluator.scores()
    mistakes = evaluator.mistakes()
    question_list = list(questions)
    predicted = task.predict(
        [(question.question, question.context) for question in question_list], forward, tokenizer, **windows
    )
    # Different words: an answer is one word, so it is wrong unless it holds that word.
    wrong = sorted(
        (
            (answer["probability"], answer["answer"] or "no answer", " / ".join(question.answers) or "no answer")
            for question, answer in zip(question_list, predicted, strict=True)
            if not ({*question.answers} & {*answer["answer"].split()}) and (question.answers or answer["answer"])
        ),
        reverse=True,
    )
    assert len(wrong) > 20
    assert [mistake.probability for mistake in mistakes] == pytest.approx(
        [mistake[0] for mistake in wrong[:20]], abs=1e-5
    )
    assert {(mistake.prediction, mistake.label) for mistake in mistakes[:10]} <= {mistake[1:] for mistake in wrong}
    contexts = json.dumps([question.context for question in question_list])
    assert all(mistake.text == "the film" and str(mistake.pair).strip("… ") in contexts for mistake in mistakes)


def test_excerpt_keeps_the_answer() -> None:
    text = "a " * 200 + "answer" + " b" * 200
    part = excerpt(text, 400, 406, margin=9)
    assert part.startswith("… a") and "answer" in part and part.endswith("b …") and len(part) < 32
    assert excerpt("short answer", 6, 12) == "short answer"
    # One long word has no place to cut.
    assert "answer" in excerpt("x" * 300 + "answer" + "y" * 300, 300, 306)


def test_ties_keep_the_order_of_the_data() -> None:
    assert most_certain(np.array([True, False, True, True]), np.array([0.5, 0.9, 0.5, 0.7]), 2) == [3, 0]
