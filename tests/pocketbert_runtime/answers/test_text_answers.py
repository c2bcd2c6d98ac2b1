"""Answers of each kind of task for hand-made outputs; expected values by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from pocketbert_runtime.answers.inputs import as_inputs, texts_and_pairs
from pocketbert_runtime.answers.table import ANSWERS, answers_of
from pocketbert_runtime.decision_config import DecisionConfig
from pocketbert_runtime.embedding_config import EmbeddingConfig
from pocketbert_runtime.errors import UserError
from pocketbert_runtime.forward import Forward, Outputs
from pocketbert_runtime.rows import TokenRows
from pocketbert_runtime.task_config import TASK_RULES, TaskConfig
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary
from pocketbert_runtime.tokenizers.wordpiece import WordPiece

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d"]
LABELS = ("low", "middle", "high")
Rule = Callable[[list[int]], Sequence[float] | float]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> WordPiece:
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("".join(f"{word}\n" for word in WORDS), encoding="utf-8")
    return WordPiece(Vocabulary(path=path))


def network(rule: Rule, output: str = "logits") -> Forward:
    """A network whose output for an example is a function of its ids without special tokens; `a` has the id 5."""

    def forward(encoded: TokenRows, *, show_progress: bool = False) -> Outputs:
        rows = encoded.offsets[:: encoded.rows_per_example]
        ids = [encoded.word_ids[start:end].tolist() for start, end in zip(rows, rows[1:], strict=False)]
        values = [rule([token for token in row if token > 4]) for row in ids]
        return {output: np.array(values, np.float32)}

    return forward


def class_logits(ids: list[int]) -> list[float]:
    """0 for `low`, and the logarithm of the number of `a` for `middle` and of `b` for `high`."""
    return [0.0, *(math.log(ids.count(token)) if token in ids else -50.0 for token in (5, 6))]


def counts(ids: list[int]) -> list[float]:
    """The numbers of `a`, `b` and `d`."""
    return [ids.count(token) for token in (5, 6, 8)]


def predicted(config: TaskConfig, rule: Rule, tokenizer: WordPiece, inputs: Sequence[Any], **options: Any) -> Any:
    output = "embedding" if config.kind == "embedding" else "logits"
    return answers_of(config, "the network").predict(inputs, network(rule, output), tokenizer, 11, **options)


def test_classes_have_probabilities(tokenizer: WordPiece) -> None:
    task = TaskConfig(kind="classification", labels=LABELS)
    answers = predicted(task, class_logits, tokenizer, ["a a a b", "b", "c"])
    assert [answer["label"] for answer in answers] == ["middle", "low", "low"]
    assert answers[0]["probabilities"] == {"low": 0.2, "middle": 0.6, "high": 0.2}
    best = predicted(task, class_logits, tokenizer, ["a a b b b b"], top_k=2)
    assert best[0]["top"] == [{"label": "high", "probability": 0.571429}, {"label": "middle", "probability": 0.285714}]
    soft = predicted(task, class_logits, tokenizer, ["a a b b b b"], soft_labels=True)
    # Logits are float32.
    assert soft[0]["probabilities"]["high"] == pytest.approx(4 / 7, abs=1e-7)


def test_threshold_of_two_classes_moves_the_answer(tokenizer: WordPiece) -> None:
    for threshold, label in ((0.26, "no"), (0.24, "yes")):
        decisions = DecisionConfig(thresholds=(1 - threshold, threshold))
        task = TaskConfig(kind="classification", labels=("no", "yes"), decisions=decisions)
        # Probabilities of 3/4 and 1/4.
        answers = predicted(task, lambda ids: [math.log(3), 0.0], tokenizer, ["a"])
        assert answers[0]["label"] == label


def test_uncertain_classes_are_rejected(tokenizer: WordPiece) -> None:
    task = TaskConfig(kind="classification", labels=LABELS, decisions=DecisionConfig(reject_below=0.61))
    answers = predicted(task, class_logits, tokenizer, ["a a a b", "a a a a a b"])
    assert [answer["label"] for answer in answers] == [None, "middle"]


def test_labels_are_independent(tokenizer: WordPiece) -> None:
    task = TaskConfig(kind="multi_label", labels=LABELS)
    answers = predicted(task, class_logits, tokenizer, ["a a a b", "c"])
    assert [answer["labels"] for answer in answers] == [["low", "middle", "high"], ["low"]]
    assert answers[0]["probabilities"] == {"low": 0.5, "middle": 0.75, "high": 0.5}
    decisions = DecisionConfig(thresholds=(0.51, 0.74, 0.5))
    strict = TaskConfig(kind="multi_label", labels=LABELS, decisions=decisions)
    assert predicted(strict, class_logits, tokenizer, ["a a a b"])[0]["labels"] == ["middle", "high"]


def test_scores_are_the_outputs(tokenizer: WordPiece) -> None:
    task = TaskConfig(kind="regression")
    assert predicted(task, len, tokenizer, ["a b", "", "c c c"]) == [{"score": 2.0}, {"score": 0.0}, {"score": 3.0}]


def test_vectors_have_prompts_and_similarities(tokenizer: WordPiece) -> None:
    prompts = ("query", "d "), ("passage", "b b ")
    embedding = EmbeddingConfig(prompts=prompts, default_prompt="query", max_length=4)
    task = TaskConfig(kind="embedding", embedding=embedding)
    assert predicted(task, counts, tokenizer, ["a a b"]) == [{"embedding": [2.0, 1.0, 1.0]}]
    pairs = predicted(task, counts, tokenizer, [("a", "b"), ("a b", "a b")])
    assert [pair["similarity"] for pair in pairs] == pytest.approx([0.5, 1.0])
    assert answers_of(task, "it").max_length(11) == 4
    assert predicted(task, counts, tokenizer, ["a"], prompt_name="passage") == [{"embedding": [1.0, 2.0, 0.0]}]
    with pytest.raises(
        UserError, match="prompt_name= must be one of query, passage; received 'question'; leave it out"
    ):
        predicted(task, counts, tokenizer, ["a"], prompt_name="question")


def test_separate_pairs_are_two_rows(tokenizer: WordPiece) -> None:
    task = TaskConfig(kind="regression", pairs="separate")
    assert predicted(task, len, tokenizer, [("a b", "c c c"), ("d", "")]) == [{"score": 5.0}, {"score": 1.0}]
    with pytest.raises(UserError, match=r"received single texts from the texts; give the second texts \(pairs\)"):
        predicted(task, len, tokenizer, ["a b"])


def test_windows_have_the_mean_probability(tokenizer: WordPiece) -> None:
    # Windows of nine tokens, three apart: those of the long text begin at 0, 3 and 6.
    inputs = ["a " * 10 + "b " * 5, "a"]
    task = TaskConfig(kind="multi_label", labels=("many",))
    answers = predicted(task, lambda ids: [ids.count(5) - 5.0], tokenizer, inputs, windows=True)
    expected = np.mean([1 / (1 + math.exp(-logit)) for logit in (4, 2, -1)])
    assert answers[0]["probabilities"]["many"] == pytest.approx(expected, abs=1e-6)
    assert answers[1]["probabilities"]["many"] == pytest.approx(1 / (1 + math.exp(4)), abs=1e-6)
    with pytest.raises(
        UserError, match="windows are for single texts; received pairs of texts; leave windows=True out"
    ):
        predicted(task, lambda ids: [0.0], tokenizer, [("a", "b")], windows=True)


def test_spans_are_parts_of_the_paragraph(tokenizer: WordPiece) -> None:
    def forward(encoded: TokenRows, *, show_progress: bool = False) -> Outputs:
        starts, ends = 4.0 * (encoded.word_ids == 7), 2.0 * (encoded.word_ids == 8)
        return {"start_logits": starts.astype(np.float32), "end_logits": ends.astype(np.float32)}

    for null_threshold, text, start, end, score in ((None, "c  d", 3, 7, 6.0), (-6.5, "", None, None, 0.0)):
        task = TaskConfig(kind="span", null_threshold=null_threshold)
        # The question has both tokens, too.
        (answer,) = answers_of(task, "it").predict([("c d", "b  c  d a")], forward, tokenizer, 13, n_best=1)
        assert (answer["answer"], answer["start"], answer["end"], answer["score"]) == (text, start, end, score)
        assert answer["answers"][0]["answer"] == "c  d"
    with pytest.raises(UserError, match="inputs must be pairs of question and paragraph; received 'b c'"):
        answers_of(TaskConfig(kind="span"), "it").predict(["b c"], forward, tokenizer, 13)


def tag_logits(ids: np.ndarray) -> np.ndarray:
    """The tag `B` for `b`, `I` for `c`, and `O` for all others."""
    best = np.select([ids == 6, ids == 7], [1, 2], 0)
    return 4 * np.eye(3, dtype=np.float32)[best]


@pytest.mark.parametrize("length", [5, 13])
def test_tags_of_words_become_spans(tokenizer: WordPiece, length: int) -> None:
    def forward(encoded: TokenRows, *, show_progress: bool = False) -> Outputs:
        return {"token_logits": tag_logits(encoded.word_ids)}

    task = TaskConfig(kind="token_classification", labels=("O", "B-X", "I-X"))
    answers = answers_of(task, "it").predict(["a b c  c a b", "", "d"], forward, tokenizer, length)
    # Softmax of 4, 0 and 0.
    probability = round(math.exp(4) / (math.exp(4) + 2), 6)
    assert answers[0]["spans"] == [
        {"text": "b c  c", "label": "X", "start": 2, "end": 8, "probability": probability},
        {"text": "b", "label": "X", "start": 11, "end": 12, "probability": probability},
    ]
    assert answers[1:] == [{"spans": []}, {"spans": []}]
    with pytest.raises(UserError, match=r"inputs must be texts; received a pair, \('a', 'b'\); pass one text each"):
        answers_of(task, "it").predict([("a", "b")], forward, tokenizer, length)


def test_several_heads_answer_each_text(tokenizer: WordPiece) -> None:
    def forward(encoded: TokenRows, *, show_progress: bool = False) -> Outputs:
        counts_of_a = network(lambda ids: ids.count(5))(encoded)["logits"]
        logits = np.stack([2 - counts_of_a, counts_of_a], axis=1)
        return {
            "intent_logits": logits,
            "slots_token_logits": tag_logits(encoded.word_ids),
            "stars_logits": counts_of_a,
        }

    heads = [
        {"kind": "classification", "name": "intent", "labels": ("few", "many")},
        {"kind": "token_classification", "name": "slots", "labels": ("O", "B-X", "I-X")},
        {"kind": "regression", "name": "stars"},
    ]
    answers = answers_of(TaskConfig(kind="several", tasks=heads), "it")
    assert answers.output_names == ("intent_logits", "slots_token_logits", "stars_logits")
    first, second = answers.predict(["a b a a", "c"], forward, tokenizer, 13)
    assert (first["intent"]["label"], second["intent"]["label"]) == ("many", "few")
    assert [span["text"] for span in (*first["slots"]["spans"], *second["slots"]["spans"])] == ["b", "c"]
    assert (first["stars"], second["stars"]) == ({"score": 3.0}, {"score": 0.0})


@pytest.mark.parametrize("kind", ANSWERS)
def test_no_inputs_have_no_answers(tokenizer: WordPiece, kind: str) -> None:
    labels = LABELS if TASK_RULES[kind].min_labels else ()
    tasks = [TaskConfig(kind="regression", name=name) for name in ("stars", "price")] if kind == "several" else None
    assert predicted(TaskConfig(kind=kind, labels=labels, tasks=tasks), len, tokenizer, []) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(("config", "received"), [(None, "none"), (TaskConfig(kind="masked_lm"), "masked_lm")])
def test_networks_without_answers_are_named(config: TaskConfig | None, received: str) -> None:
    with pytest.raises(UserError, match=f"^bundle must have a task of kind .* to predict; it has {received}$"):
        answers_of(config, "bundle")


def test_forms_of_inputs() -> None:
    pairs = [("a", "b"), {"text": "c", "pair": "d"}, {"question": "e", "context": "f"}, ["g", "h"]]
    assert texts_and_pairs(pairs) == (["a", "c", "e", "g"], ["b", "d", "f", "h"])
    assert texts_and_pairs([{"text": "a"}, "b"]) == (["a", "b"], None)
    assert as_inputs(np.array(["a", "b"])) == ["a", "b"] and as_inputs({"input_word_ids": 1}) is None
    with pytest.raises(UserError, match="predict takes a list of texts; received one text, 'a b'; put it into a list"):
        as_inputs("a b")
    for inputs in (["a", 7], ["a", ("b", "c")], [("a", "b", "c")]):
        with pytest.raises(UserError, match="inputs must be texts, or pairs of texts; received"):
            texts_and_pairs(inputs)
