"""The formulas of docs/how-to/from-text-to-answer.md give the runtime's answers from ids and raw outputs.

The page's functions run here as they stand there. This file makes rows from tokens as the page says in words.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_tokenizers

import pocketbert_runtime
from pocketbert_runtime.answers.table import answers_of
from pocketbert_runtime.answers.words import continues, split_words
from pocketbert_runtime.forward import Outputs
from pocketbert_runtime.rows import TokenRows
from pocketbert_runtime.task_config import TaskConfig
from pocketbert_runtime.tokenizers.opening import open_tokenizer
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "how-to" / "from-text-to-answer.md").read_text(encoding="utf-8")
page: dict[str, Any] = {}
exec("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), page)

# Without the helper that makes networks, which loads TensorFlow.
WORDS = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] the a film is was good bad dull bright or and not very so story ends begins well "
    "badly . , ! cat dog sun rain walk ##s ##ed ##ing"
)
LABELS, TAGS = ("bad", "fair", "good"), ("O", "B-FILM", "I-FILM", "E-FILM", "CAT")
LIMIT = 13
TEXTS = [
    "the film is good .",
    "",
    "a dull cat walks , and the story begins well but ends badly ; is the sun not very bright ? the dog walks !",
    "映画は good マリア。 a cafe\u0301 ไทย dog",
    "[SEP] rain",
]
CONTEXTS = [
    "the story begins well . the cat walks and the film ends badly , but the sun is very bright",
    "naïve cafe\u0301 dogs e\u0302\u0323 film",
    "",
]
QUESTIONS = ["is the cat good ?", "", "is the film not so very dull and so very badly good or bad ?"]
# Outputs of real tokens for the ids and segments of a row.
Network = Callable[[Sequence[int], Sequence[int]], Mapping[str, np.ndarray]]


def random_network(shapes: Mapping[str, tuple[int | None, ...]]) -> Network:
    """Outputs that depend on a row's ids and segments alone, with ties; None is the number of tokens."""

    def network(ids: Sequence[int], types: Sequence[int]) -> dict[str, np.ndarray]:
        generator = np.random.default_rng(zlib.crc32(np.array([*ids, *types], np.int32).tobytes()))
        return {
            name: generator.normal(0, 2, [len(ids) if size is None else size for size in shape])
            .round(1)
            .astype(np.float32)
            for name, shape in shapes.items()
        }

    return network


class Forward:
    """The network as the runtime calls it."""

    def __init__(self, network: Network, shapes: Mapping[str, tuple[int | None, ...]]) -> None:
        self._network, self._shapes = network, shapes

    def __call__(self, encoded: TokenRows, *, show_progress: bool = False) -> Outputs:
        bounds = list(zip(encoded.offsets, encoded.offsets[1:], strict=False))
        rows = [self._network(encoded.word_ids[a:b].tolist(), encoded.type_ids[a:b].tolist()) for a, b in bounds]
        return {
            name: np.concatenate([row[name] if None in shape else row[name][np.newaxis] for row in rows])
            for name, shape in self._shapes.items()
        }


class Rows:
    """Rows of ids for a tokenizer, as the page's tables say; the ids and offsets of a text are the runtime's."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self.is_wordpiece = tokenizer, tokenizer.vocabulary.kind == "wordpiece"
        names = ("[CLS]", "[SEP]") if self.is_wordpiece else ("<s>", "</s>")
        self.first, self.last = (tokenizer.ids[name] for name in names)
        self.special = 3 if self.is_wordpiece else 4
        self.truncation = tokenizer.vocabulary.truncation

    def tokens(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        ids, starts, ends, _ = self._tokenizer.tokens([text])
        return ids.tolist(), list(zip(starts.tolist(), ends.tolist(), strict=True))

    def framed(self, ids: Sequence[int]) -> tuple[list[int], list[int]]:
        row = [self.first, *ids, self.last]
        return row, [0] * len(row)

    def framed_pair(self, first: Sequence[int], second: Sequence[int]) -> tuple[list[int], list[int]]:
        begin = [self.first, *first, *[self.last] * (self.special - 2)]
        return [*begin, *second, self.last], [0] * len(begin) + [int(self.is_wordpiece)] * (len(second) + 1)

    def row(self, text: str, pair: str | None = None) -> tuple[list[int], list[int]]:
        first = self.tokens(text)[0]
        if pair is None:
            room = LIMIT - 2
            if self.truncation.startswith("head-tail:") and len(first) > room:
                head = int(self.truncation.partition(":")[2])
                return self.framed([*first[:head], *first[len(first) - room + head :]])
            return self.framed(self._kept(first, min(len(first), room)))
        second, room = self.tokens(pair)[0], LIMIT - self.special
        if self.truncation == "only-second":
            lengths = min(len(first), room), min(len(second), room - min(len(first), room))
        else:
            lengths = page["pair_lengths"](len(first), len(second), room)
        return self.framed_pair(self._kept(first, lengths[0]), self._kept(second, lengths[1]))

    def _kept(self, ids: Sequence[int], count: int) -> Sequence[int]:
        return ids[len(ids) - count :] if self.truncation == "tail" else ids[:count]


def vocabulary(folder: Path) -> Path:
    """Writes the words' vocabulary."""
    path = folder / "vocab.txt"
    path.write_text("".join(f"{word}\n" for word in WORDS.split()), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Vocabulary]:
    folder = tmp_path_factory.mktemp("vocabularies")
    vocab, merges = tiny_tokenizers.byte_bpe_files(folder / "bpe")
    return {
        "wordpiece": Vocabulary(path=vocabulary(folder)),
        "byte_bpe": Vocabulary(path=vocab, merges=merges, kind="byte_bpe"),
    }


