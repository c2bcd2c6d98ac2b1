"""Sources for candidates: labels, soft labels from any teacher, and the compression's teacher."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from pocketbert.checkpoints.directory import DirectoryDescription
from pocketbert.configs import EncoderConfig
from pocketbert.data.batches import SOFT_LABELS
from pocketbert.data.readers.iob import types_of_tags
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.method import DistillationSpec, Method, validated_stages
from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.finetune import plan_finetuning
from pocketbert.training.initialization import with_options
from pocketbert_runtime.label_names import are_placeholders, label_positions
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary


def has_soft_labels(data: TaskData) -> bool:
    """Whether the training examples have a teacher's probabilities."""
    return getattr(data.train, SOFT_LABELS, None) is not None


def without_soft_labels(data: TaskData) -> TaskData:
    """Removes soft labels, to learn labels or teacher features other than predictions."""
    train: Any = data.train
    return (
        dataclasses.replace(data, train=dataclasses.replace(train, soft_labels=None)) if has_soft_labels(data) else data
    )


def soft_label_problems(data: TaskData) -> list[str]:
    """Lists reasons why a compression cannot learn its examples' soft labels; empty if they have none."""
    if not has_soft_labels(data):
        return []
    problems = []
    if data.unlabelled is not None:
        problems.append(
            f"unlabelled texts have no soft labels; received {data.unlabelled.source} beside them; leave it out, or "
            "predict its probabilities, too, and put all into one table without labels"
        )
    # Missing splits are drawn from the training examples.
    splits = {
        argument("dev"): data.dev,
        argument("test_file", python="test="): data.train if data.test is None else data.test,
    }
    likely = [option for option, examples in splits.items() if getattr(examples, "has_likely_labels", False)]
    if likely:
        problems.append(
            f"dev and final split choose and score, so they need labels beside soft labels; {data.train.source} has "
            f"none; add a label column, or pass {' and '.join(likely)} with labels"
        )
    return problems


def soft_label_note(data: TaskData) -> str:
    """Describes the replacement for the teacher's predictions; empty without soft labels."""
    if not has_soft_labels(data):
        return ""
    labels = "the most likely ones" if getattr(data.train, "has_likely_labels", False) else "the label column"
    return (
        f"stages that learn predictions learn the soft labels of {data.train.source}, and not those of the teacher; "
        f"fine-tuning learns {labels}"
    )


def can_teach(described: DirectoryDescription, data: TaskData) -> bool:
    """Whether a model has one head, for the data's kind and labels in any order.

    Raises:
      UserError: its labels have no names, or an order impossible for the data.
    """
    if len(described.tasks) != 1 or described.tasks[0].kind != data.task.kind:
        return False
    labels, of_data = described.tasks[0].labels, data.task.labels
    same = len(labels) == len(of_data) and label_positions(of_data, labels) is not None
    if are_placeholders(labels) and len(labels) == len(of_data) and not same:
        raise UserError(
            f"compress: the model must name its labels; received {', '.join(labels)}, and the data have "
            f"{', '.join(of_data)}; write the names into id2label of its config.json"
        )
    # Word tags have names until they are encoded, so any order fits them.
    named = data.task.rules.reads == "spans" and {*labels} == {*of_data} and not has_soft_labels(data)
    if same and labels != of_data and data.task.kind != "classification" and not named:
        raise UserError(
            f"compress: the labels must have the model's order; received {', '.join(of_data)}; pass "
            f"{argument('labels', ','.join(types_of_tags(labels) if data.task.rules.reads == 'spans' else labels))}"
        )
    return same


def read_as_teacher(data: TaskData, described: DirectoryDescription) -> TaskData:
    """Makes the task read pairs as the teacher does; a `UserError` if only the data asks for separate pairs."""
    pairs = described.tasks[0].pairs
    if data.task.pairs == pairs:
        return data
    if pairs is None:
        raise UserError(
            "compress: teacher and candidates must read pairs in the same form; received a teacher that reads them "
            f"jointly, and pairs={data.task.pairs}; fine-tune a teacher with {argument('pairs', data.task.pairs)}"
        )
    log_info("candidates read the two texts of a pair one by one, as the teacher does")
    return dataclasses.replace(data, task=dataclasses.replace(data.task, pairs=pairs))


def in_better_form(data: TaskData, encoder: Path, positions: int, divided: TaskData, seed: int) -> tuple[TaskData, str]:
    """Returns the data with `finetune`'s default form for pairs, and a remark if it compares both forms.

    Args:
      data: the task and its examples.
      encoder: model directory of the encoder that becomes the teacher.
      positions: its maximum sequence length.
      divided: the data with the training examples for the comparison.
      seed: random seed.
    """
    if data.task.rules.head != "sentence" or data.task.pairs or not data.train.has_pairs:
        return data, ""
    labelled = dataclasses.replace(without_soft_labels(divided), unlabelled=None, least_confidence=None)
    options = FinetuneConfig(max_length=min(FinetuneConfig.max_length, positions))
    plan = plan_finetuning(encoder, labelled, options, RunConfig(seed=seed))
    if not plan.objective.compares_pairs:
        return data, ""
    reads = "in one row"
    if plan.compared.separates_pairs:
        data, reads = dataclasses.replace(data, task=dataclasses.replace(data.task, pairs="separate")), "one by one"
    return data, f"the encoder reads the two texts of a pair {reads}, the form that fits better on frozen features"


def distillation_spec(
    data: TaskData, teacher: DirectoryDescription, student: EncoderConfig, vocabulary: Vocabulary | None = None
) -> DistillationSpec:
    """Describes the models and the task for a method; for the arguments see `methods.trainings`."""
    # Without another vocabulary, the teacher's own object keeps its tokens for all students.
    of_teacher = teacher.vocabulary if vocabulary is None else with_options(teacher.vocabulary)
    return DistillationSpec(
        teacher=teacher.config,
        student=student,
        task=data.task,
        pairs=data.train.has_pairs and data.task.pairs is None,
        teacher_task=data.task,
        teacher_heads=(data.task.kind,),
        teacher_vocabulary=of_teacher,
        student_vocabulary=vocabulary or of_teacher,
        soft_labels=has_soft_labels(data),
        start="directory",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sources:
    """Sources for a distillation.

    Attributes:
      soft_labels: whether it learns the examples' soft labels.
      teacher: whether it reads the teacher.
    """

    soft_labels: bool
    teacher: bool


def sources_of(method: Method, data: TaskData, teacher: DirectoryDescription, student: EncoderConfig) -> Sources:
    """Returns a method's sources: soft labels, if there are some, replace the teacher's logits.

    Args:
      method: the method.
      data: the task and its examples.
      teacher: see `methods.trainings`.
      student: see `methods.trainings`.
    """
    if not has_soft_labels(data):
        return Sources(soft_labels=False, teacher=True)
    stages, _ = validated_stages(method, distillation_spec(data, teacher, student))
    features = {name for stage in stages for name in stage.teacher_features}
    soft = "logits" in features
    return Sources(soft_labels=soft, teacher=not soft or features != {"logits"})
