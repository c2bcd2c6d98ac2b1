"""How a candidate trains: on labels, or on its teacher. Its training runs in this or in another process."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pocketbert.checkpoints.directory import DirectoryDescription, describe_directory
from pocketbert.configs import EncoderConfig
from pocketbert.data.task_data import TaskData, TextData
from pocketbert.distillation.method import Method, validated_stages
from pocketbert.distillation.methods import get_method, names_of_packages
from pocketbert.distillation.methods.efficientbert import EfficientBERT
from pocketbert.distillation.methods.embedding import EmbeddingDistillation
from pocketbert.distillation.methods.hsk import HSK
from pocketbert.distillation.methods.minilmv2 import MiniLMv2
from pocketbert.distillation.methods.tinybert import TinyBERT
from pocketbert.distillation.planning import plan_distillation
from pocketbert.errors import TrainingFailed
from pocketbert.options import describe_options
from pocketbert.progress import log_info
from pocketbert.tasks.registry import TASKS
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.finetune import plan_finetuning
from pocketbert.training.grids.points import Point
from pocketbert.training.plan import Plan
from pocketbert.training.run_folder import MODEL_FOLDER
from pocketbert.training.trainer import run_plan
from pocketbert_bench.compression.deadline import Deadline
from pocketbert_bench.compression.sources import distillation_spec, sources_of, without_soft_labels
from pocketbert_bench.compression.trial_examples import BATCH, LEAST_STEPS, trial_examples
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

# On labels; on the relations in the teacher's last layer for plain text, then on labels.
FINETUNE, TEXT = "finetune", "text"
# The default of fine-tuning for narrow networks; no study has compared others.
_RATE = 1e-4
# MiniLMv2's usual number.
_MOST_RELATION_HEADS = 48
_OPTION = "candidate"
# The length of a plan that only lists ways to train.
_USUAL_LENGTH = 128


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """How a candidate trains.

    Attributes:
      method: `finetune`, `text`, a key of `DISTILLATIONS`, or a method of another package.
      rate: factor of the default learning rate; MiniLMv2 and HSK have it in their last stage.
      unlabelled: whether it also reads unlabelled texts.
    """

    method: str = FINETUNE
    rate: float = 1.0
    unlabelled: bool = False

    @property
    def name(self) -> str:
        """Part of a folder's name."""
        method = f"{self.method}+unlabelled" if self.unlabelled else self.method
        return method if self.rate == 1 else f"{method},rate={self.rate:g}"

    @property
    def description(self) -> str:
        """The method in words."""
        return f"{self.method} on unlabelled texts, too" if self.unlabelled else self.method


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialShape:
    """What the options of a trial depend on, beside its training.

    Attributes:
      teacher: architecture of the teacher.
      student: architecture of the student.
      kind: kind of the task.
      examples: number of training examples.
      max_length: maximum sequence length.
      epochs: passes over the examples in each stage.
      first_token: whether a new head reads the first token, instead of what fine-tuning chooses.
      head_examples: most examples from which a new head starts.
    """

    teacher: EncoderConfig
    student: EncoderConfig
    kind: str
    examples: int
    max_length: int
    epochs: int
    first_token: bool = False
    head_examples: int = FinetuneConfig.head_start_examples


def _tinybert(shape: TrialShape, rate: float) -> Method:
    # Maps of heads that are missing cannot be compared.
    without = () if shape.teacher.num_attention_heads == shape.student.num_attention_heads else ("attention",)
    return dataclasses.replace(_predictions(shape, rate), without=without)


def _predictions(shape: TrialShape, rate: float) -> TinyBERT:
    return TinyBERT(
        max_length=shape.max_length,
        without=("embedding", "transformer"),
        intermediate_epochs=shape.epochs,
        prediction_epochs=shape.epochs,
        prediction_learning_rate=rate,
    )


def _minilmv2(shape: TrialShape, rate: float) -> MiniLMv2:
    shared = math.gcd(shape.teacher.attention_size, shape.student.attention_size)
    heads = max(count for count in range(1, _MOST_RELATION_HEADS + 1) if shared % count == 0)
    return MiniLMv2(
        max_length=shape.max_length,
        relation_heads=heads,
        epochs=shape.epochs,
        finetuning_epochs=shape.epochs,
        finetuning_learning_rate=rate,
    )


def _hsk(shape: TrialShape, rate: float) -> Method:
    return HSK(max_length=shape.max_length, epochs=shape.epochs, prediction_learning_rate=rate)


def _efficientbert(shape: TrialShape, rate: float) -> Method:
    return EfficientBERT(max_length=shape.max_length, epochs=shape.epochs, learning_rate=rate)


def _embedding(shape: TrialShape, rate: float) -> Method:
    return EmbeddingDistillation(max_length=shape.max_length, epochs=shape.epochs, learning_rate=rate)


