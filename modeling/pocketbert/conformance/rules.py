"""The rules for every distillation method."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from safetensors.numpy import load_file

from pocketbert.checkpoints.stored_tensors import WEIGHTS_NAME
from pocketbert.conformance import cases
from pocketbert.data.batches import dataset, encode, plan_batches
from pocketbert.data.pretraining.options import PretrainingOptions
from pocketbert.data.pretraining.reader import PretrainingData
from pocketbert.data.pretraining.run import write_pretraining_data
from pocketbert.data.task_data import TextData
from pocketbert.data.teacher_cache.reader import TeacherCache
from pocketbert.distillation.cache_teacher import cache_targets
from pocketbert.distillation.distiller import Distiller
from pocketbert.distillation.method import DistillationSpec, Method
from pocketbert.distillation.run import distill
from pocketbert.model import from_preset, from_pretrained
from pocketbert.training.callbacks import Callback
from pocketbert.training.config import RunConfig
from pocketbert.training.stage import LABEL_TERMS, Stage
from pocketbert.training.step import adapter_variables

# About a thousand float32 numbers near 1, summed in another order.
_ROUNDING = 1e-5
# Half of float16's 11 bits on each target between 1 and 10; a loss takes the mean of many.
_FLOAT16 = 2e-3


class BrokenRule(Exception):
    """A method breaks a rule; the message says where."""


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise BrokenRule(message)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MethodUnderTest:
    """The subject for a rule.

    Attributes:
      name: the method.
      kind: key of `cases.HEADS`.
      options: the method's options, instead of those that fit the tiny networks.
      folder: a folder for files.
    """

    name: str
    kind: str
    options: Mapping[str, Any]
    folder: Path

    def case(self, *, copies: bool = False, shallow: bool = False) -> cases.TinyCase:
        """The method on tiny networks."""
        return cases.make_case(self.name, self.kind, copies=copies, shallow=shallow, options=self.options)


def identical_student(subject: MethodUnderTest) -> None:
    """A student equal to its teacher has no loss but for labels and the teacher's entropy, and no gradients."""
    case, data = subject.case(copies=True), cases.batch(subject.kind)
    for layer in case.adapters.values():
        layer.kernel.assign(np.eye(*layer.kernel.shape))
    entropy, compared = _entropy_of_teacher(case, data), 0
    for distiller in case.distillers():
        learned = {term for name in cases.labels_of(data) for term in cases.label_terms(distiller, data, name)}
        variables = list(case.student.named_variables().values())
        with tf.GradientTape(persistent=True) as tape:
            losses = dict(zip(distiller.loss_names, tf.unstack(distiller.losses(data)), strict=True))
        for term in losses.keys() - learned - {"loss"}:
            gradients = [g for g in tape.gradient(losses[term], variables) if g is not None]
            # Both networks run the same operations on the same numbers; only one rounding of each is left.
            largest = [float(np.abs(tf.convert_to_tensor(g).numpy()).max()) for g in gradients]
            _require(all(one < _ROUNDING for one in largest), f"term {term}: the largest gradients are {largest}")
            value = float(losses[term])
            is_entropy = abs(value - entropy) <= _ROUNDING * abs(entropy)
            _require(
                abs(value) <= 1e-6 or is_entropy,
                f"term {term} is {value:.6g}; it must be 0, or the teacher's entropy, {entropy:.6g}",
            )
            compared += bool(gradients)
    _require(compared > 0, "no term compares the student with the teacher")


def labels(subject: MethodUnderTest) -> None:
    """Labels change only the terms named after them."""
    case, data = subject.case(), cases.batch(subject.kind)
    for stage, distiller in zip(case.stages, case.distillers(), strict=True):
        for label in cases.labels_of(data):
            expected = {term for term in stage.weights if LABEL_TERMS.get(term) == label}
            changed = cases.label_terms(distiller, data, label)
            _require(
                changed == expected,
                f"stage {stage.name}: {label} change the terms {sorted(changed)}; expected {sorted(expected)}",
            )


