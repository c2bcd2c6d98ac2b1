"""Golden lines of each kind of task, with hand-made networks: windows by hand, and what a comparison notices."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pocketbert_runtime.answers.table import answers_of
from pocketbert_runtime.bundles.golden_answers import GoldenLine, GoldenReader, read_lines
from pocketbert_runtime.embedding_config import EmbeddingConfig
from pocketbert_runtime.forward import Outputs
from pocketbert_runtime.rows import TokenRows
from pocketbert_runtime.task_config import TaskConfig
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary
from pocketbert_runtime.tokenizers.wordpiece import WordPiece

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "##d"]
TABLE = np.random.default_rng(3).normal(size=(len(WORDS), 4)).astype(np.float32)
CLASSES = TaskConfig(kind="classification", name="mood", labels=("low", "middle", "high"))
TAGS = TaskConfig(kind="token_classification", name="slots", labels=("O", "B-X", "I-X"))
TASKS = {
    "classification": CLASSES,
    "multi_label": TaskConfig(kind="multi_label", labels=("low", "middle", "high")),
    "regression": TaskConfig(kind="regression"),
    "separate": TaskConfig(kind="classification", labels=("low", "middle", "high"), pairs="separate"),
    "embedding": TaskConfig(
        kind="embedding", embedding=EmbeddingConfig(prompts=(("query", "c "),), default_prompt="query", max_length=6)
    ),
    "span": TaskConfig(kind="span", null_threshold=0.0),
    "token_classification": TAGS,
    "several": TaskConfig(kind="several", tasks=(CLASSES, TAGS, TaskConfig(kind="regression", name="stars"))),
}
LENGTH = 8


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> WordPiece:
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("".join(f"{word}\n" for word in WORDS), encoding="utf-8")
    return WordPiece(Vocabulary(path=path))


def reader(name: str, tokenizer: WordPiece, *, noise: float = 0.0) -> GoldenReader:
    """A network whose outputs per token depend on id and position; those per example are their sums."""
    task = answers_of(TASKS[name], "the network")

    def forward(rows: TokenRows, *, show_progress: bool = False) -> Outputs:
        position = np.concatenate([np.arange(size) for size in np.diff(rows.offsets)])
        tokens = TABLE[rows.word_ids] + np.sin(position)[:, np.newaxis] * TABLE[0] + noise
        starts = rows.offsets[: -1 : rows.rows_per_example]
        sums = np.add.reduceat(tokens, starts)
        outputs = {"logits": sums[:, :3], "token_logits": tokens[:, :3], "embedding": sums}
        outputs |= {"start_logits": tokens[:, 0], "end_logits": tokens[:, 1]}
        if name == "regression":
            outputs["logits"] = sums[:, 0]
        outputs |= {"mood_logits": sums[:, :3], "slots_token_logits": tokens[:, :3], "stars_logits": sums[:, 0]}
        return {output: outputs[output].astype(np.float32) for output in task.output_names}

    return GoldenReader(task, tokenizer, task.max_length(LENGTH), forward)


INPUTS: dict[str, list[Mapping[str, str]]] = {
    "classification": [{"text": ""}, {"text": "a bd c d a b"}, {"text": "a b", "pair": "c d a b a"}],
    "multi_label": [{"text": "a"}, {"text": "b b d", "pair": ""}],
    "regression": [{"text": "a"}, {"text": "b b d", "pair": "c"}],
    "separate": [{"text": "a b", "pair": "c bd"}],
    "embedding": [{"text": "a b"}, {"text": "a b a b a b"}],
    "span": [{"question": "a", "context": "b c d a b c d"}, {"question": "c", "context": ""}],
    "token_classification": [{"text": ""}, {"text": "a bd c d a b c d b"}],
    "several": [{"text": "a bd"}, {"text": "a bd c d a b c d b"}],
}


@pytest.mark.parametrize("name", TASKS)
def test_lines_agree_with_themselves(name: str, tokenizer: WordPiece) -> None:
    lines = [reader(name, tokenizer).line(one)[0] for one in INPUTS[name]]
    content = "".join(f"{line.to_json()}\n" for line in lines).encode()
    stored = read_lines(content, Path("answers.jsonl"))
    assert [line.windows for line in stored] == [line.windows for line in lines]
    assert reader(name, tokenizer).problems(stored, 1e-5) == []


def ids_and_offsets(line: GoldenLine) -> list[tuple[list[int], list[tuple[int, int]]]]:
    return [([*window.ids], [*window.offsets]) for window in line.windows]


def test_pairs_share_a_row(tokenizer: WordPiece) -> None:
    line, _ = reader("classification", tokenizer).line({"text": "a bd", "pair": " c"})
    assert ids_and_offsets(line) == [
        ([2, 5, 6, 9, 3, 7, 3], [(0, 0), (0, 1), (2, 3), (3, 4), (0, 0), (1, 2), (0, 0)]),
    ]
    assert line.windows[0].type_ids == (0, 0, 0, 0, 0, 1, 1)


def test_long_texts_are_cut(tokenizer: WordPiece) -> None:
    line, _ = reader("classification", tokenizer).line({"text": "a b c d a b c d"})
    assert ids_and_offsets(line)[0][0] == [2, 5, 6, 7, 8, 5, 6, 3]
    tail = WordPiece(dataclasses.replace(tokenizer.vocabulary, truncation="tail"))
    line, _ = reader("classification", tail).line({"text": "a b c d a b c d"})
    offsets = [(0, 0), (4, 5), (6, 7), (8, 9), (10, 11), (12, 13), (14, 15), (0, 0)]
    assert ids_and_offsets(line) == [([2, 7, 8, 5, 6, 7, 8, 3], offsets)]


def test_separate_texts_have_a_row_each(tokenizer: WordPiece) -> None:
    line, _ = reader("separate", tokenizer).line({"text": "a", "pair": "c bd"})
    assert ids_and_offsets(line) == [
        ([2, 5, 3], [(0, 0), (0, 1), (0, 0)]),
        ([2, 7, 6, 9, 3], [(0, 0), (0, 1), (2, 3), (3, 4), (0, 0)]),
    ]


def test_prompts_count_in_offsets(tokenizer: WordPiece) -> None:
    line, _ = reader("embedding", tokenizer).line({"text": "a b a b"})
    assert ids_and_offsets(line) == [([2, 7, 5, 6, 5, 3], [(0, 0), (0, 1), (2, 3), (4, 5), (6, 7), (0, 0)])]


def test_questions_have_windows(tokenizer: WordPiece) -> None:
    # Four tokens of the paragraph fit, and windows start a third of eight tokens apart.
    line, _ = reader("span", tokenizer).line({"question": "a", "context": "b c d a b"})
    assert ids_and_offsets(line) == [
        ([2, 5, 3, 6, 7, 8, 5, 3], [(0, 0), (0, 1), (0, 0), (0, 1), (2, 3), (4, 5), (6, 7), (0, 0)]),
        ([2, 5, 3, 8, 5, 6, 3], [(0, 0), (0, 1), (0, 0), (4, 5), (6, 7), (8, 9), (0, 0)]),
    ]


def test_spans_have_windows(tokenizer: WordPiece) -> None:
    line, _ = reader("token_classification", tokenizer).line({"text": "a b c d a b c d"})
    assert [window.ids[1:-1] for window in line.windows] == [(5, 6, 7, 8, 5, 6), (7, 8, 5, 6, 7, 8)]


def test_networks_without_a_task_have_windows_alone(tokenizer: WordPiece) -> None:
    bare = GoldenReader(None, tokenizer, LENGTH)
    line, outputs = bare.line({"text": "a", "pair": "b"})
    assert line.answer is None and outputs == {} and line.windows[0].ids == (2, 5, 3, 6, 3)
    assert bare.problems([line], 0.0) == []
    answered = dataclasses.replace(line, answer={"score": 1.0})
    assert "must have no answer, because the bundle has no task" in bare.problems([answered], 0.0)[0]


@pytest.mark.parametrize("name", TASKS)
def test_other_networks_are_noticed(name: str, tokenizer: WordPiece) -> None:
    lines = [reader(name, tokenizer).line(one)[0] for one in INPUTS[name]]
    # Softmax ignores a constant in all logits.
    other = reader(name, tokenizer, noise=1.0) if name in ("regression", "multi_label", "embedding") else None
    if other is None:
        changed = [dataclasses.replace(line, answer=_changed(line.answer)) for line in lines]
        assert all(reader(name, tokenizer).problems([line], 1e-5) for line in changed)
    else:
        assert len(other.problems(lines, 1e-5)) == len(lines)


def _changed(value: Any) -> Any:
    """Adds 0.01 to each number with a fraction; an answer without any gets another form."""
    if isinstance(value, dict):
        return {name: _changed(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_changed(part) for part in value] or ["x"]
    return value + 0.01 if isinstance(value, float) else value


def test_spans_may_differ_at_near_ties(tokenizer: WordPiece) -> None:
    tagger = reader("token_classification", tokenizer)
    answered = (tagger.line({"text": word}) for word in "abcd")
    line, outputs = next(one for one in answered if one[0].answer is not None and one[0].answer["spans"])
    (logits,) = outputs["token_logits"][1:-1].astype(np.float64)
    _, second, first = np.sort(np.exp(logits) / np.exp(logits).sum())
    assert line.answer is not None
    changed = dataclasses.replace(line, answer={"spans": [{**line.answer["spans"][0], "label": "Y"}]})
    assert tagger.problems([changed], 0.51 * (first - second)) == []
    (problem,) = tagger.problems([changed], 0.49 * (first - second))
    assert 'must have the spans[0].label "Y"' in problem


def test_answers_may_differ_at_near_ties(tokenizer: WordPiece) -> None:
    span = reader("span", tokenizer)
    inputs = {"question": "a", "context": "b c d"}
    line, outputs = span.line(inputs)
    assert line.answer is not None and line.answer["answer"]
    starts, ends = (outputs[f"{side}_logits"][3:6].astype(np.float64) for side in ("start", "end"))
    scores = {(2 * first, 2 * last + 1): starts[first] + ends[last] for first in range(3) for last in range(first, 3)}
    (best, score), (second, next_score) = sorted(scores.items(), key=lambda item: -item[1])[:2]
    assert (line.answer["start"], line.answer["end"]) == best
    start, end = second
    other = {**line.answer, "answer": inputs["context"][start:end], "start": start, "end": end}
    changed = dataclasses.replace(line, answer=other)
    assert span.problems([changed], 0.51 * (score - next_score)) == []
    assert span.problems([changed], 0.49 * (score - next_score))