# On the teacher's predictions; on its layers, then on its predictions; on the relations in its last layer, then on
# labels; on some activations, then on its predictions; on its layers and predictions at once; on its vectors. In the
# order in which they are tried.
DISTILLATIONS: Mapping[str, Callable[[TrialShape, float], Method]] = {
    "predictions": _predictions,
    "tinybert": _tinybert,
    "minilmv2": _minilmv2,
    "hsk": _hsk,
    "efficientbert": _efficientbert,
    "embedding": _embedding,
}
# Factors of the learning rate, after all methods.
_RATES = (1.0, 3.0, 1 / 3)


def trainings(
    data: TaskData,
    teacher: DirectoryDescription,
    student: EncoderConfig,
    *,
    text: bool,
    vocabulary: Vocabulary | None = None,
) -> list[Training]:
    """Ways to train a student, in the order in which they are tried: every method, then other learning rates.

    Args:
      data: the task and its examples.
      teacher: the teacher, or the encoder that becomes it.
      student: architecture of the student.
      text: whether there is plain text; its method compares single tokens.
      vocabulary: the student's vocabulary, if its tokenizer differs from the teacher's; else None.
    """
    spec = distillation_spec(data, teacher, student, vocabulary)
    shape = TrialShape(
        teacher=teacher.config,
        student=student,
        kind=data.task.kind,
        examples=len(data.train),
        max_length=min(teacher.config.max_position_embeddings, student.max_position_embeddings, _USUAL_LENGTH),
        epochs=1,
    )
    methods = [(FINETUNE, False), *([(TEXT, False)] if text and vocabulary is None else [])]
    if TASKS[data.task.kind].distillable:
        made = {name: distillation(name, shape, _RATE) for name in (*DISTILLATIONS, *_methods_of_packages())}
        # A kind with methods of its own uses no others, but those that other packages have for it.
        kind = data.task.kind
        special = any(kind in made[name].task_kinds for name in DISTILLATIONS)
        fitting = [
            name for name, method in made.items() if kind in method.task_kinds or not (special or method.task_kinds)
        ]
        stages = {name: validated_stages(made[name], spec) for name in fitting}
        possible = [name for name, (_, problems) in stages.items() if not problems]
        # With a stage on labels alone, a trial would have other steps than without unlabelled texts.
        on_texts = [name for name in possible if not any(stage.label_names for stage in stages[name][0])]
        more = [(name, True) for name in on_texts if data.unlabelled is not None]
        methods[1:1] = [*more, *((name, False) for name in possible)]
    return [
        Training(method=method, rate=rate, unlabelled=unlabelled) for rate in _RATES for method, unlabelled in methods
    ]


@functools.cache
def _methods_of_packages() -> list[str]:
    """Names of the methods of other packages that can train for some epochs; logs the others."""
    usable = []
    for name in names_of_packages():
        try:
            method = get_method(name)
            missing = {"max_length", "epochs"} - {field.name for field in describe_options(method)}
            needed: dict[str, Any] = {} if missing else {"max_length": _USUAL_LENGTH, "epochs": 1}
            method(**needed)
        # The package may raise anything.
        except Exception as error:
            log_info(f"the method {name} is not tried: {error}")
            continue
        if missing:
            log_info(f"the method {name} is not tried, since it has no option {' and '.join(sorted(missing))}")
        else:
            usable.append(name)
    return usable


def distillation(name: str, shape: TrialShape, rate: float) -> Method:
    """The options of a distillation in a trial.

    Args:
      name: a key of `DISTILLATIONS`, or a method of another package.
      shape: what they depend on.
      rate: the learning rate.
    """
    if name in DISTILLATIONS:
        return DISTILLATIONS[name](shape, rate)
    method = get_method(name)
    values: dict[str, Any] = {"max_length": shape.max_length, "epochs": shape.epochs, "learning_rate": rate}
    return method(**{field.name: values[field.name] for field in dataclasses.fields(method) if field.name in values})


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialData:
    """What all trials share.

    Attributes:
      data: training examples, and the dev split that scores a trial.
      teacher: model directory of the teacher.
      max_length: maximum sequence length.
      text: plain text, or None.
      head_examples: most examples from which a new head starts.
      deadline: time at which training stops, in seconds since the epoch; None for no limit.
    """

    data: TaskData
    teacher: str
    max_length: int
    text: TextData | None = None
    head_examples: int = FinetuneConfig.head_start_examples
    deadline: float | None = None


def trial_point(training: Training, start: Path, epochs: float, *, first_token: bool = False) -> Point:
    """A trial as the options of a job.

    Args:
      training: how the candidate trains.
      start: model directory from which it trains.
      epochs: passes over the training examples; see `part_of`.
      first_token: whether a new head reads the first token, instead of what fine-tuning chooses.
    """
    # A number that a resumed run has read is the same text.
    epochs = int(epochs) if float(epochs).is_integer() else epochs
    trial = {**dataclasses.asdict(training), "start": str(start), "epochs": epochs, "first_token": first_token}
    if not training.unlabelled:
        # As runs without unlabelled texts have recorded it.
        del trial["unlabelled"]
    return {_OPTION: json.dumps(trial)}