def padding(subject: MethodUnderTest) -> None:
    """Tokens in the padding, and the example order, change no term."""
    case, data = subject.case(), cases.batch(subject.kind)
    mask = data["input_mask"].numpy()
    garbage = np.random.default_rng(0).integers(2, case.spec.student.vocab_size, mask.shape).astype(np.int32)
    padded = {**data, "input_word_ids": tf.constant(np.where(mask, data["input_word_ids"].numpy(), garbage))}
    permuted = {key: tf.gather(value, [2, 0, 1]) for key, value in data.items()}
    for stage, distiller in zip(case.stages, case.distillers(), strict=True):
        expected = cases.terms(distiller, data)
        for what, changed in (("tokens in the padding", padded), ("another order of the examples", permuted)):
            _require_equal(cases.terms(distiller, changed), expected, _ROUNDING, f"stage {stage.name}: {what}")


def gradients(subject: MethodUnderTest) -> None:
    """Every adapter learns, and the teacher does not; adapters are no part of the student."""
    case, data = subject.case(), cases.batch(subject.kind)
    adapters = adapter_variables(case.adapters)
    taught: dict[str, bool] = dict.fromkeys(adapters, False)
    teacher_variables = list(case.teacher.named_variables().values())
    for stage, distiller in zip(case.stages, case.distillers(), strict=True):
        with tf.GradientTape() as tape:
            loss = distiller.losses(data, training=True)[0]
        of_all = tape.gradient(loss, [*teacher_variables, *adapters.values()])
        of_teacher = of_all[: len(teacher_variables)]
        _require(all(one is None for one in of_teacher), f"stage {stage.name}: the teacher gets gradients")
        for path, gradient in zip(taught, of_all[len(teacher_variables) :], strict=True):
            taught[path] |= gradient is not None and bool(tf.reduce_any(gradient != 0))
        trained = {id(variable) for variable in distiller.variables}
        _require(
            not trained & {id(variable) for variable in teacher_variables},
            f"stage {stage.name}: variables of the teacher are trained",
        )
    _require(any(stage.teacher_features for stage in case.stages), "no stage reads the teacher")
    idle = [path for path, learns in taught.items() if not learns]
    _require(not idle, f"adapters without a gradient: {', '.join(idle)}")
    shared = set(taught) & set(case.student.named_variables())
    _require(not shared, f"adapters that are variables of the student: {', '.join(sorted(shared))}")


def teacher_cache(subject: MethodUnderTest) -> str | None:
    """A loss from stored targets equals the live teacher's, to float16's rounding."""
    if subject.kind == "pretraining":
        return "each epoch masks anew, so nothing is stored"
    case = subject.case(shallow=True)
    directory = _write_teacher(subject, case)
    teacher = from_pretrained(directory)
    assert teacher.tokenizer is not None
    encoded = encode(cases.examples(subject.kind, 21, seed=0), teacher.tokenizer, cases.MAX_LENGTH)
    plan = plan_batches(encoded.lengths, batch_size=8, seed=0, epoch=0)
    stages = [stage for stage in case.stages if stage.teacher_features and not case.method.uncacheable(stage)]
    for stage in stages:
        path = cache_targets(teacher, directory, case.method, stage, encoded, subject.folder / f"cache-{stage.name}")
        live = Distiller(case.student, case.method, stage, teacher=teacher, adapters=case.adapters)
        stored = TeacherCache.open(path).dataset(encoded, plan)
        for (data, targets), element in zip(stored, dataset(encoded, plan), strict=True):
            inputs = element if subject.kind == "general" else {**element[0], "labels": element[1]}
            of_cache, expected = cases.terms(live, data, targets), cases.terms(live, data)
            _require(set(data) == set(inputs), f"stage {stage.name}: a cache gives {sorted(data)}")
            _require_equal(of_cache, expected, _FLOAT16, f"stage {stage.name}: stored targets")
    return None if stages else "the method says that no stage can be stored"


