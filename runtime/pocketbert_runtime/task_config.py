"""Task configurations, and the table of kinds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pocketbert_runtime.decision_config import DecisionConfig, decision_config
from pocketbert_runtime.embedding_config import EmbeddingConfig, dense_shapes, embedding_config
from pocketbert_runtime.errors import literal_problems, raise_if_any
from pocketbert_runtime.heads_config import part_problems, parts_of, weight_problems
from pocketbert_runtime.label_names import label_problems, shown

ScoreActivation = Literal["identity", "sigmoid"]
TaskKind: TypeAlias = str  # A key of `TASK_RULES`.
_LABELS_SHOWN = 5
# From the encoder's and the task's configuration, a head's weights: path in the head → shape.
HeadShapes: TypeAlias = "Callable[[Any, TaskConfig], Mapping[str, tuple[int, ...]]]"


@dataclass(frozen=True, kw_only=True)
class TaskRules:
    """A row in `TASK_RULES`: a task kind's rules for its configuration, and its names in model directories.

    Attributes:
      min_labels: minimum number of labels; 0 for a kind without labels.
      has_null_threshold: whether `TaskConfig.null_threshold` may be set.
      has_embedding: whether the task has a `TaskConfig.embedding`.
      head: layout of the head's weights: `linear` (one map, `output`), `sentence` or `masked_lm` (as in transformers'
        classes), `parts` (the heads in `TaskConfig.tasks`), or a function that returns shapes by path, for heads under
        their own paths; None to derive it.
      tensor: stored name of the linear map; for `sentence`, its name beside another sentence head.
      num_outputs: outputs of the map; None for one per label.
      architecture: transformers' class for such a head, without the family's prefix; empty for none.
      problem_type: `problem_type` in config.json, for kinds that share a class.
      reads: content of example files: a `table`, a table of `pairs`, texts with labelled `spans`, `questions`, or a
        table with a column for each head (`heads`); empty for texts without labels.
      label_form: labels in a table: one class, any number of labels, or a score.
    """

    min_labels: int = 0
    has_null_threshold: bool = False
    has_embedding: bool = False
    head: Literal["linear", "sentence", "masked_lm", "parts"] | HeadShapes | None = None
    tensor: str = ""
    num_outputs: int | None = None
    architecture: str = ""
    problem_type: str = ""
    reads: Literal["", "table", "pairs", "spans", "questions", "heads"] = "table"
    label_form: Literal["classification", "multi_label", "regression"] = "classification"


_SENTENCE = TaskRules(head="sentence", architecture="ForSequenceClassification")
# The built-in kinds, in the order of messages. Each has a file of its name in `pocketbert.tasks`.
TASK_RULES: dict[TaskKind, TaskRules] = {
    "classification": dataclasses.replace(
        _SENTENCE, min_labels=2, tensor="classifier", problem_type="single_label_classification"
    ),
    "multi_label": dataclasses.replace(
        _SENTENCE,
        min_labels=1,
        tensor="label_classifier",
        problem_type="multi_label_classification",
        label_form="multi_label",
    ),
    "regression": dataclasses.replace(
        _SENTENCE, num_outputs=1, tensor="regressor", problem_type="regression", label_form="regression"
    ),
    "span": TaskRules(
        has_null_threshold=True,
        head="linear",
        tensor="qa_outputs",
        num_outputs=2,
        architecture="ForQuestionAnswering",
        reads="questions",
    ),
    "token_classification": TaskRules(
        min_labels=2, head="linear", tensor="classifier", architecture="ForTokenClassification", reads="spans"
    ),
    "embedding": TaskRules(head=dense_shapes, has_embedding=True, reads="pairs"),
    "several": TaskRules(head="parts", reads="heads"),
    "masked_lm": TaskRules(head="masked_lm", architecture="ForMaskedLM", reads=""),
    "next_sentence": TaskRules(
        head="linear",
        tensor="cls.seq_relationship",
        num_outputs=2,
        architecture="ForNextSentencePrediction",
        reads="",
    ),
}


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """A head on an encoder and the meaning of its outputs.

    Attributes:
      kind: a key of `TASK_RULES`.
      name: the task's name, for example `sst2`, or empty. Several heads of one kind need different names.
      labels: class or label names in the logits' order; empty for kinds without labels. A list becomes a tuple. Each
        label is one line; labels must differ in more than case or white space.
      dropout: dropout rate in front of the head.
      pooling: for sentence heads: `mean` reads the tokens' mean, scaled to length 10; None reads the first
        token, through a tanh layer where the family has one.
      pairs: for sentence heads: `separate` reads a pair's two texts one by one, and the head reads their vectors u and
        v as [u, v, |u − v|, u·v]; None reads both texts together.
      null_threshold: for spans: the answer is empty if [CLS], as start and end, scores higher than the best answer by
        more than this; None to answer every question.
      embedding: for embeddings: pooling, dense layer and prompts; or an object with these fields.
      activation: for regression: `sigmoid` gives scores from 0 to 1, as sentence-transformers' rerankers do; None, or a
        reranker's `identity`, gives the logit.
      decisions: for classes and labels: answer thresholds, or an object with their fields; None for the defaults.
      tasks: for `several`: its heads' tasks, with different names of letters and digits, or objects with their fields.
      weight: for a head in `several`: weight of its loss in the sum; None for 1.
    """

    kind: TaskKind
    name: str = ""
    labels: tuple[str, ...] = ()
    dropout: float = 0.1
    pooling: Literal["mean"] | None = None
    pairs: Literal["separate"] | None = None
    null_threshold: float | None = None
    embedding: EmbeddingConfig | None = None
    activation: ScoreActivation | None = None
    decisions: DecisionConfig | None = None
    tasks: tuple[TaskConfig, ...] | None = None
    weight: float | None = None

    def __post_init__(self) -> None:
        problems = []
        if self.kind not in TASK_RULES:
            problems.append(f"kind must be one of {', '.join(TASK_RULES)}; received {self.kind!r}")
        rules = TASK_RULES.get(self.kind, TaskRules())
        if isinstance(self.labels, str):
            problems.append(f"labels must be a list of texts; received {self.labels!r}")
        else:
            object.__setattr__(self, "labels", tuple(self.labels))
            problems += label_problems(self.labels)
        if rules.min_labels > len(self.labels):
            least = "two labels" if rules.min_labels == 2 else "one label"
            problems.append(f"{self.kind} needs at least {least}; received {shown(self.labels) or 'none'}")
        elif self.labels and not rules.min_labels:
            labelled = " and ".join(kind for kind, other_rules in TASK_RULES.items() if other_rules.min_labels)
            problems.append(f"only {labelled} have labels; received {self.labels} with kind={self.kind!r}")
        if not 0 <= self.dropout < 1:
            problems.append(f"dropout must lie in [0, 1); received {self.dropout}")
        for name, choice, default in (("pooling", "mean", "the first token"), ("pairs", "separate", "one row")):
            value = getattr(self, name)
            if value not in (None, choice):
                problems.append(f"{name} must be {choice}, or None for {default}; received {value!r}")
            elif value is not None and rules.head != "sentence":
                sentences = " and ".join(kind for kind, row in TASK_RULES.items() if row.head == "sentence")
                problems.append(f"{name} is for {sentences}; received {value!r} for {self.kind!r}")
        if self.null_threshold is not None and not rules.has_null_threshold:
            thresholded = " and ".join(kind for kind, row in TASK_RULES.items() if row.has_null_threshold)
            problems.append(f"null_threshold is for {thresholded}; received {self.null_threshold} for {self.kind!r}")
        if rules.has_embedding:
            object.__setattr__(self, "embedding", embedding_config(self.embedding))
        elif self.embedding is not None:
            problems.append(f"embedding is for sentence embeddings; received it for {self.kind!r}")
        if self.activation is not None:
            problems += literal_problems("activation", self.activation, ScoreActivation)
            if rules.num_outputs != 1:
                problems.append(f"activation is for regression; received {self.activation!r} for {self.kind!r}")
        object.__setattr__(self, "decisions", decision_config(self.decisions))
        if self.decisions is not None:
            problems += self.decisions.problems(self.kind, rules.label_form, self.labels, rules.head == "sentence")
        if rules.head == "parts":
            object.__setattr__(self, "tasks", parts_of(self.tasks, TaskConfig))
            problems += part_problems(self.tasks or (), TASK_RULES)
        elif self.tasks is not None:
            problems.append(f"tasks is for several heads; received it for {self.kind!r}")
        problems += weight_problems(self.weight)
        raise_if_any(problems, "TaskConfig")

    @property
    def rules(self) -> TaskRules:
        """The row for the task's kind."""
        return TASK_RULES[self.kind]


def described_task(task: TaskConfig) -> str:
    """Describes a task, such as `sst2 classification, 2 labels (negative, positive)`."""
    labels = ", ".join(task.labels[:_LABELS_SHOWN]) + ", …" * (len(task.labels) > _LABELS_SHOWN)
    return f"{task.name} {task.kind}".strip() + (f", {len(task.labels)} labels ({labels})" if task.labels else "")
