"""What the conformance suite needs to know of a task: tiny data and an oracle for each of its parts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import seqeval.metrics as seqeval
import tiny_finetuning
import tiny_questions
from official.nlp.tools import squad_evaluate_v1_1
from scipy.spatial.distance import cosine
from scipy.special import erf, expit, log_softmax
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef, roc_auc_score

from pocketbert.configs import TaskConfig

Arrays = Mapping[str, np.ndarray]
LABELS = ("low", "middle", "high")
WORDS = [*tiny_finetuning.GOOD, *tiny_finetuning.BAD, *tiny_finetuning.NEUTRAL]
RANDOM = np.random.default_rng(5)
COUNT = 37
TEXTS = [" ".join(RANDOM.choice(WORDS, RANDOM.integers(1, 15))) for _ in range(COUNT)]
CLASSES = [int(integer) for integer in RANDOM.integers(0, 3, COUNT)]


@dataclass(frozen=True)
class TaskCase:
    """A task on tiny data; for a kind of your own add one to `CASES`.

    Attributes:
      kind: the task's.
      head: the head's outputs from the encoder's outputs and the head's weights by path, in NumPy.
      loss_labels: labels of 3 rows with 7, 4 and 6 tokens, as `Task.loss` takes them.
      loss: the loss of outputs, labels and mask, from its equation, in NumPy.
      names: the labels of the task.
      write: writes a labelled file; of a supervised task, and so are all further fields.
      write_bad: writes one whose last example cannot be read.
      bad_row_problem: parts of the message for that: the place, the rule, what was received.
      suffix: of the files.
      columns: for `SupervisedTask.read`.
      metrics: the gate's metrics from the data and predictions, by a well-kept library.
      answer: what of a prediction is the answer.
      unstable: parts of an answer whose float32 sums differ between a model and its bundle.
      rows_per_example: rows of the network for one example.
    """

    kind: str
    head: Callable[[Arrays, Arrays], Arrays]
    loss_labels: np.ndarray
    loss: Callable[[Arrays, np.ndarray, np.ndarray], float]
    names: tuple[str, ...] = ()
    write: Callable[[Path], Any] = Path.touch
    write_bad: Callable[[Path], Any] = Path.touch
    bad_row_problem: Sequence[str] = ()
    suffix: str = ".tsv"
    columns: Mapping[str, Any] = field(default_factory=lambda: {"text_column": "text", "label_column": "label"})
    metrics: Callable[[Any, Sequence[Mapping[str, Any]]], Mapping[str, float]] | None = None
    answer: str = "label"
    unstable: tuple[str, ...] = ()
    rows_per_example: int = 1

    @property
    def config(self) -> TaskConfig:
        """The task's configuration."""
        return TaskConfig(kind=self.kind, labels=self.names)

    def answer_of(self, prediction: Mapping[str, Any]) -> Any:
        """The stable part of a prediction."""
        answer = prediction[self.answer]
        if not self.unstable:
            return answer
        return [{name: value for name, value in item.items() if name not in self.unstable} for item in answer]

    @property
    def counts(self) -> np.ndarray:
        """Number of terms of each row in the mean of the loss."""
        per_token = self.loss_labels.shape == (3, 7)
        return (self.loss_labels >= 0).sum(axis=1) if per_token else np.ones(3)


@dataclass(frozen=True)
class SeveralCase(TaskCase):
    """A class and the tags of words for each text.

    Attributes:
      heads: the heads.
    """

    heads: tuple[TaskConfig, ...] = ()

    @property
    def config(self) -> TaskConfig:
        return TaskConfig(kind=self.kind, tasks=self.heads)

    def answer_of(self, prediction: Mapping[str, Any]) -> Any:
        spans = [{name: span[name] for name in ("text", "label", "start")} for span in prediction["slots"]["spans"]]
        return {"mood": prediction["mood"]["label"], "slots": spans}