def opened(vocabulary: Vocabulary, truncation: str = "head") -> Any:
    return open_tokenizer(
        Vocabulary(path=vocabulary.path, merges=vocabulary.merges, kind=vocabulary.kind, truncation=truncation)
    )


def predict(task: TaskConfig, shapes: Any, tokenizer: Any, inputs: Sequence[Any]) -> tuple[Network, list[Any]]:
    """A random network for a task, and the runtime's answers."""
    network = random_network(shapes)
    answers = answers_of(task, "the test").predict(inputs, Forward(network, shapes), tokenizer, LIMIT)
    return network, answers


both = pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe"])


def text_answer(task: TaskConfig, logits: np.ndarray) -> dict[str, Any]:
    """The page's answer for one of the tasks with an answer per text."""
    decisions = None if task.decisions is None else vars(task.decisions)
    if task.kind == "regression":
        return {"score": float(logits)}
    return page["class_answer" if task.kind == "classification" else "labels_answer"](logits, task.labels, decisions)


@both
@pytest.mark.parametrize("truncation", ["head", "tail", "head-tail:3", "only-second"])
@pytest.mark.parametrize(
    "task",
    [
        TaskConfig(kind="classification", labels=LABELS),
        TaskConfig(kind="classification", labels=LABELS[:2], decisions={"thresholds": [0.3, 0.7]}),
        TaskConfig(kind="classification", labels=LABELS, decisions={"reject_below": 0.8}),
        TaskConfig(kind="multi_label", labels=LABELS),
        TaskConfig(kind="multi_label", labels=LABELS, decisions={"thresholds": [0.2, 0.5, 0.9]}),
        TaskConfig(kind="regression"),
    ],
    ids=["classes", "thresholds", "rejection", "labels", "labels with thresholds", "scores"],
)
def test_answers_for_texts_and_pairs(
    task: TaskConfig, truncation: str, kind: str, vocabularies: dict[str, Vocabulary]
) -> None:
    tokenizer = opened(vocabularies[kind], truncation)
    rows, shapes = Rows(tokenizer), {"logits": (len(task.labels),) if task.labels else ()}
    for inputs in ([(text, None) for text in TEXTS], [*zip(QUESTIONS, CONTEXTS, strict=True), (TEXTS[2], TEXTS[2])]):
        items = [text if pair is None else (text, pair) for text, pair in inputs]
        network, answers = predict(task, shapes, tokenizer, items)
        assert answers == [text_answer(task, network(*rows.row(*item))["logits"]) for item in inputs]


@both
def test_vectors_and_their_cosine(kind: str, vocabularies: dict[str, Vocabulary]) -> None:
    tokenizer, shapes = opened(vocabularies[kind]), {"embedding": (5,)}
    rows = Rows(tokenizer)
    prompts = {"prompts": [["query", "the cat "]], "default_prompt": "query", "max_length": LIMIT}
    task = TaskConfig(kind="embedding", embedding=prompts)
    network, answers = predict(task, shapes, tokenizer, TEXTS)
    vectors = [network(*rows.row(f"the cat {text}"))["embedding"] for text in TEXTS]
    assert answers == [{"embedding": vector.tolist()} for vector in vectors]
    _, similar = predict(task, shapes, tokenizer, [(TEXTS[0], text) for text in TEXTS])
    expected = [page["cosine"](vectors[0], vector) for vector in vectors]
    np.testing.assert_allclose([answer["similarity"] for answer in similar], expected, rtol=1e-12)


