"""TinyBERT: stages against the paper's figures, and losses against the paper's equations in NumPy."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tiny import BATCH_LENGTHS, BERT, batch

import pocketbert as pb
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.glue import GLUE
from pocketbert.distillation.initialization import initialize_adapters
from pocketbert.distillation.method import Epochs, Setting, Stage, Steps, check_setting
from pocketbert.distillation.methods.tinybert import METHOD, TinyBERTOptions
from pocketbert.errors import UserError
from pocketbert.presets import preset

# float32 sums of at most some thousand values of order 1 to 10, in another order than NumPy's: 2^-24 · √4000 ≈ 4e-6
# relative; the features themselves are given to both sides.
TOLERANCE = 2e-5

BASE, TINY4 = preset("bert_base_uncased").config, preset("tinybert_4l_312d").config
ALL_TERMS = {"embedding": 1.0, "attention": 1.0, "hidden": 1.0}


def setting(task: str | None, teacher: EncoderConfig = BASE, student: EncoderConfig = TINY4, **more: Any) -> Setting:
    if task is None:
        return Setting(teacher=teacher, student=student, task=None, **more)
    glue = GLUE[task]
    return Setting(
        teacher=teacher,
        student=student,
        task=glue.task,
        teacher_task=glue.task,
        pairs=glue.pair_column is not None,
        **more,
    )


def stages(task: str | None, **options: Any) -> dict[str, Stage]:
    made = check_setting(METHOD, setting(task), TinyBERTOptions(**options))
    return {stage.name: stage for stage in made}


# --- stages ---


def test_general_distillation_is_the_papers() -> None:
    # Section 4.2: length 128, 3 epochs, else as BERT's pretraining: batch 256, 1e-4, 10,000 steps of warm-up, linear
    # decay, weight decay 0.01 (Devlin et al. 2019, appendix A.2), on masked text; g(m) = 3m.
    (stage,) = stages(None).values()
    assert (stage.name, stage.data, stage.masked_text, stage.keep) == ("general", "text", True, "last")
    assert (stage.max_length, stage.duration, stage.batch_size) == (128, Epochs(3), 256)
    optimizer = stage.optimizer
    assert (optimizer.learning_rate, optimizer.schedule, optimizer.weight_decay) == (1e-4, "linear", 0.01)
    assert optimizer.warmup(1_000_000) == 10_000
    assert stage.weights == ALL_TERMS
    assert stage.teacher_features == {"hidden_states": (0, 3, 6, 9, 12), "attention_logits": (3, 6, 9, 12)}
    assert stage.student_features == {"hidden_states": (0, 1, 2, 3, 4), "attention_logits": (1, 2, 3, 4)}
    assert stages(None, general_steps=77)["general"].duration == Steps(77)


@pytest.mark.parametrize(
    ("task", "epochs", "max_length"),
    [  # section 4.2 and footnote 4
        ("cola", 50, 64),
        ("sst2", 20, 64),
        ("mrpc", 20, 128),
        ("stsb", 20, 128),
        ("qqp", 10, 128),
        ("mnli", 10, 128),
        ("qnli", 10, 128),
        ("rte", 20, 128),
        ("wnli", 20, 128),
    ],
)
def test_task_distillation_is_the_papers(task: str, epochs: int, max_length: int) -> None:
    made = stages(task)
    assert list(made) == ["intermediate", "prediction"]
    first, second = made.values()
    assert (first.duration, first.max_length, first.batch_size) == (Epochs(epochs), max_length, 32)
    assert (first.optimizer.learning_rate, first.optimizer.schedule) == (5e-5, "constant")
    assert (first.data, first.keep, first.weights) == ("augmented", "last", ALL_TERMS)
    assert first.optimizer.warmup(1000) == 0
    assert (second.duration, second.max_length, second.batch_size) == (Epochs(3), max_length, 32)
    assert (second.optimizer.learning_rate, second.optimizer.schedule) == (3e-5, "linear")
    assert (second.keep, second.weights) == ("best", {"prediction": 1.0})
    # Footnote 5: for STS-B the original data.
    assert second.data == ("task" if task == "stsb" else "augmented")
    assert second.teacher_features == second.student_features == {"logits": ()}


def test_a_task_of_ones_own_has_20_epochs() -> None:
    task = TaskConfig(kind="classification", labels=("a", "b", "c"))
    own = Setting(teacher=BASE, student=TINY4, task=task, teacher_task=task)
    assert METHOD.stages(own, TinyBERTOptions())[0].duration == Epochs(20)


def test_what_is_given_replaces_the_papers() -> None:
    made = stages("rte", max_length=48, intermediate_epochs=2, prediction_epochs=1, intermediate_batch_size=8,
                  prediction_batch_size=16, intermediate_learning_rate=1e-3, prediction_learning_rate=1e-5,
                  intermediate_schedule="linear", weight_decay=0.0, clip_norm=0.0, micro_batches=4)  # fmt: skip
    first, second = made.values()
    assert (first.max_length, first.duration, first.batch_size, first.micro_batches) == (48, Epochs(2), 8, 4)
    assert (second.max_length, second.duration, second.batch_size, second.micro_batches) == (48, Epochs(1), 16, 4)
    assert (first.optimizer.learning_rate, first.optimizer.schedule) == (1e-3, "linear")
    assert second.optimizer.learning_rate == 1e-5
    for stage in (first, second):
        assert (stage.optimizer.weight_decay, stage.optimizer.clip_norm) == (0.0, None)


@pytest.mark.parametrize(
    ("task", "epochs"),
    [("cola", 50), ("mrpc", 20), ("stsb", 20), ("rte", 20), ("sst2", 10), ("qnli", 10), ("mnli", 5), ("qqp", 5)],
)
def test_the_authors_code_is_a_preset(task: str, epochs: int) -> None:
    first, second = stages(task, preset="authors-code").values()
    assert first.duration == Epochs(epochs)
    assert (first.optimizer.learning_rate, first.optimizer.schedule) == (5e-5, "constant")
    assert not first.optimizer.bias_correction
    assert first.options.shared_projection and first.options.mean_over_classes
    # STS-B: the labels, on the original data, without the teacher.
    labels = task == "stsb"
    assert second.weights == ({"labels": 1.0} if labels else {"prediction": 1.0})
    assert second.teacher_features == ({} if labels else {"logits": ()})
    assert second.data == ("task" if labels else "augmented")


def test_the_authors_general_distillation() -> None:
    stage = stages(None, preset="authors-code")["general"]
    assert not stage.masked_text and stage.optimizer.learning_rate == 5e-5
    assert (stage.batch_size, stage.duration, stage.max_length) == (256, Epochs(3), 128)
    assert stage.optimizer.warmup(1_000_000) == 100_000


def test_what_is_given_wins_over_the_preset() -> None:
    given = {
        "shared_projection": False,
        "mean_over_classes": False,
        "regression_target": "teacher",
        "masked_text": True,
        "general_learning_rate": 1e-4,
        "bias_correction": True,
    }
    for name, value in given.items():
        resolved = TinyBERTOptions(preset="authors-code", **{name: value}).resolved()  # type: ignore[arg-type]
        assert getattr(resolved, name) == value
        # The others stay the preset's: each differs from the paper's.
        paper = TinyBERTOptions().resolved()
        assert [other for other in given if getattr(resolved, other) == getattr(paper, other)] == [name]
    assert stages("cola", preset="authors-code", intermediate_epochs=3)["intermediate"].duration == Epochs(3)


# --- ablations, tables 2 to 4 ---

HIDDEN, ATTENTION = (3, 6, 9, 12), (3, 6, 9, 12)


@pytest.mark.parametrize("task", ["rte", None])
@pytest.mark.parametrize(
    ("without", "terms", "features"),
    [
        (("embedding",), {"attention", "hidden"}, {"hidden_states": HIDDEN, "attention_logits": ATTENTION}),
        (("attention",), {"embedding", "hidden"}, {"hidden_states": (0, *HIDDEN)}),
        (("hidden",), {"embedding", "attention"}, {"hidden_states": (0,), "attention_logits": ATTENTION}),
        (("transformer",), {"embedding"}, {"hidden_states": (0,)}),
        (("embedding", "hidden"), {"attention"}, {"attention_logits": ATTENTION}),
    ],
)
def test_a_loss_left_out_takes_its_features_along(
    task: str | None, without: tuple[str, ...], terms: set[str], features: Mapping[str, tuple[int, ...]]
) -> None:
    made = stages(task, without=without)
    stage = made["general" if task is None else "intermediate"]
    assert stage.weights == dict.fromkeys(terms, 1.0)
    assert stage.teacher_features == features
    own = {0: 0, 3: 1, 6: 2, 9: 3, 12: 4}
    assert stage.student_features == {name: tuple(own[n] for n in layers) for name, layers in features.items()}
    if task is not None:
        assert made["prediction"] == dataclasses.replace(stages(task)["prediction"], options=made["prediction"].options)


def test_without_prediction_the_head_learns_labels_of_the_original_data() -> None:
    made = stages("rte", without=("prediction",))  # footnote 10
    second = made["prediction"]
    assert (second.weights, second.data, second.teacher_features) == ({"labels": 1.0}, "task", {})
    assert made["intermediate"].data == "augmented" and made["intermediate"].weights == ALL_TERMS


def test_without_augmentation_every_stage_has_the_original_data() -> None:
    assert [stage.data for stage in stages("rte", without=("augmentation",)).values()] == ["task", "task"]


def test_without_task_distillation_the_student_is_fine_tuned() -> None:
    (stage,) = stages("rte", without=("task_distillation",)).values()
    assert (stage.name, stage.weights, stage.teacher_features) == ("finetuning", {"labels": 1.0}, {})
    assert (stage.data, stage.keep, stage.duration) == ("augmented", "best", Epochs(3))
    (stage,) = stages("rte", without=("task_distillation", "augmentation")).values()
    assert stage.data == "task"
    assert METHOD.adapters(setting("rte"), TinyBERTOptions(without=("task_distillation",))) == {}


def test_without_any_layer_loss_only_the_prediction_is_left() -> None:
    assert list(stages("rte", without=("transformer", "embedding"))) == ["prediction"]
    with pytest.raises(UserError, match="every one of them is left out"):
        stages(None, without=("attention", "hidden", "embedding"))


def test_without_general_distillation_the_student_starts_fresh() -> None:
    options = TinyBERTOptions(without=("general_distillation",))
    for start in ("random", "teacher-layers", None):
        made = check_setting(METHOD, setting("rte", start=start), options)
        assert [stage.name for stage in made] == ["intermediate", "prediction"]
    with pytest.raises(UserError, match="starts fresh; received a directory"):
        check_setting(METHOD, setting("rte", start="directory"), options)
    with pytest.raises(UserError, match="cannot be left out of a run that is nothing else"):
        check_setting(METHOD, setting(None), options)


@pytest.mark.parametrize(
    ("mapping", "layers"), [("top", (9, 10, 11, 12)), ("bottom", (1, 2, 3, 4)), ("1,1,7,11", (1, 1, 7, 11))]
)
def test_mappings(mapping: str, layers: tuple[int, ...]) -> None:
    stage = stages("rte", mapping=mapping)["intermediate"]
    assert stage.teacher_features == {"hidden_states": (0, *layers), "attention_logits": layers}


# --- what cannot match ---


def test_one_error_lists_everything_that_does_not_fit() -> None:
    span = TaskConfig(kind="span", name="squad")
    wrong = Setting(
        teacher=BASE.replace(num_layers=3, num_attention_heads=8, head_size=96),
        student=TINY4.replace(vocab_size=30000),
        task=span,
        teacher_task=span,
        start="directory",
    )
    with pytest.raises(UserError) as refusal:
        check_setting(METHOD, wrong, TinyBERTOptions(without=("general_distillation",)))
    for part in (
        "30522 pieces, the student's 30000",
        "the teacher has 8 heads, the student 12; give a student with 8, or leave out attention",
        "received 4 for a teacher of 3",
        "classification and regression; received span",
        "received a directory",
    ):
        assert part in str(refusal.value)


def test_heads_and_depths_need_only_fit_where_they_are_matched() -> None:
    heads = setting("rte", student=TINY4.replace(num_attention_heads=6, head_size=52))
    with pytest.raises(UserError, match="the teacher has 12 heads, the student 6"):
        check_setting(METHOD, heads, TinyBERTOptions())
    for without in ("attention", "transformer", "task_distillation"):
        check_setting(METHOD, heads, TinyBERTOptions(without=(without,)))
    deep = setting("rte", teacher=BASE.replace(num_layers=3))
    with pytest.raises(UserError, match="received 4 for a teacher of 3"):
        check_setting(METHOD, deep, TinyBERTOptions())
    check_setting(METHOD, deep, TinyBERTOptions(without=("transformer",)))
    check_setting(METHOD, deep, TinyBERTOptions(mapping="1,2,2,3"))


def test_options_list_everything_that_is_wrong() -> None:
    with pytest.raises(UserError) as refusal:
        TinyBERTOptions(preset="code", without=("attn", "hidden"), temperature=0.0, weight_decay=-1.0)  # type: ignore[arg-type]
    for part in ("preset must be one of paper, authors-code; received 'code'", "received attn", "temperature", "decay"):
        assert part in str(refusal.value)


# --- losses: teacher of 4 layers of width 30, student of 2 of width 20, 5 heads each ---

TEACHER = BERT.replace(num_layers=4)
STUDENT = BERT.replace(num_layers=2, hidden_size=20, embedding_size=20, head_size=4, intermediate_size=23)
COLORS = TaskConfig(kind="classification", name="colors", labels=("red", "green", "blue", "grey"))
SCORE = TaskConfig(kind="regression", name="score")


@dataclasses.dataclass
class Run:
    """One batch through teacher, student and method, and everything in NumPy for the oracle."""

    stage: Stage
    terms: dict[str, float]
    targets: dict[str, np.ndarray]
    teacher: dict[str, list[np.ndarray]]
    student: dict[str, list[np.ndarray]]
    adapters: dict[str, Any]


@pytest.fixture(scope="module")
def models() -> dict[str, pb.Model]:
    return {
        f"{side} {task.kind}": pb.build(config, (task,), seed=seed)
        for task in (COLORS, SCORE)
        for seed, (side, config) in enumerate((("teacher", TEACHER), ("student", STUDENT)))
    }


def run(models: dict[str, pb.Model], stage_name: str, task: TaskConfig = COLORS, **options: Any) -> Run:
    chosen = TinyBERTOptions(max_length=7, **options)
    tiny = Setting(teacher=TEACHER, student=STUDENT, task=task, teacher_task=task)
    stage = next(stage for stage in check_setting(METHOD, tiny, chosen) if stage.name == stage_name)
    adapters = dict(METHOD.adapters(tiny, chosen))
    initialize_adapters(adapters, standard_deviation=0.3, seed=5)
    for name, adapter in adapters.items():
        adapter.bias.assign(np.linspace(-1, len(name) / 10, 30))
    labels = tf.constant([2, 0, 3]) if task.kind == "classification" else tf.constant([0.5, 3.25, -1.0])
    inputs = {**batch(TEACHER), "labels": labels}
    teacher = models[f"teacher {task.kind}"].features(inputs, stage.teacher_features) if stage.teacher_features else {}
    student = models[f"student {task.kind}"].features(inputs, stage.student_features, training=False)
    targets = METHOD.targets(stage, teacher, inputs)
    terms = METHOD.loss(stage, targets, student, adapters, inputs)
    for term in terms.values():
        assert term.dtype == tf.float32 and term.shape == ()
    return Run(
        stage,
        {name: float(term) for name, term in terms.items()},
        {name: target.numpy() for name, target in targets.items()},
        {name: [x.numpy() for x in values] for name, values in teacher.items()},
        {name: [x.numpy() for x in values] for name, values in student.items()},
        adapters,
    )


def mean_squared(teacher: np.ndarray, student: np.ndarray) -> float:
    """Over the real tokens of each row (`BATCH_LENGTHS`) and all features, in float64."""
    rows = [
        (np.float64(t[:n]) - np.float64(s[:n])).ravel() for t, s, n in zip(teacher, student, BATCH_LENGTHS, strict=True)
    ]
    return float(np.mean(np.concatenate(rows) ** 2))


def mean_squared_pairs(teacher: np.ndarray, student: np.ndarray) -> float:
    """Over heads and the pairs of real tokens of each row."""
    rows = [
        (np.float64(t[:, :n, :n]) - np.float64(s[:, :n, :n])).ravel()
        for t, s, n in zip(teacher, student, BATCH_LENGTHS, strict=True)
    ]
    return float(np.mean(np.concatenate(rows) ** 2))


def projected(adapter: Any, x: np.ndarray) -> np.ndarray:
    return x @ adapter.kernel.numpy() + adapter.bias.numpy()


@pytest.mark.parametrize("shared", [False, True])
def test_the_intermediate_losses_are_the_papers_sums(models: dict[str, pb.Model], shared: bool) -> None:
    made = run(models, "intermediate", shared_projection=shared)
    names = ("shared_projection",) * 2 if shared else ("embedding_projection", "hidden_projection")
    assert list(made.adapters) == list(dict.fromkeys(reversed(names)))
    w_e, w_h = (made.adapters[name] for name in names)
    # g(1) = 2, g(2) = 4; the features stand in the order 0, g(1), g(2).
    (t0, t2, t4), (s0, s1, s2) = made.teacher["hidden_states"], made.student["hidden_states"]
    (ta2, ta4), (sa1, sa2) = made.teacher["attention_logits"], made.student["attention_logits"]
    expected = {
        "embedding": mean_squared(t0, projected(w_e, s0)),
        "hidden": mean_squared(t2, projected(w_h, s1)) + mean_squared(t4, projected(w_h, s2)),
        "attention": mean_squared_pairs(ta2, sa1) + mean_squared_pairs(ta4, sa2),
    }
    assert made.terms.keys() == made.stage.weights.keys() == expected.keys()
    for term, value in expected.items():
        assert made.terms[term] == pytest.approx(value, rel=TOLERANCE)


def test_the_targets_are_the_teachers_features(models: dict[str, pb.Model]) -> None:
    made = run(models, "intermediate")
    assert set(made.targets) == {"hidden_states_0", "hidden_states_2", "hidden_states_4",
                                 "attention_logits_2", "attention_logits_4"}  # fmt: skip
    inputs = batch(TEACHER)
    every = models["teacher classification"].features(inputs, ["hidden_states", "attention_logits"])
    for layer in (0, 2, 4):
        np.testing.assert_array_equal(made.targets[f"hidden_states_{layer}"], every["hidden_states"][layer])
    for layer in (2, 4):
        np.testing.assert_array_equal(made.targets[f"attention_logits_{layer}"], every["attention_logits"][layer - 1])


@pytest.mark.parametrize("left_out", ["embedding", "attention", "hidden"])
def test_the_other_losses_do_not_change(models: dict[str, pb.Model], left_out: str) -> None:
    whole, rest = run(models, "intermediate"), run(models, "intermediate", without=(left_out,))
    assert rest.terms == {term: value for term, value in whole.terms.items() if term != left_out}
    missing = {"hidden": "hidden_projection", "embedding": "embedding_projection"}.get(left_out)
    assert rest.adapters.keys() == whole.adapters.keys() - {missing}


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(np.float64(x))
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize(("temperature", "over_classes"), [(1.0, False), (2.5, False), (1.0, True)])
def test_the_prediction_loss_is_equation_10(
    models: dict[str, pb.Model], temperature: float, over_classes: bool
) -> None:
    made = run(models, "prediction", temperature=temperature, mean_over_classes=over_classes)
    (teacher,), (student,) = made.teacher["logits"], made.student["logits"]
    entropies = -(softmax(teacher / temperature) * np.log(softmax(student / temperature))).sum(-1)
    expected = entropies.mean() / (4 if over_classes else 1)
    assert made.terms == {"prediction": pytest.approx(expected, rel=TOLERANCE)}
    np.testing.assert_array_equal(made.targets["logits"], teacher)


def test_without_prediction_the_loss_is_the_labels_cross_entropy(models: dict[str, pb.Model]) -> None:
    made = run(models, "prediction", without=("prediction",))
    probabilities = softmax(made.student["logits"][0])
    expected = -np.log(probabilities[[0, 1, 2], [2, 0, 3]]).mean()
    assert made.terms == {"labels": pytest.approx(expected, rel=TOLERANCE)} and made.targets == {}


def test_labels_that_are_not_there_are_missed(models: dict[str, pb.Model]) -> None:
    tiny = Setting(teacher=TEACHER, student=STUDENT, task=COLORS, teacher_task=COLORS)
    stage = METHOD.stages(tiny, TinyBERTOptions(without=("prediction",)))[1]
    student = models["student classification"].features(batch(STUDENT), stage.student_features)
    with pytest.raises(UserError, match="stage prediction learns from labels; its examples have none"):
        METHOD.loss(stage, {}, student, {}, batch(STUDENT))


def test_regression_follows_the_teachers_score_or_the_label(models: dict[str, pb.Model]) -> None:
    followed = run(models, "prediction", SCORE)
    (teacher,), (student,) = followed.teacher["logits"], followed.student["logits"]
    assert teacher.shape == (3,)
    assert followed.terms == {"prediction": pytest.approx(float(((student - teacher) ** 2).mean()), rel=TOLERANCE)}
    labelled = run(models, "prediction", SCORE, regression_target="labels")
    expected = float(((student - np.array([0.5, 3.25, -1.0])) ** 2).mean())
    assert labelled.terms == {"labels": pytest.approx(expected, rel=TOLERANCE)} and labelled.targets == {}


def test_projections_stand_even_between_equal_widths() -> None:
    equal = Setting(teacher=TEACHER, student=TEACHER.replace(num_layers=2), task=None)
    adapters = METHOD.adapters(equal, TinyBERTOptions())
    assert {name: tuple(layer.kernel.shape) for name, layer in adapters.items()} == {
        "hidden_projection": (30, 30),
        "embedding_projection": (30, 30),
    }
    narrow = dataclasses.replace(equal, student=STUDENT)
    (shared,) = METHOD.adapters(narrow, TinyBERTOptions(shared_projection=True)).values()
    assert tuple(shared.kernel.shape) == (20, 30)


def test_student_and_projections_learn_and_the_teacher_does_not(models: dict[str, pb.Model]) -> None:
    tiny = Setting(teacher=TEACHER, student=STUDENT, task=None)
    options = TinyBERTOptions(max_length=7)
    (stage,) = check_setting(METHOD, tiny, options)
    adapters = METHOD.adapters(tiny, options)
    initialize_adapters(adapters, standard_deviation=0.3, seed=5)
    teacher, student = models["teacher classification"], models["student classification"]
    inputs = batch(TEACHER)
    with tf.GradientTape() as tape:
        targets = METHOD.targets(stage, teacher.features(inputs, stage.teacher_features), inputs)
        features = student.features(inputs, stage.student_features, training=True)
        loss = sum(METHOD.loss(stage, targets, features, adapters, inputs).values())
    weights = student.weights_by_path()
    own = {name: weight for name, weight in weights.items() if name.startswith("encoder.") and "pooler" not in name}
    kernels = [adapter.kernel for adapter in adapters.values()]
    watched = [*own.values(), *kernels, *teacher.trainable_variables]
    gradients = tape.gradient(loss, watched, unconnected_gradients="none")
    learning, frozen = gradients[: len(own) + len(kernels)], gradients[len(own) + len(kernels) :]
    assert all(gradient is not None for gradient in learning)
    assert all(gradient is None for gradient in frozen) and frozen