def table(cells: Sequence[Any]) -> Callable[[Path], Any]:
    """Writes the texts with these labels."""
    rows = "".join(f"{text}\t{cell}\n" for text, cell in zip(TEXTS, cells, strict=True))
    return lambda path: path.write_text(f"text\tlabel\n{rows}", encoding="utf-8")


def sentence(encoded: Arrays, weights: Arrays) -> np.ndarray:
    """Logits of BERT's pooled output."""
    return encoded["pooled_output"] @ weights["output.kernel"] + weights["output.bias"]


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> float:
    """The mean over rows, nats."""
    return float(-np.mean(log_softmax(logits, axis=-1)[np.arange(len(labels)), labels]))


def binary_cross_entropy(logits: np.ndarray, labels: np.ndarray) -> float:
    probability = expit(logits)
    return float(-np.mean(np.where(labels == 1, np.log(probability), np.log(1 - probability))))


def span_loss(outputs: Arrays, labels: np.ndarray, mask: np.ndarray) -> float:
    ends = [
        cross_entropy(outputs[name][row : row + 1, mask[row] == 1], labels[row : row + 1, column])
        for column, name in enumerate(("start_logits", "end_logits"))
        for row in range(len(mask))
    ]
    return float(np.mean(ends))


def span_head(encoded: Arrays, weights: Arrays) -> Arrays:
    logits = encoded["sequence_output"] @ weights["output.kernel"] + weights["output.bias"]
    return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}


def masked_lm_head(encoded: Arrays, weights: Arrays) -> Arrays:
    """BERT's: a transform with GELU and a LayerNorm, then the word embeddings."""
    x = encoded["sequence_output"] @ weights["transform.kernel"] + weights["transform.bias"]
    x = x * (1 + erf(x / np.sqrt(2))) / 2
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
    x = x * weights["norm.gamma"] + weights["norm.beta"]
    return {"prediction_logits": x @ encoded["word_table"].T + weights["bias"]}