def tag_answer(rows: Rows, network: Network, text: str, labels: Sequence[str], *, windows: bool, name: str) -> Any:
    """The page's spans: the words' tokens count in their best windows."""
    ids, offsets = rows.tokens(text)
    room = LIMIT - 2
    begins = page["window_starts"](len(ids), room, min(LIMIT // 3, room)) if windows else [0]
    count = len(ids) if windows else min(len(ids), room)
    logits, shorter_side = np.zeros((count, len(labels)), np.float32), np.full(count, -1)
    for begin in begins:
        part = ids[begin : min(begin + room, count)]
        outputs = network(*rows.framed(part))[name][1:-1]
        for token in range(len(part)):
            side = min(token, len(part) - 1 - token)
            if side > shorter_side[begin + token]:
                shorter_side[begin + token], logits[begin + token] = side, outputs[token]
    words = split_words(text)
    starts = [start for start, _ in offsets[:count]]
    return page["tag_answer"](text, words.tolist(), continues(text, words).tolist(), starts, logits, labels)


@both
def test_spans_from_tags(kind: str, vocabularies: dict[str, Vocabulary]) -> None:
    tokenizer, task = opened(vocabularies[kind]), TaskConfig(kind="token_classification", labels=TAGS)
    network, answers = predict(task, {"token_logits": (None, len(TAGS))}, tokenizer, TEXTS)
    rows = Rows(tokenizer)
    assert answers == [tag_answer(rows, network, text, TAGS, windows=True, name="token_logits") for text in TEXTS]
    assert sum(len(answer["spans"]) for answer in answers) > 5


@both
def test_several_heads_read_the_beginning(kind: str, vocabularies: dict[str, Vocabulary]) -> None:
    tokenizer = opened(vocabularies[kind], "tail")
    mood = TaskConfig(kind="classification", name="mood", labels=LABELS, decisions={"reject_below": 0.6})
    slots = TaskConfig(kind="token_classification", name="slots", labels=TAGS)
    shapes = {"mood_logits": (3,), "slots_token_logits": (None, len(TAGS))}
    network, answers = predict(TaskConfig(kind="several", tasks=(mood, slots)), shapes, tokenizer, TEXTS)
    rows = Rows(tokenizer)
    for text, answer in zip(TEXTS, answers, strict=True):
        row = rows.framed(rows.tokens(text)[0][: LIMIT - 2])
        spans = tag_answer(rows, network, text, TAGS, windows=False, name="slots_token_logits")
        assert answer == {"mood": text_answer(mood, network(*row)["mood_logits"]), "slots": spans}


@both
def test_heads_for_texts_cut_as_usual(kind: str, vocabularies: dict[str, Vocabulary]) -> None:
    tokenizer = opened(vocabularies[kind], "tail")
    heads = (
        TaskConfig(kind="multi_label", name="topics", labels=LABELS),
        TaskConfig(kind="regression", name="stars"),
    )
    shapes = {"topics_logits": (3,), "stars_logits": ()}
    network, answers = predict(TaskConfig(kind="several", tasks=heads), shapes, tokenizer, TEXTS)
    rows = Rows(tokenizer)
    for text, answer in zip(TEXTS, answers, strict=True):
        outputs = network(*rows.row(text))
        assert answer == {head.name: text_answer(head, outputs[f"{head.name}_logits"]) for head in heads}


def question_windows(rows: Rows, network: Network, question: str, context: str) -> list[dict[str, Any]]:
    ids, offsets = rows.tokens(context)
    words = rows.tokens(question)[0][: min(64, LIMIT - rows.special - LIMIT // 3)]
    room = LIMIT - rows.special - len(words)
    first, windows = 1 + len(words) + rows.special - 2, []
    for begin in page["window_starts"](len(ids), room, min(LIMIT // 3, room)):
        part = slice(begin, begin + room)
        outputs = network(*rows.framed_pair(words, ids[part]))
        windows.append({**outputs, "begin": begin, "first": first, "offsets": offsets[part]})
    return windows


@both
@pytest.mark.parametrize("null_threshold", [None, -3.0, 0.0, 3.0])
def test_answers_to_questions(null_threshold: float | None, kind: str, vocabularies: dict[str, Vocabulary]) -> None:
    tokenizer = opened(vocabularies[kind])
    task = TaskConfig(kind="span", null_threshold=null_threshold)
    pairs = [(question, context) for question in QUESTIONS for context in CONTEXTS]
    network, answers = predict(task, {"start_logits": (None,), "end_logits": (None,)}, tokenizer, pairs)
    rows = Rows(tokenizer)
    for (question, context), answer in zip(pairs, answers, strict=True):
        windows = question_windows(rows, network, question, context)
        received = page["question_answer"](context, windows, null_threshold)
        assert received == pytest.approx(answer, abs=2e-6)
    assert len({answer["answer"] for answer in answers}) > 3


REAL = {
    "classification": TaskConfig(kind="classification", labels=LABELS),
    "multi_label": TaskConfig(kind="multi_label", labels=LABELS),
    "regression": TaskConfig(kind="regression"),
    "separate pairs": TaskConfig(kind="classification", labels=LABELS, pairs="separate"),
    "embedding": TaskConfig(kind="embedding", embedding={}),
    "token_classification": TaskConfig(kind="token_classification", labels=TAGS),
    "span": TaskConfig(kind="span", null_threshold=0.0),
}


@pytest.mark.one_of_each("token_classification")
@pytest.mark.parametrize("name", REAL)
def test_bundle_gives_the_pages_answers(name: str, tmp_path: Path) -> None:
    """From a file's outputs by position, with the page's inputs."""
    import networks

    import pocketbert as pb
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
    from pocketbert_export.exporter import export

    task, lengths = REAL[name], (7, LIMIT)
    config = networks.bert_config(max_position_embeddings=LIMIT, vocab_size=len(WORDS.split()))
    model = pb.from_preset(config, [task], WordPieceTokenizer(vocabulary(tmp_path)), seed=5)
    export(model, tmp_path / "bundle", recipe="float32", lengths=lengths, length_files=True)
    with pocketbert_runtime.Bundle.open(tmp_path / "bundle") as bundle:
        rows = Rows(bundle.tokenizer)
        if name == "span":
            pairs = list(zip(QUESTIONS, CONTEXTS, strict=True))
            expected = bundle.predict(pairs)
            received = [
                page["question_answer"](context, question_windows(rows, by_position(tmp_path), question, context), 0.0)
                for question, context in pairs
            ]
        elif name == "separate pairs":
            expected = bundle.predict([(TEXTS[0], text) for text in TEXTS])
            vectors = [by_position(tmp_path)(*rows.row(text))["embedding"] for text in TEXTS]
            received = [text_answer(task, of_head(tmp_path, vectors[0], vector)) for vector in vectors]
        else:
            expected = bundle.predict(TEXTS)
            received = [real_answer(task, rows, by_position(tmp_path), text) for text in TEXTS]
    for answer, other in zip(received, expected, strict=True):
        assert flat(answer) == pytest.approx(flat(other), abs=2e-6)


def flat(answer: Any) -> dict[str, Any]:
    """An answer's values by path, so that numbers compare with a tolerance."""
    if not isinstance(answer, dict | list):
        return {"": answer}
    items = answer.items() if isinstance(answer, dict) else enumerate(answer)
    return {f"/{key}{path}": value for key, part in items for path, value in flat(part).items()}


def real_answer(task: TaskConfig, rows: Rows, network: Network, text: str) -> Any:
    if task.kind == "token_classification":
        return tag_answer(rows, network, text, task.labels, windows=True, name="token_logits")
    outputs = network(*rows.row(text))
    if task.kind == "embedding":
        return {"embedding": outputs["embedding"].tolist()}
    return text_answer(task, outputs["logits"])


def by_position(folder: Path) -> Network:
    """A client without signatures, on the files with one length."""
    from ai_edge_litert.interpreter import Interpreter

    def network(ids: Sequence[int], types: Sequence[int]) -> dict[str, np.ndarray]:
        length, inputs = page["inputs_of"](list(ids), list(types), [7, LIMIT], 0)
        interpreter = Interpreter(model_path=str(folder / "bundle" / f"model_{length}.tflite"), num_threads=1)
        interpreter.allocate_tensors()
        order = re.findall(r"^\| \d \| `(\w+)` \|$", PAGE, re.MULTILINE)
        for detail, name in zip(interpreter.get_input_details(), order, strict=True):
            interpreter.set_tensor(detail["index"], inputs[name])
        interpreter.invoke()
        outputs = {
            detail["name"]: interpreter.get_tensor(detail["index"])[0] for detail in interpreter.get_output_details()
        }
        per_token = ("token_logits", "start_logits", "end_logits")
        return {name: values[: len(ids)] if name in per_token else values for name, values in outputs.items()}

    return network


def of_head(folder: Path, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    from ai_edge_litert.interpreter import Interpreter

    runner = Interpreter(model_path=str(folder / "bundle" / "head.tflite")).get_signature_runner("head")
    logits: np.ndarray = runner(first=first[np.newaxis], second=second[np.newaxis])["logits"][0]
    return logits