def resuming(subject: MethodUnderTest) -> None:
    """A run interrupted in each stage ends with the same weights and metrics."""
    case = subject.case(shallow=True)
    arguments: dict[str, Any] = {
        "method": _cut(case.method),
        "student": case.spec.student,
        "teacher": _write_teacher(subject, case),
        "run": RunConfig(seed=2, checkpoint_seconds=0.0),
        "data": _data(subject),
    }
    whole = distill(output=subject.folder / "whole", **arguments)
    for stop in range(1, len(case.stages) + 1):
        try:
            distill(output=subject.folder / "resumed", callbacks=[_Stop(2 if stop == 1 else 3)], **arguments)
        except _Interrupted:
            continue
        raise BrokenRule(f"attempt {stop} ended before its interruption")
    last = _Stop(None)
    resumed = distill(output=subject.folder / "resumed", callbacks=[last], **arguments)
    _require(last.steps == 1, f"the last attempt makes {last.steps} steps instead of the last one: it starts over")
    _require(
        (resumed.metrics, resumed.steps) == (whole.metrics, whole.steps),
        f"the resumed run has {resumed.metrics} after {resumed.steps} steps; the whole one {whole.metrics} after "
        f"{whole.steps}",
    )
    files = list((subject.folder / "whole").rglob("*.safetensors"))
    weights = [path for path in files if path.name == WEIGHTS_NAME]
    _require(len(weights) == len(case.stages), f"{len(weights)} files of weights for {len(case.stages)} stages")
    for path in files:
        other = subject.folder / "resumed" / path.relative_to(subject.folder / "whole")
        _require(other.exists() and other.read_bytes() == path.read_bytes(), f"{path.name} differs after resuming")
        if path.name == WEIGHTS_NAME:
            _require(not any("adapter" in key for key in load_file(path)), "the student's weights contain adapters")


# Name → rule, by duration. A rule returns why it has nothing to check, and raises BrokenRule.
RULES: Mapping[str, Callable[[MethodUnderTest], str | None]] = {
    "labels": labels,
    "padding": padding,
    "identical student": identical_student,
    "gradients": gradients,
    "teacher cache": teacher_cache,
    "resuming": resuming,
}


class _Interrupted(BaseException):
    """Stands for the end of the process."""


class _Stop(Callback):
    """Counts steps, and ends a run after some steps; None for no end."""

    def __init__(self, most: int | None) -> None:
        super().__init__()
        self._most, self.steps = most, 0

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        """Raises before the step after the last one."""
        if self.steps == self._most:
            raise _Interrupted
        self.steps += 1


def _cut(method: Method) -> Method:
    """The method with shortened stages."""
    whole = type(method)

    def stages(self: Any, spec: DistillationSpec) -> Sequence[Stage]:
        return [cases.shortened(stage) for stage in whole.stages(self, spec)]

    return dataclasses.make_dataclass(
        whole.__name__, [], bases=(whole,), frozen=True, kw_only=True, namespace={"stages": stages}
    )(**vars(method))


def _tokenizer(subject: MethodUnderTest) -> Any:
    return cases.write_vocabulary(subject.folder / "vocab.txt")


def _write_teacher(subject: MethodUnderTest, case: cases.TinyCase) -> Path:
    """Writes the teacher as a model directory."""
    path = subject.folder / "teacher"
    if not path.exists():
        model = from_preset(case.spec.teacher, cases.HEADS[subject.kind], _tokenizer(subject), seed=12)
        model.save_pretrained(path)
    return path


def _data(subject: MethodUnderTest) -> Any:
    if subject.kind not in ("general", "pretraining"):
        return cases.task_data(subject.kind)
    path = subject.folder / "text.txt"
    if subject.kind == "general":
        # More inputs than two steps take: the stage is interrupted inside of an epoch.
        path.write_text("\n\n".join(cases.texts(40)) + "\n", encoding="utf-8")
        return TextData(path)
    documents = ["\n".join(cases.texts(6)) for _ in range(10)]
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    options, folder = PretrainingOptions(max_length=cases.MAX_LENGTH), subject.folder / "examples"
    write_pretraining_data(path, _tokenizer(subject), folder, options, shards=2, workers=1)
    return PretrainingData.open(folder)


def _entropy_of_teacher(case: cases.TinyCase, data: Mapping[str, tf.Tensor]) -> float:
    """Mean over examples, or over masked tokens, in nats; 0 if the teacher gives no distribution."""
    inputs = {name: value for name, value in data.items() if name not in LABEL_TERMS.values()}
    if not {"classification", "masked_lm"} & set(case.spec.teacher_heads or ()):
        return 0.0
    logits = next(iter(case.teacher(inputs).values())).numpy().astype(np.float64)
    if "masked_lm_labels" in data:
        logits = logits[data["masked_lm_labels"].numpy() >= 0]
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return float(-(np.exp(logs) * logs).sum(-1).mean())


def _require_equal(values: Mapping[str, float], expected: Mapping[str, float], tolerance: float, what: str) -> None:
    _require(set(values) == set(expected), f"{what} give the terms {sorted(values)}")
    for term, value in values.items():
        within = abs(value - expected[term]) <= tolerance * max(abs(expected[term]), 1e-12)
        _require(within, f"{what} change {term} from {expected[term]:.7g} to {value:.7g}")