def class_metrics(data: Any, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    truth, predicted = [LABELS[label] for label in data.labels], [prediction["label"] for prediction in predictions]
    probabilities = probability_table(predictions)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    by_label = dict(zip(LABELS, f1_score(truth, predicted, labels=LABELS, average=None, zero_division=0), strict=True))
    return {
        "accuracy": accuracy_score(truth, predicted),
        "matthews": matthews_corrcoef(truth, predicted),
        "macro_f1": f1_score(truth, predicted, average="macro", zero_division=0),
        "auroc": roc_auc_score(data.labels, probabilities, multi_class="ovr"),
        **{f"f1:{label}": value for label, value in by_label.items()},
    }


def probability_table(predictions: Sequence[Mapping[str, Any]]) -> np.ndarray:
    return np.array([[prediction["probabilities"][label] for label in LABELS] for prediction in predictions])


def multi_label_metrics(data: Any, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    predicted = np.array([[label in prediction["labels"] for label in LABELS] for prediction in predictions], int)
    averages = {
        f"{name}_f1": f1_score(data.labels, predicted, average=name, zero_division=0) for name in ("micro", "macro")
    }
    table = probability_table(predictions)
    # Labels that no example, or every example, has do not count.
    varied = np.flatnonzero(np.ptp(data.labels, axis=0))
    by_label = dict(zip(LABELS, f1_score(data.labels, predicted, average=None, zero_division=0), strict=True))
    return {
        **averages,
        "subset_accuracy": accuracy_score(data.labels, predicted),
        "auroc": np.mean([roc_auc_score(data.labels[:, column], table[:, column]) for column in varied]),
        **{f"f1:{label}": value for label, value in by_label.items()},
    }


def score_metrics(data: Any, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    predicted = [prediction["score"] for prediction in predictions]
    return {"pearson": pearsonr(data.labels, predicted)[0], "spearman": spearmanr(data.labels, predicted)[0]}


def span_metrics(data: Any, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Scores by seqeval of tags made from the predicted offsets."""
    predicted = []
    for words, prediction in zip(data.words, predictions, strict=True):
        tags = ["O"] * len(words)
        for span in prediction["spans"]:
            inside = [word for word, (start, end) in enumerate(words) if span["start"] <= start and end <= span["end"]]
            assert words[inside[0]][0] == span["start"] and words[inside[-1]][1] == span["end"]
            for word in inside:
                tags[word] = f"{'B' if word == inside[0] else 'I'}-{span['label']}"
        predicted.append(tags)
    scores = {"f1": seqeval.f1_score, "precision": seqeval.precision_score, "recall": seqeval.recall_score}
    results = {name: score(data.tags, predicted, zero_division=0) for name, score in scores.items()}
    return {**results, "accuracy": seqeval.accuracy_score(data.tags, predicted)}


def random_tags() -> list[list[str]]:
    """IOB2 tags of the words of each text."""
    generator, of_texts = np.random.default_rng(7), []
    for text in TEXTS:
        before, chosen = "O", []
        for _ in text.split():
            tags = ["O", "B-low", "B-high", *([f"I{before[1:]}"] * 2 if before != "O" else [])]
            before = str(generator.choice(tags))
            chosen.append(before)
        of_texts.append(chosen)
    return of_texts


def write_tags(path: Path, last: str = "O") -> None:
    """Writes the texts as a CoNLL file of four columns, with the tag `last` at the end."""
    sentences = [
        "".join(f"{word} X Y {tag}\n" for word, tag in zip(text.split(), tags, strict=True))
        for text, tags in zip(TEXTS, random_tags(), strict=True)
    ]
    path.write_text("\n".join(sentences).rsplit(" ", 1)[0] + f" {last}\n", encoding="utf-8")


def token_head(encoded: Arrays, weights: Arrays) -> Arrays:
    return {"token_logits": encoded["sequence_output"] @ weights["output.kernel"] + weights["output.bias"]}


def write_heads(path: Path, last: str = "O") -> None:
    """Writes the texts with a class and tags of their words, with the tag `last` at the end."""
    tags = random_tags()
    tags[-1][-1] = last
    rows = zip(TEXTS, CLASSES, tags, strict=True)
    lines = [{"text": text, "mood": LABELS[class_], "tags": " ".join(of_text)} for text, class_, of_text in rows]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def both_heads(encoded: Arrays, weights: Arrays) -> Arrays:
    """A head on the first token and one on each token."""
    outputs = {}
    for name, output, read in (("mood", "logits", "pooled"), ("slots", "token_logits", "sequence")):
        kernel, bias = (weights[f"parts.{name}.output.{part}"] for part in ("kernel", "bias"))
        outputs[f"{name}_{output}"] = encoded[f"{read}_output"] @ kernel + bias
    return outputs


def both_losses(outputs: Arrays, labels: np.ndarray, mask: np.ndarray) -> float:
    """The loss of the classes, and twice that of the tags."""
    classes, tags = labels[:, 0].astype(int), labels[:, 1:].astype(int)
    of_words = cross_entropy(outputs["slots_token_logits"][tags >= 0], tags[tags >= 0])
    return cross_entropy(outputs["mood_logits"], classes) + 2 * of_words


def metrics_of_heads(data: Any, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    mood, slots = (
        metrics(data.parts[name], [prediction[name] for prediction in predictions])
        for name, metrics in (("mood", class_metrics), ("slots", span_metrics))
    )
    named = {f"mood_{name}": value for name, value in mood.items()}
    named |= {f"slots_{name}": value for name, value in slots.items()}
    return {"mean_of_heads": (mood["accuracy"] + slots["f1"]) / 2, **named}


def squad_metrics(data: Any, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    answers = {question.id: prediction["answer"] for question, prediction in zip(data, predictions, strict=True)}
    scores = squad_evaluate_v1_1.evaluate(json.loads(data.path.read_text())["data"], answers)
    return {"exact_match": scores["exact_match"], "f1": scores["final_f1"]}


def grade_metrics(data: Any, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    predicted = [LABELS.index(prediction["label"]) for prediction in predictions]
    return {"accuracy": accuracy_score(data.labels, predicted), "spearman": spearmanr(data.labels, predicted)[0]}


def write_bad_questions(path: Path) -> None:
    tiny_questions.write_questions(path, 3, 3)
    document = json.loads(path.read_text(encoding="utf-8"))
    document["data"][0]["paragraphs"][-1]["qas"][0]["answers"] = [{"text": "purple", "answer_start": 1}]
    path.write_text(json.dumps(document), encoding="utf-8")


def mean_embedding(encoded: Arrays, weights: Arrays) -> Arrays:
    """The mean over the tokens, with length 1 (https://www.sbert.net/docs/package_reference/sentence_transformer)."""
    mask = encoded["input_mask"][:, :, None]
    mean = (encoded["sequence_output"] * mask).sum(axis=1) / mask.sum(axis=1)
    return {"embedding": mean / np.linalg.norm(mean, axis=-1, keepdims=True)}


def cosine_loss(outputs: Arrays, labels: np.ndarray, mask: np.ndarray) -> float:
    distances = [cosine(*pair) for pair in zip(outputs["embedding"][::2], outputs["embedding"][1::2], strict=True)]
    return float(np.mean((1 - np.array(distances) - labels[::2]) ** 2))


def similarity_metrics(data: Any, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    predicted = [prediction["similarity"] for prediction in predictions]
    return {"pearson": pearsonr(data.labels, predicted)[0], "spearman": spearmanr(data.labels, predicted)[0]}


def write_pairs(scores: Sequence[Any]) -> Callable[[Path], Any]:
    rows = zip(TEXTS, [*TEXTS[3:], *TEXTS[:3]], scores, strict=True)
    lines = "".join(f"{text}\t{pair}\t{score}\n" for text, pair, score in rows)
    return lambda path: path.write_text(f"text\tother\tlabel\n{lines}", encoding="utf-8")


def logits_of_sentence(encoded: Arrays, weights: Arrays) -> Arrays:
    return {"logits": sentence(encoded, weights)}


TAGS = ("O", "B-low", "I-low", "B-high", "I-high")
# Words of two and three tokens have one label.
TAG_INDICES = np.array([[-1, 0, 2, -1, 4, 1, -1], [-1, 3, -1, -1, -1, -1, -1], [-1, 1, 2, -1, 0, -1, -1]], "i4")
NAMES_OF_ROWS = [LABELS[class_] for class_ in CLASSES]
CASES: dict[str, TaskCase] = {
    case.kind: case
    for case in (
        TaskCase(
            kind="classification",
            head=logits_of_sentence,
            loss_labels=np.array([2, 0, 1], np.int32),
            loss=lambda outputs, labels, mask: cross_entropy(outputs["logits"], labels),
            names=LABELS,
            write=table(NAMES_OF_ROWS),
            write_bad=table([*NAMES_OF_ROWS[:-1], "purple"]),
            bad_row_problem=("line 38", "must be one of low, middle, high", "received 'purple'"),
            metrics=class_metrics,
        ),
        TaskCase(
            kind="multi_label",
            head=logits_of_sentence,
            loss_labels=np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]], np.int32),
            loss=lambda outputs, labels, mask: binary_cross_entropy(outputs["logits"], labels),
            names=LABELS,
            write=table(["|".join(LABELS[: class_ + 1]) for class_ in CLASSES]),
            write_bad=table([*NAMES_OF_ROWS[:-1], "low|purple"]),
            bad_row_problem=("line 38", "must be from low, middle, high", "received 'purple'"),
            metrics=multi_label_metrics,
            answer="labels",
        ),
        TaskCase(
            kind="regression",
            head=lambda encoded, weights: {"logits": sentence(encoded, weights)[:, 0]},
            loss_labels=np.array([0.25, -1.5, 3.0], np.float32),
            loss=lambda outputs, labels, mask: float(np.mean((outputs["logits"] - labels) ** 2)),
            write=table([name + index / 100 for index, name in enumerate(CLASSES)]),
            write_bad=table([0.5] * (COUNT - 1) + ["good"]),
            bad_row_problem=("line 38", "must be a", "received 'good'"),
            metrics=score_metrics,
            answer="score",
        ),
        TaskCase(
            kind="span",
            head=span_head,
            loss_labels=np.array([[3, 6], [0, 0], [1, 2]], np.int32),
            loss=span_loss,
            write=lambda path: tiny_questions.write_questions(path, 17, 3),
            write_bad=write_bad_questions,
            bad_row_problem=("paragraph 3", "the answer 'purple' must be in the context", "received 'he fil'"),
            suffix=".json",
            columns={},
            metrics=squad_metrics,
            answer="answer",
        ),
        TaskCase(
            kind="token_classification",
            head=token_head,
            loss_labels=TAG_INDICES,
            loss=lambda outputs, labels, mask: cross_entropy(outputs["token_logits"][labels >= 0], labels[labels >= 0]),
            names=TAGS,
            write=write_tags,
            write_bad=lambda path: write_tags(path, "purple"),
            bad_row_problem=("line 3", "a tag must be O, or B-, I-, E- or S- and a type", "received 'purple'"),
            suffix=".conll",
            columns={},
            metrics=span_metrics,
            answer="spans",
            unstable=("probability",),
        ),
        TaskCase(
            kind="embedding",
            head=mean_embedding,
            loss_labels=np.array([0.25, -0.5, 0.75], np.float32),
            loss=cosine_loss,
            write=write_pairs([name / 2 - index / 100 for index, name in enumerate(CLASSES)]),
            write_bad=write_pairs([0.5] * (COUNT - 1) + ["good"]),
            bad_row_problem=("line 38", "must be a", "received 'good'"),
            columns={"text_column": "text", "pair_column": "other", "label_column": "label"},
            metrics=similarity_metrics,
            answer="similarity",
            rows_per_example=2,
        ),
        SeveralCase(
            kind="several",
            heads=(
                TaskConfig(kind="classification", name="mood", labels=LABELS),
                TaskConfig(kind="token_classification", name="slots", labels=TAGS, weight=2.0),
            ),
            head=both_heads,
            loss_labels=np.concatenate([np.array([[2], [0], [1]]), TAG_INDICES], axis=1).astype(np.float32),
            loss=both_losses,
            write=write_heads,
            write_bad=lambda path: write_heads(path, "purple"),
            bad_row_problem=("line 37", "a tag must be O, or B-, I-, E- or S- and a type", "received 'purple'"),
            suffix=".jsonl",
            columns={"labels": {"slots": "tags"}},
            metrics=metrics_of_heads,
        ),
        TaskCase(
            kind="masked_lm",
            head=masked_lm_head,
            loss_labels=np.array([[3, -1, -1, 96, -1, 5, -1], [-1] * 7, [-1, -100, 50, -1, -1, -1, -1]], np.int32),
            loss=lambda outputs, labels, mask: cross_entropy(
                outputs["prediction_logits"][labels >= 0], labels[labels >= 0]
            ),
        ),
        TaskCase(
            kind="next_sentence",
            head=lambda encoded, weights: {"seq_relationship_logits": sentence(encoded, weights)},
            loss_labels=np.array([1, 0, 0], np.int32),
            loss=lambda outputs, labels, mask: cross_entropy(outputs["seq_relationship_logits"], labels),
        ),
        TaskCase(
            kind="grades",
            head=logits_of_sentence,
            loss_labels=np.array([2, 0, 1], np.int32),
            loss=lambda outputs, labels, mask: binary_cross_entropy(outputs["logits"], labels[:, None] > np.arange(2)),
            names=LABELS,
            write=table(NAMES_OF_ROWS),
            write_bad=table([*NAMES_OF_ROWS[:-1], "purple"]),
            bad_row_problem=("line 38", "must be one of low, middle, high", "received 'purple'"),
            metrics=grade_metrics,
        ),
    )
}