def train_trial(shared: TrialData, point: Point, seed: int, folder: Path) -> None:
    """Trains a candidate for some epochs and scores it on the dev split.

    Args:
      shared: what all trials share.
      point: the trial, as `trial_point` gives it.
      seed: random seed.
      folder: run folder; its `result.json` has the scores, its `model/` the weights.

    Raises:
      TrainingFailed: the loss or the outputs are not finite.
    """
    trial = json.loads(str(point[_OPTION]))
    training = Training(method=trial["method"], rate=trial["rate"], unlabelled=trial.get("unlabelled", False))
    start = trial["start"]
    data, epochs = trial_examples(shared.data, trial["epochs"], unlabelled=training.unlabelled)
    teacher = describe_directory(shared.teacher)
    shape = TrialShape(
        teacher=teacher.config,
        student=describe_directory(start).config,
        kind=data.task.kind,
        examples=len(data.train),
        max_length=shared.max_length,
        epochs=epochs,
        first_token=trial["first_token"],
        head_examples=shared.head_examples,
    )
    if training.method == TEXT:
        start = _train_on_text(shared, text_options(shape), start, RunConfig(seed=seed), folder)
    options, run = trial_options(training, shape, seed)
    if isinstance(options, FinetuneConfig):
        # The task has the form of pairs already.
        options = dataclasses.replace(options, pairs="joint")
        plan: Plan = plan_finetuning(start, without_soft_labels(data), options, run)
    else:
        sources = sources_of(options, data, teacher, shape.student)
        data = data if sources.soft_labels else without_soft_labels(data)
        directory = shared.teacher if sources.teacher else None
        plan = plan_distillation(start, data, teacher=directory, method=options, run=run)
    try:
        run_plan(dataclasses.replace(plan, compares=False), folder, _deadlines(shared.deadline, plan))
    except Exception as error:
        if training.method not in names_of_packages() or isinstance(error, TrainingFailed):
            raise
        # A faulty method of another package costs its trial, and not the run.
        raise TrainingFailed(f"the method {training.method} raised {type(error).__name__}: {error}") from error


def trial_options(training: Training, shape: TrialShape, seed: int) -> tuple[FinetuneConfig | Method, RunConfig]:
    """The options of a trial, which a user can pass to `finetune` or `distill`."""
    if training.method not in (FINETUNE, TEXT):
        return distillation(training.method, shape, training.rate * _RATE), RunConfig(seed=seed)
    config = FinetuneConfig(
        epochs=shape.epochs,
        max_length=shape.max_length,
        head_pooling="first" if shape.first_token else "auto",
        new_head=shape.first_token,
        head_start_examples=shape.head_examples,
        contrastive_steps=0,
        calibrate=False,
    )
    if training.rate != 1:
        usual = config.resolved(shape.student.hidden_size, shape.kind, shape.examples, contrasts=False).learning_rate
        assert usual is not None
        config = dataclasses.replace(config, learning_rate=training.rate * usual)
    # One evaluation after each epoch, even a short one: the choice needs no finer one.
    return config, RunConfig(seed=seed, evaluation_steps=math.ceil(shape.examples / config.batch_size))


def text_options(shape: TrialShape) -> MiniLMv2:
    """The options of a distillation on plain text, in as many steps as the examples have."""
    return dataclasses.replace(
        _minilmv2(shape, _RATE),
        batch_size=BATCH,
        epochs=None,
        steps=shape.epochs * math.ceil(shape.examples / BATCH),
        learning_rate=_RATE,
        text_segments=1,
    )


def passes(method: str) -> int:
    """Passes over the examples in one epoch of a trial, by its steps: some methods have two stages."""
    if method in DISTILLATIONS:
        return 2 if method in ("tinybert", "minilmv2", "hsk") else 1
    return 1 if method in (FINETUNE, TEXT) else get_method(method).passes


def reads_teacher(method: str, *, soft_labels: bool = False) -> bool:
    """Whether training computes the teacher, too."""
    return method not in (FINETUNE, TEXT) and not (soft_labels and method == "predictions")


def _train_on_text(shared: TrialData, method: Method, start: str, run: RunConfig, folder: Path) -> str:
    """Distils the teacher's relations on plain text, for half of the time; returns the model directory."""
    assert shared.text is not None
    output = folder.with_name(f"{folder.name}-{TEXT}")
    plan = plan_distillation(start, shared.text, teacher=shared.teacher, method=method, run=run)
    half = None if shared.deadline is None else (time.time() + shared.deadline) / 2
    run_plan(plan, output, _deadlines(half, plan))
    return str(output / MODEL_FOLDER)


def _deadlines(deadline: float | None, plan: Plan) -> list[Deadline]:
    if deadline is None:
        return []
    return [Deadline(deadline, LEAST_STEPS, [stage.name for stage in plan.stages])]
